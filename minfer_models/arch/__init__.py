"""Architectures, one short file each. `ARCHITECTURES` is the registry, by GGUF architecture name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from minfer_models.arch.base import Architecture
from minfer_models.arch.llama import Llama
from minfer_models.arch.qwen2 import Qwen2
from minfer_models.arch.qwen3 import Qwen3
from minfer_models.gguf import Metadata

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType({a.name: a for a in (Llama(), Qwen2(), Qwen3())})


def architecture_of(meta: Metadata) -> Architecture:
    """The architecture that the metadata names; raises GGUFError listing the known ones."""
    name = meta.string("general.architecture")
    if name not in ARCHITECTURES:
        raise meta.error("general.architecture", f"is {name!r}; known: {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]
