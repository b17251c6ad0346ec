"""Where contexts meet tasks, with a stand-in for the task table: settling what is bound, attaching what is known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.catalog import EventType
from engine.core.command import CommandModel
from engine.core.decider import Moment
from engine.core.errors import Refused
from engine.core.fields import BOOL, ID, TIME_MS, Field
from engine.core.model import Model
from engine.core.table import Table
from projections.contexts import PROJECTION, ContextCommands, guard_attach, settle_bound_items, settle_on_bind
from projections.contexts.events import TASK_ATTACHED
from projections.contexts.reactions import PLAN_BINDINGS_CHANGED

from .contexts_shell import Shell, derived, replay, restored

SPAWNED = EventType("task.spawned", (Field("task", ID),), number=1201)
FINISHED = EventType("task.finished", (Field("task", ID), Field("ok", BOOL), Field("at_ms", TIME_MS)), number=1202)


class Task:
    """How a task went: None while it runs."""

    def __init__(self, ok: bool | None) -> None:
        self.ok = ok

    def dump(self) -> list[Any]:
        return [self.ok]

    @classmethod
    def load(cls, dumped: list[Any]) -> Task:
        return cls(*dumped)


class Tasks:
    def __init__(self) -> None:
        self.rows: Table[Task] = Table("tasks", Task)
        self.tables = (self.rows,)

    def reindex(self) -> None:
        """Nothing is derived here."""


class Spawn(CommandModel):
    projection = "tasks"
    name = "spawn"
    task: str


class Finish(CommandModel):
    projection = "tasks"
    name = "finish"
    task: str
    ok: bool


class TasksProjection:
    name = "tasks"
    events = (SPAWNED, FINISHED)
    upcasts = ()
    evolve = {  # noqa: RUF012
        "task.spawned": lambda state, wire, seq: state.rows.add(wire[2], Task(None)),
        "task.finished": lambda state, wire, seq: setattr(state.rows.edit(wire[2]), "ok", wire[3]),
    }

    def initial(self) -> Tasks:
        return Tasks()

    def decide(self, state: Tasks, command: Any, moment: Moment) -> list[Any]:
        if isinstance(command, Spawn):
            return [SPAWNED.wire(command.task)]
        return [FINISHED.wire(command.task, command.ok, moment.at_ms)]

    def admit(self, state: Tasks, wire: Any, moment: Moment) -> list[Any]:
        return [wire]


def outcome_of(states: Any, task_id: str) -> bool | None:
    row = states["tasks"].rows.get(task_id)
    return None if row is None else row.ok


MODEL = Model(
    (PROJECTION, TasksProjection()),
    reactions={
        "task.finished": (lambda states, wire, moment: settle_bound_items(states, wire[2], wire[3], moment),),
        **{name: (settle_on_bind(outcome_of),) for name in PLAN_BINDINGS_CHANGED},
    },
    guards={TASK_ATTACHED.name: (guard_attach,)},
)


def shell_with_plan(*contexts: str) -> Shell:
    shell = Shell(MODEL)
    for context in contexts:
        shell.contexts.create(context)
        shell.contexts.create_plan(context, "g", ["a", "b", "c"])
    return shell


def statuses(contexts: ContextCommands, context: str) -> list[str]:
    plan = contexts.plan(context)
    assert plan is not None
    return [item.status for item in plan.items]


def test_a_bound_item_settles_when_its_task_is_done() -> None:
    """The task's end and the items it settles are one commit; the settling names the task's event as its cause."""
    shell = shell_with_plan("b", "a")
    shell.submit(Spawn.make(task="t"))
    shell.contexts.update_plan("b", item=1, bind={"task": "t"})
    shell.contexts.update_plan("b", item=2, bind={"run": "t"})
    shell.contexts.update_plan("a", item=3, bind={"task": "t"})
    outcome = shell.submit(Finish.make(task="t", ok=True))
    assert [(event.type, event.data.get("context")) for event in outcome.events] == [
        ("task.finished/1", None),
        ("context.plan_items_settled/1", "a"),
        ("context.plan_items_settled/1", "b"),
    ]
    assert [event.cause for event in outcome.events[1:]] == [outcome.events[0].seq] * 2
    assert statuses(shell.contexts, "a") == ["pending", "pending", "done"]
    assert statuses(shell.contexts, "b") == ["done", "in_progress", "pending"]
    assert derived(shell.state) == {}
    shell.check()


def test_a_failed_task_blocks_what_is_bound_to_it() -> None:
    """A task that failed makes its items blocked; a task that nothing is bound to settles nothing."""
    shell = shell_with_plan("c")
    for task in ("t", "u"):
        shell.submit(Spawn.make(task=task))
    shell.contexts.update_plan("c", item=1, bind={"task": "t"})
    assert len(shell.submit(Finish.make(task="u", ok=True)).events) == 1
    shell.submit(Finish.make(task="t", ok=False))
    assert statuses(shell.contexts, "c") == ["blocked", "pending", "pending"]


def test_binding_to_a_task_that_is_done_settles_at_once() -> None:
    """Whether the plan was updated or imported: an item never waits for an end that has already come."""
    shell = shell_with_plan("c")
    shell.submit(Spawn.make(task="t"))
    shell.submit(Finish.make(task="t", ok=True))
    outcome = shell.contexts.update_plan("c", item=1, bind={"task": "t"})
    assert [event.type for event in outcome.events] == ["context.plan_updated/1", "context.plan_items_settled/1"]
    assert statuses(shell.contexts, "c")[0] == "done"
    shell.contexts.update_plan("c", item=1, status="in_progress")
    assert statuses(shell.contexts, "c")[0] == "done"
    items = [{"id": 1, "title": "x", "status": "pending", "bound": {"task": {"id": "t"}}}]
    shell.contexts.import_record("i", {"plan": {"goal": "g", "items": items}})
    assert statuses(shell.contexts, "i") == ["done"]
    shell.contexts.update_plan("c", item=2, bind={"task": "never spawned"})
    assert statuses(shell.contexts, "c")[1] == "in_progress"


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["x", "y"]), st.integers(1, 3), st.sampled_from(["t", "u", "clear", "done", "pending"])
        ),
        max_size=10,
    )
)
def test_the_index_of_bound_tasks_is_what_a_restore_builds(steps: list[tuple[str, int, str]]) -> None:
    """After any binding, settling, moving and clearing the kept index equals the rebuilt one (K25)."""
    shell = shell_with_plan("x", "y")
    for context, item, what in steps:
        if shell.contexts.plan(context) is None:
            shell.contexts.create_plan(context, "g", ["a", "b", "c"])
        if what == "clear":
            shell.contexts.clear_plan(context)
        elif what in ("done", "pending"):
            shell.contexts.update_plan(context, item=item, status=what)
        else:
            shell.contexts.update_plan(context, item=item, bind={"task": what})
        for other in (
            replay(shell.model, shell.groups),
            restored(shell.model, shell.state, shell.wires()),
        ):
            assert derived(other) == derived(shell.state)


def test_a_conversation_is_attached_to_a_known_task_when_there_are_tasks() -> None:
    """An unknown task is refused by name, decided or recorded; without any task in the run there is nothing to
    know."""
    shell = shell_with_plan("c")
    assert shell.contexts.attach_task("c", "early").changed
    shell.submit(Spawn.make(task="other"))
    before = shell.state.bytes()
    for attach in (
        lambda: shell.contexts.attach_task("c", "t"),
        lambda: shell.ingest("context.task_attached", context="c", at_ms=1, task="t"),
    ):
        with pytest.raises(Refused) as caught:
            attach()
        assert caught.value.details["rule"] == "unknown_task"
    assert shell.state.bytes() == before
    shell.submit(Spawn.make(task="t"))
    assert shell.contexts.attach_task("c", "t").changed
    guard_attach({"contexts": shell.part}, TASK_ATTACHED.wire("c", 1, "anything"))
