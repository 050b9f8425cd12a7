"""The error of this package."""

from __future__ import annotations


class SamplingError(ValueError):
    """A sampling setting out of range, or logits nothing can be chosen from; the message has the value."""
