"""GraphBuilder: one method per op, derived from the declarations.

`builder.pyi` types the methods; `python -m tools.generate` writes it and `tools/check` keeps it fresh.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from minfer_ir.graph import Graph, GraphError, Node, make_alias
from minfer_ir.ops import OPS
from minfer_ir.opspec import Op, OpError, attrs_from_json, checked


class GraphBuilder:
    """Appends verified nodes; the order of calls is the order of execution."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._names: set[str] = set()
        self._leaves: dict[tuple[str, Any], Node] = {}
        self._outputs: list[int] = []
        self._block: int | None = None

    @contextmanager
    def block(self, index: int) -> Generator[None]:
        """Tag the nodes built inside with model layer `index`."""
        outer, self._block = self._block, index
        try:
            yield
        finally:
            self._block = outer

    def output(self, node: Node) -> Node:
        """Mark `node` as an output of the graph."""
        self._outputs.append(node.id)
        return node

    def build(self) -> Graph:
        """The finished graph; raises GraphError when nothing was marked as an output."""
        if not self._outputs:
            raise GraphError("the graph has no outputs")
        return Graph(tuple(self._nodes), tuple(self._outputs)).verify()

    def split_parts(self, owner: Node, sizes: Sequence[int], names: Sequence[str] | None = None) -> tuple[Node, ...]:
        """Views that cut `owner` along its last axis: several outputs of one node, each bound on its own.

        Raises OpError when `sizes` don't add up to the width.
        """
        *leading, width = owner.type.shape
        if sum(sizes) != width:
            raise OpError(f"split_parts of {owner}: sizes {tuple(sizes)} add up to {sum(sizes)}, the width is {width}")
        parts: list[Node] = []
        start = 0
        for i, size in enumerate(sizes):
            attrs = {"starts": (*[0] * len(leading), start), "shape": (*leading, size)}
            parts.append(self.apply(OPS["view"], (owner,), attrs, names[i] if names else f"{owner.name}.part{i}"))
            start += size
        return tuple(parts)

    def apply(self, spec: Op, sources: Sequence[Node], attrs: dict[str, Any], name: str | None = None) -> Node:
        """Append one node of op `spec`; raises OpError for operands or attrs that the op doesn't allow."""
        values = attrs_from_json(spec, attrs)
        if spec.effect == "leaf" and (spec.name, values) in self._leaves:
            return self._leaves[spec.name, values]
        kind = checked(spec, values, tuple([s.type for s in sources]))
        view = None
        if spec.effect == "view":
            view = make_alias(spec, values, sources[0])
            if view is None:
                sources = (self.apply(OPS["contiguous"], sources, {}),)
                view = make_alias(spec, values, sources[0])
        ids = tuple(s.id for s in sources)
        label = self._name(name or leaf_key(values) or spec.name)
        node = Node(len(self._nodes), label, spec.name, ids, kind, values, block=self._block, view=view)
        self._nodes.append(node)
        if spec.effect == "leaf":
            self._leaves[spec.name, values] = node
        return node

    def _name(self, wanted: str) -> str:
        """`wanted`, with the block in front and a number behind when needed to make it unique."""
        base = wanted if self._block is None or wanted.startswith("blk.") else f"blk.{self._block}.{wanted}"
        name, count = base, 1
        while name in self._names:
            count += 1
            name = f"{base}.{count}"
        self._names.add(name)
        return name


def leaf_key(attrs: Any) -> str | None:
    """The name a leaf was declared under."""
    keys = getattr(attrs, "keys", None)
    return getattr(attrs, "key", None) or ("+".join(keys) if keys else None)


def _method(spec: Op) -> Any:
    required = sum(not o.optional for o in spec.operands)

    def method(self: Any, *sources: Any, name: str | None = None, **attrs: Any) -> Any:
        if not required <= len(sources) <= len(spec.operands):
            raise OpError(f"{spec.name} takes {required} to {len(spec.operands)} operands, got {len(sources)}")
        return self.apply(spec, tuple(s for s in sources if s is not None), attrs, name)

    method.__name__, method.__doc__ = spec.name, spec.doc
    return method


def add_method(spec: Op) -> None:
    """Give every GraphBuilder a method for `spec`."""
    setattr(GraphBuilder, spec.name, _method(spec))


for _spec in OPS.values():
    add_method(_spec)
