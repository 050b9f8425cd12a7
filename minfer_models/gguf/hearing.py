"""Following a file as it is written: each tensor tells when its bytes are handed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from minfer_models.gguf.source import TensorSource

HeardBytes = Callable[[str, int], None]
"""Hears a tensor's name and how many more of its bytes were handed to the writer."""


def heard(tensor: TensorSource, hear: HeardBytes) -> TensorSource:
    """The same tensor, of which `hear` is told every chunk."""

    def chunks() -> Iterator[NDArray[Any]]:
        for chunk in tensor.chunks():
            yield chunk
            hear(tensor.name, chunk.nbytes)

    return replace(tensor, chunks=chunks)
