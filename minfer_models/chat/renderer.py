"""One template with all that was found out about it: messages in, text with its origins out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from minfer_models.chat.answer import AnswerFormat, is_thought_open, thinking_markers
from minfer_models.chat.calls import NOTATIONS, Calls, notation_shown
from minfer_models.chat.compiled import CompiledTemplate
from minfer_models.chat.content import CALLED, TOOL, ContentRules, call_conversation
from minfer_models.chat.continuing import cut_behind_final, with_mark
from minfer_models.chat.environment import variables
from minfer_models.chat.errors import ChatTemplateError
from minfer_models.chat.keeping import Thinking
from minfer_models.chat.messages import prepared
from minfer_models.chat.traced import TracedStr

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a prompt is rendered from; see `ChatTemplate.render`."""

    messages: Messages
    prompt: bool | None = None
    tools: Tools = None
    documents: Tools = None
    continued: bool = False
    keep_thinking: bool = False
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Renderer:
    """Renders a template's source; what else it takes is found out by rendering small conversations, once."""

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], clock: Callable[[], datetime], called: str
    ) -> None:
        """called: as errors call the template. Raises ChatTemplateError for a source that could never render."""
        self.compiled = CompiledTemplate(source, clock, called)
        self._special_tokens = special_tokens
        self._rules = ContentRules(lambda messages: self._tried(messages, True))

    @property
    def takes_tools(self) -> bool:
        """Whether the template looks at `tools`."""
        return "tools" in self.compiled.reads

    @cached_property
    def markers(self) -> tuple[str, str] | None:
        """What its model puts around thinking."""
        return thinking_markers(self.compiled.mentions)

    @cached_property
    def thinking(self) -> Thinking | None:
        """How the template writes reasoning; None when it has no markers for it."""
        return None if self.markers is None else Thinking.of(self.markers, self._tried)

    @cached_property
    def calls(self) -> Calls:
        """The notation of calls. A template that can't show one has none to split either."""
        try:
            shown = self.text(Asked(call_conversation(), False, [TOOL] if self.takes_tools else None))
        except ChatTemplateError:
            return "none"
        return notation_shown(shown, CALLED)

    def form(self, prompt: TracedStr, calls: bool, described: bool) -> AnswerFormat:
        """How to split the answer to `prompt`, with `calls` of tools or without.

        described: tools may be described in a message instead; then calls are known by their marker.
        """
        tail = prompt.segments()[-1][0] if prompt else ""
        found = self.calls if calls or described else "none"
        if found != "none" and NOTATIONS[found].bare and not calls:
            found = "none"  # an answer in JSON would be taken for a call
        return AnswerFormat(self.markers, is_thought_open(tail, self.markers), found)

    def text(self, asked: Asked) -> TracedStr:
        """The prompt. Raises ChatTemplateError for what the template refuses or cannot do."""
        if asked.continued and asked.prompt:
            raise ChatTemplateError(
                "continue_final_message leaves the last turn open: no add_generation_prompt with it"
            )
        messages = prepared(asked.messages, self._rules)
        thinking = self.thinking if asked.keep_thinking else None
        if thinking is None or thinking.kept:
            return self._ended(messages, asked)
        last = len(messages) - 1 if asked.continued else len(messages)
        marked, taken = thinking.taken_out(messages[:last])
        return thinking.put_back(self._ended([*marked, *messages[last:]], asked), taken)

    def _ended(self, messages: list[dict[str, Any]], asked: Asked) -> TracedStr:
        """The text that ends as asked: where an answer starts, with the last turn, or inside it."""
        given = {"tools": asked.tools, "documents": asked.documents, **asked.options}
        if not asked.continued:
            return self._run(messages, asked.prompt is not False, given)
        return cut_behind_final(self._run(with_mark(messages), False, given), messages[-1])

    def _tried(self, messages: list[dict[str, Any]], prompt: bool) -> TracedStr:
        """Messages as they are."""
        return self._run(prepared(messages), prompt, {"tools": None, "documents": None})

    def _run(self, messages: list[dict[str, Any]], prompt: bool, given: Mapping[str, Any]) -> TracedStr:
        _check_schemas(given["tools"])
        values = variables(given) | {"messages": messages, "add_generation_prompt": prompt}
        return self.compiled.run({**self._special_tokens, **values})


def _check_schemas(tools: object) -> None:
    """Raise ChatTemplateError for tools that are no JSON schemas: a function has to be described by its caller."""
    if tools is not None and (isinstance(tools, str | Mapping) or not isinstance(tools, Sequence)):
        raise ChatTemplateError(f"tools is a {type(tools).__name__}, not a list of JSON schemas")
    for i, tool in enumerate(tools or ()):
        if not isinstance(tool, Mapping):
            raise ChatTemplateError(f"tools[{i}] is a {type(tool).__name__}, not a JSON schema")
