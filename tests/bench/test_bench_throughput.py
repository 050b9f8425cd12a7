"""`minfer-bench MODEL`: its table, CSV and JSON, and what it refuses."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from minfer_models import load
from minfer_models.bench.runner import Runner
from minfer_models.bench.sampler import parse_sampler, sampler_text
from minfer_models.sampling import SamplingParams

Bench = Callable[..., Any]


def test_json_has_every_repetition_and_what_they_were_taken_on(
    tiny: Path, bench: Bench, valid: Callable[[str], Any]
) -> None:
    args = (tiny, "-p", 20, "-n", "4,2", "-d", "0,30", "-r", 3, "-t", 1, "--chunk", 16, "--fusions-off", "swiglu")
    run = valid(bench(*args, "--isa", "portable", "--kv", "f32", "-o", "json").stdout)
    shallow = ["pp20", "tg4", "tg2"]
    assert [m["test"] for m in run["results"]] == shallow + [f"{name} @ d30" for name in shallow]
    expected = {"isa": "portable", "n_ctx": 512, "kv": "f32", "chunk": 16, "devices": "cpu", "fusions_off": "swiglu"}
    expected |= {"threads_fixed": True}
    assert run["settings"] == expected
    for m in run["results"]:
        assert (m["threads"], len(m["seconds"]), len(m["rates"])) == (1, 3, 3)
        assert m["rates"] == pytest.approx([m["tokens"] / s for s in m["seconds"]])
        rates = np.array(m["rates"])
        assert m["rate"]["median"] == np.median(rates)
        assert m["rate"]["mean"] == pytest.approx(rates.mean())
        assert m["rate"]["stddev"] == pytest.approx(rates.std(ddof=1))
        assert m["rate"]["spread"] == pytest.approx(np.ptp(rates))
        assert 0 <= m["outside"] < 1


def test_a_kept_depth_is_said(tiny: Path, bench: Bench, valid: Callable[[str], Any]) -> None:
    args = (tiny, "-p", 4, "-n", 2, "-d", 20, "-r", 2, "-t", 1, "--keep-depth")
    assert all(m["refill"] is False for m in valid(bench(*args, "-o", "json").stdout)["results"])
    assert "- depth: filled once, and cut back to before every run\n" in bench(*args).stdout


def test_the_model_is_recorded_as_gguf_py_sees_it(tiny: Path, bench: Bench, valid: Callable[[str], Any]) -> None:
    model = valid(bench(tiny, "-p", 4, "-n", 0, "-r", 1, "-o", "json").stdout)["conditions"]["model"]
    reader = gguf.GGUFReader(tiny)
    by_type: dict[str, int] = {}
    for tensor in reader.tensors:
        by_type[tensor.tensor_type.name] = by_type.get(tensor.tensor_type.name, 0) + int(tensor.n_bytes)
    assert model["types"] == by_type
    assert model["parameters"] == sum(int(tensor.n_elements) for tensor in reader.tensors)
    assert (model["name"], model["bytes"]) == (tiny.name, tiny.stat().st_size)
    header = tiny.read_bytes()[: reader.data_offset]
    assert model["header_sha256"] == hashlib.sha256(header).hexdigest()


def test_csv_has_a_line_per_test_and_the_conditions_in_each(tiny: Path, bench: Bench) -> None:
    rows = list(
        csv.DictReader(bench(tiny, "-p", "8,3", "-n", 2, "-r", 2, "-t", "1,2", "-o", "csv").stdout.splitlines())
    )
    assert [(r["test"], r["threads"]) for r in rows] == [(t, w) for w in "12" for t in ("pp8", "pp3", "tg2")]
    for row in rows:
        assert float(row["median_rate"]) == pytest.approx((float(row["min_rate"]) + float(row["max_rate"])) / 2)
        assert (row["kv"], row["repetitions"], row["model"]) == ("f16", "2", tiny.name)
        assert all(row[name] for name in ("cpu", "features", "python", "minfer_version", "date", "command"))


def test_markdown_has_a_row_per_test(tiny: Path, bench: Bench) -> None:
    lines = bench(tiny, "-p", 0, "-n", 4, "-r", 1).stdout.splitlines()
    headers = [cell.strip() for cell in lines[0].strip("|").split("|")]
    assert headers == ["test", "threads", "median tok/s", "mean", "stddev", "spread", "outside the programs"]
    assert lines[2].startswith("| tg4 ")
    assert lines[3] == ""
    assert [line.split(":")[0] for line in lines[4:] if "thread" not in line.split(":")[0]] == [
        "- settings", "- sampler", "- model", "- machine", "- source", "- command",
    ]  # fmt: skip


def test_the_sampler_is_told(tiny: Path, bench: Bench, valid: Callable[[str], Any]) -> None:
    args = (tiny, "-p", 0, "-n", 3, "-r", 1, "-t", 1)
    assert valid(bench(*args, "-o", "json").stdout)["sampler"] == "greedy"
    asked = ("--sampler", "temperature=2, top_k=7,seed=5")
    whole = "temperature=2.0,top_k=7,top_p=0.95,min_p=0.05,seed=5"
    assert valid(bench(*args, *asked, "-o", "json").stdout)["sampler"] == whole
    assert f"- sampler: {whole}\n" in bench(*args, *asked).stdout
    (row,) = csv.DictReader(bench(*args, "--sampler", "default", "-o", "csv").stdout.splitlines())
    assert row["sampler"] == "temperature=0.8,top_k=40,top_p=0.95,min_p=0.05,seed=0"


def test_a_sampler_s_text_names_it_again() -> None:
    for text in ("default", "temperature=2,top_k=0,top_p=0.5,min_p=0,seed=77", "temperature=0,presence_penalty=1.5"):
        params = parse_sampler("-s", text)
        assert parse_sampler("-s", sampler_text(params)) == params
    assert parse_sampler("-s", "greedy").temperature == 0
    assert parse_sampler("-s", sampler_text(parse_sampler("-s", "greedy"))) == parse_sampler("-s", "greedy")
    assert parse_sampler("-s", "default") == SamplingParams(seed=0)


@pytest.mark.parametrize("text", ["greedy", "temperature=3,top_k=0,top_p=1,min_p=0,seed=4"])
def test_decode_chooses_the_tokens_that_generation_does(tiny: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    params, n = parse_sampler("-s", text), 12
    with load(tiny, threads=1) as llm:
        runner, fed = Runner(llm, sampling=params), list[int]()
        step = llm.engine.next_logits

        def noted(seq_id: int, token_id: int, position: int) -> Any:
            fed.append(token_id)
            return step(seq_id, token_id, position)

        monkeypatch.setattr(llm.engine, "next_logits", noted)
        runner.run("tg", n, 0)
        runner.run("tg", n, 0)
        monkeypatch.undo()
        said = llm.generate(
            runner.prompt(1), max_tokens=n, temperature=params.temperature, top_k=0, top_p=1, min_p=0, seed=4
        )
        said.text()
    assert len(said.token_ids) == n
    assert len(set(said.token_ids)) > 1
    assert fed[:n] == [*runner.prompt(1), *said.token_ids[:-1]]
    assert fed[n:] == fed[:n]


def test_what_doesn_t_fit_the_context_is_refused_with_the_numbers(tiny: Path, bench: Bench) -> None:
    result = bench(tiny, "-p", 600)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "minfer-bench: pp600 needs 600 tokens, but the context holds 512\n"
    result = bench(tiny, "-p", 0, "-n", 4, "-d", 300, "--n-ctx", 256)
    assert result.stderr == "minfer-bench: tg4 @ d300 needs 300 + 4 = 304 tokens, but the context holds 256\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-p", 0, "-n", 0), "-p 0 and -n 0 leave nothing to measure"),
        (("-p", "12,x"), "-p is '12,x', expected whole numbers from 0, with commas between them"),
        (("-t", "0"), "-t is '0', expected whole numbers from 1, with commas between them"),
        (("--isa", "avx3"), "isa is 'avx3'; did you mean avx2? there are auto, portable, avx2"),
        (("--chunk", "48"), "chunk is 48, expected a power of two"),
        (("--fusions-off", "swigloo"), "no fusion is called swigloo"),
        (("--sampler", "hot"), "--sampler is 'hot', expected greedy, default or NAME=VALUE,...: temperature, top_k,"),
        (("--sampler", "temprature=1"), "--sampler: no setting is called 'temprature'; did you mean temperature?"),
        (("--sampler", "top_k=4,top_k=5"), "--sampler: top_k is given twice"),
        (("--sampler", "top_k=4.5"), "--sampler: top_k is '4.5', expected a whole number"),
        (("--sampler", "min_p=x"), "--sampler: min_p is 'x', expected a number"),
        (("--sampler", "top_p=2"), "--sampler: top_p is 2.0; it must be between 0 and 1"),
        (("--sampler", "seed=-1"), "--sampler: seed is -1; a test chooses the same tokens every time"),
    ],
)
def test_a_wrong_option_is_a_wrong_command_line(
    tiny: Path, bench: Bench, options: tuple[object, ...], message: str
) -> None:
    result = bench(tiny, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_the_word_throughput_may_be_left_out(tiny: Path, bench: Bench) -> None:
    short, long = bench("-n", 2, "-p", 0, "-r", 1, tiny), bench("throughput", tiny, "-n", 2, "-p", 0, "-r", 1)
    assert short.exit_code == long.exit_code == 0
    assert short.stdout.splitlines()[2].startswith("| tg2 ")


def test_help_shows_the_options_and_the_subcommands(bench: Bench) -> None:
    text = bench("--help").stdout
    assert text.startswith("Usage: minfer-bench [OPTIONS] [COMMAND] MODEL")
    assert "--n-prompt" in text
    assert "MODEL is a path" in text
