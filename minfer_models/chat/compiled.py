"""One template source: checked when it compiles, rendered within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any

import jinja2
from jinja2 import nodes

from minfer_models.chat.environment import ChatEnvironment, TemplateRefusalError
from minfer_models.chat.errors import ChatTemplateError
from minfer_models.chat.static import arguments_of, check_constructs
from minfer_models.chat.traced import TracedStr

MOST_QUOTED = 80
"""Characters of a template's line in an error: some templates are one long line."""


class CompiledTemplate:
    """A source without any construct that could never render."""

    def __init__(self, source: str, clock: Callable[[], datetime], name: str = "the chat template") -> None:
        """name: as errors call it. Raises ChatTemplateError, naming line and construct, for what cannot render."""
        self.source, self.name = source, name
        self._environment = ChatEnvironment(clock)
        try:
            parsed = self._environment.parse(source)
            self._template = self._environment.from_string(parsed)
            check_constructs(parsed, self._environment, self._environment.outside_names)
        except jinja2.TemplateSyntaxError as error:
            where = f"at its line {error.lineno}"
            quoted = self._quoted(error.lineno)
            raise ChatTemplateError(f"{name} does not parse {where}: {error.message}{quoted}") from error
        except Exception as error:
            raise ChatTemplateError(f"{name} does not compile: {_words(error)}") from error
        outside = self._environment.outside_names.difference(self._environment.globals)
        self.reads = arguments_of(parsed, outside)
        self._texts = _texts(parsed)

    def mentions(self, text: str) -> bool:
        """Whether the template itself holds `text`, between tags or in a string."""
        return any(text in own for own in self._texts)

    @contextmanager
    def one_budget(self) -> Iterator[None]:
        """All renderings inside share what one may cost."""
        with self._environment.rendering():
            yield

    def run(self, values: Mapping[str, Any]) -> TracedStr:
        """The text for variables as `environment.variables` makes them.

        Raises ChatTemplateError for what the template refuses or cannot do.
        """
        try:
            with self._environment.rendering():
                text = self._template.render(values)
        except ChatTemplateError:
            raise
        except TemplateRefusalError as error:
            refusal = str(error)
            raise ChatTemplateError(f"{self.name} refuses these messages: {refusal}", refusal) from error
        except Exception as error:
            line = _template_line(error.__traceback__)
            where = "" if line is None else f" at its line {line}"
            raise ChatTemplateError(f"{self.name} failed{where}: {_words(error)}{self._quoted(line)}") from error
        if not isinstance(text, TracedStr):
            raise TypeError(f"the template rendered to {type(text).__name__}, so the origin of its text is unknown")
        return text

    def _quoted(self, line: int | None) -> str:
        lines = self.source.splitlines()
        text = lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else ""
        if not text:
            return ""
        return f" (in `{text if len(text) <= MOST_QUOTED else text[:MOST_QUOTED] + '...'}`)"


def _texts(parsed: nodes.Template) -> list[str]:
    constants = (node.value for node in parsed.find_all(nodes.Const))
    return [*(node.data for node in parsed.find_all(nodes.TemplateData)), *(c for c in constants if type(c) is str)]


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _template_line(traceback: TracebackType | None) -> int | None:
    """Where in the template an error arose; jinja2 puts template lines into tracebacks as file `<template>`."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
