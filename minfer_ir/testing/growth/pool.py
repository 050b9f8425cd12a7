"""A graph in the making: its pool of values, and where decisions come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from minfer_ir.builder import GraphBuilder
from minfer_ir.graph import Node
from minfer_ir.types import RowAxis

T = TypeVar("T")

AWKWARD = (1, 2, 3, 7, 12, 17, 32, 64, 96, 256)
"""One, primes, off the vector size, and whole blocks of both sizes."""


class Choose(Protocol):
    """Where decisions come from: hypothesis, or a seeded generator."""

    def __call__(self, options: Sequence[T], /) -> T:
        """One of `options`."""
        ...


class Growth:
    """A graph in the making: a pool of values, and a way to add one more op to it."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.builder = GraphBuilder()
        self.pool: list[Node] = []
        self.rows: dict[RowAxis | None, int] = {"token": choose((1, 2, 3, 4, 8)), "output": choose((1, 2))}
        self.cells = max(choose((1, 17, 70)), self.rows["token"])
        self.positions = max(1, self.cells // choose((1, 2)))
        self._keys = 0
        self.keep(self.input((self.rows["token"], choose(AWKWARD)), "f32", "token"))

    def key(self, kind: str) -> str:
        """A fresh leaf name."""
        self._keys += 1
        return f"{kind}{self._keys}"

    def keep(self, node: Node) -> Node:
        """Offer a value to later ops. A store takes the place of the version that it overwrote, and of its views."""
        if node.spec.effect == "writes_kv":
            written = [slot.name for slot in node.spec.operands].index(node.spec.writes or "")
            self.pool = [n for n in self.pool if self._unviewed(n) != node.sources[written]]
        self.pool.append(node)
        return node

    def _unviewed(self, node: Node) -> int:
        by_id = {n.id: n for n in self.pool}
        while node.view is not None and node.view.source in by_id:
            node = by_id[node.view.source]
        return node.id if node.view is None else node.view.source

    def input(self, shape: tuple[int, ...], dtype: str, rows: RowAxis | None, limit: int | None = None) -> Node:
        """A new input."""
        return self.builder.input(key=self.key("in"), shape=shape, dtype=dtype, rows=rows, limit=limit)

    def find(self, accept: Callable[[Node], bool]) -> Node | None:
        """One of the pool's values that `accept` likes."""
        found = [n for n in self.pool if accept(n)]
        return self.choose(found) if found else None

    def heads(self) -> Node:
        """A value `[T, N, D]`: from the pool, or by splitting the rows of one `[T, H]`."""
        found = self.find(lambda n: len(n.type.shape) == 3 and n.type.dtype.name == "f32" and n.type.rows == "token")
        if found is not None and self.choose((True, False)):
            return found
        flat = self.find(lambda n: len(n.type.shape) == 2 and n.type.dtype.name == "f32" and n.type.rows == "token")
        flat = flat or self.input((self.rows["token"], 12), "f32", "token")
        rows, width = flat.type.shape
        heads = self.choose([h for h in (1, 2, 3, 4) if width % h == 0])
        return self.keep(self.builder.reshape(flat, shape=(rows, heads, width // heads)))
