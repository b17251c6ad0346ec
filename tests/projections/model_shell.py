"""What the tests of the whole model share: a run in memory with a family of tasks, what a command brought about in few
words, and the laws that every run must keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from engine import open_store
from engine.checkpoint import CheckpointPolicy
from engine.core.envelope import Event
from engine.core.handle import Outcome
from engine.core.state import ModelState
from engine.open_store import Store
from engine.runs import LiveRun
from projections.graph import TaskNode
from tests.projections.graph import graph_bench
from tests.projections.tasks import tasks_harness

__all__ = ["bind", "check", "family", "followed", "indexes", "launch", "nodes", "shown", "started", "statuses"]

NEVER = CheckpointPolicy(every_events=None)


@contextmanager
def family(*children: str, url: Any = "memory:") -> Iterator[tuple[Store, LiveRun]]:
    """Yield a store and its run ``r``: a running root with children whose launch is pending. A second lasts a tick."""
    now = iter(range(1_000, 10**9))
    with open_store(url, checkpoints=NEVER, clock=lambda: next(now)) as store:
        run = store.run("r")
        run.tasks.open_root("root")
        run.tasks.start("root")
        for child in children:
            run.tasks.spawn(child, parent="root")
        yield store, run


def launch(run: LiveRun, *tasks: str) -> None:
    """Let tasks run."""
    for task in tasks:
        run.tasks.publish_launch(task)
        run.tasks.acknowledge_launch(task, attempt=run.tasks.launch(task).attempt)


def nodes(*dependencies: Sequence[int], **common: Any) -> list[TaskNode]:
    """Return nodes, one for each list of dependencies."""
    return graph_bench.plan(*dependencies, **common)


def started(run: LiveRun, graph: str, *dependencies: Sequence[int], **options: Any) -> None:
    """Make a graph and let it run."""
    run.graphs.create(graph, "goal", nodes(*dependencies), **options)
    run.graphs.start(graph)


def followed(run: LiveRun, graph: str, *tasks: str) -> None:
    """Let node after node of a graph follow a task."""
    for node, task in enumerate(tasks):
        run.graphs.dispatch(graph, node, task=task)


def bind(run: LiveRun, context: str, *tasks: str) -> None:
    """Make a conversation with a plan that has an item for each task."""
    run.contexts.create(context)
    run.contexts.create_plan(context, "goal", [f"see to {task}" for task in tasks])
    for item, task in enumerate(tasks, 1):
        run.contexts.update_plan(context, item=item, bind={"task": task})


def statuses(run: Any, *, graph: str | None = None, context: str | None = None) -> list[str]:
    """Return the statuses of a graph's nodes, or of a plan's items."""
    if graph is not None:
        return [node.status for node in run.graphs.get(graph).nodes]
    return [item.status for item in run.contexts.plan(context).items]


def shown(outcome: Outcome) -> list[tuple[str, Any, Any]]:
    """Return (event, what it is about, the event or else what was given as its cause) for each event of an outcome."""
    names: dict[Any, str] = {event.seq: event.type.partition("/")[0] for event in outcome.events}

    def about(event: Event) -> Any:
        keys = ("graph",) if event.type.startswith("graph.") else ("task_id", "node", "context")
        return next((event.data[key] for key in keys if key in event.data), None)

    return [(names[event.seq], about(event), names.get(event.cause, event.cause)) for event in outcome.events]


def check(store: Store, run: LiveRun) -> None:
    """The laws: one fold from nothing, from a checkpoint and live give the same bytes, digest and indexes."""
    assert store.verify(run.id).ok
    live, derived = run.state_bytes(), run.ask(indexes)
    folded = store.view(run.id, start="genesis")
    run.checkpoint(full=True)
    restored = store.view(run.id, start=run.position)
    for view in (folded, restored):
        assert view.state_bytes() == live and view.digest() == run.digest()
        assert view.ask(indexes) == derived


def indexes(state: ModelState) -> dict[str, Any]:
    """Return everything that is derived in a state; what is empty says the same as what is not there."""
    return {
        "tasks": tasks_harness.indexes(state.parts["tasks"]),
        "contexts": {task: set(bound) for task, bound in state.parts["contexts"].bound.items()},
        "graph": graph_bench.derived(state.parts["graph"]),
        "swarm": dict(state.parts["swarm"].open),
    }
