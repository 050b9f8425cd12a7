"""SIMD values and primitives as Numba sees them: how a kernel's Python becomes LLVM vectors.

A `Vec` is a Numba type whose machine representation is an LLVM vector. An `Op` is a primitive with fixed
operand types; its LLVM code is chosen, while a kernel compiles, by the instruction set of the `Machine` that
the compile context carries. Vectors of eight and of sixteen 32-bit lanes work on every instruction set: LLVM
splits what the machine's registers don't hold. Only kernel modules import this: a process with a warm cache
never does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types
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
f32x16 = Vec("f32x16", F32, 16)
i32x16 = Vec("i32x16", I32, 16)
i16x32 = Vec("i16x32", I16, 32)
i8x64 = Vec("i8x64", I8, 64)
mask16 = Vec("mask16", I1, 16)

_WIDENED = {f32x8: f32x16, i32x8: i32x16, i16x16: i16x32, i8x32: i8x64, mask8: mask16}


@dataclass(frozen=True, slots=True)
class Width:
    """The vectors of `n` float32 or int32 lanes; a narrower number fills as many bits as `n` of 32 where it can."""

    n: int
    f32: Vec
    i32: Vec
    i16: Vec
    i8: Vec
    mask: Vec

    def of(self, lane: ir.Type) -> ir.VectorType:
        """The LLVM vector of `n` lanes of another type."""
        return ir.VectorType(lane, self.n)


WIDTHS = (Width(8, f32x8, i32x8, i16x16, i8x32, mask8), Width(16, f32x16, i32x16, i16x32, i8x64, mask16))
"""Eight lanes and sixteen: primitives whose operands do not tell their width are made once for each."""

i64 = types.int64
i32 = types.int32
f32 = types.float32
void = types.void


class Op:
    """A primitive that kernels call by name; `variant` adds code for one instruction set.

    `isa` is the least instruction set that has it. Emitters take (builder, *operands), or (builder, machine, *operands)
    where `by_machine`, and return the LLVM value, or None for a void primitive.
    """

    def __init__(self, name: str, emit: Emit, by_machine: bool, isa: Isa = Isa.PORTABLE) -> None:
        self.name = name
        self.by_machine = by_machine
        self.isa = isa
        self.emitters: dict[Isa, Emit] = {isa: emit}

    def variant(self, isa: Isa) -> Callable[[Emit], Emit]:
        """Register the decorated emitter for `isa` and what includes it; others keep the portable one."""

        def register(emit: Emit) -> Emit:
            self.emitters[isa] = emit
            return emit

        return register

    def emit(self, machine: Machine, builder: ir.IRBuilder, args: Sequence[Any]) -> Any:
        """Emit the primitive's code for `machine`; TypeError where its instruction set lacks the primitive."""
        if self.isa not in machine.isa.includes:
            raise TypeError(f"the SIMD primitive {self.name} needs isa {self.isa}, not {machine.isa}")
        emit = next(self.emitters[isa] for isa in machine.isa.includes if isa in self.emitters)
        return emit(builder, machine, *args) if self.by_machine else emit(builder, *args)

    def __call__(self, *_operands: Any) -> Any:
        """Only compiled kernels can call a primitive."""
        raise TypeError(f"the SIMD primitive {self.name} exists in compiled kernels only")

    def __repr__(self) -> str:
        return f"Op({self.name})"


def op(
    result: Any,
    *operands: Any,
    operators: Sequence[Any] = (),
    by_machine: bool = False,
    both_widths: bool = False,
    name: str | None = None,
    isa: Isa = Isa.PORTABLE,
) -> Callable[[Emit], Op]:
    """Make a primitive from an emitter, typed `result(*operands)`; `operators` (say `operator.add`) also mean it.

    With `both_widths` the primitive takes the sixteen-lane vectors in place of the eight-lane ones too: its
    emitter goes by the types of the LLVM values that it gets. Kernels for less than `isa` cannot use it.
    """
    cases = [signature(result, *operands)]
    if both_widths:
        cases.append(signature(widened(result), *map(widened, operands)))

    def wrap(emit: Emit) -> Op:
        primitive = Op(name or emit.__name__, emit, by_machine, isa)
        template = type(f"{primitive.name}_typing", (ConcreteTemplate,), {"key": primitive, "cases": cases})
        infer_global(primitive, types.Function(template))

        def lower(context: Any, builder: ir.IRBuilder, _sig: Any, args: Sequence[Any]) -> Any:
            value = primitive.emit(context.machine, builder, args)
            return context.get_dummy_value() if value is None else value

        for case in cases:
            lowering_registry.lower(primitive, *case.args)(lower)
        inplace = [_INPLACE[operation] for operation in operators if operation in _INPLACE]
        for operation in (*operators, *inplace):
            typing = type(f"{primitive.name}_operator", (ConcreteTemplate,), {"key": operation, "cases": cases})
            register: Any = infer_global(operation)
            register(typing)
            for case in cases:
                lowering_registry.lower(operation, *case.args)(lower)
        return primitive

    return wrap


