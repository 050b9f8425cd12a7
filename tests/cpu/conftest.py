from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from cpu_harness import Runner, runners

from minfer_kernels.cpu.compiler.features import Isa


@pytest.fixture(scope="session")
def cpu() -> Iterator[Mapping[Isa, Runner]]:
    """A kernel runner per instruction set; compiled kernels stay in .cache/test-kernels."""
    with runners() as made:
        yield made
