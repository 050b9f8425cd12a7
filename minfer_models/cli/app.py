"""The `minfer` command with its subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from minfer_models.cli.chat.command import chat
from minfer_models.cli.command import application, reported
from minfer_models.cli.convert import convert
from minfer_models.cli.doctor import doctor
from minfer_models.cli.dump import dump
from minfer_models.cli.inspect import inspect
from minfer_models.cli.merge import merge
from minfer_models.cli.perplexity import perplexity
from minfer_models.cli.quantize import quantize
from minfer_models.cli.run import run as run_model
from minfer_models.cli.split import split
from minfer_models.cli.tokenize import tokenize
from minfer_models.cli.trace import trace

app = application(
    "minfer",
    "Run GGUF language models, and see how they run. MODEL is a path to a GGUF file, a Hugging Face name such as "
    "owner/repo:Q4_K_M, or demo.\n\nExit codes: 0 success; 1 an error; 2 a wrong command line; 3 a difference, an "
    "incomplete file or a problem was found; 130 Ctrl-C.",
)
for name, command in (
    ("run", run_model),
    ("chat", chat),
    ("inspect", inspect),
    ("dump", dump),
    ("trace", trace),
    ("tokenize", tokenize),
    ("perplexity", perplexity),
    ("convert", convert),
    ("quantize", quantize),
    ("split", split),
    ("merge", merge),
    ("doctor", doctor),
):
    app.command(name)(reported("minfer")(command))


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"minfer {version('minfer')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of the whole command."""
