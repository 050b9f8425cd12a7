"""From a node to kernel calls: one short function per op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from minfer_ir import plugins
from minfer_ir.formats import FORMATS
from minfer_ir.formats.base import Format
from minfer_ir.graph import Node
from minfer_ir.ops.attention import window_mode
from minfer_ir.ops.fused_rope import plain_rope
from minfer_ir.ops.rope import RopeAttrs
from minfer_kernels.cpu.emitter import Emitter, row_width
from minfer_kernels.cpu.kernels.parts.attention.scratch import attention_scratch_bytes, most_blocks, shared_bytes
from minfer_kernels.cpu.kernels.parts.tile_scratch import TILE_BYTES, UNIT
from minfer_kernels.cpu.runner.tape import Place, Stretch
from minfer_kernels.cpu.weights.layouts import get_rows_kernel, matmul_kernel, packed_rows_kernel, packing
from minfer_kernels.cpu.weights.pack_program import unpack_program
from minfer_kernels.cpu.weights.packing import PackedWeight


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


def _rows(e: Emitter, node: Node, **sources: Node) -> dict[str, int]:
    """The operands of kernels over rows: each source and `out` with its row stride, the rows and their width."""
    at: dict[str, int] = {name: e.at(source) for name, source in sources.items()}
    strides = {f"{name}_stride": e.row_stride(source) for name, source in sources.items()}
    shared = {"out": e.at(node), "rows_at": e.rows_at(node), "width": node.type.shape[1]}
    return {**at, **strides, **shared, "out_stride": e.row_stride(node)}


def _heads(e: Emitter, node: Node, name: str, source: Node) -> dict[str, int]:
    """The operands of kernels over heads: `source` and `out` `[rows, heads, head_dim]` with their strides."""
    _, n_heads, head_dim = node.type.shape
    shared = {"rows_at": e.rows_at(node), "n_heads": n_heads, "head_dim": head_dim}
    places: dict[str, int] = {name: e.at(source), "out": e.at(node)}
    for label, value in ((name, source), ("out", node)):
        places[f"{label}_stride"], places[f"{label}_head_stride"] = e.stride(value, 0), e.stride(value, 1)
    return {**places, **shared}


def _rms_norm(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    e.call("norm.rms_norm", node, **_rows(e, node, x=x), weight=e.at(weight), eps=node.attrs.eps)


def _qk_norm(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    e.call("norm.qk_norm", node, **_heads(e, node, "x", x), weight=e.at(weight), eps=node.attrs.eps)


def _add_rms_norm(e: Emitter, node: Node) -> None:
    x, y, weight = e.sources(node)
    width = x.type.shape[1]
    parts: dict[str, int] = {"total": e.at(node), "total_stride": e.row_stride(node), "out": e.at(node, skip=width)}
    operands = {**_rows(e, node, x=x, y=y), **parts, "width": width}
    e.call("norm.add_rms_norm", node, **operands, weight=e.at(weight), eps=node.attrs.eps)


def _matmul(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    packed, w = _packed(e, weight)
    operands = _rows(e, node, x=x)
    del operands["width"]
    shared = _shared(packed, packed.layout.rows)
    e.call(matmul_kernel(packed.layout), node, shared, **operands, w=w, n=packed.n, k=packed.k)


def _packed(e: Emitter, weight: Node) -> tuple[PackedWeight, Place]:
    """A weight as a product reads it, and its place."""
    packed = e.weights[weight.id].packed
    assert packed is not None, f"{weight.name} was registered without a packed form"
    return packed, Place(packed.address, e.weight_text(weight))


def _shared(packed: PackedWeight, rows: int) -> Stretch:
    """The weight as threads share it, in units of `rows`."""
    layout = packed.layout
    return Stretch(packed.address, -(-packed.n // rows), rows // layout.rows * layout.group_bytes(packed.k))


def _matmul_add(e: Emitter, node: Node) -> None:
    x, weight, y = e.sources(node)
    packed, w = _packed(e, weight)
    operands = {**_rows(e, node, x=x, y=y), "w": w, "n": packed.n, "k": packed.k}
    del operands["width"]
    kernel, scratch = f"fused_matmul.add[{packing(packed.layout)}]", e.scratch(TILE_BYTES)
    e.call(kernel, node, _shared(packed, UNIT), **operands, scratch=scratch)


def _matmul_swiglu(e: Emitter, node: Node) -> None:
    x, gate_weight, up_weight = e.sources(node)
    (gate, gate_at), (_, up_at) = _packed(e, gate_weight), _packed(e, up_weight)
    operands = {**_rows(e, node, x=x), "gate": gate_at, "up": up_at, "n": gate.n, "k": gate.k}
    del operands["width"]
    packed = packing(gate.layout)
    if node.op == "matmul_swiglu":
        kernel, rows = f"swiglu[{packed}]", UNIT
    else:
        rows = block_of(node)
        kernel = f"swiglu_quantize[{packed},{rows}]"
    shared, scratch = _shared(gate, rows), e.scratch(TILE_BYTES)
    e.call(f"fused_matmul.{kernel}", node, shared, **operands, scratch=scratch)


def _get_rows(e: Emitter, node: Node) -> None:
    table, ids = e.sources(node)
    if table.id in e.weights:
        packed, rows = e.weights[table.id].packed, e.weights[table.id].rows
        if packed is not None:
            _get_packed_rows(e, node, packed)
            return
        assert rows is not None, f"{table.name} was registered without its rows"
        at, stride = Place(rows.ctypes.data, e.weight_text(table)), rows.strides[0]
    else:
        at, stride = e.at(table), e.row_stride(table)
    kernel = get_rows_kernel(table.type.dtype.name.upper())
    e.call(kernel, node, **_rows(e, node), table=at, table_stride=stride, ids=e.at(ids))


def _get_packed_rows(e: Emitter, node: Node, packed: PackedWeight) -> None:
    table, ids = e.sources(node)
    program = unpack_program(packed.layout)
    row_bytes = -(-FORMATS[packed.layout.format].row_bytes(packed.k) // 64) * 64
    e.call(
        packed_rows_kernel(packed.layout),
        node,
        **_rows(e, node),
        table=Place(packed.address, e.weight_text(table)),
        program=Place(program.ctypes.data, f"unpack {packed.layout.name}"),
        terms=len(program),
        scratch=e.scratch(row_bytes),
        scratch_stride=row_bytes,
        ids=e.at(ids),
    )


def block_of(node: Node) -> int:
    """Elements per block of a node's activation format."""
    assert isinstance(node.type.dtype, Format)
    return node.type.dtype.block_size


