"""Where a written file may go: never over what it is made from, over another file only when that is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from minfer_models.gguf.errors import GGUFError


def check_destination(target: Path, sources: Iterable[Path] = (), *, overwrite: bool = False) -> None:
    """Raise GGUFError when `target` can't be written: asked before any work is done.

    It is one of `sources`, by any path or link that leads there; it exists and `overwrite` is off; it is a folder or
    a device; or its folder is missing or can't be written.
    """
    if target.is_dir():
        raise GGUFError("is a folder; name a file", path=target)
    if not target.parent.is_dir():
        raise GGUFError(f"there is no folder {target.parent}", path=target)
    if not os.access(target.parent, os.W_OK):
        raise GGUFError(f"the folder {target.parent} can't be written", path=target)
    if not target.exists():
        return
    if not target.is_file():
        raise GGUFError("not a regular file", path=target)
    for source in sources:
        if source.exists() and target.samefile(source):
            raise GGUFError("is what is read; name another file to write", path=target)
    if not overwrite:
        raise GGUFError("exists already; name another file, or say that it may be replaced (--force)", path=target)
