"""The golden vectors of the runtime that records come from, and every place where refold differs on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import Refused
from projections.contexts import CompactionPlan, ContextState, Plan, Summary, from_record
from projections.contexts.compaction import fold_point
from projections.contexts.message import UserMsg, body_tokens, read_message
from projections.contexts.plan import read_binding, read_plan
from projections.contexts.plan_update import update_plan
from projections.contexts.summary import SkillRef, read_summary
from projections.contexts.tokens import compact, text_tokens, value_tokens

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "fixtures" / "context-vectors.json").read_text(encoding="utf-8")
)

DIFFERENCES = {
    "apply/lists": "3.1: before compaction the plan block counts too, because slice() emits it",
    "apply/string verdict": "3.1: before compaction the plan block counts too, because slice() emits it",
    "apply/keep0": "3.1: before compaction the plan block counts too, because slice() emits it",
    "apply/wrong type": "3.1: the estimate that is left standing counts the plan block",
    "fallback_twice/after_second": "3.2: the first fallback's text stays, so the narrative and the estimate are longer",
    "plan_ops/5": "3.4: the insert of a refused update is not done",
    "plan_ops/7": "3.4: the status of a refused update is not set",
    "recount/empty": "3.1: an empty summary counts nothing",
    "recount/one user": "3.1: an empty summary counts nothing",
    "recount/user+plan": "3.1: an empty summary counts nothing, and the plan counts as soon as it is there",
    "recount/user+plan+summary": "3.1: summary and plan count as soon as they are there, before any recount",
    "restore/empty object": "3.1: an empty summary counts nothing",
    "restore/plan null": "3.1: an empty summary counts nothing",
    "restore/own window kept": "3.1: an empty summary counts nothing",
    "restore/one bad of two": "1: one malformed message is reported, the rest of the record is kept",
    "restore/negative turns": "1: never the whole context lost; the field is reported and takes its default",
    "restore/summary null": "1: never the whole context lost; the field is reported and takes its default",
    "restore/skill missing hash": "1: never the whole context lost; the skill is reported and left out",
}
"""Vector -> section of the contract that wins over it, and why."""


def read_context(shape: Any) -> ContextState:
    state, violations = from_record(shape)
    assert state is not None and not violations
    return state


def rule_of(call: Any) -> str | None:
    try:
        call()
    except Refused as error:
        rule: str = error.details["rule"]
        return rule
    return None


# -- what each vector gives here: (ours, theirs)
# ------------------------------------------------------------------------


def run_apply(vector: Any) -> tuple[Any, Any]:
    before = read_context(vector["before"])
    plan = CompactionPlan(vector["fold"], vector["planned_version"], (), Summary())
    try:
        after = before.apply_compaction(plan, vector["verdict"], at_ms=0)
        result: Any = {
            "after_tokens": after.est_tokens,
            "before_tokens": before.est_tokens,
            "folded": len(before.messages) - len(after.messages),
            "version": after.version,
        }
    except Refused as error:
        after, result = before, {"error": error.details["rule"]}
    ours = {"after": after.to_json(), "result": result, "slice_len": len(after.slice())}
    return ours, {key: vector[key] for key in ours}


def run_fallback(name: str) -> tuple[Any, Any]:
    state = ContextState.new("conversation", 1000)
    state = state.append_all(UserMsg(f"m{n}", ts=0) for n in range(6))
    states = {}
    for step, more in (("after_first", range(6, 10)), ("after_second", range(0))):
        plan = state.plan_compaction(keep_last=2)
        assert plan is not None
        state = state.apply_fallback(plan, at_ms=0)
        shape = state.to_json()
        narrative = shape["summary"].pop("narrative")
        shape["summary"]["narrative_mentions"] = [f"m{n}" for n in range(10) if f"m{n}" in narrative]
        states[step] = shape
        state = state.append_all(UserMsg(f"m{n}", ts=0) for n in more)
    return states[name], VECTORS["fallback_twice"][name]


def run_plan_op(index: int) -> tuple[Any, Any]:
    vector = VECTORS["plan_ops"][index]
    before = None if index == 0 else read_plan(VECTORS["plan_ops"][index - 1]["plan"])
    error, advanced, plan = None, None, before
    try:
        if vector["op"] == "create":
            plan = Plan.create(vector["args"]["goal"], vector["args"]["items"], max_items=vector["max_items"])
        elif vector["op"] == "update":
            assert before is not None
            plan = update_plan(before, vector["args"], max_items=4)
        else:
            assert before is not None
            plan, ids = before.settle(read_binding(vector["binding"]), vector["success"], vector["note"])
            advanced = list(ids)
    except Refused as refusal:
        error = refusal.details["rule"]
    assert plan is not None
    ours = {
        "plan": plan.to_json(),
        "complete": plan.is_complete(),
        "progress": plan.progress(),
        "render_chars": len(plan.render()),
        "error": error,
        "ok": error is None,
        "advanced": advanced,
    }
    return {key: value for key, value in ours.items() if key in vector}, {
        key: vector[key] for key in ours if key in vector
    }


def run_recount(vector: Any) -> tuple[Any, Any]:
    messages = tuple(map(read_message, vector["messages"]))
    state = ContextState.new("conversation", 0).append_all(messages)
    if vector["plan_render_chars"] is not None:
        plan = Plan.create("g", ["a"])
        assert len(plan.render()) == vector["plan_render_chars"]
        state = read_context({**state.to_json(), "plan": plan.to_json()})
    if vector["summary_render_chars"] != len(Summary().render()):
        summary = Summary(goals=("close audit",))
        assert len(summary.render()) == vector["summary_render_chars"]
        state = read_context({**state.to_json(), "summary": summary.to_json()})
    return {"incremental": state.est_tokens, "recount": state.recount()}, {
        "incremental": vector["incremental"],
        "recount": vector["recount"],
    }


def run_restore(vector: Any) -> tuple[Any, Any]:
    state, violations = from_record(vector["state"], model_window=vector["configured_window"])
    ours = {
        "lost": state is None,
        "restored": None if state is None else state.to_json(),
        "dirty": None if state is None else state.dirty,
    }
    if state is not None:
        assert bool(violations) == vector["lost"], "what made the whole record be lost there is named here"
    return ours, {key: vector[key] for key in ours}


def stateful() -> dict[str, tuple[Any, Any]]:
    """Every vector that a difference may concern, by name."""
    found = {f"apply/{vector['name']}": run_apply(vector) for vector in VECTORS["apply"]}
    for vector in VECTORS["apply"]:  # the estimate before: theirs is in the vector, ours is a recount
        ours, theirs = found[f"apply/{vector['name']}"]
        ours["before"] = read_context(vector["before"]).est_tokens
        theirs["before"] = vector["before"]["est_tokens"]
    found |= {f"fallback_twice/{name}": run_fallback(name) for name in VECTORS["fallback_twice"]}
    found |= {f"plan_ops/{index}": run_plan_op(index) for index in range(len(VECTORS["plan_ops"]))}
    found |= {f"recount/{vector['name']}": run_recount(vector) for vector in VECTORS["recount"]}
    found |= {f"restore/{vector['name']}": run_restore(vector) for vector in VECTORS["restore"]}
    return found


RUN = stateful()


@pytest.mark.parametrize("name", [name for name in RUN if name not in DIFFERENCES])
def test_a_vector_comes_out_exactly(name: str) -> None:
    """A vector that the contract does not contradict gives exactly what the runtime gave."""
    ours, theirs = RUN[name]
    assert ours == theirs


def test_every_difference_is_listed_and_is_what_its_reason_says() -> None:
    """The vectors that come out otherwise are exactly the listed ones, each in what its reason names and nothing
    else."""
    assert {name for name, (ours, theirs) in RUN.items() if ours != theirs} == set(DIFFERENCES)
    plan_block = text_tokens(Plan.create("goal", ["a"]).render())
    for name in ("lists", "string verdict", "keep0", "wrong type"):
        ours, theirs = RUN[f"apply/{name}"]
        assert ours.pop("before") == theirs.pop("before") + plan_block
        if name == "wrong type":
            theirs["after"]["est_tokens"] += plan_block
        else:
            theirs["result"]["before_tokens"] += plan_block
        assert ours == theirs
    ours, theirs = RUN["fallback_twice/after_second"]
    assert ours["summary"].pop("narrative_mentions") == [f"m{n}" for n in range(8)]
    assert theirs["summary"].pop("narrative_mentions") == [f"m{n}" for n in range(4, 8)]
    first_text = "\n".join(f"[user] m{n}" for n in range(4)) + "\n"
    assert ours.pop("est_tokens") == theirs.pop("est_tokens") + text_tokens(first_text)
    assert ours == theirs
    for index in (5, 7):
        ours, theirs = RUN[f"plan_ops/{index}"]
        assert ours["error"] == theirs["error"] is not None
        assert ours["plan"] == VECTORS["plan_ops"][index - 1]["plan"]
    empty_block = text_tokens(Summary().render())
    assert empty_block == 9
    for vector in VECTORS["recount"]:
        ours, theirs = RUN[f"recount/{vector['name']}"]
        right = theirs["recount"] - (empty_block if "summary" not in vector["name"] else 0)
        assert ours == {"incremental": right, "recount": right}
    for name in ("empty object", "plan null", "own window kept"):
        ours, theirs = RUN[f"restore/{name}"]
        theirs["restored"]["est_tokens"] -= empty_block
        assert ours == theirs
    kept = {
        "one bad of two": (
            "messages[1].name",
            {"messages": [{"role": "user", "text": "ok", "ts": 0}], "est_tokens": 5},
        ),
        "negative turns": ("turns", {}),
        "summary null": ("summary", {}),
        "skill missing hash": ("skills[0].hash", {}),
    }
    blank = RUN["restore/empty object"][0]["restored"]
    for vector in VECTORS["restore"]:
        if vector["name"] in kept:
            path, parts = kept[vector["name"]]
            state, violations = from_record(vector["state"], model_window=500)
            assert state is not None and state.to_json() == {**blank, **parts}
            assert [violation.path for violation in violations] == [path]


# -- vectors that nothing in the contract contradicts
# -------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS["text_tokens"], ids=lambda vector: vector["in"])
def test_text_tokens(vector: Any) -> None:
    """A text costs a quarter of its code points, rounded up."""
    text = "x" * 33 if vector["in"].startswith("(33 ") else vector["in"]
    assert text_tokens(text) == vector["est"]


@pytest.mark.parametrize("vector", VECTORS["value_tokens"], ids=lambda vector: vector["compact"])
def test_value_tokens(vector: Any) -> None:
    """A JSON value costs what its compact text costs."""
    assert (compact(vector["in"]), value_tokens(vector["in"])) == (vector["compact"], vector["est"])


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda vector: vector["in"]["role"])
def test_messages(vector: Any) -> None:
    """A message is stored, sent and counted as the runtime does."""
    message = read_message(vector["in"])
    assert (message.to_json(), message.to_wire()) == (vector["stored"], vector["wire"])
    assert message.est_tokens() == body_tokens(message.dump()) == vector["est"]


@pytest.mark.parametrize("vector", VECTORS["fold"], ids=lambda vector: vector["name"])
def test_fold_points(vector: Any) -> None:
    """Every keep and target of the table folds where the runtime folds."""
    messages = tuple(map(read_message, vector["messages"]))
    assert [message.est_tokens() for message in messages] == vector["est"]
    bodies = [message.dump() for message in messages]
    table = [[keep, target, fold_point(bodies, keep, target)] for keep, target, _ in vector["table_keep_target_fold"]]
    assert table == vector["table_keep_target_fold"]


@pytest.mark.parametrize("vector", VECTORS["needs_compaction"], ids=str)
def test_needs_compaction(vector: Any) -> None:
    """The threshold is strict, and an unknown window never asks."""
    state = ContextState(est_tokens=vector["est"], model_window=vector["window"])
    assert state.needs_compaction(vector["compact_at"]) == vector["out"]


@pytest.mark.parametrize("vector", VECTORS["absorb"], ids=str)
def test_absorb(vector: Any) -> None:
    """Summaries merge: unseen entries appended, the last 32 kept, covered messages added up."""
    assert read_summary(vector["base"]).absorb(read_summary(vector["newer"])).to_json() == vector["out"]


@pytest.mark.parametrize("vector", VECTORS["plan_create"], ids=str)
def test_plan_create(vector: Any) -> None:
    """A plan is made or refused, with the runtime's code as the rule."""

    def create() -> Plan:
        return Plan.create(vector["goal"], vector["items"], max_items=vector["max_items"])

    assert rule_of(create) == vector["error"]
    if vector["ok"]:
        assert create().to_json() == vector["plan"]


def test_skills() -> None:
    """Loading and unloading in sequence gives the runtime's skills, results and dirtiness at every step."""
    skills: tuple[SkillRef, ...] = ()
    for vector in VECTORS["skills"]:
        state = ContextState(skills=skills)
        result: Any = "ok"
        try:
            if vector["op"] == "load":
                state = state.load_skill(vector["name"], vector["hash"], vector["max_loaded"])
            else:
                state, result = state.unload_skill(vector["name"])
        except Refused as error:
            result = {"error": error.details["rule"]}
        skills = state.skills
        assert [skill.to_json() for skill in skills] == vector["skills"]
        assert (result, state.dirty) == (vector["result"], vector["dirty"])
