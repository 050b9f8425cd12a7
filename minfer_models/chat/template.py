"""A model's own chat template: messages in, text or token ids out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from minfer_models.chat.answer import AnswerFormat
from minfer_models.chat.errors import ChatTemplateError
from minfer_models.chat.renderer import Asked, Messages, Renderer, Tools
from minfer_models.chat.sources import CHATML_MARKERS, DEFAULT, TEMPLATE_KEY, TOOL_USE, Origin, TemplateSources
from minfer_models.chat.traced import TracedStr
from minfer_models.chat.trial import require_usable
from minfer_models.tokenizer import Tokenizer
from minfer_models.tokenizer.vocab import TOKENS_KEY, token_id

log = logging.getLogger(__name__)

_ROLES: Final = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
_GIVEN_BY_US: Final = frozenset({"messages", "tools", "documents", "add_generation_prompt"})


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
        self._renderers: dict[str, Renderer] = {}
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
        return self._chosen(None, None).compiled.source

    @property
    def announced(self) -> bool:
        """Whether the model has no template of its own, which was said in a warning."""
        return self.origin == "chatml"

    def reads(self, tools: bool = False, template: str | None = None) -> frozenset[str]:
        """The variables that the template asks for, `enable_thinking` for one."""
        return self._chosen(template, [] if tools else None).compiled.reads

    def require_usable(self) -> None:
        """Raise ChatTemplateError when the template cannot hold a plain chat: see `trial`."""
        compiled = self._chosen(None, None).compiled
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
        if keep_thinking and self._chosen(template, [] if tools else None).markers is None:
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
        given = (add_generation_prompt, tools, documents, continue_final_message, keep_thinking, options)
        return self._chosen(template, tools).text(Asked(messages, *given)).plain()

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
        given = (add_generation_prompt, tools, documents, continue_final_message, keep_thinking, options)
        return _encoded(tokenizer, self._chosen(template, tools).text(Asked(messages, *given)))

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
        renderer = self._chosen(template, tools)
        text = renderer.text(Asked(messages, None, tools, None, continue_final_message, options=options))
        return self._format(renderer, text, tools)

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
        renderer = self._chosen(template, tools)
        text = renderer.text(Asked(messages, None, tools, keep_thinking=keep_thinking, options=options))
        return ChatPrompt(_encoded(tokenizer, text), self._format(renderer, text, tools))

    def _format(self, renderer: Renderer, prompt: TracedStr, tools: Tools) -> AnswerFormat:
        return renderer.form(prompt, bool(tools), not renderer.takes_tools and TOOL_USE not in self.sources)

    def _chosen(self, template: str | None, tools: Tools) -> Renderer:
        """The template of this name, or the one that `transformers` chooses."""
        if template is not None:
            chosen = template
        else:
            chosen = TOOL_USE if tools is not None and TOOL_USE in self.sources else DEFAULT
        if chosen not in self.sources:
            raise ChatTemplateError(f"there is no chat template {chosen!r}; this model has {', '.join(self.sources)}")
        return self._named(chosen)

    def _named(self, name: str) -> Renderer:
        if name not in self._renderers:
            called = "the chat template" if len(self.sources) == 1 else f"the chat template {name!r}"
            self._renderers[name] = Renderer(self.sources[name], self._special_tokens, self._clock, called)
        return self._renderers[name]


def _encoded(tokenizer: Tokenizer, prompt: TracedStr) -> list[int]:
    ids = tokenizer.encode_segments(prompt.segments())
    if tokenizer.add_bos and tokenizer.bos is not None and ids[:1] != [tokenizer.bos]:
        return [tokenizer.bos, *ids]
    return ids


def _special_tokens(meta: Mapping[str, object]) -> dict[str, str]:
    tokens: Any = meta.get(TOKENS_KEY, ())
    if isinstance(tokens, str) or not isinstance(tokens, Sequence):
        raise ChatTemplateError(f"{TOKENS_KEY} is a {type(tokens).__name__}, not an array of strings")
    ids = {name: token_id(meta, role, len(tokens)) for role, name in _ROLES.items()}
    return {f"{name}_token": tokens[i] for name, i in ids.items() if i is not None}
