"""A state machine over every command, against a model that keeps plain JSON and counts from scratch."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core.errors import Refused
from projections.contexts import Msg, from_record
from projections.contexts.transitions import ITEM_STATUSES

from .contexts_shell import Shell, derived, replay, restored
from .contexts_strategies import any_messages, extras, json_values, texts

IDS = ("a", "a//b", "a/b")
some_id = st.sampled_from(IDS)
task_ids = st.sampled_from(["t1", "t2"])


# -- the model: written without a look at the code under test
# -----------------------------------------------------------


def text_cost(text: str) -> int:
    return -(-len(text) // 4)


def value_cost(value: Any) -> int:
    if isinstance(value, str):
        return text_cost(value)
    if value is None:
        return 1
    from projections.contexts.tokens import compact  # the number form has its own test

    return text_cost(compact(value))


def message_cost(message: dict[str, Any]) -> int:
    if message["role"] == "tool":
        return 4 + value_cost(message["content"])
    calls = message.get("tool_calls", [])
    return (
        4 + text_cost(message.get("text", "")) + sum(text_cost(c["name"]) + value_cost(c["arguments"]) for c in calls)
    )


def summary_block(summary: dict[str, Any]) -> str:
    titles = {"goals": "Goals:", "decisions": "Decisions:", "open": "Open items:", "facts": "Facts:"}
    out = ""
    for key, title in titles.items():
        if key in summary:
            out += title + "\n" + "".join(f"- {entry}\n" for entry in summary[key])
    if summary.get("narrative"):
        out += summary["narrative"] + "\n"
    return "Summary of earlier conversation:\n" + out if out else ""


def plan_block(plan: dict[str, Any]) -> str:
    marks = {"pending": " ", "in_progress": "~", "done": "x", "blocked": "!", "skipped": "-"}
    done = sum(item["status"] == "done" for item in plan["items"])
    out = f"Plan ({done}/{len(plan['items'])} done): {plan['goal']}\n"
    for item in plan["items"]:
        out += f"[{marks[item['status']]}] {item['id']}. {item['title']}"
        out += f" — {item['detail']}" if "detail" in item else ""
        out += f" ({item['note']})" if "note" in item else ""
        for kind, inner in item.get("bound", {}).items():
            out += f" [{kind} {inner.get('id', inner.get('handle'))}]"
        out += "\n"
    return out


def naive_cost(record: dict[str, Any]) -> int:
    blocks = text_cost(summary_block(record["summary"]))
    blocks += text_cost(plan_block(record["plan"])) if "plan" in record else 0
    return blocks + sum(map(message_cost, record["messages"]))


def same(one: Any, other: Any) -> bool:
    """Equal as JSON texts, so that 1, 1.0 and true stay three values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


