"""The engine: one model on its backends, running forwards over sequences of tokens."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import RLock
from types import TracebackType
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from minfer_ir.cache import GraphCache
from minfer_ir.kv import KvError, KvStore, narrowest_window
from minfer_ir.memory.report import MemoryReport
from minfer_ir.params import GraphParams, WindowMode
from minfer_ir.passes.base import Lowering, LoweringError
from minfer_ir.passes.pipeline import lower
from minfer_ir.runtime.backend import Backend, NonFiniteWeightError
from minfer_ir.runtime.executable import Executable
from minfer_ir.runtime.probe import Probe
from minfer_ir.runtime.resources import Resources
from minfer_models.engine.model import CheckedWeights, Model
from minfer_models.engine.options import EngineError, EngineOptions
from minfer_models.engine.rows import Rows
from minfer_models.sampling import Largest

Logits = NDArray[np.float32]
OutputRows = Literal["last", "all", "none"]


class Engine:
    """Owns the backends, their resources, the graph cache and the KV store; close it when done.

    Threads may share an engine: forwards and the bookkeeping around them take turns under `lock`. `on_weight` hears
    every tensor as it is taken in.
    """

    def __init__(
        self,
        model: Model,
        backends: Sequence[Backend],
        options: EngineOptions,
        probe: Probe | None = None,
        on_weight: Callable[[str, int], None] | None = None,
    ) -> None:
        self.model, self.options = model, options
        self.n_ctx = options.context(model.config)
        self.chunk = options.most_rows(model.config)
        looked_at = all(backend.capabilities.checks_weights for backend in backends)
        self._weights = CheckedWeights(model.file, on_weight, check=not looked_at)
        self.resources = Resources(backends, self._weights, probe, options.budget, options.limits)
        self.graphs: GraphCache[Lowering] = GraphCache(self._lower, on_evict=self._trim)
        self.kv = KvStore(self.n_ctx)
        self._lock, self._pid = RLock(), os.getpid()
        self._params: dict[tuple[int, int | None, WindowMode], GraphParams] = {}
        self.closed = False
        self._next_sequence = 0
        self._lent: dict[int, Callable[[], None]] = {}
        self._one_row = self.params(1)
        try:
            self.lowered(self._one_row)
        except BaseException:
            self.close()
            raise
        model.file.release_pages()

    @property
    def forked(self) -> bool:
        """Whether this is another process than the one that it was made in."""
        return os.getpid() != self._pid

    @property
    def lock(self) -> RLock:
        """What forwards and the bookkeeping around them take turns under.

        Raises EngineError in a forked process, where whoever holds it may not be.
        """
        if self.forked:
            raise EngineError(
                f"this model was loaded in process {self._pid}, whose threads a fork doesn't take along: load it in "
                f"process {os.getpid()}, or have that one started by spawn"
            )
        return self._lock

    def params(self, rows: int, output_rows: int | None = 1, window: WindowMode = "causal") -> GraphParams:
        """The identity of a forward over `rows` rows with `output_rows` rows of logits (None: all of them)."""
        key = (rows, output_rows, window)
        if key not in self._params:
            self._params[key] = self.options.params(self.model.config, rows, output_rows, window)
        return self._params[key]

    def lowered(self, params: GraphParams) -> Lowering:
        """The plan for `params`, from the cache or built."""
        return self.graphs.get(params)

    def stage(self, params: GraphParams, name: str) -> Lowering:
        """Lowering stopped after stage `name`; nothing is cached."""
        return lower(params, self.model.graph, self.resources, stop_after=name)

    def new_sequence_id(self) -> int:
        """An id that no sequence of this engine had before."""
        with self.lock:
            self._next_sequence += 1
            return self._next_sequence

    def reserve(self, seq_id: int, capacity: int) -> None:
        """Cells for a sequence; where none are free, those that were lent are taken back, the longest idle first.

        Raises KvError when even that isn't enough.
        """
        with self.lock:
            while True:
                try:
                    self.kv.reserve(seq_id, capacity)
                    return
                except KvError:
                    if not self._lent:
                        raise
                    self._lent.pop(next(iter(self._lent)))()

    def lend(self, seq_id: int, close: Callable[[], None]) -> None:
        """Offer an idle sequence's cells to whoever needs some: `close` is called then, to give them back."""
        if self.forked:
            return
        with self.lock:
            self._lent.pop(seq_id, None)
            self._lent[seq_id] = close

    def claim(self, seq_id: int) -> None:
        """The sequence is in use again: its cells are no longer on offer."""
        with self.lock:
            self._lent.pop(seq_id, None)

    def forward(self, rows: Rows, outputs: OutputRows, copy: bool = True) -> Logits:
        """One forward; float32 logits of the last row of every sequence in it, of every row, or `[0, n_vocab]` of none.

        The rows are marked as written once it has run. With `copy=False` the logits are only valid until the next
        forward. Raises EngineError on a closed engine.
        """
        with self.lock:
            if self.closed:
                raise EngineError("this model was closed; load it again")
            params, inputs = self.prepare(rows, outputs)
            lengths = [(seq_id, self.kv.length_after(seq_id, at)) for seq_id, at in rows.by_sequence()]
            executable = self.executable(params)
            executable.run(inputs)
            for seq_id, length in lengths:
                self.kv.extend(seq_id, length)
            return executable.outputs(inputs, copy)[0]

    def next_logits(self, seq_id: int, token_id: int, position: int) -> Logits | None:
        """The logits `[n_vocab]` behind one more token of a sequence, valid until the next forward.

        The short way of decoding. None, and nothing has run, where it does not apply: `forward` then runs the row or
        says why not.
        """
        with self.lock:
            place = self.kv.next_row(seq_id)
            if self.closed or place is None or place[1] != position:
                return None
            step = self.executable(self._one_row).one_row
            if step is None or not step.takes(token_id, position, place[0]):
                return None
            step.run(token_id, position, place[0])
            self.kv.extend(seq_id, position + 1)
            return step.output

    def largest(self, n: int, k: int) -> Largest | None:
        """What looks for the k largest of the first n logits natively, where a backend here can."""
        makers = (getattr(backend, "largest", None) for backend in self.resources.backends.values())
        return next((make(n, k) for make in makers if make is not None), None)

    def prepare(self, rows: Rows, outputs: OutputRows) -> tuple[GraphParams, dict[str, NDArray[np.int32]]]:
        """The graph identity of a forward over `rows` and what it is filled with; nothing runs."""
        mode, window = narrowest_window(self.kv, rows.seq_ids, rows.positions)
        last = None if outputs == "all" else rows.last_rows()
        # The plan of one output row also computes none: a chunk in the middle of a prompt needs no plan of its own.
        wanted = None if last is None else last[: None if outputs == "last" else 0]
        n = len(rows.token_ids)
        inputs = {
            "token_ids": rows.token_ids,
            "positions": rows.positions,
            "cells": rows.cells(self.kv.resolve),
            "seq_ids": rows.seq_ids,
            "window": window,
            "n_rows": np.array([n, n if wanted is None else len(wanted)], np.int32),
        }
        if wanted is not None:
            inputs["output_ids"] = wanted
        return self.params(n, None if last is None else len(last), mode), inputs

    def executable(self, params: GraphParams) -> Executable:
        """The program for `params`, from the cache or built."""
        executable = self.lowered(params).executable
        if executable is None:
            raise LoweringError(f"{params} was not lowered")
        return executable

    def memory(self) -> list[MemoryReport]:
        """One report per backend in use, for the graph that was used last."""
        last = list(self.graphs)[-1]
        assert last.memory is not None
        return [self.resources.report(name, last.memory) for name in last.memory.buffers]

    def close(self) -> None:
        """Stop the backends' threads and close the file, once the forward that runs is through; not in a fork."""
        if self.forked:
            return
        with self.lock:
            self.closed = True
            for backend in self.resources.backends.values():
                close = getattr(backend, "close", None)
                if close is not None:
                    close()
            self.model.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lower(self, params: GraphParams) -> Lowering:
        self.resources.probe.hit("cache.build")
        try:
            return lower(params, self.model.graph, self.resources)
        except NonFiniteWeightError:
            self._weights.refuse()
            raise

    def _trim(self, evicted: Lowering) -> None:
        """Give back the pool buffers that no cached graph refers to; the evicted one can't run any more."""
        if evicted.executable is not None:
            evicted.executable.retire()
        kept = [low.executable for low in self.graphs if low.executable is not None]
        for name, pool in self.resources.pools.items():
            pool.trim(set().union(*(e.buffers(name) for e in kept)))
