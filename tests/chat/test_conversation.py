"""Conversations: what is computed, what is said, and what remains when something goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import TALKING, THINKING, backend_of, scripted, write_scripted

from minfer_ir.kv import KvError
from minfer_models import LLM, load
from minfer_models.chat import ChatTemplateError
from minfer_models.conversation import Answer, Conversation
from minfer_models.engine import ContextError
from minfer_models.sampling import Sampler, SamplingError
from minfer_models.stops import StopError
from minfer_models.synthetic import SyntheticModel, byte_vocabulary, write_model
from minfer_models.talk import ConversationError

MARKER = b"[assistant]"
Messages = list[dict[str, Any]]


def echo(prompt: bytes) -> bytes:
    """Answers with what the user said last, in capitals."""
    return prompt.rpartition(b"[user]")[2].partition(b"\n")[0].upper()


@pytest.fixture
def talking(talking_path: Path) -> Iterator[LLM]:
    with scripted(talking_path, echo, MARKER, chunk=64) as llm:
        yield llm


@pytest.fixture(scope="module")
def random_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vocabulary = {**byte_vocabulary(), "tokenizer.chat_template": TALKING}
    model = SyntheticModel(weights="Q4_0", width=64, ffn_width=192, vocabulary=vocabulary, n_ctx_train=512)
    return write_model(tmp_path_factory.mktemp("models") / "random.gguf", model)


@pytest.fixture(scope="module")
def real(random_path: Path) -> Iterator[LLM]:
    """A model that computes; its words are noise."""
    with load(random_path, threads=2, chunk=32) as llm:
        yield llm


@pytest.fixture(scope="module")
def fresh(random_path: Path) -> Iterator[LLM]:
    """The same once more, that never keeps anything."""
    with load(random_path, threads=2, chunk=32) as llm:
        yield llm


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_a_turn_computes_only_what_is_new(talking: LLM) -> None:
    with talking.conversation(system="x") as talk:
        rows = backend_of(talking).rows
        first = talk.send("hello")
        assert first.text() == "HELLO"
        assert rows == [len("[system]x\n[user]hello\n[assistant]"), 1, 1, 1, 1, 1]
        assert (first.usage.cached_tokens, first.usage.prefilled_tokens) == (0, sum(rows) - 5)
        rows.clear()
        second = talk.send("you")
        assert (second.text(), second.finish_reason) == ("YOU", "stop")
        new = "\n[user]you\n[assistant]"
        assert rows == [len(new), 1, 1, 1], "the answer's tokens are held too"
        assert second.usage.cached_tokens == len("[system]x\n[user]hello\n[assistant]HELLO")
        assert second.usage.prompt_tokens == second.usage.cached_tokens + len(new)
        assert second.usage.prefill_rate == pytest.approx(len(new) / second.usage.prefill_seconds)
        assert talk.messages == [
            {"role": "system", "content": "x"},
            user("hello"),
            said("HELLO"),
            user("you"),
            said("YOU"),
        ]


@pytest.mark.parametrize(
    ("change", "agreeing"),
    [
        (lambda talk: talk.undo(), "[user]hello\n[assistant]HELLO\n[user]"),
        (lambda talk: talk.clear(), "[user]"),
        (lambda talk: setattr(talk, "system", "y"), "["),
        (lambda talk: None, "[user]hello\n[assistant]HELLO\n[user]you\n[assistant]YOU"),
    ],
)
def test_a_changed_history_is_reused_as_far_as_it_agrees(
    talking: LLM, change: Callable[[Conversation], object], agreeing: str
) -> None:
    with talking.conversation() as talk:
        for text in ("hello", "you"):
            talk.send(text).text()
        change(talk)
        answer = talk.send("again")
        assert answer.text() == "AGAIN"
        assert answer.usage.cached_tokens == len(agreeing)


def test_thinking_is_told_apart_and_what_a_template_drops_is_computed_again(tmp_path: Path) -> None:
    with scripted(
        write_scripted(tmp_path / "m.gguf", THINKING), lambda p: b"<think>\nhm\n</think>\n\n" + echo(p), MARKER
    ) as llm:
        talk = llm.conversation()
        first = talk.send("one")
        assert [(part.kind, part.text) for part in first.parts()] == [
            *(("reasoning", c) for c in "hm"), *(("content", c) for c in "ONE"),
        ]  # fmt: skip
        assert (first.answer.reasoning, first.answer.content, first.answer.calls) == ("hm", "ONE", [])
        assert talk.messages[-1] == {"role": "assistant", "content": "ONE", "reasoning_content": "hm"}
        second = talk.send("two")
        assert second.text() == "<think>\nhm\n</think>\n\nTWO"
        assert second.usage.cached_tokens == len("[user]one\n[assistant]"), "as far as the tokens agree"
        left = talk.send("three")
        assert next(part.text for part in left.parts() if part.kind == "reasoning") == "h"
        assert talk.messages[-1] == {"role": "assistant", "content": "", "reasoning_content": "h"}


CALLING = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}{{ '\n' }}{% endfor %}{{ (tools or []) | length }}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def test_calls_of_tools_come_back_parsed(tmp_path: Path) -> None:
    def answer(prompt: bytes) -> bytes:
        if b"[tool]" in prompt:
            return b"It is " + prompt.rpartition(b"[tool]")[2].partition(b"\n")[0]
        return b'Let me see.\n<tool_call>\n{"name": "sum", "arguments": {"a": [1, 2]}}\n</tool_call>'

    tools = [{"type": "function", "function": {"name": "sum", "parameters": {"type": "object"}}}]
    expected = {
        "role": "assistant", "content": "Let me see.",
        "tool_calls": [{"type": "function", "function": {"name": "sum", "arguments": {"a": [1, 2]}}}],
    }  # fmt: skip
    with scripted(write_scripted(tmp_path / "m.gguf", CALLING), answer, MARKER) as llm:
        alone = llm.chat([user("1+2?")], tools=tools)
        assert [part.call.name for part in alone.parts() if part.call] == ["sum"]
        assert alone.message == expected
        talk = llm.conversation(tools=tools)
        talk.send("1+2?").text()
        assert talk.messages == [user("1+2?"), expected]
        assert talk.send({"role": "tool", "content": "3"}).text() == "It is 3"
        cut = llm.chat([user("1+2?")], tools=tools, max_tokens=30)
        cut.text()
        assert cut.message["content"].startswith("Let me see.\n<tool_call>"), "a call that is cut off stays as it is"


class Recorder:
    """Stands in for a sampler and keeps the logits that it saw."""

    def __init__(self, sampler: Sampler, seen: list[np.ndarray]) -> None:
        self._sampler, self._seen, self.seed, self.constraint = sampler, seen, sampler.seed, None

    def sample(self, logits: np.ndarray) -> int:
        self._seen.append(logits.copy())
        return self._sampler.sample(logits)


def test_every_answer_has_the_bits_of_a_fresh_run(real: LLM, fresh: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    monkeypatch.setattr(real, "sampler", lambda *given: Recorder(LLM.sampler(real, *given), seen))
    with real.conversation(max_tokens=12, temperature=1.5, seed=3) as talk:
        steps: list[Callable[[], Answer]] = [
            lambda: talk.send("Good morning, how are you?"),
            lambda: talk.send("and you"),
            talk.regenerate,
            lambda: talk.send("x" * 70),
            lambda: (talk.undo(), talk.send("another"))[1],
            lambda: (setattr(talk, "system", "Good"), talk.send("morning"))[1],
        ]
        cached: list[int] = []
        for step in steps:
            seen.clear()
            answer = step()
            answer.text()
            prompt = real.chat_template().encode(real.tokenizer, answer.asked.messages)
            logits = fresh.logits([*prompt, *answer.token_ids])[len(prompt) - 1 : -1]
            assert np.array_equal(np.stack(seen), logits)
            alone = fresh.chat(answer.asked.messages, max_tokens=12, temperature=1.5, seed=answer.seed)
            alone.text()
            assert alone.token_ids == answer.token_ids
            cached.append(answer.usage.cached_tokens)
        assert cached[0] == 0 and all(cached[1:]), "all but the first had something to reuse"


def test_each_answer_has_the_next_seed(real: LLM, fresh: LLM) -> None:
    settings: dict[str, Any] = {"max_tokens": 12, "temperature": 3.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    with real.conversation(seed=2**64 - 1, **settings) as talk:
        seeds, texts = [], []
        for step in (lambda: talk.send("hello"), talk.regenerate, talk.regenerate):
            answer = step()
            texts.append(answer.text())
            seeds.append(answer.seed)
        assert seeds == [2**64 - 1, 0, 1]
        assert len(set(texts)) == 3
        assert texts[1] == fresh.chat([user("hello")], seed=0, **settings).text()
    drawn = real.conversation().talk.seed
    assert 0 <= drawn < 2**32


def test_an_answer_that_is_left_stays_as_far_as_it_came(talking: LLM) -> None:
    talk = talking.conversation()
    answer = talk.send("hello")
    assert list(islice(answer, 3)) == ["H", "E", "L"]
    assert (talk.messages, answer.finish_reason) == ([user("hello"), said("HEL")], "interrupted")
    second = talk.send("you")
    assert second.text() == "YOU"
    assert second.usage.cached_tokens == len("[user]hello\n[assistant]HE"), "the last token wasn't computed with"


def test_stop_ends_an_answer_before_the_next_token(talking: LLM) -> None:
    talk, came = talking.conversation(), ""
    answer = talk.send("hello")
    for piece in answer:
        came += piece
        if came == "HE":
            answer.stop()
    assert (came, answer.finish_reason, talk.messages[-1]) == ("HE", "interrupted", said("HE"))


def test_an_answer_stopped_before_its_first_token_was_never_asked_for(talking_path: Path) -> None:
    with scripted(talking_path, echo, MARKER, chunk=16) as llm:
        talk, backend = llm.conversation(), backend_of(llm)
        talk.send("hello").text()
        before = talk.talk
        answer = talk.send("y" * 60)
        backend.rows = _Stopping(answer, 2)
        assert (answer.text(), answer.finish_reason, answer.token_ids) == ("", "interrupted", [])
        assert (talk.talk is before, backend.rows) == (True, [16, 16])
        assert (answer.usage.cached_tokens, answer.usage.prefilled_tokens) == (28, 32)
        again = talk.send("y" * 60)
        assert again.text() == "Y" * 60
        assert again.usage.cached_tokens == len("[user]hello\n[assistant]HELLO") + 32, "both chunks are still there"


class _Stopping(list[int]):
    """Rows of forwards; number `at` has the answer stopped."""

    def __init__(self, answer: Answer, at: int) -> None:
        super().__init__()
        self._answer, self._at = answer, at

    def append(self, row: int) -> None:
        super().append(row)
        if len(self) == self._at:
            self._answer.stop()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_an_interrupt_keeps_what_has_come_and_an_error_nothing(
    talking: LLM, error: type[BaseException], at: int
) -> None:
    """In the forward number `at`, of which the first gives the first token."""
    talk = talking.conversation()
    talk.send("hello").text()
    before = talk.talk
    backend, steps = backend_of(talking), iter(range(1, 100))
    script, rows = backend.script, backend.rows

    class Failing(list[int]):
        def append(self, row: int) -> None:
            rows.append(row)
            if next(steps) == at:
                raise error("now")

    backend.rows, came = Failing(), ""
    answer = talk.send("something")
    with pytest.raises(error):
        for piece in answer:
            came += piece
    assert came == "SOMETHING"[: at - 1]
    if error is KeyboardInterrupt and came:
        assert talk.messages[2:] == [user("something"), said(came)]
        talk.undo()
    assert talk.talk.messages == before.messages
    backend.rows, backend.script = rows, script
    assert talk.send("something").text() == "SOMETHING"


def test_what_does_not_fit_is_refused_with_both_sizes_and_changes_nothing(talking_path: Path) -> None:
    with scripted(talking_path, echo, MARKER, n_ctx=64) as llm:
        talk = llm.conversation()
        talk.send("hello").text()
        before, text = talk.talk, "z" * 40
        n = len(f"[user]hello\n[assistant]HELLO\n[user]{text}\n[assistant]")
        with pytest.raises(ContextError, match=f"prompt's {n} tokens exceed the available context size of 64"):
            talk.send(text)
        assert talk.talk is before
        answer = talk.send("ok")
        assert (answer.text(), answer.usage.cached_tokens) == ("OK", len("[user]hello\n[assistant]HELLO"))


def test_a_full_context_ends_the_answer(talking_path: Path) -> None:
    with scripted(talking_path, lambda _: b"x" * 500, MARKER, n_ctx=64) as llm:
        talk = llm.conversation()
        answer = talk.send("go")
        assert (answer.text(), answer.finish_reason) == ("x" * (64 - len("[user]go\n[assistant]")), "length")
        assert talk.messages[-1] == said(answer.message["content"])


def test_one_answer_at_a_time(talking: LLM) -> None:
    talk = talking.conversation(system="x")
    waiting = talk.send("never asked")
    answer = talk.send("hello")
    pieces = iter(answer)
    assert next(pieces) == "H"
    for step in (
        lambda: talk.send("a"), talk.regenerate, talk.undo, talk.clear, lambda: setattr(talk, "system", None),
        lambda: next(iter(waiting)),
    ):  # fmt: skip
        with pytest.raises(ConversationError, match="an answer is under way"):
            step()
    assert "".join(pieces) == "ELLO"
    with pytest.raises(ConversationError, match="has changed since this answer was asked for"):
        waiting.text()
    assert [m["role"] for m in talk.messages] == ["system", "user", "assistant"]
    assert list(answer) == [], "it runs once"


def test_threads_may_share_a_conversation(talking: LLM) -> None:
    talk, refused = talking.conversation(), []

    def ask(text: str) -> None:
        while True:
            try:
                assert talk.send(text).text() == text.upper()
                return
            except ConversationError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=ask, args=(f"number {i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pairs = list(zip(talk.messages[::2], talk.messages[1::2], strict=True))
    assert sorted(q["content"].upper() for q, _ in pairs) == sorted(a["content"] for _, a in pairs)
    assert [q["content"].upper() for q, _ in pairs] == [a["content"] for _, a in pairs] and len(pairs) == 6
    assert {m.partition(":")[0] for m in refused} <= {
        "an answer is under way", "the conversation has changed since this answer was asked for",
    }  # fmt: skip


def test_idle_cells_are_lent(talking: LLM) -> None:
    talk, other = talking.conversation(), talking.conversation()
    assert talk.send("hello").text() == "HELLO"
    assert talking.engine.kv.stats().free == 0 and talk.held_tokens
    assert talking.generate("[user]me\n[assistant]").text() == "ME"
    assert (talk.held_tokens, talking.engine.kv.stats().reserved) == (0, 0)
    again = talk.send("you")
    assert (again.text(), again.usage.cached_tokens) == ("YOU", 0)
    assert other.send("there").text() == "THERE" and talk.held_tokens == 0
    pieces = iter(talk.send("and now"))
    next(pieces)
    with pytest.raises(KvError, match="no run of"):
        talking.generate("[user]me\n[assistant]").text()
    assert "".join(pieces) == "ND NOW"
    reused = talk.send("and then")
    pieces = iter(reused)
    assert (next(pieces), reused.usage.cached_tokens > 0) == ("A", True)
    with pytest.raises(KvError, match="no run of"):
        talking.generate("[user]me\n[assistant]").text()
    assert "".join(pieces) == "ND THEN"
    talk.close()
    other.close()
    assert talking.engine.kv.stats().reserved == 0


def test_a_conversation_makes_do_with_the_cells_that_are_free(talking: LLM) -> None:
    talk = talking.conversation(max_tokens=8)
    pieces = iter(talking.generate("[user]meanwhile\n[assistant]", max_tokens=20))
    next(pieces)
    assert talk.send("hello").text() == "HELLO"
    assert talk.send("a longer text than before").text() == "A LONGER"
    assert "".join(pieces) == "EANWHILE"
    talk.close()
    assert talking.engine.kv.stats().reserved == 0


def test_a_closed_conversation_gives_its_cells_back_when_its_answer_ends(talking: LLM) -> None:
    with talking.conversation() as talk:
        pieces = iter(talk.send("hello"))
        next(pieces)
    assert talking.engine.kv.stats().reserved
    assert "".join(pieces) == ""
    assert talking.engine.kv.stats().reserved == 0
    assert talk.messages == [user("hello"), said("H")]
    with pytest.raises(ConversationError, match="was closed"):
        talk.send("a")


def test_undo_and_regenerate_with_nothing_there(talking: LLM) -> None:
    talk = talking.conversation(system="x")
    with pytest.raises(ConversationError, match="nothing to take back"):
        talk.undo()
    with pytest.raises(ConversationError, match="nothing to answer"):
        talk.regenerate()
    with pytest.raises(ConversationError, match="nothing to answer: no message was given"):
        talk.send([])


@pytest.mark.parametrize("said", [None, 5, True])
def test_what_is_said_is_a_text_or_messages(talking: LLM, said: Any) -> None:
    talk = talking.conversation()
    with pytest.raises(ConversationError, match=f"messages is {said}, not a list"):
        talk.send(said)
    with pytest.raises(ConversationError, match="the system message is 5, not text"):
        talk.system = 5  # type: ignore[assignment]
    assert talk.messages == []


def test_undo_takes_back_a_whole_turn(talking: LLM) -> None:
    talk = talking.conversation()
    talk.send("one").text()
    talk.send("call").text()
    tool = {"role": "tool", "content": "42"}
    talk.send([tool]).text()
    assert [m["role"] for m in talk.messages] == ["user", "assistant", "user", "assistant", "tool", "assistant"]
    assert [m["role"] for m in talk.undo()] == ["user", "assistant", "tool", "assistant"]
    assert talk.messages == [user("one"), said("ONE")]


def test_a_failed_second_try_leaves_the_first_answer(talking: LLM) -> None:
    talk = talking.conversation()
    talk.send("one").text()
    before = talk.talk
    answer = talk.regenerate()
    answer.stop()
    assert answer.text() == ""
    assert talk.talk is before


def test_stop_strings_and_limits_hold_for_every_answer(talking: LLM) -> None:
    with talking.conversation(stop=["LO", "U"], max_tokens=4) as talk:
        answers = [talk.send(text) for text in ("hello",)]
        assert [(a.text(), a.finish_reason) for a in answers] == [("HELL", "length")], "held back, then let out"
        second = talk.send("you")
        assert (second.text(), second.finish_reason, talk.messages[-1]) == ("YO", "stop", said("YO"))
        third = talk.send("me")
        assert third.text() == "ME"


def test_system_message(talking: LLM) -> None:
    talk = talking.conversation(system="a")
    talk.send("hi").text()
    assert talk.system == "a"
    talk.system = "b"
    assert talk.messages[0] == {"role": "system", "content": "b"}
    talk.system = None
    assert (talk.system, talk.messages) == (None, [user("hi"), said("HI")])
    talk.system = "c"
    talk.clear()
    assert talk.messages == [{"role": "system", "content": "c"}]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"messages": [{"content": "x"}]}, ConversationError, r"messages\[0\] is \{'content': 'x'\}, not a message"),
        ({"messages": ["x"]}, ConversationError, r"messages\[0\] is 'x'"),
        ({"messages": [{"role": "user", "content": {1, 2}}]}, ConversationError, "messages can't be written as JSON"),
        ({"tools": ["x"]}, ConversationError, "tools is "),
        ({"tools": 5}, ConversationError, "tools is 5, not a list"),
        ({"messages": "hi"}, ConversationError, "messages is 'hi', not a list"),
        ({"system": 5}, ConversationError, "the system message is 5, not text"),
        ({"max_tokens": 0}, ConversationError, "max_tokens is 0"),
        ({"stop": ""}, StopError, "is empty"),
        ({"temperature": -1}, SamplingError, "temperature is -1"),
        ({"seed": -2}, SamplingError, "seed is -2"),
        ({"temprature": 1}, SamplingError, "did you mean temperature"),
        ({"template_arguments": {"enable_thinking": False}}, ChatTemplateError, "no argument 'enable_thinking'"),
        ({"tools": [{"type": "function"}]}, ChatTemplateError, "takes no tools"),
    ],
)
def test_what_no_conversation_can_have_is_refused(
    talking: LLM, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        talking.conversation(**settings)


def test_messages_are_copies(talking: LLM) -> None:
    given: Messages = [user("one"), said("ONE")]
    talk = talking.conversation(messages=given)
    given[0]["content"] = "changed"
    talk.messages.clear()
    talk.messages[0]["content"] = "changed"
    assert talk.messages == [user("one"), said("ONE")]
