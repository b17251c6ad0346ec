"""What the runtime of the records gets wrong, and what its users reported: none of it can happen here.

Sections are those of the contract's "where agentd is wrong"; A and Z ids are those of the field reports. Of the rows on
contexts, A4, A5, A7, A8, A13, A14, A16, A17, A19 and A22 concern timers, workers, feeds, schedules and loops, which no
conversation holds: ``tests/field_reports/test_contexts.py`` has them. A11 asks for retention of whole runs, which is
the store's.
"""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import CommandMismatch, InvalidValue, NotFound, Refused
from projections.contexts import AssistantMsg, NoteMsg, ToolCall, ToolMsg, UserMsg, load_message

from .contexts_shell import Shell, replay, restored
from .test_contexts_laws import STEPS


def shell_with(*messages: Any, window: int = 0) -> Shell:
    shell = Shell()
    shell.contexts.create("c", model_window=window)
    shell.contexts.append_all("c", messages)
    return shell


def test_flaw_1_the_estimate_does_not_jump_across_a_restart() -> None:
    """7 tokens are 7 tokens after replay and after a checkpoint; an empty summary counts nothing."""
    shell = shell_with(UserMsg("hello world"))
    assert shell.contexts.est_tokens("c") == 7
    for state in (replay(shell.model, shell.groups), restored(shell.model, shell.state, shell.wires())):
        view = state.parts["contexts"].view("c")
        assert view.est_tokens == view.recount() == 7
        assert len(view.slice()) == 1


def test_flaw_2_no_verdict_and_no_fallback_erases_history() -> None:
    """An empty verdict is refused; a second fallback still holds the first one's text."""
    shell = shell_with(*(UserMsg(f"m{n}") for n in range(6)))
    plan = shell.contexts.plan_compaction("c", keep_last=2)
    assert plan is not None
    with pytest.raises(Refused) as caught:
        shell.contexts.apply_compaction("c", plan, {"goals": [], "decisions": [], "open": [], "facts": []})
    assert caught.value.details["rule"] == "empty_verdict"
    assert shell.contexts.message_count("c") == 6
    shell.contexts.apply_fallback("c", plan)
    shell.contexts.append_all("c", [UserMsg(f"m{n}") for n in range(6, 10)])
    again = shell.contexts.plan_compaction("c", keep_last=2)
    assert again is not None
    shell.contexts.apply_fallback("c", again)
    narrative = shell.contexts.get("c").summary.narrative
    assert narrative == "\n".join(f"[user] m{n}" for n in range(8))


def test_flaw_3_folded_messages_stay_readable() -> None:
    """The record before the fold still shows them, and so does the event that brought them."""
    shell = shell_with(*(UserMsg(f"m{n}") for n in range(5)))
    before = shell.state.seq
    plan = shell.contexts.plan_compaction("c", keep_last=1)
    assert plan is not None
    shell.contexts.apply_compaction("c", plan, "prose")
    assert len(shell.contexts.messages("c")) == 1
    assert [m.to_wire()["text"] for m in shell.at(before).messages("c")] == [f"m{n}" for n in range(5)]
    event = shell.wires()[1]
    assert [load_message(body).to_wire()["text"] for body in event[4]] == [f"m{n}" for n in range(5)]


def test_flaw_4_turns_a_late_principal_and_plan_edits_are_kept_whole() -> None:
    """Each is an event that a restart gives back; a refused update leaves the plan as it was."""
    shell = Shell()
    shell.contexts.create("c")
    shell.contexts.create_plan("c", "goal", ["a"])
    shell.contexts.begin_turn("c")
    shell.contexts.set_principal("c", "late")
    shell.contexts.set_principal("c", "later")
    with pytest.raises(Refused):
        shell.contexts.update_plan("c", insert="half", item=99, status="done")
    state = replay(shell.model, shell.groups).parts["contexts"].view("c")
    assert (state.turns, state.principal) == (1, "late")
    assert [item.title for item in state.plan.items] == ["a"]
    assert shell.contexts.begin_turn("c").events[0].type == "context.turn_begun/1"


