"""The public surface by reflection: every command of the four handles, and every reader of a store. It must never name
them one by one where Python can list them, or a new one would go untested."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from engine.documents import document
from engine.open_store import Store
from engine.prune import list_checkpoints
from projections.contexts import ContextCommands
from projections.graph import GraphCommands
from projections.swarm import SwarmCommands
from projections.tasks import TaskCommands

__all__ = ["COMMANDS", "Call", "readers", "spied"]

HANDLES = {"tasks": TaskCommands, "contexts": ContextCommands, "graphs": GraphCommands, "swarm": SwarmCommands}
Call = tuple[Callable[..., Any], dict[str, Any]]
"""A command that was given: the method, and its arguments by name."""


def _commands(handle: type[Any]) -> list[str]:
    """The methods that take an envelope (``command_id``, ``actor``, ...) besides their own arguments."""
    found = inspect.getmembers(handle, inspect.isfunction)
    return [name for name, method in found if not name.startswith("_") and _envelope(method) is not None]


def _envelope(method: Callable[..., Any]) -> str | None:
    parameters = inspect.signature(method).parameters.values()
    return next((parameter.name for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD), None)


COMMANDS = {f"{handle}.{name}" for handle, kind in HANDLES.items() for name in _commands(kind)}
"""Every public command, ``tasks.spawn`` and so on."""


def spied(run: Any) -> dict[str, list[Call]]:
    """Note every command that is given to the handles of a run from now on, under its name."""
    calls: dict[str, list[Call]] = {}
    for handle_name, kind in HANDLES.items():
        handle = getattr(run, handle_name)
        for name in _commands(kind):
            calls[f"{handle_name}.{name}"] = noted = []
            setattr(handle, name, _noting(getattr(handle, name), noted))
    return calls


def _noting(method: Callable[..., Any], noted: list[Call]) -> Callable[..., Any]:
    signature = inspect.signature(method)
    envelope = _envelope(method)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(signature.bind(*args, **kwargs).arguments)
        given.update(given.pop(envelope, {}))
        noted.append((method, given))
        return method(*args, **kwargs)

    return call


def readers(position: int) -> dict[str, Callable[[Store], Any]]:
    """Everything that reads run ``r`` of a store, as functions that give comparable values."""

    def state_at(at: int) -> Callable[[Store], Any]:
        return lambda store: (store.view("r", at=at).state_bytes(), document(store.view("r", at=at)))

    middle = position // 2
    return {
        "runs": lambda store: list(store.runs()),
        "run": lambda store: (store.run("r").position, store.run("r").link(), store.run("r").digest()),
        "view at the end": state_at(position),
        "view in the middle": state_at(middle),
        "view of nothing": state_at(0),
        "view from genesis": lambda store: store.view("r", start="genesis").state_bytes(),
        "view of a time": lambda store: store.run("r").at(time_ms=1_050).digest(),
        "history": lambda store: [event.to_json() for event in store.history("r")],
        "history backwards": lambda store: [e.to_json() for e in store.history("r", newest_first=True, limit=40)],
        "history of a task": lambda store: list(store.history("r", task="fetch")),
        "export": lambda store: list(store.export_lines("r")),
        "verify": lambda store: store.verify("r"),
        "changes": lambda store: list(store.changes("r", newest_first=True, limit=40)),
        "slider": lambda store: [store.slider("r", at=at).digest() for at in (0, middle, position)],
        "divergence": lambda store: store.divergence("r", store.model),
        "checkpoints": lambda store: list_checkpoints(store.journal, store.checkpoints, store.model, "r"),
        "diff": lambda store: store.run("r").diff(middle, position),
        "why": lambda store: store.run("r").why("fetch"),
        "why of a conversation": lambda store: [store.view("r").why(context=c) for c in store.view("r").contexts.ids()],
        "diff with a past": lambda store: store.run("r").diff_with(store.view("r", at=middle)),
        "rows": lambda store: list(store.run("r").tasks.rows()),
        "waiting": lambda store: (store.run("r").tasks.waiting(), store.run("r").tasks.due(10_000)),
        "graphs": lambda store: [store.run("r").graphs.get(graph) for graph in store.run("r").graphs.ids()],
        "contexts": lambda store: [store.run("r").contexts.to_wire(c) for c in store.run("r").contexts.ids()],
        "swarm": lambda store: (store.run("r").swarm.context(), store.run("r").swarm.counts()),
    }
