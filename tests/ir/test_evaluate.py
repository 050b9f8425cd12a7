"""Evaluation: leaves, partial rows, rounding where the graph says so, KV regions between runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ir_builders import Array, floats, rows_input, run, small_llama

from minfer_ir.builder import GraphBuilder
from minfer_ir.evaluate import Interpreter, Weights, evaluate
from minfer_ir.formats import F32, Q4_0, Q8A32
from minfer_ir.graph import Node
from minfer_ir.testing.values import draw_feed


def test_a_composed_graph_equals_the_same_steps_in_torch() -> None:
    b = GraphBuilder()
    x = rows_input(b, "x", 3, 8)
    w = b.weight(key="w", shape=(5, 8), dtype="F32")
    bias = b.weight(key="bias", shape=(5,), dtype="F32")
    b.output(b.softmax(b.scale(b.add(b.matmul(x, w), bias), factor=0.5)))
    values, weight, row = floats(1, 3, 8), floats(2, 5, 8), floats(3, 5)
    [ours] = run(b.build(), {"w": weight, "bias": row}, x=values)
    linear = torch.nn.functional.linear(*(torch.tensor(a, dtype=torch.float64) for a in (values, weight, row)))
    np.testing.assert_allclose(ours, torch.softmax(linear * 0.5, -1).numpy(), rtol=1e-5)


def test_fewer_rows_than_the_bucket_give_their_own_rows() -> None:
    graph = small_llama(rows=4)
    feed = draw_feed(np.random.default_rng(3), graph, full=True)
    at = np.arange(4, dtype=np.int32)
    inputs = {**feed.inputs, "positions": at, "cells": at, "window": np.array([0], np.int32)}
    inputs["output_rows"] = np.array([1], np.int32)
    fewer = {key: value[:2] if value.shape == (4,) else value for key, value in inputs.items()}
    [whole] = evaluate(graph, inputs, feed.weights)
    [part] = evaluate(graph, fewer, feed.weights)
    np.testing.assert_allclose(part, whole, rtol=1e-6)


def test_chunks_through_the_kv_regions_equal_one_pass() -> None:
    graph = small_llama(rows=4)
    feed = draw_feed(np.random.default_rng(5), graph, full=True)
    at = np.arange(4, dtype=np.int32)
    inputs = {**feed.inputs, "positions": at, "cells": at, "window": np.array([0], np.int32)}
    inputs["output_rows"] = np.array([3], np.int32)
    [whole] = evaluate(graph, inputs, feed.weights)
    regions: dict[str, Array] = {}
    interpreter = Interpreter(graph, feed.weights, regions)
    for rows in (slice(0, 3), slice(3, 4)):
        step = {k: v[rows] if v.shape == (4,) else v for k, v in inputs.items()}
        step["output_rows"] = np.array([rows.stop - rows.start - 1], np.int32)
        [last] = interpreter.run(step)
    np.testing.assert_allclose(last, whole, rtol=1e-5, atol=1e-6)
    assert set(regions) == {"k.0", "v.0", "k.1", "v.1"}
    assert all(r.dtype == np.float16 and r[:4].any() and not r[4:].any() for r in regions.values())


def test_quantize_act_rounds_what_follows_and_nothing_else_does() -> None:
    def product(quantized: bool) -> Array:
        b = GraphBuilder()
        x: Node = rows_input(b, "x", 2, 64)
        x = b.quantize_act(x, dtype="Q8A32") if quantized else x
        b.output(b.matmul(x, b.weight(key="w", shape=(3, 64), dtype="Q4_0")))
        return evaluate(b.build(), {"x": values}, Weights(w=stored))[0]

    values = floats(1, 2, 64)
    stored = Q4_0.draw(np.random.default_rng(2), 3, 64)
    weight = Q4_0.decode(stored).astype(np.float64)
    rounded = Q8A32.decode(Q8A32.encode(values))
    np.testing.assert_allclose(product(True), rounded @ weight.T, rtol=1e-6)
    np.testing.assert_allclose(product(False), values @ weight.T, rtol=1e-6)
    assert not np.allclose(product(True), product(False), rtol=1e-6)


def test_weight_concat_stacks_rows_in_order() -> None:
    b = GraphBuilder()
    stacked = b.weight_concat(keys=("b", "a"), sizes=(1, 2), width=4, dtype="F32")
    for part in b.split_parts(b.matmul(rows_input(b, "x", 2, 4), stacked), (1, 2)):
        b.output(part)
    x, first, second = floats(1, 2, 4), floats(2, 1, 4), floats(3, 2, 4)
    outs = run(b.build(), {"a": second, "b": first}, x=x)
    np.testing.assert_allclose(outs[0], x.astype(np.float64) @ first.T.astype(np.float64), rtol=1e-6)
    np.testing.assert_allclose(outs[1], x.astype(np.float64) @ second.T.astype(np.float64), rtol=1e-6)


def test_observe_sees_every_computed_value_as_numbers_in_order() -> None:
    b = GraphBuilder()
    x = rows_input(b, "x", 1, 32)
    stored = b.quantize_act(b.silu(x), dtype="Q8A32")
    b.output(b.matmul(stored, b.weight(key="w", shape=(2, 32), dtype="F32")))
    seen: list[tuple[str, Array]] = []
    values = floats(1, 1, 32)
    weights = Weights(w=F32.encode(floats(2, 2, 32)))
    outs = evaluate(b.build(), {"x": values}, weights, observe=lambda node, value: seen.append((node.op, value)))
    assert [op for op, _ in seen] == ["silu", "quantize_act", "matmul"]
    assert np.array_equal(seen[1][1], Q8A32.decode(Q8A32.encode(seen[0][1])))
    assert np.array_equal(seen[2][1], outs[0])


def test_a_value_that_is_both_read_and_an_output_is_kept() -> None:
    b = GraphBuilder()
    x = rows_input(b, "x", 1, 3)
    middle = b.output(b.silu(x))
    b.output(b.add(middle, middle))
    b.output(middle)
    outs = run(b.build(), x=floats(1, 1, 3))
    assert np.array_equal(outs[0], outs[2])
    assert np.array_equal(outs[1], outs[0] * 2)


def test_a_missing_input_is_named_with_those_given() -> None:
    b = GraphBuilder()
    b.output(b.add(rows_input(b, "x", 1, 3), rows_input(b, "y", 1, 3)))
    unused = rows_input(b, "unused", 1, 3)
    graph = b.build()
    with pytest.raises(ValueError, match="input 'y' wasn't given; given: x"):
        run(graph, x=floats(1, 1, 3))
    assert run(graph, x=floats(1, 1, 3), y=floats(2, 1, 3))[0].shape == (1, 3)
    assert not graph.users[unused.id]


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (2,), ()])
def test_an_input_of_another_shape_is_refused_with_both(shape: tuple[int, ...]) -> None:
    b = GraphBuilder()
    b.output(b.silu(rows_input(b, "x", 2, 3)))
    with pytest.raises(ValueError, match=r"input 'x' has shape .* the graph takes f32\[2, 3\] rows=token"):
        run(b.build(), x=np.zeros(shape, np.float32))


def test_a_value_that_counts_no_rows_must_be_whole() -> None:
    b = GraphBuilder()
    b.output(b.silu(b.input(key="x", shape=(2, 3), dtype="f32")))
    with pytest.raises(ValueError, match=r"has shape \(1, 3\), the graph takes f32\[2, 3\]"):
        run(b.build(), x=np.zeros((1, 3), np.float32))


def test_an_unknown_weight_is_a_key_error_with_its_name() -> None:
    b = GraphBuilder()
    b.output(b.matmul(rows_input(b, "x", 1, 4), b.weight(key="blk.0.w", shape=(2, 4), dtype="F32")))
    with pytest.raises(KeyError, match=r"blk\.0\.w"):
        run(b.build(), x=floats(1, 1, 4))
