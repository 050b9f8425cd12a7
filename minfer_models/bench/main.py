"""The `minfer-bench` command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from minfer_models.llm import LLM


class Output(StrEnum):
    """How the result is printed."""

    MD = "md"
    JSON = "json"


def bench(
    model: Annotated[str, typer.Argument(help="A path, owner/repo:TAG, or demo.")],
    n_prompt: Annotated[
        int, typer.Option("-p", "--n-prompt", min=0, help="Tokens of the prefill test; 0 skips it.")
    ] = 512,
    n_gen: Annotated[int, typer.Option("-n", "--n-gen", min=0, help="Tokens of the decode test; 0 skips it.")] = 128,
    repetitions: Annotated[int, typer.Option("-r", "--repetitions", min=1, help="Timed runs of each test.")] = 5,
    threads: Annotated[int | None, typer.Option("-t", "--threads", min=1, help="Worker threads.")] = None,
    kv: Annotated[str, typer.Option(help="KV cell type: auto, f32 or f16.")] = "auto",
    output: Annotated[Output, typer.Option("-o", "--output", help="Markdown or JSON.")] = Output.MD,
) -> None:
    """Measure prefill and decode: a warm-up that doesn't count, then repetitions, each from an empty context."""
    from minfer_models.bench.machine import Machine, peak_bytes
    from minfer_models.bench.report import Run
    from minfer_models.bench.throughput import measure
    from minfer_models.llm import load

    say = _progress()
    say("loading")
    start = perf_counter()
    with load(
        model, threads=threads, kv=kv, on_compile=lambda name, i, n: say(f"compiling {name} ({i} of {n})")
    ) as llm:
        loaded = perf_counter() - start
        engine = llm.engine
        measurements = measure(engine, n_prompt, n_gen, repetitions, say)
        say("")
        run = Run(
            model=engine.model.file.path.name,
            file_bytes=engine.model.file.size,
            settings=_settings(llm),
            machine=Machine.here(),
            load_seconds=loaded,
            peak_bytes=peak_bytes(),
            measurements=measurements,
        )
    typer.echo(run.to_json() if output is Output.JSON else run.to_markdown())


def _settings(llm: LLM) -> dict[str, Any]:
    cpu, engine = llm.cpu, llm.engine
    chosen: dict[str, Any] = {"kv": engine.options.kv_type, "n_ctx": engine.n_ctx, "chunk": engine.chunk}
    return chosen if cpu is None else {"threads": cpu.threads.n_threads, "isa": cpu.library.isa.value, **chosen}


def _progress() -> Callable[[str], None]:
    """A line on stderr that overwrites itself on a terminal; silence elsewhere."""

    def say(text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()

    return say


def run() -> None:
    """Entry point: errors that a user can act on become one line."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(bench)
    try:
        app()
    except (ValueError, RuntimeError, OSError) as error:
        typer.echo(f"minfer-bench: {error}", err=True)
        sys.exit(1)
