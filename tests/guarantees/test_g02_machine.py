"""G2: Restore equals live: at every position, from every checkpoint and from none, the state is byte-identical, and
every
next command gives the same events.

Here by a state machine that drops its handle anywhere; case by case in test_g02_restore_equals_live.py.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.guarantees.machine import MACHINES

SHORT = settings(
    max_examples=8,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=os.environ.get("HYPOTHESIS_PROFILE") == "ci",
)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_run_disturbed_in_every_way_is_the_run_undisturbed(machine: str) -> None:
    """G2: after every one of some hundred random steps a restored run is its undisturbed twin, now and next."""
    kind = MACHINES[machine]
    before = kind.tally["is_the_twin"]
    run_state_machine_as_test(kind, settings=SHORT)
    assert kind.tally["is_the_twin"] - before > 200
