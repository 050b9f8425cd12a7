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
    tokens = _NamedTokens(vocabulary)
    return lark(lexed(rules, tokens), tokens.ranges)


class _NamedTokens:
    """The tokens that a grammar names, looked up in a vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def first_bytes(self, token: Token) -> int:
        """A control token has no text; one that is negated may be any text."""
        if token.negated:
            return _EVERY_BYTE
        token_id = self._id(token)
        data = b"" if token_id in self._vocabulary.special else self._vocabulary.tokens[token_id]
        return 1 << data[0] if data else 0

    def share(self, left: Token, right: Token) -> bool:
        """Whether one token of the vocabulary is both."""
        if left.negated and right.negated:
            return True
        return (self._id(left) == self._id(right)) == (left.negated == right.negated)

    def ranges(self, token: Token) -> str:
        """The ids that a token stands for, never one that ends the generation where it is negated."""
        token_id = self._id(token)
        if not token.negated:
            return str(token_id)
        barred = sorted({token_id, *self._vocabulary.eog})
        starts = [0, *(i + 1 for i in barred)]
        ends = [*(i - 1 for i in barred), self._vocabulary.n_tokens - 1]
        return ",".join(f"{low}-{high}" for low, high in zip(starts, ends, strict=True) if low <= high)

    def _id(self, token: Token) -> int:
        last = self._vocabulary.n_tokens - 1
        if isinstance(token.token, int):
            if not 0 <= token.token <= last:
                raise GrammarError(f"grammar, {token.place}: there is no token {token.token}; the last is {last}")
            return token.token
        ids = self._vocabulary.tokenizer.encode(token.token, special=True)
        if len(ids) != 1:
            many = f"{token.token} is {len(ids)} tokens of this vocabulary, not one"
            raise GrammarError(f"grammar, {token.place}: {many}")
        return ids[0]
