"""The decisions D1 to D11 of the contract, one group of tests each."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import IllegalTransition, ImportRefused, InvalidValue, Refused
from projections.swarm import Escalation, EscalationReason, Guidance, TaskContext, WorkerSummary, from_record
from tests.projections.swarm.swarm_harness import SwarmRun, check_laws
from tests.projections.swarm.swarm_strategies import situations


def begun(workers: int = 3, **limits) -> SwarmRun:
    run = SwarmRun()
    run.swarm.start(workers, **{"max_ticks": 10, "failure_threshold": 3, **limits})
    return run


def fail(run: SwarmRun, worker: int = 0, times: int = 1) -> None:
    for _ in range(times):
        run.swarm.complete_action(worker, "Try", success=False)


IDS = st.lists(st.integers(0, 6) | st.integers(0, 2**64 - 1), max_size=6)


@given(situations(), IDS, IDS, st.data())
@settings(max_examples=60, deadline=None)
def test_d1_filter_keeps_exactly_the_named_workers(record, first, second, data):
    """D1: exactly the named workers stay in four fields, the other seven are copied, unknown ids are ignored, filtering
    is idempotent, and filter(A) then filter(B) is filter(A and B)."""
    known = [int(key) for key in record["workers"]]
    first = first + (data.draw(st.lists(st.sampled_from(known))) if known else [])
    second = second + (data.draw(st.lists(st.sampled_from(known))) if known else [])
    whole = TaskContext.from_record(record)
    part = whole.filter_for_workers(first)
    assert part.worker_ids() == sorted(set(first) & set(known))
    assert list(part.escalations) == [pair for pair in whole.escalations if pair[0] in first]
    assert set(part.previous_guidances) == set(whole.previous_guidances) & set(first)
    assert part.done_workers == whole.done_workers & set(first)
    for name in ("tick", "success_rate", "progress", "available_actions", "v2_guidances", "excluded_actions"):
        assert getattr(part, name) == getattr(whole, name)
    assert part.metadata == whole.metadata
    assert part.filter_for_workers(first) == part
    assert part.filter_for_workers(second) == whole.filter_for_workers(set(first) & set(second))
    assert whole == TaskContext.from_record(record)


def test_d1_a_filtered_copy_shares_nothing_mutable():
    """D1: setting metadata on a filtered copy, or changing what its getters gave, leaves the original as it was."""
    whole = TaskContext.new(1).with_worker(WorkerSummary.new(1)).insert("list", [1])
    part = whole.filter_for_workers([1])
    part.set("list", [1, 2])
    part.metadata["other"] = 1
    part.get("list").append(3)
    assert whole.metadata == {"list": [1]}
    assert part.metadata == {"list": [1, 2]}


@pytest.mark.parametrize("bad", [True, -1, 2**64, "1", 1.0, None])
def test_d1_only_worker_ids_are_taken_for_workers(bad):
    """D1: a bool is not worker 1, nor is anything else that is no id."""
    with pytest.raises(InvalidValue):
        TaskContext.new(0).with_worker(WorkerSummary.new(1)).filter_for_workers([bad])


def test_d2_reaching_the_threshold_raises_in_the_same_commit():
    """D2: the failure that reaches the threshold and its escalation are two events of one commit, the one caused by the
    other."""
    run = begun()
    fail(run, times=2)
    run.swarm.advance_tick(4)
    outcome = run.swarm.complete_action(0, "Try", success=False)
    assert [event.type for event in outcome.events] == ["swarm.action_completed/1", "swarm.escalation_raised/1"]
    assert outcome.events[1].cause == outcome.events[0].seq
    assert outcome.events[1].data == {"worker": 0, "reason": {"consecutive_failures": 3}, "tick": 4, "context": None}
    assert run.swarm.context().escalations == ((0, Escalation(EscalationReason.consecutive_failures(3), 4)),)


def test_d2_only_reaching_the_threshold_raises():
    """D2: failures past the threshold raise nothing more, and a threshold of 0 never raises."""
    run = begun()
    fail(run, times=5)
    assert run.names.count("swarm.escalation_raised") == 1
    assert "swarm.escalation_attempted" not in run.names
    never = begun(failure_threshold=0)
    fail(never, times=5)
    assert not never.swarm.context().has_escalations()


@pytest.mark.parametrize(
    ("tick", "max_ticks", "progress"),
    [(0, 10, 0.0), (3, 10, 0.3), (10, 10, 1.0), (25, 10, 1.0), (25, 0, 0.0), (1, 3, 1 / 3)],
)
def test_d3_progress_is_ticks_over_max_ticks_clamped(tick, max_ticks, progress):
    """D3: progress is tick / max_ticks, at most 1; unlimited gives 0.0."""
    run = begun(max_ticks=max_ticks)
    run.swarm.advance_tick(tick)
    assert run.swarm.context().progress == progress


def test_d4_only_ordinary_worker_actions_count():
    """D4: llm and manager actions count neither in the rates nor for their worker; without visits the rate is 0.0."""
    run = begun()
    assert run.swarm.context().success_rate == 0.0
    for kind in ("llm", "manager"):
        run.swarm.complete_action(0, "Plan", success=False, kind=kind)
    assert run.swarm.context().success_rate == 0.0
    assert run.swarm.worker(0) == WorkerSummary.new(0)
    run.swarm.complete_action(0, "Read", success=True)
    run.swarm.complete_action(1, "Read", success=False)
    run.swarm.complete_action(2, "Read", success=False)
    counts = run.swarm.counts()
    assert (counts.visits, counts.successes, counts.llm_actions, counts.manager_actions) == (3, 1, 1, 1)
    assert run.swarm.context().success_rate == 1 / 3


def test_d4_the_counters_in_the_state_are_whole_numbers():
    """D4: the state holds no ratio for a swarm that was started here."""
    run = begun()
    fail(run)
    (row,) = run.state.parts["swarm"].swarm.rows.values()
    assert not [value for value in row.dump() if isinstance(value, float)]


def test_d5_idle_and_done_are_neither_visits_nor_history():
    """D5: idling and finishing change no count."""
    run = begun()
    run.swarm.complete_action(0, "Read", success=True)
    before = run.swarm.counts()
    run.swarm.idle(0)
    run.swarm.finish_worker(0, success=True, message="found")
    assert run.swarm.counts() == before
    summary = run.swarm.worker(0)
    assert (summary.history_len, summary.last_action, summary.phase) == (1, "Read", "done")


def test_d6_success_resets_the_failures_and_keeps_the_escalation():
    """D6: after a success the failures are 0 and the escalation is still open."""
    run = begun()
    fail(run, times=3)
    run.swarm.complete_action(0, "Read", success=True)
    summary = run.swarm.worker(0)
    assert (summary.consecutive_failures, summary.has_escalation, summary.phase) == (0, True, "escalated")


def test_d7_an_escalation_clears_by_its_own_event_only():
    """D7: no action, tick, guidance, idling or finishing clears it; clear_escalation does."""
    run = begun()
    run.swarm.raise_escalation(0, EscalationReason.timeout())
    run.swarm.complete_action(0, "Read", success=True)
    run.swarm.advance_tick()
    run.swarm.issue_guidance(0, Guidance(["Read"]))
    run.swarm.idle(0)
    run.swarm.finish_worker(0, success=True)
    assert run.swarm.context().has_escalation_for(0)
    assert [event.type for event in run.swarm.clear_escalation(0).events] == ["swarm.escalation_cleared/1"]
    assert not run.swarm.context().has_escalation_for(0)
    assert not run.swarm.clear_escalation(0).changed


def test_d8_raising_again_keeps_the_first_and_records_the_attempt():
    """D8: the first escalation stays word for word; each further one is an event, also the one of the threshold."""
    run = begun()
    run.swarm.raise_escalation(0, EscalationReason.agent_requested("help"), context="lost")
    run.swarm.advance_tick(2)
    run.swarm.raise_escalation(0, "timeout")
    fail(run, times=3)
    assert run.names[-1] == "swarm.escalation_attempted"
    first = Escalation(EscalationReason.agent_requested("help"), 0, "lost")
    assert run.swarm.context().escalations == ((0, first),)
    assert run.swarm.escalation_attempts(0) == 2
    run.swarm.clear_escalation(0)
    run.swarm.raise_escalation(0, "timeout")
    assert run.swarm.context().escalations == ((0, Escalation(EscalationReason.timeout(), 2)),)
    check_laws(run)


def test_d8_escalations_stay_in_the_order_they_were_raised():
    """D8: clearing and raising again moves a worker to the end; the others keep their order."""
    run = begun(workers=30)
    for worker in (20, 3, 11):
        run.swarm.raise_escalation(worker, "timeout")
    run.swarm.clear_escalation(20)
    run.swarm.raise_escalation(20, "timeout")
    assert [worker for worker, _ in run.swarm.context().escalations] == [3, 11, 20]


def test_d9_a_done_worker_counts_and_takes_no_guidance():
    """D9: a done worker's later actions count in the rates; guidance to it is refused and writes nothing."""
    run = begun()
    run.swarm.finish_worker(0, success=True)
    run.swarm.complete_action(0, "Read", success=True)
    assert run.swarm.context().success_rate == 1.0
    before = run.state.bytes()
    with pytest.raises(IllegalTransition) as caught:
        run.swarm.issue_guidance(0, Guidance(["Read"]))
    assert caught.value.details["state"] == "done"
    assert run.state.bytes() == before


