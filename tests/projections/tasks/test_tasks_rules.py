"""The rules beyond the table of transitions: identity, attempts, joins, usage, capabilities, repeats."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import EngineError, IllegalTransition, InvalidValue, LimitExceeded, NotFound, Refused
from engine.core.limits import U32_MAX, U64_MAX
from tests.projections.tasks.tasks_harness import TaskRun, check_laws, family, kinds, launch, task_in


def refused(run: TaskRun, error: type[EngineError], command: Any, *args: Any, **kwargs: Any) -> EngineError:
    """Give a command that must be refused; check that nothing changed, and return the error."""
    before = run.state.bytes()
    with pytest.raises(error) as caught:
        command(*args, **kwargs)
    assert run.state.bytes() == before
    assert caught.value.hint or isinstance(caught.value, InvalidValue)
    return caught.value


def repeated(run: TaskRun, command: Any, *args: Any, **kwargs: Any) -> None:
    """Give a command that repeats what is; check that it adds nothing."""
    before = run.state.bytes()
    assert not command(*args, **kwargs).changed
    assert run.state.bytes() == before


def test_the_quick_form() -> None:
    """A root is opened and a child spawned in two short lines; the rest has defaults."""
    run = TaskRun()
    run.tasks.open_root("root")
    run.tasks.spawn("fetch", parent="root", role="explore")
    assert run.rows["fetch"] == {
        "task_id": "fetch",
        "parent_task_id": "root",
        "lifecycle": "pending_launch",
        "termination": None,
        "wait": None,
        "waiting_on": [],
        "capability_ids": [],
        "process": {"role": "explore", "isolation": "shared", "context_inheritance": "none", "join_result": None},
        "tokens_used": "0",
        "turns_used": 0,
    }
    assert run.rows["root"]["lifecycle"] == "ready"
    assert run.rows["root"]["process"] is None
    check_laws(run)


def test_a_run_has_exactly_one_root() -> None:
    """A second root is refused, also after the first is done; opening the same one again adds nothing."""
    run = TaskRun()
    run.tasks.open_root("root", capability_ids=["read"])
    repeated(run, run.tasks.open_root, "root", capability_ids=["read"])
    refused(run, Refused, run.tasks.open_root, "other")
    refused(run, Refused, run.tasks.open_root, "root")
    run.tasks.finish("root")
    refused(run, Refused, run.tasks.open_root, "other")


def test_a_child_needs_a_live_parent() -> None:
    """Spawning under an unknown or finished parent is refused."""
    run = task_in("done")
    refused(run, NotFound, run.tasks.spawn, "x", parent="ghost")
    refused(run, Refused, run.tasks.spawn, "x", parent="t")
    refused(run, NotFound, run.tasks.spawn, "x", parent="x")


def test_a_spawn_that_repeats_what_is_adds_nothing() -> None:
    """The same child again is a no-op, live or done; the same id for another child is refused."""
    run = task_in("running")
    repeated(run, run.tasks.spawn, "t", parent="root")
    refused(run, Refused, run.tasks.spawn, "t", parent="root", role="plan")
    refused(run, Refused, run.tasks.spawn, "t", parent="root", capability_ids=["x"])
    run.tasks.finish("t", attempt=1)
    repeated(run, run.tasks.spawn, "t", parent="root")


def test_identity_is_a_pure_function_of_run_position_task_and_attempt() -> None:
    """The launch token is stored in the event, differs by position, task and attempt, and is the same on every run."""
    run = family(launched=False)
    tokens = [wire[-1] for wire in run.wires if run.state.model.catalog.by_tag[wire[0]].name == "task.spawned"]
    assert tokens == [run.tasks.launch(task).launch_token for task in ("a", "b", "deep")]
    assert len(set(tokens)) == 3
    assert tokens[0] == family(launched=False).tasks.launch("a").launch_token
    assert all(len(token) == 32 and set(token) <= set("0123456789abcdef") for token in tokens)
    launch(run, "a")
    first = run.tasks.launch("a")
    run.tasks.relaunch("a", mode="retry")
    second = run.tasks.launch("a")
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.launch_token != second.launch_token
    assert run.tasks.launch("root").launch_token is None


def test_a_recorded_identity_is_kept() -> None:
    """A launch token that another runtime minted is recorded as it is; a first attempt other than 1 is refused."""
    run = task_in("running")
    spawn = {
        "parent_task_id": "root",
        "role": "custom",
        "isolation": "shared",
        "context_inheritance": "none",
        "capability_ids": [],
    }
    run.ingest("task.spawned", task_id="w", launch_token="op:step:1:launch:w", attempt=1, **spawn)
    assert run.tasks.launch("w").launch_token == "op:step:1:launch:w"
    repeated(run, run.ingest, "task.spawned", task_id="w", launch_token="op:step:1:launch:w", attempt=1, **spawn)
    refused(run, Refused, run.ingest, "task.spawned", task_id="w", launch_token="other", attempt=1, **spawn)
    refused(run, InvalidValue, run.ingest, "task.spawned", task_id="v", attempt=2, **spawn)


@pytest.mark.parametrize("attempt", [None, 0, 2, U32_MAX])
def test_a_completion_must_name_the_live_attempt(attempt: int | None) -> None:
    """Finishing, acknowledging or failing a launch under any attempt but the live one is refused; the hint names it."""
    run = task_in("running")
    error = refused(run, Refused, run.tasks.finish, "t", attempt=attempt)
    assert "attempt=1" in error.hint
    run = task_in("starting")
    refused(run, Refused, run.tasks.acknowledge_launch, "t", attempt)
    refused(run, Refused, run.tasks.fail_launch, "t", attempt)


def test_a_dead_attempt_cannot_speak_for_the_task() -> None:
    """After a relaunch the attempt before it can neither finish the task nor report its usage nor acknowledge."""
    run = task_in("running")
    run.tasks.relaunch("t", mode="restart")
    refused(run, Refused, run.tasks.finish, "t", attempt=1)
    refused(run, Refused, run.tasks.report_usage, "t", tokens=1, attempt=1)
    run.tasks.publish_launch("t")
    refused(run, Refused, run.tasks.acknowledge_launch, "t", 1)
    refused(run, Refused, run.tasks.publish_launch, "t", 1)
    run.tasks.acknowledge_launch("t", 2)
    refused(run, Refused, run.tasks.acknowledge_launch, "t", 1)
    run.tasks.finish("t", attempt=2)
    refused(run, IllegalTransition, run.tasks.finish, "t", attempt=1)
    check_laws(run)


def test_the_root_needs_no_attempt_until_it_is_relaunched() -> None:
    """The root finishes without an attempt, or as attempt 1; once it was relaunched its attempt must be named."""
    run = family()
    run.tasks.cancel("a")
    run.tasks.cancel("b")
    run.tasks.relaunch("root", mode="retry")
    refused(run, Refused, run.tasks.finish, "root")
    refused(run, Refused, run.tasks.finish, "root", attempt=1)
    run.tasks.finish("root", attempt=2)
    other = TaskRun()
    other.tasks.open_root("root")
    other.tasks.finish("root", attempt=1)
    repeated(other, other.tasks.finish, "root")
    check_laws(run)


def test_relaunching_zeroes_or_keeps_usage() -> None:
    """``restart`` zeroes tokens and turns, ``retry`` keeps them; both begin the next attempt and end any wait."""
    for mode, usage in (("restart", ("0", 0)), ("retry", ("7", 2))):
        run = task_in("running")
        run.tasks.report_usage("t", tokens=7, turns=2)
        run.tasks.suspend("t", wait="timer", awaited="tick", due_ms=9)
        run.tasks.relaunch("t", mode=mode)
        row = run.rows["t"]
        assert (row["lifecycle"], row["wait"]) == ("pending_launch", None)
        assert (row["tokens_used"], row["turns_used"]) == usage
        assert run.tasks.waiting() == ()
        check_laws(run)


def test_relaunching_out_of_a_join_frees_the_children() -> None:
    """A task relaunched out of a join no longer waits, its children go on, and their ends wake nobody."""
    run = family()
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["b", "a"])
    run.tasks.relaunch("root", mode="retry")
    assert run.rows["root"]["waiting_on"] == []
    run.tasks.finish("b", attempt=1)
    assert run.rows["root"]["lifecycle"] == "pending_launch"
    launch(run, "root")
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["a"])
    check_laws(run)


def test_a_relaunch_recorded_elsewhere_must_be_the_next_attempt() -> None:
    """An ingested relaunch that skips or repeats an attempt number is refused."""
    run = task_in("running")
    refused(run, Refused, run.ingest, "task.relaunched", task_id="t", mode="retry", attempt=3)
    refused(run, Refused, run.ingest, "task.relaunched", task_id="t", mode="retry", attempt=1)
    run.ingest("task.relaunched", task_id="t", mode="retry", attempt=2, launch_token="theirs")
    assert run.tasks.launch("t")[1:3] == (2, "theirs")


def test_a_join_shrinks_in_the_order_it_was_named() -> None:
    """Finished children leave waiting_on in the same event; the last one resumes the parent, and the event says so."""
    run = family()
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["b", "a"])
    assert run.rows["root"]["waiting_on"] == ["b", "a"]
    run.tasks.cancel("deep")
    first = run.tasks.finish("b", attempt=1)
    assert (len(first.events), first.events[0].data["wakes"]) == (1, None)
    assert run.rows["root"]["waiting_on"] == ["a"]
    last = run.tasks.finish("a", attempt=1)
    assert (len(last.events), last.events[0].data["wakes"]) == (1, "root")
    assert (run.rows["root"]["lifecycle"], run.rows["root"]["wait"]) == ("running", None)
    check_laws(run)


def test_a_failed_launch_ends_a_join_too() -> None:
    """A child that failed to launch is done with an error, has no join result, and leaves its parent's join."""
    run = family(launched=False)
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["a", "b"])
    run.tasks.publish_launch("b")
    run.tasks.fail_launch("b", 1, reason="resource exhausted")
    row = run.rows["b"]
    assert (row["lifecycle"], row["termination"], row["process"]["join_result"]) == ("done", "error", None)
    assert run.rows["root"]["waiting_on"] == ["a"]
    repeated(run, run.tasks.fail_launch, "b", 1, reason="resource exhausted")
    refused(run, IllegalTransition, run.tasks.fail_launch, "b", 1, reason="another")
    refused(run, IllegalTransition, run.tasks.finish, "b", termination="error", attempt=1)
    run.tasks.cancel("deep")
    assert run.tasks.fail_launch("a", 1).events[0].data["wakes"] == "root"
    check_laws(run)


