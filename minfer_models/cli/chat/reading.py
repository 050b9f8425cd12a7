"""Where texts come from: a terminal with editing and history, or the lines of a pipe or file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from minfer_models.cli.chat.said import Lines, Said, goes_on, whole
from minfer_models.text_input import MOST_BYTES

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

PROMPT, MORE = "> ", ". "


class Reader(Protocol):
    """Gives one text after the other."""

    def read(self) -> Said | None:
        """The next text; None once there are no more."""
        ...


class LineReader:
    """Texts from a stream of UTF-8 lines."""

    def __init__(self, lines: IO[bytes]) -> None:
        self._lines, self._number = lines, 0

    def read(self) -> Said | None:
        """The next text.

        Raises ValueError for bytes that aren't UTF-8, and for a block that never ends; OSError once nothing can be read
        any more.
        """
        line = self._line()
        if line is None:
            return None
        first, lines = self._number, Lines(line)
        while lines.go_on:
            line = self._line()
            if line is None and lines.block:
                raise ValueError(f'stdin ends inside the block that """ opened in line {first}')
            if line is None:
                return whole(lines.text[:-1])
            lines.add(line)
        return whole(lines.text)

    def _line(self) -> str | None:
        data = self._lines.readline(MOST_BYTES + 1)
        if not data:
            return None
        self._number += 1
        if len(data) > MOST_BYTES:
            raise OSError(f"stdin, line {self._number} has more than {MOST_BYTES >> 20} MiB")
        try:
            return data.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"stdin, line {self._number} isn't UTF-8: {error.reason} at byte {error.start}") from None


class TerminalReader:
    """Texts from a person, who may edit them, paste lines, and look for earlier ones.

    `history` is the file of what was said before; None keeps it for this time only.
    """

    def __init__(self, history: Path | None, commands: tuple[str, ...]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.output import create_output

        session: PromptSession[str] = PromptSession(
            history=InMemoryHistory() if history is None else FileHistory(str(history)),
            multiline=True,
            key_bindings=_bindings(),
            prompt_continuation=lambda _width, _line, _wrapped: MORE,
            completer=WordCompleter(list(commands), sentence=True),
            complete_while_typing=Condition(lambda: session.default_buffer.text.startswith("/")),
            output=create_output(always_prefer_tty=True),
            reserve_space_for_menu=0,
        )
        self._session = session

    def read(self) -> Said | None:
        """The next text; Ctrl-C begins it anew, Ctrl-D on an empty line is the end."""
        while True:
            try:
                return whole(self._session.prompt(PROMPT))
            except KeyboardInterrupt:
                continue
            except EOFError:
                return None


def private_file(path: Path) -> Path | None:
    """`path`, made where it isn't there, for its owner's eyes; None where it can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600))
    except OSError:
        return None
    return path


def _bindings() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys: Any = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if not goes_on(buffer.text):
            buffer.validate_and_handle()
        elif buffer.text.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.newline(copy_margin=False)

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys
