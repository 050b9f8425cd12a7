"""Part "invariance": what it costs that a token's bits don't depend on the batch that it is computed in.

Two things pay for it. Attention is cut into parts of one fixed size, where a kernel free to choose would take the size
that suits depth and batch. And in invariant mode all rows take the tiles and kernels of few rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from minfer_kernels.gpu.device import device_for
from minfer_kernels.gpu.kernels.attention.choices import DEFAULT, SplitChoice, split_choice
from tools.device_checks.goals import INVARIANT_COST
from tools.device_checks.machine import Machine
from tools.device_checks.results import Result, say, standing
from tools.device_checks.shape import RandomWeights, Shape
from tools.device_checks.single import Work, batch_attention
from tools.device_checks.step import Steps, batch_inputs, run_all

PART = "invariance"
CELLS = "f16"


@dataclass(frozen=True, slots=True)
class Sizes:
    """`splits` are the sizes of a part that are tried, `places` the (rows, depth) at which, `copies` of the node."""

    splits: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
    batches: tuple[int, ...]
    copies: int

    @classmethod
    def on(cls, machine: Machine) -> Sizes:
        """Toy ones under the interpreter."""
        if machine.dry:
            return cls((64, 128), ((1, 70), (2, 5)), (2,), 1)
        return cls((64, 128, 256, 512, 1024), ((1, 2048), (1, 16384), (16, 2048), (16, 16384)), (1, 4, 16), 4)


def run(machine: Machine, shape: Shape, types: Mapping[str, str], seconds: float) -> None:
    """The splits at every place, then whole decode steps; what there is no time for is said."""
    end, sizes = time.monotonic() + seconds, Sizes.on(machine)
    cases = [(f"{rows} rows behind {depth} cells", _splits(machine, shape, sizes, rows, depth))
             for rows, depth in sizes.places]  # fmt: skip
    cases.append(("decode steps in invariant mode", _steps(machine, shape, types, sizes)))
    for name, results in cases:
        if time.monotonic() > end:
            say(Result(PART, name, "info", detail="left out: out of time"))
            continue
        for result in results:
            say(result)


def warm(machine: Machine, shape: Shape, types: Mapping[str, str]) -> None:
    """Compile what `run` measures."""
    sizes = Sizes.on(machine)
    for rows, depth in sizes.places:
        for split in sizes.splits:
            _attention(machine, shape, sizes.copies, rows, depth, split)()
    for invariant in (False, True):
        for _, work in _batches(machine, shape, types, sizes, invariant):
            work()
    machine.sync()


def _splits(machine: Machine, shape: Shape, sizes: Sizes, rows: int, depth: int) -> Iterator[Result]:
    """The fixed size against the fastest there."""
    times = {
        split: machine.seconds(_attention(machine, shape, sizes.copies, rows, depth, split)) / sizes.copies
        for split in sizes.splits
    }
    fixed = _choice(machine, shape).split
    best = min(times, key=lambda split: times[split])
    cost = times[fixed] / times[best]
    status, aim, against = standing(INVARIANT_COST, cost, machine.dry)
    listed = ", ".join(f"{split}: {1e6 * t:.4g} us" for split, t in times.items())
    name = f"attention, {rows} rows behind {depth} cells, parts of {fixed} over the best size"
    yield Result(PART, name, status, cost, "x", {}, aim, f"best {best}; {listed}", against)


def _attention(machine: Machine, shape: Shape, copies: int, rows: int, depth: int, split: int) -> Work:
    options = replace(DEFAULT, split=replace(_choice(machine, shape), split=split))
    return batch_attention(machine, shape.config, rows, depth, copies, CELLS, options)


def _choice(machine: Machine, shape: Shape) -> SplitChoice:
    """What the backend takes there."""
    return split_choice(device_for(machine.device).target, CELLS, shape.config.n_heads // shape.config.n_kv_heads)


def _steps(machine: Machine, shape: Shape, types: Mapping[str, str], sizes: Sizes) -> Iterator[Result]:
    """Whole decode steps of a batch, in invariant mode over the default."""
    found = {mode: {n: machine.seconds(work) for n, work in _batches(machine, shape, types, sizes, mode)}
             for mode in (False, True)}  # fmt: skip
    for n in sizes.batches:
        fast, invariant = found[False][n], found[True][n]
        name = f"decode step of {n} rows at depth {shape.batch_depth}, invariant mode over the default"
        detail = f"{1e3 * invariant:.4g} ms and {1e3 * fast:.4g} ms"
        yield Result(PART, name, "info", invariant / fast, "x", detail=detail)


def _batches(
    machine: Machine, shape: Shape, types: Mapping[str, str], sizes: Sizes, invariant: bool
) -> Iterator[tuple[int, Callable[[], object]]]:
    backend = RandomWeights(machine.device, invariant=invariant)
    steps = Steps(backend, shape.graph_of(types), shape.n_ctx, shape.n_cells, CELLS)
    for n in sizes.batches:
        executable = steps.step(n, n, "span")
        executable.run(batch_inputs(n, shape.batch_depth, shape.config.n_vocab))
        yield n, lambda executable=executable: run_all(executable)
