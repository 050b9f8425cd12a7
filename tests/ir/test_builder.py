"""GraphBuilder: names, blocks, leaves, parts, and the generated stub."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ir_builders import floats, rows_input, run

from minfer_ir.builder import GraphBuilder
from minfer_ir.dtypes import F32
from minfer_ir.formats import Q4_0
from minfer_ir.graph import GraphError
from minfer_ir.ops import OPS
from minfer_ir.ops.elementwise import Silu
from minfer_ir.opspec import OpError
from minfer_ir.stubgen import builder_stub, op_method


def test_names_are_unique_and_carry_the_block_once() -> None:
    b = GraphBuilder()
    x = rows_input(b, "x", 2, 4)
    with b.block(3):
        first, second = b.silu(x), b.silu(x)
        named = b.silu(x, name="act")
        already = b.silu(x, name="blk.3.gate")
        with b.block(4):
            inner = b.silu(x)
        outer = b.silu(x)
    last = b.silu(x)
    names = [n.name for n in (first, second, named, already, inner, outer, last)]
    assert names == ["blk.3.silu", "blk.3.silu.2", "blk.3.act", "blk.3.gate", "blk.4.silu", "blk.3.silu.3", "silu"]
    assert [n.block for n in (x, first, inner, outer, last)] == [None, 3, 4, 3, None]


def test_the_block_ends_even_when_building_fails() -> None:
    b = GraphBuilder()
    with pytest.raises(OpError), b.block(1):
        b.add(rows_input(b, "x", 2, 4), rows_input(b, "y", 2, 5))
    assert b.silu(rows_input(b, "z", 2, 4)).block is None


def test_equal_leaves_are_one_node_and_different_ones_are_not() -> None:
    b = GraphBuilder()
    one = b.weight(key="w", shape=(4, 32), dtype="Q4_0")
    assert b.weight(key="w", shape=[4, 32], dtype=Q4_0) is one
    assert b.weight(key="w", shape=(4, 32), dtype="Q4_0", version=1) is not one
    assert one.name == "w"
    assert b.weight_concat(keys=("a", "b"), sizes=(1, 2), width=32, dtype="Q4_0").name == "a+b"


def test_a_failed_call_leaves_the_builder_as_it_was() -> None:
    b = GraphBuilder()
    x = rows_input(b, "x", 2, 4)
    with pytest.raises(OpError):
        b.swiglu(x, rows_input(b, "y", 2, 5), name="act")
    act = b.output(b.swiglu(x, x, name="act"))
    assert act.name == "act"
    assert [n.name for n in b.build()] == ["x", "y", "act"]


def test_a_graph_needs_an_output() -> None:
    b = GraphBuilder()
    rows_input(b, "x", 2, 4)
    with pytest.raises(GraphError, match="has no outputs"):
        b.build()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_number_of_operands_is_checked_before_anything_else(count: int) -> None:
    b = GraphBuilder()
    x = rows_input(b, "x", 2, 4)
    with pytest.raises(OpError, match=f"add takes 2 to 2 operands, got {count}"):
        b.add(*[x] * count)  # type: ignore[call-arg]


def test_an_optional_operand_may_be_none() -> None:
    b = GraphBuilder()
    x, positions = rows_input(b, "x", 2, 1, 4), rows_input(b, "p", 2, dtype="i32")
    attrs = {"pairs": "neox", "dims": 4, "base": 1e4, "max_positions": 8}
    assert b.rope(x, positions, None, **attrs).sources == b.rope(x, positions, **attrs).sources  # type: ignore[arg-type]


def test_split_parts_are_windows_that_cover_the_width() -> None:
    b = GraphBuilder()
    owner = b.silu(rows_input(b, "x", 3, 10), name="gate_up")
    parts = b.split_parts(owner, (2, 1, 7))
    assert [p.name for p in parts] == ["gate_up.part0", "gate_up.part1", "gate_up.part2"]
    assert [(p.view.source, p.view.offset, p.view.strides) for p in parts if p.view] == [
        (owner.id, 0, (40, 4)), (owner.id, 8, (40, 4)), (owner.id, 12, (40, 4))]  # fmt: skip
    for part in parts:
        b.output(part)
    x = floats(1, 3, 10)
    graph = b.build()
    assert {graph.owner(p.id) for p in parts} == {owner.id}
    outs = run(graph, x=x)
    whole = np.concatenate(outs, axis=1)
    assert [o.shape[1] for o in outs] == [2, 1, 7]
    np.testing.assert_allclose(whole, x / (1 + np.exp(-x)), rtol=1e-5)


def test_split_parts_take_names_and_more_axes() -> None:
    b = GraphBuilder()
    parts = b.split_parts(rows_input(b, "x", 3, 2, 6), (4, 2), ("q", "k"))
    assert [p.name for p in parts] == ["q", "k"]
    assert [p.type.shape for p in parts] == [(3, 2, 4), (3, 2, 2)]


def test_split_parts_that_do_not_add_up_are_refused() -> None:
    b = GraphBuilder()
    owner = rows_input(b, "x", 3, 10)
    with pytest.raises(OpError, match=r"split_parts of %0 x: sizes \(4, 5\) add up to 9, the width is 10"):
        b.split_parts(owner, (4, 5))


def test_every_op_has_a_method_with_its_doc_and_a_line_in_the_stub() -> None:
    stub = builder_stub()
    for op in OPS.values():
        assert getattr(GraphBuilder, op.name).__doc__ == op.doc
        assert "\n".join(op_method(op)) in stub
    for name, member in inspect.getmembers(GraphBuilder, inspect.isfunction):
        if not name.startswith("_"):
            assert f"    def {name}(" in stub, member


USES = """
from minfer_ir.builder import GraphBuilder
from minfer_ir.graph import Graph


