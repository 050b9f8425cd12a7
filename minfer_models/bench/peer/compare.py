"""Measure our engine and another one in turns, and how far apart their answers are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from minfer_kernels.cpu.runner.cores import default_threads
from minfer_models.bench.child import ChildEndedError
from minfer_models.bench.conditions import Conditions
from minfer_models.bench.engine_side import EngineSide
from minfer_models.bench.loading import EngineChoices, context_of, load_timed
from minfer_models.bench.peer.cpu_time import pair_seconds
from minfer_models.bench.peer.divergence import divergence
from minfer_models.bench.peer.place import ON_CPU, PeerPlace
from minfer_models.bench.peer.report import Answers, PeerCompared, PeerRecord, PeerReport, Quiet, Ratios
from minfer_models.bench.peer.side import PeerChoices, PeerProgram, PeerSide, Watched
from minfer_models.bench.peer.text import TEXT
from minfer_models.bench.rounds import Turn, matched_rounds
from minfer_models.bench.workload import BenchError, Workload, require_room
from minfer_models.cli.progress import Progress
from minfer_models.cli.settings_view import settings_of
from minfer_models.engine import Logits
from minfer_models.llm import LLM

OURS = "minfer"
MOST_TOKENS = 256
"""Tokens of the text whose logits are compared; enough for a mean, and 150 MB of logits for a large vocabulary."""

CONTEXT_STEP = 256
"""Contexts are whole multiples of this: llama.cpp pads its own to it."""


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """What is asked for: the peer, its own options, whether a float reference says who is nearer to it, its place."""

    program: PeerProgram
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reference: bool = False
    place: PeerPlace = ON_CPU


def compare(
    path: Path,
    request: PeerRequest,
    tests: Sequence[Workload],
    choices: EngineChoices,
    rounds: int,
    progress: Progress,
) -> PeerReport:
    """Both engines on the file at `path`, on the same threads or GPU and with the same KV cells.

    Raises BenchError when a test doesn't fit the context, when the peer can't be run or fails, when the GPU doesn't run
    all of our side, and when the two engines see different vocabularies.
    """
    most = context_of(path, choices)
    require_room(tests, most)
    needed = max(*(t.cells for t in tests), MOST_TOKENS)
    n_ctx = min(most, -(-needed // CONTEXT_STEP) * CONTEXT_STEP)
    conditions = Conditions.here(path)
    llm, loaded = load_timed(path, replace(choices, n_ctx=n_ctx), progress)
    with llm:
        settings = settings_of(llm)
        _require_whole(llm, request.place)
        n_threads = settings.get("threads") or choices.threads or default_threads()
        wanted = PeerChoices(n_ctx, n_threads, settings["kv"], request.options, request.place.gpu)
        ids = _text_ids(llm)
        # what the peer answers is known before anything is timed, and so is whether it can
        peer, theirs, notes = _answering(request.program, path, wanted, ids, progress)
        try:
            answers = _answers(llm, peer, path, ids, theirs, request, choices, progress)
            results, quiet = _measured(llm, peer, tests, rounds, progress)
        finally:
            peer.close()
    return PeerReport(
        conditions=conditions,
        settings=settings,
        load_seconds=loaded.seconds,
        peer=PeerRecord(request.program.name, peer.about, peer.settings, peer.load_seconds),
        results=tuple(results),
        ratios=Ratios.of(results),
        kl=answers.between,
        answers=answers,
        quiet=quiet,
        notes=(*request.place.notes, *notes),
    )


def _require_whole(llm: LLM, place: PeerPlace) -> None:
    """BenchError when layers are left to the CPU: the engines would split a model differently."""
    if place.gpu is None:
        return
    where = {split.backend for split in llm.engine.executable(llm.engine.params(1)).splits}
    if len(where) > 1:
        raise BenchError(f"minfer runs this model on {' and '.join(sorted(where))}; engines are compared on whole GPUs")


def _measured(
    llm: LLM, peer: PeerSide, tests: Sequence[Workload], rounds: int, progress: Progress
) -> tuple[list[PeerCompared], Quiet | None]:
    here, there = os.getpid(), peer.child.pid
    ours = Watched(EngineSide(OURS, llm), lambda: pair_seconds(waiting=there, running=here))
    theirs = Watched(peer, lambda: pair_seconds(waiting=here, running=there))
    last = ""

    def show(turn: Turn) -> None:
        nonlocal last
        if turn.samples is not None:
            last = f", last ratio {turn.samples[peer.name].seconds / turn.samples[OURS].seconds:.2f}"
        progress.show(f"{turn.text}, {turn.side}{last}" if turn.side else f"{turn.text}{last}")

    results = [PeerCompared.of(matched_rounds((ours, theirs), t, rounds, show), OURS, peer.name) for t in tests]
    return results, Quiet.of((ours, theirs))


def _answering(
    program: PeerProgram, path: Path, choices: PeerChoices, ids: Sequence[int], progress: Progress
) -> tuple[PeerSide, Logits, tuple[str, ...]]:
    """The loaded peer and its logits behind `ids`; a peer that crashes on its own layouts is asked again without them.

    Only where nobody asked for the layouts, and the notes say so.
    """
    try:
        return (*_loaded(program, path, choices, ids, progress), ())
    except ChildEndedError as error:
        if error.signal is None or "repack" not in program.options or "repack" in choices.options:
            raise
        plain = replace(choices, options={**choices.options, "repack": False})
        note = f"{error}; measured with repack=off, on weights as they are in the file: slower"
    return (*_loaded(program, path, plain, ids, progress), (note,))


def _loaded(
    program: PeerProgram, path: Path, choices: PeerChoices, ids: Sequence[int], progress: Progress
) -> tuple[PeerSide, Logits]:
    progress.show(f"{program.name}: loading")
    peer = PeerSide(program, path, choices)
    try:
        progress.show(f"{program.name}: the logits behind {len(ids)} tokens")
        return peer, peer.logits(ids)
    except BaseException:
        peer.close()
        raise


def _answers(
    llm: LLM,
    peer: PeerSide,
    path: Path,
    ids: Sequence[int],
    theirs: Logits,
    request: PeerRequest,
    choices: EngineChoices,
    progress: Progress,
) -> Answers:
    if peer.n_vocab != llm.engine.model.config.n_vocab:
        raise BenchError(f"{peer.name} has {peer.n_vocab} logits a token, minfer {llm.engine.model.config.n_vocab}")
    if not np.isfinite(theirs).all():
        raise BenchError(f"{peer.name}: its logits have NaN or infinity")
    progress.show(f"comparing the logits behind {len(ids)} tokens")
    ours = llm.logits(ids)
    between = divergence(theirs, ours)
    if not request.reference:
        return Answers(between, None, None)
    exact = _reference(path, ids, choices, progress)
    return Answers(between, divergence(exact, ours), divergence(exact, theirs))


def _text_ids(llm: LLM) -> list[int]:
    """The text's beginning in the model's tokens, as a conversation starts: with a BOS where the model has one."""
    room = min(MOST_TOKENS, llm.engine.n_ctx)
    return list(llm.tokenizer.encode(TEXT, add_bos=None))[:room]


def _reference(path: Path, ids: Sequence[int], choices: EngineChoices, progress: Progress) -> Logits:
    """The same weights with every operation in float32 on activations that nobody rounds."""
    plain = EngineChoices(n_ctx=max(len(ids), 2), kv="f32", fusions_off=choices.fusions_off, device="numpy")
    llm, _ = load_timed(path, plain, progress)
    with llm:
        progress.show("the float reference")
        return llm.logits(ids)
