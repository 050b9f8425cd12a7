"""Choosing the next token from one row of logits."""

from __future__ import annotations

from minfer_models.sampling.constraint import Constraint
from minfer_models.sampling.errors import SamplingError
from minfer_models.sampling.params import SamplingParams, SamplingSettings, sampling_params
from minfer_models.sampling.sampler import Largest, Sampler

__all__ = ["Constraint", "Largest", "Sampler", "SamplingError", "SamplingParams", "SamplingSettings", "sampling_params"]
