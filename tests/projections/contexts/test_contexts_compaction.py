"""Compaction: where a conversation may be folded, what is left of it, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import Refused
from engine.core.limits import NARRATIVE_BYTES_MAX, SUMMARY_ENTRIES_MAX, TRANSCRIPT_CHARS_MAX
from projections.contexts import (
    AssistantMsg,
    CompactionPlan,
    ContextState,
    Msg,
    NoteMsg,
    Summary,
    SystemMsg,
    ToolCall,
    ToolMsg,
    UserMsg,
)
from projections.contexts.compaction import fallback_narrative, fold_point, open_calls

from .contexts_shell import Shell
from .contexts_strategies import any_messages, conversations

CALL = ToolCall("c1", "kv.get", {"key": "c1"})


def fold_of(messages: list[Msg], keep_last: int, target: int | None = None) -> int | None:
    return fold_point([message.dump() for message in messages], keep_last, target)


def orphans(kept: list[Msg], everything: list[Msg]) -> list[Msg]:
    """Results in the kept window whose call was in the conversation and is no longer there; written naively."""
    lost = []
    for place, message in enumerate(kept):
        if isinstance(message, ToolMsg):
            before = everything[: len(everything) - len(kept) + place]
            had = any(message.id == call.id for m in before if isinstance(m, AssistantMsg) for call in m.tool_calls)
            has = any(
                message.id == call.id for m in kept[:place] if isinstance(m, AssistantMsg) for call in m.tool_calls
            )
            lost += [message] if had and not has else []
    return lost


def rule(call: object) -> str:
    with pytest.raises(Refused) as caught:
        call()  # type: ignore[operator]
    named: str = caught.value.details["rule"]
    return named


@given(conversations(), st.integers(0, 14), st.none() | st.integers(0, 60))
def test_no_fold_orphans_a_tool_result(messages: list[Msg], keep_last: int, target: int | None) -> None:
    """Whatever is kept, every result still has its call in front of it, in the order it was said (Z31, A1)."""
    fold = fold_of(messages, keep_last, target)
    if fold is not None:
        assert 1 <= fold <= len(messages)
        assert orphans(messages[fold:], messages) == []


@given(conversations(), st.integers(0, 14), st.none() | st.integers(0, 60))
def test_no_fold_makes_the_window_start_inside_a_turn(messages: list[Msg], keep_last: int, target: int | None) -> None:
    """The kept window starts with a user message; or only notes and system messages went, or everything did (A2)."""
    fold = fold_of(messages, keep_last, target)
    if fold is not None and fold < len(messages) and not isinstance(messages[fold], UserMsg):
        assert all(isinstance(message, NoteMsg | SystemMsg) for message in messages[:fold])


@given(st.lists(any_messages, max_size=12), st.integers(0, 14), st.none() | st.integers(0, 60))
def test_fold_rule_bounds(messages: list[Msg], keep_last: int, target: int | None) -> None:
    """Fewer than keep_last + 2 messages give none; without a target at least keep_last stay; a target folds no less."""
    fold = fold_of(messages, keep_last, None)
    if len(messages) < keep_last + 2:
        assert fold is None
    if fold is not None:
        assert len(messages) - fold >= keep_last
        assert (fold_of(messages, keep_last, target) or 0) >= fold


@given(st.lists(any_messages, max_size=12), st.integers(0, 6))
def test_a_planned_fold_is_applied_at_once_unless_a_call_waits(messages: list[Msg], keep_last: int) -> None:
    """What plan_compaction gives is accepted by apply_compaction, but for a call whose result may still come."""
    state = ContextState.new("conversation", 0).append_all(messages)
    plan = state.plan_compaction(keep_last)
    if plan is None:
        return
    try:
        folded = state.apply_compaction(plan, {"facts": ["f"]}, at_ms=1)
    except Refused as error:
        assert error.details["rule"] == "open_call"
        assert open_calls([message.dump() for message in messages])
        return
    assert folded.messages == state.messages[plan.fold :]
    assert folded.version == state.version + 1
    assert folded.est_tokens == folded.recount()


def test_a_user_between_a_call_and_its_result_is_no_boundary() -> None:
    """The boundary walks past a user message that would split a call from its result."""
    messages: list[Msg] = [UserMsg("a"), AssistantMsg(None, (CALL,)), UserMsg("hurry"), ToolMsg("c1", "kv.get", 1)]
    assert fold_of([NoteMsg("n"), *messages], 2) == 1
    assert fold_of(messages, 2) is None


def test_a_second_answer_is_kept_and_goes_with_its_call() -> None:
    """A runtime that ran a call twice said two results: both are recorded in order, no call waits, and no fold keeps
    one of them without the call."""
    answers = [ToolMsg("c1", "kv.get", 1), ToolMsg("c1", "kv.get", 2), ToolMsg("c9", "kv.get", "asked for by nobody")]
    messages: list[Msg] = [UserMsg("q"), AssistantMsg(tool_calls=(CALL,)), answers[0], UserMsg("hm"), *answers[1:]]
    messages += [AssistantMsg("done"), UserMsg("next"), AssistantMsg("yes")]
    shell = Shell()
    shell.contexts.create("c")
    shell.contexts.append_all("c", messages)
    assert [m.content for m in shell.contexts.messages("c") if isinstance(m, ToolMsg)] == [m.content for m in answers]
    assert shell.contexts.open_calls("c") == ()
    folds = {keep: fold_of(messages, keep) for keep in range(len(messages) - 1)}
    assert set(folds.values()) == {None, 7, len(messages)}
    plan = shell.contexts.plan_compaction("c", keep_last=2)
    assert plan is not None
    shell.contexts.apply_compaction("c", plan, "prose")
    assert [m.to_wire()["text"] for m in shell.contexts.messages("c")] == ["next", "yes"]
    shell.check()


def test_folding_a_call_that_waits_is_refused() -> None:
    """With keep_last 0 the plan takes everything, and applying it refuses to take a call whose result may still
    come."""
    shell = Shell()
    shell.contexts.create("c")
    shell.contexts.append_all("c", [UserMsg("a"), AssistantMsg("b"), UserMsg("c"), AssistantMsg(None, (CALL,))])
    plan = shell.contexts.plan_compaction("c", keep_last=0)
    assert plan is not None and plan.fold == 4
    assert rule(lambda: shell.contexts.apply_compaction("c", plan, "prose")) == "open_call"
    assert rule(lambda: shell.contexts.apply_fallback("c", plan)) == "open_call"
    shell.contexts.append("c", ToolMsg("c1", "kv.get", None))
    assert rule(lambda: shell.contexts.apply_compaction("c", plan, "prose")) == "orphaned_result"


def test_a_fold_is_judged_by_the_messages_as_they_are_now() -> None:
    """A plan that everything was to go under does not leave an assistant message first when one came after it."""
    shell = Shell()
    shell.contexts.create("c")
    shell.contexts.append_all("c", [UserMsg("a"), UserMsg("b")])
    plan = shell.contexts.plan_compaction("c", keep_last=0)
    assert plan is not None
    shell.contexts.append("c", AssistantMsg("late"))
    assert rule(lambda: shell.contexts.apply_compaction("c", plan, "prose")) == "bad_start"
    assert rule(lambda: shell.contexts.apply_compaction("c", CompactionPlan(9, 1, (), Summary()), "p")) == "fold_range"
    assert rule(lambda: shell.contexts.apply_compaction("c", CompactionPlan(0, 1, (), Summary()), "p")) == "fold_range"


def test_messages_that_came_after_the_plan_are_kept() -> None:
    """Appending between plan and apply does not move the version; the late message is kept and the plan applies."""
    shell = Shell()
    shell.contexts.create("c")
    shell.contexts.append_all("c", [UserMsg(f"m{n}") for n in range(5)])
    plan = shell.contexts.plan_compaction("c", keep_last=2)
    assert plan is not None and plan.transcript == "[user] m0\n[user] m1\n[user] m2"
    shell.contexts.append("c", NoteMsg("late"))
    shell.contexts.apply_compaction("c", plan, {"goals": ["g"]})
    assert [m.to_wire()["text"] for m in shell.contexts.messages("c")] == ["m3", "m4", "[note] late"]
    assert shell.contexts.get("c").version == 2


def test_a_plan_of_another_version_is_refused() -> None:
    """Of two compactions planned at one version the second is refused and changes nothing."""
    shell = Shell()
    shell.contexts.create("c")
    shell.contexts.append_all("c", [UserMsg(f"m{n}") for n in range(9)])
    first = shell.contexts.plan_compaction("c", keep_last=6)
    second = shell.contexts.plan_compaction("c", keep_last=2)
    assert first is not None and second is not None
    shell.contexts.apply_compaction("c", first, "prose")
    before = shell.state.bytes()
    assert rule(lambda: shell.contexts.apply_compaction("c", second, "prose")) == "version_moved"
    assert rule(lambda: shell.contexts.apply_fallback("c", second)) == "version_moved"
    assert shell.state.bytes() == before


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        ({}, "empty_verdict"),
        ("", "empty_verdict"),
        (" \n", "empty_verdict"),
        ({"goals": [], "narrative": None}, "empty_verdict"),
        ({"goals": [""], "facts": ["  "], "narrative": ""}, "empty_verdict"),
        ({"goals": "x"}, "verdict_schema"),
        ({"facts": [1]}, "verdict_schema"),
        ({"narrative": 5}, "verdict_schema"),
        (["g"], "verdict_schema"),
        (None, "verdict_schema"),
        (7, "verdict_schema"),
    ],
)
def test_a_verdict_that_says_nothing_or_does_not_fit_is_refused(verdict: object, expected: str) -> None:
    """Nothing is folded under an empty verdict or one of another shape; state and version stay."""
    shell = Shell()
    shell.contexts.create("c")
    shell.contexts.append_all("c", [UserMsg(f"m{n}") for n in range(4)])
    plan = shell.contexts.plan_compaction("c", keep_last=1)
    assert plan is not None
    before = shell.state.bytes()
    assert rule(lambda: shell.contexts.apply_compaction("c", plan, verdict)) == expected
    assert shell.state.bytes() == before


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=5), max_size=6))
def test_summary_lists_merge_without_repeats_and_stay_bounded(verdicts: list[list[str]]) -> None:
    """Entries already there are not appended again, order is of first mention, and covers_messages adds up."""
    summary, seen = Summary(), []
    for entries in verdicts:
        summary = summary.absorb(Summary(open=tuple(entries), covers_messages=2))
        seen += [entry for entry in entries if entry not in seen]
        seen = list(dict.fromkeys(seen))
    assert list(summary.open) == seen
    assert summary.covers_messages == 2 * len(verdicts)
    many = summary.absorb(Summary(open=tuple(map(str, range(100)))))
    assert list(many.open) == [str(n) for n in range(100 - SUMMARY_ENTRIES_MAX, 100)]


def test_a_newer_narrative_replaces_and_a_missing_one_does_not() -> None:
    """The narrative is replaced when the newer verdict has one, and stays when it has none."""
    first = Summary().absorb(Summary(narrative="one"))
    assert first.absorb(Summary(narrative="two")).narrative == "two"
    assert first.absorb(Summary(facts=("f",))).narrative == "one"


@given(st.text(max_size=30), st.lists(any_messages, min_size=1, max_size=5), st.integers(1, 500))
def test_a_fallback_narrative_is_bounded_and_ends_with_the_newest(
    earlier: str, messages: list[Msg], times: int
) -> None:
    """However often it is extended, the narrative fits its limit, is never blank, and says when lines made room."""
    narrative = earlier or None
    bodies = [message.dump() for message in messages] * times
    for _ in range(2):
        narrative = fallback_narrative(narrative, bodies)
        assert 0 < len(narrative.encode()) <= NARRATIVE_BYTES_MAX
    kept_all = fallback_narrative(None, bodies[:1])
    assert kept_all in narrative or narrative.startswith("(earlier messages elided)")


def test_a_fallback_line_is_cut_not_dropped() -> None:
    """One message larger than the limit is cut to it; a long text is cut at its own limit and marked."""
    calls = tuple(ToolCall(f"c{n}", "t", "x" * 5_000) for n in range(9))
    narrative = fallback_narrative(None, [AssistantMsg("x", calls).dump()])
    assert NARRATIVE_BYTES_MAX - 3 <= len(narrative.encode()) <= NARRATIVE_BYTES_MAX
    assert fallback_narrative(None, [UserMsg("y" * 5_000).dump()]) == f"[user] {'y' * TRANSCRIPT_CHARS_MAX}…"


def test_transcript_lines_name_role_caller_tool_and_error() -> None:
    """Each role has its own line form, so a summariser can tell who said what."""
    messages: list[Msg] = [
        SystemMsg("be kind"),
        UserMsg("hi", "ada"),
        AssistantMsg("look", (CALL, ToolCall("c2", "now", {}))),
        ToolMsg("c1", "kv.get", {"b": 1, "a": "é"}, is_error=True),
        NoteMsg("done"),
    ]
    assert fallback_narrative("so far", [message.dump() for message in messages]).split("\n") == [
        "so far",
        "[system] be kind",
        "[user ada] hi",
        '[assistant] look calls: kv.get({"key":"c1"}), now({})',
        '[tool kv.get error] {"a":"é","b":1}',
        "[note] done",
    ]
