"""What every command has: errors and warnings as one line, `--traceback`, exit codes.

0 is success, 1 an error, 2 a wrong command line, 3 a finding (a difference, an incomplete file), 130 Ctrl-C.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any

import typer

from minfer_models.cli.entry import INTERRUPTED, discard_output
from minfer_models.cli.groups import option, with_parameters
from minfer_models.plain_text import plain, printable, shortened

FOUND = 3
"""Nothing went wrong, and what the command looks for was found: a difference, missing bytes."""
LOGGERS = ("minfer_ir", "minfer_kernels", "minfer_models")
FORESEEN = (ValueError, RuntimeError, OSError, MemoryError)
"""What the layers below raise for a user's mistake or a machine's limit; anything else is a bug."""
LONGEST_LINE = 4000
"""Characters of an error or a warning: what a file says may be of any length."""
TYPERS_OWN = (typer.Exit, typer.Abort, typer.BadParameter)

TRACEBACK = option(
    "traceback", Annotated[bool, typer.Option("--traceback", help="Show the Python traceback of an error.")], False
)


def application(name: str, about: str) -> typer.Typer:
    """An application whose output is plain: no boxes, nothing wrapped, so that errors can be searched and piped."""
    return typer.Typer(
        name=name,
        help=about,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def reported(program: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command's errors one line on stderr and exit code 1, and Ctrl-C exit code 130; adds `--traceback`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*args: Any, traceback: bool, **kwargs: Any) -> None:
            try:
                with _warnings_shown(program):
                    _enable_plugins()
                    command(*args, **kwargs)
            except KeyboardInterrupt:
                raise typer.Exit(INTERRUPTED) from None
            except BrokenPipeError:
                discard_output()
                raise typer.Exit(1) from None
            except Exception as error:
                if traceback or isinstance(error, TYPERS_OWN):
                    raise
                typer.echo(f"{program}: {one_line(error)}", err=True)
                raise typer.Exit(1) from None

        return with_parameters(run, [*inspect.signature(command, eval_str=True).parameters.values(), TRACEBACK])

    return decorate


def _enable_plugins() -> None:
    """Those that the settings name: before options are checked, which may name their fusions."""
    from minfer_models.settings import Settings

    if names := Settings.from_env().plugins:
        from minfer_ir.plugins import enable

        enable(names)


def one_line(error: Exception) -> str:
    """An error as a user reads it: the message, or for what nobody foresaw also its type and how to see more."""
    if isinstance(error, OSError) and error.strerror is not None:
        told = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
        return shortened(printable(told), LONGEST_LINE)
    if isinstance(error, MemoryError) and not str(error):
        return "out of memory"
    message = plain(" ".join(str(error).split()), LONGEST_LINE)
    if isinstance(error, FORESEEN) and message:
        return message
    return f"{type(error).__name__}: {message or 'no message'} (a bug in minfer; --traceback shows where)"


class _StderrLines(logging.Handler):
    """Log records as lines of the program on stderr, whatever stderr is at that time."""

    def __init__(self, program: str) -> None:
        super().__init__(logging.WARNING)
        self._program = program

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        typer.echo(f"{self._program}: {plain(record.getMessage(), LONGEST_LINE)}", err=True)


@contextmanager
def _warnings_shown(program: str) -> Iterator[None]:
    """What the layers below warn of, with the program's name before it."""
    handler = _StderrLines(program)
    for name in LOGGERS:
        logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(handler)