def widened(operand: Any) -> Any:
    """The sixteen-lane counterpart of a type: of a vector, a tuple of them, or itself."""
    if isinstance(operand, types.UniTuple):
        return types.UniTuple(widened(operand.dtype), operand.count)
    return _WIDENED.get(operand, operand)


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let kernels call `function` (more kernel Python), inlined; typed at each call by the operands it gets."""
    _inline_as(function, lambda _machine: function)
    return function


def inline_by_isa(functions: Mapping[Isa, Callable[..., Any]]) -> Callable[..., Any]:
    """A function that kernels inline: of `functions` (kernel Python), the one for the best isa that the machine has."""

    def chosen(*_operands: Any) -> Any:
        raise TypeError("a function that is chosen by instruction set exists in compiled kernels only")

    _inline_as(chosen, lambda machine: next(functions[isa] for isa in machine.isa.includes if isa in functions))
    return chosen


def _inline_as(name: Callable[..., Any], function_for: Callable[[Machine], Callable[..., Any]]) -> None:
    """Make `name`, where kernel Python calls it, mean `function_for` the machine that is compiled for."""

    class Typing(AbstractTemplate):
        key = name

        def generic(self, args: Any, kws: Any) -> Any:
            if kws:
                raise TypeError(f"{name.__name__}: inlined kernel functions take positional operands only")
            compiler = self.context.kernel_compiler
            return compiler.compile_inline(function_for(compiler.machine), args).signature

    Typing.__name__ = f"{name.__name__}_typing"
    infer_global(name, types.Function(Typing))

    def lower(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[Any]) -> Any:
        compiler = context.typing_context.kernel_compiler
        compiled = compiler.compile_inline(function_for(compiler.machine), sig.args)
        context.add_linking_libs([compiled.library])
        return context.call_internal_no_propagate(builder, compiled.fndesc, sig, args)[1]

    lowering_registry.lower(name, types.VarArg(types.Any))(lower)


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


def as_lanes(vector: ir.VectorType, lane: ir.Type) -> ir.VectorType:
    """The vector type of as many lanes of another type."""
    return ir.VectorType(lane, vector.count)


def suffix(vector: ir.VectorType) -> str:
    """The vector type as intrinsics spell it, e.g. `v8f32`."""
    lane = vector.element
    return f"v{vector.count}{f'i{lane.width}' if isinstance(lane, ir.IntType) else 'f32'}"


def shuffle(b: ir.IRBuilder, x: Any, order: Sequence[int]) -> Any:
    """Lanes of `x` in the given order; a shorter or longer order makes a vector of that many lanes."""
    return b.shuffle_vector(x, ir.Constant(x.type, ir.Undefined), lanes(ir.VectorType(I32, len(order)), order))


def lane(b: ir.IRBuilder, x: Any, index: int) -> Any:
    """One lane as a scalar."""
    return b.extract_element(x, ir.Constant(I32, index))


def stack_room(nbytes: int) -> Op:
    """A primitive () to the address of `nbytes` of the call's own stack, 64-byte aligned; each place in the source has
    its own.
    """

    def emit(b: ir.IRBuilder) -> Any:
        return b.ptrtoint(stack_array(b, nbytes), I64)

    return op(i64, name=f"stack_room_{nbytes}")(emit)


def stack_array(b: ir.IRBuilder, nbytes: int) -> Any:
    """A pointer to `nbytes` of the function's stack, 64-byte aligned and not initialized, as Numba's would be."""
    with b.goto_entry_block():
        room: Any = b.alloca(ir.ArrayType(I8, nbytes))
    room.align = 64
    return room


stack_1k = stack_room(1024)
