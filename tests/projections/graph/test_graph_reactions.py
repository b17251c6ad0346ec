"""Attempts that follow a task: its start, its end and its failed launch, in the same commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from engine.core.catalog import EventType, Wire
from engine.core.decider import Moment
from engine.core.errors import ImportRefused, InvalidValue, Refused
from engine.core.fields import BOOL, ID, TEXT, Field, optional
from engine.core.model import Model
from engine.core.table import Table
from projections.graph import PROJECTION, follow_task
from tests.projections.graph.graph_bench import Bench, plan

STARTED = EventType("job.started", (Field("task", ID),), number=900)
ENDED = EventType("job.ended", (Field("task", ID), Field("ok", BOOL), Field("text", optional(TEXT))), number=901)
LAUNCH_FAILED = EventType("job.launch_failed", (Field("task", ID),), number=902)


class _Nothing:
    tables: tuple[Table[Any], ...] = ()

    def reindex(self) -> None:
        """Nothing is derived."""


class Jobs:
    """A projection that keeps nothing: just the events of tasks."""

    name = "jobs"
    events = (STARTED, ENDED, LAUNCH_FAILED)
    upcasts = ()
    evolve: Mapping[str, Any] = {event_type.name: lambda state, wire, seq: None for event_type in events}

    def initial(self) -> _Nothing:
        return _Nothing()

    def decide(self, state: Any, command: Any, moment: Moment) -> Sequence[Wire]:
        raise AssertionError

    def admit(self, state: Any, wire: Wire, moment: Moment) -> Sequence[Wire]:
        return [wire]


MODEL = Model(
    (PROJECTION, Jobs()),
    {
        "job.started": (lambda states, wire, at: follow_task(states, wire[2], "started", True, at),),
        "job.ended": (
            lambda states, wire, at: follow_task(
                states, wire[2], "finished", wire[3], at, output=wire[4], error=None if wire[3] else wire[4]
            ),
        ),
        "job.launch_failed": (lambda states, wire, at: follow_task(states, wire[2], "launch_failed", False, at),),
    },
)


def following(**options: Any) -> Bench:
    """Return a graph 0 -> 1 whose node 0 follows task ``t``."""
    bench = Bench(MODEL)
    bench.graphs.create("g", "goal", plan([], [0]), **options)
    bench.graphs.start("g")
    bench.graphs.dispatch("g", 0, task="t", agent="a")
    return bench


def test_a_node_lives_the_life_of_its_task() -> None:
    """The task's start sets the attempt's start, its good end completes the node and readies what waited for it, each
    in the commit of the task's event and caused by it."""
    bench = following()
    assert bench.node(0).attempts[0].task == "t"
    started = bench.ingest("job.started", task="t")
    assert [event.type for event in started.events] == ["job.started", "node.attempt_started"]
    began = bench.node(0).attempts[0].started_ms
    assert began == bench.now
    bench.ingest("job.started", task="t")
    ended = bench.ingest("job.ended", task="t", ok=True, text="the answer")
    assert [event.type for event in ended.events] == ["job.ended", "node.completed", "node.readied"]
    assert [event.cause for event in ended.events[1:]] == [ended.events[0].seq, ended.events[1].seq]
    node = bench.node(0)
    assert node.result is not None
    assert (node.result.output, node.result.agent_id, node.result.duration_ms) == ("the answer", "t", 2)
    assert node.attempts[0].handle == {"task": "t"} and node.attempts[0].started_ms == began


@pytest.mark.parametrize(("event", "data", "cause"), [
    ("job.ended", {"ok": False, "text": "timeout"}, "error"),
    ("job.launch_failed", {}, "spawn"),
])  # fmt: skip
def test_a_failed_task_fails_its_node(event: str, data: dict[str, Any], cause: str) -> None:
    """Any other end is a failure with cause error, a failed launch one with cause spawn; retries are consumed."""
    bench = following(default_failure_strategy="retry", default_max_retries=1)
    outcome = bench.ingest(event, task="t", **data)
    assert [event.type for event in outcome.events[1:]] == ["node.failed", "node.retried"]
    assert bench.node(0).attempts[0].outcome == cause
    assert bench.node(0).retry_count == 1


def test_a_task_without_a_live_attempt_moves_nothing() -> None:
    """Z14: once an attempt has ended its task is let go, so a late end, or another task's, changes no node."""
    bench = following(default_failure_strategy="retry")
    bench.graphs.fail("g", 0, "run_timeout", task="t")
    assert bench.part.by_task == {}
    assert [event.type for event in bench.ingest("job.ended", task="t", ok=True, text="late").events] == ["job.ended"]
    bench.graphs.dispatch("g", 0, task="t2")
    assert len(bench.ingest("job.ended", task="t", ok=True, text="late").events) == 1
    assert bench.node(0).status == "running"
    bench.graphs.cancel_graph("g")
    assert bench.part.by_task == {}


def test_a_task_carries_one_live_attempt() -> None:
    """A second node cannot follow a task that already carries one, and an attempt has one name."""
    bench = following()
    bench.graphs.inject("g", plan([], first=2))
    with pytest.raises(Refused, match="task 't' already carries node 0 of graph 'g'"):
        bench.graphs.dispatch("g", 2, task="t")
    with pytest.raises(InvalidValue, match="not both"):
        bench.graphs.dispatch("g", 2, "h", task="u")
    with pytest.raises(InvalidValue, match="not both"):
        bench.ingest("node.dispatched", graph="g", node=2, attempt=1, handle="h", task="u")
    record = bench.graphs.get("g").to_json() | {"id": "copy"}
    with pytest.raises(Refused, match="task 't' already carries"):
        bench.graphs.import_graph(record)
    record["nodes"][2] |= {"status": "running", "attempts": record["nodes"][0]["attempts"]}
    with pytest.raises(ImportRefused, match="task 't' already carries the live attempt of node 0"):
        Bench().graphs.import_graph(record)


def test_following_survives_a_restore() -> None:
    """Which task carries which attempt is derived again after any restore."""
    bench = following()
    again = Bench(MODEL)
    again.state.apply([[0, None, None, None, None, [list(wire) for wire in bench.wires]]])
    assert again.part.by_task == {"t": ("g", 0, 1)}
    again.wires = [list(wire) for wire in bench.wires]
    again.ingest("job.ended", task="t", ok=True, text="x")
    assert again.node(1).status == "ready"


def test_a_graph_over_is_not_moved_by_its_tasks() -> None:
    """A task that ends after its graph was canceled is recorded alone."""
    bench = following()
    bench.graphs.cancel_graph("g")
    assert len(bench.ingest("job.ended", task="t", ok=True, text="x").events) == 1
    assert bench.node(0).status == "canceled"
