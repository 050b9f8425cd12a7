"""llama.cpp in a process of its own: `python -P llama_cpp_worker.py`; see `minfer_models.bench.child` for the talk.

It needs llama-cpp-python and numpy, nothing of minfer. The low-level interface is used as llama-bench uses it: one
context, one sequence, batches of n_batch tokens, logits of the last token only.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

VERSION = "0.3.36"
INSTALL = f'pip install "llama-cpp-python=={VERSION}"'
GPU_INSTALL = f"for NVIDIA's: CMAKE_ARGS=-DGGML_CUDA=on {INSTALL} --no-binary llama-cpp-python"
KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}
"""ggml_type of the cells by minfer's name."""

FLASH = {"auto": -1, "off": 0, "on": 1}
BUFFER = re.compile(r"(\S+) model buffer size = +([\d.]+) MiB")
OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
ALL_LAYERS = 9999
ONE_DEVICE = 0
"""LLAMA_SPLIT_MODE_NONE"""
SEED = 0


class LlamaCpp:
    """The engine once it's loaded, and what may be asked about it."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._buffers: dict[str, float] = {}
        self._offloaded: tuple[int, int] | None = None
        self._depth: list[int] = []
        self._log = lib.llama_log_callback(self._hear)
        lib.llama_log_set(self._log, None)
        lib.llama_backend_init()

    def about(self) -> dict[str, str]:
        """Version, and the features it was built with."""
        lib = self._lib
        return {"version": lib.__version__, "system": " ".join(lib.llama_print_system_info().decode().split())}

    def load(
        self,
        model: str,
        n_ctx: int,
        threads: int,
        kv: str,
        flash: str = "auto",
        repack: bool = True,
        batch: int = 512,
        gpu: int | None = None,
    ) -> dict[str, Any]:
        """Load with one thread count for all; `repack`: the layouts that it makes of weights for this CPU.

        `gpu`: every layer on that GPU; None: none on any.
        """
        if kv not in KV_TYPES:
            raise ValueError(f"KV cells of {kv!r}: llama.cpp is asked for {', '.join(KV_TYPES)}")
        lib, start = self._lib, perf_counter()
        wanted = lib.llama_model_default_params()
        wanted.n_gpu_layers, wanted.use_extra_bufts = 0, repack
        if gpu is not None:
            if not lib.llama_supports_gpu_offload():
                raise ValueError(f"it is built without GPU support, and minfer runs on GPU {gpu}; {GPU_INSTALL}")
            wanted.n_gpu_layers, wanted.main_gpu, wanted.split_mode = ALL_LAYERS, gpu, ONE_DEVICE
        self._model = lib.llama_model_load_from_file(model.encode(), wanted)
        if not self._model:
            raise ValueError(f"llama.cpp can't load {model}")
        if gpu is not None and (self._offloaded is None or self._offloaded[0] < self._offloaded[1]):
            many = "an unknown number of" if self._offloaded is None else "{} of {}".format(*self._offloaded)
            raise ValueError(f"llama.cpp put {many} layers on GPU {gpu}, and the comparison is of whole GPUs")
        self._context = lib.llama_init_from_model(self._model, self._context_params(n_ctx, threads, kv, flash, batch))
        if not self._context:
            raise ValueError(f"llama.cpp refuses a context of {n_ctx} tokens with {kv} cells, flash attention {flash}")
        seconds = perf_counter() - start
        self._batch, self._threads = batch, threads
        self._n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))
        buffers = ", ".join(f"{name} {size:.0f} MiB" for name, size in self._buffers.items())
        device = "cpu" if gpu is None else f"gpu {gpu}"
        settings = {"threads": threads, "kv": kv, "flash": flash, "n_batch": batch, "device": device}
        settings["weights in"] = buffers or "unknown"
        return {"seconds": seconds, "settings": settings, "n_vocab": self._n_vocab}

    def run(self, phase: str, tokens: int, depth: int, refill: bool) -> dict[str, float]:
        """Fill `depth` tokens with the clock stopped, then read or decode `tokens` of them; seconds."""
        ids = np.random.default_rng(SEED).integers(0, self._n_vocab, depth + (tokens if phase == "pp" else 1)).tolist()
        self._fill(ids[:depth], refill)
        start = perf_counter()
        if phase == "pp":
            self._decode(ids[depth:])
            int(self._last_logits().argmax())
        else:
            token = ids[depth]
            for _ in range(tokens):
                self._decode([token])
                token = int(self._last_logits().argmax())
        return {"seconds": perf_counter() - start}

    def logits(self, ids: Sequence[int], path: str) -> dict[str, list[int]]:
        """Write the logits behind every token to `path`: float32 [n_tokens, n_vocab], no header."""
        self._clear()
        with open(path, "wb") as out:  # noqa: PTH123 (this file stands alone)
            for at in range(0, len(ids), self._batch):
                self._logits_of(ids[at : at + self._batch], at, out)
        return {"shape": [len(ids), self._n_vocab]}

    def _context_params(self, n_ctx: int, threads: int, kv: str, flash: str, batch: int) -> Any:
        wanted = self._lib.llama_context_default_params()
        wanted.n_ctx, wanted.n_batch, wanted.n_ubatch = n_ctx, batch, batch
        wanted.n_threads = wanted.n_threads_batch = threads
        wanted.type_k = wanted.type_v = KV_TYPES[kv]
        wanted.flash_attn_type = FLASH[flash]
        wanted.no_perf = True
        return wanted

    def _fill(self, ids: list[int], refill: bool) -> None:
        if not refill and ids and ids == self._depth:
            memory = self._lib.llama_get_memory(self._context)
            if self._lib.llama_memory_seq_rm(memory, 0, len(ids), -1):
                return
        self._clear()
        if ids:
            self._decode(ids)
            self._last_logits()
        self._depth = ids

    def _clear(self) -> None:
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), False)
        self._depth = []

    def _decode(self, ids: Sequence[int]) -> None:
        lib = self._lib
        for at in range(0, len(ids), self._batch):
            part = ids[at : at + self._batch]
            array = (ctypes.c_int32 * len(part))(*part)
            code = lib.llama_decode(self._context, lib.llama_batch_get_one(array, len(part)))
            if code:
                raise RuntimeError(f"llama_decode returned {code} for {len(part)} tokens")

    def _last_logits(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """A view, valid until the next decode; waits for it."""
        return np.ctypeslib.as_array(self._lib.llama_get_logits_ith(self._context, -1), (self._n_vocab,))

    def _logits_of(self, ids: Sequence[int], position: int, out: Any) -> None:
        lib, n = self._lib, len(ids)
        batch = lib.llama_batch_init(n, 0, 1)
        batch.n_tokens = n
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i] = token, position + i
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, 1
        code = lib.llama_decode(self._context, batch)
        if code:
            raise RuntimeError(f"llama_decode returned {code} for {n} tokens with logits")
        rows = np.ctypeslib.as_array(lib.llama_get_logits(self._context), (n, self._n_vocab))
        rows.astype(np.float32, copy=False).tofile(out)
        lib.llama_batch_free(batch)

    def _hear(self, _level: int, text: bytes, _user: Any) -> None:
        line = text.decode(errors="replace")
        if found := BUFFER.search(line):
            self._buffers[found[1]] = float(found[2])
        if found := OFFLOADED.search(line):
            self._offloaded = int(found[1]), int(found[2])


def serve(engine: Any, requests: Any, reply: Callable[[dict[str, Any]], None]) -> None:
    """Answer requests until they end."""
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        try:
            reply({"result": getattr(engine, request.pop("do"))(**request)})
        except Exception as error:
            kind = "" if isinstance(error, (ValueError, RuntimeError, OSError)) else f"{type(error).__name__}: "
            reply({"error": " ".join(f"{kind}{error}".split())})


def main() -> None:
    """Serve; whatever the library prints goes to stderr, stdout carries replies only."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    try:
        import llama_cpp  # pyright: ignore[reportMissingImports] (an extra)
    except ImportError as error:
        reply({"error": f"llama-cpp-python can't be imported ({error}); {INSTALL}"})
        return
    engine = LlamaCpp(llama_cpp)
    reply({"ready": engine.about()})
    serve(engine, sys.stdin, reply)


if __name__ == "__main__":
    main()
