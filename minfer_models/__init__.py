"""Models: file formats, architectures, tokenizers, the engine and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minfer_models.llm import LLM, load

__all__ = ["LLM", "load"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from minfer_models import llm

        return getattr(llm, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
