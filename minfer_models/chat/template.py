"""A model's own chat template: messages in, text or token ids out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final

import jinja2

from minfer_models.chat.environment import ChatEnvironment, TemplateRefusalError, variables
from minfer_models.chat.errors import ChatTemplateError
from minfer_models.chat.messages import prepared
from minfer_models.chat.traced import TracedStr
from minfer_models.tokenizer import Tokenizer
from minfer_models.tokenizer.vocab import TOKENS_KEY, token_id

TEMPLATE_KEY: Final = "tokenizer.chat_template"
_ROLES = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}


class ChatTemplate:
    """A compiled template. Rendering equals `transformers`' `apply_chat_template` on the same JSON data."""

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], clock: Callable[[], datetime] = datetime.now
    ) -> None:
        """special_tokens: variables such as `bos_token`. Raises ChatTemplateError when the source does not parse."""
        self.source = source
        self._special_tokens = dict(special_tokens)
        try:
            self._environment = ChatEnvironment(clock)
            self._template = self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            where = f"at its line {error.lineno}"
            raise ChatTemplateError(f"the chat template does not parse {where}: {error.message}") from error
        except Exception as error:
            raise ChatTemplateError(f"the chat template does not compile: {_words(error)}") from error

    @classmethod
    def from_metadata(cls, meta: Mapping[str, object], clock: Callable[[], datetime] = datetime.now) -> ChatTemplate:
        """The template of GGUF metadata. Raises ChatTemplateError when there is none or it does not parse."""
        source = meta.get(TEMPLATE_KEY)
        if source is None:
            raise ChatTemplateError(f"this model has no chat template ({TEMPLATE_KEY}): give it a plain prompt")
        if not isinstance(source, str):
            raise ChatTemplateError(f"{TEMPLATE_KEY} is a {type(source).__name__}, not a template")
        return cls(source, _special_tokens(meta), clock)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> str:
        """The prompt as text.

        messages: mappings with `role` and what else the template reads (`content`, `tool_calls`, ...).
        options: further variables of the template, such as `enable_thinking`.
        Raises ChatTemplateError for what the template refuses or cannot do; it is never replaced by another.
        """
        return self._traced(messages, add_generation_prompt, tools, documents, options).plain()

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> list[int]:
        """The prompt as token ids; they decode to what `render` gives.

        Only markers that the template itself wrote become special tokens; the same characters inside messages, tools
        or options are plain text. BOS is added where the model asks for it and the template did not write it.
        Raises ChatTemplateError as `render`, TokenizerError for text the vocabulary cannot write.
        """
        prompt = self._traced(messages, add_generation_prompt, tools, documents, options)
        ids = tokenizer.encode_segments(prompt.segments())
        if tokenizer.add_bos and tokenizer.bos is not None and ids[:1] != [tokenizer.bos]:
            return [tokenizer.bos, *ids]
        return ids

    def _traced(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        documents: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any],
    ) -> TracedStr:
        try:
            values = variables({"tools": tools, "documents": documents, **options})
            values |= {"messages": prepared(messages), "add_generation_prompt": add_generation_prompt}
            with self._environment.rendering():
                text = self._template.render(self._special_tokens, **values)
        except ChatTemplateError:
            raise
        except TemplateRefusalError as error:
            refusal = str(error)
            raise ChatTemplateError(f"the chat template refuses these messages: {refusal}", refusal) from error
        except Exception as error:
            line = _template_line(error.__traceback__)
            raise ChatTemplateError(f"the chat template failed{line}: {_words(error)}") from error
        if not isinstance(text, TracedStr):
            raise TypeError(f"the template rendered to {type(text).__name__}, so the origin of its text is unknown")
        return text


def _special_tokens(meta: Mapping[str, object]) -> dict[str, str]:
    tokens: Any = meta.get(TOKENS_KEY, ())
    ids = {name: token_id(meta, role, len(tokens)) for role, name in _ROLES.items()}
    return {f"{name}_token": tokens[i] for name, i in ids.items() if i is not None}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _template_line(traceback: TracebackType | None) -> str:
    """Where in the template an error arose; jinja2 puts template lines into tracebacks as file `<template>`."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return "" if line is None else f" at its line {line}"
