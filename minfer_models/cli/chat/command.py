"""`minfer chat`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minfer_models.cli.chat_options import TEMPLATE, TemplateChoice
from minfer_models.cli.command import INTERRUPTED
from minfer_models.cli.grammar_options import GRAMMAR
from minfer_models.cli.groups import takes
from minfer_models.cli.loading_options import QUICK_LOADING
from minfer_models.cli.options import ModelName, StopStrings, check_stops, most_tokens
from minfer_models.cli.sampling_options import SAMPLING
from minfer_models.settings import Settings

if TYPE_CHECKING:
    from minfer_models.cli.chat.reading import Reader
    from minfer_models.cli.chat.screen import Screen
    from minfer_models.conversation import Conversation

HISTORY = "chat_history"
MOST_TOKENS = 1024
"""Of an answer, unless asked otherwise: small models may repeat themselves until the context is full."""


@takes(QUICK_LOADING, SAMPLING, TEMPLATE, GRAMMAR)
def chat(
    context: typer.Context,
    model: ModelName,
    system: Annotated[str | None, typer.Option("--system", help="The system message.")] = None,
    load: Annotated[
        Path | None, typer.Option("--load", metavar="FILE", help="Go on with a conversation that /save wrote.")
    ] = None,
    n: Annotated[
        int, typer.Option("-n", "--max-tokens", help="Most tokens of an answer; -1: no limit but the context.")
    ] = MOST_TOKENS,
    stop: StopStrings = None,
    *,
    sampling: dict[str, Any],
    template: TemplateChoice,
    keep_thinking: Annotated[
        bool,
        typer.Option(
            "--keep-thinking", help="Leave the thinking of earlier answers in the prompt, whatever the template does."
        ),
    ] = False,
    bound: dict[str, Any],
    loading: dict[str, Any],
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="After each answer: tokens reused, prefilled, generated; rates.")
    ] = False,
) -> None:
    """Talk with a model.

    At a terminal with editing and history; from a pipe or a file every line is a message or a command such as /stats.
    Answers go to stdout, all else to stderr. Ctrl-C stops an answer and keeps the talk, /help lists the commands.
    """
    check_stops(stop)
    options = {"for_chat": True, "chat_template": template.source, **loading}
    request = {
        "max_tokens": most_tokens(n),
        "stop": stop,
        "template_arguments": template.arguments,
        "keep_thinking": keep_thinking,
        **sampling,
    }

    from minfer_models.cli.chat.resuming import resume
    from minfer_models.cli.loading import load_shown
    from minfer_models.cli.progress import progress

    with progress() as shown:
        llm = load_shown(model, shown, **options)
    with llm, llm.conversation(system=system, **request, **bound) as conversation:
        if load is not None:
            resume(conversation, load, _on_the_command_line(context, system=system, **request))
        code = _talk(conversation, verbose, tracebacks=bool(context.params.get("traceback")))
    if code:
        raise typer.Exit(code)


def _on_the_command_line(context: typer.Context, **request: Any) -> dict[str, Any]:
    """The part of the request that isn't there by default: it counts more than what a file says."""
    parameters = {"max_tokens": "n", "template_arguments": "chat_arg"}
    sources = {name: context.get_parameter_source(parameters.get(name, name)) for name in request}
    return {name: value for name, value in request.items() if (s := sources[name]) and s.name == "COMMANDLINE"}


def _talk(conversation: Conversation, verbose: bool, tracebacks: bool) -> int:
    """Talk until the end; the exit code."""
    from minfer_models.cli.chat.commands import obey
    from minfer_models.cli.chat.repl import Repl
    from minfer_models.cli.chat.screen import Screen

    at_terminal = sys.stdin.isatty()
    screen = Screen()
    repl = Repl(conversation, _reader(at_terminal, screen), screen, verbose=verbose, tracebacks=tracebacks)
    if at_terminal:
        n_ctx, path = conversation.llm.engine.n_ctx, conversation.llm.engine.model.file.path
        screen.note(f"{path.name}, {n_ctx} tokens of context. /help lists the commands, Ctrl-D leaves.")
    repl.run(obey, stay_after_ctrl_c=at_terminal)
    if at_terminal:
        return 0
    if repl.interrupted:
        return INTERRUPTED
    return 1 if repl.failed else 0


def _reader(at_terminal: bool, screen: Screen) -> Reader:
    from minfer_models.cli.chat.commands import COMMANDS
    from minfer_models.cli.chat.reading import LineReader, TerminalReader, private_file

    if not at_terminal:
        return LineReader(sys.stdin.buffer)
    history = Settings.from_env().cache_dir / HISTORY
    kept = private_file(history)
    if kept is None:
        screen.note(f"minfer: {history} can't be written: what you type is remembered until you leave")
    return TerminalReader(kept, tuple(command.name for command in COMMANDS))
