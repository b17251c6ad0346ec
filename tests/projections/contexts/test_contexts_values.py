"""The public values: counting, JSON, and the pure operations of ContextState."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.contexts import (
    AssistantMsg,
    ContextState,
    Msg,
    NoteMsg,
    Plan,
    SkillRef,
    Summary,
    SystemMsg,
    ToolCall,
    ToolMsg,
    UserMsg,
    from_record,
)
from projections.contexts.compaction import open_calls
from projections.contexts.message import MESSAGE, body_tokens, load_message, read_message
from projections.contexts.tokens import compact, text_tokens, value_tokens

from .contexts_strategies import any_messages, json_values

FIELDS = (
    "kind", "version", "summary", "messages", "skills", "plan", "preflight", "est_tokens", "model_window", "principal",
    "task", "turns", "created", "updated", "dirty",
)  # fmt: skip


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e16, "1e16"),
        (1.5e300, "1.5e300"),
        (-1e-7, "-1e-7"),
        (1e-5, "0.00001"),
        (-1.25e-5, "-0.0000125"),
        (1e-6, "1e-6"),
        (123456789012345680.0, "1.2345678901234568e17"),
        (1e15, "1000000000000000.0"),
        (0.0001, "0.0001"),
        (2.0, "2.0"),
        (2**64 - 1, "18446744073709551615"),
    ],
)
def test_numbers_are_written_as_the_records_runtime_writes_them(number: float, text: str) -> None:
    """Shortest digits, an exponent without plus or leading zeros; alone and inside containers."""
    assert compact(number) == text
    assert compact({"b": [number], "a": "1e-07"}) == f'{{"a":"1e-07","b":[{text}]}}'


@given(json_values)
def test_compact_text_is_the_value(value: Any) -> None:
    """The text parses back to the value, has no spaces and no escapes of printable text, whatever is in it."""
    text = compact(value)
    assert json.loads(text) == value
    assert value_tokens(value) == (1 if value is None else text_tokens(value if isinstance(value, str) else text))


@given(any_messages)
def test_a_message_survives_both_forms(message: Msg) -> None:
    """JSON and array each give the message back, and the estimate is one number."""
    assert read_message(json.loads(json.dumps(message.to_json()))) == message
    assert load_message(message.dump()) == message
    assert MESSAGE.check(message.dump()) == message.dump()
    assert message.est_tokens() == body_tokens(message.dump())


def test_a_message_without_a_time_gets_the_one_of_the_change() -> None:
    """A value may leave ts out; appended, it has the time of the append, and a given time is never replaced."""
    state = ContextState.new("root", 0, at_ms=3).append(UserMsg("a"), at_ms=9).append(UserMsg("b", ts=4))
    assert [message.ts for message in state.messages] == [9, 4]
    assert state.updated == 4
    assert state.append(UserMsg("c")).messages[-1].ts == 4
    assert "ts" not in UserMsg("a").to_json()


def test_the_fifteen_fields_are_there() -> None:
    """ContextState has the fields of the contract under their names, and one for unknown keys."""
    assert tuple(field.name for field in dataclasses.fields(ContextState)) == (*FIELDS, "extra")
    with pytest.raises(dataclasses.FrozenInstanceError):
        ContextState().turns = 1  # type: ignore[misc]


@given(st.lists(any_messages, max_size=5))
def test_pure_operations_leave_their_subject_alone_and_count_right(messages: list[Msg]) -> None:
    """Each operation gives a new value whose estimate is a recount; the old value is as before."""
    start = ContextState.new("conversation", 10, at_ms=1)
    before = start.to_json()
    state = start.append_all(messages, at_ms=2)
    assert state.est_tokens == state.recount() == sum(message.est_tokens() for message in messages)
    assert state.slice() == list(state.messages)
    assert state.needs_compaction() == (state.est_tokens > 7)
    plan = state.plan_compaction(keep_last=0)
    if plan is not None and not open_calls([message.dump() for message in messages]):
        fallen = state.apply_fallback(plan, at_ms=5)
        assert fallen.est_tokens == fallen.recount()
        assert (fallen.version, fallen.messages, fallen.summary.covers_messages) == (2, (), len(messages))
        assert isinstance(fallen.slice()[0], SystemMsg)
    assert start.to_json() == before
    assert start.append_all([]) is start


def test_slice_and_wire_put_the_blocks_first() -> None:
    """Summary, then plan, then messages verbatim; a note becomes a system message with its prefix."""
    summary = Summary(goals=("g",), open=("o",), narrative="n", updated=4)
    record = {"summary": summary.to_json(), "plan": Plan.create("p", ["a"], at_ms=6).to_json()}
    state, _ = from_record(record)
    assert state is not None
    state = state.append_all([NoteMsg("seen", ts=7), UserMsg("hi", "ada", ts=8)])
    assert state.slice() == [
        SystemMsg("Summary of earlier conversation:\nGoals:\n- g\nOpen items:\n- o\nn\n", ts=4),
        SystemMsg("Plan (0/1 done): p\n[ ] 1. a\n", ts=6),
        *state.messages,
    ]
    assert [message["text"] for message in state.to_wire()[2:]] == ["[note] seen", "hi"]
    assert {message["role"] for message in state.to_wire()[:3]} == {"system"}
    assert state.est_tokens == state.recount()


def test_skills_keep_their_order_and_unload_says_whether() -> None:
    """A reloaded skill keeps its place; unloading one that is not loaded gives the same value and False."""
    state = ContextState.new("root", 0).load_skill("a", "1").load_skill("b", "1", at_ms=5).load_skill("a", "2")
    assert state.skills == (SkillRef("a", "2"), SkillRef("b", "1"))
    assert (state.skill_names(), state.updated) == (frozenset({"a", "b"}), 5)
    assert state.unload_skill("zz") == (state, False)
    left, done = state.unload_skill("a", at_ms=6)
    assert (left.skills, done, left.updated) == ((SkillRef("b", "1"),), True, 6)


def test_touch_changes_the_time_and_nothing_else() -> None:
    """Touching sets updated and marks the value as changed."""
    state = ContextState(updated=1)
    assert dataclasses.replace(state.touch(5), updated=1) == state
    assert state.touch(5).dirty and not state.dirty


def test_provider_form_of_results() -> None:
    """Text content goes out as it is, other content as compact JSON; calls and text of an assistant are always
    there."""
    assert ToolMsg("c", "t", "plain").to_wire()["content"] == "plain"
    assert ToolMsg("c", "t", {"b": 1, "a": "é"}).to_wire()["content"] == '{"a":"é","b":1}'
    call = ToolCall("c", "t", {"k": 1}, {"unknown": True})
    assert AssistantMsg(None, (call,)).to_wire()["tool_calls"] == [{"id": "c", "name": "t", "arguments": {"k": 1}}]
