"""Byte-level BPE (`tokenizer.ggml.model` = "gpt2") made from GGUF metadata, over the `tokenizers` library."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

import tokenizers
from tokenizers.models import BPE
from tokenizers.normalizers import NFC

from minfer_models.tokenizer.bytelevel import BYTE_TO_CHAR, NEVER_IN_UTF8, hex_token_to_bytes, token_to_bytes
from minfer_models.tokenizer.errors import TokenizerError
from minfer_models.tokenizer.merges import Merges, check_merges, ordinary_pairs
from minfer_models.tokenizer.pretokenizers import PRE_KEY, PreTokenizer, pre_tokenizer_from
from minfer_models.tokenizer.utf8 import utf8
from minfer_models.tokenizer.vocab import MATCHED_WHOLE, MERGES_KEY, TokenType, Vocab
from minfer_models.tokenizer.whole import WholeTokens

# Nearly every token, told by a plain int: between two steps of a model everything runs with cold caches.
_NORMAL = int(TokenType.NORMAL)


class ByteLevelBpe:
    """Plain text to ids and ids to bytes; `TextModel` of the tokenizer says what each part is for."""

    opening = None
    adds_eos = False

    def __init__(self, vocab: Vocab, merges: list[tuple[str, str]], pre: PreTokenizer, name: str, longest: int) -> None:
        """`longest`: at least the most bytes of a text that a merge makes."""
        self.vocab = vocab
        self.pre = name
        self.adds_bos = pre.adds_bos
        ordinary = vocab.tokens_of(TokenType.NORMAL, TokenType.UNDEFINED, TokenType.BYTE)
        if longest > len(max(ordinary, key=len, default="").encode("utf-8", "surrogatepass")):
            # told before the library panics, on stderr too: there a merge may not make more bytes than any token has
            check_merges(merges, vocab.tokens)
        self._bpe = tokenizers.Tokenizer(_model(vocab, ordinary, merges, pre))
        self._bpe.pre_tokenizer = pre.build()  # pyright: ignore[reportAttributeAccessIssue]
        self._composer = NFC() if pre.composes else None
        self._writable = bytes(b for b, char in BYTE_TO_CHAR.items() if char in ordinary or b in NEVER_IN_UTF8)
        self._spacing = WholeTokens(vocab.spacing())

    @classmethod
    def from_metadata(cls, meta: Mapping[str, object]) -> ByteLevelBpe:
        """Raises TokenizerError for a missing or unknown pre-tokenizer name and for broken arrays."""
        pre = pre_tokenizer_from(meta)
        vocab = Vocab.from_metadata(meta)
        merges = Merges.from_metadata(meta, vocab)
        vocab = vocab.with_special_ends(merges)
        return cls(vocab, ordinary_pairs(merges, vocab), pre, str(meta[PRE_KEY]), merges.longest)

    def encode(self, text: str) -> list[int]:
        """The ids of plain text. Raises TokenizerError for what the vocabulary cannot write."""
        text = self._composed(text)
        ids: list[int] = []
        for plain, whole in self._spacing.split(text):
            ids.extend(self._encode(plain))
            if whole is not None:
                ids.append(whole)
        return ids

    def bytes_of(self, token_id: int) -> bytes:
        """The output bytes of an id in range; an unused one has none."""
        text, kind = self.vocab.tokens[token_id], self.vocab.types[token_id]
        if kind == _NORMAL:
            return token_to_bytes(text)
        if kind == TokenType.UNUSED:
            return b""
        if kind in MATCHED_WHOLE:
            return text.encode()
        return hex_token_to_bytes(text) if kind == TokenType.BYTE else token_to_bytes(text)

    def _composed(self, text: str) -> str:
        if self._composer is None or unicodedata.is_normalized("NFC", text):
            return text
        utf8(text)
        return self._composer.normalize_str(text)

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        self._check_writable(text)
        return self._bpe.encode(text, add_special_tokens=False).ids

    def _check_writable(self, text: str) -> None:
        data = utf8(text)
        rest = data.translate(None, self._writable)
        if rest:
            at = len(data[: data.index(rest[0])].decode(errors="ignore"))
            raise TokenizerError(
                f"the vocabulary has no token for byte 0x{rest[0]:02X} of U+{ord(text[at]):04X}, at character {at}"
            )


def _model(vocab: Vocab, ordinary: dict[str, int], merges: list[tuple[str, str]], pre: PreTokenizer) -> BPE:
    try:
        return BPE(vocab=ordinary, merges=merges, ignore_merges=pre.ignore_merges)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        check_merges(merges, vocab.tokens)
        raise TokenizerError(f"{MERGES_KEY} don't fit the vocabulary: {error}") from None
