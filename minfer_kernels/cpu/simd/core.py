"""SIMD values and primitives as Numba sees them: how a kernel's Python becomes LLVM vectors.

A `Vec` is a Numba type whose machine representation is an LLVM vector. An `Op` is a primitive with fixed
operand types; its LLVM code is chosen, while a kernel compiles, by the instruction set of the `Machine` that
the compile context carries. Only kernel modules import this: a process with a warm cache never does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import builtin_registry as lowering_registry
from numba.core.typing.templates import AbstractTemplate, ConcreteTemplate, infer_global, signature
from numba.extending import models, register_model

from minfer_kernels.cpu.compiler.features import Isa, Machine

Emit = Callable[..., Any]

I1 = ir.IntType(1)
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
F32 = ir.FloatType()
F16 = ir.HalfType()
V8F32 = ir.VectorType(F32, 8)
V8F16 = ir.VectorType(F16, 8)
V8I32 = ir.VectorType(I32, 8)
V8I16 = ir.VectorType(I16, 8)
V8I8 = ir.VectorType(I8, 8)


_INPLACE = {
    operator.add: operator.iadd,
    operator.sub: operator.isub,
    operator.mul: operator.imul,
    operator.truediv: operator.itruediv,
    operator.and_: operator.iand,
    operator.or_: operator.ior,
    operator.xor: operator.ixor,
}


class Vec(types.Type):
    """A SIMD value of `count` lanes of the LLVM type `lane`."""

    def __init__(self, name: str, lane: ir.Type, count: int) -> None:
        self.lane = lane
        self.count = count
        super().__init__(name=name)

    @property
    def llvm(self) -> ir.VectorType:
        """The LLVM vector type."""
        return ir.VectorType(self.lane, self.count)


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vec: Vec) -> None:
        super().__init__(manager, vec, vec.llvm)


f32x8 = Vec("f32x8", F32, 8)
i32x8 = Vec("i32x8", I32, 8)
i16x16 = Vec("i16x16", I16, 16)
i8x32 = Vec("i8x32", I8, 32)
mask8 = Vec("mask8", I1, 8)

i64 = types.int64
i32 = types.int32
f32 = types.float32
void = types.void


class Op:
    """A primitive that kernels call by name; `variant` adds code for one instruction set.

    Emitters take (builder, *operands), or (builder, machine, *operands) where `by_machine`, and return the LLVM
    value, or None for a void primitive.
    """

    def __init__(self, name: str, emit: Emit, by_machine: bool) -> None:
        self.name = name
        self.by_machine = by_machine
        self.emitters: dict[Isa, Emit] = {Isa.PORTABLE: emit}

    def variant(self, isa: Isa) -> Callable[[Emit], Emit]:
        """Register the decorated emitter for `isa`; other instruction sets keep the portable one."""

        def register(emit: Emit) -> Emit:
            self.emitters[isa] = emit
            return emit

        return register

    def emit(self, machine: Machine, builder: ir.IRBuilder, args: Sequence[Any]) -> Any:
        """Emit the primitive's code for `machine`."""
        emit = self.emitters.get(machine.isa, self.emitters[Isa.PORTABLE])
        return emit(builder, machine, *args) if self.by_machine else emit(builder, *args)

    def __call__(self, *_operands: Any) -> Any:
        """Only compiled kernels can call a primitive."""
        raise TypeError(f"the SIMD primitive {self.name} exists in compiled kernels only")

    def __repr__(self) -> str:
        return f"Op({self.name})"


