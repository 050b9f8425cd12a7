"""Pieces made by several threads: in order, few at a time, none begun once something failed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from minfer_models.gguf.pieces import Piece, PiecesAhead

Bytes = NDArray[np.uint8]


def made(value: int) -> Callable[[], Bytes]:
    return lambda: np.array([value], np.uint8)


def test_they_come_in_order_whoever_is_ready_first() -> None:
    """The first piece ends only once the second and the third have."""
    later = threading.Barrier(2)

    def first() -> Bytes:
        later.wait(60)
        return np.array([0], np.uint8)

    def third() -> Bytes:
        later.wait(60)
        return np.array([2], np.uint8)

    pieces = [Piece("a", 1, first), Piece("a", 1, made(1)), Piece("b", 1, third)]
    with PiecesAhead(pieces, 2) as ahead:
        assert [int(data[0]) for _, data in ahead.of("a")] == [0, 1]
        assert [int(data[0]) for _, data in ahead.of("b")] == [2]


@pytest.mark.parametrize(("nbytes", "most"), [(1, 4), (3 << 20, 4), (5 << 20, 3), (1 << 23, 2), (1 << 30, 1)])
def test_those_on_their_way_are_bounded_by_number_and_by_bytes(nbytes: int, most: int) -> None:
    """Two threads: four pieces of up to 16 MiB in all, or one alone; the one that was taken last doesn't count."""
    begun: list[int] = []

    def begin(i: int) -> Callable[[], Bytes]:
        def make() -> Bytes:
            begun.append(i)
            return np.zeros(1, np.uint8)

        return make

    pieces = [Piece("a", nbytes, begin(i)) for i in range(12)]
    seen: list[int] = []
    with PiecesAhead(pieces, 2) as ahead:
        for taken, _ in enumerate(ahead.of("a"), 1):
            seen.append(len(begun) - taken)
    assert max(seen) <= most
    assert len(begun) == 12


def test_the_first_error_in_the_file_is_the_one_that_is_told() -> None:
    """The second piece has failed before the first one does; a third that comes after both is never begun."""
    failed, begun = threading.Event(), list[int]()

    def second() -> Bytes:
        failed.set()
        raise ValueError("second")

    def first() -> Bytes:
        failed.wait(60)
        raise ValueError("first")

    def late() -> Bytes:
        begun.append(1)
        return np.zeros(1, np.uint8)

    pieces = [Piece("a", 1 << 23, first), Piece("a", 1 << 23, second), Piece("a", 1 << 23, late)]
    with pytest.raises(ValueError, match="first"), PiecesAhead(pieces, 2) as ahead:
        list(ahead.of("a"))
    assert begun == []
