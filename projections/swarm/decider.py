"""What may happen to a swarm. A rule refuses or emits; it must never change the state, and reads nothing but its
arguments. ``decide`` and ``admit`` go through the same rules, one for each kind of event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from engine.core.catalog import Wire
from engine.core.codec import encode
from engine.core.decider import Decision, Moment
from engine.core.errors import IllegalTransition, InvalidValue, LimitExceeded, NotFound, Refused
from engine.core.limits import SWARM_WORKERS_MAX, U32_MAX, U64_MAX
from engine.core.transition import allowed
from projections.swarm import events as e
from projections.swarm.commands import SwarmCommand
from projections.swarm.query import context_of
from projections.swarm.state import HEADER, Header, SwarmState, WorkerRow
from projections.swarm.transitions import PHASES, SWARM_STEPS, WORKER_STEPS

__all__ = ["RULES", "admit", "decide"]

Rule: TypeAlias = Callable[..., None]
"""``rule(state, decision, *fields of the event)``."""

_LEGAL: Final[Mapping[str, frozenset[str]]] = {phase: frozenset(allowed(WORKER_STEPS, phase)) for phase in PHASES}


def decide(state: SwarmState, command: SwarmCommand, moment: Moment) -> list[Wire]:
    """Return the events that follow from the command, [] when it repeats what already is. Raises Refused, NotFound."""
    decision = Decision()
    RULES[command.event.name](state, decision, *command.facts(state))
    return decision.events


def admit(state: SwarmState, wire: Wire, moment: Moment) -> Sequence[Wire]:
    """Return what recording another runtime's fact appends: the fact, and what must follow from it. Raises Refused.

    An escalation that the engine has raised itself, at the threshold, may come again from the other runtime's log: when
    it says exactly the same, it adds nothing.
    """
    event = _BY_TAG[wire[0]]
    if event is e.ESCALATION_RAISED and _is_open(state, *wire[2:]):
        return []
    decision = Decision()
    RULES[event.name](state, decision, *wire[2:])
    if decision.events:
        decision.events[0][1] = wire[1]
    return decision.events


_BY_TAG: Final = {event.tag: event for event in e.EVENTS}


# -- what rules ask ----------------------------------------------------------------------------------------------------


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are the same, their types included: 1, 1.0 and true are three values."""
    return encode(one) == encode(other)


def _header(state: SwarmState, event: str) -> Header:
    header = state.swarm.get(HEADER)
    if header is None:
        raise IllegalTransition("the swarm", "not started", event, allowed(SWARM_STEPS, None))
    return header


def _worker(state: SwarmState, worker: int, event: str) -> WorkerRow:
    _header(state, event)
    row = state.workers.get(worker)
    if row is None:
        count = len(state.workers)
        raise NotFound(f"the swarm has no worker {worker}", hint=f"it has {count} workers; worker_ids() names them")
    phase = state.phase(worker)
    if event not in _LEGAL[phase]:
        raise IllegalTransition(f"worker {worker}", phase, event, allowed(WORKER_STEPS, phase))
    return row


def _is_open(state: SwarmState, worker: int, reason: Any, tick: int, context: str | None) -> bool:
    number = state.open.get(worker)
    if number is None:
        return False
    record = state.escalations.rows[number].record
    return _same([record["reason"], record["raised_at_tick"], record.get("context")], [reason, tick, context])


def _room(name: str, value: int, maximum: int) -> None:
    if value >= maximum:
        raise LimitExceeded(name, value + 1, maximum, hint="the counter is full; it is never wrapped")


# -- one rule for each kind of event
# -------------------------------------------------------------------------------------


def _refuse_second(state: SwarmState, event: str) -> None:
    header = _header(state, event)
    where = "judged" if header.verdict is not None else "open"
    raise IllegalTransition("the swarm", where, event, allowed(SWARM_STEPS, where), hint="a run holds one swarm")


