"""The Backend protocol: what a device must offer to take part in a plan.

Ids are append-only: a buffer or weight id is never reused for something else, so a stale reference is caught
instead of reading another tensor's bytes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from minfer_ir.formats.base import Bytes, Format
from minfer_ir.graph import Graph, Node
from minfer_ir.opspec import Array
from minfer_ir.runtime.probe import Probe
from minfer_ir.types import Shape, Strides, TensorType


class BackendError(RuntimeError):
    """A backend can't do what was asked; the message has the actual values."""


class NonFiniteWeightError(BackendError):
    """A weight that a backend was to take in has a scale, or a value, that is NaN or infinite."""

    def __init__(self, key: str) -> None:
        super().__init__(f"weight {key}: a scale (or value) is NaN or infinite")


@dataclass(frozen=True, slots=True)
class BufRef:
    """A window of a backend's buffer: `length` bytes from `offset`, walked with byte `strides`."""

    buffer: int
    offset: int
    length: int
    strides: Strides


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend is able to do, as data.

    `activation_formats` maps a weight format's name to the activation type its matmul reads ("f32" when it
    reads floats): legalization inserts `quantize_act` from it. `layouts`: which operand strides its kernels
    walk: "any", "rows" (axis 0 with any stride, the rest contiguous) or "contiguous". `window_modes`: attention
    windows that it can walk. `weight_concat`: it can stack weights into one. `checks_weights`: taking a weight in, it
    raises NonFiniteWeightError for what isn't finite, so that nobody need look beforehand. `one_weight_form`: it keeps
    a weight the same way whatever reads it, so that graphs with other readers share it. `most_quantized_rows`: products
    of larger row buckets read floats, whatever the weight. `half_products_from`: in row buckets from this size on,
    products of float32 activations round activations and weights to float16, and sum in float32, but not where the
    weights are F32 or BF16. `half_attention_from`: likewise attention, over cells that aren't float32.
    """

    activation_formats: Mapping[str, str]
    kv_types: tuple[str, ...]
    window_modes: tuple[str, ...]
    layouts: Literal["any", "rows", "contiguous"] = "rows"
    weight_concat: bool = False
    checks_weights: bool = False
    most_quantized_rows: int | None = None
    half_products_from: int | None = None
    half_attention_from: int | None = None
    one_weight_form: bool = False


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Bytes on the device, as one of three outcomes: reported, failed, or there is nothing to ask.

    `available` is None unless it was reported, which is not the same as zero. `failure` is what a query failed with.
    """

    total: int | None
    available: int | None
    failure: str | None = None

    @property
    def outcome(self) -> Literal["reported", "failed", "no device"]:
        """Which of the three it is."""
        if self.failure is not None:
            return "failed"
        return "no device" if self.available is None else "reported"


LAUNCH_GROUPS = ("fused_qkv", "fused_norm", "fused_attention")
"""Switches of groups: runs of nodes, which stay, that a backend with kernels for them serves with one launch each."""


@dataclass(frozen=True, slots=True)
class Split:
    """A run of consecutive nodes on one backend.

    `reads` are values that another backend computed, `groups_off` the launch groups that it isn't to form. `lasting`:
    (node, later node) for every node whose operands are still read while the later one's result is written.
    """

    index: int
    backend: str
    nodes: tuple[int, ...]
    reads: tuple[int, ...]
    groups_off: frozenset[str] = frozenset()
    lasting: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Binding:
    """Where every value of a split lies: node id to buffer window, weights by node id to weight id."""

    values: Mapping[int, BufRef]
    weights: Mapping[int, int]
    n_rows: BufRef
    """The int32 pair (token rows, output rows) of the step."""
    scratch: BufRef | None = None
    """What a backend that `UsesScratch` has its programs write to beside values; None where nobody planned it."""


class Program(Protocol):
    """A compiled split."""

    def run(self) -> None:
        """Run every node once over the current contents of the buffers."""
        ...

    def run_node(self, node_id: int) -> None:
        """Run one node of the split; running them all in order equals `run`."""
        ...

    def listing(self, nodes: Container[int] | None = None) -> Sequence[str]:
        """The program as readable lines, for the lowered dump; `nodes` keeps what belongs to these nodes."""
        ...


