"""Whether both sides say the same: greedy tokens behind a fixed prompt, and the bits they were chosen from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from minfer_models.bench.runner import Continuation

Promise = Literal["bits", "tokens", "nothing"]
"""What two sides are held to: sides of one source differ in no bit, whatever the instruction set, threads, chunks and
fusions; another revision may change an order of operations, not what is said; another KV format promises nothing."""

PROMISES = {
    "bits": "these sides promise the same bits",
    "tokens": "two revisions are held to the same tokens",
    "nothing": "these sides promise neither",
}


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two greedy continuations of the same `n_prompt` tokens, `n_tokens` long.

    `parts_at` is the first generated token that differs (from 0), with both ids; `bits_part_at` the first whose logits
    have other bits. None where nothing differs. `promise` is what the sides are held to.
    """

    n_prompt: int
    n_tokens: int
    same_tokens: bool
    same_bits: bool
    parts_at: int | None
    a_token: int | None
    b_token: int | None
    bits_part_at: int | None
    promise: Promise

    @classmethod
    def of(cls, a: Continuation, b: Continuation, n_prompt: int, promise: Promise) -> Self:
        """Compare as far as both go; another length counts as another token."""
        parts, bits = _first_difference(a.token_ids, b.token_ids), _first_difference(a.logits, b.logits)
        return cls(
            n_prompt=n_prompt,
            n_tokens=max(len(a.token_ids), len(b.token_ids)),
            same_tokens=parts is None,
            same_bits=bits is None,
            parts_at=parts,
            a_token=_at(a.token_ids, parts),
            b_token=_at(b.token_ids, parts),
            bits_part_at=bits,
            promise=promise,
        )

    @property
    def broken(self) -> bool:
        """Whether the sides differ in what they are held to."""
        return (self.promise == "bits" and not self.same_bits) or (self.promise == "tokens" and not self.same_tokens)

    def text(self) -> str:
        """For a reader."""
        behind = f"{self.n_tokens} greedy tokens behind a fixed prompt of {self.n_prompt}"
        if self.same_bits:
            return f"the same {behind}, from logits with the same bits"
        promise = PROMISES[self.promise]
        if self.same_tokens:
            return f"the same {behind}; the logits' bits differ from token {self.bits_part_at} on, {promise}"
        return (
            f"different tokens: of {behind}, token {self.parts_at} is {self.a_token} on side a and {self.b_token} on "
            f"side b (the logits' bits differ from token {self.bits_part_at} on); {promise}"
        )


def _first_difference(a: tuple[object, ...], b: tuple[object, ...]) -> int | None:
    for i, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))


def _at(ids: tuple[int, ...], index: int | None) -> int | None:
    return None if index is None or index >= len(ids) else ids[index]
