"""The GPU kernels, compiled for devices that aren't here: promises kept, nothing different from docs/kernels.json."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import triton

from minfer_kernels.gpu.gate.inventory import inventory, tile_tables
from minfer_kernels.gpu.gate.pool import compile_all
from minfer_kernels.gpu.gate.record import page
from minfer_kernels.gpu.gate.verify import complaints, jobs_of, recorded_complaints
from minfer_kernels.gpu.targets import MAIN, TARGETS
from minfer_models.settings import Settings
from tools.kernel_gate import PAGE, read_record

KNOWN = inventory()
CACHE = Settings.from_env().cache_dir / "kernel-gate"


def complaints_about(jobs: Sequence[tuple[str, str]]) -> list[str]:
    """Of all `jobs`; none of them is lost on the way."""
    record = read_record()
    compiled = list(compile_all(jobs, CACHE, os.environ, workers=1))
    assert sorted((one.target, one.name) for one in compiled) == sorted(jobs)
    return [
        f"{one.name} for {one.target}: {line} (deliberate? tools/kernel_gate --write)"
        for one in compiled
        for line in complaints(one, KNOWN[one.target][one.name], record, triton.__version__)
    ]


def test_a_sample_of_the_kernels_keeps_its_promises() -> None:
    jobs = jobs_of(KNOWN, [MAIN], sampled=True)
    assert jobs
    assert complaints_about(jobs) == []


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_keeps_its_promises(target: str) -> None:
    assert complaints_about(jobs_of(KNOWN, [target])) == []


def test_on_other_devices_the_widest_tile_keeps_its_promises() -> None:
    others = [target for target in TARGETS if target != MAIN]
    assert complaints_about(jobs_of(KNOWN, others, "products.tiles.Q4_0.7b.512rows")) == []


def test_nothing_that_is_recorded_breaks_a_promise_on_any_device() -> None:
    assert recorded_complaints(KNOWN, read_record()) == []


def test_the_page_is_that_of_the_record() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read_record(), KNOWN, tile_tables())


def test_what_was_compiled_before_is_read_from_the_cache(tmp_path: Path) -> None:
    job = (MAIN, "elementwise.scale")
    (first,) = compile_all([job], tmp_path, os.environ)
    (kept,) = tmp_path.iterdir()
    planted = json.loads(kept.read_text()) | {"registers": 1}
    kept.write_text(json.dumps(planted))
    (second,) = compile_all([job], tmp_path, os.environ)
    assert first.figures is not None and first.figures.registers > 1
    assert second.figures is not None and second.figures.registers == 1


def test_a_process_that_ends_early_is_reported_with_what_it_said(tmp_path: Path) -> None:
    (one,) = compile_all([(MAIN, "no.such.kernel")], tmp_path, os.environ)
    assert one.figures is None
    assert one.error is not None and "KeyError: 'no.such.kernel'" in one.error