@pytest.mark.parametrize("waiting_on", [[], ["ghost"], ["root"], ["deep"], ["a", "a"], ["a", "gone"]])
def test_a_join_waits_only_on_own_live_children(waiting_on: list[str]) -> None:
    """Nothing, strangers, itself, grandchildren, duplicates and finished children cannot be waited on."""
    run = family()
    run.tasks.spawn("gone", parent="root")
    run.tasks.cancel("gone")
    refused(run, InvalidValue, run.tasks.suspend, "root", wait="sub_agent_join", waiting_on=waiting_on)
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["b"])
    refused(run, InvalidValue, run.tasks.extend_join, "root", waiting_on=waiting_on)


def test_a_join_grows_while_it_waits() -> None:
    """A join is extended at its end, by new children only; a wait that is none cannot be extended."""
    run = family()
    refused(run, IllegalTransition, run.tasks.extend_join, "root", waiting_on=["a"])
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["b"])
    repeated(run, run.tasks.extend_join, "root", waiting_on=["b"])
    outcome = run.tasks.extend_join("root", waiting_on=["b", "a"])
    assert outcome.events[0].data["waiting_on"] == ["a"]
    run.tasks.finish("b", attempt=1)
    run.tasks.spawn("c", parent="root")
    run.tasks.extend_join("root", waiting_on=["c"])
    assert run.rows["root"]["waiting_on"] == ["a", "c"]
    run.tasks.suspend("a", wait="approval")
    refused(run, Refused, run.tasks.extend_join, "a", waiting_on=["deep"])
    check_laws(run)


