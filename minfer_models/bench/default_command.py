"""A command line whose first word may be left out: `minfer-bench MODEL` is `minfer-bench throughput MODEL`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

DEFAULT = "throughput"


class DefaultCommand(TyperGroup):
    """Runs `DEFAULT` unless the first word names another command; its help shows that command's options too.

    A file that is called like a command is still reached, as `./ab`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the word in where it's missing."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The default command's options, then the commands."""
        self.commands[DEFAULT].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
