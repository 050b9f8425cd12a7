"""Memory queries with three outcomes, refusals before anything runs, waits that end, and copies that don't wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gpu_programs import SHAPE, Doubled, HandClock, HandDevice

from minfer_ir.builder import GraphBuilder
from minfer_ir.dtypes import BF16, F16, F32, I32, U8
from minfer_ir.evaluate import Weights
from minfer_ir.memory.budget import BudgetError
from minfer_ir.memory.plan import plan_memory
from minfer_ir.passes.split import make_splits
from minfer_ir.runtime.backend import BackendError, BufRef, MemoryInfo
from minfer_ir.runtime.executable import Executable
from minfer_ir.runtime.probe import Probe
from minfer_ir.runtime.resources import Resources
from minfer_ir.types import TensorType
from minfer_kernels.gpu.backend import CALL_SITES, GpuBackend
from minfer_kernels.gpu.device import CudaDevice
from minfer_kernels.gpu.scratch import Dealer, Need, Wants
from minfer_kernels.gpu.waits import ASLEEP, DeviceError, DeviceTimeoutError, Waits

CPU = torch.device("cpu")


def test_a_query_has_three_outcomes() -> None:
    assert MemoryInfo(10, 0).outcome == "reported"
    assert MemoryInfo(None, None, "cudaErrorIllegalAddress").outcome == "failed"
    assert MemoryInfo(None, None).outcome == "no device"


def test_a_query_that_the_driver_refuses_has_failed_and_says_with_what(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> tuple[int, int]:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
    info = CudaDevice(torch.device("cuda", 0)).memory()
    assert info.outcome == "failed"
    assert info.failure == "cuda:0: the memory query failed: CUDA error: an illegal memory access was encountered"


def test_what_the_allocator_keeps_unused_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (100, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 70)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 30)
    assert CudaDevice(torch.device("cuda", 0)).memory() == MemoryInfo(1000, 140)


def lowered(backend: GpuBackend, probe: Probe | None = None, budget: int | None = None) -> Executable:
    b = GraphBuilder()
    b.input(key="n_rows", shape=(2,), dtype="i32")
    x = b.input(key="x", shape=SHAPE, dtype="f32", rows="token")
    b.output(b.scale(b.add(x, x), factor=2.0))
    graph = b.build().rewrite(lambda n: replace(n, backend="gpu"))
    splits = make_splits(graph)
    return Executable(graph, splits, plan_memory(graph, splits), Resources([backend], Weights(), probe, budget))


def device_with(info: MemoryInfo) -> HandDevice:
    device = HandDevice()
    device.info = info
    return device


def test_a_graph_that_does_not_fit_is_refused_with_numbers_before_anything_is_taken() -> None:
    probe = Probe((), CALL_SITES)
    backend = GpuBackend(CPU, on=device_with(MemoryInfo(1 << 20, 1000)))
    with pytest.raises(BudgetError, match=r"gpu: this graph needs 0\.00\d MiB more .*the budget of 0\.001 MiB"):
        lowered(backend, probe)
    assert not any(site.startswith("launch:") for site in probe.counts)
    assert probe.counts["pool.allocate"] == 0


def test_zero_bytes_reported_refuse_and_a_failed_query_does_not() -> None:
    with pytest.raises(BudgetError, match=r"available 0\.000 MiB"):
        lowered(GpuBackend(CPU, on=device_with(MemoryInfo(1 << 20, 0))))
    for info in (MemoryInfo(None, None, "cudaErrorIllegalAddress"), MemoryInfo(None, None)):
        e = lowered(GpuBackend(CPU, on=device_with(info)))
        inputs = {"x": np.ones(SHAPE, np.float32), "n_rows": np.array([3, 0], np.int32)}
        e.run(inputs)
        assert (e.outputs(inputs)[0] == 4.0).all()


def test_a_query_can_be_made_to_fail() -> None:
    backend = GpuBackend(CPU, on=device_with(MemoryInfo(1 << 20, 0)))
    backend.watch(Probe(["memory.query"], CALL_SITES))
    info = backend.memory()
    assert (info.outcome, info.available) == ("failed", None)
    assert info.failure == "cpu: armed failure at memory.query (call 1)"


def test_a_failed_query_is_in_the_refusal_of_a_set_budget() -> None:
    backend = GpuBackend(CPU, on=device_with(MemoryInfo(None, None, "cuda:0: the memory query failed: code 700")))
    with pytest.raises(BudgetError, match="available unknown: cuda:0: the memory query failed: code 700"):
        lowered(backend, budget=1000)


def waiting(polls: int = 1 << 30) -> tuple[HandDevice, HandClock, Waits]:
    device, clock = HandDevice(done=False), HandClock()
    device.polls = polls
    return device, clock, Waits(limit=2.0, clock=clock, pause=clock.pause)


def test_a_wait_ends_at_its_limit_and_names_the_place() -> None:
    device, clock, waits = waiting()
    backend = GpuBackend(CPU, on=device, waits=waits)
    program = Doubled(backend)
    with pytest.raises(DeviceTimeoutError, match=r"gpu\.read: the device wasn't done after 2\.0 s"):
        program.run(1.0)
    assert 2.0 < clock.now < 2.5


def test_what_the_device_reports_names_the_place_that_waited() -> None:
    device, _, waits = waiting()
    device.error = "CUDA error: an illegal memory access was encountered"
    backend = GpuBackend(CPU, on=device, waits=waits)
    with pytest.raises(DeviceError, match=r"gpu\.read: the device failed at something .* illegal memory access"):
        Doubled(backend).run(1.0)
    assert issubclass(DeviceError, BackendError)


def test_the_second_wait_of_a_place_sleeps_through_most_of_the_first_ones_time() -> None:
    device, clock, waits = waiting(polls=500)
    waits.until(device.mark(), "somewhere")
    assert set(clock.slept) == {0.0}, "nothing is known yet: polled"
    took = clock.now
    clock.slept.clear()
    waits.until(device.mark(), "somewhere")
    asleep = [s for s in clock.slept if s > 0]
    assert 0.5 * ASLEEP * took < len(asleep) * (asleep[0] + 0.001) < 1.1 * ASLEEP * took
    clock.slept.clear()
    waits.until(device.mark(), "elsewhere")
    assert set(clock.slept) == {0.0}, "another place has its own time"


def test_a_passed_mark_is_not_waited_for() -> None:
    device, clock, waits = waiting()
    device.done = True
    waits.until(device.mark(), "somewhere")
    assert (clock.slept, clock.now) == ([], 0.0)


def test_writes_do_not_wait_and_take_what_was_there_when_they_were_called() -> None:
    device, clock, waits = waiting()
    backend = GpuBackend(CPU, on=device, waits=waits)
    program = Doubled(backend)
    x = program.graph.nodes[0]
    values = np.ones(SHAPE, np.float32)
    backend.write(program.refs[x.id], values)
    values[:] = 5.0
    assert clock.slept == []
    device.done = True
    assert (backend.read(program.refs[x.id], x.type) == 1.0).all()


def test_started_reads_wait_at_their_result_only() -> None:
    device, clock, waits = waiting()
    backend = GpuBackend(CPU, on=device, waits=waits)
    program = Doubled(backend)
    program.fill(1.0)
    program.program.run()
    node = program.graph.nodes[-1]
    pending = backend.start_read(program.refs[node.id], node.type, 2)
    assert clock.slept == []
    with pytest.raises(DeviceTimeoutError, match=r"gpu\.staging"):
        pending.result()
    device.done = True
    assert (pending.result() == np.full((2, 40), 4.0, np.float32)).all()


def test_synchronous_copies_wait_where_they_are_made() -> None:
    device, _, waits = waiting()
    backend = GpuBackend(CPU, async_copies=False, on=device, waits=waits)
    ref = BufRef(backend.allocate(64), 0, 64, (4,))
    with pytest.raises(DeviceTimeoutError, match=r"transfer\.upload"):
        backend.write(ref, np.ones(16, np.float32))
    with pytest.raises(DeviceTimeoutError, match=r"gpu\.staging"):
        backend.start_read(ref, TensorType((16,), F32))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8, np.uint16])
def test_what_is_written_together_is_read_back(dtype: type) -> None:
    kinds = {np.float32: F32, np.float16: F16, np.int32: I32, np.uint8: U8, np.uint16: BF16}
    backend, rng = GpuBackend(CPU), np.random.default_rng(0)
    parts = [rng.integers(0, 200, n).astype(dtype) for n in (1, 7, 33)]
    size = np.dtype(dtype).itemsize
    refs = [BufRef(backend.allocate(256), 64, p.nbytes, (size,)) for p in parts]
    backend.write_all(list(zip(refs, parts, strict=True)))
    for ref, part in zip(refs, parts, strict=True):
        assert np.array_equal(backend.read(ref, TensorType(part.shape, kinds[dtype])), part)


def test_a_program_needs_its_fullest_node_and_all_that_is_kept() -> None:
    wants = [Wants((100, 1000), (3,), {"tiles": 40}), Wants((2000,), (), {"tiles": 40}), Wants((), (65, 1))]
    assert Need.of(wants) == Need(passing=2048, kept=256, counters=192)
    assert Need.of([]) == Need(0, 0, 0)
    assert Wants.together(wants[:2]) == Wants((100, 1000, 2000), (3,), {"tiles": 40})


def dealer(need: Need) -> Dealer:
    return Dealer(need, torch.zeros(need.scratch, dtype=torch.uint8), torch.zeros(need.counters, dtype=torch.int32))


def test_nodes_get_the_same_bytes_in_turn_and_pieces_of_one_lie_apart() -> None:
    wants = Wants((100, 1000), (3, 1), {"tiles": 40})
    dealt = dealer(Need.of([wants]))
    kept = dealt.kept(40)
    for _ in range(2):
        dealt.begin(wants)
        pieces = [dealt.scratch(100), dealt.scratch(1000), kept]
        starts = [p.data_ptr() - pieces[0].data_ptr() for p in pieces]
        assert starts == [0, 256, 256 + 1024]
        assert [len(dealt.counters(n)) for n in (3, 1)] == [3, 1]
        dealt.end("it")


def test_a_node_that_takes_something_else_than_it_declared_is_an_error() -> None:
    dealt = dealer(Need(1024, 0, 64))
    dealt.begin(Wants((100,), (1,)))
    dealt.scratch(100)
    with pytest.raises(
        BackendError, match=r"%3 declared Wants\(scratch=\(100,\), counters=\(1,\).* took \(100,\) bytes and"
    ):
        dealt.end("%3")
    with pytest.raises(
        BackendError, match=r"1000 torch\.uint8 of scratch at 256 of 1024: more than any launch declared"
    ):
        dealt.scratch(1000)
    with pytest.raises(BackendError, match=r"wants .* and has 10 bytes and 64 counters"):
        Dealer(Need(1024, 0, 64), torch.zeros(10, dtype=torch.uint8), torch.zeros(64, dtype=torch.int32))
