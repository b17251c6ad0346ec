"""The life cycles of a swarm, of its workers and of their escalations, as data. Nothing here may decide; decide, admit,
the tests and the diagrams read these tables.
"""

from __future__ import annotations

from typing import Final

from engine.core.transition import Transition

__all__ = ["ESCALATION_STEPS", "PHASES", "SWARM_STEPS", "WORKER_STEPS"]

PHASES: Final = ("idle", "working", "escalated", "done")
"""A worker's phase. ``escalated`` and ``done`` lie over idle or working, which come back when an escalation is
cleared."""

SWARM_STEPS: Final = (
    Transition(None, "open", "swarm.started", "one swarm in a run"),
    Transition(None, "open", "swarm.imported", "one swarm in a run"),
    Transition("open", "open", "swarm.tick_advanced", "forward only"),
    Transition("open", "open", "swarm.actions_configured"),
    Transition("open", "open", "swarm.exploration_updated"),
    Transition("open", "open", "swarm.metadata_set"),
    Transition("open", "open", "swarm.metadata_removed"),
    Transition("open", "judged", "swarm.verdict_recorded"),
    Transition("judged", "judged", "swarm.tick_advanced", "late facts still count"),
    Transition("judged", "judged", "swarm.actions_configured"),
    Transition("judged", "judged", "swarm.exploration_updated"),
    Transition("judged", "judged", "swarm.metadata_set"),
    Transition("judged", "judged", "swarm.metadata_removed"),
)

WORKER_STEPS: Final = (
    Transition(None, "idle", "swarm.started"),
    Transition(None, "idle", "swarm.imported"),
    Transition(None, "working", "swarm.imported"),
    Transition(None, "escalated", "swarm.imported"),
    Transition(None, "done", "swarm.imported"),
    Transition("idle", "working", "swarm.action_completed", "kind worker"),
    Transition("idle", "idle", "swarm.action_completed", "kind llm or manager"),
    Transition("idle", "idle", "swarm.worker_idled", "once a tick"),
    Transition("idle", "idle", "swarm.guidance_issued"),
    Transition("idle", "escalated", "swarm.escalation_raised"),
    Transition("idle", "done", "swarm.worker_finished"),
    Transition("working", "working", "swarm.action_completed"),
    Transition("working", "idle", "swarm.worker_idled"),
    Transition("working", "working", "swarm.guidance_issued"),
    Transition("working", "escalated", "swarm.escalation_raised"),
    Transition("working", "done", "swarm.worker_finished"),
    Transition("escalated", "escalated", "swarm.action_completed"),
    Transition("escalated", "escalated", "swarm.worker_idled"),
    Transition("escalated", "escalated", "swarm.guidance_issued"),
    Transition("escalated", "escalated", "swarm.escalation_attempted", "the first one stays"),
    Transition("escalated", "idle", "swarm.escalation_cleared", "idle beneath"),
    Transition("escalated", "working", "swarm.escalation_cleared", "working beneath"),
    Transition("escalated", "done", "swarm.worker_finished"),
    Transition("done", "done", "swarm.action_completed", "counts in the rates"),
    Transition("done", "done", "swarm.worker_idled"),
    Transition("done", "done", "swarm.escalation_raised"),
    Transition("done", "done", "swarm.escalation_attempted"),
    Transition("done", "done", "swarm.escalation_cleared"),
)

ESCALATION_STEPS: Final = (
    Transition(None, "open", "swarm.escalation_raised", "also by the engine, at the failure threshold"),
    Transition(None, "open", "swarm.imported"),
    Transition("open", "open", "swarm.escalation_attempted", "the first one stays"),
    Transition("open", "cleared", "swarm.escalation_cleared"),
    Transition("cleared", "open", "swarm.escalation_raised"),
)
