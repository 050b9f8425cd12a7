"""`tools/device_check --prepare`: what is made beforehand on a machine with the whole development environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from minfer_ir.runtime.backend import Backend
from minfer_kernels.cpu.backend import CpuBackend
from minfer_models.backends import kernel_library
from minfer_models.settings import Settings
from minfer_models.synthetic import SyntheticModel, write_model
from minfer_models.synthetic.mixes import types_by_tensor
from tools.device_checks.shape import QWEN_7B, TOY, Shape
from tools.device_checks.tiny import TinyModel, run_tiny

KV_TYPES = ("f32", "f16", "q8_0")
MIXES = ("Q8_0", "Q4_0", "Q4_K_M", "F16")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of the tiny models, and of what they are run over: `prompt` tokens at once, `steps` one by one."""

    width: int = 256
    ffn_width: int = 768
    n_heads: int = 8
    n_blocks: int = 2
    prompt: int = 40
    steps: int = 16
    types: Mapping[str, str] = field(default_factory=lambda: {"llama": "Q4_0", "qwen2": "Q8_0", "qwen3": "Q4_K"})
    """The weight type of each architecture."""

    def model(self, architecture: str) -> SyntheticModel:
        """Its model, with random weights."""
        return SyntheticModel(
            architecture=architecture,
            n_blocks=self.n_blocks,
            width=self.width,
            ffn_width=self.ffn_width,
            n_heads=self.n_heads,
            n_kv_heads=2,
            head_dim=32 if self.width < 256 else 64,
            weights=self.types[architecture],
        )


REAL_SIZES = Sizes()
TOY_SIZES = Sizes(64, 64, 4, 1, 5, 2, {"llama": "Q8_0"})
"""For the interpreter."""


def cpu_backend() -> Backend:
    """The one whose logits are recorded."""
    return CpuBackend(kernel_library(Settings.from_env(), "auto"), 1)


def prepare(
    folder: Path, make_backend: Callable[[], Backend] = cpu_backend, sizes: Sizes = REAL_SIZES
) -> Iterator[str]:
    """Write tiny models, their logits on the CPU, and the types of the 7B model's matrices; says what it did."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[TinyModel] = []
    for architecture in sizes.types:
        path, synthetic = folder / f"{architecture}.gguf", sizes.model(architecture)
        write_model(path, synthetic)
        tokens = np.random.default_rng(7).integers(0, synthetic.n_vocab, sizes.prompt + sizes.steps)
        for kv in KV_TYPES:
            model = TinyModel(architecture, kv, sizes.prompt)
            logits = run_tiny(path, make_backend(), model, tokens.tolist()).logits
            np.savez_compressed(folder / f"{architecture}.{kv}.npz", tokens=tokens, logits=logits)
            found.append(model)
        size = path.stat().st_size / 1e6
        yield f"{path.name}: {size:.1f} MB, logits of {len(tokens)} positions in {len(KV_TYPES)} cell types"
    (folder / "tiny.json").write_text(json.dumps([asdict(model) for model in found]), encoding="utf-8")
    types = {shape.name: {mix: types_of(shape, mix) for mix in MIXES} for shape in (QWEN_7B, TOY)}
    (folder / "types.json").write_text(json.dumps(types), encoding="utf-8")
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    yield f"{folder}: {total / 1e6:.1f} MB in all"


def types_of(shape: Shape, mix: str) -> dict[str, str]:
    """Types by tensor name, as `llama-quantize` chooses them."""
    c = shape.config
    inner = dict.fromkeys(("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"), c.width)
    rows = {"token_embd": c.width, **inner, "attn_output": c.q_width, "ffn_down": c.ffn_width}
    return types_by_tensor(mix, rows, c.n_blocks, tied=False)
