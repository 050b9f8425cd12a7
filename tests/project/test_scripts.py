"""tools/demo and tools/test, driven with stand-ins for Python and pip: what they run, and when."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# answers `-c` with the real interpreter, makes a `.venv` of itself, and logs everything else
PYTHON = """#!/bin/bash
case "$1 $2" in
  "-c import pip, sys"*) exec {real} -c "${{2/import pip, /import }}" ;;
  "-c "*) exec {real} "$@" ;;
  "-m venv")
    mkdir -p .venv/bin
    cp "$0" .venv/bin/python
    cp {minfer} .venv/bin/minfer
    ;;
esac
echo "$@" >> {log}
case "$*" in
  *"$FAIL_ON"*) [ -z "$FAIL_ON" ] || exit 1 ;;
esac
"""
MINFER = (
    '#!/bin/bash\nprintf "minfer" >> {log}; printf " <%s>" "$@" >> {log}; echo >> {log}\necho "the model\'s text"\n'
)


@dataclass
class Checkout:
    root: Path
    log: Path
    environment: dict[str, str]

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.log.write_text("")
        command = [str(self.root / "tools" / script), *arguments]
        env = {**self.environment, **environment}
        return subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=False)

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root, binaries, log = tmp_path / "a check-out", tmp_path / "bin", tmp_path / "log"
    (root / "tools").mkdir(parents=True)
    for name in ("demo", "test", "check", "lib.sh"):
        shutil.copy(ROOT / "tools" / name, root / "tools" / name)
    shutil.copy(ROOT / "pyproject.toml", root)
    binaries.mkdir()
    for command in ("bash", "dirname", "basename", "cat", "cp", "mkdir"):
        (binaries / command).symlink_to(shutil.which(command) or command)
    minfer = tmp_path / "minfer"
    executable(minfer, MINFER.format(log=log))
    executable(binaries / "python3.12", PYTHON.format(real=sys.executable, log=log, minfer=minfer))
    return Checkout(root, log, {"PATH": str(binaries), "FAIL_ON": ""})


INSTALL = "-m pip install -q --disable-pip-version-check -e ."
RUN = "minfer <run> <demo> <-p> <The capital of France is> <-n> <32>"


def test_demo_sets_up_once_and_then_goes_straight_on(checkout: Checkout) -> None:
    first = checkout.run("demo", "The capital of France is")
    assert first.returncode == 0, first.stderr
    assert checkout.calls() == ["-m venv --clear .venv", INSTALL, RUN]
    assert first.stdout == "the model's text\n"
    assert [line for line in first.stderr.splitlines() if line.startswith("+")] == [
        "+ python3.12 -m venv --clear .venv",
        f"+ .venv/bin/python {INSTALL}",
        '+ .venv/bin/minfer run demo -p "The capital of France is" -n 32',
    ]
    assert checkout.run("demo").returncode == 0
    assert checkout.calls() == [RUN]


def test_demo_installs_again_when_pyproject_changes(checkout: Checkout) -> None:
    checkout.run("demo")
    with (checkout.root / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    checkout.run("demo")
    assert checkout.calls() == [INSTALL, RUN]


def test_a_moved_checkout_is_installed_again(checkout: Checkout, tmp_path: Path) -> None:
    checkout.run("demo")
    checkout.root = checkout.root.rename(tmp_path / "moved")
    checkout.run("demo")
    assert checkout.calls() == [INSTALL, RUN]


def test_a_failed_installation_is_tried_again(checkout: Checkout) -> None:
    failed = checkout.run("demo", FAIL_ON="pip install")
    assert failed.returncode == 1
    assert failed.stderr.endswith("demo: the installation failed (see above)\n")
    assert RUN not in checkout.calls()
    assert checkout.run("demo").returncode == 0
    assert checkout.calls() == [INSTALL, RUN]


def test_a_broken_environment_is_made_anew(checkout: Checkout) -> None:
    checkout.run("demo")
    (checkout.root / ".venv/bin/python").unlink()
    checkout.run("demo")
    assert checkout.calls()[0] == "-m venv --clear .venv"


def test_demo_hands_its_arguments_on(checkout: Checkout) -> None:
    checkout.run("demo", "Say $HOME `x` 'y'", "-n", "4", "--stop", "a  b")
    assert checkout.calls()[-1] == "minfer <run> <demo> <-p> <Say $HOME `x` 'y'> <-n> <32> <-n> <4> <--stop> <a  b>"
    checkout.run("demo", "--seed", "7")
    assert checkout.calls()[-1] == f"{RUN} <--seed> <7>"
    assert "usage: tools/demo" in checkout.run("demo", "--help").stderr
    assert checkout.calls() == []


def test_test_installs_fetches_and_runs_pytest(checkout: Checkout) -> None:
    done = checkout.run("test", "--full", "-k", "a b")
    assert done.returncode == 0, done.stderr
    calls = checkout.calls()
    cores = min(len(os.sched_getaffinity(0)), 8) if hasattr(os, "sched_getaffinity") else min(os.cpu_count() or 1, 8)
    tests = ["-m tools.testdata", f"-m pytest -n {cores} --dist worksteal --full -k a b"]
    torch = ["-m tools.cpu_torch install", "-m tools.cpu_torch check"]
    dev = "-m pip install --disable-pip-version-check -e .[dev]"
    assert calls == ["-m venv --clear .venv", torch[0], dev, torch[1], *tests]
    checkout.run("test")
    assert checkout.calls() == [tests[0], f"-m pytest -n {cores} --dist worksteal"]
    checkout.run("demo")
    assert checkout.calls() == [RUN]  # the dev extra includes the core


@pytest.mark.parametrize("step", ["tools.cpu_torch install", "tools.cpu_torch check", "tools.testdata", "pytest"])
def test_test_fails_where_a_step_fails(checkout: Checkout, step: str) -> None:
    assert checkout.run("test", FAIL_ON=step).returncode == 1
    assert step in checkout.calls()[-1]


@pytest.mark.parametrize("script", ["demo", "test", "check"])
def test_without_a_new_enough_python_the_message_says_so(checkout: Checkout, script: str) -> None:
    python = Path(checkout.environment["PATH"]) / "python3.12"
    python.unlink()
    executable(python.with_name("python3"), "#!/bin/bash\nexit 1\n")  # Python 3.10 answers the question with 1
    done = checkout.run(script)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"{script}: minfer needs Python 3.11 or newer, and none of python3.13, python3.12, ")
    assert "python.org" in done.stderr
