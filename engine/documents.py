"""Documents: the whole state as one JSON object in the public forms of its records. What diff compares and other
programs read. A document must never share anything with a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from engine.core.believed import believing
from engine.core.errors import ImportRefused
from engine.core.state import ModelState
from engine.own_form import own_records
from projections.contexts import ContextQueries
from projections.graph import GraphQueries
from projections.swarm import SwarmQueries
from projections.tasks import TaskQueries

__all__ = ["Document", "Queried", "comparable", "document", "foreign_document"]

T = TypeVar("T")

Document: TypeAlias = dict[str, dict[str, Any]]
"""Records by kind (tasks, contexts, graphs, swarm) and id."""


class Queried(Protocol):
    """A live run or a view of the past."""

    id: str

    @property
    def position(self) -> int: ...

    def ask(self, question: Callable[[ModelState], T]) -> T: ...

    @property
    def tasks(self) -> TaskQueries: ...

    @property
    def contexts(self) -> ContextQueries: ...

    @property
    def graphs(self) -> GraphQueries: ...

    @property
    def swarm(self) -> SwarmQueries: ...


def document(state: Queried) -> Document:
    """Return ``{"tasks": {id: row}, "contexts": {id: record}, "graphs": {id: graph}, "swarm": {"swarm": context}}``, as
    far as the model has these projections, and the records of its others as :func:`engine.own_form.own_records` does.

    Rows and records are in the encodings of the original runtimes; the swarm is left out before it is started. What
    has been recorded of it and has no place in its record stands beside that one: ``verdict``, and ``raised_again``,
    how often the open escalation of a worker was raised again.
    """
    with believing(state.id, state.position):
        here = state.ask(lambda held: frozenset(held.parts))
        own = {kind: records(state) for kind, (projection, records) in _OUR_RECORDS.items() if projection in here}
        return own | state.ask(own_records)


def _task_records(state: Queried) -> dict[str, Any]:
    return {row["task_id"]: row for row in (row.to_json() for row in state.tasks.rows())}


def _context_records(state: Queried) -> dict[str, Any]:
    return {context: state.contexts.to_record(context) for context in state.contexts.ids()}


def _graph_records(state: Queried) -> dict[str, Any]:
    return {graph: state.graphs.get(graph).to_json() for graph in state.graphs.ids()}


def _swarm_records(state: Queried) -> dict[str, Any]:
    swarm = state.swarm
    if not swarm.started():
        return {}
    context, verdict = swarm.context(), swarm.verdict()
    records: dict[str, Any] = {"swarm": context.to_record()}
    if verdict is not None:
        records["verdict"] = {"success": verdict.success, "reason": verdict.reason, "details": verdict.details}
    again = {str(worker): swarm.escalation_attempts(worker) for worker, _ in context.escalations}
    if any(again.values()):
        records["raised_again"] = {worker: count for worker, count in again.items() if count}
    return records


_OUR_RECORDS: Final[Mapping[str, tuple[str, Callable[[Queried], dict[str, Any]]]]] = {
    "tasks": ("tasks", _task_records),
    "contexts": ("contexts", _context_records),
    "graphs": ("graph", _graph_records),
    "swarm": ("swarm", _swarm_records),
}
"""Kind of record -> the projection that has it, and how it is read."""


def comparable(ours: Document, theirs: Document) -> Document:
    """Return of a document what another program's state can say too: the kinds that it has, and of a swarm its record,
    unless it tells the rest."""
    found = {kind: ours.get(kind, {}) for kind in theirs}
    if "swarm" in found:
        told = {"swarm", *theirs["swarm"]}
        found["swarm"] = {key: record for key, record in found["swarm"].items() if key in told}
    return found


def foreign_document(value: Any, kinds: Iterable[str] = ()) -> Document:
    """Return the document of a state as another program writes it. Raises ImportRefused saying what is no such state.

    It takes a list of task rows, what ``refold show --json`` prints, and documents: an object with any of ``tasks``,
    ``contexts``, ``graphs`` and ``swarm``, records by id, or in a list when they hold their ids themselves. A kind that
    is left out is left out of the document too. Records are not validated; they are for comparing. ``kinds`` are those
    of projections that are none of refold's, by id.
    """
    readers = {**{kind: _by_id(kind, None) for kind in kinds}, **_KINDS}
    if type(value) is list:
        value = {"tasks": value}
    if type(value) is not dict or not value.keys() & readers.keys() or value.keys() - readers.keys() - _BESIDE:
        raise _no_state("", f"expected a list of task rows, or an object with any of: {', '.join(readers)}")
    return {kind: read(value[kind]) for kind, read in readers.items() if kind in value}


def _by_id(kind: str, key: str | None) -> Callable[[Any], dict[str, Any]]:
    def read(records: Any) -> dict[str, Any]:
        if type(records) is dict:
            return records
        if type(records) is not list or key is None:
            raise _no_state(kind, "expected an object of records by id" + (", or a list of records" if key else ""))
        made: dict[str, Any] = {}
        for index, record in enumerate(records):
            name = record.get(key) if isinstance(record, Mapping) else None
            if type(name) is not str or name in made:
                raise _no_state(f"{kind}[{index}]", f"expected an object with a {key} of its own")
            made[name] = record
        return made

    return read


def _swarm(record: Any) -> dict[str, Any]:
    if record is None or record == {}:
        return {}
    if type(record) is not dict:
        raise _no_state("swarm", "expected the record of a swarm, or null")
    return record if "swarm" in record and not record.keys() - _SWARM_RECORDS else {"swarm": record}


_SWARM_RECORDS: Final = {"swarm", "verdict", "raised_again"}
_KINDS: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {
    "tasks": _by_id("tasks", "task_id"),
    "contexts": _by_id("contexts", None),
    "graphs": _by_id("graphs", "id"),
    "swarm": _swarm,
}
_BESIDE: Final = {"run", "position", "digest", "lifecycles", "records"}
"""Keys beside them that ``refold show --json`` prints."""


def _no_state(path: str, problem: str) -> ImportRefused:
    where = f"{path}: " if path else ""
    return ImportRefused(
        f"this is no state to compare with: {where}{problem}",
        [{"path": path, "problem": problem}],
        hint="'refold show RUN --tasks --contexts --graphs --swarm --json' writes one",
    )
