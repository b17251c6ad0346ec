"""The kit for testing restores: strategies, a state machine that crashes and restores any projection, crash-able
stores,
and checks of whole journals. It must never be imported by what runs in production; it needs ``hypothesis``.

Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.core.plain import PlainEvent, PlainProjection
    from engine.testing.crashable import POINTS, CrashableStore, SimulatedCrash
    from engine.testing.failure import ReplayDiffers
    from engine.testing.linearizable import (
        AppendCall,
        LogEntry,
        NotLinearizable,
        ReadCall,
        Violation,
        assert_linearizable,
        log_of,
        violations_of,
    )
    from engine.testing.machine import RestoreMachine, restore_machine
    from engine.testing.proposals import PROPOSERS, propose
    from engine.testing.replay import Replayed, assert_replay_identical, cut_everywhere
    from engine.testing.runs import journals, states
    from engine.testing.strategies import (
        commands,
        event_data,
        facts,
        field_values,
        from_samples,
        json_values,
        register_field_type,
        register_parameter,
    )
    from engine.testing.twin import Twin
    from engine.testing.walks import FailedWalk, Walker, walk

_HOME = {
    "engine.core.plain": ("PlainEvent", "PlainProjection"),
    "engine.testing.crashable": ("POINTS", "CrashableStore", "SimulatedCrash"),
    "engine.testing.failure": ("ReplayDiffers",),
    "engine.testing.linearizable": (
        "AppendCall",
        "LogEntry",
        "NotLinearizable",
        "ReadCall",
        "Violation",
        "Walker",
        "assert_linearizable",
        "log_of",
        "violations_of",
    ),
    "engine.testing.machine": ("RestoreMachine", "restore_machine"),
    "engine.testing.proposals": ("PROPOSERS", "propose"),
    "engine.testing.replay": ("Replayed", "assert_replay_identical", "cut_everywhere"),
    "engine.testing.runs": ("journals", "states"),
    "engine.testing.strategies": (
        "commands",
        "event_data",
        "facts",
        "field_values",
        "from_samples",
        "json_values",
        "register_field_type",
        "register_parameter",
    ),
    "engine.testing.twin": ("Twin",),
    "engine.testing.walks": ("FailedWalk", "Walker", "walk"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "POINTS",
    "PROPOSERS",
    "AppendCall",
    "CrashableStore",
    "FailedWalk",
    "LogEntry",
    "NotLinearizable",
    "PlainEvent",
    "PlainProjection",
    "ReadCall",
    "Replayed",
    "ReplayDiffers",
    "RestoreMachine",
    "SimulatedCrash",
    "Twin",
    "Violation",
    "Walker",
    "assert_linearizable",
    "assert_replay_identical",
    "commands",
    "cut_everywhere",
    "event_data",
    "facts",
    "field_values",
    "from_samples",
    "journals",
    "json_values",
    "log_of",
    "propose",
    "register_field_type",
    "register_parameter",
    "restore_machine",
    "states",
    "violations_of",
    "walk",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'engine.testing' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value
