"""From what a user calls a model to a GGUF file on this disk: a path, a Hugging Face name, or `demo`."""

from __future__ import annotations

from .errors import LocateError
from .locate import locate

__all__ = ["LocateError", "locate"]
