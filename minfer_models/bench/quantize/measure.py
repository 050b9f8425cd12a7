"""Writing a model in one type after another, and holding each against the model itself."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.loading import EngineChoices, load_timed
from minfer_models.bench.quantize.report import QuantizeReport, TypeResult
from minfer_models.bench.workload import BenchError
from minfer_models.cli.loading import compiling_shown
from minfer_models.cli.progress import Progress
from minfer_models.cli.settings_view import settings_of
from minfer_models.gguf import GGUFFile, open_gguf
from minfer_models.gguf.encoders import quickest_encode
from minfer_models.gguf.quantize import FILE_TYPES, QuantizeOptions, plan_quantization, work_of, write_quantized
from minfer_models.gguf.quantize.plan import Choice, bits_per_weight
from minfer_models.llm import LLM
from minfer_models.scoring import Comparison, compare
from minfer_models.scoring.score import token_ids
from minfer_models.scoring.windows import cut
from minfer_models.settings import Settings

UNCHANGED = ("F32",)
"""No type to ask about: it loses nothing."""


@dataclass(frozen=True, slots=True)
class Text:
    """What is predicted, in windows as `minfer perplexity` cuts them."""

    name: str
    content: str
    ctx: int
    stride: int | None = None

    @property
    def length(self) -> int:
        """Tokens that an engine must have room for."""
        return self.ctx + (self.stride or 0) // 2


def types_named(text: str, allow_requantize: bool = False) -> tuple[QuantizeOptions, ...]:
    """The types in "Q8_0,Q6_K", each once, or every one for "all"; raises BenchError for what is none."""
    wanted = [name for name in FILE_TYPES if name not in UNCHANGED] if text == "all" else text.split(",")
    try:
        found = [QuantizeOptions.parse(name.strip(), allow_requantize=allow_requantize) for name in wanted]
    except ValueError as error:
        raise BenchError(str(error)) from None
    return tuple({options.file_type.name: options for options in found}.values())


def measure(
    path: Path, text: Text, types: Sequence[QuantizeOptions], choices: EngineChoices, folder: Path | None,
    progress: Progress,
) -> QuantizeReport:  # fmt: skip
    """Each type in turn: write it to `folder` (None: where temporary files go), score it, remove it.

    Raises GGUFError for what the model can't become, before anything is written; ScoringError for a text that is too
    short; what loading raises.
    """
    conditions = Conditions.here(path)
    with open_gguf(path) as file:
        plans = [(options, plan_quantization(file, options)) for options in types]
        reference, _ = load_timed(path, choices, progress)
        with reference, tempfile.TemporaryDirectory(prefix="minfer-quantize-", dir=folder) as written:
            cut(len(token_ids(reference, text.content)), text.ctx, text.stride)
            results: list[TypeResult] = []
            for number, (options, plan) in enumerate(plans, 1):
                name = options.file_type.name
                target = Path(written) / f"{path.stem}-{name}.gguf"
                place = f"{name} ({number} of {len(plans)})"
                _write(file, target, options, plan, choices.threads, place, progress)
                found = _compared(target, reference, text, choices, place, progress)
                size = target.stat().st_size
                target.unlink()
                fallbacks = sum(choice.fell_back for choice in plan)
                results.append(TypeResult(name, size, bits_per_weight(plan), fallbacks, found))
            settings = settings_of(reference)
        own = bits_per_weight(Choice(info, None) for info in file.tensors.values())
    return QuantizeReport(
        conditions,
        text.name,
        hashlib.sha256(text.content.encode()).hexdigest(),
        text.ctx,
        text.stride,
        settings,
        own,
        results[0].comparison.reference_ppl,
        tuple(results),
    )


def _write(
    file: GGUFFile, target: Path, options: QuantizeOptions, plan: list[Choice], threads: int | None, place: str,
    progress: Progress,
) -> None:  # fmt: skip
    done, total = 0, sum(choice.nbytes for choice in plan)

    def hear(_tensor: str, nbytes: int) -> None:
        nonlocal done
        done += nbytes
        progress.show(f"{place}: written {done / 2**20:.0f} MiB", done, total)

    encode = quickest_encode(work_of(plan), Settings.from_env(), compiling_shown(progress))
    write_quantized(file, target, options, threads=threads, hear=hear, encode=encode)


def _compared(
    target: Path, reference: LLM, text: Text, choices: EngineChoices, place: str, progress: Progress
) -> Comparison:
    llm, _ = load_timed(target, choices, progress)
    with llm:
        return compare(llm, reference, text.content, text.ctx, text.stride, _heard(place, progress))


def _heard(place: str, progress: Progress) -> Callable[[int, int, float], None]:
    def hear(done: int, total: int, so_far: float) -> None:
        progress.show(f"{place}: window {done} of {total}, perplexity so far {so_far:.3f}", done, total)

    return hear
