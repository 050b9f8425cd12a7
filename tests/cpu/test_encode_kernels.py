"""Encoding natively: the bytes and the errors of the formats' own encoders, whatever the values."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import ISAS, library
from numpy.typing import NDArray

from minfer_ir.formats import WEIGHT_FORMATS, EncodeError
from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.encoding import NativeEncoders
from minfer_kernels.cpu.kernels.parts.encode_chunks import CHUNKS

Floats = NDArray[np.float32]

BOTH = sorted({ISAS[0], Isa.PORTABLE})
"""The host's best, and what runs anywhere: encoders know no others."""
SPECIAL = (
    0.0,
    -0.0,
    2.0**-149,
    -(2.0**-149),
    2.0**-126,
    -1e-40,
    1e-36,
    -2e-15,
    0.5,
    -0.5,
    1.5,
    8191.9,
    -8192.0,
    65504.0,
)


@cache
def encoders(isa: Isa) -> NativeEncoders:
    return NativeEncoders(library(isa), WEIGHT_FORMATS.values())


def check(isa: Isa, name: str, x: Floats, kind: str = "") -> None:
    """Row by row equal to what numpy gives, or refused with the same words."""
    fmt = WEIGHT_FORMATS[name]
    try:
        wanted: Any = fmt.encode(x)
    except EncodeError as error:
        with pytest.raises(EncodeError) as caught:
            encoders(isa).encode(fmt, x)
        assert str(caught.value) == str(error)
        return
    got = encoders(isa).encode(fmt, x)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    assert np.array_equal(got, wanted), kind


