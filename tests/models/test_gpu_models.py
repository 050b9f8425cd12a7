"""Whole tiny models on the GPU backend: against numpy evaluation, the CPU backend, and the same in other ways."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gates import GPU_CLASS, Divergence, divergence
from model_steps import CACHE, by_chunks, opened

from minfer_ir.kv import Span
from minfer_ir.params import DevicePlan
from minfer_ir.passes.fuse import FUSIONS
from minfer_ir.runtime.backend import LAUNCH_GROUPS, Backend
from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_kernels.cpu.backend import CpuBackend
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.gpu.backend import GpuBackend
from minfer_models.engine import Logits, Rows
from minfer_models.llm import LLM
from minfer_models.loading import load
from minfer_models.settings import Settings
from minfer_models.synthetic import SyntheticModel, write_model

PREFILL = 17
"""One row more than the kernels of few rows take."""
TOKENS = tuple(int(t) for t in np.random.default_rng(3).integers(0, 256, PREFILL + 4))
CHUNKS = (PREFILL, 1, 3)

SMALL = {"width": 64, "ffn_width": 64, "n_heads": 2, "n_kv_heads": 1, "head_dim": 32}
WIDE = {"width": 256, "ffn_width": 256, "n_heads": 4, "n_kv_heads": 2}
"""Rows of K-quants are whole blocks of 256."""
MIXES = {
    "halves": {"*.attn_v.weight": "F16", "*.ffn_up.weight": "Q4_0", "*": "Q8_0"},
    "K": {"*.attn_v.weight": "Q6_K", "*.ffn_down.weight": "Q6_K", "*": "Q4_K"},
}


class Case(NamedTuple):
    """A model, by architecture and weight types, and its KV cells."""

    architecture: str
    weights: str
    kv: str
    n_blocks: int = 2

    def model(self) -> SyntheticModel:
        sizes: dict[str, Any] = WIDE if "K" in self.weights else SMALL
        sizes = sizes | {"n_blocks": self.n_blocks}
        weights = MIXES.get(self.weights, self.weights)
        return SyntheticModel(self.architecture, weights=weights, tied=self.weights != "halves", **sizes)


PLAIN = Case("llama", "Q4_0", "f32")
ONE_BLOCK = Case("llama", "Q4_0", "q8_0", 1)
SAMPLED = (PLAIN, Case("qwen2", "halves", "f16"), Case("qwen3", "K", "q8_0"))
CASES = [
    pytest.param(case, id="-".join(case[:3]), marks=[] if case in SAMPLED else pytest.mark.full)
    for case in (
        Case(architecture, weights, kv)
        for architecture in ("llama", "qwen2", "qwen3")
        for weights in ("Q4_0", "Q8_0", "F16", "Q4_K", "Q6_K", "halves", "K")
        for kv in ("f32", "f16", "q8_0")
    )
]


class Runs:
    """Models on disk, opened as asked, and what was computed once for several tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.chunked = cache(self._chunked)
        self.decoded = cache(self._decoded)

    def path(self, case: Case) -> Path:
        path = self._folder / f"{case.architecture}-{case.weights}-{case.n_blocks}.gguf"
        return path if path.exists() else write_model(path, case.model())

    def on(self, case: Case, *backends: Backend, devices: DevicePlan | None = None, **options: Any) -> LLM:
        plan = devices or DevicePlan(tuple(b.name for b in backends))
        options = {"kv": case.kv, "n_ctx": 64, "settings": Settings()} | options
        return load(self.path(case), backends=backends, devices=plan, **options)

    def on_gpu(self, case: Case, **options: Any) -> LLM:
        return self.on(case, gpu(), **options)

    def _chunked(self, case: Case) -> Logits:
        """On the GPU, a prompt and decode steps after it."""
        with self.on_gpu(case) as llm:
            return by_chunks(llm, TOKENS, CHUNKS)

    def _decoded(self, case: Case, tokens: Sequence[int]) -> Logits:
        """On the GPU, one by one."""
        with self.on_gpu(case) as llm:
            return by_chunks(llm, tokens, [1] * len(tokens))


