"""Which source a measurement ran: the commit, and whether the tree differs from it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import minfer_models

ROOT = Path(minfer_models.__file__).resolve().parents[1]
"""The tree that this process imports minfer from: a checkout's root, or where packages are installed."""

PACKAGES = ("minfer_ir", "minfer_kernels", "minfer_models", "pyproject.toml")
"""What decides how a model runs: a changed page of documentation makes no other source."""


@dataclass(frozen=True, slots=True)
class Source:
    """`commit` is None outside of a git checkout of minfer. `dirty`: files of the packages aren't the commit's."""

    commit: str | None
    dirty: bool

    @classmethod
    def of(cls, root: Path = ROOT) -> Source:
        """The state of the checkout at `root`; a repository that merely contains `root` doesn't count."""
        top = _git(root, "rev-parse", "--show-toplevel")
        if top is None or Path(top).resolve() != root.resolve():
            return cls(None, False)
        commit = _git(root, "rev-parse", "HEAD")
        dirty = commit is not None and bool(_git(root, "status", "--porcelain", "--", *PACKAGES))
        return cls(commit, dirty)

    def __str__(self) -> str:
        if self.commit is None:
            return "no commit"
        return self.commit[:12] + (" with changes" if self.dirty else "")


def _git(root: Path, *arguments: str) -> str | None:
    """What git says, or None when it can't say."""
    command = ["git", "-C", str(root), *arguments]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() if run.returncode == 0 else None
