"""Kernels are launched in one place: nothing but minfer_kernels/gpu/launch.py calls `kernel[grid](...)`.

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


@dataclass(frozen=True, slots=True)
class Violation:
    """One launch beside the launch helper."""

    path: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.code}: {HINT}"


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
    """Every launch under `root`, which holds the three packages, beside the helper's."""
    found: list[Violation] = []
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if (name := path.relative_to(root).as_posix()) != LAUNCHER:
                found += check_source(path.read_text(encoding="utf-8"), name)
    return found


def check_source(text: str, path: str) -> list[Violation]:
    """The launches in one module."""
    tree = ast.parse(text, path)
    kernels = _kernel_names(tree)
    knows = bool(kernels) or path.startswith("minfer_kernels/gpu/")
    visitor = _Visitor(knows, kernels)
    visitor.visit(tree)
    return [Violation(path, line, code) for line, code in visitor.found]


def _kernel_names(tree: ast.Module) -> set[str]:
    """Names that are kernels, or modules of them: imported from the kernels, or decorated with triton's jit here."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(KERNELS):
            names |= {alias.asname or alias.name for alias in node.names}
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
