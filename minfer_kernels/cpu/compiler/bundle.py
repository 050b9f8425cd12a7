"""Many compiled kernels in one file: what a warm process reads, in place of a file for each.

The files of single kernels stay what counts. A bundle is a magic line, the SHA-256 of the rest, a JSON line and all
object code, one after another; for every kernel the JSON has the size and time of the file that it was taken from, and
a kernel whose file has changed or gone is passed over. Whatever doesn't verify is treated as absent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from minfer_kernels.cpu.compiler.kernel import Operand

MAGIC = b"minfer kernel bundle 1\n"
NAME = "kernels.bundle"


@dataclass(frozen=True, slots=True)
class StoredKernel:
    """Object code and the operands its argument block holds."""

    operands: tuple[Operand, ...]
    code: bytes


def encode_bundle(key: str, kernels: Mapping[str, StoredKernel], files: Mapping[str, Path]) -> bytes:
    """The bundle of `kernels` under a cache key; `files` has the file of each."""
    listed = [
        [name, [[o.name, o.word] for o in kernel.operands], len(kernel.code), _state(files[name])]
        for name, kernel in kernels.items()
    ]
    body = json.dumps({"key": key, "kernels": listed}).encode() + b"\n" + b"".join(k.code for k in kernels.values())
    return MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def decode_bundle(key: str, data: bytes, folder: Path, suffix: str) -> dict[str, StoredKernel]:
    """The kernels of a bundle whose files in `folder` are as they were; none for data that isn't a bundle of `key`."""
    checksum, _, body = data.removeprefix(MAGIC).partition(b"\n")
    if not data.startswith(MAGIC) or hashlib.sha256(body).hexdigest().encode() != checksum:
        return {}
    head, _, code = body.partition(b"\n")
    # The checksum holds, so this is what `encode_bundle` made, be it by another version of it.
    try:
        stated = json.loads(head)
        if stated["key"] != key:
            return {}
        return _kernels(cast("list[list[object]]", stated["kernels"]), code, folder, suffix)
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def _kernels(listed: list[list[object]], code: bytes, folder: Path, suffix: str) -> dict[str, StoredKernel]:
    found: dict[str, StoredKernel] = {}
    start = 0
    for name, operands, length, state in listed:
        if not isinstance(name, str) or not isinstance(length, int) or not isinstance(operands, list):
            raise TypeError(f"{name!r}, {length!r} and {operands!r} are no kernel")
        end = start + length
        if end > len(code):
            raise ValueError(f"{name} ends at byte {end} of {len(code)}")
        if state is not None and _state(folder / f"{name}{suffix}") == state:
            words = cast("list[list[str]]", operands)
            found[name] = StoredKernel(tuple(Operand(*pair) for pair in words), code[start:end])
        start = end
    return found


def _state(path: Path) -> list[int] | None:
    """Size and time of a file, None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]
