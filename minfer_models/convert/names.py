"""Hugging Face's tensor names and GGUF's."""

from __future__ import annotations

import re

HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"

_WHOLE = {EMBEDDING: "token_embd.weight", "model.norm.weight": "output_norm.weight", HEAD: "output.weight"}
_IN_BLOCK = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_BLOCK = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,5})\.(.+)\.(weight|bias)", re.ASCII)
_COMPUTED = re.compile(r"model\.layers\.[0-9]+\.self_attn\.rotary_emb\.inv_freq", re.ASCII)
"""Rope frequencies, which old checkpoints store although they follow from config.json."""


def gguf_name(name: str) -> str | None:
    """The GGUF name of Hugging Face's tensor `name`, or None when it has none."""
    if name in _WHOLE:
        return _WHOLE[name]
    match = _BLOCK.fullmatch(name)
    if match is None or match[2] not in _IN_BLOCK:
        return None
    return f"blk.{match[1]}.{_IN_BLOCK[match[2]]}.{match[3]}"


def hf_name(name: str) -> str:
    """The Hugging Face name of GGUF's tensor `name`; the inverse of `gguf_name`."""
    for theirs, ours in _WHOLE.items():
        if ours == name:
            return theirs
    _, block, kind, suffix = name.split(".")
    (theirs,) = [theirs for theirs, ours in _IN_BLOCK.items() if ours == kind]
    return f"model.layers.{block}.{theirs}.{suffix}"


def is_computed(name: str) -> bool:
    """Whether the tensor follows from config.json, so that nothing is lost without it."""
    return _COMPUTED.fullmatch(name) is not None
