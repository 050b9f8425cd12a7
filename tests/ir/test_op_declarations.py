"""What a declaration refuses, and attrs on their way to JSON and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from minfer_ir.attr_types import AttrError, convert, revive
from minfer_ir.dtypes import F16, F32, I32, DType
from minfer_ir.formats import FORMATS, Q4_0, Q8A32, Q8A256
from minfer_ir.formats.base import Format
from minfer_ir.ops import FUSED, OPS, op_named
from minfer_ir.ops.rope import RopeAttrs, RopeScaling
from minfer_ir.opspec import NoAttrs, OpError, attrs_from_json, attrs_to_json
from minfer_ir.types import TensorType, element_type

X = TensorType((3, 32), F32, "token")
ROW = TensorType((32,), F32)


def refusal(op: str, operands: list[TensorType], **attrs: Any) -> str:
    with pytest.raises(OpError) as caught:
        OPS[op].check(attrs_from_json(OPS[op], attrs), operands)
    return str(caught.value)


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "message"),
    [
        ("add", [X], {}, "add takes 2 to 2 operands, got 1"),
        ("silu", [X, X], {}, "silu takes 1 to 1 operands, got 2"),
        ("rope", [X], {"pairs": "neox", "dims": 2, "base": 1, "max_positions": 1}, "rope takes 2 to 3 operands, got 1"),
        ("add", [X, TensorType((3, 31), F32, "token")], {}, "y has shape (3, 31), x has (3, 32)"),
        ("add", [X, TensorType((3, 32), F32, "output")], {}, "count different rows"),
        ("mul", [TensorType((3, 3), F32, "token"), TensorType((3,), F32, "token")], {}, "count different rows"),
        ("silu", [TensorType((3, 32), F16)], {}, "operand x is f16, accepted: f32"),
        ("swiglu", [X, TensorType((3, 31), F32, "token")], {}, "operand up has shape (3, 31), but H is 32"),
        ("swiglu", [X, TensorType((4, 32), F32, "token")], {}, "operand up has shape (4, 32), but T is 3"),
        ("swiglu", [X, TensorType((3, 32), F32)], {}, "operand up counts None rows, but T counts token rows"),
        ("rms_norm", [X, TensorType((31,), F32)], {"eps": 1e-5}, "operand weight has shape (31,), but H is 32"),
        ("rms_norm", [TensorType((32,), F32), ROW], {"eps": 1e-5}, "operand x has shape (32,), expected [T H]"),
        ("matmul", [X, TensorType((5, 64), Q4_0)], {}, "operand weight has shape (5, 64), but K is 32"),
        ("matmul", [X, TensorType((5, 32), Q8A32)], {}, "operand weight is Q8A32, accepted: BF16, F16, F32, IQ4_NL"),
        ("matmul", [TensorType((3, 32), F16), TensorType((5, 32), Q4_0)], {}, "accepted: Q8A256, Q8A32, f32"),
        ("get_rows", [TensorType((5, 32), Q4_0), ROW], {}, "operand ids is f32, accepted: i32"),
        ("quantize_act", [X], {"dtype": "Q8A256"}, "32 features aren't whole Q8A256 blocks of 256"),
        ("quantize_act", [X], {"dtype": "Q4_0"}, "activations are never stored as Q4_0; formats: Q8A32, Q8A256"),
        ("swiglu_quantize", [X, X], {"dtype": "Q8A256"}, "32 features aren't whole Q8A256 blocks"),
        ("kv_store", [TensorType((8, 31), F16), X, TensorType((3,), I32, "token")], {}, "shape (3, 32), but W is 31"),
        ("weight", [], {"key": "w", "shape": [2, 33], "dtype": "Q4_0"}, "weight w (2, 33): rows aren't whole Q4_0"),
        ("weight", [], {"key": "w", "shape": [], "dtype": "F32"}, "weight w ()"),
        ("weight", [], {"key": "w", "shape": [0, 32], "dtype": "F32"}, "weight w: dims must be at least 1, got (0"),
        ("input", [], {"key": "i", "shape": [-1], "dtype": "i32"}, "input i: dims must be at least 1, got (-1,)"),
        ("kv", [], {"key": "k", "cells": 0, "width": 4, "dtype": "f16"}, "kv k: dims must be at least 1, got (0, 4)"),
        ("kv", [], {"key": "k", "cells": 4, "width": 4, "dtype": "i32"}, "are stored as f32, f16 or q8_0, not i32"),
        ("kv", [], {"key": "k", "cells": 4, "width": 48, "dtype": "q8_0"}, "48 wide rows aren't whole q8_0 blocks"),
        ("weight_concat", [], {"keys": ["a"], "sizes": [1], "width": 32, "dtype": "F32"}, "two or more keys"),
        ("weight_concat", [], {"keys": ["a", "b"], "sizes": [1], "width": 32, "dtype": "F32"}, "a size each"),
        ("weight_concat", [], {"keys": ["a", "b"], "sizes": [1, 2], "width": 33, "dtype": "Q4_0"}, "33 wide rows"),
        ("scale", [X], {}, "scale: factor: missing; it is a number"),
        ("scale", [X], {"factor": "2"}, "scale: factor: expected a number, got '2'"),
        ("scale", [X], {"factor": True}, "scale: factor: expected a number, got True"),
        ("view", [X], {"starts": [0, 1.5], "shape": [3, 1]}, "view: starts[1]: expected an integer, got 1.5"),
        ("silu", [X], {"slope": 1}, "silu: slope: no such field; there are: none"),
        ("input", [], {"key": "i", "shape": [1], "dtype": "Q4_0"}, "dtype: expected the name of a scalar type"),
        ("quantize_act", [X], {"dtype": "f32"}, "dtype: expected the name of a storage format, got 'f32'"),
        ("input", [], {"key": "i", "shape": [1], "dtype": "i32", "rows": "batch"}, "rows: expected one of"),
    ],
)  # fmt: skip
def test_refusals_name_op_operand_and_values(
    op: str, operands: list[TensorType], attrs: dict[str, Any], message: str
) -> None:
    text = refusal(op, operands, **attrs)
    assert message in text
    assert op in text or "KV" in text


def test_attrs_of_another_op_are_refused() -> None:
    with pytest.raises(OpError, match=r"scale takes attrs Attrs, got NoAttrs\(\)"):
        OPS["scale"].check(NoAttrs(), [X])


def test_an_unknown_op_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OpError, match=r"unknown op 'gelu'; known: input, weight, .*swiglu_quantize"):
        op_named("gelu")


def test_an_unknown_element_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown element type 'q4_0'; known: f32, .*Q8A256"):
        element_type("q4_0")


def test_every_case_is_what_its_declaration_allows_and_survives_json() -> None:
    count = 0
    for op in OPS.values():
        for case in op.cases():
            attrs = attrs_from_json(op, case.attrs)
            op.check(attrs, case.operands)
            assert attrs_from_json(op, json.loads(json.dumps(attrs_to_json(attrs)))) == attrs
            count += 1
    assert count > 100


@pytest.mark.parametrize("dtype", ["i32", "f32", "Q8_0"])
def test_element_types_go_to_json_by_name(dtype: str) -> None:
    op = OPS["weight" if dtype in FORMATS else "input"]
    attrs = attrs_from_json(op, {"key": "x", "shape": [2, 32], "dtype": dtype})
    assert attrs_to_json(attrs)["dtype"] == dtype
    assert attrs.dtype is element_type(dtype)
    assert attrs_from_json(op, {"key": "x", "shape": (2, 32), "dtype": attrs.dtype}) == attrs


def test_nested_attrs_become_objects_and_come_back_with_their_defaults() -> None:
    scaling = RopeScaling("yarn", 4.0, 64)
    attrs = RopeAttrs("neox", 8, 1e4, 16, scaling)
    plain = attrs_to_json(attrs)
    assert plain["scaling"]["original_context"] == 64
    assert attrs_from_json(OPS["rope"], plain) == attrs
    assert attrs_from_json(OPS["rope"], plain | {"scaling": scaling}) == attrs
    partial = attrs_from_json(OPS["rope"], plain | {"scaling": {"kind": "linear", "factor": 2}})
    assert partial.scaling == RopeScaling("linear", 2.0)
    assert isinstance(partial.scaling.factor, float)


@dataclass(frozen=True)
class Inner:
    n: int


@dataclass(frozen=True)
class Outer:
    items: tuple[Inner, ...]
    kind: DType | Format
    mode: Literal["a", "b"] | None = None


def test_convert_reaches_into_lists_of_objects_and_names_the_place() -> None:
    value = revive(Outer, {"items": [{"n": 1}, {"n": 2}], "kind": "Q8A256", "mode": "b"})
    assert value == Outer((Inner(1), Inner(2)), Q8A256, "b")
    for bad, path in [
        ({"items": [{"n": 1}, {"n": "2"}], "kind": "f32"}, "items[1].n: expected an integer, got '2'"),
        ({"items": [{"n": 1}, 3], "kind": "f32"}, "items[1]: expected an object (Inner), got 3"),
        ({"items": [{}], "kind": "f32"}, "items[0].n: missing"),
        ({"items": [], "kind": "f33"}, "kind: expected the name of a scalar type or the name of a storage format"),
        ({"items": [], "kind": "f32", "mode": "c"}, "mode: expected one of 'a', 'b' or null, got 'c'"),
        ({"items": "xy", "kind": "f32"}, "items: expected a list of an object"),
    ]:
        with pytest.raises(AttrError) as caught:
            revive(Outer, bad)
        assert path in str(caught.value)


def test_numpy_integers_become_python_ones() -> None:
    import numpy as np

    value = convert(tuple[int, ...], [np.int64(3), 4], "shape")
    assert value == (3, 4)
    assert all(type(v) is int for v in value)
    with pytest.raises(AttrError, match="expected a number"):
        convert(float, 10**400, "eps")


def test_fusion_switches_are_unique() -> None:
    switches = [op.switch for op in FUSED.values()]
    assert switches and len(set(switches)) == len(switches)
