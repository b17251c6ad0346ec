"""The rules of every event: is it legal here, does it repeat what already is, what does it carry once admitted. It must
never change the state.

One function an event: it takes the state and the event as it came, and returns the events to append: the event itself
with what it leaves to us filled in, [] when it repeats exactly what already is; or it refuses. ``submit`` and
``ingest`` both come here. Cost follows the event, never the size of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from engine.core.catalog import Wire
from engine.core.decider import Moment
from engine.core.errors import InvalidValue, LimitExceeded, Refused
from engine.core.limits import U32_MAX, U64_MAX
from projections.tasks.guards import (
    check_attempt,
    check_childless,
    check_wakes,
    full_result,
    heir_of,
    illegal,
    launch_token,
    legal,
    names_live,
    overflow,
    own_live_children,
    repeats_end,
    woken,
)
from projections.tasks.state import TaskTable
from projections.tasks.transitions import DONE, JOIN, REPEATS, SOURCES, SUSPENDED, WAIT_ENDS

__all__ = ["RULES", "Rule"]

Rule: TypeAlias = Callable[[TaskTable, Wire, Moment], list[Wire]]

_MAY_SUSPEND: Final = SOURCES["task.suspended"]
_MAY_END_WAITING: Final = SOURCES["task.wait_ended"]
_MAY_FINISH: Final = SOURCES["task.finished"]
_MAY_USE: Final = SOURCES["task.usage_reported"]


def root_opened(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    root = state.root
    if root is None:
        return [wire]
    if root == wire[2] and state.find(root).capability_ids == wire[3]:
        return []
    raise Refused(f"the run has its root already: {root!r}", hint="spawn other tasks under it", root=root)


def spawned(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    tag, cause, task_id, parent, role, isolation, inheritance, capability_ids, attempt, token = wire
    there = state.tasks.rows.get(task_id)
    if there is not None:
        now = [there.parent, there.role, there.isolation, there.inheritance, there.capability_ids]
        if now == [parent, role, isolation, inheritance, capability_ids] and token in (None, there.token):
            return []
        raise Refused(
            f"task {task_id!r} exists already, and differs from this one",
            hint="ids are unique in a run",
            task_id=task_id,
        )
    if state.find(parent).lifecycle == DONE:
        raise Refused(
            f"the parent {parent!r} is done", hint="spawn under a live task", task_id=task_id, parent_task_id=parent
        )
    if attempt not in (None, 1):
        raise InvalidValue("attempt", f"a task is spawned with attempt 1, not {attempt}")
    if attempt is None or token is None:
        token = token or launch_token(moment, moment.seq, task_id, 1)
        return [[tag, cause, task_id, parent, role, isolation, inheritance, capability_ids, 1, token]]
    return [wire]


def _step(event: str) -> Rule:
    """Return the rule of an event that only moves a task along."""
    sources, repeat = SOURCES[event], REPEATS[event]

    def rule(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
        record = state.tasks.rows.get(wire[2]) or state.find(wire[2])
        if record.lifecycle in sources:
            return [wire]
        if record.lifecycle != repeat:
            illegal(wire[2], record, event)
        return []

    return rule


_published: Final = _step("task.launch_published")
_acknowledged: Final = _step("task.launch_acknowledged")


def launch_published(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    tag, cause, task_id, attempt = wire
    record = state.find(task_id)
    if attempt is not None:
        check_attempt(task_id, record, attempt)
    return [[tag, cause, task_id, record.attempt]] if _published(state, wire, moment) else []


def launch_acknowledged(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    tag, cause, task_id, attempt = wire
    followed = _acknowledged(state, wire, moment)
    record = state.find(task_id)
    check_attempt(task_id, record, attempt)
    return [[tag, cause, task_id, record.attempt]] if followed else []


def launch_failed(state: TaskTable, wire: Wire, moment: Moment, *, children_gone: bool = False) -> list[Wire]:
    tag, cause, task_id, attempt, reason, wakes = wire
    record = state.find(task_id)
    reason = reason or ""
    if record.lifecycle == DONE and record.failure == reason and names_live(record, attempt):
        return []
    legal(state, task_id, "task.launch_failed")
    check_attempt(task_id, record, attempt)
    if not children_gone:
        check_childless(state, task_id)
    true = woken(state, record)
    check_wakes(wakes, true, task_id)
    return [[tag, cause, task_id, record.attempt, reason, true]]


def suspended(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    _, _, task_id, wait, waiting_on, awaited, due_ms = wire
    record = state.tasks.rows.get(task_id) or state.find(task_id)
    if record.lifecycle == SUSPENDED:
        now = (record.wait, list(state.joins.get(task_id, ())), record.awaited, record.due_ms)
        if now == (wait, waiting_on, awaited, due_ms):
            return []
    if record.lifecycle not in _MAY_SUSPEND:
        illegal(task_id, record, "task.suspended")
    if wait != JOIN:
        if waiting_on:
            raise InvalidValue("waiting_on", f"a wait for {wait} names no children", hint=f"wait={JOIN!r} does")
        return [wire]
    if not waiting_on:
        raise InvalidValue("waiting_on", "a join waits on at least one child", hint="name own live children")
    if awaited is not None or due_ms is not None:
        raise InvalidValue(
            "awaited" if awaited is not None else "due_ms", "a join has none: it ends with its last child",
            hint="finish or cancel the children when they take too long",
        )  # fmt: skip
    own_live_children(state, task_id, waiting_on)
    return [wire]


def join_extended(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    tag, cause, task_id, waiting_on = wire
    record = legal(state, task_id, "task.join_extended")
    if record.wait != JOIN:
        raise Refused(f"task {task_id!r} waits for {record.wait}, not for children", hint=f"only a {JOIN} is extended")
    if not waiting_on:
        raise InvalidValue("waiting_on", "names no further child")
    own_live_children(state, task_id, waiting_on)
    join = state.joins[task_id]
    further = [child for child in waiting_on if child not in join]
    if len(further) == len(waiting_on):
        return [wire]
    return [[tag, cause, task_id, further]] if further else []


def wait_ended(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    _, _, task_id, how, awaited, _ = wire
    record = state.tasks.rows.get(task_id) or state.find(task_id)
    if record.lifecycle not in _MAY_END_WAITING:
        illegal(task_id, record, "task.wait_ended")
    wait = record.wait
    assert wait is not None
    if wait == JOIN:
        blocked = list(state.joins[task_id])
        raise Refused(
            f"task {task_id!r} waits for {len(blocked)} children, among them {blocked[0]!r}",
            hint="it runs again when the last of them is done; finish or cancel them",
            task_id=task_id,
            waiting_on=len(blocked),
        )
    if how not in WAIT_ENDS[wait]:
        raise Refused(
            f"task {task_id!r} waits for {wait}, which does not end as {how!r}",
            hint=f"it ends as: {', '.join(WAIT_ENDS[wait])}",
        )
    if how != "timed_out" and record.awaited is not None and awaited != record.awaited:
        raise Refused(
            f"task {task_id!r} waits for the {wait} {record.awaited!r}, not {awaited!r}",
            hint="deliver what is awaited, under its name",
        )
    return [wire]


def finished(state: TaskTable, wire: Wire, moment: Moment, *, children_gone: bool = False) -> list[Wire]:
    tag, cause, task_id, termination, attempt, given, wakes, because = wire
    record = state.tasks.rows.get(task_id) or state.find(task_id)
    result = None if given is None else full_result(record, termination, given)
    if record.lifecycle not in _MAY_FINISH:
        if repeats_end(record, termination, attempt, result):
            return []
        illegal(task_id, record, "task.finished")
    if attempt != record.attempt:
        check_attempt(task_id, record, attempt)
    if not children_gone and task_id in state.live_children:
        check_childless(state, task_id)
    true = None if record.join_place is None else woken(state, record)
    if wakes is not None:
        check_wakes(wakes, true, task_id)
    if wakes == true and attempt is not None and result is given:
        return [wire]
    return [[tag, cause, task_id, termination, record.attempt, result, true, because]]


def relaunched(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    tag, cause, task_id, mode, attempt, token = wire
    record = legal(state, task_id, "task.relaunched")
    following = record.attempt + 1
    if following > U32_MAX:
        raise LimitExceeded("U32_MAX", following, U32_MAX, hint=f"task {task_id!r} has no further attempts")
    if attempt not in (None, following):
        raise Refused(
            f"attempt {attempt} of task {task_id!r} is not the next one",
            hint=f"the next attempt is attempt={following}",
            task_id=task_id,
            attempt=attempt,
            next=following,
        )
    token = token or launch_token(moment, moment.seq, task_id, following)
    return [[tag, cause, task_id, mode, following, token]]


def usage_reported(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    _, _, task_id, tokens, turns = wire
    record = state.tasks.rows.get(task_id) or state.find(task_id)
    if not tokens and not turns:
        return []
    if record.lifecycle not in _MAY_USE:
        illegal(task_id, record, "task.usage_reported")
    if record.tokens + tokens > U64_MAX:
        overflow("U64_MAX", task_id, "tokens_used", record.tokens + tokens, U64_MAX)
    if record.turns + turns > U32_MAX:
        overflow("U32_MAX", task_id, "turns_used", record.turns + turns, U32_MAX)
    return [wire]


def capabilities_granted(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    tag, cause, task_id, given = wire
    held = frozenset(state.find(task_id).capability_ids)
    new = [capability for capability in given if capability not in held]
    if new:
        legal(state, task_id, "task.capabilities_granted")
    return [[tag, cause, task_id, new]] if new else []


def capabilities_revoked(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    tag, cause, task_id, given = wire
    held = frozenset(state.find(task_id).capability_ids)
    lost = [capability for capability in given if capability in held]
    if lost:
        legal(state, task_id, "task.capabilities_revoked")
    return [[tag, cause, task_id, lost]] if lost else []


def detached(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    tag, cause, task_id, parent, wakes = wire
    record = legal(state, task_id, "task.detached")
    heir = heir_of(state, record)
    if parent != heir:
        raise Refused(
            f"task {task_id!r} cannot go on under {parent!r}", hint=f"a detached child goes on under {heir!r}",
            task_id=task_id,
        )  # fmt: skip
    true = woken(state, record)
    check_wakes(wakes, true, task_id)
    return [[tag, cause, task_id, heir, true]]


RULES: Final[Mapping[str, Rule]] = {
    "task.root_opened": root_opened,
    "task.spawned": spawned,
    "task.launch_published": launch_published,
    "task.launch_acknowledged": launch_acknowledged,
    "task.launch_failed": launch_failed,
    "task.started": _step("task.started"),
    "task.yielded": _step("task.yielded"),
    "task.suspended": suspended,
    "task.join_extended": join_extended,
    "task.wait_ended": wait_ended,
    "task.finished": finished,
    "task.relaunched": relaunched,
    "task.usage_reported": usage_reported,
    "task.capabilities_granted": capabilities_granted,
    "task.capabilities_revoked": capabilities_revoked,
    "task.detached": detached,
}
"""Event name -> its rule."""
