"""Which device runs a model: what `--device` names, checked against what is here.

A name is a backend's: `cpu`, `numpy` or a plug-in's; `cuda` or `cuda:1` for the Triton backend on that GPU;
`torch:mps` for plain torch ops on a torch device; `auto` for the first GPU, or the CPU where there is none. torch is
imported for a GPU or a torch device only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from minfer_models.engine.options import EngineError

GPU, TORCH = "gpu", "torch"
"""The names in plans of the backends that have a device."""
DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))
"""One of them is there where torch could find a GPU (NVIDIA's driver, Windows' for WSL, AMD's)."""
BUILT_IN = ("cpu", "numpy")


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """A device that is here: `backend` runs it in plans, `place` is torch's name of the device, if it has one."""

    backend: str
    place: str
    about: str

    @property
    def is_accelerator(self) -> bool:
        """Whether layers can be split between it and the CPU."""
        return self.backend in (GPU, TORCH)

    def __str__(self) -> str:
        return f"device: {self.about}"


def resolve_device(
    name: str, plug_ins: Callable[[], tuple[str, ...]] = tuple, option: str = "--device"
) -> DeviceChoice:
    """The device that `name` asks for; raises EngineError with what there is, for one that isn't known or isn't here.

    `plug_ins` gives the names of other backends, and is asked last; `option` is who asks, for the error.
    """
    if name == "auto":
        return _first_gpu() if any(driver.exists() for driver in DRIVERS) else DeviceChoice("cpu", "", "cpu")
    if name in BUILT_IN:
        return DeviceChoice(name, "", name)
    kind, _, place = name.partition(":")
    if kind == "cuda" and (not place or place.isdecimal()):
        return _cuda(f"{option} {name}", place)
    if kind == TORCH and place:
        return _torch(f"{option} {name}", place)
    if name in (others := plug_ins()):
        return DeviceChoice(name, "", name)
    raise EngineError(f"{option} {name}: no device is called that; {_known(others)}")


def devices_here() -> dict[str, str]:
    """The devices that torch finds here by the names that `--device` takes, each with what it is."""
    found: dict[str, str] = {}
    if (reason := _why_no_cuda()) is None:
        found |= {f"cuda:{i}": about for i, about in enumerate(_cuda_names())}
    elif _is_interpreted():
        found["cuda"] = "kernels interpreted by Triton on the CPU (TRITON_INTERPRET=1)"
    else:
        found["cuda"] = f"not here: {reason}"
    return found | {f"torch:{place}": "plain torch ops" for place in _torch_places()}


def _first_gpu() -> DeviceChoice:
    """The GPU for `auto`, or the CPU and why it is that."""
    if (reason := _why_no_cuda()) is not None:
        return DeviceChoice("cpu", "", f"cpu ({reason})")
    return _cuda("--device auto", "0")


def _cuda(asked: str, index: str) -> DeviceChoice:
    if _is_interpreted():
        return DeviceChoice(GPU, "cpu", "cuda, kernels interpreted by Triton on the CPU (TRITON_INTERPRET=1)")
    if (reason := _why_no_cuda()) is not None:
        raise EngineError(f"{asked}: {reason}; {_known()}")
    names, number = _cuda_names(), int(index or 0)
    if number >= len(names):
        raise EngineError(f"{asked}: there are {len(names)} CUDA devices; {_known()}")
    return DeviceChoice(GPU, f"cuda:{number}", f"cuda:{number}, {names[number]}")


def _torch(asked: str, place: str) -> DeviceChoice:
    if find_spec("torch") is None:
        raise EngineError(f"{asked}: torch isn't installed; {_known()}")
    kind, _, index = place.partition(":")
    if kind not in _torch_places() or not (index.isdecimal() or not index):
        raise EngineError(f"{asked}: torch has no device {place} here; {_known()}")
    return DeviceChoice(TORCH, place, f"torch on {place}")


def _why_no_cuda() -> str | None:
    """None when Triton kernels can run on a GPU here, else the reason that they can't."""
    missing = [package for package in ("torch", "triton") if find_spec(package) is None]
    if missing:
        return f"CUDA needs {' and '.join(missing)}, not installed"
    import torch

    if torch.cuda.is_available():
        return None
    build = torch.version.cuda or torch.version.hip
    return f"torch {torch.__version__} finds no GPU" if build else f"torch {torch.__version__} is built without CUDA"


def _is_interpreted() -> bool:
    if find_spec("torch") is None or find_spec("triton") is None:
        return False
    from minfer_kernels.gpu.device import interpreted

    return interpreted()


def _cuda_names() -> list[str]:
    import torch

    properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [f"{p.name}, {p.total_memory / 2**30:.1f} GiB" for p in properties]


def _torch_places() -> Iterator[str]:
    """The kinds of device that torch has here."""
    if find_spec("torch") is None:
        return
    import torch

    yield "cpu"
    if torch.cuda.is_available():
        yield "cuda"
    if torch.backends.mps.is_available():
        yield "mps"
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        yield "xpu"


def _known(plug_ins: tuple[str, ...] = ()) -> str:
    """What there is, for refusals."""
    here = [name for name, about in devices_here().items() if not about.startswith("not here")]
    return f"there are auto, {', '.join(dict.fromkeys([*BUILT_IN, *here, *plug_ins]))}"