OUTSIDE = [float("nan"), float("inf"), -0.0001, 1.0001, 2, -1, True, "0.5", None]


@pytest.mark.parametrize("value", OUTSIDE)
def test_d10_values_from_outside_are_refused(value):
    """D10: NaN and anything outside 0..1 is refused by the builders, by a record and by an import."""
    record = TaskContext.new(0).to_record()
    for builder in (TaskContext.new(0).with_success_rate, TaskContext.new(0).with_progress):
        with pytest.raises(InvalidValue):
            builder(value)
    for field in ("success_rate", "progress"):
        with pytest.raises(ImportRefused):
            TaskContext.from_record({**record, field: value})
        with pytest.raises(ImportRefused):
            SwarmRun().swarm.import_record({**record, field: value})


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, 0.5, 5e-324])
def test_d10_values_within_are_kept(value):
    """D10: the ends 0 and 1 belong to the range; whole numbers are the same numbers."""
    assert TaskContext.new(0).with_success_rate(value).with_progress(value).success_rate == value


def test_d11_ticks_only_move_forward():
    """D11: a tick behind is refused and writes nothing, the current one is no change, any later one is taken."""
    run = begun()
    run.swarm.advance_tick()
    run.swarm.advance_tick(5)
    assert not run.swarm.advance_tick(5).changed
    before = run.state.bytes()
    with pytest.raises(Refused):
        run.swarm.advance_tick(4)
    assert run.state.bytes() == before
    run.swarm.advance_tick(2**64 - 1)
    with pytest.raises(Refused):
        run.swarm.advance_tick()
    assert run.swarm.context().tick == 2**64 - 1


