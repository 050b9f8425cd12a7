"""`minfer-bench ab` over git revisions: each from its own worktree and process, nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import minfer_models
from minfer_models.bench.ab.compare import Request, compare
from minfer_models.bench.ab.report import AbReport
from minfer_models.bench.ab.worktrees import checked_out, commit_of
from minfer_models.bench.loading import EngineChoices
from minfer_models.bench.workload import BenchError, workloads
from minfer_models.cli.progress import PlainLines

ROOT = Path(minfer_models.__file__).resolve().parents[1]
ONE = EngineChoices(threads=1)


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This tree's packages under the tags `old` (without `load`), `base` and `other` (it says something else)."""
    root = tmp_path_factory.mktemp("repository").resolve()
    git(root, "init", "--quiet")
    for package in ("minfer_ir", "minfer_kernels", "minfer_models"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    init = (root / "minfer_models/__init__.py").read_text()
    (root / "minfer_models/__init__.py").write_text("")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "old")
    git(root, "tag", "old")
    (root / "minfer_models/__init__.py").write_text(init)
    git(root, "commit", "--quiet", "-am", "base")
    git(root, "tag", "base")
    with (root / "minfer_models/engine/sequence.py").open("a") as file:
        file.write(CONTRARY)
    git(root, "commit", "--quiet", "-am", "other")
    git(root, "tag", "other")
    git(root, "checkout", "--quiet", "base")
    return root


CONTRARY = """

liked = TokenSequence.next_logits
TokenSequence.next_logits = lambda self, ids: -liked(self, ids)
"""
"""Likes best what the model likes least."""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where worktrees appear; it must be empty again afterwards."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def compared(root: Path, model: Path, a: Request, b: Request) -> AbReport:
    return compare(model, (a, b), workloads([], [2], [0]), 2, PlainLines("test"), root)


def test_two_revisions_and_a_setting(repository: Path, tiny: Path, temporary: Path) -> None:
    report = compared(repository, tiny, Request("a", "base", ONE), Request("b", "other", EngineChoices(threads=2)))
    a, b = report.sides
    assert [s.source.commit for s in (a, b)] == [commit_of(name, repository) for name in ("base", "other")]
    assert not a.source.dirty
    assert (a.settings["threads"], b.settings["threads"]) == (1, 2)
    assert report.settings_that_differ == ("threads",)
    assert all(s.settings["threads_fixed"] for s in (a, b))
    assert [plan.equal for plan in report.plans] == [True]
    assert (report.agreement.parts_at, report.agreement.promise, report.agreement.broken) == (0, "tokens", True)
    assert [len(r.rounds) for r in report.results] == [2]
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_the_tree_as_it_is_against_a_revision(repository: Path, tiny: Path, temporary: Path) -> None:
    same = Request("a", "base", ONE), Request("b", "WORKTREE", ONE)
    with pytest.raises(BenchError, match="both sides come to the same source"):
        compared(repository, tiny, *same)
    (repository / "minfer_models/new.py").write_text("")
    try:
        report = compared(repository, tiny, *same)
    finally:
        (repository / "minfer_models/new.py").unlink()
    assert [s.source.dirty for s in report.sides] == [False, True]
    assert report.agreement.same_bits


def test_a_revision_without_load_and_one_that_is_none(repository: Path, tiny: Path, temporary: Path) -> None:
    with pytest.raises(BenchError, match=r"^side b \(old\): this revision has no minfer_models.load$"):
        compared(repository, tiny, Request("a", None, ONE), Request("b", "old", ONE))
    with pytest.raises(BenchError, match=f"'nope' is no commit of the repository at {repository}"):
        compared(repository, tiny, Request("a", "nope", ONE), Request("b", "old", ONE))
    with pytest.raises(BenchError, match="revisions are compared in a git checkout of minfer; this one runs from"):
        commit_of("HEAD", repository / "minfer_models")


class InterruptedAt(PlainLines):
    """Ctrl-C as soon as something is shown that starts with `text`."""

    def __init__(self, text: str) -> None:
        super().__init__("test")
        self._text = text

    def show(self, text: str, done: float | None = None, total: float | None = None) -> None:
        if text.startswith(self._text):
            raise KeyboardInterrupt


def test_an_interrupt_leaves_no_worktree(repository: Path, tiny: Path, temporary: Path) -> None:
    sides = Request("a", "base", ONE), Request("b", "other", ONE)
    with pytest.raises(KeyboardInterrupt):
        compare(tiny, sides, workloads([], [2], [0]), 2, InterruptedAt("loading side b"), repository)
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_neither_does_a_termination(repository: Path, temporary: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught, checked_out(commit_of("base", repository), repository) as tree:
        assert (tree / "minfer_models/llm.py").exists()
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(git(repository, "worktree", "list").splitlines()) == 1
