"""TaskContext as a value: every field and method of the seed, immutability, and getters that never coerce."""

from __future__ import annotations

import copy

import pytest

from engine.core.errors import InvalidValue, NotFound, ReadOnly
from projections.swarm import (
    ActionDef,
    ActionGroup,
    ActionsConfig,
    Escalation,
    EscalationReason,
    Guidance,
    TaskContext,
    WorkerSummary,
)
from tests.projections.swarm.swarm_harness import SwarmRun

ESCALATION = Escalation(EscalationReason.timeout(), 1)
VALUES = {
    "bool": True, "zero": 0, "int": 5, "float": 5.0, "half": 0.5, "text": "5", "null": None, "list": [1],
    "map": {"a": 1}, "min": -(2**63), "max": 2**63 - 1, "u64": 2**64 - 1, "exact": 2**53, "inexact": 2**53 + 1,
}  # fmt: skip
GETTERS = {
    # key: (get_str, get_f64, get_i64, get_bool)
    "bool": (None, None, None, True),
    "zero": (None, 0.0, 0, None),
    "int": (None, 5.0, 5, None),
    "float": (None, 5.0, None, None),
    "half": (None, 0.5, None, None),
    "text": ("5", None, None, None),
    "null": (None, None, None, None),
    "list": (None, None, None, None),
    "map": (None, None, None, None),
    "min": (None, -(2.0**63), -(2**63), None),
    "max": (None, None, 2**63 - 1, None),
    "u64": (None, None, None, None),
    "exact": (None, 2.0**53, 2**53, None),
    "inexact": (None, None, 2**53 + 1, None),
    "missing": (None, None, None, None),
}


@pytest.mark.parametrize("key", GETTERS)
def test_typed_getters_never_coerce(key):
    """Each getter gives the value only when it is of its type exactly; missing or of another type gives None."""
    context = TaskContext.new(0)
    for name, value in VALUES.items():
        context.set(name, value)
    found = (context.get_str(key), context.get_f64(key), context.get_i64(key), context.get_bool(key))
    assert found == GETTERS[key]
    assert [type(value) for value in found] == [type(value) for value in GETTERS[key]]
    assert context.get(key) == VALUES.get(key)


def test_builders_return_new_values():
    """Every builder leaves the value it is called on as it was."""
    empty = TaskContext.new(3)
    untouched = empty.to_record()
    builds = [
        empty.with_worker(WorkerSummary.new(1)),
        empty.with_success_rate(0.5),
        empty.with_progress(0.5),
        empty.with_escalation(1, ESCALATION),
        empty.with_actions(ActionsConfig()),
        empty.with_previous_guidances({1: Guidance()}),
        empty.with_previous_guidance(1, Guidance()),
        empty.with_v2_guidances([]),
        empty.with_excluded_actions(["a"]),
        empty.with_done_worker(1),
        empty.insert("k", 1),
    ]
    assert empty.to_record() == untouched
    assert all(built != empty for built in builds)
    assert empty.clone() == empty == copy.copy(empty) == copy.deepcopy(empty)
    assert TaskContext.default() == TaskContext() == TaskContext.new(0)


def test_every_field_and_question_of_the_seed():
    """The eleven fields and the questions give what the builders put in."""
    guidance = Guidance(["Grep"], "look", {"k": b"v"}, {"node": 1}, "idle")
    config = ActionsConfig([ActionDef("Grep", "search")], {"all": ActionGroup()})
    context = (
        TaskContext.new(4)
        .with_worker(WorkerSummary.new(9))
        .with_worker(WorkerSummary(2, history_len=1))
        .with_success_rate(0.5)
        .with_progress(0.25)
        .with_escalation(9, ESCALATION)
        .with_actions(config)
        .with_previous_guidances({9: guidance})
        .with_previous_guidance(2, Guidance())
        .insert("k", 1)
    )
    assert (context.tick, context.success_rate, context.progress) == (4, 0.5, 0.25)
    assert context.worker_ids() == [2, 9] == list(context.workers)
    assert context.worker(9).has_escalation and context.worker(9).phase == "escalated"
    assert context.worker(7) is None
    assert context.escalations == ((9, ESCALATION),)
    assert context.has_escalations() and context.has_escalation_for(9) and not context.has_escalation_for(2)
    assert context.escalated_worker_count() == 1
    assert context.available_actions == config
    assert context.v2_guidances is None and not context.has_exploration()
    assert context.with_v2_guidances([]).has_exploration()
    assert list(context.previous_guidances) == [2, 9] and context.previous_guidances[9] == guidance
    assert (context.excluded_actions, context.done_workers, context.metadata) == ((), frozenset(), {"k": 1})


def test_at_most_one_escalation_a_worker():
    """A builder that raises for an escalated worker keeps the first."""
    context = TaskContext.new(0).with_escalation(1, ESCALATION)
    again = context.with_escalation(1, Escalation(EscalationReason.unknown("x"), 0))
    assert again == context
    late = context.with_worker(WorkerSummary.new(1))
    assert late.worker(1).has_escalation


def test_set_changes_a_value_of_ones_own():
    """set mutates a value that the caller built, and keeps a copy of what it was given."""
    context = TaskContext.new(0)
    value = {"a": [1]}
    context.set("k", value)
    value["a"].append(2)
    assert context.get("k") == {"a": [1]}
    context.get("k")["a"].append(3)
    assert context.metadata == {"k": {"a": [1]}}
    with pytest.raises(InvalidValue) as caught:
        context.set("k", {"x": (1,)})
    assert caught.value.path == "metadata.k.x"


