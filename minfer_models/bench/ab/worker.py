"""One side of a comparison in a process of its own: `python -P worker.py TREE`, over the `minfer_models` in TREE.

One JSON object a line: requests come on stdin, each with "do" and its arguments, and each is answered on stdout by
{"result": ...} or {"error": "..."}. The first line says {"ready": where minfer_models was found}. It ends with stdin.
TREE may be another revision: of `minfer_models` only `load`, `TokenSequence` and the greedy sampler are needed; an
option that it doesn't know is an error that says so.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import perf_counter
from typing import Any

RUNNER = Path(__file__).resolve().parents[1] / "runner.py"
"""This revision's way to time an engine, by path: `import` would find the other revision's."""

FORESEEN = (ValueError, RuntimeError, OSError, MemoryError)
"""What says by its message alone what is wrong."""


class Worker:
    """The model once it's loaded, and what may be asked about it."""

    def __init__(self) -> None:
        self._runner: Any = None

    def load(self, model: str, isa: str | None, device: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
        """Load with `options`, those of `minfer_models.load`, and say how it stands."""
        start = perf_counter()
        llm = _load_function()(model, **_known_options(options, isa, device))
        seconds = perf_counter() - start
        self._runner = _module("minfer_bench_runner", RUNNER).Runner(llm)
        known = {"settings": self._runner.settings(), "fusions": self._runner.fusions()}
        return {"seconds": seconds, **known, **self._runner.sizes()}

    def run(self, **workload: Any) -> dict[str, Any]:
        """One run of a workload: its phase, tokens, depth and refill."""
        return asdict(self._runner.run(**workload))

    def continuation(self, n_prompt: int, n_tokens: int) -> dict[str, Any]:
        """Greedy tokens behind a fixed prompt."""
        return asdict(self._runner.continuation(n_prompt, n_tokens))

    def plan(self, rows: int) -> list[str] | None:
        """The listing of a forward."""
        return self._runner.plan(rows)


def serve(requests: Any, reply: Callable[[dict[str, Any]], None]) -> None:
    """Answer requests until they end."""
    worker = Worker()
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        try:
            reply({"result": getattr(worker, request.pop("do"))(**request)})
        except Exception as error:  # whatever an old revision raises is the asker's to report
            kind = "" if isinstance(error, FORESEEN) else f"{type(error).__name__}: "
            reply({"error": " ".join(f"{kind}{error}".split())})


def _load_function() -> Callable[..., Any]:
    try:
        from minfer_models import load
    except ImportError:
        raise ValueError("this revision has no minfer_models.load") from None
    return load


def _known_options(options: Mapping[str, Any], isa: str | None, device: str | None) -> dict[str, Any]:
    """The options as this revision takes them; raises ValueError for one that it doesn't know."""
    found = dict(options)
    known = inspect.signature(_load_function()).parameters
    if device is not None and "device" in known:
        found["device"] = device
    elif device not in (None, "auto", "cpu"):  # before there were devices, backends were named
        from minfer_ir.params import DevicePlan

        found["devices"] = DevicePlan((device,))
    if (settings := _settings(isa)) is not None:
        found["settings"] = settings
    if "threads_fixed" in known:  # a number is that of its threads, whatever else runs meanwhile
        found.setdefault("threads_fixed", True)
    if unknown := [name for name in found if name not in known]:
        raise ValueError(f"this revision doesn't know the settings {', '.join(unknown)}")
    return found


def _settings(isa: str | None) -> Any:
    """The environment's settings with `isa`, and with all threads at work whatever else runs; None: nothing to set."""
    from minfer_models.settings import Settings

    found: Any = Settings.from_env()
    known = {spec.name for spec in fields(found)}
    if isa is not None and "isa" not in known:
        raise ValueError("this revision doesn't know the setting isa")
    wanted = ({} if isa is None else {"isa": isa}) | ({"threads_fixed": True} if "threads_fixed" in known else {})
    return replace(found, **wanted) if wanted else None


def _module(name: str, path: Path) -> Any:
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(tree: str) -> None:
    """Serve with the `minfer_models` in `tree`; what that prints goes to stderr, stdout carries replies only."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    sys.path.insert(0, tree)
    try:
        import minfer_models
    except ImportError as error:
        reply({"error": f"this revision has no minfer_models ({error})"})
        return
    reply({"ready": str(Path(minfer_models.__file__ or "").resolve().parents[1])})
    serve(sys.stdin, reply)


if __name__ == "__main__":
    main(sys.argv[1])
