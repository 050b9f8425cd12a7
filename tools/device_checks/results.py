"""Results as they come: a JSON line each, and a markdown summary that is whole at every moment."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

Status = Literal["ok", "short", "FAILED", "info"]
"""`short`: it works, and its goal isn't reached."""


@dataclass(frozen=True, slots=True)
class Result:
    """One thing found out. `goal` is what was aimed at, `detail` whatever else there is to say, in a line."""

    part: str
    name: str
    status: Status
    value: float | None = None
    unit: str = ""
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    goal: str = ""
    detail: str = ""

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Result:
        """The inverse of `to_line`; ValueError for anything else."""
        try:
            return cls(**json.loads(line))
        except TypeError as error:
            raise ValueError(f"no result: {line[:200]}") from error


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

    def add(self, result: Result) -> None:
        """Written before this returns."""
        self.results.append(result)
        stamped = asdict(result) | {"at_s": round(time.monotonic() - self._started, 1)}
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(stamped) + "\n")
        self.summary.write_text("\n".join(self._markdown()) + "\n", encoding="utf-8")
        print(shown(result), flush=True)

    @property
    def failed(self) -> list[Result]:
        """What went wrong; goals that aren't reached don't count."""
        return [r for r in self.results if r.status == "FAILED"]

    def _markdown(self) -> Iterator[str]:
        counts = {s: sum(r.status == s for r in self.results) for s in ("ok", "short", "FAILED")}
        yield f"# {self.title}"
        yield ""
        seconds = time.monotonic() - self._started
        yield f"{', '.join(f'{n} {s}' for s, n in counts.items())}, after {seconds:.0f} s."
        for part in dict.fromkeys(r.part for r in self.results):
            yield from ("", f"## {part}", "", "| | what | result | shares | goal | detail |", "|" + " --- |" * 6)
            for r in (r for r in self.results if r.part == part):
                cells = (r.status, r.name, _value(r), _shares(r), r.goal, r.detail)
                yield f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"


def shown(result: Result) -> str:
    """A line for a terminal."""
    facts = [_value(result), _shares(result), result.goal and f"goal {result.goal}", result.detail]
    return f"{result.status:6} {result.part}: {result.name}: " + "; ".join(fact for fact in facts if fact)


def _value(result: Result) -> str:
    return "" if result.value is None else f"{result.value:.4g} {result.unit}".strip()


def _shares(result: Result) -> str:
    return ", ".join(f"{100 * share:.1f} % of {of}" for of, share in result.shares.items())
