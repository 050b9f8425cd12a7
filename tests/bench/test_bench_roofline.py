"""`minfer-bench roofline`: what is counted against a count by hand, parts that add up, picture and timeline."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import pytest

from minfer_ir.opspec import Cost
from minfer_models.bench.roofline import ceilings
from minfer_models.bench.roofline.attribution import Limits, limit_of

Bench = Callable[..., Any]
Valid = Callable[[str], Any]
SVG = "{http://www.w3.org/2000/svg}"
# The tiny model of conftest, by the names of its metadata.
BLOCKS, WIDTH, FFN, KV_WIDTH, CHUNK = 2, 256, 512, 2 * 64, 16


@pytest.fixture(autouse=True)
def small_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings over a few MiB, a few times: nothing here looks at how high they are."""
    monkeypatch.setattr(ceilings, "LARGE", 1 << 22)
    monkeypatch.setattr(ceilings, "SWEEP", 1 << 22)
    monkeypatch.setattr(ceilings, "STEPS", 1 << 10)


@pytest.fixture(autouse=True)
def products_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans whose products do nothing else, so that every op's counts can be told by hand."""
    off = "matmul_add,matmul_swiglu,matmul_rope,matmul_rope_kv_store,matmul_kv_store,rope_kv_store"
    monkeypatch.setenv("MINFER_FUSIONS_OFF", off)


@pytest.fixture(scope="module")
def vocabulary(tiny: Path) -> int:
    return next(int(t.shape[1]) for t in gguf.GGUFReader(tiny).tensors if t.name == "token_embd.weight")


def parts_of(phase: Any, op: str) -> list[Any]:
    return [part for part in phase["parts"] if part["op"] == op]


def macs_of(phase: Any, op: str) -> float:
    return sum(part["macs"] for part in parts_of(phase, op))


