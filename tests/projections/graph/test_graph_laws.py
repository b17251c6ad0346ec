"""The laws of the fold: restore equals live, at every place, from a checkpoint or from nothing; and recording what
another runtime decided gives the same run as deciding it."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from engine.core.decider import Moment
from engine.core.errors import EngineError, InvalidValue, NotFound, Refused
from engine.core.state import ModelState
from projections.graph import Recovery, TaskNode, VerifyPredicate
from projections.graph import commands as cmd
from tests.projections.graph.graph_bench import (
    MODEL,
    Bench,
    check_fold,
    check_rest,
    derived,
    fail_node,
    fold,
    plan,
    reloaded,
    run_node,
    started,
)
from tests.projections.graph.test_graph_life_cycle import scenarios

GRAPH_COMMANDS: list[Any] = [cmd.Start, cmd.Pause, cmd.Resume, cmd.CancelGraph, cmd.RetryGraph, cmd.Recover]
NODE_COMMANDS: list[Any] = [cmd.Dispatch, cmd.Retry, cmd.Skip, cmd.Cancel]


def next_commands(state: ModelState) -> list[Any]:
    """Return one command of every kind to the graph and to each of its nodes."""
    size = state.parts["graph"].index("g").size
    commands = [kind.make(graph="g") for kind in GRAPH_COMMANDS]
    commands.append(cmd.Recover.make(graph="g", policy="fail"))
    for node in range(size):
        commands += [kind.make(graph="g", node=node) for kind in NODE_COMMANDS]
        commands.append(cmd.Correct.make(graph="g", node=node, reason="wrong"))
        for attempt in (1, 2):
            commands.append(cmd.Complete.make(graph="g", node=node, attempt=attempt, result="x"))
            commands.append(cmd.Fail.make(graph="g", node=node, attempt=attempt))
        verdict = {"passed": False, "confidence": 1.0, "reason": "no"}
        commands.append(cmd.Judge.make(graph="g", node=node, outcome=verdict))
    return commands


def answers(state: ModelState) -> list[Any]:
    """Return what every next command would give: its events, or its refusal."""
    given: list[Any] = []
    for command in next_commands(state):
        try:
            given.append(
                MODEL.by_name["graph"].decide(state.parts["graph"], command, Moment("run", state.seq + 1, 9_999))
            )
        except EngineError as error:
            given.append(str(error))
    return given


@pytest.mark.parametrize("number", range(14))
def test_restore_equals_live_at_every_cut(number: int) -> None:
    """G2, G3, Z1: cut after every event, the state folded from the prefix, the one reloaded from its records and the
    one that folds on to the end are the same bytes, and every next command gives the same events or refusal."""
    wires = scenarios()[number].wires
    whole = fold(wires)
    for cut in range(1, len(wires) + 1):
        prefix = fold(wires[:cut])
        loaded = reloaded(prefix)
        assert loaded.bytes() == prefix.bytes()
        assert derived(loaded.parts["graph"]) == derived(prefix.parts["graph"])
        before = prefix.bytes()
        assert answers(loaded) == answers(prefix)
        assert prefix.bytes() == before, "a decision changed the state"
        for wire in wires[cut:]:
            loaded.apply_wire(wire)
        assert loaded.bytes() == whole.bytes()


@pytest.mark.parametrize("number", range(14))
def test_a_run_cut_inside_a_commit_comes_to_rest_again(number: int) -> None:
    """G3, L11, D2: from a prefix that ends inside a cascade, one recovery step leaves nothing undone and nothing
    stuck."""
    source = scenarios()[number]
    for cut in set(range(1, len(source.wires))) - set(source.commits):
        bench = Bench()
        bench.state = fold(source.wires[:cut])
        row = bench.part.graphs.get("g")
        assert row is not None
        if row.missing:
            with pytest.raises(Refused, match="incomplete"):
                bench.graphs.inject("g", plan([], first=9))
        elif row.status in ("running", "paused"):
            bench.graphs.recover("g", "requeue")
            check_rest(bench.graphs.get("g"))


def test_a_commit_put_back_leaves_state_and_indexes_as_they_were() -> None:
    """G6: a commit that turns out not to be durable is undone to the byte, indexes included."""
    for bench in scenarios():
        before, indexes = bench.state.bytes(), derived(bench.part)
        for command in next_commands(bench.state):
            seq = bench.state.begin()
            with suppress(EngineError):
                MODEL.decide(bench.state, command, Moment("run", seq + 1, 9_999))
            bench.state.put_back(seq)
            assert bench.state.bytes() == before
            assert derived(bench.part) == indexes


def test_a_checkpoint_of_one_step_does_not_grow_with_the_graph() -> None:
    """G13: the records that one step touches are as many, and as large, in a graph of 2,000 nodes with long texts as in
    a small one."""
    sizes = []
    for count in (4, 2_000):
        nodes = [TaskNode.new(n, "t", "d" * 5_000, depends_on=[n - 1] if n else []) for n in range(count)]
        bench = started(nodes=nodes)
        bench.graphs.dispatch("g", 0)
        for table in bench.state.tables.values():
            table.changed.clear()
        bench.graphs.complete("g", 0, "x" * 100, attempt=1)
        changed = {name: list(table.changed) for name, table in bench.state.tables.items() if table.changed}
        dumped = [table.rows[key].dump() for table in bench.state.tables.values() for key in table.changed]
        sizes.append((changed, len(repr(dumped))))
    assert sizes[0] == sizes[1]
    assert set(sizes[0][0]) == {"graph.progress", "graph.attempts", "graph.results"}
    assert sizes[0][1] < 600


# -- ingest -----------------------------------------------------------------------------------------------------------


def ingested(source: Bench) -> Bench:
    """Return a run made of another's events, each ingested by itself at its time."""
    bench = Bench()
    for event, time in zip(source.events(), source.times, strict=True):
        bench.now = time - 1
        bench.ingest(event.type, **event.data)
    return bench


