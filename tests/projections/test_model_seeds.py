"""Every field and every method of the records that refold was made for exists under its own name, and works.

The lists below are those of the reference pages of the three runtimes, in the pages' order: ContextState of agentd (a
conversation's durable record), TaskNode of zeph's orchestration (a node of the task graph), TaskContext of
swarm-engine-core (a swarm's situation at a tick). Traits are listed by the method that Python has for them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from engine import open_store
from projections.contexts import ContextState, UserMsg, from_record
from projections.graph import TaskNode
from projections.swarm import (
    ActionsConfig,
    Escalation,
    EscalationReason,
    Guidance,
    TaskContext,
    WorkerId,
    WorkerSummary,
)

FIELDS: dict[type[Any], tuple[str, ...]] = {
    ContextState: (
        "kind", "version", "summary", "messages", "skills", "plan", "preflight", "est_tokens", "model_window",
        "principal", "task", "turns", "created", "updated", "dirty",
    ),
    TaskNode: (
        "id", "title", "description", "agent_hint", "status", "depends_on", "result", "assigned_agent", "retry_count",
        "predicate_rerun_count", "failure_strategy", "max_retries", "execution_mode", "verify_predicate",
        "predicate_outcome", "execution_environment", "token_budget_cents", "network_scope", "asset_sensitivity",
    ),
    TaskContext: (
        "tick", "workers", "success_rate", "progress", "escalations", "available_actions", "v2_guidances",
        "excluded_actions", "previous_guidances", "done_workers", "metadata",
    ),
}  # fmt: skip

CONTEXT = ContextState.new("conversation", 10, at_ms=1)
HELLO = UserMsg("hello world", ts=2)
NODE = TaskNode.new(0, "fetch data", "Download the dataset from source.")
HELP = Escalation(EscalationReason.timeout(), 3)
SWARM = TaskContext.new(3).with_worker(WorkerSummary.new(WorkerId(0))).with_worker(WorkerSummary.new(WorkerId(1)))
FULL = SWARM.insert("s", "x").insert("f", 0.5).insert("i", 7).insert("b", True)


def _set() -> TaskContext:
    mine = SWARM.clone()
    mine.set("key", [1])
    return mine


METHODS: dict[type[Any], dict[str, Callable[[], Any]]] = {
    ContextState: {
        "new": lambda: (CONTEXT.kind, CONTEXT.version, CONTEXT.model_window) == ("conversation", 1, 10),
        "append": lambda: CONTEXT.append(HELLO).messages == (HELLO,),
        "append_all": lambda: CONTEXT.append_all([HELLO, HELLO]).est_tokens == 14,
        "touch": lambda: CONTEXT.touch(9).updated == 9,
        "recount": lambda: CONTEXT.append(HELLO).recount() == 7,
        "needs_compaction": lambda: CONTEXT.append(HELLO).needs_compaction(0.6) and not CONTEXT.needs_compaction(0.0),
        "slice": lambda: CONTEXT.append(HELLO).slice() == [HELLO],
        "to_wire": lambda: CONTEXT.append(HELLO).to_wire() == [{"role": "user", "text": "hello world"}],
        "skill_names": lambda: CONTEXT.load_skill("b", "1").load_skill("a", "2").skill_names() == {"a", "b"},
        "load_skill": lambda: CONTEXT.load_skill("a", "1", 1).load_skill("a", "2", 1).skills[0].hash == "2",
        "unload_skill": lambda: CONTEXT.load_skill("a", "1").unload_skill("a")[1] and not CONTEXT.unload_skill("a")[1],
        "to_json": lambda: from_record(json.loads(json.dumps(CONTEXT.to_json()))).state == CONTEXT,
    },
    TaskNode: {
        "new": lambda: (NODE.status, NODE.depends_on, NODE.execution_mode) == ("pending", (), "parallel"),
        "to_json": lambda: list(NODE.to_json()) == list(FIELDS[TaskNode]),
        "from_json": lambda: TaskNode.from_json(json.loads(json.dumps(NODE.to_json()))) == NODE,
    },
    TaskContext: {
        "new": lambda: TaskContext.new(3).tick == 3,
        "with_worker": lambda: list(SWARM.workers) == [0, 1],
        "with_success_rate": lambda: SWARM.with_success_rate(0.25).success_rate == 0.25,
        "with_progress": lambda: SWARM.with_progress(0.5).progress == 0.5,
        "with_escalation": lambda: SWARM.with_escalation(1, HELP).escalations == ((1, HELP),),
        "with_actions": lambda: SWARM.with_actions(ActionsConfig()).available_actions == ActionsConfig(),
        "with_previous_guidances": lambda: SWARM.with_previous_guidances({1: Guidance()}).previous_guidances == {
            1: Guidance()
        },
        "with_previous_guidance": lambda: list(SWARM.with_previous_guidance(0, Guidance()).previous_guidances) == [0],
        "insert": lambda: SWARM.insert("key", {"a": None}).metadata == {"key": {"a": None}},
        "set": lambda: (_set().metadata, SWARM.metadata) == ({"key": [1]}, {}),
        "get": lambda: (FULL.get("i"), FULL.get("nothing")) == (7, None),
        "get_str": lambda: [FULL.get_str(key) for key in "sfib"] == ["x", None, None, None],
        "get_f64": lambda: [FULL.get_f64(key) for key in "sfib"] == [None, 0.5, 7.0, None],
        "get_i64": lambda: [FULL.get_i64(key) for key in "sfib"] == [None, None, 7, None],
        "get_bool": lambda: [FULL.get_bool(key) for key in "sfib"] == [None, None, None, True],
        "has_escalations": lambda: SWARM.with_escalation(1, HELP).has_escalations() and not SWARM.has_escalations(),
        "has_escalation_for": lambda: [SWARM.with_escalation(1, HELP).has_escalation_for(n) for n in (0, 1)]
        == [False, True],
        "worker": lambda: (SWARM.worker(1), SWARM.worker(9)) == (SWARM.workers[1], None),
        "escalated_worker_count": lambda: SWARM.with_escalation(1, HELP).escalated_worker_count() == 1,
        "worker_ids": lambda: SWARM.worker_ids() == [0, 1],
        "has_exploration": lambda: SWARM.with_v2_guidances([]).has_exploration() and not SWARM.has_exploration(),
        "filter_for_workers": lambda: SWARM.filter_for_workers([1, 9]).worker_ids() == [1],
        "clone": lambda: SWARM.clone() == SWARM and SWARM.clone() is not SWARM,
        "default": lambda: TaskContext.default() == TaskContext.new(0),
    },
}  # fmt: skip

ON_A_RUN = (
    "append", "append_all", "touch", "recount", "needs_compaction", "slice", "to_wire", "skill_names", "load_skill",
    "unload_skill",
)  # fmt: skip
"""Methods of a conversation that a run has too, with the conversation's id before their arguments."""

