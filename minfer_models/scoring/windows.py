"""Which tokens are scored behind which others, as llama.cpp's perplexity tool cuts a text."""

from __future__ import annotations

from dataclasses import dataclass


class ScoringError(ValueError):
    """A text or settings that cannot be scored."""


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens `start` to `stop` are read together; those from index `first` of the window on are scored."""

    start: int
    stop: int
    first: int

    @property
    def scored(self) -> int:
        """Tokens that are scored."""
        return self.stop - self.start - self.first


def cut(n_tokens: int, n_ctx: int, stride: int | None = None) -> list[Window]:
    """The windows of a text of `n_tokens`.

    Without a stride, windows of `n_ctx` tokens follow each other, and the tokens behind the first of the second half
    are scored. With one, windows of `n_ctx + stride // 2` start every `stride` tokens, and the last `stride` are
    scored. Raises ScoringError when the text is too short, or the settings make no sense.
    """
    if n_ctx < 4:
        raise ScoringError(f"a context of {n_ctx} tokens leaves nothing to score; give at least 4")
    if stride is None:
        if n_tokens < 2 * n_ctx:
            raise ScoringError(
                f"the text has {n_tokens} tokens, and perplexity over a context of {n_ctx} needs at least {2 * n_ctx}: "
                "a longer text, or a smaller context (-c)"
            )
        return [Window(i * n_ctx, (i + 1) * n_ctx, n_ctx // 2 + 1) for i in range(n_tokens // n_ctx)]
    if not 0 < stride < n_ctx:
        raise ScoringError(f"a stride of {stride} is not between 1 and {n_ctx - 1}, one below the context")
    length = n_ctx + stride // 2
    if n_tokens <= length:
        raise ScoringError(
            f"the text has {n_tokens} tokens, and windows of {length} (context {n_ctx}, half a stride of {stride}) "
            f"need at least {length + 1}"
        )
    count = (n_tokens - length + stride - 1) // stride
    return [Window(i * stride, i * stride + length, length - stride) for i in range(count)]