def start(state: SwarmState, decision: Decision, count: int, max_ticks: int, threshold: int, task: Any) -> None:
    header = state.swarm.get(HEADER)
    if header is not None:
        told = [header.worker_count, header.max_ticks, header.failure_threshold, state.setting("task")]
        if not header.imported and _same(told, [count, max_ticks, threshold, task]):
            return
        _refuse_second(state, e.STARTED.name)
    if count > SWARM_WORKERS_MAX:
        raise LimitExceeded("SWARM_WORKERS_MAX", count, SWARM_WORKERS_MAX)
    decision.emit(e.STARTED, count, max_ticks, threshold, task)


def import_record(
    state: SwarmState,
    decision: Decision,
    record: dict[str, Any],
    visits: int | None,
    successes: int | None,
    max_ticks: int | None,
    threshold: int,
    task: Any,
) -> None:
    header = state.swarm.get(HEADER)
    if header is not None:
        told = [header.imported, header.max_ticks, header.failure_threshold, state.setting("task")]
        numbers = [header.visits, header.successes, header.rate_set is None, header.progress_set is None]
        again = [visits or 0, successes or 0, visits is not None, max_ticks is not None]
        same = _same(told, [True, max_ticks or 0, threshold, task]) and numbers == again
        if same and _same_record(context_of(state).to_record(), record):
            return
        _refuse_second(state, e.IMPORTED.name)
    if (visits is None) is not (successes is None):
        raise InvalidValue("import_record.visits", "visits and successes are given together or not at all")
    if visits is not None and successes is not None:
        rate = successes / visits if visits else 0.0
        if successes > visits or rate != record["success_rate"]:
            raise InvalidValue(
                "import_record.visits", f"{successes} of {visits} is not the record's rate, {record['success_rate']}"
            )
    if max_ticks is not None:
        progress = min(record["tick"] / max_ticks, 1.0) if max_ticks else 0.0
        if progress != record["progress"]:
            raise InvalidValue(
                "import_record.max_ticks",
                f"tick {record['tick']} of {max_ticks} is not the record's progress, {record['progress']}",
            )
    decision.emit(e.IMPORTED, record, visits, successes, max_ticks, threshold, task)


