"""The task table of a run: TaskControlState as a projection. It must never import anything but the pure core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from engine.core.catalog import EventType, Upcast, Wire
from engine.core.decider import Evolve, Moment
from engine.core.table import Key
from projections.tasks.commands import OnChildren
from projections.tasks.decider import admit, decide
from projections.tasks.events import EVENTS
from projections.tasks.evolve import EVOLVE
from projections.tasks.handle import Launch, TaskCommands, TaskQueries, Usage, Waiting
from projections.tasks.row import ChildProcessState, RowExtras, TaskControlState, TaskRows
from projections.tasks.rules import RULES, Rule
from projections.tasks.state import TaskTable
from projections.tasks.transitions import DIAGRAM, LIFECYCLE, LIFECYCLES, TERMINATIONS, WAITS
from projections.tasks.validate import Violation, validate_table

__all__ = [
    "DIAGRAM",
    "LIFECYCLE",
    "LIFECYCLES",
    "PROJECTION",
    "TERMINATIONS",
    "WAITS",
    "ChildProcessState",
    "Launch",
    "OnChildren",
    "RowExtras",
    "TaskCommands",
    "TaskControlState",
    "TaskQueries",
    "TaskRows",
    "TaskTable",
    "TasksProjection",
    "Usage",
    "Violation",
    "Waiting",
    "validate_table",
]


class TasksProjection:
    """The task table as the engine takes it: events, fold, decisions."""

    name: ClassVar[str] = "tasks"
    state_version: ClassVar[int] = 1
    rules: ClassVar[Mapping[str, Rule]] = RULES

    @property
    def events(self) -> tuple[EventType, ...]:
        return EVENTS

    @property
    def upcasts(self) -> tuple[Upcast, ...]:
        return ()

    @property
    def evolve(self) -> Mapping[str, Evolve]:
        return EVOLVE

    def initial(self) -> TaskTable:
        """Return the table of a run without tasks."""
        return TaskTable()

    def decide(self, state: TaskTable, command: Any, moment: Moment) -> Sequence[Wire]:
        """Return the events that follow from a command; see :func:`projections.tasks.decider.decide`."""
        return decide(state, command, moment)

    def admit(self, state: TaskTable, wire: Wire, moment: Moment) -> Sequence[Wire]:
        """Return what recording a fact appends; see :func:`projections.tasks.decider.admit`."""
        return admit(state, wire, moment)

    def public_record(self, state: TaskTable, key: Key) -> dict[str, Any]:
        """Return a task's row in its JSON form, with its attempt; {} when there is none. For histories of changes."""
        task_id = str(key)
        if task_id not in state.tasks:
            return {}
        return state.row(task_id).to_json() | {"attempt": state.find(task_id).attempt}

    def affected(self, state: TaskTable, keys: Iterable[Key]) -> list[Key]:
        """Return the tasks whose rows may differ after these records were touched: a row shows the children it waits
        on."""
        parents = (record.parent for key in keys if (record := state.tasks.get(key)) is not None)
        return list(dict.fromkeys((*keys, *(parent for parent in parents if parent is not None))))


PROJECTION = TasksProjection()
