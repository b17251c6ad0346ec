"""Facts that another runtime decided: the same tables and rules as for our own."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import EngineError, IllegalTransition, InvalidValue, LimitExceeded, NotFound
from engine.core.limits import U64_MAX
from engine.core.transition import allowed, mermaid, states
from projections.contexts import AssistantMsg, NoteMsg, ToolCall, UserMsg
from projections.contexts.events import EVENTS
from projections.contexts.transitions import CONTEXT_STEPS, ITEM_STEPS, PLAN_STEPS, PRINCIPAL_STEPS, TASK_STEPS

from .contexts_shell import Shell
from .test_contexts_laws import STEPS


def test_what_one_run_decided_another_run_admits() -> None:
    """Every event that our commands give is accepted as a fact, and the state comes out the same, byte for byte."""
    source, copy = Shell(), Shell()
    for step in STEPS:
        step(source.contexts)
    for wire in source.wires():
        event_type = source.model.catalog.by_tag[wire[0]]
        copy.ingest(event_type.name, **event_type.data(wire))
    assert copy.state.bytes() == source.state.bytes()


def ready() -> Shell:
    shell = Shell()
    shell.contexts.create("c", principal="ada")
    shell.contexts.append_all("c", [UserMsg("a"), AssistantMsg(None, (ToolCall("c1", "t", 1),)), NoteMsg("n")])
    shell.contexts.create_plan("c", "g", ["one", "two"])
    shell.contexts.update_plan("c", item=1, status="done")
    shell.contexts.attach_task("c", "t1")
    shell.contexts.load_skill("c", "s", "h")
    return shell


BLANK = [[], [], [], [], None, 0, 0]
SAID = [["g"], [], [], [], None, 0, 0]
ILLEGAL: tuple[tuple[str, dict[str, Any], type[EngineError], str], ...] = (
    ("context.created", {"context": "c", "kind": "root", "model_window": 0}, IllegalTransition, "open"),
    ("context.touched", {"context": "zz"}, NotFound, "zz"),
    ("context.principal_set", {"context": "c", "principal": "bob"}, IllegalTransition, "known"),
    ("context.messages_appended", {"context": "c", "messages": []}, InvalidValue, "no message"),
    ("context.messages_appended", {"context": "c", "messages": [[9, 1, "x"]]}, InvalidValue, r"messages\[0\]"),
    ("context.messages_appended", {"context": "c", "messages": [[True, 1, "x"]]}, InvalidValue, r"messages\[0\]"),
    (
        "context.messages_appended",
        {"context": "c", "messages": [[1, 1, "x", None, None, 0]]},
        InvalidValue,
        "not message",
    ),
    ("context.messages_appended", {"context": "c", "messages": [[1, -1, "x"]]}, InvalidValue, r"messages\[0\].ts"),
    ("context.messages_appended", {"context": "c", "messages": ["x"]}, InvalidValue, r"messages\[0\]"),
    ("context.skill_unloaded", {"context": "c", "name": "other"}, EngineError, "not loaded"),
    ("context.plan_items_settled", {"context": "c", "items": [], "ok": True}, InvalidValue, "no item"),
    ("context.plan_items_settled", {"context": "c", "items": [9], "ok": True}, EngineError, "no item 9"),
    ("context.plan_items_settled", {"context": "c", "items": [1], "ok": True}, IllegalTransition, "done"),
    ("context.plan_updated", {"context": "c", "items": [], "order": [1], "next_id": 3}, InvalidValue, "every item"),
    (
        "context.plan_updated",
        {"context": "c", "items": [[3, "x", None, "done", None, None, 0]] * 2, "next_id": 4},
        InvalidValue,
        "twice",
    ),
    ("context.compacted", {"context": "c", "fold": 1, "verdict": BLANK, "fallback": False}, EngineError, "empty"),
    ("context.compacted", {"context": "c", "fold": 9, "verdict": SAID, "fallback": False}, EngineError, "9 of 3"),
    (
        "context.compacted",
        {"context": "c", "fold": 1, "verdict": SAID, "fallback": False},
        EngineError,
        "inside a turn",
    ),
    ("context.compacted", {"context": "c", "fold": 2, "verdict": SAID, "fallback": False}, EngineError, "waits"),
)


@pytest.mark.parametrize(("name", "data", "error", "said"), ILLEGAL, ids=[f"{n}-{s}" for n, _, _, s in ILLEGAL])
def test_an_illegal_fact_is_refused(name: str, data: dict[str, Any], error: type[EngineError], said: str) -> None:
    """It is refused by name, and state and journal stay as they were."""
    shell = ready()
    before, groups = shell.state.bytes(), len(shell.groups)
    with pytest.raises(error, match=said):
        shell.ingest(name, **{"at_ms": 5, **data})
    assert (shell.state.bytes(), len(shell.groups)) == (before, groups)


def test_a_part_that_is_not_there_can_not_be_let_go() -> None:
    """Without a plan, a task or a first caller the events that need one are refused, and those that bring one pass."""
    shell = Shell()
    shell.contexts.create("c")
    for name, data in (
        ("context.plan_cleared", {}),
        ("context.plan_updated", {"items": [], "order": None, "next_id": 1}),
        ("context.plan_items_settled", {"items": [1], "ok": True}),
        ("context.task_detached", {}),
    ):
        with pytest.raises(IllegalTransition) as caught:
            shell.ingest(name, context="c", at_ms=1, **data)
        assert caught.value.details["state"] == "absent"
        assert caught.value.details["allowed"]
    shell.ingest("context.principal_set", context="c", at_ms=1, principal="ada")
    shell.ingest("context.task_attached", context="c", at_ms=1, task="t")
    shell.ingest("context.task_detached", context="c", at_ms=1)
    shell.check()


def test_counters_of_a_record_stop_at_their_limit() -> None:
    """A record at the end of its counters is refused a turn and a compaction; nothing overflows in the fold."""
    shell = Shell()
    messages = [{"role": "user", "text": str(n), "ts": n} for n in range(4)]
    shell.contexts.import_record("t", {"turns": U64_MAX})
    shell.contexts.import_record("v", {"version": U64_MAX, "messages": messages})
    covered = {"covers_messages": U64_MAX, "updated": 0}
    shell.contexts.import_record("s", {"summary": covered, "messages": messages})
    with pytest.raises(LimitExceeded):
        shell.contexts.begin_turn("t")
    with pytest.raises(LimitExceeded):
        shell.ingest("context.turn_begun", context="t", at_ms=1)
    for context in ("v", "s"):
        plan = shell.contexts.plan_compaction(context, keep_last=1)
        assert plan is not None
        for call in (shell.contexts.apply_compaction, lambda c, p, _: shell.contexts.apply_fallback(c, p)):
            with pytest.raises(LimitExceeded):
                call(context, plan, "prose")
        with pytest.raises(LimitExceeded):
            shell.ingest("context.compacted", context=context, at_ms=1, fold=1, verdict=SAID, fallback=False)


def test_the_tables_name_every_event_and_draw() -> None:
    """Each event stands in the table of contexts; each table draws as a diagram; no status is a dead end for a
    caller."""
    names = {event_type.name for event_type in EVENTS}
    assert {step.event for step in CONTEXT_STEPS} == names
    for table in (PLAN_STEPS, TASK_STEPS, PRINCIPAL_STEPS, ITEM_STEPS):
        assert {step.event for step in table} <= names
        assert mermaid(table).startswith("stateDiagram-v2\n")
    assert all("context.plan_updated" in allowed(ITEM_STEPS, status) for status in states(ITEM_STEPS))
    assert sorted(event_type.number or 0 for event_type in EVENTS) == list(range(40, 40 + len(EVENTS)))
