"""`minfer doctor`: what it finds, what it complains about, and clearing the kernel cache."""

from __future__ import annotations

import platform
from importlib.metadata import EntryPoint, version
from pathlib import Path

import pytest
from cli_calls import error_line, minfer

from minfer_kernels.cpu.compiler.features import HostFeatures
from minfer_kernels.cpu.compiler.library import KernelLibrary


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, and no settings besides."""
    for name in ("MINFER_THREADS", "MINFER_ISA", "MINFER_FUSIONS_OFF", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MINFER_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_it_reports_versions_cpu_threads_backends_cache_and_settings(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINFER_THREADS", "3")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    outcome = minfer("doctor", "--json")
    report = outcome.json()
    assert (outcome.code, report["problems"]) == (0, [])
    assert report["versions"]["python"] == platform.python_version()
    assert all(report["versions"][p] == version(p) for p in ("minfer", "numba", "llvmlite"))
    host = HostFeatures.detect()
    assert report["cpu"]["llvm name"] == host.cpu
    assert report["cpu"]["features"] == sorted(host.features)
    assert report["cpu"]["instruction set"].startswith(f"{host.best_isa().value} ")
    assert report["threads"]["minfer uses"] == 3
    assert list(report["backends"]) == ["cpu", "numpy"]
    assert {"cpu", "torch:cpu"} <= report["devices"].keys()
    assert report["kernel cache"] == {"folder": str(cache / "kernels"), "kernels": 0, "size": "0.0 MiB"}
    assert report["settings"]["MINFER_THREADS"] == "3"
    assert report["settings"]["HF_TOKEN"] == "set"
    assert "hf_secret" not in outcome.out + minfer("doctor").out


def test_text_has_a_section_for_each_and_says_that_all_is_well(cache: Path) -> None:
    lines = minfer("doctor").out.splitlines()
    sections = [line for line in lines if line and not line.startswith(" ")]
    assert sections == [
        "versions", "cpu", "threads", "backends", "devices", "kernel cache", "settings", "no problems found",
    ]  # fmt: skip
    assert f"  folder   {cache / 'kernels'}" in lines


def test_settings_are_shown_as_the_environment_says_them(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches in the form that the variable takes; what isn't set, with what then counts."""
    monkeypatch.setenv("MINFER_GPU_CAPTURE", "0")
    told = minfer("doctor")
    shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in told.out.splitlines() if "  MINFER_" in line}
    assert (shown["MINFER_GPU_CAPTURE"], shown["MINFER_GPU_ASYNC_COPIES"]) == ("0", "1")
    assert (shown["MINFER_THREADS"], shown["MINFER_ISA"]) == ("unset: the physical cores", "auto")
    assert shown["MINFER_PLUGINS"] == "unset: none"
    kept = minfer("doctor", "--json").json()["settings"]
    assert (kept["MINFER_GPU_CAPTURE"], kept["MINFER_THREADS"], kept["MINFER_PLUGINS"]) == ("0", None, [])


def test_kernels_are_counted_and_cleared(cache: Path) -> None:
    KernelLibrary(cache_dir=cache / "kernels").load(["elementwise.add", "elementwise.mul"])
    assert minfer("doctor", "--json").json()["kernel cache"]["kernels"] == 2
    cleared = minfer("doctor", "--clear-kernels", "--json").json()["kernel cache"]
    assert (cleared["kernels"], cleared["cleared"].split(",")[0]) == (0, "2 kernels")
    assert not list((cache / "kernels").rglob("*.kernel"))


def test_a_cache_that_can_t_be_written_is_a_problem(cache: Path) -> None:
    (cache / "kernels").write_text("in the way")
    outcome = minfer("doctor")
    assert outcome.code == 3
    assert f"PROBLEM: the kernel cache {cache / 'kernels'} can't be written" in outcome.out


def test_plug_ins_are_listed_and_one_that_does_not_load_is_a_problem(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [
        EntryPoint("good", "minfer_ir.runtime.numpy_backend:NumpyBackend", "minfer.backends"),
        EntryPoint("bad", "no_such_module:Backend", "minfer.backends"),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    report = minfer("doctor", "--json").json()
    assert list(report["backends"]) == ["cpu", "numpy", "good", "bad"]
    assert report["problems"] == [
        "backend bad (no_such_module:Backend): ModuleNotFoundError: No module named 'no_such_module'"
    ]


def test_a_misspelled_variable_is_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINFER_THREDS", "2")
    assert "did you mean MINFER_THREADS?" in error_line(minfer("doctor"))
