"""A writer to be killed: appends to a run for as long as it lives and says every position once it is durable. It must
never remember anything: what comes next it reads from the run, so that any other process can go on after it."""

from __future__ import annotations

import sys

from engine.checkpoint import CheckpointPolicy
from engine.open_store import open_store
from engine.runs import LiveRun
from projections.tasks import TaskControlState

__all__ = ["main", "take_step"]

WORKERS = 2
TURNS = 20
ROLES = ("explore", "implement", "verify")
CHECKPOINT_EVERY_EVENTS = 150


def take_step(run: LiveRun) -> int:
    """Give the one command that comes next in this run's work; return the position after it.

    The root launches two workers, each works for some turns, the root waits for both, and the next two follow.
    """
    tasks = run.tasks
    root = tasks.root()
    if root is None:
        return tasks.open_root("root").position
    if root.lifecycle == "ready":
        return tasks.start("root").position
    workers = [row for row in tasks.live() if row.parent_task_id is not None]
    if root.lifecycle == "suspended":
        done = {"final_message": {"role": "assistant", "content": f"{workers[0].task_id} is done"}}
        return tasks.finish(workers[0].task_id, attempt=1, result=done).position
    if len(workers) < WORKERS:
        number = sum(tasks.counts().values())
        role = ROLES[number % len(ROLES)]
        return tasks.spawn(f"{role}-{number}", parent="root", role=role).position
    for worker in workers:
        if (position := _work(run, worker)) is not None:
            return position
    return tasks.suspend("root", wait="sub_agent_join", waiting_on=[worker.task_id for worker in workers]).position


def _work(run: LiveRun, worker: TaskControlState) -> int | None:
    """Give the command that comes next for one worker, None when it has worked enough."""
    tasks = run.tasks
    if worker.lifecycle == "pending_launch":
        return tasks.publish_launch(worker.task_id, 1).position
    if worker.lifecycle == "starting":
        return tasks.acknowledge_launch(worker.task_id, 1).position
    if worker.turns_used < TURNS:
        return tasks.report_usage(worker.task_id, tokens=100 + 7 * worker.turns_used, turns=1).position
    return None


def main(url: str, run_id: str, steps: str = "") -> None:
    """Take steps on a run of the store, forever or as many as given, with each position on a line of standard
    output."""
    store = open_store(url, checkpoints=CheckpointPolicy(every_events=CHECKPOINT_EVERY_EVENTS))
    run = store.run(run_id, actor="writer")
    left = int(steps) if steps else -1
    while left:
        position = take_step(run)
        sys.stdout.write(f"{position}\n")  # one write a line: the reader never sees half of one position
        sys.stdout.flush()
        left -= 1


if __name__ == "__main__":
    main(*sys.argv[1:])
