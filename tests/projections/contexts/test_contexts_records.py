"""Records of agentd: what comes in goes out, and what cannot come in is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import ImportRefused
from projections.contexts import ContextState, from_record, to_record
from projections.contexts.transitions import ITEM_STATUSES

from .contexts_shell import Shell
from .contexts_strategies import any_messages, extras, json_values, texts, times

u64 = st.integers(0, 2**64 - 1)


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """Complete records, with keys at every level that this version does not know."""

    def unknown() -> dict[str, Any]:
        return dict(draw(extras) or {})

    def optional(**parts: st.SearchStrategy[Any]) -> dict[str, Any]:
        return {key: draw(strategy) for key, strategy in parts.items() if draw(st.booleans())}

    entries = st.lists(texts, min_size=1, max_size=3)
    summary = optional(goals=entries, decisions=entries, open=entries, facts=entries, narrative=texts)
    bindings = st.sampled_from([{"run": {"id": "r"}}, {"subagent": {"handle": "h", "x": 1}}, {"task": {"id": "t"}}])
    items = [
        {
            "id": number + 1,
            "title": draw(texts),
            "status": draw(st.sampled_from(ITEM_STATUSES)),
            "updated": draw(times),
            **optional(detail=texts, note=texts, bound=bindings),
            **unknown(),
        }
        for number in range(draw(st.integers(0, 3)))
    ]
    plan = {"goal": draw(texts), "items": items, "next_id": 9, "created": draw(u64), "updated": draw(u64), **unknown()}
    skills = [
        {"name": name, "hash": draw(texts), **unknown()} for name in draw(st.lists(texts, min_size=1, max_size=2))
    ]
    record = {
        "kind": draw(st.sampled_from(["root", "conversation"])),
        "version": draw(u64),
        "summary": {**summary, "covers_messages": draw(u64), "updated": draw(u64), **unknown()},
        "messages": [message.to_json() for message in draw(st.lists(any_messages, max_size=4))],
        "model_window": draw(u64),
        "turns": draw(u64),
        "created": draw(u64),
        "updated": draw(u64),
        **optional(principal=texts, task=st.just("t-1"), preflight=json_values.filter(lambda value: value is not None)),
        **({"plan": plan} if draw(st.booleans()) else {}),
        **({"skills": skills} if draw(st.booleans()) else {}),
        **unknown(),
    }
    state, violations = from_record(record)
    assert state is not None and not violations
    return {**record, "est_tokens": state.recount()}


@given(records())
def test_a_record_goes_out_as_it_came_in(record: dict[str, Any]) -> None:
    """Import as an event and export give canonical JSON equal to the record's, unknown keys included."""
    shell = Shell()
    shell.contexts.import_record("c", json.loads(json.dumps(record)))
    assert canonical(shell.contexts.to_record("c")) == canonical(record)
    assert canonical(to_record(shell.contexts.get("c"))) == canonical(record)
    shell.check()


@given(records(), texts)
def test_unknown_keys_survive_later_changes(record: dict[str, Any], text: str) -> None:
    """A conversation that goes on after its import keeps what it does not know, at every level that still exists."""
    shell = Shell()
    shell.contexts.import_record("c", record)
    shell.contexts.append("c", {"role": "user", "text": text, "ts": 1})
    out = shell.contexts.to_record("c")
    known = {**record, "messages": [*record["messages"], {"role": "user", "text": text, "ts": 1}]}
    known |= {"updated": shell.clock, "est_tokens": out["est_tokens"]}
    assert canonical(out) == canonical(known)


BAD: tuple[tuple[dict[str, Any], str, int | None], ...] = (
    ({"messages": [{"role": "user", "text": "ok"}, {"role": "tool", "id": "c"}]}, "messages[1].name", 1),
    ({"messages": [{"role": "boss", "text": "x"}]}, "messages[0].role", 0),
    ({"messages": ["x"]}, "messages[0]", 0),
    ({"messages": [{"role": "user", "text": "x", "ts": -1}]}, "messages[0].ts", 0),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "name": "b"}]}]},
        "messages[0].tool_calls[0].arguments",
        0,
    ),
    ({"messages": [{"role": "tool", "id": "a", "name": "b", "content": 1, "is_error": 0}]}, "messages[0].is_error", 0),
    ({"messages": {}}, "messages", None),
    ({"kind": "group"}, "kind", None),
    ({"version": "1"}, "version", None),
    ({"turns": -1}, "turns", None),
    ({"turns": True}, "turns", None),
    ({"turns": 1.0}, "turns", None),
    ({"est_tokens": -1}, "est_tokens", None),
    ({"summary": None}, "summary", None),
    ({"summary": {"facts": [1]}}, "summary.facts[0]", None),
    ({"skills": [{"name": "a"}]}, "skills[0].hash", None),
    ({"plan": {"items": []}}, "plan.goal", None),
    ({"plan": {"goal": "g", "items": [{"id": 1, "title": "t", "status": "odd"}]}}, "plan.items[0].status", None),
    ({"plan": {"goal": "g", "items": [{"id": 1, "title": "t"}, {"id": 1, "title": "u"}]}}, "plan.items[1].id", None),
    ({"plan": {"goal": "g", "items": [{"id": 1, "title": "t", "bound": {"job": {}}}]}}, "plan.items[0].bound", None),
    (
        {"plan": {"goal": "g", "items": [{"id": 1, "title": "t", "bound": {"run": {}}}]}},
        "plan.items[0].bound.run.id",
        None,
    ),
    ({"principal": 5}, "principal", None),
    ({"task": ""}, "task", None),
    ({"preflight": float("nan")}, "preflight", None),
    ({"unheard": float("inf")}, "unheard", None),
)


