"""Loops of machine code: basic blocks, dominators, natural loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `target`: the label that it may jump to; `falls`: whether the next one may follow."""

    opcode: str
    target: str | None = None
    falls: bool = True


@dataclass(frozen=True, slots=True)
class Code:
    """Instructions in order, and for every label the index of the instruction behind it."""

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]


def innermost_loops(code: Code) -> list[list[Instruction]]:
    """The instructions of every natural loop that no other one lies in."""
    blocks, successors = _blocks(code)
    bodies = _natural_loops(successors)
    inner = [body for body in bodies if not any(other < body for other in bodies)]
    return [[i for block in sorted(body) for i in code.instructions[slice(*blocks[block])]] for body in inner]


def _blocks(code: Code) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Ranges of straight code, and which block may follow which."""
    end = len(code.instructions)
    breaks = {i + 1 for i, one in enumerate(code.instructions) if one.target is not None or not one.falls}
    starts = sorted({0, *code.labels.values(), *breaks} - {end})
    blocks = list(zip(starts, [*starts[1:], end], strict=True))
    at = {start: index for index, start in enumerate(starts)}
    successors: list[list[int]] = []
    for index, (_, stop) in enumerate(blocks):
        last = code.instructions[stop - 1]
        jump = [] if last.target is None else [at[code.labels[last.target]]]
        successors.append([*jump, *([index + 1] if last.falls and index + 1 < len(blocks) else [])])
    return blocks, successors


def _natural_loops(successors: Sequence[Sequence[int]]) -> list[frozenset[int]]:
    """The loops' blocks; back edges to one header are one loop."""
    dominators = _dominators(successors)
    predecessors = _reversed(successors)
    loops: dict[int, set[int]] = {}
    for tail, nexts in enumerate(successors):
        for header in nexts:
            if tail in dominators and header in dominators[tail]:
                loops.setdefault(header, {header}).update(_reaching(tail, header, predecessors))
    return [frozenset(body) for body in loops.values()]


def _reaching(tail: int, header: int, predecessors: Sequence[Sequence[int]]) -> set[int]:
    """Blocks from which `tail` is reached without passing `header`."""
    body, waiting = {header}, [tail]
    while waiting:
        block = waiting.pop()
        if block not in body:
            body.add(block)
            waiting.extend(predecessors[block])
    return body


def _dominators(successors: Sequence[Sequence[int]]) -> dict[int, set[int]]:
    """For every block that is reached from the first: the blocks that every way to it passes."""
    predecessors = _reversed(successors)
    reached = _reached(successors)
    found = {block: set(reached) for block in reached} | {0: {0}}
    changed = True
    while changed:
        changed = False
        for block in sorted(reached - {0}):
            ways = [found[p] for p in predecessors[block] if p in found]
            now = set[int].intersection(*ways) | {block}
            changed |= now != found[block]
            found[block] = now
    return found


def _reached(successors: Sequence[Sequence[int]]) -> set[int]:
    seen, waiting = set[int](), [0]
    while waiting:
        block = waiting.pop()
        if block not in seen:
            seen.add(block)
            waiting.extend(successors[block])
    return seen


def _reversed(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    predecessors: list[list[int]] = [[] for _ in successors]
    for block, nexts in enumerate(successors):
        for following in nexts:
            predecessors[following].append(block)
    return predecessors
