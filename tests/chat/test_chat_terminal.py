"""`minfer chat` at a terminal: a pseudo-terminal stands in for one, a test for the person."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted import THINKING, write_scripted

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are a matter of Unix")

REPOSITORY = Path(__file__).resolve().parents[2]
ESCAPES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>78]|\r")
PROMPT = "<prompt>"
"""What stands for a new prompt in what is shown: there the terminal is told to mark what is pasted."""
LONGEST = 30
"""Seconds until a test gives up on output that never comes."""


class Terminal:
    """A process at a terminal of its own."""

    def __init__(self, command: list[str], cache: Path) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        environment = {**os.environ, "TERM": "xterm", "MINFER_CACHE_DIR": str(cache), "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, cwd=REPOSITORY, env=environment
        )
        os.close(slave)
        self._raw, self._seen = b"", 0

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def until(self, text: str) -> str:
        """What has appeared, escapes left out, from where the last call ended to the first `text`."""
        while True:
            marked = self._raw.replace(b"\x1b[?2004h", PROMPT.encode())
            shown = ESCAPES.sub(b"", marked).decode(errors="replace")
            at = shown.find(text, self._seen)
            if at >= 0:
                start, self._seen = self._seen, at + len(text)
                return shown[start : self._seen]
            if not select.select([self._master], [], [], LONGEST)[0] or not self._read():
                raise AssertionError(f"{text!r} never came; there was {shown[self._seen :]!r}")

    @property
    def raw(self) -> bytes:
        return self._raw

    def ended(self) -> int:
        """The exit code, once it has ended."""
        while self._read():
            pass
        return self.process.wait(LONGEST)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    def _read(self) -> bool:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            return False
        self._raw += data
        return bool(data)


@pytest.fixture
def terminal(talking_path: Path, tmp_path: Path) -> Iterator[Terminal]:
    made = opened(talking_path, tmp_path)
    yield made
    made.close()


def opened(model: Path, cache: Path, script: str = "waiting", *options: str) -> Terminal:
    launcher = [sys.executable, str(Path(__file__).with_name("plugged.py")), script]
    made = Terminal([*launcher, "chat", str(model), "--device", "scripted", *options], cache)
    made.until("/help lists the commands, Ctrl-D leaves.")
    made.until(PROMPT)
    return made


def said(terminal: Terminal, keys: str, answer: str) -> None:
    terminal.type(keys)
    terminal.until(f"{answer}\n")
    terminal.until(PROMPT)


def test_a_person_talks(terminal: Terminal, tmp_path: Path) -> None:
    said(terminal, "hello\r", "HELLO")
    said(terminal, "one\x1b\rtwo\r", "ONE\nTWO")  # Alt-Enter
    said(terminal, "one\\\rthree\r", "ONE\nTHREE")
    said(terminal, '"""\rone\r\rfour\r"""\r', "ONE\n\nFOUR")
    said(terminal, "\x1b[200~pasted\nlines\x1b[201~\r", "PASTED\nLINES")
    said(terminal, "garbage\x03word\r", "WORD")  # Ctrl-C at the prompt begins the line anew
    said(terminal, "\x03\x03end\r", "END")
    said(terminal, "\x1b[A\r", "END")  # the last one again
    terminal.type("/foo\r")
    terminal.until("minfer: there is no command /foo; there are /help")
    terminal.until(PROMPT)
    terminal.type(f"/save {tmp_path / 'talk.json'}\r")
    terminal.until("[saved to")
    terminal.until(PROMPT)
    terminal.type("\x04")
    assert terminal.ended() == 0, "a refused line is no failure where a person sees it"
    texts = [m["content"] for m in json.loads((tmp_path / "talk.json").read_text("utf-8"))["messages"][::2]]
    assert texts == ["hello", "one\ntwo", "one\nthree", "one\n\nfour", "pasted\nlines", "word", "end", "end"]


def test_ctrl_c_stops_an_answer_and_keeps_the_talk(terminal: Terminal, tmp_path: Path) -> None:
    terminal.type("wait\r")
    terminal.until("WAIT")
    terminal.type("\x03")
    assert "AND MORE" not in terminal.until("[interrupted: what has come stays]")
    terminal.until(PROMPT)
    said(terminal, "hello\r", "HELLO")
    terminal.type(f"/save {tmp_path / 'talk.json'}\r")
    terminal.until("[saved to")
    terminal.until(PROMPT)
    terminal.type("/exit\r")
    assert terminal.ended() == 0
    messages = json.loads((tmp_path / "talk.json").read_text("utf-8"))["messages"]
    said_first = messages.pop(1)["content"]
    assert said_first in ("WAIT", "WAIT!"), "the key comes before the forward of the next token, or within it"
    assert [m["content"] for m in messages] == ["wait", "hello", "HELLO"]


def test_history_outlives_the_process_and_is_its_owner_s(talking_path: Path, tmp_path: Path) -> None:
    first = opened(talking_path, tmp_path)
    said(first, "remember me\r", "REMEMBER ME")
    first.type("\x04")
    assert first.ended() == 0
    first.close()
    assert (tmp_path / "chat_history").stat().st_mode & 0o777 == 0o600
    second = opened(talking_path, tmp_path)
    said(second, "\x1b[A\r", "REMEMBER ME")
    second.close()


def test_a_cache_that_cannot_be_written_only_costs_the_history(talking_path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    launcher = [sys.executable, str(Path(__file__).with_name("plugged.py")), "echo"]
    terminal = Terminal([*launcher, "chat", str(talking_path), "--device", "scripted"], tmp_path / "file" / "cache")
    terminal.until("can't be written: what you type is remembered until you leave")
    terminal.until(PROMPT)
    said(terminal, "hello\r", "HELLO")
    terminal.close()


def test_control_characters_of_a_model_are_shown_not_obeyed(talking_path: Path, tmp_path: Path) -> None:
    terminal = opened(talking_path, tmp_path, "escaping")
    said(terminal, "hello\r", "␛]0;title␇")
    assert b"\x1b]0;title" not in terminal.raw
    terminal.close()


def test_thinking_is_dim(tmp_path: Path) -> None:
    terminal = opened(write_scripted(tmp_path / "thinking.gguf", THINKING), tmp_path, "thinking")
    said(terminal, "hello\r", "hm, so\n\nHELLO")
    assert b"\x1b[2mhm, so\x1b[0m\r\n\r\nHELLO\r\n" in terminal.raw
    terminal.type("\x04")
    assert terminal.ended() == 0
    terminal.close()
