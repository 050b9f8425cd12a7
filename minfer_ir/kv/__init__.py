"""The KV cell store: reservations, the resolver from positions to cells, and attention windows."""

from minfer_ir.kv.spans import KvError, Span
from minfer_ir.kv.store import ArenaStats, KvStore, Reservation
from minfer_ir.kv.windows import (
    WINDOWS,
    causal_window,
    check_grouped,
    map_window,
    narrowest_window,
    span_window,
)

__all__ = [
    "WINDOWS",
    "ArenaStats",
    "KvError",
    "KvStore",
    "Reservation",
    "Span",
    "causal_window",
    "check_grouped",
    "map_window",
    "narrowest_window",
    "span_window",
]
