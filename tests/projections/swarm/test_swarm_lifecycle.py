"""Life cycles as tables: decide does what the tables say, a repetition adds nothing, a refusal writes nothing."""

from __future__ import annotations

import pytest

from engine.core.errors import EngineError, IllegalTransition, InvalidValue, LimitExceeded, NotFound, Refused
from engine.core.transition import allowed, mermaid
from projections.swarm import (
    ESCALATION_STEPS,
    PHASES,
    PROJECTION,
    SWARM_STEPS,
    WORKER_STEPS,
    Guidance,
    TaskContext,
    Verdict,
    WorkerSummary,
    from_record,
)
from tests.projections.swarm.swarm_harness import SwarmRun, check_laws


def begun() -> SwarmRun:
    run = SwarmRun()
    run.swarm.start(2, max_ticks=10, failure_threshold=3)
    return run


def escalated(run: SwarmRun, *, active: bool) -> None:
    if active:
        run.swarm.complete_action(0, "Read", success=True)
    run.swarm.raise_escalation(0, "timeout")


WAYS = {
    "idle": [lambda run: None, lambda run: run.swarm.idle(0)],
    "working": [lambda run: run.swarm.complete_action(0, "Read", success=True)],
    "escalated": [lambda run: escalated(run, active=False), lambda run: escalated(run, active=True)],
    "done": [
        lambda run: run.swarm.finish_worker(0, success=True),
        lambda run: (escalated(run, active=True), run.swarm.finish_worker(0, success=True)),
    ],
}
DEEDS = {
    "swarm.action_completed": [
        lambda swarm: swarm.complete_action(0, "Read", success=True),
        lambda swarm: swarm.complete_action(0, "Plan", success=True, kind="llm"),
    ],
    "swarm.worker_idled": [lambda swarm: (swarm.advance_tick(), swarm.idle(0))[1]],
    "swarm.guidance_issued": [lambda swarm: swarm.issue_guidance(0, Guidance(["a"]))],
    "swarm.escalation_raised": [lambda swarm: swarm.raise_escalation(0, "resource_exhausted")],
    "swarm.escalation_attempted": [lambda swarm: swarm.raise_escalation(0, "resource_exhausted")],
    "swarm.escalation_cleared": [lambda swarm: swarm.clear_escalation(0)],
    "swarm.worker_finished": [lambda swarm: swarm.finish_worker(0, success=False)],
}


def test_decide_does_what_the_worker_table_says():
    """From every phase, reached in every way, every event either goes to a target of the table or writes nothing; and
    every step of the table is taken."""
    taken = set()
    for phase, ways in WAYS.items():
        for way in ways:
            for name, deeds in DEEDS.items():
                for deed in deeds:
                    run = begun()
                    way(run)
                    assert run.swarm.worker(0).phase == phase
                    try:
                        outcome = deed(run.swarm)
                    except IllegalTransition as error:
                        assert name not in allowed(WORKER_STEPS, phase)
                        assert error.details["allowed"] == allowed(WORKER_STEPS, phase)
                        continue
                    if name not in [event.type.partition("/")[0] for event in outcome.events]:
                        continue
                    step = (phase, run.swarm.worker(0).phase, name)
                    assert step in {tuple(known[:3]) for known in WORKER_STEPS}
                    taken.add(step)
                    check_laws(run)
    assert taken == {tuple(step[:3]) for step in WORKER_STEPS if step.source is not None}


def test_the_tables_are_complete():
    """Phases and events of the tables are those of the projection, and each table draws as a diagram."""
    names = {event.name for event in PROJECTION.events}
    tables = (SWARM_STEPS, WORKER_STEPS, ESCALATION_STEPS)
    assert {step.event for table in tables for step in table} == names == set(PROJECTION.evolve)
    assert {step.target for step in WORKER_STEPS} == set(PHASES)
    assert all(mermaid(table).startswith("stateDiagram-v2") for table in tables)
    assert [event.number for event in PROJECTION.events] == list(range(120, 120 + len(names)))


