"""Capture as a state machine: three warm runs, one recording, replays; and what begins it anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from gpu_programs import Doubled, HandDevice
from hypothesis import given
from hypothesis import strategies as st

from minfer_ir.runtime.probe import Probe
from minfer_kernels.gpu.backend import CALL_SITES, GpuBackend
from minfer_kernels.gpu.capture import WARM_RUNS, Capture, CaptureError, CaptureIdentity
from minfer_kernels.gpu.launch import LaunchError

IDENTITY = CaptureIdentity(0, (("f16", 4096),))


class Recorder:
    """Counts what is launched, recorded and replayed; `identity` is the test's to change."""

    def __init__(self, probe: Probe | None = None) -> None:
        self.events: list[str] = []
        self.identity = IDENTITY
        self.probe = probe or Probe((), CALL_SITES)
        self.capture = Capture(
            "split 0", lambda: self.events.append("launch"), self.record, lambda: self.identity, lambda: self.probe
        )

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        work()
        self.events[-1] = "record"
        return lambda: self.events.append("replay")

    def run(self, times: int) -> list[str]:
        self.events.clear()
        for _ in range(times):
            self.capture.run()
        return list(self.events)


def test_three_warm_runs_then_one_recording_then_replays() -> None:
    recorder = Recorder()
    assert recorder.run(6) == ["launch", "launch", "launch", "record", "replay", "replay", "replay"]
    assert (recorder.capture.captures, recorder.capture.replays) == (1, 3)
    assert recorder.probe.counts == {"capture.record": 1, "capture.replay": 3}


@pytest.mark.parametrize(
    "changed",
    [
        CaptureIdentity(1, IDENTITY.kv_layout),
        CaptureIdentity(0, (("q8_0", 4096),)),
        CaptureIdentity(0, (("f16", 8192),)),
    ],
)
def test_a_changed_identity_begins_anew(changed: CaptureIdentity) -> None:
    recorder = Recorder()
    recorder.run(5)
    recorder.identity = changed
    assert recorder.run(5) == ["launch", "launch", "launch", "record", "replay", "replay"]
    assert recorder.capture.captures == 2
    recorder.identity = IDENTITY
    assert recorder.run(1) == ["launch"], "the first graph is gone, also where its identity comes back"


@given(st.lists(st.sampled_from(["run", "run", "run", "change"]), max_size=30))
def test_every_run_does_its_work_once_under_the_identity_of_its_time(script: list[str]) -> None:
    recorder, since, generation = Recorder(), 0, 0
    for step in script:
        if step == "change":
            generation, since = generation + 1, 0
            recorder.identity = CaptureIdentity(generation, ())
            continue
        since += 1
        expected = ["launch"] if since <= WARM_RUNS else ["record", "replay"] if since == WARM_RUNS + 1 else ["replay"]
        assert recorder.run(1) == expected


def test_a_capture_that_breaks_says_so_and_how_to_run_without() -> None:
    recorder = Recorder(Probe(["capture.record"], CALL_SITES))
    recorder.run(WARM_RUNS)
    with pytest.raises(CaptureError, match=r"capturing split 0 failed: armed failure.*MINFER_GPU_CAPTURE=0"):
        recorder.capture.run()
    assert (recorder.capture.captures, recorder.capture.replays) == (0, 0)


def test_programs_replay_over_buffers_filled_before() -> None:
    device = HandDevice()
    backend = GpuBackend(torch.device("cpu"), on=device)
    program = Doubled(backend)
    for i in range(7):
        assert (program.run(float(i)) == 4.0 * i).all(), i
    assert device.recorded == 1
    assert (program.program.capture.captures, program.program.capture.replays) == (1, 4)
    assert (program.run(9.0, rows=2)[:2] == 36.0).all(), "another number of rows is data: the same graph"
    assert device.recorded == 1


def test_a_buffer_given_back_to_the_pool_makes_programs_capture_again() -> None:
    device = HandDevice()
    backend = GpuBackend(torch.device("cpu"), on=device)
    program = Doubled(backend)
    other = backend.allocate(64)
    for _ in range(4):
        program.run(1.0)
    backend.allocate(64)
    program.run(1.0)
    assert device.recorded == 1, "more memory moves nobody"
    backend.free(other)
    for _ in range(3):
        program.run(1.0)
    assert (device.recorded, program.program.capture.warm_runs) == (1, 3)
    program.run(1.0)
    assert device.recorded == 2


def test_a_launch_that_fails_while_it_is_recorded_is_named() -> None:
    backend = GpuBackend(torch.device("cpu"), on=HandDevice())
    program = Doubled(backend)
    for _ in range(WARM_RUNS):
        program.run(1.0)
    backend.watch(Probe(["launch:elementwise.scale"], CALL_SITES))
    with pytest.raises(CaptureError, match=r"capturing split 0 \(2 launches\) failed: launch elementwise\.scale") as e:
        program.run(1.0)
    assert isinstance(e.value.__cause__, LaunchError)


def test_capture_can_be_switched_off_and_is_off_where_there_is_no_device() -> None:
    device = HandDevice()
    for backend in (GpuBackend(torch.device("cpu"), capture=False, on=device), GpuBackend(torch.device("cpu"))):
        program = Doubled(backend)
        for i in range(6):
            assert (program.run(float(i)) == 4.0 * i).all()
        assert (backend.captures, program.program.capture.captures) == (False, 0)
    assert device.recorded == 0


def test_single_nodes_run_uncaptured() -> None:
    backend = GpuBackend(torch.device("cpu"), on=HandDevice())
    program = Doubled(backend)
    for _ in range(5):
        program.run(1.0)
    program.fill(3.0)
    for node in program.graph.nodes[1:]:
        program.program.run_node(node.id)
    assert (program.result() == 12.0).all()
    assert program.program.capture.replays == 2