class Contexts(RuleBasedStateMachine):
    """Commands to three conversations; after each the record is the model's, and no other has moved."""

    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell()
        self.records: dict[str, dict[str, Any]] = {}

    def did(self, context: str, outcome: Any, **changes: Any) -> None:
        """Note in the model what an accepted command changed."""
        if outcome.changed:
            record = self.records[context]
            record.update(changes, updated=self.shell.clock)
            for key in [key for key, value in changes.items() if value is None]:
                del record[key]

    @initialize(ids=st.lists(some_id, min_size=1, unique=True), window=st.integers(0, 50))
    def create(self, ids: list[str], window: int) -> None:
        for context in ids:
            self.shell.contexts.create(context, "conversation", window)
            self.records[context] = {
                "kind": "conversation",
                "version": 1,
                "summary": {"covers_messages": 0, "updated": 0},
                "messages": [],
                "est_tokens": 0,
                "model_window": window,
                "turns": 0,
                "created": self.shell.clock,
                "updated": self.shell.clock,
            }

    def pick(self, data: st.DataObject) -> str:
        chosen: str = data.draw(st.sampled_from(sorted(self.records)))
        return chosen

    @rule(data=st.data(), messages=st.lists(any_messages, max_size=3))
    def append(self, data: st.DataObject, messages: list[Msg]) -> None:
        context = self.pick(data)
        outcome = self.shell.contexts.append_all(context, messages)
        assert outcome.changed == bool(messages)
        self.did(context, outcome, messages=self.records[context]["messages"] + [m.to_json() for m in messages])

    @rule(data=st.data(), name=st.sampled_from(["s1", "s2", "s3"]), hash=st.sampled_from("xy"), limit=st.integers(0, 3))
    def load_skill(self, data: st.DataObject, name: str, hash: str, limit: int) -> None:
        context = self.pick(data)
        skills = [dict(skill) for skill in self.records[context].get("skills", [])]
        known = next((skill for skill in skills if skill["name"] == name), None)
        try:
            outcome = self.shell.contexts.load_skill(context, name, hash, limit)
        except Refused as error:
            assert error.details["rule"] == "max_loaded" and known is None and len(skills) >= limit
            return
        assert known is not None or len(skills) < limit
        assert outcome.changed == (known is None or known["hash"] != hash)
        if known is None:
            skills.append({"name": name, "hash": hash})
        else:
            known["hash"] = hash
        self.did(context, outcome, skills=skills)

    @rule(data=st.data(), name=st.sampled_from(["s1", "s2", "s3"]))
    def unload_skill(self, data: st.DataObject, name: str) -> None:
        context = self.pick(data)
        skills = self.records[context].get("skills", [])
        left = [skill for skill in skills if skill["name"] != name]
        outcome = self.shell.contexts.unload_skill(context, name)
        assert outcome.changed == (left != skills)
        self.did(context, outcome, skills=left or None)

    @rule(
        data=st.data(), goal=st.sampled_from(["g", " "]), items=st.lists(st.sampled_from(["a", "b", " "]), max_size=3)
    )
    def create_plan(self, data: st.DataObject, goal: str, items: list[str]) -> None:
        context = self.pick(data)
        try:
            outcome = self.shell.contexts.create_plan(context, goal, items, max_items=3)
        except Refused as error:
            assert error.details["rule"] == ("empty_goal" if goal == " " else "empty_title")
            return
        now = self.shell.clock
        made = [{"id": n + 1, "title": t, "status": "pending", "updated": now} for n, t in enumerate(items)]
        plan = {"goal": goal, "items": made, "next_id": len(made) + 1, "created": now, "updated": now}
        self.did(context, outcome, plan=plan)

    @rule(
        data=st.data(),
        insert=st.none() | st.sampled_from(["c", " ", {"title": "d", "detail": "e", "after": 1}]),
        reorder=st.none() | st.lists(st.integers(1, 6), max_size=4),
        item=st.none() | st.sampled_from([1, 2, "3", "a", 99]),
        status=st.none() | st.sampled_from([*ITEM_STATUSES, "bogus"]),
        note=st.none() | st.sampled_from(["", "n"]),
        bind=st.none() | st.sampled_from([{"task": "t1"}, {"run": "t1"}, {"nope": 1}]),
    )
    def update_plan(self, data: st.DataObject, **changes: Any) -> None:
        context = self.pick(data)
        plan = json.loads(json.dumps(self.records[context].get("plan")))
        try:
            outcome = self.shell.contexts.update_plan(context, **changes, max_items=5)
        except Refused:
            return  # all or nothing: the invariant finds the record as it was
        now = self.shell.clock
        if (insert := changes["insert"]) is not None:
            shape = {"title": insert} if isinstance(insert, str) else dict(insert)
            after = shape.pop("after", None)
            ids = [i["id"] for i in plan["items"]]
            place = ids.index(after) + 1 if after in ids else len(ids)
            plan["items"].insert(place, {"id": plan["next_id"], **shape, "status": "pending", "updated": now})
            plan["next_id"] += 1
        if (order := changes["reorder"]) is not None:
            first = [n for n in dict.fromkeys(order) if any(i["id"] == n for i in plan["items"])]
            plan["items"].sort(key=lambda i: first.index(i["id"]) if i["id"] in first else len(first))
        if (key := changes["item"]) is not None:
            (entry,) = [i for i in plan["items"] if str(i["id"]) == str(key) or i["title"] == key][:1]
            if changes["status"] is not None:
                entry["status"] = changes["status"]
            if changes["note"] is not None:
                entry.pop("note", None)
                entry |= {"note": changes["note"]} if changes["note"] else {}
            if changes["bind"] is not None:
                ((kind, ref),) = changes["bind"].items()
                entry["bound"] = {kind: {"id": ref}}
                entry["status"] = "in_progress" if entry["status"] == "pending" else entry["status"]
            entry["updated"] = now
        plan["updated"] = now
        self.did(context, outcome, plan=plan)

    @rule(data=st.data(), kind=st.sampled_from(["task", "run"]), ok=st.booleans(), note=st.none() | texts)
    def settle_plan(self, data: st.DataObject, kind: str, ok: bool, note: str | None) -> None:
        context = self.pick(data)
        plan = json.loads(json.dumps(self.records[context].get("plan")))
        outcome = self.shell.contexts.settle_plan(context, {kind: "t1"}, ok, note)
        hit = [
            item
            for item in (plan["items"] if plan else [])
            if item.get("bound") == {kind: {"id": "t1"}} and item["status"] in ("pending", "in_progress")
        ]
        assert outcome.changed == bool(hit)
        for item in hit:
            item["status"] = "done" if ok else "blocked"
            item["updated"] = plan["updated"] = self.shell.clock
            item |= {} if note is None else {"note": note}
        self.did(context, outcome, plan=plan)

    @rule(data=st.data())
    def clear_plan(self, data: st.DataObject) -> None:
        context = self.pick(data)
        outcome = self.shell.contexts.clear_plan(context)
        assert outcome.changed == ("plan" in self.records[context])
        self.did(context, outcome, plan=None)

    @rule(data=st.data(), value=json_values)
    def set_preflight(self, data: st.DataObject, value: Any) -> None:
        context = self.pick(data)
        outcome = self.shell.contexts.set_preflight(context, value)
        assert outcome.changed != same(self.records[context].get("preflight"), value)
        self.did(context, outcome, preflight=json.loads(json.dumps(value)))

    @rule(data=st.data(), principal=texts)
    def set_principal(self, data: st.DataObject, principal: str) -> None:
        context = self.pick(data)
        outcome = self.shell.contexts.set_principal(context, principal)
        assert outcome.changed == ("principal" not in self.records[context])
        self.did(context, outcome, principal=principal)

    @rule(data=st.data(), task=st.none() | task_ids)
    def task(self, data: st.DataObject, task: str | None) -> None:
        context = self.pick(data)
        handle = self.shell.contexts
        outcome = handle.detach_task(context) if task is None else handle.attach_task(context, task)
        assert outcome.changed == (self.records[context].get("task") != task)
        self.did(context, outcome, task=task)

    @rule(data=st.data(), window=st.integers(0, 3))
    def turn_window_touch(self, data: st.DataObject, window: int) -> None:
        context = self.pick(data)
        record = self.records[context]
        self.did(context, self.shell.contexts.begin_turn(context), turns=record["turns"] + 1)
        self.did(context, self.shell.contexts.set_window(context, window), model_window=window)
        self.did(context, self.shell.contexts.touch(context))

    @rule(data=st.data(), keep=st.integers(0, 3), goal=st.none() | st.integers(0, 20), fallback=st.booleans())
    def compact(self, data: st.DataObject, keep: int, goal: int | None, fallback: bool) -> None:
        context = self.pick(data)
        record = self.records[context]
        bytes_before = self.shell.state.bytes()
        plan = self.shell.contexts.plan_compaction(context, keep, goal)
        assert self.shell.state.bytes() == bytes_before
        if plan is None:
            return
        try:
            if fallback:
                outcome = self.shell.contexts.apply_fallback(context, plan)
            else:
                verdict = {"goals": ["g", "g"], "facts": [str(len(record["messages"]))]}
                outcome = self.shell.contexts.apply_compaction(context, plan, verdict)
        except Refused as error:
            assert error.details["rule"] == "open_call"
            return
        summary = dict(record["summary"])
        if fallback:
            narrative = self.shell.contexts.get(context).summary.narrative
            assert narrative is not None and narrative.startswith(summary.get("narrative") or "[")
            summary["narrative"] = narrative
        else:
            summary["goals"] = ["g"]
            facts = [*summary.get("facts", []), str(len(record["messages"]))]
            summary["facts"] = list(dict.fromkeys(facts))
        summary |= {"covers_messages": summary["covers_messages"] + plan.fold, "updated": self.shell.clock}
        self.did(
            context, outcome, summary=summary, messages=record["messages"][plan.fold :], version=record["version"] + 1
        )

    @precondition(lambda self: len(self.records) < len(IDS))
    @rule(data=st.data(), messages=st.lists(any_messages, max_size=3), extra=extras)
    def copy(self, data: st.DataObject, messages: list[Msg], extra: dict[str, Any] | None) -> None:
        """A record of another conversation is taken in under an id that is free."""
        record = json.loads(json.dumps({**self.records[self.pick(data)], **(extra or {})}))
        context = next(name for name in IDS if name not in self.records)
        self.shell.contexts.import_record(context, record)
        self.records[context] = record

    @invariant()
    def records_are_the_models(self) -> None:
        for context, record in self.records.items():
            cost = naive_cost(record)
            record["est_tokens"] = cost
            state = self.shell.contexts.get(context)
            assert state.est_tokens == self.shell.contexts.est_tokens(context) == cost
            assert state.recount() == self.shell.contexts.recount(context) == cost
            assert same(state.to_json(), record)
            assert state.needs_compaction() == (record["model_window"] > 0 and cost > 0.7 * record["model_window"])
            assert from_record(state.to_json()) == (state, ())

    @invariant()
    def replay_and_checkpoint_give_the_same_bytes(self) -> None:
        live = self.shell.state
        for other in (replay(live.model, self.shell.groups), restored(live.model, live, self.shell.wires())):
            assert other.bytes() == live.bytes()
            assert derived(other) == derived(live)


Contexts.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


class TestContexts(Contexts.TestCase):
    """Every command sequence leaves the record, its estimate and its restores as the naive model says."""
