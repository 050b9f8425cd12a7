"""The independent implementation: Hugging Face models in float32 over weights that gguf-py read and decoded.

Nothing of minfer is used: neither its reader nor its formats, architectures or rope.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf.quants import dequantize

from minfer_models.engine import Logits

CLASSES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
}
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

ACTIVATION_BLOCKS = dict.fromkeys(("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL"), 32)
ACTIVATION_BLOCKS |= dict.fromkeys(("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"), 256)


class _Reader(gguf.GGUFReader):
    """gguf-py's reader, stepping over arrays of strings: it takes a minute for a vocabulary's 300,000."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        head = self.data[orig_offs : orig_offs + 12].tobytes()
        if raw_type != gguf.GGUFValueType.ARRAY or head[:4] != struct.pack("<I", gguf.GGUFValueType.STRING):
            return super()._get_field_parts(orig_offs, raw_type)
        at, data = orig_offs + 12, memoryview(self.data)
        for _ in range(struct.unpack("<Q", head[4:])[0]):
            at += 8 + int.from_bytes(data[at : at + 8], "little")
        return at - orig_offs, [], [], [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING]


class Oracle:
    """One model. `rope` replaces the rope parameters that the metadata gives."""

    def __init__(self, path: Path, rope: Mapping[str, Any] | None = None) -> None:
        reader = _Reader(path)
        self.meta = {
            name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.")
        }
        self.arch = self.meta["general.architecture"]
        tensors = {t.name: dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]) for t in reader.tensors}
        assert rope is not None or "rope_freqs.weight" not in tensors, "state what the frequency factors stand for"
        config_class, model_class = CLASSES[self.arch]
        with torch.device("meta"):
            self.model = model_class(config_class(**self._config(tensors, rope)))
        self._load(tensors)
        self._blocks = {self._name(t.name): ACTIVATION_BLOCKS.get(t.tensor_type.name) for t in reader.tensors}

    def rounded_logits(self, tokens: Sequence[int]) -> Logits:
        """`logits` with the input of every matrix product rounded to 8 bits, in its weight type's blocks."""
        hooks = []
        for name, layer in self.model.named_modules():
            block = self._blocks.get(f"{name}.weight", self._blocks["model.embed_tokens.weight"])
            if isinstance(layer, torch.nn.Linear) and block is not None:
                hooks.append(layer.register_forward_pre_hook(lambda _, args, n=block: (_rounded(args[0], n),)))
        try:
            return self.logits(tokens)
        finally:
            for hook in hooks:
                hook.remove()

    def logits(self, tokens: Sequence[int], positions: Sequence[int] | None = None) -> Logits:
        """Float32 `[n_tokens, n_vocab]` of one causal forward; `positions` for rope, by default from 0."""
        ids = torch.tensor([list(tokens)])
        where = torch.arange(len(tokens)) if positions is None else torch.tensor(list(positions))
        with torch.no_grad():
            # An explicit mask: with gaps in the positions, Hugging Face would take the tokens for several sequences.
            out = self.model(ids, attention_mask=torch.ones_like(ids), position_ids=where[None], use_cache=False)
        return out.logits[0].numpy()

    def _size(self, key: str, default: Any = None) -> Any:
        return self.meta.get(f"{self.arch}.{key}", default)

    def _config(self, tensors: Mapping[str, np.ndarray], rope: Mapping[str, Any] | None) -> dict[str, Any]:
        heads, width = self._size("attention.head_count"), self._size("embedding_length")
        n_vocab = len(tensors["token_embd.weight"])
        extra = {"attention_bias": "blk.0.attn_q.bias" in tensors} if self.arch == "llama" else {}
        return {
            "vocab_size": n_vocab,
            "hidden_size": width,
            "intermediate_size": self._size("feed_forward_length"),
            "num_hidden_layers": self._size("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._size("attention.head_count_kv", heads),
            "head_dim": self._size("attention.key_length", width // heads),
            "max_position_embeddings": self._size("context_length"),
            "rms_norm_eps": self._size("attention.layer_norm_rms_epsilon"),
            "tie_word_embeddings": "output.weight" not in tensors,
            "rope_parameters": {"rope_theta": self._size("rope.freq_base", 10000.0), **(rope or self._rope())},
            "attn_implementation": "eager",
            "dtype": torch.float32,
            "pad_token_id": None,
            "bos_token_id": None,
            "eos_token_id": None,
            **extra,
        }

    def _rope(self) -> dict[str, Any]:
        kind = self._size("rope.scaling.type", "none")
        if kind == "none":
            return {"rope_type": "default"}
        scaling = {"rope_type": kind, "factor": self._size("rope.scaling.factor")}
        if kind == "yarn":
            scaling["original_max_position_embeddings"] = self._size("rope.scaling.original_context_length")
        return scaling

    def _load(self, tensors: Mapping[str, np.ndarray]) -> None:
        state = {name: torch.from_numpy(np.array(data, np.float32)) for name, data in self._renamed(tensors)}
        result = self.model.load_state_dict(state, strict=False, assign=True)
        missing = set(result.missing_keys) - ({"lm_head.weight"} if "output.weight" not in tensors else set())
        zeros = {name for name in missing if name.endswith("o_proj.bias")}  # Hugging Face ties it to the q, k, v biases
        assert not result.unexpected_keys, result.unexpected_keys
        assert missing == zeros, missing
        for name in zeros:
            self.model.get_submodule(name.removesuffix(".bias")).bias = torch.nn.Parameter(
                torch.zeros(self.model.config.hidden_size)
            )
        self.model.tie_weights()
        # Buffers aren't part of a state dict: the frequencies are made again, off the meta device.
        self.model.model.rotary_emb = type(self.model.model.rotary_emb)(self.model.config)
        self.model.eval()

    def _renamed(self, tensors: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        heads = self._size("attention.head_count")
        n_heads = {"attn_q": heads, "attn_k": self._size("attention.head_count_kv", heads)}
        for name, data in tensors.items():
            if name == "rope_freqs.weight":
                continue
            kind = name.split(".")[-2]
            if self.arch == "llama" and kind in n_heads:
                data = _halves_apart(data, n_heads[kind])  # noqa: PLW2901
            yield self._name(name), data

    @staticmethod
    def _name(name: str) -> str:
        """Hugging Face's name of a tensor."""
        if name == "rope_freqs.weight":
            return name
        block, kind, suffix = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name).groups()
        return f"{'' if block is None else f'model.layers.{block}.'}{NAMES[kind]}.{suffix}"


def _halves_apart(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """The inverse of `LlamaModel.permute` in convert_hf_to_gguf.py, element by element."""
    head_dim = len(weight) // n_heads
    order = [h * head_dim + 2 * j + p for h in range(n_heads) for p in (0, 1) for j in range(head_dim // 2)]
    return weight[order]


def _rounded(x: torch.Tensor, block: int) -> torch.Tensor:
    blocks = x.reshape(-1, block)
    step = (blocks.abs().amax(dim=1, keepdim=True) / 127).clamp_min(1e-30)
    return (torch.round(blocks / step) * step).reshape(x.shape)