def test_flaw_5_a_conversation_of_notes_compacts() -> None:
    """Without a user message, notes go up to the first message of a turn; what stays in is the turn."""
    shell = shell_with(*(NoteMsg(f"n{n}") for n in range(20)))
    plan = shell.contexts.plan_compaction("c")
    assert plan is not None and plan.fold == 8
    shell.contexts.apply_compaction("c", plan, "prose")
    assert shell.contexts.message_count("c") == 12
    turn = [AssistantMsg(None, (ToolCall("c1", "t", {}),)), ToolMsg("c1", "t", 1)]
    shell = shell_with(NoteMsg("a"), NoteMsg("b"), *turn, *(NoteMsg(str(n)) for n in range(9)))
    plan = shell.contexts.plan_compaction("c", keep_last=2)
    assert plan is not None and plan.fold == 2
    shell.contexts.apply_compaction("c", plan, "prose")
    assert [message.role for message in shell.contexts.messages("c", 0, 2)] == ["assistant", "tool"]


def test_flaw_6_a_smaller_window_counts() -> None:
    """A window that shrinks is an event, and the threshold follows it; so does the one configured at an import."""
    shell = shell_with(UserMsg("x" * 200), window=1_000)
    assert not shell.contexts.needs_compaction("c")
    outcome = shell.contexts.set_window("c", 60)
    assert [event.type for event in outcome.events] == ["context.window_changed/1"]
    assert shell.contexts.needs_compaction("c")
    outcome = shell.contexts.import_record(
        "i", shell.contexts.to_record("c") | {"model_window": 1_000}, model_window=60
    )
    assert [event.type for event in outcome.events] == ["context.imported/1", "context.window_changed/1"]
    assert outcome.events[1].cause == outcome.events[0].seq
    assert shell.contexts.needs_compaction("i")


@pytest.mark.parametrize(
    "twins", [("a//b", "a/b"), (".", ".."), ("a", "A"), ("\u00e9", "e\u0301"), ("x" * 255, "x" * 256)]
)
def test_flaw_7_ids_that_look_alike_are_two(twins: tuple[str, str]) -> None:
    """Each id has its own record, also after a restart."""
    shell = Shell()
    for number, context in enumerate(twins):
        shell.contexts.create(context)
        shell.contexts.append(context, NoteMsg(str(number)))
    state = restored(shell.model, shell.state, shell.wires()).parts["contexts"]
    assert [[m.text for m in state.view(context).messages] for context in twins] == [["0"], ["1"]]


@pytest.mark.parametrize(("context", "said"), [("x" * 300, "256"), ("", "empty"), ("a\nb", "control"), (" ", "blank")])
def test_flaw_7_an_id_that_is_not_stored_is_refused_by_its_rule(context: str, said: str) -> None:
    """An id is stored as it is or refused before anything is written, naming the rule."""
    shell = Shell()
    with pytest.raises(InvalidValue, match=said) as caught:
        shell.contexts.create(context)
    assert caught.value.path == "context"
    assert shell.groups == []


def test_flaw_8_a_turn_that_is_given_again_does_not_append_twice() -> None:
    """Under its command id the user message is there once, whatever the clock says at the second time."""
    shell = Shell()
    shell.contexts.create("c")
    first = shell.contexts.append("c", UserMsg("order it"), command_id="turn-1")
    again = shell.contexts.append("c", UserMsg("order it"), command_id="turn-1", at_ms=999_999)
    assert again.repeated and again.position == first.position
    assert shell.contexts.message_count("c") == 1
    with pytest.raises(CommandMismatch):
        shell.contexts.append("c", UserMsg("order two"), command_id="turn-1")


def test_flaw_9_a_failing_conversation_does_not_starve_another() -> None:
    """Whatever is refused in one conversation, the others decide and fold as if it were not there."""
    shell, alone = Shell(), Shell()
    shell.contexts.create("bad")
    for run in (shell, alone):
        run.clock = 5_000
        run.contexts.create("good")
    for number in range(5):
        for call in (
            lambda: shell.contexts.update_plan("bad", item=1),
            lambda: shell.contexts.append("bad", {"role": "nobody"}),
            lambda: shell.contexts.append("never made", UserMsg("x")),
        ):
            with pytest.raises((Refused, NotFound)):
                call()
        for run in (shell, alone):
            run.contexts.append("good", UserMsg(str(number)), at_ms=6_000 + number)
    assert shell.contexts.get("good") == alone.contexts.get("good")


