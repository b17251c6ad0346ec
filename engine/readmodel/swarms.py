"""The tables of swarms: the swarm of a run, its workers, its metadata, and every escalation there was. They must never
mix up a key that a record lacked with one that was null; ``absent`` says which were lacking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.core.envelope import Event
from engine.readmodel.rows import Rows
from engine.readmodel.shape import Column, Foreign, Index, SqlTable
from engine.readmodel.values import as_json, json_or_null
from projections.swarm import EscalationReason, SwarmState
from projections.swarm.events import ESCALATION_CLEARED
from projections.swarm.query import worker_of
from projections.swarm.state import HEADER

__all__ = ["ESCALATIONS", "METADATA", "SWARMS", "WORKERS", "SwarmCollector"]

_EXTRA: Final = (
    Column("extra", "json", "keys of an imported record that refold does not know", null=True),
    Column("absent", "json", "known keys that an imported record lacked; they read as null", null=True),
)

SWARMS: Final = SqlTable(
    "swarms",
    "The swarm of a run; a run has one at most.",
    (
        Column("run", "text", "the run"),
        Column("tick", "whole", "its clock"),
        Column("max_ticks", "whole", "its limit; 0 is unlimited"),
        Column("progress", "real", "how far the ticks have come, 0..1"),
        Column("success_rate", "real", "successes over visits, 0..1"),
        Column("visits", "whole", "actions of workers"),
        Column("successes", "whole", "those that succeeded"),
        Column("llm_actions", "whole", "actions of kind llm"),
        Column("manager_actions", "whole", "actions of kind manager"),
        Column("failure_threshold", "whole", "failures in a row that raise an escalation; 0: never"),
        Column("task", "json", "what it is for", null=True),
        Column("available_actions", "json", "the actions that workers may take", null=True),
        Column("excluded_actions", "json", "actions to leave out, in order"),
        Column("v2_guidances", "json", "guidances of the exploration; NULL: there is none", null=True),
        Column("verdict_success", "bool", "whether it met its goal; NULL before the verdict", null=True),
        Column("verdict_reason", "text", "why", null=True),
        Column("verdict_details", "json", "anything beside it", null=True),
        *_EXTRA,
        Column("changed_seq", "whole", "the last event of the swarm"),
    ),
    ("run",),
    (Foreign(("run",), "runs"), Foreign(("run", "changed_seq"), "events")),
)

METADATA: Final = SqlTable(
    "metadata",
    "The metadata of the swarm, a row a key; nested values are found by a path into value.",
    (
        Column("run", "text", "the run"),
        Column("key", "text", "the key"),
        Column("value", "json", "any JSON value"),
        Column("changed_seq", "whole", "the event that set it"),
    ),
    ("run", "key"),
    (Foreign(("run",), "swarms"), Foreign(("run", "changed_seq"), "events")),
    (Index(("key",)),),
)

WORKERS: Final = SqlTable(
    "workers",
    "Every worker of the swarm.",
    (
        Column("run", "text", "the run"),
        Column("worker", "whole", "the worker's number"),
        Column("phase", "text", "idle, working, escalated or done"),
        Column("has_escalation", "bool", "whether its request for help is open"),
        Column("consecutive_failures", "whole", "failures since its last success"),
        Column("history_len", "whole", "actions it completed"),
        Column("last_action", "text", "its latest action", null=True),
        Column("last_success", "bool", "whether that succeeded", null=True),
        Column("last_output", "text", "what that gave", null=True),
        Column("idled_at_tick", "whole", "the latest tick in which it did nothing", null=True),
        Column("done", "bool", "whether it is done"),
        Column("success", "bool", "whether it met its goal, once done", null=True),
        Column("message", "text", "what it said last, once done", null=True),
        Column("guidance", "json", "what its manager told it last", null=True),
        *_EXTRA,
        Column("changed_seq", "whole", "the last event that changed it"),
    ),
    ("run", "worker"),
    (Foreign(("run",), "swarms"), Foreign(("run", "changed_seq"), "events")),
    (Index(("run", "phase")),),
)

ESCALATIONS: Final = SqlTable(
    "escalations",
    "Every request for help, settled ones too.",
    (
        Column("run", "text", "the run"),
        Column("number", "whole", "its number in the order of raising, from 0"),
        Column("worker", "whole", "whose it is"),
        Column("reason", "text", "consecutive_failures, resource_exhausted, timeout, agent_requested or unknown"),
        Column("detail", "json", "what goes with the reason: a count or a text", null=True),
        Column("context", "text", "what the raiser added", null=True),
        Column("raised_at_tick", "whole", "the swarm's tick then"),
        Column("attempts", "whole", "how often it was raised again while it was open"),
        *_EXTRA,
        Column("raised_seq", "whole", "the event that raised it"),
        Column("cleared_seq", "whole", "the event that settled it; NULL while it is open", null=True),
    ),
    ("run", "number"),
    (Foreign(("run", "worker"), "workers"), Foreign(("run", "raised_seq"), "events")),
    (Index(("run", "worker")),),
)

_SUMMARY: Final = (
    "phase", "has_escalation", "consecutive_failures", "history_len", "last_action", "last_success", "last_output",
)  # fmt: skip
_ATTEMPTED: Final = "UPDATE escalations SET attempts = ? WHERE run = ? AND number = ?"
_CLEARED: Final = "UPDATE escalations SET cleared_seq = ? WHERE run = ? AND number = ?"
_UNSET: Final = "DELETE FROM metadata WHERE run = ? AND key = ?"


def _rest(record: Mapping[str, Any], known: tuple[str, ...]) -> tuple[str | None, str | None]:
    """Return (extra, absent) of a record with these known keys."""
    extra = {key: value for key, value in record.items() if key not in known}
    absent = [key for key in known if key not in record]
    return json_or_null(extra or None), json_or_null(absent or None)


class SwarmCollector:
    """Follows the swarm by the records that each event touched."""

    def __init__(self, run_id: str, state: SwarmState) -> None:
        self._run = run_id
        self._state = state
        self._swarm: int | None = None
        self._workers: dict[int, int] = {}
        self._metadata: dict[str, int] = {}
        self._raised: list[tuple[Any, ...]] = []
        self._statements: list[tuple[str, tuple[Any, ...]]] = []
        self._known = set(state.escalations.rows)

    def before(self) -> None:
        """Nothing to remember: what changed is in the tables afterwards."""

    def after(self, event: Event) -> None:
        state, seq = self._state, event.seq
        if event.type.startswith("swarm."):
            self._swarm = seq
        self._workers.update((int(str(key)), seq) for key in (*state.workers.changed, *state.guidances.changed))
        self._metadata.update((str(key), seq) for key in state.metadata.changed)
        for key in state.escalations.changed:
            self._escalation(int(str(key)), event)
        for table in state.tables:
            table.changed.clear()  # nobody takes checkpoints of this state

    def _escalation(self, number: int, event: Event) -> None:
        row = self._state.escalations.get(number)
        if row is None:
            assert event.type.startswith(ESCALATION_CLEARED.name)
            self._statements.append((_CLEARED, (event.seq, self._run, number)))
            self._workers[event.data["worker"]] = event.seq
            self._known.discard(number)
            return
        if number in self._known:
            self._statements.append((_ATTEMPTED, (row.attempts, self._run, number)))
            return
        self._known.add(number)
        self._workers[row.worker] = event.seq
        record = row.record
        reason = EscalationReason.from_record(record["reason"])
        self._raised.append(
            (
                self._run,
                number,
                row.worker,
                reason.kind,
                json_or_null(reason.value),
                record.get("context"),
                record["raised_at_tick"],
                row.attempts,
                *_rest(record, ("reason", "raised_at_tick", "context")),
                event.seq,
                None,
            )
        )

    def write(self, rows: Rows) -> None:
        if self._swarm is not None:
            rows.upsert(SWARMS, [self._row(self._swarm)])
        kept = {key: seq for key, seq in self._metadata.items() if key in self._state.metadata}
        rows.upsert(
            METADATA,
            ((self._run, key, as_json(self._state.metadata.rows[key].value), seq) for key, seq in kept.items()),
        )
        for key in self._metadata.keys() - kept.keys():
            rows.run(_UNSET, (self._run, key))
        rows.upsert(WORKERS, (self._worker(worker, seq) for worker, seq in self._workers.items()))
        rows.insert(ESCALATIONS, self._raised)
        for statement, parameters in self._statements:  # after the rows: one may have been raised and settled meanwhile
            rows.run(statement, parameters)
        self._swarm, self._workers, self._metadata, self._raised, self._statements = None, {}, {}, [], []

    def _row(self, changed: int) -> tuple[Any, ...]:
        state = self._state
        header = state.swarm.rows[HEADER]
        success, reason, details = header.verdict or (None, None, None)
        optional = {"available_actions": state.setting("actions"), "v2_guidances": state.setting("v2_guidances")}
        absent = [key for key in state.setting("absent") or () if optional[key] is None]
        return (
            self._run,
            header.tick,
            header.max_ticks,
            header.progress,
            header.success_rate,
            header.visits,
            header.successes,
            header.llm_actions,
            header.manager_actions,
            header.failure_threshold,
            json_or_null(state.setting("task")),
            json_or_null(optional["available_actions"]),
            as_json(state.setting("excluded_actions") or []),
            json_or_null(optional["v2_guidances"]),
            success,
            reason,
            json_or_null(details),
            json_or_null(state.setting("extra")),
            json_or_null(absent or None),
            changed,
        )

    def _worker(self, worker: int, changed: int) -> tuple[Any, ...]:
        row, guidance = self._state.workers.rows[worker], self._state.guidances.get(worker)
        summary = worker_of(self._state, worker)
        assert summary is not None
        record = summary.to_record()
        return (
            self._run,
            worker,
            *(record.get(key, summary.phase if key == "phase" else None) for key in _SUMMARY),
            row.idled_at,
            row.done,
            row.success,
            row.message,
            None if guidance is None else as_json(guidance.value),
            *_rest(record, ("id", *_SUMMARY)),
            changed,
        )
