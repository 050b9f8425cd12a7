"""From a node to kernel calls: one short function per op."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats.base import Format
from minfer_ir.graph import Graph, Node
from minfer_ir.ops.attention import window_mode
from minfer_ir.ops.rope import RopeAttrs
from minfer_ir.runtime.backend import Binding
from minfer_ir.runtime.host import HostBuffers
from minfer_kernels.cpu.attention_scratch import attention_scratch_bytes
from minfer_kernels.cpu.layouts import get_rows_kernel, matmul_kernel
from minfer_kernels.cpu.tape import Place, Tape, TapeBuilder
from minfer_kernels.cpu.weights import CpuWeight

RopeTables = Callable[[RopeAttrs, int | None], NDArray[np.float32]]


class Emitter:
    """Resolves operands to addresses, strides and row counts while a tape is written."""

    def __init__(
        self,
        graph: Graph,
        binding: Binding,
        buffers: HostBuffers,
        weights: Mapping[int, CpuWeight],
        tape: TapeBuilder,
        tables: RopeTables,
        scratch: Callable[[int], int],
    ) -> None:
        self.graph, self.weights, self.tables, self.binding = graph, weights, tables, binding
        self._scratch = scratch
        self._buffers, self._tape = buffers, tape
        self._counts: dict[int, NDArray[np.int32]] = {}
        self.length = 0

    def call(self, kernel: str, node: Node, **operands: int | float) -> None:
        """Append one kernel call for `node`."""
        self._tape.emit(kernel, barrier=True, label=node.name, **operands)
        self.length += 1

    def finish(self) -> Tape:
        """The tape."""
        return self._tape.build()

    def sources(self, node: Node) -> list[Node]:
        """The operand nodes in declaration order."""
        return [self.graph[s] for s in node.sources]

    def at(self, node: Node, skip: int = 0) -> Place:
        """The address of a value's element `skip` of float32; a weight's float32 values."""
        behind = f"[{skip}:]" if skip else ""
        if node.id in self.weights:
            address = _address(self.weights[node.id].values, node)
            return Place(address + 4 * skip, f"{self.weight_text(node)}{behind}")
        ref = self.binding.values[node.id]
        address, offset = self._buffers.address(ref) + 4 * skip, ref.offset + 4 * skip
        return Place(address, f"{node.name}{behind}@b{ref.buffer}+{offset:#x}")

    def weight_text(self, node: Node) -> str:
        """A weight in listings: its name and id on the backend."""
        return f"{node.name}@w{self.binding.weights[node.id]}"

    def row_stride(self, node: Node) -> int:
        """Bytes between rows; 0 for a vector, which is the same row again."""
        if node.id in self.weights or len(node.type.shape) == 1:
            return 0
        return self.binding.values[node.id].strides[0]

    def stride(self, node: Node, axis: int) -> int:
        """Bytes between elements along `axis`."""
        return self.binding.values[node.id].strides[axis]

    def rows_at(self, node: Node) -> Place:
        """The address of the int32 that holds how many rows `node` has in this step."""
        if node.type.rows is not None:
            pair = self._buffers.address(self.binding.n_rows)
            return Place(pair + (0 if node.type.rows == "token" else 4), f"n_{node.type.rows}_rows")
        return self.count(node.type.shape[0] if len(node.type.shape) > 1 else 1)

    def scratch(self, bytes_per_thread: int) -> Place:
        """The address of memory that one kernel call may use freely; no value outlives the call."""
        return Place(self._scratch(bytes_per_thread), "scratch")

    def count(self, n: int) -> Place:
        """The address of an int32 constant."""
        if n not in self._counts:
            self._counts[n] = np.array([n], np.int32)
        return Place(self._counts[n].ctypes.data, f"const {n}")


def _address(array: NDArray[np.float32] | None, node: Node) -> int:
    assert array is not None, f"{node.name} was registered without float values"
    return array.ctypes.data


def row_width(node: Node) -> int:
    """Elements of one row: everything behind axis 0; a vector is one row."""
    shape = node.type.shape
    return math.prod(shape[1:] if len(shape) > 1 or node.type.rows else shape)


def _binary(kernel: str) -> Callable[[Emitter, Node], None]:
    def emit(e: Emitter, node: Node) -> None:
        x, y = e.sources(node)
        # A vector belongs to the last axis: rows with more axes take it piece by piece.
        per_piece = y.type.shape != x.type.shape and len(x.type.shape) > 2
        for start, width in _pieces(node, per_piece):
            e.call(
                kernel,
                node,
                x=e.at(x, start),
                y=e.at(y, 0 if per_piece else start),
                out=e.at(node, start),
                rows_at=e.rows_at(node),
                width=width,
                x_stride=_stride(e, x),
                y_stride=_stride(e, y),
                out_stride=_stride(e, node),
            )

    return emit


def _pieces(node: Node, per_piece: bool) -> Iterator[tuple[int, int]]:
    """(first element, width) of each stretch of a row that one call takes: the last axis, or the whole row."""
    whole = row_width(node)
    width = node.type.shape[-1] if per_piece else whole
    return ((start, width) for start in range(0, whole, width))


def _stride(e: Emitter, node: Node) -> int:
    """Row stride, where a vector of rows (one element each) has one too."""
    return e.stride(node, 0) if node.type.rows and len(node.type.shape) == 1 else e.row_stride(node)


def _unary(kernel: str) -> Callable[[Emitter, Node], None]:
    def emit(e: Emitter, node: Node) -> None:
        (x,) = e.sources(node)
        extra = {"factor": node.attrs.factor} if node.op == "scale" else {}
        for start, width in _pieces(node, node.op == "softmax" and len(node.type.shape) > 2):
            e.call(
                kernel,
                node,
                x=e.at(x, start),
                out=e.at(node, start),
                rows_at=e.rows_at(node),
                width=width,
                x_stride=_stride(e, x),
                out_stride=_stride(e, node),
                **extra,
            )

    return emit


def _rms_norm(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    e.call(
        "norm.rms_norm",
        node,
        x=e.at(x),
        weight=e.at(weight),
        out=e.at(node),
        rows_at=e.rows_at(node),
        width=node.type.shape[1],
        x_stride=e.row_stride(x),
        out_stride=e.row_stride(node),
        eps=node.attrs.eps,
    )


def _qk_norm(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    _, n_heads, head_dim = node.type.shape
    e.call(
        "norm.qk_norm",
        node,
        x=e.at(x),
        weight=e.at(weight),
        out=e.at(node),
        rows_at=e.rows_at(node),
        n_heads=n_heads,
        head_dim=head_dim,
        x_stride=e.stride(x, 0),
        x_head_stride=e.stride(x, 1),
        out_stride=e.stride(node, 0),
        out_head_stride=e.stride(node, 1),
        eps=node.attrs.eps,
    )


def _add_rms_norm(e: Emitter, node: Node) -> None:
    x, y, weight = e.sources(node)
    width = x.type.shape[1]
    e.call(
        "norm.add_rms_norm",
        node,
        x=e.at(x),
        y=e.at(y),
        weight=e.at(weight),
        total=e.at(node),
        out=e.at(node, skip=width),
        rows_at=e.rows_at(node),
        width=width,
        x_stride=e.row_stride(x),
        y_stride=e.row_stride(y),
        total_stride=e.row_stride(node),
        out_stride=e.row_stride(node),
        eps=node.attrs.eps,
    )


def _matmul(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    packed = e.weights[weight.id].packed
    assert packed is not None, f"{weight.name} was registered without a packed form"
    e.call(
        matmul_kernel(weight.type.dtype.name),
        node,
        x=e.at(x),
        w=Place(packed.address, e.weight_text(weight)),
        out=e.at(node),
        rows_at=e.rows_at(node),
        x_stride=e.row_stride(x),
        out_stride=e.row_stride(node),
        n=packed.n,
        k=packed.k,
    )


def _get_rows(e: Emitter, node: Node) -> None:
    table, ids = e.sources(node)
    if table.id in e.weights:
        rows = e.weights[table.id].rows
        assert rows is not None, f"{table.name} was registered without its rows"
        at, stride = Place(rows.ctypes.data, e.weight_text(table)), rows.strides[0]
    else:
        at, stride = e.at(table), e.row_stride(table)
    e.call(
        get_rows_kernel(table.type.dtype.name.upper()),
        node,
        table=at,
        ids=e.at(ids),
        out=e.at(node),
        rows_at=e.rows_at(node),
        width=node.type.shape[1],
        table_stride=stride,
        out_stride=e.row_stride(node),
    )


def block_of(node: Node) -> int:
    """Elements per block of a node's activation format."""
    assert isinstance(node.type.dtype, Format)
    return node.type.dtype.block_size


