"""Tracing a forward: what every node read and gave, in numbers small enough to keep and compare."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from minfer_ir.evaluate import decoded
from minfer_ir.graph import Node
from minfer_ir.opspec import Array
from minfer_ir.runtime.executable import Executable
from minfer_ir.types import TensorType

HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class ValueStats:
    """A value over its logical window: `n` elements, their range and mean without the `nans`, and a hash of the bytes.

    `min`, `max` and `mean` are None when nothing but NaN is there; the mean is a float64 sum. `hash` is BLAKE2b-64 of
    the value in storage form, 16 hex digits: equal bits, equal hash.
    """

    n: int
    min: float | None
    max: float | None
    mean: float | None
    nans: int
    hash: str

    @classmethod
    def of(cls, kind: TensorType, stored: Array) -> ValueStats:
        """The stats of `stored`, a value of type `kind` in storage form."""
        digest = blake2b(np.ascontiguousarray(stored).tobytes(), digest_size=HASH_BYTES).hexdigest()
        numbers = decoded(kind, stored).astype(np.float64).reshape(-1)
        known = numbers[~np.isnan(numbers)]
        nans = len(numbers) - len(known)
        if not len(known):
            return cls(len(numbers), None, None, None, nans, digest)
        with np.errstate(invalid="ignore"):
            return cls(len(numbers), float(known.min()), float(known.max()), float(known.mean()), nans, digest)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; infinities, which JSON lacks, as strings."""
        return {
            "n": self.n,
            **{name: _json_number(getattr(self, name)) for name in ("min", "max", "mean")},
            "nans": self.nans,
            "hash": self.hash,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ValueStats:
        """The inverse of `to_json`; raises KeyError, TypeError or ValueError for anything else."""
        low, high, mean = (None if values[name] is None else float(values[name]) for name in ("min", "max", "mean"))
        return cls(int(values["n"]), low, high, mean, int(values["nans"]), str(values["hash"]))

    def __str__(self) -> str:
        shown = "  ".join(f"{name} {_text(getattr(self, name))}" for name in ("min", "max", "mean"))
        return f"n {self.n:<7} {shown}  nan {self.nans}  {self.hash}"


@dataclass(frozen=True, slots=True)
class Step:
    """One node that has run: `operands` by node id as its backend read them, and its `value`, all in storage form.

    Weights aren't among the operands. The value of a store is the whole region; `written` are the rows that it wrote.
    """

    node: Node
    operands: Mapping[int, Array]
    value: Array
    written: Array | None = None

    def numbers(self) -> Array:
        """The value's logical window as numbers: for a store, the rows that it wrote."""
        return decoded(self.node.type, self._window())

    def stats(self) -> ValueStats:
        """The stats of the value's logical window: for a store, the rows that it wrote."""
        return ValueStats.of(self.node.type, self._window())

    def _window(self) -> Array:
        return self.value if self.written is None else self.written


def traced(executable: Executable, inputs: Mapping[str, Array], keep_operands: bool = False) -> Iterator[Step]:
    """One forward, a `Step` for every node of the splits in order, views and stores included.

    With `keep_operands` everything that a node reads is copied right before it runs: an in-place node destroys it.
    That copies whole KV regions, so leave it off where only the values matter.
    """
    for node, run in executable.steps(inputs):
        backend = node.backend or ""
        operands = _operands(executable, node, inputs) if keep_operands else {}
        run()
        value = executable.stored(node.id, backend, inputs)
        yield Step(node, operands, value, _written(executable, node, value, inputs))


def _operands(executable: Executable, node: Node, inputs: Mapping[str, Array]) -> dict[int, Array]:
    graph, backend = executable.graph, node.backend or ""
    read = [s for s in dict.fromkeys(node.sources) if graph[s].op not in ("weight", "weight_concat")]
    return {s: executable.stored(s, backend, inputs) for s in read}


def _written(executable: Executable, node: Node, value: Array, inputs: Mapping[str, Array]) -> Array | None:
    if node.spec.writes is None:
        return None
    return value[executable.stored(node.operand(executable.graph, "cells").id, node.backend or "", inputs)]


def _json_number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)


def _text(value: float | None) -> str:
    return f"{'-':>12}" if value is None else f"{value:>12.6g}"
