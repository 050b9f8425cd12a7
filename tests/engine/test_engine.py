"""The engine and the Python interface, on a small synthetic model: sequences, limits, generation, failures."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import minfer_models.backends as backends_module
from minfer_ir.evaluate import N_ROWS
from minfer_ir.memory.budget import BudgetError
from minfer_ir.params import DevicePlan
from minfer_ir.passes.fuse import FUSIONS
from minfer_ir.runtime.backend import BackendError
from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_ir.runtime.probe import ProbeFailureError
from minfer_models import LLM, load
from minfer_models.engine import ContextError, EngineError, Rows, TokenSequence
from minfer_models.gguf import GGUFError
from minfer_models.sampling import SamplingError
from minfer_models.settings import Settings
from minfer_models.synthetic import SyntheticModel, write_model

CACHE = Path(__file__).resolve().parents[2] / ".cache"
SETTINGS = Settings(cache_dir=CACHE)
MODEL = SyntheticModel(width=64, ffn_width=192, n_heads=4, n_kv_heads=2, n_ctx_train=64, weights="Q4_0")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "small.gguf", MODEL)


@pytest.fixture
def llm(path: Path) -> Iterator[LLM]:
    with load(path, threads=2, settings=SETTINGS, chunk=16) as made:
        yield made


def ids(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, n).tolist()


def test_a_token_gets_the_same_bits_however_the_prompt_is_cut(llm: LLM) -> None:
    tokens = ids(50)
    whole = llm.logits(tokens)
    assert whole.shape == (50, 258)
    for cuts in ([1] * 50, [3, 16, 1, 30], [49, 1]):
        with TokenSequence(llm.engine) as sequence:
            start = 0
            for n in cuts:
                last = sequence.feed(tokens[start : start + n])
                start += n
                assert np.array_equal(last[0], whole[start - 1])


@pytest.mark.parametrize("backend", ["cpu", "numpy"])
def test_only_the_last_chunk_of_a_prompt_computes_logits(path: Path, backend: str) -> None:
    plan = DevicePlan((backend,))
    with load(path, threads=2, settings=SETTINGS, chunk=16, devices=plan) as llm:
        with TokenSequence(llm.engine) as sequence:
            assert sequence.feed(ids(20), "none").shape == (0, 258)
            builds = llm.engine.graphs.builds
            after = sequence.feed(ids(20, 1))
            assert llm.engine.graphs.builds == builds, "the plans of the chunks without logits serve the others"
        with TokenSequence(llm.engine) as sequence:
            assert np.array_equal(sequence.feed([*ids(20), *ids(20, 1)]), after)
        executable, counts = llm.engine.executable(llm.engine.params(16)), list[list[int]]()
        run = executable.run
        executable.run = lambda inputs: (counts.append(inputs[N_ROWS].tolist()), run(inputs))[1]
        with TokenSequence(llm.engine) as sequence:
            sequence.next_logits(ids(48))
        assert counts == [[16, 0], [16, 0], [16, 1]]


def test_a_forward_without_output_rows_computes_none(llm: LLM) -> None:
    with TokenSequence(llm.engine) as sequence:
        params, inputs = llm.engine.prepare(Rows.of(sequence.id, ids(9), 0), "none")
        values = list(llm.engine.executable(params).trace(inputs))
    assert {value.shape[0] for node, value in values if node.type.rows == "output"} == {0}
    assert {value.shape[0] for node, value in values if node.type.rows == "token"} == {9}


def test_rows_of_two_sequences_in_one_forward_get_the_bits_they_get_alone(llm: LLM) -> None:
    first, second = ids(7, 1), ids(5, 2)
    alone = [llm.logits(first)[-1], llm.logits(second)[-1]]
    with TokenSequence(llm.engine, 20) as a, TokenSequence(llm.engine, 20) as b:
        rows = Rows.batch([Rows.of(a.id, first, 0), Rows.of(b.id, second, 0)])
        together = llm.engine.forward(rows, "last")
    assert np.array_equal(together, np.stack(alone))


def test_a_sequence_that_goes_back_continues_as_if_it_had_never_gone_on(llm: LLM) -> None:
    tokens = ids(12)
    with TokenSequence(llm.engine) as sequence:
        sequence.feed(tokens)
        sequence.truncate(6)
        again = sequence.feed([9, 9])
    assert np.array_equal(again[0], llm.logits([*tokens[:6], 9, 9])[-1])


def test_what_exceeds_the_context_is_refused_with_both_numbers_and_changes_nothing(llm: LLM) -> None:
    with TokenSequence(llm.engine) as sequence:
        sequence.feed(ids(60))
        with pytest.raises(ContextError, match="65 tokens exceed the available context size of 64"):
            sequence.feed(ids(5))
        assert sequence.length == 60
        assert sequence.feed(ids(4)).shape == (1, 258)
    for n in (64, 65):
        with pytest.raises(ContextError, match=f"prompt's {n} tokens exceed the available context size of 64"):
            llm.generate(ids(n))


def test_generation_stops_when_the_context_is_full(llm: LLM) -> None:
    generation = llm.generate(ids(60))
    generation.text()
    assert generation.usage.prompt_tokens == 60
    assert generation.finish_reason == "stop" or generation.usage.completion_tokens == 4


def test_the_arena_is_empty_after_every_generation_also_one_that_was_left(llm: LLM) -> None:
    next(iter(llm.generate(ids(5), max_tokens=20)), None)
    for _ in range(3):
        llm.generate(ids(5), max_tokens=3).text()
    llm.logits(ids(8))
    assert llm.engine.kv.stats().reserved == 0


def test_the_same_seed_gives_the_same_text_and_a_drawn_seed_repeats_it(llm: LLM) -> None:
    def text(seed: int | None) -> tuple[list[int], int]:
        generation = llm.generate(ids(5), max_tokens=12, temperature=1.0, seed=seed)
        generation.text()
        return generation.token_ids, generation.seed

    assert text(42) == text(42)
    drawn, seed = text(None)
    assert text(seed) == (drawn, seed)
    assert len({tuple(text(s)[0]) for s in range(6)}) > 1


def test_greedy_takes_the_likeliest_token_each_time(llm: LLM) -> None:
    generation = llm.generate(ids(5), max_tokens=6)
    generation.text()
    tokens = ids(5)
    for token in generation.token_ids:
        assert token == int(llm.logits(tokens)[-1].argmax())
        tokens.append(token)


def test_steps_reuse_their_graphs(llm: LLM) -> None:
    llm.generate(ids(5), max_tokens=4).text()
    builds = llm.engine.graphs.builds
    llm.generate(ids(6), max_tokens=30).text()
    assert llm.engine.graphs.builds == builds
    assert llm.engine.resources.probe.counts["cache.build"] == builds


OF_OTHER_MODELS = [f for f in FUSIONS if "norm_rope" in f or f.startswith("matmul_add_")]
"""Fusions of biases and norms of heads, which this model lacks."""
PROJECTIONS = ["matmul_rope", "matmul_rope_kv_store", "matmul_kv_store"]
HIDDEN = {
    "add_rms_norm": ["matmul_add"],
    "swiglu_quantize": ["matmul_swiglu"],
    "concat_matmul": PROJECTIONS,
    "rope_kv_store": ["matmul_rope_kv_store"],
}
"""Fusions that show once others, which take the same nodes first, are off."""


@pytest.mark.parametrize("off", [f for f in FUSIONS if f not in OF_OTHER_MODELS])
def test_switching_a_fusion_off_changes_the_plan_and_no_bit(path: Path, llm: LLM, off: str) -> None:
    before = HIDDEN.get(off, [])
    with (
        load(path, threads=2, settings=SETTINGS, fusions_off=before) as base,
        load(path, threads=2, settings=SETTINGS, fusions_off=[*before, off]) as other,
    ):
        assert other.graph() != base.graph()
        assert np.array_equal(other.logits(ids(9)), llm.logits(ids(9)))


def test_threads_may_share_a_model(llm: LLM) -> None:
    from concurrent.futures import ThreadPoolExecutor

    alone = [llm.generate(ids(4, seed), max_tokens=8).text() for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: llm.generate(ids(4, seed), max_tokens=8).text(), [0, 1, 2, 3] * 4))
    assert together == alone * 4


def test_a_closed_model_says_so(path: Path) -> None:
    llm = load(path, threads=1, settings=SETTINGS)
    llm.close()
    with pytest.raises(EngineError, match="this model was closed"):
        llm.logits(ids(2))


@pytest.mark.parametrize("part", [1.1, 0.9])
def test_a_budget_counts_every_form_of_every_weight_and_the_tables(path: Path, part: float) -> None:
    with load(path, threads=1, settings=SETTINGS) as llm:
        held = llm.engine.memory()[0].total
    if part > 1:
        with load(path, threads=1, settings=SETTINGS, budget=int(part * held)) as llm:
            assert llm.engine.memory()[0].total == held
    else:
        with pytest.raises(BudgetError):
            load(path, threads=1, settings=SETTINGS, budget=int(part * held))


def test_an_evicted_graph_refuses_to_run(llm: LLM) -> None:
    with TokenSequence(llm.engine) as sequence:
        rows = Rows.of(sequence.id, ids(3), 0)
        params, inputs = llm.engine.prepare(rows, "last")
        held = llm.engine.executable(params)
        for n in (1, 2, 5, 9):
            for output_rows in (None, 1, 2):
                llm.engine.executable(llm.engine.params(n, output_rows))
        with pytest.raises(BackendError, match="left the cache"):
            held.run(inputs)


def test_kv_types_are_what_was_asked_for(path: Path) -> None:
    with load(path, threads=1, settings=SETTINGS, kv="f32") as wide, load(path, threads=1, settings=SETTINGS) as auto:
        kinds = [{n.type.dtype.name for n in m.graph() if n.op == "kv"} for m in (wide, auto)]
        assert kinds == [{"f32"}, {"f16"}]
        assert auto.engine.memory()[0].kv * 2 == wide.engine.memory()[0].kv


def test_packed_cells_take_their_bytes_and_run_on_every_backend(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.gguf", replace(MODEL, head_dim=96))
    results = {}
    for backend in ("cpu", "numpy"):
        for kv in ("f32", "q8_0"):
            with load(model, threads=1, settings=SETTINGS, kv=kv, devices=DevicePlan((backend,))) as llm:
                results[backend, kv] = llm.logits(ids(9))
                kinds = {n.type.dtype.name for n in llm.graph() if n.op == "kv"}
                assert kinds == {kv}
                if kv == "q8_0":
                    regions = 2 * MODEL.n_blocks
                    assert llm.engine.memory()[0].kv == regions * llm.engine.n_ctx * (192 + 12 + 4)
    spread = np.abs(results["cpu", "f32"]).max()
    for backend in ("cpu", "numpy"):
        off = np.abs(results[backend, "q8_0"] - results[backend, "f32"]).max()
        assert 0 < off < 0.1 * spread


def test_a_block_on_another_backend_is_near_and_its_values_are_staged(path: Path, llm: LLM) -> None:
    plan = DevicePlan(("cpu", "numpy"), ((1, "numpy"),))
    with load(path, threads=2, settings=SETTINGS, devices=plan) as mixed:
        logits = mixed.logits(ids(6))
        assert mixed.engine.resources.probe.counts["staging.copy"] > 0
    assert np.abs(logits - llm.logits(ids(6))).max() < 0.5


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kv": "q4"}, EngineError, "kv is 'q4', expected one of auto, f32, f16, q8_0"),
        ({"kv": "q8_0"}, EngineError, "kv q8_0 packs 32 elements with one scale, and this model's heads have 16"),
        ({"n_ctx": 65}, EngineError, "n_ctx is 65, the model takes 1 to 64"),
        ({"n_ctx": 0}, EngineError, "n_ctx is 0"),
        ({"n_ctx": 2.5}, EngineError, "n_ctx is 2.5, expected a whole number"),
        ({"threads": True}, EngineError, "threads is True, expected a whole number"),
        (
            {"devices": DevicePlan(("cpu",), ((99, "cpu"),))},
            ValueError,
            "pins block 99, but the model has no such block",
        ),
        ({"devices": DevicePlan(("cpu",), ((1, "cpu"), (1, "cpu")))}, ValueError, "pins block 1, twice"),
        ({"chunk": 24}, EngineError, "chunk is 24, expected a power of two"),
        ({"threads": 0}, EngineError, "threads is 0"),
        ({"fusions_off": ["swigloo"]}, ValueError, "swigloo"),
        ({"devices": DevicePlan(("tpu",))}, EngineError, "no backend is called tpu; there are cpu, numpy"),
        ({"budget": 1 << 16}, BudgetError, "exceeds the budget of 0.062 MiB"),
    ],
)
def test_bad_options_are_refused_with_their_values(
    path: Path, options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        load(path, settings=SETTINGS, **options)  # type: ignore[arg-type]


def test_bad_requests_are_refused(llm: LLM) -> None:
    with pytest.raises(EngineError, match="the prompt is empty"):
        llm.generate([])
    with pytest.raises(EngineError, match=r"whole numbers, got \[1\.5, 2\]"):
        llm.logits([1.5, 2])  # type: ignore[list-item]
    with pytest.raises(EngineError, match="token id 2147483648 is out of range"):
        llm.logits([2**31])
    with pytest.raises(EngineError, match="at least one token"):
        llm.logits([])
    for no_ids in (b"a", b"abc", bytearray(b"a"), memoryview(b"a"), None, 5, [[1], [2, 3]], {1: 2}, [True], iter([1])):
        with pytest.raises(EngineError, match="token ids are a list of whole numbers, got"):
            llm.generate(no_ids)  # type: ignore[arg-type]
        with pytest.raises(EngineError, match="token ids are a list of whole numbers, got"):
            llm.logits(no_ids)  # type: ignore[arg-type]
    with pytest.raises(ContextError, match="65 tokens exceed"):
        llm.logits(ids(65))
    with pytest.raises(EngineError, match="max_tokens is 0"):
        llm.generate(ids(3), max_tokens=0)
    with pytest.raises(SamplingError, match="-1"):
        llm.generate(ids(3), temperature=-1)
    with pytest.raises(ValueError, match=r"token_ids\[1\] is 258, not below the vocabulary of 258"):
        llm.logits([1, 258])
    assert llm.engine.kv.stats().reserved == 0


@pytest.mark.parametrize("site", ["cache.build", "weights.register", "pool.allocate", "split.compile"])
def test_a_failure_while_loading_leaves_nothing_open(path: Path, site: str) -> None:
    with pytest.raises(ProbeFailureError, match=site):
        load(path, threads=2, settings=Settings(cache_dir=CACHE, test_call_fail=(site,)))
    with load(path, threads=1, settings=SETTINGS) as fine:
        assert fine.logits(ids(2)).shape == (2, 258)


def test_a_forked_process_is_told_and_waits_for_nobody(llm: LLM) -> None:
    """The fork comes while another thread is in the middle of a step: its locks stay taken for ever over there."""
    assert llm.cpu is not None
    generation, pool = llm.generate(ids(3), max_tokens=9), llm.cpu.threads
    running = iter(generation)
    next(running)
    with ThreadPoolExecutor(1) as other:
        locks = (llm.engine.lock, pool._lock)
        other.submit(lambda: [lock.acquire() for lock in locks]).result()
        child = os.fork()
        if child == 0:
            _in_the_fork(llm, [lambda: llm.generate(ids(2)).text(), lambda: next(running), lambda: llm.logits([1])])
        _, status = os.waitpid(child, 0)
        other.submit(lambda: [lock.release() for lock in locks]).result()
    assert os.waitstatus_to_exitcode(status) == 0
    list(running)
    assert len(generation.token_ids) == 9


def _in_the_fork(llm: LLM, uses: list[Callable[[], object]]) -> None:
    """Ends the process: with 0 when every use was refused, by SIGALRM when one waits."""
    code = 1
    try:
        signal.alarm(30)
        for use in uses:
            with pytest.raises(EngineError, match=f"loaded in process {os.getppid()}, whose threads a fork"):
                use()
        with pytest.raises(RuntimeError, match="made before a fork"):
            llm.cpu.threads.run([])  # type: ignore[arg-type, union-attr]
        llm.close()
        code = 0
    finally:
        os._exit(code)


@pytest.mark.parametrize("callback", ["on_weight", "on_device"])
def test_a_caller_s_mistake_while_loading_leaves_no_thread(
    path: Path, callback: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError(callback)

    monkeypatch.setattr("minfer_models.placing.Placed.lines", lambda _self, _engine: iter(["device"]))
    before = set(threading.enumerate())  # another test's model may have threads of the same names
    with pytest.raises(KeyError, match=callback):
        load(path, threads=3, settings=SETTINGS, **{callback: fail})  # type: ignore[arg-type]
    assert [t.name for t in set(threading.enumerate()) - before if t.name == "minfer-2"] == []


def test_a_plugged_in_backend_is_found_by_its_entry_point(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", f"{__name__}:Mine", backends_module.ENTRY_POINTS)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == point.group else [])
    monkeypatch.setattr(EntryPoint, "load", lambda self: Mine)
    with load(path, settings=SETTINGS, devices=DevicePlan(("mine",)), kv="f32") as llm:
        assert {n.backend for n in llm.graph()} == {"mine"}
        assert np.isfinite(llm.logits(ids(3))).all()


class Mine(NumpyBackend):
    name = "mine"


def test_nothing_depends_on_the_file_once_it_is_loaded(tmp_path: Path) -> None:
    copy = write_model(tmp_path / "copy.gguf", MODEL)
    with load(copy, threads=1, settings=SETTINGS) as llm:
        before = llm.logits(ids(4))
        with copy.open("r+b") as file:
            file.truncate(copy.stat().st_size // 2)
        assert np.array_equal(llm.logits(ids(4)), before)
        assert llm.generate(ids(4), max_tokens=3).text() is not None


def test_a_weight_that_is_not_finite_is_named_when_it_is_taken_in(tmp_path: Path) -> None:
    broken = write_model(tmp_path / "broken.gguf", MODEL)
    from minfer_models.gguf import open_gguf

    with open_gguf(broken) as file:
        info = file.tensor("blk.1.ffn_up.weight")
    with broken.open("r+b") as file:
        file.seek(info.offset + 3 * info.row_bytes + 18)
        file.write(np.float16(np.inf).tobytes())
    with pytest.raises(GGUFError, match=r"blk\.1\.ffn_up\.weight.*row 3, block 1 is NaN or infinite"):
        load(broken, threads=1, settings=SETTINGS)
