"""The one error for a Hugging Face folder that cannot be converted."""

from __future__ import annotations

from pathlib import Path


class ConvertError(ValueError):
    """A folder is wrong, or holds what a GGUF file or minfer cannot express.

    `path` is the file concerned, `tensor` or `key` the entry in it, `message` the cause with the actual values. `str()`
    gives all of them on one line.
    """

    def __init__(
        self, message: str, *, path: Path | None = None, tensor: str | None = None, key: str | None = None
    ) -> None:
        self.message, self.path, self.tensor, self.key = message, path, tensor, key
        parts: list[str] = []
        if path is not None:
            parts.append(str(path))
        if tensor is not None:
            parts.append(f"tensor {tensor!r:.200}")
        elif key is not None:
            parts.append(f"key {key!r:.200}")
        super().__init__(": ".join([*parts, message]))
