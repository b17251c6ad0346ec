"""All four projections in one run: random legal and illegal commands and facts, crashes and restores between any two
steps by every route, beside a twin that nothing happens to and a second reading of the contract that shares no code."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.projections.model_machine import SEEN, WholeRun

RUN = settings(
    max_examples=50,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=os.environ.get("HYPOTHESIS_PROFILE") == "ci",
)


def test_a_whole_run_disturbed_in_every_way_is_what_the_contract_says() -> None:
    """G2, G3, G5, G6: after each of some thousand steps a run of all four projections is its undisturbed twin, now and
    next, and shows what an independent reading of the contract shows."""
    before = SEEN.copy()
    run_state_machine_as_test(WholeRun, settings=RUN)
    done = SEEN - before
    assert done["steps"] > 1_000 and done["commands"] > 2_000
    assert sum(count for what, count in done.items() if "->" in what) > 10
