"""The loop: a text comes in, a command is done or an answer given, and the talk goes on whatever happened."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from minfer_models.cli.chat.reading import Reader
from minfer_models.cli.chat.said import Said
from minfer_models.cli.chat.screen import Screen
from minfer_models.cli.chat.stopping import ctrl_c_stops
from minfer_models.cli.command import one_line
from minfer_models.cli.loading import plan_forwards
from minfer_models.cli.progress import Progress, progress
from minfer_models.cli.telling import tokens
from minfer_models.conversation import Answer, Conversation

WORTH_SHOWING = 128
"""Tokens of a prompt below which a line of progress would only flicker."""


class LeaveError(Exception):
    """The person leaves."""


class Repl:
    """One conversation, spoken to until there is nothing more to read, or `/exit`.

    `failed` counts what was refused; `interrupted` says that Ctrl-C ended the last answer.
    """

    def __init__(
        self, conversation: Conversation, reader: Reader, screen: Screen, *, verbose: bool, tracebacks: bool
    ) -> None:
        self.conversation, self.screen = conversation, screen
        self._reader, self._verbose, self._tracebacks = reader, verbose, tracebacks
        self.failed = 0
        self.interrupted = False

    def run(self, obey: Callable[[Repl, str], None], stay_after_ctrl_c: bool) -> None:
        """Until the end; `obey` does what begins with a slash."""
        while not self.interrupted or stay_after_ctrl_c:
            try:
                said = self._read()
                if said is None:
                    return
                self._take(said, obey)
            except LeaveError:
                return
            except BrokenPipeError:  # nobody reads the answers any more
                raise
            except Exception as error:
                self._refused(error)

    def answer(self, ask: Callable[[], Answer]) -> None:
        """Show an answer as it comes."""
        answer = ask()
        self.interrupted = False
        with progress() as shown, ctrl_c_stops(answer):
            self._show(answer, shown)
        self._tell(answer)

    def _read(self) -> Said | None:
        """What comes next; None at the end, and once it can't be read: that would fail for ever."""
        try:
            return self._reader.read()
        except OSError as error:
            self._refused(error)
            return None

    def _refused(self, error: Exception) -> None:
        self.failed += 1
        if self._tracebacks:
            traceback.print_exc()
        self.screen.note(f"minfer: {one_line(error)}")

    def _take(self, said: Said, obey: Callable[[Repl, str], None]) -> None:
        text = said.text
        if not said.literal and not text.strip():
            return
        if not said.literal and text.startswith("/") and not text.startswith("//"):
            obey(self, text)
            return
        self.answer(lambda: self.conversation.send(text if said.literal else text.removeprefix("/")))

    def _show(self, answer: Answer, shown: Progress) -> None:
        if answer.new_tokens < WORTH_SHOWING:
            shown.stop()
        try:
            plan_forwards(self.conversation.llm, answer.new_tokens, shown)
            for piece in answer.parts() if self.screen.terminal else answer:
                shown.stop()
                self.screen.piece(piece)
        except KeyboardInterrupt:  # a second Ctrl-C: what has come is kept as well
            pass
        finally:
            shown.stop()
            self.screen.end()

    def _tell(self, answer: Answer) -> None:
        """What there is to say about an answer that has ended."""
        self.interrupted = answer.finish_reason == "interrupted"
        if self.interrupted:
            kept = (
                "what has come stays"
                if self.conversation.talk.messages[-1:] == (answer.message,)
                else ("nothing had come, so the message is taken back")
            )
            self.screen.note(f"[interrupted: {kept}]")
        elif answer.finish_reason == "length":
            self.screen.note(self._cut(answer))
        if self._verbose:
            self.screen.note(turn_line(answer))

    def _cut(self, answer: Answer) -> str:
        n_ctx, usage = self.conversation.llm.engine.n_ctx, answer.usage
        if usage.prompt_tokens + usage.completion_tokens < n_ctx:
            return f"[cut after {tokens(usage.completion_tokens)}; -n takes another limit, -1 for none]"
        return f"[cut: the context of {tokens(n_ctx)} is full; /undo or /clear makes room]"


def turn_line(answer: Answer) -> str:
    """Counts and rates of an answer."""
    usage = answer.usage
    parts = [
        f"prompt {tokens(usage.prompt_tokens)}: {usage.cached_tokens} reused, {usage.prefilled_tokens} prefilled at "
        f"{usage.prefill_rate:.1f} tok/s",
        f"generated {tokens(usage.completion_tokens)}"
        + (f" at {usage.decode_rate:.1f} tok/s" if usage.completion_tokens > 1 else ""),
        f"finish {answer.finish_reason}",
        *([f"seed {answer.seed}"] if answer.asked.sampling.get("temperature", 0) > 0 else []),
    ]
    return f"[{' | '.join(parts)}]"
