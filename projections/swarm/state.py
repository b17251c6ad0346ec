"""A swarm's state and its fold. ``evolve`` must never refuse, decide or read a clock; everything that can influence a
later event is in these tables.

The header holds scalars only, so that an ordinary action touches two small records whatever the swarm holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.core.catalog import Wire
from engine.core.decider import Evolve
from engine.core.limits import SWARM_WORKERS_MAX
from engine.core.table import Table
from projections.swarm.record import KEYS, OPTIONAL_KEYS
from projections.swarm.shape import copied

__all__ = ["EVOLVE", "HEADER", "EscalationRow", "Header", "JsonRow", "SwarmState", "WorkerRow"]

HEADER: Final = ""
"""The key of the one header record; a run holds one swarm."""

SUMMARY_KEYS: Final = frozenset(
    (
        "id",
        "consecutive_failures",
        "last_action",
        "last_success",
        "last_output",
        "history_len",
        "has_escalation",
        "phase",
    )
)


class Header:
    """The swarm itself: limits, clock and counters, all whole numbers.

    ``rate_set`` and ``progress_set`` hold what an import stated without the numbers behind it, until an event changes
    those numbers: the first ordinary action, the first tick.
    """

    __slots__ = (
        "failure_threshold", "imported", "llm_actions", "manager_actions", "max_ticks", "next_escalation",
        "progress_set", "rate_set", "successes", "tick", "verdict", "visits", "worker_count",
    )  # fmt: skip

    def __init__(
        self,
        worker_count: int,
        max_ticks: int,
        failure_threshold: int,
        tick: int = 0,
        visits: int = 0,
        successes: int = 0,
        llm_actions: int = 0,
        manager_actions: int = 0,
        next_escalation: int = 0,
        rate_set: float | None = None,
        progress_set: float | None = None,
        imported: bool = False,
        verdict: list[Any] | None = None,
    ) -> None:
        self.worker_count, self.max_ticks, self.failure_threshold = worker_count, max_ticks, failure_threshold
        self.tick, self.visits, self.successes = tick, visits, successes
        self.llm_actions, self.manager_actions = llm_actions, manager_actions
        self.next_escalation, self.rate_set, self.progress_set = next_escalation, rate_set, progress_set
        self.imported, self.verdict = imported, verdict

    @property
    def success_rate(self) -> float:
        """Successes over visits; 0.0 without visits (D4)."""
        if self.rate_set is not None:
            return self.rate_set
        return self.successes / self.visits if self.visits else 0.0

    @property
    def progress(self) -> float:
        """Ticks over max_ticks, at most 1; 0.0 when unlimited (D3)."""
        if self.progress_set is not None:
            return self.progress_set
        return min(self.tick / self.max_ticks, 1.0) if self.max_ticks else 0.0

    def dump(self) -> list[Any]:
        return [
            self.worker_count, self.max_ticks, self.failure_threshold, self.tick, self.visits, self.successes,
            self.llm_actions, self.manager_actions, self.next_escalation, self.rate_set, self.progress_set,
            self.imported, copied(self.verdict),
        ]  # fmt: skip

    @classmethod
    def load(cls, dumped: list[Any]) -> Header:
        return cls(*copied(dumped))


class WorkerRow:
    """One worker. ``active`` is whether it works (otherwise it idles) beneath an escalation or done.

    ``extra`` and ``absent`` keep what an imported summary held beyond the known keys, and which optional ones it
    lacked.
    """

    __slots__ = (
        "absent", "active", "done", "extra", "failures", "history_len", "idled_at", "last_action", "last_output",
        "last_success", "message", "success",
    )  # fmt: skip

    def __init__(
        self,
        failures: int = 0,
        last_action: str | None = None,
        last_success: bool | None = None,
        last_output: str | None = None,
        history_len: int = 0,
        active: bool = False,
        idled_at: int | None = None,
        done: bool = False,
        success: bool | None = None,
        message: str | None = None,
        extra: dict[str, Any] | None = None,
        absent: list[str] | None = None,
    ) -> None:
        self.failures, self.last_action, self.last_success = failures, last_action, last_success
        self.last_output, self.history_len, self.active, self.idled_at = last_output, history_len, active, idled_at
        self.done, self.success, self.message, self.extra, self.absent = done, success, message, extra, absent

    def dump(self) -> list[Any]:
        return [
            self.failures, self.last_action, self.last_success, self.last_output, self.history_len, self.active,
            self.idled_at, self.done, self.success, self.message, copied(self.extra), copied(self.absent),
        ]  # fmt: skip

    @classmethod
    def load(cls, dumped: list[Any]) -> WorkerRow:
        return cls(*copied(dumped))


class EscalationRow:
    """An open escalation: whose it is, its record, and how often it was raised again."""

    __slots__ = ("attempts", "record", "worker")

    def __init__(self, worker: int, record: dict[str, Any], attempts: int = 0) -> None:
        self.worker, self.record, self.attempts = worker, record, attempts

    def dump(self) -> list[Any]:
        return [self.worker, copied(self.record), self.attempts]

    @classmethod
    def load(cls, dumped: list[Any]) -> EscalationRow:
        worker, record, attempts = dumped
        return cls(worker, copied(record), attempts)


class JsonRow:
    """One JSON value, replaced whole and never changed in place."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def dump(self) -> list[Any]:
        return [copied(self.value)]

    @classmethod
    def load(cls, dumped: list[Any]) -> JsonRow:
        return cls(copied(dumped[0]))


