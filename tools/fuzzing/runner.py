"""Runs cases in a child process that is replaced when a case ends it: a crash is a finding, not the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WALL_SECONDS = 1800
"""Without a word from the child for so long, it sleeps; what it computes is bounded by processor time."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that was neither refused by us nor taken."""

    case: int
    what: str

    def report(self, random_seed: int) -> str:
        """What happened, and the command that does it again."""
        return f"{self.what}\n  again: python -m tools.fuzz --seed {random_seed} --case {self.case}"


@dataclass(slots=True)
class Report:
    """What became of a run."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    resident: int = 0

    def take(self, done: dict[str, Any]) -> None:
        """Add what a child says at the end."""
        self.outcomes.update(done["outcomes"])
        self.slowest = max(self.slowest, tuple(done["slowest"]))
        self.resident = max(self.resident, done["resident"])


def run(seeds: Path, random_seed: int, numbers: range, load_every: int, most_findings: int = 20) -> Report:
    """Try the cases `numbers` of `random_seed`; stops after `most_findings`."""
    report, left = Report(), numbers
    with tempfile.TemporaryDirectory(prefix="minfer-fuzz-") as folder:
        while left and len(report.findings) < most_findings:
            at = _one_child(seeds, Path(folder), random_seed, left, load_every, report)
            left = range(at + left.step, left.stop, left.step) if at is not None else range(0)
    return report


def _one_child(
    seeds: Path, folder: Path, random_seed: int, numbers: range, load_every: int, report: Report
) -> int | None:
    """Run a child until it's through, or gone: then the number of its last case."""
    state, errors = folder / "state", folder / "stderr"
    state.write_bytes(numbers.start.to_bytes(8, "little"))
    work = folder / "case"
    work.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tools.fuzzing.child", *map(str, (seeds, work, state, random_seed))]
    request = f"{numbers.start} {numbers.stop} {numbers.step} {load_every}\n"
    with errors.open("w+") as stderr:
        try:
            done = subprocess.run(
                command, input=request, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False, cwd=ROOT,
                timeout=WALL_SECONDS,
            )  # fmt: skip
            output, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as slept:
            raw: Any = slept.stdout or b""
            output, code = raw.decode() if isinstance(raw, bytes) else raw, None
    ended = False
    for line in map(json.loads, filter(None, output.splitlines())):
        if "done" in line:
            report.take(line["done"])
            ended = True
        else:
            report.findings.append(Finding(line["case"], f"{line['name']}\n{line['finding']}"))
    if ended:
        return None
    at = int.from_bytes(state.read_bytes(), "little")
    words = errors.read_text(errors="replace").strip()[-3000:]
    report.findings.append(Finding(at, f"case {at}: {_end(code)}\n{words}"))
    return at


def _end(code: int | None) -> str:
    """How a child ended."""
    if code is None:
        return f"nothing came of it in {WALL_SECONDS} s"
    if code == -signal.SIGPROF:
        return "it took too much processor time"
    if code < 0:
        return f"the process died of {signal.Signals(-code).name}"
    return f"the process ended with status {code}"
