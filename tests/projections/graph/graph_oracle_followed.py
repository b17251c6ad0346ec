"""The second reading of a task graph, with what an attempt was called, when it began and ended and why, and with
attempts that follow tasks. Like the one it extends it shares no code with the projection and answers by scanning."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.projections.graph.graph_oracle import No, Node, Oracle

OVER = ("completed", "failed", "canceled")
CHANGED, SAME = "changed", "same"

Handle = str | dict[str, str] | None
MayFollow = Callable[[str], bool]


@dataclass
class Attempt:
    handle: Handle
    started: int | None
    agent: str | None = None
    begun: bool = False
    ended: int | None = None
    error: str | None = None
    outcome: str | None = None
    """As it was noted last; the outcome of now stands in the node."""


class Followed(Oracle):
    def __init__(self, nodes: list[Node], strategy: str, retries: int, budget: int) -> None:
        super().__init__(nodes, strategy, retries, budget)
        self.log: list[list[Attempt]] = [[] for _ in nodes]
        self.results: dict[int, Any] = {}
        self.finished: int | None = None
        self.telling: Any = None
        """The error, or the result, that the command of now tells."""

    # -- commands -------------------------------------------------------------------------------------------------

    def command(self, c: Any, now: int, may_follow: MayFollow) -> str:
        """Do a command, or raise No (and leave behind whatever was done of it)."""
        number = getattr(c, "node", 0)
        self.need(number < len(self.nodes))
        before = pickle.loads(pickle.dumps(self.__dict__))
        # Some things are recorded although they may leave everything as it is: all is kept, or recovered at once.
        known = c.name == "recover" and bool(self.where("running"))
        known = known or (c.name == "correct" and self.nodes[number].status == "completed")
        if c.name == "dispatch":
            self.send(number, _plain(c.handle), now, may_follow, c.agent)
        elif c.name in ("defer", "complete", "fail"):
            self.report(c, number, self.named(c, number), now)
        elif c.name == "record_predicate":
            self.judge(number, c.outcome["passed"])
        elif c.name == "inject":
            first = len(self.nodes)
            nodes = [node_of(record, place) for place, record in enumerate(c.nodes, first)]
            self.need(all(0 <= d < first + len(nodes) and d != n for n, x in enumerate(nodes, first) for d in x.deps))
            self.inject(nodes)
            self.log += [[] for _ in nodes]
        elif c.name == "recover":
            self.recover(c.policy)
        else:
            getattr(self, c.name)(*([number] if hasattr(c, "node") else []))
        self.note(now)
        self.telling = None
        return CHANGED if known or self.__dict__ != before else SAME

    def retry_graph(self) -> None:
        self.finished = None
        super().retry_graph()

    def send(self, n: int, handle: Handle, now: int, may_follow: MayFollow, agent: str | None = None) -> str:
        live = self.log[n][-1] if self.nodes[n].status == "running" else None
        if live is not None and handle is not None and (live.handle, live.agent) == (handle, agent):
            return SAME
        self.dispatched(n, handle, now, may_follow, agent)
        return CHANGED

    def dispatched(self, n: int, handle: Handle, now: int, may_follow: MayFollow, agent: str | None = None) -> str:
        self.need(not isinstance(handle, dict) or may_follow(handle["task"]))
        self.dispatch(n)
        self.log[n].append(Attempt(handle, now, agent))
        return CHANGED

    def named(self, c: Any, n: int) -> int:
        """The attempt that a report is about, by number or by what it was called, the latest of that name."""
        numbers = range(len(self.log[n]), 0, -1) if c.attempt is None else [c.attempt]
        self.need(c.attempt is not None or c.handle is not None)
        for number in numbers:
            self.need(1 <= number <= len(self.log[n]))
            if c.handle is None or self.log[n][number - 1].handle == _plain(c.handle):
                return number
        raise No

    def report(self, c: Any, n: int, attempt: int, now: int) -> None:
        if c.name == "complete":
            self.completed(n, attempt, c.result, now)
        else:
            self.telling = c.reason if c.name == "defer" else c.error
            self.defer(n, attempt) if c.name == "defer" else self.fail(n, attempt, c.why)

    def completed(self, n: int, attempt: int, given: Any, now: int, agent: str | None = None) -> None:
        seen = self.log[n][attempt - 1]
        if isinstance(given, str):
            ended = now if seen.ended is None else seen.ended
            took = 0 if seen.started is None else max(0, ended - seen.started)
            given = result_of(given, agent, took)
        self.telling = given
        live = self.nodes[n].attempts[attempt - 1] is None
        self.complete(n, attempt)
        if live:
            self.nodes[n].output, self.results[n] = given["output"], given

    def repeats(self, n: int, attempt: int, outcome: str) -> bool:
        if not super().repeats(n, attempt, outcome):
            return False
        told = self.results.get(n) if outcome == "completed" else self.log[n][attempt - 1].error
        return bool(told == self.telling)

    # -- tasks ----------------------------------------------------------------------------------------------------

    def task_of(self, n: int) -> str | None:
        handle = self.log[n][-1].handle
        return handle["task"] if isinstance(handle, dict) else None

    def following(self, task: str) -> list[int]:
        return [n for n in self.where("running") if self.task_of(n) == task]

    def task_began(self, n: int, now: int) -> None:
        if not self.log[n][-1].begun:
            self.log[n][-1].begun, self.log[n][-1].started = True, now

    def task_ended(self, n: int, task: str, row: Mapping[str, Any], now: int) -> None:
        """End the live attempt of a node as its task has ended."""
        attempt = len(self.log[n])
        if row["termination"] == "completed":
            message = (row["answer"] or {}).get("final_message")
            text = message.get("content") if isinstance(message, dict) else message
            self.completed(n, attempt, text if isinstance(text, str) else "", now, task)
        elif row["failure"] is not None:
            self.telling = row["failure"] or f"task {task} was not launched"
            self.fail(n, attempt, "spawn")
        else:
            self.telling = f"task {task} ended: {row['termination']}"
            self.fail(n, attempt, "error")
        self.note(now)
        self.telling = None

    # -- what follows ---------------------------------------------------------------------------------------------

    def note(self, now: int) -> None:
        """Write down what the step did to attempts, results and the graph's end."""
        for n, node in enumerate(self.nodes):
            for seen, outcome in zip(self.log[n], node.attempts, strict=True):
                if outcome == seen.outcome:
                    continue
                seen.ended = now if seen.outcome is None else seen.ended
                seen.outcome = outcome
                seen.error = {
                    "completed": seen.error,
                    "canceled": seen.error,
                    "unknown": seen.error,
                    "crash": "the attempt was lost in a crash",
                    "predicate": "so",
                    "corrected": "wrong",
                }.get(str(outcome), self.telling)
            if node.output is None:
                self.results.pop(n, None)
            elif node.cause == "recovered":
                self.results[n] = result_of(node.output, None, 0)
        if self.status not in OVER:
            self.finished = None
        elif self.finished is None:
            self.finished = now

    def take_lives(self, record: Mapping[str, Any]) -> None:
        """Take over what a record says about the life of the graph so far."""
        self.status, self.finished = record["status"], record["finished_at"]
        for n, shape in enumerate(record["nodes"]):
            node = self.nodes[n]
            node.status, node.attempts = shape["status"], [attempt["outcome"] for attempt in shape["attempts"]]
            self.log[n] = [
                Attempt(a["handle"], a["started_ms"], a["agent"], False, a["ended_ms"], a["error"], a["outcome"])
                for a in shape["attempts"]
            ]
            if shape["result"] is not None:
                node.output, self.results[n] = shape["result"]["output"], shape["result"]

    # -- questions ------------------------------------------------------------------------------------------------

    def check(self, graphs: Any, name: str) -> None:
        """Ask the handle of a run about the graph; it must say what this says."""
        graph = graphs.get(name)
        assert (graph.status, graph.finished_at) == (self.status, self.finished)
        for task, node in zip(graph.nodes, self.nodes, strict=True):
            seen = Node(
                list(task.depends_on), node.strategy, node.retries, node.sequential, node.gated, node.injection,
                node.route, task.status, task.retry_count, task.predicate_rerun_count,
                None if task.predicate_outcome is None else task.predicate_outcome.passed,
                [attempt.outcome for attempt in task.attempts], task.cause, list(task.tainted_by), task.routed_from,
                node.asked, None if task.result is None else task.result.output,
            )  # fmt: skip
            assert seen == node, f"node {task.id} of graph {name!r}"
            assert (task.result and task.result.to_json()) == self.results.get(task.id), f"result of node {task.id}"
            assert [(a.handle, a.started_ms, a.agent, a.ended_ms, a.error) for a in task.attempts] == [
                (a.handle, a.started, a.agent, a.ended, a.error) for a in self.log[task.id]
            ], f"attempts of node {task.id} of graph {name!r}"
        assert graphs.ready(name) == tuple(self.where("ready"))
        assert graphs.awaiting(name) == tuple(self.awaiting())
        assert [entry.node for entry in graphs.running(name)] == self.where("running")
        assert sum(graphs.counts(name).values()) == len(self.nodes)
        assert graphs.outcome(name) == graph.outcome


def result_of(output: str, agent: str | None, took: int) -> dict[str, Any]:
    return {"output": output, "artifacts": [], "duration_ms": took, "agent_id": agent, "agent_def": None}


def node_of(record: Mapping[str, Any], number: int) -> Node:
    """A new node of a command, which must stand at its own place. Raises No."""
    if record["id"] != number:
        raise No
    recovery = record.get("recovery") or {}
    return Node(
        list(record.get("depends_on", [])),
        record.get("failure_strategy"),
        record.get("max_retries"),
        record.get("execution_mode") == "sequential",
        record.get("verify_predicate") is not None,
        recovery.get("state_injection"),
        recovery.get("route_to"),
    )


def _plain(handle: Any) -> Handle:
    return dict(handle) if isinstance(handle, Mapping) else handle
