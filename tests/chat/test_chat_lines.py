"""`minfer chat` from a pipe: every line a message or a command; answers on stdout, all else on stderr."""

from __future__ import annotations

import importlib.metadata
import json
import re
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import lists, sampled_from
from plugged import MARKER, Answers, Scripted, echo, entry_points, last, thinking
from scripted import THINKING, write_scripted
from typer.testing import CliRunner

from minfer_models.cli.app import app
from minfer_models.cli.chat.said import QUOTES, Lines, goes_on

COMMANDS = "/help /clear /regen /undo /system /save /load /stats /exit"
REPOSITORY = Path(__file__).resolve().parents[2]


class Chat:
    """Runs the command on the scripted model."""

    def __init__(self, model: Path, patch: pytest.MonkeyPatch) -> None:
        self._model, self._patch = model, patch
        self.code, self.out, self.err = -1, "", ""
        self.backend: Scripted | None = None

    def __call__(self, said: str | bytes, *options: object, answers: Answers = echo) -> Chat:
        def make() -> Scripted:
            self.backend = Scripted(answers)
            return self.backend

        self._patch.setattr(importlib.metadata, "entry_points", entry_points(make))
        arguments = ["chat", str(self._model), "--device", "scripted", *map(str, options)]
        data = said if isinstance(said, bytes) else said.encode()
        result = CliRunner().invoke(app, arguments, input=data, catch_exceptions=False, prog_name="minfer")
        self.code, self.out = result.exit_code, result.stdout
        self.err = re.sub(r"minfer: device .*\n", "", result.stderr)
        return self


@pytest.fixture
def chat(talking_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chat:
    return Chat(talking_path, monkeypatch)


def test_every_line_is_answered_on_a_line_of_its_own(chat: Chat) -> None:
    assert (chat("hello\n\n  \nhow are you").code, chat.out, chat.err) == (0, "HELLO\nHOW ARE YOU\n", "")


def test_verbose_says_what_was_reused(chat: Chat) -> None:
    chat("hello\nyou\n", "--verbose")
    new, old = len("\n[user]you\n[assistant]"), len("[user]hello\n[assistant]HELLO")
    first, second = chat.err.splitlines()
    assert re.fullmatch(
        rf"\[prompt {old - 5} tokens: 0 reused, {old - 5} prefilled at [\d.]+ tok/s \| generated 6 tokens at "
        r"[\d.]+ tok/s \| finish stop\]", first,
    )  # fmt: skip
    assert second.startswith(f"[prompt {old + new} tokens: {old} reused, {new} prefilled at ")
    assert chat.backend is not None
    assert chat.backend.rows == [old - 5, *[1] * 5, new, *[1] * 3], "and no other forward ran"


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        ("one\\\ntwo\n", b"one\ntwo"),
        ("ends in \\\\\nnext\n", b"ends in \\\\|next"),
        ("last\\", b"last"),
        ('"""one\ntwo\\\n  three"""\n', b"one\ntwo\\\n  three"),
        ('"""\none\n\n"""\nnext\n', b"one\n|next"),
        ('"""\n\none\n"""\n', b"\none"),
        ('"""/clear"""\n', b"/clear"),
        ('"""\n/clear\n"""\n', b"/clear"),
        ('say """this"""\n', b'say """this"""'),
        ("//bin/sh\n", b"/bin/sh"),
        ("a\\nb\n", b"a\\nb"),
        ("tail \r\n", b"tail "),
        ("é😀\n", "é😀".encode()),
    ],
)
def test_messages_from_lines(chat: Chat, said: str, answered: bytes) -> None:
    heard: list[bytes] = []

    def hear(prompt: bytes) -> bytes:
        if last(prompt) not in heard:
            heard.append(last(prompt))
        return b"ok"

    assert chat(said, answers=hear).code == 0, chat.err
    assert b"|".join(heard) == answered