class SwarmState:
    """The swarm's tables, and which escalation is open for whom (derived)."""

    def __init__(self) -> None:
        self.swarm: Table[Header] = Table("swarm", Header)
        self.workers: Table[WorkerRow] = Table("workers", WorkerRow, order="key")
        self.escalations: Table[EscalationRow] = Table("escalations", EscalationRow, order="key")
        """By a number that grows: the order of the keys is the order of raising."""
        self.guidances: Table[JsonRow] = Table("guidances", JsonRow, order="key")
        self.metadata: Table[JsonRow] = Table("metadata", JsonRow, order="key")
        self.settings: Table[JsonRow] = Table("settings", JsonRow, order="key")
        """What is replaced whole: task, actions, excluded_actions, v2_guidances; and extra, absent of an import."""
        self.open: dict[int, int] = {}
        """Worker -> key of its open escalation."""

    @property
    def tables(self) -> tuple[Table[Any], ...]:
        return (self.swarm, self.workers, self.escalations, self.guidances, self.metadata, self.settings)

    def reindex(self) -> None:
        self.open = {row.worker: number for number, row in self.escalations.rows.items() if isinstance(number, int)}

    def phase(self, worker: int) -> str:
        """Return the phase of a worker that exists."""
        row = self.workers.rows[worker]
        if row.done:
            return "done"
        if worker in self.open:
            return "escalated"
        return "working" if row.active else "idle"

    def setting(self, key: str) -> Any:
        """Return a setting for reading, or None. The caller must not change it."""
        row = self.settings.get(key)
        return None if row is None else row.value


# -- the fold ----------------------------------------------------------------------------------------------------------


def _put(table: Table[JsonRow], key: Any, value: Any) -> None:
    # A copy: the event may be handed to a caller, and what a caller holds must not reach into the state.
    if key in table:
        table.edit(key).value = copied(value)
    else:
        table.add(key, JsonRow(copied(value)))


def _put_or_remove(table: Table[JsonRow], key: Any, value: Any) -> None:
    if value is not None:
        _put(table, key, value)
    elif key in table:
        table.remove(key)


def started(state: SwarmState, wire: Wire, seq: int) -> None:
    _, _, worker_count, max_ticks, failure_threshold, task = wire
    assert worker_count <= SWARM_WORKERS_MAX, f"a swarm of {worker_count} workers"
    state.swarm.add(HEADER, Header(worker_count, max_ticks, failure_threshold))
    for worker in range(worker_count):
        state.workers.add(worker, WorkerRow())
    _put_or_remove(state.settings, "task", task)


def imported(state: SwarmState, wire: Wire, seq: int) -> None:
    _, _, record, visits, successes, max_ticks, failure_threshold, task = wire
    header = Header(
        len(record["workers"]),
        max_ticks or 0,
        failure_threshold,
        tick=record["tick"],
        visits=visits or 0,
        successes=successes or 0,
        rate_set=record["success_rate"] if visits is None else None,
        progress_set=record["progress"] if max_ticks is None else None,
        imported=True,
    )
    state.swarm.add(HEADER, header)
    done = set(record["done_workers"])
    for key, summary in record["workers"].items():
        state.workers.add(int(key), _worker_of(summary, int(key) in done))
    for worker, escalation in record["escalations"]:
        _open(state, header, worker, escalation)
    for key, guidance in record["previous_guidances"].items():
        _put(state.guidances, int(key), guidance)
    for key, value in record["metadata"].items():
        _put(state.metadata, key, value)
    put = state.settings
    _put_or_remove(put, "task", task)
    _put_or_remove(put, "actions", record.get("available_actions"))
    _put_or_remove(put, "v2_guidances", record.get("v2_guidances"))
    _put(put, "excluded_actions", record["excluded_actions"])
    _put_or_remove(put, "extra", {key: value for key, value in record.items() if key not in KEYS} or None)
    _put_or_remove(put, "absent", [key for key in OPTIONAL_KEYS if key not in record] or None)


