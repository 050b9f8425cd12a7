from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = """
import pytest

def test_full_in_the_name_only():
    pass

@pytest.mark.full
@pytest.mark.parametrize("n", range(3))
def test_long(n):
    pass
"""


@pytest.mark.parametrize(
    ("arguments", "closing", "header"),
    [
        ([], "1 passed, 3 deselected", "full: off, tests marked `full` are left out (tools/test --full runs them)"),
        (["--full"], "4 passed", "full: on, the long sweeps run too"),
        (["-n", "2"], "1 passed", "full: off"),
    ],
)
def test_long_sweeps_run_with_full_and_the_header_says_so(
    tmp_path: Path, arguments: list[str], closing: str, header: str
) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    config = tmp_path / "pytest.ini"
    config.write_text("[pytest]\nmarkers =\n    full: long\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", str(config), *arguments, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert closing in lines[-1], done.stdout
    assert any(line.startswith(header) for line in lines)
