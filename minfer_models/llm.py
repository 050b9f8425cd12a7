"""The Python interface to a loaded model: generate text, answer messages, look at logits and graphs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from minfer_ir.graph import Graph
from minfer_kernels.cpu.backend import CpuBackend
from minfer_models.engine import Engine, Logits, TokenSequence
from minfer_models.engine.sequence import token_array
from minfer_models.generation import Generation
from minfer_models.sampling import Constraint, Sampler, SamplingParams, SamplingSettings, sampling_params
from minfer_models.stops import stop_strings
from minfer_models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from minfer_models.chat import ChatTemplate
    from minfer_models.conversation import Conversation
    from minfer_models.grammar import CompiledGrammar
    from minfer_models.grammar.binding import Grammars
    from minfer_models.reply import Reply


Binding = tuple[
    "str | CompiledGrammar | None", "str | Mapping[str, Any] | bool | CompiledGrammar | None", bool, Constraint | None
]
"""What binds a text: a grammar, a JSON Schema, whether thinking may come first, or any other constraint."""


class LLM:
    """A loaded model. Close it (or use `with`) to stop its threads."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, template: ChatTemplate | None = None) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self._template = template
        self._grammars: Grammars | None = None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The file's metadata."""
        return self.engine.model.file.metadata

    @property
    def cpu(self) -> CpuBackend | None:
        """The CPU backend, when the model uses it."""
        found = self.engine.resources.backends.get("cpu")
        return found if isinstance(found, CpuBackend) else None

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        grammar: str | CompiledGrammar | None = None,
        json_schema: str | Mapping[str, Any] | bool | CompiledGrammar | None = None,
        after_thinking: bool = False,
        constraint: Constraint | None = None,
        **sampling: Unpack[SamplingSettings],
    ) -> Generation:
        """Continue `prompt`, text or token ids; an iterable of pieces of text.

        Text is taken as plain text: characters that look like a special token stay characters. The text ends where a
        `stop` string begins, which is literal and may lie across tokens. `sampling` are fields of SamplingParams;
        without a `temperature` it is 0, which takes the most likely token. The text is one that `grammar` (GBNF)
        describes, or JSON that is valid under `json_schema`: text, values, or what `grammars` compiled; with
        `after_thinking` behind a `<think>` block, if the model writes one. `constraint` says before every token which
        ones may come. Raises ContextError when the prompt doesn't fit, SamplingError for a setting that is unknown or
        out of range, StopError for a stop string that is none, GrammarError for what can't be enforced.
        """
        ids = self.tokenizer.encode(prompt, add_bos=None) if isinstance(prompt, str) else _token_ids(prompt)
        binding = (grammar, json_schema, after_thinking, constraint)
        return Generation(*self._prepared(ids, binding, max_tokens, stop, **sampling))

    def sampler(
        self, params: SamplingParams, prompt: Sequence[int] = (), constraint: Constraint | None = None
    ) -> Sampler:
        """What chooses this model's tokens behind `prompt`; never an id that stands for no text."""
        if self.tokenizer.gaps:
            barred = dict.fromkeys(self.tokenizer.gaps, -math.inf)
            params = replace(params, logit_bias={**params.logit_bias, **barred})
        return Sampler(
            params,
            self.engine.model.config.n_vocab,
            self.tokenizer.decodable,
            self.engine.largest,
            prompt=prompt,
            constraint=constraint,
            bytes_of=self.tokenizer.token_bytes,
        )

    def _prepared(
        self,
        ids: list[int],
        binding: Binding,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        **sampling: Unpack[SamplingSettings],
    ) -> tuple[Engine, Tokenizer, list[int], Sampler, int | None, tuple[str, ...]]:
        """What a Generation is made of."""
        params = sampling_params(**{"temperature": 0.0, **sampling})
        sampler = self.sampler(params, ids, self._constraint(ids, *binding))
        return self.engine, self.tokenizer, ids, sampler, max_tokens, stop_strings(stop)

    @property
    def grammars(self) -> Grammars:
        """Compiles grammars and JSON Schemas for this model, to use them many times."""
        if self._grammars is None:
            from minfer_models.grammar.binding import Grammars

            self._grammars = Grammars(self.tokenizer, self.engine.model.config.n_vocab)
        return self._grammars

    def _constraint(
        self,
        prompt: Sequence[int],
        grammar: str | CompiledGrammar | None,
        json_schema: str | Mapping[str, Any] | bool | CompiledGrammar | None,
        after_thinking: bool,
        constraint: Constraint | None,
    ) -> Constraint | None:
        given = [value for value in (grammar, json_schema, constraint) if value is not None]
        if len(given) > 1 or (after_thinking and grammar is None and json_schema is None):
            from minfer_models.grammar import GrammarError

            many = "give one of grammar, json_schema and constraint"
            raise GrammarError(many if len(given) > 1 else "after_thinking needs a grammar or a json_schema")
        if grammar is None and json_schema is None:
            return constraint
        grammars = self.grammars
        compiled = grammars.json_schema(json_schema) if json_schema is not None else grammars.gbnf(grammar or "")
        return grammars.constraint(compiled, prompt, after_thinking)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_arguments: Mapping[str, Any] | None = None,
        keep_thinking: bool = False,
        grammar: str | CompiledGrammar | None = None,
        json_schema: str | Mapping[str, Any] | bool | CompiledGrammar | None = None,
        after_thinking: bool = False,
        constraint: Constraint | None = None,
        **settings: Any,
    ) -> Reply:
        """Answer a conversation through the model's chat template; `settings` as in `generate`.

        The answer's text comes as the model writes it; `parts()`, `answer` and `message` have reasoning, content and
        calls of tools apart. tools: JSON schemas of functions. template_arguments: further variables of the template,
        `enable_thinking` for one. keep_thinking: reasoning in earlier answers stays in the prompt, also where the
        template leaves it out. Raises ChatTemplateError when there is no template, it refuses the messages, or it
        has no such arguments, and as `generate`.
        """
        from minfer_models.reply import Reply

        template, arguments = self.chat_template(), template_arguments or {}
        template.require_arguments(arguments, tools=bool(tools), keep_thinking=keep_thinking)
        asked = template.prompt(self.tokenizer, messages, tools, keep_thinking=keep_thinking, **arguments)
        binding = (grammar, json_schema, after_thinking, constraint)
        return Reply(*self._prepared(asked.ids, binding, **settings), form=asked.form)

    def conversation(
        self,
        *,
        system: str | None = None,
        messages: Sequence[Mapping[str, Any]] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_arguments: Mapping[str, Any] | None = None,
        keep_thinking: bool = False,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        grammar: str | CompiledGrammar | None = None,
        json_schema: str | Mapping[str, Any] | bool | CompiledGrammar | None = None,
        after_thinking: bool = False,
        **sampling: Unpack[SamplingSettings],
    ) -> Conversation:
        """A conversation of several turns, of which each computes only what is new in it.

        It begins with the `system` message and `messages`. The others are as in `chat`, for every answer. The seed is
        drawn where none is given. Raises ConversationError for values that JSON can't hold, ChatTemplateError for no
        template or arguments that it lacks, SamplingError, StopError, GrammarError.
        """
        from minfer_models.conversation import Conversation
        from minfer_models.talk import Talk, drawn_seed, plain, plain_list, system_message

        seed = sampling.pop("seed", None)
        talk = Talk(
            messages=(*system_message(system), *plain_list(messages, "messages")),
            tools=None if tools is None else tuple(plain_list(tools, "tools")),
            template_arguments=plain(template_arguments or {}, "template_arguments"),
            keep_thinking=keep_thinking,
            sampling=dict(sampling),
            max_tokens=max_tokens,
            stop=stop_strings(stop),
            seed=drawn_seed(seed),
        )
        compiled_grammar = None if grammar is None else self.grammars.gbnf(grammar)
        compiled_schema = None if json_schema is None else self.grammars.json_schema(json_schema)
        binding = (compiled_grammar, compiled_schema, after_thinking, None)
        self._constraint((), *binding)  # what contradicts itself is refused now
        return Conversation(self, talk, lambda prompt: self._constraint(prompt, *binding))

    def chat_template(self) -> ChatTemplate:
        """The model's template, or what `load` was given; made once. Raises ChatTemplateError when it can't be used."""
        if self._template is None:
            # jinja2 is a tenth of a warm start, and most runs don't chat
            from minfer_models.chat import ChatTemplate

            self._template = ChatTemplate.from_metadata(self.metadata)
        return self._template

    def logits(self, tokens: Sequence[int]) -> Logits:
        """The logits behind every token: float32 `[n_tokens, n_vocab]`."""
        ids = token_array(tokens)
        with TokenSequence(self.engine, len(ids)) as sequence:
            return sequence.feed(ids, outputs="all")

    def graph(self, n_tokens: int = 1, stage: str = "dce") -> Graph:
        """The graph of a forward over `n_tokens` tokens as it stands after `stage`."""
        return self.engine.stage(self.engine.params(n_tokens), stage).graph

    def close(self) -> None:
        """Stop the threads and close the file."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _token_ids(prompt: Sequence[int]) -> list[int]:
    """Raises EngineError for what isn't a list of token ids."""
    return [] if isinstance(prompt, list | tuple) and not prompt else token_array(prompt).tolist()