def op(result: Any, *operands: Any, operators: Sequence[Any] = (), by_machine: bool = False) -> Callable[[Emit], Op]:
    """Make a primitive from an emitter, typed `result(*operands)`; `operators` (say `operator.add`) also mean it."""

    def wrap(emit: Emit) -> Op:
        primitive = Op(emit.__name__, emit, by_machine)
        case = signature(result, *operands)
        template = type(f"{emit.__name__}_typing", (ConcreteTemplate,), {"key": primitive, "cases": [case]})
        infer_global(primitive, types.Function(template))

        def lower(context: Any, builder: ir.IRBuilder, _sig: Any, args: Sequence[Any]) -> Any:
            value = primitive.emit(context.machine, builder, args)
            return context.get_dummy_value() if value is None else value

        lowering_registry.lower(primitive, *operands)(lower)
        inplace = [_INPLACE[operation] for operation in operators if operation in _INPLACE]
        for operation in (*operators, *inplace):
            typing = type(f"{emit.__name__}_operator", (ConcreteTemplate,), {"key": operation, "cases": [case]})
            register: Any = infer_global(operation)
            register(typing)
            lowering_registry.lower(operation, *operands)(lower)
        return primitive

    return wrap


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let kernels call `function` (more kernel Python), inlined; typed at each call by the operands it gets."""

    class Typing(AbstractTemplate):
        key = function

        def generic(self, args: Any, kws: Any) -> Any:
            if kws:
                raise TypeError(f"{function.__name__}: inlined kernel functions take positional operands only")
            return self.context.kernel_compiler.compile_inline(function, args).signature

    Typing.__name__ = f"{function.__name__}_typing"
    infer_global(function, types.Function(Typing))

    def lower(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[Any]) -> Any:
        compiled = context.typing_context.kernel_compiler.compile_inline(function, sig.args)
        context.add_linking_libs([compiled.library])
        return context.call_internal_no_propagate(builder, compiled.fndesc, sig, args)[1]

    lowering_registry.lower(function, types.VarArg(types.Any))(lower)
    return function


def const(vector: ir.VectorType, value: float) -> ir.Constant:
    """A constant with `value` in every lane."""
    return ir.Constant(vector, [value] * vector.count)


def lanes(vector: ir.VectorType, values: Sequence[float]) -> ir.Constant:
    """A constant with the given lanes."""
    return ir.Constant(vector, list(values))


def pointer(b: ir.IRBuilder, address: Any, pointee: ir.Type) -> Any:
    """An integer address as a typed pointer."""
    return b.inttoptr(address, pointee.as_pointer())


def load(b: ir.IRBuilder, address: Any, what: ir.Type, align: int) -> Any:
    """Load `what` from an integer address aligned to `align` bytes."""
    value: Any = b.load(pointer(b, address, what))
    value.align = align
    return value


def store(b: ir.IRBuilder, address: Any, value: Any, align: int) -> None:
    """Store a value to an integer address aligned to `align` bytes."""
    instruction: Any = b.store(value, pointer(b, address, value.type))
    instruction.align = align


def call(b: ir.IRBuilder, name: str, result: ir.Type, *args: Any) -> Any:
    """Call an LLVM intrinsic or a C function by name, declaring it where needed."""
    function_type = ir.FunctionType(result, [a.type for a in args])
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, function_type, name)
    return b.call(function, args)


def splat(b: ir.IRBuilder, scalar: Any, vector: ir.VectorType) -> Any:
    """Broadcast a scalar to every lane."""
    undefined = ir.Constant(vector, ir.Undefined)
    first = b.insert_element(undefined, scalar, ir.Constant(I32, 0))
    return b.shuffle_vector(first, undefined, const(ir.VectorType(I32, vector.count), 0))


def shuffle(b: ir.IRBuilder, x: Any, order: Sequence[int]) -> Any:
    """Lanes of `x` in the given order; a shorter or longer order makes a vector of that many lanes."""
    return b.shuffle_vector(x, ir.Constant(x.type, ir.Undefined), lanes(ir.VectorType(I32, len(order)), order))


def lane(b: ir.IRBuilder, x: Any, index: int) -> Any:
    """One lane as a scalar."""
    return b.extract_element(x, ir.Constant(I32, index))


@op(i64)
def stack_1k(b: ir.IRBuilder) -> Any:
    """The address of 1 KiB of this call's own stack, 64-byte aligned; each place in the source has its own."""
    room: Any = cgutils.alloca_once(b, ir.ArrayType(I8, 1024))
    room.align = 64
    return b.ptrtoint(room, I64)
