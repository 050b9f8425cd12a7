"""Primitives: every one against numpy, on every instruction set, through a kernel that applies it to an array."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from cpu_harness import ISAS, Array, guarded

from minfer_ir.testing.tolerances import EXP_ULP
from minfer_kernels.cpu import simd
from minfer_kernels.cpu.compiler.compile import KernelCompiler
from minfer_kernels.cpu.compiler.features import HostFeatures, Isa, Machine
from minfer_kernels.cpu.compiler.kernel import Int, Kernel, Ptr, kernel
from minfer_kernels.cpu.simd import bits

f32 = np.float32


def as_f32(values: list[float]) -> Array:
    return np.array(values, f32)


class Native:
    """Compiles a kernel for one instruction set and calls it on arrays, without cache or tape."""

    def __init__(self, isa: Isa) -> None:
        self.compiler = KernelCompiler(Machine.for_isa(HostFeatures.detect(), isa))
        target = llvm.Target.from_default_triple()
        self.jit = llvm.create_lljit_compiler(target.create_target_machine(reloc="pic", codemodel="small", jit=True))
        self.count = 0
        self.keep: list[Any] = []

    def __call__(self, body: Kernel, *operands: Array | int) -> None:
        self.count += 1
        code = self.compiler.object_code(body, "entry")
        builder = llvm.JITLibraryBuilder().add_current_process().add_object_img(code).export_symbol("entry")
        loaded: Any = builder.link(self.jit, f"test{self.count}")
        self.keep.append(loaded)
        words = np.array([o.ctypes.data if isinstance(o, np.ndarray) else o for o in operands], np.int64)
        entry = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(loaded["entry"])
        entry(words.ctypes.data, 0, 1)


@pytest.fixture(scope="module")
def native() -> Iterator[Mapping[Isa, Native]]:
    yield {isa: Native(isa) for isa in ISAS}


LOADS = {8: simd.load_f32x8, 16: simd.load_f32x16}
STORES = {8: simd.store_f32x8, 16: simd.store_f32x16}


@cache
def mapped(apply: Callable[..., Any], sources: int, width: int) -> Kernel:
    """out = apply(x[, y]) in steps of `width` float32."""
    one, two, step = LOADS[width], STORES[width], width

    @kernel
    def unary(x: Ptr, out: Ptr, n: Int) -> None:
        for i in range(0, n, step):
            two(out + 4 * i, apply(one(x + 4 * i)))

    @kernel
    def binary(x: Ptr, y: Ptr, out: Ptr, n: Int) -> None:
        for i in range(0, n, step):
            two(out + 4 * i, apply(one(x + 4 * i), one(y + 4 * i)))

    return unary if sources == 1 else binary


def on_both(native: Mapping[Isa, Native], apply: Callable[..., Any], *sources: Array, width: int = 8) -> Array:
    """The result, after checking that the instruction sets agree in every bit."""
    results = []
    for isa in ISAS:
        out = guarded(np.zeros_like(sources[0]))
        native[isa](mapped(apply, len(sources), width), *map(guarded, sources), out, out.size)
        results.append(out)
    assert len({r.tobytes() for r in results}) == 1
    return results[0]


def awkward() -> Array:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, 4088, dtype=np.uint32).view(f32)
    bits[np.isnan(bits)] = 1.5
    return np.concatenate([bits, as_f32([0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-40, 0.5, 2.5])])


@pytest.mark.parametrize("width", [8, 16])
def test_exp_is_within_its_bound_over_its_whole_range(native: Mapping[Isa, Native], width: int) -> None:
    x = np.linspace(-105, 89, 400_000).astype(f32)
    out = on_both(native, simd.exp, x, width=width)
    exact = np.array([math.exp(v) for v in x.tolist()])
    finite = exact < float(np.finfo(f32).max)
    spacing = np.spacing(np.maximum(exact[finite], 2.0**-149).astype(f32)).astype(np.float64)
    errors = np.abs(out[finite] - exact[finite]) / spacing
    assert errors.max() < EXP_ULP
    assert (out[~finite] == np.inf).all()


def test_exp_at_the_ends(native: Mapping[Isa, Native]) -> None:
    x = as_f32([-np.inf, -1e30, -104.0, 0.0, -0.0, 89.0, 1e30, np.inf])
    assert on_both(native, simd.exp, x).tolist() == [0, 0, 0, 1, 1, np.inf, np.inf, np.inf]
    assert np.isnan(on_both(native, simd.exp, np.full(8, np.nan, f32))).all()


REFERENCES: dict[str, tuple[Any, int, Callable[..., Array]]] = {
    "add": (simd.add, 2, np.add),
    "subtract": (simd.subtract, 2, np.subtract),
    "multiply": (simd.multiply, 2, np.multiply),
    "divide": (simd.divide, 2, np.divide),
    "maximum": (simd.maximum, 2, lambda x, y: np.where(x > y, x, y)),
    "minimum": (simd.minimum, 2, lambda x, y: np.where(x < y, x, y)),
    "absolute": (simd.absolute, 1, np.abs),
    "negate": (simd.negate, 1, np.negative),
    "round_even": (simd.round_even, 1, np.rint),
    "swap_pairs": (simd.swap_pairs, 1, lambda x: x.reshape(-1, 4, 2)[..., ::-1].reshape(-1)),
    "swap_halves": (simd.swap_halves, 1, lambda x: x.reshape(-1, 2, 4)[:, ::-1].reshape(-1)),
    "rotate_lanes": (simd.rotate_lanes, 1, lambda x: np.roll(x.reshape(-1, 8), -1, axis=1).reshape(-1)),
    "double_low_lanes": (simd.double_low_lanes, 1, lambda x: x.reshape(-1, 8)[:, :4].repeat(2, axis=1).reshape(-1)),
    "negate_even_lanes": (simd.negate_even_lanes, 1, lambda x: x * np.tile(as_f32([-1, 1]), x.size // 2)),
}


EIGHT_LANES_ONLY = ("swap_halves", "rotate_lanes", "double_low_lanes")


@pytest.mark.parametrize(
    ("name", "width"), [(n, w) for n in REFERENCES for w in (8, 16) if w == 8 or n not in EIGHT_LANES_ONLY]
)
def test_lanes_equal_numpy(native: Mapping[Isa, Native], name: str, width: int) -> None:
    apply, sources, reference = REFERENCES[name]
    x = awkward()
    y = np.roll(x, 11)
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(*(x, y)[:sources]))
    got = on_both(native, apply, *(x, y)[:sources], width=width)
    np.testing.assert_array_equal(got, expected)
    kept = ~np.isnan(expected)
    assert np.signbit(got[kept]).tolist() == np.signbit(expected[kept]).tolist()


def test_fma_rounds_once(native: Mapping[Isa, Native]) -> None:
    @simd.inline
    def square_less_one(x: Any) -> Any:
        return simd.fma(x, x, simd.splat_f32x8(-1.0))

    x = (1 + np.arange(1, 1025) * 2.0**-20).astype(f32)
    exact = (x.astype(np.float64) ** 2 - 1).astype(f32)
    assert on_both(native, square_less_one, x).tobytes() == exact.tobytes()
    with np.errstate(all="ignore"):
        assert (x * x - f32(1) != exact).any()


def test_sums_of_lanes_follow_their_tree(native: Mapping[Isa, Native]) -> None:
    @simd.inline
    def sums(x: Any) -> Any:
        return simd.splat_f32x8(simd.sum_lanes(x))

    @simd.inline
    def sums_of_8(x: Any) -> Any:
        r = simd.rotate_lanes
        v1, v2, v3 = r(x) * r(x), r(r(x)) * x, x * x
        return simd.sum_lanes_of_8(x, v1, v2, v3, x * v1, x * v2, v1 * v2, v3 * v2)

    x = np.random.default_rng(2).standard_normal(800, dtype=f32)
    rows = x.reshape(-1, 8)

    def tree(v: Array) -> Array:
        return ((v[:, 0] + v[:, 4]) + (v[:, 2] + v[:, 6])) + ((v[:, 1] + v[:, 5]) + (v[:, 3] + v[:, 7]))

    assert on_both(native, sums, x).reshape(-1, 8).tobytes() == tree(rows).repeat(8).tobytes()
    r1, r2 = np.roll(rows, -1, axis=1), np.roll(rows, -2, axis=1)
    v1, v2, v3 = r1 * r1, r2 * rows, rows * rows
    vectors = [rows, v1, v2, v3, rows * v1, rows * v2, v1 * v2, v3 * v2]
    expected = np.stack([tree(v) for v in vectors], axis=1)
    assert on_both(native, sums_of_8, x).tobytes() == expected.tobytes()


def test_sums_of_sixteen_lanes_fold_in_halves(native: Mapping[Isa, Native]) -> None:
    @simd.inline
    def sums(x: Any) -> Any:
        return simd.splat_f32x16(simd.sum_lanes(x))

    @simd.inline
    def sums_of_folded(x: Any) -> Any:
        folded = simd.low_half(x) + simd.high_half(x)
        total = simd.splat_f32x8(simd.sum_lanes(folded))
        return simd.join_halves(total, total)

    @simd.inline
    def largest(x: Any) -> Any:
        return simd.splat_f32x16(simd.max_lanes(x))

    @simd.inline
    def rotated(x: Any) -> Any:
        return simd.join_halves(simd.high_half(x), simd.low_half(x))

    x = np.random.default_rng(2).standard_normal(800, dtype=f32)
    rows = x.reshape(-1, 16)
    v = rows[:, :8] + rows[:, 8:]
    tree = ((v[:, 0] + v[:, 4]) + (v[:, 2] + v[:, 6])) + ((v[:, 1] + v[:, 5]) + (v[:, 3] + v[:, 7]))
    assert on_both(native, sums, x, width=16).tobytes() == tree.repeat(16).tobytes()
    assert on_both(native, sums_of_folded, x, width=16).tobytes() == tree.repeat(16).tobytes()
    assert on_both(native, largest, x, width=16).tobytes() == rows.max(axis=1).repeat(16).tobytes()
    assert on_both(native, rotated, x, width=16).tobytes() == np.roll(rows, 8, axis=1).tobytes()


@kernel
def halves_by_16(x: Ptr, out: Ptr, brain: Ptr, back: Ptr, n: Int) -> None:
    for i in range(0, n, 16):
        simd.store_f32x16(out + 4 * i, simd.load_f16x16(x + 2 * i))
        simd.store_f32x16(brain + 4 * i, simd.load_bf16x16(x + 2 * i))
        simd.store_f16x16(back + 2 * i, simd.load_f16x16(x + 2 * i))


@pytest.mark.parametrize("isa", ISAS)
def test_sixteen_halves_at_a_time(native: Mapping[Isa, Native], isa: Isa) -> None:
    halves = np.arange(65536, dtype=np.uint16)
    halves[np.isnan(halves.view(np.float16))] = 0x7E00
    out, brain, back = np.zeros(65536, f32), np.zeros(65536, f32), np.zeros(65536, np.uint16)
    native[isa](halves_by_16, halves, out, brain, back, 65536)
    assert out.tobytes() == halves.view(np.float16).astype(f32).tobytes()
    assert brain.tobytes() == (halves.astype(np.uint32) << 16).tobytes()
    assert np.array_equal(back, halves)


@kernel
def partial_16(x: Ptr, halves: Ptr, out: Ptr, out_halves: Ptr, filled: Ptr, n: Int) -> None:
    simd.store_f32x16_partial(out, n, simd.load_f32x16_partial(x, n, 5.0))
    simd.store_f16x16_partial(out_halves, n, simd.load_f16x16_partial(halves, n))
    simd.store_f32x16(filled, simd.load_f32x16_partial(x, n, 5.0))
    picked = simd.select(simd.first_lanes16(n), simd.splat_f32x16(1.0), simd.splat_f32x16(2.0))
    simd.store_f32x16(filled + 64, picked)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 15, 16])
def test_partial_access_of_sixteen_lanes(native: Mapping[Isa, Native], isa: Isa, n: int) -> None:
    x, halves = guarded(np.arange(1, n + 1, dtype=f32)), guarded(np.arange(1, n + 1).astype(np.float16))
    out, out_halves, filled = guarded(np.zeros(n, f32)), guarded(np.zeros(n, np.float16)), np.zeros(32, f32)
    native[isa](partial_16, x, halves, out, out_halves, filled, n)
    counted = list(range(1, n + 1))
    assert out.tolist() == out_halves.tolist() == counted
    assert filled.tolist() == [*counted, *[5] * (16 - n), *[1] * n, *[2] * (16 - n)]


@kernel
def integers_by_16(x: Ptr, out: Ptr, wide: Ptr, narrow: Ptr) -> None:
    v = simd.load_i8x16(x)
    simd.store_i64(out, simd.sum_lanes_i32(v))
    simd.store_i64(out + 8, simd.max_lanes_i32(v))
    simd.store_i64(out + 16, simd.any_lane(simd.to_f32(v) > simd.splat_f32x16(99.0)))
    simd.store_i64(out + 24, simd.all_lanes(simd.to_f32(v) < simd.splat_f32x16(101.0)))
    simd.store_i64(out + 32, simd.all_lanes(simd.to_f32(v) < simd.splat_f32x16(100.0)))
    simd.store_i64(out + 40, simd.any_lane(simd.to_f32(v) > simd.splat_f32x16(100.0)))
    doubled = simd.to_i32(simd.to_f32(v + v)) - simd.splat_i32x16(3) * simd.splat_i32x16(-1)
    simd.store_i32x16(wide, doubled)
    simd.store_i8x16(narrow, simd.maximum_i32(simd.load_i32x16(wide), v))


@pytest.mark.parametrize("isa", ISAS)
def test_sixteen_integers(native: Mapping[Isa, Native], isa: Isa) -> None:
    x = np.array([-2, -1, 3, -128, 60, 7, 0, 1, 5, 9, -7, 11, 100, 2, -3, -60], np.int8)
    out, wide, narrow = np.zeros(6, np.int64), np.zeros(16, np.int32), np.zeros(16, np.int8)
    native[isa](integers_by_16, x, out, wide, narrow)
    assert out.tolist() == [x.sum(), 100, 1, 1, 0, 0]
    expected = 2 * x.astype(np.int32) + 3
    assert np.array_equal(wide, expected)
    assert np.array_equal(narrow, np.maximum(expected, x).astype(np.int8))


@kernel
def bits_of_lanes(x: Ptr, words: Ptr, out: Ptr, picked: Ptr) -> None:
    v = simd.load_f32x16(x)
    above = bits.lane_bits(v > simd.splat_f32x16(0.0))
    simd.store_i64(out, above)
    simd.store_i64(out + 8, bits.bits_set(above))
    simd.store_i64(out + 16, bits.trailing_zeros(above))
    simd.store_i64(out + 24, bits.lane_bits(simd.low_half(v) > simd.splat_f32x8(0.0)))
    simd.store_i64(out + 32, bits.trailing_zeros(0))
    simd.store_i64(out + 40, bits.multiply_high(simd.load_i64(words), simd.load_i64(words + 8)))
    # bits above the lanes don't count
    lanes = bits.lanes_of_bits16(above | 1 << 20)
    simd.store_f32x16(picked, simd.select(lanes, v, simd.splat_f32x16(-9.0)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("words", [(2**64 - 1, 2**64 - 1), (2**63, 2), (0xD2E7470EE14C6C93, 3), (1, 2**64 - 1)])
def test_lanes_are_bits_and_bits_lanes(native: Mapping[Isa, Native], isa: Isa, words: tuple[int, int]) -> None:
    x = np.where(np.isin(np.arange(16), [3, 4, 7, 8, 15]), 2, -1).astype(f32)
    out, picked = np.zeros(6, np.int64), np.zeros(16, f32)
    native[isa](bits_of_lanes, x, np.array(words, np.uint64), out, picked)
    expected = 1 << 3 | 1 << 4 | 1 << 7 | 1 << 8 | 1 << 15
    high = np.uint64(words[0] * words[1] >> 64).astype(np.int64)
    assert out.tolist() == [expected, 5, 3, expected & 255, 64, high]
    assert picked.tolist() == np.where(x > 0, x, -9).tolist()


@kernel
def widen_f16(x: Ptr, out: Ptr, n: Int) -> None:
    for i in range(0, n, 8):
        simd.store_f32x8(out + 4 * i, simd.load_f16x8(x + 2 * i))


@kernel
def widen_bf16(x: Ptr, out: Ptr, n: Int) -> None:
    for i in range(0, n, 8):
        simd.store_f32x8(out + 4 * i, simd.load_bf16x8(x + 2 * i))


@kernel
def narrow_f16(x: Ptr, out: Ptr, n: Int) -> None:
    for i in range(0, n, 8):
        simd.store_f16x8(out + 2 * i, simd.load_f32x8(x + 4 * i))


@pytest.mark.parametrize("isa", ISAS)
def test_every_half_widens_exactly(native: Mapping[Isa, Native], isa: Isa) -> None:
    halves = np.arange(65536, dtype=np.uint16)
    out = np.zeros(65536, f32)
    native[isa](widen_f16, halves, out, 65536)
    expected = halves.view(np.float16).astype(f32)
    signalling = np.isnan(expected) & (halves & 0x200 == 0)
    assert out[~signalling].tobytes() == expected[~signalling].tobytes()
    assert np.isnan(out[signalling]).all()
    native[isa](widen_bf16, halves, out, 65536)
    assert out.tobytes() == (halves.astype(np.uint32) << 16).tobytes()


@pytest.mark.parametrize("isa", ISAS)
def test_narrowing_to_half_rounds_as_numpy_does(native: Mapping[Isa, Native], isa: Isa) -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(f32)
    middles = (halves[1:] + halves[:-1]) / 2
    near = [np.nextafter(v, towards) for v in (halves, middles) for towards in (f32(np.inf), f32(-np.inf))]
    edges = as_f32([0, 65504, 65519.996, 65520, 1e30, np.inf, 2**-25, 2**-24, 2**-26, 1e-45])
    x = np.concatenate([halves, middles, *near, edges])
    x = np.concatenate([x, -x])
    x = np.concatenate([x, np.zeros(-len(x) % 8, f32)])
    out = np.zeros(len(x), np.float16)
    native[isa](narrow_f16, x, out, len(x))
    with np.errstate(over="ignore", under="ignore"):
        assert out.tobytes() == x.astype(np.float16).tobytes()
    native[isa](narrow_f16, np.full(8, np.nan, f32), out, 8)
    assert np.isnan(out[:8]).all()


@kernel
def partial(x: Ptr, halves: Ptr, out: Ptr, out_halves: Ptr, n: Int) -> None:
    simd.store_f32x8_partial(out, n, simd.load_f32x8_partial(x, n, 5.0))
    simd.store_f16x8_partial(out_halves, n, simd.load_f16x8_partial(halves, n))


@kernel
def partial_filled(x: Ptr, halves: Ptr, out: Ptr, n: Int) -> None:
    simd.store_f32x8(out, simd.load_f32x8_partial(x, n, 5.0))
    simd.store_f32x8(out + 32, simd.load_f16x8_partial(halves, n))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", range(9))
def test_partial_access_touches_the_first_lanes_only(native: Mapping[Isa, Native], isa: Isa, n: int) -> None:
    x, halves = guarded(np.arange(1, n + 1, dtype=f32)), guarded(np.arange(1, n + 1).astype(np.float16))
    out, out_halves = guarded(np.zeros(n, f32)), guarded(np.zeros(n, np.float16))
    native[isa](partial, x, halves, out, out_halves, n)
    assert out.tolist() == out_halves.tolist() == list(range(1, n + 1))
    room, room_halves = np.full(8, 9, f32), np.full(8, 9, np.float16)
    native[isa](partial, x, halves, room, room_halves, n)
    assert room[n:].tolist() == room_halves[n:].tolist() == [9] * (8 - n)
    filled = np.zeros(16, f32)
    native[isa](partial_filled, x, halves, filled, n)
    assert filled.tolist() == [*range(1, n + 1), *[5] * (8 - n), *range(1, n + 1), *[0] * (8 - n)]


@kernel
def integers(x: Ptr, out: Ptr) -> None:
    v = simd.load_i8x8(x)
    simd.store_i64(out, simd.sum_lanes_i32(v))
    simd.store_i64(out + 8, simd.max_lanes_i32(v))
    simd.store_i64(out + 16, simd.load_u8(x))
    simd.store_i64(out + 24, simd.load_i16(x))
    simd.store_i64(out + 32, simd.load_i32(x))
    simd.store_i64(out + 40, simd.bits_of_f32(simd.f32_of_bits(simd.load_i32(x))))
    simd.store_i64(out + 48, simd.any_lane(simd.to_f32(v) > simd.splat_f32x8(99.0)))
    simd.store_i64(out + 56, simd.all_lanes(simd.to_f32(v) < simd.splat_f32x8(101.0)))
    simd.store_i64(out + 64, simd.any_lane(simd.to_f32(v) > simd.splat_f32x8(100.0)))


@pytest.mark.parametrize("isa", ISAS)
def test_integers_and_masks(native: Mapping[Isa, Native], isa: Isa) -> None:
    x = np.array([-2, -1, 3, -128, 100, 7, 0, 1], np.int8)
    out = np.zeros(9, np.int64)
    native[isa](integers, x, out)
    bits = int(x.view(np.uint32)[0])
    halves = int(x.view(np.int16)[0]), int(x.view(np.int32)[0])
    assert out.tolist() == [x.sum(), 100, 254, *halves, bits, 1, 1, 0]


def test_primitives_cannot_be_called_from_python() -> None:
    with pytest.raises(TypeError, match="exists in compiled kernels only"):
        simd.exp(1.0)
