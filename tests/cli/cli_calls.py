"""The command line, called in this process or in one of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from minfer_models.cli.app import app

MINFER = [sys.executable, "-c", "from minfer_models.cli.main import run; run()"]


PROGRESS = re.compile(
    r"^minfer: (?:opening|compiling kernels|taking in|planning a forward|reading the prompt|tracing) .*\n", re.MULTILINE
)


def without_progress(err: str) -> str:
    """What was said on stderr, less the lines that only a slow machine gets: one every ten seconds."""
    return PROGRESS.sub("", err)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def minfer(*args: object, stdin: bytes | None = None) -> Outcome:
    """The command in this process; what it raises beyond an exit is the test's to see."""
    result = CliRunner().invoke(app, [str(a) for a in args], input=stdin, catch_exceptions=False, prog_name="minfer")
    return Outcome(result.exit_code, result.stdout, without_progress(result.stderr))


def minfer_process(*args: object, stdin: bytes | None = None) -> Outcome:
    done = subprocess.run([*MINFER, *map(str, args)], input=stdin, capture_output=True, timeout=120, check=False)
    return Outcome(done.returncode, done.stdout.decode(), without_progress(done.stderr.decode()))


def usage_error(outcome: Outcome) -> str:
    """What a wrong command line is told, below the usage."""
    assert (outcome.code, outcome.out) == (2, ""), outcome
    return outcome.err.split("\nError: ", 1)[1].strip()


def error_line(outcome: Outcome) -> str:
    """The one line on stderr of a command that failed and printed nothing else."""
    lines = outcome.err.splitlines()
    assert (outcome.code, outcome.out, len(lines)) == (1, "", 1), outcome
    return lines[0]
