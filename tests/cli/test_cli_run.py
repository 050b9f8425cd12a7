"""`minfer run`: what goes where, and what is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_calls import MINFER, Outcome, error_line, minfer, minfer_process

from minfer_models import load

PROMPT = "One, two, three"


def test_text_goes_to_stdout_and_numbers_to_stderr(tiny: Path) -> None:
    with load(tiny) as llm:
        expected = llm.generate(PROMPT, max_tokens=12).text()
    outcome = minfer("run", tiny, "-p", PROMPT, "-n", 12, "--temp", 0, "-t", 1)
    assert outcome.code == 0
    assert outcome.out == expected + "\n" * (not expected.endswith("\n"))
    assert [part.split()[0] for part in outcome.err.strip().strip("[]").split("|")] == [
        "prefill", "decode", "finish", "kv",
    ]  # fmt: skip
    assert "finish length | kv f16" in outcome.err


def test_json_is_one_object_and_nothing_else(tiny: Path) -> None:
    outcome = minfer("run", tiny, "-p", PROMPT, "-n", 8, "--json", "--kv", "f32", "--fusions-off", "swiglu", "-c", 64)
    result = outcome.json()
    assert (outcome.code, "prefill" in outcome.err) == (0, False)
    assert set(result) == {
        "model", "text", "token_ids", "finish_reason", "usage", "seed", "rates", "seconds", "settings",
    }  # fmt: skip
    assert result["model"] == "tiny-Q4_0.gguf"
    assert result["usage"] == {"prompt_tokens": len(PROMPT), "completion_tokens": 8, "total_tokens": len(PROMPT) + 8}
    assert len(result["token_ids"]) == 8
    assert bytes(result["token_ids"]).decode("utf-8", "replace") == result["text"]
    assert result["finish_reason"] == "length"
    assert result["rates"]["decode"] == pytest.approx(7 / result["seconds"]["decode"])
    assert result["settings"] | {"n_ctx": 64, "kv": "f32", "fusions_off": "swiglu"} == result["settings"]


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


def test_chat_puts_the_message_into_the_model_s_template(tiny: Path) -> None:
    usage = minfer("run", tiny, "-p", "hi", "-n", 2, "--json", "--chat").json()["usage"]
    assert usage["prompt_tokens"] == len("[user]hi\n>")
    usage = minfer("run", tiny, "-p", "hi", "-n", 2, "--json", "--chat", "--system", "be brief").json()["usage"]
    assert usage["prompt_tokens"] == len("[system]be brief\n[user]hi\n>")


def test_no_limit_runs_to_the_end_of_the_context(tiny: Path) -> None:
    result = minfer("run", tiny, "-p", "abcd", "-n", -1, "--ctx", 16, "--json", "--temp", 0).json()
    assert result["usage"]["total_tokens"] == 16
    assert result["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kv", "f64"], "kv is 'f64', expected one of auto, f32, f16"),
        (["--ctx", "513"], "n_ctx is 513, the model takes 1 to 512"),
        (["--ctx", "4"], "the prompt's 15 tokens exceed the available context size of 4"),
        (["--temp", "-1"], "temperature is -1.0; it must be at least 0"),
        (["--top-p", "1.5"], "top_p is 1.5; it must be between 0 and 1"),
        (["-n", "0"], "max_tokens is 0, expected at least 1"),
        (["--fusions-off", "swigloo"], "no fusion is called swigloo; there are "),
    ],
)
def test_a_setting_out_of_range_is_one_line(tiny: Path, arguments: list[str], message: str) -> None:
    assert error_line(minfer("run", tiny, "-p", PROMPT, *arguments)).startswith(f"minfer: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give the prompt with -p TEXT, -p - (stdin) or --file FILE, one of them"),
        (["-p", "a", "--file", "b"], "give the prompt with -p TEXT"),
        (["-p", "a", "--system", "b"], "--system is a message of the chat template: it needs --chat"),
        (["-p", "a", "-t", "0"], "Invalid value for '-t' / '--threads'"),
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
    outcome = minfer_process("run", tiny, "-p", "a", "--kv", "f64", "--traceback")
    assert outcome.code == 1
    assert outcome.err.startswith("Traceback (most recent call last)")
    assert outcome.err.splitlines()[-1].endswith("EngineError: kv is 'f64', expected one of auto, f32, f16")


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
        "feed, fed = sequence.TokenSequence.feed, []\n"
        "def counted(self, ids, outputs='last'):\n"
        "    fed.append(ids)\n"
        "    if len(fed) == 5: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return feed(self, ids, outputs)\n"
        "sequence.TokenSequence.feed = counted\n"
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


def test_a_setting_out_of_range_is_refused_before_a_model_is_looked_for() -> None:
    assert error_line(minfer("run", "no-such-model", "-p", "a", "--temp", "nan")).startswith(
        "minfer: temperature is nan"
    )


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
    assert err == b""


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
