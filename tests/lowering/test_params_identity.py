"""GraphParams is the whole reuse identity: every field is read, and nothing else decides the topology."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from lowering_backends import IntegerBackend, Lacking
from toy_model import params, step_inputs, toy_model

from minfer_ir.params import DevicePlan, GraphParams, bucket
from minfer_ir.passes.pipeline import lower
from minfer_ir.runtime.resources import Resources
from minfer_ir.serialize import dumps

CHANGED = {
    "rows": 4,
    "output_rows": None,
    "n_ctx": 16,
    "n_cells": 16,
    "window": "span",
    "kv_type": "f16",
    "devices": DevicePlan(("integer", "other"), ((1, "other"),)),
    "fusions_off": frozenset({"swiglu"}),
    "weights_version": 1,
}


def plan(p: GraphParams) -> str:
    resources = Resources([IntegerBackend(), Lacking("other")], toy_model().weights)
    return dumps(lower(p, toy_model().graph, resources, stop_after="dce").graph)


BASE = params(devices=DevicePlan(("integer", "other")))


@pytest.mark.parametrize("field", [f.name for f in fields(GraphParams)])
def test_every_field_decides_something(field: str) -> None:
    from dataclasses import replace

    assert field in CHANGED, f"{field} is new: say what changing it does"
    assert plan(replace(BASE, **{field: CHANGED[field]})) != plan(BASE)


def test_the_same_params_give_the_same_plan() -> None:
    assert plan(BASE) == plan(BASE)


def test_nothing_but_the_params_is_read_while_a_graph_is_built() -> None:
    """Steps that differ in everything that is data run on one and the same executable, which isn't rebuilt."""
    resources = Resources([IntegerBackend()], toy_model().weights)
    executable = lower(params(devices=DevicePlan(("integer",))), toy_model().graph, resources).executable
    assert executable is not None
    before = dumps(executable.graph)
    for ids, start, cell in (([1, 2, 3], 0, 0), ([4], 3, 0), ([5, 6, 7, 8, 9, 10, 11, 12], 0, 20)):
        executable.run(step_inputs(ids, start, cell))
        assert np.isfinite(executable.outputs(step_inputs(ids, start, cell))[0]).all()
    assert dumps(executable.graph) == before


@pytest.mark.parametrize(("rows", "expected"), [(1, 1), (2, 2), (3, 4), (5, 8), (64, 64), (65, 100), (100, 100)])
def test_buckets_are_powers_of_two_up_to_the_limit(rows: int, expected: int) -> None:
    assert bucket(rows, 100) == expected


@pytest.mark.parametrize("rows", [0, -1, 101])
def test_rows_that_fit_no_bucket_are_refused(rows: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 100 rows, got {rows}"):
        bucket(rows, 100)
