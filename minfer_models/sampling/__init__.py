"""Choosing the next token from one row of logits."""

from __future__ import annotations

from minfer_models.sampling.constraint import Constraint
from minfer_models.sampling.errors import SamplingError
from minfer_models.sampling.largest import Largest
from minfer_models.sampling.params import SamplingParams, SamplingSettings, sampling_params
from minfer_models.sampling.pipeline import PIPELINE
from minfer_models.sampling.sampler import Sampler

__all__ = [
    "PIPELINE",
    "Constraint",
    "Largest",
    "Sampler",
    "SamplingError",
    "SamplingParams",
    "SamplingSettings",
    "sampling_params",
]
