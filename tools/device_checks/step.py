"""One forward on the device with nothing around it: a lowered graph, filled once and run again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from minfer_ir.formats import CELL_FORMATS
from minfer_ir.graph import Graph
from minfer_ir.opspec import Array
from minfer_ir.params import DevicePlan, GraphParams, WindowMode, bucket
from minfer_ir.passes.pipeline import lower
from minfer_ir.runtime.executable import Executable
from minfer_ir.runtime.resources import Resources
from tools.device_checks.shape import NoFile, RandomWeights

Inputs = Mapping[str, Array]


class Steps:
    """Forwards over one set of weights and cells. `graph_of` builds the graph of a forward."""

    def __init__(
        self, backend: RandomWeights, graph_of: Callable[[GraphParams], Graph], n_ctx: int, n_cells: int, kv: str
    ) -> None:
        self.backend, self._graph_of = backend, graph_of
        self.n_ctx, self.n_cells, self.kv = n_ctx, n_cells, kv
        self.resources = Resources([backend], NoFile())

    def step(self, rows: int, outputs: int, window: WindowMode = "causal") -> Executable:
        """The forward of `rows` token rows with `outputs` rows of logits."""
        params = GraphParams(
            rows=bucket(rows, 1 << 20),
            output_rows=bucket(outputs, 1 << 20),
            n_ctx=self.n_ctx,
            n_cells=self.n_cells,
            window=window,
            kv_type=self.kv,
            devices=DevicePlan((self.backend.name,)),
        )
        executable = lower(params, self._graph_of, self.resources).executable
        assert executable is not None
        fill_cells(executable, self.backend)
        return executable


def run_all(executable: Executable) -> None:
    """The programs alone, over what was filled in before."""
    for program in executable.programs:
        program.run()


def prompt_inputs(n: int, start: int, n_vocab: int) -> dict[str, Array]:
    """`n` rows of one sequence at positions from `start`, the last row's logits wanted."""
    positions = np.arange(start, start + n, dtype=np.int32)
    return {
        "token_ids": np.random.default_rng(start).integers(0, n_vocab, n, dtype=np.int32),
        "positions": positions,
        "cells": positions,
        "seq_ids": np.zeros(n, np.int32),
        "window": np.zeros(1, np.int32),
        "n_rows": np.array([n, 1], np.int32),
        "output_ids": np.array([n - 1], np.int32),
    }


def batch_inputs(n: int, depth: int, n_vocab: int) -> dict[str, Array]:
    """A row each of `n` sequences at position `depth`, in cells of their own."""
    first = np.arange(n, dtype=np.int32) * (depth + 64)
    return {
        "token_ids": np.arange(n, dtype=np.int32) % n_vocab,
        "positions": np.full(n, depth, np.int32),
        "cells": first + depth,
        "seq_ids": np.arange(n, dtype=np.int32),
        "window": np.stack([first, first + depth + 1], axis=1),
        "n_rows": np.array([n, n], np.int32),
        "output_ids": np.arange(n, dtype=np.int32),
    }


def fill_cells(executable: Executable, backend: RandomWeights) -> None:
    """Random keys and values in every region: with zeros a device draws less power and runs faster."""
    for node in executable.graph:
        if node.op == "kv":
            ref = executable.ref(node.id, backend.name)
            window = backend.buffers.bytes_of(ref.buffer)[ref.offset : ref.offset + ref.length]
            window.copy_(random_cells(node.type.dtype.name, node.type.shape, window.numel(), backend.device))


def random_cells(kind: str, shape: Sequence[int], nbytes: int, device: torch.device) -> torch.Tensor:
    """The bytes of a region of cells."""
    if kind in CELL_FORMATS:
        width = shape[1]
        rows = torch.randint(0, 256, (shape[0], nbytes // shape[0]), dtype=torch.uint8, device=device)
        scales = torch.rand((shape[0], width // 32), device=device).mul(0.01).to(torch.float16)
        rows[:, width : width + width // 16] = scales.view(torch.uint8)
        return rows.reshape(-1)
    kinds = {"f32": torch.float32, "f16": torch.float16}
    return torch.randn(tuple(shape), device=device).to(kinds[kind]).view(torch.uint8).reshape(-1)
