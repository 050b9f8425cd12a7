"""docs/SUPPORT-MATRIX.md: what each backend takes, op by op and type by type, from its own answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from minfer_ir.ops import OPS
from minfer_ir.opspec import Op
from minfer_ir.runtime.backend import Capabilities
from minfer_ir.testing.tolerances import tolerance_of
from minfer_ir.testing.variants import Variant, typed_variants
from minfer_ir.types import TensorType

YES = "yes"


class Supporter(Protocol):
    """The part of a Backend that the page asks."""

    @property
    def name(self) -> str:
        """The backend's name."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType], /) -> str | None:
        """None, or the reason it can't."""
        ...


@dataclass(frozen=True, slots=True)
class Column:
    """A Supporter from its parts, where making the backend would start threads or need a device."""

    name: str
    capabilities: Capabilities
    why_not: Callable[[str, Any, TensorType, Sequence[TensorType]], str | None]

    def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType], /) -> str | None:
        """None, or the reason it can't."""
        return self.why_not(op, attrs, out, operands)


def support_matrix_text(backends: Sequence[Supporter], note: Sequence[str] = ()) -> str:
    """The page as markdown: capabilities, a row per op, and a table by type for ops that take several.

    `note` is a paragraph of lines on how the backends were asked.
    """
    about = [*note, ""] if note else []
    lines = [*_HEADER, *about, "## Backends", "", *_capability_table(backends), "", "## Ops", "", *_op_table(backends)]
    for op in _computed():
        if len(_by_types(op)) > 1:
            lines += ["", f"### {op.name}", "", op.doc, "", *_type_table(op, backends)]
    return "\n".join(lines) + "\n"


_HEADER = (
    "<!-- Generated from the op declarations and the backends by `python -m tools.generate`. -->",
    "# Support matrix",
    "",
    "What each backend answers when it is asked whether it takes an op on some types; where it refuses, the reason is",
    "its own. Lower-case types are computed values, upper-case ones are stored blocks: weights, and activations",
    "in 8-bit blocks. `minfer_ir.testing.op_matrix` runs every cell that says yes and holds it to the op's numpy",
    "reference within the tolerance class named here (`minfer_ir/testing/tolerances.py` declares them).",
    "",
)


def _computed() -> Iterator[Op]:
    return (op for op in OPS.values() if op.effect != "leaf")


def _capability_table(backends: Sequence[Supporter]) -> Iterator[str]:
    yield from _table_head(["", *(b.name for b in backends)])
    rows: dict[str, Callable[[Capabilities], str]] = {
        "KV cells": lambda c: ", ".join(c.kv_types),
        "attention windows": lambda c: ", ".join(c.window_modes),
        "operand strides": lambda c: {"rows": "axis 0 any, the rest contiguous"}.get(c.layouts, c.layouts),
        "stacked weights": lambda c: YES if c.weight_concat else "no",
        "activations of a matmul": _activations,
        "rounded to float16": _halves,
    }
    for title, text in rows.items():
        yield _row([title, *(text(b.capabilities) for b in backends)])


def _activations(capabilities: Capabilities) -> str:
    by_format: dict[str, list[str]] = {}
    for weight, activation in capabilities.activation_formats.items():
        by_format.setdefault(activation, []).append(weight)
    text = "; ".join(f"{activation} for {', '.join(weights)}" for activation, weights in by_format.items())
    most = capabilities.most_quantized_rows
    return text if most is None else f"{text}; f32 for all in row buckets of more than {most}"


def _halves(capabilities: Capabilities) -> str:
    from_rows = {"products of f32": capabilities.half_products_from, "attention": capabilities.half_attention_from}
    said = [f"{what} in row buckets from {least}" for what, least in from_rows.items() if least is not None]
    return "; ".join(said) or "nothing"


def _op_table(backends: Sequence[Supporter]) -> Iterator[str]:
    yield from _table_head(["op", "what it does", "tolerance", *(b.name for b in backends)])
    for op in _computed():
        cells = [_summary(op, b) for b in backends]
        yield _row([f"`{op.name}`", op.doc, tolerance_of(op.name).name, *cells])


def _summary(op: Op, backend: Supporter) -> str:
    answers = [_answer(group, backend) for group in _by_types(op).values()]
    if len(set(answers)) == 1:
        return answers[0]
    return f"{sum(a == YES for a in answers)} of {len(answers)} type combinations, below"


def _type_table(op: Op, backends: Sequence[Supporter]) -> Iterator[str]:
    slots = [slot.name for slot in op.operands]
    yield from _table_head([*slots, "result", *(b.name for b in backends)])
    for (*types, result), group in _by_types(op).items():
        padded = [*types, *("-" for _ in slots[len(types) :]), result]
        yield _row([*padded, *(_answer(group, b) for b in backends)])


def _by_types(op: Op) -> dict[tuple[str, ...], list[Variant]]:
    groups: dict[tuple[str, ...], list[Variant]] = {}
    for variant in typed_variants(op):
        types = (*(kind.dtype.name for kind in variant.operands), variant.out.dtype.name)
        groups.setdefault(types, []).append(variant)
    return groups


def _answer(group: Sequence[Variant], backend: Supporter) -> str:
    """yes, the reason, or where cases of one type combination differ, which of them are refused and why."""
    reasons = {v.label: backend.supports(v.op.name, v.attrs, v.out, v.operands) for v in group}
    refused = {label: reason for label, reason in reasons.items() if reason is not None}
    if not refused:
        return YES
    if len(refused) == len(reasons) and len(set(refused.values())) == 1:
        return f"no: {next(iter(refused.values()))}"
    return "partly: " + "; ".join(f"{label}: {reason}" for label, reason in refused.items())


def _table_head(titles: Sequence[str]) -> Iterator[str]:
    yield _row(titles)
    yield _row(["---"] * len(titles))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"