class Backend(Protocol):
    """A device that can run nodes."""

    @property
    def name(self) -> str:
        """The name plans refer to it by."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
        """None when it can run this op on these types, else the reason it can't."""
        ...

    def memory(self) -> MemoryInfo:
        """Total and available bytes."""
        ...

    def allocate(self, nbytes: int) -> int:
        """A new zeroed buffer, 64-byte aligned; raises BackendError when memory is out."""
        ...

    def free(self, buffer: int) -> None:
        """Give a buffer back; its id stays taken."""
        ...

    def write(self, ref: BufRef, data: Array) -> None:
        """Copy host rows into the window: `data` in storage form, as many leading rows as it has."""
        ...

    def read(self, ref: BufRef, kind: TensorType, n_rows: int | None = None, copy: bool = True) -> Array:
        """The window's value on the host in storage form; `n_rows` cuts axis 0.

        With `copy=False` a backend over host memory may give the window itself, which the next step overwrites.
        """
        ...

    def copy_cells(self, ref: BufRef, row_bytes: int, moves: Sequence[tuple[int, int, int]]) -> None:
        """Move runs of KV rows: (from cell, to cell, count) each, as if read before written."""
        ...

    def register_weight(
        self, key: str, dtype: Format, shape: Shape, parts: Sequence[Bytes], uses: frozenset[str]
    ) -> int:
        """Take in a weight (several parts are stacked along rows); `uses` are the ops that read it. Returns its id."""
        ...

    def weight_bytes(self) -> int:
        """Bytes that the registered weights, and tables made from them, occupy."""
        ...

    def weight_need(self, dtype: Format, shape: Shape, uses: frozenset[str]) -> int:
        """Bytes that `register_weight` would take."""
        ...

    def table_need(self, graph: Graph) -> int:
        """Bytes of the tables that compiling `graph` would newly make."""
        ...

    def compile(self, graph: Graph, split: Split, binding: Binding) -> Program:
        """A program for the split; raises BackendError naming the node that it can't run."""
        ...


class Pending(Protocol):
    """A copy to the host on its way."""

    def result(self) -> Array:
        """The values in storage form, once they are there; raises BackendError where they don't come."""
        ...


@runtime_checkable
class ReadsLonger(Protocol):
    """What a backend also has that writes results of some nodes while it still reads operands of nodes before them."""

    def lasting(self, graph: Graph, split: Split) -> tuple[tuple[int, int], ...]:
        """(node, later node): the first's operands must keep their bytes until the later one is done."""
        ...


@runtime_checkable
class AsyncCopies(Protocol):
    """What a backend with a queue of its own may also have: copies that the host doesn't wait for."""

    def start_read(self, ref: BufRef, kind: TensorType, n_rows: int | None = None) -> Pending:
        """As `read`, without waiting: the values are those at this point of the queue."""
        ...

    def write_all(self, writes: Sequence[tuple[BufRef, Array]]) -> None:
        """As `write` of each, together; the arrays may change at once."""
        ...


@runtime_checkable
class UsesScratch(Protocol):
    """What a backend also has whose programs write more than values: memory that they fill before they read it."""

    def scratch_need(self, graph: Graph, split: Split) -> int:
        """Bytes that a program of `split` wants at `Binding.scratch`; all programs may have the same ones."""
        ...


@runtime_checkable
class Probed(Protocol):
    """What a backend with call sites of its own also has."""

    @property
    def call_sites(self) -> tuple[str, ...]:
        """Every site that it may reach."""
        ...

    def watch(self, probe: Probe) -> None:
        """Report to `probe` from now on."""
        ...


def describe(node: Node, operands: Sequence[TensorType]) -> str:
    """Op and types of a node, for refusals."""
    types = ", ".join(f"{t.dtype.name}{list(t.shape)}" for t in operands)
    return f"{node.name}: {node.op}({types})"
