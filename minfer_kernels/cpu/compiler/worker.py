"""A process that compiles kernels for another one: a line comes in, a JSON line and object code go out.

`compile NAME` is answered with operands and code, `declare NAME` with operands alone.

Numba and what LLVM keeps stay out of the process that runs the model, and several compile at once. It ends with its
stdin, or when nothing was asked for a while.
"""

from __future__ import annotations

import json
import select
import sys
from typing import TYPE_CHECKING

from minfer_kernels.cpu.compiler.features import HostFeatures, Isa, Machine

if TYPE_CHECKING:
    from minfer_kernels.cpu.compiler.compile import KernelCompiler

IDLE_SECONDS = 30.0


def main(isa: str) -> None:
    """Answer until stdin ends; what can't be compiled is answered with {"error": ...}."""
    from minfer_kernels.cpu.compiler.compile import KernelCompiler

    compiler = KernelCompiler(Machine.for_isa(HostFeatures.detect(), Isa(isa)))
    out = sys.stdout.buffer
    while request := _next_request():
        try:
            head, code = _answer(compiler, *request)
        except Exception as error:
            head, code = {"error": f"{type(error).__name__}: {error}"}, b""
        out.write(json.dumps({**head, "bytes": len(code)}).encode() + b"\n" + code)
        out.flush()


def _answer(compiler: KernelCompiler, what: str, name: str) -> tuple[dict[str, object], bytes]:
    from minfer_kernels.cpu.compiler.kernel import resolve_kernel, symbol_of

    kernel = resolve_kernel(name)
    code = compiler.object_code(kernel, symbol_of(name)) if what == "compile" else b""
    return {"operands": [[o.name, o.word] for o in kernel.operands]}, code


def _next_request() -> list[str]:
    """The next line's words; none at the end, or when none came for a while."""
    # Not by a timer: in a process that was stopped for longer it would come before a request that waits.
    ready, _, _ = select.select([sys.stdin], [], [], IDLE_SECONDS)
    return sys.stdin.readline().split() if ready else []


if __name__ == "__main__":
    main(sys.argv[1])
