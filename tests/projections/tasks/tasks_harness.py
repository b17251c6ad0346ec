"""A run of the task table in memory: the shell's loop without a store, and the laws that every run must keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.core.catalog import Wire
from engine.core.codec import decode, encode
from engine.core.decider import Moment
from engine.core.envelope import Commit, Event, Group, events_of, group_of
from engine.core.errors import EngineError
from engine.core.handle import Outcome
from engine.core.model import Model
from engine.core.state import ModelState
from projections.tasks import PROJECTION, TaskCommands, TaskTable, validate_table

MODEL = Model((PROJECTION,))
RUN_ID = "run"


class TaskRun:
    """Decides, folds and keeps (or puts back) one command at a time, and remembers the groups it appended."""

    def __init__(self, state: ModelState | None = None) -> None:
        self.state = state or MODEL.initial()
        self.groups: list[Group] = []
        self.in_batch = False  # then somebody else begins, and keeps or puts back
        self.tasks = TaskCommands(lambda question: question(self.table), self.submit)

    @property
    def table(self) -> TaskTable:
        """The projection's state."""
        table: TaskTable = self.state.parts["tasks"]
        return table

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows as JSON, by task id, in order of creation."""
        return {row.task_id: row.to_json() for row in self.table.rows()}

    @property
    def wires(self) -> list[Wire]:
        """Every event so far."""
        return [wire for group in self.groups for wire in group[5]]

    @property
    def names(self) -> list[str]:
        """The names of all events so far."""
        return [MODEL.catalog.by_tag[wire[0]].name for wire in self.wires]

    def submit(self, command: Any, *, command_id=None, actor=None, at_ms=None, cause=None) -> Outcome:
        return self._append(lambda moment: MODEL.decide(self.state, command, moment))

    def ingest(self, name: str, **data: Any) -> Outcome:
        """Record one fact that another runtime decided."""
        return self._append(lambda moment: MODEL.admit(self.state, [MODEL.catalog.check(name, data)], moment))

    def _append(self, decide: Callable[[Moment], list[Wire]]) -> Outcome:
        start = self.state.seq if self.in_batch else self.state.begin()
        try:
            wires = decide(Moment(RUN_ID, start + 1, 0))
        except EngineError:
            if not self.in_batch:
                self.state.put_back(start)
            raise
        if not self.in_batch:
            self.state.keep()
        if not wires:
            return Outcome(start, 0, list)
        group = group_of(0, None, None, None, None, wires)
        self.groups.append(group)
        return Outcome(start + len(wires), len(wires), lambda: events(start + 1, group))


def events(first: int, group: Group) -> list[Event]:
    return list(events_of(Commit(first, len(group[5]), b"", [group]), MODEL.catalog))


def kinds(outcome: Outcome) -> list[str]:
    """The names of an outcome's events, without their versions."""
    return [event.type.partition("/")[0] for event in outcome.events]


def folded(wires: list[Wire]) -> ModelState:
    """The state of a fresh fold of these events, as read back from their stored bytes."""
    state = MODEL.initial()
    state.apply([group_of(0, None, None, None, None, decode(encode(wires)))])
    return state


def restored(state: ModelState) -> ModelState:
    """The state loaded from a checkpoint: every record through its stored bytes into an empty state, then reindexed."""
    other = MODEL.initial()
    for name, table in state.tables.items():
        for key, row in table.ordered():
            other.tables[name].add(key, table.load(decode(encode(row.dump()))))
    other.seq = state.seq
    other.reindex()
    return other


def whole(state: ModelState) -> dict[Any, dict[str, Any]]:
    """Every attribute of every record, whatever its dump says."""
    records = state.parts["tasks"].tasks.rows.items()
    return {key: {name: copied(getattr(record, name)) for name in record.__slots__} for key, record in records}


def copied(value: Any) -> Any:
    return list(value) if type(value) is list else value


def indexes(table: TaskTable) -> Mapping[str, Any]:
    """Everything a table derives, with the empty entries dropped; the order of joins and of live tasks matters."""
    return {
        "root": table.root,
        "live": list(table.live),
        "children": {parent: set(them) for parent, them in table.children.items() if them},
        "live_children": {parent: set(them) for parent, them in table.live_children.items() if them},
        "joins": {parent: list(them) for parent, them in table.joins.items()},
    }


def check_laws(run: TaskRun) -> None:
    """Fold = live at the end; at every position the table is valid, a checkpoint is the state in every attribute, its
    indexes are those of the live one, it takes the next event to the same state, its rows give the table back; and an
    event notes every record that it changes."""
    wires = run.wires
    assert folded(wires).bytes() == run.state.bytes()
    state = MODEL.initial()
    for cut in range(len(wires) + 1):
        table: TaskTable = state.parts["tasks"]
        assert validate_table(table.rows()) == []
        copy = restored(state)
        assert copy.bytes() == state.bytes()
        assert whole(copy) == whole(state)
        assert indexes(copy.parts["tasks"]) == indexes(table)
        assert TaskTable.from_rows(table.rows()) == table
        if cut < len(wires):
            before = whole(state)
            table.tasks.changed.clear()
            state.apply([group_of(0, None, None, None, None, [wires[cut]])])
            after = whole(state)
            touched = {key for key in after if before.get(key) != after[key]}
            assert touched <= set(table.tasks.changed)  # what a checkpoint would write, and a rollback put back
            copy.apply([group_of(0, None, None, None, None, [wires[cut]])])
            assert copy.bytes() == state.bytes()
    assert state.bytes() == run.state.bytes()


def family(*, launched: bool = True) -> TaskRun:
    """A run with a running root and two children, ``a`` and ``b``, the child ``deep`` under ``a``; all running."""
    run = TaskRun()
    run.tasks.open_root("root")
    run.tasks.start("root")
    for child, parent in (("a", "root"), ("b", "root"), ("deep", "a")):
        run.tasks.spawn(child, parent=parent)
        if launched:
            launch(run, child)
    return run


def launch(run: TaskRun, task_id: str) -> None:
    attempt = run.tasks.launch(task_id).attempt
    run.tasks.publish_launch(task_id)
    run.tasks.acknowledge_launch(task_id, attempt)


def task_in(lifecycle: str) -> TaskRun:
    """A run whose task ``t``, a child of the root, is in the given lifecycle; suspended ones wait for a signal."""
    run = TaskRun()
    run.tasks.open_root("root")
    run.tasks.start("root")
    run.tasks.spawn("t", parent="root")
    steps: dict[str, list[Callable[[], Any]]] = {
        "pending_launch": [],
        "starting": [lambda: run.tasks.publish_launch("t")],
        "running": [lambda: launch(run, "t")],
        "ready": [lambda: launch(run, "t"), lambda: run.tasks.yield_task("t")],
        "suspended": [lambda: launch(run, "t"), lambda: run.tasks.suspend("t", wait="signal")],
        "done": [lambda: launch(run, "t"), lambda: run.tasks.finish("t", termination="error", attempt=1)],
    }
    for step in steps[lifecycle]:
        step()
    assert run.rows["t"]["lifecycle"] == lifecycle
    return run
