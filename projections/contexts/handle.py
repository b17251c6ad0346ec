"""The handle of contexts: ``run.contexts``. It must never keep anything of its own; it reads the state and submits
commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, Unpack

from engine.core.command import listed
from engine.core.errors import ImportRefused, InvalidValue
from engine.core.fields import FLOAT, U64
from engine.core.handle import Commands, Outcome, Queries
from engine.core.limits import PLAN_ITEMS_DEFAULT, SKILLS_LOADED_DEFAULT
from projections.contexts import commands as ask
from projections.contexts.compaction import KEEP_LAST, CompactionPlan, fold_point, open_calls
from projections.contexts.context_state import COMPACT_AT, ContextKind, ContextState, needs_compaction
from projections.contexts.legality import header_of
from projections.contexts.message import Msg, ToolCall, load_message, message_array
from projections.contexts.plan import Binding, Plan, read_binding
from projections.contexts.plan_update import binding_of
from projections.contexts.record import from_record, record_parts
from projections.contexts.state import ContextsState
from projections.contexts.summary import Summary
from projections.contexts.values import JsonObject

__all__ = ["ContextCommands", "ContextQueries"]

AnyMsg: TypeAlias = Msg | JsonObject
"""A message as a value, or as the record's JSON."""


class How(TypedDict, total=False):
    """What every command takes besides its own arguments."""

    command_id: str | None
    actor: str | None
    at_ms: int | None
    cause: int | str | None


class ContextQueries(Queries[ContextsState]):
    """Reading conversations. Every answer is immutable or a fresh copy; an unknown id raises NotFound."""

    def ids(self) -> list[str]:
        """Return the ids of all contexts in the order they were created."""
        return self._ask(lambda state: [str(key) for key in state.contexts.rows])

    def __contains__(self, context: object) -> bool:
        return self._ask(lambda state: context in state.contexts)

    def get(self, context: str) -> ContextState:
        """Return the whole record. Costs what the live messages cost."""
        return self._ask(lambda state: _known(state, context).view(context))

    def est_tokens(self, context: str) -> int:
        """Return the token estimate, without reading a message."""
        return self._ask(lambda state: header_of(state, context).est_tokens)

    def recount(self, context: str) -> int:
        """Return the token estimate counted from scratch; it equals :meth:`est_tokens` at every position."""
        return self.get(context).recount()

    def message_count(self, context: str) -> int:
        """Return how many live messages there are, without reading one."""
        return self._ask(lambda state: header_of(state, context).next - header_of(state, context).first)

    def messages(self, context: str, start: int = 0, stop: int | None = None) -> tuple[Msg, ...]:
        """Return the live messages ``start`` to ``stop``, counted as slices count. Costs what is returned."""
        return self._ask(lambda state: tuple(map(load_message, _known(state, context).bodies(context, start, stop))))

    def needs_compaction(self, context: str, compact_at: float = COMPACT_AT) -> bool:
        """Return whether the estimate is above ``compact_at`` times the window; an unknown window never asks for
        it."""
        share = _checked(FLOAT, "compact_at", compact_at)

        def question(state: ContextsState) -> bool:
            header = header_of(state, context)
            return needs_compaction(header.est_tokens, header.model_window, share)

        return self._ask(question)

    def slice(self, context: str) -> list[Msg]:
        """Return what a turn reads: summary and plan as system messages, each if there is one, then the messages."""
        return self.get(context).slice()

    def to_wire(self, context: str) -> list[JsonObject]:
        """Return the slice in provider-neutral form."""
        return self.get(context).to_wire()

    def skill_names(self, context: str) -> frozenset[str]:
        """Return the names of the loaded skills."""
        return self._ask(lambda state: frozenset(skill.name for skill in _known(state, context).loaded(context)))

    def plan(self, context: str) -> Plan | None:
        """Return the plan, or None."""
        return self._ask(lambda state: _known(state, context).plan_view(context))

    def open_calls(self, context: str) -> tuple[ToolCall, ...]:
        """Return the tool calls that have no result among the live messages, oldest first.

        A turn that ended between an assistant's calls and their results leaves some; a provider refuses the
        conversation until they are answered or closed.
        """
        return self._ask(
            lambda state: tuple(ToolCall.load(call) for _, call in open_calls(_known(state, context).bodies(context)))
        )

    def plan_compaction(
        self, context: str, keep_last: int = KEEP_LAST, target: int | None = None
    ) -> CompactionPlan | None:
        """Return what to fold and at which version, with the messages the summariser reads; None when there is nothing
        worth folding. Records nothing and leaves nothing waiting."""
        keep = _checked(U64, "keep_last", keep_last)
        goal = None if target is None else _checked(U64, "target", target)

        def question(state: ContextsState) -> CompactionPlan | None:
            header = header_of(state, context)
            bodies = state.bodies(context)
            fold = fold_point(bodies, keep, goal)
            if fold is None:
                return None
            folded = tuple(map(load_message, bodies[:fold]))
            return CompactionPlan(fold, header.version, folded, Summary.load(state.summary(context).dump()))

        return self._ask(question)

    def to_record(self, context: str) -> JsonObject:
        """Return the record as JSON, unknown keys of an imported one included."""
        return self.get(context).to_json()


