"""Regular expressions in a schema: the part of ECMA-262 that every reader of them agrees on."""

from __future__ import annotations

import re
from typing import Any

_PIECE = re.compile(r"\\(?P<escape>.)|(?P<group>\(\?[^)]{0,2})|(?P<other>.)", re.DOTALL)
_ESCAPES = frozenset("dDwWsSnrtfv0xu.*+?()[]{}|^$/\\-\"'`~!@#%&=:;,<> _")
_GROUP_REASONS = {
    "(?=": "look-ahead", "(?!": "look-ahead", "(?<=": "look-behind", "(?<!": "look-behind",
}  # fmt: skip


def check_pattern(pattern: Any) -> str | None:
    """What can't be enforced about a pattern, None if all of it can."""
    if not isinstance(pattern, str):
        return f"{pattern!r} is no regular expression"
    for piece in _PIECE.finditer(pattern):
        escape, group = piece["escape"], piece["group"]
        if escape is not None and escape not in _ESCAPES:
            what = "a back-reference" if escape.isdigit() or escape == "k" else "no escape that is supported"
            return f"\\{escape} at character {piece.start()} of {pattern!r} is {what}"
        if group is not None and not group.startswith("(?:"):
            what = next((name for start, name in _GROUP_REASONS.items() if group.startswith(start)), None)
            return f"{what or group} at character {piece.start()} of {pattern!r} can't be enforced"
    return None
