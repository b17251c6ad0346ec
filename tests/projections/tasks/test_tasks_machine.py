"""Random runs against a second, naive reading of the contract; every law after every run."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.core.errors import EngineError
from projections.tasks import TERMINATIONS, WAITS, TaskTable, validate_table
from tests.projections.tasks.tasks_harness import MODEL, TaskRun, check_laws, folded, indexes, restored
from tests.projections.tasks.tasks_naive import CHANGED, REFUSED, SAME, Naive
from tests.projections.tasks.tasks_strategies import (
    ANY,
    CHILDREN,
    COMMANDS,
    NAMES,
    RARELY,
    RESULTS,
    TASKS,
    TOKENS,
)


def give(run: TaskRun, name: str, arguments: dict[str, Any]) -> str:
    """Give a command; say whether it was refused, repeated what is, or changed something. G6: nothing else may."""
    before, wires = run.state.bytes(), len(run.wires)
    method = getattr(run.tasks, name)
    try:
        if name in ("grant_capabilities", "revoke_capabilities"):
            outcome = method(arguments["task_id"], arguments["capability_ids"])
        else:
            outcome = method(arguments["task_id"], **{k: v for k, v in arguments.items() if k != "task_id"})
    except EngineError as error:
        assert error.message and run.state.bytes() == before and len(run.wires) == wires
        return REFUSED
    if outcome.changed:
        assert run.state.bytes() != before
        return CHANGED
    assert run.state.bytes() == before
    return SAME


def expected(naive: Naive, name: str, arguments: dict[str, Any]) -> str:
    kept = {key: value for key, value in arguments.items() if key != "approved"}
    answer: str = getattr(naive, name)(**kept)
    return answer


START = [("open_root", {"task_id": "root", "capability_ids": []}), ("start", {"task_id": "root"})]
FAMILY = [
    *START,
    *(
        step
        for task, parent in (("a", "root"), ("b", "root"), ("c", "a"), ("d", "a"))
        for step in (
            ("spawn", {"task_id": task, "parent": parent, "role": "custom", "capability_ids": []}),
            ("publish_launch", {"task_id": task, "attempt": None}),
            ("acknowledge_launch", {"task_id": task, "attempt": 1}),
        )
    ),
]


class TaskMachine(RuleBasedStateMachine):
    """Legal and illegal commands in any order; the code and the naive reading must agree on each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.run_ = TaskRun()
        self.naive = Naive()

    def both(self, name: str, **arguments: Any) -> None:
        assert give(self.run_, name, arguments) == expected(self.naive, name, arguments), (name, arguments)

    @initialize(grown=st.sampled_from([True, True, True, False]))
    def begin(self, grown: bool) -> None:
        for name, arguments in FAMILY if grown else START[:1]:
            self.both(name, **arguments)

    @rule(task=TASKS, parent=TASKS)
    def spawn(self, task: str, parent: str) -> None:
        self.both("spawn", task_id=task, parent=parent, role="custom", capability_ids=[])

    @rule(task=TASKS)
    def launch(self, task: str) -> None:
        attempt = self.naive.rows[task]["attempt"] if task in self.naive.rows else 1
        self.both("publish_launch", task_id=task, attempt=attempt)
        self.both("acknowledge_launch", task_id=task, attempt=attempt)

    @rule(task=st.sampled_from(["root", "root", "a", "b", "c"]), data=st.data())
    def wait_for_children(self, task: str, data: st.DataObject) -> None:
        children = self.naive.living_children(task)
        if task in self.naive.rows and self.naive.rows[task]["wait"] not in (None, "sub_agent_join"):
            self.both("resume", task_id=task)
        waiting_on = data.draw(st.permutations(children))[: data.draw(st.integers(1, 3))]
        self.both("suspend", task_id=task, wait="sub_agent_join", waiting_on=waiting_on, awaited=None, due_ms=None)
        self.both("extend_join", task_id=task, waiting_on=data.draw(st.permutations(children))[:2])

    @rule(task=st.sampled_from(["root", "root", "a", "b", "c"]), data=st.data())
    def wait_for_more(self, task: str, data: st.DataObject) -> None:
        waiting_on = data.draw(st.permutations(self.naive.living_children(task)))[:2]
        self.both("extend_join", task_id=task, waiting_on=waiting_on)

    @rule(task=CHILDREN, reason=st.sampled_from(["", "full"]), on_children=RARELY)
    def fail_launch(self, task: str, reason: str, on_children: str | None) -> None:
        attempt = self.naive.rows[task]["attempt"] if task in self.naive.rows else 1
        self.both("fail_launch", task_id=task, attempt=attempt, reason=reason, on_children=on_children)

    @rule(task=CHILDREN, termination=st.sampled_from(TERMINATIONS), result=RESULTS, on_children=RARELY)
    def finish(self, task: str, termination: str, result: Any, on_children: str | None) -> None:
        attempt = self.naive.rows[task]["attempt"] if task in self.naive.rows else 1
        arguments = {"termination": termination, "attempt": attempt, "result": result, "on_children": on_children}
        self.both("finish", task_id=task, **arguments)
        self.both("finish", task_id=task, **arguments)

    @rule(task=CHILDREN, wait=st.sampled_from(sorted({*WAITS} - {"sub_agent_join"})), awaited=NAMES)
    def wait(self, task: str, wait: str, awaited: str | None) -> None:
        self.both("suspend", task_id=task, wait=wait, waiting_on=[], awaited=awaited, due_ms=None)

    @rule(task=TASKS, how=st.sampled_from(["deliver", "resolve_approval", "expire_wait", "resume", "start"]))
    def go_on(self, task: str, how: str) -> None:
        row = self.naive.rows.get(task, {})
        arguments: dict[str, Any] = {"task_id": task}
        if how == "deliver":
            wait = row.get("wait")
            arguments["kind"] = wait if wait in ("timer", "signal", "message", "external") else "signal"
        if how == "resolve_approval":
            arguments["approved"] = False
        if how in ("deliver", "resolve_approval"):
            arguments["awaited"] = row.get("awaited")
        self.both(how, **arguments)

    @rule(task=CHILDREN, mode=st.sampled_from(["restart", "retry"]), tokens=TOKENS)
    def relaunch(self, task: str, mode: str, tokens: int) -> None:
        self.both("report_usage", task_id=task, tokens=tokens, turns=1, attempt=None)
        self.both("relaunch", task_id=task, mode=mode)

    @rule(command=ANY.filter(lambda command: command != ("cancel", {"task_id": "root"})))
    def anything(self, command: tuple[str, dict[str, Any]]) -> None:
        name, arguments = command
        self.both(name, **arguments)

    @invariant()
    def rows_agree(self) -> None:
        assert self.run_.table.rows().to_json() == self.naive.public()
        assert validate_table(self.naive.public()) == []

    @invariant()
    def indexes_agree_with_the_records(self) -> None:
        table = self.run_.table
        assert indexes(table) == indexes(restored(self.run_.state).parts["tasks"])

    def teardown(self) -> None:
        check_laws(self.run_)


TaskMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestTaskMachine = TaskMachine.TestCase
TestTaskMachine.__doc__ = (
    "Code and naive reading agree on every command of every random run; G2 and G3 hold at each event."
)


def ran(commands: list[tuple[str, dict[str, Any]]]) -> TaskRun:
    run = TaskRun()
    for name, arguments in commands:
        give(run, name, arguments)
    return run


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY, max_size=12), st.lists(ANY, min_size=1, max_size=6))
def test_from_rows_gives_a_table_that_behaves_the_same(
    before: list[tuple[str, dict[str, Any]]], after: list[tuple[str, dict[str, Any]]]
) -> None:
    """The law of the table: from_rows(rows()) is the table, and any following commands give the same events on both."""
    run = ran([*FAMILY, *before])
    again = TaskTable.from_rows(run.table.rows())
    assert again == run.table
    twin = TaskRun(restored(run.state))
    for key, record in again.tasks.rows.items():
        twin.table.tasks.rows[key] = record
    twin.table.reindex()
    position = len(run.wires)
    for name, arguments in after:
        assert give(run, name, arguments) == give(twin, name, arguments)
        assert twin.state.bytes() == run.state.bytes()
    assert twin.wires == run.wires[position:]


@settings(max_examples=40, deadline=None)
@given(st.lists(ANY, min_size=1, max_size=15), st.data())
def test_a_run_cut_anywhere_continues_as_if_it_had_not_been(
    commands: list[tuple[str, dict[str, Any]]], data: st.DataObject
) -> None:
    """G2: restored from the events or from a checkpoint after any command, the rest of the run gives the same
    events."""
    run = ran(FAMILY)
    cut = data.draw(st.integers(0, len(commands)))
    for name, arguments in commands[:cut]:
        give(run, name, arguments)
    wires = list(run.wires)
    copies = [TaskRun(folded(wires)), TaskRun(restored(run.state))]
    for name, arguments in commands[cut:]:
        said = give(run, name, arguments)
        for copy in copies:
            assert give(copy, name, arguments) == said
    for copy in copies:
        assert copy.state.bytes() == run.state.bytes()
        assert copy.wires == run.wires[len(wires) :]


@settings(max_examples=40, deadline=None)
@given(st.lists(ANY, min_size=1, max_size=10))
def test_a_commit_that_does_not_happen_leaves_no_trace(commands: list[tuple[str, dict[str, Any]]]) -> None:
    """G6: a batch of commands that is put back leaves state, indexes and later behaviour exactly as before."""
    run = ran(FAMILY)
    before, known = run.state.bytes(), indexes(run.table)
    start = run.state.begin()
    run.in_batch = True
    for name, arguments in commands:
        give(run, name, arguments)
    run.state.put_back(start)
    assert run.state.bytes() == before
    assert indexes(run.table) == known


def test_every_command_is_in_the_machine() -> None:
    """The random runs give every command that the handle has."""
    methods = {name for name, member in vars(type(TaskRun().tasks)).items() if callable(member) and name[0] != "_"}
    assert methods == set(COMMANDS)
    assert MODEL.by_name["tasks"].name == "tasks"
