"""Kernels by name, and their cache on disk: what is stored is believed only after it verifies."""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpu_harness import ISAS

from minfer_kernels.cpu.compiler.features import HostFeatures, Isa, Machine
from minfer_kernels.cpu.compiler.kernel import F32, Int, Operand, Ptr, kernel
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.compiler.object_cache import KEPT_KEYS, MAGIC, SOURCES, ObjectCache, StoredKernel, cache_key
from minfer_kernels.cpu.runner.tape import TapeBuilder
from minfer_kernels.cpu.runner.threads import ThreadPool, waiting_of

NAME = "elementwise.add"
HOST = HostFeatures.detect()
WAITING = waiting_of(Machine.for_isa(HOST, HOST.best_isa()))
WALKER = {f"walk.{role}[{WAITING}]" for role in ("run", "work", "quit")}
# Loads a kernel from the cache given, runs it on two threads, prints the result and whether numba was imported.
SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.tape import TapeBuilder
from minfer_kernels.cpu.runner.threads import ThreadPool
compiled = []
library = KernelLibrary(None, Path(sys.argv[1]), lambda name, number, total: compiled.append(name))
x, out, rows = np.ones(9, np.float32), np.zeros(9, np.float32), np.array([1], np.int32)
a = lambda array: array.ctypes.data
builder = TapeBuilder(library)
strides = dict(x_stride=0, y_stride=0, out_stride=0)
builder.emit("elementwise.add", x=a(x), y=a(x), out=a(out), rows_at=a(rows), width=9, **strides)
with ThreadPool(library, 2) as pool:
    pool.run(builder.build())
print(out.tolist() == [2.0] * 9, "numba" in sys.modules, len(compiled))
"""


def run_script(cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(cache)], stdout=subprocess.PIPE, text=True)


def output_of(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return out.split()


def adds(cache: Path | None) -> tuple[bool, list[str]]:
    """Whether a fresh library on this cache adds right, and what it had to compile."""
    compiled: list[str] = []
    library = KernelLibrary(None, cache, lambda name, _number, _total: compiled.append(name))
    x, out, rows = np.arange(9, dtype=np.float32), np.zeros(9, np.float32), np.array([1], np.int32)
    builder = TapeBuilder(library)
    builder.emit(
        NAME, x=x.ctypes.data, y=x.ctypes.data, out=out.ctypes.data, rows_at=rows.ctypes.data, width=9,
        x_stride=0, y_stride=0, out_stride=0,
    )  # fmt: skip
    tape = builder.build()
    with ThreadPool(library, 1) as pool:
        pool.run(tape)
    return out.tolist() == (2 * x).tolist(), [name for name in compiled if name not in WALKER]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("warm")
    assert adds(cache) == (True, [NAME])
    return cache


@pytest.fixture
def stored(warm: Path, tmp_path: Path) -> Path:
    """A cache with the walker and the kernel, of this test's own."""
    for path in warm.rglob("*.kernel"):
        copy = tmp_path / path.relative_to(warm)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return tmp_path


def file_of(cache: Path, name: str = NAME) -> Path:
    (path,) = cache.rglob(f"{name}.kernel")
    return path


def test_a_stored_kernel_is_not_compiled_again(stored: Path) -> None:
    assert adds(stored) == (True, [])


def test_a_warm_process_never_imports_numba(stored: Path) -> None:
    assert output_of(run_script(stored)) == ["True", "False", "0"]


def test_two_processes_fill_one_cache(tmp_path: Path) -> None:
    both = [run_script(tmp_path), run_script(tmp_path)]
    assert [output_of(p)[0] for p in both] == ["True", "True"]
    assert output_of(run_script(tmp_path)) == ["True", "False", "0"]
    assert not list(tmp_path.rglob(".writing-*"))


def flip(position: float) -> Callable[[bytes], bytes]:
    def damage(data: bytes) -> bytes:
        at = int(position * (len(data) - 1))
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return damage


DAMAGE = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[:-1],
    "cut in the head": lambda data: data[:40],
    "grown": lambda data: data + b"\0",
    "another program's": lambda data: b"\x7fELF" + bytes(200),
    **{f"a bit at {p}": flip(p) for p in (0.0, 0.01, 0.03, 0.5, 1.0)},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_compiled_again_and_replaced(stored: Path, damage: str) -> None:
    path = file_of(stored)
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[damage](whole))
    assert adds(stored) == (True, [NAME])
    assert adds(stored) == (True, [])


