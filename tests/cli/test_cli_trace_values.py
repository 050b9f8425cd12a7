"""`minfer trace --values` and `--node`: the values themselves, of the nodes that are asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from cli_calls import error_line, minfer, usage_error

from minfer_ir.evaluate import evaluate
from minfer_models import load
from minfer_models.engine import Rows, TokenSequence
from minfer_models.engine.model import CheckedWeights

PROMPT = "trace me"


def test_the_values_of_every_node_are_those_of_a_numpy_evaluation(tiny: Path, tmp_path: Path) -> None:
    """Stores give the rows that they wrote; the logits are those that Python's `logits` returns."""
    out = tmp_path / "values.npz"
    outcome = minfer("trace", tiny, "-p", PROMPT, "--device", "numpy", "--values", out)
    expected: dict[str, np.ndarray] = {}
    with load(tiny, device="numpy") as llm:
        ids = llm.tokenizer.encode(PROMPT, add_bos=None)
        logits = llm.logits(ids)
        with TokenSequence(llm.engine) as sequence:
            params, inputs = llm.engine.prepare(Rows.of(sequence.id, ids, 0), "last")
        graph = llm.engine.executable(params).graph
        weights = CheckedWeights(llm.engine.model.file)
        evaluate(graph, inputs, weights, {}, lambda n, v: expected.__setitem__(n.name, np.array(v)))
        stores = {n.name for n in graph if n.spec.writes is not None}
    with np.load(out) as values:
        assert outcome.out == "" and outcome.err.endswith(f"{len(expected)} values written to {out}\n")
        assert list(values) == list(expected)
        for name, value in expected.items():
            rows = value[: len(ids)] if name in stores else value
            np.testing.assert_array_equal(values[name], rows, err_msg=name)
        np.testing.assert_array_equal(values["logits"][-1], logits[-1])


def test_chosen_nodes_alone_are_listed_kept_and_compared(tiny: Path, tmp_path: Path) -> None:
    everything = minfer("trace", tiny, "-p", PROMPT).out.splitlines()
    wanted = [line.split()[0] for line in everything if line.startswith("blk.1.attn")]
    listed = minfer("trace", tiny, "-p", PROMPT, "--node", r"^blk\.1\.attn").out.splitlines()
    assert [line.split() for line in listed] == [line.split() for line in everything if line.startswith("blk.1.attn")]

    trace, values = tmp_path / "trace.json", tmp_path / "values.npz"
    minfer("trace", tiny, "-p", PROMPT, "--node", r"^blk\.1\.attn", "--values", values, "-o", trace)
    with np.load(values) as kept:
        assert list(kept) == wanted
    assert [n["name"] for n in json.loads(trace.read_text())["nodes"]] == wanted

    minfer("trace", tiny, "-p", PROMPT, "-o", trace)
    some = minfer("trace", tiny, "-p", PROMPT, "--node", r"^blk\.1\.attn", "--against", trace)
    assert (some.code, some.out) == (0, f"{len(wanted)} nodes have the same bits as in {trace}\n")


def test_the_values_up_to_a_difference_are_kept(tiny: Path, tmp_path: Path) -> None:
    trace, values = tmp_path / "trace.json", tmp_path / "values.npz"
    minfer("trace", tiny, "-p", PROMPT, "-o", trace)
    found = minfer("trace", tiny, "-p", PROMPT, "--kv", "q8_0", "--against", trace, "--values", values)
    assert found.code == 3
    with np.load(values) as kept:
        assert found.out.split()[1] == list(kept)[-1]
        assert len(list(kept)) < len(json.loads(trace.read_text())["nodes"])


def test_what_can_t_be_kept_is_said_before_the_model_is_opened(tiny: Path, tmp_path: Path) -> None:
    missing = tmp_path / "no" / "values.npz"
    assert error_line(minfer("trace", "no-such-model", "-p", "a", "--values", missing)) == (
        f"minfer: --values {missing}: there is no folder {missing.parent}"
    )
    assert "--node '(' is no regular expression" in usage_error(minfer("trace", tiny, "-p", "a", "--node", "("))
    values = tmp_path / "values.npz"
    line = error_line(minfer("trace", tiny, "-p", "a", "--node", "blk.1.attn_residuel", "--values", values))
    assert "--node blk.1.attn_residuel: none of the plan's " in line
    assert "did you mean blk.1.attn_residual" in line
    assert list(tmp_path.iterdir()) == []
