"""Import of records: a conversation, a task graph or a swarm as the runtime that it comes from wrote it, taken into a
run as one commit. It must never guess: what breaks a rule is refused by name, or left out by name if that was wanted.

Partly imported, what is left out is the smallest whole thing: a message, a node, a worker; and with a node everything
that depends on it, for without it nobody knows whether that may run. The nodes that are kept are numbered anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

from engine.core.errors import ImportRefused, InvalidValue
from engine.core.fields import check_id
from engine.core.handle import Outcome
from engine.runs import LiveRun
from projections.graph import Violation
from projections.graph.validate import read_graph
from projections.swarm.record import validate_record

__all__ = ["RECORD_FORMATS", "RecordFormat", "RecordImported", "import_record"]

RecordFormat: TypeAlias = Literal["context", "task-graph", "task-context"]
RECORD_FORMATS: Final[tuple[RecordFormat, ...]] = ("context", "task-graph", "task-context")

Lost: TypeAlias = list[dict[str, Any]]
"""What was left out: the violations, each with its place in the record as it came."""


@dataclass(frozen=True, slots=True)
class RecordImported:
    """What came in: the run, how many events were added (none when it was there already), the run's position, the
    record's id there (None for a swarm), and what was left out."""

    run: str
    events: int
    position: int
    id: str | None
    lost: tuple[dict[str, Any], ...]


def import_record(
    run: LiveRun, form: RecordFormat, record: Any, *, id: str | None = None, partial: bool = False
) -> RecordImported:
    """Take a record into a run as one command; the same record again adds nothing.

    ``id`` names a conversation, which does not name itself, and renames a graph; a swarm has none. With ``partial``
    what breaks a rule is left out and reported, and the event's cause says so. Raises ImportRefused naming every
    violation by its index and path, Refused when the run holds another record under the id, Conflict,
    BackendUnavailable.
    """
    taken_in, name, lost, kept = _PREPARE[form](run, record, id, partial)
    before = run.position
    content = json.dumps([form, name, partial, kept], sort_keys=True, ensure_ascii=True, default=repr)
    cause = f"partial import, {len(lost)} left out" if lost else None
    taken_in(command_id=f"import-{sha256(content.encode()).hexdigest()[:32]}", cause=cause)
    return RecordImported(run.id, run.position - before, run.position, name, tuple(lost))


_Taken: TypeAlias = tuple[Callable[..., Outcome], str | None, Lost, Any]


# -- conversations ----------------------------------------------------------------------------------------------------


def _context(run: LiveRun, record: Any, id: str | None, partial: bool) -> _Taken:
    from projections.contexts import from_record

    name = _checked_id(id)
    if name is None:
        raise refused("a conversation's record does not name it", hint="name it: --id ID")
    _, violations = from_record(record)
    lost = [violation.to_json() for violation in violations] if partial else []

    def taken_in(**how: Any) -> Outcome:
        return run.contexts.import_record(name, record, partial=partial, **how)

    return taken_in, name, lost, record


# -- graphs -----------------------------------------------------------------------------------------------------------


def _graph(run: LiveRun, record: Any, id: str | None, partial: bool) -> _Taken:
    if id is not None and type(record) is dict:
        record = {**record, "id": _checked_id(id)}
    lost: Lost = []
    if partial:
        record, lost = rest_of_graph(record)
    name = record.get("id") if type(record) is dict else None

    def taken_in(**how: Any) -> Outcome:
        return run.graphs.import_graph(record, **how)

    return taken_in, name, lost, record


def rest_of_graph(record: Any) -> tuple[Any, Lost]:
    """Return a graph's record without the nodes that break a rule and those that depend on them, and what was left out.

    Raises ImportRefused when what is wrong is the graph's own, or nothing is left.
    """
    lost: Lost = []
    numbers = list(range(len(record["nodes"]))) if type(record) is dict and type(record.get("nodes")) is list else []
    while True:
        try:
            read_graph(record)
            return record, lost
        except ImportRefused as error:
            found = error.violations
        bad = {violation["node"] for violation in found if violation["node"] is not None}
        if not bad and [violation["field"] for violation in found] == ["outcome"] and lost:
            record = {key: value for key, value in record.items() if key != "outcome"}
            continue  # the outcome is derived from the nodes: those that are left have another one
        if not bad or len(bad) == len(numbers):
            raise ImportRefused(f"nothing can be left out of the record: {found[0]['text']}", [*lost, *found])
        lost += [{**violation, "node": numbers[violation["node"]]} for violation in found if violation["node"] in bad]
        gone = _with_dependents(record["nodes"], bad)
        lost += [_left_out(numbers[node], "depends_on", numbers[on]) for node, on in gone]
        for place, node in enumerate(record["nodes"]):
            if place not in bad:
                lost += [
                    _left_out(numbers[place], "tainted_by", numbers[other])
                    for other in node.get("tainted_by", ())
                    if other in bad
                ]
        if len(bad) == len(numbers):
            raise ImportRefused("every node is left out: nothing is left to import", lost)
        record = _without(record, bad)
        numbers = [number for place, number in enumerate(numbers) if place not in bad]


def _left_out(node: int, field: str, other: int) -> dict[str, Any]:
    """Return what is said about a node that names one that is left out."""
    return Violation(node, field, other, "node.left_out", f"node {other} is left out").to_json()


