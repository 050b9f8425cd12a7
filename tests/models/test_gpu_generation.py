"""Tokens from the GPU backend as a user gets them: `load(device=...)`, greedy, and steps of several sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gates import CLEAR, GPU_CLASS
from model_steps import CACHE, by_chunks, opened

from minfer_ir.memory import BudgetError, MemoryReport
from minfer_models.engine import Logits, Rows, TokenSequence
from minfer_models.llm import LLM
from minfer_models.loading import load
from minfer_models.settings import Settings
from minfer_models.synthetic import SyntheticModel, write_model

PROMPT = (7, 200, 31, 90, 12)
STEPS = 3
SIZES = {"width": 64, "ffn_width": 64, "n_heads": 2, "n_kv_heads": 1, "head_dim": 32, "n_blocks": 1}


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("generation") / f"{request.param}.gguf"
    return write_model(path, SyntheticModel(request.param, weights="Q8_0", **SIZES))


@pytest.fixture(scope="module")
def llm(model: Path) -> Iterator[LLM]:
    with load(model, device="cuda", n_ctx=64, kv="f16", decode_apart=True, settings=Settings(cache_dir=CACHE)) as made:
        yield made


def on_cpu(model: Path, tokens: Sequence[int]) -> Logits:
    with opened(model, kv="f16", n_ctx=64, threads=1) as cpu:
        return by_chunks(cpu, tokens, [len(tokens)])


def chosen_as(logits: Logits, tokens: Sequence[int]) -> bool:
    """Whether each token is the most likely one, or at a near tie as good as it."""
    best = logits.max(axis=1) - logits[np.arange(len(tokens)), list(tokens)]
    return bool((best < CLEAR).all()) and float(np.mean(best == 0)) >= 0.5


def test_greedy_tokens_are_the_cpu_s(model: Path, llm: LLM) -> None:
    tokens = list(PROMPT)
    with TokenSequence(llm.engine, len(PROMPT) + STEPS) as sequence:
        fed = list(PROMPT)
        for _ in range(STEPS):
            start = len(tokens) - len(fed)
            logits = llm.engine.forward(Rows.of(sequence.id, fed, start), "last")
            fed = [int(logits[-1].argmax())]
            tokens += fed
    launched = [
        site for site, n in llm.engine.resources.probe.counts.items() if n and site.startswith("launch:attention")
    ]
    assert launched == ["launch:attention.split"], "these rows are few"
    assert chosen_as(on_cpu(model, tokens[:-1])[len(PROMPT) - 1 :], tokens[len(PROMPT) :])


@pytest.mark.parametrize("model", ["qwen3"], indirect=True)
def test_a_prompt_and_other_sequences_tokens_in_one_step(model: Path, llm: LLM) -> None:
    """The decode rows attend in parts beside the prompt's tiles, and all logits are the CPU's within class."""
    rng = np.random.default_rng(5)
    prompt, *others = (rng.integers(0, 256, n).tolist() for n in (17, 3, 5))
    engine = llm.engine
    before = engine.resources.probe.counts["launch:attention.split"]
    with TokenSequence(engine, 3) as a, TokenSequence(engine, 17) as b, TokenSequence(engine, 5) as c:
        for sequence, tokens in ((a, others[0]), (c, others[1])):
            engine.forward(Rows.of(sequence.id, tokens[:-1], 0), "last")
        alone = engine.resources.probe.counts["launch:attention.split"] - before
        mixed = engine.forward(
            Rows.batch(
                [
                    Rows.of(a.id, others[0][-1:], len(others[0]) - 1),
                    Rows.of(b.id, prompt, 0),
                    Rows.of(c.id, others[1][-1:], len(others[1]) - 1),
                ]
            ),
            "last",
        )
    assert engine.resources.probe.counts["launch:attention.split"] - before > alone, "decode rows went in parts"
    assert engine.resources.probe.counts["launch:attention.flash"] > 0
    for ours, tokens in zip(mixed, (others[0], prompt, others[1]), strict=True):
        assert np.abs(ours - on_cpu(model, tokens)[-1]).max() < GPU_CLASS.largest


@pytest.mark.parametrize("model", ["qwen3"], indirect=True)
def test_scratch_is_in_the_report_and_the_budget(model: Path, llm: LLM) -> None:
    report = next(r for r in llm.engine.memory() if r.backend == "gpu")
    assert report.scratch > 0
    assert report.live > report.scratch and report.pool >= report.live
    assert f"  scratch  {report.scratch / 2**20:>10.3f} MiB" in report.text()


def test_a_step_whose_scratch_does_not_fit_is_refused_before_anything_is_launched(tmp_path: Path) -> None:
    """The same graph with and without room for the parts of a long context."""
    path = write_model(tmp_path / "one.gguf", SyntheticModel("llama", weights="Q8_0", **SIZES))
    report = lowered(path, None)
    assert report.scratch > 1 << 16
    with pytest.raises(BudgetError, match=r"buffers .* MiB with 0\.0\d+ MiB of scratch, KV cells"):
        lowered(path, report.total - report.scratch // 2)
    assert lowered(path, report.total) == replace(report, budget=report.total)


def lowered(path: Path, budget: int | None) -> MemoryReport:
    """The GPU's memory once a step of 16 rows over a long context is lowered; nothing is launched."""
    settings = Settings(cache_dir=CACHE)
    with load(path, device="cuda", n_ctx=2048, kv="q8_0", budget=budget, settings=settings) as llm:
        llm.engine.lowered(llm.engine.params(16, None, "span"))
        assert not any(site.startswith("launch:") for site in llm.engine.resources.probe.counts)
        return llm.engine.memory()[0]
