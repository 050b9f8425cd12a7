"""Storage formats: GGUF's weight types, the 8-bit rows that activations are quantized to, and packed KV cells.

`FORMATS` lists the first two by name; `format_named` looks one up and refuses an unknown name. `CELL_FORMATS` lists the
packed cells, whose names are lower case.
"""

from __future__ import annotations

from difflib import get_close_matches

from minfer_ir.formats.activation import Q8A32, Q8A256, ActivationFormat
from minfer_ir.formats.base import Bytes, EncodeError, Floats, Format
from minfer_ir.formats.blocks import BlockFormat
from minfer_ir.formats.cells import CELL_FORMATS, Q8_0_CELL, CellFormat
from minfer_ir.formats.floats import BF16, F16, F32, FloatFormat
from minfer_ir.formats.iq import IQ4_NL
from minfer_ir.formats.kquants import Q2_K, Q3_K, Q4_K, Q5_K, Q6_K
from minfer_ir.formats.simple import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0

WEIGHT_FORMATS: dict[str, Format] = {
    f.name: f for f in (F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL)
}
ACTIVATION_FORMATS: dict[str, Format] = {f.name: f for f in (Q8A32, Q8A256)}
FORMATS: dict[str, Format] = WEIGHT_FORMATS | ACTIVATION_FORMATS


def format_named(name: str) -> Format:
    """The format called `name`, in either case; raises ValueError naming the nearest ones when there is none."""
    found = FORMATS.get(name.upper())
    if found is not None:
        return found
    near = get_close_matches(name.upper(), FORMATS, cutoff=0.5)
    raise ValueError(
        f"no format is called {name!r}; " + ("the nearest: " if near else "known: ") + ", ".join(near or FORMATS)
    )


__all__ = [
    "ACTIVATION_FORMATS",
    "BF16",
    "CELL_FORMATS",
    "F16",
    "F32",
    "FORMATS",
    "IQ4_NL",
    "Q2_K",
    "Q3_K",
    "Q4_0",
    "Q4_1",
    "Q4_K",
    "Q5_0",
    "Q5_1",
    "Q5_K",
    "Q6_K",
    "Q8A32",
    "Q8A256",
    "Q8_0",
    "Q8_0_CELL",
    "WEIGHT_FORMATS",
    "ActivationFormat",
    "BlockFormat",
    "Bytes",
    "CellFormat",
    "EncodeError",
    "FloatFormat",
    "Floats",
    "Format",
    "format_named",
]
