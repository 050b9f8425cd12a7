"""What an op declares about itself.

One class per op. The declaration is the only place that knows the op: the builder method, verification,
JSON, the printer, alias planning, CSE and DCE legality, numpy evaluation, the coverage matrix and the
documentation row are derived from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from minfer_ir.attr_types import AttrError, revive
from minfer_ir.types import ElementType, RowAxis, Shape, Strides, TensorType

Array = NDArray[Any]
T = TypeVar("T")
EffectKind = Literal["pure", "leaf", "view", "reads_kv", "writes_kv"]


class OpError(ValueError):
    """A node that its op's declaration does not allow: the message names op, operand and values."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One input slot.

    `dims` is a pattern of named dims, e.g. "T H": a name binds on first sight and must agree afterwards, a
    number must match, "..." stands for any leading dims and "*" for any shape. `dtypes` lists the accepted
    element type names; "weight" stands for every weight format and "activation" for f32 and its 8-bit forms.
    """

    name: str
    dims: str
    dtypes: tuple[str, ...] = ("f32",)
    optional: bool = False


@dataclass(frozen=True, slots=True)
class NoAttrs:
    """The attrs of an op that has none."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of one node: multiply-adds count two flops; bytes are what must cross memory at least once.

    `resident` are those of the bytes that lie in weights and KV cells: they outlast the step, where the rest was
    written in it and is likely still in a cache.
    """

    flops: int
    bytes: int
    resident: int = 0

    def __add__(self, other: Cost) -> Cost:
        """Of both together."""
        return Cost(self.flops + other.flops, self.bytes + other.bytes, self.resident + other.resident)


@dataclass(frozen=True, slots=True)
class CellReads:
    """KV cells that a step's rows read: `rows` counts a cell once for every row that reads it, `cells` once."""

    rows: int
    cells: int


@dataclass(frozen=True, slots=True)
class OpCase:
    """One test case as plain data: operand types, attrs, and how the integer operands are drawn."""

    label: str
    operands: tuple[TensorType, ...]
    attrs: Mapping[str, Any]
    ints: Mapping[str, Sequence[int]] | None = None


class Op(ABC):
    """Base of every op declaration. Stateless: the registry holds one instance per class."""

    name: ClassVar[str]
    operands: ClassVar[tuple[Operand, ...]] = ()
    Attrs: ClassVar[type[Any]] = NoAttrs
    effect: ClassVar[EffectKind] = "pure"
    writes: ClassVar[str | None] = None
    """The operand whose storage the output is (an in-place store into a persistent region)."""
    stored: ClassVar[tuple[str, ...]] = ()
    """Operands that `reference` takes as they are stored, in any element type: KV regions."""
    inplace: ClassVar[tuple[str, ...]] = ()
    """Operands whose buffer the output may take over: the kernel reads an element before it writes it."""
    commutative: ClassVar[bool] = False

    @abstractmethod
    def infer(self, *args: Any, **kwargs: Any) -> TensorType:
        """(attrs, *operand types) to the output's type; raises OpError for operands that don't fit together."""

    @abstractmethod
    def reference(self, *args: Any, **kwargs: Any) -> Array:
        """(attrs, *operand arrays) to the value in numpy.

        Block-format operands arrive decoded to float32, those named in `stored` as they are; the caller encodes the
        result.
        """

    def cost(self, *args: Any, **kwargs: Any) -> Cost:
        """(attrs, output type, *operand types) to flops and bytes; an elementwise default.

        An op that reads KV also takes `reads`, a CellReads.
        """
        _, out, *operands = args
        resident = sum(o.nbytes for o in operands if o.rows is None)
        return Cost(out.size, out.nbytes + sum(o.nbytes for o in operands), resident)

    def alias(self, attrs: Any, source: TensorType, strides: Strides, /) -> tuple[int, Strides] | None:
        """For a view: (byte offset, byte strides) within `source`, or None when it needs a copy first."""
        raise NotImplementedError(f"{self.name} is not a view")

    def cases(self) -> Sequence[OpCase]:
        """Test cases that the op matrix runs on every backend."""
        return ()

    @property
    def is_product(self) -> bool:
        """Whether it multiplies activations with weights; such an op reads the activations that its weights ask for."""
        return any("activation" in slot.dtypes for slot in self.operands) and any(map(_is_weight, self.operands))

    def weight_operands(self, operands: Sequence[T]) -> Iterator[T]:
        """Those of `operands` that fill the slots of a product's weights."""
        return (given for slot, given in zip(self.operands, operands, strict=False) if _is_weight(slot))

    @property
    def doc(self) -> str:
        """The one-line description: the first line of the class docstring."""
        return (self.__doc__ or "").strip().splitlines()[0]

    def check_count(self, given: int) -> None:
        """Raise OpError unless the op takes `given` operands."""
        required = sum(not o.optional for o in self.operands)
        if not required <= given <= len(self.operands):
            raise OpError(f"{self.name} takes {required} to {len(self.operands)} operands, got {given}")

    def check(self, attrs: Any, operands: Sequence[TensorType]) -> TensorType:
        """Verify operand count, element types, dims and attrs against the declaration, then infer."""
        self.check_count(len(operands))
        if not isinstance(attrs, self.Attrs):
            raise OpError(f"{self.name} takes attrs {self.Attrs.__name__}, got {attrs!r}")
        bound: dict[str, int] = {}
        rows: dict[str, RowAxis | None] = {}
        for slot, actual in zip(self.operands, operands, strict=False):
            check_dtype(self.name, slot, actual.dtype)
            bind_dims(self.name, slot, actual.shape, bound)
            bind_rows(self.name, slot, actual.rows, rows)
        return self.infer(attrs, *operands)


