"""Commands to the swarm: workers act, idle, ask for help, are guided and judged. It must never look at anything but the
state it is given."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from engine.core.state import ModelState
from engine.testing.proposals.values import json_value, likely
from projections.swarm import commands as swarm
from projections.swarm.events import ACTION_KINDS
from projections.swarm.state import HEADER

__all__ = ["swarm_command"]

_WORKERS: Final = (0, 1, 2, 9)
_ACTION: Final = {"name": "look", "description": "", "category": "node_expand", "groups": [], "params": []}
_CONFIG: Final = {"actions": {"look": _ACTION}, "groups": {}}
_GUIDANCE: Final[dict[str, Any]] = {
    "actions": ["look"],
    "content": None,
    "props": {},
    "exploration_target": None,
    "scope": "minimal",
}
_START: Final = {"worker_count": 3, "max_ticks": 6, "failure_threshold": 2, "task": None}


def swarm_command(random: Random, state: ModelState) -> Any:
    """Return a command to the swarm of the run."""
    table = state.parts["swarm"]
    if HEADER not in table.swarm and random.randrange(15):
        return _begin(random)
    alive = [worker for worker, row in table.workers.rows.items() if not row.done]
    worker = likely(random, alive, _WORKERS)
    kind = random.randrange(15)
    if kind < 6:
        return _act(random, worker)
    if kind < 8:
        return swarm.AdvanceTick.make(tick=random.choice((None, None, None, 0, 2, 9)))
    if kind == 8:
        return swarm.Idle.make(worker=worker)
    if kind == 9:
        reason = random.choice(("timeout", "resource_exhausted", {"agent_requested": ""}))
        return swarm.RaiseEscalation.make(worker=worker, reason=reason, context=random.choice((None, "c")))
    if kind == 10:
        return swarm.ClearEscalation.make(worker=likely(random, table.open, _WORKERS))
    if kind == 11:
        return swarm.IssueGuidance.make(worker=worker, guidance=_GUIDANCE)
    if kind == 12 and random.randrange(2):
        return swarm.FinishWorker.make(worker=worker, success=random.random() < 0.5, message=None)
    return _situation(random)


def _begin(random: Random) -> Any:
    if random.randrange(4):
        return swarm.Start.make(**{**_START, "failure_threshold": random.randrange(3)})
    return swarm.ImportRecord.make(
        record=_record(random), visits=4, successes=2, max_ticks=10, failure_threshold=2, task=json_value(random, 2)
    )


def _record(random: Random) -> dict[str, Any]:
    """Return the record of a swarm that has lived elsewhere: two of four actions succeeded in three of ten ticks."""
    asking = random.randrange(2) == 0
    about = {"consecutive_failures": 1, "history_len": 2, "last_action": "look", "last_success": False}
    about["last_output"] = None
    phase = "escalated" if asking else "working"
    return {
        "tick": 3,
        "workers": {
            "0": {"id": 0, **about, "has_escalation": asking, "phase": phase},
            "2": {"id": 2, **about, "has_escalation": False, "phase": "idle"},
        },
        "success_rate": 0.5,
        "progress": 0.3,
        "escalations": [[0, {"reason": "timeout", "raised_at_tick": 2}]] if asking else [],
        "available_actions": None,
        "v2_guidances": None,
        "excluded_actions": [],
        "previous_guidances": {},
        "done_workers": [],
        "metadata": {"k": json_value(random, 2)},
    }


def _act(random: Random, worker: int) -> Any:
    success = random.randrange(3) > 0
    return swarm.CompleteAction.make(
        worker=worker,
        action="look",
        target=random.choice((None, "there")),
        success=success,
        output="out" if success else None,
        error=None if success else "no",
        duration_ms=random.randrange(1000),
        kind=random.choice(("worker", "worker", "worker", *ACTION_KINDS)),
    )


def _situation(random: Random) -> Any:
    kind = random.randrange(8)
    if kind < 2:
        return swarm.SetMetadata.make(key=random.choice("ab"), value=json_value(random))
    if kind == 2:
        return swarm.RemoveMetadata.make(key=random.choice("ab"))
    if kind < 5:
        v2 = random.choice((None, [], [_GUIDANCE]))
        return swarm.UpdateExploration.make(excluded_actions=random.choice(([], ["look"])), v2_guidances=v2)
    if kind == 5:
        return swarm.ConfigureActions.make(config=random.choice((_CONFIG, {"actions": {}, "groups": {}})))
    if kind == 6 and random.randrange(3) == 0:
        return swarm.RecordVerdict.make(success=random.random() < 0.5, reason=None, details=json_value(random, 2))
    return swarm.Start.make(**_START)
