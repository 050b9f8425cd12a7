"""`minfer run`: what goes where, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest
from cli_calls import MINFER, Outcome, error_line, minfer, minfer_process, usage_error, without_progress

from minfer_ir.params import DevicePlan
from minfer_models import load
from minfer_models.cli.options import MOST_THREADS, KvCells
from minfer_models.engine import options as engine_options

PROMPT = "One, two, three"


def test_text_goes_to_stdout_and_numbers_to_stderr(tiny: Path) -> None:
    with load(tiny) as llm:
        expected = llm.generate(PROMPT, max_tokens=12).text()
    outcome = minfer("run", tiny, "-p", PROMPT, "-n", 12, "--temp", 0, "-t", 1)
    assert outcome.code == 0
    assert outcome.out == expected + "\n" * (not expected.endswith("\n"))
    assert [part.split()[0] for part in outcome.err.strip().strip("[]").split("|")] == [
        "prefill", "decode", "finish", "kv", "device",
    ]  # fmt: skip
    assert "finish length | kv f16" in outcome.err


def test_json_is_one_object_and_nothing_else(tiny: Path) -> None:
    outcome = minfer("run", tiny, "-p", PROMPT, "-n", 8, "--json", "--kv", "f32", "--fusions-off", "swiglu", "-c", 64)
    result = outcome.json()
    assert (outcome.code, "prefill" in outcome.err) == (0, False)
    assert set(result) == {
        "model", "text", "token_ids", "finish_reason", "usage", "seed", "rates", "seconds", "settings",
        "steps_by_threads",
    }  # fmt: skip
    assert result["model"] == "tiny-Q4_0.gguf"
    assert result["usage"] == {"prompt_tokens": len(PROMPT), "completion_tokens": 8, "total_tokens": len(PROMPT) + 8}
    assert len(result["token_ids"]) == 8
    assert bytes(result["token_ids"]).decode("utf-8", "replace") == result["text"]
    assert result["finish_reason"] == "length"
    assert result["rates"]["decode"] == pytest.approx(7 / result["seconds"]["decode"])
    assert result["settings"] | {"n_ctx": 64, "kv": "f32", "fusions_off": "swiglu"} == result["settings"]


class _Chosen:
    """Stands for the choice of threads on a machine whose cores are free now and then."""

    def __init__(self) -> None:
        self._choices = cycle([1, 1, 2])

    def threads(self) -> int:
        return next(self._choices)


def test_steps_on_fewer_threads_are_counted_and_told(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minfer_models.backends.free_cores", lambda _most: _Chosen())
    run = ["run", tiny, "-p", PROMPT, "-n", 9, "-t", 2]
    shared, alone = minfer(*run, "--json").json(), minfer(*run, "--json", "--threads-fixed").json()
    assert sum(shared["steps_by_threads"].values()) == 9
    assert set(shared["steps_by_threads"]) == {"1", "2"}
    assert alone["steps_by_threads"] == {"2": 9}
    assert alone["token_ids"] == shared["token_ids"]
    assert (alone["settings"]["threads_fixed"], shared["settings"]["threads_fixed"]) == (True, False)
    assert "busy cores: 6 steps on 1 thread, 3 steps on 2 threads" in minfer(*run).err
    assert "busy cores" not in minfer(*run, "--threads-fixed").err


def test_a_seed_repeats_what_it_drew(tiny: Path) -> None:
    flat = ["-p", PROMPT, "-n", 20, "--temp", 50, "--top-k", 0, "--top-p", 1, "--min-p", 0, "--json"]
    drawn = minfer("run", tiny, *flat).json()
    again = minfer("run", tiny, *flat, "--seed", drawn["seed"]).json()
    other = minfer("run", tiny, *flat, "--seed", drawn["seed"] ^ 1).json()
    assert again["token_ids"] == drawn["token_ids"] != other["token_ids"]


def test_the_prompt_comes_literally_from_an_argument_a_file_or_stdin(tiny: Path, tmp_path: Path) -> None:
    text = "a\\nb\n\u00fc"
    (tmp_path / "prompt.txt").write_text(text, encoding="utf-8", newline="")
    calls = [
        minfer("run", tiny, "-n", 4, "--json", "-p", text),
        minfer("run", tiny, "-n", 4, "--json", "--file", tmp_path / "prompt.txt"),
        minfer("run", tiny, "-n", 4, "--json", "-p", "-", stdin=text.encode()),
    ]
    assert [c.json()["usage"]["prompt_tokens"] for c in calls] == [len(text.encode())] * 3
    assert len({tuple(c.json()["token_ids"]) for c in calls}) == 1


def test_a_stop_string_ends_the_text_before_it(tiny: Path) -> None:
    plain = minfer("run", tiny, "-p", PROMPT, "-n", 24, "--json").json()
    (first, second), rest = plain["text"][5:7], plain["text"]
    stopped = minfer("run", tiny, "-p", PROMPT, "-n", 24, "--json", "--stop", "\\n", "--stop", first + second).json()
    assert (stopped["text"], stopped["finish_reason"]) == (rest[: rest.index(first + second)], "stop")


def test_chat_puts_the_message_into_the_model_s_template(tiny: Path) -> None:
    usage = minfer("run", tiny, "-p", "hi", "-n", 2, "--json", "--chat").json()["usage"]
    assert usage["prompt_tokens"] == len("[user]hi\n>")
    usage = minfer("run", tiny, "-p", "hi", "-n", 2, "--json", "--chat", "--system", "be brief").json()["usage"]
    assert usage["prompt_tokens"] == len("[system]be brief\n[user]hi\n>")


@pytest.mark.parametrize("n", [-1, 13])
def test_a_full_context_ends_it_and_is_said(tiny: Path, n: int) -> None:
    outcome = minfer("run", tiny, "-p", "abcd", "-n", n, "--ctx", 16, "--json", "--temp", 0)
    assert outcome.json()["usage"]["total_tokens"] == 16
    assert outcome.json()["finish_reason"] == "length"
    assert outcome.err == "minfer: context full: 16 tokens; -c takes up to 512\n"


def test_a_limit_that_was_asked_for_is_no_full_context(tiny: Path) -> None:
    for n in (12, 11):
        assert minfer("run", tiny, "-p", "abcd", "-n", n, "--ctx", 16, "--json").err == ""


def test_a_single_token_has_no_rate(tiny: Path) -> None:
    assert "tok/s | decode 1 token | finish length" in minfer("run", tiny, "-p", PROMPT, "-n", 1).err
    assert minfer("run", tiny, "-p", PROMPT, "-n", 1, "--json").json()["rates"]["decode"] is None
    assert minfer("run", tiny, "-p", "a", "-n", 2).err.startswith("[prefill 1 token, ")


def test_the_reference_backend_runs_without_quantized_activations(tiny: Path) -> None:
    result = minfer("run", tiny, "-p", "abc", "-n", 6, "--json", "--device", "numpy").json()
    with load(tiny, devices=DevicePlan(("numpy",))) as llm:
        expected = llm.generate("abc", max_tokens=6)
        expected.text()
    assert (result["settings"]["devices"], result["token_ids"]) == ("numpy", expected.token_ids)


def test_more_threads_than_cpus_is_a_warning(tiny: Path) -> None:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    warning = f"minfer: {usable + 1} threads on {usable} usable CPUs take turns: expect it to be slower\n"
    assert minfer("run", tiny, "-p", "abc", "-n", 2, "-t", usable + 1, "--json").err == warning
    assert minfer("run", tiny, "-p", "abc", "-n", 2, "-t", usable, "--json").err == ""


def test_the_options_know_the_engine_s_limits() -> None:
    assert tuple(KvCells) == engine_options.KV_CHOICES
    assert engine_options.MOST_THREADS == MOST_THREADS


def test_a_cache_folder_that_can_t_be_used_is_called_by_its_variable(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = tmp_path / "file" / "cache"
    monkeypatch.setenv("MINFER_CACHE_DIR", str(cache))
    for command in (["run", "demo", "-p", "a"], ["inspect", "demo"], ["dump", "demo"]):
        assert error_line(minfer(*command)) == (
            f"minfer: the cache folder {cache} can't be used (Not a directory): models and compiled kernels are kept "
            "there; set MINFER_CACHE_DIR to a folder that can be written"
        )
    outcome = minfer("run", tiny, "-p", "abc", "-n", 2, "--json")
    assert outcome.code == 0
    assert outcome.err.startswith(f"minfer: kernel cache {cache / 'kernels'} cannot be written")
    assert outcome.err.count("cannot be written") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ctx", "513"], "n_ctx is 513, the model takes 1 to 512"),
        (["--ctx", "4"], "the prompt's 15 tokens exceed the available context size of 4"),
        (["--device", "nmpy"], "--device nmpy: no device is called that; there are auto, cpu, numpy"),
        (["--fusions-off", "swigloo"], "no fusion is called swigloo; there are "),
    ],
)
def test_a_setting_out_of_range_is_one_line(tiny: Path, arguments: list[str], message: str) -> None:
    assert error_line(minfer("run", tiny, "-p", PROMPT, *arguments)).startswith(f"minfer: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0"], "-n is 0, expected at least 1, or -1 for no limit"),
        (["-n", "-5"], "-n is -5, expected at least 1, or -1 for no limit"),
        (["--temp", "-1"], "--temp is -1.0; it must be at least 0"),
        (["--temp", "nan"], "--temp is nan; it must be at least 0, and finite"),
        (["--top-k", "-3"], "--top-k is -3; it must be at least 0 (0: off)"),
        (["--top-p", "1.5"], "--top-p is 1.5; it must be between 0 and 1"),
        (["--min-p", "2"], "--min-p is 2.0; it must be between 0 and 1"),
        (["--stop", "x", "--stop", ""], "--stop is empty: it would end every text at once"),
        (["--seed", "-2"], "--seed is -2; it must be between 0 and 2^64-1, or -1 (random)"),
    ],
)
def test_what_no_model_takes_is_refused_before_one_is_looked_for(arguments: list[str], message: str) -> None:
    assert usage_error(minfer("run", "no-such-model", "-p", "a", *arguments)) == f"Invalid value: {message}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give the prompt with -p TEXT, -p - (stdin) or --file FILE, one of them"),
        (["-p", "a", "--file", "b"], "give the prompt with -p TEXT"),
        (["-p", "a", "--system", "b"], "--system is a message of the chat template: it needs --chat"),
        (["-p", "a", "-t", "0"], "Invalid value for '-t' / '--threads'"),
        (["-p", "a", "-t", "513"], "Invalid value for '-t' / '--threads'"),
        (["-p", "a", "--kv", "f64"], "'f64' is not one of 'auto', 'f32', 'f16'"),
        (["-p", "a", "--tmp", "0"], "No such option: --tmp"),
    ],
)
def test_a_wrong_command_line_exits_with_2(tiny: Path, arguments: list[str], message: str) -> None:
    outcome = minfer("run", tiny, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_a_misspelled_file_or_command_suggests_the_nearest(tiny: Path) -> None:
    misspelled = tiny.with_name("tiny-Q4_1.gguf")
    assert error_line(minfer("run", misspelled, "-p", "a")).endswith(
        f"no such file: {misspelled}; did you mean {tiny}?"
    )
    outcome = minfer("rnu", tiny)
    assert (outcome.code, "Did you mean 'run'?" in outcome.err) == (2, True)


def test_a_broken_file_a_prompt_that_is_no_text_and_a_missing_prompt_file_are_one_line(
    tiny: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny.read_bytes()[:-1000])
    assert "incomplete download?" in error_line(minfer("run", broken, "-p", "a"))
    assert error_line(minfer("run", tiny, "-p", "-", stdin=b"ab\xff")) == (
        "minfer: stdin: the prompt isn't UTF-8: invalid start byte at byte 2"
    )
    assert error_line(minfer("run", tiny, "--file", tmp_path / "no")) == (
        f"minfer: {tmp_path / 'no'}: No such file or directory"
    )


def test_an_empty_prompt_is_refused(tiny: Path) -> None:
    assert "the prompt is empty" in error_line(minfer("run", tiny, "-p", ""))


def test_traceback_shows_where_an_error_arose(tiny: Path) -> None:
    outcome = minfer_process("run", tiny, "-p", "a", "--ctx", "513", "--traceback")
    assert outcome.code == 1
    assert outcome.err.startswith("Traceback (most recent call last)")
    assert outcome.err.splitlines()[-1].endswith("EngineError: n_ctx is 513, the model takes 1 to 512")


def test_a_bug_says_that_it_is_one(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("never thought of")

    monkeypatch.setattr("minfer_models.cli.loading.load_shown", broken)
    assert error_line(minfer("run", tiny, "-p", "a")) == (
        "minfer: AssertionError: never thought of (a bug in minfer; --traceback shows where)"
    )


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_keeps_the_text_and_exits_with_130(tiny: Path, as_json: bool) -> None:
    """The process stops itself at its fifth token, so that the signal always lands while it generates."""
    script = (
        "import os, signal\n"
        "from minfer_models.engine import sequence\n"
        "from minfer_models.cli.main import run\n"
        "step, fed = sequence.TokenSequence.next_logits, []\n"
        "def counted(self, ids):\n"
        "    fed.append(ids)\n"
        "    if len(fed) == 5: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return step(self, ids)\n"
        "sequence.TokenSequence.next_logits = counted\n"
        "run()\n"
    )
    arguments = ["run", str(tiny), "-p", "abc", "-n", "400", *(["--json"] if as_json else [])]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, timeout=120, check=False)
    outcome = Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert outcome.code == 130
    assert "Traceback" not in outcome.err
    if as_json:
        result = outcome.json()
        assert (result["finish_reason"], len(result["token_ids"])) == ("interrupted", 4)
    else:
        assert outcome.out.endswith("\n")
        assert "decode 4 tokens" in outcome.err
        assert "finish interrupted" in outcome.err


def test_ctrl_c_while_loading_is_silent(tiny: Path) -> None:
    script = (
        "import os, signal\n"
        "from minfer_models.engine import Model\n"
        "from minfer_models.cli.main import run\n"
        "Model.open = lambda path: os.kill(os.getpid(), signal.SIGINT)\n"
        "run()\n"
    )
    arguments = [sys.executable, "-c", script, "run", str(tiny), "-p", "abc"]
    done = subprocess.run(arguments, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("module", ["typer", "numpy", "llvmlite"])
def test_ctrl_c_while_modules_load_is_silent(tiny: Path, module: str) -> None:
    """The interrupt comes when `module` is first looked for."""
    script = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder)\n"
        "from minfer_models.cli.main import run\n"
        "run()\n"
    )
    arguments = [sys.executable, "-c", script, "run", str(tiny), "-p", "abc", "-n", "2"]
    done = subprocess.run(arguments, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    ("closed", "code", "out", "err"),
    [
        ("<&-", 0, True, "[prefill 3 tokens"),
        (">&-", 0, False, "[prefill 3 tokens"),
        ("2>&-", 0, True, ""),
        ("<&- >&- 2>&-", 0, False, ""),
        ("<&- -p -", 1, False, "minfer: the prompt is empty"),
    ],
)
def test_closed_streams_lead_nowhere(tiny: Path, closed: str, code: int, out: bool, err: str) -> None:
    command = f'exec "$@" {closed}'
    arguments = ["sh", "-c", command, "sh", *MINFER, "run", str(tiny), "-p", "abc", "-n", "4"]
    done = subprocess.run(arguments, capture_output=True, timeout=120, check=False)
    assert (done.returncode, bool(done.stdout)) == (code, out)
    assert done.stderr.decode().startswith(err)
    assert bool(done.stderr) == bool(err)


def test_a_full_disk_is_one_line(tiny: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*MINFER, "dump", str(tiny)], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"minfer: No space left on device\n")


def test_a_real_sigint_ends_a_long_answer(smollm2: Path) -> None:
    arguments = ["run", str(smollm2), "-p", "Once upon a time", "-n", "4000", "-t", "1"]
    with subprocess.Popen([*MINFER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(4)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.endswith(b"\n")
    assert b"finish interrupted" in err
    assert b"Traceback" not in err


def test_a_reader_that_leaves_ends_the_run_quietly(tiny: Path) -> None:
    command = [*MINFER, "run", str(tiny), "-p", "abc", "-n", "400"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=60) == 1
    assert without_progress(err.decode()) == ""


def test_the_demo_model_answers(smollm2: Path) -> None:
    outcome = minfer_process("run", smollm2, "-p", "The capital of France is", "-n", 2)
    assert (outcome.code, outcome.out) == (0, " Paris.\n")


def test_help_and_version_load_nothing_heavy() -> None:
    heavy = "{'numpy', 'numba', 'llvmlite', 'tokenizers', 'gguf', 'rich', 'huggingface_hub', 'jinja2'}"
    for arguments in (["--version"], ["--help"], ["run", "--help"], ["trace", "--help"]):
        script = (
            f"import sys; sys.argv = ['minfer', *{arguments}]\n"
            "from minfer_models.cli.main import run\n"
            "try: run()\n"
            "except SystemExit as end: assert not end.code, end.code\n"
            f"print(sorted({heavy} & set(sys.modules)))\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.splitlines()[-1] == "[]"