def _quantize_act(e: Emitter, node: Node) -> None:
    (x,) = e.sources(node)
    e.call(
        f"quantize.rows[{block_of(node)}]",
        node,
        x=e.at(x),
        out=e.at(node),
        rows_at=e.rows_at(node),
        width=node.type.shape[1],
        x_stride=e.row_stride(x),
        out_stride=e.row_stride(node),
    )


def _swiglu_quantize(e: Emitter, node: Node) -> None:
    gate, up = e.sources(node)
    e.call(
        f"quantize.swiglu[{block_of(node)}]",
        node,
        gate=e.at(gate),
        up=e.at(up),
        out=e.at(node),
        rows_at=e.rows_at(node),
        width=node.type.shape[1],
        gate_stride=e.row_stride(gate),
        up_stride=e.row_stride(up),
        out_stride=e.row_stride(node),
    )


def _rms_norm_quantize(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    e.call(
        f"quantize.rms_norm[{block_of(node)}]",
        node,
        x=e.at(x),
        weight=e.at(weight),
        out=e.at(node),
        rows_at=e.rows_at(node),
        width=node.type.shape[1],
        x_stride=e.row_stride(x),
        out_stride=e.row_stride(node),
        eps=node.attrs.eps,
    )


def _rope(e: Emitter, node: Node) -> None:
    x, positions, *factors = e.sources(node)
    factor_id = e.binding.weights[factors[0].id] if factors else None
    table = e.tables(node.attrs, factor_id)
    _, n_heads, head_dim = node.type.shape
    e.call(
        f"rope.{node.attrs.pairs}",
        node,
        x=e.at(x),
        positions=e.at(positions),
        table=Place(table.ctypes.data, "rope table"),
        out=e.at(node),
        rows_at=e.rows_at(node),
        n_heads=n_heads,
        head_dim=head_dim,
        dims=node.attrs.dims,
        x_stride=e.stride(x, 0),
        x_head_stride=e.stride(x, 1),
        out_stride=e.stride(node, 0),
        out_head_stride=e.stride(node, 1),
        table_stride=table.strides[0],
    )


def _kv_store(e: Emitter, node: Node) -> None:
    region, values, cells = e.sources(node)
    e.call(
        f"kv_store.rows[{region.type.dtype.name}]",
        node,
        values=e.at(values),
        region=e.at(region),
        cells=e.at(cells),
        rows_at=e.rows_at(values),
        width=values.type.shape[1],
        values_stride=e.row_stride(values),
        cell_bytes=e.row_stride(region),
    )


def _contiguous(e: Emitter, node: Node) -> None:
    (x,) = e.sources(node)
    rank = len(node.type.shape)
    inner = (*[1] * (4 - rank), *node.type.shape[1:]) if rank > 1 else (1, 1, 1)
    strides = [0] * (4 - rank) + [e.stride(x, a) for a in range(1, rank)] if rank > 1 else [0, 0, 0]
    e.call(
        "copy.strided",
        node,
        x=e.at(x),
        out=e.at(node),
        rows_at=e.rows_at(node) if rank > 1 or node.type.rows else e.count(node.type.shape[0]),
        **dict(zip(("n1", "n2", "n3"), inner, strict=True)),
        x_stride=e.stride(x, 0),
        **dict(zip(("stride1", "stride2", "stride3"), strides, strict=True)),
    )


def _attention(e: Emitter, node: Node) -> None:
    q, k, v, positions, window = e.sources(node)
    _, n_heads, head_dim = node.type.shape
    mode = window_mode(window.type.shape, node.type.shape[0])
    stride = attention_scratch_bytes(n_heads, node.attrs.n_kv_heads, head_dim)
    e.call(
        f"attention.attend[{mode},{k.type.dtype.name}]",
        node,
        q=e.at(q),
        k=e.at(k),
        v=e.at(v),
        out=e.at(node),
        rows_at=e.rows_at(node),
        positions=e.at(positions),
        window=e.at(window),
        scratch=e.scratch(stride),
        q_stride=e.stride(q, 0),
        q_head_stride=e.stride(q, 1),
        out_stride=e.stride(node, 0),
        out_head_stride=e.stride(node, 1),
        cell_bytes=e.row_stride(k),
        n_heads=n_heads,
        n_kv_heads=node.attrs.n_kv_heads,
        head_dim=head_dim,
        scale=node.attrs.scale,
        scratch_stride=stride,
    )


EMITTERS: Mapping[str, Callable[[Emitter, Node], None]] = MappingProxyType(
    {
        "add": _binary("elementwise.add"),
        "mul": _binary("elementwise.mul"),
        "scale": _unary("elementwise.scale"),
        "silu": _unary("elementwise.silu"),
        "softmax": _unary("softmax.softmax"),
        "rms_norm": _rms_norm,
        "qk_norm": _qk_norm,
        "matmul": _matmul,
        "get_rows": _get_rows,
        "quantize_act": _quantize_act,
        "rope": _rope,
        "kv_store": _kv_store,
        "attention": _attention,
        "contiguous": _contiguous,
        "swiglu": _binary("elementwise.swiglu"),
        "add_rms_norm": _add_rms_norm,
        "rms_norm_quantize": _rms_norm_quantize,
        "swiglu_quantize": _swiglu_quantize,
    }
)
