"""Pools: reserve, then assign. A plan's buffers are mapped onto those a backend already gave."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from minfer_ir.memory.plan import Region
from minfer_ir.memory.window import PlanError


class Allocator(Protocol):
    """The part of a Backend that hands out buffers."""

    @property
    def name(self) -> str:
        """The backend's name, for messages."""
        ...

    def allocate(self, nbytes: int) -> int:
        """A new buffer's id; raises when memory is out."""
        ...

    def free(self, buffer: int) -> None:
        """Give a buffer back."""
        ...


class Pool:
    """The buffers of one backend, shared by all cached graphs: only one graph runs at a time.

    `allocations` and `frees` count calls to the backend, `reserves` counts plans that were mapped.
    """

    def __init__(self, backend: Allocator) -> None:
        self.backend = backend
        self.allocations = 0
        self.frees = 0
        self.reserves = 0
        self.peak_bytes = 0
        self._sizes: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers held now."""
        return sum(self._sizes.values())

    @property
    def buffers(self) -> Mapping[int, int]:
        """Bytes by buffer id."""
        return dict(self._sizes)

    def missing(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Sizes of the buffers that `reserve(sizes)` would allocate; what a budget check needs to know first."""
        return tuple(sizes[i] for i, buffer in self._match(sizes).items() if buffer is None)

    def reserve(self, sizes: Sequence[int]) -> dict[int, int]:
        """Map every planned buffer (index into `sizes`) to a buffer of at least its size, allocating what is missing.

        Largest first, tightest fit, so a plan whose classes are held already touches no memory, and gets the same
        buffers again while the pool stays as it is. When the backend refuses an allocation, those made before it are
        freed and the error passes on.
        """
        found = self._match(sizes)
        fresh: dict[int, int] = {}
        try:
            for index, buffer in found.items():
                if buffer is None:
                    fresh[index] = self._allocate(sizes[index])
        except BaseException:
            self._free(fresh.values())
            raise
        self.reserves += 1
        return {i: fresh[i] if buffer is None else buffer for i, buffer in sorted(found.items())}

    def trim(self, keep: Collection[int]) -> int:
        """Free the buffers that aren't in `keep` (those of the graphs that stay cached); returns the bytes freed."""
        before = self.nbytes
        self._free([b for b in self._sizes if b not in keep])
        return before - self.nbytes

    def _match(self, sizes: Sequence[int]) -> dict[int, int | None]:
        """For each planned buffer, largest first, the tightest unclaimed buffer, or None when there is none."""
        held = sorted(self._sizes, key=lambda b: (self._sizes[b], b))
        found: dict[int, int | None] = {}
        for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
            fit = next((b for b in held if self._sizes[b] >= sizes[index]), None)
            if fit is not None:
                held.remove(fit)
            found[index] = fit
        return found

    def _allocate(self, nbytes: int) -> int:
        buffer = self.backend.allocate(nbytes)
        self.allocations += 1
        self._sizes[buffer] = nbytes
        self.peak_bytes = max(self.peak_bytes, self.nbytes)
        return buffer

    def _free(self, buffers: Collection[int]) -> None:
        for buffer in buffers:
            self.backend.free(buffer)
            self.frees += 1
            del self._sizes[buffer]


class Regions:
    """The persistent KV regions of an engine: exact sizes, allocated once, kept until `free_all`."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Region, Allocator, int]] = {}

    def ensure(self, regions: Sequence[Region], backend: Allocator) -> tuple[int, ...]:
        """The buffer of each region on `backend`, allocated (zeroed) when it's new.

        Raises PlanError before any allocation for a region that exists with another size, type or backend. When the
        backend refuses an allocation, those made before it are freed and the error passes on.
        """
        for region in regions:
            known, where, _ = self._held.get(region.key, (region, backend, -1))
            if known != region or where is not backend:
                raise PlanError(f"KV region {known} exists on {where.name}; asked for {region} on {backend.name}")
        fresh: list[str] = []
        try:
            for region in regions:
                if region.key not in self._held:
                    self._held[region.key] = (region, backend, backend.allocate(region.nbytes))
                    fresh.append(region.key)
        except BaseException:
            for key in fresh:
                backend.free(self._held.pop(key)[2])
            raise
        return tuple(self._held[region.key][2] for region in regions)

    def missing(self, regions: Sequence[Region]) -> int:
        """Bytes that `ensure(regions)` would allocate."""
        return sum(r.nbytes for r in regions if r.key not in self._held)

    def nbytes(self, backend: Allocator) -> int:
        """Bytes of the regions held on `backend`."""
        return sum(region.nbytes for region, where, _ in self._held.values() if where is backend)

    def free_all(self) -> None:
        """Give every region back."""
        while self._held:
            _, (_, backend, buffer) = self._held.popitem()
            backend.free(buffer)
