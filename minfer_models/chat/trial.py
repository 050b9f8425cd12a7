"""Whether a template can hold a chat at all, found out before anybody talks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_models.chat.content import NEEDLE
from minfer_models.chat.errors import ChatTemplateError

Message = dict[str, Any]


def require_usable(name: str, render: Callable[[list[Message]], str]) -> None:
    """Raise ChatTemplateError for a template, called `name` in errors, that cannot render a plain conversation.

    Tried are one question, and a question, an answer and another question, both with a system message and without.
    The template may refuse some of them in its own words (`raise_exception`), not all. It may neither fail otherwise
    nor leave out what the user says.

    render: the prompt for messages; raises ChatTemplateError.
    """
    refusals: list[ChatTemplateError] = []
    for messages in _conversations():
        roles = ", ".join(message["role"] for message in messages)
        try:
            text = render(messages)
        except ChatTemplateError as error:
            if error.refusal is None:
                raise ChatTemplateError(f"{error}; tried with a conversation of {roles}") from error
            refusals.append(error)
            continue
        if NEEDLE not in text:
            raise ChatTemplateError(f"{name} leaves out what the user says; tried with a conversation of {roles}")
    if len(refusals) == len(_conversations()):
        raise ChatTemplateError(
            f"{name} refuses every conversation that was tried, with and without a system message: "
            f"{refusals[0].refusal}",
            refusals[0].refusal,
        )


def _conversations() -> list[list[Message]]:
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": NEEDLE}
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}, user]
    return [[user], talk, [system, user], [system, *talk]]
