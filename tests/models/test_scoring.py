"""Perplexity against `transformers` over the dequantized weights, divergence against plain numpy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import Oracle

from minfer_models import LLM, load
from minfer_models.scoring import Estimate, Moments, ScoringError, compare, cut, perplexity
from minfer_models.scoring import score as scoring
from minfer_models.scoring.distribution import log_softmax
from minfer_models.synthetic import SyntheticModel, byte_vocabulary, write_model

TEXT = (Path(__file__).parent / "data" / "alice.txt").read_text()[:450]
BOS = 256
N_CTX = 100


def vocabulary(bos: bool) -> dict[str, Any]:
    more = {"tokenizer.ggml.bos_token_id": BOS, "tokenizer.ggml.add_bos_token": True} if bos else {}
    return {**byte_vocabulary(), **more}


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "bos"])
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, ...]]:
    """Two models in float32, with their files: nothing rounds but float arithmetic itself."""
    folder = tmp_path_factory.mktemp("scoring")
    files = []
    for seed in (1, 2):
        path = folder / f"{seed}.gguf"
        write_model(path, SyntheticModel(weights="F32", vocabulary=vocabulary(request.param), seed=seed, n_blocks=1))
        files.append(path)
    with load(files[0], n_ctx=256, kv="f32") as a, load(files[1], n_ctx=256, kv="f32") as b:
        yield a, b, Oracle(files[0]), Oracle(files[1]), request.param


def expected_rows(oracle: Oracle, bos: bool, length: int, step: int, scored: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits and targets written down naively: whole windows, and the last `scored` tokens of each."""
    ids = [BOS] * bos + list(TEXT.encode())
    rows, targets = [], []
    last = len(ids) - length
    starts = range(0, last + 1, step) if step == length else range(0, last, step)
    for start in starts:
        window = ids[start : start + length]
        if bos:
            window = [BOS, *window[1:]]
        rows.append(oracle.logits(window)[-scored - 1 : -1])
        targets += window[-scored:]
    return np.concatenate(rows).astype(np.float64), np.array(targets)


def nll(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return -np.log(softmax(logits)[np.arange(len(targets)), targets])


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("stride", "length", "step", "scored"), [(None, 100, 100, 49), (30, 115, 30, 30)])
def test_perplexity_is_that_of_transformers(
    models: tuple[Any, ...], stride: int | None, length: int, step: int, scored: int
) -> None:
    llm, _, oracle, _, bos = models
    heard: list[tuple[int, int, float]] = []
    got = perplexity(llm, TEXT, N_CTX, stride, lambda *told: heard.append(told))
    losses = nll(*expected_rows(oracle, bos, length, step, scored))
    assert got.tokens == len(losses)
    assert got.ppl.value == pytest.approx(math.exp(losses.mean()), rel=1e-4)
    error = losses.std() / math.sqrt(len(losses) - 1)
    assert got.ppl.error == pytest.approx(math.exp(losses.mean()) * error, rel=1e-3)
    assert [told[:2] for told in heard] == [(i + 1, got.windows) for i in range(got.windows)]
    assert heard[0][2] == pytest.approx(math.exp(losses[:scored].mean()), rel=1e-4)
    assert heard[-1][2] == pytest.approx(got.ppl.value)
    assert got.read == got.windows * length


def test_divergence_is_that_of_numpy(models: tuple[Any, ...]) -> None:
    llm, reference, oracle, other, bos = models
    got = compare(llm, reference, TEXT, N_CTX)
    q, targets = expected_rows(oracle, bos, 100, 100, 49)
    p, _ = expected_rows(other, bos, 100, 100, 49)
    kl = (softmax(p) * np.log(softmax(p) / softmax(q))).sum(axis=1)
    same = p.argmax(axis=1) == q.argmax(axis=1)
    ours, theirs = nll(q, targets), nll(p, targets)
    root = math.sqrt(len(kl) - 1)
    assert got.tokens == len(kl)
    assert (got.kl.value, got.kl.error) == pytest.approx((kl.mean(), kl.std() / root), rel=1e-3)
    assert (got.kl_median, got.kl_p99, got.kl_max) == pytest.approx(
        (np.median(kl), np.percentile(kl, 99), kl.max()), rel=1e-3
    )
    share = same.mean()
    assert (got.same_top1.value, got.same_top1.error) == pytest.approx((share, math.sqrt(share * (1 - share)) / root))
    assert got.ppl.value == pytest.approx(math.exp(ours.mean()), rel=1e-4)
    assert got.reference_ppl.value == pytest.approx(math.exp(theirs.mean()), rel=1e-4)
    ratio = math.exp((ours - theirs).mean())
    assert got.ratio.value == pytest.approx(ratio, rel=1e-4)
    assert got.ratio.error == pytest.approx(ratio * (ours - theirs).std() / root, rel=1e-3)
    alone = perplexity(llm, TEXT, N_CTX).ppl
    assert got.ppl.value == alone.value
    assert got.ppl.error == pytest.approx(alone.error)


