"""Loading a model: from a name to an LLM that is ready to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from minfer_ir.params import DevicePlan
from minfer_ir.plugins import enable
from minfer_ir.runtime.backend import Backend
from minfer_ir.runtime.probe import Probe
from minfer_ir.runtime.resources import call_sites
from minfer_kernels.cpu.backend import CpuBackend
from minfer_models.background import Background
from minfer_models.engine import Engine, EngineOptions, Model
from minfer_models.hub import locate
from minfer_models.llm import LLM
from minfer_models.offload import Layers
from minfer_models.placing import Request, place_model
from minfer_models.settings import Settings
from minfer_models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from minfer_models.chat import ChatTemplate

OnWeight = Callable[[str, int], None]
"""Hears of every weight that is taken in: its name and its bytes."""


def load(
    model: str | Path,
    *,
    n_ctx: int | None = None,
    threads: int | None = None,
    threads_fixed: bool | None = None,
    kv: str = "auto",
    fusions_off: Iterable[str] = (),
    device: str | None = None,
    gpu_layers: Layers = None,
    gpu_mem: int | None = None,
    capture: bool | None = None,
    async_copies: bool | None = None,
    invariant: bool | None = None,
    decode_apart: bool | None = None,
    devices: DevicePlan | None = None,
    chunk: int | None = None,
    budget: int | None = None,
    settings: Settings | None = None,
    backends: Sequence[Backend] | None = None,
    for_chat: bool = False,
    chat_template: str | Path | None = None,
    on_weight: OnWeight | None = None,
    on_compile: Callable[[str, int, int], None] | None = None,
    on_device: Callable[[str], None] | None = None,
) -> LLM:
    """Load a model: a path, a Hugging Face name `owner/repo:TAG`, or "demo".

    `n_ctx` tokens of context (None: the model's own, up to 8192), `threads` of the CPU backend (None: the physical
    cores), of which fewer walk while other processes keep cores busy, unless `threads_fixed`, `kv` cell type "auto",
    "f32", "f16" or "q8_0", `fusions_off` by name, `budget` in bytes. `device` as on the command line: "auto", "cpu",
    "cuda", "cuda:1", "torch:mps", "numpy" or a plug-in's name; a GPU runs `gpu_layers` blocks (None: all, "auto": as
    many as fit) in at most `gpu_mem` MiB, replays captured steps unless `capture` is False and copies without waiting
    unless `async_copies` is; `invariant` has it compute a token's logits to the same bits whatever is computed beside
    it, `decode_apart` attend a sequence's few rows as it does without the prompt beside them. `devices` says by
    backends which runs what, instead of `device`; `backends` replaces the ones that it names.
    `for_chat` has the chat template looked at before any weight is taken in, and refused if it can't hold a chat;
    `chat_template` is another one: a file, the name of one of the model's, or a template's text.
    `on_weight` and `on_compile` report progress, `on_device` hears the device and the plan in a line each.

    Raises LocateError when nothing is found, GGUFError for a file that can't be run, EngineError for options out of
    range, ChatTemplateError for a template that can't be used, BudgetError when it doesn't fit, PluginError for a
    plug-in that the settings name and that isn't there.
    """
    settings = settings or Settings.from_env()
    enable(settings.plugins)
    defaults = EngineOptions()
    options = EngineOptions(
        n_ctx=n_ctx,
        threads=threads if threads is not None else settings.threads,
        kv=kv,
        chunk=defaults.chunk if chunk is None else chunk,
        fusions_off=frozenset(fusions_off) | frozenset(settings.fusions_off),
        budget=budget,
        isa=settings.isa,
        threads_fixed=settings.threads_fixed if threads_fixed is None else threads_fixed,
    )
    request = Request.of(settings, device, gpu_layers, gpu_mem, devices)
    request = request.with_paths(capture, async_copies, invariant, decode_apart)
    opened = Model.open(locate(model, settings))
    with ExitStack() as undo:
        undo.callback(opened.file.close)
        template = _chat_template(opened, chat_template) if for_chat or chat_template is not None else None
        placed = place_model(opened, options, settings, request, backends, on_compile)
        undo.callback(_close, placed.backends if backends is None else ())
        _expect_weights(placed.backends, opened, budget)
        probe = Probe(settings.test_call_fail, call_sites(placed.backends))
        undo.pop_all()  # the engine closes them from here on
    tokenizer = Background(lambda: Tokenizer.from_metadata(opened.file.metadata))
    engine = Engine(opened, placed.backends, placed.options, probe, _starting(tokenizer, on_weight))
    with ExitStack() as undo:
        undo.callback(engine.close)
        placed.check(engine.resources)
        vocabulary = tokenizer.result()
        opened.check_vocabulary(vocabulary.n_vocab)
        if on_device is not None:
            for line in placed.lines(engine):
                on_device(line)
        undo.pop_all()
    return LLM(engine, vocabulary, template)


def _starting(tokenizer: Background[Tokenizer], on_weight: OnWeight | None) -> OnWeight:
    """What hears of the weights. The tokenizer is made while native code packs them: it takes as long, in Python."""

    def take_in(name: str, nbytes: int) -> None:
        tokenizer.start()
        if on_weight is not None:
            on_weight(name, nbytes)

    return take_in


def _chat_template(model: Model, given: str | Path | None) -> ChatTemplate:
    from minfer_models.chat import ChatTemplate

    return ChatTemplate.from_metadata(model.file.metadata, given=given)


def _expect_weights(backends: Sequence[Backend], model: Model, budget: int | None) -> None:
    """Have the memory and the file made ready while the vocabulary and the plan are; a budget speaks first."""
    if budget is None and [backend.name for backend in backends] == ["cpu"]:
        model.file.will_need()
        for backend in backends:
            if isinstance(backend, CpuBackend):
                backend.expect_weights(model.file.size)


def _close(backends: Iterable[Backend]) -> None:
    for backend in backends:
        close = getattr(backend, "close", None)
        if close is not None:
            close()
