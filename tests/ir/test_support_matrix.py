"""The support page: every op and type, with each backend's own answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from minfer_ir.ops import OPS
from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_ir.testing.support_matrix import Column, support_matrix_text
from minfer_ir.types import TensorType


def picky(op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
    if op == "matmul" and operands[0].dtype.name != "f32":
        return f"reads floats | not {operands[0].dtype.name}"
    if op == "softmax":
        return "no kernel"
    if op == "silu" and operands[0].shape[0] == 1:
        return "not one row"
    return None


CAPABILITIES = replace(
    NumpyBackend.capabilities, layouts="rows", window_modes=("causal",), weight_concat=False,
    activation_formats={"F16": "f32", "Q4_0": "Q8A32", "Q8_0": "Q8A32"},
)  # fmt: skip
PAGE = support_matrix_text([Column("picky", CAPABILITIES, picky), NumpyBackend()])


def row(*start: str) -> list[str]:
    found = [line for line in PAGE.splitlines() if line.startswith("| " + " | ".join(start) + " |")]
    assert len(found) == 1, start
    return [cell.strip() for cell in found[0].replace("\\|", "/").strip("|").split("|")]


def test_every_computed_op_has_a_row_with_its_doc() -> None:
    for op in OPS.values():
        if op.effect != "leaf":
            assert row(f"`{op.name}`")[1] == op.doc


def test_a_cell_says_yes_or_gives_the_reason() -> None:
    assert row("`add`")[3:] == ["yes", "yes"]
    assert row("`softmax`")[3:] == ["no: no kernel", "yes"]
    assert row("`silu`")[3:] == ["partly: 1x1: not one row", "yes"]
    assert row("`matmul`")[3:] == ["14 of 42 type combinations, below", "yes"]


def test_ops_with_several_types_have_a_table_of_all_of_them() -> None:
    assert row("f32", "Q4_0", "f32")[3:] == ["yes", "yes"]
    assert row("Q8A32", "Q4_0", "f32")[3:] == ["no: reads floats / not Q8A32", "yes"]
    several = [
        *("add", "mul", "rms_norm", "qk_norm", "matmul", "get_rows", "quantize_act", "rope", "kv_store", "attention"),
        *("matmul_add", "matmul_swiglu", "matmul_swiglu_quantize"),
        *("qk_norm_rope", "qk_norm_rope_kv_store", "rope_kv_store"),
        *("matmul_add_rope_kv_store", "matmul_norm_rope_kv_store", "matmul_rope_kv_store"),
        *("matmul_add_rope", "matmul_norm_rope", "matmul_rope", "matmul_add_kv_store", "matmul_kv_store"),
        *("add_rms_norm", "rms_norm_quantize", "swiglu_quantize"),
    ]
    assert [line.removeprefix("### ") for line in PAGE.splitlines() if line.startswith("### ")] == several


def test_capabilities_are_listed() -> None:
    assert row("attention windows")[1:] == ["causal", "causal, span, map"]
    assert row("stacked weights")[1:] == ["no", "yes"]
    assert row("operand strides")[1:] == ["axis 0 any, the rest contiguous", "any"]
    assert row("activations of a matmul")[1] == "f32 for F16; Q8A32 for Q4_0, Q8_0"
    assert row("rounded to float16")[1:] == ["nothing", "nothing"]


def test_capabilities_that_go_by_rows_say_from_how_many() -> None:
    by_rows = replace(CAPABILITIES, most_quantized_rows=16, half_products_from=17, half_attention_from=33)
    text = support_matrix_text([Column("by rows", by_rows, picky)], ("How it was asked.",))
    assert "\n\nHow it was asked.\n\n## Backends\n" in text
    assert "Q8A32 for Q4_0, Q8_0; f32 for all in row buckets of more than 16 |" in text
    assert "| products of f32 in row buckets from 17; attention in row buckets from 33 |" in text
