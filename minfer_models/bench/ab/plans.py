"""What two lowered plans have in common and what not, from their listings, in a few lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

INSTRUCTION = re.compile(r"\s*\d+  (?P<kernel>\S+) (?P<operands>.*?)(?P<barrier> \| barrier)?(  ; (?P<label>.*))?")
REFERENCE = re.compile(r"%\d+ (?P<label>[^\s@]+)\S* = (?P<kernel>\w+)\((?P<operands>.*)\)")
STORED_WEIGHT = re.compile(r"w\d+ .* (?P<type>\S+)\[[\d, ]*\]: (?P<form>.*)")
SIZE = re.compile(r", \d+ bytes")
NUMBER = re.compile(r"-?\d[\d.e+-]*")
OPERAND = re.compile(r"(\w+)=(.*?)(?= \w+=|$)")
POOL_BUFFER = re.compile(r"@b\d+(?=\+)")
"""Which buffer of the pool: it depends on what was planned before, not on the plan."""
MOST_OPERANDS = 12


@dataclass(frozen=True, slots=True)
class Call:
    """One instruction: kernel, what it computes, its operands by name."""

    kernel: str
    label: str
    operands: tuple[tuple[str, str], ...]
    barrier: bool


@dataclass(frozen=True, slots=True)
class PlanListing:
    """A plan as its programs list it: calls in order, how weights lie, and every line that is neither."""

    calls: tuple[Call, ...]
    weights: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def read(cls, lines: Iterable[str]) -> Self:
        """Take a listing apart; lines of unknown form are kept whole."""
        calls: list[Call] = []
        weights: list[str] = []
        others: list[str] = []
        for line in lines:
            if call := INSTRUCTION.fullmatch(line) or REFERENCE.fullmatch(line):
                calls.append(_call(call.groupdict()))
            elif weight := STORED_WEIGHT.fullmatch(line):
                weights.append(f"{weight['type']}: {SIZE.sub('', weight['form'])}")
            else:
                others.append(line)
        return cls(tuple(calls), tuple(weights), tuple(others))

    @property
    def kernels(self) -> Counter[str]:
        """How often each kernel is called."""
        return Counter(call.kernel for call in self.calls)

    @property
    def barriers(self) -> int:
        """How often the threads meet."""
        return sum(call.barrier for call in self.calls)


@dataclass(frozen=True, slots=True)
class Counts:
    """How often `name` occurs on each side."""

    name: str
    a: int
    b: int


@dataclass(frozen=True, slots=True)
class OperandChange:
    """A number that differs in `calls` calls of the same kernel for the same node, with the first one's values."""

    kernel: str
    operand: str
    calls: int
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """Two plans of one forward. `equal` is about everything in the listings, the rest counts what differs.

    `operands` are at most twelve; `more_operands` counts what was left out. Operands that only lie elsewhere aren't
    among them.
    """

    forward: str
    equal: bool
    calls: Counts
    barriers: Counts
    kernels: tuple[Counts, ...]
    weights: tuple[Counts, ...]
    operands: tuple[OperandChange, ...]
    more_operands: int

    @classmethod
    def of(cls, forward: str, a: PlanListing, b: PlanListing) -> Self:
        """What differs between two listings of the same kind of forward."""
        operands = _operand_changes(a.calls, b.calls)
        return cls(
            forward=forward,
            equal=a == b,
            calls=Counts("calls", len(a.calls), len(b.calls)),
            barriers=Counts("barriers", a.barriers, b.barriers),
            kernels=_changed(a.kernels, b.kernels),
            weights=_changed(Counter(a.weights), Counter(b.weights)),
            operands=tuple(operands[:MOST_OPERANDS]),
            more_operands=max(len(operands) - MOST_OPERANDS, 0),
        )

    def lines(self) -> list[str]:
        """For a reader: the counts, then one line per difference."""
        if self.equal:
            return [f"equal plans, {self.calls.a} kernel calls"]
        head = [f"calls {_arrow(self.calls)}", f"barriers {_arrow(self.barriers)}"]
        return [
            ", ".join(head),
            *(f"  {c.name}: {_arrow(c)} calls" for c in self.kernels),
            *(f"  weights {c.name}: {_arrow(c)} of them" for c in self.weights),
            *(f"  {o.kernel} {o.operand}: {o.a} -> {o.b} in {o.calls} calls" for o in self.operands),
            *([f"  and {self.more_operands} more operands"] if self.more_operands else []),
        ]


def _call(found: Mapping[str, str | None]) -> Call:
    text = POOL_BUFFER.sub("@", found["operands"] or "")
    operands = tuple((name, value) for name, value in OPERAND.findall(text))
    return Call(found["kernel"] or "", found.get("label") or "", operands, bool(found.get("barrier")))


def _changed(a: Counter[str], b: Counter[str]) -> tuple[Counts, ...]:
    return tuple(Counts(name, a[name], b[name]) for name in dict.fromkeys([*a, *b]) if a[name] != b[name])


def _operand_changes(a: Sequence[Call], b: Sequence[Call]) -> list[OperandChange]:
    """Numbers in calls of the same kernel for the same node, most frequent first."""
    others = {(call.kernel, call.label): dict(call.operands) for call in b}
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], tuple[str, str]] = {}
    for call in a:
        there = others.get((call.kernel, call.label))
        for name, value in call.operands:
            other = value if there is None else there.get(name, value)
            if other != value and NUMBER.fullmatch(value) and NUMBER.fullmatch(other):
                counts[call.kernel, name] += 1
                examples.setdefault((call.kernel, name), (value, other))
    return [OperandChange(kernel, name, n, *examples[kernel, name]) for (kernel, name), n in counts.most_common()]


def _arrow(counts: Counts) -> str:
    return f"{counts.a} -> {counts.b}" if counts.a != counts.b else str(counts.a)
