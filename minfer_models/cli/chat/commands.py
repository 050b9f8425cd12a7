"""What begins with a slash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from minfer_models.cli.chat.stats import stats

if TYPE_CHECKING:
    from minfer_models.cli.chat.repl import Repl

LITERAL = "A line that begins with // is sent with one slash."


@dataclass(frozen=True, slots=True)
class Command:
    """`argument`: how --help calls what follows the name; in brackets where it may be left out, "" for none."""

    name: str
    argument: str
    help: str
    run: Callable[[Repl, str], None]


class CommandError(ValueError):
    """A line with a slash that isn't a command, or one without what it needs."""


def obey(repl: Repl, line: str) -> None:
    """Do what the line says. Raises CommandError with the list for an unknown command."""
    name, _, argument = line.partition(" ")
    argument = argument.strip()
    command = next((c for c in COMMANDS if c.name == name.strip()), None)
    if command is None:
        names = " ".join(c.name for c in COMMANDS)
        raise CommandError(f"there is no command {name.strip()}; there are {names}. {LITERAL}")
    if argument and not command.argument:
        raise CommandError(f"{command.name} takes nothing behind it, got {argument!r}")
    if command.argument and not command.argument.startswith("[") and not argument:
        raise CommandError(f"{command.name} needs {command.argument} behind it")
    command.run(repl, argument)


def _help(repl: Repl, _argument: str) -> None:
    width = max(len(f"{c.name} {c.argument}") for c in COMMANDS)
    for command in COMMANDS:
        repl.screen.note(f"{f'{command.name} {command.argument}':{width}}  {command.help}")
    repl.screen.note(
        'A message of several lines: end a line with \\, or put it between """ and """; at a terminal also Alt-Enter.'
    )
    repl.screen.note(f"{LITERAL} Ctrl-C stops an answer, Ctrl-D leaves.")


def _clear(repl: Repl, _argument: str) -> None:
    repl.conversation.clear()
    repl.screen.note("[forgotten, but for the system message]" if repl.conversation.system else "[forgotten]")


def _regenerate(repl: Repl, _argument: str) -> None:
    if not repl.conversation.talk.sampling.get("temperature", 0.0):
        repl.screen.note("[at temperature 0 the same answer comes again]")
    repl.answer(repl.conversation.regenerate)


def _undo(repl: Repl, _argument: str) -> None:
    first, *rest = repl.conversation.undo()
    answers = sum(message["role"] == "assistant" for message in rest)
    repl.screen.note(f"[taken back: {_shortened(str(first.get('content')))}{' and its answer' if answers else ''}]")


def _system(repl: Repl, text: str) -> None:
    if text:
        repl.conversation.system = None if text == '""' else text
    current = repl.conversation.system
    repl.screen.note("[no system message]" if current is None else f"[system message: {current}]")


def _save(repl: Repl, file: str) -> None:
    repl.conversation.save(_path(file))
    repl.screen.note(f"[saved to {file}]")


def _load(repl: Repl, file: str) -> None:
    repl.conversation.load(_path(file))
    repl.screen.note(f"[{file}: {len(repl.conversation.talk.messages)} messages]")


def _stats(repl: Repl, _argument: str) -> None:
    for line in stats(repl.conversation):
        repl.screen.note(line)


def _exit(_repl: Repl, _argument: str) -> None:
    from minfer_models.cli.chat.repl import LeaveError

    raise LeaveError


COMMANDS = (
    Command("/help", "", "This list.", _help),
    Command("/clear", "", "Forget the conversation; the system message stays.", _clear),
    Command("/regen", "", "Answer the last message once more, with the next seed.", _regenerate),
    Command("/undo", "", "Take back the last message and its answer.", _undo),
    Command("/system", "[TEXT]", 'Set the system message, "" for none; without TEXT, show it.', _system),
    Command("/save", "FILE", "Write the conversation, its settings and its seed to FILE.", _save),
    Command("/load", "FILE", "Go on with a conversation that was saved.", _load),
    Command("/stats", "", "Sizes, counts and rates so far.", _stats),
    Command("/exit", "", "Leave.", _exit),
)


def _path(file: str) -> Path:
    """With the home that ~ or ~NAME stands for. Raises CommandError where nobody is called so."""
    try:
        return Path(file).expanduser()
    except RuntimeError:
        raise CommandError(f"{file}: there is no such home folder") from None


def _shortened(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
