"""Measuring a model on a GPU: ceilings and tests in the same rounds, then where the median repetition's time went."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from minfer_ir.runtime.executable import Executable
from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.timing import LaunchTimes
from minfer_models.bench.conditions import Conditions
from minfer_models.bench.loading import EngineChoices, context_of, load_timed
from minfer_models.bench.roofline.device.attribution import attribute, gpu_program_of
from minfer_models.bench.roofline.device.ceilings import DeviceMeter
from minfer_models.bench.roofline.device.report import DevicePhase, DeviceRooflineReport
from minfer_models.bench.roofline.steps import Forward, TimedRunner
from minfer_models.bench.runner import Runner
from minfer_models.bench.workload import Workload, require_room
from minfer_models.cli.progress import Progress
from minfer_models.cli.settings_view import settings_of
from minfer_models.devices import DeviceChoice
from minfer_models.llm import LLM

WARM_RUNS = 4
"""Kernels compile in the first, and graphs are captured in the fourth."""


def measure_device(
    path: Path,
    tests: Sequence[Workload],
    repetitions: int,
    choices: EngineChoices,
    device: DeviceChoice,
    progress: Progress,
) -> DeviceRooflineReport:
    """Load the model; every round measures both ceilings and each test once as it is and once launch by launch.

    Raises BenchError, before a weight is read, when a test doesn't fit the context, and for a model of which the device
    doesn't run everything.
    """
    require_room(tests, context_of(path, choices))
    conditions = Conditions.here(path)
    llm, _ = load_timed(path, choices, progress)
    with llm:
        plain, timed = Runner(llm), TimedRunner(llm, launch_times)
        meter = DeviceMeter(_gpu_backend(llm))
        for test in tests:
            progress.show(f"{test.name}: warm-up")
            timed.run(test)
            for _ in range(WARM_RUNS):
                plain.run(test.phase, test.tokens, test.depth)
        seconds: dict[Workload, list[float]] = {test: [] for test in tests}
        runs: dict[Workload, list[list[Forward[LaunchTimes]]]] = {test: [] for test in tests}
        for number in range(1, repetitions + 1):
            progress.show(f"ceilings: {number} of {repetitions}")
            meter.sample()
            for test in tests:
                progress.show(f"{test.name}: {number} of {repetitions}")
                seconds[test].append(plain.run(test.phase, test.tokens, test.depth).seconds)
                runs[test].append(timed.run(test))
        ceilings = meter.result()
        phases: list[DevicePhase] = []
        for test in tests:
            took = [sum(f.seconds - f.times.held for f in run) for run in runs[test]]
            middle = runs[test][sorted(range(len(took)), key=lambda i: took[i])[(len(took) - 1) // 2]]
            phases.append(DevicePhase.of(test, seconds[test], took, attribute(middle, ceilings), ceilings))
        settings = settings_of(llm)
    interpreted = device.place == "cpu"
    return DeviceRooflineReport(conditions, settings, device.about, interpreted, ceilings, tuple(phases))


def launch_times(executable: Executable) -> AbstractContextManager[list[LaunchTimes]]:
    """Of a graph on the GPU, launch by launch."""
    return gpu_program_of(executable).timed()


def _gpu_backend(llm: LLM) -> GpuBackend:
    """The GPU's; BenchError before anything is timed when a step doesn't run there as a whole."""
    gpu_program_of(llm.engine.executable(llm.engine.params(1)))
    return next(b for b in llm.engine.resources.backends.values() if isinstance(b, GpuBackend))
