"""Run every step, two at a time, print each with its time, and the output of those that failed."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(sys.executable).parent
PYTHON = sys.executable
WORKFLOWS = sorted(str(path) for path in (ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = [str(ROOT / path) for path in ("tools/demo", "tools/test", "tools/check", "tools/lib.sh", ".ci/run")]

# name -> command, the slowest first
STEPS: dict[str, list[str]] = {
    "pyright": [str(BIN / "pyright"), "--threads", "2", "--pythonpath", PYTHON],
    "ruff format": [str(BIN / "ruff"), "format", "--check", "--quiet", "."],
    "ruff check": [str(BIN / "ruff"), "check", "--quiet", "."],
    "imports": [PYTHON, "-m", "tools.checks.imports"],
    "launches": [PYTHON, "-m", "tools.checks.launches"],
    "generated": [PYTHON, "-m", "tools.generate", "--check"],
    "links": [PYTHON, "-m", "tools.checks.links"],
    "workflow schema": [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *WORKFLOWS],
    "workflow audit": [
        str(BIN / "zizmor"),
        *("--offline", "--quiet", "--no-progress", "--config", str(ROOT / ".github" / "zizmor.yml")),
        *WORKFLOWS,
    ],
    "shell": ["bash", "-c", 'for script; do bash -n "$script" || exit 1; done', "bash", *SCRIPTS],
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one step ended."""

    name: str
    code: int
    seconds: float
    output: str


def run_step(name: str, command: list[str]) -> Outcome:
    """Run one command from the repository root, its output kept."""
    started = time.perf_counter()
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        code, output = done.returncode, done.stdout + done.stderr
    except OSError as error:
        code, output = 127, f"{error}\n"
    return Outcome(name, code, time.perf_counter() - started, output)


def main(wanted: list[str]) -> int:
    """Run the steps called `wanted`, or all; the exit status."""
    unknown = [name for name in wanted if name not in STEPS]
    if unknown:
        print(f"no step called {', '.join(unknown)}; there is {', '.join(STEPS)}", file=sys.stderr)
        return 2
    failed = False
    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs = [pool.submit(run_step, name, STEPS[name]) for name in wanted or STEPS]
        for job in as_completed(jobs):
            outcome = job.result()
            print(f"{'ok    ' if outcome.code == 0 else 'FAILED'} {outcome.name} ({outcome.seconds:.1f} s)", flush=True)
            if outcome.code != 0:
                failed = True
                print(outcome.output.rstrip(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
