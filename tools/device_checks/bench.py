"""Parts "bench TYPE": a 7B model's steps in one weight type, on random weights."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from minfer_ir.formats import CELL_FORMATS
from minfer_ir.runtime.executable import Executable
from tools.device_checks import goals
from tools.device_checks.machine import Ceilings, Machine
from tools.device_checks.results import Result, say, standing
from tools.device_checks.shape import RandomWeights, Shape
from tools.device_checks.step import Steps, batch_inputs, prompt_inputs, run_all

PACKED = "q8_0"
Case = tuple[str, Callable[[], Iterator[Result]]]


def load_types(folder: Path, shape: Shape, mix: str) -> Mapping[str, str]:
    """The types of the matrices, from what was prepared."""
    return json.loads((folder / "types.json").read_text(encoding="utf-8"))[shape.name][mix]


@dataclass
class Bench:
    """One weight type. After `seconds` what is left to measure is left out, and said so."""

    machine: Machine
    shape: Shape
    mix: str
    types: Mapping[str, str]
    ceilings: Ceilings
    seconds: float

    def __post_init__(self) -> None:
        self.part = f"bench {self.mix}"
        self._end = time.monotonic() + self.seconds
        self._decoded: dict[tuple[str, int], float] = {}

    def run(self) -> None:
        """In the order of how much one wants to know it."""
        for kv in ("f16", PACKED):
            steps = self._steps(kv)
            self._measure_all(kv, self._cases(steps, prompts=kv == "f16"))
            del steps
        self._compare_cells(self.shape.depths[-1])

    def _measure_all(self, kv: str, cases: Sequence[Case]) -> None:
        for name, measure in cases:
            self._measured(f"{name}, {kv} cells", measure)

    def _cases(self, steps: Steps, prompts: bool) -> list[Case]:
        depths, batches = self.shape.depths, self.shape.batches
        found = [(f"decode at depth {depth}", partial(self._decode, steps, depth)) for depth in depths]
        if prompts:
            found += [(f"prefill {n}", partial(self._prefill, steps, n)) for n in self.shape.prompts]
            found += [(f"batch {n}", partial(self._batch, steps, n)) for n in batches]
        return found

    def warm(self) -> None:
        """Compile everything, with as few layers as that takes. Inputs are filled: buffers hold other steps' values."""
        for kv in ("f16", PACKED):
            steps = self._steps(kv)
            self._executable(steps, 1)
            if kv == "f16":
                for n in {min(n, self.shape.chunk) for n in self.shape.prompts}:
                    self._executable(steps, n)
                for n in self.shape.batches:
                    inputs = batch_inputs(n, self.shape.batch_depth, self.shape.config.n_vocab)
                    steps.step(n, n, "span").run(inputs)
            self.machine.sync()

    def _steps(self, kv: str) -> Steps:
        backend = RandomWeights(self.machine.device)
        return Steps(backend, self.shape.graph_of(self.types), self.shape.n_ctx, self.shape.n_cells, kv)

    def _measured(self, name: str, measure: Callable[[], Iterator[Result]]) -> None:
        if time.monotonic() > self._end:
            say(Result(self.part, name, "info", detail="left out: out of time"))
            return
        try:
            for result in measure():
                say(result)
        except Exception as error:  # one case that fails leaves the others their time
            say(Result(self.part, name, "FAILED", detail=f"{type(error).__name__}: {error}"[:600]))

    def _executable(self, steps: Steps, rows: int) -> Executable:
        executable = steps.step(rows, 1)
        executable.run(prompt_inputs(rows, 0, self.shape.config.n_vocab))
        return executable

    def _decode(self, steps: Steps, depth: int) -> Iterator[Result]:
        executable, name = steps.step(1, 1), f"decode at depth {depth}, {steps.kv} cells"
        inputs = prompt_inputs(1, depth, self.shape.config.n_vocab)
        executable.run(inputs)
        seconds = self.machine.seconds(lambda: run_all(executable))
        self._decoded[steps.kv, depth] = seconds

        def whole() -> None:
            executable.run(inputs)
            executable.outputs(inputs)

        around = 1 / self.machine.wall_seconds(whole)
        rate = (self._weight_bytes(steps) + self._cell_bytes(steps.kv, depth + 1)) / seconds
        shares = self.ceilings.of_bytes(rate)
        goal = goals.DECODE_OF_BANDWIDTH.get(self.mix) if depth == 0 and steps.kv == "f16" else None
        status, aim, against = standing(goal, shares.get("datasheet bandwidth"), self.machine.dry)
        detail = f"{around:.4g} tok/s with inputs and logits copied, {rate / 1e9:.4g} GB/s"
        yield Result(self.part, name, status, 1 / seconds, "tok/s", shares, aim, detail, against)
        if depth == 0 and steps.kv == "f16":
            yield self._launches(executable)

    def _launches(self, executable: Executable) -> Result:
        """Launches of a layer in the middle: the first one's norm has no launch before it to go with."""
        block = min(1, self.shape.config.n_blocks - 1)
        tagged = {node.id for node in executable.graph if node.block == block}
        count = sum(len(program.listing(tagged)) for program in executable.programs)
        uniform = len(set(self.types.values())) == 1
        status, aim, against = standing(goals.LAUNCHES_PER_BLOCK if uniform else None, count, self.machine.dry)
        return Result(self.part, "launches per layer, decode", status, count, goal=aim, against=against)

    def _prefill(self, steps: Steps, n: int) -> Iterator[Result]:
        chunk = min(n, self.shape.chunk)
        executable, seconds = steps.step(chunk, 1), 0.0
        for start in range(0, n, chunk):
            executable.run(prompt_inputs(min(chunk, n - start), start, self.shape.config.n_vocab))
            seconds += self.machine.seconds(lambda: run_all(executable), runs=3, rounds=3, warm=4)
        shares = self.ceilings.of_work(self._work(n) / seconds)
        goal = goals.PREFILL_OF_DENSE if n == max(self.shape.prompts) else None
        status, aim, against = standing(goal, shares.get("dense f16 rate"), self.machine.dry)
        detail, name = (
            f"{self._work(n) / seconds / 1e12:.4g} TFLOP/s, chunks of {chunk}",
            f"prefill {n}, {steps.kv} cells",
        )
        yield Result(self.part, name, status, n / seconds, "tok/s", shares, aim, detail, against)

    def _batch(self, steps: Steps, n: int) -> Iterator[Result]:
        depth, executable = self.shape.batch_depth, steps.step(n, n, "span")
        executable.run(batch_inputs(n, depth, self.shape.config.n_vocab))
        seconds = self.machine.seconds(lambda: run_all(executable))
        rate = (self._weight_bytes(steps) + n * self._cell_bytes(steps.kv, depth + 1)) / seconds
        name = f"batch {n} at depth {depth}, {steps.kv} cells"
        yield Result(self.part, name, "info", n / seconds, "tok/s", self.ceilings.of_bytes(rate))

    def _compare_cells(self, deep: int) -> None:
        for depth in self.shape.depths:
            plain, packed = self._decoded.get(("f16", depth)), self._decoded.get((PACKED, depth))
            if plain is None or packed is None:
                continue
            ratio, goal = packed / plain, goals.PACKED_GAIN if depth == deep else goals.PACKED_COST
            status, aim, against = standing(goal, ratio, self.machine.dry)
            name = f"decode at depth {depth}, time over {PACKED} cells to that over f16"
            say(Result(self.part, name, status, ratio, "x", goal=aim, against=against))

    def _weight_bytes(self, steps: Steps) -> int:
        """Of the weights that a step reads: all but the table of embeddings."""
        held = [w for w in steps.backend.held if "token_embd" not in w.key]
        return sum(w.nbytes for w in held)

    def _cell_bytes(self, kv: str, cells: int) -> int:
        width = self.shape.config.kv_width
        row = CELL_FORMATS[kv].row_bytes(width) if kv in CELL_FORMATS else 2 * width
        return 2 * self.shape.config.n_blocks * cells * row

    def _work(self, n: int) -> float:
        """Operations of taking in `n` tokens: products of every layer, the head for one row, causal attention."""
        c = self.shape.config
        layer = c.width * (2 * c.q_width + 2 * c.kv_width + 3 * c.ffn_width)
        return 2.0 * (n * c.n_blocks * layer + c.n_vocab * c.width) + 2.0 * n * n * c.q_width * c.n_blocks
