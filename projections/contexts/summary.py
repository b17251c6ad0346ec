"""The summary of what has been folded away, and the skills a conversation has loaded. Neither may hold more than the
limits allow, however often it is extended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.core.errors import InvalidValue
from engine.core.fields import TEXT, U64, optional
from engine.core.limits import SUMMARY_ENTRIES_MAX
from projections.contexts.values import JsonObject, ObjectReader, array_of, copy_json, trimmed

__all__ = ["SKILL", "SUMMARY", "SkillRef", "Summary", "read_skill", "read_summary"]

_HEADER: Final = "Summary of earlier conversation:"


@dataclass(frozen=True, slots=True)
class Summary:
    """What earlier messages came to: four lists, a narrative, and how many messages they stand for."""

    goals: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    narrative: str | None = None
    covers_messages: int = 0
    updated: int = 0
    extra: JsonObject | None = None

    def is_empty(self) -> bool:
        """Return whether there is nothing to show the model; an empty summary emits no block and costs no token."""
        return not (self.goals or self.decisions or self.open or self.facts or self.narrative)

    def says_nothing(self) -> bool:
        """Return whether every entry is blank. Such a verdict would erase history and is refused."""
        entries = (*self.goals, *self.decisions, *self.open, *self.facts, self.narrative or "")
        return not any(entry.strip() for entry in entries)

    def render(self) -> str:
        """Return the block as the model sees it."""
        lines = [_HEADER]
        sections = ("Goals:", self.goals), ("Decisions:", self.decisions), ("Open items:", self.open)
        for title, entries in (*sections, ("Facts:", self.facts)):
            if entries:
                lines += [title, *(f"- {entry}" for entry in entries)]
        if self.narrative:
            lines.append(self.narrative)
        return "\n".join(lines) + "\n"

    def absorb(self, newer: Summary) -> Summary:
        """Return this summary extended by a newer one: unseen entries appended and the last SUMMARY_ENTRIES_MAX kept,
        the narrative replaced when the newer has one, the covered messages added up."""
        return Summary(
            _merged(self.goals, newer.goals),
            _merged(self.decisions, newer.decisions),
            _merged(self.open, newer.open),
            _merged(self.facts, newer.facts),
            self.narrative if newer.narrative is None else newer.narrative,
            self.covers_messages + newer.covers_messages,
            newer.updated,
            self.extra,
        )

    def to_json(self) -> JsonObject:
        """Return the summary as the record's JSON; empty lists and a missing narrative are left out."""
        shape: JsonObject = {"covers_messages": self.covers_messages, "updated": self.updated}
        for name in ("goals", "decisions", "open", "facts"):
            if getattr(self, name):
                shape[name] = list(getattr(self, name))
        if self.narrative is not None:
            shape["narrative"] = self.narrative
        return {**shape, **copy_json(self.extra or {})}

    def dump(self) -> list[Any]:
        """Return the summary as an array."""
        lists = [list(self.goals), list(self.decisions), list(self.open), list(self.facts)]
        return trimmed([*lists, self.narrative, self.covers_messages, self.updated, copy_json(self.extra)], None)

    @classmethod
    def load(cls, dumped: Sequence[Any]) -> Summary:
        """Return the summary of an array that :meth:`dump` wrote."""
        goals, decisions, open_, facts, *rest = dumped
        return cls(tuple(goals), tuple(decisions), tuple(open_), tuple(facts), *copy_json(rest))


def _merged(entries: tuple[str, ...], newer: tuple[str, ...]) -> tuple[str, ...]:
    unseen = dict.fromkeys(entry for entry in newer if entry not in entries)
    return (*entries, *unseen)[-SUMMARY_ENTRIES_MAX:]


def read_summary(value: Any, faults: list[InvalidValue] | None = None) -> Summary:
    """Return the summary of a JSON object, unknown keys kept. Raises InvalidValue with the path; with ``faults``, adds
    what is wrong to them and keeps the rest."""
    reader = ObjectReader(value, "a summary", faults)
    return Summary(
        goals=reader.entries("goals", TEXT.check),
        decisions=reader.entries("decisions", TEXT.check),
        open=reader.entries("open", TEXT.check),
        facts=reader.entries("facts", TEXT.check),
        narrative=reader.take("narrative", optional(TEXT), None),
        covers_messages=reader.take("covers_messages", U64, 0),
        updated=reader.take("updated", U64, 0),
        extra=reader.extra(),
    )


SUMMARY: Final = array_of(
    "summary [goals, decisions, open, facts, narrative or null, covers_messages, updated, ...]",
    Summary.load,
    read_summary,
)


@dataclass(frozen=True, slots=True)
class SkillRef:
    """A loaded skill: its name, and the hash of the version that was loaded."""

    name: str
    hash: str
    extra: JsonObject | None = None

    def to_json(self) -> JsonObject:
        """Return the reference as the record's JSON."""
        return {"name": self.name, "hash": self.hash, **copy_json(self.extra or {})}

    def dump(self) -> list[Any]:
        """Return the reference as an array."""
        return trimmed([self.name, self.hash, copy_json(self.extra)], None)

    @classmethod
    def load(cls, dumped: Sequence[Any]) -> SkillRef:
        """Return the reference of an array that :meth:`dump` wrote."""
        return cls(*copy_json(dumped))


def read_skill(value: Any) -> SkillRef:
    """Return the reference of a JSON object, unknown keys kept. Raises InvalidValue with the path."""
    reader = ObjectReader(value, "a skill")
    return SkillRef(reader.take("name", TEXT), reader.take("hash", TEXT), reader.extra())


SKILL: Final = array_of("skill [name, hash, ...]", SkillRef.load, read_skill)
