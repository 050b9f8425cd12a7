"""One forward of a model, traced; and what it can be held against: a backend, or a trace that was stored."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from minfer_ir.graph import Node
from minfer_ir.params import DevicePlan
from minfer_ir.runtime.isolated import OnBackend, Referee, ReferenceOps, operand_values
from minfer_ir.runtime.mismatch import find_mismatch
from minfer_ir.runtime.trace import Step, ValueStats, traced
from minfer_models.backends import make_backends, plug_in_names
from minfer_models.cli.settings_view import settings_of
from minfer_models.devices import BUILT_IN, DeviceChoice, resolve_device
from minfer_models.engine import ContextError, EngineError, EngineOptions, Rows, TokenSequence
from minfer_models.engine.model import CheckedWeights
from minfer_models.llm import LLM
from minfer_models.settings import Settings

VERSION = 1


@dataclass(frozen=True, slots=True)
class TracedNode:
    """A node of a trace, by name; `type` as the printer writes it."""

    name: str
    op: str
    type: str
    block: int | None
    backend: str | None
    stats: ValueStats

    @classmethod
    def of(cls, step: Step) -> TracedNode:
        """The node of a step with its value's stats."""
        node = step.node
        return cls(node.name, node.op, str(node.type), node.block, node.backend, step.stats())


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """A trace as a file keeps it: the model's file name, all token ids, how many of them the forward held."""

    model: str
    token_ids: list[int]
    rows: int
    settings: Mapping[str, Any]
    nodes: list[TracedNode]

    def to_json(self) -> str:
        """The document, one node a line."""
        head = {"version": VERSION, "model": self.model, "token_ids": self.token_ids, "rows": self.rows}
        fields = json.dumps(head | {"settings": dict(self.settings)})
        nodes = ",\n  ".join(json.dumps(_node_json(n)) for n in self.nodes)
        return f'{fields[:-1]},\n "nodes": [\n  {nodes}\n ]}}\n'

    @classmethod
    def read(cls, path: Path) -> StoredTrace:
        """The trace in a file; raises ValueError when it isn't one."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["version"] != VERSION:
                raise ValueError(f"it has version {document['version']!r}, this minfer reads {VERSION}")
            model, rows, settings = str(document["model"]), int(document["rows"]), dict(document["settings"])
            ids = [int(i) for i in document["token_ids"]]
            return cls(model, ids, rows, settings, [_node_of(record) for record in document["nodes"]])
        except (ValueError, KeyError, TypeError) as error:
            cause = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path} isn't a trace that `minfer trace -o` wrote: {cause}") from None


def device_against(name: str) -> DeviceChoice:
    """The device called so; raises EngineError, suggesting the nearest and listing what there is."""
    known = [*BUILT_IN, *plug_in_names()]
    if name in known or name.split(":", maxsplit=1)[0] in ("cuda", "torch"):
        return resolve_device(name, plug_in_names, "--against")
    path = Path(name)
    files = [str(path.parent / p.name) for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
    nearest = get_close_matches(name, [*known, *files], n=2)
    hint = f"did you mean {' or '.join(nearest)}? " if nearest else ""
    raise EngineError(
        f"--against {name}: no device and no file is called that; {hint}devices: {', '.join(known)}, cuda, torch:DEVICE"
    )


class Forward:
    """The forward over the last `n_tokens` tokens of a prompt; those before it run first, untraced.

    None takes the last forward that the engine itself would run. `chosen` are the nodes in whose name `wanted` is
    found, in order. Raises ContextError when the prompt doesn't fit, EngineError for more tokens than the prompt or a
    forward has, or when no node is chosen.
    """

    def __init__(self, llm: LLM, prompt: str, n_tokens: int | None, wanted: re.Pattern[str] | None = None) -> None:
        engine = llm.engine
        self.llm, self.token_ids = llm, llm.tokenizer.encode(prompt, add_bos=None)
        count = len(self.token_ids)
        if not count:
            raise EngineError("the prompt is empty: there is nothing to trace")
        if count > engine.n_ctx:
            raise ContextError(f"the prompt's {count} tokens exceed the available context size of {engine.n_ctx}")
        self.rows = n_tokens if n_tokens is not None else (count - 1) % engine.chunk + 1
        if not self.rows <= min(count, engine.chunk):
            most = min(count, engine.chunk)
            raise EngineError(f"--n-tokens is {self.rows}, but the prompt and a forward have at most {most}")
        sequence = TokenSequence(engine, count)
        if count > self.rows:
            sequence.feed(self.token_ids[: -self.rows])
        rows = Rows.of(sequence.id, self.token_ids[-self.rows :], count - self.rows)
        params, self.inputs = engine.prepare(rows, "last")
        self.executable = engine.executable(params)
        self.wanted, self.chosen = wanted, self._chosen(wanted)

    def steps(self, keep_operands: bool) -> Iterator[Step]:
        """The forward's chosen nodes, one by one."""
        chosen = {node.id for node in self.chosen}
        return (s for s in traced(self.executable, self.inputs, keep_operands) if s.node.id in chosen)

    def stored(self, nodes: list[TracedNode]) -> StoredTrace:
        """What a file keeps of it."""
        name = self.llm.engine.model.file.path.name
        return StoredTrace(name, self.token_ids, self.rows, settings_of(self.llm), nodes)

    def _chosen(self, wanted: re.Pattern[str] | None) -> list[Node]:
        graph = self.executable.graph
        run = [graph[i] for split in self.executable.splits for i in split.nodes]
        chosen = run if wanted is None else [n for n in run if wanted.search(n.name)]
        if not chosen and wanted is not None:
            nearest = get_close_matches(wanted.pattern, [n.name for n in run], n=3, cutoff=0.4)
            hint = f"; did you mean {', '.join(nearest)}?" if nearest else ""
            raise EngineError(f"--node {wanted.pattern}: none of the plan's {len(run)} nodes is called that{hint}")
        return chosen


