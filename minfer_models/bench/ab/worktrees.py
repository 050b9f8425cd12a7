"""Git revisions as folders: temporary worktrees that are gone afterwards, also after Ctrl-C."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minfer_models.bench.source import ROOT
from minfer_models.bench.workload import BenchError

THIS_TREE = "WORKTREE"
"""The revision's name for the tree as it is, with whatever hasn't been committed."""


def commit_of(revision: str, root: Path = ROOT) -> str:
    """The commit that `revision` names in the checkout at `root`.

    Raises BenchError when it names none, or when there is no checkout.
    """
    if Path(_git(root, "rev-parse", "--show-toplevel") or "/").resolve() != root.resolve():
        raise BenchError(f"revisions are compared in a git checkout of minfer; this one runs from {root}")
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise BenchError(f"{revision!r} is no commit of the repository at {root}")
    return commit


@contextmanager
def checked_out(commit: str, root: Path = ROOT) -> Iterator[Path]:
    """A temporary worktree of `root` at `commit`, removed afterwards whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="minfer-bench-"))
    tree = folder / commit[:12]
    with _terminated_like_interrupted():
        try:
            problem = _git_problem(root, "worktree", "add", "--quiet", "--detach", str(tree), commit)
            if problem is not None:
                raise BenchError(f"git worktree add {tree} {commit}: {problem}")
            yield tree.resolve()
        finally:
            with _undisturbed():
                _git(root, "worktree", "remove", "--force", str(tree))
                shutil.rmtree(folder, ignore_errors=True)
                _git(root, "worktree", "prune")


def _git(root: Path, *arguments: str) -> str | None:
    run = _run(root, *arguments)
    return run.stdout.strip() if run.returncode == 0 else None


def _git_problem(root: Path, *arguments: str) -> str | None:
    run = _run(root, *arguments)
    return None if run.returncode == 0 else " ".join(run.stderr.split())


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(root), *arguments]
    try:
        # a session of its own, so that Ctrl-C doesn't cut a removal short
        return subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    except FileNotFoundError:
        raise BenchError("comparing revisions needs git, which isn't installed") from None


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, instead of ending the process where it stands."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: Any) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals wait until this is through."""
    held = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
