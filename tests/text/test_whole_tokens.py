"""Tokens matched whole, against one expression of all of them."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minfer_models.tokenizer.whole import WholeTokens

texts = st.text("ab<|]^-\\\n", max_size=12)


def by_expression(tokens: dict[str, int], text: str) -> Iterator[tuple[str, int | None]]:
    start = 0
    pattern = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))
    for match in pattern.finditer(text) if tokens else ():
        yield text[start : match.start()], tokens[match[0]]
        start = match.end()
    yield text[start:], None


@given(st.lists(texts.filter(bool), max_size=8, unique=True), st.lists(texts, max_size=6))
def test_the_longest_at_the_first_place(tokens: list[str], pieces: list[str]) -> None:
    ids = {token: i for i, token in enumerate(tokens)}
    text = "".join(piece + (tokens[i % len(tokens)] if tokens else "") for i, piece in enumerate(pieces))
    assert list(WholeTokens(ids).split(text)) == list(by_expression(ids, text))


@pytest.fixture
def no_collection() -> Iterator[None]:
    """No garbage collection meanwhile: hypothesis has a callback that it calls, which would be counted."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_the_work_depends_on_lengths_and_not_on_the_number_of_tokens() -> None:
    counts = []
    for n in (100, 100_000):
        whole, calls = WholeTokens({f"<{i:06}>": i for i in range(n)}), 0

        def count(frame: object, event: str, arg: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            found = list(whole.split("<000001> <000002 " * 100))
        finally:
            sys.setprofile(None)
        assert len(found) == 101
        counts.append(calls)
    assert counts[0] == counts[1]
