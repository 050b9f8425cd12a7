"""What a conversation consists of: messages, and everything that decides how the next one is answered."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from minfer_models.sampling import SamplingError, sampling_params
from minfer_models.stops import stop_strings

SEEDS: Final = 1 << 64

Message = dict[str, Any]


class ConversationError(ValueError):
    """A conversation that can't do what was asked, or a file that holds none; the message has the values."""


@dataclass(frozen=True, slots=True)
class Talk:
    """Plain JSON values, which nobody changes.

    tools: JSON schemas of functions. template_arguments: such as `enable_thinking`. keep_thinking: earlier reasoning
    stays in prompts, whatever the template does. sampling: fields of SamplingParams, less the seed. answers: how many
    were given, also those that were taken back: each is sampled with a seed of its own, `seed` plus its number from 0,
    so that another try differs and the whole talk can be repeated.

    Raises ConversationError for values of another kind, SamplingError and StopError for settings out of range.
    """

    messages: tuple[Message, ...] = ()
    tools: tuple[dict[str, Any], ...] | None = None
    template_arguments: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int = 0
    answers: int = 0
    keep_thinking: bool = False

    def __post_init__(self) -> None:
        for place, message in enumerate(self.messages):
            role = message.get("role") if isinstance(message, dict) else None
            if not isinstance(role, str):
                raise ConversationError(f"messages[{place}] is {message!r}, not a message with a role and content")
        for name, kind in (
            ("template_arguments", dict),
            ("sampling", dict),
            ("seed", int),
            ("answers", int),
            ("keep_thinking", bool),
        ):
            value = getattr(self, name)
            if type(value) is not kind:
                raise ConversationError(f"{name} is {value!r}, not {_called(kind)}")
        if not (0 <= self.seed < SEEDS and self.answers >= 0):
            raise ConversationError(f"seed {self.seed} of {self.answers} answers: it is between 0 and 2^64-1")
        if self.max_tokens is not None and (type(self.max_tokens) is not int or self.max_tokens < 1):
            raise ConversationError(f"max_tokens is {self.max_tokens!r}, expected a whole number from 1")
        if self.tools is not None and not all(isinstance(tool, dict) for tool in self.tools):
            raise ConversationError(f"tools is {self.tools!r}, not a list of JSON objects")
        if "seed" in self.sampling:
            raise SamplingError("the seed of a conversation is its own, not a field of sampling")
        stop_strings(self.stop)
        sampling_params(**self.sampling)

    @property
    def system(self) -> str | None:
        """The system message's text; None without one."""
        first = self.messages[0] if self.messages else {}
        return str(first.get("content") or "") if first.get("role") == "system" else None

    @property
    def next_seed(self) -> int:
        """What the next answer is sampled with."""
        return (self.seed + self.answers) % SEEDS

    def with_system(self, text: str | None) -> Self:
        """With this system message in place of the one that is there; None takes it away."""
        return replace(self, messages=(*system_message(text), *self._without_system()))

    def asking(self, messages: Sequence[Mapping[str, Any]]) -> Self:
        """With more messages at the end. Raises ConversationError for none, and for what isn't a list of messages."""
        more = plain_list(messages, "messages")
        if not more:
            raise ConversationError("there is nothing to answer: no message was given")
        return replace(self, messages=(*self.messages, *more))

    def answered(self, message: Message) -> Self:
        """With an answer at the end."""
        return replace(self, messages=(*self.messages, message), answers=self.answers + 1)

    def unanswered(self) -> Self:
        """Without the answer at the end. Raises ConversationError when nothing was asked."""
        kept = self.messages[:-1] if self.messages and self.messages[-1]["role"] == "assistant" else self.messages
        if not replace(self, messages=kept)._without_system():
            raise ConversationError("there is nothing to answer: nobody has said anything yet")
        return replace(self, messages=kept)

    def undone(self) -> Self:
        """Without what the user said last, and all behind it. Raises ConversationError when there is nothing."""
        said = [place for place, message in enumerate(self.messages) if message["role"] == "user"]
        if not said:
            raise ConversationError("there is nothing to take back: nobody has said anything yet")
        return replace(self, messages=self.messages[: said[-1]])

    def cleared(self) -> Self:
        """With the system message only."""
        return replace(self, messages=self.messages[: len(self.messages) - len(self._without_system())])

    def _without_system(self) -> tuple[Message, ...]:
        return self.messages if self.system is None else self.messages[1:]


def system_message(text: str | None) -> tuple[Message, ...]:
    """The message, where there is one. Raises ConversationError for what isn't text."""
    if not isinstance(text, str | None):
        raise ConversationError(f"the system message is {text!r}, not text")
    return () if text is None else ({"role": "system", "content": text},)


def drawn_seed(seed: int | None) -> int:
    """The seed, or one that is drawn for None and -1. Raises SamplingError for what isn't a seed."""
    checked = sampling_params(seed=seed).seed
    return secrets.randbits(32) if checked is None or checked == -1 else int(checked)


def plain(values: Any, name: str) -> Any:
    """A copy as JSON values. Raises ConversationError for what JSON can't hold."""
    try:
        return json.loads(json.dumps(values, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConversationError(f"{name} can't be written as JSON: {error}") from None


def plain_list(values: Any, name: str) -> list[Any]:
    """`plain` of a list. Raises ConversationError for anything else."""
    copied = plain(values, name)
    if not isinstance(copied, list):
        raise ConversationError(f"{name} is {copied!r:.80}, not a list")
    return copied


def _called(kind: type) -> str:
    return {dict: "a JSON object", int: "a whole number", bool: "true or false"}[kind]
