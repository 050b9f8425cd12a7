"""What an engine runs with, as plain values: a number without its settings says little."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minfer_models.llm import LLM
    from minfer_models.sampling import Sampler


def settings_of(llm: LLM) -> dict[str, Any]:
    """What the engine runs with, as plain values."""
    engine, cpu = llm.engine, llm.cpu
    plan, on = engine.options.devices, engine.resources.backends
    machine = (
        {}
        if cpu is None
        else {"threads": cpu.n_threads, "threads_fixed": engine.options.threads_fixed, "isa": cpu.library.isa.value}
    )
    names = ("capture", "async_copies", "invariant", "decode_apart") if "gpu" in on else ()
    gpu = {name: getattr(engine.options, name) for name in names}
    return {
        **machine,
        **gpu,
        "n_ctx": engine.n_ctx,
        "kv": engine.options.kv_type,
        "chunk": engine.chunk,
        "devices": ",".join([*plan.order, *(f"{block}:{name}" for block, name in plan.blocks)])
        + (f" on {engine.options.place}" if engine.options.place else ""),
        "fusions_off": ",".join(sorted(engine.options.fusions_off)) or "none",
    }


def sampling_of(sampler: Sampler) -> dict[str, Any]:
    """Every setting but the seed, and `stages`: those of the pipeline that the settings turn on, in order."""
    params = sampler.params
    settings = {name: getattr(params, name) for name in type(params).__slots__ if name != "seed"}
    # JSON has no infinity
    settings["logit_bias"] = {str(i): "-inf" if b == -math.inf else b for i, b in params.logit_bias.items()}
    return settings | {"dry_sequence_breakers": list(params.dry_sequence_breakers), "stages": list(sampler.stages)}


def steps_by_threads(llm: LLM) -> dict[int, int]:
    """Walks over programs of the CPU so far, by the number of threads that walked."""
    walks = [] if llm.cpu is None else llm.cpu.threads.walks
    return {threads: count for threads, count in enumerate(walks) if count}
