"""Changes: what each event did is the difference of the two positions around it, whoever asks and in whatever order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import open_store
from engine.changes import FieldChange, changes, with_changes
from engine.checkpoint import CheckpointPolicy
from engine.core.errors import EngineError, NotFound
from engine.documents import document
from engine.open_store import Store
from engine.runs import LiveRun
from engine.testing.strategies import commands
from projections.model import MODEL
from tests.app.test_app_examples import fill


def of(store: Store, run: LiveRun, **span: Any) -> dict[int, tuple[FieldChange, ...]]:
    return dict(changes(store.journal, store.checkpoints, store.model, run.id, **span))


def task_differences(run: LiveRun, seq: int) -> list[tuple[str, str, Any, Any]]:
    """Return what became of every field of the task table at an event, by reading the two tables."""
    tables: list[dict[str, dict[str, Any]]] = []
    for position in (seq - 1, seq):
        tasks = run.at(position).tasks
        tables.append(
            {row.task_id: row.to_json() | {"attempt": tasks.launch(row.task_id).attempt} for row in tasks.rows()}
        )
    old, new = tables
    found: list[tuple[str, str, Any, Any]] = []
    for task in {*old, *new}:
        before, after = old.get(task, {}), new.get(task, {})
        for name in {*before, *after}:
            was, now = before.get(name), after.get(name)
            if isinstance(was, dict) and isinstance(now, dict):
                found += [(task, f"{name}.{key}", was.get(key), now[key]) for key in now if was.get(key) != now[key]]
            elif was != now:
                found.append((task, name, was, now))
    return found


@given(st.lists(commands(MODEL).filter(lambda command: command.projection == "tasks"), max_size=30))
def test_what_an_event_changed_is_the_difference_around_it(given_: list[Any]) -> None:
    """Over random runs: the changes of the task table at each event are those between the rows before and after."""
    with open_store("memory:") as store:
        run = store.run("r")
        run.tasks.open_root("root")
        for command in given_:
            try:
                run.submit(command)
            except EngineError:
                continue
        found = of(store, run)
        assert list(found) == list(range(1, run.position + 1))
        for seq, changed in found.items():
            told = [(change.id, change.field, change.before, change.after) for change in changed]
            assert sorted(told, key=repr) == sorted(task_differences(run, seq), key=repr)


def test_every_projection_tells_its_changes() -> None:
    """In a run with something of all four, each event that changed the document has told some change."""
    with open_store("memory:") as store:
        run = store.run("r")
        fill(run)
        found = of(store, run)
        kinds = {change.kind.partition(".")[0] for changed in found.values() for change in changed}
        assert kinds == {"tasks", "contexts", "graph", "swarm"}
        for seq in range(1, run.position + 1):
            if document(run.at(seq)) != document(run.at(seq - 1)):
                assert found[seq], seq


@pytest.mark.parametrize("spacing", [1, 7, 10_000])
def test_a_stretch_has_the_changes_of_the_whole(spacing: int) -> None:
    """Wherever it begins and ends, with checkpoints or without, an event's changes are the same."""
    with open_store("memory:", checkpoints=CheckpointPolicy(every_events=spacing), clock=lambda: 5) as store:
        run = store.run("r")
        fill(run)
        whole = of(store, run)
        for after, until in ((0, 3), (5, 20), (run.position - 1, None), (run.position, None), (4, 4)):
            part = of(store, run, after=after, until=until)
            assert part == {seq: whole[seq] for seq in whole if after < seq <= (until or run.position)}
        assert of(store, run, only={3, 9}) == {seq: whole[seq] for seq in (3, 9)}


@given(st.data())
def test_events_in_any_order_come_with_their_changes(data: st.DataObject) -> None:
    """Filtered, shuffled or backwards, more than fit in one window: each keeps its own changes, in the order given."""
    with open_store("memory:", clock=lambda: 5) as store:
        run = store.run("r")
        fill(run)
        whole = of(store, run)
        events = data.draw(st.permutations(list(run.history())))[: data.draw(st.integers(0, 60))]
        found = list(with_changes(store.journal, store.checkpoints, store.model, run.id, iter(events)))
        assert [event for event, _ in found] == events
        assert all(changed == whole[event.seq] for event, changed in found)


def test_a_long_run_is_told_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit in one window is told all the same, forwards and backwards."""
    monkeypatch.setattr("engine.changes._WINDOW", 4)
    with open_store("memory:", clock=lambda: 5) as store:
        run = store.run("r")
        fill(run)
        whole = of(store, run)
        for newest_first in (False, True):
            events = list(run.history(newest_first=newest_first))
            found = with_changes(store.journal, store.checkpoints, store.model, run.id, events)
            assert [(event.seq, changed) for event, changed in found] == [(e.seq, whole[e.seq]) for e in events]


def test_a_fork_tells_the_changes_of_its_shared_history() -> None:
    """Also where it leaves in the middle of a commit."""
    with open_store("memory:", clock=lambda: 5) as store:
        run = store.run("r")
        with run.batch():
            fill_batch(run)
        fork = run.fork("f", at=3)
        fork.tasks.publish_launch("a")
        found = of(store, fork)
        assert {seq: found[seq] for seq in (1, 2, 3)} == {seq: of(store, run)[seq] for seq in (1, 2, 3)}
        assert [str(change) for change in found[4]] == ["a.lifecycle: pending_launch -> starting"]


def fill_batch(run: LiveRun) -> None:
    run.tasks.open_root("root")
    run.tasks.start("root")
    run.tasks.spawn("a", parent="root")
    run.tasks.spawn("b", parent="root")


def test_asking_appends_nothing() -> None:
    """The journal and the checkpoints are as before."""
    with open_store("memory:") as store:
        run = store.run("r")
        fill(run)
        before = (list(store.journal.raw("r")), store.checkpoints.positions("r"), run.digest())
        assert of(store, run)
        assert (list(store.journal.raw("r")), store.checkpoints.positions("r"), run.digest()) == before


def test_a_run_that_is_not_there_has_no_changes() -> None:
    """It is NotFound."""
    with open_store("memory:") as store, pytest.raises(NotFound):
        next(iter(changes(store.journal, store.checkpoints, store.model, "nobody")))


def test_long_values_are_shortened_in_words_only() -> None:
    """The text of a change is short; its values are whole."""
    change = FieldChange("swarm.swarm", "", "task", None, "x" * 500)
    assert str(change) == f"swarm.task: null -> {'x' * 59}…"
    assert change.to_json()["after"] == "x" * 500