def test_a1_a_turn_cut_between_calls_and_results_can_be_closed() -> None:
    """A1: unanswered calls are named after a restart, and one command answers them, so that the next turn is well
    formed."""
    calls = (ToolCall("c1", "get", {}), ToolCall("c2", "put", {}))
    shell = shell_with(UserMsg("go"), AssistantMsg(None, calls), ToolMsg("c1", "get", "ok"))
    shell.state = restored(shell.model, shell.state, shell.wires())
    assert shell.contexts.open_calls("c") == calls[1:]
    shell.contexts.close_calls("c", "the turn ended before the result came")
    assert shell.contexts.open_calls("c") == ()
    last = shell.contexts.to_wire("c")[-1]
    assert (last["role"], last["id"], last["is_error"]) == ("tool", "c2", True)


def test_a2_a_fold_never_leaves_an_assistant_message_first() -> None:
    """A2: the boundary walks back to a user message."""
    messages = [m for n in range(5) for m in (UserMsg(f"q{n}"), AssistantMsg(f"a{n}"))]
    shell = shell_with(*messages)
    for keep_last in range(1, 9):
        plan = shell.contexts.plan_compaction("c", keep_last)
        assert plan is not None and messages[plan.fold].role == "user"


def test_a10_nothing_is_recorded_that_a_restart_does_not_give_back() -> None:
    """A10: every command that says it changed something has events, and the events alone give all of it back."""
    shell = Shell()
    for step in STEPS:
        before = shell.state.bytes()
        outcome = step(shell.contexts)
        assert outcome.changed == bool(outcome.events) == (shell.state.bytes() != before)
        assert replay(shell.model, shell.groups).bytes() == shell.state.bytes()


def test_a20_a_compaction_leaves_nothing_waiting() -> None:
    """A20: planning records nothing, applying records one event, and a plan that is never applied stands in no one's
    way."""
    shell = shell_with(*(UserMsg(f"m{n}") for n in range(9)))
    before = shell.state.bytes()
    assert shell.contexts.plan_compaction("c", keep_last=5) is not None
    assert shell.state.bytes() == before
    plan = shell.contexts.plan_compaction("c", keep_last=2)
    assert plan is not None
    assert shell.contexts.apply_compaction("c", plan, "prose").count == 1
    assert shell.contexts.append("c", UserMsg("next")).changed


def test_a23_a_question_to_a_human_outlives_a_restart() -> None:
    """A23: a turn's open question is part of the record; its answer is a result of that call, not a new prompt."""
    question = ToolCall("q1", "ask_human", {"question": "ship it?", "schema": {"type": "boolean"}})
    shell = shell_with(UserMsg("release"), AssistantMsg(None, (question,)))
    shell.contexts.begin_turn("c")
    shell.state = restored(shell.model, shell.state, shell.wires())
    assert shell.contexts.open_calls("c") == (question,)
    shell.contexts.append("c", ToolMsg("q1", "ask_human", True))
    assert shell.contexts.open_calls("c") == ()
    assert [message.role for message in shell.contexts.messages("c")] == ["user", "assistant", "tool"]


def test_z31_results_stay_behind_their_calls_through_folds() -> None:
    """Z31: after any number of folds the live messages are a suffix of what was said, calls and results in order."""
    said: list[Any] = []
    shell = Shell()
    shell.contexts.create("c")
    for turn in range(12):
        calls = tuple(ToolCall(f"c{turn}-{n}", "t", n, None) for n in range(turn % 3))
        results = [ToolMsg(call.id, "t", call.arguments, ts=1) for call in calls]
        said += [UserMsg(f"q{turn}", ts=1), AssistantMsg("a", calls, ts=1), *results, AssistantMsg("b", ts=1)]
        shell.contexts.append_all("c", said[-(3 + len(calls)) :])
        plan = shell.contexts.plan_compaction("c", keep_last=4)
        if plan is not None:
            shell.contexts.apply_compaction("c", plan, "prose")
        live = shell.contexts.messages("c")
        assert list(live) == said[len(said) - len(live) :]
        assert live[0].role == "user"
        assert shell.contexts.open_calls("c") == ()
    assert shell.contexts.get("c").summary.covers_messages == len(said) - len(shell.contexts.messages("c"))
