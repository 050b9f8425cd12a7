"""Random valid GGUF content, for hypothesis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from hypothesis import strategies as st

from minfer_models.gguf import TypedValue

INTEGER_BOUNDS = {
    GGUFValueType.UINT8: (0, 255),
    GGUFValueType.INT8: (-128, 127),
    GGUFValueType.UINT16: (0, 65535),
    GGUFValueType.INT16: (-32768, 32767),
    GGUFValueType.UINT32: (0, 2**32 - 1),
    GGUFValueType.INT32: (-(2**31), 2**31 - 1),
    GGUFValueType.UINT64: (0, 2**64 - 1),
    GGUFValueType.INT64: (-(2**63), 2**63 - 1),
}
texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=15)
scalar_types = st.sampled_from([t for t in GGUFValueType if t != GGUFValueType.ARRAY])


def scalars(value_type: GGUFValueType) -> st.SearchStrategy[Any]:
    if value_type in INTEGER_BOUNDS:
        low, high = INTEGER_BOUNDS[value_type]
        return st.integers(low, high)
    if value_type == GGUFValueType.STRING:
        return texts
    if value_type == GGUFValueType.BOOL:
        return st.booleans()
    return st.floats(width=32 if value_type == GGUFValueType.FLOAT32 else 64, allow_nan=False)


@st.composite
def typed_values(draw: st.DrawFn) -> TypedValue:
    element = draw(scalar_types)
    if draw(st.booleans()):
        return TypedValue(element, draw(scalars(element)))
    return TypedValue(GGUFValueType.ARRAY, draw(st.lists(scalars(element), max_size=6)), element)  # type: ignore[arg-type]


@dataclass(frozen=True)
class RandomTensor:
    name: str
    shape: tuple[int, ...]
    ggml_type: GGMLQuantizationType
    rows: np.ndarray[Any, np.dtype[np.uint8]]


@st.composite
def tensors(draw: st.DrawFn) -> list[RandomTensor]:
    made = []
    for name in draw(st.lists(names, max_size=5, unique=True)):
        ggml_type = draw(st.sampled_from(sorted(GGML_QUANT_SIZES)))
        block_size, block_bytes = GGML_QUANT_SIZES[ggml_type]
        n_blocks = draw(st.integers(1, 3))
        outer = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        rows = rng.integers(0, 256, (math.prod(outer), n_blocks * block_bytes), dtype=np.uint8)
        made.append(RandomTensor(name, (*outer, n_blocks * block_size), ggml_type, rows))
    return made


@st.composite
def metadatas(draw: st.DrawFn) -> dict[str, TypedValue]:
    entries = draw(st.dictionaries(names.filter(lambda key: key != "general.alignment"), typed_values(), max_size=6))
    alignment = draw(st.sampled_from([None, 1, 2, 8, 32, 128, 1024]))
    if alignment is not None:
        entries["general.alignment"] = TypedValue(GGUFValueType.UINT32, alignment)
    return entries
