"""Compiled kernels on disk: one file per kernel, in a directory per key, checked before it is believed.

A file is a magic line, the SHA-256 of the rest, a JSON line (kernel name, key, operands), then the object code.
Whatever does not verify is treated as absent and compiled again. Files appear by atomic rename, so processes
may share a directory. No pickle.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import llvmlite

from minfer_kernels.cpu.compiler import bundle
from minfer_kernels.cpu.compiler.bundle import StoredKernel
from minfer_kernels.cpu.compiler.features import Machine
from minfer_kernels.cpu.compiler.kernel import Operand

MAGIC = b"minfer kernel 1\n"
SUFFIX = ".kernel"
KEPT_KEYS = 8
_KEY_NAME = re.compile(r"[0-9a-f]{24}")
_PACKAGE_ROOT = Path(__file__).resolve().parents[3]
# Kernels are made from these sources alone, so that an edit elsewhere compiles nothing anew.
SOURCES = (
    "minfer_ir/formats",
    "minfer_kernels/cpu/compiler",
    "minfer_kernels/cpu/decoders",
    "minfer_kernels/cpu/kernels",
    "minfer_kernels/cpu/runner/instruction.py",
    "minfer_kernels/cpu/runner/sync_block.py",
    "minfer_kernels/cpu/simd",
    "minfer_kernels/cpu/weights",
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache directory holds, all keys together; `directory` is None when nothing is cached on disk."""

    directory: Path | None
    files: int
    bytes: int


def cache_key(machine: Machine, root: Path = _PACKAGE_ROOT) -> str:
    """24 hex digits naming everything object code depends on: the sources under `root`, the toolchain, the machine."""
    digest = hashlib.sha256()
    for source in SOURCES:
        at = root / source
        for path in sorted(at.rglob("*.py")) if at.is_dir() else [at] if at.is_file() else []:
            digest.update(path.relative_to(root).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    versions = (sys.version, llvmlite.__version__, _numba_version())
    digest.update(repr((versions, machine)).encode())
    return digest.hexdigest()[:24]


def _numba_version() -> bytes:
    """What tells one numba from another, read without importing it: that takes longer than the rest of a start."""
    found = importlib.util.find_spec("numba")
    if found is None or found.origin is None:
        raise ImportError("numba isn't installed: kernels can't be compiled")
    stated = Path(found.origin).with_name("_version.py")
    return (stated if stated.is_file() else Path(found.origin)).read_bytes()


class ObjectCache:
    """The compiled kernels of one key under `directory`; None, or a directory that fails, caches nothing.

    `problem` tells the first reason why files could not be written; it is logged once.
    """

    def __init__(self, directory: Path | None, key: str) -> None:
        self.directory = directory
        self.key = key
        self.problem: str | None = None

    def load(self, name: str) -> StoredKernel | None:
        """The stored kernel, or None when it is absent or does not verify."""
        if self.directory is None:
            return None
        try:
            data = self._path(self.directory, name).read_bytes()
        except OSError:
            return None
        return self._decode(name, data)

    def store(self, name: str, stored: StoredKernel) -> None:
        """Write one kernel; a failure is logged once, recorded in `problem`, and otherwise harmless."""
        if self.directory is None or self.problem is not None:
            return
        path = self._path(self.directory, name)
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._forget_old_keys(self.directory)
            _write_atomically(path, self._encode(name, stored))
        except OSError as error:
            self.problem = (
                f"kernel cache {self.directory} cannot be written ({error}); kernels compile in every process"
            )
            log.warning("%s", self.problem)

    def load_bundle(self) -> dict[str, StoredKernel]:
        """The kernels that were bundled and are still stored as they were then."""
        if self.directory is None:
            return {}
        folder = self.directory / self.key
        try:
            data = (folder / bundle.NAME).read_bytes()
        except OSError:
            return {}
        return bundle.decode_bundle(self.key, data, folder, SUFFIX)

    def store_bundle(self, kernels: Mapping[str, StoredKernel]) -> None:
        """Bundle stored kernels; a failure only makes the next start a little slower."""
        if self.directory is None or self.problem is not None:
            return
        files = {name: self._path(self.directory, name) for name in kernels}
        with contextlib.suppress(OSError):
            _write_atomically(self.directory / self.key / bundle.NAME, bundle.encode_bundle(self.key, kernels, files))

    def info(self) -> CacheInfo:
        """Count the files of all keys."""
        sizes = []
        for directory in self._key_directories():
            for path in directory.glob(f"*{SUFFIX}"):
                with contextlib.suppress(OSError):
                    sizes.append(path.stat().st_size)
        return CacheInfo(self.directory, len(sizes), sum(sizes))

    def clear(self) -> None:
        """Remove the stored kernels of all keys."""
        for directory in self._key_directories():
            shutil.rmtree(directory, ignore_errors=True)

    def _path(self, directory: Path, name: str) -> Path:
        return directory / self.key / f"{name}{SUFFIX}"

    def _key_directories(self) -> list[Path]:
        if self.directory is None or not self.directory.is_dir():
            return []
        return [d for d in self.directory.iterdir() if _KEY_NAME.fullmatch(d.name) and d.is_dir()]

    def _forget_old_keys(self, directory: Path) -> None:
        newest_first = sorted(self._key_directories(), key=lambda d: d.stat().st_mtime, reverse=True)
        for stale in newest_first[KEPT_KEYS:]:
            if stale != directory / self.key:
                shutil.rmtree(stale, ignore_errors=True)

    def _encode(self, name: str, stored: StoredKernel) -> bytes:
        operands = [[o.name, o.word] for o in stored.operands]
        head = json.dumps({"name": name, "key": self.key, "operands": operands}).encode()
        body = head + b"\n" + stored.code
        return MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body

    def _decode(self, name: str, data: bytes) -> StoredKernel | None:
        checksum, _, body = data.removeprefix(MAGIC).partition(b"\n")
        if not data.startswith(MAGIC) or hashlib.sha256(body).hexdigest().encode() != checksum:
            return None
        head, _, code = body.partition(b"\n")
        operands = _operands(head, name, self.key)
        return None if operands is None else StoredKernel(operands, code)


def _operands(head: bytes, name: str, key: str) -> tuple[Operand, ...] | None:
    """What the head of a file of this kernel and key says; None for any other head, JSON or not."""
    try:
        match json.loads(head):
            case {"name": str(named), "key": str(keyed), "operands": list(listed)} if (named, keyed) == (name, key):
                return tuple(Operand(*map(_word, pair)) for pair in listed)
    except (ValueError, TypeError, RecursionError):
        pass
    return None


def _word(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no string")
    return value


def _write_atomically(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
