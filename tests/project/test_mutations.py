"""The kept mutations: every one still applies; the runner tells a caught fault from one that survives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutations import ROOT, Mutation, check, copied_tree, load, run_gates


def test_every_mutation_still_applies_and_has_its_gates() -> None:
    mutations = load()
    assert mutations
    assert check(mutations) == []


@pytest.mark.full
def test_every_mutation_is_caught() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.mutations"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a function and a test of one half of it."""
    root = tmp_path / "project"
    (root / "tests").mkdir(parents=True)
    (root / "halves.py").write_text("def halves(n):\n    return n // 2, n - n // 2\n")
    test = "from halves import halves\n\ndef test_first():\n    assert halves(5)[0] == 2\n"
    (root / "tests" / "test_halves.py").write_text(test)
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\n')
    (root / ".gitignore").write_text("ignored.txt\n")
    (root / "ignored.txt").write_text("")
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
    return root


def mutation(find: str, replace: str) -> Mutation:
    return Mutation("m", "why", "halves.py", find, replace, ("tests/test_halves.py::test_first",))


@pytest.mark.parametrize(
    ("find", "replace", "failed"),
    [
        ("return n // 2", "return n // 3", ("tests/test_halves.py::test_first",)),
        ("n - n // 2", "n - n // 3", ()),
        ("def halves", "def thirds", ("tests/test_halves.py",)),
    ],
)
def test_a_fault_is_caught_by_the_test_that_sees_it(
    project: Path, find: str, replace: str, failed: tuple[str, ...]
) -> None:
    one = mutation(find, replace)
    with copied_tree(project) as tree:
        assert not (tree / "ignored.txt").exists()
        (tree / "halves.py").write_text(one.applied(tree))
        environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        outcome = run_gates(tree, ["tests/test_halves.py"], environ, limit_s=120)
    assert outcome.failed == failed
    assert "n - n // 2" in (project / "halves.py").read_text()


def test_stale_texts_and_gates_are_named(project: Path) -> None:
    assert check([mutation("return n // 2", "return 0")], project) == []
    (once, twice) = check([mutation("n // 5", "0"), mutation("n // 2", "0")], project)
    assert "stands 0 times in halves.py" in once
    assert "stands 2 times in halves.py" in twice
    gone = Mutation(
        "m", "why", "halves.py", "def ", "def  ", ("tests/test_halves.py::test_second", "tests/test_gone.py")
    )
    assert check([gone], project) == [
        "mutation m: no gate tests/test_halves.py::test_second",
        "mutation m: no gate tests/test_gone.py",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[mutation]]\nname = 'm'", "needs name, why, file, find, replace and gates"),
        ("[[mutation]]\nname='m'\nwhy=''\nfile='f'\nfind='a'\nreplace='a'\ngates=['g']", "changes nothing"),
        ("[[mutation]]\nname='m'\nwhy=''\nfile='f'\nfind='a'\nreplace='b'\ngates=[]", "has no gates"),
        ("[[mutation]]\nname='m'\nwhy=''\nfile='f'\nfind='a'\nreplace='b'\ngates=['g']\n" * 2, "same name: m"),
    ],
)
def test_faults_in_the_data_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "some.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)
