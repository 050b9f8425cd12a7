"""Changes a file under a loaded model: `truncated_child.py FILE DEVICE HOW`; prints "equal" or the error.

A page that is touched and gone ends the process, which is why it is one of its own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from minfer_models.gguf import GGUFError
from minfer_models.loading import load


def change(path: Path, how: str) -> None:
    if how == "replace":
        other = path.with_name("other")
        other.write_bytes(bytes(path.stat().st_size))
        other.replace(path)
    elif how == "delete":
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size // 2 if how == "half" else 0)


def main() -> None:
    path, device, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    tokens = np.arange(100) % 250
    with load(path, device=device, threads=1, chunk=64) as llm:
        whole = llm.logits(tokens)
    with load(path, device=device, threads=1, chunk=64) as llm:
        llm.logits([1])
        change(path, how)
        try:
            print("equal" if np.array_equal(llm.logits(tokens), whole) else "different")
        except GGUFError as error:
            print(error)


if __name__ == "__main__":
    main()
