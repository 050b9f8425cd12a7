"""Launches: counted, made to fail for real, explained; held once compiled; made in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpu_programs import SHAPE, Doubled

from minfer_ir.runtime.backend import BackendError
from minfer_ir.runtime.probe import Probe
from minfer_kernels.gpu.backend import CALL_SITES, GpuBackend
from minfer_kernels.gpu.emit import AREAS, EMITTERS
from minfer_kernels.gpu.kernels import elementwise
from minfer_kernels.gpu.launch import Fallback, Launch, LaunchError
from tools.checks.launches import check_source, check_tree

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def backend() -> GpuBackend:
    return GpuBackend(torch.device("cpu"))


def armed(backend: GpuBackend, *sites: str) -> Probe:
    probe = Probe(sites, backend.call_sites)
    backend.watch(probe)
    return probe


def test_counters_show_which_launches_ran(backend: GpuBackend) -> None:
    probe = armed(backend)
    added = Doubled(backend)
    assert probe.counts["launch:elementwise.add"] == 0
    assert (added.run(3.0) == 12.0).all()
    assert probe.counts == {"launch:elementwise.add": 1, "launch:elementwise.scale": 1}
    added.program.run_node(added.graph.by_name["sum"].id)
    assert (probe.counts["launch:elementwise.add"], probe.counts["launch:elementwise.scale"]) == (2, 1)


def test_an_armed_launch_fails_for_real_and_says_where(backend: GpuBackend) -> None:
    probe = armed(backend, "launch:elementwise.scale")
    added = Doubled(backend)
    with pytest.raises(LaunchError) as caught:
        added.run(1.0)
    message = str(caught.value)
    for part in ("elementwise.scale", "for twice", "scale[3, 1]", "float32[3, 40]", "factor=2.0", "at most 3 dim"):
        assert part in message, message
    assert isinstance(caught.value.__cause__, AssertionError), "the interpreter's own refusal, not one made up here"
    assert probe.counts["launch:elementwise.add"] == 1, "what stands before it did run"
    armed(backend)
    assert (added.run(1.0) == 4.0).all()


@pytest.mark.parametrize("site", CALL_SITES)
def test_every_site_of_the_backend_can_be_armed(site: str) -> None:
    assert Probe([site], CALL_SITES).reach(site)


def test_an_unknown_site_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"unknown call site launch:elementwise\.ad; known: .*launch:elementwise\.add"):
        Probe(["launch:elementwise.ad"], CALL_SITES)


def test_a_launch_whose_site_nobody_lists_is_refused(backend: GpuBackend) -> None:
    added = Doubled(backend)
    launch = added.program._launches[0]
    launch.site = "elementwise.unlisted"
    with pytest.raises(ValueError, match=r"call site 'launch:elementwise\.unlisted' isn't listed"):
        launch.run(Probe((), CALL_SITES))


def test_areas_list_their_sites_under_their_own_name() -> None:
    for area in AREAS:
        name = area.__name__.rsplit(".", 1)[1]
        assert area.SITES or not area.EMITTERS, name
        assert [s for s in area.SITES if not s.startswith(f"{name}.")] == []
    assert len(EMITTERS) == sum(len(area.EMITTERS) for area in AREAS), "an op has one emitter"


def scaled(x: torch.Tensor, out: torch.Tensor, factor: float, width: int = 4) -> Launch:
    rows = torch.tensor([1], dtype=torch.int32)
    args = {"x": x, "out": out, "rows_at": rows, "width": width, "x_stride": 4, "out_stride": 4, "factor": factor}
    return Launch("elementwise.scale", "n", elementwise.scale, (1, 1), args, {"BLOCK": 4})


def test_a_declared_fallback_takes_over_and_is_listed() -> None:
    x, out = torch.ones(4), torch.zeros(4)
    launch = scaled(x, out, 2.0)
    probe = Probe(["launch:elementwise.scale"], CALL_SITES)
    other = scaled(x, out, 3.0)
    other.site = "elementwise.add"
    launch.fallback = Fallback("three times, by the other kernel", (other,))
    for _ in range(2):
        out.zero_()
        launch.run(probe)
        assert (out == 3.0).all()
    assert launch.failed is not None and "launch elementwise.scale for n failed" in launch.failed
    assert probe.counts["launch:elementwise.scale"] == 1, "what failed once isn't tried again"
    assert "or three times, by the other kernel" in str(launch)


class CompiledKernel:
    """Like Triton's: launched through a grid of three, with all arguments in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., None]:
        return lambda *args: self.calls.append((grid, *args))


