"""What has ended has ended: a property over everything that can be asked or told of a run afterwards."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from engine.testing import Twin, facts, propose
from engine.testing.moves import drawn
from engine.testing.twin import Asked
from projections.model import MODEL

RUNS, STEPS = 30, 90


def ended(twin: Twin) -> dict[str, Any]:
    """The rows of tasks that are done, and their results."""
    table = twin.state.parts["tasks"]
    return {task: row.dump() for task, row in table.tasks.rows.items() if row.lifecycle == "done"}


@pytest.mark.parametrize("told", ["commands", "facts too"])
def test_an_ended_task_absorbs_whatever_comes_after(told: str) -> None:
    """D8: whatever is decided or reported afterwards, about the task, its family, its node or its conversation, a task
    that is done keeps its row and its result to the byte; restored, it is done as well."""
    reports = drawn(facts(MODEL), 200) if told == "facts too" else []
    absorbed = 0
    for seed in range(RUNS):
        twin, dice = Twin(MODEL, "run"), Random(f"{told} {seed}")
        for at_ms in range(1_000, 1_000 + STEPS):
            before = ended(twin)
            if reports and dice.randrange(2):
                twin.ask(Asked([dice.choice(reports)], True, at_ms))
            else:
                twin.ask(Asked(propose(dice, twin.state), False, at_ms))
            after = ended(twin)
            assert {task: after.get(task) for task in before} == before
            absorbed += len(before)
        restored = twin.store().view("run")
        assert {row.task_id for row in restored.tasks.rows() if row.lifecycle == "done"} == ended(twin).keys()
    assert absorbed > 300, "hardly any task ended"
