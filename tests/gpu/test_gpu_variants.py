"""How many kernels a compiler is asked for: one per bucket of rows at most, whatever lengths come.

Triton compiles a kernel anew when an integer argument becomes 1 or a multiple of 16, unless it is told not to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from minfer_ir.params import DevicePlan, bucket
from minfer_kernels.gpu.backend import GpuBackend, GpuProgram
from minfer_kernels.gpu.launch import Launch
from minfer_models import load
from minfer_models.llm import LLM
from minfer_models.synthetic import SyntheticModel, write_model

LENGTHS = (1, 15, 16, 17, 32, 33)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = write_model(tmp_path_factory.mktemp("variants") / "m.gguf", SyntheticModel("qwen3", weights="Q8_0"))
    backend = GpuBackend(torch.device("cpu"))  # type: ignore[arg-type]
    with load(path, backends=[backend], devices=DevicePlan(("gpu",)), n_ctx=128, chunk=64) as llm:
        yield llm


def launches(llm: LLM, rows: int) -> Sequence[Launch]:
    """Those of a forward over `rows` tokens."""
    executable = llm.engine.executable(llm.engine.params(rows))
    programs = [program for program in executable.programs if isinstance(program, GpuProgram)]
    assert len(programs) == 1
    return programs[0].launches


def number(value: int) -> str:
    """What Triton tells apart."""
    return "1" if value == 1 else "16n" if value % 16 == 0 else "n"


def numbers(launch: Launch) -> tuple[tuple[str, str], ...]:
    """The integer arguments that a compiled kernel depends on."""
    spared = getattr(launch.kernel, "do_not_specialize", None) or ()
    whole = {name: value for name, value in launch.args.items() if isinstance(value, int) and name not in spared}
    return tuple((name, number(value)) for name, value in whole.items())


def chosen(launch: Launch) -> tuple[Any, ...]:
    """All else that it depends on: the kernel, the types of its pointers, constants, warps and stages."""
    types = tuple((n, value.dtype) for n, value in launch.args.items() if isinstance(value, torch.Tensor))
    return launch.kernel.__name__, types, tuple(launch.constants.items()), launch.warps, launch.stages


def test_no_kernel_is_compiled_again_because_a_number_became_one_or_a_multiple_of_sixteen(llm: LLM) -> None:
    specialized: dict[Any, set[Any]] = defaultdict(set)
    for rows in LENGTHS:
        for launch in launches(llm, rows):
            specialized[chosen(launch)].add(numbers(launch))
    assert len(specialized) > 20
    assert {key: found for key, found in specialized.items() if len(found) > 1} == {}


def test_a_length_needs_no_kernels_that_its_bucket_lacks(llm: LLM) -> None:
    for rows in range(1, 65):
        assert launches(llm, rows) is launches(llm, bucket(rows, 64))
