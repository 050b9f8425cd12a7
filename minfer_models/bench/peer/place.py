"""Where the two engines run: the peer on the kind of device that runs ours."""

from __future__ import annotations

from dataclasses import dataclass

from minfer_models.backends import plug_in_names
from minfer_models.devices import GPU, TORCH, DeviceChoice, resolve_device
from minfer_models.settings import Settings

INTERPRETED = "minfer's kernels were interpreted by Triton on the CPU: the ratios say nothing about a GPU"


@dataclass(frozen=True, slots=True)
class PeerPlace:
    """`gpu`: the number of the GPU that the peer runs everything on, None for the CPU. `notes` say what isn't real."""

    gpu: int | None = None
    notes: tuple[str, ...] = ()


ON_CPU = PeerPlace()


def place_of(device: str | None) -> PeerPlace:
    """The peer's place where ours runs on what `--device`, or else MINFER_DEVICE, names.

    Raises EngineError for a device that isn't known or isn't here.
    """
    name = Settings.from_env().device if device is None else device
    return beside(resolve_device(name, plug_in_names))


def beside(ours: DeviceChoice) -> PeerPlace:
    """`cuda:1` and `torch:cuda:1` are GPU 1, another torch device than its CPU GPU 0."""
    if ours.backend not in (GPU, TORCH):
        return ON_CPU
    kind, _, index = ours.place.partition(":")
    if kind == "cpu":
        return PeerPlace(notes=(INTERPRETED,) if ours.backend == GPU else ())
    return PeerPlace(gpu=int(index or 0))