VALUES = {ContextState: CONTEXT, TaskNode: NODE, TaskContext: SWARM}


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_every_field_has_its_name(kind: type[Any]) -> None:
    """Each field can be read under its name, in a new value and in one that a run hands out, and none can be set."""
    assert len(FIELDS[kind]) == {ContextState: 15, TaskNode: 19, TaskContext: 11}[kind]
    if is_dataclass(kind):
        assert [field.name for field in fields(kind)][: len(FIELDS[kind])] == list(FIELDS[kind])
    with open_store("memory:") as store:
        run = store.run("r")
        run.contexts.create("c")
        run.graphs.create("g", "goal", [NODE])
        run.swarm.start(2)
        given = {
            ContextState: run.contexts.get("c"),
            TaskNode: run.graphs.node("g", 0),
            TaskContext: run.swarm.context(),
        }
    for value in (VALUES[kind], given[kind]):
        for name in FIELDS[kind]:
            getattr(value, name)
            with pytest.raises(AttributeError):
                setattr(value, name, None)


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_every_field_is_in_the_record_under_its_name(kind: type[Any]) -> None:
    """The JSON form has the seed's keys: all that hold something, for a conversation; all, for the others. ``dirty`` is
    never stored."""
    if kind is ContextState:
        plan = {"goal": "g", "items": [], "next_id": 1, "created": 0, "updated": 0}
        given = {"skills": [{"name": "s", "hash": "h"}], "plan": plan, "preflight": 1, "principal": "p", "task": "t"}
        read = from_record({**CONTEXT.to_json(), **given, "dirty": True})
        assert read.violations == () and read.state is not None
        assert set(read.state.to_json()) == set(FIELDS[kind]) - {"dirty"}
    elif kind is TaskNode:
        assert list(NODE.to_json()) == list(FIELDS[kind])
    else:
        assert set(SWARM.to_record()) == set(FIELDS[kind])


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in METHODS for name in METHODS[kind]])
def test_every_method_has_its_name_and_works(kind: type[Any], name: str) -> None:
    """Each method of the page can be called, and gives what the page says."""
    assert callable(getattr(kind, name))
    assert METHODS[kind][name]() is True


def test_a_run_offers_the_methods_of_a_conversation() -> None:
    """What changes a conversation is a command of the run under the same name, what asks is a question."""
    with open_store("memory:") as store:
        run = store.run("r")
        run.contexts.create("c", model_window=10)
        assert all(callable(getattr(run.contexts, name)) for name in ON_A_RUN)
        run.contexts.append("c", HELLO)
        run.contexts.append_all("c", [HELLO])
        run.contexts.touch("c", at_ms=9)
        run.contexts.load_skill("c", "a", "1")
        assert run.contexts.unload_skill("c", "a").changed and not run.contexts.unload_skill("c", "a").changed
        assert run.contexts.recount("c") == run.contexts.est_tokens("c") == 14
        assert run.contexts.needs_compaction("c") and run.contexts.skill_names("c") == frozenset()
        assert run.contexts.slice("c") == [HELLO, HELLO] and len(run.contexts.to_wire("c")) == 2


def test_values_are_copied_shown_and_compared() -> None:
    """Clone, Debug and PartialEq of the pages: a copy is equal, a value shows what it is, another differs."""
    for value, other in ((CONTEXT, CONTEXT.touch(9)), (NODE, TaskNode.new(1, "", "")), (SWARM, TaskContext.new(9))):
        assert copy.deepcopy(value) == value != other
        assert type(value).__name__ in repr(value)


def test_the_examples_of_the_pages_run() -> None:
    """The code that the pages show, in Python."""
    node = TaskNode.new(0, "fetch data", "Download the dataset from source.")
    assert node.status == "pending"
    assert node.depends_on == ()
    assert node.execution_mode == "parallel"
    assert node.network_scope is None
    assert node.asset_sensitivity is None
    context = (
        TaskContext.new(7)
        .with_worker(WorkerSummary.new(WorkerId(0)).with_phase("working"))
        .with_progress(0.5)
        .insert("llm_summary", "探索フェーズ中")
    )
    assert context.workers[0].phase == "working"
    assert context.get_str("llm_summary") == "探索フェーズ中"
