"""What `--device` names: found, announced, or refused with what there is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from minfer_models import devices
from minfer_models.devices import DeviceChoice, devices_here, resolve_device
from minfer_models.engine import EngineError

Pretend = Callable[[int], None]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pretend:
    """Makes torch find so many GPUs, with their driver."""

    def pretend(count: int) -> None:
        properties = SimpleNamespace(name="Pretended H200", total_memory=141 << 30)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        monkeypatch.setattr(devices, "_is_interpreted", lambda: False)
        driver = tmp_path / "nvidiactl"
        if count:
            driver.touch()
        monkeypatch.setattr(devices, "DRIVERS", (driver,))

    return pretend


def test_auto_is_the_first_gpu_or_the_cpu(gpus: Pretend) -> None:
    gpus(0)
    assert resolve_device("auto") == DeviceChoice("cpu", "", "cpu")
    gpus(2)
    assert resolve_device("auto") == DeviceChoice("gpu", "cuda:0", "cuda:0, Pretended H200, 141.0 GiB")


def test_auto_says_why_it_is_the_cpu_where_a_driver_is_there(gpus: Pretend, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    choice = resolve_device("auto")
    assert choice.backend == "cpu"
    assert str(choice).startswith(f"device: cpu (torch {torch.__version__} ")


def test_gpus_are_taken_by_number(gpus: Pretend) -> None:
    gpus(2)
    assert resolve_device("cuda").place == "cuda:0"
    assert resolve_device("cuda:1") == DeviceChoice("gpu", "cuda:1", "cuda:1, Pretended H200, 141.0 GiB")
    with pytest.raises(EngineError, match=r"--device cuda:2: there are 2 CUDA devices; there are auto, cpu, .*cuda:1"):
        resolve_device("cuda:2")


def test_a_gpu_that_is_not_here_is_refused_with_the_reason_and_what_there_is(gpus: Pretend) -> None:
    gpus(0)
    with pytest.raises(EngineError, match=r"--device cuda: torch \S+ .*; there are auto, cpu, numpy, torch:cpu$"):
        resolve_device("cuda")


def test_in_the_interpreter_cuda_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_is_interpreted", lambda: True)
    choice = resolve_device("cuda")
    assert (choice.backend, choice.place, choice.is_accelerator) == ("gpu", "cpu", True)
    assert "interpreted by Triton on the CPU" in str(choice)


def test_torch_devices() -> None:
    assert resolve_device("torch:cpu") == DeviceChoice("torch", "cpu", "torch on cpu")
    for place in ("mps", "nowhere", "cpu:x"):
        with pytest.raises(EngineError, match=f"torch has no device {place} here; there are .*torch:cpu"):
            resolve_device(f"torch:{place}")


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:-1", "torch", "torch:", "CPU", "cpus"])
def test_what_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(EngineError, match=f"--device {name}: no device is called that; there are auto, cpu, numpy"):
        resolve_device(name)


def test_plug_ins_are_asked_last_and_listed() -> None:
    def unasked() -> tuple[str, ...]:
        raise AssertionError("reading entry points takes time")

    assert [resolve_device(name, unasked).backend for name in ("cpu", "numpy")] == ["cpu", "numpy"]
    assert resolve_device("mine", lambda: ("mine",)) == DeviceChoice("mine", "", "mine")
    with pytest.raises(EngineError, match=r"no device is called that; there are .*, mine$"):
        resolve_device("yours", lambda: ("mine",))


def test_devices_here_name_every_gpu(gpus: Pretend) -> None:
    gpus(2)
    assert [name for name in devices_here() if name.startswith("cuda")] == ["cuda:0", "cuda:1"]
    gpus(0)
    assert devices_here()["cuda"].startswith("not here: torch ")


def test_neither_the_cpu_nor_auto_without_a_driver_imports_torch() -> None:
    code = (
        "import sys; from pathlib import Path; from minfer_models import devices;"
        "devices.DRIVERS = (Path('/nowhere'),);"
        "[devices.resolve_device(n) for n in ('cpu', 'auto', 'numpy')]; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
