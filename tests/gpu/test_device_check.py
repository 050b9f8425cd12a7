"""tools/device_check in Triton's interpreter at toy sizes: every part says what it should, and no fault goes unsaid."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from minfer_ir.ops import OPS
from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_ir.testing.op_matrix import Cell
from minfer_ir.testing.variants import variants
from minfer_kernels.gpu import launch
from tools.device_checks import __main__ as command
from tools.device_checks import goals, models, op_matrix, schedule
from tools.device_checks.machine import Ceilings, Machine
from tools.device_checks.part import PARTS, Given
from tools.device_checks.prepare import TOY_SIZES, prepare
from tools.device_checks.results import Report, Result, shown, standing
from tools.device_checks.schedule import Part, Run, parts, run_part
from tools.device_checks.tiny import Recorded, TinyModel

DRY = Machine(dry=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("device-check") / command.DRY_FOLDER
    said = list(prepare(folder, NumpyBackend, TOY_SIZES))
    assert "MB in all" in said[-1]
    Ceilings(1e9, 1e12, 2e9, 2e12).save(folder / "ceilings.json")
    return folder


def results_of(name: str, data: Path, capsys: pytest.CaptureFixture[str], *of: str) -> list[Result]:
    PARTS[name](Given(of, DRY, data, data / "ceilings.json", 600.0))
    return [Result.from_line(line) for line in capsys.readouterr().out.splitlines()]


def test_environment_measures_the_ceilings_that_other_parts_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = tmp_path / "ceilings.json"
    PARTS["environment"](Given((), DRY, tmp_path, at, 1.0))
    machine, copy, matrix = (Result.from_line(line) for line in capsys.readouterr().out.splitlines())
    assert "triton" in machine.detail
    found = Ceilings.load(at)
    assert (copy.value, matrix.value) == (found.copy / 1e9, found.matrix / 1e12)


def test_op_matrix_has_a_result_per_op(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = results_of("op-matrix", data, capsys, "0", "1")
    assert [(r.name, r.status) for r in found] == [(op, "ok") for op in op_matrix.DRY_OPS]


def test_a_failing_variant_fails_its_op() -> None:
    variant = next(iter(variants(OPS["add"])))
    cells = [Cell("gpu", variant, "PASS"), Cell("gpu", variant, "FAIL", "wrong")]
    assert op_matrix.judged("add", cells[:1]).status == "ok"
    assert op_matrix.judged("add", cells).status == "FAILED"
    assert op_matrix.judged("add", [Cell("gpu", variant, "REFUSED", "no")]).status == "FAILED"


def test_logits_that_differ_are_told_from_those_that_round() -> None:
    rng, model = np.random.default_rng(0), TinyModel("llama", "f16", 5)
    reference = 3 * rng.standard_normal((20, 300)).astype(np.float32)
    near = reference + 0.01 * rng.standard_normal(reference.shape).astype(np.float32)
    assert models.judged(model, reference, near).status == "ok"
    assert models.judged(model, reference, np.roll(reference, 1, axis=0)).status == "FAILED"
    broken = near.copy()
    broken[3, 4] = np.nan
    assert "1 logits aren't finite" in models.judged(model, reference, broken).detail


def test_results_are_whole_at_every_moment(tmp_path: Path) -> None:
    report = Report(tmp_path, "Title")
    first = Result("bench", "decode", "short", 123.4, "tok/s", {"copy bandwidth": 0.5}, ">= 78 %", "a | b")
    report.add(first)
    assert "| short | decode | 123.4 tok/s | 50.0 % of copy bandwidth | >= 78 % | a / b |" in report.summary.read_text()
    report.add(replace(first, status="FAILED"))
    assert [json.loads(line)["status"] for line in report.lines.read_text().splitlines()] == ["short", "FAILED"]
    assert report.failed == [replace(first, status="FAILED")]
    assert Result.from_line(first.to_line()) == first
    assert "goal >= 78 %" in shown(first)
    assert "after 0 s; under way." in report.summary.read_text()
    report.close()
    assert "after 0 s; complete." in report.summary.read_text()


def test_every_goal_is_in_the_report_with_what_was_measured_of_it(tmp_path: Path) -> None:
    report = Report(tmp_path, "Title")
    decode, cells = goals.DECODE_OF_BANDWIDTH["Q8_0"], goals.PACKED_COST
    for name, goal, measured in (("fast", decode, 0.819), ("slow", decode, 0.39), ("deep", cells, 1.365)):
        status, aim, against = standing(goal, measured)
        result = Result("bench", name, status, 1.0, "x", goal=aim, against=against)
        assert Result.from_line(result.to_line()) == result
        report.add(result)
    assert [r.status for r in report.results] == ["ok", "short", "short"]
    rows = [
        line for line in report.summary.read_text().splitlines() if line.startswith(("|  |", "| ok |", "| short |"))
    ]
    about = f"{decode.name}: >= 78 % of datasheet bandwidth"
    assert f"| ok | {about} | 81.9 % | 1.050 | bench: fast |" in rows
    assert f"| short | {about} | 39 % | 0.500 | bench: slow |" in rows
    assert f"| short | {cells.name}: <= 1.3 x the time over f16 cells | 1.36 | 1.050 | bench: deep |" in rows
    unmeasured = [row for row in rows if "not measured" in row]
    assert len(unmeasured) == len(goals.GOALS) - 2
    assert standing(decode, 0.99, dry=True)[0] == "info"
    assert standing(decode, None) == ("info", decode.text, None)


@pytest.mark.parametrize(
    ("name", "of", "said"),
    [
        ("capture", (), {"llama, q8_0 cells"}),
        ("attention", (), {"decode over 5 f16 cells", "prompt of 20 over q8_0 cells"}),
        ("matmul", (), {"1 rows, Q4_K", "17 rows, F16"}),
        ("warm", ("Q8_0",), set[str]()),
        ("warm-invariance", ("Q8_0",), set[str]()),
        (
            "invariance",
            ("Q8_0",),
            {
                "attention, 1 rows behind 70 cells, parts of 128 over the best size",
                "decode step of 2 rows at depth 3, invariant mode over the default",
            },
        ),
        (
            "bench",
            ("Q4_K_M",),
            {"decode at depth 5, q8_0 cells", "prefill 17, f16 cells", "batch 2 at depth 3, f16 cells"},
        ),
    ],
)
def test_parts_plan_fill_and_report_everything(
    data: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    of: tuple[str, ...],
    said: set[str],
) -> None:
    """Launches do nothing here: interpreted ones take minutes. What is planned, filled and read is the real thing."""
    monkeypatch.setattr(launch.Launch, "run", lambda *_: None)
    found = results_of(name, data, capsys, *of)
    assert [r for r in found if r.status == "FAILED"] == []
    assert said <= {r.name for r in found}


@pytest.mark.full
def test_the_whole_of_it_runs_in_the_interpreter(data: Path, tmp_path: Path) -> None:
    dry = subprocess.run(dry_run(data, tmp_path, "--limit", "3600"), cwd=command.ROOT, check=False)
    summary = (tmp_path / "summary.md").read_text()
    assert dry.returncode == 0, summary
    assert "; complete." in summary
    assert "prefill 17, f16 cells" in summary
    assert "left out: out of time" not in summary
    table = summary.partition("## Goals")[2].partition("## ")[0]
    assert all(f"| info | {goal.name}: " in table for goal in goals.GOALS), table


def dry_run(data: Path, out: Path, *words: str) -> list[str]:
    given = ["--dry", "--data", str(data.parent), "--out", str(out), *words]
    return [sys.executable, "-m", "tools.device_checks", *given]


def test_a_step_of_it_runs_in_the_interpreter(data: Path, tmp_path: Path) -> None:
    """By way of the command line, in processes of their own: what needs no launch."""
    done = subprocess.run(
        dry_run(data, tmp_path, "--only", "memcheck"), cwd=command.ROOT, capture_output=True, text=True, check=False
    )
    summary = (tmp_path / "summary.md").read_text()
    assert done.returncode == 0, summary
    assert "- memcheck: part 2 of 2, at most" in done.stdout
    assert "; complete." in summary
    found = [Result.from_line(unstamped(line)) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    parts_of = {part: [r.name for r in found if r.part == part] for part in ("environment", "memcheck")}
    assert parts_of["environment"][-1] == parts_of["memcheck"][-1] == "the whole part"
    assert Ceilings.load(tmp_path / "ceilings.json").bandwidth > 0


def unstamped(line: str) -> str:
    return json.dumps({name: value for name, value in json.loads(line).items() if name != "at_s"})


def test_a_run_that_is_ended_leaves_what_it_has(data: Path, tmp_path: Path) -> None:
    run = subprocess.Popen(
        dry_run(data, tmp_path, "--only", "bench Q8_0"), cwd=command.ROOT, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    said = [next(line for line in run.stdout if line.startswith("- bench Q8_0"))]
    run.terminate()
    assert run.wait(timeout=300) == 130
    run.stdout.close()
    assert said
    summary = (tmp_path / "summary.md").read_text()
    assert "; INTERRUPTED." in summary
    assert "copy bandwidth" in summary


def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *scripts: str) -> tuple[Run, Part]:
    """A part whose commands are Python scripts."""
    run = Run(tmp_path, tmp_path, dry=True, limit_s=60)
    monkeypatch.setattr(Run, "command", lambda _self, words, _seconds: [sys.executable, "-c", *words])
    return run, Part("part", tuple((script,) for script in scripts), 20)


def test_what_a_part_said_before_it_broke_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    line = Result("part", "first", "ok").to_line()
    broken = f"print('chatter'); print({line!r}, flush=True); raise SystemExit('on fire')"
    run, part = scripted(monkeypatch, tmp_path, broken, f"print({line!r})")
    found = list(run_part(run, part, part.limit_s))
    assert [r.name for r in found[:2]] == ["first", "first"]
    assert [(r.status, r.detail) for r in found if r.status == "FAILED"] == [("FAILED", "status 1: on fire")]


def test_a_part_that_hangs_is_ended_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    line = Result("part", "first", "ok").to_line()
    hangs = f"print({line!r}, flush=True); import threading; threading.Event().wait()"
    run, part = scripted(monkeypatch, tmp_path, hangs, f"print({line!r})")
    found = list(run_part(run, replace(part, at_once=1), 3))
    assert [r.name for r in found] == ["first", hangs, f"print({line!r})", "the whole part"]
    assert found[1].detail == "ended after 3 s"
    assert found[2].detail == "left out: out of time"


def test_parts_left_without_time_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, part = scripted(monkeypatch, tmp_path, "")
    monkeypatch.setattr(schedule, "parts", lambda dry: [part])
    report = Report(tmp_path, "Title")
    schedule.run_all(replace(run, limit_s=0), report)
    assert [r.detail for r in report.results] == ["left out: out of time"]


def test_everything_fits_into_eight_minutes() -> None:
    assert sum(part.limit_s for part in parts(dry=False)) < 480
    assert command.LIMIT_S < 480


def test_a_run_without_preparation_says_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--dry", "--data", str(tmp_path)]) == 2
    assert "tools/device_check --prepare" in capsys.readouterr().err


def test_nothing_but_torch_triton_and_numpy_has_to_be_there() -> None:
    """The packages that a bare machine may lack can't be imported; everything is imported all the same."""
    program = """
import sys
ABSENT = "typer rich gguf tokenizers jinja2 huggingface_hub yaml hypothesis llvmlite".split()
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT:
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import tools.device_checks.part, tools.device_checks.__main__
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=command.ROOT)


def test_prepared_models_are_read_back(data: Path) -> None:
    recorded = Recorded(data)
    for model in recorded.models():
        tokens, logits = recorded.tokens(model), recorded.logits(model)
        assert len(tokens) == len(logits) == TOY_SIZES.prompt + TOY_SIZES.steps
        assert recorded.path(model).is_file()
