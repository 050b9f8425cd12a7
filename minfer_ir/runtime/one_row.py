"""The step that decoding takes: one row of one sequence, through an executable prepared for it once."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Self

from minfer_ir.opspec import Array
from minfer_ir.runtime.host import HostBackend

if TYPE_CHECKING:
    from minfer_ir.runtime.executable import Executable

KEYS = frozenset(("token_ids", "positions", "cells", "window", "n_rows", "output_ids"))
INT32_END = 1 << 31


class OneRow:
    """Runs an executable whose row bucket is one row in a causal window, all on one backend over host memory.

    `takes` accepts what `check_fill` accepts of such a row, and says no more: whoever is refused takes the general way
    and hears there what is wrong. `output` is the first output's one row; the next step overwrites it.
    """

    def __init__(self, executable: Executable, backend: HostBackend) -> None:
        self._executable, self._program, self._hit = executable, executable.programs[0], executable.resources.probe.hit
        inputs = {node.attrs.key: (node, ref) for node, _, ref in executable.input_windows}
        words = {key: backend.buffers.window(ref, node.type).data for key, (node, ref) in inputs.items()}
        self._token, self._position, self._cell = words["token_ids"], words["positions"], words["cells"]
        self._window, self._rows, self._outputs = words["window"], words["n_rows"], words["output_ids"]
        limits = {key: node.attrs.limit for key, (node, _) in inputs.items()}
        self._tokens, self._positions = limits["token_ids"] or INT32_END, limits["positions"] or INT32_END
        self._cells = min(limits["cells"] or INT32_END, limits["window"] or INT32_END)
        node, _, ref = executable.output_windows[0]
        self.output: Array = backend.buffers.window(ref, node.type, 1)[0]

    @classmethod
    def of(cls, executable: Executable) -> Self | None:
        """None for any other executable."""
        nodes = {node.attrs.key: node for node, _, _ in executable.input_windows}
        if nodes.keys() != KEYS or len(executable.input_windows) != len(KEYS) or len(executable.splits) != 1:
            return None
        rows = [node for key, node in nodes.items() if key != "n_rows"]
        backend = executable.resources.backends[executable.splits[0].backend]
        outputs = [node.type.dtype.name for node, _, _ in executable.output_windows]
        if any(node.type.shape != (1,) for node in rows) or outputs != ["f32"] or not isinstance(backend, HostBackend):
            return None
        return cls(executable, backend)

    def takes(self, token_id: int, position: int, first_cell: int) -> bool:
        """Whether the row fits: ids in range, and the cell of `position` within the arena."""
        return (
            0 <= token_id < self._tokens
            and 0 <= position < self._positions
            and first_cell >= 0
            and first_cell + position < self._cells
            and not self._executable.retired
        )

    def run(self, token_id: int, position: int, first_cell: int) -> None:
        """One forward of a row that `takes` accepts: `Executable.run` of the same inputs."""
        self._token[0], self._position[0], self._cell[0] = token_id, position, first_cell + position
        self._window[0] = first_cell
        # Graphs share their pool's buffers: what is the same every step may still have been overwritten.
        self._rows[0] = self._rows[1] = 1
        self._outputs[0] = 0
        self._hit("split.run")
        start = perf_counter()
        self._program.run()
        self._executable.program_seconds += perf_counter() - start
