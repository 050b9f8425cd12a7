"""What binds one generation: a grammar or a schema as the caller gives it, made into a constraint of the sampler."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from minfer_models.grammar import (
    AfterThinking,
    CompiledGrammar,
    GrammarError,
    Matcher,
    ThinkingTokens,
    Vocabulary,
    compile_gbnf,
    compile_json_schema,
)
from minfer_models.grammar.thinking import is_open
from minfer_models.tokenizer import Tokenizer

_PROMPT_TAIL = 16


class Grammars:
    """A model's grammars; its vocabulary is prepared when the first one is compiled."""

    def __init__(self, tokenizer: Tokenizer, n_logits: int) -> None:
        self._tokenizer = tokenizer
        self._n_logits = n_logits
        self._lock = threading.Lock()
        self._vocabulary: Vocabulary | None = None
        self._thinking: ThinkingTokens | None = None

    def gbnf(self, grammar: str | CompiledGrammar) -> CompiledGrammar:
        """A grammar in GBNF, compiled unless it is already. Raises GrammarError."""
        return self._own(grammar) if isinstance(grammar, CompiledGrammar) else compile_gbnf(grammar, self._prepared())

    def json_schema(self, schema: str | Mapping[str, Any] | bool | CompiledGrammar) -> CompiledGrammar:
        """A JSON Schema, compiled unless it is already. Raises GrammarError."""
        return (
            self._own(schema) if isinstance(schema, CompiledGrammar) else compile_json_schema(schema, self._prepared())
        )

    def constraint(
        self, grammar: CompiledGrammar, prompt: Sequence[int] = (), after_thinking: bool = False
    ) -> Matcher | AfterThinking:
        """What binds one text behind `prompt`; `after_thinking` lets a thinking block come first."""
        matcher = grammar.matcher()
        if not after_thinking:
            return matcher
        tail = self._tokenizer.decode(prompt[-_PROMPT_TAIL:])
        return AfterThinking(matcher, self._thinking_tokens(), is_open(tail))

    def _own(self, grammar: CompiledGrammar) -> CompiledGrammar:
        if grammar.vocabulary is not self._vocabulary:
            raise GrammarError(f"the {grammar.kind} was compiled for another model's vocabulary")
        return grammar

    def _prepared(self) -> Vocabulary:
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self._tokenizer, self._n_logits)
            return self._vocabulary

    def _thinking_tokens(self) -> ThinkingTokens:
        vocabulary = self._prepared()
        with self._lock:
            if self._thinking is None:
                self._thinking = ThinkingTokens(vocabulary)
            return self._thinking
