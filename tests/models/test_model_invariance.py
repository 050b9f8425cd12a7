"""A token's logits have the same bits whatever rides with it: over whole models, for every weight type."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from model_steps import ISAS, by_chunks, opened, step

from minfer_ir.formats import WEIGHT_FORMATS
from minfer_ir.kv import Span
from minfer_ir.params import WindowMode
from minfer_ir.passes.fuse import FUSIONS
from minfer_models.engine import Logits, Rows
from minfer_models.llm import LLM
from minfer_models.synthetic import SyntheticModel, write_model

ARCHITECTURES = ("llama", "qwen2", "qwen3")
N_TOKENS = 139
"""More than one attention block of 128 positions, and no multiple of the rows that a kernel takes together."""

MIX = {
    "token_embd.weight": "Q6_K",
    "*.attn_q.weight": "Q4_K",
    "*.attn_k.weight": "Q4_0",
    "*.attn_v.weight": "F16",
    "*.attn_output.weight": "Q5_1",
    "*.ffn_gate.weight": "IQ4_NL",
    "*.ffn_up.weight": "Q3_K",
    "*.ffn_down.weight": "BF16",
}
WEIGHTS = {**{name: name for name in WEIGHT_FORMATS}, "a mix": MIX}
SAMPLED = ("Q4_1", "Q5_K", "a mix")
"""Weight types that stand for all where attention, not the products, is what changes: one per KV type."""
KV = {"Q8_0": "f32", "a mix": "f32", "Q4_1": "q8_0", "Q6_K": "q8_0", "BF16": "q8_0"}
"""KV types by weight type; the others have f16."""


def tokens_for(weights: str) -> list[int]:
    return random.Random(weights).choices(range(257), k=N_TOKENS)


def chunks_for(weights: str) -> list[int]:
    """Random sizes that sum to N_TOKENS."""
    rng, sizes = random.Random(weights), []
    while (left := N_TOKENS - sum(sizes)) > 0:
        sizes.append(min(left, rng.choice((1, 2, 3, 5, 8, 13, 31, 40))))
    return sizes


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model per weight type, the architectures by turns."""
    folder = tmp_path_factory.mktemp("invariance")
    return {
        name: write_model(
            folder / f"{number}.gguf",
            SyntheticModel(architecture=ARCHITECTURES[number % 3], weights=weights, tied=number % 2 == 0, seed=number),
        )
        for number, (name, weights) in enumerate(WEIGHTS.items())
    }


@pytest.fixture
def llm(files: dict[str, Path], weights: str) -> Iterator[LLM]:
    with opened(files[weights], n_ctx=512, kv=KV.get(weights, "f16")) as model:
        yield model


def same_bits(a: Logits, b: Logits) -> None:
    assert np.isfinite(a).all()
    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_chunking(llm: LLM, weights: str) -> None:
    tokens = tokens_for(weights)
    whole = by_chunks(llm, tokens, [N_TOKENS])
    assert len(np.unique(whole, axis=0)) == N_TOKENS
    same_bits(by_chunks(llm, tokens, [1] * N_TOKENS), whole)
    same_bits(by_chunks(llm, tokens, chunks_for(weights)), whole)


def test_chunking_of_a_real_model(smollm2: Path, smollm2_text: list[int]) -> None:
    tokens = smollm2_text[:N_TOKENS]
    with opened(smollm2, n_ctx=512) as llm:
        whole = by_chunks(llm, tokens, [N_TOKENS])
        same_bits(by_chunks(llm, tokens, [1] * N_TOKENS), whole)
        same_bits(by_chunks(llm, tokens, chunks_for("smollm2")), whole)


@pytest.mark.full
@pytest.mark.parametrize("weights", WEIGHTS)
def test_many_chunkings(llm: LLM, weights: str) -> None:
    tokens = tokens_for(weights)
    whole = by_chunks(llm, tokens, [N_TOKENS])
    for seed in range(12):
        same_bits(by_chunks(llm, tokens, chunks_for(f"{weights} {seed}")), whole)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_threads_and_instruction_sets(llm: LLM, files: dict[str, Path], weights: str) -> None:
    tokens, kv = tokens_for(weights), llm.engine.options.kv
    whole = by_chunks(llm, tokens, [N_TOKENS])
    for isa in ISAS:
        for threads in (1, 3):
            with opened(files[weights], n_ctx=512, kv=kv, isa=isa, threads=threads) as other:
                same_bits(by_chunks(other, tokens, [N_TOKENS - 1, 1]), whole)


