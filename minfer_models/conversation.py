"""A conversation: messages, and the KV cells of what was computed for them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from minfer_models.chat import AnswerFormat
from minfer_models.engine.kept import KeptSequence
from minfer_models.generation import Usage
from minfer_models.reply import Reply
from minfer_models.sampling import Constraint, Sampler, sampling_params
from minfer_models.talk import ConversationError, Message, Talk, plain
from minfer_models.talk_file import load_talk, save_talk

if TYPE_CHECKING:
    from minfer_models.llm import LLM

Constrain = Callable[[Sequence[int]], Constraint | None]


class Answer(Reply):
    """An answer of a conversation. Once it ends it is the last message there; before it is iterated nothing changes.

    Left or interrupted on the way, what has come is kept as the message; with nothing yet, or when it failed, the
    conversation stays as it was.
    """

    def __init__(
        self,
        conversation: Conversation,
        before: Talk,
        asked: Talk,
        prompt: Sequence[int],
        sampler: Sampler,
        form: AnswerFormat,
    ) -> None:
        """An answer to `asked`, which counts while the conversation is still at `before`."""
        engine, tokenizer = conversation.llm.engine, conversation.llm.tokenizer
        super().__init__(engine, tokenizer, prompt, sampler, asked.max_tokens, asked.stop, conversation.kept, form)
        self.conversation, self.before, self.asked = conversation, before, asked

    @property
    def new_tokens(self) -> int:
        """Tokens of the prompt that will be computed, as things stand."""
        return len(self._prompt) - self.conversation.kept.common(self._prompt)

    def _replying(self) -> Generator[str]:
        if self._started:
            return
        self.conversation.begin(self)
        failed = True
        try:
            yield from super()._replying()
            failed = False
        except (GeneratorExit, KeyboardInterrupt):
            failed = False
            raise
        finally:
            self.conversation.end(self, None if failed or self._nothing_came() else self.message)

    def _nothing_came(self) -> bool:
        return self.finish_reason == "interrupted" and not self.said


class Conversation:
    """Messages that a model answers, each through its chat template; made by `LLM.conversation`.

    Every prompt is the whole conversation, rendered and encoded; as far as its tokens are those in the KV cells, they
    aren't computed again, which changes no bit of an answer. Between answers the cells are lent: a generation that
    finds no others free takes them, and the next answer computes its whole prompt.

    One answer at a time: changing the conversation meanwhile raises ConversationError. Threads may share it.
    """

    def __init__(self, llm: LLM, talk: Talk, constraint: Constrain = lambda _prompt: None) -> None:
        """`constraint` makes what says which tokens may come behind a prompt.

        Raises ChatTemplateError when the model has no template or that has no such arguments.
        """
        self.llm, self.kept = llm, KeptSequence(llm.engine)
        self.usages: list[Usage] = []
        self._talk, self._constraint = talk, constraint
        self._check_template(talk)
        self._lock = Lock()
        self._running: Answer | None = None
        self._closed = False

    @property
    def talk(self) -> Talk:
        """Everything that decides the next answer; it never changes in place."""
        return self._talk

    @property
    def messages(self) -> list[Message]:
        """A copy of the messages."""
        return plain(self._talk.messages, "messages")

    @property
    def system(self) -> str | None:
        """The system message; None without one."""
        return self._talk.system

    @system.setter
    def system(self, text: str | None) -> None:
        self._change(self._idle().with_system(text))

    @property
    def held_tokens(self) -> int:
        """Tokens in the KV cells that the next answer may use."""
        return self.kept.length

    def send(self, said: str | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Answer:
        """Answer what is said: text of the user, a message, or several such as the results of tools.

        Iterate over the answer for pieces of text. Raises, and changes nothing: ContextError with both sizes when the
        conversation no longer fits, ChatTemplateError for what the template refuses, ConversationError for messages
        that are none, or while another answer is under way.
        """
        messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
        before = self._idle()
        return self._answer(before, before.asking([messages] if isinstance(messages, Mapping) else messages))

    def regenerate(self) -> Answer:
        """Answer once more what was said last, with the next seed; the earlier answer stays until that one ends.

        Raises ConversationError when nothing was said, and as `send`.
        """
        before = self._idle()
        return self._answer(before, before.unanswered())

    def undo(self) -> list[Message]:
        """Take back what the user said last, and all behind it: the messages that were. ConversationError for none."""
        before = self._idle()
        self._change(before.undone())
        return list(before.messages[len(self._talk.messages) :])

    def clear(self) -> None:
        """Forget everything but the system message."""
        self._change(self._idle().cleared())

    def save(self, path: str | Path) -> None:
        """Write messages, settings and seed to a file, whole or not at all. Raises OSError."""
        save_talk(Path(path), self._talk, self.llm.engine.model.file.path.name)

    def load(self, path: str | Path) -> None:
        """Go on with what `save` wrote, instead of with this. Raises ConversationError and changes nothing, OSError."""
        talk = load_talk(Path(path))
        self._check_template(talk)
        self._change(talk)

    def replace(self, talk: Talk) -> None:
        """Go on with another conversation, or with other settings. Raises ChatTemplateError for arguments it lacks."""
        self._check_template(talk)
        self._change(talk)

    def close(self) -> None:
        """Give the KV cells back; an answer under way ends, and gives them back then."""
        with self._lock:
            self._closed = True
            if self._running is not None:
                self._running.stop()
            else:
                self.kept.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, answer: Answer) -> None:
        """An answer is about to run; ConversationError when it can't."""
        with self._lock:
            self._require_idle()
            if self._talk is not answer.before:
                raise ConversationError("the conversation has changed since this answer was asked for: ask again")
            self._running = answer

    def end(self, answer: Answer, message: Message | None) -> None:
        """An answer has ended; without a message the conversation stays as it was."""
        with self._lock:
            self._running = None
            self.usages.append(answer.usage)
            if message is not None:
                self._talk = answer.asked.answered(message)
            if self._closed:
                self.kept.close()

    def _answer(self, before: Talk, asked: Talk) -> Answer:
        llm, template = self.llm, self.llm.chat_template()
        tools, keep = None if asked.tools is None else list(asked.tools), asked.keep_thinking
        prompt, form = template.prompt(
            llm.tokenizer, asked.messages, tools, keep_thinking=keep, **asked.template_arguments
        )
        params = sampling_params(**{"temperature": 0.0, **asked.sampling, "seed": asked.next_seed})
        constraint = self._constraint(prompt)
        return Answer(self, before, asked, prompt, llm.sampler(params, prompt, constraint), form)

    def _idle(self) -> Talk:
        """The talk, while nothing changes it."""
        with self._lock:
            self._require_idle()
            return self._talk

    def _change(self, talk: Talk) -> None:
        with self._lock:
            self._require_idle()
            self._talk = talk

    def _require_idle(self) -> None:
        if self._closed:
            raise ConversationError("this conversation was closed")
        if self._running is not None:
            raise ConversationError("an answer is under way: take all of it, or stop it, before the next step")

    def _check_template(self, talk: Talk) -> None:
        template = self.llm.chat_template()
        template.require_arguments(talk.template_arguments, tools=bool(talk.tools), keep_thinking=talk.keep_thinking)
