"""Single ops as programs: copies of one node with operands of their own, filled and ready to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from minfer_ir.builder import GraphBuilder
from minfer_ir.graph import Graph, Node
from minfer_ir.opspec import Array
from minfer_ir.params import GraphParams, WindowMode
from minfer_ir.runtime.executable import Executable
from minfer_kernels.gpu.kernels.attention.choices import DEFAULT, AttentionOptions
from minfer_models.arch.config import ModelConfig
from tools.device_checks.machine import Machine
from tools.device_checks.shape import RandomWeights
from tools.device_checks.step import Steps, run_all

Work = Callable[[], object]


def prompt_attention(machine: Machine, c: ModelConfig, rows: int, depth: int, copies: int, kv: str) -> Work:
    """`copies` attention nodes over regions of their own, rows at the last of `depth` positions."""
    inputs = {
        "n_rows": np.array([rows, 0], np.int32),
        "q": _query(rows, c),
        "positions": np.arange(depth - rows, depth, dtype=np.int32),
        "window": np.zeros(1, np.int32),
    }
    steps = Steps(RandomWeights(machine.device), _attention_graph(c, copies, kv, "causal"), depth, depth, kv)
    return _filled(steps.step(rows, 1), inputs)


def batch_attention(
    machine: Machine, c: ModelConfig, rows: int, depth: int, copies: int, kv: str, options: AttentionOptions = DEFAULT
) -> Work:
    """The same for a row each of `rows` sequences, `depth` cells of its own before each."""
    first = np.arange(rows, dtype=np.int32) * depth
    inputs = {
        "n_rows": np.array([rows, 0], np.int32),
        "q": _query(rows, c),
        "positions": np.full(rows, depth - 1, np.int32),
        "window": np.stack([first, first + depth], axis=1),
    }
    backend = RandomWeights(machine.device, attention=options)
    steps = Steps(backend, _attention_graph(c, copies, kv, "span"), depth, rows * depth, kv)
    return _filled(steps.step(rows, 1, "span"), inputs)


def product(machine: Machine, c: ModelConfig, rows: int, copies: int, type_name: str) -> tuple[Work, int]:
    """`copies` products of the same rows with weights of their own, and the bytes of one of the weights."""

    def graph_of(params: GraphParams) -> Graph:
        b = GraphBuilder()
        b.input(key="n_rows", shape=(2,), dtype="i32")
        x = b.input(key="x", shape=(params.rows, c.width), dtype="f32", rows="token")
        for w in _weights(b, copies, (c.ffn_width, c.width), type_name):
            b.output(b.matmul(x, w))
        return b.build()

    backend = RandomWeights(machine.device)
    executable = Steps(backend, graph_of, 64, 64, "f16").step(rows, 1)
    x = np.random.default_rng(0).standard_normal((rows, c.width), np.float32)
    work = _filled(executable, {"n_rows": np.array([rows, 0], np.int32), "x": x})
    return work, sum(w.nbytes for w in backend.held) // copies


def _attention_graph(c: ModelConfig, copies: int, kv: str, mode: WindowMode) -> Callable[[GraphParams], Graph]:
    def graph_of(params: GraphParams) -> Graph:
        b = GraphBuilder()
        b.input(key="n_rows", shape=(2,), dtype="i32")
        q = b.input(key="q", shape=(params.rows, c.n_heads, c.head_dim), dtype="f32", rows="token")
        positions = b.input(key="positions", shape=(params.rows,), dtype="i32", rows="token", limit=params.n_ctx)
        shape, rows = ((1,), None) if mode == "causal" else ((params.rows, 2), "token")
        window = b.input(key="window", shape=shape, dtype="i32", rows=rows, limit=params.n_cells)
        for i in range(copies):
            k, v = (b.kv(key=f"{x}.{i}", cells=params.n_cells, width=c.kv_width, dtype=kv) for x in "kv")
            b.output(b.attention(q, k, v, positions, window, n_kv_heads=c.n_kv_heads, scale=c.head_dim**-0.5))
        return b.build()

    return graph_of


def _query(rows: int, c: ModelConfig) -> Array:
    return np.random.default_rng(0).standard_normal((rows, c.n_heads, c.head_dim), np.float32)


def _weights(b: GraphBuilder, copies: int, shape: Sequence[int], type_name: str) -> Iterator[Node]:
    for i in range(copies):
        yield b.weight(key=f"w.{i}", shape=shape, dtype=type_name)


def _filled(executable: Executable, inputs: dict[str, Array]) -> Work:
    executable.run(inputs)
    return lambda: run_all(executable)
