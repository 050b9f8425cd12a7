"""`python -m tools.kernel_gate`: compile every GPU kernel, check what it promises, and record what came out.

No GPU is needed. Exit status 1 when a promise is broken or the code differs from docs/kernels.json.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import triton
import typer
from rich.console import Console
from rich.table import Table

from minfer_kernels.gpu.configuration import Configuration, Inventory
from minfer_kernels.gpu.gate.inventory import inventory, tile_tables
from minfer_kernels.gpu.gate.pool import Compiled, compile_all
from minfer_kernels.gpu.gate.record import COLUMNS, Record, page, row
from minfer_kernels.gpu.gate.verify import complaints, jobs_of
from minfer_kernels.gpu.targets import MAIN, TARGETS
from minfer_models.cli.command import application, reported
from minfer_models.cli.progress import progress
from minfer_models.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs" / "kernels.json"
PAGE = ROOT / "docs" / "kernels.md"


def kernel_gate(
    target: Annotated[
        list[str] | None, typer.Option(help=f"A device to compile for: {', '.join(TARGETS)}; unset: {MAIN}.")
    ] = None,
    only: Annotated[str, typer.Option(help="Only configurations with this in their name.")] = "",
    sampled: Annotated[bool, typer.Option("--sampled", help="Only those that the test suite compiles.")] = False,
    full: Annotated[bool, typer.Option("--full", help="For every device.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Record what came out.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=16, help="Compilers at a time.")] = 2,
) -> None:
    """Compile the GPU kernels for devices that needn't be here and check what came out.

    Figures are kept in the cache folder, so what didn't change isn't compiled again.
    """
    targets = list(TARGETS) if full else target or [MAIN]
    if unknown := [name for name in targets if name not in TARGETS]:
        raise typer.BadParameter(f"--target {', '.join(unknown)}: expected one of {', '.join(TARGETS)}")
    known = inventory()
    wanted = jobs_of(known, targets, only, sampled)
    if not wanted:
        raise typer.BadParameter(f"no configuration has {only!r} in its name; there are {', '.join(known[MAIN])}")
    compiled = _compile(wanted, jobs)
    record = read_record()
    if write:
        record = write_record(record, compiled, known)
    wrong = [complaints(one, known[one.target][one.name], record, triton.__version__) for one in compiled]
    _show(compiled, wrong, known, record)
    if any(wrong):
        raise typer.Exit(1)


def _compile(wanted: Sequence[tuple[str, str]], jobs: int) -> list[Compiled]:
    """In the order asked for."""
    cache = Settings.from_env().cache_dir / "kernel-gate"
    done: dict[tuple[str, str], Compiled] = {}
    with progress("kernel_gate") as shown:
        for one in compile_all(wanted, cache, os.environ, jobs):
            done[one.target, one.name] = one
            shown.show(f"{len(done)} of {len(wanted)} compiled: {one.name} for {one.target}")
    return [done[job] for job in wanted]


def read_record() -> Record:
    """docs/kernels.json; where there is none, a record that nothing is compared with."""
    return Record.from_text(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else Record("none")


def write_record(record: Record, compiled: Sequence[Compiled], known: Inventory) -> Record:
    """Both files, with the new figures; those of another Triton are dropped."""
    same = record if record.triton == triton.__version__ else Record(triton.__version__)
    updated = same.updated(compiled, known[MAIN])
    RECORD.write_text(updated.to_text(), encoding="utf-8", newline="\n")
    PAGE.write_text(page(updated, known, tile_tables()), encoding="utf-8", newline="\n")
    return updated


def _show(compiled: Sequence[Compiled], wrong: Sequence[list[str]], known: Inventory, record: Record) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    bad = {(one.target, one.name) for one, lines in zip(compiled, wrong, strict=True) if lines}
    for target in dict.fromkeys(one.target for one in compiled):
        console.print(_table(target, [one for one in compiled if one.target == target], known[target], bad))
    for one, lines in zip(compiled, wrong, strict=True):
        for line in lines:
            console.print(f"FAILED {one.name} for {one.target}: {line}", markup=False, highlight=False, soft_wrap=True)
    if record.triton != triton.__version__:
        console.print(f"recorded with Triton {record.triton}, this is {triton.__version__}: only promises were checked")
    console.print(f"{len(compiled)} compiled, {len(bad)} with complaints")
    if bad:
        console.print("a deliberate change is recorded by: tools/kernel_gate --write (with the same other options)")


def _table(
    target: str, compiled: Sequence[Compiled], known: Mapping[str, Configuration], bad: set[tuple[str, str]]
) -> Table:
    table = Table("configuration", title=target, title_justify="left")
    columns = (*COLUMNS, "spills")
    for column in columns:
        table.add_column(column, justify="right")
    for one in compiled:
        style = "red" if (one.target, one.name) in bad else None
        if one.figures is None:
            table.add_row(one.name, "not compiled", style=style)
            continue
        cells = row(one.figures, known[one.name])
        table.add_row(one.name, *(cells[column] for column in columns), style=style)
    return table


app = application("kernel_gate", "What the compiler makes of the GPU kernels.")
app.command()(reported("kernel_gate")(kernel_gate))

if __name__ == "__main__":
    app()
