"""Graphs as JSON: round trips, the published schema, and documents that are wrong in one place."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_builders import rows_input, small_llama

from minfer_ir.builder import GraphBuilder
from minfer_ir.graph import Graph
from minfer_ir.schema import graph_schema
from minfer_ir.serialize import GraphJsonError, dumps, from_json, loads, to_json
from minfer_ir.testing.strategies import graphs

VALIDATOR = jsonschema.Draft202012Validator(graph_schema())
Document = dict[str, Any]


@settings(max_examples=40, deadline=None)
@given(graphs(max_ops=10), st.randoms())
def test_any_graph_comes_back_equal_and_fits_the_schema(graph: Graph, rng: random.Random) -> None:
    text = dumps(graph)
    assert loads(text) == graph
    assert dumps(loads(text)) == text
    document = json.loads(text)
    assert document == to_json(graph)
    VALIDATOR.validate(document)
    rng.shuffle(document["nodes"])
    again = from_json(document)
    names = {n.name: [again[s].name for s in n.sources] for n in again}
    assert names == {n.name: [graph[s].name for s in n.sources] for n in graph}
    assert [again[o].name for o in again.outputs] == [graph[o].name for o in graph.outputs]


def test_an_assigned_graph_keeps_backends_and_blocks() -> None:
    from dataclasses import replace

    graph = small_llama()
    assigned = graph.rewrite(lambda n: n if n.is_leaf() else replace(n, backend="cpu" if n.block else "numpy"))
    back = loads(dumps(assigned, stage="assign", plan={"splits": [[0, 1]]}))
    assert back == assigned != graph
    document = to_json(assigned, stage="assign", plan={"splits": [[0, 1]]})
    VALIDATOR.validate(document)
    assert (document["stage"], document["plan"]) == ("assign", {"splits": [[0, 1]]})


def test_text_is_one_node_a_line() -> None:
    graph = small_llama()
    lines = dumps(graph).splitlines()
    assert sum('"op": ' in line for line in lines) == len(graph)
    assert [json.loads(line.strip().rstrip(","))["name"] for line in lines if '"op": ' in line] == [
        n.name for n in graph
    ]


def test_a_value_that_json_cannot_hold_is_refused_when_writing() -> None:
    b = GraphBuilder()
    b.output(b.scale(rows_input(b, "x", 1, 2), factor=float("nan")))
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps(b.build())


def test_the_published_schema_is_valid_and_current() -> None:
    jsonschema.Draft202012Validator.check_schema(graph_schema())
    page = Path(__file__).resolve().parents[2] / "docs" / "graph.schema.json"
    assert json.loads(page.read_text(encoding="utf-8")) == graph_schema()


BASE = to_json(small_llama(blocks=1))
"""Node 3 is the causal window, node 5 the embedding lookup, of op get_rows(table 4, ids 0)."""


def changed(edit: Callable[[Document], Any]) -> Document:
    document = copy.deepcopy(BASE)
    edit(document)
    return document


def node_named(document: Document, name: str) -> tuple[int, Document]:
    return next((i, n) for i, n in enumerate(document["nodes"]) if n["name"] == name)


NORM, _ = node_named(BASE, "blk.0.norm")
ROPE, _ = node_named(BASE, "blk.0.q_rope")
VIEW, _ = node_named(BASE, "blk.0.reshape")
STORE, _ = next((i, n) for i, n in enumerate(BASE["nodes"]) if n["op"] == "kv_store")


def at(i: int, key: str, value: Any) -> Callable[[Document], Any]:
    return lambda d: d["nodes"][i].__setitem__(key, value)


def inside(i: int, key: str, field: str, value: Any) -> Callable[[Document], Any]:
    return lambda d: d["nodes"][i][key].__setitem__(field, value)


# (edit, place, part of the message, whether the schema alone can tell)
MALFORMED: list[tuple[Callable[[Document], Any], str, str, bool]] = [
    (lambda d: d.pop("nodes"), "nodes", "expected an array, got None", True),
    (lambda d: d.__setitem__("nodes", {}), "nodes", "expected an array, got {}", True),
    (lambda d: d.pop("outputs"), "outputs", "missing", True),
    (lambda d: d.__setitem__("outputs", [0, "1"]), "outputs[1]", "expected an integer, got '1'", True),
    (lambda d: d.__setitem__("outputs", [999]), "outputs[0]", "no node has id 999", False),
    (lambda d: d.__setitem__("version", 2), "version", "this reader knows version 1, got 2", True),
    (lambda d: d.pop("version"), "version", "got None", True),
    (lambda d: d.__setitem__("extra", 1), "extra", "no such field", True),
    (lambda d: d.__setitem__("plan", [1]), "plan", "expected an object, got [1]", True),
    (lambda d: d.__setitem__("stage", 3), "stage", "expected a string or null, got 3", True),
    (lambda d: d["nodes"].__setitem__(3, "x"), "nodes[3]", "expected an object, got 'x'", True),
    (lambda d: d["nodes"][3].pop("name"), "nodes[3].name", "missing; it is a string", True),
    (at(3, "colour", 1), "nodes[3].colour", "no such field", True),
    (at(3, "id", 2.5), "nodes[3].id", "expected an integer, got 2.5", True),
    (at(3, "id", True), "nodes[3].id", "expected an integer, got True", True),
    (at(3, "id", 2), "nodes[3].id", "2 is taken by an earlier node", False),
    (at(3, "name", "cells"), "nodes[3].name", "'cells' is taken by an earlier node", False),
    (at(3, "op", "conv"), "nodes[3].op", "unknown op 'conv'; known: input", True),
    (at(5, "sources", [4, 77]), "nodes[5].sources[1]", "no node has id 77", False),
    (at(5, "sources", [4, "0"]), "nodes[5].sources[1]", "expected an integer, got '0'", True),
    (at(5, "sources", 4), "nodes[5].sources", "expected a list of an integer, got 4", True),
    (at(5, "sources", [4]), "nodes[5].sources", "get_rows takes 2 to 2 operands, got 1", True),
    (at(5, "sources", [4, 0, 0]), "nodes[5].sources", "get_rows takes 2 to 2 operands, got 3", True),
    (at(5, "sources", []), "nodes[5].sources", "get_rows takes 2 to 2 operands, got 0", True),
    (at(VIEW, "sources", []), f"nodes[{VIEW}].sources", "reshape takes 1 to 1 operands, got 0", True),
    (at(STORE, "sources", []), f"nodes[{STORE}].sources", "kv_store takes 3 to 3 operands, got 0", True),
    (at(STORE, "sources", [0]), f"nodes[{STORE}].sources", "kv_store takes 3 to 3 operands, got 1", True),
    (at(0, "sources", [1]), "nodes[0].sources", "input takes 0 to 0 operands, got 1", True),
    (at(5, "sources", [0, 4]), "nodes[5]", "operand table is i32, accepted", False),
    (at(5, "attrs", {"axis": 0}), "nodes[5].attrs", "axis: no such field; there are: none", True),
    (at(5, "attrs", [1]), "nodes[5].attrs", "expected an object, got [1]", True),
    (at(5, "type", "f32"), "nodes[5].type", "expected an object (TensorType), got 'f32'", True),
    (inside(5, "type", "dtype", "f33"), "nodes[5].type.dtype", "got 'f33'", True),
    (inside(5, "type", "rows", "batch"), "nodes[5].type.rows", "expected one of 'token', 'output' or null", True),
    (inside(5, "type", "shape", [4, None]), "nodes[5].type.shape[1]", "expected an integer, got None", True),
    (inside(5, "type", "shape", [4, 31]), "nodes[5]", "is declared f32[4, 31] rows=token, its op gives", False),
    (inside(NORM, "attrs", "eps", "tiny"), f"nodes[{NORM}].attrs", "rms_norm: eps: expected a number", True),
    (inside(ROPE, "attrs", "scaling", 7), f"nodes[{ROPE}].attrs", "scaling: expected an object (RopeScaling)", True),
    (inside(ROPE, "attrs", "pairs", "norm"), f"nodes[{ROPE}].attrs", "pairs: expected one of 'neox'", True),
    (inside(ROPE, "attrs", "dims", 7), f"nodes[{ROPE}]", "dims is 7, expected an even number", False),
    (at(VIEW, "view", None), f"nodes[{VIEW}]", "has view None, its op gives ViewAlias", False),
    (inside(VIEW, "view", "offset", 4), f"nodes[{VIEW}]", "has view ViewAlias", False),
    (inside(VIEW, "view", "source", 900), f"nodes[{VIEW}].view.source", "no node has id 900", False),
    (at(VIEW, "block", "0"), f"nodes[{VIEW}].block", "expected an integer or null, got '0'", True),
]


@pytest.mark.parametrize(("edit", "place", "message", "by_schema"), MALFORMED)
def test_a_document_with_one_fault_raises_one_error_with_its_place(
    edit: Callable[[Document], Any], place: str, message: str, by_schema: bool
) -> None:
    document = changed(edit)
    with pytest.raises(GraphJsonError) as caught:
        from_json(document)
    assert caught.value.path == place
    assert str(caught.value).startswith(f"{place}: ")
    assert message in str(caught.value)
    assert VALIDATOR.is_valid(document) is not by_schema


def test_the_untouched_document_is_fine() -> None:
    assert from_json(BASE) == small_llama(blocks=1)
    VALIDATOR.validate(BASE)


JUNK: list[Any] = [
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**63, 10**30, 1.5, 1e300, "", "x", "f32", "token"),
    *([], [0], [[]], {}, {"a": 1}, [1, -1, 0]),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every member and item inside `value`."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [p for key in keys for p in ((*path, key), *places(value[key], (*path, key)))]


PLACES = places(BASE)


def inside_of(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def damage(document: Document, rng: random.Random) -> None:
    """Delete a random member or item, or put junk, a doubled list or another part of the document there."""
    path = rng.choice(places(document))
    parent, key = inside_of(document, path[:-1]), path[-1]
    kind = rng.randrange(4)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent[key], list):
        parent[key] = parent[key] * 2
    else:
        other = rng.choice(JUNK) if kind == 2 else inside_of(BASE, rng.choice(PLACES))
        parent[key] = copy.deepcopy(other)


@pytest.mark.parametrize("damages", [1, 2, 4])
def test_a_damaged_document_is_a_graph_or_one_error_with_its_place(damages: int) -> None:
    rng = random.Random(damages)
    refused = 0
    for _ in range(300):
        document = copy.deepcopy(BASE)
        for _ in range(damages):
            damage(document, rng)
        try:
            from_json(document)
        except GraphJsonError as error:
            assert error.path and str(error).startswith(f"{error.path}: ")
            refused += 1
    assert refused > 200


def test_every_place_may_be_missing() -> None:
    for path in PLACES:
        document = copy.deepcopy(BASE)
        parent = inside_of(document, path[:-1])
        del parent[path[-1]]
        with contextlib.suppress(GraphJsonError):
            from_json(document)
        if isinstance(parent, list):
            parent.clear()
            with contextlib.suppress(GraphJsonError):
                from_json(document)


def test_a_cycle_in_a_document_is_named() -> None:
    embed = BASE["nodes"][5]["id"]
    rope = BASE["nodes"][ROPE]["id"]
    document = changed(at(NORM, "sources", [rope, BASE["nodes"][NORM]["sources"][1]]))
    assert embed not in document["nodes"][NORM]["sources"]
    with pytest.raises(GraphJsonError) as caught:
        from_json(document)
    assert "the graph has a cycle: " in str(caught.value)
    assert "blk.0.norm" in str(caught.value) and "blk.0.q_rope" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "document: not JSON: Expecting value"),
        ("[1", "document: not JSON"),
        ("[]", "document: expected an object, got []"),
        ("null", "document: expected an object, got None"),
        ('{"version": 1, "version": 1}', "the key 'version' appears twice"),
        ('{"version": NaN}', "NaN isn't a JSON number"),
        ('{"version": ' + "9" * 5000 + "}", "document: not JSON"),
        ("[" * 100_000, "document: not JSON"),
        ('{"version": 1, "outputs": [], "nodes": ' + json.dumps([{"id": "x" * 10_000}]) + "}", "nodes[0]"),
    ],
)
def test_text_that_is_no_document_is_one_short_error(text: str, message: str) -> None:
    with pytest.raises(GraphJsonError) as caught:
        loads(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300
