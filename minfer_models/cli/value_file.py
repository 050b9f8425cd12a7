"""The values of a trace as arrays that numpy loads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from zipfile import ZipFile

import numpy as np

from minfer_ir.runtime.trace import Step
from minfer_models.text_files import appearing

OPTION = "--values"


class ValueFile:
    """An .npz archive, written value by value: a forward's values together may be larger than memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._archive = ZipFile(file, "w")
        self.count = 0

    def add(self, step: Step) -> None:
        """Keep what a node gave, by the node's name."""
        with self._archive.open(f"{step.node.name}.npy", "w", force_zip64=True) as entry:
            np.lib.format.write_array(entry, np.ascontiguousarray(step.numbers()), allow_pickle=False)
        self.count += 1

    def close(self) -> None:
        """Write the archive's index."""
        self._archive.close()


@contextmanager
def value_file(path: Path | None) -> Iterator[ValueFile | None]:
    """What takes the values that `path` will hold once all are written; None for no path. Raises OSError."""
    if path is None:
        yield None
        return
    with appearing(path, OPTION) as file:
        values = ValueFile(file)
        yield values
        values.close()