@given(
    lists(
        sampled_from(["a", "", " ", "\\", "a\\", "\\\\", QUOTES, f" {QUOTES} ", f"a{QUOTES}", f"{QUOTES}a"]), min_size=1
    )
)
def test_lines_one_by_one_are_the_text_that_they_make(lines: list[str]) -> None:
    """What a person sees as one text comes from a pipe line by line."""
    read = Lines(lines[0])
    for line in lines[1:]:
        if not read.go_on:
            break
        read.add(line)
    text = read.text if read.block else read.text.replace("\n", "\\\n")
    assert read.go_on == goes_on(text)


def test_commands(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    chat(
        f"/system be brief\nhello\n/save {file}\nmore\n/undo\n/regen\n/clear\n/system\nagain\n/load {file}\nback\n"
        '/system ""\n/system\n/exit\nnever\n'
    )
    assert (chat.code, chat.out) == (0, "HELLO\nMORE\nHELLO\nAGAIN\nBACK\n")
    assert chat.err.splitlines() == [
        "[system message: be brief]",
        f"[saved to {file}]",
        "[taken back: more and its answer]",
        "[at temperature 0 the same answer comes again]",
        "[forgotten, but for the system message]",
        "[system message: be brief]",
        f"[{file}: 3 messages]",
        "[no system message]",
        "[no system message]",
    ]
    saved = json.loads(file.read_text(encoding="utf-8"))
    assert [(m["role"], m["content"]) for m in saved["messages"]] == [
        ("system", "be brief"), ("user", "hello"), ("assistant", "HELLO"),
    ]  # fmt: skip


def test_stats_and_help(chat: Chat) -> None:
    chat("hello\nyou\n/stats\n/help\n", "--seed", 7, "--temp", 0.5, "--top-k", 1)
    lines = chat.err.splitlines()
    held = len("[user]hello\n[assistant]HELLO\n[user]you\n[assistant]YOU")
    assert lines[0] == "messages: 4, of which 2 answers"
    assert lines[1] == f"context: {held} tokens held of 400"
    first, second = len("[user]hello\n[assistant]"), held - len("YOU")
    new = first + second - (first + len("HELLO"))
    assert lines[2].startswith(f"prompts: {first + second} tokens: {first + 5} reused, {new} prefilled at ")
    assert lines[3].startswith("answers: 10 tokens generated at ")
    assert lines[4] == "sampling: seed 7, the next answer's 9, temperature 0.5, top_k 1"
    assert lines[5] == "model: talking.gguf, device scripted, kv f16"
    commands = [line.split()[0] for line in lines[6:] if line.startswith("/")]
    assert commands == COMMANDS.split()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/foo", f"there is no command /foo; there are {COMMANDS}. A line that begins with // is sent with one slash."),
        ("/", "there is no command /; there are"),
        ("/usr/bin/env python", "there is no command /usr/bin/env; there are"),
        ("/undo", "there is nothing to take back: nobody has said anything yet"),
        ("/regen", "there is nothing to answer: nobody has said anything yet"),
        ("/clear all", "/clear takes nothing behind it, got 'all'"),
        ("/save", "/save needs FILE behind it"),
        ("/save /nowhere/talk.json", "/nowhere/talk.json: there is no folder /nowhere"),
        ("/load /nowhere/talk.json", "/nowhere/talk.json: No such file or directory"),
        ("z" * 400, "the prompt's 418 tokens exceed the available context size of 400, which needs room for one more"),
        ("\ud83d".encode("utf-8", "surrogatepass"), "stdin, line 1 isn't UTF-8: invalid continuation byte at byte 0"),
    ],
)  # fmt: skip
def test_what_is_refused_is_one_line_and_the_talk_goes_on(chat: Chat, line: str | bytes, message: str) -> None:
    said = line if isinstance(line, bytes) else line.encode()
    chat(said + b"\nhello\n")
    assert (chat.code, chat.out) == (1, "HELLO\n"), "a script learns of it by the exit code"
    refused = [text for text in chat.err.splitlines() if text.startswith("minfer: ")]
    assert len(refused) == 1
    assert refused[0].startswith(f"minfer: {message}")


