"""JSON Schema of the reports, made from their dataclasses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from minfer_models.bench.report.document import FORMAT, VERSION

Schema = dict[str, Any]

REPORTS = {
    "throughput": "minfer_models.bench.throughput.report:ThroughputReport",
    "ab": "minfer_models.bench.ab.report:AbReport",
    "peer": "minfer_models.bench.peer.report:PeerReport",
    "roofline": "minfer_models.bench.roofline.report:RooflineReport",
    "roofline-device": "minfer_models.bench.roofline.device.report:DeviceRooflineReport",
    "neighbour": "minfer_models.bench.neighbour.report:NeighbourReport",
    "start": "minfer_models.bench.start.report:StartReport",
    "sampling": "minfer_models.bench.sampling.report:SamplingReport",
    "quantize": "minfer_models.bench.quantize.report:QuantizeReport",
}
"""Every kind of report and its dataclass. A new subcommand adds a line."""

SCALARS: dict[Any, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    object: {},
}


def document_schema() -> Schema:
    """JSON Schema 2020-12 of whatever `minfer-bench -o json` prints."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "minfer-bench report",
        "description": "Seconds, bytes, and tokens per second, unless a name says otherwise.",
        "oneOf": [_report_schema(kind, _load(where)) for kind, where in REPORTS.items()],
    }


def document_schema_text() -> str:
    """The schema as the text of docs/bench.schema.json."""
    return json.dumps(document_schema(), indent=2) + "\n"


def type_schema(hint: Any) -> Schema:
    """The schema of one annotated value; raises TypeError for a type that JSON has no form for."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, UnionType):
        return {"anyOf": [type_schema(arm) for arm in arguments]}
    if origin in (tuple, list):
        return {"type": "array", "items": type_schema(arguments[0])}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": type_schema(arguments[1])}
    if is_dataclass(hint):
        return record_schema(hint)
    raise TypeError(f"no JSON Schema for {hint}")


def record_schema(record: Any) -> Schema:
    """The schema of a dataclass: its fields and no others, described by its docstring's first paragraph."""
    hints = get_type_hints(record)
    about = " ".join((record.__doc__ or "").split("\n\n")[0].split())
    return {
        "type": "object",
        "description": about,
        "properties": {f.name: type_schema(hints[f.name]) for f in fields(record)},
        "required": [f.name for f in fields(record) if f.default is MISSING and f.default_factory is MISSING],
        "additionalProperties": False,
    }


def _report_schema(kind: str, report: Any) -> Schema:
    schema = record_schema(report)
    head: Schema = {"format": {"const": FORMAT}, "version": {"const": VERSION}, "kind": {"const": kind}}
    return schema | {"properties": head | schema["properties"], "required": [*head, *schema["required"]]}


def _load(where: str) -> Any:
    module, name = where.split(":")
    return getattr(import_module(module), name)
