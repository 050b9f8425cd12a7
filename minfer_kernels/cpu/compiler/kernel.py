"""Declaring kernels: named operands on top of one entry point, `void(args: i64, tid: i64, n_threads: i64)`.

`args` is the address of a block of int64 words, one per operand in declaration order. An operand annotated
`F32` travels as the bit pattern of a float32 in the low half of its word. Parameters called `tid` and
`n_threads` are not operands: the entry point passes its own.

A kernel is found by name: `module.kernel` is the object `kernel` in `minfer_kernels.cpu.kernels.module`, and
`module.family[a,b]` is the kernel that the family `family` makes for the constants a and b (ints or words).
`package:module.kernel` is the same in another package: a plug-in's. Its name is stored with a digest of the package's
sources behind `@`, because the cache's key covers our own sources only.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

Ptr: TypeAlias = int
"""An address, as an int64 word."""
Int: TypeAlias = int
"""A count, stride or flag, as an int64 word."""
F32: TypeAlias = float
"""A float32 immediate."""

THREAD_PARAMETERS = ("tid", "n_threads")
_WORD_TYPES = {"Ptr": "i64", "Int": "i64", "F32": "f32"}
_KERNEL_NAME = re.compile(
    r"((?P<package>[A-Za-z_][\w.]*):)?(?P<module>[a-z_][a-z0-9_]*)\.(?P<attribute>[a-z_][a-z0-9_]*)"
    r"(\[(?P<constants>[a-z0-9_,-]+)\])?(@[0-9a-f]{12})?"
)
KERNELS_PACKAGE = "minfer_kernels.cpu.kernels"


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand word: its name and what the word holds, `i64` or `f32`."""

    name: str
    word: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel body and its signature; `parameters` are all of the body's, with `tid` and `n_threads`."""

    body: Callable[..., None]
    parameters: tuple[Operand, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The words of the argument block, in order."""
        return tuple(p for p in self.parameters if p.name not in THREAD_PARAMETERS)


class KernelFamily:
    """Kernels that differ in compile-time constants; `make(*constants)` returns the `Kernel`."""

    def __init__(self, make: Callable[..., Kernel]) -> None:
        self.make = make

    def __call__(self, *constants: str | int) -> Kernel:
        """The kernel for these constants."""
        return self.make(*constants)


def kernel(body: Callable[..., None]) -> Kernel:
    """Declare a kernel; each parameter is annotated `Ptr`, `Int` or `F32`."""
    parameters = []
    for parameter in inspect.signature(body).parameters.values():
        word = _WORD_TYPES.get(str(parameter.annotation))
        if word is None:
            raise TypeError(
                f"kernel {body.__qualname__}: parameter {parameter.name} is annotated {parameter.annotation!r}, "
                f"expected one of {', '.join(_WORD_TYPES)}"
            )
        parameters.append(Operand(parameter.name, word))
    return Kernel(body, tuple(parameters))


def kernel_family(make: Callable[..., Kernel]) -> KernelFamily:
    """Declare a family: the decorated function takes compile-time constants and returns a `Kernel`."""
    return KernelFamily(make)


def symbol_of(name: str) -> str:
    """What the kernel called `name` is called in its object."""
    return f"minfer.{name}"


def check_kernel_name(name: str) -> re.Match[str]:
    """The parts of a kernel's name; ValueError when it is malformed."""
    parts = _KERNEL_NAME.fullmatch(name)
    if parts is None:
        raise ValueError(f"kernel name {name!r} is not of the form module.kernel or module.family[constant,...]")
    return parts


def stored_name(name: str) -> str:
    """The name that a kernel is stored under: its own, or for a plug-in's with the digest of its package's sources."""
    package = check_kernel_name(name)["package"]
    return name if package is None or "@" in name else f"{name}@{_sources_digest(package)}"


@cache
def _sources_digest(package: str) -> str:
    found = importlib.util.find_spec(package)
    digest = hashlib.sha256()
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in sorted(Path(folder).rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def resolve_kernel(name: str) -> Kernel:
    """The kernel called `name`; ValueError when the name is malformed or names nothing. Imports its module."""
    parts = check_kernel_name(name)
    path = f"{parts['package'] or KERNELS_PACKAGE}.{parts['module']}"
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as missing:
        raise ValueError(f"kernel {name!r}: no module {path}") from missing
    found: Any = getattr(module, parts["attribute"], None)
    if parts["constants"] is None and isinstance(found, Kernel):
        return found
    if parts["constants"] is not None and isinstance(found, KernelFamily):
        return found(*(int(c) if c.lstrip("-").isdigit() else c for c in parts["constants"].split(",")))
    kind = "kernel" if parts["constants"] is None else "kernel family"
    raise ValueError(f"kernel {name!r}: {module.__name__} has no {kind} {parts['attribute']}")