def test_a_file_of_another_kernel_or_key_is_not_believed(stored: Path) -> None:
    path = file_of(stored)
    path.write_bytes(file_of(stored, f"walk.quit[[]{WAITING}]").read_bytes())
    assert adds(stored) == (True, [NAME])
    other_key = ObjectCache(stored, "0" * 24)
    other_key.store(NAME, StoredKernel((Operand("x", "i64"),), b"code"))
    path.write_bytes(file_of(stored / ("0" * 24)).read_bytes())
    assert adds(stored) == (True, [NAME])


def checked(body: bytes) -> bytes:
    """A file with this body and the checksum that fits it."""
    return MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def head_with(**changed: object) -> Callable[[bytes, bytes], bytes]:
    return lambda head, code: json.dumps(json.loads(head) | changed).encode() + b"\n" + code


HEADS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "no JSON": lambda head, code: b"xx\n" + code,
    "no text": lambda head, code: b"\xff\xfe\n" + code,
    "nothing": lambda head, code: b"",
    "a list": lambda head, code: b"[]\n" + code,
    "a number": lambda head, code: b"7\n" + code,
    "deep": lambda head, code: b"[" * 100_000 + b"\n" + code,
    "no operands": lambda head, code: head.replace(b'"operands"', b'"operators"') + b"\n" + code,
    "operands that are a number": head_with(operands=7),
    "operands that are text": head_with(operands="xy"),
    "an operand without a word": head_with(operands=[["x"]]),
    "an operand of three": head_with(operands=[["x", "i64", "y"]]),
    "an operand that is a number": head_with(operands=[7]),
    "an operand named 7": head_with(operands=[[7, "i64"]]),
    "a name that is a list": head_with(name=[NAME]),
}


@pytest.mark.parametrize("change", HEADS)
def test_a_malformed_head_under_a_good_checksum_is_compiled_again(stored: Path, change: str) -> None:
    path = file_of(stored)
    _, _, head, code = path.read_bytes().split(b"\n", 3)
    assert path.read_bytes() == checked(head + b"\n" + code)
    path.write_bytes(checked(HEADS[change](head, code)))
    assert adds(stored) == (True, [NAME])
    assert adds(stored) == (True, [])


def bundle_of(cache: Path) -> Path:
    (path,) = cache.rglob("*.bundle")
    return path


