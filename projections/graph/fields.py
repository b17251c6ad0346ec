"""The vocabulary of a task graph: its labels, and the shape of every JSON record in it, as data. It must never hold a
rule that needs more than one record; those are in ``validate``.

One :class:`Shape` serves three readers: the field types of the events, the import of foreign JSON, and the public
values. So a key is declared once, and what is checked on the way in is exactly what goes out again. A key that a shape
does not know is kept and written back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from engine.core.codec import normalise
from engine.core.errors import InvalidValue
from engine.core.fields import (
    BOOL,
    FLOAT,
    ID,
    TEXT,
    TIME_MS,
    U32,
    U64,
    UNIT,
    Checked,
    FieldType,
    list_of,
    one_of,
    optional,
)

__all__ = [
    "ATTEMPT", "ATTEMPT_OUTCOME", "ATTEMPT_OUTCOMES", "ATTEMPT_SHAPE", "BUDGET", "CAUSE", "CAUSES", "EXECUTION_MODES",
    "FAILURE_STRATEGIES", "FAILURE_STRATEGY", "FAIL_CAUSE", "FAIL_CAUSES", "GRAPH_SHAPE", "GRAPH_STATUS",
    "GRAPH_STATUSES", "HANDLE", "Key", "MODE", "NETWORK_SCOPE", "NETWORK_SCOPES", "NODE_SHAPE", "NODE_STATUS",
    "NODE_STATUSES", "OUTCOME", "OUTCOMES", "OUTCOME_SHAPE", "OVER", "PREDICATE", "PREDICATE_KINDS", "PREDICATE_SHAPE",
    "RECOVERY", "RECOVERY_POLICIES", "RECOVERY_SHAPE", "REQUIRED", "RESULT", "RESULT_SHAPE", "SENSITIVITIES",
    "SENSITIVITY", "Shape", "TERMINAL", "TIMEOUT", "TIMEOUT_SHAPE", "in_order",
]  # fmt: skip

# -- labels -----------------------------------------------------------------------------------------------------------

NODE_STATUSES: Final = ("pending", "ready", "running", "completed", "failed", "skipped", "canceled", "dormant")
TERMINAL: Final = frozenset({"completed", "failed", "skipped", "canceled"})
GRAPH_STATUSES: Final = ("created", "running", "completed", "failed", "canceled", "paused")
OVER: Final = frozenset({"completed", "failed", "canceled"})
"""The graph statuses that have a ``finished_at``."""

OUTCOMES: Final = ("completed", "completed_with_failures", "failed", "canceled")
FAILURE_STRATEGIES: Final = ("abort", "retry", "skip", "ask")
EXECUTION_MODES: Final = ("parallel", "sequential")
NETWORK_SCOPES: Final = ("inherit", "allow", "deny")
SENSITIVITIES: Final = ("public", "internal", "confidential")
PREDICATE_KINDS: Final = ("natural", "expression")
RECOVERY_POLICIES: Final = ("keep", "requeue", "fail")

FAIL_CAUSES: Final = ("error", "run_timeout", "idle_timeout", "spawn", "tools")
"""What a host may report as the cause of a failed attempt."""

_FAILURES: Final = (*FAIL_CAUSES, "predicate", "crash", "corrected")
CAUSES: Final = (*_FAILURES, "failure", "dependency", "person", "unneeded", "abort", "deadlock", "recovered")
"""Why a node is failed, skipped, canceled, or completed although it failed."""

ATTEMPT_OUTCOMES: Final = ("completed", "deferred", "canceled", "unknown", *_FAILURES)

# -- shapes -----------------------------------------------------------------------------------------------------------

REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a JSON record: its name, its type, and what a record without it means."""

    name: str
    type: FieldType
    default: Any = REQUIRED

    @property
    def fallback(self) -> Any:
        """What a record reads as that has not got the key: its default, None when it must have it."""
        return None if self.default is REQUIRED else self.type.check(self.default)


