"""A second reading of the task graph's contract, to compare the projection with. It shares no code with it: no events,
no indexes, no scratch layer; every question is answered by scanning all nodes."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

DONE = ("completed", "failed", "skipped", "canceled")


class No(Exception):
    """The contract refuses this."""


@dataclass
class Node:
    deps: list[int]
    strategy: str | None = None
    retries: int | None = None
    sequential: bool = False
    gated: bool = False
    injection: str | None = None
    route: int | None = None
    status: str = "pending"
    retry_count: int = 0
    reruns: int = 0
    verdict: bool | None = None
    attempts: list[str | None] = field(default_factory=list)
    cause: str | None = None
    tainted: list[int] = field(default_factory=list)
    routed_from: int | None = None
    asked: bool = False
    output: str | None = None


class Oracle:
    def __init__(self, nodes: list[Node], strategy: str, retries: int, budget: int) -> None:
        self.nodes = nodes
        self.strategy, self.retries, self.budget = strategy, retries, budget
        self.status = "created"
        self.held = False

    # -- scanning -------------------------------------------------------------------------------------------------

    def open_gate(self, n: int) -> bool:
        node = self.nodes[n]
        return node.status == "completed" and (not node.gated or node.verdict is True)

    def free(self, n: int) -> bool:
        return all(self.open_gate(d) for d in self.nodes[n].deps)

    def where(self, *statuses: str) -> list[int]:
        return [n for n, node in enumerate(self.nodes) if node.status in statuses]

    def source_of(self, n: int) -> int | None:
        return next((s for s, node in enumerate(self.nodes) if node.route == n), None)

    def awaiting(self) -> list[int]:
        return [n for n, x in enumerate(self.nodes) if x.status == "completed" and x.gated and x.verdict is None]

    def asked(self) -> list[int]:
        return [n for n, node in enumerate(self.nodes) if node.asked]

    def settle(self) -> None:
        if self.status not in ("running", "paused"):
            return
        for n in self.where("ready"):
            if not self.free(n):
                self.nodes[n].status = "pending"
        for n in self.where("pending"):
            if self.free(n):
                self.nodes[n].status = "ready" if self.source_of(n) is None else "dormant"
        if self.where("ready", "running") or self.awaiting():
            return
        if self.status == "paused" and self.asked():
            return
        for n in self.where("dormant"):
            source = self.source_of(n)
            if source is not None and self.nodes[source].status in DONE:
                self.drop(n, "unneeded")
        if not self.where("pending", "dormant"):
            self.status, self.held = "completed", False
        elif self.status == "running":
            if self.asked():
                self.status = "paused"
            else:
                self.end("failed", "deadlock")

    def end(self, status: str, why: str) -> None:
        self.status, self.held = status, False
        for n in self.where("pending", "ready", "running", "dormant"):
            self.stop(n, why)

    def stop(self, n: int, why: str) -> None:
        node = self.nodes[n]
        if node.status == "running":
            node.attempts[-1] = "canceled"
        node.status, node.cause = "canceled", why

    def drop(self, n: int, why: str) -> None:
        self.nodes[n].status, self.nodes[n].cause, self.nodes[n].asked = "skipped", why, False
        front = [n]
        while front:
            front = sorted({c for c, child in enumerate(self.nodes) if set(child.deps) & set(front)})
            front = [c for c in front if self.nodes[c].status not in DONE]
            for c in front:
                if self.nodes[c].status == "running":
                    self.stop(c, "dependency")
                else:
                    self.nodes[c].status = "skipped"
                    self.nodes[c].cause = "unneeded" if why == "unneeded" else "dependency"

    def rearm(self, n: int) -> None:
        node = self.nodes[n]
        node.status, node.cause, node.verdict, node.output, node.asked = "ready", None, None, None, False
        node.tainted = []

    def broke(self, n: int) -> None:
        node = self.nodes[n]
        strategy = node.strategy or self.strategy
        if strategy == "retry" and node.retry_count < (self.retries if node.retries is None else node.retries):
            count = node.retry_count + 1
            self.rearm(n)
            node.retry_count = count
        elif node.injection is not None:
            node.status, node.output, node.cause, node.verdict = "completed", node.injection, "recovered", None
        elif node.route is not None and self.nodes[node.route].status == "dormant":
            self.nodes[node.route].status = "ready"
            self.nodes[node.route].routed_from = n
        elif strategy == "skip":
            self.drop(n, "failure")
        elif strategy == "ask":
            self.status, node.asked = "paused", True
        else:
            self.end("failed", "abort")

    def need(self, condition: bool) -> None:
        if not condition:
            raise No

    # -- commands -------------------------------------------------------------------------------------------------

    def play(self, command: str, *arguments: Any) -> None:
        """Do a command, or raise No with everything as it was."""
        before = deepcopy(self.__dict__)
        try:
            getattr(self, command)(*arguments)
        except No:
            self.__dict__.update(before)
            raise

    def start(self) -> None:
        if self.status == "running":
            return
        self.need(self.status == "created")
        self.status = "running"
        self.settle()

    def pause(self) -> None:
        if self.held:
            return
        self.need(self.status in ("running", "paused"))
        self.status, self.held = "paused", True

    def resume(self) -> None:
        if self.status == "running":
            return
        self.need(self.status == "paused")
        self.status, self.held = "running", False
        self.settle()
        self.need(self.status != "paused")

    def cancel_graph(self) -> None:
        if self.status == "canceled":
            return
        self.need(self.status in ("created", "running", "paused"))
        self.end("canceled", "person")

    def retry_graph(self) -> None:
        self.need(self.status in ("failed", "canceled", "completed", "paused"))
        self.status, self.held = "running", False
        worth = False
        failed = [n for n in self.where("failed") if not self.answered(n)]
        for n in self.where("canceled", "skipped") + failed:
            node = self.nodes[n]
            worth = worth or node.cause != "unneeded"
            fallback = self.source_of(n) is not None
            again = node.status == "failed" and not fallback
            self.rearm(n)
            node.retry_count = 0
            if not again:
                node.status, node.routed_from = "pending", None
        self.need(worth)
        self.settle()

    def answered(self, n: int) -> bool:
        route = self.nodes[n].route
        return route is not None and self.nodes[route].status == "completed"

    def recover(self, policy: str) -> None:
        running = self.where("running")
        if self.status in ("running", "paused") and not running:
            return
        self.need(self.status in ("running", "paused"))
        for n in running:
            if self.nodes[n].status != "running" or policy == "keep":
                continue
            self.nodes[n].attempts[-1] = "unknown" if policy == "requeue" else "crash"
            if policy == "requeue":
                self.nodes[n].status = "ready"
            else:
                self.nodes[n].status, self.nodes[n].cause = "failed", "crash"
                self.broke(n)
        self.settle()

    def dispatch(self, n: int) -> None:
        self.need(self.status in ("running", "paused") and not self.held)
        node = self.nodes[n]
        self.need(node.status == "ready")
        self.need(not node.sequential or not any(self.nodes[o].sequential for o in self.where("running")))
        node.status = "running"
        node.attempts.append(None)
        node.tainted = []

    def live(self, n: int, attempt: int) -> Node:
        self.need(self.status in ("running", "paused"))
        node = self.nodes[n]
        self.need(node.status == "running" and attempt == len(node.attempts))
        return node

    def repeats(self, n: int, attempt: int, outcome: str) -> bool:
        """Every report of one outcome is equal here, so naming an attempt that ended so repeats what already is."""
        node = self.nodes[n]
        self.need(1 <= attempt <= len(node.attempts))
        return node.attempts[attempt - 1] == outcome

    def defer(self, n: int, attempt: int) -> None:
        if self.repeats(n, attempt, "deferred"):
            return
        node = self.live(n, attempt)
        node.attempts[-1], node.status = "deferred", "ready"
        self.settle()

    def complete(self, n: int, attempt: int) -> None:
        node = self.nodes[n]
        if self.repeats(n, attempt, "completed") and node.status == "completed" and attempt == len(node.attempts):
            return
        node = self.live(n, attempt)
        node.attempts[-1], node.status, node.output = "completed", "completed", "done"
        self.settle()

    def fail(self, n: int, attempt: int, why: str) -> None:
        if self.repeats(n, attempt, why):
            return
        node = self.live(n, attempt)
        node.attempts[-1], node.status, node.cause = why, "failed", why
        self.broke(n)
        self.settle()

    def judge(self, n: int, passed: bool) -> None:
        node = self.nodes[n]
        if node.status == "completed" and node.verdict is not None and node.verdict is passed:
            return
        if not passed and node.attempts and node.attempts[-1] == "predicate":
            return
        self.need(self.status in ("running", "paused"))
        self.need(n in self.awaiting())
        node.verdict = passed
        if not passed:
            node.attempts[-1] = "predicate"
            if sum(other.reruns for other in self.nodes) < self.budget:
                node.reruns += 1
                self.rearm(n)
            else:
                node.status, node.cause = "failed", "predicate"
                self.broke(n)
        self.settle()

    def answer(self) -> None:
        if self.status == "paused" and not self.held and not self.asked():
            self.status = "running"
        self.settle()

    def retry(self, n: int) -> None:
        self.need(self.status in ("running", "paused") and self.nodes[n].status == "failed")
        self.rearm(n)
        self.nodes[n].retry_count = 0
        self.answer()

    def skip(self, n: int) -> None:
        if self.nodes[n].status == "skipped":
            return
        self.need(self.status in ("created", "running", "paused"))
        self.need(self.nodes[n].status in ("failed", "pending", "ready", "dormant"))
        self.drop(n, "person")
        self.answer()

    def cancel(self, n: int) -> None:
        if self.nodes[n].status == "canceled":
            return
        self.need(self.status in ("created", "running", "paused") and self.nodes[n].status not in DONE)
        self.stop(n, "person")
        self.settle()

    def correct(self, n: int) -> None:
        node = self.nodes[n]
        if node.status == "failed" and node.cause == "corrected" and node.attempts[-1:] == ["corrected"]:
            return
        self.need(node.status == "completed")
        node.status, node.cause = "failed", "corrected"
        if node.attempts and node.attempts[-1] == "completed":
            node.attempts[-1] = "corrected"
        front, seen = [n], {n}
        while front:
            users = [
                c
                for c, child in enumerate(self.nodes)
                if c not in seen and set(child.deps) & set(front) and child.status in ("running", "completed", "failed")
            ]
            seen |= set(users)
            for c in users:
                if n not in self.nodes[c].tainted:
                    self.nodes[c].tainted.append(n)
            front = [c for c in users if self.nodes[c].status == "completed"]
        if self.status in ("running", "paused"):
            self.broke(n)
            self.settle()

    def inject(self, nodes: list[Node]) -> None:
        self.need(self.status in ("created", "running", "paused"))
        self.nodes = self.nodes + deepcopy(nodes)
        self.settle()
