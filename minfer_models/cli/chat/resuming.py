"""Going on with a conversation from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from minfer_models.conversation import Conversation
from minfer_models.stops import stop_strings
from minfer_models.talk import Talk, drawn_seed
from minfer_models.talk_file import load_talk


def resume(conversation: Conversation, path: Path, given: Mapping[str, Any]) -> None:
    """Go on with what is in the file, under the settings there, less those that are `given`.

    given: as `LLM.conversation` takes them. Raises ConversationError and OSError as `Conversation.load`.
    """
    conversation.replace(_with(load_talk(path), dict(given)))


def _with(talk: Talk, given: dict[str, Any]) -> Talk:
    if "system" in given:
        talk = talk.with_system(given.pop("system"))
    if "seed" in given:
        talk = replace(talk, seed=drawn_seed(given.pop("seed")), answers=0)
    return replace(
        talk,
        max_tokens=given.pop("max_tokens", talk.max_tokens),
        stop=stop_strings(given.pop("stop", talk.stop)),
        template_arguments=talk.template_arguments | given.pop("template_arguments", {}),
        keep_thinking=given.pop("keep_thinking", talk.keep_thinking),
        sampling=talk.sampling | given,
    )
