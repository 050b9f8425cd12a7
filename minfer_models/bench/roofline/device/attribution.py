"""From the times of launches and the costs of nodes to where the time went, in parts that add up to the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from minfer_ir.costs import step_costs
from minfer_ir.graph import Graph, Node
from minfer_ir.opspec import Cost
from minfer_ir.runtime.executable import Executable
from minfer_kernels.gpu.backend import GpuProgram
from minfer_kernels.gpu.timing import LaunchTimes
from minfer_kernels.gpu.weights import GpuWeight
from minfer_models.bench.roofline.attribution import BLOCK, Attribution, Part
from minfer_models.bench.roofline.device.limits import DeviceCeilings
from minfer_models.bench.roofline.steps import Forward
from minfer_models.bench.workload import BenchError

MEMORY, FLOAT16 = "memory", "float16"


def gpu_program_of(executable: Executable) -> GpuProgram:
    """The only program of a graph; BenchError for a graph that runs in parts, or elsewhere too."""
    program = executable.programs[0]
    if len(executable.programs) != 1 or not isinstance(program, GpuProgram):
        where = ", ".join(f"{len(split.nodes)} nodes on {split.backend}" for split in executable.splits)
        raise BenchError(f"only a step that the GPU runs as a whole can be timed, this one runs in parts: {where}")
    return program


def attribute(forwards: Sequence[Forward[LaunchTimes]], ceilings: DeviceCeilings) -> Attribution:
    """Where the time of `forwards` went, by kind of launch.

    What the device waited for its launches to be queued is in no part and not in the total.
    """
    parts: dict[str, Part] = {}
    total = outside = 0.0
    for forward in forwards:
        launches = forward.times.launches
        seconds = forward.seconds - forward.times.held
        total += seconds
        outside += seconds - sum(launches)
        _add(parts, forward, launches, ceilings)
    return Attribution(tuple(parts.values()), 0.0, outside, total)


def runs_of(spans: Mapping[int, tuple[int, int]]) -> Iterator[tuple[list[int], tuple[int, int]]]:
    """Nodes that the same launches serve, and these, [first, stop): a node without any belongs to the one before."""
    members: list[int] = []
    launches = (0, 0)
    for node, (first, stop) in spans.items():
        if members and first == stop:
            members.append(node)
            continue
        if members:
            yield members, launches
        members, launches = [node], (first, stop)
    if members:
        yield members, launches


def kind_of(nodes: Sequence[Node], graph: Graph, weights: Mapping[int, GpuWeight]) -> str:
    """The ops, joined; with the weight of the first, whatever the block, and its format where it reads a matrix."""
    first, rest = nodes[0], "".join(f" + {node.op}" for node in nodes[1:])
    matrices = (weights[s] for s in first.sources if s in weights and weights[s].planes)
    weight = next(matrices, None)
    if weight is None or first.op == "get_rows":
        return first.op + rest
    return f"{first.op} {BLOCK.sub('', first.name)} {weight.format.name}{rest}"


def limit_of(cost: Cost, ceilings: DeviceCeilings) -> tuple[float, str]:
    """The least seconds for the work, and what takes them: all bytes by way of memory, or all multiply-adds."""
    moving, multiplying = cost.bytes / ceilings.memory.limit, cost.flops / 2 / ceilings.float16.limit
    return (multiplying, FLOAT16) if multiplying > moving else (moving, MEMORY)


def _add(
    parts: dict[str, Part], forward: Forward[LaunchTimes], launches: Sequence[float], ceilings: DeviceCeilings
) -> None:
    graph, program = forward.executable.graph, gpu_program_of(forward.executable)
    stored = {leaf: weight.nbytes for leaf, weight in program.weights.items() if weight.planes}
    costs = step_costs(graph, forward.inputs, stored)
    for members, (first, stop) in runs_of(program.spans):
        nodes = [graph[member] for member in members]
        kind = kind_of(nodes, graph, program.weights)
        part = parts.setdefault(kind, Part(kind, nodes[0].op))
        cost = sum((costs[member] for member in members), Cost(0, 0))
        seconds, by = limit_of(cost, ceilings)
        part.calls += stop - first
        part.seconds += sum(launches[first:stop])
        part.cost += cost
        part.limit += seconds
        part.limited[by] = part.limited.get(by, 0.0) + seconds