def gpu(**switches: bool) -> GpuBackend:
    return GpuBackend(torch.device("cpu"), **switches)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("gpu"))


def within_class(reference: Logits, ours: Logits) -> Divergence:
    found = divergence(reference, ours)
    assert found.kl.mean() < GPU_CLASS.kl_mean, str(found)
    assert found.largest < GPU_CLASS.largest, str(found)
    return found


def same_bits(a: Logits, b: Logits) -> None:
    assert np.isfinite(a).all()
    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("case", CASES)
def test_a_prompt_and_decode_steps(runs: Runs, case: Case) -> None:
    ours = runs.chunked(case)
    assert len(np.unique(ours, axis=0)) == len(TOKENS)
    with runs.on(case, NumpyBackend()) as llm:
        exact = by_chunks(llm, TOKENS, CHUNKS)
    within_class(exact, ours)
    with opened(runs.path(case), kv=case.kv, n_ctx=64) as cpu:
        within_class(by_chunks(cpu, TOKENS, CHUNKS), ours)


@pytest.mark.parametrize("case", [ONE_BLOCK, *(pytest.param(case, marks=pytest.mark.full) for case in SAMPLED)])
def test_in_invariant_mode_bits_don_t_depend_on_how_a_prompt_is_cut(runs: Runs, case: Case) -> None:
    tokens = TOKENS[:18]

    def cut(*chunks: int, **switches: bool) -> Logits:
        with runs.on(case, gpu(**switches)) as llm:
            return by_chunks(llm, tokens, chunks)

    whole = cut(18, invariant=True)
    same_bits(cut(1, 1, 16, invariant=True), whole)
    assert (cut(18) != whole).any(), "in the fast mode a prompt takes other kernels"


def test_invariant_mode_is_asked_for_by_load_or_the_settings(runs: Runs) -> None:
    for settings, given in ((Settings(), True), (Settings(gpu_invariant=True), None)):
        with load(runs.path(ONE_BLOCK), device="cuda", invariant=given, settings=settings) as llm:
            backend = llm.engine.resources.backends["gpu"]
            assert isinstance(backend, GpuBackend)
            assert backend.invariant


def test_decode_rows_are_kept_apart_by_load_or_the_settings(runs: Runs) -> None:
    for settings, given in ((Settings(), True), (Settings(gpu_decode_apart=True), None)):
        with load(runs.path(ONE_BLOCK), device="cuda", decode_apart=given, settings=settings) as llm:
            backend = llm.engine.resources.backends["gpu"]
            assert isinstance(backend, GpuBackend)
            assert backend.attention.decode_rows_apart


def test_all_of_it_ran_on_the_gpu(runs: Runs) -> None:
    for case in SAMPLED:
        with runs.on_gpu(case) as llm:
            for rows in (1, PREFILL):
                graph = llm.graph(rows)
                assert {n.backend for n in graph if not n.is_leaf()} == {"gpu"}


@pytest.mark.parametrize("case", [PLAIN, Case("qwen3", "Q8_0", "q8_0")], ids=lambda case: "-".join(case[:3]))
def test_a_sequence_in_pieces_of_the_arena(runs: Runs, case: Case) -> None:
    """Four runs of cells instead of one: the map window; a chunk of few rows, then decode."""
    few, chunks = TOKENS[:4], (3, 1)
    with runs.on_gpu(case) as llm:
        whole = by_chunks(llm, few, chunks)
        llm.engine.kv.place(77, (Span(50, 2), Span(3, 1), Span(60, 1), Span(20, 20)))
        parts = []
        for start, n in ((0, 3), (3, 1)):
            rows = Rows.of(77, few[start : start + n], start)
            assert llm.engine.prepare(rows, "all")[0].window == "map"
            parts.append(llm.engine.forward(rows, "all"))
    same_bits(np.concatenate(parts), whole)


