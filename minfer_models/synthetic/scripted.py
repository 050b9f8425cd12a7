"""A backend whose logits follow a script: for everything above the forward pass, whose answers a test then chooses.

What a row's token history is, it reads where attention would: from the KV cells in the row's window. So a wrong cell,
a row that wasn't computed or a prefix that doesn't belong shows as another answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minfer_ir.graph import Graph, Node
from minfer_ir.runtime.backend import Binding, BufRef, Split
from minfer_ir.runtime.numpy_backend import NumpyBackend, NumpyProgram
from minfer_models.synthetic.vocabulary import END_OF_TEXT

Script = Callable[[Sequence[int]], int]
"""The token that follows a history."""

LOGIT = 20.0
"""Of the token that the script wants; all others have 0."""


class ScriptedBackend(NumpyBackend):
    """Takes the place of what would run a model: `load(path, backends=[ScriptedBackend(script)], ...)`.

    It is called `cpu`, unless it is given another name. `rows` are the rows of every forward so far. It knows one
    window, the causal one.
    """

    def __init__(self, script: Script, name: str = "cpu") -> None:
        super().__init__()
        self.name = name
        self.script = script
        self.rows: list[int] = []
        self.cells: dict[int, int] = {}

    def compile(self, graph: Graph, split: Split, binding: Binding) -> NumpyProgram:
        """A program that follows the script."""
        return _ScriptedProgram(self, graph, split, binding)


class _ScriptedProgram(NumpyProgram):
    def __init__(self, backend: ScriptedBackend, graph: Graph, split: Split, binding: Binding) -> None:
        super().__init__(graph, split, binding, backend.buffers, {})
        self._backend, self._refs = backend, binding.values
        self._inputs = {node.attrs.key: node for node in graph if node.op == "input"}
        self._logits = graph[graph.outputs[0]]

    def run(self) -> None:
        """Store the rows' tokens in their cells, then give every output row the logits of its history."""
        n, n_out = self._read("n_rows").tolist()
        tokens, positions, cells = (self._read(key)[:n].tolist() for key in ("token_ids", "positions", "cells"))
        self._backend.rows.append(n)
        self._backend.cells.update(zip(cells, tokens, strict=True))
        first = int(self._read("window")[0])
        wanted = self._read("output_ids")[:n_out].tolist() if "output_ids" in self._inputs else range(n_out)
        for row, logits in zip(wanted, self._array(self._logits, n_out), strict=True):
            history = [self._backend.cells[first + p] for p in range(positions[row] + 1)]
            logits[:] = 0
            logits[self._backend.script(history)] = LOGIT

    def _read(self, key: str) -> np.ndarray:
        return self._array(self._inputs[key], None)

    def _array(self, node: Node, rows: int | None) -> np.ndarray:
        ref: BufRef = self._refs[node.id]
        return self._backend.buffers.window(ref, node.type, rows)


def answering(answer: Callable[[bytes], bytes], marker: bytes) -> Script:
    """A script over a byte vocabulary: behind the last `marker` comes the answer to all before it, then the end.

    A history that isn't on the way to the answer is answered with `?`.
    """

    def follow(history: Sequence[int]) -> int:
        prompt, found, said = bytes(token for token in history if token < 256).rpartition(marker)
        wanted = answer(prompt + found)
        if not found or not wanted.startswith(said):
            return ord("?")
        return wanted[len(said)] if len(said) < len(wanted) else END_OF_TEXT

    return follow
