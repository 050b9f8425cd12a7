"""docs/tracing.md: its commands say what the page shows; so does README's first look inside."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from minfer_models.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
SESSION = re.compile(r"^```console\n(?P<text>\$ minfer (?:trace|dump) .*?)^```$", re.M | re.S)


def sessions(page: str) -> list[tuple[str, list[str]]]:
    """The commands of a page's consoles, each with the lines shown below it."""
    texts = [block["text"] for block in SESSION.finditer((ROOT / page).read_text())]
    parts = [part.split("\n", 1) for text in texts for part in re.split(r"^\$ ", text, flags=re.M)[1:]]
    return [(command.split("  #")[0], shown.splitlines()) for command, shown in parts]


def test_the_commands_say_what_the_pages_show(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of three dots stands for others. The bits are those of every machine, so the lines are, too."""
    monkeypatch.chdir(tmp_path)
    there = {page: sessions(page) for page in ("docs/tracing.md", "README.md")}
    assert [len(found) for found in there.values()] == [5, 3]
    wanted: dict[tuple[str, ...], list[str]] = {}
    for command, shown in (pair for found in there.values() for pair in found):
        wanted.setdefault(tuple(shlex.split(command)[1:]), []).extend(shown)
    for words, shown in wanted.items():
        arguments = [str(smollm2) if word == "demo" else word for word in words]
        outcome = CliRunner().invoke(app, arguments, catch_exceptions=False, prog_name="minfer")
        said = [*outcome.stdout.splitlines(), *outcome.stderr.splitlines()]
        missing = [line for line in shown if line not in (*said, "...")]
        assert not missing, f"{words}\n{outcome.output}"
        assert outcome.exit_code == (3 if any("differs from" in line for line in shown) else 0)
