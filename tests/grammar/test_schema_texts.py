"""Whatever the logits say, the text is JSON and valid: our sampler under random logits, `jsonschema` as the judge."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from random_schemas import schemas

from minfer_models.grammar import CompiledGrammar, GrammarError, Vocabulary, compile_json_schema
from minfer_models.sampling import Sampler, SamplingParams

FREE_STEPS = 30
MOST_STEPS = 1000
CLOSING = ((rb"[0-9.]|true|false|null", 20.0), (rb"x|[\]}]+|[:,] ?", 40.0), (rb'"[\]}]*', 60.0))
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
BLANKS = re.compile(r" |\n[ \t]{0,40}")


class Logits:
    """Random, but from some step on what ends strings, lists and objects becomes likely, so that texts end."""

    def __init__(self, vocabulary: Vocabulary, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.n = vocabulary.n_words * 32
        self.bias = np.zeros(self.n, np.float32)
        for pattern, bias in CLOSING:
            self.bias[[i for i, token in enumerate(vocabulary.tokens) if re.fullmatch(pattern, token)]] = bias
        self.bias[list(vocabulary.eog)] = 80.0

    def row(self, step: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        row = self.random.standard_normal(self.n, dtype=np.float32) * 3
        return row if step < FREE_STEPS else row + self.bias


def written(grammar: CompiledGrammar, seed: int) -> bytes:
    """What a model of random logits writes until it ends the generation."""
    vocabulary, matcher = grammar.vocabulary, grammar.matcher()
    logits = Logits(vocabulary, seed)
    sampler = Sampler(SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed), logits.n,
                      vocabulary.tokenizer.decodable, constraint=matcher)  # fmt: skip
    text = b""
    for step in range(MOST_STEPS):
        token = sampler.sample(logits.row(step))
        if token in vocabulary.eog:
            return text
        assert vocabulary.tokens[token], f"id {token} stands for no text"
        text += vocabulary.tokens[token]
    raise AssertionError(f"no end within {MOST_STEPS} tokens: {text!r}")


def check(vocabulary: Vocabulary, schema: Any, seed: int) -> None:
    try:
        grammar = compile_json_schema(schema, vocabulary)
    except GrammarError as error:
        event(re.sub(r".*#\S*: |[^a-zA-Z ].*", "", str(error)))
        assert any(said in str(error) for said in ("nsatisfiable", "not disjoint", "too many", "Failed to generate"))
        return
    event("compiled")
    text = written(grammar, seed).decode()  # strictly: whole characters only
    value = json.loads(text)
    Draft202012Validator(schema).validate(value)
    assert all(BLANKS.fullmatch(blanks) for blanks in re.findall(r"\s+", STRING.sub("s", text)))
    in_order(schema, value)


def in_order(schema: Any, value: Any) -> None:
    """Properties stand in the order of the schema, the others behind them."""
    if isinstance(value, dict) and isinstance(schema, dict) and "properties" in schema:
        ranks = [list(schema["properties"]).index(name) for name in value if name in schema["properties"]]
        assert ranks == sorted(ranks)
        assert list(value)[: len(ranks)] == [name for name in schema["properties"] if name in value]


@settings(max_examples=100)
@given(schemas(), st.integers(0, 2**32))
def test_bytes(byte_tokens: Vocabulary, schema: Any, seed: int) -> None:
    check(byte_tokens, schema, seed)


@settings(max_examples=25)
@given(schemas(), st.integers(0, 2**32))
def test_smollm2(smollm2_tokens: Vocabulary, schema: Any, seed: int) -> None:
    check(smollm2_tokens, schema, seed)


@settings(max_examples=15)
@given(schemas(), st.integers(0, 2**32))
def test_qwen3(qwen3_tokens: Vocabulary, schema: Any, seed: int) -> None:
    check(qwen3_tokens, schema, seed)


@settings(max_examples=15)
@given(schemas(), st.integers(0, 2**32))
def test_llama3_1(llama3_1_tokens: Vocabulary, schema: Any, seed: int) -> None:
    check(llama3_1_tokens, schema, seed)


@pytest.mark.full
@settings(max_examples=1000)
@given(schemas(3), st.integers(0, 2**32))
def test_bytes_long(byte_tokens: Vocabulary, schema: Any, seed: int) -> None:
    check(byte_tokens, schema, seed)


@pytest.mark.full
@settings(max_examples=500)
@given(schemas(3), st.integers(0, 2**32))
def test_qwen3_long(qwen3_tokens: Vocabulary, schema: Any, seed: int) -> None:
    check(qwen3_tokens, schema, seed)
