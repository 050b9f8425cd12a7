"""A byte-level BPE tokenizer made from GGUF metadata, over the `tokenizers` library."""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers.models import BPE

from minfer_models.tokenizer.bytelevel import BYTE_TO_CHAR, NEVER_IN_UTF8
from minfer_models.tokenizer.errors import TokenizerError
from minfer_models.tokenizer.pretokenizers import PRE_KEY, PreTokenizer, pre_tokenizer_from
from minfer_models.tokenizer.stream import StreamDecoder
from minfer_models.tokenizer.vocab import MERGES_KEY, TokenType, Vocab, flag, token_id

_LOG = logging.getLogger(__name__)
_END_ROLES = ("eos", "eot", "eom")


class Tokenizer:
    """Text to ids and back.

    Plain text never becomes a special token (control, user-defined, unknown): those come only from text that the
    caller marks as trusted. No Unicode normalization takes place, so decoding returns exactly what was encoded.
    """

    def __init__(self, vocab: Vocab, pre: PreTokenizer, meta: Mapping[str, object]) -> None:
        self._vocab = vocab
        ordinary = vocab.ordinary()
        self._bpe = tokenizers.Tokenizer(_model(vocab, ordinary, pre))
        self._bpe.pre_tokenizer = pre.build()  # pyright: ignore[reportAttributeAccessIssue]
        self._writable = bytes(b for b, char in BYTE_TO_CHAR.items() if char in ordinary or b in NEVER_IN_UTF8)
        self._special = vocab.special()
        longest_first = sorted(self._special, key=len, reverse=True)
        self._marker = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

        self.pre = str(meta[PRE_KEY])
        self.n_vocab = len(vocab.tokens)
        self.decodable = _decodable(vocab)
        self.bos = token_id(meta, "bos", self.n_vocab)
        self.eos = token_id(meta, "eos", self.n_vocab)
        named_ends = {token_id(meta, role, self.n_vocab) for role in _END_ROLES} - {None}
        self.eog: frozenset[int] = vocab.end_ids() | {end for end in named_ends if end is not None}
        self.add_bos = flag(meta, "tokenizer.ggml.add_bos_token", pre.adds_bos and self.bos is not None)
        self.add_eos = flag(meta, "tokenizer.ggml.add_eos_token", False)
        self._require("bos", self.bos, self.add_bos)
        self._require("eos", self.eos, self.add_eos)

    @classmethod
    def from_metadata(cls, meta: Mapping[str, object]) -> Tokenizer:
        """The tokenizer that GGUF metadata describes (keys `tokenizer.ggml.*`).

        Raises TokenizerError for what cannot be run as described: another tokenizer model, an unknown or missing
        pre-tokenizer name, broken arrays, ids out of range.
        """
        return cls(Vocab.from_metadata(meta), pre_tokenizer_from(meta), meta)

    def encode(
        self, text: str, special: bool = False, add_bos: bool | None = False, add_eos: bool | None = False
    ) -> list[int]:
        """The ids of `text`.

        special: texts of special tokens become their ids, the longest first; else they are plain text.
        add_bos, add_eos: True adds the id unless it is already there, None does what the model's metadata says.
        Raises TokenizerError for a lone surrogate, a byte the vocabulary cannot write, or BOS/EOS the model lacks.
        """
        return self.encode_segments([(text, special)], add_bos, add_eos)

    def encode_segments(
        self, segments: Iterable[tuple[str, bool]], add_bos: bool | None = False, add_eos: bool | None = False
    ) -> list[int]:
        """`encode` for text in pieces (text, trusted), tokenized as one: only trusted pieces yield special tokens.

        A special token is recognized inside a run of trusted pieces, never across a piece that is not trusted.
        """
        ids: list[int] = []
        for text, marker in self._split(_runs(segments)):
            ids.extend(self._encode_plain(text))
            if marker is not None:
                ids.append(marker)
        return self._with_ends(ids, add_bos, add_eos)

    def _split(self, runs: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, int | None]]:
        pending: list[str] = []
        for text, trusted in runs:
            start = 0
            for match in self._marker.finditer(text) if trusted and self._marker else ():
                yield "".join([*pending, text[start : match.start()]]), self._special[match[0]]
                pending, start = [], match.end()
            pending.append(text[start:])
        yield "".join(pending), None

    def _encode_plain(self, text: str) -> list[int]:
        if not text:
            return []
        self._check_writable(text)
        return self._bpe.encode(text, add_special_tokens=False).ids

    def _check_writable(self, text: str) -> None:
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            raise TokenizerError(f"the text has a lone surrogate, U+{code:04X}, at character {error.start}") from None
        rest = data.translate(None, self._writable)
        if rest:
            at = len(data[: data.index(rest[0])].decode(errors="ignore"))
            raise TokenizerError(
                f"the vocabulary has no token for byte 0x{rest[0]:02X} of U+{ord(text[at]):04X}, at character {at}"
            )

    def _with_ends(self, ids: list[int], add_bos: bool | None, add_eos: bool | None) -> list[int]:
        add_bos = self.add_bos if add_bos is None else add_bos
        add_eos = self.add_eos if add_eos is None else add_eos
        bos = self._require("bos", self.bos, add_bos)
        eos = self._require("eos", self.eos, add_eos)
        if bos is not None and ids[:1] == [bos]:
            _LOG.warning("the text already starts with the BOS token (id %d); it is not added again", bos)
            bos = None
        head = [] if bos is None else [bos]
        tail = [] if eos is None or ids[-1:] == [eos] else [eos]
        return head + ids + tail

    @staticmethod
    def _require(role: str, value: int | None, wanted: bool) -> int | None:
        if wanted and value is None:
            raise TokenizerError(f"add_{role} is asked for, but the model has no tokenizer.ggml.{role}_token_id")
        return value if wanted else None

    def decode(self, ids: Iterable[int], special: bool = True) -> str:
        """The text of `ids`; invalid UTF-8 becomes U+FFFD. special=False leaves control tokens out.

        Raises TokenizerError for an id out of range.
        """
        bytes_of = self.token_bytes if special else self._visible_bytes
        return b"".join(map(bytes_of, ids)).decode("utf-8", "replace")

    def stream(self, special: bool = True) -> StreamDecoder:
        """A decoder for ids as they arrive; its pieces join to what `decode` gives."""
        return StreamDecoder(self.token_bytes if special else self._visible_bytes)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes an id adds to the output, b"" for an unused one. Raises TokenizerError when out of range."""
        return self._vocab.bytes_of(self._checked(token_id))

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary spells it. Raises TokenizerError when out of range."""
        return self._vocab.tokens[self._checked(token_id)]

    def is_control(self, token_id: int) -> bool:
        """Whether an id is a control token. Raises TokenizerError when out of range."""
        return self._vocab.types[self._checked(token_id)] == TokenType.CONTROL

    def special_id(self, text: str) -> int | None:
        """The id of the special token with this text, None when there is none."""
        return self._special.get(text)

    def decodable_mask(self, n_logits: int) -> npt.NDArray[np.bool_]:
        """bool [n_logits]: True for ids that stand for text; unused ids and rows past the vocabulary are False."""
        used = np.frombuffer(self._vocab.types[:n_logits], np.uint8) != TokenType.UNUSED
        return np.pad(used, (0, n_logits - len(used)))

    def _visible_bytes(self, token_id: int) -> bytes:
        return b"" if self.is_control(token_id) else self.token_bytes(token_id)

    def _checked(self, token_id: int) -> int:
        index = operator.index(token_id)
        if not 0 <= index < self.n_vocab:
            raise TokenizerError(f"token id {index} is outside the vocabulary of {self.n_vocab} ids")
        return index


def _model(vocab: Vocab, ordinary: dict[str, int], pre: PreTokenizer) -> BPE:
    try:
        return BPE(vocab=ordinary, merges=vocab.merges, ignore_merges=pre.ignore_merges)
    except Exception as error:  # it raises nothing more specific
        vocab.check_merges()
        raise TokenizerError(f"{MERGES_KEY} don't fit the vocabulary: {error}") from None


def _decodable(vocab: Vocab) -> int:
    """One past the last id that stands for text: padded vocabularies end in unused ids that must not be sampled."""
    return len(vocab.types.rstrip(bytes([TokenType.UNUSED])))


def _runs(segments: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    """Neighbours of equal trust joined, so that a marker written in two trusted pieces is found."""
    parts: list[str] = []
    trusted = False
    for text, trust in segments:
        if not text:
            continue
        if trust != trusted and parts:
            yield "".join(parts), trusted
            parts = []
        parts.append(text)
        trusted = trust
    if parts:
        yield "".join(parts), trusted
