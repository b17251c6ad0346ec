"""ContextState: one conversation's durable memory as a value. It must never be the place where facts live: the fold
holds those, and this is what it hands out.

The operations of the contract are here under their own names, as pure functions: each returns a new value and leaves
this one alone. Times come in as ``at_ms``; nothing reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from engine.core.errors import Refused
from engine.core.limits import SKILLS_LOADED_DEFAULT
from projections.contexts.compaction import (
    KEEP_LAST,
    CompactionPlan,
    check_fold,
    fallback_narrative,
    fold_point,
    read_verdict,
)
from projections.contexts.message import Msg, SystemMsg
from projections.contexts.plan import Plan
from projections.contexts.summary import SkillRef, Summary
from projections.contexts.tokens import text_tokens
from projections.contexts.values import JsonObject, copy_json

__all__ = ["COMPACT_AT", "KINDS", "ContextKind", "ContextState", "block_tokens", "needs_compaction"]

ContextKind: TypeAlias = Literal["root", "conversation"]
KINDS: Final = ("root", "conversation")

COMPACT_AT: Final = 0.7
"""The share of the model's window above which a conversation wants to be compacted."""


def needs_compaction(est_tokens: int, model_window: int, compact_at: float) -> bool:
    """Return whether the estimate is above ``compact_at`` times the window; an unknown window never asks for it."""
    return model_window > 0 and est_tokens > compact_at * model_window


def block_tokens(summary: Summary, plan: Plan | None) -> int:
    """Return the estimate of the blocks that a slice starts with: each counts only when it is emitted."""
    tokens = 0 if summary.is_empty() else text_tokens(summary.render())
    return tokens if plan is None else tokens + text_tokens(plan.render())