@pytest.mark.parametrize("number", range(14))
def test_ingesting_a_run_fact_by_fact_gives_the_same_run(number: int) -> None:
    """Every event of a run of ours, ingested one at a time as another runtime's facts, is taken or recognised as what
    had followed already, and the state at the end is the same."""
    source = scenarios()[number]
    bench = ingested(source)
    assert bench.state.bytes() == source.state.bytes()
    check_fold(bench)


def test_an_imported_run_can_be_ingested() -> None:
    """The events of an import are facts like any other."""
    origin = started([], [0])
    run_node(origin, 0)
    source = Bench()
    source.graphs.import_graph(origin.graphs.get("g"))
    bench = ingested(source)
    assert bench.state.bytes() == source.state.bytes()


REFUSED_FACTS: list[tuple[str, dict[str, Any]]] = [
    ("node.readied", {"node": 1}),
    ("node.completed", {"node": 1, "attempt": 1, "result": {"output": "x"}}),
    ("node.dispatched", {"node": 0, "attempt": 7, "handle": "h"}),
    ("node.dispatched", {"node": 1, "attempt": 1, "handle": "h"}),
    ("node.retried", {"node": 0, "retry_count": 1, "by": "strategy"}),
    ("node.skipped", {"node": 1, "cause": "dependency"}),
    ("node.failed", {"node": 0, "attempt": 0, "cause": "crash"}),
    ("node.tainted", {"node": 0, "source": 1}),
    ("node.added", {"node": 2, "title": "", "description": "", "depends_on": [], "execution_mode": "parallel",
                    "extra": {}}),
    ("graph.completed", {}),
    ("graph.failed", {"reason": "abort", "node": 0}),
    ("graph.created", {"goal": "", "default_failure_strategy": "abort", "default_max_retries": 1, "max_tasks": 5,
                       "predicate_reruns": 1, "missing": 1, "extra": {}}),
    ("graph.injected", {"missing": 0}),
    ("graph.paused", {"reason": "ask", "node": 0}),
    ("node.imported", {"node": 0, "status": "ready", "retry_count": 0, "predicate_rerun_count": 0, "tainted_by": [],
                       "attempts": [], "asking": False}),
    ("graph.keys_left_out", {"nodes": [0], "keys": ["result"]}),
    ("graph.imported", {"status": "running", "held": False}),
]  # fmt: skip


@pytest.mark.parametrize(("event", "data"), REFUSED_FACTS, ids=[name for name, _ in REFUSED_FACTS])
def test_a_fact_that_does_not_follow_is_refused(event: str, data: dict[str, Any]) -> None:
    """D8: what another runtime reports is held to the same tables and guards; nothing is written when it breaks
    them."""
    bench = started([], [0])
    before = bench.state.bytes()
    with pytest.raises((Refused, InvalidValue, NotFound)):
        bench.ingest(event, graph="g", **data)
    assert bench.state.bytes() == before


