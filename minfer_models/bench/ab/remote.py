"""A side in a process of its own, over its own tree; see `worker` for what is said over the pipes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from minfer_models.bench.loading import EngineChoices
from minfer_models.bench.runner import Continuation
from minfer_models.bench.sides import Sample
from minfer_models.bench.source import Source
from minfer_models.bench.workload import BenchError, Workload

WORKER = Path(__file__).with_name("worker.py")
SECONDS_TO_END = 10


class RemoteSide:
    """A worker over `tree` with the model loaded; close it when done.

    Raises BenchError, naming the side and the revision, for whatever goes wrong in it.
    """

    def __init__(self, name: str, tree: Path, revision: str, model: Path, choices: EngineChoices) -> None:
        self.name, self._called = name, f"side {name} ({revision})"
        self.source = Source.of(tree)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the side)
        # a session of its own: Ctrl-C is ours to handle, and the worker ends with its stdin
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), str(tree)],
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        try:
            found = self._answer("ready")
            if Path(found) != tree.resolve():
                raise BenchError(f"{self._called}: minfer_models came from {found}, not from {tree}")
            loaded = self._ask("load", **_load_request(model, choices))
        except BaseException:
            self.close()
            raise
        self.load_seconds: float = loaded["seconds"]
        self.settings: dict[str, Any] = loaded["settings"]
        self.fusions: list[str] = loaded["fusions"]
        self.n_ctx: int = loaded["n_ctx"]
        self.chunk: int = loaded["chunk"]

    def run(self, workload: Workload) -> Sample:
        """One run from an empty context."""
        timed = self._ask("run", **asdict(workload))
        return Sample(timed["seconds"], timed["inside"], timed["built"] or 0)

    def continuation(self, n_prompt: int, n_tokens: int) -> Continuation:
        """Greedy tokens behind a fixed prompt."""
        said = self._ask("continuation", n_prompt=n_prompt, n_tokens=n_tokens)
        return Continuation(tuple(said["token_ids"]), tuple(said["logits"]))

    def plan(self, rows: int) -> list[str] | None:
        """The listing of a forward over `rows` rows, where that revision can say."""
        return self._ask("plan", rows=rows)

    def close(self) -> None:
        """End the worker."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(SECONDS_TO_END)
        except BaseException:  # a second Ctrl-C must not leave it behind either
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _ask(self, do: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the answer's absence says more
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        return self._answer("result")

    def _answer(self, kind: str) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"{self._called}: its process ended with {self._process.wait()}: {self._last_words()}")
        message = json.loads(line)
        if "error" in message:
            raise BenchError(f"{self._called}: {message['error']}")
        return message[kind]

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _load_request(model: Path, choices: EngineChoices) -> dict[str, Any]:
    options = choices.load_options()
    del options["devices"]
    named = {name: list(v) if isinstance(v, tuple) else v for name, v in options.items() if v not in ((), "auto")}
    return {"model": str(model.resolve()), "isa": choices.isa, "backend": choices.backend, "options": named}
