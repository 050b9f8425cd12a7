"""A sampler that looks at logits natively chooses as the one in numpy, and refuses as it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.largest import MOST, Largest
from minfer_models.sampling import Sampler, SamplingError, SamplingParams

LIBRARY = KernelLibrary(None, Path(__file__).resolve().parents[2] / ".cache" / "test-kernels")
PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0, 0.3, 0.8, 2.5]),
    top_k=st.sampled_from([0, 1, 2, 7, 40, 2000]),
    top_p=st.sampled_from([0, 0.3171, 0.9, 0.95, 1]),
    min_p=st.sampled_from([0, 0.05, 0.7]),
    seed=st.integers(0, 2**64 - 1),
)


def pair(params: SamplingParams, n: int, decodable: int) -> tuple[Sampler, Sampler]:
    def largest(n: int, k: int) -> Largest | None:
        return Largest(LIBRARY, n, k) if k <= MOST else None

    return Sampler(params, n, decodable, largest), Sampler(params, n, decodable)


@settings(max_examples=200, deadline=None)
@given(params=PARAMS, n=st.integers(1, 400), width=st.sampled_from([0.01, 1.0, 8.0]), data=st.data())
def test_the_same_choices(params: SamplingParams, n: int, width: float, data: st.DataObject) -> None:
    decodable = data.draw(st.integers(1, n))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    rows = (rng.standard_normal((3, n)) * width).round(2).astype(np.float32)
    rows[:, decodable:] = math.nan
    rows[2, rng.integers(0, decodable)] = -math.inf
    native, numpy = pair(params, n, decodable)
    for row in rows:
        if row[:decodable].max() == -math.inf:
            continue
        assert native.sample(row) == numpy.sample(row)
        ids, probabilities = native.distribution(row)
        expected = numpy.distribution(row)
        assert ids.tolist() == expected[0].tolist()
        assert probabilities.tolist() == expected[1].tolist()


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("bad", [math.nan, math.inf, None])
def test_the_same_refusals(temperature: float, bad: float | None) -> None:
    row = np.full(100, -math.inf if bad is None else 0.5, np.float32)
    if bad is not None:
        row[70] = bad
    messages: list[str] = []
    for sampler in pair(SamplingParams(temperature=temperature, seed=1), 100, 100):
        sampler.step = 3
        with pytest.raises(SamplingError) as error:
            sampler.sample(row)
        messages.append(str(error.value))
        assert sampler.step == 3
        with pytest.raises(SamplingError, match=r"shape \(99,\), not \(100,\)"):
            sampler.sample(row[:99])
    assert messages[0] == messages[1]
    assert "at step 3" in messages[0]