@dataclass(frozen=True, slots=True)
class ContextState:
    """Everything about a conversation that must survive a restart; fifteen fields, and ``extra`` for keys of records
    from newer runtimes.

    ``est_tokens`` equals :meth:`recount` in every value that comes out of the fold or of a method. ``dirty`` is derived
    by the shell, is in no JSON and no digest, and does not count when values are compared.
    """

    kind: ContextKind = "root"
    version: int = 0
    summary: Summary = field(default_factory=Summary)
    messages: tuple[Msg, ...] = ()
    skills: tuple[SkillRef, ...] = ()
    plan: Plan | None = None
    preflight: Any = None
    est_tokens: int = 0
    model_window: int = 0
    principal: str | None = None
    task: str | None = None
    turns: int = 0
    created: int = 0
    updated: int = 0
    dirty: bool = field(default=False, compare=False)
    extra: JsonObject | None = None

    @classmethod
    def new(cls, kind: ContextKind, model_window: int, *, at_ms: int = 0, principal: str | None = None) -> ContextState:
        """Return a fresh context at version 1."""
        return cls(kind, 1, model_window=model_window, principal=principal, created=at_ms, updated=at_ms, dirty=True)

    # -- messages -----------------------------------------------------------------------------------------------------

    def append(self, msg: Msg, *, at_ms: int | None = None) -> ContextState:
        """Return the context with one message more. ``at_ms`` is the time of the change, the message's own by
        default."""
        return self.append_all((msg,), at_ms=at_ms)

    def append_all(self, msgs: Iterable[Msg], *, at_ms: int | None = None) -> ContextState:
        """Return the context with these messages behind its own; itself when there are none."""
        given = tuple(msgs)
        if not given:
            return self
        last = given[-1].ts
        at = at_ms if at_ms is not None else self.updated if last is None else last
        added = tuple(message.at(at) for message in given)
        tokens = sum(message.est_tokens() for message in added)
        return replace(
            self, messages=(*self.messages, *added), est_tokens=self.est_tokens + tokens, updated=at, dirty=True
        )

    def touch(self, at_ms: int) -> ContextState:
        """Return the context updated at ``at_ms``."""
        return replace(self, updated=at_ms, dirty=True)

    def recount(self) -> int:
        """Return the token estimate from scratch: messages, and the blocks that :meth:`slice` emits."""
        return sum(message.est_tokens() for message in self.messages) + block_tokens(self.summary, self.plan)

    def needs_compaction(self, compact_at: float = COMPACT_AT) -> bool:
        """Return whether the estimate is above ``compact_at`` times the window; an unknown window never asks for
        it."""
        return needs_compaction(self.est_tokens, self.model_window, compact_at)

    def slice(self) -> list[Msg]:
        """Return what a turn reads: summary and plan as system messages, each if there is one, then the messages
        verbatim."""
        blocks: list[Msg] = []
        if not self.summary.is_empty():
            blocks.append(SystemMsg(self.summary.render(), ts=self.summary.updated))
        if self.plan is not None:
            blocks.append(SystemMsg(self.plan.render(), ts=self.plan.updated))
        return [*blocks, *self.messages]

    def to_wire(self) -> list[JsonObject]:
        """Return :meth:`slice` in provider-neutral form; a note becomes a system message prefixed ``[note] ``."""
        return [message.to_wire() for message in self.slice()]

    # -- skills -------------------------------------------------------------------------------------------------------

    def skill_names(self) -> frozenset[str]:
        """Return the names of the loaded skills."""
        return frozenset(skill.name for skill in self.skills)

    def load_skill(
        self, name: str, hash: str, max_loaded: int = SKILLS_LOADED_DEFAULT, *, at_ms: int | None = None
    ) -> ContextState:
        """Return the context with the skill loaded: a loaded name gets its hash replaced in place, whatever the limit.

        Raises Refused with rule max_loaded for a new name at the limit.
        """
        place = next((index for index, skill in enumerate(self.skills) if skill.name == name), None)
        if place is not None:
            loaded = replace(self.skills[place], hash=hash)
            skills = (*self.skills[:place], loaded, *self.skills[place + 1 :])
        elif len(self.skills) < max_loaded:
            skills = (*self.skills, SkillRef(name, hash))
        else:
            raise at_skill_limit(max_loaded)
        return replace(self, skills=skills, dirty=True, updated=self.updated if at_ms is None else at_ms)

    def unload_skill(self, name: str, *, at_ms: int | None = None) -> tuple[ContextState, bool]:
        """Return (the context without the skill, True), or (itself, False) when the name is not loaded."""
        if name not in self.skill_names():
            return self, False
        skills = tuple(skill for skill in self.skills if skill.name != name)
        return replace(self, skills=skills, dirty=True, updated=self.updated if at_ms is None else at_ms), True

    # -- compaction ---------------------------------------------------------------------------------------------------

    def plan_compaction(self, keep_last: int = KEEP_LAST, target: int | None = None) -> CompactionPlan | None:
        """Return what to fold and at which version, or None when there is nothing worth folding."""
        fold = fold_point([message.dump() for message in self.messages], keep_last, target)
        return None if fold is None else CompactionPlan(fold, self.version, self.messages[:fold], self.summary)

    def apply_compaction(self, plan: CompactionPlan, verdict: Any, *, at_ms: int | None = None) -> ContextState:
        """Return the context with the planned messages folded under the summariser's verdict.

        Raises Refused with rule version_moved, verdict_schema, empty_verdict, or one of a fold that would break the
        kept window.
        """
        check_version(self.version, plan.version)
        said = read_verdict(verdict)
        return self._folded(plan.fold, said, at_ms)

    def apply_fallback(self, plan: CompactionPlan, *, at_ms: int | None = None) -> ContextState:
        """Return the context with the planned messages folded into the narrative, for when no summariser is at hand.
        Raises as :meth:`apply_compaction`."""
        check_version(self.version, plan.version)
        lines = [message.dump() for message in self.messages[: plan.fold]]
        return self._folded(plan.fold, Summary(narrative=fallback_narrative(self.summary.narrative, lines)), at_ms)

    def _folded(self, fold: int, said: Summary, at_ms: int | None) -> ContextState:
        check_fold([message.dump() for message in self.messages], fold)
        at = self.updated if at_ms is None else at_ms
        summary = self.summary.absorb(replace(said, covers_messages=fold, updated=at))
        kept = replace(
            self,
            summary=summary,
            messages=self.messages[fold:],
            version=self.version + 1,
            updated=at,
            dirty=True,
        )
        return replace(kept, est_tokens=kept.recount())

    # -- JSON ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> JsonObject:
        """Return the record: field names of the contract, optional keys left out when empty, unknown keys written
        back. Shares nothing with the value."""
        shape: JsonObject = {
            "kind": self.kind,
            "version": self.version,
            "summary": self.summary.to_json(),
            "messages": [message.to_json() for message in self.messages],
            "est_tokens": self.est_tokens,
            "model_window": self.model_window,
            "turns": self.turns,
            "created": self.created,
            "updated": self.updated,
        }
        if self.skills:
            shape["skills"] = [skill.to_json() for skill in self.skills]
        if self.plan is not None:
            shape["plan"] = self.plan.to_json()
        for key in ("preflight", "principal", "task"):
            if getattr(self, key) is not None:
                shape[key] = copy_json(getattr(self, key))
        return {**shape, **copy_json(self.extra or {})}


def at_skill_limit(max_loaded: int) -> Refused:
    """Return the refusal of a new skill when the limit is reached."""
    return Refused(f"{max_loaded} skills are loaded, which is the limit", hint="unload one first", rule="max_loaded")


def check_version(version: int, planned: int) -> None:
    """Refuse a compaction that was planned at another version."""
    if version != planned:
        raise Refused(
            f"the context is at version {version}, the compaction was planned at {planned}",
            hint="ask plan_compaction again",
            rule="version_moved",
            version=version,
            planned=planned,
        )
