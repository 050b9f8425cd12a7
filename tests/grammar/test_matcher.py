"""A place in a grammar: where it may end, what it never allows, going back, sharing, and what hostile input costs."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabulary import allowed, vocabulary

from minfer_models.grammar import GrammarError, Vocabulary, compile_gbnf, compile_json_schema
from minfer_models.sampling import Sampler, SamplingParams


def test_a_generation_ends_only_where_the_text_is_complete(byte_tokens: Vocabulary) -> None:
    matcher = compile_gbnf('root ::= "a" "b"*', byte_tokens).matcher()
    assert not allowed(matcher) & byte_tokens.eog
    assert not matcher.complete
    matcher.accept(ord("a"))
    assert matcher.complete
    assert not matcher.finished
    assert allowed(matcher) == {ord("b"), *byte_tokens.eog}
    matcher.accept(min(byte_tokens.eog))
    assert matcher.finished
    assert allowed(matcher) == byte_tokens.eog
    with pytest.raises(GrammarError, match="token 98 can't follow here"):
        matcher.accept(ord("b"))


def test_every_end_of_generation_is_allowed_and_nothing_else_behind_a_whole_text(qwen3_tokens: Vocabulary) -> None:
    matcher = compile_gbnf('root ::= "a"', qwen3_tokens).matcher()
    matcher.accept(qwen3_tokens.tokens.index(b"a"))
    assert matcher.finished
    assert {qwen3_tokens.tokenizer.token_text(i) for i in allowed(matcher)} == {"<|im_end|>", "<|endoftext|>"}


def test_an_end_before_the_text_is_complete_is_refused(byte_tokens: Vocabulary) -> None:
    matcher = compile_gbnf('root ::= "ab"', byte_tokens).matcher()
    with pytest.raises(GrammarError, match="can't follow here"):
        matcher.accept(min(byte_tokens.eog))


@pytest.mark.parametrize("thinking", [False, True])
def test_rows_beyond_the_vocabulary_are_never_allowed(qwen3_tokens: Vocabulary, thinking: bool) -> None:
    """Logits of Qwen3 have 151,936 rows, the last 267 of which stand for nothing, however large they are."""
    from minfer_models.grammar import AfterThinking, ThinkingTokens

    matcher = compile_gbnf("root ::= .*", qwen3_tokens).matcher()
    bound = AfterThinking(matcher, ThinkingTokens(qwen3_tokens), True) if thinking else matcher
    assert len(bound.mask()) == 151_936 // 32
    assert max(allowed(bound)) < 151_669
    logits = np.zeros(151_936, np.float32)
    logits[151_935] = 100.0
    sampler = Sampler(SamplingParams(temperature=1.0, seed=1), 151_936, constraint=bound)
    assert sampler.sample(logits) < 151_669


@settings(max_examples=30)
@given(st.data())
def test_what_is_rewound_never_was(byte_tokens: Vocabulary, data: st.DataObject) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "xy"]}}, "required": ["b"]}
    grammar = compile_json_schema({**schema, "additionalProperties": False}, byte_tokens)
    matcher, taken = grammar.matcher(), []
    for _ in range(data.draw(st.integers(1, 6))):
        for _ in range(data.draw(st.integers(0, 8))):
            token = data.draw(st.sampled_from(sorted(allowed(matcher))))
            matcher.accept(token)
            taken.append(token)
        back = data.draw(st.integers(0, len(taken)))
        matcher.rewind(back)
        del taken[len(taken) - back :]
        again = grammar.matcher()
        for token in taken:
            again.accept(token)
        assert allowed(matcher) == allowed(again)
        assert (matcher.complete, matcher.finished) == (again.complete, again.finished)
    with pytest.raises(GrammarError, match="can't rewind"):
        matcher.rewind(len(taken) + 1)


def test_texts_that_start_alike_share_their_masks(byte_tokens: Vocabulary) -> None:
    grammar = compile_gbnf('root ::= "abc"', byte_tokens)
    first, second = grammar.matcher(), grammar.matcher()
    for token in b"ab":
        assert first.mask() is second.mask()
        first.accept(token)
        second.accept(token)
    assert not first.mask().flags.writeable


def test_threads_share_a_grammar(byte_tokens: Vocabulary) -> None:
    grammar = compile_json_schema({"type": "array", "items": {"type": "integer"}}, byte_tokens)

    def walk(seed: int) -> list[set[int]]:
        matcher, random, seen = grammar.matcher(), np.random.default_rng(seed), []
        for _ in range(60):
            seen.append(allowed(matcher))
            matcher.accept(int(random.choice(sorted(seen[-1] - byte_tokens.eog) or sorted(byte_tokens.eog))))
        return seen

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(walk, [seed % 3 for seed in range(24)]))
    assert together == [walk(seed % 3) for seed in range(24)]


def test_tokens_that_cut_characters_are_exact() -> None:
    tokens = vocabulary((b"\xe2\x82", b"\x82\xac", b'"\xe2', b"\xac!", b"\xf0\x9f"))
    matcher = compile_gbnf('root ::= "\\"" [€-₭] "!"', tokens).matcher()
    names = lambda: sorted(tokens.tokens[i] for i in allowed(matcher))  # noqa: E731
    assert names() == [b'"', b'"\xe2']
    matcher.accept(tokens.tokens.index(b'"\xe2'))
    assert names() == [b"\x82", b"\x82\xac"]
    matcher.accept(0x82)
    assert names() == [b"\xac", b"\xac!", b"\xad"]


# The engine's own reading of bounds that exclude let the bound itself through in 6 of these.
BASES = ("-12.5", "-1", "0", "0.25", "12", "12.5", "100")
STEPS = ("0", "0.1", "-0.1", "0.01", "-0.01", "0.5", "-0.5", "1", "-1")
NUMBERS = sorted({format((Decimal(base) + Decimal(step)).normalize(), "f") for base in BASES for step in STEPS})
BOUNDS = (-12.5, -12, -1, -0.25, 0, 0.25, 12, 12.5, 100)


@pytest.mark.parametrize(
    ("low", "high"), list(itertools.combinations(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"), 2))
)
def test_numbers_are_within_their_bounds(byte_tokens: Vocabulary, low: str, high: str) -> None:
    for at, to in itertools.product(BOUNDS, BOUNDS):
        schema = {"type": "number", low: at, high: to}
        try:
            grammar = compile_json_schema(schema, byte_tokens)
        except GrammarError:
            assert not any(within(schema, text) for text in NUMBERS)
            continue
        wrong = [text for text in NUMBERS if grammar_has(grammar, text) != within(schema, text)]
        assert [text for text in wrong if not within(schema, text)] == []
        assert not wrong or abs(to - at) < 1  # a few numbers just within a bound that excludes are lost there


def grammar_has(grammar: Any, text: str) -> bool:
    matcher = grammar.matcher()
    try:
        for byte in text.encode():
            matcher.accept(byte)
    except GrammarError:
        return False
    return matcher.complete


def within(schema: dict[str, Any], text: str) -> bool:
    value, bound = Decimal(text), {key: Decimal(str(limit)) for key, limit in schema.items() if key != "type"}
    holds = {"minimum": lambda b: value >= b, "exclusiveMinimum": lambda b: value > b,
             "maximum": lambda b: value <= b, "exclusiveMaximum": lambda b: value < b}  # fmt: skip
    return all(holds[key](limit) for key, limit in bound.items())


HOSTILE: list[Any] = [
    {"type": "string", "pattern": "(a{1000}){1000}"},
    {"type": "string", "pattern": "^(a|b|ab)*c{1,500}.*d{1,500}$"},
    {"type": "string", "pattern": "((((((x{50}){50}){50}){50}){50}){50})"},
    {"type": "string", "maxLength": 100_000},
    {"type": "array", "minItems": 100_000, "items": {"type": "array", "minItems": 100_000}},
    {"enum": [f"word {i}" for i in range(20_000)]},
    {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(2_000)}},
    {"$ref": "#/$defs/0", "$defs": {str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}, {"$ref": f"#/$defs/{i + 1}"}]}
                                    for i in range(30)} | {"30": {}}},
    'root ::= a{1000}\na ::= b{1000}\nb ::= c{1000}\nc ::= "x"',
    "root ::= " + "\n".join(f"r{i} r{i}\nr{i} ::= " for i in range(40)) + '"x"',
    'root ::= ("a" | "b")* "c"{100} ("a" | "b")* "d"{100}',
    "root ::= " + " | ".join(f'"{i}" r{i}' for i in range(600)) +
    "".join(f'\nr{i} ::= root | "{i}"' for i in range(600)),
    'root ::= root root | "a"',
    "root ::= ((([a-z]*)*)*)* root?",
]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_input_costs_a_bounded_amount_and_ends_in_an_error_or_a_grammar(
    byte_tokens: Vocabulary, hostile: Any
) -> None:
    """The engine counts its work and gives up; nothing here runs for seconds or takes much memory."""
    try:
        compile_ = compile_gbnf if isinstance(hostile, str) else compile_json_schema
        matcher = compile_(hostile, byte_tokens).matcher()
        for _ in range(20):
            token = min(allowed(matcher) - byte_tokens.eog, default=None)
            if token is None:
                break
            matcher.accept(token)
    except GrammarError as error:
        assert str(error)


FORMATS = {
    "date": (["2026-11-30", "2024-02-29"], ["2026-13-01", "26-1-1", "2026-11-31x"]),
    "time": (["23:59:59Z", "12:00:00.5+01:00"], ["24:00:00Z", "1:2:3Z"]),
    "date-time": (["2026-11-30T23:59:59Z"], ["2026-11-30", "2026-11-30T25:00:00Z"]),
    "duration": (["P1D", "PT1H30M"], ["1D", "P"]),
    "email": (["a@b.org"], ["a", "@b"]),
    "hostname": (["a.example.org"], ["-a", "a..b"]),
    "ipv4": (["127.0.0.1"], ["256.0.0.1", "1.2.3"]),
    "ipv6": (["::1", "2001:db8::ff"], [":::", "12345::"]),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    "uri": (["https://a.org/b?c#d"], ["a b", "//"]),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_enforced(byte_tokens: Vocabulary, name: str) -> None:
    grammar = compile_json_schema({"type": "string", "format": name}, byte_tokens)
    good, bad = FORMATS[name]
    assert [text for text in good if not grammar_has(grammar, json.dumps(text))] == []
    assert [text for text in bad if grammar_has(grammar, json.dumps(text))] == []
