"""`minfer run`: generate text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minfer_models.cli.chat_options import TEMPLATE, TemplateChoice
from minfer_models.cli.command import INTERRUPTED
from minfer_models.cli.grammar_options import GRAMMAR
from minfer_models.cli.groups import takes
from minfer_models.cli.loading_options import QUICK_LOADING
from minfer_models.cli.options import ModelName, StopStrings, check_stops, most_tokens
from minfer_models.cli.prompt import check_prompt, read_prompt
from minfer_models.cli.sampling_options import SAMPLING

if TYPE_CHECKING:
    from minfer_models.generation import Generation


@takes(QUICK_LOADING, SAMPLING, TEMPLATE, GRAMMAR)
def run(
    model: ModelName,
    prompt: Annotated[
        str | None,
        typer.Option("-p", "--prompt", help="The text to continue, taken literally: \\n is no newline. - reads stdin."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the prompt from a UTF-8 file.")] = None,
    n: Annotated[
        int, typer.Option("-n", "--max-tokens", help="Tokens to generate; -1: no limit but the context.")
    ] = 256,
    stop: StopStrings = None,
    *,
    sampling: dict[str, Any],
    loading: dict[str, Any],
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="The system message, with --chat.")] = None,
    template: TemplateChoice,
    bound: dict[str, Any],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Generate text.

    It goes to stdout as it comes; rates and settings go to stderr. Ctrl-C ends it and keeps what has come.
    """
    check_prompt(prompt, file)
    if system is not None and not chat:
        raise typer.BadParameter("--system is a message of the chat template: it needs --chat")
    for option, given in (("--chat-template", template.name), ("--chat-arg", template.pairs)):
        if given and not chat:
            raise typer.BadParameter(f"{option} is about the chat template: it needs --chat")
    limit, source, arguments = most_tokens(n), template.source, template.arguments
    check_stops(stop)
    text = read_prompt(prompt, file)

    from minfer_models.cli.loading import load_shown, plan_forwards
    from minfer_models.cli.output import emit, json_line, stdout_writer
    from minfer_models.cli.progress import progress
    from minfer_models.cli.settings_view import steps_by_threads
    from minfer_models.cli.telling import remarks, result, summary

    with progress() as shown:
        options = {"for_chat": chat, "chat_template": source, **loading}
        with load_shown(model, shown, **options) as llm:
            request = {"max_tokens": limit, "stop": stop, **bound, **sampling}
            if chat:
                generation = llm.chat(_messages(text, system), template_arguments=arguments, **request)
            else:
                generation = llm.generate(text, **request)
            plan_forwards(llm, generation.usage.prompt_tokens, shown)
            walked = steps_by_threads(llm)
            out = _Collected(None if as_json else stdout_writer(), shown.stop)
            interrupted = _consume(generation, out)
            steps = {threads: n - walked.get(threads, 0) for threads, n in steps_by_threads(llm).items()}
            steps = {threads: n for threads, n in steps.items() if n}
            reason = "interrupted" if interrupted else generation.finish_reason
            out.end_line()
            if as_json:
                emit(json_line(result(llm, generation, out.text, reason, steps)), None)
            else:
                typer.echo(summary(llm, generation, reason, sampling["temperature"], steps), err=True)
            for line in remarks(llm, generation, reason, n):
                typer.echo(line, err=True)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _messages(text: str, system: str | None) -> list[dict[str, str]]:
    """A conversation of one message, behind the system's where there is one."""
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": text}]


class _Collected:
    """The text so far, passed on to `write` where there is one; `first` is called before the first piece."""

    def __init__(self, write: Callable[[str], None] | None, first: Callable[[], None]) -> None:
        self.text = ""
        self._write, self._first = write, first

    def add(self, piece: str) -> None:
        """One more piece."""
        if self._write is not None:
            if not self.text:
                self._first()
            self._write(piece)
        self.text += piece

    def end_line(self) -> None:
        """Leave the cursor at the start of a line."""
        self._first()
        if self._write is not None and not self.text.endswith("\n"):
            self._write("\n")


def _consume(generation: Generation, out: _Collected) -> bool:
    """Take every piece; True when Ctrl-C ended it. What has come until then is kept."""
    try:
        for piece in generation:
            out.add(piece)
    except KeyboardInterrupt:
        return True
    return False