@pytest.mark.parametrize(("part", "path", "index"), BAD, ids=[path for _, path, _ in BAD])
def test_a_malformed_part_is_named_and_the_rest_is_kept(part: dict[str, Any], path: str, index: int | None) -> None:
    """The violation has the path and, for a message, its index; refused as a whole, or kept without it on request."""
    good = {"kind": "conversation", "turns": 7, "messages": [{"role": "note", "text": "n", "ts": 3}], **part}
    state, (violation,) = from_record(good)
    assert (violation.path, violation.index) == (path, index)
    shell = Shell()
    with pytest.raises(ImportRefused) as caught:
        shell.contexts.import_record("c", good)
    assert caught.value.violations == [violation.to_json()]
    assert path in str(caught.value) and "c" not in shell.contexts
    outcome = shell.contexts.import_record("c", good, partial=True)
    assert outcome.events[0].data["lost"] == [violation.to_json()]
    assert shell.contexts.get("c") == state
    assert state is not None and state.est_tokens == state.recount()
    if "turns" not in part:
        assert state.turns == 7
    shell.check()


def test_every_malformed_part_is_named_at_once() -> None:
    """One report lists all of them, and every good message is kept in order."""
    messages = [{"role": "user", "text": str(n)} if n % 3 else {"role": "user"} for n in range(9)]
    state, violations = from_record({"messages": messages, "turns": "x", "skills": [{}]})
    assert state is not None
    assert [message.to_wire()["text"] for message in state.messages] == ["1", "2", "4", "5", "7", "8"]
    assert [violation.path for violation in violations] == [
        *(f"messages[{n}].text" for n in (0, 3, 6)),
        "skills[0].name",
        "turns",
    ]


def test_a_malformed_entry_costs_no_more_than_itself() -> None:
    """One bad entry of a summary, or one bad item of a plan, does not lose the others, nor hide what else is wrong."""
    items = [
        {"id": 1, "title": "a", "status": "done"},
        {"id": 2, "title": "b", "status": "odd"},
        {"id": 1, "title": "c"},
        {"id": 4},
        {"id": 5, "title": "e", "bound": {"task": {"id": "t"}}},
    ]
    summary = {
        "goals": ["ship", 5, "test"],
        "facts": "none",
        "narrative": 1,
        "covers_messages": 9,
        "mood": float("inf"),
    }
    state, violations = from_record({"summary": summary, "plan": {"goal": "g", "items": items, "next_id": -1}})
    assert state is not None and state.plan is not None
    assert (state.summary.goals, state.summary.facts, state.summary.narrative) == (("ship", "test"), (), None)
    assert (state.summary.covers_messages, [item.id for item in state.plan.items]) == (9, [1, 5])
    assert [violation.path for violation in violations] == [
        "summary.goals[1]", "summary.facts", "summary.narrative", "summary.mood",
        "plan.items[1].status", "plan.items[2].id", "plan.items[3].title", "plan.next_id",
    ]  # fmt: skip
    state, violations = from_record({"plan": {"goal": None, "items": [{"id": 1, "title": "a"}, 5]}})
    assert state is not None and state.plan is None
    assert [violation.path for violation in violations] == ["plan.items[1]", "plan.goal"]


@pytest.mark.parametrize("value", ["x", None, 5, ["a"], True])
def test_what_is_no_record_gives_no_context(value: Any) -> None:
    """A value that is no object is refused even when the rest may be kept: there is no rest."""
    assert from_record(value).state is None
    shell = Shell()
    with pytest.raises(ImportRefused):
        shell.contexts.import_record("c", value, partial=True)
    assert shell.contexts.ids() == []


def test_an_absent_key_takes_its_default() -> None:
    """An empty object is a root context at version 0 with nothing in it, and with the window that is configured."""
    assert from_record({}, model_window=500).state == ContextState(model_window=500)
    assert from_record({"plan": None, "preflight": None, "principal": None}) == (ContextState(), ())


def test_dirty_is_never_read_or_written() -> None:
    """A record that carries the derived mark goes out without it."""
    state, violations = from_record({"dirty": True})
    assert state is not None and not violations and not state.dirty
    assert "dirty" not in state.to_json()