COMMANDS = [
    lambda swarm: swarm.configure_actions({}),
    lambda swarm: swarm.advance_tick(),
    lambda swarm: swarm.complete_action(0, "a", success=True),
    lambda swarm: swarm.idle(0),
    lambda swarm: swarm.raise_escalation(0, "timeout"),
    lambda swarm: swarm.clear_escalation(0),
    lambda swarm: swarm.finish_worker(0, success=True),
    lambda swarm: swarm.issue_guidance(0, Guidance()),
    lambda swarm: swarm.update_exploration([]),
    lambda swarm: swarm.set_metadata("k", 1),
    lambda swarm: swarm.remove_metadata("k"),
    lambda swarm: swarm.record_verdict(True),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_happens_before_the_swarm_begins(command):
    """Every command but start and import is refused in an empty run, and says what is allowed there."""
    run = SwarmRun()
    before = run.state.bytes()
    with pytest.raises(IllegalTransition) as caught:
        command(run.swarm)
    assert caught.value.details["allowed"] == ["swarm.started", "swarm.imported"]
    assert run.state.bytes() == before
    assert not run.swarm.started() and run.swarm.worker_ids() == []


@pytest.mark.parametrize(
    "question",
    [
        lambda swarm: swarm.context(),
        lambda swarm: swarm.worker(0),
        lambda swarm: swarm.counts(),
        lambda swarm: swarm.task(),
        lambda swarm: swarm.verdict(),
    ],
)
def test_questions_before_the_swarm_begins_find_nothing(question):
    """A run without a swarm raises NotFound, not an empty answer."""
    with pytest.raises(NotFound):
        question(SwarmRun().swarm)


REPEATED = [
    lambda swarm: swarm.start(2, max_ticks=10, failure_threshold=3),
    lambda swarm: swarm.configure_actions({"actions": {}, "groups": {"g": {}}}),
    lambda swarm: swarm.idle(0),
    lambda swarm: swarm.advance_tick(4),
    lambda swarm: swarm.finish_worker(0, success=True, message="m"),
    lambda swarm: swarm.issue_guidance(1, Guidance(["a"])),
    lambda swarm: swarm.update_exploration(["a"], []),
    lambda swarm: swarm.set_metadata("k", {"a": 1}),
    lambda swarm: swarm.record_verdict(True, "good", details=[1]),
]


@pytest.mark.parametrize("command", REPEATED)
def test_a_command_that_repeats_what_is_adds_nothing(command):
    """The same command again writes no event and moves no byte."""
    run = begun()
    command(run.swarm)
    before = run.state.bytes()
    assert not command(run.swarm).changed
    assert run.state.bytes() == before


def test_values_that_only_look_the_same_are_changes():
    """1, 1.0 and true are three values; so are None and missing."""
    run = begun()
    for value in (1, 1.0, True, None):
        assert run.swarm.set_metadata("k", value).changed
    assert run.swarm.remove_metadata("k").changed
    assert not run.swarm.remove_metadata("k").changed
    assert run.swarm.update_exploration([], []).changed
    assert run.swarm.update_exploration([], None).changed


def test_a_run_holds_one_swarm():
    """A second swarm, started or imported, is refused; a different verdict or ending as well."""
    run = begun()
    record = TaskContext.new(0).to_record()
    run.swarm.finish_worker(0, success=True)
    run.swarm.record_verdict(True, "good")
    before = run.state.bytes()
    for command in (
        lambda: run.swarm.start(3, max_ticks=10, failure_threshold=3),
        lambda: run.swarm.import_record(record),
        lambda: run.ingest(*from_record(record)),
        lambda: run.swarm.finish_worker(0, success=False),
        lambda: run.swarm.record_verdict(True, "bad"),
    ):
        with pytest.raises(IllegalTransition):
            command()
    assert run.state.bytes() == before
    assert run.swarm.verdict() == Verdict(True, "good", None)
    imported = SwarmRun()
    imported.swarm.import_record(record)
    imported.swarm.set_metadata("k", 1)
    with pytest.raises(IllegalTransition):
        imported.swarm.import_record(record)
    with pytest.raises(IllegalTransition):
        imported.swarm.start(0)


def test_facts_after_the_verdict_still_count():
    """A late result, a tick and metadata are taken after the verdict."""
    run = begun()
    run.swarm.record_verdict(False)
    run.swarm.complete_action(0, "Read", success=True)
    run.swarm.advance_tick()
    run.swarm.set_metadata("late", True)
    assert run.swarm.context().success_rate == 1.0
    check_laws(run)


BAD = [
    (lambda swarm: swarm.complete_action(7, "a", success=True), NotFound),
    (lambda swarm: swarm.clear_escalation(7), NotFound),
    (lambda swarm: swarm.finish_worker(7, success=True), NotFound),
    (lambda swarm: swarm.complete_action(True, "a", success=True), InvalidValue),
    (lambda swarm: swarm.complete_action(-1, "a", success=True), InvalidValue),
    (lambda swarm: swarm.complete_action(0, b"a", success=True), InvalidValue),
    (lambda swarm: swarm.complete_action(0, "a", success=1), InvalidValue),
    (lambda swarm: swarm.complete_action(0, "a", success=True, output=5), InvalidValue),
    (lambda swarm: swarm.complete_action(0, "a", success=True, duration_ms=1.5), InvalidValue),
    (lambda swarm: swarm.complete_action(0, "a", success=True, kind="human"), InvalidValue),
    (lambda swarm: swarm.raise_escalation(0, "tired"), InvalidValue),
    (lambda swarm: swarm.raise_escalation(0, {"unknown": "x", "timeout": "y"}), InvalidValue),
    (lambda swarm: swarm.raise_escalation(0, "timeout", context=1), InvalidValue),
    (lambda swarm: swarm.issue_guidance(0, {"props": {"k": "not base64"}}), InvalidValue),
    (lambda swarm: swarm.issue_guidance(0, None), InvalidValue),
    (lambda swarm: swarm.configure_actions([]), InvalidValue),
    (lambda swarm: swarm.update_exploration("abc"), InvalidValue),
    (lambda swarm: swarm.update_exploration([1]), InvalidValue),
    (lambda swarm: swarm.set_metadata("k", {"a": float("nan")}), InvalidValue),
    (lambda swarm: swarm.set_metadata(1, 1), InvalidValue),
    (lambda swarm: swarm.advance_tick("1"), InvalidValue),
    (lambda swarm: swarm.advance_tick(True), InvalidValue),
    (lambda swarm: swarm.record_verdict("yes"), InvalidValue),
    (lambda swarm: swarm.start(65_537), Refused),
]


@pytest.mark.parametrize(("command", "error"), BAD)
def test_a_refused_command_writes_nothing(command, error):
    """A command that names nothing, or holds a value of another type, is a typed refusal; state and journal stay."""
    run = begun()
    before = run.state.bytes()
    with pytest.raises(error) as caught:
        command(run.swarm)
    assert caught.value.message
    assert run.state.bytes() == before and len(run.names) == 1


def test_too_many_workers_are_refused():
    """start refuses more workers than SWARM_WORKERS_MAX by the limit's name."""
    with pytest.raises(LimitExceeded) as caught:
        SwarmRun().swarm.start(65_537)
    assert caught.value.details["name"] == "SWARM_WORKERS_MAX"


@pytest.mark.parametrize(
    ("summary", "numbers", "name"),
    [
        (WorkerSummary(0, consecutive_failures=2**32 - 1), {}, "consecutive_failures"),
        (WorkerSummary(0, history_len=2**64 - 1), {}, "history_len"),
        (WorkerSummary(0), {"visits": 2**64 - 1, "successes": 0}, "visits"),
    ],
)
def test_a_full_counter_is_refused_and_never_wraps(summary, numbers, name):
    """An action that would overflow a counter is refused by its name."""
    run = SwarmRun()
    run.swarm.import_record(TaskContext.new(0).with_worker(summary), **numbers)
    before = run.state.bytes()
    with pytest.raises(LimitExceeded) as caught:
        run.swarm.complete_action(0, "Read", success=False)
    assert caught.value.details["name"] == name
    assert run.state.bytes() == before


def test_ingest_goes_through_the_same_rules():
    """Another runtime's facts are taken or refused as our own commands are, and give the same events."""
    own, foreign = begun(), SwarmRun()
    for _ in range(3):
        own.swarm.complete_action(0, "Read", success=False)
    own.swarm.raise_escalation(0, "timeout")
    own.swarm.clear_escalation(0)
    action = {"worker": 0, "action": "Read", "success": False, "duration_ms": 0, "kind": "worker"}
    raised = {"worker": 0, "reason": {"consecutive_failures": 3}, "tick": 0}
    foreign.ingest("swarm.started", {"worker_count": 2, "max_ticks": 10, "failure_threshold": 3})
    for _ in range(3):
        foreign.ingest("swarm.action_completed", action)
    assert not foreign.ingest("swarm.escalation_raised", raised).changed
    foreign.ingest("swarm.escalation_raised", {**raised, "reason": "timeout"})
    foreign.ingest("swarm.escalation_cleared", {"worker": 0})
    assert foreign.state.bytes() == own.state.bytes()
    assert foreign.names == own.names
    for name, data in (
        ("swarm.escalation_attempted", raised),
        ("swarm.escalation_raised", {**raised, "tick": 1}),
        ("swarm.action_completed", {**action, "worker": 9}),
    ):
        before = foreign.state.bytes()
        with pytest.raises(EngineError):
            foreign.ingest(name, data)
        assert foreign.state.bytes() == before
    check_laws(foreign)


def test_an_action_touches_two_records_whatever_the_swarm_holds():
    """The cost of an ordinary action follows what changed: the header and one worker, among 5,000 workers."""
    run = SwarmRun()
    run.swarm.start(5_000)
    for table in run.state.tables.values():
        table.changed.clear()
    run.swarm.complete_action(77, "Read", success=True)
    changed = {name: list(table.changed) for name, table in run.state.tables.items() if table.changed}
    assert changed == {"swarm.swarm": [""], "swarm.workers": [77]}


def test_a_failed_commit_puts_everything_back():
    """After put_back, state and indexes are as before, and the same command gives the same events."""
    run = begun()
    run.swarm.raise_escalation(0, "timeout")
    run.swarm.set_metadata("k", [1])
    before, opened = run.state.bytes(), dict(run.state.parts["swarm"].open)
    wires = SwarmRun(run.state)
    start = run.state.begin()
    for name, data in (
        ("swarm.escalation_cleared", {"worker": 0}),
        ("swarm.escalation_raised", {"worker": 1, "reason": "timeout", "tick": 0}),
        ("swarm.metadata_removed", {"key": "k"}),
        ("swarm.metadata_set", {"key": "k", "value": 2}),
        ("swarm.worker_finished", {"worker": 1, "success": True}),
    ):
        model = run.state.model
        run.state.apply_wire(model.catalog.check(name, data))
    run.state.put_back(start)
    assert run.state.bytes() == before and run.state.parts["swarm"].open == opened
    assert [event.type for event in wires.swarm.clear_escalation(0).events] == ["swarm.escalation_cleared/1"]
