"""`python -m tools.device_checks`: the command line of tools/device_check."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from itertools import chain
from pathlib import Path

from tools.device_checks.results import Report
from tools.device_checks.schedule import ROOT, Run, run_all

DATA = ROOT / "build" / "device-check"
LIMIT_S = 470.0
"""Eight minutes, less what starting takes."""
DRY_LIMIT_S = 3600.0
DRY_FOLDER = "dry"
"""In the prepared folder: what a dry run uses."""


def main(arguments: list[str]) -> int:
    """Prepare, or run; exit status 1 when something failed, goals aside."""
    given = _parser().parse_args(arguments)
    if given.prepare:
        from tools.device_checks.prepare import TOY_SIZES, prepare

        for line in chain(prepare(given.data), prepare(given.data / DRY_FOLDER, sizes=TOY_SIZES)):
            print(line, flush=True)
        return 0
    data = given.data / DRY_FOLDER if given.dry else given.data
    if not (data / "types.json").is_file():
        print(f"device_check: nothing is prepared in {data}; run: tools/device_check --prepare", file=sys.stderr)
        return 2
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    out = given.out or data / "results"
    report = Report(out, f"Device check, {when}{' (dry)' if given.dry else ''}")
    limit_s = given.limit or (DRY_LIMIT_S if given.dry else LIMIT_S)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        run_all(Run(data, out, given.dry, limit_s, given.only), report)
    except KeyboardInterrupt:
        report.close("INTERRUPTED")
        print(f"device_check: interrupted; what was found out is in {report.summary}", file=sys.stderr)
        return 130
    report.close()
    print(f"{len(report.results)} results, {len(report.failed)} failed: {report.summary}")
    return 1 if report.failed else 0


def _terminated(*_: object) -> None:
    """As Ctrl-C: processes are ended, and the report says so."""
    raise KeyboardInterrupt


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
    parser.add_argument("--limit", type=float, metavar="S", help=f"seconds for everything (default: {LIMIT_S:.0f})")
    parser.add_argument("--dry", action="store_true", help="toy sizes in Triton's interpreter, to test this itself")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
