"""The models that are measured: their sizes, and graphs of one step over random weights made on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from minfer_ir.formats import format_named
from minfer_ir.formats.base import Bytes, Format
from minfer_ir.graph import Graph
from minfer_ir.ops.rope import RopeScaling
from minfer_ir.params import GraphParams
from minfer_ir.types import Shape as Sizes
from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.planes.layouts import LAYOUTS, Plane
from minfer_kernels.gpu.weights import GpuWeight
from minfer_kernels.tensors.buffers import TORCH_TYPES
from minfer_models.arch import ARCHITECTURES
from minfer_models.arch.config import ModelConfig
from minfer_models.arch.tensors import TensorFormat


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's sizes; `depths` at which it decodes, `prompts` that it takes in, in chunks of at most `chunk`."""

    name: str
    config: ModelConfig
    depths: tuple[int, ...]
    prompts: tuple[int, ...]
    batches: tuple[int, ...]
    batch_depth: int
    chunk: int

    @property
    def n_ctx(self) -> int:
        """Positions of one sequence."""
        return max(*self.depths, *self.prompts, self.batch_depth) + 64

    @property
    def n_cells(self) -> int:
        """Cells for the deepest sequence, or the largest batch."""
        return max(self.n_ctx, max(self.batches) * (self.batch_depth + 64))

    def with_blocks(self, n_blocks: int) -> Shape:
        """The same with fewer layers: the same kernels."""
        return replace(self, config=replace(self.config, n_blocks=n_blocks))

    def formats(self, types: Mapping[str, str]) -> dict[str, TensorFormat]:
        """Every tensor's shape and type; `types` are those of matrices."""
        specs = ARCHITECTURES[self.config.arch].tensors(self.config)
        wanted = [spec for spec in specs if spec.name != "rope_freqs.weight"]
        return {s.name: TensorFormat(s.shape, format_named(types.get(s.name, "F32"))) for s in wanted}

    def graph_of(self, types: Mapping[str, str]) -> Callable[[GraphParams], Graph]:
        """What builds the graph of one forward."""
        formats, architecture = self.formats(types), ARCHITECTURES[self.config.arch]
        return lambda params: architecture.build(self.config, formats, params)


# Qwen2.5-7B, from its config.json
QWEN_7B = Shape(
    "qwen2.5-7b",
    ModelConfig(
        arch="qwen2",
        n_blocks=28,
        width=3584,
        ffn_width=18944,
        n_heads=28,
        n_kv_heads=4,
        head_dim=128,
        n_vocab=152064,
        n_ctx_train=32768,
        norm_eps=1e-6,
        rope_dims=128,
        rope_base=1e6,
        rope_scaling=RopeScaling(),
    ),
    depths=(0, 2048, 16384),
    prompts=(512, 4096),
    batches=(4, 16),
    batch_depth=2048,
    chunk=2048,
)
TOY = Shape(
    "toy",
    replace(
        QWEN_7B.config,
        n_blocks=1,
        width=256,
        ffn_width=256,
        n_heads=4,
        n_kv_heads=2,
        head_dim=64,
        n_vocab=96,
        rope_dims=64,
    ),
    depths=(0, 5),
    prompts=(17,),
    batches=(2,),
    batch_depth=3,
    chunk=32,
)


class RandomWeights(GpuBackend):
    """The GPU backend with weights that are drawn on the device instead of packed from a file."""

    @property
    def held(self) -> Sequence[GpuWeight]:
        """Those in use."""
        return self._weights

    def register_weight(self, key: str, dtype: Format, shape: Sizes, parts: object, uses: frozenset[str]) -> int:
        """Random planes, or a vector of ones."""
        self._weights.append(random_weight(key, dtype, shape, self.device))
        return len(self._weights) - 1


class NoFile:
    """A source of weights that nobody reads."""

    def rows(self, key: str) -> Bytes:
        """No bytes."""
        return np.empty((0, 0), np.uint8)


def random_weight(key: str, fmt: Format, shape: Sizes, device: torch.device) -> GpuWeight:
    """Quants of random bits and small scales: products stay finite."""
    if len(shape) == 1:
        return GpuWeight(key, fmt, shape, {}, torch.ones(shape, device=device))
    layout = LAYOUTS[fmt.name]
    return GpuWeight(key, fmt, shape, {p.name: _random_plane(p, shape, device) for p in layout.planes}, None)


def _random_plane(plane: Plane, shape: Sizes, device: torch.device) -> torch.Tensor:
    rows, kind = shape[0], TORCH_TYPES[plane.dtype]
    size = (rows, plane.stride(shape[1]))
    if plane.name == "values":
        return (torch.randn(size, device=device, dtype=torch.float16) * 0.02).to(kind)
    if plane.name == "scales":
        halves = size[1] * kind.itemsize // 2
        return (torch.rand((rows, halves), device=device) * 1e-3).to(torch.float16).view(kind)
    return torch.randint(0, 256, (rows, size[1] * kind.itemsize), dtype=torch.uint8, device=device).view(kind)
