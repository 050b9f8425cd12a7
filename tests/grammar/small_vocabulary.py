"""Vocabularies that the tests spell out, as the tokenizer and the grammar engine see them."""

from __future__ import annotations

from collections.abc import Sequence

from minfer_models.grammar import Matcher, Vocabulary
from minfer_models.grammar.thinking import AfterThinking
from minfer_models.tokenizer import Tokenizer
from minfer_models.tokenizer.bytelevel import BYTE_TO_CHAR
from minfer_models.tokenizer.vocab import TokenType

ENDS = ("<|im_end|>", "<|endoftext|>")


def vocabulary(
    pieces: Sequence[bytes] = (), control: Sequence[str] = (), user: Sequence[str] = (), padding: int = 0
) -> Vocabulary:
    """Ids 0-255 are the bytes, then come pieces, a second `a`, two ends of generation, control and user-defined
    tokens, padding."""
    texts = [BYTE_TO_CHAR[b] for b in range(256)]
    texts += ["".join(BYTE_TO_CHAR[b] for b in piece) for piece in pieces]
    kinds = [TokenType.NORMAL] * len(texts) + [TokenType.BYTE] + [TokenType.CONTROL] * (len(ENDS) + len(control))
    kinds += [TokenType.USER_DEFINED] * len(user) + [TokenType.UNUSED] * padding
    texts += ["<0x61>", *ENDS, *control, *user, *(f"[PAD{i}]" for i in range(padding))]
    meta: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": [int(kind) for kind in kinds],
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": 257 + len(pieces),
    }
    return Vocabulary(Tokenizer.from_metadata(meta), len(texts))


def allowed(constraint: Matcher | AfterThinking) -> set[int]:
    """The ids of a mask."""
    mask = constraint.mask()
    return {word * 32 + bit for word, bits in enumerate(mask.tolist()) if bits for bit in range(32) if bits >> bit & 1}
