"""`python -m tools.mutations`: break the code in known ways, and see which test goes red.

The faults are data, in tests/mutations/*.toml: a file, a text that stands in it once, what to put in its place, and the
gates, tests of which one has to fail. Every fault is made in a copy of the working tree.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from minfer_models.cli.command import application, reported
from minfer_models.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "mutations"
OWN_CACHES = ("kernels", "kernel-gate")
"""Parts of the cache folder that broken code must not write to."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault. `gates` are what pytest takes: files, or tests in them; at least one has to fail."""

    name: str
    why: str
    file: str
    find: str
    replace: str
    gates: tuple[str, ...]

    def applied(self, root: Path) -> str:
        """The file's text with the fault in it; ValueError when the text doesn't stand there exactly once."""
        path = root / self.file
        if not path.is_file():
            raise ValueError(f"mutation {self.name}: there is no {self.file}")
        text = path.read_text(encoding="utf-8")
        if (found := text.count(self.find)) != 1:
            raise ValueError(f"mutation {self.name}: its text stands {found} times in {self.file}: {self.find!r}")
        return text.replace(self.find, self.replace)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the gates did: `failed` are the tests that did, the first one unless all were asked for."""

    failed: tuple[str, ...]
    passed: int
    output: str

    @property
    def red(self) -> bool:
        """Whether a gate noticed: a test failed, or the run didn't end."""
        return bool(self.failed)


def load(folder: Path = FOLDER) -> list[Mutation]:
    """All mutations, by file; ValueError for a fault in the data."""
    found = [m for path in sorted(folder.glob("*.toml")) for m in _from_file(path)]
    if twice := [name for name, n in Counter(m.name for m in found).items() if n > 1]:
        raise ValueError(f"mutations with the same name: {', '.join(twice)}")
    return found


def _from_file(path: Path) -> list[Mutation]:
    entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8")).get("mutation", [])
    try:
        found = [Mutation(**{**entry, "gates": tuple(entry["gates"])}) for entry in entries]
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path}: a mutation needs name, why, file, find, replace and gates: {error}") from None
    if idle := [m.name for m in found if m.find == m.replace or not m.gates]:
        raise ValueError(f"{path}: changes nothing, or has no gates: {', '.join(idle)}")
    return found


def check(mutations: Sequence[Mutation], root: Path = ROOT) -> list[str]:
    """What has gone stale: texts that no longer stand in their file, gates that are gone."""
    stale: list[str] = []
    for mutation in mutations:
        try:
            mutation.applied(root)
        except ValueError as error:
            stale.append(str(error))
        stale += [f"mutation {mutation.name}: no gate {gate}" for gate in mutation.gates if not _exists(root, gate)]
    return stale


def _exists(root: Path, gate: str) -> bool:
    path, _, test = gate.partition("::")
    name = test.partition("[")[0]
    return (root / path).is_file() and (not name or f"def {name}(" in (root / path).read_text(encoding="utf-8"))


@contextmanager
def copied_tree(root: Path = ROOT) -> Iterator[Path]:
    """A copy of what git knows or doesn't ignore, as it stands now."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="minfer-mutations-") as folder:
        tree = Path(folder) / "tree"
        for name in filter(None, listed.split("\0")):
            if (root / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, tree / name)
        yield tree


def run_gates(
    tree: Path, gates: Sequence[str], environ: Mapping[str, str], limit_s: float, every: bool = False
) -> Outcome:
    """Run tests in the copy; with `every` also those after the first failure. One that doesn't end is a failure too."""
    stop = [] if every else ["-x"]
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *stop, *gates]
    try:
        done = subprocess.run(
            command, cwd=tree, env=dict(environ), capture_output=True, text=True, check=False, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return Outcome((f"no end within {limit_s:.0f} s",), 0, "")
    output = done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode not in (0, 1) and not failed:
        failed = [f"pytest ended with {done.returncode}"]
    return Outcome(tuple(failed), int(passed[1]) if passed else 0, output)


@contextmanager
def _private_cache(environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """An environment whose cache folder has the models of the real one, and kernels of its own."""
    real = Settings.from_env(environ).cache_dir
    with tempfile.TemporaryDirectory(prefix="minfer-mutations-cache-") as folder:
        for entry in real.iterdir() if real.is_dir() else ():
            if entry.name not in OWN_CACHES:
                (Path(folder) / entry.name).symlink_to(entry.resolve())
        # bytecode is told from stale bytecode by whole seconds and size, which a mutation may leave as they are
        yield {**environ, "MINFER_CACHE_DIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}


def mutations(
    only: Annotated[str, typer.Option(help="Only mutations with this in their name.")] = "",
    list_: Annotated[bool, typer.Option("--list", help="Show them, run nothing.")] = False,
    every: Annotated[bool, typer.Option("--every", help="Name every test that fails, not the first.")] = False,
    limit_s: Annotated[float, typer.Option(help="Seconds for the gates of one mutation.")] = 900.0,
) -> None:
    """Break the code in known ways and see which test goes red. Exit status 1 when a fault survives."""
    chosen = [m for m in load() if only in m.name]
    if not chosen:
        raise typer.BadParameter(f"no mutation has {only!r} in its name; there are {', '.join(m.name for m in load())}")
    if stale := check(chosen):
        raise ValueError("; ".join(stale))
    if list_:
        for mutation in chosen:
            typer.echo(f"{mutation.name}: {mutation.why} ({mutation.file}; {', '.join(mutation.gates)})")
        return
    with copied_tree() as tree, _private_cache(os.environ) as environ:
        _require_green(tree, chosen, environ, limit_s)
        survived = [m for m in chosen if not _caught(tree, m, environ, limit_s, every)]
    typer.echo(
        f"{len(chosen)} mutations, {len(survived)} survived{': ' if survived else ''}"
        + ", ".join(m.name for m in survived)
    )
    if survived:
        raise typer.Exit(1)


def _require_green(tree: Path, chosen: Sequence[Mutation], environ: Mapping[str, str], limit_s: float) -> None:
    """A gate that fails without a fault says nothing about one."""
    gates = sorted({gate for m in chosen for gate in m.gates})
    typer.echo(f"without a fault: {', '.join(gates)}")
    outcome = run_gates(tree, gates, environ, limit_s * len(gates))
    if outcome.red or not outcome.passed:
        raise RuntimeError(f"the gates fail without a fault: {', '.join(outcome.failed)}\n{outcome.output[-3000:]}")
    typer.echo(f"  {outcome.passed} tests pass")


def _caught(tree: Path, mutation: Mutation, environ: Mapping[str, str], limit_s: float, every: bool) -> bool:
    path = tree / mutation.file
    whole, started = path.read_text(encoding="utf-8"), time.monotonic()
    path.write_text(mutation.applied(tree), encoding="utf-8")
    try:
        outcome = run_gates(tree, mutation.gates, environ, limit_s, every)
    finally:
        path.write_text(whole, encoding="utf-8")
    verdict = f"caught by {', '.join(outcome.failed)}" if outcome.red else f"SURVIVED {outcome.passed} tests"
    typer.echo(f"{mutation.name}: {verdict} ({time.monotonic() - started:.0f} s)")
    return outcome.red


app = application("mutations", "Break the code in known ways and see which test goes red.")
app.command()(reported("mutations")(mutations))

if __name__ == "__main__":
    app()
