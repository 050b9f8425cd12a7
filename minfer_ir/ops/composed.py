"""Fused ops that are nothing but their composition: types and values follow from `decompose`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from minfer_ir.opspec import Array, FusedOp, Op, attrs_from_json
from minfer_ir.types import TensorType


class ComposedOp(FusedOp):
    """Declares operands, attrs, `decompose` and cases; everything else is read off the composition."""

    def infer(self, attrs: Any, *operands: TensorType) -> TensorType:
        """The type of the composition's value; raises OpError where one of its steps does."""
        return _inferred(self, attrs, operands)

    def reference(self, attrs: Any, *operands: Array) -> Array:
        """The composition of the steps' references; a KV region among the operands is changed in place."""
        value: Array = self.decompose(_Chain(_referenced), attrs, *operands)
        return value


@lru_cache(maxsize=512)
def _inferred(spec: ComposedOp, attrs: Any, operands: tuple[TensorType, ...]) -> TensorType:
    """Layers repeat each other's types."""
    out: TensorType = spec.decompose(_Chain(_checked), attrs, *operands)
    return out


class _Chain:
    """Stands in for a GraphBuilder: every method hands op, attrs and operands to `apply` and gives its result."""

    def __init__(self, apply: Callable[[Op, Any, tuple[Any, ...]], Any]) -> None:
        self._apply = apply

    def __getattr__(self, name: str) -> Any:
        from minfer_ir.ops import op_named

        spec = op_named(name)

        def step(*operands: Any, **attrs: Any) -> Any:
            return self._apply(spec, attrs_from_json(spec, attrs), tuple(o for o in operands if o is not None))

        return step


def _checked(spec: Op, attrs: Any, operands: tuple[Any, ...]) -> TensorType:
    return spec.check(attrs, operands)


def _referenced(spec: Op, attrs: Any, operands: tuple[Any, ...]) -> Array:
    return spec.reference(attrs, *operands)
