"""The JSON Schema of a serialized graph, made from the op declarations."""

from __future__ import annotations

import json
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from minfer_ir.attr_types import REQUIRED, attr_fields, is_record, is_union
from minfer_ir.dtypes import DTYPES, DType
from minfer_ir.formats import CELL_FORMATS, FORMATS
from minfer_ir.formats.base import Format
from minfer_ir.ops import OPS
from minfer_ir.opspec import Op
from minfer_ir.serialize import VERSION, DocumentRecord, NodeRecord

Schema = dict[str, Any]

SCALARS: dict[Any, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    DType: {"$ref": "#/$defs/scalar"},
    Format: {"$ref": "#/$defs/format"},
}


def graph_schema() -> Schema:
    """JSON Schema 2020-12 of what `minfer_ir.serialize.to_json` writes."""
    document = record_schema(DocumentRecord)
    document["properties"] |= {
        "version": {"const": VERSION},
        "nodes": {"type": "array", "items": {"$ref": "#/$defs/node"}},
        "plan": {"type": "object", "description": "what a later stage knows besides the graph; not read back"},
    }
    document["required"] = ["version", "outputs", "nodes"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "minfer graph",
        "description": "A graph at some stage of lowering. Sources, view.source and outputs are node ids.",
        **document,
        "$defs": {
            "scalar": {"enum": list(DTYPES)},
            "format": {"enum": [*FORMATS, *CELL_FORMATS]},
            "node": _node_schema(),
            **{f"op.{op.name}": _op_schema(op) for op in OPS.values()},
        },
    }


def graph_schema_text() -> str:
    """The schema as the text of docs/graph.schema.json."""
    return json.dumps(graph_schema(), indent=2) + "\n"


def type_schema(hint: Any) -> Schema:
    """The schema of one annotated value."""
    if hint in SCALARS:
        return SCALARS[hint]
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if is_union(hint):
        return {"anyOf": [type_schema(arm) for arm in get_args(hint)]}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": type_schema(get_args(hint)[0])}
    if is_record(hint):
        return record_schema(hint)
    raise TypeError(f"no JSON Schema for {hint}")


def record_schema(record: type[Any]) -> Schema:
    """The schema of a dataclass: its fields and no others."""
    fields = attr_fields(record)
    return {
        "type": "object",
        "properties": {f.name: type_schema(f.hint) for f in fields},
        "required": [f.name for f in fields if f.default is REQUIRED],
        "additionalProperties": False,
    }


def _node_schema() -> Schema:
    node = record_schema(NodeRecord)
    node["properties"] |= {"op": {"enum": list(OPS)}, "attrs": {"type": "object"}}
    node["required"].append("attrs")
    rules = [_when_op(name) for name in OPS]
    return node | {"allOf": rules}


def _when_op(name: str) -> Schema:
    return {
        "if": {"properties": {"op": {"const": name}}, "required": ["op"]},
        "then": {"$ref": f"#/$defs/op.{name}"},
    }


def _op_schema(op: Op) -> Schema:
    required = sum(not slot.optional for slot in op.operands)
    sources: Schema = {"minItems": required, "maxItems": len(op.operands)}
    if op.operands:
        sources["description"] = ", ".join(s.name + (" (optional)" if s.optional else "") for s in op.operands)
    return {"description": op.doc, "properties": {"attrs": record_schema(op.Attrs), "sources": sources}}
