"""A state machine over every command, against a model that keeps plain JSON and counts from scratch."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core.errors import EngineError
from projections.contexts import Msg, from_record
from projections.contexts.transitions import ITEM_STATUSES

from .contexts_naive import CHANGED, REFUSED, SAME, NaiveContexts, fold_point, naive_cost, same
from .contexts_shell import Shell, derived, replay, restored
from .contexts_strategies import any_messages, extras, json_values, texts

IDS = ("a", "a//b", "a/b")
some_id = st.sampled_from(IDS)
task_ids = st.sampled_from(["t1", "t2"])
VERDICTS: list[Any] = [
    {"goals": ["g", "g"], "facts": ["f"]},
    {"facts": ["f", "h"], "narrative": "so far"},
    "prose",
    {},
    " ",
    7,
]


class Contexts(RuleBasedStateMachine):
    """Commands to three conversations; after each the record is the model's, and no other has moved."""

    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell()
        self.naive = NaiveContexts()

    def both(self, told: str, call: Any, *arguments: Any, **named: Any) -> None:
        """Give a command to the shell; it must answer as the model does."""
        before = self.shell.state.bytes()
        try:
            said = CHANGED if call(*arguments, **named).changed else SAME
        except EngineError as error:
            assert error.message
            said = REFUSED
        assert said == told
        assert (self.shell.state.bytes() != before) == (said == CHANGED)

    @property
    def now(self) -> int:
        """The time that the next command gets."""
        return self.shell.clock + 1

    @initialize(ids=st.lists(some_id, min_size=1, unique=True), window=st.integers(0, 50))
    def create(self, ids: list[str], window: int) -> None:
        for context in ids:
            told = self.naive.create(context, self.now, window=window)
            self.both(told, self.shell.contexts.create, context, "conversation", window)

    def pick(self, data: st.DataObject) -> str:
        chosen: str = data.draw(st.sampled_from(sorted(self.naive.records)))
        return chosen

    @rule(data=st.data(), messages=st.lists(any_messages, max_size=3))
    def append(self, data: st.DataObject, messages: list[Msg]) -> None:
        context = self.pick(data)
        told = self.naive.append(context, self.now, [message.to_json() for message in messages])
        self.both(told, self.shell.contexts.append_all, context, messages)

    @rule(data=st.data(), name=st.sampled_from(["s1", "s2", "s3"]), hash=st.sampled_from("xy"), limit=st.integers(0, 3))
    def load_skill(self, data: st.DataObject, name: str, hash: str, limit: int) -> None:
        context = self.pick(data)
        told = self.naive.load_skill(context, self.now, name, hash, limit)
        self.both(told, self.shell.contexts.load_skill, context, name, hash, limit)

    @rule(data=st.data(), name=st.sampled_from(["s1", "s2", "s3"]))
    def unload_skill(self, data: st.DataObject, name: str) -> None:
        context = self.pick(data)
        self.both(self.naive.unload_skill(context, self.now, name), self.shell.contexts.unload_skill, context, name)

    @rule(
        data=st.data(), goal=st.sampled_from(["g", " "]), items=st.lists(st.sampled_from(["a", "b", " "]), max_size=3)
    )
    def create_plan(self, data: st.DataObject, goal: str, items: list[str]) -> None:
        context = self.pick(data)
        told = self.naive.create_plan(context, self.now, goal, items, 3)
        self.both(told, self.shell.contexts.create_plan, context, goal, items, max_items=3)

    @rule(
        data=st.data(),
        insert=st.none() | st.sampled_from(["c", " ", {"title": "d", "detail": "e", "after": 1}]),
        reorder=st.none() | st.lists(st.integers(1, 6), max_size=4),
        item=st.none() | st.sampled_from([1, 2, "3", "a", 99]),
        status=st.none() | st.sampled_from([*ITEM_STATUSES, "bogus"]),
        note=st.none() | st.sampled_from(["", "n"]),
        bind=st.none() | st.sampled_from([{"task": "t1"}, {"run": "t1"}, {"nope": "1"}]),
    )
    def update_plan(self, data: st.DataObject, **changes: Any) -> None:
        context = self.pick(data)
        told = self.naive.update_plan(context, self.now, changes, 5)
        self.both(told, self.shell.contexts.update_plan, context, **changes, max_items=5)

    @rule(data=st.data(), kind=st.sampled_from(["task", "run"]), ok=st.booleans(), note=st.none() | texts)
    def settle_plan(self, data: st.DataObject, kind: str, ok: bool, note: str | None) -> None:
        context = self.pick(data)
        told = self.naive.settle_plan(context, self.now, {kind: {"id": "t1"}}, ok, note)
        self.both(told, self.shell.contexts.settle_plan, context, {kind: "t1"}, ok, note)

    @rule(data=st.data())
    def clear_plan(self, data: st.DataObject) -> None:
        context = self.pick(data)
        self.both(self.naive.clear_plan(context, self.now), self.shell.contexts.clear_plan, context)

    @rule(data=st.data(), value=json_values)
    def set_preflight(self, data: st.DataObject, value: Any) -> None:
        context = self.pick(data)
        self.both(self.naive.set_preflight(context, self.now, value), self.shell.contexts.set_preflight, context, value)

    @rule(data=st.data(), principal=texts)
    def set_principal(self, data: st.DataObject, principal: str) -> None:
        context = self.pick(data)
        told = self.naive.set_principal(context, self.now, principal)
        self.both(told, self.shell.contexts.set_principal, context, principal)

    @rule(data=st.data(), task=st.none() | task_ids)
    def task(self, data: st.DataObject, task: str | None) -> None:
        context = self.pick(data)
        handle = self.shell.contexts
        told = self.naive.set_task(context, self.now, task, [])
        self.both(told, *((handle.detach_task, context) if task is None else (handle.attach_task, context, task)))

    @rule(data=st.data(), window=st.integers(0, 3))
    def turn_window_touch(self, data: st.DataObject, window: int) -> None:
        context = self.pick(data)
        handle = self.shell.contexts
        self.both(self.naive.begin_turn(context, self.now), handle.begin_turn, context)
        self.both(self.naive.set_window(context, self.now, window), handle.set_window, context, window)
        self.both(self.naive.touch(context, self.now), handle.touch, context)

    @rule(
        data=st.data(),
        keep=st.integers(0, 3),
        goal=st.none() | st.integers(0, 20),
        verdict=st.none() | st.sampled_from(VERDICTS),
    )
    def compact(self, data: st.DataObject, keep: int, goal: int | None, verdict: Any) -> None:
        """Fold what is planned; without a verdict by the fallback."""
        context = self.pick(data)
        record = self.naive.records[context]
        handle = self.shell.contexts
        bytes_before = self.shell.state.bytes()
        plan = handle.plan_compaction(context, keep, goal)
        assert self.shell.state.bytes() == bytes_before
        assert (plan and plan.fold) == fold_point(record["messages"], keep, goal)
        if plan is None:
            return
        fold, version = plan.fold, record["version"]
        if verdict is None:
            self.both(self.naive.fall_back(context, self.now, fold, version), handle.apply_fallback, context, plan)
        else:
            told = self.naive.compact(context, self.now, fold, version, verdict)
            self.both(told, handle.apply_compaction, context, plan, verdict)

    @rule(data=st.data(), reason=texts)
    def close_calls(self, data: st.DataObject, reason: str) -> None:
        context = self.pick(data)
        self.both(self.naive.close_calls(context, self.now, reason), self.shell.contexts.close_calls, context, reason)

    @precondition(lambda self: len(self.naive.records) < len(IDS))
    @rule(data=st.data(), messages=st.lists(any_messages, max_size=3), extra=extras)
    def copy(self, data: st.DataObject, messages: list[Msg], extra: dict[str, Any] | None) -> None:
        """A record of another conversation is taken in under an id that is free."""
        record = json.loads(json.dumps({**self.naive.records[self.pick(data)], **(extra or {})}))
        context = next(name for name in IDS if name not in self.naive.records)
        told = self.naive.take(context, record, self.now)
        self.both(told, self.shell.contexts.import_record, context, record)

    @invariant()
    def records_are_the_models(self) -> None:
        for context, record in self.naive.records.items():
            cost = naive_cost(record)
            state = self.shell.contexts.get(context)
            assert state.est_tokens == self.shell.contexts.est_tokens(context) == cost
            assert state.recount() == self.shell.contexts.recount(context) == cost
            assert same(state.to_json(), self.naive.to_json(context))
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
