"""The numbers of the GGUF format: value types, tensor types and their block geometry, and the keys that readers need.

They are the format's own (ggml.h, `ggml_type`; ggml/docs/gguf.md). gguf-py has them too, but importing it takes a
tenth of a warm start; a test holds these to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

DEFAULT_ALIGNMENT = 32
ALIGNMENT_KEY = "general.alignment"
SPLIT_NO_KEY = "split.no"
SPLIT_COUNT_KEY = "split.count"
SPLIT_TENSORS_KEY = "split.tensors.count"


class GGUFValueType(IntEnum):
    """The type of a metadata value."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


class GGMLQuantizationType(IntEnum):
    """The type of a tensor's elements."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41


GGML_QUANT_SIZES: Mapping[GGMLQuantizationType, tuple[int, int]] = MappingProxyType(
    {
        GGMLQuantizationType.F32: (1, 4),
        GGMLQuantizationType.F16: (1, 2),
        GGMLQuantizationType.Q4_0: (32, 18),
        GGMLQuantizationType.Q4_1: (32, 20),
        GGMLQuantizationType.Q5_0: (32, 22),
        GGMLQuantizationType.Q5_1: (32, 24),
        GGMLQuantizationType.Q8_0: (32, 34),
        GGMLQuantizationType.Q8_1: (32, 40),
        GGMLQuantizationType.Q2_K: (256, 84),
        GGMLQuantizationType.Q3_K: (256, 110),
        GGMLQuantizationType.Q4_K: (256, 144),
        GGMLQuantizationType.Q5_K: (256, 176),
        GGMLQuantizationType.Q6_K: (256, 210),
        GGMLQuantizationType.Q8_K: (256, 292),
        GGMLQuantizationType.IQ2_XXS: (256, 66),
        GGMLQuantizationType.IQ2_XS: (256, 74),
        GGMLQuantizationType.IQ3_XXS: (256, 98),
        GGMLQuantizationType.IQ1_S: (256, 50),
        GGMLQuantizationType.IQ4_NL: (32, 18),
        GGMLQuantizationType.IQ3_S: (256, 110),
        GGMLQuantizationType.IQ2_S: (256, 82),
        GGMLQuantizationType.IQ4_XS: (256, 136),
        GGMLQuantizationType.I8: (1, 1),
        GGMLQuantizationType.I16: (1, 2),
        GGMLQuantizationType.I32: (1, 4),
        GGMLQuantizationType.I64: (1, 8),
        GGMLQuantizationType.F64: (1, 8),
        GGMLQuantizationType.IQ1_M: (256, 56),
        GGMLQuantizationType.BF16: (1, 2),
        GGMLQuantizationType.TQ1_0: (256, 54),
        GGMLQuantizationType.TQ2_0: (256, 66),
        GGMLQuantizationType.MXFP4: (32, 17),
        GGMLQuantizationType.NVFP4: (64, 36),
        GGMLQuantizationType.Q1_0: (128, 18),
    }
)
"""Elements and bytes of a block, by type."""
