"""Every environment variable minfer reads, in one frozen value that gets passed down.

No other module reads the environment: a run is described by its arguments and one `Settings`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

PREFIX = "MINFER_"
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
"""What OpenBLAS takes its number of threads from, the first that is set."""
ISAS = ("auto", "portable", "avx2", "avx512vnni", "avx512amx")
ACTIVATIONS = ("8-bit", "8-bit-all", "f16")


class SettingsError(ValueError):
    """An environment variable that minfer does not know, or a value that it does not take."""


def _threads(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(text)
    return text == "1"


def _isa(text: str) -> str:
    if text not in ISAS:
        raise ValueError(text)
    return text


def _device(text: str) -> str:
    if not text.strip() or text != text.strip():
        raise ValueError(text)
    return text


def _activations(text: str) -> str:
    if text not in ACTIVATIONS:
        raise ValueError(text)
    return text


def _layers(text: str) -> str:
    if text != "auto" and not text.isdecimal():
        raise ValueError(text)
    return text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len(set(names)) != len(names):
        raise ValueError(text)
    return names


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # ~ or ~NAME of nobody known
        raise ValueError(text) from error


def _home_cache() -> Path:
    """Raises SettingsError for a user without a home, as in a container that runs under a bare number."""
    try:
        return Path("~/.cache/minfer").expanduser()
    except RuntimeError:
        raise SettingsError(
            "no home folder is known: HOME isn't set, and the user has no entry with one; set MINFER_CACHE_DIR to a "
            "folder for models and compiled kernels"
        ) from None


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError(text)
    return text.rstrip("/")


def _variable(name: str, parse: Callable[[str], Any], *, allowed: str, doc: str, shown: str) -> dict[str, Any]:
    return {"name": name, "parse": parse, "allowed": allowed, "doc": doc, "shown": shown}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says; every field has a default, so `Settings()` is the plain configuration."""

    cache_dir: Path = field(
        default_factory=_home_cache,
        metadata=_variable(
            "MINFER_CACHE_DIR",
            _path,
            allowed="a folder, created when needed",
            doc="Where models, test data and compiled kernels are kept.",
            shown="`$XDG_CACHE_HOME/minfer`, or `~/.cache/minfer`",
        ),
    )
    threads: int | None = field(
        default=None,
        metadata=_variable(
            "MINFER_THREADS",
            _threads,
            allowed="a whole number from 1",
            doc="Worker threads of the CPU backend where `-t` is not given.",
            shown="the physical cores",
        ),
    )
    threads_fixed: bool = field(
        default=False,
        metadata=_variable(
            "MINFER_THREADS_FIXED",
            _switch,
            allowed="`0`, `1`",
            doc="1: always use all worker threads. 0: fewer while other processes keep cores busy. Same bits.",
            shown="`0`",
        ),
    )
    isa: str = field(
        default="auto",
        metadata=_variable(
            "MINFER_ISA",
            _isa,
            allowed=", ".join(f"`{isa}`" for isa in ISAS),
            doc="The instruction set that CPU kernels are written for. Every choice gives the same bits.",
            shown="`auto`: the best that the host has",
        ),
    )
    device: str = field(
        default="auto",
        metadata=_variable(
            "MINFER_DEVICE",
            _device,
            allowed="`auto`, `cpu`, `cuda`, `cuda:N`, `torch:DEVICE`, `numpy`, or a plug-in's name",
            doc="What runs the model where `--device` is not given.",
            shown="`auto`: the first GPU, or the CPU",
        ),
    )
    gpu_layers: str | None = field(
        default=None,
        metadata=_variable(
            "MINFER_GPU_LAYERS",
            _layers,
            allowed="a whole number, or `auto`",
            doc="How many of the model's layers a GPU runs, the CPU the rest; `auto`: as many as fit.",
            shown="all",
        ),
    )
    gpu_mem: int | None = field(
        default=None,
        metadata=_variable(
            "MINFER_GPU_MEM",
            _threads,
            allowed="a whole number of MiB from 1",
            doc="The most memory to use on a GPU.",
            shown="three quarters of what is free",
        ),
    )
    gpu_activations: str = field(
        default="8-bit",
        metadata=_variable(
            "MINFER_GPU_ACTIVATIONS",
            _activations,
            allowed="`8-bit`, `8-bit-all`, `f16`",
            doc="How products read theirs on a GPU where the weights are quantized: up to 16 rows as 8-bit blocks and "
            "more rounded to float16, all as 8-bit blocks, or all rounded to float16.",
            shown="`8-bit`",
        ),
    )
    gpu_capture: bool = field(
        default=True,
        metadata=_variable(
            "MINFER_GPU_CAPTURE",
            _switch,
            allowed="`0`, `1`",
            doc="1: replay steps as captured CUDA graphs from the fourth on. 0: launch every kernel. Same bits.",
            shown="`1`",
        ),
    )
    gpu_async_copies: bool = field(
        default=True,
        metadata=_variable(
            "MINFER_GPU_ASYNC_COPIES",
            _switch,
            allowed="`0`, `1`",
            doc="1: copies between host and GPU are not waited for before they are needed. 0: each is. Same bits.",
            shown="`1`",
        ),
    )
    gpu_invariant: bool = field(
        default=False,
        metadata=_variable(
            "MINFER_GPU_INVARIANT",
            _switch,
            allowed="`0`, `1`",
            doc="1: a GPU computes every row with the kernels of few rows, so that its bits depend on nothing beside "
            "it nor on how the prompt was cut. Prompts take longer.",
            shown="`0`",
        ),
    )
    gpu_decode_apart: bool = field(
        default=False,
        metadata=_variable(
            "MINFER_GPU_DECODE_APART",
            _switch,
            allowed="`0`, `1`",
            doc="1: where a prompt shares a step with other sequences' tokens on a GPU, attention goes through those "
            "in parts, side by side, as in a step without the prompt, and takes memory for the parts. 0: a tile of the "
            "prompt's kernel each. With `MINFER_GPU_INVARIANT` all rows go in parts anyway.",
            shown="`0`",
        ),
    )
    fusions_off: tuple[str, ...] = field(
        default=(),
        metadata=_variable(
            "MINFER_FUSIONS_OFF",
            _names,
            allowed="names of fusions, comma between them, each once",
            doc="Fusions to leave out of the plan: one side of an A/B.",
            shown="none",
        ),
    )
    plugins: tuple[str, ...] = field(
        default=(),
        metadata=_variable(
            "MINFER_PLUGINS",
            _names,
            allowed="names of installed plug-ins, comma between them, each once",
            doc="Plug-ins whose ops, fusions and kernels take part.",
            shown="none",
        ),
    )
    test_call_fail: tuple[str, ...] = field(
        default=(),
        metadata=_variable(
            "MINFER_TEST_CALL_FAIL",
            _names,
            allowed="names of call sites, comma between them, each once",
            doc="Call sites that the engine's probe makes fail: for tests of the failure paths.",
            shown="none",
        ),
    )
    hf_endpoint: str | None = field(
        default=None,
        metadata=_variable(
            "HF_ENDPOINT",
            _url,
            allowed="an http or https address",
            doc="The Hugging Face Hub that `owner/repo:TAG` names are looked up at.",
            shown="`https://huggingface.co`",
        ),
    )
    hf_token: str | None = field(
        default=None,
        repr=False,
        metadata=_variable(
            "HF_TOKEN",
            str,
            allowed="a token",
            doc="The token for private and gated repositories.",
            shown="the one that `hf auth login` stored, if any",
        ),
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read `environ` (the process's own by default); an empty value counts as unset.

        Raises SettingsError for an unknown `MINFER_*` variable, naming the nearest known one, and for a value that
        the variable does not take, naming what it takes.
        """
        environ = os.environ if environ is None else environ
        known = {spec.metadata["name"]: spec for spec in fields(cls)}
        _refuse_unknown(environ, [name for name in known if name.startswith(PREFIX)])
        values = {spec.name: _parsed(spec.metadata, environ[name]) for name, spec in known.items() if environ.get(name)}
        if "cache_dir" not in values and environ.get("XDG_CACHE_HOME"):
            values["cache_dir"] = Path(environ["XDG_CACHE_HOME"]) / "minfer"
        return cls(**values)


def _refuse_unknown(environ: Mapping[str, str], known: list[str]) -> None:
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known:
            continue
        nearest = get_close_matches(name, known, n=1)
        hint = f"did you mean {nearest[0]}? " if nearest else ""
        raise SettingsError(f"{name}={environ[name]!r}: unknown variable; {hint}minfer reads {', '.join(known)}")


def _parsed(metadata: Mapping[str, Any], text: str) -> Any:
    try:
        return metadata["parse"](text)
    except ValueError:
        allowed = metadata["allowed"].replace("`", "")
        raise SettingsError(f"{metadata['name']}={text!r}: expected {allowed}") from None


def require_known(variable: str, names: tuple[str, ...], known: tuple[str, ...]) -> None:
    """Refuse a name in a list variable (`MINFER_FUSIONS_OFF`) that is not in `known`, the registry's names.

    Raises SettingsError naming the variable, the name, the nearest known one and all of them.
    """
    for name in names:
        if name in known:
            continue
        nearest = get_close_matches(name, known, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise SettingsError(f"{variable}: unknown name {name!r}; {hint}known: {', '.join(known) or 'none'}")


def settings_page() -> str:
    """docs/settings.md, from the fields of `Settings`."""
    lines = [
        "<!-- Generated from minfer_models/settings.py by `python -m tools.generate`; edit that file. -->",
        "# Settings",
        "",
        "minfer reads these environment variables, and no others. A misspelled `MINFER_*` variable or a value that is",
        "not allowed is an error. Command-line options win over variables. (Libraries such as numba have variables",
        "of their own. Where none of those that OpenBLAS takes its threads from is set (`OPENBLAS_NUM_THREADS`,",
        "`GOTO_NUM_THREADS`, `OMP_NUM_THREADS`), `minfer run` has numpy start none: its kernels don't use them.)",
        "",
        "| Variable | Values | Default | What it does |",
        "| --- | --- | --- | --- |",
    ]
    for spec in fields(Settings):
        data = spec.metadata
        lines.append(f"| `{data['name']}` | {data['allowed']} | {data['shown']} | {data['doc']} |")
    lines += [
        "",
        "In Python the same values are fields of `minfer_models.settings.Settings`; `Settings.from_env()` reads the",
        "environment, and nothing else in minfer does.",
    ]
    return "\n".join(lines) + "\n"


def without_blas_threads(environ: Mapping[str, str] | None = None) -> None:
    """Have numpy start no threads for products as it is imported: a twentieth of a start, and only the numpy backend
    would use them. A number that `environ` (the process's own by default) asks for stays.
    """
    environ = os.environ if environ is None else environ
    if not any(environ.get(name) for name in BLAS_THREADS):
        os.putenv(BLAS_THREADS[0], "1")
