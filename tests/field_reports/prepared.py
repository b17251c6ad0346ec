"""A run in which everything that takes JSON may be given some. It must stay small: all of it is looked at after every
value."""

from __future__ import annotations

from engine.open_store import Store
from engine.runs import LiveRun
from projections.contexts import AssistantMsg, ToolCall

__all__ = ["prepared"]


def prepared(store: Store) -> LiveRun:
    """Return a run ``r`` in which every one of ``awkward.ENTRIES`` may be given its value."""
    run = store.run("r")
    tasks = run.tasks
    tasks.open_root("root")
    tasks.start("root")
    for name in ("work", "waits", "asks"):
        tasks.spawn(name, parent="root")
        tasks.publish_launch(name)
        tasks.acknowledge_launch(name, 1)
    tasks.suspend("waits", wait="signal")
    tasks.suspend("asks", wait="approval")
    run.contexts.create("c")
    run.contexts.append("c", AssistantMsg(None, (ToolCall("c1", "t", {}),)))
    run.swarm.start(1)
    return run
