"""The handle: every reading command gives what the record says, and bad arguments are named."""

from __future__ import annotations

import pytest

from engine.core.errors import InvalidValue, NotFound
from projections.contexts import NoteMsg, Plan, UserMsg
from projections.contexts.commands import ImportContext

from .contexts_shell import Shell


def test_the_queries_are_the_record_in_parts() -> None:
    """Slice, wire form, skills, plan, messages and counts agree with the whole record."""
    shell = Shell()
    shell.contexts.create("c", model_window=9)
    shell.contexts.append_all("c", [NoteMsg("n"), UserMsg("u"), UserMsg("v")])
    shell.contexts.load_skill("c", "s", "h")
    shell.contexts.create_plan("c", "g", ["a"])
    state, handle = shell.contexts.get("c"), shell.contexts
    assert handle.slice("c") == state.slice()
    assert handle.to_wire("c") == state.to_wire()
    assert handle.skill_names("c") == state.skill_names() == {"s"}
    assert handle.plan("c") == state.plan
    assert handle.messages("c", 1) == state.messages[1:]
    assert handle.messages("c", -1) == handle.messages("c", 2, 3) == state.messages[-1:]
    assert handle.message_count("c") == 3
    assert handle.to_record("c") == state.to_json()
    assert handle.needs_compaction("c") == state.needs_compaction() is True
    assert handle.plan_compaction("c", 1) == state.plan_compaction(1)
    assert handle.ids() == ["c"] and "c" in handle and "d" not in handle


def test_reading_appends_nothing() -> None:
    """Every query leaves state and journal as they were (G12)."""
    shell = Shell()
    shell.contexts.create("c")
    before = shell.state.bytes()
    test_reads = (
        shell.contexts.get, shell.contexts.slice, shell.contexts.to_wire, shell.contexts.plan, shell.contexts.recount,
        shell.contexts.open_calls, shell.contexts.plan_compaction, shell.contexts.to_record, shell.contexts.messages,
    )  # fmt: skip
    for read in test_reads:
        read("c")
        with pytest.raises(NotFound):
            read("zz")
    assert (shell.state.bytes(), len(shell.groups)) == (before, 1)


def test_bad_arguments_are_named() -> None:
    """The error's path is the argument's name, before anything is recorded."""
    shell = Shell()
    shell.contexts.create("c")
    for path, call in (
        ("compact_at", lambda: shell.contexts.needs_compaction("c", float("nan"))),
        ("keep_last", lambda: shell.contexts.plan_compaction("c", -1)),
        ("target", lambda: shell.contexts.plan_compaction("c", 1, True)),
        ("messages[1].text", lambda: shell.contexts.append_all("c", [UserMsg("a"), {"role": "user", "text": 5}])),
        ("messages[0].ts", lambda: shell.contexts.append("c", {"role": "user", "text": "a", "ts": None})),
        ("messages[0].text", lambda: shell.contexts.append("c", UserMsg("\ud800"))),
        ("goal", lambda: Plan.create("\ud800")),
        ("items[1].title", lambda: Plan.create("g", ["a", "\ud800"])),
        ("parts", lambda: ImportContext.make(context="c", parts=[])),
    ):
        with pytest.raises(InvalidValue) as caught:
            call()
        assert caught.value.path == path
    assert len(shell.groups) == 1
