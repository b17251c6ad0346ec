"""What an operation costs: it follows what changes, never how long the conversation is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from projections.contexts import AssistantMsg, ToolCall, ToolMsg, UserMsg

from .contexts_shell import Shell


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions, Python's and C's, a piece of work calls: a count that no noise of the machine can move."""
    count = 0

    def tick(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tick)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def talk(shell: Shell, count: int) -> None:
    shell.contexts.append_all("c", [UserMsg("a question of some length", ts=1) for _ in range(count)])


def test_the_ten_thousandth_message_costs_what_the_first_did() -> None:
    """Appending does the same amount of work at 2 messages and at 10,000, and changes the same number of records."""
    shell = Shell()
    shell.contexts.create("c")
    talk(shell, 1)

    def append() -> None:
        shell.contexts.append("c", UserMsg("a question of some length", ts=1), at_ms=5)

    early = calls_of(append)
    talk(shell, 9_997)
    for table in shell.state.tables.values():
        table.changed.clear()  # as after a checkpoint
    late = calls_of(append)
    assert shell.contexts.message_count("c") == 10_000
    assert late <= early + 5
    changed = {name: list(table.changed) for name, table in shell.state.tables.items() if table.changed}
    assert changed == {"contexts.contexts": ["c"], "contexts.messages": [(0, 9_999)]}


def test_cheap_reads_do_not_read_messages() -> None:
    """Estimate, count, threshold and a slice of messages cost the same at 10 messages and at 5,000."""
    shell = Shell()
    shell.contexts.create("c", model_window=100)
    reads: list[Callable[[], Any]] = [
        lambda: shell.contexts.est_tokens("c"),
        lambda: shell.contexts.message_count("c"),
        lambda: shell.contexts.needs_compaction("c"),
        lambda: shell.contexts.messages("c", -3),
        lambda: shell.contexts.plan("c"),
    ]
    talk(shell, 10)
    early = [calls_of(read) for read in reads]
    talk(shell, 4_990)
    assert [calls_of(read) for read in reads] == early


def test_folding_changes_what_was_folded_and_the_header() -> None:
    """A compaction touches the folded messages, the header and the summary, not the kept messages."""
    shell = Shell()
    shell.contexts.create("c")
    talk(shell, 500)
    for table in shell.state.tables.values():
        table.changed.clear()
    plan = shell.contexts.plan_compaction("c", keep_last=400)
    assert plan is not None
    shell.contexts.apply_compaction("c", plan, "prose")
    assert len(shell.state.tables["contexts.messages"].changed) == 100
    assert shell.contexts.message_count("c") == 400


def test_a_header_does_not_grow() -> None:
    """The record that every event rewrites has the same size after 3,000 messages as after 300, give or take its
    counters."""
    shell = Shell()
    shell.contexts.create("c", principal="ada")
    talk(shell, 300)
    early = len(str(shell.part.contexts.rows["c"].dump()))
    talk(shell, 2_700)
    assert len(str(shell.part.contexts.rows["c"].dump())) <= early + 4


def test_a_message_event_is_compact() -> None:
    """An appended message costs its content and a few bytes: no keys, no time of its own, no empty parts."""
    from engine.core.codec import encode

    shell = Shell()
    shell.contexts.create("c")
    shell.contexts.append("c", UserMsg("x" * 100), at_ms=1_700_000_000_000)
    assert len(encode(shell.wires()[-1])) <= 100 + 25
    shell.contexts.append("c", AssistantMsg(None, (ToolCall("c1", "t", "y" * 100),)), at_ms=1_700_000_000_000)
    shell.contexts.append("c", ToolMsg("c1", "t", "z" * 100), at_ms=1_700_000_000_000)
    assert [len(encode(wire)) <= 100 + 35 for wire in shell.wires()[-2:]] == [True, True]
