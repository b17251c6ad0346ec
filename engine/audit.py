"""The audit verbs that a live run and a view of the past share: history, changes, why, diff. It must never write, and a
view must never be told what came after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from engine.changes import FieldChange, with_changes
from engine.core.believed import believing
from engine.core.envelope import Event
from engine.core.errors import InvalidValue
from engine.core.model import Model
from engine.core.state import ModelState
from engine.diff import Diff, diff
from engine.documents import comparable, document, foreign_document
from engine.history import HistoryFilter, Wanted, history
from engine.store import Checkpoints, Journal
from engine.why import Why, why_context, why_node, why_task, why_worker

if TYPE_CHECKING:
    from projections.contexts import ContextQueries
    from projections.graph import GraphQueries
    from projections.swarm import SwarmQueries
    from projections.tasks import TaskQueries

__all__ = ["Audited"]

T = TypeVar("T")


class Audited:
    """What can be asked about how a run came to be as it is here. A live run reads on to the end of the journal; a view
    to its own position."""

    id: str
    _journal: Journal
    _checkpoints: Checkpoints
    _model: Model

    if TYPE_CHECKING:  # every class that audits has these

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

    def _known_until(self) -> int | None:
        """Return the last position that may be told of; None for the end of the journal."""
        return None

    def history(
        self,
        *,
        types: Iterable[str] | None = None,
        newest_first: bool = False,
        limit: int | None = None,
        **wanted: Unpack[Wanted],
    ) -> Iterator[Event]:
        """Yield the events up to here that match every filter; see :class:`engine.history.HistoryFilter`."""
        known = self._known_until()
        if known is not None:
            until = wanted.get("until")
            wanted["until"] = known if until is None else min(known, until)
        chosen = HistoryFilter(types=None if types is None else frozenset(types), **wanted)
        return history(self._journal, self._model, self.id, chosen, newest_first=newest_first, limit=limit)

    def changes(
        self,
        *,
        types: Iterable[str] | None = None,
        newest_first: bool = False,
        limit: int | None = None,
        **wanted: Unpack[Wanted],
    ) -> Iterator[tuple[Event, tuple[FieldChange, ...]]]:
        """Yield the events of :meth:`history`, each with what it changed, field by field; see :mod:`engine.changes`."""
        events = self.history(types=types, newest_first=newest_first, limit=limit, **wanted)
        return with_changes(self._journal, self._checkpoints, self._model, self.id, events)

    def why(
        self,
        task: str | None = None,
        *,
        node: tuple[str, int] | None = None,
        context: str | None = None,
        worker: int | None = None,
    ) -> Why:
        """Return what led one subject to the state it is in here, in words.

        Name a task, or a ``node`` as (graph, number), a ``context``, or a ``worker`` of the swarm with its escalation.
        Raises NotFound, InvalidValue when not exactly one is named, CorruptJournal.
        """
        if sum(subject is not None for subject in (task, node, context, worker)) != 1:
            raise InvalidValue("why", "one subject is asked about", hint="name a task, node, context or worker")
        if not _are_of((task, str), (context, str), (worker, int), *zip(node or (), (str, int), strict=False)):
            raise InvalidValue("why", "no such subject", hint="a task and a context are texts, a worker is a number")
        known, here = (self._journal, self._model, self, self.id), self.position
        with believing(self.id, here):
            if node is not None:
                return why_node(*known, *node, until=here)
            if context is not None:
                return why_context(*known, context, until=here)
            if worker is not None:
                return why_worker(*known, worker, until=here)
            return why_task(*known, task or "", until=here)

    def diff_with(self, other: Audited | dict[str, Any] | list[Any]) -> Diff:
        """Return what differs from here to ``other``: another run, a fork, a view, or a state as another program writes
        it (see :func:`engine.documents.foreign_document`; kinds that it leaves out are not compared).

        Raises ImportRefused for what is no state.
        """
        ours = document(self)
        if isinstance(other, Audited):
            return diff(ours, document(other))
        theirs = foreign_document(other, ours)
        return diff(comparable(ours, theirs), theirs)


def _are_of(*values: tuple[Any, type]) -> bool:
    """Return whether each value is None or of its type."""
    return all(value is None or type(value) is wanted for value, wanted in values)
