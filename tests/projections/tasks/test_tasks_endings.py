"""How tasks end: results, live children, cascades, detaching."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import IllegalTransition, InvalidValue, Refused
from tests.projections.tasks.tasks_harness import TaskRun, check_laws, family, kinds, launch, task_in


def told(outcome: Any) -> list[tuple[str, str, Any]]:
    """(event, task, wakes) of an outcome."""
    return [(event.type.partition("/")[0], event.data["task_id"], event.data.get("wakes")) for event in outcome.events]


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_a_result_becomes_the_join_result() -> None:
    """The result stands in the row's join_result, completed with termination and usage, and can be read back."""
    run = task_in("running")
    run.tasks.report_usage("t", tokens=50, turns=2)
    run.tasks.finish("t", attempt=1, result={"final_message": {"role": "assistant", "content": "out"}, "extra": [1]})
    join = {
        "agent_id": "t",
        "result": {
            "final_message": {"role": "assistant", "content": "out"},
            "termination": "completed",
            "turns_used": 2,
            "total_tokens_used": 50,
            "extra": [1],
        },
    }
    assert run.rows["t"]["process"]["join_result"] == join
    assert run.tasks.result("t") == join["result"]
    assert run.tasks.get("t").process is not None
    check_laws(run)


def test_a_result_that_says_more_than_the_row_is_kept() -> None:
    """A recorded result keeps its own numbers, null message and keys; only what is missing is filled in."""
    run = task_in("running")
    given = {"termination": "timeout", "final_message": None, "turns_used": 9, "total_tokens_used": 8, "z": -0.0}
    run.ingest("task.finished", task_id="t", termination="timeout", attempt=1, result=given)
    assert run.tasks.result("t") == given
    assert str(run.tasks.result("t")["z"]) == "0.0"


def test_an_empty_result_is_a_result_and_none_is_none() -> None:
    """L32: no result and an empty one stay distinct."""
    run = family()
    run.tasks.finish("deep", attempt=1)
    run.tasks.finish("b", attempt=1, result={})
    assert run.rows["deep"]["process"]["join_result"] is None
    assert run.rows["b"]["process"]["join_result"]["result"]["final_message"] is None


def test_the_result_of_the_root_is_kept_beside_its_row() -> None:
    """The root has no process; its result survives all the same, through fold, checkpoint and rows."""
    run = TaskRun()
    run.tasks.open_root("root")
    run.tasks.finish("root", result={"final_message": "bye"})
    assert run.rows["root"]["process"] is None
    assert run.tasks.result("root")["final_message"] == "bye"
    check_laws(run)


@pytest.mark.parametrize(
    ("result", "path"),
    [
        ({"termination": "error"}, "result.termination"),
        ({"turns_used": "2"}, "result.turns_used"),
        ({"turns_used": True}, "result.turns_used"),
        ({"total_tokens_used": -1}, "result.total_tokens_used"),
        ({"deep": nested(63)}, "finish.result.deep" + "[0]" * 62),
        ({str(n): n for n in range(1025)}, "finish.result"),
        ({str(n): n for n in range(1024)}, "result"),
    ],
)
def test_a_result_that_a_row_could_not_hold_is_refused(result: dict[str, Any], path: str) -> None:
    """A result must agree with the row and keep the limits of a join result; the error names the place."""
    run = task_in("running")
    before = run.state.bytes()
    with pytest.raises(InvalidValue) as refused:
        run.tasks.finish("t", attempt=1, result=result)
    assert refused.value.path == path
    assert run.state.bytes() == before


def test_the_largest_result_that_is_allowed_is_valid() -> None:
    """64 levels counting the join result's own two, and 1024 entries, are kept."""
    run = task_in("running")
    run.tasks.finish("t", attempt=1, result={"deep": nested(62), **{str(n): n for n in range(1019)}})
    check_laws(run)


