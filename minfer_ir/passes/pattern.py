"""Patterns traced from a fused op's `decompose`, and the matcher that finds them in a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any

from minfer_ir.graph import Graph, Node
from minfer_ir.ops import OPS, op_named
from minfer_ir.opspec import FusedOp, OpError


@dataclass(frozen=True, slots=True)
class Hole:
    """An operand of the fused op: matches any value."""

    operand: str


@dataclass(frozen=True, slots=True)
class AttrVar:
    """An attr of the fused op: takes the matched node's value."""

    name: str


@dataclass(frozen=True, slots=True)
class Step:
    """One op of the composition over other steps and holes."""

    op: str
    sources: tuple[Step | Hole, ...]
    attrs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The composition that a fused op stands for; `results` are its values, the last of which anchors the match."""

    spec: FusedOp
    results: tuple[Step, ...]
    ops: frozenset[str]
    """Those of its steps: a graph that lacks one has no match."""


@dataclass(frozen=True, slots=True)
class Match:
    """Where a pattern was found. `steps` maps pattern steps (by identity) to nodes."""

    operands: Mapping[str, int]
    attrs: Mapping[str, Any]
    results: tuple[int, ...]
    inner: frozenset[int]
    """The matched nodes that aren't results: nobody outside the match may read them."""


class PatternBuilder:
    """Stands in for a GraphBuilder while `decompose` is traced: records ops without inferring anything."""

    def __getattr__(self, name: str) -> Any:
        if name not in OPS:
            raise AttributeError(f"{name!r} isn't an op")

        def record(*sources: Step | Hole | None, **attrs: Any) -> Step:
            return Step(name, tuple(s for s in sources if s is not None), MappingProxyType(attrs))

        return record


@cache
def patterns_of(name: str) -> tuple[Pattern, ...]:
    """The patterns of fused op `name`, one for every number of optional operands, most operands first.

    Traced once; raises OpError when the composition doesn't use every attr.
    """
    spec = op_named(name)
    assert isinstance(spec, FusedOp)
    required = sum(not o.optional for o in spec.operands)
    return tuple(_traced(spec, n) for n in range(len(spec.operands), required - 1, -1))


def _traced(spec: FusedOp, n_operands: int) -> Pattern:
    name, attrs = spec.name, _Symbolic({f.name for f in fields(spec.Attrs)})
    holes = [Hole(o.name) for o in spec.operands[:n_operands]]
    traced: Step | tuple[Step, ...] = spec.decompose(PatternBuilder(), attrs, *holes)
    if attrs.unread:
        raise OpError(f"{name}: decompose doesn't use {sorted(attrs.unread)}, so a match couldn't bind them")
    results = traced if isinstance(traced, tuple) else (traced,)
    return Pattern(spec, results, frozenset(op for step in results for op in _ops_of(step)))


def _ops_of(step: Step | Hole) -> Iterator[str]:
    """The op of a step, and those of the steps before it."""
    if isinstance(step, Step):
        yield step.op
        for source in step.sources:
            yield from _ops_of(source)


class _Symbolic:
    """Attrs whose every field is an AttrVar."""

    def __init__(self, names: set[str]) -> None:
        self.unread = set(names)
        self._names = frozenset(names)

    def __getattr__(self, name: str) -> AttrVar:
        if name not in self._names:
            raise AttributeError(name)
        self.unread.discard(name)
        return AttrVar(name)


@dataclass(frozen=True, slots=True)
class _Bound:
    """What a partial match has bound so far."""

    operands: Mapping[str, int]
    attrs: Mapping[str, Any]
    steps: tuple[tuple[Step, int], ...]

    def node_of(self, step: Step) -> int | None:
        """The node that `step` (this very object) is bound to."""
        return next((node for known, node in self.steps if known is step), None)


def find(pattern: Pattern, graph: Graph, anchor: Node) -> Match | None:
    """The match of `pattern` whose last result is `anchor`, or None.

    Both operand orders of a commutative op are tried. A match is legal when no inner value is read outside it or is a
    graph output, all its nodes run on one backend, and no operand depends on a result.
    """
    if not _sources_fit(pattern.results[-1], anchor, graph):
        return None
    for bound in _match(pattern.results[-1], anchor.id, graph, _Bound({}, {}, ())):
        results = [bound.node_of(step) for step in pattern.results]
        if None in results:
            continue
        found = tuple(r for r in results if r is not None)
        inner = frozenset(node for _, node in bound.steps) - set(found)
        match = Match(bound.operands, bound.attrs, found, inner)
        if _legal(match, graph):
            return match
    return None


def _sources_fit(step: Step, node: Node, graph: Graph) -> bool:
    """Whether the ops of the node's sources can be those of the step's: says no to most nodes at once."""
    wanted = [source.op for source in step.sources if isinstance(source, Step)]
    if node.spec.commutative:
        found = [graph[source].op for source in node.sources]
        return all(op in found for op in wanted)
    pairs = zip(step.sources, node.sources, strict=False)
    return all(isinstance(source, Hole) or graph[node_id].op == source.op for source, node_id in pairs)


def _match(step: Step | Hole, node_id: int, graph: Graph, bound: _Bound) -> Iterator[_Bound]:
    """Every way to bind `step` to the node."""
    if isinstance(step, Hole):
        if bound.operands.get(step.operand, node_id) == node_id:
            yield _Bound({**bound.operands, step.operand: node_id}, bound.attrs, bound.steps)
        return
    known = bound.node_of(step)
    if known is not None:
        if known == node_id:
            yield bound
        return
    node = graph[node_id]
    attrs = _match_attrs(step, node, bound.attrs)
    if node.op != step.op or attrs is None or len(node.sources) != len(step.sources):
        return
    here = _Bound(bound.operands, attrs, (*bound.steps, (step, node_id)))
    yield from _match_sources(step.sources, node.sources, graph, here)
    if node.spec.commutative and len(set(node.sources)) == 2:
        yield from _match_sources(step.sources, node.sources[::-1], graph, here)


def _match_sources(
    steps: tuple[Step | Hole, ...], sources: tuple[int, ...], graph: Graph, bound: _Bound
) -> Iterator[_Bound]:
    if not steps:
        yield bound
        return
    for first in _match(steps[0], sources[0], graph, bound):
        yield from _match_sources(steps[1:], sources[1:], graph, first)


def _match_attrs(step: Step, node: Node, bound: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if node.op != step.op:
        return None
    merged = dict(bound)
    for name, wanted in step.attrs.items():
        actual = getattr(node.attrs, name)
        if isinstance(wanted, AttrVar):
            if merged.setdefault(wanted.name, actual) != actual:
                return None
        elif wanted != actual:
            return None
    return merged


def _legal(match: Match, graph: Graph) -> bool:
    members = match.inner | set(match.results)
    if any(user not in members for n in match.inner for user in graph.users[n]) or match.inner & set(graph.outputs):
        return False
    if len({graph[n].backend for n in members}) > 1 or match.inner & set(match.operands.values()):
        return False
    return not _depends(graph, set(match.operands.values()), set(match.results))


def _depends(graph: Graph, operands: set[int], results: set[int]) -> bool:
    """Whether an operand is computed from a result: fusing would close a cycle."""
    if operands & results:
        return True
    tainted = set(results)
    for node in graph.nodes[min(results) : max(operands) + 1]:
        if not tainted.isdisjoint(node.sources):
            tainted.add(node.id)
    return not tainted.isdisjoint(operands)
