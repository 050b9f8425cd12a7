"""Split files: `NAME-00001-of-0000N.gguf`, each a GGUF file that says which shard it is.

The name counts from 1; the metadata key `split.no` counts from 0, `split.count` is N and `split.tensors.count`
the number of tensors in all shards together. Any disagreement is an error that names the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from minfer_models.gguf.constants import SPLIT_COUNT_KEY, SPLIT_NO_KEY, SPLIT_TENSORS_KEY
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.metadata import Metadata

NO_KEY = SPLIT_NO_KEY
COUNT_KEY = SPLIT_COUNT_KEY
TENSORS_KEY = SPLIT_TENSORS_KEY
SPLIT_KEYS = (NO_KEY, COUNT_KEY, TENSORS_KEY)
MAX_SHARDS = 65535

_SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<no>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Split:
    """A shard's place: `no` from 0, of `count`, whose tensors together are `n_tensors`; `stem` is the common name."""

    stem: str
    no: int
    count: int
    n_tensors: int


def shard_path(path: Path, stem: str, no: int, count: int) -> Path:
    """The file of shard `no` (from 0) beside `path`."""
    return path.with_name(f"{stem}-{no + 1:05d}-of-{count:05d}.gguf")


def require_whole_name(path: Path) -> None:
    """Raise GGUFError when a file that is whole couldn't be opened at `path`, because it is named like a shard."""
    named = _SHARD_NAME.fullmatch(path.name)
    if named is not None and int(named["count"]) > 1:
        raise GGUFError(f"is named like one of {int(named['count'])} shards; name a file that is whole", path=path)


def read_split(metadata: Metadata, path: Path) -> Split | None:
    """The place of the shard `path`, checked against its name, or None for a file that is not split.

    A count of 0 or 1 means not split: `gguf-split --merge` leaves a 0.
    """
    count = metadata.integer(COUNT_KEY, 1)
    named = _SHARD_NAME.fullmatch(path.name)
    named_count = 1 if named is None else int(named["count"])
    if count in (0, 1) and named_count <= 1:
        return None
    if named is None:
        message = f"the file is one of {count} shards, but its name is not NAME-00001-of-{count:05d}.gguf"
        raise GGUFError(f"{message}, so the others cannot be found", path=path, key=COUNT_KEY)
    if count != named_count:
        raise metadata.error(COUNT_KEY, f"is {_or_absent(metadata, COUNT_KEY)}, but the file's name says {named_count}")
    no = metadata.integer(NO_KEY)
    if no + 1 != int(named["no"]) or no >= count:
        raise metadata.error(
            NO_KEY, f"is {no} (counted from 0) of {count}, but the file's name says {int(named['no'])}"
        )
    return Split(named["stem"], no, count, metadata.integer(TENSORS_KEY))


def _or_absent(metadata: Metadata, key: str) -> str:
    return str(metadata[key]) if key in metadata else "absent"


def check_first(split: Split, path: Path) -> None:
    """Raise when `path` is not the first shard."""
    if split.no:
        first = shard_path(path, split.stem, 0, split.count).name
        raise GGUFError(f"this is shard {split.no + 1} of {split.count}; open the first one, {first}", path=path)


def check_sibling(first: Split, metadata: Metadata, path: Path) -> None:
    """Raise when the shard `path` does not agree with the first one."""
    split = read_split(metadata, path)
    if split is None:
        raise metadata.error(COUNT_KEY, f"the file is not split, but it stands for a shard of {first.count}")
    if split.n_tensors != first.n_tensors:
        raise metadata.error(TENSORS_KEY, f"is {split.n_tensors}, but the first shard says {first.n_tensors}")


def missing_shards(split: Split, path: Path) -> list[Path]:
    """The files of the split `path` belongs to that do not exist."""
    paths = (shard_path(path, split.stem, no, split.count) for no in range(split.count))
    return [sibling for sibling in paths if not sibling.is_file()]
