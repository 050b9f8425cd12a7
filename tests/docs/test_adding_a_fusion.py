"""docs/adding-a-fusion.md: its files installed as a distribution of their own, its tests and commands run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"^```\w+ file=(?P<file>\S+)\n(?P<code>.*?)^```$", re.M | re.S)
SESSION = re.compile(r"^```console run\n(?P<text>.*?)^```$", re.M | re.S)
PROGRAMS = {"minfer": "minfer_models.cli.main", "minfer-bench": "minfer_models.bench.main"}


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs/adding-a-fusion.md").read_text()


@pytest.fixture(scope="module")
def site(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files and what an installer would have written beside them."""
    site = tmp_path_factory.mktemp("site")
    for block in FILE.finditer(page):
        path = site / block["file"]
        path.parent.mkdir(exist_ok=True)
        path.write_text(block["code"])
    project = tomllib.loads((site / "pyproject.toml").read_text())["project"]
    made = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    made.mkdir()
    made.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    ((group, points),) = project["entry-points"].items()
    made.joinpath("entry_points.txt").write_text(
        f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in points.items())
    )
    return site


def ran(site: Path, *arguments: str, **environment: str) -> str:
    known = {name: os.environ[name] for name in ("PATH", "HOME", "MINFER_CACHE_DIR") if name in os.environ}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=site,
        env={**known, "PYTHONPATH": f"{site}:{ROOT}", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_tests_pass_and_its_op_is_in_the_matrix(site: Path) -> None:
    shown = ran(site, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_gathered_norm.py")
    for backend in ("numpy", "cpu", "gpu", "torch"):
        assert f"PASS {backend}: gathered_norm" in shown
    assert "4 passed" in shown


def test_its_commands_show_what_the_page_says(page: str, site: Path, tiny: Path) -> None:
    sessions = [block["text"] for block in SESSION.finditer(page)]
    commands = [part.split("\n", 1) for text in sessions for part in re.split(r"^\$ ", text, flags=re.M)[1:]]
    assert len(commands) == 3
    for command, expected in commands:
        program, *arguments = shlex.split(command.replace("demo", str(tiny)))
        shown = ran(site, "-m", PROGRAMS[program], *arguments, MINFER_PLUGINS="gathered-norm")
        for line in expected.split():
            assert line in shown, f"{command}\n{shown}"
        if "--fusions-off" in command:
            assert "gathered_norm(" not in shown


def test_nothing_takes_part_unasked(site: Path, tiny: Path) -> None:
    assert "gathered_norm" not in ran(site, "-m", PROGRAMS["minfer"], "dump", str(tiny), "--stage", "fuse")
