"""A peer for tests: our own numpy backend behind the peer's protocol, with seconds that are given.

`python fake_peer.py SECONDS_PER_TOKEN [break|nan|vocabulary|crash|layouts]`
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import numpy as np


class FakePeer:
    def __init__(self, seconds: float, fault: str) -> None:
        self.seconds, self.fault = seconds, fault

    def load(self, model: str, n_ctx: int, threads: int, kv: str, **options: Any) -> dict[str, Any]:
        from minfer_ir.params import DevicePlan
        from minfer_models import load

        self.repack = options.get("repack", True)
        if self.fault == "break":
            raise ValueError(f"no {kv} cells here")
        self.llm = load(model, n_ctx=n_ctx, kv="f32", devices=DevicePlan(("numpy",)))
        n_vocab = self.llm.engine.model.config.n_vocab + (self.fault == "vocabulary")
        settings = {"threads": threads, "kv": kv, "n_ctx": n_ctx, **options}
        return {"seconds": 0.5, "settings": settings, "n_vocab": n_vocab}

    def run(self, phase: str, tokens: int, depth: int, refill: bool) -> dict[str, float]:
        if self.fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        return {"seconds": self.seconds * tokens}

    def logits(self, ids: list[int], path: str) -> dict[str, list[int]]:
        if self.fault == "layouts" and self.repack:
            os.kill(os.getpid(), signal.SIGSEGV)
        logits = self.llm.logits(ids)
        if self.fault == "nan":
            logits = np.full_like(logits, np.nan)
        logits.tofile(path)
        return {"shape": list(logits.shape)}


def main() -> None:
    engine = FakePeer(float(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
    print(json.dumps({"ready": {"version": "9.9", "system": "ABACUS = 1"}}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            print(json.dumps({"result": getattr(engine, request.pop("do"))(**request)}), flush=True)
        except ValueError as error:
            print(json.dumps({"error": str(error)}), flush=True)


if __name__ == "__main__":
    main()