def test_a_warm_process_reads_the_bundle_alone(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert adds(stored) == (True, [])
    held = bundle_of(stored).read_bytes()
    monkeypatch.setattr(ObjectCache, "load", lambda _self, name: pytest.fail(f"read the file of {name}"))
    assert adds(stored) == (True, [])
    assert bundle_of(stored).read_bytes() == held


def test_the_bundle_grows_by_what_is_loaded(stored: Path) -> None:
    assert adds(stored) == (True, [])
    KernelLibrary(None, stored).load(["copy.rows"])
    assert set(ObjectCache(stored, bundle_of(stored).parent.name).load_bundle()) == {NAME, "copy.rows", *WALKER}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_bundle_is_replaced_and_nothing_compiled(stored: Path, damage: str) -> None:
    assert adds(stored) == (True, [])
    whole = bundle_of(stored).read_bytes()
    bundle_of(stored).write_bytes(DAMAGE[damage](whole))
    assert adds(stored) == (True, [])
    key = bundle_of(stored).parent.name
    assert set(ObjectCache(stored, key).load_bundle()) == {NAME, *WALKER}


@pytest.mark.parametrize("change", HEADS)
def test_a_malformed_head_of_a_bundle_is_not_believed(stored: Path, change: str) -> None:
    assert adds(stored) == (True, [])
    magic, _, head, code = bundle_of(stored).read_bytes().split(b"\n", 3)
    body = HEADS[change](head, code).replace(b'"kernels"', b'"kernel"')
    bundle_of(stored).write_bytes(magic + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    assert adds(stored) == (True, [])


@pytest.mark.parametrize(
    "kernels",
    [7, [7], [[]], [[7, [], 0, [0, 0]]], [["a", 7, 0, [0, 0]]], [["a", [], "0", [0, 0]]], [["a", [], 10**9, None]]],
)
def test_malformed_kernels_of_a_bundle_are_not_believed(stored: Path, kernels: object) -> None:
    assert adds(stored) == (True, [])
    magic, _, head, code = bundle_of(stored).read_bytes().split(b"\n", 3)
    body = json.dumps(json.loads(head) | {"kernels": kernels}).encode() + b"\n" + code
    bundle_of(stored).write_bytes(magic + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    assert adds(stored) == (True, [])


def test_a_bundle_of_another_key_is_not_believed(stored: Path) -> None:
    assert adds(stored) == (True, [])
    bundle = bundle_of(stored)
    other = ObjectCache(stored, "0" * 24)
    for path in bundle.parent.glob("*.kernel"):
        other.store(path.stem, StoredKernel((), b"no code"))
    other.store_bundle({path.stem: StoredKernel((), b"no code") for path in bundle.parent.glob("*.kernel")})
    foreign = stored / ("0" * 24) / bundle.name
    assert set(other.load_bundle()) == {NAME, *WALKER}
    bundle.write_bytes(foreign.read_bytes())
    assert adds(stored) == (True, [])


@pytest.mark.parametrize("damage", ["empty", "a bit at 0.5"])
def test_the_kernel_s_own_file_counts_not_the_bundle(stored: Path, damage: str) -> None:
    assert adds(stored) == (True, [])
    path = file_of(stored)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert adds(stored) == (True, [NAME])
    path.unlink()
    assert adds(stored) == (True, [NAME])
    assert adds(stored) == (True, [])


# Imports what kernels are made of, and prints every module of ours that came along.
CLOSURE = """
import importlib, pkgutil, sys
import minfer_kernels.cpu.compiler.compile
from minfer_kernels.cpu import kernels
for module in pkgutil.walk_packages(kernels.__path__, kernels.__name__ + "."):
    importlib.import_module(module.name)
print(*(m.__file__ for n, m in sys.modules.items() if n.startswith("minfer_")))
"""


def test_the_key_covers_every_source_that_kernels_are_made_of() -> None:
    root = Path(__file__).parents[2]
    printed = subprocess.run([sys.executable, "-c", CLOSURE], stdout=subprocess.PIPE, text=True, check=True, cwd=root)
    files = [Path(name).relative_to(root) for name in printed.stdout.split()]
    assert Path("minfer_kernels/cpu/kernels/matmul.py") in files
    covered = [root / source for source in SOURCES]
    assert all(path.exists() for path in covered)
    packages = ("minfer_ir/__init__.py", "minfer_kernels/__init__.py", "minfer_kernels/cpu/__init__.py")
    others = [f for f in files if not any((root / f).is_relative_to(c) for c in covered)]
    assert {f.as_posix() for f in others} <= {*packages, "minfer_kernels/cpu/runner/__init__.py"}


def test_a_directory_in_a_file_s_place_is_survived(stored: Path) -> None:
    path = file_of(stored)
    path.unlink()
    path.mkdir()
    assert adds(stored) == (True, [NAME])


def test_an_unwritable_directory_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory can be made here")
    with caplog.at_level(logging.WARNING):
        library = KernelLibrary(None, blocked / "cache")
        library.load([NAME, "elementwise.mul"])
        library.load(["copy.rows"])
    assert library.cache_problem is not None and str(blocked) in library.cache_problem
    assert [r.getMessage() for r in caplog.records] == [library.cache_problem]


def test_no_directory_caches_nothing() -> None:
    assert adds(None) == (True, [NAME])
    assert KernelLibrary(None, None).cache_info().files == 0


def test_info_counts_and_clear_empties(stored: Path) -> None:
    library = KernelLibrary(None, stored)
    (stored / "notes.txt").write_text("not a kernel")
    info = library.cache_info()
    assert (info.directory, info.files) == (stored, 4)
    assert info.bytes == sum(p.stat().st_size for p in stored.rglob("*.kernel"))
    library.clear()
    assert library.cache_info().files == 0
    assert [p.name for p in stored.iterdir()] == ["notes.txt"]
    assert adds(stored) == (True, [NAME])


def test_old_keys_are_forgotten(tmp_path: Path) -> None:
    for i in range(KEPT_KEYS + 4):
        ObjectCache(tmp_path, f"{i:024x}").store(NAME, StoredKernel((), b""))
    assert len(list(tmp_path.iterdir())) == KEPT_KEYS
    assert (tmp_path / f"{KEPT_KEYS + 3:024x}").is_dir()


def test_progress_counts_what_compiles(stored: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    library = KernelLibrary(None, stored, lambda *call: calls.append(call))
    library.load([NAME, "elementwise.mul", "elementwise.mul", "copy.rows"])
    assert calls == [("elementwise.mul", 1, 2), ("copy.rows", 2, 2)]
    library.load(["copy.rows"])
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("add", "not of the form"),
        ("../elementwise.add", "not of the form"),
        ("elementwise.add[", "not of the form"),
        ("nonsense.add", "no module"),
        ("elementwise.nonsense", "has no kernel nonsense"),
        ("elementwise.silu_lanes", "has no kernel"),
        ("walk.run", "has no kernel run"),
        ("elementwise.add[3]", "has no kernel family add"),
    ],
)
def test_a_wrong_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelLibrary(None, None).load([name])


def test_operands_are_known_without_compiling(stored: Path) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("compiled")

    library = KernelLibrary(None, stored, refuse)
    names = ["x", "y", "out", "rows_at", "width", "x_stride", "y_stride", "out_stride"]
    assert [o.name for o in library.operands(NAME)] == names
    assert {o.name: o.word for o in library.operands("elementwise.scale")}["factor"] == "f32"


def test_a_kernel_declares_its_words() -> None:
    @kernel
    def body(x: Ptr, n: Int, factor: F32, tid: Int, n_threads: Int) -> None:
        pass

    assert [(o.name, o.word) for o in body.operands] == [("x", "i64"), ("n", "i64"), ("factor", "f32")]
    with pytest.raises(TypeError, match="parameter y is annotated 'float'"):

        @kernel
        def wrong(y: float) -> None:
            pass


def test_the_key_names_sources_and_machine(tmp_path: Path) -> None:
    machines = [Machine.for_isa(HOST, isa) for isa in ISAS]
    assert len({cache_key(m) for m in machines}) == len(ISAS)
    source = tmp_path / "minfer_kernels/cpu/kernels/a.py"
    source.parent.mkdir(parents=True)
    keys = set()
    for text in ("x = 1", "x = 2"):
        source.write_text(text)
        keys.add(cache_key(machines[0], tmp_path))
    source.rename(source.with_name("b.py"))
    keys.add(cache_key(machines[0], tmp_path))
    assert len(keys) == 3


def test_an_isa_that_the_host_lacks_is_refused() -> None:
    plain = HostFeatures("x86_64-unknown-linux-gnu", "x86-64", frozenset({"sse2", "fma"}), "linux")
    assert plain.best_isa() is Isa.PORTABLE
    with pytest.raises(ValueError, match="isa avx2 needs avx2, f16c, which x86-64 lacks"):
        Machine.for_isa(plain, Isa.AVX2)
    assert Machine.for_isa(plain, Isa.PORTABLE).features == ""


def test_an_avx2_build_keeps_to_avx2() -> None:
    every = {"avx2", "fma", "f16c"}
    wide = {"avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512vnni", "avxvnni", "amx-int8"}
    host = HostFeatures("x86_64-unknown-linux-gnu", "sapphirerapids", frozenset(every | wide), "linux")
    assert host.best_isa() is Isa.AVX512_VNNI
    features = Machine.for_isa(host, Isa.AVX2).features.split(",")
    assert {f"-{f}" for f in wide} <= set(features) and "+avx2" in features
    assert "+avx512vnni" in Machine.for_isa(host, Isa.AVX512_VNNI).features.split(",")
    tiles = replace(host, features=host.features | {"amx-tile"})
    assert tiles.best_isa() is Isa.AVX512_AMX and tiles.missing(Isa.AVX512_VNNI) == frozenset()
    assert [isa.lanes for isa in Isa] == [16, 16, 8, 8]
    assert [isa.includes for isa in Isa] == [tuple(Isa)[i:] for i in range(len(Isa))]
