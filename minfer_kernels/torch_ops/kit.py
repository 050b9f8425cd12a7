"""What the op functions share: the device, and the tables of angles that were made for it."""

from __future__ import annotations

import torch

from minfer_ir.ops.fused_rope import plain_rope
from minfer_ir.ops.rope import RopeAttrs, rope_table


class Kit:
    """Belongs to one backend. `prepare` keeps a table for as long as the backend lives."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._tables: dict[tuple[RopeAttrs, int | None], torch.Tensor] = {}
        self._factors: dict[int, torch.Tensor] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return sum(t.numel() * t.element_size() for t in self._tables.values())

    def has_table(self, attrs: RopeAttrs, factors: torch.Tensor | None) -> bool:
        """Whether these angles are kept."""
        return _key(attrs, factors) in self._tables

    def prepare(self, attrs: RopeAttrs, factors: torch.Tensor | None) -> None:
        """Make and keep the angles of `attrs`; `factors` are a registered weight."""
        if self.has_table(attrs, factors):
            return
        self._tables[_key(attrs, factors)] = self._made(attrs, factors)
        if factors is not None:
            self._factors[id(factors)] = factors  # keeps the id its own

    def angles(self, attrs: RopeAttrs, factors: torch.Tensor | None) -> torch.Tensor:
        """Float32 `[max_positions, 2, dims / 2]`: cosines and sines; made anew where they aren't kept."""
        kept = self._tables.get(_key(attrs, factors))
        return self._made(attrs, factors) if kept is None else kept

    def _made(self, attrs: RopeAttrs, factors: torch.Tensor | None) -> torch.Tensor:
        # on the host in float64, which not every device has
        table = rope_table(attrs, None if factors is None else factors.cpu().numpy())
        return torch.from_numpy(table).to(self.device)


def _key(attrs: RopeAttrs, factors: torch.Tensor | None) -> tuple[RopeAttrs, int | None]:
    return plain_rope(attrs), None if factors is None else id(factors)
