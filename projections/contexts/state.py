"""The state of contexts: a header a conversation, and its messages each under a number of their own. No record may grow
with the length of a conversation, or a checkpoint would write what did not change.

The messages of a conversation are numbered from 0 in the order they came; the live ones are ``first`` to ``next``.
Folding moves ``first``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.core.table import Table
from projections.contexts.context_state import KINDS, ContextState
from projections.contexts.message import load_message
from projections.contexts.plan import Plan
from projections.contexts.summary import SkillRef, Summary
from projections.contexts.values import JsonObject, copy_json

__all__ = ["ContextRecord", "ContextsState", "MessageRecord"]


class ContextRecord:
    """The header: what most events change, and nothing that grows.

    ``number`` counts the contexts of the run; messages are kept under it, which is shorter than an id.
    """

    __slots__ = (
        "created",
        "est_tokens",
        "first",
        "kind",
        "model_window",
        "next",
        "number",
        "principal",
        "task",
        "turns",
        "updated",
        "version",
    )

    def __init__(
        self,
        number: int,
        kind: str,
        version: int,
        first: int,
        next: int,
        est_tokens: int,
        model_window: int,
        principal: str | None,
        task: str | None,
        turns: int,
        created: int,
        updated: int,
    ) -> None:
        self.number, self.kind, self.version, self.first, self.next = number, kind, version, first, next
        self.est_tokens, self.model_window, self.principal, self.task = est_tokens, model_window, principal, task
        self.turns, self.created, self.updated = turns, created, updated

    def dump(self) -> list[Any]:
        return [
            self.number,
            KINDS.index(self.kind),
            self.version,
            self.first,
            self.next,
            self.est_tokens,
            self.model_window,
            self.principal,
            self.task,
            self.turns,
            self.created,
            self.updated,
        ]

    @classmethod
    def load(cls, dumped: list[Any]) -> ContextRecord:
        number, kind, *rest = dumped
        return cls(number, KINDS[kind], *rest)


class MessageRecord:
    """A message: where it stands in the journal, and its array with the time filled in."""

    __slots__ = ("body", "index", "seq")

    def __init__(self, seq: int, index: int, body: list[Any]) -> None:
        self.seq, self.index, self.body = seq, index, body

    def dump(self) -> list[Any]:
        return [self.seq, self.index, copy_json(self.body)]

    @classmethod
    def load(cls, dumped: list[Any]) -> MessageRecord:
        seq, index, body = dumped
        return cls(seq, index, copy_json(body))

    @staticmethod
    def reference(record: MessageRecord) -> tuple[int, int]:
        return record.seq, record.index


class SummaryRecord:
    """A summary that is not blank."""

    __slots__ = ("value",)

    def __init__(self, value: Summary) -> None:
        self.value = value

    def dump(self) -> list[Any]:
        return self.value.dump()

    @classmethod
    def load(cls, dumped: list[Any]) -> SummaryRecord:
        return cls(Summary.load(dumped))


class PlanRecord:
    """A plan."""

    __slots__ = ("value",)

    def __init__(self, value: Plan) -> None:
        self.value = value

    def dump(self) -> list[Any]:
        return self.value.dump()

    @classmethod
    def load(cls, dumped: list[Any]) -> PlanRecord:
        return cls(Plan.load(dumped))


class SkillsRecord:
    """The loaded skills in the order of loading."""

    __slots__ = ("value",)

    def __init__(self, value: tuple[SkillRef, ...]) -> None:
        self.value = value

    def dump(self) -> list[Any]:
        return [skill.dump() for skill in self.value]

    @classmethod
    def load(cls, dumped: list[Any]) -> SkillsRecord:
        return cls(tuple(SkillRef.load(skill) for skill in dumped))


class JsonRecord:
    """One JSON value: a preflight verdict, or the unknown keys of an imported record."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def dump(self) -> list[Any]:
        return [copy_json(self.value)]

    @classmethod
    def load(cls, dumped: list[Any]) -> JsonRecord:
        return cls(copy_json(dumped[0]))