def in_order(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with its keys in canonical order (the order of their encoded bytes)."""
    return {name: record[name] for name in _sorted(tuple(record))}


@lru_cache(maxsize=256)  # records of one kind have the same few sets of keys
def _sorted(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: (len(raw := name.encode()), raw)))


class Shape:
    """What a JSON record must look like: known keys with types and defaults; any other key is kept as it is."""

    __slots__ = ("keys", "label", "names")

    def __init__(self, label: str, *keys: Key) -> None:
        self.label = label
        self.keys = keys
        self.names = frozenset(key.name for key in keys)

    def read(self, data: Any, faults: list[InvalidValue]) -> dict[str, Any]:
        """Return the record with every known key present and checked, sharing nothing with ``data``.

        Every bad value is added to ``faults`` with its path, and read as its key's default (or None).
        """
        if type(data) is not dict:
            faults.append(InvalidValue("", f"expected an object ({self.label}), found {type(data).__name__}"))
            return {key.name: key.fallback for key in self.keys}  # lacks every key: one fault says so better than many
        record: dict[str, Any] = {}
        for key in self.keys:
            if key.name in data:
                try:
                    record[key.name] = key.type.check(data[key.name])
                    continue
                except InvalidValue as error:
                    faults.append(error.at(key.name))
            elif key.default is REQUIRED:
                faults.append(InvalidValue(key.name, "the key is missing"))
            record[key.name] = key.fallback
        for name, value in data.items():
            if name not in self.names:
                try:
                    record.update(normalise({name: value}))
                except InvalidValue as error:
                    faults.append(error)
        return in_order(record)

    def check(self, data: Any) -> dict[str, Any]:
        """Return the record as :meth:`read` does, or raise InvalidValue for its first fault."""
        faults: list[InvalidValue] = []
        record = self.read(data, faults)
        if faults:
            raise faults[0]
        return record

    def extra(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a fresh copy of the keys that the shape does not know."""
        unknown = {name: record[name] for name in record if name not in self.names}
        return normalise(unknown) if unknown else unknown


def _budget(value: Any) -> float:
    number: float = FLOAT.check(value)
    if number < 0.0:
        raise InvalidValue("", f"{number} is out of range: a budget is 0 or more")
    return number


def _confidence(value: Any) -> float:
    try:
        number: float = UNIT.check(value)
    except InvalidValue as error:
        raise InvalidValue("", error.problem.replace("is outside", "is out of range")) from None
    return number


def _handle(value: Any) -> Any:
    """Return a handle: text of the host's own, or ``{"task": id}`` for an attempt that follows a task of the run."""
    if type(value) is dict:
        if list(value) != ["task"]:
            raise InvalidValue("", "a handle object holds exactly the key 'task'")
        try:
            return {"task": ID.check(value["task"])}
        except InvalidValue as error:
            raise error.at("task") from None
    return TEXT.check(value)


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise InvalidValue("", f"expected a list, found {type(value).__name__}")
    return value


FAILURE_STRATEGY: Final = one_of("failure strategy", FAILURE_STRATEGIES)
MODE: Final = one_of("execution mode", EXECUTION_MODES)
NETWORK_SCOPE: Final = one_of("network scope", NETWORK_SCOPES)
SENSITIVITY: Final = one_of("asset sensitivity", SENSITIVITIES)
NODE_STATUS: Final = one_of("node status", NODE_STATUSES)
GRAPH_STATUS: Final = one_of("graph status", GRAPH_STATUSES)
CAUSE: Final = one_of("cause", CAUSES)
FAIL_CAUSE: Final = one_of("cause of failure", (*FAIL_CAUSES, "crash"))
ATTEMPT_OUTCOME: Final = one_of("attempt outcome", ATTEMPT_OUTCOMES)
BUDGET: Final = Checked("float >= 0", _budget, (FLOAT,))
HANDLE: Final = Checked('text or {"task": id}', _handle, (TEXT,))

RESULT_SHAPE: Final = Shape(
    "task result",
    Key("output", TEXT),
    Key("artifacts", list_of(TEXT), ()),
    Key("duration_ms", U64, 0),
    Key("agent_id", optional(TEXT), None),
    Key("agent_def", optional(TEXT), None),
)
PREDICATE_SHAPE: Final = Shape(
    "verify predicate", Key("kind", one_of("predicate kind", PREDICATE_KINDS)), Key("value", TEXT)
)
OUTCOME_SHAPE: Final = Shape(
    "predicate outcome",
    Key("passed", BOOL),
    Key("confidence", Checked("float 0..1", _confidence, (UNIT,))),
    Key("reason", TEXT, ""),
)
TIMEOUT_SHAPE: Final = Shape(
    "timeout policy", Key("run_timeout_secs", optional(U64), None), Key("idle_timeout_secs", optional(U64), None)
)
RECOVERY_SHAPE: Final = Shape(
    "recovery", Key("state_injection", optional(TEXT), None), Key("route_to", optional(U32), None)
)
ATTEMPT_SHAPE: Final = Shape(
    "attempt",
    Key("number", U32),
    Key("handle", optional(HANDLE), None),
    Key("agent", optional(TEXT), None),
    Key("started_ms", optional(TIME_MS), None),
    Key("ended_ms", optional(TIME_MS), None),
    Key("outcome", optional(ATTEMPT_OUTCOME), None),
    Key("error", optional(TEXT), None),
)

RESULT: Final = Checked("task result", RESULT_SHAPE.check)
PREDICATE: Final = Checked("verify predicate", PREDICATE_SHAPE.check)
OUTCOME: Final = Checked("predicate outcome", OUTCOME_SHAPE.check)
TIMEOUT: Final = Checked("timeout policy", TIMEOUT_SHAPE.check)
RECOVERY: Final = Checked("recovery", RECOVERY_SHAPE.check)
ATTEMPT: Final = Checked("attempt", ATTEMPT_SHAPE.check)

NODE_SHAPE: Final = Shape(
    "task node",
    Key("id", U32),
    Key("title", TEXT),
    Key("description", TEXT),
    Key("agent_hint", optional(TEXT), None),
    Key("status", NODE_STATUS, "pending"),
    Key("depends_on", list_of(U32), ()),
    Key("result", optional(RESULT), None),
    Key("assigned_agent", optional(TEXT), None),
    Key("retry_count", U32, 0),
    Key("predicate_rerun_count", U32, 0),
    Key("failure_strategy", optional(FAILURE_STRATEGY), None),
    Key("max_retries", optional(U32), None),
    Key("execution_mode", MODE, "parallel"),
    Key("verify_predicate", optional(PREDICATE), None),
    Key("predicate_outcome", optional(OUTCOME), None),
    Key("execution_environment", optional(TEXT), None),
    Key("token_budget_cents", optional(BUDGET), None),
    Key("network_scope", optional(NETWORK_SCOPE), None),
    Key("asset_sensitivity", optional(SENSITIVITY), None),
    Key("timeout", optional(TIMEOUT), None),
    Key("recovery", optional(RECOVERY), None),
    Key("routed_from", optional(U32), None),
    Key("attempts", list_of(ATTEMPT), ()),
    Key("cause", optional(CAUSE), None),
    Key("tainted_by", list_of(U32), ()),
)
"""The 19 keys of the seed in its order, then four of newer versions, then ours."""

GRAPH_SHAPE: Final = Shape(
    "task graph",
    Key("id", ID),
    Key("goal", TEXT),
    Key("nodes", Checked("list of task nodes", _list)),
    Key("status", GRAPH_STATUS, "created"),
    Key("default_failure_strategy", FAILURE_STRATEGY, "abort"),
    Key("default_max_retries", U32, 3),
    Key("created_at", TIME_MS),
    Key("finished_at", optional(TIME_MS), None),
    Key("outcome", optional(one_of("graph outcome", OUTCOMES)), None),
)
"""``nodes`` is only checked to be a list here; each of its records is read with NODE_SHAPE, so that faults name the
node."""
