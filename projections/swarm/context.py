"""TaskContext: a swarm's situation at one tick, as a value. It must never share anything mutable with a run, and must
never guess: typed getters coerce nothing.

Not to be mixed up with ContextState, which is one conversation's memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from engine.core.codec import encode, normalise
from engine.core.errors import InvalidValue, ReadOnly
from engine.core.fields import TEXT, U64, UNIT, FieldType
from engine.core.limits import I64_MAX, I64_MIN
from projections.swarm.actions import ActionsConfig
from projections.swarm.escalation import Escalation
from projections.swarm.guidance import Guidance
from projections.swarm.parts import Parts, agreed, by_id, parts_at, parts_of
from projections.swarm.record import CONTEXT, parse
from projections.swarm.shape import copied, read
from projections.swarm.value import WorkerId, check_worker_id
from projections.swarm.worker import WorkerSummary

__all__ = ["TaskContext"]

T = TypeVar("T")


def _checked(kind: FieldType, value: Any, path: str) -> Any:
    try:
        return kind.check(value)
    except InvalidValue as error:
        raise error.at(path) from None


def _instance(value: Any, kind: type[T], path: str) -> T:
    if not isinstance(value, kind):
        raise InvalidValue(path, f"expected {kind.__name__}, found {type(value).__name__}")
    return value


class TaskContext:
    """A swarm's situation at a tick: eleven fields, builders that return a new value, and typed getters.

    A value that a run hands out is read-only: :meth:`set` raises ReadOnly there, while ``clone()`` and every builder
    give
    a value of the caller's own. Workers are in numeric order everywhere.
    """

    __slots__ = ("_handed_out", "_metadata", "_parts")

    def __init__(self, tick: int = 0) -> None:
        self._parts = parts_at(_checked(U64, tick, "tick"))
        self._metadata: dict[str, Any] = {}
        self._handed_out = False

    @classmethod
    def new(cls, tick: int) -> TaskContext:
        """Return an empty situation at ``tick``."""
        return cls(tick)

    @classmethod
    def default(cls) -> TaskContext:
        """Return an empty situation at tick 0."""
        return cls()

    @classmethod
    def of(cls, parts: Parts, *, handed_out: bool = False) -> TaskContext:
        """Return the value of parts that are checked. Metadata values are never changed in place, so they may be
        shared."""
        value = cls()
        value._parts, value._metadata, value._handed_out = parts, dict(parts.metadata), handed_out
        return value

    @classmethod
    def from_record(cls, record: Any) -> TaskContext:
        """Return the value of a JSON record. Raises ImportRefused naming every malformed entry by its path."""
        found = read("swarm record", CONTEXT, record)
        return cls.of(parts_of(found))

    @classmethod
    def from_json(cls, text: str | bytes) -> TaskContext:
        """Return the value of JSON text. Raises ImportRefused; also for a key that stands twice, NaN and infinities."""
        return cls.from_record(parse(text))

    # -- the fields ---------------------------------------------------------------------------------------------------

    @property
    def tick(self) -> int:
        """The tick this is the situation of."""
        return self._parts.tick

    @property
    def workers(self) -> Mapping[WorkerId, WorkerSummary]:
        """Every worker's summary by id, in numeric order."""
        return MappingProxyType(self._parts.workers)

    @property
    def success_rate(self) -> float:
        """Successes over visits, 0..1; 0.0 without visits."""
        return self._parts.success_rate

    @property
    def progress(self) -> float:
        """How far the ticks have come, 0..1; 0.0 when they are unlimited."""
        return self._parts.progress

    @property
    def escalations(self) -> tuple[tuple[WorkerId, Escalation], ...]:
        """The open escalations with their workers, in the order they were raised."""
        return self._parts.escalations

    @property
    def available_actions(self) -> ActionsConfig | None:
        """The actions that workers may take, or None when none were configured."""
        return self._parts.available_actions

    @property
    def v2_guidances(self) -> tuple[Guidance, ...] | None:
        """Guidances that the exploration made. None (no exploration) is not the empty tuple."""
        return self._parts.v2_guidances

    @property
    def excluded_actions(self) -> tuple[str, ...]:
        """Actions to leave out, in order."""
        return self._parts.excluded_actions

    @property
    def previous_guidances(self) -> Mapping[WorkerId, Guidance]:
        """The latest guidance of each worker that has had one, in numeric order."""
        return MappingProxyType(self._parts.previous_guidances)

    @property
    def done_workers(self) -> frozenset[WorkerId]:
        """The workers that are done."""
        return self._parts.done_workers

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata, in a fresh dict."""
        found: dict[str, Any] = copied(self._metadata)
        return found

    @property
    def read_only(self) -> bool:
        """Whether a run handed this value out."""
        return self._handed_out

    # -- builders -----------------------------------------------------------------------------------------------------

    def _with(self, **changes: Any) -> TaskContext:
        return TaskContext.of(self._parts._replace(**{"metadata": self._metadata, **changes}))

    def clone(self) -> TaskContext:
        """Return an equal value of the caller's own."""
        return self._with()

    __copy__ = clone

    def __deepcopy__(self, memo: Any) -> TaskContext:
        return self.clone()

    def with_worker(self, summary: WorkerSummary) -> TaskContext:
        """Return a copy with this worker's summary put in or replaced."""
        parts = self._parts
        _instance(summary, WorkerSummary, "summary")
        workers = by_id([*((k, v) for k, v in parts.workers.items() if k != summary.id), (summary.id, summary)])
        return self._with(workers=agreed(workers, parts.escalations, parts.done_workers))

    def with_success_rate(self, rate: float) -> TaskContext:
        """Return a copy with this success rate. Raises InvalidValue for NaN and anything outside 0..1."""
        return self._with(success_rate=_checked(UNIT, rate, "success_rate"))

    def with_progress(self, progress: float) -> TaskContext:
        """Return a copy with this progress. Raises InvalidValue for NaN and anything outside 0..1."""
        return self._with(progress=_checked(UNIT, progress, "progress"))

    def with_escalation(self, worker_id: WorkerId, escalation: Escalation) -> TaskContext:
        """Return a copy with this escalation. At most one per worker is open: a worker that has one keeps the first."""
        _instance(escalation, Escalation, "escalation")
        if self.has_escalation_for(worker_id):
            return self.clone()
        escalations = (*self._parts.escalations, (worker_id, escalation))
        workers = agreed(self._parts.workers, escalations, self._parts.done_workers)
        return self._with(escalations=escalations, workers=workers)

    def with_actions(self, actions: ActionsConfig) -> TaskContext:
        """Return a copy with these available actions."""
        return self._with(available_actions=_instance(actions, ActionsConfig, "actions"))

    def with_v2_guidances(self, guidances: Sequence[Guidance] | None) -> TaskContext:
        """Return a copy with the guidances of the exploration, or without any exploration (None)."""
        if guidances is None:
            return self._with(v2_guidances=None)
        checked = tuple(_instance(found, Guidance, f"guidances[{index}]") for index, found in enumerate(guidances))
        return self._with(v2_guidances=checked)

    def with_excluded_actions(self, actions: Iterable[str]) -> TaskContext:
        """Return a copy that leaves out these actions."""
        checked = tuple(_checked(TEXT, action, f"excluded_actions[{index}]") for index, action in enumerate(actions))
        return self._with(excluded_actions=checked)

    def with_previous_guidances(self, guidances: Mapping[WorkerId, Guidance]) -> TaskContext:
        """Return a copy with exactly these previous guidances."""
        pairs = [
            (check_worker_id(worker, "guidances"), _instance(found, Guidance, f"guidances.{worker}"))
            for worker, found in guidances.items()
        ]
        return self._with(previous_guidances=by_id(pairs))

    def with_previous_guidance(self, worker_id: WorkerId, guidance: Guidance) -> TaskContext:
        """Return a copy with one worker's previous guidance put in or replaced."""
        check_worker_id(worker_id, "worker_id")
        _instance(guidance, Guidance, "guidance")
        others = ((worker, kept) for worker, kept in self._parts.previous_guidances.items() if worker != worker_id)
        return self._with(previous_guidances=by_id([*others, (worker_id, guidance)]))

    def with_done_worker(self, worker_id: WorkerId) -> TaskContext:
        """Return a copy in which this worker is done."""
        done = self._parts.done_workers | {check_worker_id(worker_id, "worker_id")}
        return self._with(done_workers=done, workers=agreed(self._parts.workers, self._parts.escalations, done))

    def insert(self, key: str, value: Any) -> TaskContext:
        """Return a copy with one metadata value. Raises InvalidValue for what JSON cannot hold exactly."""
        copy = self.clone()
        copy.set(key, value)
        return copy

    def set(self, key: str, value: Any) -> None:
        """Put one metadata value into this value itself. Raises ReadOnly on a value that a run handed out."""
        if self._handed_out:
            raise ReadOnly(
                "this TaskContext was handed out by a run and shows what was recorded",
                hint="insert() and clone() give a copy of your own; run.swarm.set_metadata() records the value",
            )
        name = _checked(TEXT, key, "key")
        self._metadata[name] = normalise(value, f"metadata.{name}")

    # -- getters ------------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Any:
        """Return a metadata value (a fresh copy), or None."""
        return copied(self._metadata.get(key))

    def get_str(self, key: str) -> str | None:
        """Return a metadata value that is text, otherwise None."""
        found = self._metadata.get(key)
        return found if type(found) is str else None

    def get_f64(self, key: str) -> float | None:
        """Return a metadata value that is a number and that a float holds exactly, otherwise None."""
        found = self._metadata.get(key)
        if type(found) is int and int(float(found)) == found:
            return float(found)
        return found if type(found) is float else None

    def get_i64(self, key: str) -> int | None:
        """Return a metadata value that is a whole number within 64 signed bits, otherwise None. 5.0 is not one."""
        found = self._metadata.get(key)
        return found if type(found) is int and I64_MIN <= found <= I64_MAX else None

    def get_bool(self, key: str) -> bool | None:
        """Return a metadata value that is true or false, otherwise None."""
        found = self._metadata.get(key)
        return found if type(found) is bool else None

    # -- questions ----------------------------------------------------------------------------------------------------

    def has_escalations(self) -> bool:
        """Return whether any escalation is open."""
        return bool(self._parts.escalations)

    def has_escalation_for(self, worker_id: WorkerId) -> bool:
        """Return whether an escalation of this worker is open."""
        check_worker_id(worker_id, "worker_id")
        return any(worker == worker_id for worker, _ in self._parts.escalations)

    def worker(self, worker_id: WorkerId) -> WorkerSummary | None:
        """Return a worker's summary, or None."""
        return self._parts.workers.get(check_worker_id(worker_id, "worker_id"))

    def escalated_worker_count(self) -> int:
        """Return how many workers have an open escalation."""
        return len({worker for worker, _ in self._parts.escalations})

    def worker_ids(self) -> list[WorkerId]:
        """Return the ids of all workers, in numeric order."""
        return list(self._parts.workers)

    def has_exploration(self) -> bool:
        """Return whether the exploration has given guidances; an empty list of them counts."""
        return self._parts.v2_guidances is not None

    def filter_for_workers(self, worker_ids: Iterable[WorkerId]) -> TaskContext:
        """Return a copy of exactly the named workers, their escalations, guidances and done marks; all else is as it
        is.

        Unknown ids are ignored. Filtering twice is filtering for the workers named both times.
        """
        named = {check_worker_id(worker, "worker_ids") for worker in worker_ids}
        parts = self._parts
        return self._with(
            workers={worker: summary for worker, summary in parts.workers.items() if worker in named},
            escalations=tuple(pair for pair in parts.escalations if pair[0] in named),
            previous_guidances={k: guidance for k, guidance in parts.previous_guidances.items() if k in named},
            done_workers=parts.done_workers & named,
        )

    # -- out ----------------------------------------------------------------------------------------------------------

    def to_record(self) -> dict[str, Any]:
        """Return a fresh JSON record: the eleven fields in the seed's order, then unknown keys that came with it."""
        parts = self._parts
        record: dict[str, Any] = {
            "tick": parts.tick,
            "workers": {str(worker): summary.to_record() for worker, summary in parts.workers.items()},
            "success_rate": parts.success_rate,
            "progress": parts.progress,
            "escalations": [[worker, escalation.to_record()] for worker, escalation in parts.escalations],
            "available_actions": None if parts.available_actions is None else parts.available_actions.to_record(),
            "v2_guidances": None if parts.v2_guidances is None else [g.to_record() for g in parts.v2_guidances],
            "excluded_actions": list(parts.excluded_actions),
            "previous_guidances": {str(worker): g.to_record() for worker, g in parts.previous_guidances.items()},
            "done_workers": sorted(parts.done_workers),
            "metadata": copied(self._metadata),
        }
        for key in parts.absent:
            if record[key] is None:
                del record[key]
        return {**record, **copied(parts.extra)}

    def to_json(self) -> str:
        """Return the record as JSON text."""
        return json.dumps(self.to_record(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskContext) and self._identity() == other._identity()

    __hash__ = None  # type: ignore[assignment]  # a caller's own value can change

    def _identity(self) -> list[Any]:
        parts = self._parts
        plain = [
            parts.tick,
            parts.success_rate,
            parts.progress,
            list(parts.excluded_actions),
            sorted(parts.done_workers),
        ]
        open_kept = [sorted(self._metadata.items()), sorted(parts.extra.items())]
        values = [
            parts.workers,
            parts.escalations,
            parts.available_actions,
            parts.v2_guidances,
            parts.previous_guidances,
        ]
        return [encode(plain), encode(open_kept), values]

    def __repr__(self) -> str:
        parts = self._parts
        return (
            f"TaskContext(tick={parts.tick}, workers={len(parts.workers)}, success_rate={parts.success_rate:.4g}, "
            f"progress={parts.progress:.4g}, escalations={len(parts.escalations)}, done={len(parts.done_workers)})"
        )
