"""`minfer doctor`: what minfer finds on this machine."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minfer_models.cli.command import FOUND

if TYPE_CHECKING:
    from minfer_kernels.cpu.compiler.library import KernelLibrary
    from minfer_models.settings import Settings

PACKAGES = ("minfer", "numpy", "numba", "llvmlite", "torch", "triton", "gguf", "tokenizers", "huggingface_hub")

Section = dict[str, Any]


def doctor(
    clear_kernels: Annotated[bool, typer.Option("--clear-kernels", help="Empty the kernel cache first.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what minfer finds here.

    Versions, the CPU, threads, backends, devices, the kernel cache and the settings in effect.

    Exit code 3 when there is a problem.
    """
    from minfer_models.backends import kernel_library
    from minfer_models.settings import Settings

    settings = Settings.from_env()
    library = kernel_library(settings, settings.isa)
    cleared = _clear(library) if clear_kernels else None
    problems: list[str] = []
    report = {
        "versions": _versions(),
        "cpu": _cpu(library),
        "threads": _threads(settings),
        "backends": _backends(library, problems),
        "devices": _devices(problems),
        "kernel cache": _cache(library, cleared, problems),
        "settings": _settings(settings),
    }
    if as_json:
        typer.echo(json.dumps(report | {"problems": problems}, indent=2))
    else:
        told = report | {"settings": _with_defaults(Settings, report["settings"])}
        typer.echo("\n\n".join(_section_text(name, section) for name, section in told.items()))
        typer.echo("\n" + ("\n".join(f"PROBLEM: {p}" for p in problems) or "no problems found"))
    if problems:
        raise typer.Exit(FOUND)


def _section_text(name: str, section: Section) -> str:
    width = max(map(len, section))
    return "\n".join([name, *(f"  {key:<{width}}  {_shown(value)}" for key, value in section.items())])


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _versions() -> Section:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found: Section = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _cpu(library: KernelLibrary) -> Section:
    from minfer_kernels.cpu.compiler.features import HostFeatures
    from minfer_models.bench.machine import Machine

    machine, host = Machine.here(), HostFeatures.detect()
    return {
        "name": machine.cpu,
        "llvm name": host.cpu,
        "system": machine.system,
        "instruction set": f"{library.isa.value} (best here: {host.best_isa().value})",
        "features": sorted(host.features),
    }


def _threads(settings: Settings) -> Section:
    from minfer_kernels.cpu.runner.cores import cpu_quota, default_threads

    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    quota = cpu_quota()
    return {
        "logical cpus": os.cpu_count(),
        "in the affinity mask": affinity,
        "physical cores of these": default_threads(cgroup=Path(os.devnull)),
        "cgroup quota": "no limit" if quota is None else quota,
        "minfer uses": settings.threads or default_threads(),
    }


def _backends(library: KernelLibrary, problems: list[str]) -> Section:
    from importlib.metadata import entry_points

    from minfer_models.backends import ENTRY_POINTS

    found: Section = {"cpu": f"Numba kernels for {library.isa.value}", "numpy": "the ops' references, slow"}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
            found[point.name] = f"from {point.value}"
        except Exception as error:  # a plug-in may fail in any way; the report goes on
            found[point.name] = f"from {point.value}: does not load"
            problems.append(f"backend {point.name} ({point.value}): {type(error).__name__}: {error}")
    return found


def _devices(problems: list[str]) -> Section:
    """What `--device` takes here besides the backends that have no device."""
    from minfer_models.devices import devices_here

    try:
        return {"cpu": "the CPU backend", **devices_here()}
    except Exception as error:  # torch or a driver may fail in any way; the report goes on
        problems.append(f"looking for devices: {type(error).__name__}: {error}")
        return {"cpu": "the CPU backend"}


def _clear(library: KernelLibrary) -> str:
    before = library.cache_info()
    library.clear()
    return f"{before.files} kernels, {before.bytes / 2**20:.1f} MiB"


def _cache(library: KernelLibrary, cleared: str | None, problems: list[str]) -> Section:
    info = library.cache_info()
    if info.directory is not None and (problem := _write_problem(info.directory)) is not None:
        problems.append(problem)
    section: Section = {
        "folder": None if info.directory is None else str(info.directory),
        "kernels": info.files,
        "size": f"{info.bytes / 2**20:.1f} MiB",
    }
    return section if cleared is None else section | {"cleared": cleared}


def _write_problem(folder: Path) -> str | None:
    """Why kernels can't be stored in `folder`, if they can't."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"the kernel cache {folder} can't be written ({error.strerror}): kernels compile in every process"


def _settings(settings: Settings) -> Section:
    """As the environment would say it; None, or an empty list, where it says nothing and nothing is chosen yet."""
    shown: Section = {}
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        if spec.name == "hf_token":
            value = None if value is None else "set"
        elif isinstance(value, bool):
            value = str(int(value))
        shown[spec.metadata["name"]] = list(value) if isinstance(value, tuple) else value and str(value)
    return shown


def _with_defaults(settings: type[Settings], section: Section) -> Section:
    """Settings as text: what becomes of those that aren't given."""
    defaults = {s.metadata["name"]: s.metadata["shown"].replace("`", "") for s in fields(settings)}
    return {name: f"unset: {defaults[name]}" if value in (None, []) else value for name, value in section.items()}
