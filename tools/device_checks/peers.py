"""Parts "attention" and "matmul": single ops beside torch's own, in the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from minfer_ir.formats import CELL_FORMATS
from minfer_models.arch.config import ModelConfig
from tools.device_checks.goals import ATTENTION_OF_SDPA, Goal
from tools.device_checks.machine import Ceilings, Machine
from tools.device_checks.results import Result, say, standing
from tools.device_checks.shape import Shape
from tools.device_checks.single import product, prompt_attention

TYPES = ("F16", "Q8_0", "Q4_0", "Q4_K")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of what is measured. `copies` of an op with operands of their own run in a row: one alone is too short to time,

    and its operands would stay in the cache."""

    copies: int
    depths: tuple[int, ...]
    rows: tuple[int, ...]
    prompt: int

    @classmethod
    def on(cls, machine: Machine) -> Sizes:
        """Toy ones under the interpreter."""
        return cls(1, (5,), (1, 17), 20) if machine.dry else cls(16, (2048, 16384), (1, 4, 16, 512, 2048), 4096)


def run_attention(machine: Machine, shape: Shape, ceilings: Ceilings) -> None:
    """Decode over float16 and packed cells, and a prompt, beside scaled_dot_product_attention over float16."""
    sizes, c = Sizes.on(machine), shape.config
    for depth in sizes.depths:
        torch_seconds = machine.seconds(_sdpa(machine, c, 1, depth, sizes.copies)) / sizes.copies
        for kv in ("f16", "q8_0"):
            ours = machine.seconds(prompt_attention(machine, c, 1, depth, sizes.copies, kv)) / sizes.copies
            row = CELL_FORMATS[kv].row_bytes(c.kv_width) if kv in CELL_FORMATS else 2 * c.kv_width
            shares = ceilings.of_bytes(2 * depth * row / ours) | {"SDPA's speed": torch_seconds / ours}
            goal = ATTENTION_OF_SDPA if kv == "f16" else None
            name = f"decode over {depth} {kv} cells"
            say(_beside(machine, "attention", name, ours, torch_seconds, shares, goal))
    n = sizes.prompt
    torch_seconds = machine.seconds(_sdpa(machine, c, n, n, 1), runs=5)
    for kv in ("f16", "q8_0"):
        ours = machine.seconds(prompt_attention(machine, c, n, n, 1, kv), runs=5)
        shares = ceilings.of_work(2.0 * n * n * c.q_width / ours) | {"SDPA's speed": torch_seconds / ours}
        say(_beside(machine, "attention", f"prompt of {n} over {kv} cells", ours, torch_seconds, shares, None))


def run_matmul(machine: Machine, shape: Shape, ceilings: Ceilings) -> None:
    """The gate projection of a layer in every weight type, beside torch's float16 product."""
    sizes, c = Sizes.on(machine), shape.config
    for rows in sizes.rows:
        torch_seconds = machine.seconds(_dense(machine, c, rows, sizes.copies)) / sizes.copies
        for type_name in TYPES:
            work, nbytes = product(machine, c, rows, sizes.copies, type_name)
            ours = machine.seconds(work) / sizes.copies
            limits = ceilings.of_bytes(nbytes / ours) if rows <= 16 else ceilings.of_work(_flops(c, rows) / ours)
            shares = limits | {"torch's f16 speed": torch_seconds / ours}
            say(_beside(machine, "matmul", f"{rows} rows, {type_name}", ours, torch_seconds, shares, None))


def _flops(c: ModelConfig, rows: int) -> float:
    return 2.0 * rows * c.width * c.ffn_width


def _beside(
    machine: Machine, part: str, name: str, ours: float, theirs: float, shares: dict[str, float], goal: Goal | None
) -> Result:
    status, aim, against = standing(goal, theirs / ours, machine.dry)
    return Result(part, name, status, ours * 1e6, "us", shares, aim, f"torch {theirs * 1e6:.4g} us", against)


def _captured(machine: Machine, work: Callable[[], object]) -> Callable[[], object]:
    """torch's calls as one graph, so that what is compared is kernels."""
    if machine.dry:
        return work
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def _sdpa(machine: Machine, c: ModelConfig, rows: int, depth: int, copies: int) -> Callable[[], object]:
    def tensor(heads: int, n: int) -> torch.Tensor:
        return torch.randn(1, heads, n, c.head_dim, device=machine.device, dtype=torch.float16)

    sets = [(tensor(c.n_heads, rows), tensor(c.n_kv_heads, depth), tensor(c.n_kv_heads, depth)) for _ in range(copies)]

    def work() -> None:
        for q, k, v in sets:
            scaled_dot_product_attention(q, k, v, is_causal=rows > 1, enable_gqa=True)

    return _captured(machine, work)


def _dense(machine: Machine, c: ModelConfig, rows: int, copies: int) -> Callable[[], object]:
    x = torch.randn(rows, c.width, device=machine.device, dtype=torch.float16)
    weights = [torch.randn(c.ffn_width, c.width, device=machine.device, dtype=torch.float16) for _ in range(copies)]

    def work() -> None:
        for w in weights:
            torch.matmul(x, w.T)

    return _captured(machine, work)
