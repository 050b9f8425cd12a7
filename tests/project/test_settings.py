from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from minfer_models.settings import Settings, SettingsError, require_known, settings_page, without_blas_threads


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()
    assert Settings().cache_dir == Path.home() / ".cache" / "minfer"
    assert Settings().isa == "auto"
    assert Settings().threads is None


def test_every_variable_is_read() -> None:
    settings = Settings.from_env(
        {
            "MINFER_CACHE_DIR": "/data/minfer",
            "MINFER_THREADS": "6",
            "MINFER_THREADS_FIXED": "1",
            "MINFER_ISA": "portable",
            "MINFER_DEVICE": "cuda:1",
            "MINFER_GPU_LAYERS": "auto",
            "MINFER_GPU_MEM": "2048",
            "MINFER_GPU_CAPTURE": "0",
            "MINFER_GPU_ACTIVATIONS": "f16",
            "MINFER_GPU_ASYNC_COPIES": "0",
            "MINFER_GPU_INVARIANT": "1",
            "MINFER_GPU_DECODE_APART": "1",
            "MINFER_FUSIONS_OFF": "swiglu, add_rms_norm",
            "MINFER_PLUGINS": "gathered-norm",
            "MINFER_TEST_CALL_FAIL": "kv.store,tape.run",
            "HF_ENDPOINT": "http://127.0.0.1:8000/",
            "HF_TOKEN": "hf_secret",
            "HOME": "/root",
        }
    )
    assert dataclasses.asdict(settings) == {
        "cache_dir": Path("/data/minfer"),
        "threads": 6,
        "threads_fixed": True,
        "isa": "portable",
        "device": "cuda:1",
        "gpu_layers": "auto",
        "gpu_mem": 2048,
        "gpu_activations": "f16",
        "gpu_capture": False,
        "gpu_async_copies": False,
        "gpu_invariant": True,
        "gpu_decode_apart": True,
        "fusions_off": ("swiglu", "add_rms_norm"),
        "plugins": ("gathered-norm",),
        "test_call_fail": ("kv.store", "tape.run"),
        "hf_endpoint": "http://127.0.0.1:8000",
        "hf_token": "hf_secret",
    }


def test_the_processs_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINFER_THREADS", "3")
    assert Settings.from_env().threads == 3


def test_the_cache_follows_xdg_unless_it_is_set_itself() -> None:
    assert Settings.from_env({"XDG_CACHE_HOME": "/xdg"}).cache_dir == Path("/xdg/minfer")
    assert Settings.from_env({"XDG_CACHE_HOME": "/xdg", "MINFER_CACHE_DIR": "/own"}).cache_dir == Path("/own")


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number that no list of users has."""

    def nobody(_uid: int) -> Any:
        raise KeyError(_uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(SettingsError, match=r"no home folder is known: .* set MINFER_CACHE_DIR to a folder"):
        Settings.from_env({})
    assert Settings.from_env({"MINFER_CACHE_DIR": "/own"}).cache_dir == Path("/own")
    with pytest.raises(SettingsError, match="MINFER_CACHE_DIR='~/own': expected a folder"):
        Settings.from_env({"MINFER_CACHE_DIR": "~/own"})


def test_an_empty_value_is_unset() -> None:
    assert Settings.from_env({"MINFER_THREADS": "", "HF_TOKEN": ""}) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("MINFER_THREADS", "0", "a whole number from 1"),
        ("MINFER_THREADS", "-2", "a whole number from 1"),
        ("MINFER_THREADS", "two", "a whole number from 1"),
        ("MINFER_THREADS", "1.5", "a whole number from 1"),
        ("MINFER_THREADS_FIXED", "yes", "0, 1"),
        ("MINFER_ISA", "AVX2", "auto, portable, avx2, avx512vnni, avx512amx"),
        ("MINFER_FUSIONS_OFF", "a,b,a", "names of fusions, comma between them, each once"),
        ("HF_ENDPOINT", "huggingface.co", "an http or https address"),
    ],
)
def test_a_wrong_value_names_variable_value_and_what_is_allowed(name: str, value: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({name: value})
    assert str(caught.value) == f"{name}={value!r}: expected {expected}"


def test_an_unknown_variable_suggests_the_nearest() -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({"MINFER_THREAD": "2"})
    message = str(caught.value)
    assert message.startswith("MINFER_THREAD='2': unknown variable; did you mean MINFER_THREADS? minfer reads ")
    assert all(name in message for name in ("MINFER_CACHE_DIR", "MINFER_ISA", "MINFER_FUSIONS_OFF"))


def test_the_token_is_not_shown() -> None:
    assert "hf_secret" not in repr(Settings(hf_token="hf_secret"))


def test_names_are_checked_against_a_registry() -> None:
    require_known("MINFER_FUSIONS_OFF", ("swiglu",), ("add_rms_norm", "swiglu"))
    with pytest.raises(SettingsError) as caught:
        require_known("MINFER_FUSIONS_OFF", ("swiglu", "swigloo"), ("add_rms_norm", "swiglu"))
    expected = "MINFER_FUSIONS_OFF: unknown name 'swigloo'; did you mean 'swiglu'? known: add_rms_norm, swiglu"
    assert str(caught.value) == expected


def test_the_page_has_a_row_for_every_field() -> None:
    rows = [line.split("|")[1].strip() for line in settings_page().splitlines() if line.startswith("| `")]
    assert rows == [f"`{spec.metadata['name']}`" for spec in dataclasses.fields(Settings)]


@pytest.mark.parametrize(
    ("environ", "put"),
    [
        ({}, [("OPENBLAS_NUM_THREADS", "1")]),
        ({"OPENBLAS_NUM_THREADS": "", "MKL_NUM_THREADS": "2"}, [("OPENBLAS_NUM_THREADS", "1")]),
        ({"OPENBLAS_NUM_THREADS": "3"}, []),
        ({"GOTO_NUM_THREADS": "3"}, []),
        ({"OMP_NUM_THREADS": "3"}, []),
    ],
)
def test_blas_keeps_the_threads_that_the_user_asked_for(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], put: list[tuple[str, str]]
) -> None:
    heard: list[tuple[str, str]] = []
    monkeypatch.setattr(os, "putenv", lambda name, value: heard.append((name, value)))
    without_blas_threads(environ)
    assert heard == put
    monkeypatch.setattr(os, "environ", environ)
    without_blas_threads()
    assert heard == put + put
