"""The backends of docs/SUPPORT-MATRIX.md: every one of ours, asked without a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_ir.testing.support_matrix import Column, Supporter, support_matrix_text
from minfer_kernels.cpu.backend import CpuBackend
from minfer_kernels.cpu.limits import why_not

PAGE = Path(__file__).resolve().parents[1] / "docs" / "SUPPORT-MATRIX.md"
NOTE = (
    "`gpu` is the Triton backend and `torch` the one in plain torch ops, with their default options. No device was at",
    "hand: what they take doesn't depend on it, and their cells run in the tests on the CPU, Triton's kernels in its",
    "interpreter. Where torch or triton isn't installed, their columns are kept as they were and the others compared.",
)


def page() -> str:
    """The page's text. The CPU backend answers without being made: that would start its threads.

    Raises RuntimeError where a column can't be made here and the others aren't what the page says.
    """
    makers: dict[str, Callable[[], Supporter]] = {
        "cpu": lambda: Column(CpuBackend.name, CpuBackend.capabilities, why_not),
        "gpu": _gpu,
        "torch": _torch,
        "numpy": NumpyBackend,
    }
    return page_of(makers, missing(), PAGE)


def missing() -> dict[str, str]:
    """The columns that can't be made here, and the packages that they need."""
    needs = {"gpu": ("torch", "triton"), "torch": ("torch",)}
    lacking = {name: [p for p in packages if find_spec(p) is None] for name, packages in needs.items()}
    return {name: " and ".join(packages) for name, packages in lacking.items() if packages}


def page_of(makers: Mapping[str, Callable[[], Supporter]], missing: Mapping[str, str], kept: Path) -> str:
    """The text of all columns; those that are `missing` are the kept page's."""
    text = support_matrix_text([make() for name, make in makers.items() if name not in missing], NOTE)
    if not missing:
        return text
    there = kept.read_text(encoding="utf-8")
    if without_columns(there, missing) == text:
        return there
    needed = ", ".join(f"column {name} needs {packages}" for name, packages in missing.items())
    raise RuntimeError(f"{kept.name} is stale, and can't be made anew here: {needed}")


def without_columns(text: str, names: Mapping[str, str]) -> str:
    """A page without some of its columns."""
    return "\n".join(_without_columns(text.split("\n"), names))


def _without_columns(lines: list[str], names: Mapping[str, str]) -> Iterator[str]:
    dropped: set[int] | None = None
    for line in lines:
        if not line.startswith("|"):
            dropped = None
            yield line
            continue
        cells = line.replace("\\|", "\0").split("|")
        if dropped is None:
            dropped = {i for i, cell in enumerate(cells) if cell.strip() in names}
        yield "|".join(c for i, c in enumerate(cells) if i not in dropped).replace("\0", "\\|")


def _gpu() -> Supporter:
    import torch

    from minfer_kernels.gpu.backend import GpuBackend

    return GpuBackend(torch.device("cpu"))


def _torch() -> Supporter:
    from minfer_kernels.torch_ops.backend import TorchBackend

    return TorchBackend("cpu")