def _quantize_act(e: Emitter, node: Node) -> None:
    (x,) = e.sources(node)
    e.call(f"quantize.rows[{block_of(node)}]", node, **_rows(e, node, x=x))


def _swiglu_quantize(e: Emitter, node: Node) -> None:
    gate, up = e.sources(node)
    e.call(f"quantize.swiglu[{block_of(node)}]", node, **_rows(e, node, gate=gate, up=up))


def _rms_norm_quantize(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    operands = _rows(e, node, x=x)
    e.call(f"quantize.rms_norm[{block_of(node)}]", node, **operands, weight=e.at(weight), eps=node.attrs.eps)


def _rope(e: Emitter, node: Node) -> None:
    x, positions, *factors = e.sources(node)
    table = e.tables(node.attrs, e.binding.weights[factors[0].id] if factors else None)
    e.call(
        f"rope.{node.attrs.pairs}",
        node,
        **_heads(e, node, "x", x),
        positions=e.at(positions),
        table=Place(table.ctypes.data, "rope table"),
        table_stride=table.strides[0],
        dims=node.attrs.dims,
    )


def _rope_operands(e: Emitter, node: Node, named: Mapping[str, Node]) -> dict[str, int]:
    """Positions and the table of angles; zeros for an op that doesn't rotate."""
    if not isinstance(node.attrs, RopeAttrs):
        return {"positions": 0, "table": 0, "table_stride": 0, "dims": 0}
    factors = named.get("factors")
    table = e.tables(plain_rope(node.attrs), e.binding.weights[factors.id] if factors else None)
    at = Place(table.ctypes.data, "rope table")
    positions = e.at(named["positions"])
    return {"positions": positions, "table": at, "table_stride": table.strides[0], "dims": node.attrs.dims}


def _cell_operands(e: Emitter, named: Mapping[str, Node], x: Node) -> dict[str, int]:
    region = named["region"]
    places = {"region": e.at(region), "cells": e.at(named["cells"]), "rows_at": e.rows_at(x)}
    return {**places, "cell_bytes": e.row_stride(region)}


def _qk_norm_rope(e: Emitter, node: Node) -> None:
    named = dict(node.operands(e.graph))
    operands = {**_heads(e, node, "x", named["x"]), **_rope_operands(e, node, named)}
    weight = e.at(named["norm_weight"])
    e.call(f"fused_rope.norm[{node.attrs.pairs}]", node, **operands, weight=weight, eps=node.attrs.eps)


def _rope_kv_store(e: Emitter, node: Node) -> None:
    named = dict(node.operands(e.graph))
    x, norm_weight = named["x"], named.get("norm_weight")
    _, n_heads, head_dim = x.type.shape
    shape = {"n_heads": n_heads, "head_dim": head_dim, "x_stride": e.stride(x, 0), "x_head_stride": e.stride(x, 1)}
    kind = "plain" if norm_weight is None else "norm"
    scratch_stride = (4 * head_dim + 63) // 64 * 64
    e.call(
        f"fused_rope.store[{node.attrs.pairs},{kind},{named['region'].type.dtype.name}]",
        node,
        x=e.at(x),
        weight=0 if norm_weight is None else e.at(norm_weight),
        eps=0.0 if norm_weight is None else node.attrs.eps,
        scratch=e.scratch(scratch_stride),
        scratch_stride=scratch_stride,
        **shape,
        **_rope_operands(e, node, named),
        **_cell_operands(e, named, x),
    )


def _projection(e: Emitter, node: Node) -> None:
    """A product that leaves as heads, or as cells where it has a region."""
    named = dict(node.operands(e.graph))
    x, (packed, w) = named["x"], _packed(e, named["weight"])
    vector = named.get("bias") or named.get("norm_weight")
    before = "add" if "bias" in named else "norm" if "norm_weight" in named else "plain"
    rotates = isinstance(node.attrs, RopeAttrs)
    constants = [packing(packed.layout), before, node.attrs.pairs if rotates else "none"]
    operands: dict[str, int | float] = {
        "x": e.at(x),
        "x_stride": e.row_stride(x),
        "w": w,
        "n": packed.n,
        "k": packed.k,
        "vector": 0 if vector is None else e.at(vector),
        "eps": getattr(node.attrs, "eps", 0.0),
        "head_dim": node.attrs.heads[2] if rotates else packed.n,
        **_rope_operands(e, node, named),
        "scratch": e.scratch(TILE_BYTES),
    }
    takes_heads = rotates and (before == "norm" or node.attrs.pairs == "neox")
    shared = _shared(packed, node.attrs.heads[2] if takes_heads else UNIT)
    if "region" in named:
        constants.append(named["region"].type.dtype.name)
        kernel, places = f"projection.cells[{','.join(constants)}]", _cell_operands(e, named, x)
    else:
        kernel = f"projection.rows[{','.join(constants)}]"
        places = {"out": e.at(node), "out_stride": e.stride(node, 0), "rows_at": e.rows_at(node)}
    e.call(kernel, node, shared, **operands, **places)


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
    rows, n_heads, head_dim = node.type.shape
    n_cells, n_kv_heads = k.type.shape[0], node.attrs.n_kv_heads
    mode = window_mode(window.type.shape, node.type.shape[0])
    stride = attention_scratch_bytes(n_heads, n_kv_heads, head_dim)
    e.call(
        f"attention.attend[{mode},{k.type.dtype.name}]",
        node,
        **_heads(e, node, "q", q),
        k=e.at(k),
        v=e.at(v),
        positions=e.at(positions),
        window=e.at(window),
        scratch=e.scratch(stride),
        scratch_stride=stride,
        shared=e.shared(shared_bytes(rows, n_cells, n_heads, n_kv_heads, head_dim)),
        most_blocks=most_blocks(rows, n_cells, n_kv_heads),
        cell_bytes=e.row_stride(k),
        n_kv_heads=n_kv_heads,
        scale=node.attrs.scale,
    )


PROJECTIONS = (
    *("matmul_kv_store", "matmul_add_kv_store"),
    *("matmul_rope", "matmul_add_rope", "matmul_norm_rope"),
    *("matmul_rope_kv_store", "matmul_add_rope_kv_store", "matmul_norm_rope_kv_store"),
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
        "matmul_add": _matmul_add,
        "matmul_swiglu": _matmul_swiglu,
        "matmul_swiglu_quantize": _matmul_swiglu,
        "get_rows": _get_rows,
        "quantize_act": _quantize_act,
        "rope": _rope,
        "kv_store": _kv_store,
        "qk_norm_rope": _qk_norm_rope,
        "rope_kv_store": _rope_kv_store,
        "qk_norm_rope_kv_store": _rope_kv_store,
        **dict.fromkeys(PROJECTIONS, _projection),
        "attention": _attention,
        "contiguous": _contiguous,
        "swiglu": _binary("elementwise.swiglu"),
        "add_rms_norm": _add_rms_norm,
        "rms_norm_quantize": _rms_norm_quantize,
        "swiglu_quantize": _swiglu_quantize,
    }
)


def emitter_of(op: str) -> Callable[[Emitter, Node], None] | None:
    """What emits `op`, ours or an enabled plug-in's; None without a kernel."""
    return EMITTERS.get(op) or plugins.emitters("cpu").get(op)
