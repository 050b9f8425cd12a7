"""Small Hugging Face folders, made by transformers and tokenizers themselves: nothing of minfer writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

CLASSES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
}
QWEN2_CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "vocab_size": 288,
}
ENDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_tokenizer(merges: tuple[tuple[str, str], ...] = (("h", "e"), ("Ġ", "w"))) -> tokenizers.Tokenizer:
    """All bytes, two merges and ChatML's markers, cut as Qwen2 does."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: i for i, char in enumerate([*alphabet, *("".join(pair) for pair in merges)])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(QWEN2_CUT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(ENDS)
    return tokenizer


def write_tokenizer(folder: Path, tokenizer: tokenizers.Tokenizer | None = None, **config: Any) -> None:
    (tokenizer or byte_tokenizer()).save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "bos_token": None, "pad_token": "<|endoftext|>", "chat_template": CHATML}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | config), encoding="utf-8")


def make_model(architecture: str, seed: int = 0, **config: Any) -> Any:
    """A float32 model with random weights, norms and biases too."""
    config_class, model_class = CLASSES[architecture]
    torch.manual_seed(seed)
    model = model_class(config_class(**(SIZES | {"attn_implementation": "eager"} | config)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("norm.weight", "bias")):
                parameter.add_(0.2 * torch.randn_like(parameter))
            else:
                parameter.mul_(4)
    return model.eval()


def write_folder(
    folder: Path, model: Any, *, dtype: torch.dtype = torch.float32, shard: str = "50GB", **tokenizer_config: Any
) -> Path:
    """`model` saved by transformers in `dtype`, with a tokenizer."""
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    model.to(torch.float32)
    write_tokenizer(folder, **tokenizer_config)
    return folder


def logits(model: Any, tokens: list[int]) -> Any:
    """Float32 [n_tokens, n_vocab]."""
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def edit_json(path: Path, change: Callable[[dict[str, Any]], Mapping[str, Any] | None]) -> None:
    """Rewrite a JSON file; `change` edits its object in place or returns another."""
    value = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(value) or value), encoding="utf-8")
