from __future__ import annotations

import importlib.machinery
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools import cpu_torch

ROOT = Path(__file__).resolve().parents[2]


def test_the_pin_is_the_dev_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert f"torch=={cpu_torch.pinned(ROOT / 'pyproject.toml')}" in extras["dev"]


@pytest.mark.parametrize(("cuda", "status"), [("'13.0'", 1), ("None", 0)])
def test_a_cuda_build_is_refused_with_the_fix(tmp_path: Path, cuda: str, status: int) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise SystemExit('torch is never imported')")
    (tmp_path / "torch/version.py").write_text(f"cuda = {cuda}\n")
    command = [sys.executable, "-m", "tools.cpu_torch", "check"]
    env = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status
    if status:
        assert "built for CUDA 13.0" in done.stderr
        assert f"Fix: {sys.executable} -m pip uninstall -y torch" in done.stderr
    else:
        assert done.stderr == ""


@pytest.mark.parametrize(
    ("platform", "present", "answers", "status", "index"),
    [
        ("linux", False, [0], 0, [False]),
        ("linux", False, [1, 0], 0, [False, True]),
        ("linux", False, [1, 1], 1, [False, True]),
        ("linux", True, [], 0, []),
        ("darwin", False, [], 0, []),
    ],
)
def test_only_a_cpu_build_is_ever_asked_for(
    monkeypatch: pytest.MonkeyPatch, platform: str, present: bool, answers: list[int], status: int, index: list[bool]
) -> None:
    asked: list[list[str]] = []
    pending = list(answers)

    def pip(command: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, pending.pop(0))

    spec = importlib.machinery.ModuleSpec("torch", None) if present else None
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr(subprocess, "run", pip)
    monkeypatch.chdir(ROOT)
    assert cpu_torch.install() == status
    assert [cpu_torch.CPU_INDEX in command for command in asked] == index
    assert all(command[-1] == f"torch=={cpu_torch.pinned()}+cpu" for command in asked)
