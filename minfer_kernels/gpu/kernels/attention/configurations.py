"""How the attention kernels are compiled for models that people run, and what the code must show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from minfer_kernels.gpu.configuration import Configuration, Promises
from minfer_kernels.gpu.kernels.attention.choices import DEFAULT, flash_choice, split_choice
from minfer_kernels.gpu.kernels.attention.flash import flash
from minfer_kernels.gpu.kernels.attention.merge import merge
from minfer_kernels.gpu.kernels.attention.split import split
from minfer_kernels.gpu.kernels.attention.tiles import tiles
from minfer_kernels.gpu.kernels.cells import LAYOUTS
from minfer_kernels.gpu.kernels.windows import MODES
from minfer_kernels.gpu.targets import Target


@dataclass(frozen=True, slots=True)
class Heads:
    """KV heads, query heads of each, and their size."""

    kv_heads: int
    group: int
    head_dim: int


SHAPES: Mapping[str, Heads] = {"7B": Heads(4, 7, 128), "0.6B": Heads(8, 2, 128), "SmolLM2": Heads(3, 3, 64)}
OPERANDS = {"q": "*fp32", "k": "*u8", "v": "*u8", "positions": "*i32", "window": "*i32"}
STRIDES = {"q_stride": "i32", "out_stride": "i32", "cell_bytes": "i32", "scale": "fp32"}
PARTS = {"rows_at": "*i32", "listed": "*i32", "partials": "*fp32", "softmax": "*fp32", "base": "i32"}
DIVISIBLE = ("q", "k", "v", "out", "positions", "window", "q_stride", "out_stride", "cell_bytes")


def _split(
    target: Target,
    name: str,
    cell_type: str,
    mode: str = "causal",
    listed: bool = False,
    finish: bool = True,
    quantize: int = 0,
) -> Configuration:
    heads = SHAPES[name]
    choice = split_choice(target, cell_type, heads.group)
    packed = cell_type == "q8_0"
    extras = (
        [mode] * (mode != "causal") + ["listed"] * listed + ["parts"] * (not finish) + [f"q{quantize}"] * bool(quantize)
    )
    return Configuration(
        ".".join(["attention.split", name, cell_type, *extras]),
        split,
        {**OPERANDS, **PARTS, **STRIDES, "out": "*u8" if quantize else "*fp32", "arrived": "*i32"},
        {
            "KV_HEADS": heads.kv_heads,
            "GROUP": heads.group,
            "HEAD_DIM": heads.head_dim,
            "MODE": MODES[mode],
            "LAYOUT": LAYOUTS[cell_type],
            "SPLIT": choice.split,
            "BLOCK": choice.block,
            "MATRIX": choice.matrix,
            "PTX": True,
            "LISTED": listed,
            "FINISH": finish,
            "QUANTIZE": quantize,
            "SLOTS": DEFAULT.split_rows,
        },
        divisible=(*DIVISIBLE, "partials", "softmax"),
        warps=choice.warps,
        stages=choice.stages,
        promises=Promises(dp4a=packed and not choice.matrix, wide_loads=True, tensor_cores=not packed or choice.matrix),
        sampled=not extras and (name, cell_type) in (("7B", "f16"), ("0.6B", "q8_0")),
    )


def _merge(target: Target, name: str, quantize: int) -> Configuration:
    heads = SHAPES[name]
    return Configuration(
        f"attention.merge.{name}" + (f".q{quantize}" if quantize else ""),
        merge,
        {**PARTS, "positions": "*i32", "window": "*i32", "out": "*u8" if quantize else "*fp32", "out_stride": "i32"}
        | {"most_parts": "i32"},
        {
            "N_HEADS": heads.kv_heads * heads.group,
            "HEADS": max(1, quantize // heads.head_dim),
            "HEAD_DIM": heads.head_dim,
            "MODE": MODES["causal"],
            "SPLIT": split_choice(target, "f16", heads.group).split,
            "LISTED": False,
            "QUANTIZE": quantize,
            "SLOTS": DEFAULT.split_rows,
        },
        divisible=("partials", "softmax", "out", "out_stride"),
    )


def _flash(target: Target, name: str, cell_type: str, mode: str = "causal") -> Configuration:
    heads = SHAPES[name]
    choice = flash_choice(target, cell_type, heads.head_dim)
    return Configuration(
        ".".join(["attention.flash", name, cell_type, *[mode] * (mode != "causal")]),
        flash,
        {**OPERANDS, **STRIDES, "out": "*fp32", "table": "*i32"},
        {
            "KV_HEADS": heads.kv_heads,
            "GROUP": heads.group,
            "HEAD_DIM": heads.head_dim,
            "MODE": MODES[mode],
            "LAYOUT": LAYOUTS[cell_type],
            "TILE": choice.tile,
            "BLOCK": choice.block,
            "STAGES": choice.stages,
            "PTX": True,
        },
        divisible=DIVISIBLE,
        warps=choice.warps,
        stages=choice.stages,
        promises=Promises(wide_loads=True, tensor_cores=True),
        sampled=mode == "causal" and (name, cell_type) == ("7B", "f16"),
    )


def _tiles(mode: str) -> Configuration:
    return Configuration(
        f"attention.tiles.{mode}",
        tiles,
        dict.fromkeys(("positions", "window", "rows_at", "starts", "table", "listed"), "*i32"),
        {"MODE": MODES[mode], "TILE": 128, "SHORT": DEFAULT.split_rows, "BUCKET": 2048},
        divisible=("positions", "window", "starts", "table", "listed"),
        warps=8,
    )


def configurations_for(target: Target) -> Iterator[Configuration]:
    """Of attention, on one device."""
    for name in SHAPES:
        for cell_type in LAYOUTS:
            yield _split(target, name, cell_type)
            yield _flash(target, name, cell_type)
        yield _merge(target, name, 0)
    for mode in ("span", "map"):
        for cell_type in ("f16", "q8_0"):
            yield _split(target, "7B", cell_type, mode)
            yield _flash(target, "7B", cell_type, mode)
    for cell_type in ("f16", "q8_0"):
        yield _split(target, "7B", cell_type, finish=False)
        yield _split(target, "7B", cell_type, "map", listed=True)
        yield _split(target, "7B", cell_type, quantize=32)
    yield _merge(target, "7B", 32)
    yield _merge(target, "7B", 256)
    for mode in MODES:
        yield _tiles(mode)
