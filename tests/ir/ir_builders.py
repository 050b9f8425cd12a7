"""Small graphs and values that several IR tests use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_ir.builder import GraphBuilder
from minfer_ir.evaluate import Weights, evaluate
from minfer_ir.formats import F32
from minfer_ir.graph import Graph, Node
from minfer_ir.ops import OPS
from minfer_ir.opspec import attrs_from_json

Array = NDArray[Any]


def reference(op: str, *operands: Array, **attrs: Any) -> Array:
    """The op's numpy reference on plain arrays."""
    spec = OPS[op]
    return spec.reference(attrs_from_json(spec, attrs), *operands)


def floats(seed: int, *shape: int, scale: float = 1.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def rows_input(b: GraphBuilder, key: str, *shape: int, dtype: str = "f32") -> Node:
    return b.input(key=key, shape=shape, dtype=dtype, rows="token")


def run(graph: Graph, weights: Mapping[str, Array] | None = None, **inputs: Array) -> list[Array]:
    """Evaluate over float32 weights given as numbers."""
    stored = {k: F32.encode(np.atleast_2d(v)) for k, v in (weights or {}).items()}
    return evaluate(graph, inputs, Weights(stored))


def small_llama(rows: int = 4, blocks: int = 2) -> Graph:
    """A llama-shaped graph: embedding, two blocks with a KV cache, gate and up, logits of one row."""
    b = GraphBuilder()
    heads, kv_heads, dim, hidden, cells = 4, 2, 8, 64, 16
    ids = b.input(key="token_ids", shape=(rows,), dtype="i32", rows="token", limit=50)
    positions = b.input(key="positions", shape=(rows,), dtype="i32", rows="token", limit=cells)
    slots = b.input(key="cells", shape=(rows,), dtype="i32", rows="token", limit=cells)
    window = b.input(key="window", shape=(1,), dtype="i32")
    table = b.weight(key="token_embd.weight", shape=(50, 32), dtype="Q8_0")
    x = b.get_rows(table, ids, name="embed")
    for i in range(blocks):
        with b.block(i):
            x = _block(b, i, x, (positions, slots, window), (heads, kv_heads, dim, hidden, cells))
    wanted = b.input(key="output_rows", shape=(1,), dtype="i32", rows="output", limit=rows)
    b.output(b.matmul(b.get_rows(x, wanted, name="last"), table, name="logits"))
    return b.build()


def _block(
    b: GraphBuilder, i: int, x: Node, inputs: tuple[Node, Node, Node], sizes: tuple[int, int, int, int, int]
) -> Node:
    positions, slots, window = inputs
    heads, kv_heads, dim, hidden, cells = sizes
    rows = x.type.shape[0]

    def weight(name: str, n: int, k: int) -> Node:
        return b.weight(key=f"blk.{i}.{name}.weight", shape=(n, k), dtype="Q4_0")

    norm = b.rms_norm(x, b.weight(key=f"blk.{i}.norm.weight", shape=(32,), dtype="F32"), eps=1e-5, name="norm")
    q = b.reshape(b.matmul(norm, weight("q", 32, 32), name="q"), shape=(rows, heads, dim))
    k = b.matmul(norm, weight("k", 16, 32), name="k")
    v = b.matmul(norm, weight("v", 16, 32), name="v")
    q = b.rope(q, positions, pairs="neox", dims=dim, base=1e4, max_positions=cells, name="q_rope")
    keys = b.kv_store(b.kv(key=f"k.{i}", cells=cells, width=16, dtype="f16"), k, slots, name="k_store")
    values = b.kv_store(b.kv(key=f"v.{i}", cells=cells, width=16, dtype="f16"), v, slots, name="v_store")
    attended = b.attention(q, keys, values, positions, window, n_kv_heads=kv_heads, scale=dim**-0.5)
    x = b.add(x, b.matmul(b.reshape(attended, shape=(rows, 32)), weight("o", 32, 32)), name="residual")
    act = b.swiglu(b.matmul(x, weight("gate", hidden, 32)), b.matmul(x, weight("up", hidden, 32)))
    return b.add(x, b.matmul(act, weight("down", 32, hidden)), name="out")
