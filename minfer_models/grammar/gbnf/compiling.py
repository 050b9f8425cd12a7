"""From GBNF to the engine's notation."""

from __future__ import annotations

from minfer_models.grammar.errors import GrammarError
from minfer_models.grammar.gbnf.checks import checked
from minfer_models.grammar.gbnf.lark import lark
from minfer_models.grammar.gbnf.lexemes import lexed
from minfer_models.grammar.gbnf.reader import read
from minfer_models.grammar.gbnf.syntax import Token
from minfer_models.grammar.vocabulary import Vocabulary

_EVERY_BYTE = (1 << 256) - 1


def gbnf_lark(text: str, vocabulary: Vocabulary) -> str:
    """The grammar of a GBNF text. Raises GrammarError with the place of what is wrong."""
    rules = checked(read(text))
    return lark(lexed(rules, lambda token: _first_bytes(token, vocabulary)), lambda token: _ids(token, vocabulary))


def _first_bytes(token: Token, vocabulary: Vocabulary) -> int:
    """The bytes that the token's text may start with; a control token has no text."""
    if token.negated:
        return _EVERY_BYTE
    token_id = _id(token, vocabulary)
    data = b"" if token_id in vocabulary.special else vocabulary.tokens[token_id]
    return 1 << data[0] if data else 0


def _ids(token: Token, vocabulary: Vocabulary) -> str:
    """The ids that a token stands for, as ranges."""
    token_id = _id(token, vocabulary)
    if not token.negated:
        return str(token_id)
    barred = sorted({token_id, *vocabulary.eog})
    starts = [0, *(i + 1 for i in barred)]
    ends = [*(i - 1 for i in barred), vocabulary.n_tokens - 1]
    return ",".join(f"{low}-{high}" for low, high in zip(starts, ends, strict=True) if low <= high)


def _id(token: Token, vocabulary: Vocabulary) -> int:
    if isinstance(token.token, int):
        if not 0 <= token.token < vocabulary.n_tokens:
            raise GrammarError(
                f"grammar, {token.place}: there is no token {token.token}; the last is {vocabulary.n_tokens - 1}"
            )
        return token.token
    ids = vocabulary.tokenizer.encode(token.token, special=True)
    if len(ids) != 1:
        raise GrammarError(f"grammar, {token.place}: {token.token} is {len(ids)} tokens of this vocabulary, not one")
    return ids[0]
