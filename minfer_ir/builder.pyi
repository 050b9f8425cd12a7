# Generated from the op declarations by `python -m tools.generate`; edit those, or builder.py.
"""GraphBuilder with a typed method per op."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from minfer_ir.dtypes import DType
from minfer_ir.formats.base import Format
from minfer_ir.graph import Graph, Node
from minfer_ir.ops.rope import RopeScaling
from minfer_ir.opspec import Op

class GraphBuilder:
    """Appends verified nodes; the order of calls is the order of execution."""

    def __init__(self) -> None:
        """An empty builder."""

    @contextmanager
    def block(self, index: int) -> Generator[None]:
        """Tag the nodes built inside with model layer `index`."""

    def output(self, node: Node) -> Node:
        """Mark `node` as an output of the graph."""

    def build(self) -> Graph:
        """The finished graph; raises GraphError when nothing was marked as an output."""

    def split_parts(self, owner: Node, sizes: Sequence[int], names: Sequence[str] | None = None) -> tuple[Node, ...]:
        """Views that cut `owner` along its last axis: several outputs of one node, each bound on its own."""

    def apply(self, spec: Op, sources: Sequence[Node], attrs: dict[str, Any], name: str | None = None) -> Node:
        """Append one node of op `spec`; raises OpError for operands or attrs that the op doesn't allow."""

    def input(
        self,
        *,
        key: str,
        shape: Sequence[int],
        dtype: str | DType,
        rows: Literal["token", "output"] | None = None,
        limit: int | None = None,
        name: str | None = None,
    ) -> Node:
        """A tensor filled before every step: token ids, positions, cells, windows."""

    def weight(
        self, *, key: str, shape: Sequence[int], dtype: str | Format, version: int = 0, name: str | None = None
    ) -> Node:
        """A model tensor by registry name, in its storage format."""

    def weight_concat(
        self,
        *,
        keys: Sequence[str],
        sizes: Sequence[int],
        width: int,
        dtype: str | Format,
        version: int = 0,
        name: str | None = None,
    ) -> Node:
        """Several weights of one format and width, stacked along their rows into one."""

    def kv(
        self, *, key: str, cells: int, width: int, dtype: str | DType | str | Format, name: str | None = None
    ) -> Node:
        """A persistent region of KV cells: one row of keys or values per cell, kept between steps."""

    def add(self, x: Node, y: Node, /, *, name: str | None = None) -> Node:
        """Sum of two tensors, or of a tensor and a row (a bias)."""

    def mul(self, x: Node, y: Node, /, *, name: str | None = None) -> Node:
        """Product of two tensors, or of a tensor and a row."""

    def scale(self, x: Node, /, *, factor: float, name: str | None = None) -> Node:
        """A tensor times a constant."""

    def silu(self, x: Node, /, *, name: str | None = None) -> Node:
        """x * sigmoid(x) (Elfwing et al. 2017)."""

    def softmax(self, x: Node, /, *, name: str | None = None) -> Node:
        """Softmax over the last axis."""

    def rms_norm(self, x: Node, weight: Node, /, *, eps: float, name: str | None = None) -> Node:
        """Each row divided by its root mean square, times a weight."""

    def qk_norm(self, x: Node, weight: Node, /, *, eps: float, name: str | None = None) -> Node:
        """RMS norm of every head on its own, with one weight for all heads (Qwen3's q and k norm)."""

    def matmul(self, x: Node, weight: Node, /, *, name: str | None = None) -> Node:
        """x @ weight.T: every output feature is the dot product of a row of x and a row of the weight."""

    def get_rows(self, table: Node, ids: Node, /, *, name: str | None = None) -> Node:
        """Rows of a table by index: an embedding lookup, or the rows whose output was asked for."""

    def quantize_act(self, x: Node, /, *, dtype: str | Format, name: str | None = None) -> Node:
        """Activations to 8-bit blocks with float scales, the form integer dot products read."""

    def rope(
        self,
        x: Node,
        positions: Node,
        factors: Node | None = None,
        /,
        *,
        pairs: Literal["neox", "interleaved"],
        dims: int,
        base: float,
        max_positions: int,
        scaling: RopeScaling | Mapping[str, Any] = ...,
        name: str | None = None,
    ) -> Node:
        """Rotate pairs of elements of each head by angles that grow with the position."""

    def kv_store(self, region: Node, values: Node, cells: Node, /, *, name: str | None = None) -> Node:
        """Write one row per token into its cell; the output is the region itself, so later reads are ordered after
        it."""

    def attention(
        self,
        q: Node,
        k: Node,
        v: Node,
        positions: Node,
        window: Node,
        /,
        *,
        n_kv_heads: int,
        scale: float,
        name: str | None = None,
    ) -> Node:
        """Softmax attention of each row over the cells that its window names."""

    def view(self, x: Node, /, *, starts: Sequence[int], shape: Sequence[int], name: str | None = None) -> Node:
        """A window: `shape` elements from `starts` along each axis."""

    def reshape(self, x: Node, /, *, shape: Sequence[int], name: str | None = None) -> Node:
        """The same elements in another shape."""

    def permute(self, x: Node, /, *, axes: Sequence[int], name: str | None = None) -> Node:
        """The axes in another order."""

    def contiguous(self, x: Node, /, *, name: str | None = None) -> Node:
        """A contiguous copy of a strided view, for consumers that need one."""

    def swiglu(self, gate: Node, up: Node, /, *, name: str | None = None) -> Node:
        """silu(gate) * up, the gated activation of the feed-forward block (Shazeer 2020)."""

    def matmul_add(self, x: Node, weight: Node, y: Node, /, *, name: str | None = None) -> Node:
        """A product plus a value of its shape (a residual) or one row (a bias)."""

    def matmul_swiglu(self, x: Node, gate_weight: Node, up_weight: Node, /, *, name: str | None = None) -> Node:
        """The gated half of a feed-forward block: silu(x @ gate_weight.T) * (x @ up_weight.T)."""

    def matmul_swiglu_quantize(
        self, x: Node, gate_weight: Node, up_weight: Node, /, *, dtype: str | Format, name: str | None = None
    ) -> Node:
        """matmul_swiglu whose result goes straight into 8-bit blocks."""

    def qk_norm_rope(
        self,
        x: Node,
        norm_weight: Node,
        positions: Node,
        factors: Node | None = None,
        /,
        *,
        pairs: Literal["neox", "interleaved"],
        dims: int,
        base: float,
        max_positions: int,
        scaling: RopeScaling | Mapping[str, Any] = ...,
        eps: float,
        name: str | None = None,
    ) -> Node:
        """Norm every head, then rotate it (Qwen3)."""

    def qk_norm_rope_kv_store(
        self,
        region: Node,
        x: Node,
        norm_weight: Node,
        positions: Node,
        cells: Node,
        factors: Node | None = None,
        /,
        *,
        pairs: Literal["neox", "interleaved"],
        dims: int,
        base: float,
        max_positions: int,
        scaling: RopeScaling | Mapping[str, Any] = ...,
        eps: float,
        row: Sequence[int],
        name: str | None = None,
    ) -> Node:
        """Norm every head, rotate it and write it into its token's cell."""

    def rope_kv_store(
        self,
        region: Node,
        x: Node,
        positions: Node,
        cells: Node,
        factors: Node | None = None,
        /,
        *,
        pairs: Literal["neox", "interleaved"],
        dims: int,
        base: float,
        max_positions: int,
        scaling: RopeScaling | Mapping[str, Any] = ...,
        row: Sequence[int],
        name: str | None = None,
    ) -> Node:
        """Rotate heads and write them into their tokens' cells."""

    def matmul_add_rope_kv_store(
        self,
        x: Node,
        weight: Node,
        bias: Node,
        positions: Node,
        region: Node,
        cells: Node,
        factors: Node | None = None,
        /,
        *,
        pairs: Literal["neox", "interleaved"],
        dims: int,
        base: float,
        max_positions: int,
        scaling: RopeScaling | Mapping[str, Any] = ...,
        heads: Sequence[int],
        row: Sequence[int],
        name: str | None = None,
    ) -> Node:
        """A product and its bias rotated as heads and written into its tokens' cells."""

    def matmul_norm_rope_kv_store(
        self,
        x: Node,
        weight: Node,
        norm_weight: Node,
        positions: Node,
        region: Node,
        cells: Node,
        factors: Node | None = None,
        /,
        *,
        pairs: Literal["neox", "interleaved"],
        dims: int,
        base: float,
        max_positions: int,
        scaling: RopeScaling | Mapping[str, Any] = ...,
        heads: Sequence[int],
        row: Sequence[int],
        eps: float,
        name: str | None = None,
    ) -> Node:
        """A product normed head by head, rotated and written into its tokens' cells."""

    def matmul_rope_kv_store(
        self,
        x: Node,
        weight: Node,
        positions: Node,
        region: Node,
        cells: Node,
        factors: Node | None = None,
        /,
        *,
        pairs: Literal["neox", "interleaved"],
        dims: int,
        base: float,
        max_positions: int,
        scaling: RopeScaling | Mapping[str, Any] = ...,
        heads: Sequence[int],
        row: Sequence[int],
        name: str | None = None,
    ) -> Node:
        """A product rotated as heads and written into its tokens' cells."""

    def matmul_add_rope(
        self,
        x: Node,
        weight: Node,
        bias: Node,
        positions: Node,
        factors: Node | None = None,
        /,
        *,
        pairs: Literal["neox", "interleaved"],
        dims: int,
        base: float,
        max_positions: int,
        scaling: RopeScaling | Mapping[str, Any] = ...,
        heads: Sequence[int],
        name: str | None = None,
    ) -> Node:
        """A product and its bias rotated as heads."""

    def matmul_norm_rope(
        self,
        x: Node,
        weight: Node,
        norm_weight: Node,
        positions: Node,
        factors: Node | None = None,
        /,
        *,
        pairs: Literal["neox", "interleaved"],
        dims: int,
        base: float,
        max_positions: int,
        scaling: RopeScaling | Mapping[str, Any] = ...,
        heads: Sequence[int],
        eps: float,
        name: str | None = None,
    ) -> Node:
        """A product normed head by head and rotated."""

    def matmul_rope(
        self,
        x: Node,
        weight: Node,
        positions: Node,
        factors: Node | None = None,
        /,
        *,
        pairs: Literal["neox", "interleaved"],
        dims: int,
        base: float,
        max_positions: int,
        scaling: RopeScaling | Mapping[str, Any] = ...,
        heads: Sequence[int],
        name: str | None = None,
    ) -> Node:
        """A product rotated as heads."""

    def matmul_add_kv_store(
        self, x: Node, weight: Node, bias: Node, region: Node, cells: Node, /, *, name: str | None = None
    ) -> Node:
        """A product and its bias written into its tokens' cells."""

    def matmul_kv_store(self, x: Node, weight: Node, region: Node, cells: Node, /, *, name: str | None = None) -> Node:
        """A product written into its tokens' cells."""

    def add_rms_norm(self, x: Node, y: Node, weight: Node, /, *, eps: float, name: str | None = None) -> Node:
        """The residual sum and its norm in one pass: parts (x + y, rms_norm(x + y)) side by side."""

    def rms_norm_quantize(
        self, x: Node, weight: Node, /, *, eps: float, dtype: str | Format, name: str | None = None
    ) -> Node:
        """rms_norm whose result goes straight into 8-bit blocks."""

    def swiglu_quantize(self, gate: Node, up: Node, /, *, dtype: str | Format, name: str | None = None) -> Node:
        """swiglu whose result goes straight into 8-bit blocks."""

def leaf_key(attrs: Any) -> str | None:
    """The name a leaf was declared under."""

def add_method(spec: Op) -> None:
    """Give every GraphBuilder a method for `spec`."""