def test_only_a_join_names_children_and_only_other_waits_have_a_name_or_a_time() -> None:
    """Children in another wait, or a name or time in a join, are refused rather than ignored."""
    run = family()
    refused(run, InvalidValue, run.tasks.suspend, "root", wait="approval", waiting_on=["a"])
    refused(run, InvalidValue, run.tasks.suspend, "root", wait="sub_agent_join", waiting_on=["a"], due_ms=5)
    refused(run, InvalidValue, run.tasks.suspend, "root", wait="sub_agent_join", waiting_on=["a"], awaited="x")


def test_suspending_again_in_the_same_way_adds_nothing() -> None:
    """The same wait again is a no-op; another wait is refused until the first has ended."""
    run = task_in("running")
    run.tasks.suspend("t", wait="signal", awaited="go", due_ms=5)
    repeated(run, run.tasks.suspend, "t", wait="signal", awaited="go", due_ms=5)
    refused(run, IllegalTransition, run.tasks.suspend, "t", wait="signal", awaited="go", due_ms=6)
    refused(run, IllegalTransition, run.tasks.suspend, "t", wait="message")


def test_only_what_is_awaited_is_delivered() -> None:
    """X12, L14: another kind or name is refused, and so is anything delivered to a task that does not wait; a
    delivery is consumed once."""
    run = task_in("running")
    refused(run, IllegalTransition, run.tasks.deliver, "t", kind="signal")
    run.tasks.suspend("t", wait="signal", awaited="go")
    refused(run, Refused, run.tasks.deliver, "t", kind="message", awaited="go")
    refused(run, Refused, run.tasks.deliver, "t", kind="signal", awaited="stop")
    refused(run, Refused, run.tasks.deliver, "t", kind="signal")
    refused(run, Refused, run.tasks.resolve_approval, "t", approved=True)
    outcome = run.tasks.deliver("t", kind="signal", awaited="go", payload={"n": None})
    assert outcome.events[0].data == {
        "task_id": "t", "how": "delivered", "awaited": "go", "payload": {"n": None}
    }  # fmt: skip
    refused(run, IllegalTransition, run.tasks.deliver, "t", kind="signal", awaited="go")
    run.tasks.suspend("t", wait="signal", awaited="go")
    assert run.rows["t"]["lifecycle"] == "suspended"
    check_laws(run)


