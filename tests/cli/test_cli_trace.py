"""`minfer trace`: stats of every node, and the broken kernel named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_calls import error_line, minfer

from minfer_ir.evaluate import evaluate
from minfer_ir.formats import format_named
from minfer_ir.testing.tolerances import weight_terms
from minfer_kernels.cpu.emitter import Emitter
from minfer_kernels.cpu.runner.tape import Place
from minfer_models import load
from minfer_models.engine import Rows, TokenSequence
from minfer_models.engine.model import CheckedWeights

PROMPT = "trace me"
Operands = dict[str, Any]


def test_the_listing_has_every_node_with_the_stats_of_its_value(tiny: Path) -> None:
    """Held to numpy evaluation of the same graph; on the numpy backend both are the same numbers."""
    outcome = minfer("trace", tiny, "-p", PROMPT, "--device", "numpy")
    expected: dict[str, np.ndarray] = {}
    with load(tiny, devices=_numpy()) as llm, TokenSequence(llm.engine) as sequence:
        ids = llm.tokenizer.encode(PROMPT, add_bos=None)
        params, inputs = llm.engine.prepare(Rows.of(sequence.id, ids, 0), "last")
        graph = llm.engine.executable(params).graph
        weights = CheckedWeights(llm.engine.model.file)
        evaluate(graph, inputs, weights, {}, lambda n, v: expected.__setitem__(n.name, np.array(v)))
        stores = {n.name for n in graph if n.spec.writes is not None}
    rows = {line.split()[0]: line.split()[1:] for line in outcome.out.splitlines()}
    assert list(rows) == list(expected)
    for name, (op, _, n, _, low, _, high, _, mean, _, nans, digest) in rows.items():
        value = expected[name][: len(ids)] if name in stores else expected[name]
        assert op.endswith("kv_store") == (name in stores)
        assert (int(n), int(nans), len(digest)) == (value.size, 0, 16)
        assert [float(low), float(high), float(mean)] == pytest.approx(
            [float(value.min()), float(value.max()), float(value.astype(np.float64).mean())], rel=1e-5, abs=1e-9
        )


def _numpy() -> Any:
    from minfer_ir.params import DevicePlan

    return DevicePlan(("numpy",))


def test_a_stored_trace_equals_the_next_one_whatever_the_threads_and_differs_with_the_cells(
    tiny: Path, tmp_path: Path
) -> None:
    out = tmp_path / "trace.json"
    written = minfer("trace", tiny, "-p", PROMPT, "-t", 1, "-o", out)
    assert (written.code, written.out) == (0, "")
    document = json.loads(out.read_text())
    assert (document["model"], document["rows"], len(document["token_ids"])) == (tiny.name, len(PROMPT), len(PROMPT))
    n = len(document["nodes"])
    same = minfer("trace", tiny, "-p", PROMPT, "-t", 2, "--against", out)
    assert (same.code, same.out) == (0, f"{n} nodes have the same bits as in {out}\n")

    other = minfer("trace", tiny, "-p", PROMPT, "--kv", "f32", "--against", out)
    first = next(node for node in document["nodes"] if node["op"].endswith("kv_store"))
    assert other.code == 3
    assert re.match(rf"%\d+ {first['name']} \({first['op']}\) differs from ", other.out)
    assert f"there  {first['type']}" in other.out and first["stats"]["hash"] in other.out
    assert "setting that differs: kv: f16 there, f32 here" in other.out


def test_nodes_that_only_one_side_has_are_counted(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    minfer("trace", tiny, "-p", PROMPT, "-o", out)
    outcome = minfer("trace", tiny, "-p", PROMPT, "--against", out, "--fusions-off", "matmul_swiglu_quantize")
    assert outcome.code == 0
    assert "2 nodes are only here and 0 only there, uncompared" in outcome.out
    assert "setting that differs: fusions_off: none there, matmul_swiglu_quantize here" in outcome.out


def test_the_last_tokens_alone(tiny: Path, tmp_path: Path) -> None:
    """A token's values don't depend on how many rows the forward has: the last row of a longer one has the same."""
    out = tmp_path / "trace.json"
    minfer("trace", tiny, "-p", PROMPT, "--n-tokens", 1, "-o", out)
    one = {n["name"]: n["stats"] for n in json.loads(out.read_text())["nodes"]}
    minfer("trace", tiny, "-p", PROMPT, "-o", out)
    all_rows = {n["name"]: n["stats"] for n in json.loads(out.read_text())["nodes"]}
    assert one["logits"] == all_rows["logits"]
    assert one["blk.1.ffn_residual"]["n"] * len(PROMPT) == all_rows["blk.1.ffn_residual"]["n"]


def test_every_node_of_the_demo_model_agrees_with_the_references(smollm2: Path) -> None:
    outcome = minfer("trace", smollm2, "-p", "The capital of", "--against", "numpy", "--ctx", 32)
    assert (outcome.code, re.sub(r"^\d+", "N", outcome.out)) == (
        0,
        "N nodes agree with numpy, each within its op's tolerance class\n",
    ), outcome.out
    assert int(outcome.out.split()[0]) > 250


def _shifted(operands: Operands, name: str, by: int) -> Operands:
    return operands | {name: Place(operands[name] + by, "shifted")}


def _one_position_off(operands: Operands) -> Operands:
    return _shifted(operands, "table", operands["table_stride"])


def _swapped(operands: Operands) -> Operands:
    gate, up = operands["gate"], operands["up"]
    return operands | {"gate": up, "up": gate}


def _one_block_short(operands: Operands) -> Operands:
    return operands | {"k": operands["k"] - 32}


def _scaled(operands: Operands) -> Operands:
    return operands | {"scale": operands["scale"] * 1.25}


def _wrong_eps(operands: Operands) -> Operands:
    return operands | {"eps": 0.5}


def _first_row_s_values(operands: Operands) -> Operands:
    return operands | {"x_stride": 0}


@pytest.mark.parametrize(
    ("node", "op", "breakage"),
    [
        ("blk.1.k_store", "matmul_rope_kv_store", _one_position_off),
        ("blk.0.attn_residual", "matmul_add", _one_block_short),
        ("blk.1.attention", "attention", _scaled),
        ("blk.1.ffn_hidden.q8a32", "matmul_swiglu_quantize", _swapped),
        ("blk.0.ffn_norm.q8a32", "rms_norm_quantize", _wrong_eps),
        ("blk.1.v_store", "matmul_kv_store", _first_row_s_values),
    ],
)
def test_a_broken_kernel_is_named(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, node: str, op: str, breakage: Callable[[Operands], Operands]
) -> None:
    call = Emitter.call

    def broken(self: Emitter, kernel: str, target: Any, *more: Any, **operands: Any) -> None:
        call(self, kernel, target, *more, **(breakage(operands) if target.name == node else operands))

    monkeypatch.setattr(Emitter, "call", broken)
    outcome = minfer("trace", tiny, "-p", PROMPT, "--against", "numpy")
    assert outcome.code == 3
    lines = outcome.out.splitlines()
    assert re.match(rf"%\d+ {re.escape(node)} differs: [\w-]+: \d+ of \d+ elements differ, first at ", lines[0])
    assert re.match(rf"  %\d+ {re.escape(node)} = {op}\(", lines[1])
    sides = [line.split()[0] for line in lines]
    assert sides.count("cpu") == sides.count("numpy") == 2
    at = next(line for line in lines if line.startswith("  worst at ["))
    worst = [int(i) for i in at[at.index("[") + 1 : at.index("]")].split(",")]
    start = int(re.findall(r"elements (\d+) to", at)[0])
    ours, theirs = (line.split()[1:] for line in lines[-2:])
    assert ours[worst[-1] - start] != theirs[worst[-1] - start]


def test_another_backend_checks_the_nodes_that_it_can_run(tiny: Path) -> None:
    """The reference's forward held against the CPU's kernels, which refuse float activations for Q4_0."""
    outcome = minfer("trace", tiny, "-p", PROMPT, "--device", "numpy", "--against", "cpu")
    assert outcome.code == 0, outcome.out
    first, *others = outcome.out.splitlines()
    assert re.fullmatch(r"\d+ nodes agree with cpu, each within its op's tolerance class", first)
    refusal = r"\d+ not checked, matmul\w*: Q4_0 weights take Q8A32 activations, not f32"
    assert others and all(re.fullmatch(refusal, line) for line in others), outcome.out


def test_the_cpu_agrees_with_itself_node_by_node(tiny: Path) -> None:
    outcome = minfer("trace", tiny, "-p", PROMPT, "--against", "cpu")
    assert (outcome.code, "not checked" in outcome.out) == (0, False), outcome.out


def test_what_can_t_be_traced_is_one_line(tiny: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"version": 1}')
    assert "isn't a trace that `minfer trace -o` wrote: no 'model'" in error_line(
        minfer("trace", tiny, "-p", "a", "--against", other)
    )
    refused = "no device and no file is called that"
    assert f"--against numpyy: {refused}; did you mean numpy? devices: cpu, numpy" in error_line(
        minfer("trace", tiny, "-p", "a", "--against", "numpyy")
    )
    assert "--against torch:moon: torch has no device moon here; there are auto, cpu, " in error_line(
        minfer("trace", tiny, "-p", "a", "--against", "torch:moon")
    )
    misspelled = tmp_path / "othr.json"
    assert f"--against {misspelled}: {refused}; did you mean {other}? " in error_line(
        minfer("trace", tiny, "-p", "a", "--against", misspelled)
    )
    missing = tmp_path / "no" / "trace.json"
    assert error_line(minfer("trace", "no-such-model", "-p", "a", "-o", missing)) == (
        f"minfer: -o {missing}: there is no folder {missing.parent}"
    )
    assert "--n-tokens is 3, but the prompt and a forward have at most 2" in error_line(
        minfer("trace", tiny, "-p", "ab", "--n-tokens", 3)
    )
    assert "the prompt is empty" in error_line(minfer("trace", tiny, "-p", ""))
    assert "9 tokens exceed the available context size of 8" in error_line(
        minfer("trace", tiny, "-p", "123456789", "--ctx", 8)
    )


def test_a_trace_of_other_tokens_is_not_compared(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    minfer("trace", tiny, "-p", "ab", "-o", out)
    assert "there is nothing to compare" in error_line(minfer("trace", tiny, "-p", "ac", "--against", out))
    assert "there is nothing to compare" in error_line(
        minfer("trace", tiny, "-p", "ab", "--n-tokens", 1, "--against", out)
    )


def test_weight_terms_are_what_a_kernel_adds_up_apart() -> None:
    """Scale times quant and minimum, by hand for Q4_1, whose block is two float16 and 16 bytes of nibbles."""
    fmt = format_named("Q4_1")
    rows = fmt.draw(np.random.default_rng(0), 3, 64)
    blocks = rows.reshape(-1, 20)
    d, m = (blocks[:, i : i + 2].copy().view(np.float16).astype(np.float64) for i in (0, 2))
    quants = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    expected = (np.abs(d * quants) + np.abs(m)).reshape(3, 64)
    np.testing.assert_allclose(weight_terms(fmt, rows), expected, rtol=1e-5)
    assert (weight_terms(fmt, rows) > 2 * np.abs(fmt.decode(rows))).any()
    for name in ("F16", "Q8_0", "Q6_K"):
        rows = format_named(name).draw(np.random.default_rng(0), 2, 256)
        assert np.array_equal(weight_terms(format_named(name), rows), np.abs(format_named(name).decode(rows)))