def test_decode_counts_what_a_llama_block_needs(tiny: Path, bench: Bench, valid: Valid, vocabulary: int) -> None:
    depth, tokens = 40, 3
    args = ("-p", 0, "-n", tokens, "-d", depth, "-r", 1, "-t", 1, "--isa", "portable")
    report = valid(bench("roofline", tiny, *args, "-o", "json").stdout)
    (phase,) = report["phases"]
    attention_out, qkv = WIDTH * WIDTH, WIDTH * (WIDTH + 2 * KV_WIDTH)
    block = qkv + attention_out + WIDTH * 2 * FFN + FFN * WIDTH
    assert macs_of(phase, "matmul") == tokens * (BLOCKS * block + WIDTH * vocabulary)
    seen = sum(depth + 1 + i for i in range(tokens))
    # Scores and their weighted sum: two products with every cell, over all heads.
    assert macs_of(phase, "attention") == 2 * BLOCKS * WIDTH * seen

    reader = gguf.GGUFReader(tiny)
    # Packed matrices hold whole groups of rows, eight without wide vectors; the bytes are the file's otherwise.
    padding = -vocabulary % 8 * (WIDTH // 32 * 18)
    matrices = sum(int(t.n_bytes) for t in reader.tensors if len(t.shape) == 2) + padding
    assert sum(p["resident_bytes"] for p in parts_of(phase, "matmul")) == tokens * matrices
    cell = 2 * KV_WIDTH * 2  # f16 K and V
    assert sum(p["resident_bytes"] for p in parts_of(phase, "attention")) == BLOCKS * seen * cell
    assert sum(p["resident_bytes"] for p in parts_of(phase, "kv_store")) == BLOCKS * tokens * cell
    vectors = sum(int(t.n_bytes) for t in reader.tensors if len(t.shape) == 1)
    embedding = WIDTH // 32 * 18
    assert phase["resident_bytes"] == tokens * (matrices + vectors + embedding + BLOCKS * cell) + BLOCKS * seen * cell


def test_prefill_counts_its_rows_and_one_row_of_logits(tiny: Path, bench: Bench, valid: Valid, vocabulary: int) -> None:
    n = 21  # a chunk of 16 and one of 5, in a bucket of 8
    report = valid(bench("roofline", tiny, "-p", n, "-n", 0, "-r", 1, "--chunk", CHUNK, "-o", "json").stdout)
    (phase,) = report["phases"]
    block = WIDTH * (WIDTH + 2 * KV_WIDTH) + WIDTH * WIDTH + 3 * WIDTH * FFN
    assert macs_of(phase, "matmul") == n * BLOCKS * block + 2 * WIDTH * vocabulary
    assert macs_of(phase, "attention") == 2 * BLOCKS * WIDTH * n * (n + 1) // 2
    (logits,) = (p for p in phase["parts"] if p["kind"].startswith("matmul logits"))
    assert logits["macs"] == 2 * WIDTH * vocabulary
    assert phase["of_bandwidth"] is None
    assert phase["matmul_macs_per_second_per_thread"] > 0


def test_parts_add_up_to_the_whole(tiny: Path, bench: Bench, valid: Valid) -> None:
    args = ("-p", 20, "-n", 3, "-r", 3, "-t", "1,2", "--chunk", CHUNK)
    report = valid(bench("roofline", tiny, *args, "-o", "json").stdout)
    assert [(p["test"], p["threads"]) for p in report["phases"]] == [
        ("pp20", 1), ("tg3", 1), ("pp20", 2), ("tg3", 2),
    ]  # fmt: skip
    assert [c["threads"] for c in report["ceilings"]] == [1, 2]
    for phase in report["phases"]:
        spans = sum(p["seconds"] + p["waiting_seconds"] for p in phase["parts"])
        whole = spans + phase["waking_seconds"] + phase["outside_seconds"]
        assert whole == pytest.approx(phase["total_seconds"], rel=1e-6)
        assert phase["total_seconds"] == sorted(phase["timed_seconds"])[1]
        assert all(p["seconds"] > 0 and p["limit_seconds"] > 0 for p in phase["parts"])
        assert phase["rate"]["median"] == pytest.approx(phase["tokens"] / sorted(phase["seconds"])[1])
        forwards = 2 if phase["phase"] == "pp" else 3
        assert sum(p["calls"] for p in parts_of(phase, "attention")) == forwards * BLOCKS
        if phase["phase"] == "tg":
            of = next(c for c in report["ceilings"] if c["threads"] == phase["threads"])["weights"]["rates"]
            ratios = sorted(phase["resident_bytes"] / s / r for s, r in zip(phase["seconds"], of, strict=True))
            assert phase["of_bandwidth"]["median"] == pytest.approx(ratios[1])


def test_the_table_and_the_csv_say_the_same(tiny: Path, bench: Bench) -> None:
    text = bench("roofline", tiny, "-p", 0, "-n", 2, "-r", 1, "-t", 1).stdout
    first = text.splitlines()[0]
    assert first.startswith("- tg2, 1 thread: ")
    assert " MiB of weights and KV cells a token = " in first
    assert "GB/s that a plain loop reads (ratio " in first
    rows = list(csv.DictReader(bench("roofline", tiny, "-p", 0, "-n", 2, "-r", 1, "-o", "csv").stdout.splitlines()))
    kinds = [row["kind"] for row in rows]
    assert all(f"| {kind} " in text for kind in kinds[:-2])
    assert kinds[-2:] == ["waking", "outside"]
    total = float(rows[0]["total_seconds"])
    seconds = sum(float(row["seconds"]) + float(row["waiting_seconds"] or 0) for row in rows)
    assert seconds == pytest.approx(total, rel=1e-6)


def test_the_picture_has_every_phase_and_visible_part(
    tiny: Path, bench: Bench, valid: Valid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every fusion, over rows that fill no bucket."""
    monkeypatch.delenv("MINFER_FUSIONS_OFF")
    file = tmp_path / "roofline.svg"
    args = ("-p", 20, "-n", 3, "-r", 1, "-t", "1,2", "--plot", file)
    report = valid(bench("roofline", tiny, *args, "-o", "json").stdout)
    root = ET.parse(file).getroot()
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    drawn = [p for phase in report["phases"] for p in phase["parts"] if p["macs"] and p["share"] >= 0.005]
    circles = root.findall(f"{SVG}circle")
    assert len(circles) == len(drawn)
    for circle in circles:
        assert 0 < float(circle.attrib["cx"]) < width
        assert 0 < float(circle.attrib["cy"]) < height
    texts = root.findall(f"{SVG}text")
    words = [text.text or "" for text in texts]
    assert tiny.name in words[0]
    # Every product is a matmul, fused or not: one colour, and one label a phase that has them.
    products = sum(part["op"].startswith("matmul") for part in drawn)
    assert any(part["op"].startswith("matmul_") for part in drawn)
    assert sum(circle.attrib["stroke"] == "#2f6fb0" for circle in circles) == products
    assert all(words.count(f"{test} matmul") == 2 for test in ("pp20", "tg3"))
    assert not any(word.startswith(("pp20 matmul_", "tg3 matmul_")) for word in words)
    for phase in report["phases"]:
        title = f"{phase['test']}, {phase['threads']} thread{'s' if phase['threads'] > 1 else ''}: "
        assert any(line.startswith(title) for line in words)
    bars: dict[float, list[tuple[float, float]]] = {}
    for rect in root.findall(f"{SVG}rect"):
        x, y, wide, high = (float(rect.attrib.get(name, 0)) for name in ("x", "y", "width", "height"))
        if high == 26:
            bars.setdefault(y, []).append((x, x + wide))
    assert len(bars) == len(report["phases"])
    for pieces in bars.values():
        assert (pieces[0][0], pieces[-1][1]) == pytest.approx((24, width - 24), abs=0.5)
        assert all(end == pytest.approx(start, abs=0.15) for (_, end), (start, _) in pairwise(pieces))


def test_the_timeline_has_a_span_per_thread_and_instruction(tiny: Path, bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    assert bench("roofline", tiny, "-p", 20, "-n", 3, "-r", 1, "-t", 2, "--timeline", file).exit_code == 0
    events = json.loads(file.read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {(pid, tid): n for pid in (1, 2) for tid, n in enumerate(("python", "thread 0", "thread 1"))}
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert processes == ["pp20, 2 threads", "tg3, 2 threads"]
    spans = [e for e in events if e["ph"] == "X"]
    assert {e["ph"] for e in events} == {"X", "M"}
    for pid, forwards in ((1, 1), (2, 3)):
        assert sum(e["pid"] == pid and e["name"] == "forward" for e in spans) == forwards
        kernels = [Counter(e["name"] for e in spans if (e["pid"], e["tid"]) == (pid, tid) and e["cat"] != "barrier")
                   for tid in (1, 2)]  # fmt: skip
        assert kernels[0] == kernels[1]
        assert set(kernels[0].values()) == {forwards}
        assert {"blk.0.ffn_down", "blk.1.attention", "logits"} <= set(kernels[0])
    for track in names:
        ordered = sorted((e for e in spans if (e["pid"], e["tid"]) == track), key=lambda e: e["ts"])
        assert all(e["dur"] >= 0 for e in ordered)
        if track[1]:  # a thread does one thing at a time
            ends = [e["ts"] + e["dur"] for e in ordered]
            assert all(end <= e["ts"] + 0.002 for end, e in zip(ends, ordered[1:], strict=False))
    labels = [e for e in spans if e["name"] == "blk.0.ffn_down"]
    assert all(e["cat"] == "matmul" and e["args"]["kernel"].startswith("matmul.") for e in labels)


def test_a_limit_is_the_longer_of_moving_and_multiplying() -> None:
    limits = Limits(memory=10.0, cache=100.0, int8=1000.0, f32=50.0)
    assert limit_of(Cost(200, 500, 400), True, limits) == (400 / 10 + 100 / 100, "memory")
    assert limit_of(Cost(200, 500, 4), True, limits) == (4 / 10 + 496 / 100, "cache")
    assert limit_of(Cost(200_000, 500, 400), True, limits) == (100.0, "int8")
    assert limit_of(Cost(200_000, 500, 400), False, limits) == (2000.0, "f32")


def test_what_can_t_be_written_is_refused_before_anything_is_measured(tiny: Path, bench: Bench, tmp_path: Path) -> None:
    for option in ("--plot", "--timeline"):
        result = bench("roofline", tiny, option, tmp_path / "none" / "file")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == f"minfer-bench: {option} {tmp_path}/none/file: there is no folder {tmp_path}/none\n"
    result = bench("roofline", tiny, "-p", 600)
    assert result.stderr == "minfer-bench: pp600 needs 600 tokens, but the context holds 512\n"


def test_help_names_the_command(bench: Bench) -> None:
    assert "roofline" in bench("--help").stdout
    assert "--timeline" in bench("roofline", "--help").stdout