def test_a_timeout_is_an_event_of_its_own() -> None:
    """X12: a wait that times out says so, distinct from a delivery without a payload; a timer elapses instead."""
    run = task_in("running")
    run.tasks.suspend("t", wait="external", awaited="webhook", due_ms=50)
    assert run.tasks.expire_wait("t").events[0].data["how"] == "timed_out"
    run.tasks.suspend("t", wait="timer", due_ms=50)
    refused(run, Refused, run.tasks.expire_wait, "t")
    assert run.tasks.deliver("t", kind="timer").events[0].data["how"] == "elapsed"


def test_waits_come_due_in_order_of_time() -> None:
    """D22: timers stand in the state, so those that are over are known after any restore, earliest first."""
    run = family()
    run.tasks.suspend("a", wait="timer", due_ms=30)
    run.tasks.suspend("b", wait="timer", due_ms=20)
    run.tasks.suspend("deep", wait="signal", due_ms=31)
    assert [waiting.task_id for waiting in run.tasks.due(30)] == ["b", "a"]
    assert [waiting.task_id for waiting in run.tasks.waiting()] == ["a", "b", "deep"]


def test_an_approval_is_answered_either_way() -> None:
    """Approved or denied, the task runs again; a plain resume is no answer."""
    for approved, how in ((True, "approved"), (False, "denied")):
        run = task_in("running")
        run.tasks.suspend("t", wait="approval", awaited="call-1")
        refused(run, Refused, run.tasks.resume, "t")
        outcome = run.tasks.resolve_approval("t", approved=approved, awaited="call-1", payload={"denied": ["c1"]})
        assert outcome.events[0].data["how"] == how
        assert run.rows["t"]["lifecycle"] == "running"


