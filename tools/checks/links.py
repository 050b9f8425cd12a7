"""Relative links in the documentation lead to files and headings that exist."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

_INLINE = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*<?(\S+?)>?\s*$")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
_CODE_SPAN = re.compile(r"(`+).+?\1")
_EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def pages(root: Path) -> list[Path]:
    """The documentation: the Markdown files at the top and under docs/."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")])


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside fenced code, numbered from 1."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if fence:
            if mark and mark[1].startswith(fence):
                fence = ""
        elif mark:
            fence = mark[1]
        else:
            yield number, line


def anchors(text: str) -> set[str]:
    """The fragments a page answers to: its headings as GitHub spells them, and explicit anchors."""
    found: set[str] = set()
    counts: dict[str, int] = {}
    for _, line in prose(text):
        found.update(_ANCHOR.findall(line))
        heading = _HEADING.match(line)
        if heading is None:
            continue
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()).replace(" ", "-")
        repeats = counts.get(slug, 0)
        counts[slug] = repeats + 1
        found.add(f"{slug}-{repeats}" if repeats else slug)
    return found


def links(text: str) -> Iterator[tuple[int, str]]:
    """Link targets with their lines; code is left out."""
    for number, line in prose(text):
        reference = _REFERENCE.match(line)
        if reference:
            yield number, reference[1]
            continue
        for target in _INLINE.findall(_CODE_SPAN.sub("", line)):
            yield number, target


def broken_links(root: Path) -> list[str]:
    """`page:line: what is wrong`, for every page under `root`."""
    found: list[str] = []
    for page in pages(root):
        for line, target in links(page.read_text(encoding="utf-8")):
            wrong = _what_is_wrong(root, page, target)
            if wrong:
                found.append(f"{page.relative_to(root).as_posix()}:{line}: {target}: {wrong}")
    return found


def _what_is_wrong(root: Path, page: Path, target: str) -> str | None:
    if _EXTERNAL.match(target):
        return None
    path, _, fragment = target.partition("#")
    file = (page.parent / unquote(path)).resolve() if path else page
    if not file.exists():
        return "no such file"
    docs = root.resolve() / "docs"
    if page.resolve().is_relative_to(docs) and not file.is_relative_to(docs):
        return "the built site holds docs/ alone; link to the repository's address instead"
    if fragment and file.suffix == ".md" and fragment not in anchors(file.read_text(encoding="utf-8")):
        return "no such heading"
    return None


def main() -> int:
    """Print the broken links of this repository."""
    found = broken_links(Path(__file__).resolve().parent.parent.parent)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
