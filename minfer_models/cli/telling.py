"""What is said of a generation once it has ended: a line, or an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minfer_models.generation import Generation
    from minfer_models.llm import LLM


def remarks(llm: LLM, generation: Generation, reason: str | None, n: int) -> list[str]:
    """What a user has to know beyond the rates: the context was full, or the text is incomplete."""
    full = full_context(llm, generation, n) if reason == "length" else None
    return [line for line in (full, cut_short(generation, reason)) if line]


def full_context(llm: LLM, generation: Generation, n: int) -> str | None:
    """What to say when the context's end came before the limit that was asked for."""
    usage, n_ctx = generation.usage, llm.engine.n_ctx
    if usage.completion_tokens == n or usage.prompt_tokens + usage.completion_tokens < n_ctx:
        return None
    most = llm.engine.model.config.n_ctx_train
    more = f"; -c takes up to {most}" if n_ctx < most else ", the most that this model takes"
    return f"minfer: context full: {n_ctx} tokens{more}"


def cut_short(generation: Generation, reason: str | None) -> str | None:
    """What to say of a text that a grammar describes only in part."""
    if generation.complete is not False:
        return None
    causes = {"length": "the limit of tokens cut it", "interrupted": "it was interrupted"}
    cause = causes.get(reason or "", "a stop string cut it")
    return f"minfer: the text is incomplete: {cause} before the grammar or schema was satisfied"


def summary(llm: LLM, generation: Generation, reason: str | None, temp: float, steps: dict[int, int]) -> str:
    """A line of rates and settings; `steps` by the number of threads that walked them."""
    usage = generation.usage
    parts = [
        f"prefill {tokens(usage.prompt_tokens)}, {usage.prefill_rate:.1f} tok/s",
        # the first token comes from the prefill: alone it has no rate
        f"decode {tokens(usage.completion_tokens)}"
        + (f", {usage.decode_rate:.1f} tok/s" if usage.completion_tokens > 1 else ""),
        f"finish {reason}",
        f"kv {llm.engine.options.kv_type}",
        f"device {llm.engine.options.device_name}",
        *_fewer_threads(llm, steps),
        *([f"seed {generation.seed}"] if temp > 0 else []),
    ]
    return f"[{' | '.join(parts)}]"


def _fewer_threads(llm: LLM, steps: dict[int, int]) -> list[str]:
    """How the steps were shared out, when other processes kept cores busy."""
    if llm.cpu is None or not steps.keys() - {llm.cpu.n_threads}:
        return []
    return ["busy cores: " + ", ".join(f"{_steps(n)} on {_threads(t)}" for t, n in steps.items())]


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def tokens(count: int) -> str:
    """A count with its noun."""
    return "1 token" if count == 1 else f"{count} tokens"


def result(
    llm: LLM,
    generation: Generation,
    text: str,
    reason: str | None,
    steps: dict[int, int],
) -> dict[str, Any]:
    """The whole answer of `minfer run --json`."""
    from minfer_models.cli.settings_view import sampling_of, settings_of

    usage = generation.usage
    return {
        "model": llm.engine.model.file.path.name,
        "text": text,
        "token_ids": generation.token_ids,
        "finish_reason": reason,
        **({} if generation.complete is None else {"complete": generation.complete}),
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        },
        "seed": generation.seed,
        "rates": {"prefill": usage.prefill_rate, "decode": usage.decode_rate if usage.completion_tokens > 1 else None},
        "seconds": {"prefill": usage.prefill_seconds, "decode": usage.decode_seconds},
        "steps_by_threads": {str(threads): n for threads, n in steps.items()},
        "settings": settings_of(llm) | sampling_of(generation.sampler),
    }
