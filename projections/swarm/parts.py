"""What a TaskContext is made of. Parts are only ever replaced, never changed: values share them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from projections.swarm.actions import ActionsConfig
from projections.swarm.escalation import Escalation
from projections.swarm.guidance import Guidance
from projections.swarm.record import KEYS, OPTIONAL_KEYS
from projections.swarm.value import WorkerId
from projections.swarm.worker import WorkerSummary

__all__ = ["Parts", "agreed", "by_id", "parts_at", "parts_of"]


class Parts(NamedTuple):
    """The eleven fields, and what a record held beyond them. The containers belong to the value that is made of
    them."""

    tick: int
    workers: dict[WorkerId, WorkerSummary]
    success_rate: float
    progress: float
    escalations: tuple[tuple[WorkerId, Escalation], ...]
    available_actions: ActionsConfig | None
    v2_guidances: tuple[Guidance, ...] | None
    excluded_actions: tuple[str, ...]
    previous_guidances: dict[WorkerId, Guidance]
    done_workers: frozenset[WorkerId]
    metadata: dict[str, Any]
    extra: dict[str, Any]
    absent: tuple[str, ...]


def parts_at(tick: int) -> Parts:
    """Return the parts of an empty situation."""
    return Parts(tick, {}, 0.0, 0.0, (), None, None, (), {}, frozenset(), {}, {}, ())


def by_id(pairs: Iterable[tuple[WorkerId, Any]]) -> dict[WorkerId, Any]:
    """Return the pairs as a dict in numeric order of the ids."""
    return dict(sorted(pairs, key=lambda pair: pair[0]))


def agreed(
    workers: Mapping[WorkerId, WorkerSummary],
    escalations: Iterable[tuple[WorkerId, Escalation]],
    done: frozenset[WorkerId],
) -> dict[WorkerId, WorkerSummary]:
    """Return the summaries in agreement with the open escalations and the done workers."""
    result = dict(workers)
    for worker, _ in escalations:
        if worker in result and not result[worker].has_escalation:
            result[worker] = result[worker].escalated()
    for worker in done:
        if worker in result and result[worker].phase != "done":
            result[worker] = result[worker].with_phase("done")
    return result


def parts_of(record: dict[str, Any]) -> Parts:
    """Return the parts of a record that has been checked."""
    done = frozenset(record["done_workers"])
    config, guidances = record.get("available_actions"), record.get("v2_guidances")
    return Parts(
        tick=record["tick"],
        workers=by_id(
            (int(key), WorkerSummary.trusted(found, "done" if int(key) in done else None))
            for key, found in record["workers"].items()
        ),
        success_rate=record["success_rate"],
        progress=record["progress"],
        escalations=tuple((worker, Escalation.trusted(found)) for worker, found in record["escalations"]),
        available_actions=None if config is None else ActionsConfig.trusted(config),
        v2_guidances=None if guidances is None else tuple(Guidance.trusted(found) for found in guidances),
        excluded_actions=tuple(record["excluded_actions"]),
        previous_guidances=by_id((int(k), Guidance.trusted(g)) for k, g in record["previous_guidances"].items()),
        done_workers=done,
        metadata=record["metadata"],
        extra={key: found for key, found in record.items() if key not in KEYS},
        absent=tuple(key for key in OPTIONAL_KEYS if key not in record),
    )