@lru_cache(4096)
def checked(op: Op, attrs: Any, operands: tuple[TensorType, ...]) -> TensorType:
    """`op.check`, remembered: the blocks of a model repeat each other, and passes check what earlier ones did."""
    return op.check(attrs, operands)


class FusedOp(Op):
    """An op that states what it stands for.

    Tracing `decompose` gives the pattern that the fuse pass looks for, evaluating it gives the oracle and
    inferring through it gives the shapes, so none of the three can disagree with the kernel's contract.
    """

    switch: ClassVar[str]
    """The fusion's name in settings, e.g. for an A/B."""

    @abstractmethod
    def decompose(self, *args: Any, **kwargs: Any) -> Any:
        """(builder, attrs, *operands) to the composition: one value, or a tuple when the op has parts."""

    def cost(self, *args: Any, **kwargs: Any) -> Cost:
        """The flops and resident bytes of the composition; of its values only operands and result cross memory."""
        attrs, out, *operands = args
        parts = PartCosts(kwargs)
        self.decompose(parts, attrs, *operands)
        passed = sum(t.nbytes for t in (out, *operands) if t.rows is not None)
        return Cost(parts.total.flops, parts.total.resident + passed, parts.total.resident)

    def parts(self, *args: Any, **kwargs: Any) -> tuple[int, ...]:
        """(attrs, *operand types) to the parts' widths along the last axis, when `decompose` returns several values."""
        return ()


ROW_SHAPES = ("shape", "heads", "row")
"""Attrs of views and of compositions that say a shape whose axis 0 counts rows."""


class PartCosts:
    """Stands in for a GraphBuilder while a composition is costed: values are types, `total` adds up."""

    def __init__(self, extra: Mapping[str, Any]) -> None:
        self.total = Cost(0, 0)
        self._extra = extra

    def __getattr__(self, name: str) -> Any:
        from minfer_ir.ops import op_named

        op = op_named(name)

        def add(*given: TensorType | None, **attrs: Any) -> TensorType:
            operands = tuple(o for o in given if o is not None)
            rows = next((o.shape[0] for o in operands if o.rows), None)
            if rows is not None:
                # A composition shapes a bucket's rows, in parts of its own too; the work is that of the actual ones.
                attrs |= {name: (rows, *attrs[name][1:]) for name in ROW_SHAPES if name in attrs}
            typed = attrs_from_json(op, attrs)
            out = op.check(typed, operands)
            if op.effect != "view":
                self.total += op.cost(typed, out, *operands, **(self._extra if op.effect == "reads_kv" else {}))
            return out

        return add


def _is_weight(slot: Operand) -> bool:
    return "weight" in slot.dtypes


def check_dtype(op: str, slot: Operand, dtype: ElementType) -> None:
    """Raise OpError when `dtype` isn't accepted by `slot`."""
    if dtype.name not in _accepted(slot.dtypes):
        accepted = ", ".join(sorted(_accepted(slot.dtypes)))
        raise OpError(f"{op}: operand {slot.name} is {dtype.name}, accepted: {accepted}")


@cache
def _accepted(dtypes: tuple[str, ...]) -> frozenset[str]:
    groups = {"weight": WEIGHT_TYPES, "activation": ACTIVATION_TYPES}
    return frozenset(name for d in dtypes for name in groups.get(d, (d,)))


def bind_dims(op: str, slot: Operand, shape: Shape, bound: dict[str, int]) -> None:
    """Match `shape` against the slot's pattern, binding names in `bound`."""
    if slot.dims == "*":
        return
    names = slot.dims.split()
    if names and names[0] == "...":
        names = names[1:]
        shape = shape[max(len(shape) - len(names), 0) :]
    if len(shape) != len(names):
        raise OpError(f"{op}: operand {slot.name} has shape {shape}, expected [{slot.dims}]")
    for name, dim in zip(names, shape, strict=True):
        expected = int(name) if name.isdigit() else bound.setdefault(name, dim)
        if dim != expected:
            raise OpError(f"{op}: operand {slot.name} has shape {shape}, but {name} is {expected}")


def bind_rows(op: str, slot: Operand, actual: RowAxis | None, bound: dict[str, RowAxis | None]) -> None:
    """Operands that share the name of axis 0 must count the same rows: equal buckets can hold different numbers."""
    axis = slot.dims.split()[0]
    if axis in ("*", "..."):
        return
    expected = bound.setdefault(axis, actual)
    if actual != expected:
        raise OpError(f"{op}: axis 0 of operand {slot.name} counts {actual} rows, but {axis} counts {expected} rows")


def attrs_to_json(attrs: Any) -> dict[str, Any]:
    """A frozen attrs dataclass as plain JSON values; nested dataclasses become objects."""
    return {f.name: _plain(getattr(attrs, f.name)) for f in fields(attrs)}


def attrs_from_json(op: Op, values: Mapping[str, Any]) -> Any:
    """The inverse of `attrs_to_json`; typed values pass too. Raises OpError naming an unknown, missing or bad attr."""
    try:
        return revive(op.Attrs, values)
    except AttrError as error:
        raise OpError(f"{op.name}: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, ElementType):
        return value.name
    if is_dataclass(value) and not isinstance(value, type):
        return attrs_to_json(value)
    return [_plain(v) for v in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value


WEIGHT_TYPES = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"),
)
ACTIVATION_TYPES = ("f32", "Q8A32", "Q8A256")


def f32(value: Array) -> Array:
    """`value` as float32."""
    return value.astype(np.float32)