def run_with_everything() -> SwarmRun:
    run = SwarmRun()
    run.swarm.start(2, failure_threshold=1, task={"goal": "g"})
    run.swarm.configure_actions(ActionsConfig([ActionDef("Grep", "search", params=[{"name": "p"}])]))
    run.swarm.issue_guidance(1, Guidance([{"name": "Grep"}], exploration_target=[1]))
    run.swarm.update_exploration(["Read"], [Guidance([["x"]])])
    run.swarm.set_metadata("list", [1])
    run.swarm.complete_action(0, "Grep", success=False)
    run.swarm.record_verdict(True, details={"a": [1]})
    return run


def test_a_context_handed_out_is_read_only():
    """set on a run's context raises ReadOnly and changes nothing; insert, builders, filter and clone give one's own."""
    context = run_with_everything().swarm.context()
    assert context.read_only
    with pytest.raises(ReadOnly) as caught:
        context.set("list", [2])
    assert "clone" in caught.value.hint
    assert context.get("list") == [1]
    for own in (context.insert("k", 1), context.clone(), context.filter_for_workers([0]), context.with_progress(1)):
        own.set("list", [3])
        assert own.get("list") == [3] and not own.read_only
    assert context.get("list") == [1]


def test_nothing_handed_out_reaches_into_the_run():
    """Changing every list and dict that the answers give leaves the run's bytes as they were."""
    run = run_with_everything()
    outcome = run.swarm.set_metadata("more", {"a": []})
    before = run.state.bytes()
    context = run.swarm.context()
    context.get("list").append(2)
    context.metadata["x"] = 1
    context.available_actions.actions["Grep"].params[0]["name"] = "q"
    context.available_actions.to_record()["actions"].clear()
    context.v2_guidances[0].actions[0].append("y")
    context.previous_guidances[1].exploration_target.append(2)
    context.to_record()["workers"].clear()
    run.swarm.task()["goal"] = "h"
    run.swarm.verdict().details["a"].append(2)
    outcome.events[0].data["value"]["a"].append(1)
    assert run.state.bytes() == before
    for value in (context.workers, context.previous_guidances):
        with pytest.raises(TypeError):
            value[5] = None
    for value in (context, context.worker(0), context.escalations[0][1], context.v2_guidances[0]):
        with pytest.raises(AttributeError):
            value.tick = 5


def test_group_choice_by_include_and_exclude():
    """An empty include takes all, include takes any of its groups, exclude wins; an unknown group is not found."""
    config = ActionsConfig(
        [
            ActionDef("grep", groups=["search", "read"]),
            ActionDef("write", groups=["mutation"]),
            ActionDef("sed", groups=["search", "mutation"]),
            ActionDef("wait"),
        ],
        {
            "all": ActionGroup(),
            "readonly": ActionGroup([], ["mutation"]),
            "search": ActionGroup(["search"]),
            "safe": ActionGroup(["search", "read"], ["mutation"]),
        },
    )
    chosen = {name: [action.name for action in config.actions_in(name)] for name in config.groups}
    assert chosen == {
        "all": ["grep", "sed", "wait", "write"],
        "readonly": ["grep", "wait"],
        "search": ["grep", "sed"],
        "safe": ["grep"],
    }
    with pytest.raises(NotFound):
        config.actions_in("other")


@pytest.mark.parametrize(
    "build",
    [
        lambda: TaskContext.new(-1),
        lambda: TaskContext.new(True),
        lambda: WorkerSummary.new("1"),
        lambda: WorkerSummary(1, consecutive_failures=2**32),
        lambda: WorkerSummary(1, phase="asleep"),
        lambda: Escalation(EscalationReason.timeout(), -1),
        lambda: EscalationReason("timeout", "x"),
        lambda: EscalationReason("consecutive_failures"),
        lambda: EscalationReason.unknown(3),
        lambda: Guidance(props={"k": "text"}),
        lambda: Guidance(scope="all"),
        lambda: ActionDef("a", category="x"),
        lambda: TaskContext.new(0).insert(5, 1),
        lambda: TaskContext.new(0).insert("k", float("nan")),
        lambda: TaskContext.new(0).with_worker({"id": 1}),
        lambda: TaskContext.new(0).with_escalation(-1, ESCALATION),
        lambda: TaskContext.new(0).with_escalation(1, "timeout"),
        lambda: TaskContext.new(0).with_actions({}),
        lambda: TaskContext.new(0).with_previous_guidance(1, None),
        lambda: TaskContext.new(0).with_previous_guidances({"1": Guidance()}),
        lambda: TaskContext.new(0).with_v2_guidances([1]),
        lambda: TaskContext.new(0).with_excluded_actions([1]),
        lambda: TaskContext.new(0).worker("0"),
    ],
)
def test_values_that_cannot_be_are_typed_refusals(build):
    """Every value outside its type or range raises InvalidValue with a path."""
    with pytest.raises(InvalidValue) as caught:
        build()
    assert caught.value.path


def test_equality_is_by_exact_value():
    """1, 1.0 and true are three metadata values; order of building does not matter."""
    one, real, true = (TaskContext.new(0).insert("k", value) for value in (1, 1.0, True))
    assert one != real and one != true and real != true
    left = (
        TaskContext.new(0)
        .insert("a", 1)
        .insert("b", 2)
        .with_worker(WorkerSummary.new(1))
        .with_worker(WorkerSummary.new(0))
    )
    right = (
        TaskContext.new(0)
        .with_worker(WorkerSummary.new(0))
        .with_worker(WorkerSummary.new(1))
        .insert("b", 2)
        .insert("a", 1)
    )
    assert left == right and left.to_json() != ""
    with pytest.raises(TypeError):
        hash(one)
    assert len({Guidance(["a"]), Guidance(["a"]), Guidance.from_record({"actions": ["a"]})}) == 1
    assert repr(left).startswith("TaskContext(tick=0, workers=2")
