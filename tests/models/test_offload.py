"""Layers split between a device and the CPU: the request, the fit, the plan's line, and models that run so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minfer_ir.memory.budget import BudgetError
from minfer_ir.opspec import Array
from minfer_ir.params import DevicePlan
from minfer_ir.passes.base import LoweringError
from minfer_ir.runtime.backend import BufRef, MemoryInfo
from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_ir.types import TensorType
from minfer_models import LLM, load
from minfer_models.devices import DeviceChoice
from minfer_models.engine import EngineError, Model, Rows, TokenSequence
from minfer_models.offload import (
    BlockBytes,
    OffloadError,
    OffloadPlan,
    fit_blocks,
    left_to_cpu,
    parse_layers,
    plan_offload,
    weight_budget,
)
from minfer_models.placing import block_bytes
from minfer_models.settings import Settings
from minfer_models.synthetic import SyntheticModel, write_model

CACHE = Path(__file__).resolve().parents[2] / ".cache"
SIZES = BlockBytes((100, 100, 100, 100), 250)
PLENTY = MemoryInfo(1 << 40, 1 << 30)


class Accelerator(NumpyBackend):
    """Numpy under the name of the GPU: its queue is a list of what was asked of it."""

    name = "gpu"

    def __init__(self, memory: MemoryInfo = PLENTY, lacks: str = "") -> None:
        super().__init__()
        self.info, self.lacks = memory, lacks
        self.events: list[str] = []
        self.extra = 0

    def memory(self) -> MemoryInfo:
        return self.info

    def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
        return f"no kernel for {op}" if op == self.lacks else super().supports(op, attrs, out, operands)

    def weight_bytes(self) -> int:
        return super().weight_bytes() + self.extra

    def start_read(self, ref: BufRef, kind: TensorType, n_rows: int | None = None) -> OnItsWay:
        self.events.append("start")
        return OnItsWay(self, self.read(ref, kind, n_rows))

    def write_all(self, writes: Sequence[tuple[BufRef, Array]]) -> None:
        self.events.append(f"fill {len(writes)}")
        for ref, data in writes:
            self.write(ref, data)

    def compile(self, graph: Any, split: Any, binding: Any) -> Any:
        return Noted(super().compile(graph, split, binding), self.events, f"run {split.index}")


class OnItsWay:
    def __init__(self, backend: Accelerator, value: Array) -> None:
        self._backend, self._value = backend, value

    def result(self) -> Array:
        self._backend.events.append("wait")
        return self._value


class Noted:
    """A program that notes its runs."""

    def __init__(self, program: Any, events: list[str], name: str) -> None:
        self._program, self._events, self._note = program, events, name

    def run(self) -> None:
        self._events.append(self._note)
        self._program.run()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


# ---- the request


def test_layers_are_a_number_or_auto() -> None:
    assert (parse_layers("7"), parse_layers("0"), parse_layers("auto"), parse_layers("AUTO")) == (7, 0, "auto", "auto")
    for text in ("banana", "-1", "", "1.5", "all"):
        with pytest.raises(OffloadError, match=f"--gpu-layers {text}: expected a number of blocks, or auto"):
            parse_layers(text)


def test_bytes_are_added_up_by_block() -> None:
    needs = {"token_embd.weight": 7, "blk.0.attn_q.weight": 1, "blk.0.ffn_up.weight": 2, "blk.1.attn_q.weight": 4}
    sizes = BlockBytes.of(needs | {"output_norm.weight": 8}, 2)
    assert sizes == BlockBytes((3, 4), 15)
    assert [sizes.planned(n) for n in range(3)] == [0, 3, 22]


# ---- the fit


@pytest.mark.parametrize(
    ("budget", "reserve", "fitted"),
    [
        (0, 0, 0),
        (99, 0, 0),
        (100, 0, 1),
        (299, 0, 2),
        (300, 0, 3),
        (400, 101, 2),
        (400, 0, 3),
        (649, 0, 3),
        (650, 0, 4),
    ],
)
def test_the_longest_prefix_that_fits(budget: int, reserve: int, fitted: int) -> None:
    assert fit_blocks(budget, SIZES, reserve) == fitted


def test_a_block_that_does_not_fit_ends_the_prefix() -> None:
    assert fit_blocks(120, BlockBytes((50, 500, 10, 10), 0), 0) == 1


@given(
    blocks=st.lists(st.integers(0, 50), min_size=1, max_size=8),
    others=st.integers(0, 60),
    budget=st.integers(0, 400),
    reserve=st.integers(0, 100),
)
def test_the_fit_is_the_largest_that_keeps_the_budget(
    blocks: list[int], others: int, budget: int, reserve: int
) -> None:
    sizes = BlockBytes(tuple(blocks), others)
    fits = [n for n in range(len(blocks) + 1) if reserve + sizes.planned(n) <= budget]
    assert fit_blocks(budget, sizes, reserve) == max(fits, default=0)


def test_the_budget_is_three_quarters_of_what_is_free_or_as_set() -> None:
    assert weight_budget(MemoryInfo(1000, 400), None)[0] == 300
    assert weight_budget(MemoryInfo(1000, 400), 50) == (50, "--gpu-mem 0.000 MiB")
    assert weight_budget(MemoryInfo(1000, 0), None)[0] == 0, "a full device is a number"


def test_a_failed_query_and_no_query_are_not_zero() -> None:
    failed = MemoryInfo(None, None, "cuda:0: the memory query failed: code 700")
    with pytest.raises(OffloadError, match="code 700; give --gpu-mem MIB, or a number of layers"):
        weight_budget(failed, None)
    with pytest.raises(OffloadError, match="doesn't report its memory; give --gpu-mem"):
        weight_budget(MemoryInfo(None, None), None)
    assert weight_budget(failed, 7)[0] == 7


def test_auto_holds_a_quarter_back() -> None:
    plan = plan_offload("auto", SIZES, lambda: MemoryInfo(0, 640))
    assert (plan.layers, plan.planned, plan.limit) == (3, 300, 360), "480 of which 120 are held back"
    assert plan_offload("auto", SIZES, lambda: MemoryInfo(0, 480)).layers == 2
    assert plan_offload("auto", SIZES, lambda: PLENTY).is_full


def test_a_number_is_taken_as_it_is_and_none_is_all() -> None:
    def unasked() -> MemoryInfo:
        raise AssertionError("nobody needs to know")

    assert [plan_offload(n, SIZES, unasked).layers for n in (0, 3, 4, 99, None)] == [0, 3, 4, 4, 4]
    with pytest.raises(OffloadError, match="--gpu-layers -1"):
        plan_offload(-1, SIZES, unasked)


def test_the_plan_as_the_lowering_takes_it() -> None:
    def devices(layers: int) -> DevicePlan:
        return OffloadPlan(layers, 4, 0, "").device_plan("gpu")

    assert devices(0) == DevicePlan(("cpu",))
    assert devices(2) == DevicePlan(("cpu",), ((0, "gpu"), (1, "gpu")))
    assert devices(4) == DevicePlan(("gpu", "cpu"))


def test_the_plan_in_a_line() -> None:
    def line(layers: int) -> str:
        return OffloadPlan(layers, 4, 0, f"asked {layers}").text("cuda:0", 3 << 20)

    assert line(0) == "offload: cpu only, 0 of 4 blocks on cuda:0 (asked 0)"
    assert line(3) == (
        "offload: 3 of 4 blocks on cuda:0, 1 on cpu with embedding and head (3.000 MiB of weights there; asked 3)"
    )
    assert "4 of 4 blocks on cuda:0, embedding and head too" in line(4)
    auto = plan_offload("auto", SIZES, lambda: MemoryInfo(0, 640 << 20)).text("cuda:0", 1 << 20)
    assert "auto: 4 of 4 fit 480.000 MiB, of which 120.000 MiB for KV cells and buffers; three quarters of 640" in auto
    assert left_to_cpu([("gpu", "add"), ("gpu", "mul")]) is None
    assert left_to_cpu([("gpu", "add"), ("cpu", "rope"), ("cpu", "add")]) == (
        "2 of 3 nodes of a step run on cpu, which the device has no kernel for: add, rope"
    )


# ---- models


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = SyntheticModel(width=64, ffn_width=96, n_heads=4, n_kv_heads=2, n_blocks=4, n_ctx_train=64, weights="Q8_0")
    return write_model(tmp_path_factory.mktemp("model") / "four.gguf", model)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Accelerator]:
    """What `--device cuda` makes here."""
    made = Accelerator()
    choice = DeviceChoice("gpu", "cuda:0", "cuda:0, pretended")
    monkeypatch.setattr("minfer_models.placing.resolve_device", lambda name, _: _cpu() if name == "cpu" else choice)
    monkeypatch.setattr("minfer_models.backends._gpu", lambda _options: made)
    yield made


def _cpu() -> DeviceChoice:
    return DeviceChoice("cpu", "", "cpu")


def loaded(path: Path, lines: list[str] | None = None, **options: Any) -> LLM:
    options = {"device": "cuda", "threads": 1, "settings": Settings(cache_dir=CACHE), "kv": "f32"} | options
    return load(path, on_device=(lines if lines is not None else []).append, **options)


def greedy(llm: LLM) -> list[int]:
    generation = llm.generate([5, 9, 77, 3], max_tokens=6)
    generation.text()
    return generation.token_ids


@pytest.fixture(scope="module")
def on_cpu(path: Path) -> list[int]:
    with load(path, device="cpu", threads=1, kv="f32", settings=Settings(cache_dir=CACHE)) as llm:
        return greedy(llm)


@pytest.mark.parametrize("layers", [0, 1, 3, 4, None])
def test_a_split_model_says_the_same(
    path: Path, accelerator: Accelerator, on_cpu: list[int], layers: int | None
) -> None:
    lines: list[str] = []
    with loaded(path, lines, gpu_layers=layers) as llm:
        assert greedy(llm) == on_cpu
        blocks = {n.block: n.backend for n in llm.graph(stage="assign") if not n.is_leaf() and n.block is not None}
        chosen = 4 if layers is None else layers
        assert [blocks[i] for i in range(4)] == ["gpu"] * chosen + ["cpu"] * (4 - chosen)
        outside = {n.backend for n in llm.graph(stage="assign") if n.block is None and not n.is_leaf()}
        assert outside == ({"gpu"} if chosen == 4 else {"cpu"})
        assert llm.engine.params(1).devices == OffloadPlan(chosen, 4, 0, "").device_plan("gpu")
    assert lines[0] == "device: cuda:0, pretended"
    assert lines[1].startswith(f"offload: {chosen or 'cpu only, 0'} of 4 blocks on cuda:0")
    assert len(lines) == 2


def test_only_the_blocks_of_the_plan_are_registered_on_the_device(path: Path, accelerator: Accelerator) -> None:
    model = Model.open(path)
    sizes = block_bytes(model, accelerator)
    model.file.close()
    with loaded(path, gpu_layers=2):
        assert accelerator.weight_bytes() == sizes.planned(2) == sum(sizes.blocks[:2])


def test_auto_fits_what_the_device_has_free(path: Path, accelerator: Accelerator) -> None:
    model = Model.open(path)
    block = block_bytes(model, accelerator).blocks[0]
    model.file.close()
    lines: list[str] = []
    # a quarter of the free bytes is nobody's, a quarter of the rest is held back: nine sixteenths are for weights
    accelerator.info = MemoryInfo(1 << 40, (block * 3 + 100) * 16 // 9)
    with loaded(path, lines, gpu_layers="auto", n_ctx=8, chunk=8):
        assert "3 of 4 blocks on cuda:0, 1 on cpu" in lines[1]
        assert accelerator.weight_bytes() == 3 * block


def test_more_weights_than_the_fit_had_are_refused(path: Path, accelerator: Accelerator) -> None:
    accelerator.info = MemoryInfo(1 << 40, 1 << 20)
    accelerator.extra = 1 << 20
    with pytest.raises(OffloadError, match=r"were to take .* MiB that weights may take, and took 1\.\d+ MiB"):
        loaded(path, gpu_layers="auto", n_ctx=8, chunk=8)


def test_memory_that_was_set_bounds_every_graph_on_the_device(path: Path, accelerator: Accelerator) -> None:
    accelerator.extra = 1 << 20
    with pytest.raises(BudgetError, match=r"gpu: .*exceeds the budget of 1\.000 MiB \(set"):
        loaded(path, gpu_mem=1)


def test_a_block_that_the_device_cannot_run_is_refused_when_it_is_part_of_a_plan(
    path: Path, accelerator: Accelerator
) -> None:
    accelerator.lacks = "silu"
    lines: list[str] = []
    with loaded(path, lines) as llm:
        assert len(greedy(llm)) == 6
    assert "run on cpu, which the device has no kernel for: silu" in lines[2]
    with pytest.raises(LoweringError, match=r"no backend can run gpu: .*silu"):
        loaded(path, gpu_layers=2)


def test_layers_without_a_gpu_are_refused_unless_nobody_asked_for_this_run(
    path: Path, accelerator: Accelerator
) -> None:
    with pytest.raises(EngineError, match="--gpu-layers 2 goes with a GPU, and this runs on cpu"):
        loaded(path, device="cpu", gpu_layers=2)
    settings = replace(Settings(cache_dir=CACHE), gpu_layers="2")
    for options in ({"gpu_layers": "auto"}, {"gpu_layers": 0}, {"settings": settings}):
        loaded(path, device="cpu", **options).close()


def test_a_device_and_backends_by_name_exclude_each_other(path: Path) -> None:
    with pytest.raises(EngineError, match="both say what runs the model"):
        loaded(path, device="cpu", devices=DevicePlan(("cpu",)))
    for wrong in ({"gpu_mem": 0}, {"gpu_mem": True}, {"gpu_layers": "many"}, {"gpu_layers": 1.5}):
        with pytest.raises(EngineError, match="expected a whole number"):
            loaded(path, **wrong)


# ---- copies on the way


def test_copies_begin_when_their_split_is_queued_and_are_waited_for_where_they_are_read(
    path: Path, accelerator: Accelerator
) -> None:
    with loaded(path, gpu_layers=2) as llm:
        executable = llm.engine.executable(llm.engine.params(1))
        backends = [s.backend for s in executable.splits]
        assert backends == ["cpu", "gpu", "cpu"]
        crossings = [len(s) for s in executable.staging]
        accelerator.events.clear()
        llm.logits([3])
        started = crossings[2]
        assert started >= 1
        fills = [e for e in accelerator.events if e.startswith("fill")]
        assert len(fills) == 1, "the inputs of a step go together"
        rest = [e for e in accelerator.events if not e.startswith("fill")]
        assert rest == ["run 1", *["start"] * started, *["wait"] * started]


def test_tracing_a_mixed_plan_gives_the_values_of_a_run(path: Path, accelerator: Accelerator) -> None:
    with loaded(path, gpu_layers=2) as llm:
        expected = llm.logits([3, 8])
        with TokenSequence(llm.engine, 4) as sequence:
            params, inputs = llm.engine.prepare(Rows.of(sequence.id, [3, 8], 0), "all")
            *_, (_, last) = llm.engine.executable(params).trace(inputs)
            assert np.array_equal(last, expected)