def test_thinking_is_what_the_model_wrote_where_nothing_can_be_dim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Chat(write_scripted(tmp_path / "thinking.gguf", THINKING), monkeypatch)
    file = tmp_path / "talk.json"
    assert chat(f"hello\n/save {file}\n", answers=thinking).out == "<think>\nhm, so\n</think>\n\nHELLO\n"
    message = json.loads(file.read_text("utf-8"))["messages"][-1]
    assert message == {"role": "assistant", "content": "HELLO", "reasoning_content": "hm, so"}


def test_thinking_stays_in_the_prompt_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Chat(write_scripted(tmp_path / "thinking.gguf", THINKING), monkeypatch)
    file, first = tmp_path / "talk.json", "[user]one\n[assistant]<think>\nhm, so\n</think>\n\nONE"
    new = "\n[user]two\n[assistant]"
    chat(f"one\ntwo\n/save {file}\n", "--keep-thinking", "--verbose", answers=thinking)
    assert f"prompt {len(first + new)} tokens: {len(first)} reused, {len(new)} prefilled" in chat.err
    chat("one\ntwo\n", "--verbose", answers=thinking)
    assert f"{len('[user]one[assistant]') + 1} reused" in chat.err, "otherwise as far as the tokens agree"
    second = new + "<think>\nhm, so\n</think>\n\nTWO"
    chat("two\n", "--load", file, "--verbose", answers=thinking)
    assert f"prompt {len(first + second + new)} tokens: 0 reused" in chat.err, "the file says so, too"


