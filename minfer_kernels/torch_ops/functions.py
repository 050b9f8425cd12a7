"""Every op as a function of torch tensors; a fused op is its own composition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from minfer_ir.ops import OPS, op_named
from minfer_ir.opspec import FusedOp, attrs_from_json
from minfer_kernels.torch_ops import attention, elementwise, products, shape
from minfer_kernels.torch_ops.kit import Kit

Function = Callable[..., Tensor]
"""(kit, attrs, *operands) to the value: numbers in float32 (int32 for indices), KV regions as they are stored."""

FUNCTIONS: Mapping[str, Function] = MappingProxyType({**elementwise.OPS, **products.OPS, **attention.OPS, **shape.OPS})


def run(kit: Kit, op: str, attrs: Any, *operands: Tensor) -> Tensor:
    """The op's value; the parts of a fused op side by side."""
    spec = OPS[op]
    if not isinstance(spec, FusedOp):
        return FUNCTIONS[op](kit, attrs, *operands)
    made = spec.decompose(_Chain(kit), attrs, *operands)
    return torch.cat(made, dim=-1) if isinstance(made, tuple) else made


class _Chain:
    """Stands in for a GraphBuilder: every method runs its op."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        spec = op_named(name)

        def step(*operands: Tensor | None, **attrs: Any) -> Tensor:
            return run(self._kit, name, attrs_from_json(spec, attrs), *(o for o in operands if o is not None))

        return step
