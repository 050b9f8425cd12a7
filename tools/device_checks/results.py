"""Results as they come: a JSON line each, and a markdown summary that is whole at every moment."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from tools.device_checks.goals import GOALS, Goal

Status = Literal["ok", "short", "FAILED", "info"]
"""`short`: it works, and its goal isn't reached."""


@dataclass(frozen=True, slots=True)
class Against:
    """A measurement in its goal's own unit: the goal's name and target, and what was measured."""

    name: str
    target: float
    measured: float

    @property
    def of_goal(self) -> float:
        """Measured over goal; whether more or less than 1 is good, the goal says."""
        return self.measured / self.target


@dataclass(frozen=True, slots=True)
class Result:
    """One thing found out. `goal` is what was aimed at, `detail` whatever else there is to say, in a line.

    `against`: how it stands to one of GOALS.
    """

    part: str
    name: str
    status: Status
    value: float | None = None
    unit: str = ""
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    goal: str = ""
    detail: str = ""
    against: Against | None = None

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Result:
        """The inverse of `to_line`; ValueError for anything else."""
        try:
            said = json.loads(line)
            against = said.pop("against", None)
            return cls(**said, against=None if against is None else Against(**against))
        except (TypeError, AttributeError) as error:
            raise ValueError(f"no result: {line[:200]}") from error


def standing(goal: Goal | None, measured: float | None, dry: bool = False) -> tuple[Status, str, Against | None]:
    """Status, goal and standing of a result, as its fields take them; in a dry run nothing is reached or missed."""
    if goal is None:
        return "info", "", None
    if measured is None:
        return "info", goal.text, None
    status: Status = "ok" if goal.reached(measured) else "short"
    return "info" if dry else status, goal.text, Against(goal.name, goal.target, measured)


def say(result: Result) -> None:
    """From a part's process to the one that collects."""
    print(result.to_line(), flush=True)


class Report:
    """Keeps what came in `folder`: results.jsonl and summary.md."""

    def __init__(self, folder: Path, title: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.lines, self.summary = folder / "results.jsonl", folder / "summary.md"
        self.title = title
        self.results: list[Result] = []
        self._started = time.monotonic()
        self.lines.write_text("")
        self._write_summary("under way")

    def add(self, result: Result) -> None:
        """Written before this returns."""
        self.results.append(result)
        stamped = asdict(result) | {"at_s": round(time.monotonic() - self._started, 1)}
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(stamped) + "\n")
        self._write_summary("under way")
        print(shown(result), flush=True)

    def close(self, state: str = "complete") -> None:
        """Say how the run ended; until then the summary says that it is under way, so one that was killed shows."""
        self._write_summary(state)

    @property
    def failed(self) -> list[Result]:
        """What went wrong; goals that aren't reached don't count."""
        return [r for r in self.results if r.status == "FAILED"]

    def _write_summary(self, state: str) -> None:
        """Whole at every moment: put in place by a rename."""
        whole = self.summary.with_suffix(".new")
        whole.write_text("\n".join(self._markdown(state)) + "\n", encoding="utf-8")
        whole.replace(self.summary)

    def _markdown(self, state: str) -> Iterator[str]:
        counts = {s: sum(r.status == s for r in self.results) for s in ("ok", "short", "FAILED")}
        seconds = time.monotonic() - self._started
        yield f"# {self.title}"
        yield ""
        yield f"{', '.join(f'{n} {s}' for s, n in counts.items())}, after {seconds:.0f} s; {state}."
        yield from ("", "## Goals", "", "| | goal | measured | measured / goal | where |", "|" + " --- |" * 5)
        for goal in GOALS:
            yield from _goal_rows(goal, self.results)
        for part in dict.fromkeys(r.part for r in self.results):
            yield from ("", f"## {part}", "", "| | what | result | shares | goal | detail |", "|" + " --- |" * 6)
            for r in (r for r in self.results if r.part == part):
                yield _row(r.status, r.name, _value(r), _shares(r), r.goal, r.detail)


def _goal_rows(goal: Goal, results: Sequence[Result]) -> Iterator[str]:
    about = f"{goal.name}: {goal.text}"
    found = [(r, r.against) for r in results if r.against is not None and r.against.name == goal.name]
    for r, against in found:
        yield _row(r.status, about, goal.shown(against.measured), f"{against.of_goal:.3f}", f"{r.part}: {r.name}")
    if not found:
        yield _row("", about, "not measured", "", "")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"


def shown(result: Result) -> str:
    """A line for a terminal."""
    facts = [_value(result), _shares(result), result.goal and f"goal {result.goal}", result.detail]
    return f"{result.status:6} {result.part}: {result.name}: " + "; ".join(fact for fact in facts if fact)


def _value(result: Result) -> str:
    return "" if result.value is None else f"{result.value:.4g} {result.unit}".strip()


def _shares(result: Result) -> str:
    return ", ".join(f"{100 * share:.1f} % of {of}" for of, share in result.shares.items())
