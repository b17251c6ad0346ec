"""Doubt: what is asked of a commit whose links hold, by who believes nothing. Replay believes the fields of such bytes,
for they were valid when refold wrote them; this asks whether refold wrote them. It must never fault what refold writes.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.core.catalog import Catalog, Wire
from engine.core.decider import FINGERPRINT_BYTES
from engine.core.envelope import Commit, Group
from engine.core.errors import InvalidValue, LimitExceeded, SchemaError
from engine.core.fields import check_id

__all__ = ["Doubt"]


class Doubt:
    """Doubts the commits of one run, in order."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._commands: set[str] = set()
        self._told: set[str] = set()

    def faults(self, commit: Commit) -> Iterator[tuple[int, InvalidValue | LimitExceeded | SchemaError]]:
        """Yield (position, what is wrong there), in order. What is wrong with the code, and not with the record, is
        said once."""
        seq, before = commit.first, 0
        for group in commit.groups:
            try:
                self._check_envelope(group, seq)
            except InvalidValue as error:
                yield seq, error
            for wire in group[-1]:
                try:
                    self._check_event(wire, before)
                except (InvalidValue, LimitExceeded) as error:
                    yield seq, error
                except SchemaError as error:
                    if error.message not in self._told:
                        self._told.add(error.message)
                        yield seq, error
                seq, before = seq + 1, before + 1

    def _check_event(self, wire: Wire, before: int) -> None:
        """Check an event with ``before`` others in front of it in its commit."""
        if type(wire) is not list:
            raise InvalidValue("event", f"expected a list, found {type(wire).__name__}")
        self._catalog.recheck(wire)
        if type(wire[1]) is not int or not 0 <= wire[1] <= before:
            raise InvalidValue("<cause>", f"it is no number of events back, of {before} in its commit")

    def _check_envelope(self, group: Group, first: int) -> None:
        """Check what stands round the events of a command, by the rules of the command line it came by."""
        _, actor, command_id, fingerprint, cause, events = group
        for name, value in (("actor", actor), ("command_id", command_id)):
            if value is not None:
                _check_name(name, value)
        if type(cause) is int:
            if not 1 <= cause < first:
                raise InvalidValue("cause", f"{cause} is no position before {first}")
        elif cause is not None:
            _check_name("cause", cause)
        if (command_id is None) != (fingerprint is None):
            raise InvalidValue("fingerprint", "there is one if, and only if, there is a command id")
        if not events:
            raise InvalidValue("events", "a command without any")
        if command_id is not None:
            if len(fingerprint) != FINGERPRINT_BYTES:
                raise InvalidValue("fingerprint", f"{len(fingerprint)} bytes, not {FINGERPRINT_BYTES}")
            if command_id in self._commands:
                raise InvalidValue("command_id", f"{command_id!r:.60} was used before")
            self._commands.add(command_id)


def _check_name(name: str, value: str) -> None:
    try:
        check_id(value)
    except InvalidValue as error:
        raise error.at(name) from None
