"""The `minfer-bench` command: throughput when no subcommand is named, and the subcommands."""

from __future__ import annotations

from minfer_models.bench.ab.command import ab
from minfer_models.bench.default_command import DefaultCommand
from minfer_models.bench.neighbour.command import neighbour
from minfer_models.bench.peer.command import peer
from minfer_models.bench.quantize.command import quantize
from minfer_models.bench.roofline.command import roofline
from minfer_models.bench.sampling.command import sampling
from minfer_models.bench.start.command import start
from minfer_models.bench.throughput.command import throughput
from minfer_models.cli.command import application, reported

app = application(
    "minfer-bench",
    "Measure how fast a model runs, compare two sides, and see where the time goes. MODEL is a path to a GGUF file, a "
    "Hugging Face name such as owner/repo:Q4_K_M, or demo.\n\nExit codes: 0 success; 1 an error; 2 a wrong command "
    "line; 3 a difference was found; 130 Ctrl-C.",
)
app.info.cls = DefaultCommand
COMMANDS = (
    ("throughput", throughput),
    ("ab", ab),
    ("peer", peer),
    ("roofline", roofline),
    ("neighbour", neighbour),
    ("start", start),
    ("sampling", sampling),
    ("quantize", quantize),
)
for name, command in COMMANDS:
    app.command(name, hidden=name == "throughput")(reported("minfer-bench")(command))


@app.callback(subcommand_metavar="[COMMAND] MODEL [OPTIONS]...")
def _options() -> None:
    """Options of the whole command: there are none."""
