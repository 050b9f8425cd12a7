"""Opens damaged copies of a file in a process of its own: `mutate_child.py FILE FOLDER STRIDE`.

Every STRIDE-th header byte is set to several values, and the file is cut at every STRIDE-th length. Each copy must open
and be usable, or raise GGUFError; anything else ends the process. Prints how many did which.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from minfer_models.gguf import GGUFError, check_finite, open_gguf


def damaged(content: bytes, header_end: int, stride: int) -> Iterator[bytes]:
    for place in range(0, header_end, stride):
        old = content[place]
        for new in {0, 1, 0xFF, 0x7F, 0x80, old ^ 1, old ^ 0x80, (old + 1) & 255} - {old}:
            yield content[:place] + bytes((new,)) + content[place + 1 :]
        yield content[:place] + b"\xff" * 8 + content[place + 8 :]
        yield content[:place] + content[place + 1 :]
    for length in range(0, len(content), stride):
        yield content[:length]


def use(path: Path, *, allow_incomplete: bool) -> str:
    try:
        with open_gguf(path, allow_incomplete=allow_incomplete) as file:
            for key in file.metadata:
                repr(file.metadata[key])
            for name, info in file.tensors.items():
                if file.complete:
                    assert file.rows(name).nbytes == info.nbytes
            if file.complete:
                check_finite(file)
            return "opened" if file.complete else "listed"
    except GGUFError as error:
        assert str(path) in str(error)
        return "refused"


def main() -> None:
    content, folder, stride = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]), int(sys.argv[3])
    header_end = min(info.offset for info in open_gguf(sys.argv[1]).tensors.values())
    outcomes: Counter[str] = Counter()
    for number, copy in enumerate(damaged(content, header_end, stride)):
        path = folder / f"{number}.gguf"
        path.write_bytes(copy)
        outcomes[use(path, allow_incomplete=False)] += 1
        outcomes[f"lenient {use(path, allow_incomplete=True)}"] += 1
        path.unlink()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
