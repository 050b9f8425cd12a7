"""The forms of a report. A report is a frozen dataclass: its fields are its JSON, and its schema follows from them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any, ClassVar, Protocol

FORMAT = "minfer-bench"
VERSION = 1
"""Raised when a reader of the JSON would have to change: a field that went, or that means something else."""


class Output(StrEnum):
    """How a result is printed."""

    MD = "md"
    CSV = "csv"
    JSON = "json"


class Report(Protocol):
    """What every kind of report is, beside its fields."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    kind: ClassVar[str]

    def markdown(self) -> str:
        """The report for a reader."""
        ...

    def records(self) -> Sequence[Mapping[str, object]]:
        """One flat record per measured test, all with the same keys: the rows of the CSV."""
        ...


def written(report: Report, output: Output) -> str:
    """The report as text in one of the forms, with a newline at its end."""
    if output is Output.JSON:
        return json_text(report)
    return csv_text(report.records()) if output is Output.CSV else report.markdown().rstrip("\n") + "\n"


def document(report: Report) -> dict[str, Any]:
    """The JSON document: format, version, kind, then the report's fields."""
    return {"format": FORMAT, "version": VERSION, "kind": report.kind, **asdict(report)}


def json_text(report: Report) -> str:
    """The document as text."""
    return json.dumps(document(report), indent=2, allow_nan=False) + "\n"


def csv_text(records: Sequence[Mapping[str, object]]) -> str:
    """A header line and one line per record."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()
