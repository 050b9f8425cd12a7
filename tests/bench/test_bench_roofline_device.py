"""`minfer-bench roofline --device cuda` in Triton's interpreter: costs counted by hand, parts that add up, refusals."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from minfer_ir.opspec import Cost
from minfer_kernels.gpu.datasheets import datasheet_of
from minfer_models.bench.app import app
from minfer_models.bench.loading import EngineChoices
from minfer_models.bench.report.document import csv_text, document
from minfer_models.bench.roofline.device import measure as measuring
from minfer_models.bench.roofline.device.attribution import limit_of, runs_of
from minfer_models.bench.roofline.device.limits import DeviceCeilings, Rate
from minfer_models.bench.roofline.device.report import DeviceRooflineReport
from minfer_models.bench.stats import Summary
from minfer_models.bench.workload import BenchError, Workload
from minfer_models.cli.progress import progress
from minfer_models.devices import DeviceChoice
from minfer_models.synthetic import SyntheticModel, byte_vocabulary, write_model

BLOCKS, WIDTH, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 1, 64, 64, 4, 2, 32, 258
INTERPRETED = DeviceChoice("gpu", "cpu", "cuda, kernels interpreted")
TESTS = [Workload("pp", 3), Workload("tg", 1)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = SyntheticModel(
        n_blocks=BLOCKS, width=WIDTH, ffn_width=FFN, n_heads=HEADS, n_kv_heads=KV_HEADS, head_dim=HEAD_DIM,
        weights="Q8_0", vocabulary=byte_vocabulary(), n_ctx_train=64,
    )  # fmt: skip
    return write_model(tmp_path_factory.mktemp("models") / "small-Q8_0.gguf", sizes)


@pytest.fixture(scope="module")
def report(small: Path) -> DeviceRooflineReport:
    """Measured once: interpreted launches take their time."""
    choices = EngineChoices(n_ctx=64, kv="f16", device="cuda")
    with pytest.MonkeyPatch.context() as patch, progress("test") as shown:
        patch.setattr(measuring, "WARM_RUNS", 0)
        return measuring.measure_device(small, TESTS, 1, choices, INTERPRETED, shown)


def test_every_weight_and_cell_is_counted(report: DeviceRooflineReport, small: Path) -> None:
    """Multiply-adds by hand; bytes as Q8_0 and float16 cells have them, in planes: no more per weight."""
    prefill, decode = report.phases
    rows = {"qkv": (HEADS + 2 * KV_HEADS) * HEAD_DIM * WIDTH, "out": HEADS * HEAD_DIM * WIDTH, "ffn": 3 * FFN * WIDTH}
    block, head = BLOCKS * sum(rows.values()), VOCABULARY * WIDTH
    vectors = (2 * BLOCKS + 1) * WIDTH
    for phase, tokens, outputs, seen in ((prefill, 3, 1, 1 + 2 + 3), (decode, 1, 1, 1)):
        products = sum(p.macs for p in phase.parts if p.op.startswith("matmul"))
        attention = sum(p.macs for p in phase.parts if p.op == "attention")
        scores_and_values = 2 * BLOCKS * HEADS * HEAD_DIM * seen
        assert products == pytest.approx(tokens * block + outputs * head, rel=0.03)
        assert attention == pytest.approx(scores_and_values, rel=0.3)
        steps = 1 if phase is prefill else tokens
        weights = steps * ((block + head) / 32 * 34 + 4 * vectors)
        assert phase.resident_bytes == pytest.approx(weights, rel=0.25)
        assert phase.resident_bytes > weights


def test_parts_add_up_to_the_whole(report: DeviceRooflineReport) -> None:
    for phase, test in zip(report.phases, TESTS, strict=True):
        assert phase.test == test.name
        spent = sum(p.seconds for p in phase.parts) + phase.outside_seconds
        assert spent == pytest.approx(phase.total_seconds, rel=1e-9)
        assert phase.total_seconds == pytest.approx(phase.timed_seconds[0], rel=1e-9)
        assert all(p.seconds > 0 and p.calls > 0 and p.limit_seconds > 0 for p in phase.parts)
    kinds = {p.kind for p in report.phases[1].parts}
    assert "attention + quantize_act" in kinds
    assert "matmul logits Q8_0" in kinds
    decode = report.phases[1]
    assert decode.of_bandwidth == pytest.approx(
        decode.resident_bytes / decode.seconds[0] / report.ceilings.memory.measured.median
    )
    assert decode.of_float16 is None
    assert report.phases[0].of_float16 is not None


def test_all_forms_say_that_no_gpu_was_there(report: DeviceRooflineReport, valid: Any) -> None:
    text = report.markdown()
    assert "Triton's interpreter ran the kernels on the CPU: these times say nothing about a GPU" in text
    assert "| memory, copied (GB/s) |" in text
    assert "data sheet" in text
    rows = list(csv.DictReader(io.StringIO(csv_text(report.records()))))
    assert {row["interpreted"] for row in rows} == {"True"}
    for phase in report.phases:
        own = [row for row in rows if row["test"] == phase.test]
        assert math.fsum(float(row["seconds"]) for row in own) == pytest.approx(phase.total_seconds)
    import json

    assert valid(json.dumps(document(report)))["kind"] == "roofline-device"


def ceilings(bandwidth: float | None, dense: float | None) -> DeviceCeilings:
    return DeviceCeilings(Rate(Summary.of([2.0, 4.0, 9.0]), bandwidth), Rate(Summary.of([100.0]), dense))


def test_the_limit_is_the_data_sheets_or_what_was_measured() -> None:
    assert limit_of(Cost(20, 12, 3), ceilings(None, None)) == (3.0, "memory")
    assert limit_of(Cost(20, 12, 3), ceilings(8.0, None)) == (1.5, "memory")
    assert limit_of(Cost(2000, 12, 3), ceilings(8.0, 50.0)) == (20.0, "float16")
    sheet = datasheet_of("NVIDIA H200")
    assert sheet is not None
    assert (sheet.bandwidth, sheet.dense_f16) == (4.8e12, 989e12)
    assert datasheet_of("some other device") is None


def test_nodes_without_launches_belong_to_those_before() -> None:
    spans = {3: (0, 1), 5: (1, 3), 6: (3, 3), 8: (3, 3), 9: (3, 4)}
    assert list(runs_of(spans)) == [([3], (0, 1)), ([5, 6, 8], (1, 3)), ([9], (3, 4))]
    assert list(runs_of({})) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "numpy"), "--device numpy: a roofline times the instructions of the CPU backend"),
        (("--device", "torch:cpu"), "--device torch:cpu: a roofline times"),
        (("--device", "cuda", "-t", "2", "--plot", "x.svg"), "-t, --plot: of the CPU backend alone"),
        (("--device", "cuda", "--timeline", "x", "--isa", "avx2"), "--isa, --timeline: of the CPU backend alone"),
    ],
)
def test_what_cannot_be_done_is_refused(small: Path, options: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["roofline", str(small), *options], prog_name="minfer-bench")
    said = " ".join((result.output + str(result.exception)).replace("│", " ").split())
    assert result.exit_code != 0
    assert message in said


def test_a_model_that_the_gpu_runs_in_part_is_refused(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINFER_GPU_LAYERS", "0")
    choices = EngineChoices(n_ctx=64, device="cuda")
    with progress("test") as shown, pytest.raises(BenchError, match="only a step that the GPU runs as a whole"):
        measuring.measure_device(small, TESTS, 1, choices, INTERPRETED, shown)


def test_times_are_those_between_stamps() -> None:
    from minfer_kernels.gpu.timing import stamps_on

    stamps = stamps_on(torch.device("cpu"))
    for _ in range(3):
        stamps.stamp()
    assert len(stamps.between()) == 2
    assert all(seconds >= 0 for seconds in stamps.between())