def test_a_stdin_that_cannot_be_read_ends_it(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, or a terminal that is gone: every attempt fails."""
    attempts = count(1)

    def read(_self: object) -> None:
        if next(attempts) > 3:
            pytest.fail("it goes on for ever")
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("minfer_models.cli.chat.reading.LineReader.read", read)
    assert (chat("").code, chat.err) == (1, "minfer: Input/output error\n")
    assert next(attempts) == 2


def test_a_line_that_never_ends_ends_it(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minfer_models.cli.chat.reading.MOST_BYTES", 1 << 20)
    chat("hello\n" + "x" * (1 << 20) + "\nmore\n")
    assert (chat.code, chat.out, chat.err) == (1, "HELLO\n", "minfer: stdin, line 2 has more than 1 MiB\n")


def test_a_reader_that_leaves_ends_the_talk_quietly(talking_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("plugged.py")), "echo", "chat", str(talking_path)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": REPOSITORY}
    with subprocess.Popen([*command, "--device", "scripted"], **streams) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(b"one\ntwo\nthree\n")
        process.stdin.close()
        assert b"Broken pipe" not in process.stderr.read()
        assert process.wait(timeout=60) == 1


def test_an_open_block_at_the_end_is_not_sent(chat: Chat) -> None:
    assert (chat('hello\n"""half\na message\n').code, chat.out) == (1, "HELLO\n")
    assert chat.err == 'minfer: stdin ends inside the block that """ opened in line 2\n'


@pytest.mark.parametrize(
    ("presses", "out", "remark"),
    [
        ([3], "HEL\n", "what has come stays"),
        ([1], "H\n", "what has come stays"),
        ([2, 2], "H\n", "what has come stays"),  # the second one doesn't wait for the token
        ([1, 1], "", "nothing had come, so the message is taken back"),
    ],
)
def test_ctrl_c_in_a_pipe_ends_the_run(chat: Chat, presses: list[int], out: str, remark: str) -> None:
    """Pressed in the forwards of these numbers."""
    forwards = count(1)

    def answer(prompt: bytes) -> bytes:
        number = next(forwards)
        for _ in range(presses.count(number)):
            signal.raise_signal(signal.SIGINT)
        return echo(prompt)

    before = signal.getsignal(signal.SIGINT)
    assert (chat("hello\nnever\n", answers=answer).code, chat.out) == (130, out)
    assert chat.err == f"[interrupted: {remark}]\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_options_reach_the_conversation(chat: Chat) -> None:
    assert chat("hello\n", "--stop", "LO").out == "HEL\n"
    assert chat("hello\n", "-n", 2).out == "HE\n"
    assert chat.err == "[cut after 2 tokens; -n takes another limit, -1 for none]\n"
    assert chat("say x\n", "--system", "s", answers=lambda prompt: prompt.partition(b"\n")[0]).out == "[system]s\n"
    assert chat("x" * 350, answers=lambda _: b"y" * 99).out == "y" * (400 - 350 - 18) + "\n"
    assert chat.err == "[cut: the context of 400 tokens is full; /undo or /clear makes room]\n"


def test_a_saved_conversation_goes_on_and_options_count_more(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    chat(f"hello\n/save {file}\n", "--seed", 5, "--temp", 0.5, "--top-k", 1, "--stop", "X", "--system", "old")
    chat("you\n/stats\n/system\n", "--load", file)
    assert (chat.code, chat.out) == (0, "YOU\n")
    assert "messages: 5, of which 2 answers, 1 system" in chat.err
    assert "seed 5, the next answer's 7, temperature 0.5, top_k 1" in chat.err and "[system message: old]" in chat.err
    chat("mix\n/stats\n/system\n", "--load", file, "--temp", 2, "--seed", 9, "--system", "new", "--stop", "Z")
    assert (chat.code, chat.out) == (0, "MIX\n"), "another stop string counts"
    assert "seed 9, the next answer's 10, temperature 2.0, top_k 1" in chat.err and "[system message: new]" in chat.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-n", "0"], "-n is 0, expected at least 1, or -1 for no limit"),
        (["--stop", ""], "--stop is empty"),
        (["--temp", "-1"], "--temp is -1.0"),
        (["--chat-arg", "x"], "--chat-arg is 'x', expected KEY=VALUE"),
        (["--grammar", "root ::= ("], "grammar"),
    ],
)
def test_a_wrong_command_line_exits_with_2(chat: Chat, options: list[str], message: str) -> None:
    assert chat("hello\n", *options).code == 2
    assert message in chat.err.lower() if message == "grammar" else message in chat.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--load", "/nowhere/t.json"], "minfer: /nowhere/t.json: No such file or directory"),
        (["--chat-arg", "enable_thinking=false"], "this model's chat template has no argument 'enable_thinking'"),
        (["--keep-thinking"], "this model's chat template has no markers of thinking"),
        (["--ctx", "401"], "n_ctx is 401, the model takes 1 to 400"),
    ],
)
def test_what_this_model_cannot_do_exits_with_1(chat: Chat, options: list[str], message: str) -> None:
    assert (chat("hello\n", *options).code, chat.out) == (1, "")
    assert message in chat.err


def test_a_grammar_binds_every_answer(talking_path: Path) -> None:
    """On the real backend: the scripted one would want other tokens than the grammar lets through."""
    command = [sys.executable, "-m", "minfer_models.cli.main", "chat", talking_path, "--device", "numpy"]
    done = subprocess.run(
        [*command, "--grammar", 'root ::= "yes" | "no"'],
        input=b"one\ntwo\n", capture_output=True, check=True, cwd=REPOSITORY,
    )  # fmt: skip
    assert set(done.stdout.decode().split("\n")) <= {"yes", "no", ""}
    assert done.stdout.count(b"\n") == 2


def test_the_marker_of_answers_is_the_template_s(talking_path: Path) -> None:
    from minfer_models import load

    with load(talking_path, device="numpy") as llm:
        assert llm.chat_template().render([{"role": "user", "content": "x"}]).encode().endswith(MARKER)