def _same_record(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(_same(e.IMPORTED.fields[0].type.check(one), other))


def configure_actions(state: SwarmState, decision: Decision, config: dict[str, Any]) -> None:
    _header(state, e.ACTIONS_CONFIGURED.name)
    if not _same(state.setting("actions"), config):
        decision.emit(e.ACTIONS_CONFIGURED, config)


def advance_tick(state: SwarmState, decision: Decision, tick: int) -> None:
    header = _header(state, e.TICK_ADVANCED.name)
    if tick > U64_MAX:
        raise LimitExceeded("U64_MAX", tick, U64_MAX)
    if tick < header.tick:
        raise Refused(
            f"the swarm is at tick {header.tick}; tick {tick} is behind it",
            hint="ticks only move forward; run.at(n) shows an earlier one",
            tick=header.tick,
        )
    if tick > header.tick:
        decision.emit(e.TICK_ADVANCED, tick)


def complete_action(state: SwarmState, decision: Decision, worker: int, *rest: Any) -> None:
    row = _worker(state, worker, e.ACTION_COMPLETED.name)
    header = state.swarm.rows[HEADER]
    success, kind = rest[2], rest[6]
    if kind != "worker":
        decision.emit(e.ACTION_COMPLETED, worker, *rest)
        return
    _room("visits", header.visits, U64_MAX)
    _room("history_len", row.history_len, U64_MAX)
    if not success:
        _room("consecutive_failures", row.failures, U32_MAX)
    completed = decision.emit(e.ACTION_COMPLETED, worker, *rest)
    if not success and row.failures + 1 == header.failure_threshold:
        event = e.ESCALATION_ATTEMPTED if worker in state.open else e.ESCALATION_RAISED
        reason = {"consecutive_failures": header.failure_threshold}
        decision.emit(event, worker, reason, header.tick, None, cause=completed)


def idle(state: SwarmState, decision: Decision, worker: int) -> None:
    row = _worker(state, worker, e.WORKER_IDLED.name)
    if row.active or row.idled_at != state.swarm.rows[HEADER].tick:
        decision.emit(e.WORKER_IDLED, worker)


def _escalate(state: SwarmState, decision: Decision, worker: int, reason: Any, tick: int, context: str | None) -> None:
    event = e.ESCALATION_ATTEMPTED if worker in state.open else e.ESCALATION_RAISED
    _worker(state, worker, event.name)
    now = state.swarm.rows[HEADER].tick
    if tick > now:
        raise InvalidValue(f"{event.name}.tick", f"{tick} lies after the swarm's tick, {now}")
    decision.emit(event, worker, reason, tick, context)


def attempt_escalation(state: SwarmState, decision: Decision, worker: int, *rest: Any) -> None:
    _worker(state, worker, e.ESCALATION_ATTEMPTED.name)
    if worker not in state.open:
        raise Refused(f"worker {worker} has no open escalation to attempt again", hint="record swarm.escalation_raised")
    _escalate(state, decision, worker, *rest)


def clear_escalation(state: SwarmState, decision: Decision, worker: int) -> None:
    if state.workers.get(worker) is not None and worker not in state.open:
        return
    _worker(state, worker, e.ESCALATION_CLEARED.name)
    decision.emit(e.ESCALATION_CLEARED, worker)


def finish_worker(state: SwarmState, decision: Decision, worker: int, success: bool, message: str | None) -> None:
    row = state.workers.get(worker)
    if row is not None and row.done and (row.success, row.message) == (success, message):
        return
    _worker(state, worker, e.WORKER_FINISHED.name)
    decision.emit(e.WORKER_FINISHED, worker, success, message)


def issue_guidance(state: SwarmState, decision: Decision, worker: int, guidance: dict[str, Any]) -> None:
    _worker(state, worker, e.GUIDANCE_ISSUED.name)
    previous = state.guidances.get(worker)
    if previous is None or not _same(previous.value, guidance):
        decision.emit(e.GUIDANCE_ISSUED, worker, guidance)


def update_exploration(state: SwarmState, decision: Decision, excluded: list[str], guidances: Any) -> None:
    _header(state, e.EXPLORATION_UPDATED.name)
    if not _same([state.setting("excluded_actions") or [], state.setting("v2_guidances")], [excluded, guidances]):
        decision.emit(e.EXPLORATION_UPDATED, excluded, guidances)


def set_metadata(state: SwarmState, decision: Decision, key: str, value: Any) -> None:
    _header(state, e.METADATA_SET.name)
    row = state.metadata.get(key)
    if row is None or not _same(row.value, value):
        decision.emit(e.METADATA_SET, key, value)


def remove_metadata(state: SwarmState, decision: Decision, key: str) -> None:
    _header(state, e.METADATA_REMOVED.name)
    if key in state.metadata:
        decision.emit(e.METADATA_REMOVED, key)


def record_verdict(state: SwarmState, decision: Decision, success: bool, reason: str | None, details: Any) -> None:
    header = _header(state, e.VERDICT_RECORDED.name)
    if header.verdict is not None:
        if _same(header.verdict, [success, reason, details]):
            return
        raise IllegalTransition("the swarm", "judged", e.VERDICT_RECORDED.name, allowed(SWARM_STEPS, "judged"))
    decision.emit(e.VERDICT_RECORDED, success, reason, details)


RULES: Final[Mapping[str, Rule]] = {
    e.STARTED.name: start,
    e.IMPORTED.name: import_record,
    e.ACTIONS_CONFIGURED.name: configure_actions,
    e.TICK_ADVANCED.name: advance_tick,
    e.ACTION_COMPLETED.name: complete_action,
    e.WORKER_IDLED.name: idle,
    e.ESCALATION_RAISED.name: _escalate,
    e.ESCALATION_ATTEMPTED.name: attempt_escalation,
    e.ESCALATION_CLEARED.name: clear_escalation,
    e.WORKER_FINISHED.name: finish_worker,
    e.GUIDANCE_ISSUED.name: issue_guidance,
    e.EXPLORATION_UPDATED.name: update_exploration,
    e.METADATA_SET.name: set_metadata,
    e.METADATA_REMOVED.name: remove_metadata,
    e.VERDICT_RECORDED.name: record_verdict,
}
