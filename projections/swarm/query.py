"""Questions to a swarm's state. An answer is immutable and must share nothing with the state it was taken from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.core.errors import NotFound
from projections.swarm.actions import ActionsConfig
from projections.swarm.context import TaskContext
from projections.swarm.escalation import Escalation
from projections.swarm.guidance import Guidance
from projections.swarm.parts import Parts
from projections.swarm.shape import copied, ordered
from projections.swarm.state import HEADER, Header, SwarmState, WorkerRow
from projections.swarm.worker import WorkerSummary, derived_phase

__all__ = ["Counts", "Verdict", "context_of", "counts_of", "verdict_of", "worker_of"]


@dataclass(frozen=True, slots=True)
class Counts:
    """The whole numbers behind the rates, and the limits. ``max_ticks`` 0 is unlimited."""

    visits: int
    successes: int
    llm_actions: int
    manager_actions: int
    max_ticks: int
    failure_threshold: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the swarm was judged. ``details`` is a fresh JSON value."""

    success: bool
    reason: str | None
    details: Any


def header_of(state: SwarmState) -> Header:
    """Return the header, or raise NotFound when the run has no swarm yet."""
    header = state.swarm.get(HEADER)
    if header is None:
        raise NotFound("this run has no swarm at this position", hint="run.swarm.start() or import_record() begins one")
    return header


def context_of(state: SwarmState) -> TaskContext:
    """Return the situation now, handed out: read-only, and equal to any other taken from an equal state."""
    header = header_of(state)
    config, guidances = state.setting("actions"), state.setting("v2_guidances")
    open_numbers = sorted(state.open.values())
    rows = state.escalations.rows
    workers = sorted(key for key in state.workers.rows if isinstance(key, int))
    return TaskContext.of(
        Parts(
            tick=header.tick,
            workers={worker: _summary(state, worker, state.workers.rows[worker]) for worker in workers},
            success_rate=header.success_rate,
            progress=header.progress,
            escalations=tuple((rows[n].worker, Escalation.trusted(copied(rows[n].record))) for n in open_numbers),
            available_actions=None if config is None else ActionsConfig.trusted(copied(config)),
            v2_guidances=None if guidances is None else tuple(Guidance.trusted(copied(found)) for found in guidances),
            excluded_actions=tuple(state.setting("excluded_actions") or ()),
            previous_guidances={
                worker: Guidance.trusted(copied(state.guidances.rows[worker].value))
                for worker in workers
                if worker in state.guidances
            },
            done_workers=frozenset(worker for worker in workers if state.workers.rows[worker].done),
            metadata={str(key): copied(row.value) for key, row in state.metadata.ordered()},
            extra=copied(state.setting("extra") or {}),
            absent=tuple(state.setting("absent") or ()),
        ),
        handed_out=True,
    )


def worker_of(state: SwarmState, worker: int) -> WorkerSummary | None:
    """Return one worker's summary, or None."""
    header_of(state)
    row = state.workers.get(worker)
    return None if row is None else _summary(state, worker, row)


def _summary(state: SwarmState, worker: int, row: WorkerRow) -> WorkerSummary:
    phase = state.phase(worker)
    record: dict[str, Any] = {  # in the order of the encoded keys, as a record that was read has them
        "id": worker,
        "phase": phase,
        "history_len": row.history_len,
        "last_action": row.last_action,
        "last_output": row.last_output,
        "last_success": row.last_success,
        "has_escalation": worker in state.open,
        "consecutive_failures": row.failures,
    }
    for key in row.absent or ():
        implied = phase in ("done", derived_phase(record)) if key == "phase" else record[key] is None
        if implied:
            del record[key]
    if row.extra:
        record = ordered({**record, **copied(row.extra)})
    return WorkerSummary.trusted(record, phase)


def counts_of(state: SwarmState) -> Counts:
    """Return the counters and limits. Raises NotFound before the swarm begins."""
    header = header_of(state)
    return Counts(
        header.visits,
        header.successes,
        header.llm_actions,
        header.manager_actions,
        header.max_ticks,
        header.failure_threshold,
    )


def verdict_of(state: SwarmState) -> Verdict | None:
    """Return the verdict, or None before there is one."""
    verdict = header_of(state).verdict
    return None if verdict is None else Verdict(*copied(verdict))
