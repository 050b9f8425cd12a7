"""Constrained decoding: text that a GBNF grammar or a JSON Schema describes, whatever the logits say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minfer_models.grammar.compiled import CompiledGrammar, Matcher, refusal
from minfer_models.grammar.errors import GrammarError
from minfer_models.grammar.gbnf.checks import checked
from minfer_models.grammar.gbnf.compiling import gbnf_lark
from minfer_models.grammar.gbnf.reader import read
from minfer_models.grammar.schema.checks import checked_schemas
from minfer_models.grammar.schema.compiling import schema_lark
from minfer_models.grammar.schema.endings import check_endings
from minfer_models.grammar.schema.reading import read_schema
from minfer_models.grammar.thinking import AfterThinking, ThinkingTokens
from minfer_models.grammar.vocabulary import Vocabulary

__all__ = [
    "AfterThinking",
    "CompiledGrammar",
    "GrammarError",
    "Matcher",
    "ThinkingTokens",
    "Vocabulary",
    "check_gbnf",
    "check_json_schema",
    "compile_gbnf",
    "compile_json_schema",
]


def check_gbnf(text: str) -> None:
    """Raise the GrammarError that `compile_gbnf` would, as far as that can be told without a vocabulary."""
    checked(read(text))


def check_json_schema(schema: str | Mapping[str, Any] | bool) -> None:
    """Raise the GrammarError that `compile_json_schema` would, as far as that can be told without the engine."""
    check_endings(checked_schemas(read_schema(schema)))


def compile_gbnf(text: str, vocabulary: Vocabulary) -> CompiledGrammar:
    """A grammar in GBNF, llama.cpp's notation. Raises GrammarError with line, column and what is wrong."""
    return CompiledGrammar(vocabulary, gbnf_lark(text, vocabulary), "grammar")


def compile_json_schema(schema: str | Mapping[str, Any] | bool, vocabulary: Vocabulary) -> CompiledGrammar:
    """A JSON Schema (draft 2020-12), as text or as values.

    Raises GrammarError with the JSON pointer of the first keyword or value that can't be enforced.
    """
    grammar = schema_lark(schema, lambda lark: refusal(vocabulary, lark))
    return CompiledGrammar(vocabulary, grammar, "JSON Schema")
