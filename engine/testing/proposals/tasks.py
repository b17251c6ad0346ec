"""Commands to the task table: mostly a step that some live task can take. It must never look at anything but the table
it is given."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from engine.core.state import ModelState
from engine.testing.proposals.values import json_value
from projections.tasks import commands as tasks
from projections.tasks.transitions import TERMINATIONS, WAITS

__all__ = ["task_command"]


def task_command(random: Random, state: ModelState) -> Any:
    """Mostly a step that some live task can take, now and then anything at all."""
    table = state.parts["tasks"]
    live = sorted(table.live)
    if table.root is None:
        return tasks.OpenRoot.make(task_id=random.choice(["root", "t1"]), capability_ids=["read"])
    if not live or random.randrange(6) == 0:
        return _anything(random, table)
    task_id = random.choice(live)
    record = table.tasks.rows[task_id]
    attempt = None if record.parent is None else record.attempt
    if random.randrange(3) == 0:
        return _upkeep(random, task_id)
    if record.lifecycle == "pending_launch":
        kind: Any = random.choice([tasks.PublishLaunch, tasks.PublishLaunch, tasks.FailLaunch])
        return kind.make(task_id=task_id, attempt=attempt)
    if record.lifecycle == "starting":
        return tasks.AcknowledgeLaunch.make(task_id=task_id, attempt=attempt)
    if record.lifecycle == "ready":
        return tasks.Start.make(task_id=task_id)
    if record.lifecycle == "suspended" and record.wait != "sub_agent_join":
        if record.wait == "approval":
            approved = random.random() < 0.5
            return tasks.ResolveApproval.make(task_id=task_id, approved=approved, payload=json_value(random))
        if record.wait != "timer" and random.randrange(3) == 0:
            return tasks.ExpireWait.make(task_id=task_id, payload=json_value(random))
        return tasks.Deliver.make(task_id=task_id, kind=record.wait, payload=json_value(random))
    if record.lifecycle == "suspended" and random.randrange(3):
        return _joined(random, table, task_id)
    return _running(random, table, task_id, attempt)


def _joined(random: Random, table: Any, task_id: str) -> Any:
    """Let a task that waits for children wait for another one as well, or let go of one that it waits for."""
    others = sorted(set(table.live_children.get(task_id, ())) - set(table.joins.get(task_id, ())))
    if others:
        return tasks.ExtendJoin.make(task_id=task_id, waiting_on=[random.choice(others)])
    return tasks.Resume.make(task_id=task_id)


def _running(random: Random, table: Any, task_id: str, attempt: int | None) -> Any:
    roll = random.randrange(12)
    if roll < 5:
        return tasks.Spawn.make(
            task_id=f"c{len(table.tasks)}",
            parent=task_id,
            role=random.choice(["explore", "plan", "custom"]),
            isolation=random.choice(["shared", "worktree"]),
            context_inheritance=random.choice(["none", "full"]),
            capability_ids=random.sample(["read", "write", "ü"], random.randrange(3)),
        )
    if roll < 7:
        children = [child for child in table.children.get(task_id, ()) if child in table.live]
        if children:
            waiting_on = random.sample(sorted(children), random.randint(1, len(children)))
            return tasks.Suspend.make(task_id=task_id, wait="sub_agent_join", waiting_on=waiting_on)
        wait = random.choice([wait for wait in WAITS if wait != "sub_agent_join"])
        return tasks.Suspend.make(task_id=task_id, wait=wait, due_ms=random.choice([None, 5_000]))
    if roll < 8:
        return tasks.YieldTask.make(task_id=task_id)
    if roll < 9 and attempt is not None:
        return tasks.Relaunch.make(task_id=task_id, mode=random.choice(["restart", "retry"]))
    if roll < 11 and (attempt is not None or random.randrange(40) == 0):
        return tasks.Finish.make(
            task_id=task_id,
            termination=random.choice(TERMINATIONS),
            attempt=attempt,
            result=random.choice([None, {"final_message": None, "more": json_value(random)}]),
            on_children=random.choice([None, "cancel_children", "detach"]),
        )
    return tasks.Cancel.make(task_id=task_id) if attempt is not None else _upkeep(random, task_id)


def _upkeep(random: Random, task_id: str) -> Any:
    roll = random.randrange(3)
    if roll == 0:
        return tasks.ReportUsage.make(task_id=task_id, tokens=random.choice([0, 7, 2**63]), turns=random.randrange(3))
    names = random.sample(["read", "write", "net", "ü"], random.randrange(3))
    make = tasks.GrantCapabilities if roll == 1 else tasks.RevokeCapabilities
    return make.make(task_id=task_id, capability_ids=names)


def _anything(random: Random, table: Any) -> Any:
    """Return a command that is refused more often than not: unknown and done tasks, dead attempts, impossible steps."""
    task_id = random.choice(["nobody", *sorted(table.tasks.rows)])
    if task_id == table.root and random.randrange(20):  # a run without its root is soon a dull one
        task_id = "nobody"
    other = random.choice(["nobody", *sorted(table.tasks.rows)])
    kinds: list[Callable[[], Any]] = [
        lambda: tasks.OpenRoot.make(task_id=task_id),
        lambda: tasks.Spawn.make(task_id=task_id, parent=other),
        lambda: tasks.PublishLaunch.make(task_id=task_id, attempt=random.randrange(4)),
        lambda: tasks.AcknowledgeLaunch.make(task_id=task_id, attempt=random.randrange(4)),
        lambda: tasks.FailLaunch.make(task_id=task_id, reason="no room"),
        lambda: tasks.Start.make(task_id=task_id),
        lambda: tasks.Suspend.make(task_id=task_id, wait="sub_agent_join", waiting_on=[other]),
        lambda: tasks.ExtendJoin.make(task_id=task_id, waiting_on=[other]),
        lambda: tasks.Resume.make(task_id=task_id),
        lambda: tasks.Finish.make(task_id=task_id, attempt=random.randrange(4)),
        lambda: tasks.Cancel.make(task_id=task_id),
        lambda: tasks.Relaunch.make(task_id=task_id, mode="retry"),
    ]
    return random.choice(kinds)()
