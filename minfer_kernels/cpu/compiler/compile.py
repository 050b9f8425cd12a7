"""One kernel to one native object file: Numba types and lowers it, LLVM optimizes and emits it.

The compile context is our own (`KernelContext` carries the `Machine`), apart from Numba's process-wide CPU
target: nothing is JIT-compiled on the way and no Numba runtime is initialized, which is most of njit's cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
from numba.core import cpu, typed_passes, types, untyped_passes
from numba.core.codegen import AOTCodeLibrary, AOTCPUCodegen
from numba.core.compiler import CompilerBase, Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.typing import mathdecl
from numba.core.typing.context import Context

from minfer_kernels.cpu.compiler.features import Machine
from minfer_kernels.cpu.compiler.kernel import THREAD_PARAMETERS, Kernel

_WORD_TYPES = {"i64": types.int64, "f32": types.float32}


class _Library(AOTCodeLibrary):
    """Links, and leaves all optimization to the one pass over the finished kernel."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass


class _Codegen(AOTCPUCodegen):
    """Code for a given machine rather than for the host."""

    _library_class = _Library

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        super().__init__("minfer", cpu_name=machine.cpu)

    def _customize_tm_features(self) -> Any:
        return self._machine.features

    @property
    def target_machine(self) -> llvm.TargetMachine:
        return self._tm


class _TypingContext(Context):
    """Numba's typing context, knowing the compiler that inlined functions are compiled with."""

    def __init__(self, kernel_compiler: KernelCompiler) -> None:
        self.kernel_compiler = kernel_compiler
        super().__init__()

    def load_additional_registries(self) -> None:
        """Load math alone: NumPy's many meanings of + and * are tried before ours and cost a sixth of the time."""
        self.install_registry(mathdecl.registry)


class KernelContext(cpu.CPUContext):
    """Numba's lowering context for one `machine`."""

    def __init__(self, typing_context: _TypingContext, machine: Machine) -> None:
        self.machine = machine
        super().__init__(typing_context)

    @global_compiler_lock
    def init(self) -> None:
        """Set the code generator up; Numba calls this from its constructor."""
        self.is32bit = False
        self._internal_codegen = _Codegen(self.machine)

    def load_additional_registries(self) -> None:
        """Load what kernels use: numbers, ranges, tuples and math; arrays, strings and the runtime stay out."""
        from numba.cpython import builtins, mathimpl, numbers, rangeobj, tupleobj  # noqa: F401

        self.install_registry(mathimpl.registry)

    def post_lowering(self, mod: Any, library: Any) -> None:
        """Skip linking Numba's runtime: kernels allocate nothing."""


class _Pipeline(CompilerBase):
    """Numba's pipeline without the passes that kernels have no use for."""

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("minfer")
        for run in (
            untyped_passes.TranslateByteCode,
            untyped_passes.FixupArgs,
            untyped_passes.IRProcessing,
            untyped_passes.GenericRewrites,
            untyped_passes.ReconstructSSA,
            typed_passes.NopythonTypeInference,
            typed_passes.PreLowerStripPhis,
            typed_passes.IRLegalization,
            typed_passes.NativeLowering,
            typed_passes.NoPythonBackend,
        ):
            passes.add_pass(run, run.name())
        passes.finalize()
        return [passes]


class KernelCompiler:
    """Compiles kernels for one machine."""

    def __init__(self, machine: Machine) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.machine = machine
        self._typing = _TypingContext(self)
        self._context = KernelContext(self._typing, machine)
        self._inlined: dict[tuple[Callable[..., Any], tuple[Any, ...]], Any] = {}

    def compile_inline(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Numba's compile result of an inlined function for these operand types."""
        key = (function, tuple(types.unliteral(a) for a in args))
        if key not in self._inlined:
            self._inlined[key] = self._compile(function, key[1], None)
        return self._inlined[key]

    @global_compiler_lock
    def object_code(self, kernel: Kernel, symbol: str) -> bytes:
        """The kernel as a relocatable object that exports `symbol` alone."""
        return self._codegen.target_machine.emit_object(self._optimized(kernel, symbol))

    @global_compiler_lock
    def assembly(self, kernel: Kernel, symbol: str = "kernel") -> str:
        """The kernel as assembly text, for people who tune it."""
        return self._codegen.target_machine.emit_assembly(self._optimized(kernel, symbol))

    @property
    def _codegen(self) -> _Codegen:
        codegen: Any = self._context.codegen()
        return codegen

    def _optimized(self, kernel: Kernel, symbol: str) -> Any:
        argument_types = tuple(_WORD_TYPES[p.word] for p in kernel.parameters)
        compiled = self._compile(kernel.body, argument_types, types.void)
        compiled.library._ensure_finalized()
        module = compiled.library._final_module.clone()
        entry = llvm.parse_assembly(_entry_point(kernel, compiled.fndesc.llvm_func_name, symbol))
        module.link_in(entry)
        _hide_all_but(module, symbol)
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.slp_vectorization = False
        passes = llvm.create_pass_builder(self._codegen.target_machine, options)
        passes.getModulePassManager().run(module, passes)
        return module

    def _compile(self, function: Callable[..., Any], args: tuple[Any, ...], result: Any) -> Any:
        flags: Any = Flags()
        flags.no_compile = True
        flags.no_cpython_wrapper = True
        flags.no_cfunc_wrapper = True
        flags.error_model = "numpy"
        flags.forceinline = True
        pipeline: Any = _Pipeline
        return compile_extra(self._typing, self._context, function, args, result, flags, {}, pipeline_class=pipeline)


def _entry_point(kernel: Kernel, body: str, symbol: str) -> str:
    """LLVM IR of `symbol(args, tid, n_threads)`: load each operand's word, call the body."""
    lines, operands, offset = [], ["ptr %ret", "ptr %exc"], 0
    for p in kernel.parameters:
        if p.name in THREAD_PARAMETERS:
            operands.append(f"i64 %{p.name}")
            continue
        lines.append(f"  %{p.name}.at = getelementptr i64, ptr %block, i64 {offset}")
        lines.append(f"  %{p.name}.word = load i64, ptr %{p.name}.at, align 8")
        if p.word == "f32":
            lines.append(f"  %{p.name}.bits = trunc i64 %{p.name}.word to i32")
            lines.append(f"  %{p.name}.value = bitcast i32 %{p.name}.bits to float")
            operands.append(f"float %{p.name}.value")
        else:
            operands.append(f"i64 %{p.name}.word")
        offset += 1
    parameter_types = ", ".join(o.split()[0] for o in operands)
    return "\n".join(
        [
            f'declare i32 @"{body}"({parameter_types})',
            f'define void @"{symbol}"(i64 %args, i64 %tid, i64 %n_threads) {{',
            "  %ret = alloca ptr",
            "  %exc = alloca ptr",
            "  %block = inttoptr i64 %args to ptr",
            *lines,
            f'  %status = call i32 @"{body}"({", ".join(operands)})',
            "  ret void",
            "}",
        ]
    )


def _hide_all_but(module: Any, symbol: str) -> None:
    for function in module.functions:
        if not function.is_declaration and function.name != symbol:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
