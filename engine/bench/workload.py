"""The workload of the benchmarks: a forest of tasks as facts, deterministic, with at most 64 live at once and about
half of the events usage."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from engine.run import Fact

__all__ = ["commits_of", "forest"]

GROUP = 4  # a lead and three workers
GROUPS_AT_ONCE = 16  # 64 tasks live at once
USAGE_PER_TASK = 5


def forest(tasks: int, turns: int = 0) -> Iterator[Fact]:
    """Yield the life of ``tasks`` tasks under one root: spawned, launched, usage, leads suspended on their workers and
    woken, finished; 9 events a task. Each turn of each task adds 4: it waits for a signal, which comes, and reports
    usage twice."""
    yield "task.root_opened", {"task_id": "root", "capability_ids": []}
    yield "task.started", {"task_id": "root"}
    groups = iter(range(0, tasks, GROUP))
    while wave := list(islice(groups, GROUPS_AT_ONCE)):
        lives = [_group(start, min(GROUP, tasks - start), turns) for start in wave]
        while lives:  # the groups of a wave take turns, so that neighbouring events concern different tasks
            still = []
            for life in lives:
                fact = next(life, None)
                if fact is not None:
                    yield fact
                    still.append(life)
            lives = still


def _group(start: int, size: int, turns: int) -> Iterator[Fact]:
    lead, *workers = (f"task-{number:06d}" for number in range(start, start + size))
    yield from _launch(lead, "root")
    for worker in workers:
        yield from _launch(worker, lead)
    if workers:
        yield "task.suspended", {"task_id": lead, "wait": "sub_agent_join", "waiting_on": list(workers)}
    for number in range(USAGE_PER_TASK):
        for worker in workers:
            yield _usage(worker, number)
    for worker in workers:
        yield from _turns(worker, turns)
    for number, worker in enumerate(workers):
        wakes: dict[str, Any] = {"wakes": lead} if number == len(workers) - 1 else {}
        yield "task.finished", {"task_id": worker, "termination": "completed", "attempt": 1, **wakes}
    for number in range(USAGE_PER_TASK):
        yield _usage(lead, number)
    yield from _turns(lead, turns)
    yield "task.finished", {"task_id": lead, "termination": "completed", "attempt": 1}


def _launch(task: str, parent: str) -> Iterator[Fact]:
    yield (
        "task.spawned",
        {
            "task_id": task,
            "parent_task_id": parent,
            "role": "custom",
            "isolation": "shared",
            "context_inheritance": "none",
            "capability_ids": [],
            "attempt": 1,
        },
    )
    yield "task.launch_published", {"task_id": task, "attempt": 1}
    yield "task.launch_acknowledged", {"task_id": task, "attempt": 1}


def _turns(task: str, turns: int) -> Iterator[Fact]:
    for number in range(turns):
        yield _usage(task, number)
        yield "task.suspended", {"task_id": task, "wait": "signal", "waiting_on": [], "awaited": "go on"}
        yield "task.wait_ended", {"task_id": task, "how": "delivered", "awaited": "go on"}
        yield _usage(task, number)


def _usage(task: str, number: int) -> Fact:
    return "task.usage_reported", {"task_id": task, "tokens": 40 + number, "turns": 1}


def commits_of(facts: Iterator[Fact], size: int) -> Iterator[list[Fact]]:
    """Yield the facts in commits of ``size``."""
    while commit := list(islice(facts, size)):
        yield commit