def test_resume_starts_what_is_ready_and_ends_what_needs_no_answer() -> None:
    """Resume goes on from ready and from a signal; it never ends a join."""
    run = task_in("ready")
    assert kinds(run.tasks.resume("t")) == ["task.started"]
    run.tasks.suspend("t", wait="signal", awaited="go")
    assert kinds(run.tasks.resume("t")) == ["task.wait_ended"]
    run.tasks.spawn("u", parent="t")
    run.tasks.suspend("t", wait="sub_agent_join", waiting_on=["u"])
    refused(run, Refused, run.tasks.resume, "t")


@pytest.mark.parametrize(("field", "maximum"), [("tokens", U64_MAX), ("turns", U32_MAX)])
def test_usage_never_wraps(field: str, maximum: int) -> None:
    """Usage adds up to exactly the type's maximum; one more is refused, and so is more than the type in one report."""
    run = task_in("running")
    run.tasks.report_usage("t", **{field: maximum - 1})
    run.tasks.report_usage("t", **{field: 1})
    assert str(run.rows["t"][f"{field}_used"]) == str(maximum)
    refused(run, LimitExceeded, run.tasks.report_usage, "t", **{field: 1})
    refused(run, InvalidValue, run.tasks.report_usage, "t", **{field: maximum + 1})
    refused(run, InvalidValue, run.tasks.report_usage, "t", **{field: -1})
    repeated(run, run.tasks.report_usage, "t")
    check_laws(run)


def test_usage_rolls_up_over_a_subtree() -> None:
    """The usage of a subtree is the sum over its tasks, done ones included, and may exceed one task's type."""
    run = family()
    run.tasks.report_usage("root", tokens=U64_MAX)
    run.tasks.report_usage("a", tokens=2, turns=1)
    run.tasks.report_usage("deep", tokens=3)
    run.tasks.finish("deep", attempt=1)
    assert run.tasks.usage("a") == (5, 1, 2)
    assert run.tasks.usage("root") == (U64_MAX + 5, 1, 4)


def test_capabilities_keep_the_order_of_grant() -> None:
    """Grants append what is new, revocations take away what is held; what is held or gone already adds nothing."""
    run = task_in("running")
    run.tasks.grant_capabilities("t", ["write", "read"])
    outcome = run.tasks.grant_capabilities("t", ["read", "exec"])
    assert outcome.events[0].data["capability_ids"] == ["exec"]
    assert run.rows["t"]["capability_ids"] == ["write", "read", "exec"]
    repeated(run, run.tasks.grant_capabilities, "t", ["exec"])
    run.tasks.revoke_capabilities("t", ["write", "unknown"])
    assert run.rows["t"]["capability_ids"] == ["read", "exec"]
    repeated(run, run.tasks.revoke_capabilities, "t", ["write"])
    run.tasks.grant_capabilities("t", ["write"])
    assert run.rows["t"]["capability_ids"] == ["read", "exec", "write"]
    refused(run, InvalidValue, run.tasks.grant_capabilities, "t", ["x", "x"])
    check_laws(run)