def test_what_is_handed_out_cannot_reach_the_state() -> None:
    """Changing a result that came out, or the one that went in, changes nothing in the run."""
    run = task_in("running")
    given: dict[str, Any] = {"items": [1]}
    outcome = run.tasks.finish("t", attempt=1, result=given)
    before = run.state.bytes()
    given["items"].append(2)
    outcome.events[0].data["result"]["items"].append(3)
    run.tasks.result("t")["items"].append(4)
    row = run.tasks.get("t")
    assert row.process is not None
    row.process.join_result["result"]["items"].append(5)
    row.to_json()["process"]["join_result"]["result"]["items"].append(6)
    assert run.state.bytes() == before
    assert run.tasks.result("t")["items"] == [1]


def test_finishing_again_in_the_same_way_adds_nothing() -> None:
    """D8, A2A X21: an exact repeat of an end is a no-op; any other end of a finished task is refused."""
    run = task_in("running")
    run.tasks.finish("t", attempt=1, result={"final_message": "x"})
    before = run.state.bytes()
    assert not run.tasks.finish("t", attempt=1, result={"final_message": "x"}).changed
    for change in ({"result": {"final_message": "y"}}, {"result": None}, {"termination": "error"}, {"attempt": 2}):
        with pytest.raises(IllegalTransition):
            run.tasks.finish("t", **{"attempt": 1, "result": {"final_message": "x"}, **change})
    with pytest.raises(IllegalTransition):
        run.tasks.cancel("t")
    assert run.state.bytes() == before


def test_live_children_must_be_accounted_for() -> None:
    """A task with live children does not finish, nor fail its launch, unless the command says what becomes of them."""
    run = family()
    before = run.state.bytes()
    with pytest.raises(Refused) as refused:
        run.tasks.finish("a", attempt=1)
    assert "cancel_children" in refused.value.hint and "detach" in refused.value.hint
    with pytest.raises(Refused):
        run.ingest("task.finished", task_id="a", termination="completed", attempt=1)
    run = family(launched=False)
    with pytest.raises(Refused):
        run.tasks.fail_launch("a", 1)
    run.tasks.fail_launch("a", 1, on_children="cancel_children")
    assert run.rows["deep"]["termination"] == "user_abort"
    assert before == family().state.bytes()
    check_laws(run)


def test_cancelling_goes_deepest_first_in_one_commit() -> None:
    """The cascade ends the deepest tasks first, wakes parents on the way, and each event names its cause."""
    run = family()
    run.tasks.suspend("a", wait="sub_agent_join", waiting_on=["deep"])
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["a", "b"])
    outcome = run.tasks.cancel("root")
    assert told(outcome) == [
        ("task.finished", "deep", "a"),
        ("task.finished", "a", None),
        ("task.finished", "b", "root"),
        ("task.finished", "root", None),
    ]
    assert [event.data["because"] for event in outcome.events] == ["root", "root", "root", None]
    assert {row["termination"] for row in run.rows.values()} == {"user_abort"}
    assert all(row["process"]["join_result"] is None for row in run.rows.values() if row["process"])
    assert not run.tasks.cancel("root").changed
    check_laws(run)


def test_the_order_of_a_cascade_does_not_depend_on_how_the_state_came_to_be() -> None:
    """K25: children that were detached into place are ended in order of creation, live and after any restore."""
    run = family()
    run.tasks.spawn("c", parent="root")
    run.tasks.spawn("late", parent="a")
    run.tasks.finish("a", attempt=1, on_children="detach")
    outcome = run.tasks.cancel("root")
    assert [event.data["task_id"] for event in outcome.events] == ["b", "deep", "c", "late", "root"]


def test_cancelling_one_task_leaves_its_neighbours_alone() -> None:
    """A cascade stays inside the subtree, and wakes the parent that waited for nothing else."""
    run = family()
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["a"])
    assert told(run.tasks.cancel("a")) == [("task.finished", "deep", None), ("task.finished", "a", "root")]
    assert run.rows["b"]["lifecycle"] == "running"
    assert run.rows["root"]["lifecycle"] == "running"
    check_laws(run)


