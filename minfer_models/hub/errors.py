"""The one error of this package."""

from __future__ import annotations


class LocateError(ValueError):
    """A model name that leads to no file: the message names what was asked for and what is there instead."""
