"""`python -m minfer_kernels.gpu.gate.worker FOLDER`: compile what standard input names, a line "TARGET NAME" each.

Answers with one line of JSON each: name, target, and `figures` or `error`. Figures are kept in FOLDER by what they
depend on, so that what didn't change isn't compiled again. It runs in a process of its own, without TRITON_INTERPRET:
whether kernels are interpreted or compiled is decided when they are imported.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton

from minfer_kernels.gpu.configuration import Configuration
from minfer_kernels.gpu.gate.compiled import compile_figures, options_of, source_of
from minfer_kernels.gpu.gate.figures import Figures
from minfer_kernels.gpu.gate.inventory import inventory
from minfer_kernels.gpu.targets import TARGETS, Target


def main(folder: Path) -> None:
    """Answer until standard input ends."""
    known = inventory()
    reader = _reader_source()
    for line in sys.stdin:
        target, name = line.split(maxsplit=1)
        print(json.dumps(_answer(known[target][name.strip()], TARGETS[target], folder, reader)), flush=True)


def _answer(configuration: Configuration, target: Target, folder: Path, reader: str) -> dict[str, Any]:
    told = {"name": configuration.name, "target": target.name}
    try:
        key = _key(configuration, target, reader)
        kept = folder / f"{key}.json"
        if not kept.exists():
            figures = compile_figures(configuration, target)
            _write(kept, json.dumps(figures.to_json()))
        figures = Figures.from_json(json.loads(kept.read_text()))
    except (
        Exception
    ) as error:  # whatever the compiler raises: one kernel's failure is reported beside the others' figures
        return told | {"error": " from ".join(_causes(error))}
    return told | {"figures": figures.to_json()}


def _causes(error: BaseException | None) -> Iterator[str]:
    """The compiler wraps an error once per function on the way: what went wrong stands in the innermost."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    yield f"{type(chain[-1]).__name__}: {chain[-1]}"
    if len(chain) > 1:
        yield f"{type(chain[0]).__name__}: {chain[0]}"


def _key(configuration: Configuration, target: Target, reader: str) -> str:
    """Of the kernel's source with all it calls, how it is compiled, Triton, and the code that reads the result."""
    source = source_of(configuration, target)
    parts = (source.hash(), target, sorted(options_of(configuration).items()), triton.__version__, reader)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _reader_source() -> str:
    here = Path(__file__).parent
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(here.glob("*.py")))).hexdigest()


def _write(path: Path, text: str) -> None:
    """Whole or not at all: another process may be reading."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(f".{id(text)}.half")
    half.write_text(text)
    half.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
