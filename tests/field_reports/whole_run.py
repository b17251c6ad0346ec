"""A run in which everything happens: every event type of the four projections, every public command. What must hold of
each of them is tested on this one. It must never be changed by what is tested on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from engine.runs import LiveRun
from projections.contexts import AssistantMsg, NoteMsg, ToolCall, ToolMsg, UserMsg
from projections.graph import TaskNode, VerifyPredicate

__all__ = ["STEPS", "live"]

Step = Callable[[LiveRun], Any]

_RECORD = {
    "kind": "root",
    "version": 3,
    "summary": {"goals": ["g"], "covers_messages": 4, "updated": 9},
    "messages": [{"role": "user", "text": "hi", "ts": 5}, {"role": "note", "text": "n", "ts": 6, "x": [1]}],
    "plan": {"goal": "p", "items": [{"id": 1, "title": "a", "status": "pending", "bound": {"task": {"id": "t9"}}}]},
    "preflight": {"ok": True},
    "extra_key": {"kept": [1.5, None]},
}
_SWARM = {
    "tick": 7,
    "workers": {
        "1": {
            "id": 1, "consecutive_failures": 0, "last_action": "Read", "last_success": True, "last_output": "ok",
            "history_len": 2, "has_escalation": False, "phase": "working", "team": ["red", 1],
        },
    },
    "success_rate": 0.25,
    "progress": 0.7,
    "escalations": [],
    "available_actions": {"actions": {}, "groups": {}},
    "v2_guidances": None,
    "excluded_actions": [],
    "previous_guidances": {},
    "done_workers": [],
    "metadata": {"nested": {"b": [1, 1.5, True, None]}},
}  # fmt: skip
_GUIDANCE = {
    "actions": ["Grep"],
    "content": "look in the tests",
    "props": {"raw": "AP8="},
    "exploration_target": {"node": 5},
    "scope": "minimal",
}
_CONFIG = {
    "actions": {
        "Grep": {
            "name": "Grep", "description": "search", "category": "node_expand", "groups": ["search"],
            "params": [{"name": "pattern", "required": True}], "example": None,
        },
    },
    "groups": {"readonly": {"include_groups": ["search"], "exclude_groups": []}},
}  # fmt: skip
_FAILED = {"passed": False, "confidence": 0.5, "reason": "no"}
_PASSED = {"passed": True, "confidence": 0.75, "reason": "fine"}
_GATE = VerifyPredicate.natural("good")


def _node(number: int, *needs: int, **options: Any) -> TaskNode:
    return TaskNode.new(number, f"node {number}", f"do {number}", depends_on=needs, **options)


def _ended(run: LiveRun) -> Any:
    """A graph as its record, two nodes of which have lived."""
    record = run.graphs.get("g").to_json()
    return {**record, "id": "taken-over"}


def _compact(run: LiveRun) -> Any:
    plan = run.contexts.plan_compaction("c", keep_last=1)
    assert plan is not None
    return plan


TASKS: tuple[Step, ...] = (
    lambda run: run.tasks.open_root("root", capability_ids=["shell"], command_id="open"),
    lambda run: run.tasks.open_root("root", capability_ids=["shell"], command_id="open again"),
    lambda run: run.tasks.start("root", actor="planner"),
    lambda run: run.tasks.yield_task("root"),
    lambda run: run.tasks.resume("root", cause=2),
    lambda run: run.tasks.spawn("fetch", parent="root", role="explore", isolation="worktree", capability_ids=["net"]),
    lambda run: run.tasks.publish_launch("fetch", 1),
    lambda run: run.tasks.acknowledge_launch("fetch", 1),
    lambda run: run.tasks.spawn("build", parent="root", role="implement", context_inheritance="full"),
    lambda run: run.tasks.publish_launch("build"),
    lambda run: run.tasks.acknowledge_launch("build", 1),
    lambda run: run.tasks.spawn("lost", parent="root"),
    lambda run: run.tasks.fail_launch("lost", 1, reason="no host"),
    lambda run: run.tasks.report_usage("fetch", tokens=2**60, turns=2, attempt=1, command_id="usage-1"),
    lambda run: run.tasks.grant_capabilities("fetch", ["disk", "mail"]),
    lambda run: run.tasks.revoke_capabilities("fetch", ["disk"]),
    lambda run: run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["fetch"]),
    lambda run: run.tasks.extend_join("root", waiting_on=["build"]),
    lambda run: run.tasks.suspend("fetch", wait="timer", due_ms=5_000),
    lambda run: run.tasks.deliver("fetch", kind="timer"),
    lambda run: run.tasks.suspend("fetch", wait="signal", awaited="go", due_ms=6_000),
    lambda run: run.tasks.deliver("fetch", kind="signal", awaited="go", payload={"n": [1, 2.5, None, "ü"]}),
    lambda run: run.tasks.suspend("fetch", wait="message", due_ms=7_000),
    lambda run: run.tasks.expire_wait("fetch", payload={"late": True}),
    lambda run: run.tasks.suspend("build", wait="approval", awaited="merge"),
    lambda run: run.tasks.resolve_approval("build", approved=False, awaited="merge", payload="not yet"),
    lambda run: run.tasks.relaunch("build", mode="retry"),
    lambda run: run.tasks.publish_launch("build", 2),
    lambda run: run.tasks.acknowledge_launch("build", 2),
    lambda run: run.tasks.spawn("deep", parent="build", role="verify", isolation="read_only"),
    lambda run: run.tasks.finish("build", termination="max_turns", attempt=2, on_children="detach"),
    lambda run: run.tasks.finish("fetch", attempt=1, result={"final_message": "found it", "files": ["a", "b"]}),
    lambda run: run.tasks.cancel("deep"),
    lambda run: run.tasks.suspend("root", wait="external", awaited="hook"),
)

CONTEXTS: tuple[Step, ...] = (
    lambda run: run.contexts.create("c", "root", 100),
    lambda run: run.contexts.create("d", principal="bob"),
    lambda run: run.contexts.append("c", UserMsg("one", principal="ada"), command_id="turn-1"),
    lambda run: run.contexts.append_all(
        "c", [AssistantMsg("t", (ToolCall("c1", "kv", {"k": [1]}),)), ToolMsg("c1", "kv", {"v": 2})]
    ),
    lambda run: run.contexts.append("c", {"role": "note", "text": "from outside", "ts": 7, "trace": {"id": 1}}),
    lambda run: run.contexts.set_principal("c", "ada"),
    lambda run: run.contexts.begin_turn("c"),
    lambda run: run.contexts.load_skill("c", "s1", "h1"),
    lambda run: run.contexts.load_skill("c", "s1", "h2"),
    lambda run: run.contexts.load_skill("c", "s2", "h1"),
    lambda run: run.contexts.unload_skill("c", "s2"),
    lambda run: run.contexts.create_plan("c", "goal", ["a", {"title": "b", "detail": "d"}]),
    lambda run: run.contexts.update_plan("c", insert={"title": "x", "after": 1}, item=1, bind={"run": "elsewhere"}),
    lambda run: run.contexts.settle_plan("c", {"run": "elsewhere"}, True, "fine"),
    lambda run: run.contexts.set_preflight("c", {"go": True, "why": ["x"]}),
    lambda run: run.contexts.attach_task("c", "root"),
    lambda run: run.contexts.set_window("c", 50),
    lambda run: run.contexts.append_all("c", [UserMsg("two"), UserMsg("three")]),
    lambda run: run.contexts.apply_compaction("c", _compact(run), {"facts": ["f"], "narrative": "so far"}),
    lambda run: run.contexts.append_all("c", [UserMsg("four"), NoteMsg("n"), UserMsg("five")]),
    lambda run: run.contexts.apply_fallback("c", _compact(run)),
    lambda run: run.contexts.append("d", AssistantMsg(None, (ToolCall("q", "ask", None),))),
    lambda run: run.contexts.close_calls("d", "the turn ended"),
    lambda run: run.contexts.import_record("e", _RECORD, model_window=70),
    lambda run: run.contexts.detach_task("c"),
    lambda run: run.contexts.clear_plan("c"),
    lambda run: run.contexts.touch("c"),
)

GRAPHS: tuple[Step, ...] = (
    lambda run: run.graphs.create(
        "g",
        "reach it",
        [_node(0, verify_predicate=_GATE), _node(1, 0), _node(2, recovery={"route_to": 3}), _node(3), _node(4)],
        default_failure_strategy="retry",
        default_max_retries=1,
        extra={"team": "blue"},
    ),
    lambda run: run.graphs.start("g", command_id="start-g"),
    lambda run: run.graphs.dispatch("g", 0, "h0", "agent"),
    lambda run: run.ingest([("node.attempt_started", {"graph": "g", "node": 0, "attempt": 1, "at_ms": 3})]),
    lambda run: run.graphs.defer("g", 0, "no place", handle="h0"),
    lambda run: run.graphs.dispatch("g", 0, "h1"),
    lambda run: run.graphs.complete("g", 0, {"output": "a draft", "artifacts": ["x.md"]}, handle="h1"),
    lambda run: run.graphs.record_predicate("g", 0, _FAILED, attempt=2),
    lambda run: run.graphs.dispatch("g", 0, "h2"),
    lambda run: run.graphs.complete("g", 0, "better", attempt=3),
    lambda run: run.graphs.record_predicate("g", 0, _PASSED, attempt=3),
    lambda run: run.graphs.dispatch("g", 2, "h3"),
    lambda run: run.graphs.fail("g", 2, "tools", "no grep", handle="h3"),
    lambda run: run.graphs.dispatch("g", 2, "h4"),
    lambda run: run.graphs.recover("g", "requeue"),
    lambda run: run.graphs.dispatch("g", 2, "h5"),
    lambda run: run.graphs.fail("g", 2, "error", "broken", handle="h5"),
    lambda run: run.graphs.dispatch("g", 3, "h6"),
    lambda run: run.graphs.inject("g", [_node(5, 4, failure_strategy="ask")]),
    lambda run: run.graphs.correct("g", 0, "wrong table"),
    lambda run: run.graphs.pause("g"),
    lambda run: run.graphs.resume("g"),
    lambda run: run.graphs.import_graph(_ended(run), command_id="take over"),
    lambda run: run.graphs.dispatch("g", 4, task="root"),
    lambda run: run.graphs.complete("g", 4, "fine", task="root"),
    lambda run: run.graphs.dispatch("g", 5, "h7"),
    lambda run: run.graphs.fail("g", 5, handle="h7"),
    lambda run: run.graphs.retry("g", 5),
    lambda run: run.graphs.skip("g", 5),
    lambda run: run.graphs.cancel("g", 1),
    lambda run: run.graphs.cancel_graph("g"),
    lambda run: run.graphs.retry_graph("g"),
    lambda run: run.graphs.create("one", "one step", [_node(0)]),
    lambda run: run.graphs.start("one"),
    lambda run: run.graphs.dispatch("one", 0, "h"),
    lambda run: run.graphs.complete("one", 0, "done", handle="h"),
    lambda run: run.graphs.create("two", "cannot", [_node(0), _node(1, 0)]),
    lambda run: run.graphs.start("two"),
    lambda run: run.graphs.dispatch("two", 0, "h"),
    lambda run: run.graphs.fail("two", 0, "idle_timeout", "silent", handle="h"),
    lambda run: run.graphs.create(
        "three",
        "cannot either",
        [
            _node(0, recovery={"state_injection": "a stand-in"}),
            _node(1, 0, failure_strategy="skip"),
            _node(2, 1, verify_predicate=_GATE),
        ],
        predicate_reruns=0,
    ),
    lambda run: run.graphs.start("three"),
    lambda run: run.graphs.dispatch("three", 0, "h"),
    lambda run: run.graphs.fail("three", 0, handle="h"),
    lambda run: run.graphs.dispatch("three", 1, "h"),
    lambda run: run.graphs.complete("three", 1, "made of it", handle="h"),
    lambda run: run.graphs.dispatch("three", 2, "h"),
    lambda run: run.graphs.complete("three", 2, "bad", handle="h"),
    lambda run: run.graphs.correct("three", 1, "wrong"),
    lambda run: run.graphs.record_predicate("three", 2, _FAILED),
)

SWARM: tuple[Step, ...] = (
    lambda run: run.swarm.start(3, max_ticks=9, failure_threshold=2, task={"find": ["it"]}),
    lambda run: run.swarm.configure_actions(_CONFIG),
    lambda run: run.swarm.advance_tick(),
    lambda run: run.swarm.complete_action(0, "Grep", success=True, target="a", output="x", duration_ms=5),
    lambda run: run.swarm.complete_action(1, "Grep", success=False, error="none"),
    lambda run: run.swarm.complete_action(1, "Grep", success=False, error="none"),
    lambda run: run.swarm.raise_escalation(1, {"unknown": "still"}, context="again"),
    lambda run: run.swarm.clear_escalation(1),
    lambda run: run.swarm.idle(2),
    lambda run: run.swarm.issue_guidance(0, _GUIDANCE),
    lambda run: run.swarm.update_exploration(["Read"], [_GUIDANCE]),
    lambda run: run.swarm.set_metadata("k", {"a": [1, None]}),
    lambda run: run.swarm.set_metadata("gone", 1),
    lambda run: run.swarm.remove_metadata("gone"),
    lambda run: run.swarm.finish_worker(2, success=True, message="done"),
    lambda run: run.swarm.record_verdict(True, "found", details={"score": 0.5}),
)

STEPS: tuple[Step, ...] = (*TASKS, *CONTEXTS, *GRAPHS, *SWARM)
"""One command each, in this order; a run has one swarm, so taking one over is a step of its own."""

TAKE_OVER: Step = lambda run: run.swarm.import_record(_SWARM, task={"why": "moved"})  # noqa: E731


def live(run: LiveRun) -> Iterator[int]:
    """Give the run every command and yield its position after each."""
    for step in STEPS:
        step(run)
        yield run.position
