"""Loading a model with its progress shown: what `run`, `trace` and `minfer-bench` start with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minfer_models.cli.progress import Progress

if TYPE_CHECKING:
    from minfer_models.llm import LLM


def load_shown(model: str, progress: Progress, **options: Any) -> LLM:
    """`minfer_models.load`, with a progress line for the weights and for kernels that compile for the first time."""
    from minfer_models.hub import locate
    from minfer_models.llm import load
    from minfer_models.settings import Settings

    settings = Settings.from_env()
    path = locate(model, settings)  # a download draws its own progress, before ours starts
    progress.show(f"opening {path.name}")
    return load(
        path,
        settings=settings,
        on_weight=weights_shown(progress, _bytes_of(path)),
        on_compile=compiling_shown(progress),
        **options,
    )


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


def _bytes_of(path: Path) -> int:
    """Bytes of the file, or of all its shards."""
    from minfer_models.hub.names import shard_stem

    stem = shard_stem(path.name)
    return sum(p.stat().st_size for p in path.parent.glob("*.gguf") if shard_stem(p.name) == stem)
