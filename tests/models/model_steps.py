"""Models opened for tests, and forwards with every input in the test's hands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minfer_ir.evaluate import evaluate
from minfer_ir.params import GraphParams, WindowMode
from minfer_kernels.cpu.backend import CpuBackend
from minfer_kernels.cpu.compiler.features import HostFeatures, Isa
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_models.engine import Logits, Model, Rows, TokenSequence
from minfer_models.llm import LLM
from minfer_models.loading import load
from minfer_models.settings import Settings

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "test-kernels"
"""Compiled kernels, shared with the tests of the kernels."""

ISAS = tuple(isa for isa in Isa if not HostFeatures.detect().missing(isa))


def opened(path: Path, *, isa: Isa | None = None, threads: int = 2, **options: Any) -> LLM:
    """The model at `path` on the CPU; kernels stay in the tests' cache."""
    backend = CpuBackend(KernelLibrary(isa, CACHE), threads)
    return load(path, backends=[backend], settings=Settings(), **options)


def exact_logits(path: Path, tokens: Sequence[int], positions: Sequence[int] | None = None) -> Logits:
    """Float32 `[n_tokens, n_vocab]` by numpy evaluation of the built graph: activations are never quantized."""
    model = Model.open(path)
    n = len(tokens)
    where = np.arange(n) if positions is None else np.asarray(positions)
    params = GraphParams(n, None, int(where.max()) + 1, n, "span", "f32")
    inputs = {
        "token_ids": np.asarray(tokens),
        "positions": where,
        "cells": np.arange(n),
        "seq_ids": np.zeros(n, np.int32),
        "window": np.stack([np.zeros(n, np.int32), np.arange(1, n + 1)], axis=1),
        "n_rows": np.array([n, n]),
    }
    try:
        return evaluate(model.graph(params), inputs, model.file)[0]
    finally:
        model.file.close()


def by_chunks(llm: LLM, tokens: Sequence[int], sizes: Sequence[int]) -> Logits:
    """The logits of every token, fed in forwards of `sizes` rows."""
    assert sum(sizes) == len(tokens)
    starts = np.cumsum([0, *sizes])
    with TokenSequence(llm.engine, len(tokens)) as sequence:
        parts = [
            llm.engine.forward(Rows.of(sequence.id, tokens[start : start + size], start), "all")
            for start, size in zip(starts, sizes, strict=False)
        ]
    return np.concatenate(parts)


def step(
    llm: LLM, mode: WindowMode, tokens: Sequence[int], positions: Sequence[int], cells: Sequence[int], window: Any
) -> Logits:
    """One forward of one sequence through the graph's own inputs, past the cell store: the logits of every row."""
    n = len(tokens)
    executable = llm.engine.executable(llm.engine.params(n, None, mode))
    inputs = {
        "token_ids": np.asarray(tokens, np.int32),
        "positions": np.asarray(positions, np.int32),
        "cells": np.asarray(cells, np.int32),
        "seq_ids": np.zeros(n, np.int32),
        "window": np.asarray(window, np.int32),
        "n_rows": np.array([n, n], np.int32),
    }
    executable.run(inputs)
    return executable.outputs(inputs)[0]
