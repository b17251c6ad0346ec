"""Strategies for task graph records as JSON: any node of the seed's shape and of ours, and whole graphs at rest."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from projections.graph import fields

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WORD = st.text("abcxyz_", min_size=1, max_size=8)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
UNKNOWN = st.dictionaries(WORD.map(lambda word: f"x_{word}"), JSON, max_size=2)
U32 = st.integers(0, 2**32 - 1)
MS = st.integers(0, 2**53 - 1)


def known(**keys: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Return records of the given keys with unknown ones among them."""
    return st.tuples(st.fixed_dictionaries(keys), UNKNOWN).map(lambda pair: pair[0] | pair[1])


RESULT = known(
    output=TEXT,
    artifacts=st.lists(TEXT, max_size=3),
    duration_ms=st.integers(0, 2**64 - 1),
    agent_id=st.none() | TEXT,
    agent_def=st.none() | TEXT,
)
PREDICATE = known(kind=st.sampled_from(fields.PREDICATE_KINDS), value=TEXT)
VERDICT = known(passed=st.booleans(), confidence=st.floats(0, 1), reason=TEXT)
TIMEOUT = known(run_timeout_secs=st.none() | U32, idle_timeout_secs=st.none() | U32)
RECOVERY = known(state_injection=st.none() | TEXT, route_to=st.none() | U32)
ATTEMPT = known(
    number=U32,
    handle=st.none() | TEXT | WORD.map(lambda word: {"task": word}),
    agent=st.none() | TEXT,
    started_ms=st.none() | MS,
    ended_ms=st.none() | MS,
    outcome=st.none() | st.sampled_from(fields.ATTEMPT_OUTCOMES),
    error=st.none() | TEXT,
)

SEED_KEYS: dict[str, st.SearchStrategy[Any]] = {
    "id": U32,
    "title": TEXT,
    "description": TEXT,
    "agent_hint": st.none() | TEXT,
    "status": st.sampled_from(fields.NODE_STATUSES),
    "depends_on": st.lists(U32, max_size=3),
    "result": st.none() | RESULT,
    "assigned_agent": st.none() | TEXT,
    "retry_count": U32,
    "predicate_rerun_count": U32,
    "failure_strategy": st.none() | st.sampled_from(fields.FAILURE_STRATEGIES),
    "max_retries": st.none() | U32,
    "execution_mode": st.sampled_from(fields.EXECUTION_MODES),
    "verify_predicate": st.none() | PREDICATE,
    "predicate_outcome": st.none() | VERDICT,
    "execution_environment": st.none() | TEXT,
    "token_budget_cents": st.none() | st.floats(0, 1e9),
    "network_scope": st.none() | st.sampled_from(fields.NETWORK_SCOPES),
    "asset_sensitivity": st.none() | st.sampled_from(fields.SENSITIVITIES),
}
"""The 19 fields of the seed, in its order."""

NEWER_KEYS: dict[str, st.SearchStrategy[Any]] = {
    "timeout": TIMEOUT,
    "recovery": RECOVERY,
    "routed_from": U32,
    "attempts": st.lists(ATTEMPT, min_size=1, max_size=2),
    "cause": st.sampled_from(fields.CAUSES),
    "tainted_by": st.lists(U32, min_size=1, max_size=2),
}


def node_records() -> st.SearchStrategy[dict[str, Any]]:
    """Return node records with all of the seed's keys, any of the newer ones, and unknown keys."""
    return st.tuples(st.fixed_dictionaries(SEED_KEYS, optional=NEWER_KEYS), UNKNOWN).map(lambda pair: pair[0] | pair[1])