@pytest.mark.parametrize("weights", [pytest.param(w, marks=[] if w in SAMPLED else pytest.mark.full) for w in WEIGHTS])
def test_batch_mates(llm: LLM, weights: str) -> None:
    """Sequences that share a forward, by one row or many, and leave it."""
    engine, tokens, mate = llm.engine, tokens_for(weights), tokens_for("mate")
    whole = by_chunks(llm, tokens, [N_TOKENS])
    alone = by_chunks(llm, mate, [N_TOKENS])
    engine.kv.reserve(1001, N_TOKENS)
    engine.kv.reserve(1002, N_TOKENS)
    mine, theirs = [], []
    for a, b in ((0, 5), (126, 1), (1, 126), (12, 0), (0, 7)):
        done = sum(map(len, mine)), sum(map(len, theirs))
        parts = [Rows.of(1001, tokens[done[0] :][:a], done[0]), Rows.of(1002, mate[done[1] :][:b], done[1])]
        rows = Rows.batch([part for part in parts if len(part.token_ids)])
        params, _ = engine.prepare(rows, "all")
        assert params.window == ("span" if a and b else "causal")
        logits = engine.forward(rows, "all")
        mine.append(logits[:a])
        theirs.append(logits[a:])
    same_bits(np.concatenate(mine), whole)
    same_bits(np.concatenate(theirs), alone)


@pytest.mark.parametrize("weights", [pytest.param(w, marks=[] if w in SAMPLED else pytest.mark.full) for w in WEIGHTS])
def test_cells(llm: LLM, weights: str) -> None:
    """A sequence that starts anywhere in the arena, or lies in pieces of it."""
    engine, tokens = llm.engine, tokens_for(weights)
    whole = by_chunks(llm, tokens, [N_TOKENS])
    pieces = {
        "causal": (Span(101, N_TOKENS),),
        "map": (Span(240, 12), Span(3, 60), Span(130, 1), Span(64, 66)),
    }
    for number, (mode, spans) in enumerate(pieces.items()):
        seq_id = 2000 + number
        engine.kv.place(seq_id, spans)
        rows = Rows.of(seq_id, tokens, 0)
        params, inputs = engine.prepare(rows, "all")
        assert params.window == mode
        assert inputs["cells"][0] == spans[0].cell
        same_bits(engine.forward(rows, "all"), whole)
        engine.kv.release(seq_id)


@pytest.mark.parametrize("weights", [pytest.param(w, marks=[] if w in SAMPLED else pytest.mark.full) for w in WEIGHTS])
def test_window_modes(llm: LLM, weights: str) -> None:
    """The same cells described as causal, as a span, and as runs cut in any places."""
    tokens, first = tokens_for(weights), 9
    positions, cells = range(N_TOKENS), range(first, first + N_TOKENS)
    results = {mode: step(llm, mode, tokens, positions, cells, windows(mode, first)) for mode in MODES}
    for logits in results.values():
        same_bits(logits, results["causal"])


@pytest.mark.parametrize("weights", [pytest.param(w, marks=[] if w in SAMPLED else pytest.mark.full) for w in WEIGHTS])
def test_fusions(llm: LLM, files: dict[str, Path], weights: str) -> None:
    tokens, kv = tokens_for(weights), llm.engine.options.kv
    whole = by_chunks(llm, tokens, [N_TOKENS])
    ops = {node.op for node in llm.graph(N_TOKENS)}
    for off in [*([name] for name in FUSIONS), list(FUSIONS)]:
        with opened(files[weights], n_ctx=512, kv=kv, fusions_off=off) as other:
            left = {node.op for node in other.graph(N_TOKENS)}
            same_bits(by_chunks(other, tokens, [N_TOKENS]), whole)
    assert ops != left
    assert not left & set(FUSIONS)


MODES: tuple[WindowMode, ...] = ("causal", "span", "map")


def windows(mode: WindowMode, first: int) -> Sequence[Sequence[int] | int]:
    if mode == "causal":
        return [first]
    if mode == "span":
        return [[first, first + p + 1] for p in range(N_TOKENS)]
    return [[start for run in runs(p + 1, first) for start in run] for p in range(N_TOKENS)]


def runs(n: int, first: int) -> list[tuple[int, int]]:
    """Cells first to first + n - 1 in four (cell, length) runs, some empty, none a whole block."""
    cuts = [0, n // 7, n // 7, n - n // 3, n]
    return [(first + a, b - a) for a, b in pairwise(cuts)]
