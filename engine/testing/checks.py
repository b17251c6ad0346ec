"""The comparisons of the restore machine. Each names the event and the field at which two sides part; none says only
that
two things differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from engine.core.codec import encode
from engine.core.envelope import Event, Group
from engine.core.state import ModelState
from engine.difference import difference_of_bytes, difference_of_forms
from engine.divergence import Divergence, last_touch
from engine.testing.elsewhere import replay_elsewhere
from engine.testing.failure import Home, ReplayDiffers
from engine.testing.purity import since
from engine.testing.twin import Answer, Asked, Twin

__all__ = ["check_answers", "check_elsewhere", "check_state", "groups_of", "touched_apart"]


ELSEWHERE: Final = "a process with another hash seed, clock, time zone and locale"


def groups_of(twin: Twin) -> Iterator[Group]:
    """Yield the groups of a twin's run."""
    for commit in twin.commits:
        yield from commit


def check_state(twin: Twin, state: ModelState, stored: bytes, who: str) -> None:
    """Check that a state is the twin's. Raises ReplayDiffers naming the event and the field."""
    if stored == twin.state.bytes():
        return
    apart = since(groups_of(twin), twin.state, state)
    raise ReplayDiffers(f"{who} differs from its undisturbed twin {apart or 'in the order of its records'}")


def touched_apart(twin: Twin, state: ModelState) -> bool:
    """Return whether a state differs from the twin's in a record that the twin's events touched since this was last
    asked, or in how many records there are."""
    if state.seq != twin.state.seq:
        return True
    for name, table in twin.state.tables.items():
        rows = state.tables[name].rows
        touched = list(table.changed)
        table.changed.clear()
        if len(rows) != len(table.rows):
            return True
        for key in touched:
            mine, theirs = rows.get(key), table.rows.get(key)
            if mine is None or theirs is None:
                if mine is not theirs:
                    return True
            elif encode(mine.dump()) != encode(theirs.dump()):
                return True
    return False


def check_answers(asked: Asked, mine: Answer, theirs: Answer, who: str) -> None:
    """Check that two sides answered alike. Raises ReplayDiffers naming the first event and field that differ."""
    if mine == theirs:
        return
    raise ReplayDiffers(
        f"asked for {asked}, {who} and its undisturbed twin answer differently: {_apart(mine, theirs)}\n"
        f"  {who}: {mine}\n  the twin: {theirs}"
    )


def _apart(mine: Answer, theirs: Answer) -> str:
    if mine.refused or theirs.refused or mine.repeated != theirs.repeated:
        return "one refuses or repeats where the other does not"
    for one, other in zip(mine.events, theirs.events, strict=False):
        if one != other:
            return f"event {one.seq} ({one.type}): {difference_of_forms(_form(one), _form(other))}"
    return f"{len(mine.events)} events against {len(theirs.events)}"


def _form(event: Event) -> dict[str, Any]:
    return event.to_json()


def check_elsewhere(home: Home, twin: Twin, asked: Sequence[Asked], expected: Sequence[Answer]) -> None:
    """Check that a fresh process under another hash seed, clock and locale makes the same of a twin's run."""
    report = replay_elsewhere(home, twin, asked)
    if report.error is not None:
        raise ReplayDiffers(f"{ELSEWHERE} cannot replay the run:\n{report.error}")
    stored = twin.state.bytes()
    for route in report.routes:
        if route.state != stored:
            raise ReplayDiffers(f"{ELSEWHERE} gives another state, {route.name}: {_named(twin, stored, route.state)}")
        for each, mine, theirs in zip(asked, route.answers, expected, strict=False):
            check_answers(each, mine, theirs, f"{ELSEWHERE}, {route.name},")


def _named(twin: Twin, here: bytes, there: bytes) -> Divergence | None:
    """Return where two states differ that are known by their bytes, and the last event that touched the record."""
    found = difference_of_bytes(twin.model, here, there)
    if found is None or found.table not in twin.state.tables:
        return None if found is None else Divergence(twin.position, None, found)
    seq, label = last_touch(groups_of(twin), twin.model.initial(), found.table, found.key)
    return Divergence(seq, label, found)