BAD = [
    ("open_root", {"task_id": ""}, "open_root.task_id"),
    ("open_root", {"task_id": "x\n"}, "open_root.task_id"),
    ("open_root", {"task_id": "x" * 257}, "open_root.task_id"),
    ("open_root", {"task_id": 7}, "open_root.task_id"),
    ("spawn", {"task_id": "x", "parent": "root", "role": "boss"}, "spawn.role"),
    ("spawn", {"task_id": "x", "parent": "root", "isolation": "jail"}, "spawn.isolation"),
    ("spawn", {"task_id": "x", "parent": "root", "context_inheritance": None}, "spawn.context_inheritance"),
    ("spawn", {"task_id": "x", "parent": None}, "spawn.parent"),
    ("spawn", {"task_id": "x", "parent": "root", "capability_ids": ["a", 1]}, "spawn.capability_ids[1]"),
    ("acknowledge_launch", {"task_id": "t", "attempt": True}, "acknowledge_launch.attempt"),
    ("finish", {"task_id": "t", "attempt": 1, "termination": "won"}, "finish.termination"),
    ("finish", {"task_id": "t", "attempt": 1.0}, "finish.attempt"),
    ("finish", {"task_id": "t", "attempt": 1, "result": "text"}, "finish.result"),
    ("finish", {"task_id": "t", "attempt": 1, "result": {"n": [float("nan")]}}, "finish.result.n[0]"),
    ("finish", {"task_id": "t", "attempt": 1, "on_children": "orphan"}, "finish.on_children"),
    ("suspend", {"task_id": "t", "wait": "forever"}, "suspend.wait"),
    ("relaunch", {"task_id": "t", "mode": "again"}, "relaunch.mode"),
    ("report_usage", {"task_id": "t", "tokens": "5"}, "report_usage.tokens"),
    ("resolve_approval", {"task_id": "t", "approved": 1}, "resolve_approval.approved"),
    ("deliver", {"task_id": "t", "kind": "approval"}, "deliver.kind"),
    ("deliver", {"task_id": "t", "kind": "signal", "payload": {"k": {1}}}, "deliver.payload.k"),
]


@pytest.mark.parametrize(("method", "arguments", "path"), BAD)
def test_a_bad_argument_is_refused_with_its_path(method: str, arguments: dict[str, Any], path: str) -> None:
    """D13, G10: nothing is coerced; the error names the command, the field and the place inside the value."""
    run = task_in("running")
    error = refused(run, InvalidValue, getattr(run.tasks, method), **arguments)
    assert isinstance(error, InvalidValue) and error.path == path


def test_a_claim_to_wake_somebody_is_checked() -> None:
    """A recorded finish may leave ``wakes`` out, or say it rightly; a wrong claim is refused."""
    run = family()
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["b"])
    finish = {"task_id": "b", "termination": "completed", "attempt": 1}
    refused(run, InvalidValue, run.ingest, "task.finished", wakes="a", **finish)
    assert run.ingest("task.finished", **finish).events[0].data["wakes"] == "root"
    run = family()
    refused(run, InvalidValue, run.ingest, "task.finished", wakes="root", **finish)


def test_attempts_do_not_wrap() -> None:
    """The last attempt that its type can number is not followed by another."""
    run = task_in("running")
    run.table.edit("t").attempt = U32_MAX
    refused(run, LimitExceeded, run.tasks.relaunch, "t", mode="retry")
    assert repr(run.table) == "<TaskTable of 2 tasks, 2 live>"


def test_a_childs_end_touches_only_what_it_changes() -> None:
    """G13: of a thousand awaited children, the end of one changes its own record; the last one's also its parent's."""
    run = TaskRun()
    run.tasks.open_root("root")
    children = [str(number) for number in range(1000)]
    for child in children:
        run.tasks.spawn(child, parent="root")
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=children)
    run.table.tasks.changed.clear()
    run.tasks.finish("500", attempt=1)
    assert list(run.table.tasks.changed) == ["500"]
    assert len(run.rows["root"]["waiting_on"]) == 999
    for child in children[:500] + children[501:-1]:
        run.tasks.finish(child, attempt=1)
    run.table.tasks.changed.clear()
    run.tasks.finish("999", attempt=1)
    assert list(run.table.tasks.changed) == ["999", "root"]
