"""What the strategies know of refold's own projections: values of their field types, and parameters whose type alone
says
too little. It must never restate a rule of a projection; it draws values in the shapes that the rules are about.
"""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from engine.core.limits import GRAPH_TASKS_MAX, U32_MAX, U64_MAX
from engine.testing.strategies import (
    field_values,
    floats,
    ids,
    integers,
    json_objects,
    json_values,
    register_field_type,
    register_parameter,
    texts,
)

__all__ = ["register"]


@cache
def register() -> None:
    """Register everything, once."""
    _contexts()
    _graph()
    _swarm()


def _record(required: dict[str, Any], optional: dict[str, Any]) -> SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


# -- contexts: messages, plans, summaries -----------------------------------------------------------------------------


def _contexts() -> None:
    from projections.contexts.context_state import KINDS
    from projections.contexts.events import IMPORTED
    from projections.contexts.message import MESSAGE, read_message
    from projections.contexts.plan import BINDING, PLAN, PLAN_ITEM, read_binding, read_plan
    from projections.contexts.summary import SKILL, SUMMARY, read_skill, read_summary
    from projections.contexts.transitions import ITEM_STATUSES

    u64, calls = integers(0, U64_MAX), st.sampled_from(("c1", "c2", "c3"))
    call = _record({"id": calls, "name": texts(), "arguments": json_values(3)}, {})
    said = {"text": texts(), "ts": u64}
    message = st.one_of(
        _record({"role": st.sampled_from(("system", "note")), **said}, {"trace": json_values(2)}),
        _record({"role": st.just("user"), **said}, {"principal": texts()}),
        _record({"role": st.just("assistant"), "ts": u64}, {"text": texts(), "tool_calls": st.lists(call, max_size=2)}),
        _record(
            {"role": st.just("tool"), "id": calls, "name": texts(), "content": json_values(3), "ts": u64},
            {"is_error": st.booleans()},
        ),
    )
    register_field_type(MESSAGE.label, message.map(lambda shape: read_message(shape, None).dump()))

    binding = st.sampled_from(("run", "subagent", "task")).flatmap(
        lambda kind: ids().map(lambda ref: {kind: {"handle" if kind == "subagent" else "id": ref}})
    )
    register_field_type(BINDING.label, binding.map(lambda shape: read_binding(shape).dump()))
    item = _record(
        {"id": integers(1, U32_MAX), "title": texts(), "status": st.sampled_from(tuple(ITEM_STATUSES)), "updated": u64},
        {"detail": texts(), "note": texts(), "bound": binding},
    )
    plan = st.builds(
        lambda goal, items, more: {
            "goal": goal,
            "items": items,
            "next_id": max((entry["id"] for entry in items), default=0) + 1,
            **more,
        },
        texts(),
        st.lists(item, max_size=3, unique_by=lambda entry: entry["id"]).filter(
            lambda items: all(entry["id"] < U32_MAX for entry in items)
        ),
        _record({"created": u64, "updated": u64}, {}),
    )
    register_field_type(PLAN.label, plan.map(lambda shape: read_plan(shape).dump()))
    register_field_type(PLAN_ITEM.label, plan.filter(lambda shape: shape["items"]).map(_first_item))
    entries = st.lists(texts(), max_size=2)
    summary = _record(
        {"covers_messages": u64, "updated": u64},
        {"goals": entries, "decisions": entries, "open": entries, "facts": entries, "narrative": texts()},
    )
    register_field_type(SUMMARY.label, summary.map(lambda shape: read_summary(shape).dump()))
    skill = _record({"name": texts(), "hash": texts()}, {})
    register_field_type(SKILL.label, skill.map(lambda shape: read_skill(shape).dump()))

    change = _record(
        {},
        {
            "insert": texts() | _record({"title": texts()}, {"detail": texts(), "after": integers(1, 4)}),
            "reorder": st.lists(integers(1, 5), max_size=4),
            "item": integers(1, 4) | texts(),
            "status": st.sampled_from(tuple(ITEM_STATUSES)),
            "note": texts(),
            "bind": ids().map(lambda task: {"task": task}),
        },
    )
    register_parameter("contexts", "update_plan", "changes", change)
    register_parameter("contexts", "create_plan", "items", st.lists(texts(), max_size=3))
    verdict = _record({}, {"goals": entries, "facts": entries, "narrative": texts()})
    register_parameter("contexts", "apply_compaction", "verdict", verdict)
    parts = IMPORTED.fields[2:-1]
    register_parameter(
        "contexts", "import", "parts", lambda: st.tuples(*(field_values(field.type) for field in parts)).map(list)
    )
    assert KINDS


def _first_item(shape: dict[str, Any]) -> list[Any]:
    from projections.contexts.plan import read_plan

    items: list[list[Any]] = read_plan(shape).dump()[1]
    return items[0]


# -- graphs: whole graphs of nodes that depend on earlier ones --------------------------------------------------------


