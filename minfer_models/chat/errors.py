"""The one error of this package."""

from __future__ import annotations


class ChatTemplateError(ValueError):
    """A template that is missing, broken or unsafe, or messages it cannot render.

    refusal: the template's own words when it called `raise_exception`, else None.
    """

    def __init__(self, message: str, refusal: str | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal
