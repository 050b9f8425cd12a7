"""Text to ids and back, whatever the kind of vocabulary."""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from minfer_models.tokenizer.bpe import ByteLevelBpe
from minfer_models.tokenizer.errors import TokenizerError
from minfer_models.tokenizer.sentencepiece import SentencePieceBpe
from minfer_models.tokenizer.stream import Opening, StreamDecoder
from minfer_models.tokenizer.vocab import MODEL_KEY, TokenType, Vocab, flag, token_id, token_ids
from minfer_models.tokenizer.whole import WholeTokens

_LOG = logging.getLogger(__name__)
_END_ROLES = ("eos", "eot", "eom")

_MODELS: Final = {"gpt2": ByteLevelBpe, "llama": SentencePieceBpe}
_KNOWN: Final = "'gpt2' (byte-level BPE) and 'llama' (SentencePiece BPE)"
_OTHERS: Final = {
    "t5": "SentencePiece Unigram",
    "unigram": "SentencePiece Unigram",
    "bert": "WordPiece",
    "rwkv": "RWKV World",
    "plamo2": "PLaMo-2",
    "gemma4": "BPE over SentencePiece spaces",
    "none": "no vocabulary",
    "no_vocab": "no vocabulary",
}


class TextModel(Protocol):
    """What one kind of vocabulary knows: plain text to ids, and the bytes of an id."""

    vocab: Vocab
    pre: str | None
    adds_bos: bool
    adds_eos: bool
    opening: Opening | None  # what decoding a text from its start does to it

    def encode(self, text: str) -> list[int]:
        """The ids of a plain text that stands at the start or after a special token."""
        ...

    def bytes_of(self, token_id: int) -> bytes:
        """The output bytes of an id in range."""
        ...


class Tokenizer:
    """Text to ids and back.

    Plain text never becomes a special token (control, user-defined, unknown): those come only from text that the
    caller marks as trusted. docs/tokenizers.md says which texts decoding does not return exactly.

    n_vocab: ids of the vocabulary. decodable: one past the last that stands for text; gaps: unused ones below it.
    bos, eos: None where the model has none. eog: every id that ends a turn or a text. add_bos, add_eos: what the file
    asks for. pre: the name of the pre-tokenizer, None for SentencePiece.
    """

    def __init__(self, model: TextModel, meta: Mapping[str, object]) -> None:
        self._model = model
        self._vocab = vocab = model.vocab
        self._special = WholeTokens(vocab.special())

        self.pre = model.pre
        self.n_vocab = len(vocab.tokens)
        self.decodable = vocab.decodable()
        self.gaps = vocab.gaps()
        self.bos = token_id(meta, "bos", self.n_vocab)
        self.eos = token_id(meta, "eos", self.n_vocab)
        self.eog: frozenset[int] = vocab.end_ids() | _named_ends(meta, self.n_vocab)
        self.add_bos = flag(meta, "tokenizer.ggml.add_bos_token", model.adds_bos and self.bos is not None)
        self.add_eos = flag(meta, "tokenizer.ggml.add_eos_token", model.adds_eos and self.eos is not None)
        self._require("bos", self.bos, self.add_bos)
        self._require("eos", self.eos, self.add_eos)

    @classmethod
    def from_metadata(cls, meta: Mapping[str, object]) -> Tokenizer:
        """The tokenizer that GGUF metadata describes (keys `tokenizer.ggml.*`).

        Raises TokenizerError for what cannot be run as described: another tokenizer model, an unknown or missing
        pre-tokenizer name, broken arrays, ids out of range.
        """
        name = meta.get(MODEL_KEY)
        kind = _MODELS.get(name) if isinstance(name, str) else None
        if kind is None:
            what = f" ({_OTHERS[name]})" if isinstance(name, str) and name in _OTHERS else ""
            raise TokenizerError(f"{MODEL_KEY} is {name!r}{what}; what can be run is {_KNOWN}")
        return cls(kind.from_metadata(meta), meta)

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
            if text:
                ids.extend(self._model.encode(text))
            if marker is not None:
                ids.append(marker)
        return self._with_ends(ids, add_bos, add_eos)

    def _split(self, runs: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, int | None]]:
        pending: list[str] = []
        for text, trusted in runs:
            for plain, marker in self._special.split(text) if trusted else ((text, None),):
                pending.append(plain)
                if marker is not None:
                    yield "".join(pending), marker
                    pending = []
        yield "".join(pending), None

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

    def decode(self, ids: Iterable[int], special: bool = True, continues: bool = False) -> str:
        """The text of `ids`; invalid UTF-8 becomes U+FFFD.

        special: False leaves control tokens out.
        continues: the ids go on with a text; else the space that encoding puts before a text is taken off again.
        Raises TokenizerError for an id out of range.
        """
        if self._model.opening is not None and not continues:
            stream = self.stream(special)
            return "".join([*map(stream.push, ids), stream.flush()])
        bytes_of = self.token_bytes if special else self._visible_bytes
        return b"".join(map(bytes_of, ids)).decode("utf-8", "replace")

    def stream(self, special: bool = True, continues: bool = False) -> StreamDecoder:
        """A decoder for ids as they arrive; its pieces join to what `decode` gives."""
        bytes_of = self.token_bytes if special else self._visible_bytes
        return StreamDecoder(bytes_of, None if continues else self._model.opening)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes an id adds to the output, b"" for an unused one. Raises TokenizerError when out of range."""
        return self._model.bytes_of(self._checked(token_id))

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary spells it. Raises TokenizerError when out of range."""
        return self._vocab.tokens[self._checked(token_id)]

    def token_type(self, token_id: int) -> TokenType:
        """What kind of token an id is. Raises TokenizerError when out of range."""
        return TokenType(self._vocab.types[self._checked(token_id)])

    def is_control(self, token_id: int) -> bool:
        """Whether an id is a control token. Raises TokenizerError when out of range."""
        return self._vocab.types[self._checked(token_id)] == TokenType.CONTROL

    def special_id(self, text: str) -> int | None:
        """The id of the special token with this text, None when there is none."""
        return self._special.ids.get(text)

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


def _named_ends(meta: Mapping[str, object], n_vocab: int) -> frozenset[int]:
    """Whatever the metadata names as an end, alone or in a list."""
    single = [token_id(meta, role, n_vocab) for role in _END_ROLES]
    listed = [i for role in _END_ROLES for i in token_ids(meta, role, n_vocab)]
    return frozenset([*(i for i in single if i is not None), *listed])


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