class Check(Protocol):
    """Holds each step of a forward against something."""

    @property
    def needs_operands(self) -> bool:
        """Whether steps must carry what their node read."""
        ...

    def difference(self, step: Step, node: TracedNode) -> str | None:
        """None when the step is as it should be, else the report."""
        ...

    def summary(self) -> str:
        """What was found when nothing differed."""
        ...


class AgainstBackend:
    """Each node alone, on the operands it really got: by the ops' references for `numpy`, else on that backend."""

    needs_operands = True

    def __init__(self, name: str, forward: Forward, settings: Settings) -> None:
        self._name, self._graph = name, forward.executable.graph
        self._traced = "/".join(dict.fromkeys(s.backend for s in forward.executable.splits))
        self._weights = CheckedWeights(forward.llm.engine.model.file)
        self._checked = 0
        self._skipped: Counter[str] = Counter()
        self._referee: Referee = ReferenceOps(self._graph)
        if name != "numpy":
            choice = device_against(name)
            plan = DevicePlan((choice.backend,))
            options = EngineOptions(devices=plan, threads=settings.threads, isa=settings.isa, place=choice.place)
            backend = make_backends(options, settings)[0]
            self._referee = OnBackend(self._graph, self._weights, backend, forward.inputs)

    def difference(self, step: Step, node: TracedNode) -> str | None:
        """The report on a node that isn't within its op's tolerance class."""
        values = operand_values(self._graph, step, self._weights)
        expected = self._referee.expected(step, values)
        if isinstance(expected, str):
            self._skipped[f"{step.node.op}: {expected}"] += 1
            return None
        self._checked += 1
        found = find_mismatch(self._graph, step, values, expected, self._weights)
        return None if found is None else found.text(self._traced, self._name)

    def summary(self) -> str:
        """How many nodes agreed, and which weren't checked."""
        skipped = "".join(f"\n{count} not checked, {reason}" for reason, count in self._skipped.items())
        return f"{self._checked} nodes agree with {self._name}, each within its op's tolerance class{skipped}"


class AgainstFile:
    """Hashes of a stored trace, node by node by name. Raises ValueError for a trace of other tokens."""

    needs_operands = False

    def __init__(self, path: Path, stored: StoredTrace, forward: Forward) -> None:
        if (stored.token_ids, stored.rows) != (forward.token_ids, forward.rows):
            raise ValueError(
                f"{path} is a trace of {stored.rows} of the tokens {stored.token_ids}, "
                f"this one is of {forward.rows} of {forward.token_ids}: there is nothing to compare"
            )
        self._path = path
        wanted = forward.wanted
        self._nodes = {n.name: n for n in stored.nodes if wanted is None or wanted.search(n.name)}
        self._equal, self._only_here = 0, 0
        now, then = settings_of(forward.llm), stored.settings
        self._changes = [f"{k}: {then.get(k)} there, {v} here" for k, v in now.items() if then.get(k) != v]
        if stored.model != forward.llm.engine.model.file.path.name:
            self._changes.insert(0, f"model: {stored.model} there, {forward.llm.engine.model.file.path.name} here")

    def difference(self, step: Step, node: TracedNode) -> str | None:
        """The report on the first node with another hash or type; nodes that only one side has are counted."""
        other = self._nodes.pop(node.name, None)
        if other is None:
            self._only_here += 1
            return None
        if (other.stats.hash, other.type) == (node.stats.hash, node.type):
            self._equal += 1
            return None
        return "\n".join(
            [
                f"{step.node} ({node.op}) differs from {self._path}",
                f"  here   {node.type}  {node.stats}",
                f"  there  {other.type}  {other.stats}",
                *(f"  setting that differs: {change}" for change in self._changes),
            ]
        )

    def summary(self) -> str:
        """How many nodes were equal, and how many only one side has."""
        lines = [f"{self._equal} nodes have the same bits as in {self._path}"]
        if self._only_here or self._nodes:
            lines.append(f"{self._only_here} nodes are only here and {len(self._nodes)} only there, uncompared")
            lines += [f"setting that differs: {change}" for change in self._changes]
        return "\n".join(lines)


def check_of(
    forward: Forward, against: str | None, stored: StoredTrace | None, settings: Settings
) -> AgainstFile | AgainstBackend | None:
    """What `--against` names, a stored trace or a backend, to hold `forward` against; None for nothing."""
    if against is None:
        return None
    return AgainstBackend(against, forward, settings) if stored is None else AgainstFile(Path(against), stored, forward)


def _node_json(node: TracedNode) -> dict[str, Any]:
    fields = {"name": node.name, "op": node.op, "type": node.type, "block": node.block, "backend": node.backend}
    return fields | {"stats": node.stats.to_json()}


def _node_of(record: Mapping[str, Any]) -> TracedNode:
    fields = {name: record[name] for name in ("name", "op", "type", "block", "backend")}
    return TracedNode(**fields, stats=ValueStats.from_json(record["stats"]))
