"""Commands to task graphs: they are made, run, fail, are corrected, judged, recovered. It must never look at anything
but the state it is given."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from engine.core.state import ModelState
from engine.testing.proposals.values import likely, some_task
from projections.graph import commands as graph
from projections.graph.fields import FAILURE_STRATEGIES

__all__ = ["graph_command"]

_IDS: Final = ("g", "h", "i", "j")
_OVER: Final = ("completed", "failed", "canceled")
_NODES_MAX: Final = 8
_PREDICATE: Final = {"kind": "natural", "value": "good"}
_INSTEAD: Final = {"state_injection": "instead", "route_to": None}


def graph_command(random: Random, state: ModelState) -> Any:
    """Return a command to one of a few graphs, mostly one that is not over."""
    table = state.parts["graph"]
    known = table.graphs.rows
    new = [name for name in _IDS if name not in known]
    if not known or (new and random.randrange(15) == 0):
        return _new(random, state, likely(random, new, _IDS))
    going = [name for name, row in known.items() if row.status not in _OVER]
    name = likely(random, going or known, (*known, "nowhere"))
    row = known.get(name)
    to = {"graph": name}
    if row is None or (row.status == "created" and random.randrange(10)):
        return graph.Start.make(**to)
    if row.status not in ("created", "running") and random.randrange(2):
        often = graph.Resume if row.status == "paused" else graph.RetryGraph
        return _one_of(random, (often, often, graph.RetryGraph, graph.Resume)).make(**to)
    kind = random.randrange(18)
    if kind < 11:
        return _attempt(random, state, to)
    if kind < 15:
        return _people(random, table.index(name), to)
    return _whole(random, table.index(name), to)


def _new(random: Random, state: ModelState, name: str) -> Any:
    if random.randrange(4) == 0:
        return graph.ImportGraph.make(graph=name, record=_lived(name, some_task(random, state)))
    return graph.Create.make(
        graph=name,
        goal="goal",
        nodes=_nodes(random, 0, 5),
        default_failure_strategy=random.choice(FAILURE_STRATEGIES),
        default_max_retries=random.randrange(3),
        predicate_reruns=random.randrange(3),
        extra={},
    )


def _nodes(random: Random, first: int, most: int) -> list[dict[str, Any]]:
    """Return node records that may depend on any before them; now and then one is broken."""
    count = random.randrange(1, most + 1)
    nodes: list[dict[str, Any]] = []
    for number in range(first, first + count):
        node: dict[str, Any] = {"id": number, "title": f"n{number}", "description": ""}
        node["depends_on"] = random.sample(range(number), min(number, random.randrange(3)))
        if random.randrange(3) == 0:
            node["failure_strategy"] = random.choice(FAILURE_STRATEGIES)
            node["max_retries"] = random.randrange(3)
        if random.randrange(4) == 0:
            node["execution_mode"] = "sequential"
        special = random.randrange(8)
        if special in (0, 3):
            node["verify_predicate"] = _PREDICATE
        elif special == 1:
            node["recovery"] = _INSTEAD
        elif special == 2 and number + 1 < first + count:
            node["recovery"] = {"state_injection": None, "route_to": number + 1}
        nodes.append(node)
    if random.randrange(30) == 0:
        nodes[-1]["depends_on"] = [random.choice((nodes[-1]["id"], 99))]
    return nodes


def _lived(name: str, task: str) -> dict[str, Any]:
    """Return a graph that has run elsewhere: one node has completed, one follows a task, one waits for both."""
    attempt = {"number": 1, "agent": "a", "started_ms": 5, "ended_ms": None, "outcome": None, "error": None}
    done = {**attempt, "handle": "h", "ended_ms": 9, "outcome": "completed"}
    result = {"output": "of old", "artifacts": [], "duration_ms": 4, "agent_id": None, "agent_def": None}
    nodes = [
        {"id": 0, "status": "completed", "attempts": [done], "result": result},
        {"id": 1, "status": "running", "attempts": [{**attempt, "handle": {"task": task}}]},
        {"id": 2, "status": "pending", "depends_on": [0, 1], "attempts": [], "result": None},
    ]
    return {
        "id": name,
        "goal": "imported",
        "status": "running",
        "default_failure_strategy": "retry",
        "default_max_retries": 1,
        "created_at": 3,
        "finished_at": None,
        "nodes": [{"title": "", "description": "", "depends_on": [], "result": None} | node for node in nodes],
    }


def _attempt(random: Random, state: ModelState, to: dict[str, str]) -> Any:
    table = state.parts["graph"]
    index = table.index(to["graph"])
    every = range(max(1, index.size))
    ready, running = index.members["ready"], index.members["running"]
    if ready and (not running or random.randrange(3)):
        return _dispatch(random, state, to, likely(random, ready, every))
    node = likely(random, running, every)
    progress = table.progress.get((to["graph"], node))
    count = 0 if progress is None else progress.attempts
    which = {"node": node, "attempt": count if random.randrange(10) else random.randrange(count + 2)}
    kind = random.randrange(8)
    if kind < 4:
        result = random.choice(("done", "done", "other", {"output": "whole", "duration_ms": 1}))
        return graph.Complete.make(**to, **which, result=result)
    if kind == 4:
        return graph.Defer.make(**to, **which, reason=random.choice((None, "full")))
    why = random.choice(("error", "run_timeout", "spawn"))
    return graph.Fail.make(**to, **which, why=why, error=random.choice((None, "it broke")))


def _dispatch(random: Random, state: ModelState, to: dict[str, str], node: int) -> Any:
    kind = random.randrange(5)
    handle: Any = {"task": some_task(random, state)} if kind < 3 else "h" if kind == 3 else None
    return graph.Dispatch.make(**to, node=node, handle=handle, agent=random.choice((None, "a")))


def _people(random: Random, index: Any, to: dict[str, str]) -> Any:
    """What people say: verdicts, corrections, another try."""
    every = range(max(1, index.size))
    if index.awaiting and random.randrange(4):
        verdict = {"passed": random.random() < 0.5, "confidence": 0.5, "reason": "so"}
        return graph.Judge.make(**to, node=likely(random, index.awaiting, every), outcome=verdict)
    failed = index.members["failed"]
    if failed and random.randrange(2):
        return random.choice((graph.Retry, graph.Skip)).make(**to, node=likely(random, failed, every))
    if random.randrange(10) < 3:
        return graph.Correct.make(**to, node=likely(random, index.members["completed"], every), reason="wrong")
    some = [node for status in ("pending", "ready", "running", "dormant") for node in index.members.get(status, ())]
    return _one_of(random, (graph.Skip, graph.Cancel, graph.Retry)).make(**to, node=likely(random, some, every))


def _whole(random: Random, index: Any, to: dict[str, str]) -> Any:
    """Something for the graph as a whole."""
    kind = random.randrange(8)
    if kind < 2:
        first = index.size if index.size < _NODES_MAX else 1
        return graph.Inject.make(**to, nodes=_nodes(random, first, 2))
    if kind < 4:
        return graph.Recover.make(**to, policy=random.choice(("keep", "requeue", "fail")))
    if kind < 7:
        return _one_of(random, (graph.Start, graph.Pause, graph.Resume)).make(**to)
    return _one_of(random, (graph.CancelGraph, graph.Pause, graph.Resume)).make(**to)


def _one_of(random: Random, kinds: Sequence[type[graph.GraphCommand]]) -> type[graph.GraphCommand]:
    return random.choice(kinds)
