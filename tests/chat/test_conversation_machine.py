"""A conversation against a naive one that is a list of messages, under any order of steps.

Every answer depends on every byte of its prompt, as the model's cells hold it: a token too many, one too few, or one
of another conversation gives another answer.
"""

from __future__ import annotations

import zlib
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from scripted import TALKING, backend_of, scripted, write_scripted

from minfer_models import LLM
from minfer_models.conversation import Answer
from minfer_models.engine import ContextError
from minfer_models.talk import ConversationError

N_CTX = 150
MARKER = b"[assistant]"
TEXT = st.text("abü😀", min_size=0, max_size=12)


def answer_to(prompt: bytes) -> bytes:
    return f"{zlib.crc32(prompt):x}".encode() + b"y" * (prompt[0] % 3)


class Machine(RuleBasedStateMachine):
    llm: LLM

    def __init__(self) -> None:
        super().__init__()
        self.talk = self.llm.conversation()
        self.expected: list[dict[str, str]] = []

    def rendered(self, messages: list[dict[str, str]]) -> bytes:
        return "".join(f"[{m['role']}]{m['content']}\n" for m in messages).encode() + MARKER

    def take(self, answer: Answer, asked: list[dict[str, str]], pieces: int | None) -> None:
        """All of an answer, or so many pieces; forwards and the text are as they must be."""
        backend, prompt = backend_of(self.llm), self.rendered(asked)
        backend.rows.clear()
        came = "".join(islice(answer, pieces))
        if pieces == 0:
            answer.stop()
            return  # it was never begun
        room = N_CTX - len(prompt)
        whole = answer_to(prompt).decode()[:room]
        assert came == whole[:pieces]
        assert sum(backend.rows) == answer.usage.prefilled_tokens + answer.usage.completion_tokens - 1
        self.expected = [*asked, {"role": "assistant", "content": came}]

    @rule(text=TEXT, pieces=st.sampled_from([None, None, None, 0, 1, 3]))
    def send(self, text: str, pieces: int | None) -> None:
        asked = [*self.expected, {"role": "user", "content": text}]
        if len(self.rendered(asked)) >= N_CTX:
            with pytest.raises(ContextError, match=f"{len(self.rendered(asked))} tokens .* context size of {N_CTX}"):
                self.talk.send(text)
            return
        self.take(self.talk.send(text), asked, pieces)

    @rule(pieces=st.sampled_from([None, 1]))
    def regenerate(self, pieces: int | None) -> None:
        asked = self.expected[:-1] if self.expected and self.expected[-1]["role"] == "assistant" else self.expected
        if not any(m["role"] != "system" for m in asked):
            with pytest.raises(ConversationError):
                self.talk.regenerate()
            return
        self.take(self.talk.regenerate(), asked, pieces)

    @rule()
    def undo(self) -> None:
        users = [i for i, m in enumerate(self.expected) if m["role"] == "user"]
        if not users:
            with pytest.raises(ConversationError):
                self.talk.undo()
            return
        assert self.talk.undo() == self.expected[users[-1] :]
        self.expected = self.expected[: users[-1]]

    @rule()
    def clear(self) -> None:
        self.talk.clear()
        self.expected = [m for m in self.expected if m["role"] == "system"]

    @rule(text=st.none() | TEXT)
    def system(self, text: str | None) -> None:
        self.talk.system = text
        rest = [m for m in self.expected if m["role"] != "system"]
        self.expected = rest if text is None else [{"role": "system", "content": text}, *rest]

    @rule()
    def others_take_the_cells(self) -> None:
        self.llm.generate("[user]x\n[assistant]").text()
        assert self.talk.held_tokens == 0

    @precondition(lambda self: self.expected)
    @rule()
    def go_on_in_another(self) -> None:
        """As after a load: the same messages, and cells that hold something else."""
        other = self.llm.conversation(messages=self.expected)
        self.talk.close()
        self.talk = other

    @invariant()
    def the_messages_are_those(self) -> None:
        assert self.talk.messages == self.expected

    def teardown(self) -> None:
        self.talk.close()
        assert self.llm.engine.kv.stats().reserved == 0


@pytest.mark.parametrize("chunk", [8, 64])
def test_any_order_of_steps(tmp_path: Path, chunk: int) -> None:
    path = write_scripted(tmp_path / "m.gguf", TALKING, N_CTX)
    with scripted(path, answer_to, MARKER, chunk=chunk) as llm:
        machine: Any = type("Bound", (Machine,), {"llm": llm})
        from hypothesis.stateful import run_state_machine_as_test

        run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=25, deadline=None))
