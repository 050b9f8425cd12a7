"""Looking for NaN and infinite values in the weights of a file: scales only for block formats, so it is cheap."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats.base import Format
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.reader import GGUFFile


def check_rows(file: GGUFFile, name: str, fmt: Format, rows: NDArray[np.uint8]) -> None:
    """Raise GGUFError naming row and block when `rows` [n_rows, row_bytes] of tensor `name` hold NaN or Inf."""
    found = fmt.find_nonfinite(rows)
    if found is None:
        return
    row, block = found
    info = file.tensors[name]
    what = "a value" if fmt.block_size == 1 else "a scale"
    raise GGUFError(
        f"{what} of row {row}, block {block} is NaN or infinite ({fmt.name} blocks of {fmt.block_size})",
        path=info.path,
        tensor=name,
        offset=info.offset + row * info.row_bytes + block * fmt.block_bytes,
    )


def check_finite(file: GGUFFile, names: Iterable[str] | None = None) -> None:
    """Raise GGUFError for the first NaN or infinite weight or scale in the tensors `names` (default: all).

    Tensors of types that minfer does not implement cannot be loaded and are passed over.
    """
    for name in file.tensors if names is None else names:
        if file.tensor(name).format is not None:
            check_rows(file, name, *file.weight(name))
