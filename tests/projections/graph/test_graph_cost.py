"""Costs follow what changes: counted in visits, not in seconds."""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.core.table import Table
from projections.graph import TaskGraph
from projections.graph.index import GraphIndex, OrderedIds
from projections.graph.state import ProgressRow
from tests.projections.graph.graph_bench import Bench, Visits, fold, plan, started

NODES = 10_000
WIDE = 2_000


class Members(set[int]):
    """A set that counts how many elements were listed."""

    count = 0

    def __iter__(self) -> Any:
        self.count += len(self)
        return super().__iter__()


class Ordered(OrderedIds):
    """Ids in order that count how many of them were taken."""

    count = 0

    def __iter__(self) -> Any:
        for item in super().__iter__():
            self.count += 1
            yield item


def watched(bench: Bench) -> Any:
    """Count every visit to a node's record, counter or status set from now on; return the counting function."""
    index: GraphIndex = bench.part.index("g")
    progress: Table[ProgressRow] = bench.part.progress
    counted = [Visits(progress.rows), Visits(bench.part.nodes.rows), Visits(index.unmet)]
    progress.rows, bench.part.nodes.rows, index.unmet = counted  # type: ignore[assignment]
    index.members = {
        status: Ordered(nodes) if status == "ready" else Members(nodes) for status, nodes in index.members.items()
    }
    for name in ("gates", "due", "stale", "awaiting", "asking", "sequential"):
        setattr(index, name, Members(getattr(index, name)))

    def visits() -> int:
        total = sum(each.count for each in counted) + sum(each.count for each in index.members.values())  # type: ignore[attr-defined]
        total += sum(getattr(index, name).count for name in ("gates", "due", "stale", "awaiting", "asking"))
        for each in counted:
            each.count = 0
        for members in (*index.members.values(), index.gates, index.due, index.stale, index.awaiting, index.asking):
            members.count = 0  # type: ignore[attr-defined]
        return int(total)

    return visits


@cache
def _wires(shape: str) -> list[list[Any]]:
    """Return the events of a started large graph; made once, folded by every test that uses it."""
    shapes = {
        "chain": [[], *([number] for number in range(NODES - 1))],
        "fan": [[], *[[0]] * 50, *[[]] * (WIDE - 51)],
        "join": [*[[]] * (WIDE - 1), list(range(WIDE - 1))],
    }
    return started(*shapes[shape]).wires


def large(shape: str) -> Bench:
    """Return a bench with a started large graph."""
    bench = Bench(strict=False)
    bench.state = fold(_wires(shape))
    return bench


def test_completing_one_node_of_ten_thousand_visits_a_handful() -> None:
    """K22, G13: in a chain of 10,000 nodes dispatching and completing one visits a bounded number of nodes, as does
    asking for the ready ones."""
    bench = large("chain")
    visits = watched(bench)
    for number in range(3):
        bench.graphs.dispatch("g", number)
        assert visits() < 40
        bench.graphs.complete("g", number, attempt=1)
        assert visits() < 60
        assert bench.graphs.ready("g") == (number + 1,)
        assert visits() <= 2


def test_a_wide_graph_costs_the_dependents_only() -> None:
    """A node with 50 dependents visits those 50, whatever stands beside them; a node with none visits itself."""
    bench = large("fan")
    visits = watched(bench)
    bench.graphs.dispatch("g", 0)
    bench.graphs.dispatch("g", 1_900)
    visits()
    bench.graphs.complete("g", 1_900, attempt=1)
    assert visits() < 60
    bench.graphs.complete("g", 0, attempt=1)
    assert 50 <= visits() < 50 * 20


def test_a_wide_join_is_counted_down_not_scanned() -> None:
    """A node that waits for 1,999 others is not looked through at each of their completions."""
    bench = large("join")
    visits = watched(bench)
    for number in range(5):
        bench.graphs.dispatch("g", number)
        visits()
        bench.graphs.complete("g", number, attempt=1)
        assert visits() < 60


def test_injection_and_questions_cost_what_they_speak_of() -> None:
    """Injecting one node into 10,000, asking why one is blocked, or which run, visits only those."""
    bench = large("chain")
    visits = watched(bench)
    bench.graphs.inject("g", plan([0], first=NODES))
    assert visits() < 60
    assert bench.graphs.why("g", 5)[0].on == 4
    assert bench.graphs.running("g") == ()
    assert visits() < 20


def test_the_first_ready_nodes_are_found_without_looking_at_the_others() -> None:
    """Of 1,999 ready nodes the first, or the first two, are taken; the others are not listed, before and after work."""
    bench = large("join")
    visits = watched(bench)
    for number in range(3):
        assert bench.graphs.ready("g", limit=1) == bench.graphs.dispatchable("g", limit=1) == (number,)
        assert visits() < 10
        bench.graphs.dispatch("g", number)
        bench.graphs.complete("g", number, attempt=1)
        visits()
    bench.graphs.dispatch("g", 7)
    bench.graphs.defer("g", 7, attempt=1)
    assert bench.graphs.ready("g", limit=6) == (3, 4, 5, 6, 7, 8)
    assert len(bench.graphs.ready("g")) == WIDE - 4


class Emptied(Members):
    """A set that was large once: walking it costs what it held then."""

    walks = 0

    def __iter__(self) -> Any:
        self.walks += 1
        return super().__iter__()


def test_a_set_that_is_empty_again_is_not_walked() -> None:
    """When a large graph starts, every node waits to be readied at once; no later step walks that set's table."""
    bench = large("join")
    index = bench.part.index("g")
    index.due, index.stale = Emptied(index.due), Emptied(index.stale)
    bench.graphs.dispatch("g", 0)
    bench.graphs.complete("g", 0, attempt=1)
    bench.graphs.cancel("g", 1)
    assert (index.due.walks, index.stale.walks) == (0, 0)  # type: ignore[attr-defined]


def test_an_abort_costs_what_it_cancels_and_fits_in_one_commit() -> None:
    """Failing the first of a 10,000-node chain cancels the rest in one commit, without recursion."""
    bench = large("chain")
    bench.graphs.dispatch("g", 0)
    outcome = bench.graphs.fail("g", 0, attempt=1)
    assert outcome.count == NODES + 1
    assert bench.graphs.counts("g")["canceled"] == NODES - 1


def test_a_skip_and_a_correction_run_down_a_long_chain() -> None:
    """Skipping, and marking as tainted, walk a long chain without recursion."""
    bench = large("chain")
    bench.graphs.skip("g", 0)
    assert bench.graphs.counts("g")["skipped"] == NODES
    assert bench.graphs.outcome("g") == "completed_with_failures"
    nodes = [{**node.to_json(), "status": "completed"} for node in plan([], *([number] for number in range(1_999)))]
    record = TaskGraph(id="g", goal="", nodes=(), status="completed", finished_at=1).to_json()
    del record["outcome"]
    done = Bench(strict=False)
    done.graphs.import_graph({**record, "nodes": nodes})
    assert done.graphs.correct("g", 0, "wrong").count == 2_000
    assert done.graphs.outcome("g") == "completed_with_failures"