def build() -> Graph:
    b = GraphBuilder()
    with b.block(0):
        x = b.input(key="x", shape=(4, 2, 8), dtype="f32", rows="token")
        p = b.input(key="p", shape=[4], dtype="i32", rows="token", limit=9)
        w = b.weight(key="w", shape=(8,), dtype="F32")
        y = b.rope(b.qk_norm(x, w, eps=1e-6), p, pairs="neox", dims=8, base=1e4, max_positions=9,
                   scaling={"kind": "linear", "factor": 2.0}, name="y")
        a, c = b.split_parts(y, (4, 4))
    b.output(b.add(a, c))
    return b.build()
"""
WRONG = {
    "b.silu(1)": "reportArgumentType",
    "b.scale(x)": "reportCallIssue",
    "b.rms_norm(x, x, eps='a')": "reportArgumentType",
    "b.matmul(x=x, weight=x)": "reportCallIssue",
    "b.gelu(x)": "reportAttributeAccessIssue",
    "b.rope(x, x, pairs='norm', dims=2, base=1.0, max_positions=1)": "reportArgumentType",
}


def test_pyright_accepts_right_uses_of_the_stub_and_names_wrong_ones(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    lines = [*USES.splitlines(), "", "", "def wrong(b: GraphBuilder) -> None:"]
    lines += ['    x = b.input(key="x", shape=(4, 2), dtype="f32")']
    first = len(lines)
    lines += [f"    {call}" for call in WRONG]
    (tmp_path / "uses.py").write_text("\n".join(lines) + "\n")
    (tmp_path / "pyrightconfig.json").write_text(f'{{"typeCheckingMode": "strict", "extraPaths": ["{root}"]}}')
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--project", str(tmp_path), "--pythonpath", sys.executable],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = {(d["range"]["start"]["line"], d["rule"]) for d in json.loads(done.stdout)["generalDiagnostics"]}
    assert {line for line, _ in found} == set(range(first, first + len(WRONG)))
    assert {(first + i, rule) for i, rule in enumerate(WRONG.values())} <= found


def test_the_stub_leaves_a_record_default_to_the_op() -> None:
    text = "\n".join(op_method(OPS["rope"]))
    assert "scaling: RopeScaling | Mapping[str, Any] = ...," in text
    assert "factors: Node | None = None," in text
    assert 'pairs: Literal["neox", "interleaved"],' in text


def test_apply_takes_an_op_that_is_not_in_the_registry() -> None:
    class Twice(Silu):
        """x and x again."""

        name = "twice"

    b = GraphBuilder()
    node = b.apply(Twice(), (rows_input(b, "x", 2, 4),), {})
    assert (node.op, node.name, node.type.dtype) == ("twice", "twice", F32)
