"""The one error of this package."""

from __future__ import annotations


class GrammarError(ValueError):
    """A grammar or JSON Schema that can't be honoured as written; the message says what is wrong and where."""
