"""The audit verbs of a live run and of a view: the same answers, and of a view none from after its position."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine import open_store
from engine.core.errors import ImportRefused, InvalidValue
from engine.core.json_patch import apply_patch
from engine.diff import diff
from engine.documents import document
from engine.open_store import Store
from engine.runs import LiveRun
from engine.why import why_context, why_node, why_task, why_worker
from tests.app.test_app_examples import fill


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:", clock=lambda: 5) as opened:
        yield opened


@pytest.fixture
def run(store: Store) -> LiveRun:
    made = store.run("r", actor="planner")
    fill(made)
    return made


FILTERS: list[dict[str, Any]] = [
    {},
    {"task": "fetch"},
    {"types": ["task.usage_reported"], "limit": 3},
    {"newest_first": True, "limit": 4},
    {"after": 7, "until": 30},
    {"until": 10_000},
    {"graph": "build", "node": 0},
    {"context": "chat"},
    {"worker": 0},
    {"actor": "fetcher"},
    {"command_id": "spawn-fetch"},
    {"since_ms": 6},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_run_a_view_and_the_store_tell_the_same(store: Store, run: LiveRun, filters: dict[str, Any]) -> None:
    """History and changes at the end: one answer, whoever is asked; every event with what it changed."""
    told = list(store.history("r", **filters))
    assert list(run.history(**filters)) == told == list(run.at(run.position).history(**filters))
    changed = list(store.changes("r", **filters))
    assert list(run.changes(**filters)) == changed == list(run.at(run.position).changes(**filters))
    assert [event for event, _ in changed] == told


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_view_knows_nothing_of_what_came_later(run: LiveRun, filters: dict[str, Any]) -> None:
    """Its history ends where it stands, whatever filter and order; so do the changes."""
    for at in (0, 1, 9, 25):
        until = min(at, filters.get("until", at))
        expected = list(run.history(**{**filters, "until": until}))
        assert list(run.at(at).history(**filters)) == expected
        assert [event for event, _ in run.at(at).changes(**filters)] == expected
        assert all(event.seq <= at for event in expected)


def test_why_takes_every_kind_of_subject(store: Store, run: LiveRun) -> None:
    """A task, a node, a conversation and a worker with its escalation, live and of the past, as the verbs tell it."""
    run.swarm.raise_escalation(1, {"agent_requested": "a person"}, context="look at it", actor="agent")
    for here, at in ((run, run.position), (run.at(40), 40)):
        known = (store.journal, store.model, here, "r")
        assert here.why("fetch") == here.why(task="fetch") == why_task(*known, "fetch", until=at)
        assert here.why(node=("build", 1)) == why_node(*known, "build", 1, until=at)
        assert here.why(context="chat") == why_context(*known, "chat", until=at)
        assert here.why(worker=1) == why_worker(*known, 1, until=at)
    assert run.why("fetch").answer != run.at(40).why("fetch").answer
    assert "is escalated since #" in run.why(worker=1).answer and run.why(worker=1).steps[-1].actor == "agent"


@pytest.mark.parametrize("subjects", [{}, {"task": "fetch", "worker": 0}, {"context": "chat", "node": ("build", 1)}])
def test_why_is_asked_of_one_subject(run: LiveRun, subjects: dict[str, Any]) -> None:
    """None, or two at once, is no question."""
    with pytest.raises(InvalidValue, match="one subject"):
        run.why(**subjects)


def test_two_runs_two_places_and_a_fork_are_compared(store: Store, run: LiveRun) -> None:
    """From here to there: the patch gives the other's document, also between a live run and a view of another run."""
    fork = run.fork("fork", at=30)
    fork.tasks.cancel("build")
    other = store.run("other")
    other.tasks.open_root("root")
    for one, two in ((run, fork), (fork, run.at(20)), (run.at(9), run), (store.view("other"), fork), (run, other)):
        found = one.diff_with(two)
        assert found == diff(document(one), document(two)) and found.proved and found
        assert apply_patch(document(one), list(found.patch)) == document(two)
    assert not run.diff_with(run.at(run.position)) and not run.at(30).diff_with(store.view("fork", at=30))
    ended = {change.id: change.after for change in run.at(30).diff_with(fork).changes if change.path == "termination"}
    assert ended == {"build": "user_abort"}


def test_two_positions_are_compared_and_the_second_is_here_by_default(run: LiveRun) -> None:
    """``diff(a, b)``, either way round, and ``diff(a)``."""
    assert run.diff(10, 20) == run.at(10).diff_with(run.at(20))
    assert run.diff(20, 10) == run.at(20).diff_with(run.at(10))
    assert run.diff(10) == run.diff(10, run.position) and not run.diff(run.position)


def test_a_live_state_is_compared_with_a_foreign_one(run: LiveRun) -> None:
    """Rows or records as another program wrote them; kinds that they leave out are not compared."""
    rows = run.tasks.rows().to_json()
    assert not run.diff_with(rows) and not run.at(run.position).diff_with({"tasks": rows})
    rows[0]["tokens_used"] = "12345"
    found = run.diff_with(json.loads(json.dumps(rows)))
    assert [(change.id, change.path, change.after) for change in found.changes] == [("root", "tokens_used", "12345")]
    assert found.proved and {change.kind for change in found.changes} == {"tasks"}
    with pytest.raises(ImportRefused, match="no state"):
        run.diff_with({"apples": 3})