class ContextCommands(ContextQueries, Commands[ContextsState]):
    """Reading and commanding conversations.

    Every command takes ``command_id`` (makes it safe to repeat), ``actor``, ``at_ms`` (Unix milliseconds) and
    ``cause``, and returns its Outcome; nothing is recorded when it repeats exactly what already is. Raises NotFound
    for an unknown id, and Refused with the ``rule`` in its details.
    """

    def create(
        self,
        context: str,
        kind: ContextKind = "conversation",
        model_window: int = 0,
        principal: str | None = None,
        **how: Unpack[How],
    ) -> Outcome:
        """Begin a conversation at version 1. Refused with rule exists when the id is taken by another one."""
        command = ask.CreateContext.make(context=context, kind=kind, model_window=model_window, principal=principal)
        return self._submit(command, **how)

    def append(self, context: str, message: AnyMsg, **how: Unpack[How]) -> Outcome:
        """Append one message, a value or the record's JSON; without ``ts`` it gets the command's time."""
        return self.append_all(context, (message,), **how)

    def append_all(self, context: str, messages: Iterable[AnyMsg], **how: Unpack[How]) -> Outcome:
        """Append messages as one event, all or none. InvalidValue names the message by its index and path.

        What was said is recorded and not judged: a tool's result may answer no call, or one that has its answer
        already. It stays where it came, and a compaction folds it together with its call.
        """
        arrays = []
        for index, message in enumerate(listed(messages, "messages")):
            try:
                arrays.append(message_array(message))
            except InvalidValue as error:
                raise error.at(f"messages[{index}]") from None
        return self._submit(ask.AppendMessages.make(context=context, messages=arrays), **how)

    def touch(self, context: str, **how: Unpack[How]) -> Outcome:
        """Set ``updated`` to the command's time and nothing else."""
        return self._submit(ask.TouchContext.make(context=context), **how)

    def load_skill(
        self, context: str, name: str, hash: str, max_loaded: int = SKILLS_LOADED_DEFAULT, **how: Unpack[How]
    ) -> Outcome:
        """Load a skill; a loaded name gets its hash replaced in place, whatever the limit. Rule max_loaded."""
        command = ask.LoadSkill.make(context=context, skill=name, hash=hash, max_loaded=max_loaded)
        return self._submit(command, **how)

    def unload_skill(self, context: str, name: str, **how: Unpack[How]) -> Outcome:
        """Unload a skill; for a name that is not loaded nothing is recorded, and ``changed`` is False."""
        return self._submit(ask.UnloadSkill.make(context=context, skill=name), **how)

    def create_plan(
        self,
        context: str,
        goal: str,
        items: Sequence[Any] = (),
        max_items: int = PLAN_ITEMS_DEFAULT,
        **how: Unpack[How],
    ) -> Outcome:
        """Make a plan of titles or ``{title, detail?}``, in place of an earlier one. Rules empty_goal, max_items,
        empty_title."""
        titles = listed(items, "items")
        command = ask.CreatePlan.make(context=context, goal=goal, items=titles, max_items=max_items)
        return self._submit(command, **how)

    def update_plan(
        self,
        context: str,
        *,
        insert: str | Mapping[str, Any] | None = None,
        reorder: Sequence[int] | None = None,
        item: int | str | None = None,
        status: str | None = None,
        note: str | None = None,
        title: str | None = None,
        detail: str | None = None,
        bind: Binding | Mapping[str, str] | None = None,
        max_items: int = PLAN_ITEMS_DEFAULT,
        **how: Unpack[How],
    ) -> Outcome:
        """Insert, then reorder, then edit the plan, all or nothing; an empty note or detail takes it away.

        ``insert`` is a title or ``{title, detail?, after?: id}``; ``reorder`` ids that come first; ``item`` an id or
        an exact title; ``bind`` ``{run: id}``, ``{subagent: handle}`` or ``{task: id}``. Rules max_items, empty_title,
        no_such_item, bad_status, bad_binding, nothing_to_do.
        """
        bound = {bind.kind: bind.ref} if isinstance(bind, Binding) else bind
        given = {
            "insert": dict(insert) if isinstance(insert, Mapping) else insert,
            "reorder": None if reorder is None else listed(reorder, "reorder"),
            "item": item,
            "status": status,
            "note": note,
            "title": title,
            "detail": detail,
            "bind": dict(bound) if isinstance(bound, Mapping) else bound,
        }
        changes = {key: value for key, value in given.items() if value is not None}
        return self._submit(ask.UpdatePlan.make(context=context, changes=changes, max_items=max_items), **how)

    def clear_plan(self, context: str, **how: Unpack[How]) -> Outcome:
        """Drop the plan."""
        return self._submit(ask.ClearPlan.make(context=context), **how)

    def settle_plan(
        self,
        context: str,
        binding: Binding | Mapping[str, Any],
        ok: bool,
        note: str | None = None,
        **how: Unpack[How],
    ) -> Outcome:
        """Move every open item with that binding to done (ok) or blocked; nothing is recorded when there is none."""
        command = ask.SettlePlan.make(context=context, binding=_binding(binding).dump(), ok=ok, note=note)
        return self._submit(command, **how)

    def set_preflight(self, context: str, value: Any, **how: Unpack[How]) -> Outcome:
        """Set the preflight verdict, any JSON value; None takes it away."""
        return self._submit(ask.SetPreflight.make(context=context, value=value), **how)

    def set_principal(self, context: str, principal: str, **how: Unpack[How]) -> Outcome:
        """Say who calls; the first one stays, a later one records nothing."""
        return self._submit(ask.SetPrincipal.make(context=context, principal=principal), **how)

    def attach_task(self, context: str, task: str, **how: Unpack[How]) -> Outcome:
        """Attach the current work to a task, which must be known when the run has tasks. Rule unknown_task."""
        return self._submit(ask.AttachTask.make(context=context, task=task), **how)

    def detach_task(self, context: str, **how: Unpack[How]) -> Outcome:
        """Let the task go."""
        return self._submit(ask.DetachTask.make(context=context), **how)

    def begin_turn(self, context: str, **how: Unpack[How]) -> Outcome:
        """Count a turn."""
        return self._submit(ask.BeginTurn.make(context=context), **how)

    def set_window(self, context: str, model_window: int, **how: Unpack[How]) -> Outcome:
        """Set the model's window in tokens, larger or smaller; 0 is unknown."""
        return self._submit(ask.SetWindow.make(context=context, model_window=model_window), **how)

    def apply_compaction(self, context: str, plan: CompactionPlan, verdict: Any, **how: Unpack[How]) -> Outcome:
        """Fold what was planned under the summariser's verdict: ``{goals, decisions, open, facts, narrative}``, each
        optional, or a text.

        Rules version_moved, verdict_schema, empty_verdict; fold_range, orphaned_result, bad_start and open_call when
        the conversation has moved on so that the fold would break it.
        """
        fold, version = _planned(plan)
        command = ask.ApplyCompaction.make(context=context, fold=fold, version=version, verdict=verdict)
        return self._submit(command, **how)

    def apply_fallback(self, context: str, plan: CompactionPlan, **how: Unpack[How]) -> Outcome:
        """Fold what was planned into the narrative, when no summariser is at hand. Bounded: the oldest lines go
        first. Rules as apply_compaction."""
        fold, version = _planned(plan)
        return self._submit(ask.ApplyFallback.make(context=context, fold=fold, version=version), **how)

    def close_calls(self, context: str, reason: str, **how: Unpack[How]) -> Outcome:
        """Answer every open call with an error result saying ``reason``; nothing is recorded when none is open."""
        return self._submit(ask.CloseCalls.make(context=context, reason=reason), **how)

    def import_record(
        self,
        context: str,
        record: Any,
        *,
        partial: bool = False,
        model_window: int | None = None,
        **how: Unpack[How],
    ) -> Outcome:
        """Take in a record of agentd as one event; it goes out of :meth:`to_record` as it came in.

        Raises ImportRefused naming every malformed part by its path, a message by its index too. With ``partial`` the
        rest is kept, and the event names what was left out. ``model_window`` is the window configured now: it follows
        as an event when the record has another.
        """
        state, violations = from_record(record)
        lost = [violation.to_json() for violation in violations]
        if state is None or (violations and not partial):
            raise ImportRefused(
                f"the record of context {context!r} has {len(lost)} malformed parts, the first is "
                f"{violations[0].path or 'the record itself'}: {violations[0].problem}",
                lost,
                hint="correct them, or import with partial=True to keep the rest" if state else "give a JSON object",
            )
        command = ask.ImportContext.make(
            context=context, parts=record_parts(state), lost=lost, model_window=model_window
        )
        return self._submit(command, **how)


def _known(state: ContextsState, context: str) -> ContextsState:
    header_of(state, context)
    return state


def _checked(kind: Any, name: str, value: Any) -> Any:
    try:
        return kind.check(value)
    except InvalidValue as error:
        raise error.at(name) from None


def _planned(plan: CompactionPlan) -> tuple[int, int]:
    """Return what a plan says to fold, and at which version. Raises InvalidValue for what is no plan."""
    if not isinstance(plan, CompactionPlan):
        hint = "give what plan_compaction returned"
        raise InvalidValue("plan", f"expected a CompactionPlan, found {type(plan).__name__}", hint=hint)
    return plan.fold, plan.version


def _binding(value: Binding | Mapping[str, Any]) -> Binding:
    """Return the binding in either form: ``{run: id}`` as an update takes it, ``{run: {id}}`` as the record has it."""
    if isinstance(value, Mapping) and any(isinstance(inner, Mapping) for inner in value.values()):
        try:
            return read_binding(dict(value))
        except InvalidValue as error:
            raise error.at("binding") from None
    return binding_of(value)
