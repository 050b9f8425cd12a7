"""The plan against an oracle that moves tags through byte-addressed memory, and against numpy evaluation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from planning_graphs import Case, cases
from planning_oracle import check_tags, execute

from minfer_ir.evaluate import evaluate
from minfer_ir.memory import plan_memory

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))


def check_case(case: Case) -> None:
    for inplace in (True, False):
        plan = plan_memory(case.graph, case.splits, inplace=inplace)
        check_tags(case, plan)
        assert inplace or not plan.inplace


def check_values(case: Case) -> None:
    with np.errstate(all="ignore"):
        expected = evaluate(case.graph, case.inputs, case.weights, {})
        found = execute(case, plan_memory(case.graph, case.splits))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.tobytes() == np.ascontiguousarray(theirs).tobytes()


@QUICK
@given(cases(backends=1))
def test_no_value_is_overwritten_before_its_last_read(case: Case) -> None:
    check_case(case)


@QUICK
@given(cases(backends=3))
def test_no_value_is_overwritten_with_staging_between_backends(case: Case) -> None:
    check_case(case)


@QUICK
@given(cases(backends=2))
def test_planned_memory_gives_the_bits_of_evaluation(case: Case) -> None:
    check_values(case)


@pytest.mark.full
@LONG
@given(cases(backends=3, max_steps=30))
def test_long_graphs_keep_their_values_and_bits(case: Case) -> None:
    check_case(case)
    check_values(case)