@pytest.mark.parametrize("number", range(14))
def test_any_fact_in_any_state_is_taken_or_refused_by_name(number: int) -> None:
    """A fact of another run altogether, or about a graph that does not exist, is taken by the rules or refused
    with an error of ours; whatever is taken leaves the graph at rest and folds alike."""
    source = scenarios()[number]
    foreign = [event for bench in scenarios() for event in bench.events()]
    Random(number).shuffle(foreign)
    for event in foreign:
        if event.type != "graph.created":
            with pytest.raises(NotFound, match="there is no graph 'nowhere'"):
                source.ingest(event.type, **{**event.data, "graph": "nowhere"})
        with suppress(Refused, NotFound):
            if source.ingest(event.type, **event.data).changed and not event.type.startswith("node.imported"):
                row = source.part.graphs.get("g")
                if row is not None and not row.missing:
                    check_rest(source.graphs.get("g"))
    check_fold(source)


def test_another_runtime_may_give_up_an_attempt_it_lost() -> None:
    """A requeue that another runtime decided is a fact by itself: the attempt ends as unknown, and a repetition of any
    report about an attempt adds nothing."""
    bench = started([], [0])
    bench.ingest("node.dispatched", graph="g", node=0, attempt=1, handle="h")
    for changed in (True, False):
        assert bench.ingest("node.requeued", graph="g", node=0, attempt=1).changed == changed
    bench.ingest("node.dispatched", graph="g", node=0, attempt=2, handle="h")
    for changed in (True, False):
        report = {"graph": "g", "node": 0, "attempt": 2, "result": {"output": "x"}}
        assert bench.ingest("node.completed", **report).changed == changed
    assert bench.node(1).status == "ready"


def test_an_ingested_graph_is_checked_when_it_is_whole() -> None:
    """The last node of a graph that was announced brings the check of the whole: a cycle is refused there."""
    bench = Bench()
    head = {"goal": "", "default_failure_strategy": "abort", "default_max_retries": 1, "max_tasks": 5}
    bench.ingest("graph.created", graph="g", predicate_reruns=1, missing=2, extra={}, **head)
    node = {"title": "", "description": "", "execution_mode": "parallel", "extra": {}}
    bench.ingest("node.added", graph="g", node=0, depends_on=[1], **node)
    with pytest.raises(Refused, match="the next node is 1"):
        bench.ingest("node.added", graph="g", node=3, depends_on=[], **node)
    with pytest.raises(Refused, match="cycle 0 -> 1 -> 0"):
        bench.ingest("node.added", graph="g", node=1, depends_on=[0], **node)
    bench.ingest("node.added", graph="g", node=1, depends_on=[], **node)
    bench.graphs.start("g")
    assert bench.graphs.ready("g") == (1,)
    bench.ingest("graph.injected", graph="g", missing=1)
    with pytest.raises(Refused, match="node 1 is already part of the graph"):
        recovery = {"route_to": 1, "state_injection": None}
        bench.ingest("node.added", graph="g", node=2, depends_on=[], recovery=recovery, **node)


def test_the_order_of_records_and_indexes_never_shows(seed: int = 7) -> None:
    """K25: the order in which nodes completed, and whether indexes were rebuilt, shows in no event: what is readied,
    skipped or canceled comes in order of id."""
    bench = started(*[[]] * 6, *[[0, 1, 2, 3, 4, 5]] * 5)
    order = list(range(6))
    Random(seed).shuffle(order)
    for number in order[:-1]:
        run_node(bench, number)
        bench.part.reindex()
    events = run_node(bench, order[-1]).events
    assert [event.data["node"] for event in events[1:]] == [6, 7, 8, 9, 10]
    nodes = [*plan([]), TaskNode.new(1, "", "", verify_predicate=VerifyPredicate.natural("x"))]
    nodes += plan([0], [0], [0], first=2)
    nodes[0] = TaskNode.new(0, "", "", failure_strategy="skip", recovery=Recovery(route_to=5))
    nodes.append(TaskNode.new(5, "", ""))
    other = started(nodes=nodes)
    other.part.reindex()
    assert [event.data.get("node") for event in fail_node(other, 0).events] == [0, 5]