def test_a_model_against_itself_is_no_divergence(models: tuple[Any, ...]) -> None:
    llm = models[0]
    got = compare(llm, llm, TEXT, N_CTX)
    assert (got.kl, got.kl_max) == (Estimate(0.0, 0.0), 0.0)
    assert (got.same_top1.value, got.ratio) == (1.0, Estimate(1.0, 0.0))


def test_a_model_against_itself_needs_no_more_room_than_alone(tmp_path: Path) -> None:
    """A context of one window: the two runs of a window go one after the other, and each has all of it."""
    path = tmp_path / "m.gguf"
    write_model(path, SyntheticModel(weights="F32", vocabulary=vocabulary(False), n_blocks=1))
    with load(path, n_ctx=N_CTX, kv="f32") as llm:
        got = compare(llm, llm, TEXT, N_CTX)
        assert (got.kl, got.same_top1.value) == (Estimate(0.0, 0.0), 1.0)
        assert got.ppl.value == got.reference_ppl.value == pytest.approx(perplexity(llm, TEXT, N_CTX).ppl.value)


def test_pieces_of_a_window_change_nothing(models: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    llm: LLM = models[0]
    whole = perplexity(llm, TEXT, N_CTX)
    monkeypatch.setattr(scoring, "ROWS", 7)
    assert perplexity(llm, TEXT, N_CTX).ppl.value == pytest.approx(whole.ppl.value, rel=1e-12)


@pytest.mark.parametrize(
    ("n_tokens", "n_ctx", "stride", "said"),
    [
        (1023, 512, None, r"the text has 1023 tokens, and perplexity over a context of 512 needs at least 1024"),
        (640, 512, 256, r"the text has 640 tokens, and windows of 640 .* need at least 641"),
        (9999, 3, None, "a context of 3 tokens"),
        (9999, 512, 0, "a stride of 0 is not between 1 and 511"),
        (9999, 512, 512, "a stride of 512 is not between 1 and 511"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_both_counts(
    n_tokens: int, n_ctx: int, stride: int | None, said: str
) -> None:
    with pytest.raises(ScoringError, match=said):
        cut(n_tokens, n_ctx, stride)


def test_windows_are_those_of_llama_cpp() -> None:
    assert [(w.start, w.stop, w.first, w.scored) for w in cut(1700, 512)] == [
        (0, 512, 257, 255),
        (512, 1024, 257, 255),
        (1024, 1536, 257, 255),
    ]
    strided = cut(1000, 512, 256)
    assert [(w.start, w.stop, w.first, w.scored) for w in strided] == [(0, 640, 384, 256), (256, 896, 384, 256)]
    assert len(cut(641, 512, 256)) == 1


def test_other_vocabularies_are_refused_with_both_sizes(models: tuple[Any, ...], tmp_path: Path) -> None:
    wide, other = tmp_path / "wide.gguf", tmp_path / "other.gguf"
    write_model(wide, SyntheticModel(weights="F32", vocabulary=byte_vocabulary(300), n_blocks=1))
    renamed = byte_vocabulary()
    renamed["tokenizer.ggml.tokens"] = [*renamed["tokenizer.ggml.tokens"][:-2], "<|end|>", "xy"]
    renamed["tokenizer.ggml.merges"] = ["x y"]
    write_model(other, SyntheticModel(weights="F32", vocabulary=renamed, n_blocks=1))
    for path, said in [(wide, "258 logits and 258 tokens against 300 and 300"), (other, "not the same ones")]:
        with load(path, n_ctx=128) as reference, pytest.raises(ScoringError, match=said):
            compare(models[0], reference, TEXT, N_CTX)


def test_logits_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ScoringError, match="NaN or infinity"):
        log_softmax(np.array([[0.0, np.nan]], np.float32))
    assert log_softmax(np.array([[1e4, -1e4]], np.float32)).tolist() == [[0.0, -2e4]]


def test_moments_are_numpy_s() -> None:
    values = np.random.default_rng(0).normal(size=(40, 2)) + 3
    sums = Moments(2)
    for part in np.split(values, [1, 7, 30]):
        sums.add(part)
    difference = values @ [1, -1]
    got = sums.weighted([1, -1])
    assert (got.value, got.error) == pytest.approx((difference.mean(), difference.std() / math.sqrt(39)))
