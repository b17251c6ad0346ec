"""The worked example of the contract, row by row (threshold 3, max_ticks 10)."""

from __future__ import annotations

import pytest

from projections.swarm import Escalation, EscalationReason
from tests.projections.swarm.swarm_harness import SwarmRun, check_laws

DONE_IN_TICK = {
    0: [("CheckStatus", True), ("CheckStatus", False), None],
    1: [("ReadLogs", True), ("CheckStatus", False), ("ReadLogs", True)],
    2: [("Diagnose", True), ("CheckStatus", False), ("ReadLogs", False)],
    3: [("Restart", True), ("CheckStatus", True), ("ReadLogs", True)],
    4: ["done", ("ReadLogs", True), None],
}

W1_RAISED = [(1, Escalation(EscalationReason.consecutive_failures(3), 2))]

AT_TICK = {
    1: (2, 1, 0.5, 0.1, [(0, "CheckStatus", True, 1), (1, "CheckStatus", False, 1), (0, None, None, 0)], [], set()),
    2: (5, 3, 0.6, 0.2, [(0, "ReadLogs", True, 2), (2, "CheckStatus", False, 2), (0, "ReadLogs", True, 1)], [], set()),
    3: (
        8, 4, 0.5, 0.3,
        [(0, "Diagnose", True, 3), (3, "CheckStatus", False, 3), (1, "ReadLogs", False, 2)], W1_RAISED, set(),
    ),
    4: (
        11, 7, 7 / 11, 0.4,
        [(0, "Restart", True, 4), (0, "CheckStatus", True, 4), (0, "ReadLogs", True, 3)], W1_RAISED, set(),
    ),
    5: (
        12, 8, 8 / 12, 0.5,
        [(0, "Restart", True, 4), (0, "ReadLogs", True, 5), (0, "ReadLogs", True, 3)], W1_RAISED, {0},
    ),
}  # fmt: skip


def play(until: int) -> SwarmRun:
    run = SwarmRun()
    run.swarm.start(3, max_ticks=10, failure_threshold=3)
    for tick in range(until):
        for worker, deed in enumerate(DONE_IN_TICK[tick]):
            if deed is None:
                run.swarm.idle(worker)
            elif deed == "done":
                run.swarm.finish_worker(worker, success=True)
            else:
                run.swarm.complete_action(worker, deed[0], success=deed[1])
        run.swarm.advance_tick(tick + 1)
    return run


@pytest.mark.parametrize("tick", AT_TICK)
def test_every_row_of_the_worked_example(tick):
    """At each tick the context shows exactly the row of the contract's table."""
    run = play(tick)
    visits, successes, rate, progress, workers, escalations, done = AT_TICK[tick]
    context = run.swarm.context()
    counts = run.swarm.counts()
    assert (context.tick, counts.visits, counts.successes) == (tick, visits, successes)
    assert (context.success_rate, context.progress) == (rate, progress)
    summaries = [context.worker(worker) for worker in context.worker_ids()]
    assert [(s.consecutive_failures, s.last_action, s.last_success, s.history_len) for s in summaries] == workers
    assert list(context.escalations) == escalations
    assert context.done_workers == done
    assert [s.has_escalation for s in summaries] == [False, bool(escalations), False]


def test_the_filter_of_the_worked_example():
    """filter_for_workers([1, 2]) at tick 5: both workers, the escalation of 1, nobody done, rates and tick
    unchanged."""
    whole = play(5).swarm.context()
    part = whole.filter_for_workers([1, 2])
    assert part.worker_ids() == [1, 2]
    assert list(part.escalations) == W1_RAISED
    assert part.done_workers == frozenset()
    assert (part.tick, part.success_rate, part.progress) == (5, whole.success_rate, whole.progress)


def test_the_phases_of_the_worked_example():
    """At tick 5 worker 0 is done, worker 1 escalated and worker 2 idle again."""
    context = play(5).swarm.context()
    assert [context.worker(worker).phase for worker in (0, 1, 2)] == ["done", "escalated", "idle"]


def test_the_worked_example_restores_from_every_position():
    """Fold, cut and checkpoint give the live bytes at every position of the worked example."""
    check_laws(play(5))
