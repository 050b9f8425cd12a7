"""What is asked of a plug-in before its ops are registered, all of them or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from minfer_ir import plugins
from minfer_ir.builder import GraphBuilder
from minfer_ir.evaluate import Weights, evaluate
from minfer_ir.ops import FUSED, OPS, drop_ops
from minfer_ir.ops.composed import ComposedOp
from minfer_ir.ops.elementwise import Silu
from minfer_ir.opspec import NoAttrs, Op, Operand
from minfer_ir.passes.fuse import fusion_names
from minfer_ir.passes.pattern import patterns_of
from minfer_ir.plugins import Plugin, PluginError, add, emitters, enable, enabled
from minfer_ir.testing.tolerances import BITWISE, REDUCTION, tolerance_of


class Doubled(ComposedOp):
    """x + x."""

    name = "doubled"
    switch = "doubled"
    operands = (Operand("x", "T H"),)

    def decompose(self, b: Any, attrs: NoAttrs, x: Any) -> Any:
        return b.add(x, x)


class Untraceable(Doubled):
    """Names an op that there isn't."""

    name = "untraceable"
    switch = "untraceable"

    def decompose(self, b: Any, attrs: NoAttrs, x: Any) -> Any:
        return b.tripled(x)


class SameSwitch(Doubled):
    """Another op with a switch that is taken."""

    name = "same_switch"
    switch = "swiglu"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone after it."""
    before = set(OPS)
    monkeypatch.setattr(plugins, "_enabled", {})
    yield
    drop_ops([op for name, op in [*OPS.items()] if name not in before])
    GraphBuilder.__dict__.get("doubled") and delattr(GraphBuilder, "doubled")
    patterns_of.cache_clear()


def test_an_added_op_is_built_evaluated_fused_and_held_to_its_class() -> None:
    add("mine", Plugin((Doubled(),), tolerances={"doubled": REDUCTION}))
    assert enabled() == ("mine",)
    b: Any = GraphBuilder()
    b.output(b.doubled(b.input(key="x", shape=(1, 2), dtype="f32", rows="token")))
    (out,) = evaluate(b.build(), {"x": np.array([[1.0, -3.0]], np.float32)}, Weights())
    assert out.tolist() == [[2.0, -6.0]]
    assert "doubled" in FUSED
    assert fusion_names()[-1] == "doubled"
    assert (tolerance_of("doubled"), tolerance_of("add")) == (REDUCTION, BITWISE)


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Plugin((Doubled(), Silu())), "plug-in mine: there is an op called silu already"),
        (Plugin((Doubled(), Doubled())), "plug-in mine: there is an op called doubled already"),
        (Plugin((Doubled(), SameSwitch())), "op same_switch: there is a fusion with the switch swiglu already"),
        ("doubled", "plug-in mine is 'doubled', not a minfer_ir.plugins.Plugin"),
        (Plugin((Doubled(), Untraceable())), "plug-in mine: .*'tripled' isn't an op"),
    ],
)
def test_what_can_not_be_added_leaves_nothing_behind(plugin: Any, message: str) -> None:
    before = dict(OPS), dict(FUSED)
    with pytest.raises(PluginError, match=message):
        add("mine", plugin)
    assert (dict(OPS), dict(FUSED)) == before
    assert enabled() == ()
    assert not hasattr(GraphBuilder, "doubled")


def test_a_name_is_enabled_once() -> None:
    add("mine", Plugin((Doubled(),)))
    with pytest.raises(PluginError, match="a plug-in called mine is enabled already"):
        add("mine", Plugin(()))
    enable(["mine"])


def test_a_name_that_nobody_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(PluginError, match="no installed distribution has a plug-in called absent; there are: "):
        enable(["absent"])


def test_emitters_come_from_the_module_named_for_the_backend() -> None:
    add("mine", Plugin((Doubled(),), kernels={"cpu": "minfer_kernels.cpu.emit"}))
    assert emitters("gpu") == {}
    assert "add" in emitters("cpu")


def test_an_op_that_is_no_op_is_refused() -> None:
    assert isinstance(Doubled(), Op)
    with pytest.raises(PluginError, match="plug-in mine: 3 is no op"):
        add("mine", Plugin((3,)))  # type: ignore[arg-type]
