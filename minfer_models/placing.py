"""From what was asked for (a device, layers, memory) to backends and the plan that an engine runs with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minfer_ir.params import DevicePlan
from minfer_ir.runtime.backend import Backend
from minfer_ir.runtime.resources import Resources
from minfer_models.backends import make_backends, plug_in_names
from minfer_models.devices import TORCH, DeviceChoice, resolve_device
from minfer_models.engine.model import Model
from minfer_models.engine.options import EngineError, EngineOptions
from minfer_models.offload import BlockBytes, Layers, OffloadPlan, left_to_cpu, parse_layers, plan_offload
from minfer_models.settings import Settings

if TYPE_CHECKING:
    from minfer_kernels.cpu.compiler.library import OnCompile
    from minfer_models.engine.engine import Engine

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """What runs a model, as asked: `device` by name, or `devices` by backends; `layers` and `memory` bytes on a GPU.

    `explicit`: somebody gave the layers for this run, so that they can't be passed over. The others are as in
    EngineOptions.
    """

    device: str
    layers: Layers = None
    memory: int | None = None
    devices: DevicePlan | None = None
    explicit: bool = False
    capture: bool = True
    async_copies: bool = True
    activations: str = "8-bit"
    invariant: bool = False
    decode_apart: bool = False

    @classmethod
    def of(
        cls,
        settings: Settings,
        device: str | None = None,
        layers: Layers = None,
        mebibytes: int | None = None,
        devices: DevicePlan | None = None,
    ) -> Request:
        """What was given, and the settings for the rest; raises EngineError for a device by name and by backends."""
        if device is not None and devices is not None:
            raise EngineError(f"device {device!r} and devices {devices} both say what runs the model: give one")
        if mebibytes is not None and (type(mebibytes) is not int or mebibytes < 1):
            raise EngineError(f"gpu_mem is {mebibytes!r}, expected a whole number of MiB from 1")
        if layers is not None and layers != "auto" and type(layers) is not int:
            raise EngineError(f"gpu_layers is {layers!r}, expected a whole number, 'auto' or None")
        set_layers = None if settings.gpu_layers is None else parse_layers(settings.gpu_layers)
        memory = settings.gpu_mem if mebibytes is None else mebibytes
        return cls(
            device=device or settings.device,
            layers=set_layers if layers is None else layers,
            memory=None if memory is None else memory * MIB,
            devices=devices,
            explicit=layers is not None,
            capture=settings.gpu_capture,
            async_copies=settings.gpu_async_copies,
            activations=settings.gpu_activations,
            invariant=settings.gpu_invariant,
            decode_apart=settings.gpu_decode_apart,
        )

    def with_paths(
        self,
        capture: bool | None,
        async_copies: bool | None,
        invariant: bool | None = None,
        decode_apart: bool | None = None,
    ) -> Request:
        """The same with the optional paths of a GPU switched; None leaves them as set."""
        return replace(
            self,
            capture=self.capture if capture is None else capture,
            async_copies=self.async_copies if async_copies is None else async_copies,
            invariant=self.invariant if invariant is None else invariant,
            decode_apart=self.decode_apart if decode_apart is None else decode_apart,
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """The backends, and the options that have the plan. `choice` is None where backends were named instead."""

    options: EngineOptions
    backends: list[Backend]
    choice: DeviceChoice | None = None
    offload: OffloadPlan | None = None

    def check(self, resources: Resources) -> None:
        """Hold the weights that are registered against the plan; raises OffloadError."""
        if self.offload is not None and self.choice is not None and self.choice.backend in resources.backends:
            self.offload.check(resources.backends[self.choice.backend].weight_bytes())

    def lines(self, engine: Engine) -> Iterator[str]:
        """The device, how the layers are split, and what a step leaves to the CPU: a line each.

        None where there is nothing to say that a name doesn't: cpu is cpu.
        """
        if self.choice is None:
            return
        if self.choice.about != self.choice.backend:
            yield str(self.choice)
        if self.offload is None:
            return
        backend = engine.resources.backends.get(self.choice.backend)
        where = engine.options.device_name.split(",")[0]
        yield self.offload.text(where, 0 if backend is None else backend.weight_bytes())
        graph = engine.lowered(engine.params(1)).graph
        step = [(n.backend or "", n.op) for n in graph if not n.is_leaf() and n.spec.effect != "view"]
        if self.offload.is_full and (rest := left_to_cpu(step)) is not None:
            yield rest


def place_model(
    model: Model,
    options: EngineOptions,
    settings: Settings,
    request: Request,
    backends: Sequence[Backend] | None = None,
    on_compile: OnCompile | None = None,
) -> Placed:
    """Make the backends that the request needs (or take those given) and plan which runs what.

    Raises EngineError for a device that isn't here, OffloadError for layers that can't be split as asked.
    """
    options = replace(
        options,
        gpu_mem=request.memory,
        capture=request.capture,
        async_copies=request.async_copies,
        activations=request.activations,
        invariant=request.invariant,
        decode_apart=request.decode_apart,
    )
    if request.devices is not None or backends is not None:
        options = replace(options, devices=request.devices or options.devices)
        made = make_backends(options, settings, on_compile) if backends is None else list(backends)
        return Placed(options, made)
    choice = resolve_device(request.device, plug_in_names)
    if request.invariant and choice.backend == TORCH:
        raise EngineError(f"invariant: {choice.about} makes no promise about bits; cuda and cpu do")
    if choice.is_accelerator:
        return _split(model, replace(options, place=choice.place), settings, request, choice, on_compile)
    if request.explicit and request.layers not in (0, "auto"):
        raise EngineError(f"--gpu-layers {request.layers} goes with a GPU, and this runs on {choice.about}")
    options = replace(options, devices=DevicePlan((choice.backend,)))
    return Placed(options, make_backends(options, settings, on_compile), choice)


def _split(
    model: Model,
    options: EngineOptions,
    settings: Settings,
    request: Request,
    choice: DeviceChoice,
    on_compile: OnCompile | None,
) -> Placed:
    """The layers between an accelerator and the CPU."""
    (device,) = make_backends(replace(options, devices=DevicePlan((choice.backend,))), settings, on_compile)
    plan = plan_offload(request.layers, block_bytes(model, device), device.memory, request.memory)
    options = replace(options, devices=plan.device_plan(choice.backend))
    others = [name for name in plan_names(options.devices) if name != choice.backend]
    made = make_backends(replace(options, devices=DevicePlan(tuple(others))), settings, on_compile)
    by_name = {backend.name: backend for backend in [device, *made]}
    return Placed(options, [by_name[name] for name in plan_names(options.devices)], choice, plan)


def plan_names(plan: DevicePlan) -> list[str]:
    """The backends that a plan names, each once."""
    return list(dict.fromkeys([*plan.order, *(name for _, name in plan.blocks)]))


def block_bytes(model: Model, device: Backend) -> BlockBytes:
    """What the model's weights would take on `device`, from the file's index alone."""
    needs = {name: device.weight_need(t.format, t.shape, _uses(t.shape)) for name, t in model.formats.items()}
    return BlockBytes.of(needs, model.config.n_blocks)


def _uses(shape: tuple[int, ...]) -> frozenset[str]:
    """Who reads a tensor of this shape, for backends that keep it in the form its readers need."""
    return frozenset({"matmul" if len(shape) > 1 else "rms_norm"})
