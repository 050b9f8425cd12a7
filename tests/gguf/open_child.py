"""Opens files in a process of its own and reports on each, one JSON line: outcome, bytes allocated, calls made.

Run as `open_child.py FILE...`. A hang is ended by the parent's timeout, runaway memory by the address-space limit.
"""

from __future__ import annotations

import json
import resource
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from minfer_models.gguf import GGUFError, GGUFFile, open_gguf

ADDRESS_SPACE = 8 << 30


def attempt(path: Path, *, allow_incomplete: bool) -> str | None:
    """The error's text, or None when the file opens. Anything but GGUFError ends the process."""
    file: GGUFFile | None = None
    try:
        file = open_gguf(path, allow_incomplete=allow_incomplete)
    except GGUFError as error:
        return str(error)
    finally:
        if file is not None:
            file.close()
    return None


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Counts function calls, Python and C, into a list of one."""
    n_calls = [0]

    def count(frame: FrameType, event: str, arg: Any) -> None:
        n_calls[0] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        yield n_calls
    finally:
        sys.setprofile(None)


def report(path: Path) -> dict[str, Any]:
    tracemalloc.start()
    with counted_calls() as calls:
        strict = attempt(path, allow_incomplete=False)
    lenient = attempt(path, allow_incomplete=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"path": str(path), "error": strict, "lenient": lenient, "peak": peak, "calls": calls[0]}


def main() -> None:
    with suppress(ValueError, OSError):  # macOS has no such limit; the other measures hold there
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    for name in sys.argv[1:]:
        print(json.dumps(report(Path(name))), flush=True)


if __name__ == "__main__":
    main()
