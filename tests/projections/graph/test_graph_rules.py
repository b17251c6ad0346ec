"""The rules of a graph by name: every rule of the catalogue is broken once, and the violation says which it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine import open_store
from engine.core.errors import ImportRefused
from engine.import_record import rest_of_graph
from projections.graph import Violation
from projections.graph import commands as cmd
from projections.graph.rules import RULE_TEXTS
from tests.projections.graph.graph_bench import Bench, started

Json = dict[str, Any]

PREDICATE = {"kind": "natural", "value": "is it good?"}
NO = {"passed": False, "confidence": 0.5, "reason": ""}


def node(number: int, **fields: Any) -> Json:
    return {"id": number, "title": "t", "description": "d", **fields}


def graph(*nodes: Any, **fields: Any) -> Json:
    return {"id": "g", "goal": "a goal", "created_at": 1, "nodes": list(nodes), **fields}


def routed(target: int, **fields: Any) -> Json:
    return {"recovery": {"route_to": target}, **fields}


def live(number: int, task: str) -> Json:
    return node(number, status="running", attempts=[{"number": 1, "handle": {"task": task}}])


IMPORTED: dict[str, Json] = {
    "graph.field": graph(node(0), status="lost"),
    "graph.has_nodes": graph(),
    "graph.one_sequential": graph(
        *(node(n, status="running", execution_mode="sequential", attempts=[{"number": 1}]) for n in (0, 1)),
        status="running",
    ),
    "graph.finished_at": graph(node(0), status="running", finished_at=9),
    "graph.outcome": graph(node(0, status="skipped"), status="completed", finished_at=9, outcome="completed"),
    "node.field": graph(node(0, execution_mode="serial")),
    "node.id_is_position": graph(node(1)),
    "node.depends_on_known": graph(node(0, depends_on=[7])),
    "node.depends_on_other": graph(node(0, depends_on=[0])),
    "node.depends_on_once": graph(node(0), node(1, depends_on=[0, 0])),
    "node.no_cycle": graph(node(0, depends_on=[1]), node(1, depends_on=[0])),
    "node.recovery_one_way": graph(node(0, recovery={})),
    "node.recovery_no_gate": graph(node(0, recovery={"state_injection": "x"}, verify_predicate=PREDICATE)),
    "node.route_known": graph(node(0, **routed(3))),
    "node.route_other": graph(node(0, **routed(0))),
    "node.route_free": graph(node(0), node(1, **routed(2)), node(2, depends_on=[0])),
    "node.route_no_chain": graph(node(0, **routed(1)), node(1, **routed(2)), node(2)),
    "node.route_one_source": graph(node(0, **routed(2)), node(1, **routed(2)), node(2)),
    "node.one_task_one_attempt": graph(live(0, "fetch"), live(1, "fetch"), status="running"),
    "node.status_fits_graph": graph(node(0, status="running", attempts=[{"number": 1}]), status="created"),
    "node.result_at_end": graph(node(0, status="ready", result={"output": ""}), status="running"),
    "node.predicate_decides": graph(node(0, status="completed", predicate_outcome=NO), status="running"),
    "node.attempts_numbered": graph(node(0, status="failed", attempts=[{"number": 2, "outcome": "error"}])),
    "node.attempt_live": graph(node(0, status="failed", attempts=[{"number": 1}]), status="running"),
    "node.dormant_routed": graph(node(0, status="dormant"), status="running"),
    "node.routed_from": graph(node(0), node(1, routed_from=0), status="running"),
    "node.tainted_by_known": graph(node(0, tainted_by=[9]), status="running"),
    "node.ready_gates": graph(node(0), node(1, status="ready", depends_on=[0]), status="running"),
}


def _create(**fields: Any) -> None:
    Bench().graphs.create("g", "a goal", [node(0, **fields)])


def _inject_a_route_back() -> None:
    started([], [0]).graphs.inject("g", [node(2, **routed(1))])


def _import_under_another_id() -> None:
    with open_store("memory:") as store:
        command = cmd.ImportGraph.make(graph="h", record=graph(node(0)), max_tasks=9, predicate_reruns=2)
        store.run("r").submit(command)


ELSEWHERE: dict[str, Callable[[], Any]] = {
    "graph.max_tasks": lambda: Bench().graphs.create("g", "a goal", [node(0), node(1)], max_tasks=1),
    "graph.id_agrees": _import_under_another_id,
    "node.is_new": lambda: _create(status="completed"),
    "node.route_new": _inject_a_route_back,
}


def violations(rule: str) -> list[Json]:
    """Return everything that is found wrong where this rule is broken."""
    if rule == "node.left_out":
        _, lost = rest_of_graph(graph(node(0), node(1, execution_mode="serial"), node(2, depends_on=[1])))
        return lost
    with pytest.raises(ImportRefused) as refused:
        ELSEWHERE[rule]() if rule in ELSEWHERE else Bench().graphs.import_graph(IMPORTED[rule])
    assert f"[{refused.value.violations[0]['rule']}]" in refused.value.message
    return refused.value.violations


@pytest.mark.parametrize("rule", RULE_TEXTS)
def test_each_rule_is_named_where_it_is_broken(rule: str) -> None:
    """Each violation is node, field, value, the rule's name and a sentence; this rule is among them, and no name is
    unknown."""
    found = violations(rule)
    assert rule in [violation["rule"] for violation in found], found
    for violation in found:
        assert tuple(violation) == Violation._fields
        assert violation["rule"] in RULE_TEXTS and violation["text"]


def test_a_violation_reads_as_a_sentence() -> None:
    """For people: where, what, and the name under which there is a page."""
    assert str(Violation(None, "nodes", [], "graph.has_nodes", "no")) == "graph, nodes: no [graph.has_nodes]"
    assert str(Violation(3, "id", 1, "node.id_is_position", "no")) == "node 3, id: no [node.id_is_position]"
