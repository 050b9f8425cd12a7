"""`minfer-bench ab` over settings: what it finds, what it refuses, what it prints."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minfer_models.bench.ab.plans import PlanDiff, PlanListing
from minfer_models.bench.ab.settings import parse_settings
from minfer_models.bench.ab.tokens import Agreement
from minfer_models.bench.loading import EngineChoices
from minfer_models.bench.runner import Continuation
from minfer_models.bench.workload import BenchError
from minfer_models.engine import EngineError

Bench = Callable[..., Any]
QUICK = ("-p", 24, "-n", 2, "-r", 2, "-t", 1)


def test_two_settings_in_json(tiny: Path, bench: Bench, valid: Callable[[str], Any]) -> None:
    off = "fusions_off=matmul_swiglu,swiglu_quantize,swiglu"
    result = bench("ab", tiny, "--b", f"{off} chunk=16 isa=portable", *QUICK, "-d", 8, "-o", "json")
    report = valid(result.stdout)
    assert result.exit_code == 0
    assert [t["test"] for t in report["results"]] == ["pp24 @ d8", "tg2 @ d8"]
    for test in report["results"]:
        assert [r["first"] for r in test["rounds"]] == ["a", "b"]
        for r in test["rounds"]:
            assert r["ratio"] == pytest.approx(r["b_rate"] / r["a_rate"])
            assert r["a_rate"] == pytest.approx(test["tokens"] / r["a_seconds"])
        ratios = [r["ratio"] for r in test["rounds"]]
        assert test["ratio"]["median"] == pytest.approx(sum(ratios) / 2)
    assert report["settings_that_differ"] == ["chunk", "fusions_off", "isa"]
    a, b = report["sides"]
    assert (a["settings"]["chunk"], b["settings"]["chunk"]) == (256, 16)
    assert set(a["fusions"]) - set(b["fusions"]) == {"swiglu", "swiglu_quantize", "matmul_swiglu"}
    prefill, decode = report["plans"]
    assert prefill["forward"] == "pp24 @ d8 (24 -> 16 rows a forward)"
    assert not decode["equal"]
    kernels = {k["name"]: (k["a"], k["b"]) for k in decode["kernels"]}
    assert kernels["elementwise.silu"] == (0, 2)  # one in each of the two blocks
    assert report["agreement"] | {"same_tokens": True, "same_bits": True, "promise": "bits"} == report["agreement"]
    assert report["agreement"]["n_prompt"] == 24


def test_markdown_shows_every_round_and_that_plans_are_equal(tiny: Path, bench: Bench) -> None:
    text = bench("ab", tiny, "--a", "threads=2", "-p", 0, "-n", 2, "-r", 3, "-t", 1).stdout
    assert [line.split("|")[2].strip() for line in text.splitlines() if line.startswith("| tg2")][1:] == ["1", "2", "3"]
    assert "- threads: a 2, b 1" in text
    assert "- plan of tg2 (1 row a forward): equal plans, " in text
    assert "from logits with the same bits" in text
    assert "under 5 rounds decide nothing" in text


def test_csv_has_a_line_per_round(tiny: Path, bench: Bench) -> None:
    rows = list(csv.DictReader(bench("ab", tiny, "--b", "kv=f32", *QUICK, "-o", "csv").stdout.splitlines()))
    assert [(r["test"], r["round"]) for r in rows] == [("pp24", "1"), ("pp24", "2"), ("tg2", "1"), ("tg2", "2")]
    assert all((r["a_kv"], r["b_kv"]) == ("f16", "f32") for r in rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "the two sides are the same: --a, --b, --a-ref and --b-ref name what differs"),
        (("--b", "kv=f16"), "both sides come to the same source, "),
        (("--b", "chunk=128"), "both sides run equal plans (pp24 (24 rows a forward), tg2 (1 row a forward)): chunk"),
        (("--b", "n_ctx=20"), "pp24 needs 24 tokens, but the context holds 20"),
        (("--b", "threads=2", "--a-ref", "no-such-revision"), "'no-such-revision' is no commit of the repository at"),
    ],
)
def test_sides_that_can_t_be_compared(tiny: Path, bench: Bench, options: tuple[str, ...], message: str) -> None:
    result = bench("ab", tiny, *options, *QUICK)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"minfer-bench: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("thread=2", "--a: no setting is called 'thread'; did you mean threads? settings: n_ctx, threads, kv, "),
        ("threads", "--a: expected NAME=VALUE, got 'threads'"),
        ("threads=two", "--a: threads is 'two', expected a whole number"),
        ("kv=f16 kv=f32", "--a: kv is given twice"),
        ("kv=f8", "kv is 'f8', expected one of "),
        ("isa=avx", "isa is 'avx'; did you mean avx2?"),
        ("fusions_off=nope", "no fusion is called nope; there are "),
    ],
)
def test_settings_that_don_t_exist(text: str, message: str) -> None:
    with pytest.raises((BenchError, EngineError)) as caught:
        parse_settings("--a", text, EngineChoices())
    assert str(caught.value).startswith(message)


def test_settings_replace_what_both_sides_share() -> None:
    base = EngineChoices(threads=4, kv="f32")
    text = "threads=2 fusions_off=swiglu,add_rms_norm  chunk=128"
    expected = EngineChoices(threads=2, kv="f32", fusions_off=("swiglu", "add_rms_norm"), chunk=128)
    assert parse_settings("--b", text, base) == expected


LISTING = [
    "   0  get_rows.get_rows[q8_0] table=token_embd.weight@w0 ids=token_ids@b4+0x0 width=576 | barrier  ; embedding",
    "   1  kv_store.rows[f16] values=blk.0.k_row@b0+0x900 cell_bytes=384  ; blk.0.k_store",
    "   2  attention.attend[f16] q=blk.0.q_rope@b0+0x0 table=rope table cell_bytes=384 | barrier  ; blk.0.attention",
    "w1 blk.0.attn_q.weight+blk.0.attn_k.weight Q4_1[960, 576]: packed as Q4_1x8, 345600 bytes",
    "layout Q4_1x8 [8 rows x 32, 160 bytes: q4: 32 u4 at 0 by 4]",
]


def test_pool_buffers_don_t_make_plans_differ() -> None:
    moved = [line.replace("@b4+", "@b9+") for line in LISTING]
    assert PlanDiff.of("tg1", PlanListing.read(LISTING), PlanListing.read(moved)).equal
    offset = [line.replace("+0x900", "+0xa00") for line in LISTING]
    assert not PlanDiff.of("tg1", PlanListing.read(LISTING), PlanListing.read(offset)).equal


def test_a_plan_diff_counts_kernels_barriers_weights_and_operands() -> None:
    other = [
        LISTING[0].replace(" | barrier", ""),
        LISTING[1].replace("=384", "=768").replace("0x900", "0xa00"),
        LISTING[2].replace("attend[f16]", "attend[f32]"),
        LISTING[3].replace("packed as Q4_1x8", "packed as Q4_1x16"),
        LISTING[4],
    ]
    diff = PlanDiff.of("tg1", PlanListing.read(LISTING), PlanListing.read(other))
    assert diff.lines() == [
        "calls 3, barriers 2 -> 1",
        "  attention.attend[f16]: 1 -> 0 calls",
        "  attention.attend[f32]: 0 -> 1 calls",
        "  weights Q4_1: packed as Q4_1x8: 1 -> 0 of them",
        "  weights Q4_1: packed as Q4_1x16: 0 -> 1 of them",
        "  kv_store.rows[f16] cell_bytes: 384 -> 768 in 1 calls",
    ]


def test_the_reference_backend_s_listing_is_read_too(tiny: Path, bench: Bench, valid: Callable[[str], Any]) -> None:
    result = bench("ab", tiny, "--b", "device=numpy", "-p", 0, "-n", 1, "-r", 1, "-t", 1, "-o", "json")
    report = valid(result.stdout)
    (plan,) = report["plans"]
    kernels = {k["name"]: (k["a"], k["b"]) for k in plan["kernels"]}
    assert kernels["matmul_rope"] == kernels["matmul_rope_kv_store"] == (0, 2)  # q and k, one in each of the two blocks
    assert report["agreement"]["promise"] == "nothing"
    assert result.exit_code == 0


def said(*ids: int, bits: str = "") -> Continuation:
    return Continuation(ids, tuple(f"{bits}{i}" for i in ids))


def test_where_two_continuations_part() -> None:
    equal = Agreement.of(said(1, 2, 3), said(1, 2, 3), 8, "bits")
    assert (equal.same_tokens, equal.same_bits, equal.broken) == (True, True, False)
    parted = Agreement.of(said(1, 2, 3), said(1, 5, 3), 8, "tokens")
    assert (parted.parts_at, parted.a_token, parted.b_token, parted.bits_part_at) == (1, 2, 5, 1)
    assert parted.broken
    assert "token 1 is 2 on side a and 5 on side b" in parted.text()
    assert not Agreement.of(said(1, 2), said(7, 2), 8, "nothing").broken
    longer = Agreement.of(said(1, 2), said(1), 8, "tokens")
    assert (longer.parts_at, longer.a_token, longer.b_token) == (1, 2, None)


def test_other_bits_under_the_same_tokens_break_only_a_promise_of_bits() -> None:
    sides = said(1, 2), said(1, 2, bits="x")
    assert Agreement.of(*sides, 8, "bits").broken
    assert not Agreement.of(*sides, 8, "tokens").broken
    assert "the logits' bits differ from token 0 on" in Agreement.of(*sides, 8, "bits").text()
