"""Kernels compiled by other processes: the same objects, and clear ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minfer_kernels.cpu.compiler.compile import KernelCompiler
from minfer_kernels.cpu.compiler.features import HostFeatures, Isa, Machine
from minfer_kernels.cpu.compiler.kernel import resolve_kernel, symbol_of
from minfer_kernels.cpu.compiler.workers import CompileWorkers, WorkerError

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


def test_the_objects_are_those_that_this_process_makes() -> None:
    workers = CompileWorkers(2, Isa.PORTABLE.value)
    compiler = KernelCompiler(Machine.for_isa(HostFeatures.detect(), Isa.PORTABLE))
    begun: list[str] = []
    try:
        found = workers.compile(NAMES, begun.append)
    finally:
        workers.close()
    assert begun == NAMES
    for name, stored in found.items():
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
