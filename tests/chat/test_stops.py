"""Stop strings: the text ends before them, whatever the pieces, and nothing of them is let out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scripted import backend_of, scripted

from minfer_models.stops import StopError, Stops, stop_strings

TEXT = st.text("abc", max_size=30)
STOPS = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)


def cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Character by character: what is before the first stop string that is complete, the longest where several are."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(text=TEXT, stops=STOPS, cuts=st.lists(st.integers(0, 30)))
@example(text="ababc", stops=["abc"], cuts=[1, 2, 3, 4])
@example(text="abcd", stops=["abcd", "bc"], cuts=[])
@example(text="aab", stops=["b", "ab", "aab"], cuts=[1])
def test_the_text_does_not_depend_on_its_pieces(text: str, stops: list[str], cuts: list[int]) -> None:
    expected, found = cut(text, stops)
    at = [0, *sorted(c for c in cuts if c < len(text)), len(text)]
    passing = Stops(stops)
    out = ""
    for start, end in pairwise(at):
        out += passing.push(text[start:end])
        if passing.found is None:
            begun = (n for n in range(end + 1) if any(s.startswith(text[end - n : end]) and n < len(s) for s in stops))
            assert out == text[: end - max(begun, default=0)], "all is out that no stop string can begin with"
    assert (out + passing.flush(), passing.found) == (expected, found)
    assert passing.push("more") == ("" if found else "more")


@pytest.mark.parametrize(
    ("stop", "text", "ended_by"),
    [
        ("own fox", "the quick br", "own fox"),
        (["own fox", "quick"], "the ", "quick"),
        ("fox", "the quick brown ", "fox"),
        ("t", "", "t"),
        ("foxy", "the quick brown fox", None),  # held back, and let out at the end
        (["O P Q"], "the quick brown fox", None),
        ([], "the quick brown fox", None),
        (None, "the quick brown fox", None),
    ],
)
def test_generation_ends_at_a_stop_string(scripted_path: Path, stop: Any, text: str, ended_by: str | None) -> None:
    with scripted(scripted_path, lambda _: b"the quick brown fox") as llm:
        generation = llm.generate("say>", stop=stop)
        assert (generation.text(), generation.finish_reason, generation.stop_string) == (text, "stop", ended_by)
        assert sum(backend_of(llm).rows[1:]) == generation.usage.completion_tokens - 1, "nothing runs behind the stop"


def test_a_stop_string_is_literal_and_may_end_inside_a_character_s_bytes(scripted_path: Path) -> None:
    with scripted(scripted_path, lambda _: "a\\nb\nc é d".encode()) as llm:
        assert llm.generate("say>", stop="\\n").text() == "a"
        assert llm.generate("say>", stop="\n").text() == "a\\nb"
        assert llm.generate("say>", stop="é").text() == "a\\nb\nc "
        assert llm.generate("say>", stop="b\nc é", max_tokens=8).text() == "a\\nb\nc �", (
            "cut off: it was never complete"
        )


def test_text_held_back_comes_out_when_the_limit_is_reached(scripted_path: Path) -> None:
    with scripted(scripted_path, lambda _: b"the quick brown fox") as llm:
        generation = llm.generate("say>", stop="quick", max_tokens=7)
        assert (list(generation)[-1], generation.finish_reason) == ("qui", "length")


@pytest.mark.parametrize(("stop", "message"), [("", "is empty"), ([""], "is empty"), (1, "stop is 1"), ([1], "has 1")])
def test_what_is_no_stop_string_is_refused(stop: Any, message: str) -> None:
    with pytest.raises(StopError, match=message):
        stop_strings(stop)


def test_forms_of_stop() -> None:
    assert (stop_strings(None), stop_strings("x"), stop_strings(["x", "y"]), stop_strings([])) == (
        (), ("x",), ("x", "y"), (),
    )  # fmt: skip