def kinds(n: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Rows of n values that encoders decide about in different ways."""
    x = rng.standard_normal((6, n)).astype(np.float32)
    signs = rng.choice(np.array([-1, 1], np.float32), x.shape)
    sparse = np.where(rng.random(x.shape) < 0.9, np.float32(0), x)
    alternating = np.repeat(rng.integers(0, 2, (6, n // 16)), 16, axis=1).astype(np.float32)
    return {
        "normal": x,
        "heavy tails": x**5,
        "sparse": sparse,
        "zeros": np.zeros_like(x),
        "negative zeros": -np.zeros_like(x),
        "zeros of both signs": x * np.float32(0),
        "sparse among zeros of both signs": np.where(sparse == 0, signs * np.float32(0), sparse),
        "positive": np.abs(x) + np.float32(0.5),
        "negative": -np.abs(x) - np.float32(0.5),
        "constant": np.broadcast_to(x[:, :1], x.shape).copy(),
        "one size": signs * np.float32(0.75),
        "halves": (rng.integers(-254, 255, x.shape) / 2).astype(np.float32),
        "few levels": np.round(x * 3),
        "groups of zeros": x * alternating,
        "drifting": x / 10 + np.linspace(-3, 3, n, dtype=np.float32),
        "one large": np.where(rng.random(x.shape) < 1 / 64, x * 100, x / 100),
        "searched to the limit": x / np.abs(x).max(axis=1, keepdims=True) * np.float32(8191),
        "beyond the searches": x * 20000,
        "up to float16": x / np.abs(x).max(axis=1, keepdims=True) * np.float32(65504),
        "small": x * np.float32(1e-7),
        "about what counts as zeros": x * np.float32(3e-16),
        "below what counts as zeros": x * np.float32(1e-20),
        "scales whose inverse overflows": x * np.float32(1e-36),
        "at the smallest span": x * np.float32(4e-37),
        "denormal": x * np.float32(1e-40),
        "of all sizes": x * np.float32(10) ** rng.integers(-45, 3, x.shape).astype(np.float32),
    }


@pytest.mark.parametrize("name", CHUNKS)
@pytest.mark.parametrize("isa", BOTH)
def test_bytes_are_numpys(isa: Isa, name: str) -> None:
    for kind, x in kinds(768, np.random.default_rng(0)).items():
        with np.errstate(all="ignore"):
            check(isa, name, x, kind)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 60))
@pytest.mark.parametrize("name", CHUNKS)
def test_bytes_are_numpys_over_many_values(name: str, seed: int) -> None:
    for kind, x in kinds(2048, np.random.default_rng(seed)).items():
        with np.errstate(all="ignore"):
            check(ISAS[0], name, x, kind)


@pytest.mark.parametrize("name", CHUNKS)
def test_numpy_is_not_needed_for_what_models_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fmt, found = WEIGHT_FORMATS[name], kinds(2048, np.random.default_rng(1))
    usual = ("normal", "heavy tails", "sparse", "zeros", "positive", "negative", "constant", "drifting", "one large")
    x = np.concatenate([found[kind] for kind in usual])
    wanted = fmt.encode(x)

    def refuse(_values: Floats) -> Any:
        raise AssertionError("numpy was asked")

    monkeypatch.setattr(fmt, "encode", refuse, raising=False)
    assert np.array_equal(encoders(ISAS[0]).encode(fmt, x), wanted)


@pytest.mark.parametrize("isa", BOTH)
def test_a_group_that_settles_in_the_fifth_round(isa: Isa, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(5).standard_normal((60, 256)).astype(np.float32)
    wanted = WEIGHT_FORMATS["Q3_K"].encode(x)
    assert np.array_equal(encoders(isa).encode(WEIGHT_FORMATS["Q3_K"], x), wanted)
    monkeypatch.setattr("minfer_ir.formats.search.DESCENTS", 4)
    assert not np.array_equal(WEIGHT_FORMATS["Q3_K"].encode(x), wanted)


@pytest.mark.parametrize("name", CHUNKS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_special_values_encode_as_in_numpy(name: str, data: st.DataObject) -> None:
    size = 256 if name.endswith("K") else 32
    some = data.draw(
        st.lists(st.one_of(st.sampled_from(SPECIAL), st.floats(-8192, 8192, width=32)), min_size=1, max_size=9)
    )
    picks = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))).integers(0, len(some), (5, size))
    check(ISAS[0], name, np.array(some, np.float32)[picks])


@pytest.mark.parametrize("name", CHUNKS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_what_cannot_be_held_is_refused_in_numpys_words(name: str, value: float) -> None:
    if name == "BF16" and value == 3e38:
        value = float(np.finfo(np.float32).max)
    size = 256 if name.endswith("K") else 32
    x = np.random.default_rng(2).standard_normal((40, 3 * size)).astype(np.float32)
    x[33, size + 5] = value
    if name in ("F16", "BF16") and not abs(value) < np.inf:
        check(ISAS[0], name, x)  # floats hold NaN and infinity
        return
    with pytest.raises(EncodeError, match="row 33"):
        encoders(ISAS[0]).encode(WEIGHT_FORMATS[name], x)
    check(ISAS[0], name, x)


@pytest.mark.parametrize("name", CHUNKS)
def test_rows_of_any_number_and_shape(name: str) -> None:
    """Chunks that are not full, rows of one block, leading axes, strides, nothing at all."""
    size = 256 if name.endswith("K") else 32
    x = np.random.default_rng(3).standard_normal((37, size)).astype(np.float32)
    for part in (x, x[:1], x[0], x[:0], x[:30].reshape(2, 3, 5, size), x[::3], np.asfortranarray(x)):
        check(ISAS[0], name, part)
    if WEIGHT_FORMATS[name].block_size == 1:
        check(ISAS[0], name, x.reshape(-1)[: 37 * 31].reshape(37, 31))
    with pytest.raises(ValueError, match="encodes rows of float32"):
        encoders(ISAS[0]).encode(WEIGHT_FORMATS[name], x.astype(np.float64))  # pyright: ignore[reportArgumentType]
    if WEIGHT_FORMATS[name].block_size > 1:
        with pytest.raises(ValueError, match="not a whole number"):
            encoders(ISAS[0]).encode(WEIGHT_FORMATS[name], x[:, 1:])


def test_many_threads_get_what_one_does() -> None:
    fmt = WEIGHT_FORMATS["Q4_K"]
    parts = [np.random.default_rng(i).standard_normal((8, 2048)).astype(np.float32) for i in range(8)]
    got: dict[int, Any] = {}
    start = threading.Barrier(8)

    def encode(i: int) -> None:
        start.wait(60)
        got[i] = encoders(ISAS[0]).encode(fmt, parts[i])

    threads = [threading.Thread(target=encode, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, part in enumerate(parts):
        assert np.array_equal(got[i], fmt.encode(part)), i


def test_formats_without_a_kernel_are_numpys() -> None:
    x = np.random.default_rng(5).standard_normal((2, 64)).astype(np.float32)
    fmt = WEIGHT_FORMATS["F32"]
    assert np.array_equal(encoders(ISAS[0]).encode(fmt, x), fmt.encode(x))
    few = NativeEncoders(library(ISAS[0]), [WEIGHT_FORMATS["Q8_0"]])
    assert np.array_equal(few.encode(WEIGHT_FORMATS["Q4_0"], x), WEIGHT_FORMATS["Q4_0"].encode(x))
