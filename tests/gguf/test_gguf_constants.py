"""Our numbers of the format are gguf-py's."""

from __future__ import annotations

import gguf
from gguf.constants import GGUF_DEFAULT_ALIGNMENT, Keys

from minfer_models.gguf import constants


def test_types_and_sizes_are_those_of_gguf_py() -> None:
    assert {t.name: t.value for t in constants.GGUFValueType} == {t.name: t.value for t in gguf.GGUFValueType}
    theirs = {t.name: t.value for t in gguf.GGMLQuantizationType}
    ours = {t.name: t.value for t in constants.GGMLQuantizationType}
    assert ours.items() <= theirs.items()
    sizes = {t.name: tuple(size) for t, size in gguf.GGML_QUANT_SIZES.items() if t.name in ours}
    assert {t.name: size for t, size in constants.GGML_QUANT_SIZES.items()} == sizes


def test_keys_and_alignment_are_those_of_gguf_py() -> None:
    split = (Keys.Split.LLM_KV_SPLIT_NO, Keys.Split.LLM_KV_SPLIT_COUNT, Keys.Split.LLM_KV_SPLIT_TENSORS_COUNT)
    assert split == (constants.SPLIT_NO_KEY, constants.SPLIT_COUNT_KEY, constants.SPLIT_TENSORS_KEY)
    assert constants.ALIGNMENT_KEY == Keys.General.ALIGNMENT
    assert constants.DEFAULT_ALIGNMENT == GGUF_DEFAULT_ALIGNMENT