def _with_dependents(nodes: list[Any], bad: set[int]) -> list[tuple[int, int]]:
    """Add to ``bad`` what depends on it, in any way; return (node, the bad one it depends on) of each."""
    dependents: dict[int, list[int]] = {}
    for place, node in enumerate(nodes):
        for other in () if place in bad else _needs(node):
            dependents.setdefault(other, []).append(place)
    found: list[tuple[int, int]] = []
    queue = sorted(bad)
    for on in queue:
        for place in dependents.get(on, ()):
            if place not in bad:
                bad.add(place)
                queue.append(place)
                found.append((place, on))
    return found


def _needs(node: Mapping[str, Any]) -> list[int]:
    """Return the nodes that a well-formed node record needs: what it depends on, its fallback, what it is one for."""
    recovery = node.get("recovery") or {}
    others = (recovery.get("route_to"), node.get("routed_from"))
    return [*node.get("depends_on", ()), *(other for other in others if other is not None)]


def _without(record: Mapping[str, Any], bad: set[int]) -> dict[str, Any]:
    """Return the record without these nodes, the others numbered anew."""
    kept = [place for place in range(len(record["nodes"])) if place not in bad]
    number = {place: new for new, place in enumerate(kept)}
    nodes = []
    for place in kept:
        node = {**record["nodes"][place], "id": number[place]}
        for key in ("depends_on", "tainted_by"):
            if key in node:
                node[key] = [number[other] for other in node[key] if other in number]
        if node.get("routed_from") is not None:
            node["routed_from"] = number[node["routed_from"]]
        if node.get("recovery") and node["recovery"].get("route_to") is not None:
            node["recovery"] = {**node["recovery"], "route_to": number[node["recovery"]["route_to"]]}
        nodes.append(node)
    return {**record, "nodes": nodes}


# -- swarms -----------------------------------------------------------------------------------------------------------


def _swarm(run: LiveRun, record: Any, id: str | None, partial: bool) -> _Taken:
    if id is not None:
        raise refused("a swarm has no id: a run holds one", hint="leave --id out")
    lost: Lost = []
    if partial:
        record, lost = rest_of_swarm(record)

    def taken_in(**how: Any) -> Outcome:
        return run.swarm.import_record(record, **how)

    return taken_in, None, lost, record


_MAPS: Final = ("workers", "previous_guidances", "metadata")
_LISTS: Final = ("escalations", "done_workers", "excluded_actions", "v2_guidances")


def rest_of_swarm(record: Any) -> tuple[Any, Lost]:
    """Return a swarm's record without the entries that break a rule, and what was left out.

    Raises ImportRefused when something is wrong that is no entry of a list or map.
    """
    lost: Lost = []
    numbers: dict[str, list[int]] = {}  # where the entries of each list were in the record as it came
    while found := validate_record(record):
        entries = [_entry_of(record, violation["path"]) for violation in found]
        wrong = [violation for violation, entry in zip(found, entries, strict=True) if entry is None]
        if wrong:
            what = f"{wrong[0]['path'] or 'value'}: {wrong[0]['text']}"
            raise ImportRefused(f"this cannot be left out of the record: {what}", [*lost, *wrong])
        gone: dict[str, set[str | int]] = {}
        for violation, entry in zip(found, entries, strict=True):
            assert entry is not None
            name, key = entry
            gone.setdefault(name, set()).add(key)
            path = violation["path"]
            if isinstance(key, int):
                was = numbers.setdefault(name, list(range(len(record[name]))))[key]
                path = path.replace(f"{name}[{key}]", f"{name}[{was}]", 1)
            lost.append({**violation, "path": path})
        record = {**record, **{name: _others(record[name], keys) for name, keys in gone.items()}}
        for name, keys in gone.items():
            numbers[name] = _others(numbers.get(name, []), keys)
    return record, lost


def _others(entries: Any, gone: set[str | int]) -> Any:
    """Return a list or map without the entries at these places."""
    if type(entries) is dict:
        return {key: value for key, value in entries.items() if key not in gone}
    return [value for place, value in enumerate(entries) if place not in gone]


def _entry_of(record: Any, path: str) -> tuple[str, str | int] | None:
    """Return (list or map, key) of the entry that a violation lies in; None when it lies in none."""
    for name in _MAPS:
        entries = record.get(name) if type(record) is dict else None
        if path.startswith(f"{name}.") and type(entries) is dict:
            below = path.removeprefix(f"{name}.")
            fitting = [key for key in entries if below == key or below.startswith((f"{key}.", f"{key}["))]
            return (name, max(fitting, key=len)) if fitting else None
    for name in _LISTS:
        if path.startswith(f"{name}["):
            return name, int(path.removeprefix(f"{name}[").partition("]")[0])
    return None


# -- shared -----------------------------------------------------------------------------------------------------------

_PREPARE: Final[Mapping[RecordFormat, Callable[[LiveRun, Any, str | None, bool], _Taken]]] = {
    "context": _context,
    "task-graph": _graph,
    "task-context": _swarm,
}


def _checked_id(id: str | None) -> str | None:
    try:
        return None if id is None else check_id(id)
    except InvalidValue as error:
        raise error.at("id") from None


def refused(problem: str, *, hint: str) -> ImportRefused:
    """Return the refusal of an import that is not told what it needs."""
    return ImportRefused(problem, [{"path": "", "problem": problem}], hint=hint)
