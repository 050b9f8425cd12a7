"""Thinking in the history: earlier reasoning written again as the model wrote it, where a template leaves it out.

Most templates drop it, as their makers want it: it fills the context, and models are trained without it. Kept, every
prompt begins with the whole of the one before and of its answer, so that nothing has to be computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from minfer_models.chat.content import NEEDLE
from minfer_models.chat.errors import ChatTemplateError
from minfer_models.chat.traced import TracedStr, by_template, concat

Message = dict[str, Any]
Render = Callable[[list[Message], bool], TracedStr]
_CONTENT = "qvwxzz"
"""Of the answer that is tried; its reasoning is NEEDLE."""


class _Taken(NamedTuple):
    """The reasoning of message `place`, in whose place stands a mark."""

    place: int
    mark: str
    reasoning: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning as a template writes it around `NEEDLE`: `before` and `behind`, markers and newlines.

    `kept`: the template itself writes that of earlier answers, too.
    """

    opened: str
    closed: str
    before: str
    behind: str
    kept: bool = False

    @classmethod
    def of(cls, markers: tuple[str, str], render: Render) -> Self:
        """Found out with two small conversations; `render` gives their text, with a prompt at its end or without.

        A template that shows no reasoning at all is taken to mean newlines as nearly all that do.
        """
        asked: list[Message] = [{"role": "user", "content": "a"}]
        answered = [*asked, {"role": "assistant", "content": _CONTENT, "reasoning_content": NEEDLE, "thinking": NEEDLE}]
        opened, closed = markers
        around = opened + "\n", "\n" + closed + "\n\n"
        shown = _tried(render, answered, False)
        at, behind = shown.find(NEEDLE), shown.find(_CONTENT)
        start = shown.rfind(opened, 0, max(at, 0))
        if 0 <= start < at < behind and closed in shown[at:behind]:
            around = shown[start:at], shown[at + len(NEEDLE) : behind]
        return cls(opened, closed, *around, kept=NEEDLE in _tried(render, [*answered, *asked], True))

    def block(self, reasoning: str) -> TracedStr:
        """What stands before an answer's content. Markers are the template's, their text inside `reasoning` isn't."""
        return concat((by_template(self.before), TracedStr(reasoning), by_template(self.behind)))

    def taken_out(self, messages: list[Message]) -> tuple[list[Message], list[_Taken]]:
        """The messages with marks where earlier reasoning belongs, and what was there."""
        marked, taken = list(messages), list[_Taken]()
        for place, message in enumerate(messages):
            reasoning, content = self._parts(message)
            if not reasoning.strip("\n"):
                continue
            mark = _mark(place, messages)
            taken.append(_Taken(place, mark, reasoning))
            bare = {key: value for key, value in message.items() if key not in ("reasoning_content", "thinking")}
            marked[place] = {**bare, "content": concat((TracedStr(mark), content))}
        return marked, taken

    def put_back(self, text: TracedStr, taken: list[_Taken]) -> TracedStr:
        """The rendered text with reasoning in place of the marks.

        Raises ChatTemplateError when the template changed or dropped an answer's content, and its mark with it.
        """
        for place, mark, reasoning in taken:
            before, found, behind = text.partition(mark)
            if not found or mark in behind:
                raise ChatTemplateError(
                    f"keep_thinking: the chat template changes or drops the content of messages[{place}]"
                )
            text = concat((before, self.block(reasoning.strip("\n")), behind.lstrip("\n")))
        return text

    def _parts(self, message: Message) -> tuple[str, str]:
        """Reasoning and content of an answer, also where both are in the content; no reasoning of other messages."""
        content = message.get("content") or TracedStr("")
        if message["role"] != "assistant" or not isinstance(content, str):
            return "", TracedStr("")
        reasoning = message.get("reasoning_content")
        if isinstance(reasoning, str):
            return reasoning, content
        inside = content.lstrip().removeprefix(self.opened)
        written, found, behind = inside.partition(self.closed)
        return (written, behind.lstrip("\n")) if found and content.lstrip().startswith(self.opened) else ("", content)


def _mark(place: int, messages: list[Message]) -> str:
    """A text that is nowhere in the messages and that no template changes."""
    mark, said = f"KEPT_THINKING_{place}_", repr(messages)
    while mark in said:
        mark += "_"
    return mark


def _tried(render: Render, messages: list[Message], prompt: bool) -> str:
    try:
        return render(messages, prompt).plain()
    except ChatTemplateError:
        return ""
