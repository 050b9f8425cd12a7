"""The Python interface: load a model, generate text, look at logits and graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from minfer_ir.graph import Graph
from minfer_ir.params import DevicePlan
from minfer_ir.plugins import enable
from minfer_ir.runtime.backend import Backend
from minfer_ir.runtime.probe import Probe
from minfer_ir.runtime.resources import call_sites
from minfer_kernels.cpu.backend import CpuBackend
from minfer_models.background import Background
from minfer_models.engine import Engine, EngineOptions, Logits, Model, TokenSequence
from minfer_models.engine.sequence import token_array
from minfer_models.generation import Generation
from minfer_models.hub import locate
from minfer_models.offload import Layers
from minfer_models.placing import Request, place_model
from minfer_models.sampling import Constraint, Sampler, SamplingParams, SamplingSettings, sampling_params
from minfer_models.settings import Settings
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
        ids = self.tokenizer.encode(prompt, add_bos=None) if isinstance(prompt, str) else list(prompt)
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
        grammar: str | CompiledGrammar | None = None,
        json_schema: str | Mapping[str, Any] | bool | CompiledGrammar | None = None,
        after_thinking: bool = False,
        constraint: Constraint | None = None,
        **settings: Any,
    ) -> Reply:
        """Answer a conversation through the model's chat template; `settings` as in `generate`.

        The answer's text comes as the model writes it; `parts()`, `answer` and `message` have reasoning, content and
        calls of tools apart. tools: JSON schemas of functions. template_arguments: further variables of the template,
        `enable_thinking` for one. Raises ChatTemplateError when there is no template, it refuses the messages, or it
        has no such arguments, and as `generate`.
        """
        from minfer_models.reply import Reply

        template, arguments = self.chat_template(), template_arguments or {}
        template.require_arguments(arguments, tools=bool(tools))
        ids = template.encode(self.tokenizer, messages, tools=tools, **arguments)
        form = template.answer_format(messages, tools, **arguments)
        binding = (grammar, json_schema, after_thinking, constraint)
        return Reply(*self._prepared(ids, binding, **settings), form=form)

    def conversation(
        self,
        *,
        system: str | None = None,
        messages: Sequence[Mapping[str, Any]] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_arguments: Mapping[str, Any] | None = None,
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
        from minfer_models.talk import Talk, drawn_seed, plain, system_message

        seed = sampling.pop("seed", None)
        talk = Talk(
            messages=(*system_message(system), *plain(messages, "messages")),
            tools=None if tools is None else tuple(plain(tools, "tools")),
            template_arguments=plain(template_arguments or {}, "template_arguments"),
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


def load(
    model: str | Path,
    *,
    n_ctx: int | None = None,
    threads: int | None = None,
    threads_fixed: bool | None = None,
    kv: str = "auto",
    fusions_off: Iterable[str] = (),
    device: str | None = None,
    gpu_layers: Layers = None,
    gpu_mem: int | None = None,
    capture: bool | None = None,
    async_copies: bool | None = None,
    invariant: bool | None = None,
    devices: DevicePlan | None = None,
    chunk: int | None = None,
    budget: int | None = None,
    settings: Settings | None = None,
    backends: Sequence[Backend] | None = None,
    for_chat: bool = False,
    chat_template: str | Path | None = None,
    on_weight: Callable[[str, int], None] | None = None,
    on_compile: Callable[[str, int, int], None] | None = None,
    on_device: Callable[[str], None] | None = None,
) -> LLM:
    """Load a model: a path, a Hugging Face name `owner/repo:TAG`, or "demo".

    `n_ctx` tokens of context (None: the model's own, up to 8192), `threads` of the CPU backend (None: the physical
    cores), of which fewer walk while other processes keep cores busy, unless `threads_fixed`, `kv` cell type "auto",
    "f32", "f16" or "q8_0", `fusions_off` by name, `budget` in bytes. `device` as on the command line: "auto", "cpu",
    "cuda", "cuda:1", "torch:mps", "numpy" or a plug-in's name; a GPU runs `gpu_layers` blocks (None: all, "auto": as
    many as fit) in at most `gpu_mem` MiB, replays captured steps unless `capture` is False and copies without waiting
    unless `async_copies` is; `invariant` has it compute a token's logits to the same bits whatever is computed beside
    it. `devices` says by backends which runs what, instead of `device`; `backends` replaces the ones that it names.
    `for_chat` has the chat template looked at before any weight is taken in, and refused if it can't hold a chat;
    `chat_template` is another one: a file, the name of one of the model's, or a template's text.
    `on_weight` and `on_compile` report progress, `on_device` hears the device and the plan in a line each.

    Raises LocateError when nothing is found, GGUFError for a file that can't be run, EngineError for options out of
    range, ChatTemplateError for a template that can't be used, BudgetError when it doesn't fit, PluginError for a
    plug-in that the settings name and that isn't there.
    """
    settings = settings or Settings.from_env()
    enable(settings.plugins)
    defaults = EngineOptions()
    options = EngineOptions(
        n_ctx=n_ctx,
        threads=threads if threads is not None else settings.threads,
        kv=kv,
        chunk=defaults.chunk if chunk is None else chunk,
        fusions_off=frozenset(fusions_off) | frozenset(settings.fusions_off),
        budget=budget,
        isa=settings.isa,
        threads_fixed=settings.threads_fixed if threads_fixed is None else threads_fixed,
    )
    request = Request.of(settings, device, gpu_layers, gpu_mem, devices).with_paths(capture, async_copies, invariant)
    opened = Model.open(locate(model, settings))
    made: list[Backend] = []
    try:
        template = _chat_template(opened, chat_template) if for_chat or chat_template is not None else None
        placed = place_model(opened, options, settings, request, backends, on_compile)
        made += placed.backends
        _expect_weights(made, opened, budget)
        probe = Probe(settings.test_call_fail, call_sites(made))
    except BaseException:
        _close(made if backends is None else ())
        opened.file.close()
        raise
    # Made while native code packs the weights: it takes as long, and is all Python.
    tokenizer = Background(lambda: Tokenizer.from_metadata(opened.file.metadata))

    def take_in(name: str, nbytes: int) -> None:
        tokenizer.start()
        if on_weight is not None:
            on_weight(name, nbytes)

    engine = Engine(opened, made, placed.options, probe, take_in)
    try:
        placed.check(engine.resources)
        vocabulary = tokenizer.result()
        opened.check_vocabulary(vocabulary.n_vocab)
        llm = LLM(engine, vocabulary, template)
    except BaseException:
        engine.close()
        raise
    if on_device is not None:
        for line in placed.lines(engine):
            on_device(line)
    return llm


def _chat_template(model: Model, given: str | Path | None) -> ChatTemplate:
    from minfer_models.chat import ChatTemplate

    return ChatTemplate.from_metadata(model.file.metadata, given=given)


def _expect_weights(backends: Sequence[Backend], model: Model, budget: int | None) -> None:
    """Have the memory and the file made ready while the vocabulary and the plan are; a budget speaks first."""
    if budget is None and [backend.name for backend in backends] == ["cpu"]:
        model.file.will_need()
        for backend in backends:
            if isinstance(backend, CpuBackend):
                backend.expect_weights(model.file.size)


def _close(backends: Iterable[Backend]) -> None:
    for backend in backends:
        close = getattr(backend, "close", None)
        if close is not None:
            close()
