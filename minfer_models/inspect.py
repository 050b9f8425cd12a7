"""What a model file holds and what running it will need, without reading a weight."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minfer_ir.graph import Graph, Node
from minfer_ir.memory.pools import Pool
from minfer_ir.ops.fused_rope import plain_rope
from minfer_ir.ops.rope import RopeAttrs
from minfer_ir.passes.base import Lowering
from minfer_ir.passes.pipeline import lower
from minfer_ir.runtime.backend import Backend
from minfer_ir.runtime.resources import Resources
from minfer_models.arch.config import ModelConfig
from minfer_models.backends import make_backends
from minfer_models.chat.template import TEMPLATE_KEY
from minfer_models.engine import EngineOptions, Model
from minfer_models.engine.model import CheckedWeights
from minfer_models.gguf import GGUFError, GGUFFile, StringArray
from minfer_models.plain_text import printable
from minfer_models.settings import Settings
from minfer_models.tokenizer import Tokenizer, TokenizerError

SHOWN_ELEMENTS = 4
SHOWN_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """One metadata value: its GGUF type in words, and the value with long strings and arrays shortened."""

    key: str
    type: str
    value: Any

    def __str__(self) -> str:
        if isinstance(self.value, dict):
            first = ", ".join(map(_shown, self.value["first"]))
            return f"[{first}]" if self.value["n"] <= SHOWN_ELEMENTS else f"[{first}, ... {self.value['n']} in all]"
        return _shown(self.value)


@dataclass(frozen=True, slots=True)
class TypeTotal:
    """All tensors of one type; sizes in bytes."""

    type: str
    tensors: int
    elements: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes on the CPU with an empty context of `n_ctx` tokens: packed weights and tables, KV cells, compute pool.

    The pool holds forwards of every number of rows in `rows`: a decoded token, and a whole chunk of a prompt.
    """

    n_ctx: int
    kv_type: str
    weights: int
    kv: int
    pool: int
    rows: tuple[int, ...]

    @property
    def total(self) -> int:
        """Everything together."""
        return self.weights + self.kv + self.pool


@dataclass(frozen=True, slots=True)
class FileSummary:
    """A file as `minfer inspect` shows it.

    `reasons` say why it can't be run even when it's whole; empty when it can. `memory` is None when its sizes aren't
    known. `chat` says whether it brings a chat template.
    """

    file: GGUFFile
    metadata: list[Entry]
    types: list[TypeTotal]
    config: ModelConfig | None
    reasons: list[str]
    memory: MemoryNeed | None
    chat: bool

    @property
    def incomplete(self) -> bool:
        """Whether bytes or shards are missing."""
        return any(problem.incomplete for problem in self.file.problems)


def summarize(file: GGUFFile, options: EngineOptions, settings: Settings) -> FileSummary:
    """Look a file over, opened with `allow_incomplete`. Raises EngineError for options that the model can't have."""
    model, reasons = _model(file)
    try:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        if model is not None:
            model.check_vocabulary(tokenizer.n_vocab)
    except (TokenizerError, GGUFError) as error:
        reasons.append(str(error))
    reasons += [str(problem) for problem in file.problems if not problem.incomplete]
    return FileSummary(
        file=file,
        metadata=[Entry(k, t.type_name, _plain(t.value)) for k, t in file.metadata.typed_items()],
        types=_by_type(file),
        config=None if model is None else model.config,
        reasons=reasons,
        memory=None if model is None else memory_need(model, options, settings),
        chat=TEMPLATE_KEY in file.metadata,
    )


def memory_need(model: Model, options: EngineOptions, settings: Settings) -> MemoryNeed:
    """What an engine holds once it has decoded a token and filled a whole chunk.

    Lowers both forwards up to the memory plan; the pool is mapped as an engine maps it, over buffers that don't exist.
    """
    backends = make_backends(options, settings)
    resources = Resources(backends, CheckedWeights(model.file))
    rows = (1, options.most_rows(model.config))
    plans = [lower(options.params(model.config, n), model.graph, resources, stop_after="allocate") for n in rows]
    backend = options.devices.order[0]
    pool = Pool(_NoMemory(backend))
    for plan in plans:
        pool.reserve(_memory(plan).sizes(backend))
    return MemoryNeed(
        n_ctx=plans[0].params.n_ctx,
        kv_type=options.kv_type,
        weights=_weights_and_tables(backends[0], (plan.graph for plan in plans)),
        kv=_memory(plans[0]).region_bytes(backend),
        pool=pool.nbytes,
        rows=rows,
    )


class _NoMemory:
    """Hands out buffer ids and no memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._next = 0

    def allocate(self, nbytes: int) -> int:
        self._next += 1
        return self._next

    def free(self, buffer: int) -> None:
        pass


def _memory(state: Lowering) -> Any:
    assert state.memory is not None
    return state.memory


def _weights_and_tables(holder: Backend, graphs: Iterable[Graph]) -> int:
    """Bytes of every weight in the forms that its readers need, and of every table of angles, each once."""
    weights: dict[Any, int] = {}
    tables: dict[Any, int] = {}
    for graph in graphs:
        for node in graph:
            if node.op in ("weight", "weight_concat"):
                uses = frozenset(graph[u].op for u in graph.users[node.id])
                weights[node.name, uses] = holder.weight_need(node.attrs.dtype, node.type.shape, uses)
            elif isinstance(node.attrs, RopeAttrs):
                tables[_table_key(graph, node)] = 4 * node.attrs.max_positions * node.attrs.dims
    return sum(weights.values()) + sum(tables.values())


def _table_key(graph: Graph, node: Node) -> Any:
    """Ops that rotate alike share a table, whatever else they do."""
    factors = dict(node.operands(graph)).get("factors")
    return plain_rope(node.attrs), None if factors is None else factors.name


def _model(file: GGUFFile) -> tuple[Model | None, list[str]]:
    try:
        return Model.of(file), []
    except GGUFError as error:
        return None, [str(error)]


def _by_type(file: GGUFFile) -> list[TypeTotal]:
    names = dict.fromkeys(info.type_name for info in file.tensors.values())
    totals = []
    for name in names:
        infos = [info for info in file.tensors.values() if info.type_name == name]
        elements = sum(info.n_elements for info in infos)
        totals.append(TypeTotal(name, len(infos), elements, sum(info.nbytes for info in infos)))
    return sorted(totals, key=lambda total: -total.nbytes)


def _plain(value: Any) -> Any:
    """A value that JSON takes; of an array its length and first elements."""
    if isinstance(value, StringArray | np.ndarray):
        first = value[:SHOWN_ELEMENTS]
        return {"n": len(value), "first": [_cut(v) for v in (first if isinstance(first, list) else first.tolist())]}
    return _cut(value)


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS:
        return f"{value[:SHOWN_CHARACTERS]}... ({len(value)} characters)"
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def _shown(value: Any) -> str:
    return printable(value) if isinstance(value, str) else str(value)
