"""The task table: the projection's state. Facts stand in its one table of records; every index here is rebuilt by
``reindex`` from them alone, and must never know more than they do.

Indexes hold keys, never records, and their order never leaks: whatever order matters comes from ``number`` (order of
creation) or ``join_place`` (order in a join).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

from engine.core.codec import decode, encode
from engine.core.errors import NotFound
from engine.core.table import Table
from projections.tasks.inversion import records_of
from projections.tasks.record import TaskRecord
from projections.tasks.row import ChildProcessState, RowExtras, TaskControlState, TaskRows
from projections.tasks.transitions import DONE

__all__ = ["TaskTable"]

_JOIN_HEAD: Final = b"\xa2" + encode("result")
_JOIN_AGENT: Final = encode("agent_id")


class TaskTable:
    """All tasks of a run at one position. Changed only by the evolve functions; what it hands out is immutable."""

    __slots__ = ("children", "edit", "joins", "live", "live_children", "root", "tables", "tasks")

    def __init__(self) -> None:
        self.tasks: Table[TaskRecord] = Table("tasks", TaskRecord)
        self.tables = (self.tasks,)
        self.edit = self.tasks.edit
        self._clear()

    def _clear(self) -> None:
        self.root: str | None = None
        self.live: dict[str, None] = {}
        """Tasks that are not done."""
        self.children: dict[str, dict[str, None]] = {}
        """Parent -> its children, done ones included."""
        self.live_children: dict[str, dict[str, None]] = {}
        """Parent -> its children that are not done."""
        self.joins: dict[str, dict[str, None]] = {}
        """Task that waits in a join -> the children it is still blocked on, in the order they were named."""

    def reindex(self) -> None:
        """Rebuild every index from the records."""
        self._clear()
        awaited: list[tuple[int, str, str]] = []
        for key, record in self.tasks.rows.items():
            assert type(key) is str
            self.index(key, record)
            if record.join_place is not None:
                assert record.parent is not None
                awaited.append((record.join_place, record.parent, key))
        for _, parent, child in sorted(awaited):
            self.joins.setdefault(parent, {})[child] = None

    def index(self, task_id: str, record: TaskRecord) -> None:
        """Enter a record into the indexes of lineage and life."""
        alive = record.lifecycle != DONE
        if alive:
            self.live[task_id] = None
        parent = record.parent
        if parent is None:
            self.root = task_id
            return
        if (known := self.children.get(parent)) is None:
            self.children[parent] = {task_id: None}
        else:
            known[task_id] = None
        if alive:
            if (living := self.live_children.get(parent)) is None:
                self.live_children[parent] = {task_id: None}
            else:
                living[task_id] = None

    # -- reading ------------------------------------------------------------------------------------------------------

    def find(self, task_id: str) -> TaskRecord:
        """Return the record of a task, for reading. Raises NotFound."""
        record = self.tasks.rows.get(task_id)
        if record is None:
            raise NotFound(
                f"there is no task {task_id!r:.120}", hint="tasks.rows() lists those there are; spawn one to add it"
            )
        return record

    def in_creation_order(self, task_ids: Iterable[str]) -> list[str]:
        """Return ids sorted by the creation of their tasks."""
        rows = self.tasks.rows
        return sorted(task_ids, key=lambda task_id: rows[task_id].number)

    def row(self, task_id: str) -> TaskControlState:
        """Return the public row of a task. Raises NotFound."""
        record = self.find(task_id)
        process = None
        if record.parent is not None:
            assert record.role is not None and record.isolation is not None and record.inheritance is not None
            result = record.result
            join = None if result is None else _JOIN_HEAD + result + _JOIN_AGENT + encode(task_id)
            process = ChildProcessState._of(record.role, record.isolation, record.inheritance, join)
        return TaskControlState(
            task_id,
            record.parent,
            record.lifecycle,
            record.termination,
            record.wait,
            tuple(self.joins.get(task_id, ())),
            tuple(record.capability_ids),
            process,
            record.tokens,
            record.turns,
        )

    def extras(self, task_id: str) -> RowExtras:
        """Return what is known about a task beyond its row. Raises NotFound."""
        record = self.find(task_id)
        own = record.result if record.parent is None else None
        return RowExtras(
            record.attempt,
            record.token,
            record.join_place,
            record.awaited,
            record.due_ms,
            record.failure,
            None if own is None else decode(own),
        )

    def rows(self) -> TaskRows:
        """Return the rows in order of creation, with their extras beside them: ``from_rows`` gives this table back."""
        ids = [str(key) for key in self.tasks.rows]
        return TaskRows(map(self.row, ids), map(self.extras, ids))

    # -- from rows ----------------------------------------------------------------------------------------------------

    @classmethod
    def from_rows(cls, rows: Sequence[Any], extras: Iterable[RowExtras] | None = None) -> Self:
        """Return the table of these rows (JSON objects or TaskControlState), in their order as the order of creation.

        ``from_rows(table.rows()) == table`` for every table, and any command then gives the same events on both: rows()
        carries what the ten fields cannot hold, and this reads it. Rows from elsewhere have none: attempt 1 is then
        live, without a launch token. Raises ImportRefused with every violation, InvalidValue for extras that do not fit
        their rows; nothing invalid becomes a table.
        """
        table = cls()
        for task_id, record in records_of(rows, extras):
            table.tasks.add(task_id, record)
        table.reindex()
        return table

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaskTable):
            return NotImplemented
        mine, theirs = self.tasks.rows, other.tasks.rows
        return list(mine) == list(theirs) and all(mine[key].dump() == theirs[key].dump() for key in mine)

    __hash__ = None  # type: ignore[assignment]  # a table changes in place

    def __repr__(self) -> str:
        return f"<TaskTable of {len(self.tasks)} tasks, {len(self.live)} live>"
