"""A timeline as a Chrome trace: what Perfetto (ui.perfetto.dev) opens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from minfer_kernels.cpu.runner.timing import TapeTimes
from minfer_models.bench.roofline.attribution import Spans
from minfer_models.bench.roofline.steps import Forward, program_of

MOST_FORWARDS = 8
"""Forwards of a phase that are drawn: a viewer's patience with a token more of the same is short."""
SHORTEST_WAIT = 0.2e-6
"""Seconds; a shorter gap between two instructions is the walker's own step, not a barrier."""

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Track:
    """A phase under its title, with its forwards in order."""

    title: str
    forwards: tuple[tuple[Forward[TapeTimes], Spans], ...]


def timeline(tracks: Sequence[Track]) -> str:
    """The trace: a process per phase, a track per thread, and one for Python; times in microseconds."""
    events = [event for pid, track in enumerate(tracks, 1) for event in _phase(pid, track)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":"))


def _phase(pid: int, track: Track) -> Iterator[Event]:
    forwards = track.forwards[:MOST_FORWARDS]
    origin, n_threads = forwards[0][0].began, len(forwards[0][1].enter)
    yield _named("process_name", pid, 0, track.title)
    yield _named("thread_name", pid, 0, "python")
    for thread in range(n_threads):
        yield _named("thread_name", pid, thread + 1, f"thread {thread}")
    for forward, spans in forwards:
        rows, depth = int(forward.inputs["n_rows"][0]), int(forward.inputs["positions"][0])
        yield _span("forward", "python", pid, 0, (forward.began - origin, forward.ended - origin),
                    {"rows": rows, "position": depth})  # fmt: skip
        yield _span("program", "python", pid, 0, (forward.times.began - origin, forward.times.ended - origin), {})
        yield from _instructions(pid, forward, spans, origin)


def _instructions(pid: int, forward: Forward[TapeTimes], spans: Spans, origin: float) -> Iterator[Event]:
    graph, program = forward.executable.graph, program_of(forward.executable)
    nodes = {i: graph[node] for node, (first, stop) in program.spans.items() for i in range(first, stop)}
    for index, instruction in enumerate(program.tape.instructions):
        node = nodes[index]
        about = {"kernel": instruction.kernel, "node": node.id, "shape": str(node.type), "block": node.block}
        for thread in range(len(spans.enter)):
            enter, leave, onward = (float(t[thread, index]) - origin for t in (spans.enter, spans.leave, spans.onward))
            yield _span(instruction.label or instruction.kernel, node.op, pid, thread + 1, (enter, leave), about)
            if instruction.barrier and onward - leave > SHORTEST_WAIT:
                yield _span("barrier", "barrier", pid, thread + 1, (leave, onward), {})


def _span(name: str, category: str, pid: int, tid: int, span: tuple[float, float], args: dict[str, Any]) -> Event:
    start, end = (round(1e6 * t, 3) for t in span)
    timed = {"ts": start, "dur": round(max(end - start, 0.0), 3)}
    return {"name": name, "cat": category, "ph": "X", "pid": pid, "tid": tid, **timed, "args": args}


def _named(what: str, pid: int, tid: int, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
