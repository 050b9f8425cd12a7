"""SentencePiece model files for its own library, and the same vocabularies as GGUF metadata."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
BYTES = [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
ROLES = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
Piece = tuple[str, float, int]


@dataclass(frozen=True)
class Spaces:
    """The normalizer's settings."""

    prefix: bool = True
    remove_extra: bool = False


def metadata(pieces: Sequence[Piece], spaces: Spaces = Spaces()) -> dict[str, Any]:
    """The vocabulary as a converter writes it."""
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [text for text, _, _ in pieces],
        "tokenizer.ggml.scores": [score for _, score, _ in pieces],
        "tokenizer.ggml.token_type": [kind for _, _, kind in pieces],
        "tokenizer.ggml.add_space_prefix": spaces.prefix,
        "tokenizer.ggml.remove_extra_whitespaces": spaces.remove_extra,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def processor(pieces: Sequence[Piece], spaces: Spaces = Spaces()) -> sentencepiece.SentencePieceProcessor:
    """The vocabulary run by the library itself, from the bytes of `sentencepiece_model.proto`."""
    byte_fallback = any(kind == BYTE for _, _, kind in pieces)
    trainer = _number(3, 2) + _number(4, len(pieces)) + _number(35, byte_fallback)  # model_type BPE, vocab_size
    normalizer = _bytes(1, b"identity") + _number(3, spaces.prefix) + _number(4, spaces.remove_extra) + _number(5, True)
    model = b"".join(_bytes(1, _piece(*piece)) for piece in pieces) + _bytes(2, trainer) + _bytes(3, normalizer)
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def trained(spaces: Spaces = Spaces(), byte_fallback: bool = True, vocab_size: int = 700) -> list[Piece]:
    """The pieces of a small BPE model that the library trains on the prose and a few lines in other scripts."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=_sentences(),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        byte_fallback=byte_fallback,
        normalization_rule_name="identity",
        add_dummy_prefix=spaces.prefix,
        remove_extra_whitespaces=spaces.remove_extra,
        allow_whitespace_only_pieces=True,
        split_digits=True,
        num_threads=1,
        minloglevel=2,
    )
    own = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [(own.id_to_piece(i), own.get_score(i), _kind(own, i)) for i in range(own.vocab_size())]


def _kind(own: sentencepiece.SentencePieceProcessor, i: int) -> int:
    kinds = {UNKNOWN: own.is_unknown, CONTROL: own.is_control, UNUSED: own.is_unused, BYTE: own.is_byte}
    return next((kind for kind, is_it in kinds.items() if is_it(i)), NORMAL)


def _sentences() -> Iterator[str]:
    prose = (Path(__file__).parents[1] / "models" / "data" / "alice.txt").read_text(encoding="utf-8")
    yield from (line for line in prose.splitlines()[:400] if line)
    for line in (
        "Съешь ещё этих мягких французских булок, да выпей чаю",
        "我想在苹果工作，我想喝茶。我能吞下玻璃而不伤身体。",
        "naïve café, déjà vu; Việt Nam",
        "def f(x):        return x + 12    # 345",
        "🦙 😁 🦙🦙",
    ):
        yield from [line] * 20


def _piece(text: str, score: float, kind: int) -> bytes:
    return _bytes(1, text.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
