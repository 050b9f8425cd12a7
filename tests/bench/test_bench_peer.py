"""`minfer-bench peer` against a peer whose seconds are given, and the distance between answers."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from minfer_ir.params import DevicePlan
from minfer_models import load
from minfer_models.bench.child import Child
from minfer_models.bench.peer import compare as comparing
from minfer_models.bench.peer import place as peer_place
from minfer_models.bench.peer.command import parse_options
from minfer_models.bench.peer.cpu_time import machine_seconds, pair_seconds, process_seconds
from minfer_models.bench.peer.divergence import divergence
from minfer_models.bench.peer.llama_cpp_worker import LlamaCpp
from minfer_models.bench.peer.place import PeerPlace, beside
from minfer_models.bench.peer.report import Quiet
from minfer_models.bench.peer.side import DISTURBED, MOST_TRIES, PEERS, PeerProgram, Watched
from minfer_models.bench.sides import Sample
from minfer_models.bench.workload import BenchError, Workload
from minfer_models.devices import DeviceChoice

Bench = Callable[..., Any]
FAKE = Path(__file__).with_name("fake_peer.py")
QUICK = ("-p", 24, "-n", 4, "-r", 3, "-t", 1)
PER_TOKEN = 0.25
"""Seconds a token of the fake peer: far slower than any machine runs two small blocks."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make `--peer fake` known, with a fault if need be."""

    def known(*faults: str) -> None:
        command = (sys.executable, str(FAKE), str(PER_TOKEN), *faults)
        monkeypatch.setitem(PEERS, "fake", PeerProgram("fake", command, ("flash", "repack")))

    return known


def test_ratios_are_our_rate_over_the_peers(
    tiny: Path, bench: Bench, fake: Callable[..., None], valid: Callable[[str], Any]
) -> None:
    fake()
    result = bench("peer", tiny, "--peer", "fake", *QUICK, "-d", 8, "--peer-options", "flash=on", "-o", "json")
    report = valid(result.stdout)
    assert (report["kind"], report["peer"]["name"]) == ("peer", "fake")
    assert report["peer"]["about"] == {"version": "9.9", "system": "ABACUS = 1"}
    assert report["peer"]["settings"] == {"threads": 1, "kv": "f16", "n_ctx": 256, "flash": "on"}
    assert report["settings"]["threads"] == 1
    assert [t["test"] for t in report["results"]] == ["pp24 @ d8", "tg4 @ d8"]
    for test in report["results"]:
        assert [r["first"] for r in test["rounds"]] == ["minfer", "fake", "minfer"]
        for r in test["rounds"]:
            assert r["peer_rate"] == pytest.approx(1 / PER_TOKEN)
            assert r["ratio"] == pytest.approx(r["ours_rate"] * PER_TOKEN)
            assert r["ratio"] > 1
        assert report["ratios"][test["phase"]] == median(r["ratio"] for r in test["rounds"])


def test_the_distance_is_that_of_the_two_engines_logits(
    tiny: Path, bench: Bench, fake: Callable[..., None], valid: Callable[[str], Any]
) -> None:
    """The fake peer answers with float arithmetic, so the distance is that of our 8-bit activations from it."""
    fake()
    arguments = ("peer", tiny, "--peer", "fake", "-p", 4, "-n", 0, "-r", 1, "-t", 1, "--reference", "-o", "json")
    report = valid(bench(*arguments).stdout)
    ids = list(comparing.TEXT.encode())[: comparing.MOST_TOKENS]  # the tiny model's tokens are bytes
    with load(tiny, threads=1) as llm, load(tiny, kv="f32", devices=DevicePlan(("numpy",))) as exact:
        ours, theirs = (torch.from_numpy(m.logits(ids)).double().log_softmax(-1) for m in (llm, exact))
    kl = torch.nn.functional.kl_div(ours, theirs, log_target=True, reduction="none").sum(-1)
    found = report["kl"]
    assert found["tokens"] == len(ids) == 256
    assert found["mean"] == pytest.approx(float(kl.mean()), rel=1e-6)
    assert found["max"] == pytest.approx(float(kl.max()), rel=1e-6)
    assert found["p99"] == pytest.approx(float(kl.quantile(0.99)), rel=1e-6)
    assert found["same_top1"] == float((ours.argmax(-1) == theirs.argmax(-1)).double().mean())
    assert 0 < found["mean"] < 0.1
    assert report["answers"]["between"] == found == report["answers"]["ours_from_reference"]
    assert report["answers"]["peer_from_reference"]["max"] == 0
    assert (report["ratios"]["tg"], report["results"][0]["phase"]) == (None, "pp")