@st.composite
def nodes(draw: DrawFn, first: int = 0) -> list[dict[str, Any]]:
    """Return a few node records, each depending on nodes before it."""
    from projections.graph.fields import EXECUTION_MODES, FAILURE_STRATEGIES

    records = []
    for number in range(first, first + draw(st.integers(1, 4))):
        before = list(range(number))
        record = {
            "id": number,
            "title": draw(texts()),
            "description": "",
            "depends_on": draw(st.lists(st.sampled_from(before), max_size=2, unique=True)) if before else [],
        }
        if draw(st.booleans()):
            record["failure_strategy"] = draw(st.sampled_from(FAILURE_STRATEGIES))
            record["execution_mode"] = draw(st.sampled_from(EXECUTION_MODES))
            record["max_retries"] = draw(integers(0, 3))
        records.append(record)
    return records


@st.composite
def graphs(draw: DrawFn) -> dict[str, Any]:
    """Return a graph record that has not begun."""
    return {
        "id": draw(ids()),
        "goal": draw(texts()),
        "nodes": draw(nodes()),
        "status": "created",
        "created_at": draw(integers(0, 1000)),
    }


def _graph() -> None:
    from projections.graph.fields import HANDLE, RESULT_SHAPE

    register_field_type(HANDLE.label, texts() | ids().map(lambda task: {"task": task}))
    register_parameter("graph", "create", "nodes", nodes())
    register_parameter("graph", "create", "goal", st.just("goal") | texts())
    register_parameter("graph", "inject", "nodes", st.integers(1, 5).flatmap(lambda first: nodes(first)))
    register_parameter("graph", "create", "max_tasks", st.sampled_from((4, GRAPH_TASKS_MAX)))
    register_parameter("graph", "import_graph", "record", graphs())
    register_parameter("graph", "import_graph", "max_tasks", st.sampled_from((4, GRAPH_TASKS_MAX)))
    output = next(key.type for key in RESULT_SHAPE.keys if key.name == "output")
    register_parameter("graph", "complete", "result", lambda: field_values(output))


# -- swarms -----------------------------------------------------------------------------------------------------------


def _swarm() -> None:
    from projections.swarm.actions import ACTION_CATEGORIES
    from projections.swarm.guidance import GUIDANCE_SCOPES

    base64s = st.binary(max_size=6).map(lambda raw: base64.b64encode(raw).decode())
    reason = (
        st.sampled_from(("resource_exhausted", "timeout"))
        | integers(0, U32_MAX).map(lambda count: {"consecutive_failures": count})
        | texts().map(lambda text: {"agent_requested": text})
    )
    guidance = _record(
        {},
        {
            "actions": st.lists(json_values(2), max_size=2),
            "content": st.none() | texts(),
            "props": st.dictionaries(texts(), base64s, max_size=2),
            "scope": st.sampled_from(GUIDANCE_SCOPES),
        },
    )
    action = _record(
        {"description": texts(), "category": st.sampled_from(tuple(ACTION_CATEGORIES))},
        {"groups": st.lists(texts(), max_size=2)},
    )
    group = _record({}, {"include_groups": st.lists(texts(), max_size=2)})
    config = _record(
        {},
        {
            "actions": st.dictionaries(texts(), action, max_size=2).map(
                lambda actions: {name: {**shape, "name": name} for name, shape in actions.items()}
            ),
            "groups": st.dictionaries(texts(), group, max_size=2),
        },
    )
    register_field_type("escalation reason", reason)
    register_field_type("guidance", guidance)
    register_field_type("actions config", config)
    record = situations(guidance)
    register_field_type("swarm record", record)
    register_parameter("swarm", "import_record", "record", record)
    register_parameter("swarm", "start", "worker_count", integers(0, 4))
    register_parameter("swarm", "set_metadata", "value", json_objects() | json_values(3))


@st.composite
def situations(draw: DrawFn, guidance: SearchStrategy[Any]) -> dict[str, Any]:
    """Return a whole swarm record whose parts agree."""
    workers = draw(st.lists(integers(0, 5), unique=True, max_size=3))
    done = [worker for worker in workers if draw(st.booleans())]
    escalated = [worker for worker in workers if draw(st.integers(0, 3)) == 0]
    tick = draw(integers(0, 100))
    return {
        "tick": tick,
        "workers": {
            str(worker): {
                "id": worker,
                "consecutive_failures": draw(integers(0, 3)),
                "history_len": draw(integers(0, 9)),
                "has_escalation": worker in escalated,
            }
            for worker in workers
        },
        "success_rate": draw(floats(0.0, 1.0)),
        "progress": draw(floats(0.0, 1.0)),
        "escalations": [[worker, {"reason": "timeout", "raised_at_tick": min(tick, 3)}] for worker in escalated],
        "excluded_actions": draw(st.lists(texts(), max_size=2)),
        "previous_guidances": {str(worker): draw(guidance) for worker in workers if draw(st.booleans())},
        "done_workers": sorted(done),
        "metadata": draw(json_objects()),
    }
