"""Masks of random grammars against an Earley recognizer that knows nothing of lexemes or tokens."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from earley import Earley, Rules, Symbol
from hypothesis import event, given, settings
from hypothesis import strategies as st
from small_vocabulary import allowed, vocabulary

from minfer_models.grammar import CompiledGrammar, GrammarError, Vocabulary, compile_gbnf

# The characters that a vocabulary of these tests can write: some share their first byte, or their first two.
ALPHABET = ("a", "b", "c", "é", "è", "€", "₭", "\n")
OTHERS = ("ê", "₠")  # in negated classes only: characters that start like those
BYTES = tuple(char.encode() for char in (*ALPHABET, *OTHERS))
PIECES = (b"ab", b"ba", b"aa", b"abc", b"aab", b"\xe2\x82", b"\x82\xac", b"a\xe2", b"\xa9b", "é€".encode(), b"cc\n",
          b"bbbb")  # fmt: skip
MOST_STEPS = 7


@pytest.fixture(scope="module")
def small() -> Vocabulary:
    return vocabulary(PIECES, control=("<|a|>",), user=("<b>",), padding=5)


@dataclass
class Written:
    """A grammar twice: its text, and what the oracle reads."""

    text: str
    rules: dict[str, list[list[Symbol]]]


class Writer:
    """Draws a grammar in GBNF and, for the oracle, plain rules that say the same."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.rules, self.names = draw, {}, [f"r{i}" for i in range(draw(st.integers(0, 3)))]

    def grammar(self) -> Written:
        lines = []
        for name in ["root", *self.names]:
            text, alternatives = self.choice(2)
            lines.append(f"{name} ::= {text}")
            self.rules[name] = alternatives
        return Written("\n".join(lines), self.rules)

    def choice(self, depth: int) -> tuple[str, list[list[Symbol]]]:
        options = [self.sequence(depth) for _ in range(self.draw(st.integers(1, 3)))]
        return " | ".join(text for text, _ in options), [symbols for _, symbols in options]

    def sequence(self, depth: int) -> tuple[str, list[Symbol]]:
        items = [self.item(depth) for _ in range(self.draw(st.integers(0, 3)))]
        return " ".join(text for text, _ in items) or '""', [symbol for _, symbols in items for symbol in symbols]

    def item(self, depth: int) -> tuple[str, list[Symbol]]:
        text, symbols = self.atom(depth)
        repeat = self.draw(st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,3}", "{1,}"]))
        return text + repeat, self.repeated(symbols, repeat)

    def atom(self, depth: int) -> tuple[str, list[Symbol]]:
        kinds = ["literal", "class", *(["reference"] if self.names else []), *(["group"] if depth else [])]
        kind = self.draw(st.sampled_from(kinds))
        if kind == "literal":
            text = self.draw(st.text(st.sampled_from(ALPHABET), min_size=1, max_size=3))
            escaped = text.replace("\n", "\\n").replace("é", "\\u00e9")
            return f'"{escaped}"', [frozenset({char.encode()}) for char in text]
        if kind == "class":
            chars = self.draw(st.sets(st.sampled_from(ALPHABET), min_size=1, max_size=4))
            negated = self.draw(st.booleans()) and len(chars) < len(ALPHABET)
            inside = "".join(sorted(chars)).replace("\n", "\\n")
            matched = frozenset(c.encode() for c in ({*ALPHABET, *OTHERS} - chars if negated else chars))
            return f"[{'^' if negated else ''}{inside}]", [matched]
        if kind == "reference":
            name = self.draw(st.sampled_from(["root", *self.names]))
            return name, [name]
        text, alternatives = self.choice(depth - 1)
        return f"({text})", [self.new(alternatives)]

    def repeated(self, symbols: list[Symbol], repeat: str) -> list[Symbol]:
        if not repeat:
            return symbols
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1), "{2}": (2, 2), "{1,2}": (1, 2), "{0,3}": (0, 3),
                       "{1,}": (1, None)}[repeat]  # fmt: skip
        if most is not None:
            return [self.new([symbols * n for n in range(least, most + 1)])]
        rest = self.new([[]])
        self.rules[str(rest)].append([*symbols, rest])
        return [*symbols * least, rest]

    def new(self, alternatives: list[list[Symbol]]) -> str:
        name = f"+{len(self.rules)}"
        self.rules[name] = alternatives
        return name


grammars = st.composite(lambda draw: Writer(draw).grammar())()


@pytest.mark.full
@settings(max_examples=20_000)
@given(grammars, st.data())
def test_masks_are_those_of_the_oracle_long(small: Vocabulary, grammar: Written, data: st.DataObject) -> None:
    check(small, grammar, data)


@settings(max_examples=60)
@given(grammars, st.data())
def test_masks_are_those_of_the_oracle(small: Vocabulary, grammar: Written, data: st.DataObject) -> None:
    check(small, grammar, data)


def check(small: Vocabulary, grammar: Written, data: st.DataObject) -> None:
    try:
        compiled = compile_gbnf(grammar.text, small)
    except GrammarError as error:
        assert "never ends" in str(error), error
        event("never ends")
        return
    follow(small, compiled, grammar.rules, data)


def follow(small: Vocabulary, compiled: CompiledGrammar, rules: Rules, data: st.DataObject) -> None:
    """Walk along tokens that the mask allows, comparing the whole mask at each step."""
    oracle, matcher, text = Earley(rules), compiled.matcher(), b""
    written = {i for i, token in enumerate(small.tokens) if token and i not in small.special}
    for _ in range(MOST_STEPS):
        wanted = {i for i in written if in_alphabet(text + small.tokens[i]) and oracle.viable(text + small.tokens[i])}
        assert matcher.complete == oracle.complete(text)
        if matcher.complete:
            wanted |= small.eog
        got = {i for i in allowed(matcher) if i in small.special or in_alphabet(text + small.tokens[i])}
        assert got == wanted, (text, got ^ wanted)
        assert matcher.finished == (wanted == small.eog)
        choices = sorted(wanted - small.eog)
        if not choices:
            event("finished")
            return
        chosen = data.draw(st.sampled_from(choices))
        matcher.accept(chosen)
        text += small.tokens[chosen]


def in_alphabet(text: bytes) -> bool:
    """Whether the oracle knows all the characters: a class that is negated matches others too."""
    while text:
        char = next((char for char in BYTES if text.startswith(char)), None)
        if char is None:
            return any(char.startswith(text) for char in BYTES)
        text = text[len(char) :]
    return True
