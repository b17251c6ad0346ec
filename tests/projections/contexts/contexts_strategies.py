"""Hypothesis strategies for conversations: any messages at all, and those that a well-behaved runtime would append."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from projections.contexts import AssistantMsg, Msg, NoteMsg, SystemMsg, ToolCall, ToolMsg, UserMsg

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
times = st.integers(0, 2**64 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)  # -0.0 is stored as 0.0
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
extras = st.none() | st.dictionaries(st.sampled_from(["trace", "lang", "x-1"]), json_values, min_size=1, max_size=2)
call_ids = st.sampled_from(["c1", "c2", "c3"])
calls = st.builds(ToolCall, call_ids, texts, json_values, extras)

any_messages: st.SearchStrategy[Msg] = st.one_of(
    st.builds(SystemMsg, texts, ts=times, extra=extras),
    st.builds(NoteMsg, texts, ts=times, extra=extras),
    st.builds(UserMsg, texts, st.none() | texts, ts=times, extra=extras),
    st.builds(AssistantMsg, st.none() | texts, st.lists(calls, max_size=2).map(tuple), ts=times, extra=extras),
    st.builds(ToolMsg, call_ids, texts, json_values, st.booleans(), ts=times, extra=extras),
)
"""Messages in no order that makes sense: results without calls, calls without results."""


@st.composite
def conversations(draw: st.DrawFn, max_turns: int = 6) -> list[Msg]:
    """Turns with unique call ids. Results come after their calls; a user may speak before they do, and a turn may be
    cut off."""
    messages: list[Msg] = []
    number = 0
    for _ in range(draw(st.integers(0, max_turns))):
        messages += draw(st.lists(st.sampled_from([NoteMsg("n", ts=0), SystemMsg("s", ts=0)]), max_size=2))
        if draw(st.booleans()):
            messages.append(UserMsg("ask", ts=0))
        for _ in range(draw(st.integers(0, 2))):
            made = [ToolCall(f"c{number + index}", "tool", {}) for index in range(draw(st.integers(0, 2)))]
            number += len(made)
            messages.append(AssistantMsg("say", tuple(made), ts=0))
            if draw(st.integers(0, 5)) == 0:
                messages.append(UserMsg("hurry", ts=0))
            answered = draw(st.integers(0, len(made))) if draw(st.integers(0, 5)) == 0 else len(made)
            messages += [ToolMsg(call.id, call.name, "ok", ts=0) for call in made[:answered]]
    return messages
