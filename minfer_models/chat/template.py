"""A model's own chat template: messages in, text or token ids out."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from minfer_models.chat.answer import AnswerFormat, is_thought_open, thinking_markers
from minfer_models.chat.calls import NOTATIONS, Calls, notation_shown
from minfer_models.chat.compiled import CompiledTemplate
from minfer_models.chat.content import CALLED, TOOL, ContentRules, call_conversation
from minfer_models.chat.continuing import cut_behind_final, with_mark
from minfer_models.chat.environment import variables
from minfer_models.chat.errors import ChatTemplateError
from minfer_models.chat.keeping import Thinking
from minfer_models.chat.messages import prepared
from minfer_models.chat.sources import CHATML_MARKERS, DEFAULT, TEMPLATE_KEY, TOOL_USE, Origin, TemplateSources
from minfer_models.chat.traced import TracedStr
from minfer_models.chat.trial import require_usable
from minfer_models.tokenizer import Tokenizer
from minfer_models.tokenizer.vocab import TOKENS_KEY, token_id

log = logging.getLogger(__name__)

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]] | None

_ROLES: Final = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
_GIVEN_BY_US: Final = frozenset({"messages", "tools", "documents", "add_generation_prompt"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What a prompt is rendered from; see `ChatTemplate.render`."""

    messages: Messages
    prompt: bool | None = None
    tools: Tools = None
    documents: Tools = None
    continued: bool = False
    keep_thinking: bool = False
    template: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ChatPrompt(NamedTuple):
    """A prompt's token ids, and how to split the answer to it."""

    ids: list[int]
    form: AnswerFormat