class JitKernel:
    """Like Triton's: a first launch compiles and gives the compiled kernel."""

    __name__ = "jit"

    def __init__(self) -> None:
        self.compiled = CompiledKernel()
        self.looked_up: list[dict[str, Any]] = []
        self.fail_with: str | None = None

    @staticmethod
    def fn(x: Any, n: int, extra: int = 7, BLOCK: int = 0) -> None:
        pass

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., CompiledKernel]:
        def launch(**given: Any) -> CompiledKernel:
            if max(grid) > 65535:
                raise RuntimeError("Triton Error [CUDA]: invalid argument")
            self.looked_up.append(given)
            return self.compiled

        return launch


def test_a_compiled_kernel_is_held_with_its_arguments_in_order() -> None:
    kernel = JitKernel()
    launch = Launch("elementwise.add", "n", kernel, (5, 2), {"n": 3, "x": "X"}, {"BLOCK": 64}, warps=8, stages=1)
    probe = Probe((), CALL_SITES)
    for _ in range(3):
        launch.run(probe)
    assert kernel.looked_up == [{"n": 3, "x": "X", "BLOCK": 64, "num_warps": 8, "num_stages": 1}]
    assert kernel.compiled.calls == [((5, 2, 1), "X", 3, 7, 64)] * 2
    assert probe.counts["launch:elementwise.add"] == 3


def test_an_armed_launch_of_a_compiled_kernel_asks_the_driver_for_the_impossible() -> None:
    launch = Launch("elementwise.add", "n", JitKernel(), (5,), {"n": 3, "x": "X"}, {"BLOCK": 64})
    launch.run(Probe((), CALL_SITES))
    with pytest.raises(LaunchError, match=r"launch elementwise.add for n failed: jit\[5\].*invalid argument"):
        launch.run(Probe(["launch:elementwise.add"], CALL_SITES))


def test_a_held_launch_that_fails_is_explained_too() -> None:
    kernel = JitKernel()
    launch = Launch("elementwise.add", "n", kernel, (5,), {"n": 3, "x": "X"}, {"BLOCK": 64})
    launch.run(Probe((), CALL_SITES))

    def broken(*_: Any) -> None:
        raise RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")

    launch._held = lambda: broken(kernel)
    with pytest.raises(LaunchError, match="illegal memory access"):
        launch.run(Probe((), CALL_SITES))


def lines(text: str, path: str = "minfer_kernels/gpu/somewhere.py") -> Iterator[int]:
    return (v.line for v in check_source(text, path))


LAUNCHING = {
    "a call of a subscript": "kernel[grid](x)",
    "a subscript that is kept": "from minfer_kernels.gpu.kernels.norm import rms_norm\nstart = rms_norm[grid]",
    "a module's kernel": "from minfer_kernels.gpu.kernels import norm\nnorm.rms_norm[(1,)](x)",
    "a kernel of its own": "@triton.jit\ndef k(x):\n    pass\n\nk[(1,)](x)",
    "run with a grid": "kernel.run(x, grid=(1,), warmup=False)",
    "warmup": "kernel.warmup(x, grid=(1,))",
    "a kernel that is tuned": "tuned = triton.autotune(configs, key=['n'])(kernel)",
    "a tuner by its name": "from triton import heuristics",
}


@pytest.mark.parametrize("case", LAUNCHING)
def test_the_check_finds(case: str) -> None:
    text = LAUNCHING[case]
    assert list(lines(text)) == [len(text.splitlines())]


def test_the_check_passes_tables_and_other_subscripts() -> None:
    text = "EMITTERS[node.op](emitter, node)\nemit.EMITTERS[op](e)\nvalues[0] = shape[1]\nbackend.run(x)\n"
    text += "set[int]()\nCounter[str]()\n"
    text += "from minfer_kernels.gpu.kernels import norm\nnorm.CONFIGURATIONS[0]\n"
    assert list(lines(text)) == []
    for above in ("", "from minfer_kernels.gpu.kernels.attention.choices import AttentionOptions\n"):
        assert list(lines(f"{above}makers[name]()", "minfer_models/backends.py")) == []


def test_this_repository_launches_in_one_place() -> None:
    assert [str(v) for v in check_tree(ROOT)] == []
    launcher = (ROOT / "minfer_kernels/gpu/launch.py").read_text(encoding="utf-8")
    assert list(lines(launcher)), "the one place would be found"


def test_an_id_that_was_freed_is_an_error(backend: GpuBackend) -> None:
    added = Doubled(backend)
    backend.free(added.refs[0].buffer)
    with pytest.raises(BackendError, match="was freed"):
        backend.write(added.refs[0], np.zeros(SHAPE, np.float32))
