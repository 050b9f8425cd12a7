"""Options of how a model is loaded, for every command that runs one. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from minfer_models.cli.groups import OptionGroup, option
from minfer_models.cli.options import (
    Context,
    DeviceName,
    FusionsOff,
    GpuLayers,
    GpuMemory,
    KvCells,
    KvType,
    Threads,
    ThreadsFixed,
    names,
)
from minfer_models.settings import without_blas_threads


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    """As `minfer_models.load` takes them."""
    from minfer_models.cli.loading import device_options

    return {
        "n_ctx": given["ctx"],
        "threads": given["threads"],
        "threads_fixed": given["threads_fixed"] or None,
        "kv": given["kv"],
        "fusions_off": names(given["fusions_off"]),
        **device_options(given["device"], given["gpu_layers"], given["gpu_mem"]),
    }


def _read_for_a_start(given: Mapping[str, Any]) -> dict[str, Any]:
    if given["device"] in (None, "auto", "cpu"):
        without_blas_threads()  # numpy would start them when it is imported
    return _read(given)


LOADING = OptionGroup(
    "loading",
    (
        option("device", DeviceName, None),
        option("gpu_layers", GpuLayers, None),
        option("gpu_mem", GpuMemory, None),
        option("threads", Threads, None),
        option("threads_fixed", ThreadsFixed, False),
        option("ctx", Context, None),
        option("kv", KvType, KvCells.AUTO),
        option("fusions_off", FusionsOff, ""),
    ),
    _read,
)
"""A command's parameter `loading`: keyword arguments of `minfer_models.load`."""
QUICK_LOADING = replace(LOADING, read=_read_for_a_start)
"""The same for a command whose start counts, and which multiplies nothing in numpy."""
