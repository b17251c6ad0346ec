"""Asking a state: what a handle answers. It must never blame the journal for what the caller asked wrongly, nor the
caller for a state that the journal should not hold.

Bytes whose links hold are believed, so a state that somebody wrote who knows the format may hold what no event can
give, and the first question that looks at it stumbles. Only then is it worth finding out whose fault that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from engine.core.believed import IMPOSSIBLE, impossible
from engine.core.errors import CorruptJournal, NotFound
from engine.core.state import ModelState

__all__ = ["asked"]

T = TypeVar("T")


def asked(run_id: str, state: ModelState, question: Callable[[ModelState], T]) -> T:
    """Return ``question(state)``. Raises CorruptJournal when it fails over a state that cannot be written or shown,
    and whatever else it raises as it is."""
    try:
        return question(state)
    except IMPOSSIBLE as error:
        if _is_sound(state):
            raise
        raise impossible(run_id, state.seq, error) from error


def _is_sound(state: ModelState) -> bool:
    """Return whether the whole state can be written, and shown in its public form."""
    from engine.documents import document  # late, both: they are asked only when something is wrong
    from engine.view import StateView

    class Unguarded(StateView):
        def ask(self, question: Callable[[ModelState], T]) -> T:
            return question(state)

    try:
        state.bytes()
        document(Unguarded.of("", state))
    except NotFound:  # a model without some of refold's own projections
        return True
    except (CorruptJournal, *IMPOSSIBLE):
        return False
    return True
