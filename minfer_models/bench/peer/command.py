"""`minfer-bench peer`: the command line."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from minfer_models.bench.options import Context, KeepDepth, OutputForm, usage_errors
from minfer_models.bench.report.document import Output, written
from minfer_models.bench.workload import BenchError
from minfer_models.cli.options import DeviceName, FusionsOff, KvCells, KvType, ModelName, Threads, names

ON_OFF = {"on": True, "off": False}


def peer(
    model: ModelName,
    name: Annotated[str, typer.Option("--peer", metavar="llama.cpp", help="The engine to compare with.")],
    n_prompt: Annotated[
        int, typer.Option("-p", "--n-prompt", min=0, help="Tokens of the prefill test; 0 skips it.")
    ] = 512,
    n_gen: Annotated[int, typer.Option("-n", "--n-gen", min=0, help="Tokens of the decode test; 0 skips it.")] = 128,
    depth: Annotated[
        int, typer.Option("-d", "--depth", min=0, help="Tokens of context, filled untimed before every test.")
    ] = 0,
    keep_depth: KeepDepth = False,
    rounds: Annotated[int, typer.Option("-r", "--rounds", min=1, help="Timed rounds of each test.")] = 5,
    threads: Threads = None,
    device: DeviceName = None,
    kv: KvType = KvCells.AUTO,
    ctx: Context = None,
    fusions_off: FusionsOff = "",
    peer_options: Annotated[
        str,
        typer.Option(
            "--peer-options",
            metavar="NAME=VALUE,...",
            help="The peer's own: flash=auto|on|off, repack=on|off (weights in its layouts for this CPU), batch=N.",
        ),
    ] = "",
    reference: Annotated[
        bool, typer.Option("--reference", help="Also compare both with a float evaluation: slow, says who is nearer.")
    ] = False,
    output: OutputForm = Output.MD,
) -> None:
    """Compare with another engine on the same file.

    Threads and KV cells are the same, too. The engines take turns, each in its own process, and the ratio is our speed
    over the peer's. The distance of their answers is measured as well: the KL divergence of their next-token
    probabilities over a fixed text. llama.cpp needs the extra `peers` (llama-cpp-python). A peer that crashes on
    weights in its own layouts is measured without them, and the report says so; --peer-options repack=on makes that an
    error. With --device cuda both run on that GPU as a whole, and a peer built without GPU support is refused.
    """
    from minfer_models.bench.loading import EngineChoices, find_model
    from minfer_models.bench.peer.compare import PeerRequest, compare
    from minfer_models.bench.peer.place import place_of
    from minfer_models.bench.peer.side import peer_named
    from minfer_models.bench.workload import workloads
    from minfer_models.cli.progress import progress

    with usage_errors():
        tests = workloads([n_prompt], [n_gen], [depth], not keep_depth)
        program = peer_named(name)
        options = parse_options(peer_options, program.options)
        choices = EngineChoices(
            n_ctx=ctx, threads=threads, kv=kv.value, fusions_off=tuple(names(fusions_off)), device=device
        )
    request = PeerRequest(program, options, reference, place_of(device))
    path = find_model(model)
    with progress("minfer-bench") as shown:
        report = compare(path, request, tests, choices, rounds, shown)
    for note in report.notes:
        typer.echo(f"minfer-bench: {note}", err=True)
    typer.echo(written(report, output), nl=False)


def parse_options(text: str, known: tuple[str, ...]) -> dict[str, Any]:
    """`flash=on,batch=256` as values; raises BenchError for a name that isn't in `known` and for what has no value."""
    found: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = part.partition("=")
        if name not in known or not equals or not value:
            raise BenchError(f"--peer-options has {part!r}; expected NAME=VALUE with {', '.join(known) or 'no names'}")
        found[name] = _value(name, value)
    return found


def _value(name: str, text: str) -> Any:
    if name == "flash":
        if text not in ("auto", "on", "off"):
            raise BenchError(f"--peer-options: flash is auto, on or off, not {text!r}")
        return text
    if name == "batch":
        if not text.isdecimal() or int(text) < 1:
            raise BenchError(f"--peer-options: batch is a whole number from 1, not {text!r}")
        return int(text)
    if text not in ON_OFF:
        raise BenchError(f"--peer-options: {name} is on or off, not {text!r}")
    return ON_OFF[text]
