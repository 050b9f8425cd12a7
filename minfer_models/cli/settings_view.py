"""What an engine runs with, as plain values: a number without its settings says little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minfer_models.llm import LLM


def settings_of(llm: LLM) -> dict[str, Any]:
    """What the engine runs with, as plain values."""
    engine, cpu = llm.engine, llm.cpu
    plan, on = engine.options.devices, engine.resources.backends
    machine = (
        {}
        if cpu is None
        else {"threads": cpu.n_threads, "threads_fixed": engine.options.threads_fixed, "isa": cpu.library.isa.value}
    )
    gpu = {"capture": engine.options.capture, "async_copies": engine.options.async_copies} if "gpu" in on else {}
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


def steps_by_threads(llm: LLM) -> dict[int, int]:
    """Walks over programs of the CPU so far, by the number of threads that walked."""
    walks = [] if llm.cpu is None else llm.cpu.threads.walks
    return {threads: count for threads, count in enumerate(walks) if count}
