"""Hostile files: each refused with its own cause, in bounded memory and work, in a child that cannot hang the suite."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile_files import Hostile, all_hostile

HERE = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
"""A script's own folder comes first on its path: without this it would import what is installed, not this tree."""
HOSTILE = all_hostile()
MAX_BYTES = 64 << 20
# Measured: 80 to 210.
MAX_CALLS = 1_000

Reports = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    folder = tmp_path_factory.mktemp("hostile")
    paths = {name: folder / f"{i}.gguf" for i, name in enumerate(HOSTILE)}
    for name, path in paths.items():
        with path.open("wb") as file:
            file.write(HOSTILE[name].content)
            file.truncate(HOSTILE[name].size)
    child = [sys.executable, str(Path(__file__).with_name("open_child.py")), *map(str, paths.values())]
    done = subprocess.run(child, capture_output=True, text=True, timeout=120, check=False, env=HERE)
    assert done.returncode == 0, done.stderr
    by_path = {line["path"]: line for line in map(json.loads, done.stdout.splitlines())}
    return {name: by_path[str(path)] for name, path in paths.items()}


@pytest.mark.parametrize("name", HOSTILE)
def test_refused_with_its_cause(name: str, reports: Reports) -> None:
    assert reports[name]["error"] is not None
    assert re.search(HOSTILE[name].error, reports[name]["error"], re.DOTALL)


@pytest.mark.parametrize("name", HOSTILE)
def test_memory_and_work_are_bounded(name: str, reports: Reports) -> None:
    assert reports[name]["peak"] < MAX_BYTES + HOSTILE[name].size
    if HOSTILE[name].length is not None:  # a large file must not buy allocation either
        assert reports[name]["peak"] < MAX_BYTES
    assert reports[name]["calls"] < MAX_CALLS


LISTED = {
    "one byte short", "ends inside the padding", "no data", "1 GiB declared in 64 bytes", "a patched row count",
    "just below 2^63", "offset past the end", "type id COUNT", "type id 2^32-1", "a removed type",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_only_short_data_and_unknown_types_open_for_listing(name: str, reports: Reports) -> None:
    assert (reports[name]["lenient"] is None) == (name in LISTED)


def test_the_bound_sees_allocation(tmp_path: Path) -> None:
    """The control: an array that the file really holds is allocated, and the measure shows it."""
    from gguf_bytes import U8, array, build

    path = tmp_path / "real.gguf"
    path.write_bytes(build([array("k", U8, 3 << 20, b"\1" * (3 << 20))]))
    child = [sys.executable, str(Path(__file__).with_name("open_child.py")), str(path)]
    line = json.loads(subprocess.run(child, capture_output=True, text=True, timeout=120, check=True, env=HERE).stdout)
    assert line["error"] is None
    assert line["peak"] >= 3 << 20


def test_every_case_is_a_file_of_its_own() -> None:
    assert len({case.content + bytes([case.size & 255]) for case in HOSTILE.values()}) == len(HOSTILE)
    assert all(isinstance(case, Hostile) for case in HOSTILE.values())
