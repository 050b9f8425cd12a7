"""Products as cases of the op matrix."""

from __future__ import annotations

from minfer_ir.dtypes import F32
from minfer_ir.ops import OPS
from minfer_ir.opspec import NoAttrs
from minfer_ir.passes.legalize import activation_type
from minfer_ir.testing.variants import Variant
from minfer_ir.types import TensorType, element_type
from minfer_kernels.gpu.backend import GpuBackend


def product(backend: GpuBackend, op: str, fmt: str, rows: int, n: int, k: int, ragged: bool = False) -> Variant:
    """A product of this format, with the activations that the backend reads."""
    weight = TensorType((n, k), element_type(fmt))
    x = TensorType((rows, k), F32, "token")
    wanted = activation_type("matmul", [x, weight], backend.capabilities)
    if wanted is not None:
        x = TensorType(x.shape, element_type(wanted), "token")
    operands = {"matmul": (x, weight), "matmul_add": (x, weight, TensorType((rows, n), F32, "token"))}
    operands["matmul_swiglu"] = (x, weight, weight)
    layout = "ragged" if ragged and rows > 1 else "plain"
    return Variant(OPS[op], f"{fmt}_{rows}x{n}x{k}", operands[op], NoAttrs(), {}, layout)