def test_finishing_may_cancel_the_children() -> None:
    """``cancel_children`` ends everything below with user_abort, and the task itself with its own termination."""
    run = family()
    outcome = run.tasks.finish("root", termination="token_budget", on_children="cancel_children")
    assert [event.data["task_id"] for event in outcome.events] == ["deep", "a", "b", "root"]
    assert [row["termination"] for row in run.rows.values()] == [
        "token_budget", "user_abort", "user_abort", "user_abort"
    ]  # fmt: skip
    check_laws(run)


def test_finishing_may_detach_the_children() -> None:
    """``detach`` lets live children go on under the task's own parent; done ones stay where they were."""
    run = family()
    run.tasks.spawn("gone", parent="a")
    run.tasks.cancel("gone")
    run.tasks.spawn("late", parent="a")
    run.tasks.suspend("a", wait="sub_agent_join", waiting_on=["late", "deep"])
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["a"])
    outcome = run.tasks.finish("a", attempt=1, on_children="detach")
    assert told(outcome) == [
        ("task.detached", "deep", None),
        ("task.detached", "late", "a"),
        ("task.finished", "a", "root"),
    ]
    parents = {task: row["parent_task_id"] for task, row in run.rows.items()}
    assert parents == {"root": None, "a": "root", "b": "root", "deep": "root", "gone": "a", "late": "root"}
    assert [row.task_id for row in run.tasks.children("root")] == ["a", "b", "deep", "late"]
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["late", "deep"])
    check_laws(run)


def test_the_children_of_the_root_have_nowhere_to_go() -> None:
    """Detaching from the root is refused with a way out, and so is detaching the root itself."""
    run = family()
    before = run.state.bytes()
    with pytest.raises(Refused) as refused:
        run.tasks.finish("root", on_children="detach")
    assert "cancel" in refused.value.hint
    with pytest.raises(Refused):
        run.ingest("task.detached", task_id="root", parent_task_id="a")
    with pytest.raises(Refused):
        run.ingest("task.detached", task_id="deep", parent_task_id="b")
    assert run.state.bytes() == before
    run.ingest("task.detached", task_id="deep", parent_task_id="root")
    assert kinds(run.tasks.finish("a", attempt=1, on_children="detach")) == ["task.finished"]
    check_laws(run)


def test_a_deep_cascade_needs_no_recursion() -> None:
    """A chain of 3000 tasks is ended in one commit, deepest first."""
    run = TaskRun()
    run.tasks.open_root("0")
    for depth in range(1, 3000):
        run.tasks.spawn(str(depth), parent=str(depth - 1))
    outcome = run.tasks.cancel("0")
    assert [event.data["task_id"] for event in outcome.events] == [str(depth) for depth in reversed(range(3000))]
    assert len(run.tasks.subtree("0")) == 3000
    assert run.tasks.live() == ()


def test_queries_tell_lineage_and_counts() -> None:
    """Children, subtree, live, root and counts come in order of creation and agree with the rows."""
    run = TaskRun()
    assert run.tasks.root() is None
    run = family()
    launch_and_end = run.tasks.finish("deep", attempt=1)
    assert launch_and_end.changed
    assert [row.task_id for row in run.tasks.subtree("root")] == ["root", "a", "deep", "b"]
    assert [row.task_id for row in run.tasks.live()] == ["root", "a", "b"]
    assert run.tasks.counts() == {
        "pending_launch": 0, "starting": 0, "ready": 0, "running": 3, "suspended": 0, "done": 1
    }  # fmt: skip
    root = run.tasks.root()
    assert root is not None and root.task_id == "root"
    assert [row.task_id for row in run.tasks.rows()] == ["root", "a", "b", "deep"]


def test_a_child_of_a_pending_task_can_be_launched_first() -> None:
    """A parent need only exist and not be done; its own launch may come later."""
    run = TaskRun()
    run.tasks.open_root("root")
    run.tasks.spawn("a", parent="root")
    run.tasks.spawn("b", parent="a")
    launch(run, "b")
    run.tasks.finish("b", attempt=1)
    launch(run, "a")
    check_laws(run)
