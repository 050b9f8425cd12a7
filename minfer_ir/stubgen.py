"""The typed stub of GraphBuilder: the op methods from the declarations, the rest from builder.py's own source."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from minfer_ir import builder
from minfer_ir.attr_types import REQUIRED, AttrField, attr_fields, is_record, is_union
from minfer_ir.dtypes import DType
from minfer_ir.formats.base import Format
from minfer_ir.ops import OPS
from minfer_ir.opspec import Op

LINE = 120

NAMES: dict[Any, str] = {
    int: "int",
    float: "float",
    str: "str",
    bool: "bool",
    NoneType: "None",
    DType: "str | DType",
    Format: "str | Format",
}
IMPORTS: dict[Any, str] = {
    DType: "from minfer_ir.dtypes import DType",
    Format: "from minfer_ir.formats.base import Format",
}


def builder_stub() -> str:
    """The text of minfer_ir/builder.pyi."""
    source = ast.parse(Path(builder.__file__).read_text(encoding="utf-8"))
    used = {line for op in OPS.values() for f in attr_fields(op.Attrs) for line in _imports(f.hint)}
    used.add("from typing import Literal")
    kept = [n for n in source.body if isinstance(n, (ast.Import, ast.ImportFrom)) and _module(n) != "__future__"]
    body = [*_classes(source), *(line for n in _public(source.body) for line in _function(n, ""))]
    imports = _sorted_imports({*_import_lines(kept), *used}, _names(body))
    header = (
        "# Generated from the op declarations by `python -m tools.generate`; edit those, or builder.py.",
        '"""GraphBuilder with a typed method per op."""',
    )
    return "\n".join([*header, "", *imports, "", *body]) + "\n"


def hint_text(hint: Any) -> str:
    """The annotation of a keyword attr: what `attrs_from_json` accepts for it, as the stub spells it."""
    if hint in NAMES:
        return NAMES[hint]
    if get_origin(hint) is Literal:
        return f"Literal[{', '.join(_quoted(v) for v in get_args(hint))}]"
    if is_union(hint):
        return " | ".join(hint_text(arm) for arm in get_args(hint))
    if get_origin(hint) is tuple:
        return f"Sequence[{hint_text(get_args(hint)[0])}]"
    if is_record(hint):
        return f"{hint.__name__} | Mapping[str, Any]"
    raise TypeError(f"the builder stub can't spell {hint}")


def op_method(op: Op) -> list[str]:
    """The stub of an op's builder method, as lines inside the class."""
    operands = [f"{s.name}: Node" + (" | None = None" if s.optional else "") for s in op.operands]
    attrs = [_keyword(field) for field in attr_fields(op.Attrs)]
    parameters = ["self", *operands, *(["/"] if operands else []), "*", *attrs, "name: str | None = None"]
    return _definition(f"def {op.name}", parameters, "Node", op.doc, "    ")


def _keyword(field: AttrField) -> str:
    text = f"{field.name}: {hint_text(field.hint)}"
    if field.default is REQUIRED:
        return text
    return text + (" = ..." if is_record(field.hint) else f" = {_quoted(field.default)}")


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _definition(head: str, parameters: list[str], result: str, doc: str, indent: str) -> list[str]:
    """A function stub behind a blank line, laid out the way ruff formats it."""
    one = f"{indent}{head}({', '.join(parameters)}) -> {result}:"
    hanging = f"{indent}    {', '.join(parameters)}"
    lines = [one]
    if len(one) > LINE and len(hanging) <= LINE:
        lines = [f"{indent}{head}(", hanging, f"{indent}) -> {result}:"]
    elif len(one) > LINE:
        lines = [f"{indent}{head}(", *(f"{indent}    {p}," for p in parameters), f"{indent}) -> {result}:"]
    quoted = f'{indent}    """{doc}"""'
    return ["", *lines, *textwrap.wrap(quoted, LINE, subsequent_indent=f"{indent}    ")]


def _classes(source: ast.Module) -> Iterator[str]:
    for node in _public(source.body):
        if not isinstance(node, ast.ClassDef):
            continue
        yield f"class {node.name}:"
        yield f'    """{_doc(node)}"""'
        for method in _public(node.body):
            yield from _function(method, "    ")
        if node.name == builder.GraphBuilder.__name__:
            for op in OPS.values():
                yield from op_method(op)


def _function(node: ast.stmt, indent: str) -> Iterator[str]:
    if not isinstance(node, ast.FunctionDef):
        return
    result = ast.unparse(node.returns) if node.returns else "None"
    parameters = [_parameter(a) for a in (*node.args.posonlyargs, *node.args.args)]
    for i, default in enumerate(reversed(node.args.defaults), start=1):
        parameters[-i] += f" = {ast.unparse(default)}"
    decorators = [f"{indent}@{ast.unparse(d)}" for d in node.decorator_list]
    doc = _doc(node) or "An empty builder."
    yield from ["", *decorators, *_definition(f"def {node.name}", parameters, result, doc, indent)[1:]]


def _parameter(argument: ast.arg) -> str:
    return argument.arg + (f": {ast.unparse(argument.annotation)}" if argument.annotation else "")


def _public(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (node.name == "__init__" or node.name[0] != "_"):
            yield node


def _doc(node: ast.FunctionDef | ast.ClassDef) -> str | None:
    text = ast.get_docstring(node)
    return text.splitlines()[0] if text else None


def _module(node: ast.Import | ast.ImportFrom) -> str | None:
    return node.module if isinstance(node, ast.ImportFrom) else None


def _imports(hint: Any) -> Iterator[str]:
    if hint in IMPORTS:
        yield IMPORTS[hint]
    elif is_record(hint):
        yield f"from {hint.__module__} import {hint.__name__}"
        yield "from collections.abc import Mapping"
    else:
        for inner in get_args(hint):
            yield from _imports(inner)


def _import_lines(nodes: list[ast.Import | ast.ImportFrom]) -> Iterator[str]:
    for node in nodes:
        for alias in node.names:
            yield f"from {_module(node)} import {alias.name}" if _module(node) else f"import {alias.name}"


def _names(body: list[str]) -> set[str]:
    """The names that annotations and decorators refer to."""
    return {n.id for n in ast.walk(ast.parse("\n".join(body))) if isinstance(n, ast.Name)}


def _sorted_imports(lines: set[str], used: set[str]) -> list[str]:
    """The imports of the `used` names, one line a module: the standard library, then ours."""
    names: dict[str, set[str]] = {}
    for line in lines:
        _, module, _, name = line.split()
        if name in used:
            names.setdefault(module, set()).add(name)
    texts = [f"from {module} import {', '.join(sorted(found))}" for module, found in sorted(names.items())]
    standard = [t for t in texts if not t.startswith("from minfer_ir")]
    return [*standard, "", *(t for t in texts if t not in standard)]
