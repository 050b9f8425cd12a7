"""Values made on another thread: once, when told to, with their errors."""

from __future__ import annotations

import threading

import pytest

from minfer_models.background import Background


def test_it_is_made_once_and_elsewhere() -> None:
    made_on: list[int] = []
    value = Background(lambda: made_on.append(threading.get_ident()) or len(made_on))
    assert not made_on
    value.start()
    value.start()
    assert value.result() == 1
    assert value.result() == 1
    assert made_on != [threading.get_ident()]


def test_a_result_is_made_when_nobody_started_it() -> None:
    assert Background(lambda: "made").result() == "made"


def test_an_error_is_raised_to_whoever_asks() -> None:
    def fail() -> int:
        raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing"):
        Background(fail).result()