def test_markdown_and_csv_show_every_round(tiny: Path, bench: Bench, fake: Callable[..., None]) -> None:
    fake()
    text = bench("peer", tiny, "--peer", "fake", *QUICK).stdout
    assert [line.split("|")[2].strip() for line in text.splitlines() if line.startswith("| tg4")][1:] == ["1", "2", "3"]
    assert "- KL(fake || minfer): mean " in text
    assert "- fake 9.9: threads 1, kv f16, n_ctx 256; loaded in 0.50 s" in text
    assert "- fake has: ABACUS = 1" in text
    rows = list(csv.DictReader(bench("peer", tiny, "--peer", "fake", *QUICK, "-o", "csv").stdout.splitlines()))
    assert [(r["test"], r["round"]) for r in rows] == [(t, str(i)) for t in ("pp24", "tg4") for i in (1, 2, 3)]
    assert {(r["peer"], r["peer_version"], r["peer_n_ctx"]) for r in rows} == {("fake", "9.9", "256")}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("break", "fake: no f16 cells here"),
        ("nan", "fake: its logits have NaN or infinity"),
        ("vocabulary", "fake has 259 logits a token, minfer 258"),
        ("crash", "fake: its process ended with SIGSEGV: it said nothing"),
    ],
)
def test_a_peer_that_fails_is_named_and_nothing_is_printed(
    tiny: Path, bench: Bench, fake: Callable[..., None], fault: str, message: str
) -> None:
    fake(fault)
    result = bench("peer", tiny, "--peer", "fake", *QUICK)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"minfer-bench: {message}\n"


def test_a_peer_that_crashes_on_its_own_layouts_is_measured_without_them_and_says_so(
    tiny: Path, bench: Bench, fake: Callable[..., None], valid: Callable[[str], Any]
) -> None:
    fake("layouts")
    result = bench("peer", tiny, "--peer", "fake", *QUICK, "-o", "json")
    report = valid(result.stdout)
    assert report["peer"]["settings"]["repack"] is False
    assert report["notes"][0].startswith(
        "fake: its process ended with SIGSEGV: it said nothing; measured with repack=off"
    )
    assert report["notes"][0] in result.stderr
    asked = bench("peer", tiny, "--peer", "fake", *QUICK, "--peer-options", "repack=on")
    assert (asked.exit_code, asked.stdout) == (1, "")
    assert asked.stderr == "minfer-bench: fake: its process ended with SIGSEGV: it said nothing\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--peer", "vllm"), "no peer is called 'vllm'; there is llama.cpp"),
        (("--peer", "llama.cpp", "-p", "0", "-n", "0"), "-p 0 and -n 0 leave nothing to measure"),
        (("--peer", "llama.cpp", "--peer-options", "flash=maybe"), "flash is auto, on or off, not 'maybe'"),
        (("--peer", "llama.cpp", "--peer-options", "ubatch=8"), "--peer-options has 'ubatch=8'; expected NAME=VALUE"),
    ],
)
def test_wrong_command_lines(tiny: Path, bench: Bench, options: tuple[str, ...], message: str) -> None:
    result = bench("peer", tiny, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())


def test_a_test_that_does_not_fit_is_refused_before_anything_is_loaded(
    tiny: Path, bench: Bench, fake: Callable[..., None]
) -> None:
    fake("break")
    result = bench("peer", tiny, "--peer", "fake", "-p", 24, "-d", 500)
    assert result.exit_code == 1
    assert result.stderr == "minfer-bench: pp24 @ d500 needs 500 + 24 = 524 tokens, but the context holds 512\n"


