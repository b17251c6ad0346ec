"""Laws of the fold of contexts: restore equals live at every place, a refusal leaves nothing, a repetition adds
nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.core.errors import EngineError, NotFound, Refused
from projections.contexts import (
    PROJECTION,
    AssistantMsg,
    ContextCommands,
    Msg,
    NoteMsg,
    ToolCall,
    ToolMsg,
    UserMsg,
)
from projections.contexts.message import MESSAGE
from projections.contexts.transitions import CONTEXT_STEPS

from .contexts_shell import Shell, derived, replay, restored

RECORD = {
    "kind": "root",
    "version": 3,
    "summary": {"goals": ["g"], "covers_messages": 4, "updated": 9},
    "messages": [{"role": "user", "text": "hi", "ts": 5}, {"role": "note", "text": "n", "ts": 6, "x": [1]}],
    "plan": {"goal": "p", "items": [{"id": 1, "title": "a", "status": "pending", "bound": {"task": {"id": "t9"}}}]},
    "preflight": {"ok": True},
    "extra_key": {"kept": [1.5, None]},
}


def compact(contexts: ContextCommands) -> Any:
    plan = contexts.plan_compaction("c", keep_last=1)
    assert plan is not None
    return plan


STEPS: tuple[Callable[[ContextCommands], Any], ...] = (
    lambda c: c.create("c", "root", 100, principal=None),
    lambda c: c.create("d"),
    lambda c: c.append("c", UserMsg("one", principal="ada")),
    lambda c: c.append_all(
        "c", [AssistantMsg("t", (ToolCall("c1", "kv", {"k": [1]}),)), ToolMsg("c1", "kv", {"v": 2})]
    ),
    lambda c: c.append("c", {"role": "note", "text": "from outside", "ts": 7, "trace": {"id": 1}}),
    lambda c: c.set_principal("c", "ada"),
    lambda c: c.begin_turn("c"),
    lambda c: c.load_skill("c", "s1", "h1"),
    lambda c: c.load_skill("c", "s2", "h1"),
    lambda c: c.load_skill("c", "s1", "h2"),
    lambda c: c.unload_skill("c", "s2"),
    lambda c: c.create_plan("c", "goal", ["a", {"title": "b", "detail": "d"}]),
    lambda c: c.update_plan("c", insert={"title": "x", "after": 1}, reorder=[2], item=1, bind={"task": "t1"}),
    lambda c: c.update_plan("c", item=2, bind={"task": "t2"}),
    lambda c: c.settle_plan("c", {"task": "t1"}, True, "fine"),
    lambda c: c.set_preflight("c", {"go": True, "why": ["x"]}),
    lambda c: c.attach_task("c", "t1"),
    lambda c: c.set_window("c", 50),
    lambda c: c.append_all("c", [UserMsg("two"), UserMsg("three")]),
    lambda c: c.apply_compaction("c", compact(c), {"facts": ["f"], "narrative": "so far"}),
    lambda c: c.append_all("c", [UserMsg("four"), NoteMsg("n")]),
    lambda c: c.append_all("c", [UserMsg("five")]),
    lambda c: c.apply_fallback("c", compact(c)),
    lambda c: c.append("d", AssistantMsg(None, (ToolCall("q", "ask", None),))),
    lambda c: c.close_calls("d", "the turn ended"),
    lambda c: c.import_record("e", RECORD, model_window=70),
    lambda c: c.append("e", UserMsg("more")),
    lambda c: c.detach_task("c"),
    lambda c: c.set_preflight("c", None),
    lambda c: c.clear_plan("c"),
    lambda c: c.touch("c"),
)


def lived() -> Shell:
    shell = Shell()
    for step in STEPS:
        assert step(shell.contexts).changed
    return shell


def test_the_story_uses_every_event() -> None:
    """The commands of these laws bring about every event of the projection, so the laws speak of all of them."""
    used = {shell_wire[0] for shell_wire in lived().wires()}
    assert used == {event_type.tag for event_type in PROJECTION.events}
    assert {step.event for step in CONTEXT_STEPS} == {event_type.name for event_type in PROJECTION.events}


def test_every_prefix_restores_to_what_was_live() -> None:
    """At every event, replay of the prefix and a checkpoint taken there give the bytes that were live there (G2,
    G3)."""
    shell = Shell()
    seen: list[tuple[int, bytes]] = [(0, shell.state.bytes())]
    for step in STEPS:
        step(shell.contexts)
        shell.check()
        seen.append((shell.state.seq, shell.state.bytes()))
    for seq, live in seen:
        assert replay(shell.model, shell.groups, seq).bytes() == live
    for seq in range(shell.state.seq + 1):  # also inside a commit of several events
        prefix = replay(shell.model, shell.groups, seq)
        again = restored(shell.model, prefix, shell.wires())
        assert again.bytes() == prefix.bytes()
        assert derived(again) == derived(prefix)


def test_the_same_next_commands_give_the_same_events_after_a_restore() -> None:
    """A state that came from a checkpoint decides every later command as the live one does (G2)."""
    live = lived()
    for cut in range(len(STEPS)):
        shell = Shell()
        for step in STEPS[:cut]:
            step(shell.contexts)
        shell.state = restored(shell.model, shell.state, shell.wires())
        for step in STEPS[cut:]:
            step(shell.contexts)
        assert shell.wires() == live.wires()
        assert shell.state.bytes() == live.state.bytes()


def test_repeating_a_command_that_already_holds_records_nothing() -> None:
    """Commands whose effect is there give no event; those that add something give one each time."""
    shell = lived()
    contexts = shell.contexts
    contexts.attach_task("c", "t1")
    repeats: tuple[Callable[[], Any], ...] = (
        lambda: contexts.create("d"),
        lambda: contexts.append_all("c", []),
        lambda: contexts.set_principal("c", "ada"),
        lambda: contexts.set_principal("c", "another"),
        lambda: contexts.load_skill("c", "s1", "h2", max_loaded=0),
        lambda: contexts.unload_skill("c", "s2"),
        lambda: contexts.clear_plan("c"),
        lambda: contexts.settle_plan("c", {"run": "r"}, True),
        lambda: contexts.set_preflight("c", None),
        lambda: contexts.attach_task("c", "t1"),
        lambda: contexts.detach_task("d"),
        lambda: contexts.set_window("c", 50),
        lambda: contexts.close_calls("d", "again"),
        lambda: contexts.touch("c", at_ms=contexts.get("c").updated),
        lambda: contexts.update_plan("e", item=1, title="  "),
    )
    before = shell.state.bytes()
    for repeat in repeats:
        assert not repeat().changed
    assert shell.state.bytes() == before


REFUSALS: tuple[tuple[str, Callable[[ContextCommands], Any]], ...] = (
    ("no such context", lambda c: c.append("zz", UserMsg("x"))),
    ("taken id", lambda c: c.create("c", "conversation")),
    ("taken id for an import", lambda c: c.import_record("c", RECORD)),
    ("bad message", lambda c: c.append_all("c", [UserMsg("ok"), {"role": "tool", "id": "x"}])),
    ("skill limit", lambda c: c.load_skill("c", "s9", "h", max_loaded=1)),
    ("no plan", lambda c: c.update_plan("c", item=1, status="done")),
    ("half a plan update", lambda c: c.update_plan("e", insert="new", item=99, status="done")),
    ("blank goal", lambda c: c.create_plan("c", "  ")),
    ("bad kind", lambda c: c.create("f", "group")),  # type: ignore[arg-type]
    ("bad window", lambda c: c.set_window("c", -1)),
    ("value that JSON does not have", lambda c: c.set_preflight("c", {"x": {1, 2}})),
    ("empty principal type", lambda c: c.set_principal("c", 5)),  # type: ignore[arg-type]
)


@pytest.mark.parametrize("refusal", [call for _, call in REFUSALS], ids=[name for name, _ in REFUSALS])
def test_a_refused_command_leaves_no_trace(refusal: Callable[[ContextCommands], Any]) -> None:
    """State, journal and the next event are as if the command had never been given (G6)."""
    shell, twin = lived(), lived()
    with pytest.raises(EngineError) as caught:
        refusal(shell.contexts)
    assert isinstance(caught.value, Refused | NotFound)
    assert shell.state.bytes() == twin.state.bytes()
    assert derived(shell.state) == derived(twin.state)
    assert shell.wires() == twin.wires()
    for one in (shell, twin):
        one.contexts.append("c", UserMsg("next"), at_ms=99)
    assert shell.wires() == twin.wires()


def test_what_is_handed_out_shares_nothing_with_the_state() -> None:
    """Changing every container of an answer, or of what was handed in, changes nothing that is recorded."""
    shell = Shell()
    arguments: dict[str, Any] = {"k": [1]}
    preflight: dict[str, Any] = {"list": []}
    shell.contexts.create("c")
    shell.contexts.append("c", AssistantMsg(None, (ToolCall("c1", "t", arguments, {"x": [1]}),)))
    shell.contexts.append("c", ToolMsg("c1", "t", arguments, extra={"y": {}}))
    shell.contexts.set_preflight("c", preflight)
    shell.contexts.import_record("e", RECORD)
    before = shell.state.bytes()
    arguments["k"].append(2)
    preflight["list"].append(2)
    for context in ("c", "e"):
        state = shell.contexts.get(context)
        shape = state.to_json()
        shape["preflight"].clear()
        shape["messages"][-1].clear()
        state.preflight["new"] = 1
        for message in (*state.messages, *shell.contexts.messages(context)):
            if message.extra:
                message.extra["new"] = 1
            if isinstance(message, AssistantMsg):
                message.tool_calls[0].arguments["k"].append(3)
            if isinstance(message, ToolMsg):
                message.content["k"].append(3)
        if state.extra:
            state.extra["extra_key"]["kept"].append(1)
    for outcome_data in [event.data for event in shell.contexts.append("c", ToolMsg("z", "t", {"k": [1]})).events]:
        outcome_data["messages"][0][4]["k"].append(9)
    assert replay(shell.model, shell.groups).bytes() == shell.state.bytes()
    assert replay(shell.model, shell.groups, shell.state.seq - 1).bytes() == before


def test_a_fold_does_not_share_with_the_event_it_folds() -> None:
    """An event list that is changed after it was folded does not change the state."""
    shell = lived()
    live = shell.state.bytes()
    state = shell.model.initial()
    state.apply(shell.groups)

    def spoil(value: Any) -> None:
        if isinstance(value, dict | list):
            for inner in list(value.values() if isinstance(value, dict) else value):
                spoil(inner)
            value.clear()

    spoil(shell.groups)
    assert state.bytes() == live


def test_a_message_has_one_array() -> None:
    """Trailing defaults may be given or left out; what is stored is the same."""
    spelled: list[tuple[list[Any], Msg]] = [
        ([1, None, "a", None, None], UserMsg("a")),
        ([2, 5, None, [], None], AssistantMsg(ts=5)),
        ([3, 5, "c", "t", None, False], ToolMsg("c", "t", None, ts=5)),
        ([2, 5, "x", [["c", "t", {}, None]]], AssistantMsg("x", (ToolCall("c", "t", {}),), ts=5)),
    ]
    for array, message in spelled:
        assert MESSAGE.check(array) == message.dump()
