"""Models from the Hugging Face Hub, into `CACHE/hub/OWNER--REPO/`: resumed after a break, checked by the Hub's SHA-256.

huggingface_hub lists, authenticates and streams. The partial file is kept here, named after the bytes that it will
hold, because `hf_hub_download` starts a broken download over in the next process: not acceptable for tens of GB.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

from huggingface_hub import HfApi, ModelInfo, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers

from minfer_models.settings import Settings

from .errors import LocateError
from .files import locked, require_sha256, say
from .names import HubName, choose

# the HTTP library's base class: httpx or httpx2, by huggingface_hub's version
_TRANSPORT_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]
_UNREACHABLE = (_TRANSPORT_ERROR, OfflineModeIsEnabled, ConnectionError, TimeoutError)


@dataclass(frozen=True, slots=True)
class _RemoteFile:
    """One file at one commit; `content` identifies its bytes, and is their SHA-256 where `is_sha256`."""

    repo: str
    commit: str
    path: str
    size: int | None
    content: str
    is_sha256: bool


def fetch_from_hub(name: HubName, settings: Settings) -> Path:
    """The file `name` asks for (the first of its shards), complete on this disk.

    Where the Hub cannot be reached, files fetched before are used, and stderr says so.
    Raises LocateError: no such repository or tag, no access, or nothing cached while offline.
    """
    folder = settings.cache_dir / "hub" / name.repo.replace("/", "--")
    api = HfApi(endpoint=settings.hf_endpoint, token=settings.hf_token)
    try:
        with _explained(name.repo, api):
            info = api.model_info(name.repo, files_metadata=True)
    except _UNREACHABLE as error:
        return _cached(name, folder, api.endpoint, error)
    files = {file.path: file for file in _remote_files(name.repo, info)}
    chosen = choose(name, files)
    for path in chosen:
        _fetch(files[path], folder, api)
    return folder / chosen[0]


def _remote_files(repo: str, info: ModelInfo) -> Iterator[_RemoteFile]:
    for sibling in info.siblings or []:
        content = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
        if info.sha and content:
            yield _RemoteFile(repo, info.sha, sibling.rfilename, sibling.size, content, sibling.lfs is not None)


def _cached(name: HubName, folder: Path, endpoint: str, error: Exception) -> Path:
    complete = [str(mark.relative_to(folder).with_suffix("")) for mark in folder.rglob("*.gguf.content")]
    if not complete:
        raise LocateError(
            f"{endpoint} cannot be reached ({_first_line(error)}), and nothing of {name.repo} is in {folder}"
        ) from None
    try:
        chosen = choose(name, [Path(path).as_posix() for path in complete])
    except LocateError as cause:
        raise LocateError(
            f"{endpoint} cannot be reached ({_first_line(error)}); of what was fetched before: {cause}"
        ) from None
    say(f"minfer: {endpoint} cannot be reached; using {folder / chosen[0]} from the cache")
    return folder / chosen[0]


def _fetch(file: _RemoteFile, folder: Path, api: HfApi) -> None:
    target = folder / file.path
    if _is_current(file, target):
        return
    with locked(target):
        if _is_current(file, target):
            return
        partial = target.with_name(f"{target.name}.{file.content[:16]}.partial")
        _download(file, partial, api)
        if file.is_sha256:
            require_sha256(partial, file.content, f"{file.repo}: {file.path}")
        _mark(target).unlink(missing_ok=True)
        partial.replace(target)
        _mark(target).write_text(file.content)


def _mark(target: Path) -> Path:
    return target.with_name(target.name + ".content")


def _is_current(file: _RemoteFile, target: Path) -> bool:
    mark = _mark(target)
    if not (target.is_file() and mark.is_file() and mark.read_text() == file.content):
        return False
    return file.size is None or target.stat().st_size == file.size


def _download(file: _RemoteFile, partial: Path, api: HfApi) -> None:
    """Fill `partial` from where it ends; a connection that drops is taken up again, and what has come stays."""
    done = partial.stat().st_size if partial.exists() else 0
    if file.size is not None and done > file.size:
        partial.unlink()
        done = 0
    kept = f", {done / 2**20:.1f} MiB of it from before" if done else ""
    say(f"minfer: fetching {file.repo}/{file.path} ({(file.size or 0) / 2**20:.1f} MiB{kept})")
    try:
        with _explained(file.repo, api), partial.open("ab") as sink:
            url, headers = _location(file, api)
            http_get(
                url, sink, resume_size=done, headers=headers, expected_size=file.size, displayed_filename=file.path
            )
    except (*_UNREACHABLE, OSError) as error:
        cause = _first_line(error)
        raise LocateError(
            f"{file.repo}/{file.path}: the download broke off ({cause}); run the same command again to go on from there"
        ) from error


def _location(file: _RemoteFile, api: HfApi) -> tuple[str, dict[str, str]]:
    url = hf_hub_url(file.repo, file.path, revision=file.commit, endpoint=api.endpoint)
    location = api.get_hf_file_metadata(url=url).location
    headers = build_hf_headers(token=api.token)
    if urlsplit(location).netloc != urlsplit(url).netloc:
        # the storage host's signed address carries its own permission; the user's token is the Hub's alone
        headers.pop("authorization", None)
    return location, headers


@contextmanager
def _explained(repo: str, api: HfApi) -> Iterator[None]:
    """Turn the Hub's refusals into LocateError; what only means 'not now' passes through."""
    try:
        yield
    except GatedRepoError:
        raise LocateError(
            f"{repo} is gated: accept its terms at {api.endpoint}/{repo}, then set HF_TOKEN to a token of that account"
        ) from None
    except HFValidationError as error:
        raise LocateError(f"{repo} is not a repository name: {error}") from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status >= 500:
            raise
        raise LocateError(f"{repo}: {_refusal(repo, api, status, error)}") from None


def _refusal(repo: str, api: HfApi, status: int, error: HfHubHTTPError) -> str:
    if "Invalid credentials" in error.response.headers.get("X-Error-Message", ""):
        return f"{api.endpoint} refuses the token ({status}); set HF_TOKEN to a valid one, or unset it"
    # to the anonymous the Hub answers 401 for a missing repository as for a private one
    if status == 401 or isinstance(error, RepositoryNotFoundError):
        return f"no such repository at {api.endpoint}, or a private one (then set HF_TOKEN){_nearest(repo, api)}"
    if status == 403:
        return f"{api.endpoint} refuses access (403); set HF_TOKEN to a token that may read it"
    return f"{api.endpoint} answers {status}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _nearest(repo: str, api: HfApi) -> str:
    """A hint with the owner's repositories that are spelled almost like `repo`; empty when that cannot be asked."""
    try:
        there = [model.id for model in api.list_models(author=repo.split("/", maxsplit=1)[0], limit=200)]
    except (*_UNREACHABLE, OSError):
        return ""
    nearest = get_close_matches(repo, there, n=3)
    return f"; did you mean {' or '.join(nearest)}?" if nearest else ""
