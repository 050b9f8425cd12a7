"""Pools, regions, budgets and reports over an allocator that can refuse."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning_graphs import make_splits

from minfer_ir.builder import GraphBuilder
from minfer_ir.dtypes import F16, F32
from minfer_ir.formats import format_named
from minfer_ir.memory import (
    BudgetError,
    Demand,
    MemoryPlan,
    MemoryReport,
    PlanError,
    Pool,
    Region,
    Regions,
    budget_bytes,
    check_budget,
    plan_memory,
)
from minfer_ir.runtime.backend import BackendError, MemoryInfo

MIB = 1 << 20


class Device:
    """Counts what it gave; refuses beyond `limit` bytes."""

    def __init__(self, limit: int = 1 << 60) -> None:
        self.name = "dev"
        self.limit = limit
        self.held: dict[int, int] = {}
        self.given = 0

    def allocate(self, nbytes: int) -> int:
        if sum(self.held.values()) + nbytes > self.limit:
            raise BackendError(f"out of memory for {nbytes}")
        self.given += 1
        self.held[self.given] = nbytes
        return self.given

    def free(self, buffer: int) -> None:
        del self.held[buffer]


def model_plan(rows: int, width: int = 896, hidden: int = 2304, layers: int = 2) -> MemoryPlan:
    """A transformer-shaped graph: residual stream, norm, gated feed-forward."""
    b = GraphBuilder()
    x = b.scale(b.input(key="x", shape=(rows, width), dtype=F32, rows="token"), factor=1.0)
    f32 = format_named("F32")
    for layer in range(layers):
        normed = b.rms_norm(x, b.weight(key=f"n{layer}", shape=(width,), dtype=f32), eps=1e-5)
        both = b.matmul(normed, b.weight(key=f"gu{layer}", shape=(2 * hidden, width), dtype=f32))
        gate, up = b.split_parts(both, [hidden, hidden])
        down = b.matmul(b.swiglu(gate, up), b.weight(key=f"d{layer}", shape=(width, hidden), dtype=f32))
        x = b.add(x, down)
    b.output(x)
    graph = b.build().rewrite(lambda n: n if n.is_leaf() else replace(n, backend="dev"))
    return plan_memory(graph, make_splits(graph))


def test_a_rebuild_inside_the_same_classes_touches_no_pool() -> None:
    device = Device()
    pool = Pool(device)
    first, same, near = model_plan(16), model_plan(16), model_plan(16, hidden=2300)
    assert first.sizes("dev") == near.sizes("dev") and first != near
    ids = pool.reserve(first.sizes("dev"))
    before = (pool.allocations, pool.nbytes, device.given)
    assert pool.missing(near.sizes("dev")) == ()
    assert pool.reserve(same.sizes("dev")) == ids == pool.reserve(near.sizes("dev"))
    assert (pool.allocations, pool.nbytes, device.given) == before
    assert pool.reserves == 3
    bigger = model_plan(20).sizes("dev")
    assert pool.missing(bigger) and pool.reserve(bigger)
    assert pool.allocations > before[0]


@given(st.lists(st.lists(st.integers(1, 9), max_size=6), max_size=8))
def test_every_planned_buffer_gets_one_of_its_own_that_is_large_enough(plans: list[list[int]]) -> None:
    device = Device()
    pool = Pool(device)
    for sizes in plans:
        missing = pool.missing(sizes)
        held = pool.nbytes
        ids = pool.reserve(sizes)
        assert list(ids) == list(range(len(sizes))) and len(set(ids.values())) == len(sizes)
        assert all(device.held[ids[i]] >= size for i, size in enumerate(sizes))
        assert pool.nbytes == held + sum(missing) == sum(device.held.values())
        assert pool.missing(sizes) == () and pool.reserve(sizes) == pool.reserve(sizes)
    assert pool.allocations == device.given and pool.frees == 0
    assert pool.peak_bytes == pool.nbytes


def test_as_many_plans_as_possible_reuse_what_is_held() -> None:
    pool = Pool(Device())
    pool.reserve([10, 20, 30])
    assert pool.missing([15, 5]) == ()
    ids = pool.reserve([5, 25, 15])
    assert pool.allocations == 3 and [pool.buffers[ids[i]] for i in range(3)] == [10, 30, 20]
    assert pool.missing([25, 25]) == (25,)


def test_a_refused_allocation_leaves_the_pool_as_it_was() -> None:
    device = Device(limit=100)
    pool = Pool(device)
    held = pool.reserve([30])
    before = (pool.buffers, pool.reserves)
    with pytest.raises(BackendError, match="out of memory for 40"):
        pool.reserve([40, 30, 30, 40])
    assert (pool.buffers, pool.reserves) == before
    assert device.held == {held[0]: 30} and pool.allocations - pool.frees == 1
    assert pool.reserve([30, 40])[0] == held[0]


def test_trim_frees_what_no_graph_keeps() -> None:
    device = Device()
    pool = Pool(device)
    old, new = pool.reserve([10, 20]), pool.reserve([50, 5])
    assert pool.trim(set(new.values())) == 20
    assert set(device.held) == set(new.values()) == set(pool.buffers)
    assert (pool.frees, pool.peak_bytes) == (1, 80)
    assert pool.trim(set()) == 60 and not device.held
    assert set(pool.reserve([10]).values()).isdisjoint({*old.values(), *new.values()})


@pytest.mark.parametrize("cached", [1, 8])
def test_500_mixed_shapes_reach_a_plateau(cached: int) -> None:
    rng = random.Random(7)
    shapes = [(1 << rng.randrange(9), rng.choice((576, 896, 1024)), rng.choice((1536, 2304))) for _ in range(500)]
    plans = {s: model_plan(*s, layers=1).sizes("dev") for s in set(shapes)}
    device = Device()
    pool, recent = Pool(device), deque(maxlen=cached)
    held = []
    for shape in shapes:
        recent.append(set(pool.reserve(plans[shape]).values()))
        pool.trim(set().union(*recent))
        held.append(pool.nbytes)
    largest = max(sum(sizes) for sizes in plans.values())
    assert max(held[250:]) <= max(held[:250])
    assert max(held) <= 2 * largest
    assert pool.nbytes == sum(device.held.values())


def test_without_trimming_the_pool_stops_growing() -> None:
    rng = random.Random(11)
    shapes = [(1 << rng.randrange(9), rng.choice((576, 896, 1024)), rng.choice((1536, 2304))) for _ in range(500)]
    plans = {s: model_plan(*s, layers=1).sizes("dev") for s in set(shapes)}
    pool = Pool(Device())
    counts = []
    for shape in shapes:
        pool.reserve(plans[shape])
        counts.append(pool.allocations)
    assert counts[-1] == counts[99]


def test_regions_are_allocated_once_at_their_exact_size() -> None:
    device, regions = Device(), Regions()
    wanted = (Region("k.0", 100, 192, F16), Region("v.0", 100, 192, F16))
    assert regions.missing(wanted) == 2 * 38400
    ids = regions.ensure(wanted, device)
    assert [device.held[i] for i in ids] == [38400, 38400]
    assert regions.ensure(wanted, device) == ids and device.given == 2
    assert (regions.missing(wanted), regions.nbytes(device), regions.nbytes(Device())) == (0, 76800, 0)
    regions.free_all()
    assert not device.held and regions.missing(wanted) == 76800


def test_a_region_asked_for_differently_is_refused_before_anything_is_allocated() -> None:
    device, regions = Device(), Regions()
    regions.ensure([Region("k.0", 100, 192, F16)], device)
    for other in (Region("k.0", 99, 192, F16), Region("k.0", 100, 96, F32)):
        with pytest.raises(PlanError, match=r"KV region k\.0 f16\[100, 192\] exists on dev; asked for k\.0"):
            regions.ensure([Region("v.0", 1, 1, F32), other], device)
    with pytest.raises(PlanError, match="exists on dev"):
        regions.ensure([Region("k.0", 100, 192, F16)], Device())
    assert device.given == 1


def test_regions_that_fit_only_half_leave_nothing_behind() -> None:
    device, regions = Device(limit=1000), Regions()
    with pytest.raises(BackendError):
        regions.ensure([Region("k.0", 10, 20, F32), Region("v.0", 10, 20, F32)], device)
    assert not device.held and regions.nbytes(device) == 0


DEMAND = Demand(pool_need=5 * MIB, kv_need=MIB, weights=20 * MIB, kv=2 * MIB, pool=3 * MIB)


@pytest.mark.parametrize(
    ("limit", "available", "fits"),
    [
        *((31 * MIB, 0, True), (31 * MIB - 1, 100 * MIB, False), (0, None, False), (None, None, True)),
        *((None, 8 * MIB, True), (None, 8 * MIB - 4, False), (None, 0, False)),
    ],
)
def test_what_fits(limit: int | None, available: int | None, fits: bool) -> None:
    memory = MemoryInfo(None, available)
    if fits:
        check_budget("dev", DEMAND, memory, limit)
        return
    with pytest.raises(BudgetError):
        check_budget("dev", DEMAND, memory, limit)


def test_a_refusal_has_every_number_in_mib() -> None:
    with pytest.raises(BudgetError) as error:
        check_budget("dev", DEMAND, MemoryInfo(None, 6 * MIB))
    message = str(error.value)
    for part in (
        *("dev: this graph needs 6.000 MiB more", "buffers 5.000 MiB", "KV cells 1.000 MiB", "20.000 MiB of weights"),
        *("2.000 MiB of KV cells", "3.000 MiB in the pool", "31.000 MiB exceeds the budget of 29.500 MiB"),
        "available 6.000 MiB",
    ):
        assert part in message
    with pytest.raises(BudgetError, match="available unknown"):
        check_budget("dev", DEMAND, MemoryInfo(None, None), limit=MIB)


def test_a_demand_for_nothing_new_fits_whatever_the_device_says() -> None:
    check_budget("dev", Demand(0, 0, 20 * MIB, 2 * MIB, 3 * MIB), MemoryInfo(MIB, 0))


def test_a_failed_query_is_not_a_zero_budget() -> None:
    assert budget_bytes(None, MemoryInfo(None, None), 7) is None
    assert budget_bytes(None, MemoryInfo(None, 0), 7) == 7
    assert budget_bytes(None, MemoryInfo(None, 4_000_001), 7) == 7 + 3_000_000
    assert budget_bytes(5, MemoryInfo(None, None), 7) == 5


def test_a_report_adds_up_and_reads_as_text() -> None:
    report = MemoryReport("dev", 20 * MIB, 2 * MIB, 3 * MIB, MIB, 26 * MIB, 32 * MIB)
    assert (report.total, report.headroom) == (25 * MIB, 7 * MIB)
    lines = report.text().splitlines()
    assert lines[0] == "memory on dev" and len({len(line) for line in lines[1:]}) == 1
    found = {line[2:11].strip(): line[11:].strip() for line in lines[1:]}
    assert found["total"] == "25.000 MiB" and found["headroom"] == "7.000 MiB" and found["live"] == "1.000 MiB"
    unbounded = MemoryReport("dev", 1, 2, 3, 4, 5, None)
    assert unbounded.headroom is None and unbounded.text().count("no bound") == 2
