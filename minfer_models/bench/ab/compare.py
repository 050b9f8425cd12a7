"""Measure two sides in turns and find out what else differs between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from minfer_models.bench.ab.local import LocalSide
from minfer_models.bench.ab.plans import PlanDiff, PlanListing
from minfer_models.bench.ab.remote import RemoteSide
from minfer_models.bench.ab.report import AbReport, Compared, SideRecord
from minfer_models.bench.ab.settings import AT_RUN_TIME, CHANGES_BITS
from minfer_models.bench.ab.tokens import Agreement, Promise
from minfer_models.bench.ab.worktrees import THIS_TREE, checked_out, commit_of
from minfer_models.bench.conditions import Conditions
from minfer_models.bench.loading import EngineChoices, context_of
from minfer_models.bench.rounds import Rounds, Turn, matched_rounds
from minfer_models.bench.runner import Continuation
from minfer_models.bench.sides import Side
from minfer_models.bench.source import ROOT, Source
from minfer_models.bench.workload import BenchError, Workload, require_room
from minfer_models.cli.progress import Progress

N_GREEDY = 64
"""Tokens that both sides continue the prompt with."""


class AbSide(Side, Protocol):
    """An engine of ours that can be compared with another one, in this process or in its own."""

    source: Source
    settings: dict[str, Any]
    fusions: list[str]
    load_seconds: float
    n_ctx: int
    chunk: int

    def continuation(self, n_prompt: int, n_tokens: int) -> Continuation:
        """Greedy tokens behind a fixed prompt."""
        ...

    def plan(self, rows: int) -> list[str] | None:
        """The listing of a forward over `rows` rows; None where that revision can't say."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """A side as it was asked for. `revision` None: the tree as it is, in this process unless the other side has one."""

    name: str
    revision: str | None
    choices: EngineChoices


def compare(
    path: Path,
    requests: tuple[Request, Request],
    tests: Sequence[Workload],
    rounds: int,
    progress: Progress,
    root: Path = ROOT,
) -> AbReport:
    """Both sides of every test in matched rounds, and what differs between them; `root` is the checkout of revisions.

    Raises BenchError for sides that are the same, that run the same plan in the same way, or that a test doesn't fit.
    """
    for request in requests:
        require_room(tests, context_of(path, request.choices))
    commits = [None if r.revision in (None, THIS_TREE) else commit_of(r.revision or "", root) for r in requests]
    if commits[0] == commits[1] and requests[0].choices == requests[1].choices:
        raise BenchError("the two sides are the same: --a, --b, --a-ref and --b-ref name what differs")
    conditions = Conditions.here(path)
    with ExitStack() as stack:
        # once a side names a revision, each runs in its own process, so that they differ in nothing else
        trees = root if any(request.revision is not None for request in requests) else None
        opened = (_opened(path, r, c, trees, progress) for r, c in zip(requests, commits, strict=True))
        a, b = (stack.enter_context(side) for side in opened)
        return _compared(conditions, requests, (a, b), tests, rounds, progress)


@contextmanager
def _opened(
    path: Path, request: Request, commit: str | None, root: Path | None, progress: Progress
) -> Iterator[AbSide]:
    """A side, in its own process over `root` or a worktree of it; in this one when there is no `root`."""
    called = f"side {request.name}" + (f" ({request.revision or THIS_TREE})" if root else "")
    progress.show(f"loading {called}")
    with ExitStack() as stack:
        if root is not None:
            tree = root if commit is None else stack.enter_context(checked_out(commit, root))
            side: AbSide = RemoteSide(request.name, tree, request.revision or THIS_TREE, path, request.choices)
        else:
            side = LocalSide(request.name, path, request.choices, progress)
        stack.callback(side.close)
        yield side