def _worker_of(summary: dict[str, Any], done: bool) -> WorkerRow:
    phase = summary.get("phase")
    return WorkerRow(
        failures=summary["consecutive_failures"],
        last_action=summary.get("last_action"),
        last_success=summary.get("last_success"),
        last_output=summary.get("last_output"),
        history_len=summary["history_len"],
        active=phase == "working" or (phase != "idle" and summary["history_len"] > 0),
        done=done,
        extra={key: copied(value) for key, value in summary.items() if key not in SUMMARY_KEYS} or None,
        absent=[key for key in ("last_action", "last_success", "last_output", "phase") if key not in summary] or None,
    )


def actions_configured(state: SwarmState, wire: Wire, seq: int) -> None:
    _put(state.settings, "actions", wire[2])


def tick_advanced(state: SwarmState, wire: Wire, seq: int) -> None:
    header = state.swarm.edit(HEADER)
    header.tick = wire[2]
    header.progress_set = None


def action_completed(state: SwarmState, wire: Wire, seq: int) -> None:
    _, _, worker, action, _, success, output, _, _, kind = wire
    header = state.swarm.edit(HEADER)
    if kind == "worker":
        header.visits += 1
        header.rate_set = None
        row = state.workers.edit(worker)
        if success:
            header.successes += 1
            row.failures = 0
        else:
            row.failures += 1
        row.last_action = action
        row.last_success = success
        row.last_output = output
        row.history_len += 1
        row.active = True
    elif kind == "llm":
        header.llm_actions += 1
    else:
        header.manager_actions += 1


def worker_idled(state: SwarmState, wire: Wire, seq: int) -> None:
    row = state.workers.edit(wire[2])
    row.active = False
    row.idled_at = state.swarm.rows[HEADER].tick


def _open(state: SwarmState, header: Header, worker: int, record: dict[str, Any]) -> None:
    number = header.next_escalation
    header.next_escalation = number + 1
    state.escalations.add(number, EscalationRow(worker, copied(record)))
    state.open[worker] = number


def escalation_raised(state: SwarmState, wire: Wire, seq: int) -> None:
    _, _, worker, reason, tick, context = wire
    # Keys in the order of their encoded bytes, as everywhere.
    record = {"reason": reason, "context": context, "raised_at_tick": tick}
    _open(state, state.swarm.edit(HEADER), worker, record)


def escalation_attempted(state: SwarmState, wire: Wire, seq: int) -> None:
    state.escalations.edit(state.open[wire[2]]).attempts += 1


def escalation_cleared(state: SwarmState, wire: Wire, seq: int) -> None:
    state.escalations.remove(state.open.pop(wire[2]))


def worker_finished(state: SwarmState, wire: Wire, seq: int) -> None:
    _, _, worker, success, message = wire
    row = state.workers.edit(worker)
    row.done, row.success, row.message = True, success, message


def guidance_issued(state: SwarmState, wire: Wire, seq: int) -> None:
    _put(state.guidances, wire[2], wire[3])


def exploration_updated(state: SwarmState, wire: Wire, seq: int) -> None:
    _put(state.settings, "excluded_actions", wire[2])
    _put_or_remove(state.settings, "v2_guidances", wire[3])


def metadata_set(state: SwarmState, wire: Wire, seq: int) -> None:
    _put(state.metadata, wire[2], wire[3])


def metadata_removed(state: SwarmState, wire: Wire, seq: int) -> None:
    state.metadata.remove(wire[2])


def verdict_recorded(state: SwarmState, wire: Wire, seq: int) -> None:
    state.swarm.edit(HEADER).verdict = copied(wire[2:])


EVOLVE: Final[Mapping[str, Evolve]] = {
    f"swarm.{function.__name__}": function
    for function in (
        started, imported, actions_configured, tick_advanced, action_completed, worker_idled, escalation_raised,
        escalation_attempted, escalation_cleared, worker_finished, guidance_issued, exploration_updated, metadata_set,
        metadata_removed, verdict_recorded,
    )
}  # fmt: skip
