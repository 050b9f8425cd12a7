"""The one error for a GGUF file that cannot be read, trusted, used or written."""

from __future__ import annotations

from pathlib import Path

from minfer_models.plain_text import plain, printable, quoted


class GGUFError(ValueError):
    """A GGUF file is wrong, or does not hold what was asked of it.

    Attributes: `path` of the file (the shard, for split files), byte `offset` in it or None, `name` of the
    tensor or metadata key concerned or None, and `message`, the cause with the actual values. `str()` gives
    all of them on one printable line of bounded length, whatever the file holds. `incomplete` says that bytes or shards
    are missing, as after a download that stopped.
    Other layers raise it too: `GGUFError("...", path=file.path, tensor="output.weight")`.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | Path | None = None,
        offset: int | None = None,
        key: str | None = None,
        tensor: str | None = None,
        incomplete: bool = False,
    ) -> None:
        self.message = plain(message)
        self.path = None if path is None else Path(path)
        self.offset = offset
        self.key = key
        self.tensor = tensor
        self.incomplete = incomplete
        super().__init__(self._line())

    @property
    def name(self) -> str | None:
        """The tensor, or else the metadata key, that the error is about."""
        return self.tensor if self.tensor is not None else self.key

    def _line(self) -> str:
        parts: list[str] = []
        if self.path is not None:
            parts.append(printable(str(self.path)))
        if self.tensor is not None:
            parts.append(f"tensor {quoted(self.tensor)}")
        elif self.key is not None:
            parts.append(f"key {quoted(self.key)}")
        parts.append(self.message)
        where = "" if self.offset is None else f" (at byte {self.offset})"
        return ": ".join(parts) + where