def _compared(
    conditions: Conditions,
    requests: Sequence[Request],
    sides: tuple[AbSide, AbSide],
    tests: Sequence[Workload],
    rounds: int,
    progress: Progress,
) -> AbReport:
    a, b = sides
    progress.show("comparing the plans")
    changed = {name for name in a.settings if name in b.settings and a.settings[name] != b.settings[name]}
    plans = _plan_diffs(a, b, tests)
    if a.source == b.source:
        _refuse_equal(a, changed, plans)
    progress.show(f"comparing {N_GREEDY} greedy tokens")
    agreement = _agreement(a, b, tests, _promise(requests, sides, changed))
    measured = [_rounds(sides, test, rounds, progress) for test in tests]
    return AbReport(
        conditions=conditions,
        sides=tuple(SideRecord.of(s, r.revision) for s, r in zip(sides, requests, strict=True)),
        results=tuple(Compared.of(r) for r in measured),
        settings_that_differ=tuple(sorted(changed)),
        plans=plans,
        agreement=agreement,
    )


def _refuse_equal(side: AbSide, changed: set[str], plans: Sequence[PlanDiff]) -> None:
    """Two sides of one source must differ in a plan, or in who runs it."""
    if not changed:
        settings = ", ".join(f"{name} {value}" for name, value in side.settings.items())
        raise BenchError(f"both sides come to the same source, {side.source}, and settings: {settings}")
    if changed & AT_RUN_TIME or not all(plan.equal for plan in plans):
        return
    raise BenchError(
        f"both sides run equal plans ({', '.join(plan.forward for plan in plans)}): "
        f"{', '.join(sorted(changed))} changes nothing about these tests of this model"
    )


def _plan_diffs(a: AbSide, b: AbSide, tests: Sequence[Workload]) -> tuple[PlanDiff, ...]:
    """One per kind of forward that the tests run; none where a side can't list its plans."""
    forwards: dict[tuple[int, int], list[str]] = {}
    for test in tests:
        rows = tuple(1 if test.phase == "tg" else min(test.tokens, side.chunk) for side in (a, b))
        forwards.setdefault((rows[0], rows[1]), []).append(test.name)
    found: list[PlanDiff] = []
    for (a_rows, b_rows), names in forwards.items():
        listings = a.plan(a_rows), b.plan(b_rows)
        if listings[0] is None or listings[1] is None:
            return ()
        rows_text = f"{a_rows}" if a_rows == b_rows else f"{a_rows} -> {b_rows}"
        name = f"{', '.join(names)} ({rows_text} row{'' if (a_rows, b_rows) == (1, 1) else 's'} a forward)"
        found.append(PlanDiff.of(name, PlanListing.read(listings[0]), PlanListing.read(listings[1])))
    return tuple(found)


def _promise(requests: Sequence[Request], sides: Sequence[AbSide], changed: set[str]) -> Promise:
    """What the sides are held to; where a revision can't say what its settings came to, what was asked for counts."""
    asked = {(request.choices.kv, request.choices.device, request.choices.gpu_layers) for request in requests}
    unknown = not all(side.settings for side in sides)
    if changed & CHANGES_BITS or (unknown and len(asked) > 1):
        return "nothing"
    return "bits" if sides[0].source == sides[1].source else "tokens"


def _agreement(a: AbSide, b: AbSide, tests: Sequence[Workload], promise: Promise) -> Agreement:
    """Behind the longest prompt that the tests read, cut to leave room for the answer."""
    room = min(a.n_ctx, b.n_ctx)
    n_tokens = min(N_GREEDY, room - 1)
    n_prompt = min(max((t.tokens for t in tests if t.phase == "pp"), default=1), room - n_tokens)
    said = a.continuation(n_prompt, n_tokens), b.continuation(n_prompt, n_tokens)
    return Agreement.of(*said, n_prompt, promise)


def _rounds(sides: Sequence[AbSide], test: Workload, rounds: int, progress: Progress) -> Rounds:
    last = ""

    def show(turn: Turn) -> None:
        nonlocal last
        if turn.samples is not None:
            last = f", last b/a {turn.samples['a'].seconds / turn.samples['b'].seconds:.3f}"
        progress.show(f"{turn.text}, side {turn.side}{last}" if turn.side else f"{turn.text}{last}")

    return matched_rounds(sides, test, rounds, show)
