"""A swarm's situation as one JSON record: its shape, and the rules that hold between its parts. It must never repair
what it reads: everything that is wrong is named at once, and nothing is imported.
"""

from __future__ import annotations

import json
from typing import Any, Final

from engine.core.errors import ImportRefused
from engine.core.fields import JSON, TEXT, U64, UNIT, Checked
from engine.core.limits import SWARM_WORKERS_MAX
from projections.swarm.actions import ACTIONS_CONFIG
from projections.swarm.escalation import ESCALATION
from projections.swarm.guidance import GUIDANCE
from projections.swarm.shape import Faults, field_of, leaf, listed, mapped, maybe, refuse, shaped, worker_key
from projections.swarm.worker import SUMMARY

__all__ = ["CONTEXT", "IMPORTABLE", "KEYS", "OPTIONAL_KEYS", "parse", "refuse_invalid", "validate_record"]

KEYS: Final = (
    "tick",
    "workers",
    "success_rate",
    "progress",
    "escalations",
    "available_actions",
    "v2_guidances",
    "excluded_actions",
    "previous_guidances",
    "done_workers",
    "metadata",
)
"""The eleven fields in the order of the seed."""

OPTIONAL_KEYS: Final = ("available_actions", "v2_guidances")
"""Those that may be absent, which reads as null."""


_NO_WORKER: Final = "names no worker of this record"


def _pair(value: Any, path: str, faults: Faults) -> list[Any]:
    if type(value) is not list or len(value) != 2:
        faults.add(path, value, "swarm.field", "expected a pair [worker id, escalation]")
        return [None, {}]
    return [leaf(U64)(value[0], f"{path}[0]", faults), ESCALATION(value[1], f"{path}[1]", faults)]


_FIELDS: Final = shaped(
    {
        "tick": leaf(U64),
        "workers": mapped(SUMMARY, worker_key, SWARM_WORKERS_MAX),
        "success_rate": leaf(UNIT),
        "progress": leaf(UNIT),
        "escalations": listed(_pair, SWARM_WORKERS_MAX),
        "excluded_actions": listed(leaf(TEXT)),
        "previous_guidances": mapped(GUIDANCE, worker_key, SWARM_WORKERS_MAX),
        "done_workers": listed(leaf(U64), SWARM_WORKERS_MAX),
        "metadata": mapped(leaf(JSON)),
    },
    {"available_actions": maybe(ACTIONS_CONFIG), "v2_guidances": maybe(listed(GUIDANCE))},
)


def CONTEXT(value: Any, path: str, faults: Faults) -> Any:
    """The shape of a whole record: each worker under its own id, at most one escalation a worker, done as a set."""
    record = _FIELDS(value, path, faults)
    for key, summary in record.get("workers", {}).items():
        if summary.get("id") is not None and str(summary["id"]) != key:
            faults.add(f"workers.{key}.id", summary["id"], "swarm.own_name", f"expected {key}, the key it stands under")
    seen: set[Any] = set()
    for index, (worker, _) in enumerate(record.get("escalations", ())):
        if worker is not None and worker in seen:
            said = "at most one escalation per worker is open"
            faults.add(f"escalations[{index}]", worker, "swarm.one_escalation", said)
        seen.add(worker)
    done = [worker for worker in record.get("done_workers", ()) if worker is not None]
    if len(set(done)) != len(done):
        faults.add("done_workers", done, "swarm.done_once", "holds a duplicate")
    if "done_workers" in record:
        record["done_workers"] = sorted(done)
    return record


def _importable(value: Any, path: str, faults: Faults) -> Any:
    """The shape of a record that a run can go on from: its parts must also agree with one another."""
    record = CONTEXT(value, path, faults)
    if faults.found:
        return record  # between malformed parts there is nothing to compare
    workers = record["workers"]
    escalated = {worker for worker, _ in record["escalations"]}
    done = set(record["done_workers"])
    for index, (worker, escalation) in enumerate(record["escalations"]):
        if str(worker) not in workers:
            faults.add(f"escalations[{index}][0]", worker, "swarm.worker_known", _NO_WORKER)
        if escalation["raised_at_tick"] > record["tick"]:
            where, said = f"escalations[{index}][1].raised_at_tick", f"lies after the record's tick, {record['tick']}"
            faults.add(where, escalation["raised_at_tick"], "swarm.raised_in_time", said)
    for key in record["previous_guidances"]:
        if key not in workers:
            faults.add(f"previous_guidances.{key}", key, "swarm.worker_known", _NO_WORKER)
    for index, worker in enumerate(record["done_workers"]):
        if str(worker) not in workers:
            faults.add(f"done_workers[{index}]", worker, "swarm.worker_known", _NO_WORKER)
    for key, summary in workers.items():
        open_here, done_here = int(key) in escalated, int(key) in done
        if summary["has_escalation"] is not open_here:
            where, said = f"workers.{key}.has_escalation", "disagrees with the escalations"
            faults.add(where, summary["has_escalation"], "swarm.has_escalation", said)
        over = "done" if done_here else "escalated" if open_here else None
        phase = summary.get("phase")
        if phase is not None and phase not in ((over,) if over else ("idle", "working")):
            said = "disagrees with the escalations and the done workers"
            faults.add(f"workers.{key}.phase", phase, "swarm.phase", said)
    return record


IMPORTABLE: Final[Checked] = field_of("swarm record", _importable)


def validate_record(record: Any) -> list[dict[str, str]]:
    """Return every rule that the record breaks, each with its path, the value found, the rule's name (a key of
    :data:`projections.swarm.rules.RULE_TEXTS`) and in words how; [] for a record that a run can go on from."""
    faults = Faults()
    _importable(record, "", faults)
    return faults.found


def refuse_invalid(record: Any) -> None:
    """Raise ImportRefused naming every rule that the record breaks; do nothing for one that a run can go on from."""
    faults = Faults()
    _importable(record, "", faults)
    refuse("swarm record", faults)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r:.40} stands twice in one object")
    return result


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def parse(text: str | bytes) -> Any:
    """Return the JSON value of text. Raises ImportRefused for anything that is not one exact JSON value."""
    faults = Faults()
    try:
        plain = text.decode("utf-8") if isinstance(text, bytes) else text
        return json.loads(plain, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        faults.add("", f"{len(text)} characters", "swarm.json", str(error) or "is nested too deeply")
    raise refusal(faults)


def refusal(faults: Faults) -> ImportRefused:
    """Return the error of faults that are certainly there."""
    try:
        refuse("swarm record", faults)
    except ImportRefused as error:
        return error
    raise AssertionError("no fault was found")
