"""refold: an event-sourced checkpoint engine for agent and task runtimes.

``open_store(path)`` is the way in. What a name here promises is in its docstring; how it is built is in ARCHITECTURE.md
beside this file. Names are loaded when they are first used: the projections import ``engine.core``, and must not pull
in
the shell that imports them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.checkpoint import CheckpointPolicy, CheckpointTaken
    from engine.core.envelope import Event
    from engine.core.errors import (
        BackendUnavailable,
        CommandMismatch,
        Conflict,
        CorruptJournal,
        EngineError,
        IllegalTransition,
        ImportRefused,
        InvalidValue,
        LimitExceeded,
        NotAStore,
        NotFound,
        ReadOnly,
        Refused,
        SchemaError,
    )
    from engine.core.handle import Outcome
    from engine.open_store import RunSummary, Store, open_store
    from engine.restore import RestoreReport
    from engine.runs import LiveRun, RunView, Slider
    from engine.verify import Fault, Verdict

_HOME = {
    "engine.checkpoint": ("CheckpointPolicy", "CheckpointTaken"),
    "engine.core.envelope": ("Event",),
    "engine.core.errors": (
        "BackendUnavailable",
        "CommandMismatch",
        "Conflict",
        "CorruptJournal",
        "EngineError",
        "IllegalTransition",
        "ImportRefused",
        "InvalidValue",
        "LimitExceeded",
        "NotAStore",
        "NotFound",
        "ReadOnly",
        "Refused",
        "SchemaError",
    ),
    "engine.core.handle": ("Outcome",),
    "engine.open_store": ("RunSummary", "Store", "open_store"),
    "engine.restore": ("RestoreReport",),
    "engine.runs": ("LiveRun", "RunView", "Slider"),
    "engine.verify": ("Fault", "Verdict"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "BackendUnavailable",
    "CheckpointPolicy",
    "CheckpointTaken",
    "CommandMismatch",
    "Conflict",
    "CorruptJournal",
    "EngineError",
    "Event",
    "Fault",
    "IllegalTransition",
    "ImportRefused",
    "InvalidValue",
    "LimitExceeded",
    "LiveRun",
    "NotAStore",
    "NotFound",
    "Outcome",
    "ReadOnly",
    "Refused",
    "RestoreReport",
    "RunSummary",
    "RunView",
    "SchemaError",
    "Slider",
    "Store",
    "Verdict",
    "open_store",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


class _Package(ModuleType):
    """Keeps ``engine.open_store`` the function: importing the module of that name would put the module in its
    place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _MODULE_OF or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
