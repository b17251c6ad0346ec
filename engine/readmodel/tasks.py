"""The tables of tasks: their rows as they are, and every step of their life cycles. They must never say that a task
changed when its public row did not."""

from __future__ import annotations

from typing import Any, Final

from engine.core.codec import decode
from engine.core.envelope import Event
from engine.readmodel.rows import Rows
from engine.readmodel.shape import Column, Foreign, Index, SqlTable
from engine.readmodel.values import as_json, json_or_null
from projections.tasks import TaskTable
from projections.tasks.record import TaskRecord

__all__ = ["TASKS", "TASK_TRANSITIONS", "TaskCollector"]

TASKS: Final = SqlTable(
    "tasks",
    "Every task, done ones too: the ten fields of its row, and what is known of it beyond them.",
    (
        Column("run", "text", "the run"),
        Column("task_id", "text", "the task"),
        Column("number", "whole", "its place in the order of creation, from 0"),
        Column("parent_task_id", "text", "its parent, NULL for the root", null=True),
        Column("lifecycle", "text", "pending_launch, starting, ready, running, suspended or done"),
        Column("termination", "text", "how it ended: completed, error, timeout, ...", null=True),
        Column("wait", "text", "what a suspended task waits for: sub_agent_join, timer, approval, ...", null=True),
        Column("waiting_on", "json", "the children that a join still waits on, in order"),
        Column("awaited", "text", "the name of what is awaited", null=True),
        Column("due_ms", "whole", "when a timer elapses, or until when the wait is worth it", null=True),
        Column("capability_ids", "json", "what it may do, in the order of grant"),
        Column("role", "text", "explore, plan, implement, verify or custom; NULL for the root", null=True),
        Column("isolation", "text", "shared, read_only, worktree or remote; NULL for the root", null=True),
        Column("context_inheritance", "text", "none, system_only or full; NULL for the root", null=True),
        Column("attempt", "whole", "the live attempt, from 1"),
        Column("launch_token", "text", "the identity of the live attempt's launch", null=True),
        Column("failure", "text", "why its launch failed", null=True),
        Column("result", "json", "what it finished with; of a child, join_result.result", null=True),
        Column("tokens_used", "whole", "tokens it used itself"),
        Column("turns_used", "whole", "turns it used itself"),
        Column("changed_seq", "whole", "the last event that changed this row"),
    ),
    ("run", "task_id"),
    (
        Foreign(("run",), "runs"),
        Foreign(("run", "parent_task_id"), "tasks"),
        Foreign(("run", "changed_seq"), "events"),
    ),
    (Index(("run", "parent_task_id")), Index(("run", "lifecycle"))),
)

TASK_TRANSITIONS: Final = SqlTable(
    "task_transitions",
    "Every step of every task's life cycle. One event may move two tasks: a child's end resumes its parent.",
    (
        Column("run", "text", "the run"),
        Column("seq", "whole", "the event"),
        Column("task_id", "text", "the task that it moved"),
        Column("from_lifecycle", "text", "where it was; NULL when the event made it", null=True),
        Column("to_lifecycle", "text", "where it is since"),
        Column("termination", "text", "how it ended, for a step to done", null=True),
        Column("wait", "text", "what it waits for, for a step to suspended", null=True),
        Column("attempt", "whole", "the attempt that was live"),
    ),
    ("run", "seq", "task_id"),
    (Foreign(("run", "seq"), "events"), Foreign(("run", "task_id"), "tasks")),
    (Index(("run", "task_id", "seq")),),
)


class TaskCollector:
    """Follows the task table. Takes each touched record as it was before the event, and compares."""

    def __init__(self, run_id: str, state: TaskTable) -> None:
        self._run = run_id
        self._state = state
        self._changed: dict[str, int] = {}
        self._transitions: list[tuple[Any, ...]] = []

    def before(self) -> None:
        self._state.tasks.begin()

    def after(self, event: Event) -> None:
        table = self._state.tasks
        touched = table.touched
        table.keep()
        table.changed.clear()  # nobody takes checkpoints of this state
        for key, dumped in touched.items():
            self._follow(event.seq, str(key), table.rows[key], dumped)

    def _follow(self, seq: int, task_id: str, now: TaskRecord, dumped: list[Any] | None) -> None:
        was = None if dumped is None else TaskRecord.load(dumped)
        if was is None or was.lifecycle != now.lifecycle:
            came_from = None if was is None else was.lifecycle
            step = (came_from, now.lifecycle, now.termination, now.wait, now.attempt)
            self._transitions.append((self._run, seq, task_id, *step))
        if was is not None and was.join_place != now.join_place:
            # A join's list stands in the children: what changed is the row of the one that waits, not the child's.
            assert was.parent is not None
            self._changed[was.parent] = seq
            was.join_place = now.join_place
        if was is None or was.dump() != now.dump():
            self._changed[task_id] = seq

    def write(self, rows: Rows) -> None:
        rows.upsert(TASKS, (self._row(task_id, seq) for task_id, seq in self._changed.items()))
        rows.insert(TASK_TRANSITIONS, self._transitions)
        self._changed, self._transitions = {}, []

    def _row(self, task_id: str, changed: int) -> tuple[Any, ...]:
        row, record = self._state.row(task_id), self._state.find(task_id)
        process = row.process
        return (
            self._run,
            task_id,
            record.number,
            row.parent_task_id,
            row.lifecycle,
            row.termination,
            row.wait,
            as_json(row.waiting_on),
            record.awaited,
            record.due_ms,
            as_json(row.capability_ids),
            None if process is None else process.role,
            None if process is None else process.isolation,
            None if process is None else process.context_inheritance,
            record.attempt,
            record.token,
            record.failure,
            None if record.result is None else json_or_null(decode(record.result)),
            row.tokens_used,
            row.turns_used,
            changed,
        )
