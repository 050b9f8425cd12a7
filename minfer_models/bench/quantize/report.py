"""The result of `minfer-bench quantize`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.report.markdown import MIB, facts, settings_text, table
from minfer_models.scoring import Comparison, Estimate


@dataclass(frozen=True, slots=True)
class TypeResult:
    """A file of one type against the model that it was made of.

    bytes: of the file. fallbacks: matrices whose rows didn't fit the type that they should have had. comparison: over
    the text, the model itself as the reference.
    """

    type: str
    bytes: int
    bits_per_weight: float
    fallbacks: int
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class QuantizeReport:
    """A model in several types, scored over one text.

    ctx and stride: tokens, as `minfer perplexity` takes them. bits_per_weight, ppl: of the model itself.
    """

    kind: ClassVar[str] = "quantize"

    conditions: Conditions
    text: str
    text_sha256: str
    ctx: int
    stride: int | None
    settings: dict[str, object]
    bits_per_weight: float
    ppl: Estimate
    types: tuple[TypeResult, ...]

    def markdown(self) -> str:
        """A line for the model itself and one for each type."""
        first = self.types[0].comparison
        cut = f"windows of {self.ctx} tokens" + ("" if self.stride is None else f", one every {self.stride}")
        return "\n".join(
            [
                table(
                    ["type", "MiB", "bits a weight", "perplexity", "KL mean", "KL 99 %", "KL max", "same likeliest"],
                    [self._reference(), *(_row(result) for result in self.types)],
                ),
                "",
                "- KL(model || quantized) in nats a token, and how often both have the same likeliest next token",
                f"- text: {self.text} (sha256 {self.text_sha256[:12]}), {first.tokens} tokens scored in "
                f"{first.windows} windows ({cut})",
                f"- settings: {settings_text(self.settings)}",
                *self._fallbacks(),
                *facts(self.conditions),
            ]
        )

    def records(self) -> Sequence[Mapping[str, object]]:
        """One record per type."""
        return [
            {
                "type": result.type,
                "bytes": result.bytes,
                "bits_per_weight": result.bits_per_weight,
                "fallbacks": result.fallbacks,
                **_flat(result.comparison),
                "ctx": self.ctx,
                "stride": self.stride,
                "text": self.text,
                "text_sha256": self.text_sha256,
                **self.settings,
                **self.conditions.record(),
            }
            for result in self.types
        ]

    def _reference(self) -> list[str]:
        model = self.conditions.model
        size = f"{model.bytes / MIB:.1f}"
        return ["the model", size, f"{self.bits_per_weight:.2f}", _with_error(self.ppl), "", "", "", ""]

    def _fallbacks(self) -> list[str]:
        found = [f"{result.fallbacks} in {result.type}" for result in self.types if result.fallbacks]
        return [f"- matrices whose rows don't fit their type and have another: {', '.join(found)}"] if found else []


def _row(result: TypeResult) -> list[str]:
    found = result.comparison
    return [
        result.type,
        f"{result.bytes / MIB:.1f}",
        f"{result.bits_per_weight:.2f}",
        _with_error(found.ppl),
        f"{found.kl.value:.5f}",
        f"{found.kl_p99:.4f}",
        f"{found.kl_max:.4f}",
        f"{100 * found.same_top1.value:.1f} %",
    ]


def _with_error(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} +/- {estimate.error:.3f}"


def _flat(found: Comparison) -> dict[str, object]:
    """Its numbers under plain names: an estimate is two of them."""
    flat: dict[str, object] = {}
    for name, value in asdict(found).items():
        if isinstance(value, dict):
            flat |= {name: value["value"], f"{name}_error": value["error"]}
        else:
            flat[name] = value
    return flat
