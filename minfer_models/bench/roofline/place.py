"""Where a model is that is to be timed part by part: a CPU's instructions or a GPU's launches."""

from __future__ import annotations

from collections.abc import Mapping

from minfer_models.backends import plug_in_names
from minfer_models.bench.workload import BenchError
from minfer_models.devices import GPU, DeviceChoice, resolve_device
from minfer_models.settings import Settings


def place_of(device: str | None) -> DeviceChoice:
    """What `--device`, or else MINFER_DEVICE, names; BenchError for a device whose programs take no times.

    Raises EngineError for one that isn't known or isn't here.
    """
    name = Settings.from_env().device if device is None else device
    place = resolve_device(name, plug_in_names)
    if place.backend not in ("cpu", GPU):
        raise BenchError(
            f"--device {name}: a roofline times the instructions of the CPU backend (cpu) or the launches of the GPU's "
            "(cuda); other backends run ops that aren't timed one by one"
        )
    return place


def require_none_given(given: Mapping[str, object], place: DeviceChoice) -> None:
    """BenchError for options by name, None where one wasn't given, that say nothing about a GPU."""
    if names := [name for name, value in given.items() if value is not None]:
        raise BenchError(f"{', '.join(names)}: of the CPU backend alone, and the model is to run on {place.about}")