class ChatTemplate:
    """A compiled template. Rendering equals `transformers`' `apply_chat_template` on the same JSON data.

    `origin` says whose it is: the "model"'s, "given" by the caller, or "chatml" where the model has none.
    """

    def __init__(
        self,
        source: str | Mapping[str, str],
        special_tokens: Mapping[str, str],
        clock: Callable[[], datetime] = datetime.now,
        origin: Origin = "given",
    ) -> None:
        """source: the template, or several by name, of which `default` and `tool_use` are chosen by themselves.

        special_tokens: variables such as `bos_token`. Raises ChatTemplateError when the source does not parse, or holds
        a construct that can never render.
        """
        self.sources = {DEFAULT: source} if isinstance(source, str) else dict(source)
        self.origin: Origin = origin
        self._special_tokens, self._clock = dict(special_tokens), clock
        self._compiled: dict[str, CompiledTemplate] = {}
        self._rules: dict[str, ContentRules] = {}
        self._thinking: dict[str, Thinking | None] = {}
        self._calls: dict[str, Calls] = {}
        for name in {DEFAULT, TOOL_USE} & self.sources.keys() or self.sources:
            self._named(name)

    @classmethod
    def from_metadata(
        cls,
        meta: Mapping[str, object],
        clock: Callable[[], datetime] = datetime.now,
        given: str | Path | None = None,
    ) -> ChatTemplate:
        """The template of GGUF metadata, or `given`: a file, the name of one of the model's, or a template's text.

        Without any, ChatML where the vocabulary has its markers, with a warning. Small conversations are rendered
        before anybody talks. Raises ChatTemplateError when there is none, it does not parse, or it cannot hold a chat.
        """
        sources = TemplateSources.of(meta, given)
        template = cls(sources.texts, _special_tokens(meta), clock, sources.origin)
        template.require_usable()
        if sources.origin == "chatml":
            markers = " ".join(CHATML_MARKERS)
            log.warning("this model has no chat template (%s): ChatML is used (%s)", TEMPLATE_KEY, markers)
        return template

    @property
    def source(self) -> str:
        """The template that messages without tools go through."""
        return self._named(self._choose(None, None)).source

    @property
    def announced(self) -> bool:
        """Whether the model has no template of its own, which was said in a warning."""
        return self.origin == "chatml"

    def reads(self, tools: bool = False, template: str | None = None) -> frozenset[str]:
        """The variables that the template asks for, `enable_thinking` for one."""
        return self._named(self._choose(template, [] if tools else None)).reads

    def require_usable(self) -> None:
        """Raise ChatTemplateError when the template cannot hold a plain chat: see `trial`."""
        name = self._choose(None, None)
        compiled = self._named(name)
        with compiled.one_budget():
            require_usable(compiled.name, self.render)

    def require_arguments(
        self,
        arguments: Iterable[str] = (),
        tools: bool = False,
        template: str | None = None,
        *,
        keep_thinking: bool = False,
    ) -> None:
        """Raise ChatTemplateError for arguments, or tools, that the template never looks at: they'd be lost.

        So does keep_thinking where the template has no markers of thinking.
        """
        reads = self.reads(tools, template)
        for name in arguments:
            if name in _GIVEN_BY_US:
                raise ChatTemplateError(f"{name} is no argument of a template: it is given with the messages")
            if name not in reads:
                known = ", ".join(sorted(reads - _GIVEN_BY_US - self._special_tokens.keys())) or "none"
                raise ChatTemplateError(f"this model's chat template has no argument {name!r}; it reads {known}")
        if tools and "tools" not in reads:
            raise ChatTemplateError("this model's chat template takes no tools: the model would never see them")
        if keep_thinking and self._thinking_of(self._choose(template, [] if tools else None)) is None:
            raise ChatTemplateError("this model's chat template has no markers of thinking: there is none to keep")

    def render(
        self,
        messages: Messages,
        add_generation_prompt: bool | None = None,
        tools: Tools = None,
        documents: Tools = None,
        *,
        continue_final_message: bool = False,
        keep_thinking: bool = False,
        template: str | None = None,
        **options: Any,
    ) -> str:
        """The prompt as text.

        messages: mappings with `role` and what else the template reads (`content`, `tool_calls`, ...).
        add_generation_prompt: end with what starts an answer; None does unless the final message is continued.
        continue_final_message: end with the final message's content, left open, instead of closing its turn.
        keep_thinking: write the reasoning of earlier answers, too, where the template leaves it out.
        tools: JSON schemas of functions. template: the name of one of several templates.
        options: further variables of the template, such as `enable_thinking`.
        Raises ChatTemplateError for what the template refuses or cannot do; it is never replaced by another.
        """
        given = (tools, documents, continue_final_message, keep_thinking, template, options)
        return self._traced(Asked(messages, add_generation_prompt, *given)).plain()

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Messages,
        add_generation_prompt: bool | None = None,
        tools: Tools = None,
        documents: Tools = None,
        *,
        continue_final_message: bool = False,
        keep_thinking: bool = False,
        template: str | None = None,
        **options: Any,
    ) -> list[int]:
        """The prompt as token ids; they decode to what `render` gives for the same arguments.

        Only markers that the template itself wrote become special tokens; the same characters inside messages, tools
        or options are plain text. BOS is added where the model asks for it and the template did not write it.
        Raises ChatTemplateError as `render`, TokenizerError for text the vocabulary cannot write.
        """
        given = (tools, documents, continue_final_message, keep_thinking, template, options)
        return _encoded(tokenizer, self._traced(Asked(messages, add_generation_prompt, *given)))

    def answer_format(
        self,
        messages: Messages,
        tools: Tools = None,
        *,
        continue_final_message: bool = False,
        template: str | None = None,
        **options: Any,
    ) -> AnswerFormat:
        """How to split the answer to these messages into reasoning, content and calls: see `AnswerSplitter`."""
        asked = Asked(messages, None, tools, None, continue_final_message, False, template, options)
        return self._format(asked, self._traced(asked))

    def prompt(
        self,
        tokenizer: Tokenizer,
        messages: Messages,
        tools: Tools = None,
        *,
        keep_thinking: bool = False,
        template: str | None = None,
        **options: Any,
    ) -> ChatPrompt:
        """`encode` and `answer_format` of one rendering."""
        asked = Asked(messages, None, tools, None, False, keep_thinking, template, options)
        text = self._traced(asked)
        return ChatPrompt(_encoded(tokenizer, text), self._format(asked, text))

    def _format(self, asked: Asked, prompt: TracedStr) -> AnswerFormat:
        name = self._choose(asked.template, asked.tools)
        thinking = thinking_markers(self._named(name).mentions)
        tail = prompt.segments()[-1][0] if prompt else ""
        return AnswerFormat(thinking, is_thought_open(tail, thinking), self._calls_of(name, bool(asked.tools)))

    def _calls_of(self, name: str, tools: bool) -> Calls:
        """Found by rendering a call, once; a template that can't show one has none to split either.

        Without tools nothing is a call, unless the template takes none: then they are described in a message, and calls
        are known by their marker.
        """
        compiled = self._named(name)
        if not tools and "tools" in compiled.reads:
            return "none"
        if name not in self._calls:
            given = [TOOL] if "tools" in compiled.reads else None
            try:
                shown = self.render(call_conversation(), False, given, template=name)
            except ChatTemplateError:
                shown = ""
            self._calls[name] = notation_shown(shown, CALLED)
        found = self._calls[name]
        return "none" if not tools and found != "none" and NOTATIONS[found].bare else found

    def _thinking_of(self, name: str) -> Thinking | None:
        """How this template writes reasoning; None when it has no markers for it."""
        if name not in self._thinking:
            markers = thinking_markers(self._named(name).mentions)
            found = None if markers is None else Thinking.of(markers, functools.partial(self._tried, name))
            self._thinking[name] = found
        return self._thinking[name]

    def _traced(self, asked: Asked) -> TracedStr:
        if asked.continued and asked.prompt:
            raise ChatTemplateError(
                "continue_final_message leaves the last turn open: no add_generation_prompt with it"
            )
        name = self._choose(asked.template, asked.tools)
        messages = prepared(asked.messages, self._rules_of(name))
        thinking = self._thinking_of(name) if asked.keep_thinking else None
        if thinking is None or thinking.kept:
            return self._ended(name, messages, asked)
        last = len(messages) - 1 if asked.continued else len(messages)
        marked, taken = thinking.taken_out(messages[:last])
        return thinking.put_back(self._ended(name, [*marked, *messages[last:]], asked), taken)

    def _ended(self, name: str, messages: list[dict[str, Any]], asked: Asked) -> TracedStr:
        """The text that ends as asked: where an answer starts, with the last turn, or inside it."""
        given = (asked.tools, asked.documents, asked.options)
        if not asked.continued:
            return self._run(name, messages, asked.prompt is not False, *given)
        return cut_behind_final(self._run(name, with_mark(messages), False, *given), messages[-1])

    def _run(
        self,
        name: str,
        messages: list[dict[str, Any]],
        prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        documents: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any],
    ) -> TracedStr:
        _check_schemas(tools)
        values = variables({"tools": tools, "documents": documents, **options})
        values |= {"messages": messages, "add_generation_prompt": prompt}
        return self._named(name).run({**self._special_tokens, **values})

    def _choose(self, template: str | None, tools: Sequence[Mapping[str, Any]] | None) -> str:
        """The name of the template to use, as `transformers` chooses it."""
        if template is not None:
            chosen = template
        else:
            chosen = TOOL_USE if tools is not None and TOOL_USE in self.sources else DEFAULT
        if chosen not in self.sources:
            raise ChatTemplateError(f"there is no chat template {chosen!r}; this model has {', '.join(self.sources)}")
        return chosen

    def _named(self, name: str) -> CompiledTemplate:
        if name not in self._compiled:
            called = "the chat template" if len(self.sources) == 1 else f"the chat template {name!r}"
            self._compiled[name] = CompiledTemplate(self.sources[name], self._clock, called)
        return self._compiled[name]

    def _rules_of(self, name: str) -> ContentRules:
        if name not in self._rules:
            self._rules[name] = ContentRules(functools.partial(self._trial, name))
        return self._rules[name]

    def _trial(self, name: str, messages: list[dict[str, Any]]) -> str:
        return self._tried(name, messages, True)

    def _tried(self, name: str, messages: list[dict[str, Any]], prompt: bool) -> TracedStr:
        """Messages as they are."""
        return self._run(name, prepared(messages), prompt, None, None, {})


