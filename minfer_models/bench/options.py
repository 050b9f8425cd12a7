"""Options that the subcommands share, declared once. Nothing heavy is imported here: `--help` is quick."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer

from minfer_models.bench.report.document import Output
from minfer_models.settings import ISAS

Prompts: TypeAlias = Annotated[
    str, typer.Option("-p", "--n-prompt", metavar="N,N", help="Tokens of the prefill tests; 0 skips them.")
]
Generated: TypeAlias = Annotated[
    str, typer.Option("-n", "--n-gen", metavar="N,N", help="Tokens of the decode tests; 0 skips them.")
]
Depths: TypeAlias = Annotated[
    str, typer.Option("-d", "--depth", metavar="N,N", help="Tokens of context, filled untimed before every test.")
]
KeepDepth: TypeAlias = Annotated[
    bool,
    typer.Option("--keep-depth", help="Fill a depth once and cut back to it before every run: quicker, same cells."),
]
Repetitions: TypeAlias = Annotated[int, typer.Option("-r", "--repetitions", min=1, help="Timed runs of each test.")]
ThreadCounts: TypeAlias = Annotated[
    str, typer.Option("-t", "--threads", metavar="N,N", help="Worker threads; unset: the physical cores.")
]
Context: TypeAlias = Annotated[
    int | None, typer.Option("-c", "--ctx", "--n-ctx", min=1, help="Context in tokens; unset: the model's, up to 8192.")
]
InstructionSet: TypeAlias = Annotated[
    str | None, typer.Option("--isa", metavar="|".join(ISAS), help="The instruction set of the kernels.")
]
ChunkRows: TypeAlias = Annotated[
    int | None, typer.Option("--chunk", min=1, help="Most rows of one forward, a power of two.")
]
OutputForm: TypeAlias = Annotated[Output, typer.Option("-o", "--output", help="Markdown, CSV or JSON.")]


@contextmanager
def usage_errors() -> Iterator[None]:
    """What is wrong about the options' values inside is a wrong command line: exit code 2, with the usage."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
