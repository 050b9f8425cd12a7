"""What a file says is printed as one harmless line of bounded length."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minfer_models.chat import ChatTemplateError
from minfer_models.gguf import GGUFError
from minfer_models.plain_text import LONGEST, plain, printable, quoted, shortened
from minfer_models.tokenizer import TokenizerError

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\n\u202eevil\u2028\x9b31m\0" + "x" * 100_000


@given(st.text(), st.integers(10, 200))
def test_it_is_printable_and_short(text: str, longest: int) -> None:
    made = plain(text, longest)
    assert made.isprintable()
    assert len(made) <= longest + 40
    assert plain(made, longest + 40) == made


@given(st.text(st.characters(codec="ascii", categories=["Lu", "Ll", "Nd", "Zs"]), max_size=80))
def test_ordinary_text_stays(text: str) -> None:
    assert plain(text) == printable(text) == shortened(text) == text
    assert quoted(text) == repr(text)


def test_what_is_escaped() -> None:
    assert printable("a\x1b[31mb\n\tü€😀\u202e\x9b") == "a\\x1b[31mb\\n\\tü€😀\\u202e\\x9b"
    assert shortened("a" * 30 + "b" * 30, 20) == "a" * 15 + "... (60 characters) ..." + "b" * 5
    assert quoted("\x1b" * 100, 2) == "'\\x1b\\x1b'... (100 characters)"


@pytest.mark.parametrize(
    "error",
    [
        GGUFError(HOSTILE, path=f"/tmp/{HOSTILE[:60]}", key=HOSTILE),
        GGUFError("of it", tensor=HOSTILE),
        TokenizerError(HOSTILE),
        ChatTemplateError(HOSTILE, HOSTILE),
    ],
    ids=["key", "tensor", "tokenizer", "template"],
)
def test_errors_about_a_file_are_one_line(error: ValueError) -> None:
    assert str(error).isprintable()
    assert len(str(error)) < 2 * LONGEST


def test_what_errors_know_is_as_it_was() -> None:
    error = GGUFError("bad", path=Path("a\nb"), key=HOSTILE)
    assert (error.path, error.key, str(error)[:21]) == (Path("a\nb"), HOSTILE, "a\\nb: key '\\x1b]0;own")
    assert ChatTemplateError("refused", HOSTILE).refusal == HOSTILE