def _encoded(tokenizer: Tokenizer, prompt: TracedStr) -> list[int]:
    ids = tokenizer.encode_segments(prompt.segments())
    if tokenizer.add_bos and tokenizer.bos is not None and ids[:1] != [tokenizer.bos]:
        return [tokenizer.bos, *ids]
    return ids


def _check_schemas(tools: object) -> None:
    """Raise ChatTemplateError for tools that are no JSON schemas: a function has to be described by its caller."""
    if tools is not None and (isinstance(tools, str | Mapping) or not isinstance(tools, Sequence)):
        raise ChatTemplateError(f"tools is a {type(tools).__name__}, not a list of JSON schemas")
    for i, tool in enumerate(tools or ()):
        if not isinstance(tool, Mapping):
            raise ChatTemplateError(f"tools[{i}] is a {type(tool).__name__}, not a JSON schema")


def _special_tokens(meta: Mapping[str, object]) -> dict[str, str]:
    tokens: Any = meta.get(TOKENS_KEY, ())
    if isinstance(tokens, str) or not isinstance(tokens, Sequence):
        raise ChatTemplateError(f"{TOKENS_KEY} is a {type(tokens).__name__}, not an array of strings")
    ids = {name: token_id(meta, role, len(tokens)) for role, name in _ROLES.items()}
    return {f"{name}_token": tokens[i] for name, i in ids.items() if i is not None}
