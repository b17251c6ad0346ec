"""What the rules of several events ask: is the attempt live, are the children gone, who wakes. It must never change the
state; a guard returns what was asked, or refuses with a hint that helps.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NoReturn

from engine.core.codec import encode, normalise
from engine.core.decider import Moment
from engine.core.errors import IllegalTransition, InvalidValue, LimitExceeded, Refused
from engine.core.fields import U32, U64
from engine.core.transition import allowed
from projections.tasks.record import TaskRecord
from projections.tasks.state import TaskTable
from projections.tasks.transitions import LIFECYCLE, SOURCES, UPKEEP

__all__ = [
    "check_attempt", "check_childless", "check_wakes", "full_result", "heir_of", "illegal", "launch_token", "legal",
    "names_live", "overflow", "own_live_children", "repeats_end", "woken",
]  # fmt: skip


def illegal(task_id: str, record: TaskRecord, event: str) -> NoReturn:
    """Raise IllegalTransition: the event is not in the table of transitions for this task's lifecycle."""
    where = record.lifecycle
    raise IllegalTransition(f"task {task_id!r}", where, event, allowed(LIFECYCLE + UPKEEP, where))


def legal(state: TaskTable, task_id: str, event: str) -> TaskRecord:
    """Return the record of a task in which the event is legal. Raises NotFound, IllegalTransition."""
    record = state.find(task_id)
    if record.lifecycle not in SOURCES[event]:
        illegal(task_id, record, event)
    return record


def names_live(record: TaskRecord, attempt: int | None) -> bool:
    """Return whether this is the live attempt. The root may leave it out until it has been relaunched."""
    return attempt == record.attempt or (attempt is None and record.parent is None and record.attempt == 1)


def check_attempt(task_id: str, record: TaskRecord, attempt: int | None) -> None:
    """Raise Refused unless ``attempt`` names the live one."""
    if names_live(record, attempt):
        return
    if attempt is None:
        problem = f"the attempt of task {task_id!r} must be named, so that a dead attempt cannot speak for it"
    else:
        problem = f"attempt {attempt} of task {task_id!r} is not the live one"
    raise Refused(
        problem,
        hint=f"the live attempt is attempt={record.attempt}",
        task_id=task_id,
        attempt=attempt,
        live=record.attempt,
    )


def check_childless(state: TaskTable, task_id: str) -> None:
    """Raise Refused when a task that is about to be done has live children."""
    living = state.live_children.get(task_id)
    if living:
        some = ", ".join(repr(child) for child in state.in_creation_order(living)[:5])
        raise Refused(
            f"task {task_id!r} has {len(living)} live children: {some}",
            hint="say on_children='cancel_children' or 'detach', or finish them first",
            task_id=task_id,
            live_children=len(living),
        )


def woken(state: TaskTable, record: TaskRecord) -> str | None:
    """Return the parent that runs again when this child leaves: it waits for nothing else."""
    if record.join_place is None or record.parent is None or len(state.joins[record.parent]) != 1:
        return None
    return record.parent


def check_wakes(claimed: str | None, true: str | None, task_id: str) -> None:
    """Raise InvalidValue when a fact says that it wakes somebody whom it does not."""
    if claimed is not None and claimed != true:
        raise InvalidValue(
            "wakes", f"{claimed!r} does not wait for {task_id!r} alone", hint="leave it out: it is worked out here"
        )


def launch_token(moment: Moment, position: int, task_id: str, attempt: int) -> str:
    """Return the identity of one launch: a pure function of run id, position, task id and attempt, 32 hex digits."""
    return sha256(encode(["refold launch/1", moment.run_id, position, task_id, attempt])).hexdigest()[:32]


def full_result(record: TaskRecord, termination: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return a result as a join reads it: what was given, with termination, final_message and usage filled in.

    Raises InvalidValue when what was given disagrees with the row or has the wrong type.
    """
    said = given.get("termination", termination)
    if said != termination:
        raise InvalidValue("result.termination", f"{said!r:.60} disagrees with the task's {termination!r}")
    result = dict(given)
    result["termination"] = termination
    result.setdefault("final_message", None)
    result.setdefault("turns_used", record.turns)
    result.setdefault("total_tokens_used", record.tokens)
    for field, kind in (("turns_used", U32), ("total_tokens_used", U64)):
        try:
            kind.check(result[field])
        except InvalidValue as error:
            raise error.at(f"result.{field}") from None
    if len(result) == len(given):
        return given
    filled: dict[str, Any] = normalise(result, "result", depth=1)
    return filled


def own_live_children(state: TaskTable, task_id: str, children: Iterable[str]) -> None:
    """Raise InvalidValue unless every one of the tasks is a live child of this task."""
    living = state.live_children.get(task_id, {})
    for at, child in enumerate(children):
        if child in living:
            continue
        record = state.tasks.rows.get(child)
        if record is None:
            problem = "is not a task"
        elif child == task_id:
            problem = "is the task itself"
        elif record.parent != task_id:
            problem = f"is not a child of {task_id!r}"
        else:
            problem = "is done already"
        raise InvalidValue(f"waiting_on[{at}]", f"{child!r:.120} {problem}", hint="a join waits on own live children")


def heir_of(state: TaskTable, record: TaskRecord) -> str:
    """Return the task under which a detached child goes on: its parent's parent, which is live while the child is.
    Raises Refused."""
    heir = None if record.parent is None else state.find(record.parent).parent
    if heir is None:
        raise Refused(
            "only the root has no parent: neither it nor its children can be detached",
            hint="cancel the children, or let them finish first",
        )
    return heir


def repeats_end(record: TaskRecord, termination: str, attempt: int | None, result: dict[str, Any] | None) -> bool:
    """Return whether a done task ended in exactly this way."""
    encoded = None if result is None else encode(result)
    how = (record.termination, record.result, record.failure)
    return names_live(record, attempt) and how == (termination, encoded, None)


def overflow(limit: str, task_id: str, field: str, value: int, maximum: int) -> NoReturn:
    """Raise LimitExceeded: a counter of this task would be larger than its type."""
    raise LimitExceeded(limit, value, maximum, hint=f"{field} of task {task_id!r} would overflow; it is never wrapped")
