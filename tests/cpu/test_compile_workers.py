"""Kernels compiled by other processes: the same objects, and clear ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minfer_kernels.cpu.compiler import workers as compile_workers
from minfer_kernels.cpu.compiler.compile import KernelCompiler
from minfer_kernels.cpu.compiler.features import HostFeatures, Isa, Machine
from minfer_kernels.cpu.compiler.kernel import resolve_kernel, symbol_of
from minfer_kernels.cpu.compiler.workers import CompileWorkers, WorkerEndedError, WorkerError

NAMES = ["walk.quit[sleep]", "walk.quit[futex202]"]
ALONE = """
import sys
from pathlib import Path
from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.compiler.library import KernelLibrary
heard = []
library = KernelLibrary(Isa.PORTABLE, Path(sys.argv[1]), lambda *told: heard.append(told), processes=2)
assert [o.name for o in library.operands("walk.quit[sleep]")] == ["sync"], library.operands("walk.quit[sleep]")
assert set(library.load(["walk.quit[sleep]", "walk.work[sleep]"])) == {"walk.quit[sleep]", "walk.work[sleep]"}
assert [(number, count) for _, number, count in heard] == [(1, 2), (2, 2)], heard
assert "numba" not in sys.modules
"""
KILLED_AT_WORK = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from minfer_kernels.cpu.compiler import worker
answer = worker._answer
def fatal(compiler, what, name):
    if name.startswith("walk.quit"):
        os.kill(os.getpid(), signal.SIGKILL)
    return answer(compiler, what, name)
worker._answer = fatal
worker.main(sys.argv[1])
"""
HALF_AN_ANSWER = """
import sys
sys.stdin.readline()
print('{"operands": [], "bytes": 10}', flush=True)
sys.stdout.write("short")
"""
LEFT_ALONE = """
import logging, sys
from pathlib import Path
from minfer_kernels.cpu.compiler import workers
from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.compiler.library import KernelLibrary
workers.COMMAND = sys.argv[2]
logging.basicConfig(format="%(message)s")
names, heard = ["walk.quit[sleep]", "walk.work[sleep]", "walk.quit[futex202]"], []
library = KernelLibrary(Isa.PORTABLE, Path(sys.argv[1]), lambda *told: heard.append(told), processes=int(sys.argv[3]))
loaded = library.load(names)
assert sorted(loaded) == sorted(names) and all(kernel.address for kernel in loaded.values())
assert sorted(name for name, _, _ in heard) == sorted(names), heard
assert [told[1:] for told in heard] == [(1, 3), (2, 3), (3, 3)], heard
again = KernelLibrary(Isa.PORTABLE, Path(sys.argv[1]), lambda *told: sys.exit(f"compiled again: {told}"))
assert again.load(names).keys() == loaded.keys()
"""
DECLARED_HERE = """
import logging, sys
from minfer_kernels.cpu.compiler import workers
from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.compiler.library import KernelLibrary
workers.COMMAND = sys.argv[1]
logging.basicConfig(format="%(message)s")
assert [o.name for o in KernelLibrary(Isa.PORTABLE, processes=1).operands("walk.quit[spin]")] == ["sync"]
"""


def test_the_objects_are_those_that_this_process_makes() -> None:
    workers = CompileWorkers(2, Isa.PORTABLE.value)
    compiler = KernelCompiler(Machine.for_isa(HostFeatures.detect(), Isa.PORTABLE))
    begun: list[str] = []
    try:
        compiled = workers.compile(NAMES, begun.append)
    finally:
        workers.close()
    assert begun == NAMES
    assert (compiled.found.keys(), compiled.lost) == (set(NAMES), {})
    for name, stored in compiled.found.items():
        kernel = resolve_kernel(name)
        assert stored.operands == kernel.operands
        assert stored.code == compiler.object_code(kernel, symbol_of(name))


def test_a_name_that_is_no_kernel_is_an_error_and_leaves_nothing_behind() -> None:
    workers = CompileWorkers(1, Isa.PORTABLE.value)
    try:
        with pytest.raises(WorkerError, match=r"kernel walk\.none: ValueError: .*has no kernel none"):
            workers.compile(["walk.none"], lambda _: None)
        with pytest.raises(WorkerError, match=r"walk\.none"):
            workers.operands("walk.none")
        assert workers.operands(NAMES[0]) == resolve_kernel(NAMES[0]).operands
    finally:
        workers.close()


def test_a_library_with_processes_needs_no_numba(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", ALONE, str(tmp_path)], check=True)


def test_an_ended_process_loses_what_it_worked_on_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_workers, "COMMAND", KILLED_AT_WORK)
    killed = "the compiling process ended with SIGKILL"
    others = ["walk.work[sleep]", "walk.work[futex202]"]
    workers = CompileWorkers(2, Isa.PORTABLE.value)
    try:
        compiled = workers.compile([NAMES[0], *others], lambda _: None)
        assert (set(compiled.found), compiled.lost) == (set(others), {NAMES[0]: killed})
        with pytest.raises(WorkerEndedError, match=killed):
            workers.operands(NAMES[1])
        assert set(workers.compile(others[:1], lambda _: None).found) == {others[0]}
    finally:
        workers.close()


def test_once_all_have_ended_the_rest_is_lost_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_workers, "COMMAND", HALF_AN_ANSWER)
    begun: list[str] = []
    workers = CompileWorkers(1, Isa.PORTABLE.value)
    try:
        compiled = workers.compile(NAMES, begun.append)
    finally:
        workers.close()
    assert begun == NAMES[:1]
    assert compiled.found == {}
    assert compiled.lost == {
        NAMES[0]: "the compiling process ended with 0",
        NAMES[1]: "all compiling processes ended",
    }


@pytest.mark.parametrize("processes", [1, 2])
def test_a_library_compiles_what_ended_processes_left_and_says_so(tmp_path: Path, processes: int) -> None:
    command = [sys.executable, "-c", LEFT_ALONE, str(tmp_path), KILLED_AT_WORK, str(processes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    compiled = done.stderr.splitlines()
    killed = "the compiling process ended with SIGKILL"
    assert f"kernel walk.quit[sleep]: {killed}; it compiles in this one" in compiled
    assert all(line.endswith("; it compiles in this one") for line in compiled)
    assert len(compiled) == (3 if processes == 1 else 2)


def test_a_library_reads_a_kernel_s_source_itself_when_the_process_has_ended() -> None:
    command = [sys.executable, "-c", DECLARED_HERE, KILLED_AT_WORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    killed = "the compiling process ended with SIGKILL"
    assert done.stderr == f"kernel walk.quit[spin]: {killed}; its source is read in this one\n"
