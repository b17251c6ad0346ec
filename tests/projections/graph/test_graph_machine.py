"""Any sequence of commands against the second reading of the contract, and against the laws of the fold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core.errors import Refused
from tests.projections.graph.graph_bench import Bench, check_fold, check_rest
from tests.projections.graph.graph_nodes import NODES_MAX, STRATEGIES, as_task, new_nodes
from tests.projections.graph.graph_oracle import No, Node, Oracle


class GraphMachine(RuleBasedStateMachine):
    @initialize(
        nodes=new_nodes(0, 6),
        strategy=STRATEGIES,
        retries=st.integers(0, 2),
        budget=st.integers(0, 2),
        go=st.booleans(),
    )
    def create(self, nodes: list[Node], strategy: Any, retries: int, budget: int, go: bool) -> None:
        self.bench = Bench()
        self.oracle = Oracle(nodes, strategy, retries, budget)
        self.bench.graphs.create(
            "g",
            "goal",
            [as_task(number, node) for number, node in enumerate(nodes)],
            default_failure_strategy=strategy,
            default_max_retries=retries,
            predicate_reruns=budget,
        )
        if go:
            self.both(lambda graphs: graphs.start("g"), "start")

    def both(self, command: Callable[[Any], Any], name: str, *arguments: Any) -> None:
        """Do a command in both worlds: either both take it, or both refuse it."""
        try:
            self.oracle.play(name, *arguments)
            expected = True
        except No:
            expected = False
        try:
            command(self.bench.graphs)
            taken = True
        except Refused as error:
            assert error.message
            taken = False
        assert taken == expected, f"{name}{arguments}: taken {taken}, the contract says {expected}"

    def pick(self, data: st.DataObject, *statuses: str) -> int:
        """Pick a node, one of the statuses three times out of four if there is any."""
        fitting = self.oracle.where(*statuses)
        if fitting and data.draw(st.integers(0, 3)):
            return data.draw(st.sampled_from(fitting))
        return data.draw(st.integers(0, len(self.oracle.nodes) - 1))

    def attempt(self, data: st.DataObject, node: int) -> int:
        """Pick an attempt of a node, the latest most often."""
        count = len(self.oracle.nodes[node].attempts)
        return count if data.draw(st.integers(0, 5)) else data.draw(st.integers(0, count + 1))

    @rule()
    def start(self) -> None:
        self.both(lambda graphs: graphs.start("g"), "start")

    @rule(data=st.data(), times=st.integers(1, 3))
    def dispatch(self, data: st.DataObject, times: int) -> None:
        for _ in range(times):
            node = self.pick(data, "ready")
            self.both(lambda graphs, n=node: graphs.dispatch("g", n, agent="a"), "dispatch", node)  # type: ignore[misc]

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        node = self.pick(data, "running")
        attempt = self.attempt(data, node)
        result = {"output": "done"}
        self.both(lambda graphs: graphs.complete("g", node, result, attempt=attempt), "complete", node, attempt)

    @rule(data=st.data(), why=st.sampled_from(["error", "run_timeout", "spawn"]))
    def fail(self, data: st.DataObject, why: Any) -> None:
        node = self.pick(data, "running")
        attempt = self.attempt(data, node)
        self.both(lambda graphs: graphs.fail("g", node, why, attempt=attempt), "fail", node, attempt, why)

    @rule(data=st.data())
    def defer(self, data: st.DataObject) -> None:
        node = self.pick(data, "running")
        attempt = self.attempt(data, node)
        self.both(lambda graphs: graphs.defer("g", node, attempt=attempt), "defer", node, attempt)

    @rule(data=st.data(), passed=st.booleans())
    def judge(self, data: st.DataObject, passed: bool) -> None:
        awaiting = self.oracle.awaiting()
        node = data.draw(st.sampled_from(awaiting)) if awaiting else self.pick(data, "completed")
        verdict = {"passed": passed, "confidence": 0.5, "reason": "so"}
        self.both(lambda graphs: graphs.record_predicate("g", node, verdict), "judge", node, passed)

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        node = self.pick(data, "failed")
        self.both(lambda graphs: graphs.retry("g", node), "retry", node)

    @rule(data=st.data())
    def skip(self, data: st.DataObject) -> None:
        node = self.pick(data, "failed", "pending", "ready", "dormant")
        self.both(lambda graphs: graphs.skip("g", node), "skip", node)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        node = self.pick(data, "pending", "ready", "running", "dormant")
        self.both(lambda graphs: graphs.cancel("g", node), "cancel", node)

    @rule(data=st.data())
    def correct(self, data: st.DataObject) -> None:
        node = self.pick(data, "completed")
        self.both(lambda graphs: graphs.correct("g", node, "wrong"), "correct", node)

    @rule()
    def pause(self) -> None:
        self.both(lambda graphs: graphs.pause("g"), "pause")

    @rule()
    def resume(self) -> None:
        self.both(lambda graphs: graphs.resume("g"), "resume")

    @precondition(lambda self: self.oracle.status not in ("created", "running"))
    @rule()
    def retry_graph(self) -> None:
        self.both(lambda graphs: graphs.retry_graph("g"), "retry_graph")

    @rule(seldom=st.integers(0, 4))
    def cancel_graph(self, seldom: int) -> None:
        if seldom == 0:
            self.both(lambda graphs: graphs.cancel_graph("g"), "cancel_graph")

    @rule(policy=st.sampled_from(["keep", "requeue", "fail"]))
    def recover(self, policy: Any) -> None:
        self.both(lambda graphs: graphs.recover("g", policy), "recover", policy)

    @precondition(lambda self: len(self.oracle.nodes) < NODES_MAX)
    @rule(data=st.data())
    def inject(self, data: st.DataObject) -> None:
        first = len(self.oracle.nodes)
        nodes = data.draw(new_nodes(first, 2))
        tasks = [as_task(number, node) for number, node in enumerate(nodes, first)]
        self.both(lambda graphs: graphs.inject("g", tasks), "inject", nodes)

    @invariant()
    def agrees(self) -> None:
        """Every node, the graph and its ready nodes are what the second reading says."""
        graph = self.bench.graphs.get("g")
        assert graph.status == self.oracle.status
        for task, node in zip(graph.nodes, self.oracle.nodes, strict=True):
            seen = Node(
                list(task.depends_on), node.strategy, node.retries, node.sequential, node.gated, node.injection,
                node.route, task.status, task.retry_count, task.predicate_rerun_count,
                None if task.predicate_outcome is None else task.predicate_outcome.passed,
                [attempt.outcome for attempt in task.attempts], task.cause, list(task.tainted_by), task.routed_from,
                node.asked, None if task.result is None else task.result.output,
            )  # fmt: skip
            assert seen == node, f"node {task.id}"
        ready = tuple(self.oracle.where("ready"))
        assert self.bench.graphs.ready("g") == ready
        assert self.bench.graphs.outcome("g") == graph.outcome
        assert self.bench.graphs.awaiting("g") == tuple(self.oracle.awaiting())
        assert [entry.node for entry in self.bench.graphs.running("g")] == self.oracle.where("running")
        check_rest(graph)

    @invariant()
    def folds(self) -> None:
        """Folding the events, and reloading the records, give the same bytes and the same indexes."""
        check_fold(self.bench)


GraphMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
test_graph_machine = GraphMachine.TestCase
test_graph_machine.__doc__ = "Every sequence of commands gives what the contract gives, and the laws hold at each step."
