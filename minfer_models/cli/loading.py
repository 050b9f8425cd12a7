"""Loading a model with its progress shown: what `run`, `trace` and `minfer-bench` start with."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minfer_models.cli.progress import Progress
from minfer_models.plain_text import printable

if TYPE_CHECKING:
    from minfer_models.llm import LLM
    from minfer_models.settings import Settings

log = logging.getLogger(__name__)


def load_shown(model: str, progress: Progress, **options: Any) -> LLM:
    """`minfer_models.load`, with a progress line for the weights and for kernels that compile for the first time."""
    from minfer_models.loading import load
    from minfer_models.settings import Settings

    settings = Settings.from_env()
    warn_of_threads(options.get("threads") or settings.threads)
    path = located(model, settings)  # a download draws its own progress, before ours starts
    progress.show(f"opening {printable(path.name)}")
    return load(
        path,
        settings=settings,
        on_weight=weights_shown(progress, file_bytes(path)),
        on_compile=compiling_shown(progress),
        on_device=progress.say,
        **options,
    )


def plan_forwards(llm: LLM, n_tokens: int, progress: Progress) -> None:
    """Plan what the prompt needs before its time is taken: a plan is made once per process and is no part of a rate."""
    engine = llm.engine
    for rows in dict.fromkeys(min(n_tokens - start, engine.chunk) for start in range(0, n_tokens, engine.chunk)):
        progress.show(f"planning a forward of {rows} tokens")
        engine.lowered(engine.params(rows))
    progress.show(f"reading the prompt, {n_tokens} tokens")


def device_options(device: str | None, layers: str | None, mebibytes: int | None) -> dict[str, Any]:
    """The options of a device as `minfer_models.load` takes them; raises OffloadError for layers that are no number."""
    from minfer_models.offload import parse_layers

    return {
        "device": device,
        "gpu_layers": None if layers is None else parse_layers(layers),
        "gpu_mem": mebibytes,
    }


def located(model: str, settings: Settings) -> Path:
    """`locate`, where a cache folder that can't be written is called by its variable. Raises ValueError for that."""
    from minfer_models.hub import locate

    try:
        return locate(model, settings)
    except OSError as error:
        inside = error.filename is not None and Path(error.filename).is_relative_to(settings.cache_dir)
        above = error.filename is not None and settings.cache_dir.is_relative_to(error.filename)
        if not inside and not above:
            raise
        raise ValueError(
            f"the cache folder {settings.cache_dir} can't be used ({error.strerror}): models and compiled kernels are "
            "kept there; set MINFER_CACHE_DIR to a folder that can be written"
        ) from None


def warn_of_threads(threads: int | None) -> None:
    """Warn when there are more threads than CPUs for them."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads is not None and threads > usable:
        log.warning("%d threads on %d usable CPUs take turns: expect it to be slower", threads, usable)


def compiling_shown(progress: Progress) -> Callable[[str, int, int], None]:
    """What the kernel library calls before it compiles a kernel."""

    def show(name: str, number: int, count: int) -> None:
        progress.show(f"compiling kernels for this machine, once: {name}", number - 1, count)

    return show


def weights_shown(progress: Progress, total: int) -> Callable[[str, int], None]:
    """What hears of every weight that is taken in; `total` in bytes."""
    done = 0

    def show(_name: str, nbytes: int) -> None:
        nonlocal done
        done += nbytes
        progress.show("taking in the weights", done, total)

    return show


def file_bytes(path: Path) -> int:
    """Bytes of the file, or of all its shards."""
    from minfer_models.hub.names import shard_stem

    stem = shard_stem(path.name)
    shards = (p for p in path.parent.glob("*.gguf") if shard_stem(p.name) == stem and p.is_file())
    return sum(p.stat().st_size for p in shards)
