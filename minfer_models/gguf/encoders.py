"""What encodes weights on their way into a file: the formats themselves, in numpy, or kernels with the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from minfer_ir.formats.base import Bytes, Floats, Format
from minfer_models.settings import Settings

if TYPE_CHECKING:
    from minfer_kernels.cpu.compiler.library import OnCompile

WORTH_KERNELS = 1 << 22
"""Elements of a format from which on its kernel is used. Numpy encodes as many in 0.03 to 0.4 s, and a kernel that is
compiled for the first time takes 0.3 to 1.7."""

Encode = Callable[[Format, Floats], Bytes]
"""Encodes values as the format's own `encode` does: the same bytes, the same errors. Called by several threads."""


def numpy_encode(fmt: Format, values: Floats) -> Bytes:
    """The format's own `encode`."""
    return fmt.encode(values)


def quickest_encode(
    work: Iterable[tuple[Format, int]], settings: Settings | None = None, on_compile: OnCompile | None = None
) -> Encode:
    """An encoder for that many elements of each format: kernels where they are many, numpy elsewhere.

    Compiled kernels are kept under the settings' cache folder, with those that run models.
    """
    elements = Counter[Format]()
    for fmt, n in work:
        elements[fmt] += n
    many = [fmt for fmt, n in elements.items() if n >= WORTH_KERNELS]
    if not many:
        return numpy_encode
    from minfer_kernels.cpu.encoding import NativeEncoders
    from minfer_models.backends import kernel_library

    settings = settings or Settings.from_env()
    return NativeEncoders(kernel_library(settings, settings.isa, on_compile), many).encode
