"""Launch groups: runs of nodes that one launch serves. The nodes stay in the graph; each group has its switch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from minfer_ir.graph import Graph, Node
from minfer_ir.runtime.backend import LAUNCH_GROUPS, BackendError, Split
from minfer_kernels.gpu.emit import GROUPS, emitter_of, wants_of
from minfer_kernels.gpu.emitter import Emitter, Group
from minfer_kernels.gpu.scratch import Need, Shapes, Wants

Spans = dict[int, tuple[int, int]]


def runs_of(graph: Graph, split: Split) -> Iterator[tuple[Group | None, Sequence[Node]]]:
    """The split's nodes, views aside, as runs that are emitted together: a group and its members, or one node."""
    nodes = [graph[n] for n in split.nodes if graph[n].spec.effect != "view"]
    i = 0
    while i < len(nodes):
        found = ((g, g.taken(graph, nodes, i)) for g in GROUPS if g.name not in split.groups_off)
        group, taken = next(((g, n) for g, n in found if n), (None, 1))
        yield group, nodes[i : i + taken]
        i += taken


def wanted(e: Shapes, split: Split) -> Iterator[Wants]:
    """What each of the split's runs takes beside values."""
    for group, members in runs_of(e.graph, split):
        if group is not None and group.wants is not None:
            yield group.wants(e, members)
        else:
            yield Wants.together(wants_of(e, node) for node in members)


def need(e: Shapes, split: Split) -> Need:
    """What a program of the split takes beside values, however its nodes are grouped."""
    alone = replace(split, groups_off=frozenset(LAUNCH_GROUPS))
    return Need.of([*wanted(e, split), *wanted(e, alone)])


def emit_nodes(emitter: Emitter, graph: Graph, split: Split) -> Spans:
    """Write the launches of a split; which of them, [first, stop), belong to which node.

    A group's belong to its first node, so that after a node has run its value is there.
    """
    spans: Spans = {}
    for (group, members), wants in zip(runs_of(graph, split), wanted(emitter, split), strict=True):
        start = len(emitter.launches)
        emitter.dealt.begin(wants)
        if group is None:
            _emit_one(emitter, members[0])
        else:
            emitter.label = f"{group.name}({', '.join(m.name for m in members)})"
            group.emit(emitter, members)
            emitter.label = None
        emitter.dealt.end(str(members[0]))
        stop = len(emitter.launches)
        spans |= {m.id: (start if m is members[0] else stop, stop) for m in members}
    return spans


def _emit_one(emitter: Emitter, node: Node) -> None:
    emit = emitter_of(node.op)
    if emit is None:
        raise BackendError(f"gpu: no kernel for {node} ({node.op})")
    emit(emitter, node)
