"""Graphs as Graphviz DOT, to look at: `dot -Tsvg` renders it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from minfer_ir.graph import Graph, Node
from minfer_ir.printer import attr_texts

STYLES = {
    "input": 'shape=ellipse, style=filled, fillcolor="#d6e4f5"',
    "weight": 'shape=box, style="filled,rounded", fillcolor="#f3ead3"',
    "kv": 'shape=cylinder, style=filled, fillcolor="#dcefdc"',
    "view": 'shape=box, style="dashed"',
    "writes_kv": 'shape=box, style=filled, fillcolor="#dcefdc"',
    "reads_kv": 'shape=box, style=filled, fillcolor="#dcefdc"',
    "pure": 'shape=box, style=filled, fillcolor="#ffffff"',
    "outside": 'shape=plaintext, fontcolor="#707070"',
}
QUIET_ATTRS = ("shape", "axes", "starts", "limit")
"""Attrs left out of the picture: a view's type shows what it does, a limit guards the fill."""


def export_dot(
    graph: Graph, block: int | None = None, annotations: Mapping[int, str] | None = None, title: str | None = None
) -> str:
    """The graph as DOT, a cluster per model layer; `block` keeps one layer and what it reads and feeds.

    Inputs, weights and KV regions are coloured leaves, views are dashed, edges carry operand names where a node reads
    several values, outputs have a double border. A leaf that many nodes read is drawn beside each of them.
    `annotations` adds a line to labels, by node id; `title` stands above the picture. Raises ValueError when no node
    is tagged with `block`.
    """
    blocks = sorted({n.block for n in graph if n.block is not None})
    if block is not None and block not in blocks:
        raise ValueError(f"no node belongs to block {block}; blocks: {', '.join(map(str, blocks)) or 'none'}")
    kept = [n for n in graph if block is None or n.block == block]
    notes = annotations or {}
    lines = ["digraph minfer {", *_HEADER, *([] if title is None else [_title_line(title)])]
    for cluster in dict.fromkeys(n.block for n in kept):
        members = [line for n in kept if n.block == cluster for line in _node_lines(graph, n, notes)]
        lines += members if cluster is None else _cluster(cluster, members)
    lines += [line for n in kept for line in _edge_lines(graph, n)]
    if block is not None:
        lines += _surroundings(graph, kept)
    return "\n".join([*lines, "}"]) + "\n"


_HEADER = (
    "  rankdir=TB; ranksep=0.35; nodesep=0.25; newrank=true;",
    '  node [fontname="Helvetica", fontsize=11, margin="0.10,0.05", height=0.3];',
    '  edge [fontname="Helvetica", fontsize=9, fontcolor="#505050", color="#505050", arrowsize=0.6];',
)


def _title_line(title: str) -> str:
    return f'  label=<{escape(title)}>; labelloc=t; labeljust=l; fontname="Helvetica"; fontsize=13;'


def _node_lines(graph: Graph, node: Node, notes: Mapping[int, str]) -> Iterator[str]:
    """The node with its private copies of shared leaves; a shared leaf has no place itself."""
    if _is_copied(graph, node):
        return
    border = ", peripheries=2" if node.id in graph.outputs else ""
    yield f"  n{node.id} [{_style(node)}{border}, label={_label(node, notes)}];"
    for slot, (_, source) in enumerate(node.operands(graph)):
        if _is_copied(graph, source):
            yield f"  {_origin(graph, node, source, slot)} [{_style(source)}, label={_label(source, notes)}];"


def _edge_lines(graph: Graph, node: Node) -> Iterator[str]:
    for slot, (operand, source) in enumerate(node.operands(graph)):
        yield f"  {_origin(graph, node, source, slot)} -> n{node.id}{_edge_style(node, operand)};"


def _origin(graph: Graph, node: Node, source: Node, slot: int) -> str:
    return f"n{source.id}_{node.id}_{slot}" if _is_copied(graph, source) else f"n{source.id}"


def _edge_style(node: Node, operand: str) -> str:
    attributes = [f'label="{operand}"'] if len(node.sources) > 1 else []
    attributes += ["style=dashed"] if node.view is not None else []
    return f" [{', '.join(attributes)}]" if attributes else ""


def _is_copied(graph: Graph, node: Node) -> bool:
    """Leaves that several nodes read are repeated beside each: one node with edges everywhere hides the picture."""
    return node.is_leaf() and len(graph.users[node.id]) > 1 and node.id not in graph.outputs


def _cluster(block: int, members: list[str]) -> list[str]:
    head = f'  subgraph cluster_{block} {{ label="block {block}"; labeljust=l; fontname="Helvetica"; color="#b0b0b0";'
    return [head, *(f"  {line}" for line in members), "  }"]


def _surroundings(graph: Graph, kept: list[Node]) -> Iterator[str]:
    """Plain names for the values that a single layer reads from outside, and for the nodes outside that read it."""
    inside = {n.id for n in kept}
    sources = dict.fromkeys(s for n in kept for s in n.sources if s not in inside)
    readers = dict.fromkeys((n.id, u) for n in kept for u in graph.users[n.id] if u not in inside)
    for source in sources:
        if not _is_copied(graph, graph[source]):
            style = _style(graph[source]) if graph[source].is_leaf() else STYLES["outside"]
            yield f"  n{source} [{style}, label={_outside_label(graph[source])}];"
    for reader in dict.fromkeys(user for _, user in readers):
        yield f"  n{reader} [{STYLES['outside']}, label={_outside_label(graph[reader])}];"
    for node, reader in readers:
        yield f"  n{node} -> n{reader} [style=dotted];"


def _style(node: Node) -> str:
    if node.op in STYLES:
        return STYLES[node.op]
    return STYLES["weight" if node.is_leaf() else node.spec.effect]


def _label(node: Node, notes: Mapping[int, str]) -> str:
    """Name, then op and attrs, then type, then the note; the block's name isn't repeated inside its cluster."""
    name = node.name.removeprefix(f"blk.{node.block}.") if node.block is not None else node.name
    note = [notes[node.id]] if node.id in notes else []
    if node.is_leaf():
        return _bold_first([name, str(node.type), *note])
    attrs = [text for text in attr_texts(node) if text.split("=")[0] not in QUIET_ATTRS]
    backend = f" @{node.backend}" if node.backend else ""
    return _bold_first([name, f"{node.op}{backend}", *_wrapped(attrs), str(node.type), *note])


def _outside_label(node: Node) -> str:
    return _bold_first([node.name, str(node.type)])


def _wrapped(texts: list[str], width: int = 40) -> list[str]:
    """The texts joined by commas, in lines of about `width` characters."""
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + len(text) + 2 <= width:
            lines[-1] += f", {text}"
        else:
            lines.append(text)
    return lines


def _bold_first(lines: list[str]) -> str:
    """An HTML-like label."""
    first, *rest = (escape(line) for line in lines)
    return "<" + "<br/>".join([f"<b>{first}</b>", *rest]) + ">"
