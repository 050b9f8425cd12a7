"""A process that tries case after case under limits: `python -m tools.fuzzing.child SEEDS FOLDER STATE RANDOM_SEED`.

It reads lines `START STOP STEP LOAD_EVERY` from stdin, and writes a JSON line for every finding and one at the end. The
number of the case under way stands in STATE, so that the parent knows it when this process is gone. A case that takes
`CPU_SECONDS` of processor time ends it, with a traceback on stderr; waiting for other processes costs none.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tools.fuzzing.cases import Case, Cases
from tools.fuzzing.seeds import read_seeds
from tools.fuzzing.target import Depth, exercise

CPU_SECONDS = 10
"""Measured on a busy machine: a template at its limit of work takes 3 s, everything else less than 0.5."""
ADDRESS_SPACE = 3 << 30
"""Bytes beyond what the process has when it begins."""
RESIDENT = 384 << 20
"""Bytes beyond the most that the process had before the case. A template at its limits takes 200 MiB."""
SCATTERED = 0x9E3779B1
"""Multiplied by it, neighbouring numbers leave all remainders: every depth is taken by every kind of case."""


def depth_of(case: Case, load_every: int) -> Depth:
    """How far a case goes, by its number: each step is taken by as many as the time allows."""
    n = case.number * SCATTERED % 2**32 >> 8
    return Depth(
        compared=n % 24 == 3,
        weights=n % 24 == 0 and not case.hole,
        written=n % 64 == 5 and not case.hole,
        text=n % 16 == 1,
        template=case.template or n % 32 == 1,
        summary=n % load_every == 3 and not case.hole,
        forward=n % load_every == 0 and not case.hole,
    )


def write_case(case: Case, folder: Path) -> Path:
    """Write the files of a case; the path to open."""
    for name, content in case.siblings.items():
        (folder / name).write_bytes(content)
    path = folder / case.file
    with path.open("wb") as file:
        file.write(case.content)
        file.truncate(len(case.content) + case.hole)
    return path


def attempt(case: Case, folder: Path, load_every: int) -> tuple[str, str | None]:
    """The outcome of a case, and the finding if there is one."""
    before = _most_resident()
    try:
        outcome, finding = exercise(write_case(case, folder), depth_of(case, load_every)), None
    except BaseException as error:  # a panic of native code is no Exception
        outcome, finding = "FINDING", _words(error)
    taken = _most_resident() - before
    if finding is None and taken > RESIDENT:
        return "FINDING", f"it took {taken >> 20} MiB of memory"
    return outcome, finding


def _words(error: BaseException) -> str:
    """The last steps of a traceback, without long lines."""
    lines = "".join(traceback.format_exception(error, limit=-8)).strip().splitlines()
    return "\n".join(line[:300] for line in lines)[-4000:]


def main() -> None:
    """Serve until stdin ends."""
    seeds, folder, state, random_seed = sys.argv[1:]
    cases = Cases(read_seeds(Path(seeds)), int(random_seed))
    with Path(state).open("r+b") as file:
        number = mmap.mmap(file.fileno(), 8)
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    _limit_address_space()
    for line in sys.stdin:
        start, stop, step, load_every = map(int, line.split())
        outcomes: Counter[str] = Counter()
        slowest = (0.0, "")
        for n in range(start, stop, step):
            number[:] = n.to_bytes(8, "little")
            case = cases[n]
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            began = time.process_time()
            outcome, finding = attempt(case, Path(folder), load_every)
            slowest = max(slowest, (time.process_time() - began, str(case)))
            outcomes[outcome] += 1
            if finding is not None:
                print(json.dumps({"case": n, "name": str(case), "finding": finding}), flush=True)
        signal.setitimer(signal.ITIMER_PROF, 0)
        done = {"outcomes": outcomes, "slowest": slowest, "resident": _most_resident() >> 20}
        print(json.dumps({"done": done}), flush=True)


def _most_resident() -> int:
    """The most bytes that this process had in memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _limit_address_space() -> None:
    statm = Path("/proc/self/statm")
    if not statm.exists():  # the other limits hold everywhere
        return
    now = int(statm.read_text().split()[0]) * mmap.PAGESIZE
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (now + ADDRESS_SPACE, now + ADDRESS_SPACE))


if __name__ == "__main__":
    main()
