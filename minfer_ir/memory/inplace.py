"""When an output may take over an operand's bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minfer_ir.graph import Node
from minfer_ir.memory.window import Window


@dataclass(frozen=True, slots=True)
class Resident:
    """A value in a storage: its node, its bytes, and the ascending times at which they are read."""

    node: int
    window: Window
    reads: tuple[int, ...]


def may_take_over(node: Node, target: Window, residents: Sequence[Resident], viewed: bool, strided: bool) -> bool:
    """True when `node` may write its output into `target`, the window of one of its operands.

    `residents` are all values in the operand's storage: none that shares a byte with the window may be read
    later, and what `node` itself reads there must be the very same elements. `viewed` says that views look into
    the output: their strides were derived for a contiguous one. `strided` says that the backend writes rows with
    gaps between them.
    """
    if node.type.shape != target.kind.shape or node.type.dtype is not target.kind.dtype:
        return False
    if not target.is_contiguous and (viewed or not strided or not target.has_plain_rows):
        return False
    return all(_leaves_free(r, node.id, target) for r in residents)


def _leaves_free(resident: Resident, now: int, target: Window) -> bool:
    if not resident.reads or resident.reads[-1] < now or not resident.window.overlaps(target):
        return True
    if resident.reads[-1] > now:
        return False
    return resident.window.same_elements(target)
