"""Kernels are launched in one place: nothing but minfer_kernels/gpu/launch.py calls `kernel[grid](...)`.

And none is autotuned: a tuner runs a kernel many times, over cells that it writes too, and what it picks, and with it
the order of sums, differs from run to run. Tiles are chosen by the device's capability.

Reads the syntax trees; imports nothing.
"""

from __future__ import annotations

import ast
import builtins
import sys
from dataclasses import dataclass, field
from pathlib import Path

LAUNCHER = "minfer_kernels/gpu/launch.py"
PACKAGES = ("minfer_ir", "minfer_kernels", "minfer_models")
KERNELS = "minfer_kernels.gpu.kernels"
HINT = "kernels are launched through Launch.run in minfer_kernels/gpu/launch.py alone"
TUNERS = ("autotune", "heuristics")
TUNED = "no kernel is tuned at run time: choose its tile by the device's capability"


@dataclass(frozen=True, slots=True)
class Violation:
    """One launch beside the launch helper, or a tuner."""

    path: str
    line: int
    code: str
    hint: str = HINT

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.code}: {self.hint}"


@dataclass
class _Visitor(ast.NodeVisitor):
    """Finds launches: subscripts of what is known as a kernel, calls of a subscript, and calls with a grid.

    A call of an entry of a table in capitals is a function's, of a generic type that type's.
    """

    knows_kernels: bool
    kernels: set[str] = field(default_factory=set[str])
    found: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def visit_Call(self, node: ast.Call) -> None:
        callee = node.func
        if isinstance(callee, ast.Subscript) and self.knows_kernels and not _is_other(callee.value):
            self._add(node)
        has_grid = any(keyword.arg == "grid" for keyword in node.keywords)
        if has_grid and isinstance(callee, ast.Attribute) and callee.attr in ("run", "warmup"):
            self._add(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if _root(node.value) in self.kernels and not _is_other(node.value):
            self._add(node)
        self.generic_visit(node)

    def _add(self, node: ast.expr) -> None:
        if (line := node.lineno) not in [at for at, _ in self.found]:
            self.found.append((line, ast.unparse(node)))


def check_tree(root: Path) -> list[Violation]:
    """Every launch under `root`, which holds the three packages, beside the helper's, and every tuner."""
    found: list[Violation] = []
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if (name := path.relative_to(root).as_posix()) != LAUNCHER:
                found += check_source(path.read_text(encoding="utf-8"), name)
    return found


def check_source(text: str, path: str) -> list[Violation]:
    """The launches and tuners in one module."""
    tree = ast.parse(text, path)
    kernels = _kernel_names(tree)
    knows = bool(kernels) or path.startswith("minfer_kernels/gpu/")
    visitor = _Visitor(knows, kernels)
    visitor.visit(tree)
    launched = [Violation(path, line, code) for line, code in visitor.found]
    return launched + [Violation(path, line, name, TUNED) for line, name in _tuners(tree)]


def _tuners(tree: ast.Module) -> list[tuple[int, str]]:
    """Triton's tuners, as `triton.autotune` or imported from it."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in TUNERS and _root(node) == "triton":
            found.append((node.lineno, ast.unparse(node)))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "triton":
            found += [(node.lineno, alias.name) for alias in node.names if alias.name in TUNERS]
    return found


def _kernel_names(tree: ast.Module) -> set[str]:
    """Names that are kernels, or modules of them: imported from the kernels, or decorated with triton's jit here.

    Types and constants that are imported from there are none.
    """
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(KERNELS):
            imported = {alias.asname or alias.name for alias in node.names}
            names |= {name for name in imported if name[:1].islower()}
        elif isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list):
            names.add(node.name)
    return names


def _root(node: ast.expr) -> str:
    """The first name of `a.b.c`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_other(node: ast.expr) -> bool:
    """Whether the last name is that of a table of functions (in capitals) or of a type."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name[:1].isupper() or name in dir(builtins)


def main() -> int:
    """Print the violations of this repository."""
    found = check_tree(Path(__file__).resolve().parent.parent.parent)
    for violation in found:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
