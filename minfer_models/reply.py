"""Generations that answer messages: their text is split into reasoning, content and calls of tools."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from minfer_models.chat import Answer, AnswerFormat, AnswerSplitter, Piece
from minfer_models.engine import Engine
from minfer_models.engine.kept import KeptSequence
from minfer_models.generation import Generation
from minfer_models.sampling import Sampler
from minfer_models.tokenizer import Tokenizer


class Reply(Generation):
    """Iterate over it for the text as the model writes it, or over `parts()` for the same split by its markers.

    `answer` is what has been said so far, `message` the same for a conversation that goes on.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        sampler: Sampler,
        max_tokens: int | None,
        stop: Sequence[str] = (),
        kept: KeptSequence | None = None,
        form: AnswerFormat | None = None,
    ) -> None:
        """`form` says what to look for in the text, as `ChatTemplate.answer_format` tells it. Raises as Generation."""
        super().__init__(engine, tokenizer, prompt, sampler, max_tokens, stop, kept)
        self._splitter = AnswerSplitter(form or AnswerFormat())
        self._waiting: list[Piece] = []
        self.said = ""

    @property
    def answer(self) -> Answer:
        """Reasoning, content and calls of tools so far."""
        return self._splitter.answer

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message. A call that was cut off is in its content, as the model wrote it."""
        message = self.answer.as_message()
        return {**message, "content": message["content"] + self.answer.unfinished}

    def __iter__(self) -> Iterator[str]:
        return self._replying()

    def parts(self) -> Iterator[Piece]:
        """Reasoning and content piece by piece, calls of tools one by one."""
        with closing(self._replying()) as pieces:
            for _ in pieces:
                yield from self._taken()
        yield from self._taken()

    def _replying(self) -> Generator[str]:
        if self._started:
            return
        try:
            with closing(self._run()) as pieces:
                for piece in pieces:
                    self.said += piece
                    self._waiting += self._splitter.push(piece)
                    yield piece
        finally:
            self._waiting += self._splitter.finish()

    def _taken(self) -> list[Piece]:
        taken, self._waiting = self._waiting, []
        return taken
