"""A projection of every event type of refold that keeps nothing of them, and a sample of each: for tests that speak of
all kinds of events, by reflection over the catalogue. It must never be given a meaning."""

from __future__ import annotations

from typing import Any

from engine.core.model import Model
from engine.open_store import Store
from tests.toy import Bank

__all__ = ["Anything", "samples"]


class Anything:
    """A projection of all event types of refold, which keeps nothing of them."""

    name = "anything"
    upcasts = ()

    def __init__(self, model: Model) -> None:
        self.events = tuple(event_type for event_type in model.catalog.types if event_type.number != 1)
        self.evolve = {event_type.name: lambda state, wire, seq: None for event_type in self.events}

    def initial(self) -> Any:
        return Bank()

    def decide(self, state: Any, command: Any, moment: Any) -> Any:
        raise NotImplementedError

    def admit(self, state: Any, wire: Any, moment: Any) -> Any:
        return [wire]


def samples(store: Store) -> dict[str, dict[str, Any]]:
    """The data of one event of each type."""
    return {event.type: event.data for run_id in ("r", "taken over") for event in store.history(run_id)}
