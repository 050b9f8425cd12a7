"""Files that are made from code. `python -m tools.generate` writes them; `--check` names the stale ones and exits 1.

To add one, append a line to GENERATED: the function takes nothing and returns the whole file.
"""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Generated:
    """A file, and `module:function`, which returns its text."""

    path: str
    source: str

    def text(self) -> str:
        """What the file should say now."""
        module, function = self.source.split(":")
        return getattr(import_module(module), function)()


GENERATED = (
    Generated("docs/settings.md", "minfer_models.settings:settings_page"),
    Generated("docs/graph.schema.json", "minfer_ir.schema:graph_schema_text"),
    Generated("docs/bench.schema.json", "minfer_models.bench.report.schema:document_schema_text"),
    Generated("minfer_ir/builder.pyi", "minfer_ir.stubgen:builder_stub"),
    Generated("docs/SUPPORT-MATRIX.md", "tools.support_matrix:page"),
    Generated("docs/pipeline.svg", "tools.pipeline_picture:picture"),
    Generated("docs/speed.svg", "tools.speed_picture:picture"),
)


def stale(root: Path, entries: tuple[Generated, ...] = GENERATED) -> list[tuple[Generated, str]]:
    """The entries whose file differs from what its source says, each with a short diff."""
    found: list[tuple[Generated, str]] = []
    for entry in entries:
        path = root / entry.path
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        wanted = entry.text()
        if there != wanted:
            lines = difflib.unified_diff(there.splitlines(), wanted.splitlines(), "file", "generated", lineterm="", n=1)
            found.append((entry, "\n".join(list(lines)[:20])))
    return found


def write(root: Path, entries: tuple[Generated, ...] = GENERATED) -> list[str]:
    """Bring every file up to date; the paths that changed."""
    changed = [entry for entry, _ in stale(root, entries)]
    for entry in changed:
        path = root / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(entry.text(), encoding="utf-8", newline="\n")
    return [entry.path for entry in changed]


def main(arguments: list[str]) -> int:
    """Write, or with `--check` only compare."""
    root = Path(__file__).resolve().parent.parent
    if arguments != ["--check"]:
        for path in write(root):
            print(f"wrote {path}")
        return 0
    found = stale(root)
    for entry, diff in found:
        print(f"{entry.path} is stale (made by {entry.source}); run: python -m tools.generate\n{diff}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
