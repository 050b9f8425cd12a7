"""The one error of this package."""

from __future__ import annotations

from minfer_models.plain_text import plain


class ChatTemplateError(ValueError):
    """A template that is missing, broken or unsafe, or messages it cannot render.

    refusal: the template's own words, as they are, when it called `raise_exception`, else None. The message is one
    printable line of bounded length.
    """

    def __init__(self, message: str, refusal: str | None = None) -> None:
        super().__init__(plain(message))
        self.refusal = refusal
