"""Hypothesis strategies for swarm values and records, written from the contract and not from the code."""

from __future__ import annotations

import base64

from hypothesis import strategies as st

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
UNIT = st.floats(0, 1).map(lambda number: number + 0.0)
FLOAT = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)  # -0.0 is 0.0 (the codec)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | FLOAT | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
BASE64 = st.binary(max_size=12).map(lambda raw: base64.b64encode(raw).decode())


def records(required: dict, optional: dict):
    """Objects with all required keys, any of the optional ones, and sometimes an unknown key."""
    return st.builds(
        lambda known, unknown: {**{f"x-{key}": value for key, value in unknown.items()}, **known},
        st.fixed_dictionaries(required, optional=optional),
        st.dictionaries(TEXT, JSON, max_size=1),
    )


REASON = (
    st.sampled_from(["resource_exhausted", "timeout"])
    | st.builds(lambda count: {"consecutive_failures": count}, U32)
    | st.builds(lambda kind, text: {kind: text}, st.sampled_from(["agent_requested", "unknown"]), TEXT)
)
GUIDANCE = records(
    {},
    {
        "actions": st.lists(JSON, max_size=2),
        "content": st.none() | TEXT,
        "props": st.dictionaries(TEXT, BASE64, max_size=2),
        "exploration_target": JSON,
        "scope": st.sampled_from(["minimal", "self_detail", "with_team_summary", "with_team_detail", "idle"]),
    },
)
ACTION = records(
    {"name": TEXT, "description": TEXT, "category": st.sampled_from(["node_expand", "node_state_change"])},
    {"groups": st.lists(TEXT, max_size=2), "params": st.lists(JSON, max_size=2), "example": st.none() | TEXT},
)
GROUP = records({}, {"include_groups": st.lists(TEXT, max_size=2), "exclude_groups": st.lists(TEXT, max_size=2)})
CONFIG = records(
    {},
    {
        "actions": st.dictionaries(TEXT, ACTION, max_size=2).map(
            lambda actions: {name: {**action, "name": name} for name, action in actions.items()}
        ),
        "groups": st.dictionaries(TEXT, GROUP, max_size=2),
    },
)


@st.composite
def situations(draw):
    """A whole record that a run can go on from: every part agrees with every other."""
    tick = draw(U64)
    ids = draw(st.lists(U64, unique=True, max_size=5))
    escalated = draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
    done = draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
    guided = draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
    workers = {}
    for worker in sorted(ids):
        over = "done" if worker in done else "escalated" if worker in escalated else None
        phase = st.just(over) if over else st.sampled_from(["idle", "working"])
        workers[str(worker)] = draw(
            records(
                {
                    "id": st.just(worker),
                    "consecutive_failures": U32,
                    "history_len": U64,
                    "has_escalation": st.just(worker in escalated),
                },
                {
                    "last_action": st.none() | TEXT,
                    "last_success": st.none() | st.booleans(),
                    "last_output": st.none() | TEXT,
                    "phase": phase,
                },
            )
        )
    escalation = records({"reason": REASON, "raised_at_tick": st.integers(0, tick)}, {"context": st.none() | TEXT})
    return draw(
        records(
            {
                "tick": st.just(tick),
                "workers": st.just(workers),
                "success_rate": UNIT,
                "progress": UNIT,
                "escalations": st.tuples(*(escalation.map(lambda e, w=w: [w, e]) for w in escalated)).map(list),
                "excluded_actions": st.lists(TEXT, max_size=3),
                "previous_guidances": st.fixed_dictionaries({str(worker): GUIDANCE for worker in guided}),
                "done_workers": st.just(sorted(done)),
                "metadata": st.dictionaries(TEXT, JSON, max_size=3),
            },
            {"available_actions": st.none() | CONFIG, "v2_guidances": st.none() | st.lists(GUIDANCE, max_size=2)},
        )
    )