def test_without_the_extra_the_message_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "llama_cpp.py").write_text("raise ImportError('not here')")
    command = PEERS["llama.cpp"].command
    run = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'pip install \\"llama-cpp-python==0.3.36\\"' in run.stdout
    assert run.stderr == ""


@pytest.mark.parametrize(
    ("ours", "gpu", "notes"),
    [
        (DeviceChoice("cpu", "", "cpu"), None, 0),
        (DeviceChoice("numpy", "", "numpy"), None, 0),
        (DeviceChoice("gpu", "cuda:1", "a GPU"), 1, 0),
        (DeviceChoice("gpu", "cpu", "interpreted"), None, 1),
        (DeviceChoice("torch", "cpu", "torch"), None, 0),
        (DeviceChoice("torch", "cuda:2", "torch"), 2, 0),
        (DeviceChoice("torch", "mps", "torch"), 0, 0),
    ],
)
def test_the_peer_runs_on_the_kind_of_device_that_runs_ours(ours: DeviceChoice, gpu: int | None, notes: int) -> None:
    place = beside(ours)
    assert (place.gpu, len(place.notes)) == (gpu, notes)


def test_on_another_device_the_peer_hears_of_it_and_the_report_says_so(
    tiny: Path, bench: Bench, fake: Callable[..., None], valid: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The torch backend on the CPU stands for one on a GPU: what is looked at is what both sides are told."""
    fake()
    monkeypatch.setattr(peer_place, "beside", lambda ours: PeerPlace(3, (f"{ours.backend} for a GPU",)))
    arguments = ("peer", tiny, "--peer", "fake", "-p", 4, "-n", 0, "-r", 1, "--device", "torch:cpu")
    report = valid(bench(*arguments, "-o", "json").stdout)
    assert report["settings"]["devices"].startswith("torch,cpu on ")
    assert report["peer"]["settings"]["gpu"] == 3
    assert report["notes"] == ["torch for a GPU"]


class FakeLlama:
    """What of llama.cpp's interface loading takes. `layers` are (on the GPU, all), as its log says."""

    def __init__(self, offloads: bool, layers: tuple[int, int] | None) -> None:
        self.offloads, self.layers = offloads, layers
        self.params = SimpleNamespace()

    def __getattr__(self, name: str) -> Any:
        return lambda *_: SimpleNamespace() if name.endswith("_params") else 1

    def llama_log_callback(self, heard: Any) -> Any:
        self.heard = heard
        return heard

    def llama_supports_gpu_offload(self) -> bool:
        return self.offloads

    def llama_model_load_from_file(self, path: bytes, params: Any) -> int:
        self.params = params
        if self.layers is not None:
            self.heard(0, b"load_tensors: offloaded %d/%d layers to GPU" % self.layers, None)
        return 1


def test_llama_cpp_runs_on_the_gpu_as_a_whole_or_not_at_all() -> None:
    lib = FakeLlama(True, (29, 29))
    loaded = LlamaCpp(lib).load("m.gguf", 256, 1, "f16", gpu=1)
    assert loaded["settings"]["device"] == "gpu 1"
    assert (lib.params.n_gpu_layers >= 29, lib.params.main_gpu) == (True, 1)
    lib = FakeLlama(True, None)
    assert LlamaCpp(lib).load("m.gguf", 256, 1, "f16")["settings"]["device"] == "cpu"
    assert lib.params.n_gpu_layers == 0
    for layers, message in (((7, 29), "put 7 of 29 layers on GPU 0"), (None, "put an unknown number of layers")):
        with pytest.raises(ValueError, match=message):
            LlamaCpp(FakeLlama(True, layers)).load("m.gguf", 256, 1, "f16", gpu=0)
    with pytest.raises(ValueError, match="built without GPU support, and minfer runs on GPU 0; for NVIDIA"):
        LlamaCpp(FakeLlama(False, None)).load("m.gguf", 256, 1, "f16", gpu=0)


def test_options_of_a_peer() -> None:
    known = PEERS["llama.cpp"].options
    assert parse_options("flash=off, repack=off,batch=256", known) == {"flash": "off", "repack": False, "batch": 256}
    assert parse_options("", known) == {}
    for text in ("repack=yes", "batch=0", "batch=x", "flash", "flash="):
        with pytest.raises(BenchError):
            parse_options(text, known)


def test_equal_logits_are_at_no_distance_and_a_shift_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((40, 300)).astype(np.float32) * 4
    same = divergence(logits, logits + np.float32(2))
    assert same.max < 1e-12
    assert (same.same_top1, same.tokens) == (1.0, 40)


def test_the_divergence_of_known_distributions() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    found = divergence(np.log([p, p, q]), np.log([p, q, p]))
    far = 0.25 * np.log(2)
    assert found.mean == pytest.approx(2 * far / 3)
    assert found.max == pytest.approx(far)
    assert found.same_top1 == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="can't be compared row by row"):
        divergence(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(ValueError, match="NaN or infinity"):
        divergence(np.zeros((2, 3)), np.full((2, 3), np.nan))


class Quick:
    name = "quick"

    def __init__(self) -> None:
        self.runs = 0

    def run(self, workload: Workload) -> Sample:
        self.runs += 1
        return Sample(float(self.runs))


def clock(*readings: tuple[float, float, float] | None) -> Callable[[], tuple[float, float, float] | None]:
    found = iter(readings)
    return lambda: next(found)


TEST = Workload("tg", 1)


def test_a_disturbed_run_is_taken_again_and_a_busy_waiting_side_is_seen() -> None:
    """Machine seconds beyond both sides' own are others'; the runs here take microseconds."""
    disturbed, undisturbed = [(0, 0, 0), (0, 5, 6)], [(0, 5, 6), (2, 9, 12)]
    side = Quick()
    watched = Watched(side, clock(*disturbed, *undisturbed), settle=0)
    assert watched.run(TEST).seconds == 2
    assert (watched.repeated, watched.others) == (1, [0.0])
    assert watched.waiting[0] > 1


def test_a_machine_that_never_rests_is_measured_all_the_same() -> None:
    side = Quick()
    readings = [(0, 0, float(i)) for i in range(2 * MOST_TRIES)]
    watched = Watched(side, clock(*readings), settle=0)
    assert watched.run(TEST).seconds == MOST_TRIES == side.runs
    assert watched.repeated == MOST_TRIES - 1
    assert watched.others[0] > DISTURBED


def test_where_the_system_says_nothing_runs_count_as_they_are() -> None:
    side = Quick()
    watched = Watched(side, clock(None, None), settle=0)
    assert watched.run(TEST).seconds == 1
    assert (watched.waiting, watched.others, watched.repeated) == ([], [], 0)
    assert Quiet.of([watched]) is None


def test_cpu_seconds_as_proc_has_them(tmp_path: Path) -> None:
    for pid, used in ((7, 250), (8, 30)):
        (tmp_path / str(pid)).mkdir()
        stat = f"{pid} (a (b) c) S 1 7 7 0 -1 4194304 100 0 0 0 {used} 50 0 0 20 0 1 0 5 6 7\n"
        (tmp_path / str(pid) / "stat").write_text(stat)
    (tmp_path / "stat").write_text("cpu  100 20 30 99999 88888 4 5 600 70 80\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    ticks = os.sysconf("SC_CLK_TCK")
    assert process_seconds(7, tmp_path) == 300 / ticks
    assert process_seconds(9, tmp_path) is None
    assert machine_seconds(tmp_path) == 759 / ticks
    assert pair_seconds(7, 8, tmp_path) == (300 / ticks, 80 / ticks, 759 / ticks)
    assert pair_seconds(7, 9, tmp_path) is None
    (tmp_path / "stat").write_text("cpu none")
    assert machine_seconds(tmp_path) is None


def test_a_child_that_says_nothing_or_an_error_at_once() -> None:
    with pytest.raises(BenchError, match="it: its process ended with 3: last word"):
        Child([sys.executable, "-c", "import sys; print('last word', file=sys.stderr); sys.exit(3)"], "it")
    with pytest.raises(BenchError, match="it: no way"):
        Child([sys.executable, "-c", """print('{"error": "no way"}')"""], "it")
