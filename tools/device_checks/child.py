"""A part's process, which ends with whoever started it: from its first moment on, so before it imports torch."""

from __future__ import annotations

import os
import sys
from threading import Thread


def main() -> None:
    """Run the part that the command line names; its standard input stays open for as long as somebody waits for it."""
    Thread(target=_end_with_input, daemon=True).start()
    from tools.device_checks.part import main as run

    run(sys.argv[1:])


def _end_with_input() -> None:
    """A run that is killed leaves nobody on the device."""
    while os.read(0, 64):  # not by way of sys.stdin, whose lock would be held when the interpreter ends
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