class ContextsState:
    """Every conversation of a run. What is absent from a table is empty; ``bound`` is derived from the plans."""

    def __init__(self) -> None:
        self.contexts: Table[ContextRecord] = Table("contexts", ContextRecord)
        self.messages: Table[MessageRecord] = Table(
            "messages", MessageRecord, order="key", refer=MessageRecord.reference
        )
        self.summaries: Table[SummaryRecord] = Table("summaries", SummaryRecord, order="key")
        self.plans: Table[PlanRecord] = Table("plans", PlanRecord, order="key")
        self.skills: Table[SkillsRecord] = Table("skills", SkillsRecord, order="key")
        self.preflights: Table[JsonRecord] = Table("preflights", JsonRecord, order="key")
        self.extras: Table[JsonRecord] = Table("extras", JsonRecord, order="key")
        self.bound: dict[str, set[str]] = {}
        """Task id -> contexts with an unsettled plan item bound to that task."""

    @property
    def tables(self) -> tuple[Table[Any], ...]:
        return (
            self.contexts,
            self.messages,
            self.summaries,
            self.plans,
            self.skills,
            self.preflights,
            self.extras,
        )

    def reindex(self) -> None:
        self.bound = {}
        for key, record in self.plans.rows.items():
            for task in waiting_tasks(record.value):
                self.bound.setdefault(task, set()).add(str(key))

    # -- reading ------------------------------------------------------------------------------------------------------

    def summary(self, context: str) -> Summary:
        """Return the summary, a blank one when nothing was folded yet."""
        record = self.summaries.get(context)
        return Summary() if record is None else record.value

    def plan(self, context: str) -> Plan | None:
        """Return the plan, or None."""
        record = self.plans.get(context)
        return None if record is None else record.value

    def loaded(self, context: str) -> tuple[SkillRef, ...]:
        """Return the loaded skills."""
        record = self.skills.get(context)
        return () if record is None else record.value

    def preflight(self, context: str) -> Any:
        """Return the preflight verdict itself, not a copy."""
        record = self.preflights.get(context)
        return None if record is None else record.value

    def extra(self, context: str) -> JsonObject | None:
        """Return the unknown keys themselves, not a copy."""
        record = self.extras.get(context)
        return None if record is None else record.value

    def bodies(self, context: str, start: int = 0, stop: int | None = None) -> list[Sequence[Any]]:
        """Return the arrays of the live messages ``start`` to ``stop``, counted from the oldest; for reading only."""
        header = self.contexts.rows[context]
        rows = self.messages.rows
        live = range(header.first, header.next)[start:stop]
        return [rows[header.number, place].body for place in live]

    def plan_view(self, context: str) -> Plan | None:
        """Return the plan as a value that shares nothing mutable with the state."""
        plan = self.plan(context)
        return None if plan is None else Plan.load(plan.dump())

    def skills_view(self, context: str) -> tuple[SkillRef, ...]:
        """Return the loaded skills as values that share nothing mutable with the state."""
        return tuple(SkillRef.load(skill.dump()) for skill in self.loaded(context))

    def view(self, context: str) -> ContextState:
        """Return the whole record as a value that shares nothing mutable with the state."""
        header = self.contexts.rows[context]
        return ContextState(
            kind="root" if header.kind == "root" else "conversation",
            version=header.version,
            summary=Summary.load(self.summary(context).dump()),
            messages=tuple(map(load_message, self.bodies(context))),
            skills=self.skills_view(context),
            plan=self.plan_view(context),
            preflight=copy_json(self.preflight(context)),
            est_tokens=header.est_tokens,
            model_window=header.model_window,
            principal=header.principal,
            task=header.task,
            turns=header.turns,
            created=header.created,
            updated=header.updated,
            dirty=context in self.contexts.changed,
            extra=copy_json(self.extra(context)),
        )


def waiting_tasks(plan: Plan | None) -> set[str]:
    """Return the tasks that unsettled items of a plan are bound to."""
    items = () if plan is None else plan.items
    return {
        item.bound.ref
        for item in items
        if item.bound is not None and item.bound.kind == "task" and not item.is_settled()
    }
