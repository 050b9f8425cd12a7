"""Models: file formats, architectures, tokenizers, the engine and the command line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minfer_models.llm import LLM
    from minfer_models.loading import load

__all__ = ["LLM", "load"]
_HOMES = {"LLM": "minfer_models.llm", "load": "minfer_models.loading"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
