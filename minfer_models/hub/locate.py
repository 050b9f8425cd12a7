"""MODEL, as a user types it, to a GGUF file: no guess is taken silently, every refusal says what is there."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from minfer_models.settings import Settings

from .demo import fetch_demo
from .errors import LocateError
from .names import parse_hub_name

DEMO = "demo"


def locate(model: str | Path, settings: Settings | None = None) -> Path:
    """The GGUF file that `model` names, fetched first if need be (the first shard of a split model).

    `model` is a path, `demo`, or a Hugging Face name `owner/repo:TAG` (TAG a quantization such as Q4_K_M in any case,
    or a file's path in the repository; it may be left out where the repository holds one model). A path that exists
    wins over a name. Progress goes to stderr.

    Raises LocateError, suggesting the nearest names, when nothing can be found or fetched.
    """
    settings = settings or Settings.from_env()
    path = _expanded(Path(model))
    if path.is_dir() and str(model) != DEMO:
        raise LocateError(_describe_directory(path))
    if path.is_file():
        return path
    if path.exists() or path.is_symlink():
        raise LocateError(_describe_special(path))
    if model == DEMO:
        return fetch_demo(settings)
    name = parse_hub_name(str(model))
    if name is None or (name.tag is None and path.parent.is_dir()):
        raise LocateError(_describe_missing(str(model), path))
    # huggingface_hub takes a quarter of a second to import, and most runs name a file
    from .remote import fetch_from_hub

    return fetch_from_hub(name, settings)


def _expanded(path: Path) -> Path:
    """With the home that ~ or ~NAME stands for; as it is where nobody is called so."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def _gguf_names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.suffix.lower() == ".gguf")


def _describe_directory(folder: Path) -> str:
    names = _gguf_names(folder)
    if not names:
        return f"{folder} is a folder without GGUF files; MODEL is a file, owner/repo:TAG or demo"
    return f"{folder} is a folder; name one of its GGUF files: {', '.join(str(folder / name) for name in names)}"


def _describe_special(path: Path) -> str:
    if not path.exists():
        return f"{path} is a symbolic link that leads to no file ({path.readlink()})"
    return f"{path} is a device, pipe or socket; MODEL is a regular file, owner/repo:TAG or demo"


def _describe_missing(model: str, path: Path) -> str:
    if not path.parent.is_dir():
        return f"no such file: {model} (there is no folder {path.parent})"
    candidates = {str(path.parent / name) if path.parent != Path() else name: name for name in _gguf_names(path.parent)}
    nearest = [full for full, name in candidates.items() if name in get_close_matches(path.name, candidates.values())]
    if path.parent == Path() and get_close_matches(model, [DEMO], cutoff=0.5):
        nearest.append(DEMO)
    if nearest:
        return f"no such file: {model}; did you mean {' or '.join(nearest)}?"
    there = (
        f"GGUF files there: {', '.join(candidates)}" if candidates else f"no GGUF file is in {path.parent.resolve()}"
    )
    return f"no such file: {model}; {there}. MODEL is a file, owner/repo:TAG or demo"