def shared(llm: LLM, mine: Sequence[int], steps: Sequence[tuple[int, int]]) -> tuple[Logits, Logits]:
    """Two sequences through the same forwards, (rows of mine, rows of a mate) each; the logits of both."""
    engine, mate, found = llm.engine, TOKENS[::-1], ([], [])
    for seq_id in (1001, 1002):
        engine.kv.reserve(seq_id, len(TOKENS))
    at = [0, 0]
    for a, b in steps:
        parts = [Rows.of(1001, mine[at[0] :][:a], at[0]), Rows.of(1002, mate[at[1] :][:b], at[1])]
        rows = Rows.batch([part for part in parts if len(part.token_ids)])
        assert engine.prepare(rows, "all")[0].window == ("span" if a and b else "causal")
        logits = engine.forward(rows, "all")
        found[0].append(logits[:a])
        found[1].append(logits[a:])
        at = [at[0] + a, at[1] + b]
    return np.concatenate(found[0]), np.concatenate(found[1])


def test_sequences_that_share_steps_of_few_rows_keep_their_bits(runs: Runs) -> None:
    """Prompt rows of one beside a decode row of the other, through the span window."""
    with runs.on_gpu(PLAIN) as llm:
        mine, theirs = shared(llm, TOKENS, ((0, 1), (2, 1)))
        same_bits(mine, by_chunks(llm, TOKENS[:2], (2,)))
        same_bits(theirs, by_chunks(llm, TOKENS[::-1][:2], (1, 1)))


def test_a_prompt_beside_a_decode_row(runs: Runs) -> None:
    with runs.on_gpu(PLAIN) as llm, opened(runs.path(PLAIN), kv=PLAIN.kv, n_ctx=64) as cpu:
        mine, theirs = shared(llm, TOKENS, ((0, 1), (PREFILL, 1)))
        within_class(by_chunks(cpu, TOKENS[:PREFILL], (PREFILL,)), mine)
        within_class(by_chunks(cpu, TOKENS[::-1][:2], (2,)), theirs)


def listing(llm: LLM, rows: int) -> list[str]:
    """What a forward launches."""
    return [line for program in llm.engine.executable(llm.engine.params(rows)).programs for line in program.listing()]


FUSED = Case("qwen3", "Q8_0", "f16")
OFF = [*((name,) for name in LAUNCH_GROUPS), FUSIONS]


@pytest.mark.parametrize(
    "off",
    [*OFF, *(pytest.param((f,), marks=pytest.mark.full) for f in FUSIONS)],
    ids=lambda off: off[0] if len(off) == 1 else "all fusions",
)
def test_leaving_a_fusion_out_changes_no_bit(runs: Runs, off: Sequence[str]) -> None:
    few = TOKENS[:2]
    with runs.on_gpu(FUSED) as llm:
        together = listing(llm, 1)
    with runs.on_gpu(FUSED, fusions_off=off) as llm:
        apart = listing(llm, 1)
        if off not in OFF and apart == together:
            return  # no kernel takes this one, or a wider one took its nodes
        assert len(apart) > len(together) or off not in OFF
        same_bits(by_chunks(llm, few, (1, 1)), runs.decoded(FUSED, few))


def test_a_layer_of_a_decode_step_takes_five_launches(runs: Runs) -> None:
    for case in (FUSED, Case("llama", "Q8_0", "q8_0"), Case("qwen2", "Q8_0", "f32")):
        with runs.on_gpu(case) as llm:
            launched = [line.partition(": ")[0] for line in listing(llm, 1)]
            assert sum("blk.0" in name for name in launched) <= 6, "the first layer's norm has no layer before it"
            assert sum("blk.1" in name and "blk.0" not in name for name in launched) <= 5, launched


def test_a_layer_on_the_gpu_and_the_rest_on_the_cpu(runs: Runs) -> None:
    plan = DevicePlan(("cpu",), ((0, "gpu"),))
    cpu = CpuBackend(KernelLibrary(None, CACHE), 1)
    with runs.on(PLAIN, cpu, gpu(), devices=plan) as llm:
        mixed = by_chunks(llm, TOKENS, CHUNKS)
        blocks = {n.block: n.backend for n in llm.graph(1) if n.block is not None and not n.is_leaf()}
        assert blocks == {0: "gpu", 1: "cpu"}
    within_class(runs.chunked(PLAIN), mixed)
