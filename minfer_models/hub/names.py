"""The parts of GGUF file names: quantization tags and shards. Pure functions over strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePosixPath

from .errors import LocateError

_REPO = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::(?P<tag>.+))?")
_SHARD = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_TAG = re.compile(r"(?:^|[-._])(?P<tag>(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|FP?16|FP?32))$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HubName:
    """`owner/repo` or `owner/repo:TAG`; the tag is a quantization (`Q4_K_M`) or a file's path in the repository."""

    repo: str
    tag: str | None


def parse_hub_name(text: str) -> HubName | None:
    """The Hugging Face name that `text` spells, or None where it can only be a path."""
    match = _REPO.fullmatch(text)
    if match is None or match["repo"].lower().endswith(".gguf"):
        return None
    return HubName(match["repo"], match["tag"])


def quant_tag(file: str) -> str:
    """The quantization a file name ends in, upper case (`Q4_K_M`), or the bare stem when it names none."""
    stem = shard_stem(file)
    match = _TAG.search(PurePosixPath(stem).name)
    return match["tag"].upper() if match else PurePosixPath(stem).name


def shard_stem(file: str) -> str:
    """The path without `-00001-of-00003.gguf` or `.gguf`: equal for the shards of one model."""
    match = _SHARD.fullmatch(file)
    return match["stem"] if match else file[: -len(".gguf")]


def model_files(files: Iterable[str]) -> dict[str, list[str]]:
    """The models among a repository's files: stem -> its file, or its shards in order.

    Vision projectors and importance matrices are GGUF files too, and no models: they are left out.
    """
    models: dict[str, list[str]] = {}
    for file in sorted(files):
        name = PurePosixPath(file).name.lower()
        if name.endswith(".gguf") and not name.startswith(("mmproj", "imatrix")):
            models.setdefault(shard_stem(file), []).append(file)
    return models


def choose(name: HubName, files: Iterable[str]) -> list[str]:
    """The file that `name` asks for, or all its shards in order.

    Raises LocateError naming what the repository holds when nothing, or more than one model, matches.
    """
    models = model_files(files)
    if not models:
        raise LocateError(f"{name.repo} holds no GGUF model")
    matching = _matching(name, models)
    if len(matching) == 1:
        return _whole(name.repo, matching[0])
    tags = sorted({quant_tag(shards[0]) for shards in models.values()})
    if name.tag is None:
        raise LocateError(
            f"{name.repo} holds {len(models)} models; say which, e.g. {name.repo}:{tags[0]}: {_list(tags)}"
        )
    if matching:
        shown = _list([shards[0] for shards in matching])
        raise LocateError(f"{name.repo} holds {len(matching)} models tagged {name.tag}; give a file name: {shown}")
    nearest = get_close_matches(name.tag.upper(), tags, n=1, cutoff=0.5)
    hint = f"did you mean {name.repo}:{nearest[0]}? " if nearest else ""
    raise LocateError(f"{name.repo} holds no {name.tag}; {hint}available: {_list(tags)}")


def _matching(name: HubName, models: dict[str, list[str]]) -> list[list[str]]:
    if name.tag is None:
        return list(models.values())
    exact = [shards for shards in models.values() if name.tag in shards]
    return exact or [shards for shards in models.values() if quant_tag(shards[0]) == name.tag.upper()]


def _whole(repo: str, shards: list[str]) -> list[str]:
    match = _SHARD.fullmatch(shards[0])
    if match is None:
        return shards
    count = int(match["count"])
    expected = [f"{match['stem']}-{index:05d}-of-{count:05d}.gguf" for index in range(1, count + 1)]
    missing = [shard for shard in expected if shard not in shards]
    if missing:
        raise LocateError(
            f"{repo}: {match['stem']} is split in {count}, and these shards are missing: {_list(missing)}"
        )
    return expected


def _list(names: Sequence[str], limit: int = 40) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
