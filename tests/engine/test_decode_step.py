"""The short way of a decode step against the general one: same bits, same lengths, same refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minfer_ir.evaluate import N_ROWS
from minfer_ir.kv import Span
from minfer_ir.params import DevicePlan
from minfer_ir.runtime.fill import FillError, check_fill, input_nodes
from minfer_ir.runtime.one_row import OneRow
from minfer_ir.runtime.probe import ProbeFailureError
from minfer_models import LLM, load
from minfer_models.engine import Rows, TokenSequence
from minfer_models.settings import Settings
from minfer_models.synthetic import SyntheticModel, write_model

CACHE = Path(__file__).resolve().parents[2] / ".cache"
MODEL = SyntheticModel(width=64, ffn_width=96, n_heads=4, n_kv_heads=2, n_ctx_train=32, weights="Q4_0")
VOCAB = 258


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "small.gguf", MODEL)


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with load(path, threads=2, settings=Settings(cache_dir=CACHE)) as made:
        yield made


@pytest.fixture(scope="module")
def one_row(llm: LLM) -> OneRow:
    step = llm.engine.executable(llm.engine.params(1)).one_row
    assert step is not None
    return step


def near(*limits: int) -> st.SearchStrategy[int]:
    edges = [limit + offset for limit in (0, *limits) for offset in (-2, -1, 0, 1)]
    return st.sampled_from(edges) | st.integers(-3, max(limits) + 3)


@settings(max_examples=300, deadline=None)
@given(token=near(VOCAB), position=near(32), first=near(32))
@example(token=0, position=31, first=0)
@example(token=0, position=1, first=31)
@example(token=VOCAB, position=0, first=0)
def test_it_takes_what_the_fill_guards_take(llm: LLM, one_row: OneRow, token: int, position: int, first: int) -> None:
    wanted = input_nodes(llm.engine.executable(llm.engine.params(1)).graph)
    row = {"token_ids": token, "positions": position, "cells": first + position, "window": first}
    inputs = {key: np.array([value], np.int32) for key, value in row.items()}
    inputs |= {"seq_ids": np.array([1]), "output_ids": np.array([0]), N_ROWS: np.array([1, 1])}
    try:
        check_fill(wanted, inputs)
        fits = True
    except FillError:
        fits = False
    assert one_row.takes(token, position, first) == fits


def outcome(llm: LLM, short: bool, token: int, length: int, capacity: int, at: int) -> tuple[object, int, object]:
    """What one more token behind `length` others gives at position `at`, the length then, and what the next gives."""
    engine = llm.engine
    with TokenSequence(engine, capacity) as sequence:
        if length:
            sequence.feed([(7 * i) % VOCAB for i in range(length)])
        sequence.length = at
        try:
            if short:
                first = sequence.next_logits([token]).tolist()
            else:
                first = engine.forward(Rows.of(sequence.id, [token], at), "last")[0].tolist()
                sequence.length += 1
        except (ValueError, OverflowError) as error:
            first = type(error), str(error).replace(f"sequence {sequence.id}:", "it:")
        written = engine.kv.length(sequence.id)
        sequence.truncate(min(written, capacity - 1))
        return first, written, sequence.feed([9]).tolist()


@settings(max_examples=60, deadline=None)
@given(
    token=near(VOCAB),
    length=st.integers(0, 5),
    spare=st.integers(0, 2),
    offset=st.sampled_from([0, 0, 0, -1, 1, 2]),
)
@example(token=3, length=2, spare=0, offset=0)
@example(token=3, length=2, spare=1, offset=-1)
@example(token=VOCAB, length=2, spare=1, offset=0)
def test_both_ways_give_the_same_or_refuse_the_same(llm: LLM, token: int, length: int, spare: int, offset: int) -> None:
    capacity, at = max(length + spare, 1), max(length + offset, 0)
    if token < 0:
        return  # the sequence refuses these itself, before it knows the engine
    results = [outcome(llm, short, token, length, capacity, at) for short in (True, False)]
    assert results[0] == results[1]


def test_decoding_goes_the_short_way_and_prompts_do_not(llm: LLM) -> None:
    with TokenSequence(llm.engine, 8) as sequence:
        assert llm.engine.next_logits(sequence.id, 5, 0) is not None
        assert llm.engine.next_logits(sequence.id, 5, 0) is None, "that position is written"
        assert llm.engine.next_logits(sequence.id, 5, 1) is not None
        assert llm.engine.next_logits(sequence.id + 1, 5, 0) is None, "no such sequence"
    assert llm.engine.executable(llm.engine.params(2)).one_row is None
    assert llm.engine.executable(llm.engine.params(1, None, "span")).one_row is None


def test_a_sequence_in_several_runs_of_cells_takes_the_general_way(llm: LLM) -> None:
    engine = llm.engine
    with TokenSequence(engine, 8) as sequence:
        expected = [sequence.next_logits([token]).tolist() for token in (3, 1, 4)]
    engine.kv.place(10**6, (Span(9, 2), Span(3, 4)))
    try:
        assert engine.next_logits(10**6, 3, 0) is None
        got = [engine.forward(Rows.of(10**6, [t], i), "last")[0].tolist() for i, t in enumerate((3, 1, 4))]
    finally:
        engine.kv.release(10**6)
    assert got == expected


def test_another_graphs_step_in_between_changes_nothing(llm: LLM) -> None:
    with TokenSequence(llm.engine, 8) as alone:
        expected = [alone.next_logits([token]).tolist() for token in (3, 1, 4)]
    with TokenSequence(llm.engine, 8) as sequence, TokenSequence(llm.engine, 8) as other:
        got: list[object] = []
        for token in (3, 1, 4):
            got.append(sequence.next_logits([token]).tolist())
            other.feed([8, 8])
    assert got == expected


def test_a_graph_that_left_the_cache_is_built_again(path: Path) -> None:
    with load(path, threads=1, settings=Settings(cache_dir=CACHE)) as llm, TokenSequence(llm.engine, 8) as sequence:
        held = llm.engine.executable(llm.engine.params(1)).one_row
        first = sequence.next_logits([3]).tolist()
        for rows in (2, 4, 8, 16):
            for output_rows in (None, 1, 2):
                llm.engine.executable(llm.engine.params(rows, output_rows))
        assert held is not None and not held.takes(3, 1, 0)
        builds = llm.engine.graphs.builds
        sequence.truncate(0)
        assert sequence.next_logits([3]).tolist() == first
        assert llm.engine.graphs.builds == builds + 1


def test_a_failing_step_leaves_the_sequence_as_it_was(path: Path) -> None:
    armed = Settings(cache_dir=CACHE, test_call_fail=("split.run",))
    with load(path, threads=1, settings=armed) as llm, TokenSequence(llm.engine, 8) as sequence:
        with pytest.raises(ProbeFailureError, match=r"split\.run"):
            sequence.next_logits([3])
        assert sequence.length == llm.engine.kv.length(sequence.id) == 0
        assert llm.engine.resources.probe.counts["split.run"] == 1


def test_a_step_is_counted_and_timed(llm: LLM) -> None:
    executable, counts = llm.engine.executable(llm.engine.params(1)), llm.engine.resources.probe.counts
    with TokenSequence(llm.engine, 8) as sequence:
        runs, seconds = counts["split.run"], executable.program_seconds
        sequence.next_logits([3])
        assert counts["split.run"] == runs + 1
        assert executable.program_seconds > seconds


def test_a_model_on_two_backends_has_no_short_way(path: Path) -> None:
    plan = DevicePlan(("cpu", "numpy"), ((1, "numpy"),))
    with load(path, threads=1, settings=Settings(cache_dir=CACHE), devices=plan) as mixed:
        assert mixed.engine.executable(mixed.engine.params(1)).one_row is None
        with TokenSequence(mixed.engine, 4) as sequence:
            assert np.isfinite(sequence.next_logits([3])).all()
