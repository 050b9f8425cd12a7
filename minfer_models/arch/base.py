"""What the architectures share: the frame of a decoder-only transformer, with the places where they differ."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from minfer_ir.builder import GraphBuilder
from minfer_ir.graph import Graph, Node
from minfer_ir.ops.attention import MAP_RUNS
from minfer_ir.params import GraphParams
from minfer_models.arch.config import ModelConfig
from minfer_models.arch.tensors import TensorFormat, TensorSpec


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The inputs of a forward; see `build_inputs`."""

    token_ids: Node
    positions: Node
    cells: Node
    window: Node
    output_ids: Node | None


class Architecture(ABC):
    """Config in, tensors and graph out. Stateless; a subclass overrides only what is its own."""

    name: ClassVar[str]
    rope_pairs: ClassVar[Literal["neox", "interleaved"]]
    qkv_bias: ClassVar[Literal["none", "optional", "required"]] = "none"
    qk_norm: ClassVar[bool] = False

    def tensors(self, c: ModelConfig) -> Iterator[TensorSpec]:
        """Every tensor of the model, with its shape."""
        yield TensorSpec("token_embd.weight", (c.n_vocab, c.width))
        yield TensorSpec("output_norm.weight", (c.width,))
        yield TensorSpec("output.weight", (c.n_vocab, c.width), may_lack=True)
        yield TensorSpec("rope_freqs.weight", (c.rope_dims // 2,), may_lack=True)
        for i in range(c.n_blocks):
            for spec in self.block_tensors(c):
                yield TensorSpec(f"blk.{i}.{spec.name}", spec.shape, spec.may_lack)

    def block_tensors(self, c: ModelConfig) -> Iterator[TensorSpec]:
        """The tensors of one block, without the block's prefix."""
        yield TensorSpec("attn_norm.weight", (c.width,))
        for name, width in (("attn_q", c.q_width), ("attn_k", c.kv_width), ("attn_v", c.kv_width)):
            yield TensorSpec(f"{name}.weight", (width, c.width))
            if self.qkv_bias != "none":
                yield TensorSpec(f"{name}.bias", (width,), may_lack=self.qkv_bias == "optional")
        if self.qk_norm:
            yield TensorSpec("attn_q_norm.weight", (c.head_dim,))
            yield TensorSpec("attn_k_norm.weight", (c.head_dim,))
        yield TensorSpec("attn_output.weight", (c.width, c.q_width))
        yield TensorSpec("ffn_norm.weight", (c.width,))
        yield TensorSpec("ffn_gate.weight", (c.ffn_width, c.width))
        yield TensorSpec("ffn_up.weight", (c.ffn_width, c.width))
        yield TensorSpec("ffn_down.weight", (c.width, c.ffn_width))

    def build(self, c: ModelConfig, formats: Mapping[str, TensorFormat], params: GraphParams) -> Graph:
        """The graph of one forward: token ids to logits `[rows, n_vocab]`."""
        return _Forward(self, c, formats, params).build()


class _Forward:
    """Builds one graph; holds what every step of the building reads."""

    def __init__(
        self, arch: Architecture, c: ModelConfig, formats: Mapping[str, TensorFormat], params: GraphParams
    ) -> None:
        self.arch, self.c, self.formats, self.params = arch, c, formats, params
        self.b = GraphBuilder()

    def build(self) -> Graph:
        b, c = self.b, self.c
        inputs = build_inputs(b, c.n_vocab, self.params)
        x = b.get_rows(self.weight("token_embd.weight"), inputs.token_ids, name="embedding")
        for i in range(c.n_blocks):
            with b.block(i):
                x = b.add(x, self.attention(x, inputs, i), name="attn_residual")
                x = b.add(x, self.feed_forward(x, i), name="ffn_residual")
        if inputs.output_ids is not None:
            x = b.get_rows(x, inputs.output_ids, name="output_rows")
        x = b.rms_norm(x, self.weight("output_norm.weight"), eps=c.norm_eps, name="output_norm")
        head = "output.weight" if "output.weight" in self.formats else "token_embd.weight"
        b.output(b.matmul(x, self.weight(head), name="logits"))
        return b.build()

    def weight(self, name: str) -> Node:
        """The leaf of tensor `name`."""
        tensor = self.formats[name]
        return self.b.weight(key=name, shape=tensor.shape, dtype=tensor.format, version=self.params.weights_version)

    def attention(self, x: Node, inputs: StepInputs, i: int) -> Node:
        """Norm, projections, rope, store, attention, output projection of block `i`."""
        b, c = self.b, self.c
        x = b.rms_norm(x, self.weight(f"blk.{i}.attn_norm.weight"), eps=c.norm_eps, name="attn_norm")
        q, k, v = (self.projection(x, i, f"attn_{which}") for which in "qkv")
        q = self.rotate(self.heads(q, c.n_heads, i, "attn_q"), inputs, "q_rope")
        k = self.rotate(self.heads(k, c.n_kv_heads, i, "attn_k"), inputs, "k_rope")
        k_cells = self.store(f"k.{i}", b.reshape(k, shape=(self.params.rows, c.kv_width), name="k_row"), inputs)
        v_cells = self.store(f"v.{i}", v, inputs)
        out = b.attention(
            *(q, k_cells, v_cells, inputs.positions, inputs.window),
            n_kv_heads=c.n_kv_heads,
            scale=c.head_dim**-0.5,
            name="attention",
        )
        flat = b.reshape(out, shape=(self.params.rows, c.q_width), name="attention_row")
        return b.matmul(flat, self.weight(f"blk.{i}.attn_output.weight"), name="attn_output")

    def projection(self, x: Node, i: int, name: str) -> Node:
        """`x` times the weight `name`, plus its bias where the model has one."""
        product = self.b.matmul(x, self.weight(f"blk.{i}.{name}.weight"), name=name)
        bias = f"blk.{i}.{name}.bias"
        return self.b.add(product, self.weight(bias), name=f"{name}_biased") if bias in self.formats else product

    def heads(self, x: Node, n_heads: int, i: int, name: str) -> Node:
        """`[rows, n_heads, head_dim]`, each head normed where the architecture does."""
        b, c = self.b, self.c
        split = b.reshape(x, shape=(self.params.rows, n_heads, c.head_dim), name=f"{name}_heads")
        if not self.arch.qk_norm:
            return split
        return b.qk_norm(split, self.weight(f"blk.{i}.{name}_norm.weight"), eps=c.norm_eps, name=f"{name}_normed")

    def rotate(self, x: Node, inputs: StepInputs, name: str) -> Node:
        """Rope with the model's frequencies."""
        c = self.c
        factors = (self.weight("rope_freqs.weight"),) if "rope_freqs.weight" in self.formats else ()
        return self.b.rope(
            *(x, inputs.positions, *factors),
            pairs=self.arch.rope_pairs,
            dims=c.rope_dims,
            base=c.rope_base,
            max_positions=self.params.n_ctx,
            scaling=c.rope_scaling,
            name=name,
        )

    def store(self, key: str, row: Node, inputs: StepInputs) -> Node:
        """Region `key` with this forward's rows stored."""
        p = self.params
        region = self.b.kv(key=key, cells=p.n_cells, width=self.c.kv_width, dtype=p.kv_type)
        return self.b.kv_store(region, row, inputs.cells, name=f"{key[0]}_store")

    def feed_forward(self, x: Node, i: int) -> Node:
        """Norm, gate and up projections, gated activation, down projection of block `i`."""
        b = self.b
        x = b.rms_norm(x, self.weight(f"blk.{i}.ffn_norm.weight"), eps=self.c.norm_eps, name="ffn_norm")
        gate = b.matmul(x, self.weight(f"blk.{i}.ffn_gate.weight"), name="ffn_gate")
        up = b.matmul(x, self.weight(f"blk.{i}.ffn_up.weight"), name="ffn_up")
        hidden = b.mul(b.silu(gate, name="ffn_silu"), up, name="ffn_hidden")
        return b.matmul(hidden, self.weight(f"blk.{i}.ffn_down.weight"), name="ffn_down")


def build_inputs(b: GraphBuilder, n_vocab: int, params: GraphParams) -> StepInputs:
    """The inputs of a forward over `params.rows` token rows.

    token_ids, positions (relative to their sequence), cells (where each row's K and V go), seq_ids (rows of a
    sequence stand together), window (what each row reads), n_rows (the actual token and output rows), and
    output_ids (the rows whose logits are wanted) unless all are.
    """
    t = params.rows
    window = {"causal": ((1,), None), "span": ((t, 2), "token"), "map": ((t, 2 * MAP_RUNS), "token")}[params.window]
    b.input(key="n_rows", shape=(2,), dtype="i32")
    b.input(key="seq_ids", shape=(t,), dtype="i32", rows="token")
    return StepInputs(
        token_ids=b.input(key="token_ids", shape=(t,), dtype="i32", rows="token", limit=n_vocab),
        positions=b.input(key="positions", shape=(t,), dtype="i32", rows="token", limit=params.n_ctx),
        cells=b.input(key="cells", shape=(t,), dtype="i32", rows="token", limit=params.n_cells),
        window=b.input(key="window", shape=window[0], dtype="i32", rows=window[1], limit=params.n_cells),
        output_ids=None
        if params.output_rows is None
        else b.input(key="output_ids", shape=(params.output_rows,), dtype="i32", rows="output", limit=t),
    )
