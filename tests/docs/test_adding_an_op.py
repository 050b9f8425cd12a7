"""docs/adding-an-op.md, executed step by step on a copy of the packages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python (?P<how>append|replace|run)(=(?P<file>\S+))?\n(?P<code>.*?)^```$", re.M | re.S)


def apply(copy: Path, how: str, file: str, code: str) -> None:
    target = copy / file
    text = target.read_text()
    if how == "append":
        target.write_text(f"{text}\n\n{code}")
        return
    old, new = code.split("---\n")
    assert text.count(old) == 1, f"the page replaces a line that {file} has {text.count(old)} times:\n{old}"
    target.write_text(text.replace(old, new))


def test_the_page_adds_a_working_op(tmp_path: Path) -> None:
    copy = tmp_path / "packages"
    for package in ("minfer_ir", "minfer_kernels"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    blocks = list(BLOCK.finditer((ROOT / "docs/adding-an-op.md").read_text()))
    assert [b["how"] for b in blocks].count("run") == 2
    for block in blocks:
        if block["how"] != "run":
            apply(copy, block["how"], block["file"], block["code"])
            continue
        script = tmp_path / "step.py"
        script.write_text(block["code"])
        environment = {"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin"}
        ran = subprocess.run(
            [sys.executable, script],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
