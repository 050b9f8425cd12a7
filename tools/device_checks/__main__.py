"""`python -m tools.device_checks`: the command line of tools/device_check."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tools.device_checks.results import Report
from tools.device_checks.schedule import ROOT, Run, run_all

DATA = ROOT / "build" / "device-check"
LIMIT_S = 470.0
"""Eight minutes, less what starting takes."""


def main(arguments: list[str]) -> int:
    """Prepare, or run; exit status 1 when something failed, goals aside."""
    given = _parser().parse_args(arguments)
    if given.prepare:
        from tools.device_checks.prepare import prepare

        for line in prepare(given.data):
            print(line, flush=True)
        return 0
    if not (given.data / "types.json").is_file():
        print(f"device_check: nothing is prepared in {given.data}; run: tools/device_check --prepare", file=sys.stderr)
        return 2
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    out = given.out or given.data / "results"
    report = Report(out, f"Device check, {when}{' (dry)' if given.dry else ''}")
    run_all(Run(given.data, out, given.dry, given.limit, given.only), report)
    print(f"{len(report.results)} results, {len(report.failed)} failed: {report.summary}")
    return 1 if report.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="device_check",
        description="Everything that needs a GPU, in one run of less than eight minutes: right results, equal bits, "
        "clean memory, and speed beside what the device can do. Results are written as they come.",
    )
    parser.add_argument("--prepare", action="store_true", help="make what a run needs, on a machine without a GPU")
    parser.add_argument("--data", type=Path, default=DATA, help="the prepared folder (default: build/device-check)")
    parser.add_argument("--out", type=Path, help="where results go (default: results in the prepared folder)")
    parser.add_argument("--only", default="", help="only parts with this in their name")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="seconds for everything")
    parser.add_argument("--dry", action="store_true", help="toy sizes in Triton's interpreter, to test this itself")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
