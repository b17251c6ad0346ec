"""Archive: a run as JSON Lines, one event a line, and back to a byte-identical run. It must never import what does not
verify."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from engine.core.believed import IMPOSSIBLE, believing
from engine.core.catalog import Catalog, EventType, Wire
from engine.core.decider import FINGERPRINT_BYTES
from engine.core.envelope import EVENTS, Commit, Group, genesis, seal_commit
from engine.core.errors import Conflict, EngineError, ImportRefused, InvalidValue, NotFound
from engine.core.fields import TIME_MS, check_id
from engine.core.limits import NESTING_DEPTH_MAX
from engine.core.model import Model
from engine.store import Journal, cut

__all__ = ["FORMAT", "export_lines", "import_lines"]

FORMAT: Final = 1
_KEYS: Final = frozenset(
    (
        "refold",
        "run",
        "seq",
        "type",
        "recorded_at_ms",
        "actor",
        "command_id",
        "fingerprint",
        "cause",
        "cause_back",
        "data",
        "group",
        "link",
        "end",
    )
)
_DEPTH_MAX: Final = NESTING_DEPTH_MAX + 16  # a field may put some levels round a user's value


def export_lines(journal: Journal, model: Model, run_id: str, *, until: int | None = None) -> Iterator[str]:
    """Yield one JSON line an event, without line ends, up to ``until`` (default: all): every prefix of a run is a run,
    also one that ends in the midst of a commit. Raises NotFound, CorruptJournal, SchemaError.

    Every line stands alone: format, run, seq, type with version, envelope, data. ``group`` counts commands within the
    commit; the last line of
    a commit carries its ``link`` and the last line of the run ``"end": true``, so a shortened file is noticed.
    """
    head = journal.existing_head(run_id)
    if until is not None and not 1 <= until <= head.position:
        raise NotFound(
            f"run {run_id!r} has no event {until} to end an export with; it ends at {head.position}",
            hint=f"choose 1..{head.position}",
            run=run_id,
            position=until,
        )
    end = head.position if until is None else until
    forked = head.origin is not None  # exported whole: an archive holds no reference to another run
    chain = genesis(run_id)
    for whole in journal.commits(run_id, until=end):
        with believing(run_id, whole.first):
            groups = cut(whole, end)
            chain = seal_commit(chain, groups)[1] if forked or whole.last > end else whole.link
            commit = Commit(whole.first, min(whole.last, end) - whole.first + 1, chain, groups)
            for line in _lines_of(model.catalog, run_id, commit):
                if line["seq"] == commit.last:
                    line["link"] = chain.hex()
                if line["seq"] == end:
                    line["end"] = True
                yield json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _lines_of(catalog: Catalog, run_id: str, commit: Commit) -> Iterator[dict[str, Any]]:
    """Yield the events of a commit as lines without their ends."""
    seq = commit.first - 1
    for number, (at_ms, actor, command_id, fingerprint, cause, events) in enumerate(commit.groups):
        for wire in events:
            seq += 1
            event_type = stored_type(catalog, wire)
            yield {
                "refold": FORMAT,
                "run": run_id,
                "seq": seq,
                "type": event_type.label,
                "recorded_at_ms": at_ms,
                "actor": actor,
                "command_id": command_id,
                "fingerprint": None if fingerprint is None else fingerprint.hex(),
                "cause": cause,
                "cause_back": wire[1],
                "data": {name: to_json(value) for name, value in event_type.data(wire).items()},
                "group": number,
            }


def import_lines(journal: Journal, model: Model, lines: Iterable[str], *, run_id: str | None = None) -> tuple[str, int]:
    """Append an exported run to a store where no such run is; return (run id, position). Under its own id the bytes
    are identical.

    Everything is read and checked before the first commit is written: form, order, values, links, and that every event
    folds. Under another id the chain is made anew, because it holds the id. Raises ImportRefused naming the line,
    Conflict when the run exists and differs; importing the same run again adds nothing, and an import that was cut
    short goes on where it stopped.
    """
    commits, source = _read(model, lines)
    target = source if run_id is None else _checked_id(run_id)
    chain, link = genesis(source), genesis(target)
    state = model.initial()
    sealed: list[tuple[int, int, bytes, bytes]] = []
    for number, first, groups, stated in commits:
        try:
            state.apply(groups)
        except (EngineError, *IMPOSSIBLE) as error:
            raise refused(number, f"the events of this commit do not follow from those before: {error}") from error
        stored, chain = seal_commit(chain, groups)
        if chain.hex() != stated:
            raise refused(number, f"the chain gives link {chain.hex()}, the file says {stated:.80}")
        if target != source:
            stored, link = seal_commit(link, groups)
        else:
            link = chain
        sealed.append((first, state.seq - first + 1, stored, link))
    done = _done(journal, target, {first + count - 1: link for first, count, _, link in sealed})
    before = genesis(target)
    for first, count, stored, link in sealed:
        if first > done:
            journal.append(target, first, count, stored, link, after=before)
        before = link
    return target, max(done, state.seq)


def _done(journal: Journal, run_id: str, links: Mapping[int, bytes]) -> int:
    """Return how far the run is there already, 0 when it is not. ``links`` are the file's, by the last position of each
    commit. Raises Conflict unless the file goes on from what is there, or the other way round."""
    head = journal.head(run_id)
    if head is None:
        return 0
    shared = min(head.position, max(links))
    if shared not in links or journal.link_at(run_id, shared) != links[shared]:
        raise Conflict(
            f"run {run_id!r} exists and is another history",
            hint="import it under another name: --run ID",
            run=run_id,
            position=head.position,
        )
    return head.position


def _checked_id(run_id: str) -> str:
    try:
        return check_id(run_id)
    except InvalidValue as error:
        raise error.at("run id") from None


def stored_type(catalog: Catalog, wire: Wire) -> EventType:
    """Return the type of a stored event in the version it was stored in. Raises SchemaError."""
    current = catalog.type_of(wire)
    step = catalog.older.get(wire[0])
    return current if step is None else step.old


def _read(model: Model, lines: Iterable[str]) -> tuple[list[tuple[int, int, list[Group], str]], str]:
    """Return the commits of a file as (number of the first line, first seq, groups, stated link), and its run id."""
    older = {step.old.label: step.old for step in model.catalog.upcasts}
    current = {event_type.label: event_type for event_type in model.catalog.types}
    commits: list[tuple[int, int, list[Group], str]] = []
    groups: list[Group] = []
    run: str | None = None
    first, first_line, seq, ended, group_number = 1, 1, 0, False, -1
    command_ids: set[str] = set()
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        if ended:
            raise refused(number, "there are lines after the last event of the run")
        line = _parse(number, text)
        run = line["run"] if run is None else run
        if line["run"] != run:
            raise refused(number, f"run is {line['run']!r:.60}, the lines before are of {run!r:.60}")
        if line["seq"] != seq + 1:
            raise refused(number, f"seq is {line['seq']!r:.30}, expected {seq + 1}")
        seq += 1
        if seq == first:
            first_line = number
        event_type = current.get(line["type"]) or older.get(line["type"])
        if event_type is None:
            error = model.catalog.unknown(line["type"])
            raise refused(number, error.message, hint=error.hint)
        try:
            wire = event_type.check({name: from_json(value) for name, value in line["data"].items()})
        except InvalidValue as error:
            raise refused(number, f"{error.path}: {error.problem}") from None
        if not 0 <= line["cause_back"] <= seq - first:
            raise refused(number, f"cause_back {line['cause_back']} leads to no event of its commit")
        wire[1] = line["cause_back"]
        envelope = [line["recorded_at_ms"], line["actor"], line["command_id"], line["fingerprint"], line["cause"]]
        if line["group"] == group_number and groups:
            if groups[-1][:EVENTS] != envelope:
                raise refused(number, "the envelope differs within one group")
            groups[-1][EVENTS].append(wire)
        elif line["group"] == group_number + 1:
            if line["command_id"] in command_ids:
                raise refused(number, f"command id {line['command_id']!r:.60} was used before")
            command_ids.update(filter(None, (line["command_id"],)))
            groups.append([*envelope, [wire]])
            group_number += 1
        else:
            raise refused(number, f"group is {line['group']}, expected {group_number} or {group_number + 1}")
        if "link" in line:
            commits.append((first_line, first, groups, line["link"]))
            groups, first, group_number = [], seq + 1, -1
        ended = bool(line.get("end"))
    if run is None:
        raise ImportRefused("the file holds no events", [], hint="export a run first: refold export RUN FILE")
    if groups or not ended:
        raise refused(number, "the file ends before the run does", hint="it was cut; export it again")
    return commits, run


def _parse(number: int, text: str) -> dict[str, Any]:
    """Return one line with the types of its envelope checked. Raises ImportRefused."""
    try:
        line = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_doubles)
    except (ValueError, RecursionError) as error:
        raise refused(number, f"not JSON: {error}") from None
    if type(line) is not dict or line.get("refold") != FORMAT:
        raise refused(
            number, "not an event line of export format 1", hint="'refold import --format' names other formats"
        )
    extra = sorted(set(line) - _KEYS)
    if extra:
        raise refused(number, f"unknown key {extra[0]!r:.40}")
    try:
        check_id(line.get("run"))
        TIME_MS.check(line.get("recorded_at_ms"))
        for key in ("actor", "command_id", "cause"):
            if line.get(key) is not None and not (key == "cause" and type(line[key]) is int):
                check_id(line[key])
    except InvalidValue as error:
        raise refused(number, f"run, recorded_at_ms, actor, command_id or cause: {error.problem}") from None
    fingerprint = line.get("fingerprint")
    cause = line.get("cause")
    good = (
        all(type(line.get(key)) is int for key in ("seq", "cause_back", "group"))
        and type(line.get("type")) is str
        and type(line.get("data")) is dict
        and (fingerprint is None) == (line.get("command_id") is None)
        and (type(cause) is not int or 1 <= cause < line["seq"])
        and type(line.get("link", "")) is str
    )
    if not good:
        raise refused(number, "a key of the envelope is missing or of another type")
    line.setdefault("actor", None)
    line.setdefault("command_id", None)
    line.setdefault("cause", None)
    try:
        line["fingerprint"] = None if fingerprint is None else bytes.fromhex(fingerprint)
    except (TypeError, ValueError):
        raise refused(number, "fingerprint is not hexadecimal") from None
    if fingerprint is not None and len(line["fingerprint"]) != FINGERPRINT_BYTES:
        raise refused(number, f"fingerprint is not of {FINGERPRINT_BYTES} bytes")
    return line


def refused(line: int, problem: str, *, hint: str = "") -> ImportRefused:
    """Return the refusal of an archive, naming the line."""
    return ImportRefused(
        f"line {line}: {problem}",
        [{"line": line, "problem": problem}],
        hint=hint or "nothing was imported; export the run again",
    )


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def to_json(value: Any) -> Any:
    """Return a stored value as JSON: bytes as ``{"$bytes": base64}``, and maps that look like that wrapped in
    ``{"$map": ...}``."""
    if type(value) is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    if type(value) is list or type(value) is tuple:
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        shown = {key: to_json(item) for key, item in value.items()}
        return {"$map": shown} if len(shown) == 1 and next(iter(shown)) in ("$bytes", "$map") else shown
    return value


def from_json(value: Any, depth: int = 0) -> Any:
    """Return the stored value of :func:`to_json`'s JSON. Raises InvalidValue."""
    if depth > _DEPTH_MAX:
        raise InvalidValue("", f"nested deeper than {NESTING_DEPTH_MAX} levels")
    if type(value) is list:
        return [from_json(item, depth + 1) for item in value]
    if type(value) is dict:
        if len(value) == 1:
            ((key, inner),) = value.items()
            if key == "$bytes":
                try:
                    return base64.b64decode(inner, validate=True)
                except (TypeError, ValueError):
                    raise InvalidValue("$bytes", "not base64") from None
            if key == "$map" and type(inner) is dict:
                return {name: from_json(item, depth + 1) for name, item in inner.items()}
        return {key: from_json(item, depth + 1) for key, item in value.items()}
    return value


def commits_of(lines: Iterable[str], model: Model) -> list[Commit]:
    """Return the commits of an export without a store, for tools that compare files."""
    commits, _ = _read(model, lines)
    return [
        Commit(first, sum(len(group[EVENTS]) for group in groups), bytes.fromhex(link), groups)
        for _, first, groups, link in commits
    ]
