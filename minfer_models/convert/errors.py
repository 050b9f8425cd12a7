"""The one error for a Hugging Face folder that cannot be converted."""

from __future__ import annotations

from pathlib import Path

from minfer_models.plain_text import plain, printable, quoted


class ConvertError(ValueError):
    """A folder is wrong, or holds what a GGUF file or minfer cannot express.

    `path` is the file concerned, `tensor` or `key` the entry in it, `message` the cause with the actual values. `str()`
    gives all of them on one printable line of bounded length, whatever the folder holds.
    """

    def __init__(
        self, message: str, *, path: Path | None = None, tensor: str | None = None, key: str | None = None
    ) -> None:
        self.message, self.path, self.tensor, self.key = plain(message), path, tensor, key
        parts: list[str] = []
        if path is not None:
            parts.append(printable(str(path)))
        if tensor is not None:
            parts.append(f"tensor {quoted(tensor)}")
        elif key is not None:
            parts.append(f"key {quoted(key)}")
        super().__init__(": ".join([*parts, self.message]))
