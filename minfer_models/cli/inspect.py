"""`minfer inspect`: what a file holds and what it will need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minfer_models.cli.command import FOUND
from minfer_models.cli.options import KvCells, KvType, ModelName
from minfer_models.plain_text import printable

if TYPE_CHECKING:
    from minfer_models.inspect import FileSummary, MemoryNeed


def inspect(
    model: ModelName,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    n_ctx: Annotated[
        int | None,
        typer.Option(
            "--n-ctx", "--ctx", "-c", min=1, help="Context to size memory for; unset: the model's, up to 8192."
        ),
    ] = None,
    kv: KvType = KvCells.AUTO,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
) -> None:
    """Show what a file holds and needs.

    Metadata, tensors by type, and the memory that running will need; no weight is read.

    Exit code 3 when the file is incomplete: bytes or shards are missing.
    """
    from minfer_models.cli.loading import located
    from minfer_models.cli.output import emit
    from minfer_models.engine import EngineOptions
    from minfer_models.gguf import GGUFError, open_gguf
    from minfer_models.inspect import summarize
    from minfer_models.settings import Settings

    settings = Settings.from_env()
    options = EngineOptions(n_ctx=n_ctx, kv=kv, fusions_off=frozenset(settings.fusions_off), isa=settings.isa)
    try:
        opened = open_gguf(located(model, settings), allow_incomplete=True)
    except GGUFError as error:
        if not error.incomplete:
            raise
        typer.echo(f"minfer: INCOMPLETE, the header is cut off: {error}", err=True)
        raise typer.Exit(FOUND) from None
    with opened:
        summary = summarize(opened, options, settings)
        lines = map(printable, _lines(summary, tensors))
        emit(json.dumps(_as_json(summary), indent=2) + "\n" if as_json else "\n".join(lines) + "\n", None)
    if summary.incomplete:
        raise typer.Exit(FOUND)


def _lines(s: FileSummary, tensors: bool) -> Iterator[str]:
    f = s.file
    shards = f" in {len(f.paths)} shards" if len(f.paths) > 1 else ""
    size = f"{f.size / 2**20:.1f} MiB{shards}"
    yield f"{f.path.name}: GGUF v{f.version}, {size}, {len(f.tensors)} tensors, {f.n_elements:,} parameters"
    yield from (f"INCOMPLETE: {problem}" for problem in f.problems if problem.incomplete)
    if s.config is not None:
        c = s.config
        yield f"architecture: {c.arch}, {c.n_blocks} blocks, width {c.width}, feed-forward {c.ffn_width}"
        yield f"attention: {c.n_heads} heads, {c.n_kv_heads} KV heads of {c.head_dim}, rope base {c.rope_base:g}"
        yield f"vocabulary: {c.n_vocab} tokens; context: {c.n_ctx_train} tokens; chat template: {_yes(s.chat)}"
    yield f"supported: {'yes' if not s.reasons else 'no'}"
    yield from (f"  {reason}" for reason in s.reasons)
    yield ""
    yield f"metadata, {len(s.metadata)} keys"
    width = max((len(e.key) for e in s.metadata), default=0)
    yield from (f"  {e.key:<{width}}  {e.type:<16}  {e}" for e in s.metadata)
    yield ""
    yield f"tensors, {len(f.tensors)}"
    for t in s.types:
        yield f"  {t.type:<8} {t.tensors:>6} tensors {t.elements:>16,} elements {t.nbytes / 2**20:>12.3f} MiB"
    if tensors:
        name_width = max((len(name) for name in f.tensors), default=0)
        for info in f.tensors.values():
            yield f"  {info.name:<{name_width}}  {info.type_name:<8} {list(info.shape)!s:<20} {info.nbytes:>12} bytes"
    if s.memory is not None:
        yield ""
        yield from _memory_lines(s.memory)


def _memory_lines(m: MemoryNeed) -> Iterator[str]:
    rows = " and ".join(map(str, dict.fromkeys(m.rows)))
    yield f"memory on cpu at n_ctx {m.n_ctx}, KV cells {m.kv_type}, forwards of {rows} rows"
    for name, nbytes in (("weights", m.weights), ("kv cells", m.kv), ("pool", m.pool), ("total", m.total)):
        yield f"  {name:<9}{nbytes / 2**20:>12.3f} MiB"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _as_json(s: FileSummary) -> dict[str, Any]:
    f = s.file
    return {
        "path": str(f.path),
        "shards": [str(path) for path in f.paths],
        "version": f.version,
        "bytes": f.size,
        "parameters": f.n_elements,
        "incomplete": s.incomplete,
        "missing_bytes": f.missing_bytes,
        "supported": not s.reasons,
        "reasons": s.reasons,
        "chat_template": s.chat,
        "architecture": None if s.config is None else asdict(s.config),
        "metadata": {e.key: {"type": e.type, "value": e.value} for e in s.metadata},
        "types": [asdict(t) for t in s.types],
        "tensors": [
            {"name": i.name, "type": i.type_name, "shape": list(i.shape), "bytes": i.nbytes} for i in f.tensors.values()
        ],
        "memory": None if s.memory is None else asdict(s.memory) | {"total": s.memory.total},
    }
