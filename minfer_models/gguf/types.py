"""GGUF tensor type ids: their geometry, and the minfer `Format` of those that minfer computes with.

Geometry of every type GGML knows comes from the `gguf` package, so files holding types that minfer does not
implement can still be listed, checked and copied.
"""

from __future__ import annotations

from minfer_ir.formats import WEIGHT_FORMATS
from minfer_ir.formats.base import Format
from minfer_models.gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

REMOVED_TYPES = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
"""Ids that GGML once used; files holding them need converting again."""


def known_type(type_id: int) -> GGMLQuantizationType | None:
    """The GGML type with this id, or None when the id is unknown or its geometry is."""
    try:
        ggml_type = GGMLQuantizationType(type_id)
    except ValueError:
        return None
    return ggml_type if ggml_type in GGML_QUANT_SIZES else None


def type_name(type_id: int) -> str:
    """The GGML name of a type id, for people: `Q4_K`, `Q4_2 (removed from GGML)`, `unknown type 99`."""
    ggml_type = known_type(type_id)
    if ggml_type is not None:
        return ggml_type.name
    removed = REMOVED_TYPES.get(type_id)
    return f"unknown type {type_id}" if removed is None else f"{removed} (removed from GGML)"


def geometry(ggml_type: GGMLQuantizationType) -> tuple[int, int]:
    """Elements and bytes of one block."""
    return GGML_QUANT_SIZES[ggml_type]


def format_of(ggml_type: GGMLQuantizationType) -> Format | None:
    """The format minfer reads this type with, or None when it implements none."""
    return WEIGHT_FORMATS.get(ggml_type.name)


def type_of(fmt: Format) -> GGMLQuantizationType:
    """The GGML type that stores the weight format `fmt`, the inverse of `format_of`; KeyError for other formats."""
    return GGMLQuantizationType[fmt.name]
