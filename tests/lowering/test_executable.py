"""Lowered graphs running: two backends, staging, guards, failures, memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from lowering_backends import IntegerBackend, Lacking
from toy_model import ToyModel, params, step_inputs, toy_model

from minfer_ir.cache import GraphCache
from minfer_ir.evaluate import evaluate
from minfer_ir.memory.budget import BudgetError
from minfer_ir.params import DevicePlan, GraphParams
from minfer_ir.passes.base import Lowering
from minfer_ir.passes.fuse import FUSIONS
from minfer_ir.passes.pipeline import default_pipeline, lower
from minfer_ir.runtime.executable import Executable
from minfer_ir.runtime.fill import FillError
from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_ir.runtime.probe import SITES, Probe, ProbeFailureError
from minfer_ir.runtime.resources import Resources

IDS = [3, 1, 4, 1, 5]
PINNED = DevicePlan(("a", "b"), ((1, "b"),))


def two_backends(model: ToyModel, probe: Probe | None = None, budget: int | None = None) -> Resources:
    return Resources([Lacking("a"), Lacking("b")], model.weights, probe, budget)


def executable(p: GraphParams, resources: Resources, model: ToyModel) -> Executable:
    made = lower(p, model.graph, resources).executable
    assert made is not None
    return made


def run(e: Executable, inputs: dict[str, np.ndarray]) -> np.ndarray:
    e.run(inputs)
    return e.outputs(inputs)[0]


@pytest.mark.parametrize("mode", ["causal", "span", "map"])
@pytest.mark.parametrize("kv_type", ["f32", "f16"])
def test_planned_buffers_hold_the_same_bits_as_evaluation(mode: str, kv_type: str) -> None:
    model = toy_model()
    p = params(window=mode, kv_type=kv_type, devices=DevicePlan(("integer",)))
    resources = Resources([IntegerBackend()], model.weights)
    e = executable(p, resources, model)
    regions: dict[str, np.ndarray] = {}
    for start, ids in ((0, IDS), (5, [9]), (6, [2, 6, 5, 3, 5, 8, 9, 7])):
        inputs = step_inputs(ids, start, cell=7, mode=mode)
        assert np.array_equal(run(e, inputs), evaluate(e.graph, inputs, model.weights, regions)[0])


def test_a_plan_over_two_backends_gives_the_bits_of_one() -> None:
    model, probe = toy_model(), Probe()
    split = executable(params(devices=PINNED), two_backends(model, probe), model)
    whole = executable(params(devices=DevicePlan(("a",))), two_backends(model), model)
    assert [s.backend for s in split.splits] == ["a", "b", "a"]
    for start, ids in ((0, IDS), (5, [9])):
        inputs = step_inputs(ids, start)
        assert np.array_equal(run(split, inputs), run(whole, inputs))
    assert probe.counts["staging.copy"] == 4
    assert probe.counts["split.run"] == 6


def test_values_that_cross_are_staged_per_graph_node_and_backend() -> None:
    model = toy_model()
    e = executable(params(devices=PINNED), two_backends(model), model)
    crossings = [(c.node, c.source, c.target) for staging in e.staging for c in staging]
    assert len(crossings) == len(set(crossings)) == 2
    assert all(source != target for _, source, target in crossings)


def test_tracing_shows_every_computed_value_and_ends_like_a_run() -> None:
    model = toy_model()
    e = executable(params(devices=PINNED), two_backends(model), model)
    inputs = step_inputs(IDS)
    seen: dict[str, np.ndarray] = {}
    evaluate(e.graph, inputs, model.weights, {}, lambda n, v: seen.__setitem__(n.name, np.array(v)))
    traced = {node.name: value for node, value in e.trace(inputs)}
    assert set(traced) == {name for name in seen if e.graph.by_name[name].spec.writes is None}
    for name, value in traced.items():
        assert np.array_equal(value, seen[name]), name
    assert np.array_equal(e.outputs(inputs)[0], run(e, inputs))


BAD_FILLS = {
    "token": ({"token_ids": [3, 40, 4, 1, 5]}, r"token_ids\[1\] is 40, not below the vocabulary of 40"),
    "negative": ({"token_ids": [3, 1, 4, 1, -5]}, r"token_ids\[4\] is -5"),
    "position": ({"positions": [0, 1, 2, 3, 32]}, r"positions\[4\] is 32, not below n_ctx 32"),
    "cell": ({"cells": [0, 1, 32, 3, 4]}, r"cells\[2\] is 32, not below the KV arena of 32 cells"),
    "length": ({"positions": [0, 1, 2, 3]}, r"positions has shape \(4,\), this step needs \(5,\)"),
    "float": ({"token_ids": [3.0, 1, 4, 1, 5]}, "holds float64, expected i32"),
    "base": ({"window": [32]}, r"window\[0\] is 32"),
    "interleaved": ({"seq_ids": [0, 0, 1, 0, 0]}, r"must stand together; seq_ids change in the order \[0, 1, 0\]"),
    "two causal": ({"seq_ids": [0, 0, 1, 1, 1]}, "a causal window is for one sequence, seq_ids name 2"),
    "causal end": (
        {"window": [28]},
        "position 4 of the sequence at cell 28 would lie in cell 32",
    ),
    "rows": ({"n_rows": [9, 1]}, "9 token rows don't fit"),
    "no rows": ({"n_rows": [0, 1]}, "0 token rows don't fit"),
    "output": ({"output_ids": [5]}, r"output_ids\[0\] is 5, not below the number of rows 5"),
}


@pytest.mark.parametrize("name", BAD_FILLS)
def test_a_bad_fill_is_refused_before_anything_is_written(name: str) -> None:
    changes, message = BAD_FILLS[name]
    model, probe = toy_model(), Probe()
    e = executable(params(devices=DevicePlan(("a",))), two_backends(model, probe), model)
    good = run(e, step_inputs(IDS))
    ran = probe.counts["split.run"]
    with pytest.raises(FillError, match=message):
        e.run(step_inputs(IDS) | {k: np.array(v) for k, v in changes.items()})
    assert probe.counts["split.run"] == ran
    assert np.array_equal(e.outputs(step_inputs(IDS))[0], good)


def test_missing_and_unknown_inputs_are_named() -> None:
    model = toy_model()
    e = executable(params(devices=DevicePlan(("a",))), two_backends(model), model)
    inputs = step_inputs(IDS)
    with pytest.raises(FillError, match="inputs cells weren't filled"):
        e.run({k: v for k, v in inputs.items() if k != "cells"})
    with pytest.raises(FillError, match="no inputs extra"):
        e.run(inputs | {"extra": np.zeros(1, np.int32)})


@pytest.mark.parametrize("window", [[[5, 4]] * 5, [[-1, 3]] * 5, [[0, 33]] * 5])
def test_windows_stay_in_the_arena(window: list[list[int]]) -> None:
    model = toy_model()
    e = executable(params(window="span", devices=DevicePlan(("a",))), two_backends(model), model)
    with pytest.raises(FillError, match="outside the KV arena of 32 cells"):
        e.run(step_inputs(IDS, mode="span") | {"window": np.array(window, np.int32)})


@pytest.mark.parametrize("site", [s for s in SITES if s != "cache.build"])
def test_every_call_site_can_be_made_to_fail_and_nothing_is_lost(site: str) -> None:
    model = toy_model()
    armed = two_backends(model, Probe([site]))
    with pytest.raises(ProbeFailureError, match=site):
        run(executable(params(devices=PINNED), armed, model), step_inputs(IDS))
    healthy = Resources(armed.backends.values(), model.weights)
    whole = executable(params(devices=DevicePlan(("a",))), two_backends(model), model)
    again = executable(params(devices=PINNED), healthy, model)
    assert np.array_equal(run(again, step_inputs(IDS)), run(whole, step_inputs(IDS)))


def test_a_probe_knows_its_sites() -> None:
    with pytest.raises(ValueError, match=r"unknown call site pool\.alocate"):
        Probe(["pool.alocate"])


def test_a_graph_over_the_budget_is_refused_before_the_pool_is_asked() -> None:
    model, probe = toy_model(), Probe()
    resources = two_backends(model, probe, budget=1000)
    with pytest.raises(BudgetError, match="MiB"):
        executable(params(devices=DevicePlan(("a",))), resources, model)
    assert probe.counts["pool.allocate"] == 0
    assert resources.pools["a"].nbytes == 0


def test_a_region_of_another_size_is_refused() -> None:
    model = toy_model()
    resources = two_backends(model)
    executable(params(devices=DevicePlan(("a",))), resources, model)
    with pytest.raises(ValueError, match=r"KV region k\.0 .* exists on a; asked for"):
        executable(params(n_cells=16, n_ctx=16, devices=DevicePlan(("a",))), resources, model)


def cached(model: ToyModel, resources: Resources, capacity: int = 8) -> GraphCache[Lowering]:
    cache: GraphCache[Lowering]

    def trim(_: Lowering) -> None:
        for name, pool in resources.pools.items():
            pool.trim({b for low in cache if low.executable for b in low.executable.buffers(name)})

    cache = GraphCache(lambda p: lower(p, model.graph, resources), capacity, trim)
    return cache


def test_a_rebuild_in_the_same_classes_touches_no_pool() -> None:
    model = toy_model()
    resources = two_backends(model)
    first = executable(params(devices=PINNED), resources, model)
    allocations = {n: p.allocations for n, p in resources.pools.items()}
    again = executable(params(devices=PINNED), resources, model)
    assert {n: p.allocations for n, p in resources.pools.items()} == allocations
    assert {n: again.buffers(n) for n in "ab"} == {n: first.buffers(n) for n in "ab"}


def test_graphs_that_share_a_pool_do_not_disturb_each_other() -> None:
    model = toy_model()
    resources = two_backends(model)
    cache = cached(model, resources)
    alone: dict[int, np.ndarray] = {}
    for n in (1, 3, 8, 2, 5):
        ids = list(range(n))
        p = params(rows=n, devices=DevicePlan(("a",)))
        alone[n] = run(executable(p, two_backends(model), model), step_inputs(ids))
        shared = cache.get(p).executable
        assert shared is not None
        assert np.array_equal(run(shared, step_inputs(ids)), alone[n])
    for n, expected in alone.items():
        shared = cache.get(params(rows=n, devices=DevicePlan(("a",)))).executable
        assert shared is not None
        assert np.array_equal(run(shared, step_inputs(list(range(n)))), expected)
    assert (cache.builds, cache.reuses) == (5, 5)


def test_the_cache_keeps_the_most_recently_used_graphs_and_survives_a_failing_build() -> None:
    evicted: list[int] = []

    def build(p: GraphParams) -> int:
        if p.rows == 99:
            raise RuntimeError("no")
        return p.rows

    cache: GraphCache[int] = GraphCache(build, 2, evicted.append)
    assert [cache.get(params(rows=r)) for r in (1, 2, 1, 3)] == [1, 2, 1, 3]
    assert evicted == [2]
    with pytest.raises(RuntimeError):
        cache.get(params(rows=99))
    assert list(cache) == [1, 3]
    assert (cache.builds, cache.reuses) == (3, 1)


def test_stage_names_are_distinct_and_lowering_stops_where_it_is_told() -> None:
    model = toy_model()
    resources = Resources([IntegerBackend()], model.weights)
    names = [p.name for p in default_pipeline(model.graph, resources)]
    assert len(set(names)) == len(names)
    assert names[0] == "build" and names[-1] == "lower"
    p = params(devices=DevicePlan(("integer",)))
    assert lower(p, model.graph, resources, "assign").splits == ()
    assert lower(p, model.graph, resources, "allocate").executable is None
    with pytest.raises(ValueError, match="unknown stage 'fusee'; stages: build, "):
        lower(p, model.graph, resources, "fusee")


@pytest.mark.parametrize("one_form", [True, False])
def test_a_weight_that_others_read_is_shared_where_a_backend_keeps_one_form(one_form: bool) -> None:
    class Backend(Lacking):
        capabilities = replace(NumpyBackend.capabilities, one_weight_form=one_form)

    model = toy_model()
    resources = Resources([Backend("a")], model.weights)
    plain = executable(params(devices=DevicePlan(("a",)), fusions_off=frozenset(FUSIONS)), resources, model)
    held = resources.backends["a"].weight_bytes()
    fused = executable(params(devices=DevicePlan(("a",))), resources, model)
    assert {n.op for n in plain.graph} != {n.op for n in fused.graph}
    assert (resources.backends["a"].weight_bytes() == held) == one_form
