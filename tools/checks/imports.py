"""Imports run one way (minfer_models -> minfer_kernels -> minfer_ir), third-party ones stay where they are declared,

and the environment is read in one module. Reads the syntax trees; imports nothing.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LAYERS = {"minfer_ir": 0, "minfer_kernels": 1, "minfer_models": 2}
SETTINGS = "minfer_models.settings"
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


@dataclass(frozen=True, slots=True)
class Allowed:
    """Third-party packages a part of the house may import at the top of a module, and inside functions only."""

    top: frozenset[str]
    lazy: frozenset[str] = frozenset()


def _allow(top: str, lazy: str = "") -> Allowed:
    return Allowed(frozenset(top.split()), frozenset(lazy.split()))


TESTS_ONLY = "minfer_ir.testing.strategies"

# longest prefix wins
THIRD_PARTY = {
    "minfer_ir": _allow("numpy", "networkx"),
    TESTS_ONLY: _allow("numpy hypothesis"),
    "minfer_kernels": _allow("numpy"),
    "minfer_kernels.cpu": _allow("numpy numba llvmlite"),
    "minfer_kernels.gpu": _allow("numpy torch triton"),
    "minfer_kernels.tensors": _allow("numpy torch"),
    "minfer_kernels.torch_ops": _allow("numpy torch"),
    "minfer_models": _allow("numpy gguf tokenizers jinja2 typer rich huggingface_hub", "numba llvmlite"),
    "minfer_models.backends": _allow("numpy", "torch"),
    "minfer_models.devices": _allow("", "torch"),
    "minfer_models.grammar": _allow("numpy", "llguidance"),
    "minfer_models.cli.chat": _allow("typer", "prompt_toolkit"),
    "minfer_models.bench.peer.llama_cpp_worker": _allow("numpy", "llama_cpp"),
    "minfer_models.server": _allow("numpy fastapi starlette pydantic prometheus_client uvicorn"),
}


@dataclass(frozen=True, slots=True)
class Violation:
    """One import or read that breaks a rule."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass
class _Visitor(ast.NodeVisitor):
    module: str
    is_package: bool
    depth: int = 0
    imports: list[tuple[int, str, bool]] = field(default_factory=list[tuple[int, str, bool]])
    environment: list[int] = field(default_factory=list[int])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._nested(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._nested(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            self._nested(node)
        else:
            self.generic_visit(node)

    def _nested(self, node: ast.AST) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._record(node.lineno, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        origin = self._absolute(node.module or "", node.level)
        if origin == "os" and any(alias.name in ENVIRONMENT for alias in node.names):
            self.environment.append(node.lineno)
        self._record(node.lineno, origin)
        for alias in node.names:
            # `from minfer_ir import testing` imports a module too
            self._record(node.lineno, f"{origin}.{alias.name}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id == "os" and node.attr in ENVIRONMENT:
            self.environment.append(node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__") and node.args:
            target = node.args[0]
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                self._record(node.lineno, target.value)
        self.generic_visit(node)

    def _record(self, line: int, target: str) -> None:
        self.imports.append((line, target, self.depth > 0))

    def _absolute(self, name: str, level: int) -> str:
        if level == 0:
            return name
        parents = self.module.split(".")
        base = parents[: len(parents) - level + self.is_package]
        return ".".join([*base, name]) if name else ".".join(base)


def check_tree(root: Path) -> list[Violation]:
    """Every violation under `root`, which holds the three packages."""
    found: list[Violation] = []
    for package in LAYERS:
        for path in sorted((root / package).rglob("*.py*")):
            if path.suffix in (".py", ".pyi"):
                found += check_file(path, root)
    return found


def check_file(path: Path, root: Path) -> list[Violation]:
    """The violations of one module."""
    relative = path.relative_to(root)
    parts = relative.with_suffix("").parts
    is_package = parts[-1] == "__init__"
    module = ".".join(parts[:-1] if is_package else parts)
    visitor = _Visitor(module, is_package)
    visitor.visit(ast.parse(path.read_text(encoding="utf-8"), str(relative)))
    messages = dict.fromkeys(_import_messages(module, visitor.imports))
    if module != SETTINGS:
        hint = "the environment is read in minfer_models/settings.py alone: take a Settings value"
        messages.update(dict.fromkeys((line, hint) for line in visitor.environment))
    return [Violation(relative.as_posix(), line, message) for line, message in messages]


def _import_messages(module: str, imports: list[tuple[int, str, bool]]) -> Iterator[tuple[int, str]]:
    package = module.split(".", maxsplit=1)[0]
    rule = max((prefix for prefix in THIRD_PARTY if _within(module, prefix)), key=len)
    allowed = THIRD_PARTY[rule]
    for line, target, is_lazy in imports:
        top = target.split(".", maxsplit=1)[0]
        if top in LAYERS:
            if LAYERS[top] > LAYERS[package]:
                yield line, f"{package} must not import {top}: imports run minfer_models -> minfer_kernels -> minfer_ir"
            elif _within(target, TESTS_ONLY) and not _within(module, "minfer_ir.testing"):
                yield line, f"{TESTS_ONLY} needs hypothesis: tests import it, the packages do not"
        elif top in allowed.top or (is_lazy and top in allowed.lazy) or top in sys.stdlib_module_names:
            continue
        elif top in allowed.lazy:
            yield line, f"{rule} imports {top} inside functions only"
        else:
            yield line, f"{rule} must not import {top}; it may import {', '.join(sorted(allowed.top | allowed.lazy))}"


def _within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def main() -> int:
    """Print the violations of this repository."""
    found = check_tree(Path(__file__).resolve().parent.parent.parent)
    for violation in found:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