def test_an_imported_ratio_stands_until_its_numbers_move():
    """An import without counters shows its stated ratios; the first ordinary action and the first tick count afresh."""
    record = {**TaskContext.new(3).with_worker(WorkerSummary.new(0)).to_record(), "success_rate": 0.25, "progress": 0.3}
    run = SwarmRun()
    run.ingest(*from_record(record))
    run.swarm.idle(0)
    assert (run.swarm.context().success_rate, run.swarm.context().progress) == (0.25, 0.3)
    run.swarm.complete_action(0, "Read", success=True)
    run.swarm.advance_tick()
    assert (run.swarm.context().success_rate, run.swarm.context().progress) == (1.0, 0.0)


def test_an_import_with_its_numbers_goes_on_as_if_never_exported():
    """Counters and limits beside the record continue the ratios; numbers that do not make the ratios are refused."""
    record = {**TaskContext.new(3).with_worker(WorkerSummary.new(0)).to_record(), "success_rate": 0.25, "progress": 0.3}
    for numbers in ({"visits": 4, "successes": 2}, {"visits": 4}, {"max_ticks": 9}, {"visits": 1, "successes": 4}):
        with pytest.raises(InvalidValue):
            SwarmRun().swarm.import_record(record, **numbers)
    run = SwarmRun()
    run.swarm.import_record(record, visits=4, successes=1, max_ticks=10, failure_threshold=1, task="x")
    run.swarm.complete_action(0, "Read", success=False)
    run.swarm.advance_tick()
    context = run.swarm.context()
    assert (context.success_rate, context.progress) == (1 / 5, 0.4)
    assert context.has_escalation_for(0)
    assert run.swarm.task() == "x"
    assert json.loads(context.to_json()) == context.to_record()
