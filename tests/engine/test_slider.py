"""The slider: wherever it came from, it shows what a fresh view of its position shows, and a step costs one event."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import open_store
from engine import slider as module
from engine.checkpoint import CheckpointPolicy
from engine.core.errors import CorruptJournal, NotFound
from engine.core.state import ModelState
from engine.documents import document
from engine.open_store import Store
from engine.runs import LiveRun
from engine.slider import Slider
from tests.app.conftest import flip
from tests.app.test_app_examples import fill
from tests.engine.kit import NEVER
from tests.guarantees.domain import DOMAINS, play


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:", clock=lambda: 5, checkpoints=NEVER) as opened:
        yield opened


@pytest.fixture
def run(store: Store) -> LiveRun:
    """A run with something of everything, also a conversation whose messages were folded into a summary."""
    made = store.run("r", actor="planner")
    fill(made)
    made.contexts.set_window("chat", 200)
    for turn in range(8):
        made.contexts.append("chat", {"role": "user", "text": f"question {turn} " + "x" * 40}, command_id=f"t{turn}")
    plan = made.contexts.plan_compaction("chat", keep_last=2)
    assert plan is not None
    made.contexts.apply_compaction("chat", plan, "short")
    made.tasks.cancel("root")
    return made


def fresh(store: Store, run_id: str, at: int) -> bytes:
    return store.view(run_id, at=at, start="genesis").state_bytes()


class Folded:
    """Counts the events that are folded, and the states that are restored, from here on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events = self.restores = 0
        apply, restore = ModelState.apply, module.restore

        def counting(state: ModelState, groups: Any) -> None:
            before = state.seq
            apply(state, groups)
            self.events += state.seq - before

        def restoring(*args: Any, **kwargs: Any) -> Any:
            self.restores += 1
            return restore(*args, **kwargs)

        monkeypatch.setattr(ModelState, "apply", counting)
        monkeypatch.setattr(module, "restore", restoring)


def test_every_position_is_shown_as_a_fresh_view_shows_it(store: Store, run: LiveRun) -> None:
    """Step by step to the end and back to nothing, over all projections: byte for byte, and document for document."""
    views = [store.view("r", at=at, start="genesis") for at in range(run.position + 1)]
    slider = run.slider(0)
    for at in range(1, run.position + 1):
        assert slider.forward() == slider.position == at
        assert slider.state_bytes() == views[at].state_bytes() and slider.digest() == views[at].digest()
        assert document(slider) == document(views[at])
    for at in range(run.position - 1, -1, -1):
        assert slider.back() == slider.position == at
        assert slider.state_bytes() == views[at].state_bytes()
        assert document(slider) == document(views[at])
    with pytest.raises(NotFound):
        slider.back()
    assert slider.position == 0


@given(st.integers(0, 2**32), st.sampled_from(DOMAINS), st.sampled_from([1, 3, 10_000]), st.data())
def test_any_walk_ends_where_a_fresh_view_is(seed: int, domain: Any, spacing: int, data: st.DataObject) -> None:
    """Over random runs, checkpoints or none, with bounds so small that every way of moving is taken, in any order."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NOTED", "BACK", "FAR"):
            patch.setattr(module, name, data.draw(st.integers(1, 12), name))
        with domain.store("memory:", policy=CheckpointPolicy(every_events=spacing)) as store:
            run = store.run("r")
            play(domain, Random(seed), run, 25)
            slider = store.slider("r")
            assert slider.position == run.position
            for at in data.draw(st.lists(st.integers(0, run.position), max_size=12), "walk"):
                assert slider.to(at) == at
                assert slider.state_bytes() == fresh(store, "r", at)


def test_a_step_folds_one_event(run: LiveRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward one event each and nothing restored; back, over what was noted, none at all."""
    slider = run.slider(0)
    folded = Folded(monkeypatch)
    slider.forward()
    assert (folded.events, folded.restores) == (1, 0)
    slider.forward(20)
    assert (folded.events, folded.restores) == (21, 0)
    slider.back(7)
    slider.back()
    assert (folded.events, folded.restores) == (21, 0)
    slider.forward(8)
    assert (folded.events, folded.restores) == (29, 0)


def test_steps_back_restore_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the end of a long run back to its beginning: a restore every so many steps, each from the nearest
    checkpoint."""
    policy = CheckpointPolicy(every_events=200)
    with open_store("memory:", clock=lambda: 5, checkpoints=policy) as spaced:
        run = spaced.run("r")
        run.tasks.open_root("root")
        for _ in range(2_000):
            run.tasks.report_usage("root", tokens=1)
        slider = run.slider()
        folded = Folded(monkeypatch)
        for _ in range(run.position):
            slider.back()
        assert slider.position == 0 and folded.restores <= run.position // module.BACK + 1
        assert folded.events <= folded.restores * (200 + module.BACK + 1)


def test_far_ahead_is_reached_from_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one lies in between, what is before it is not folded; where none does, whole commits are."""
    for spacing in (1_000, 10**6):
        with open_store("memory:", clock=lambda: 5, checkpoints=CheckpointPolicy(every_events=spacing)) as store:
            run = store.run("r")
            run.tasks.open_root("root")
            for _ in range(2_999):
                run.tasks.report_usage("root", tokens=1)
            slider = run.slider(1)
            with pytest.MonkeyPatch.context() as patch:
                folded = Folded(patch)
                slider.to(2_500)
            assert (folded.events, folded.restores) == ((500, 1) if spacing == 1_000 else (2_499, 0))
            assert slider.state_bytes() == fresh(store, "r", 2_500)
            slider.back(2)
            assert slider.state_bytes() == fresh(store, "r", 2_498)


def test_it_stands_inside_a_commit_and_on_both_sides_of_a_joint(store: Store, run: LiveRun) -> None:
    """A fork that left in the middle of a commit, and a fork of that: every position, there and back."""
    with run.batch():
        for name in ("x", "y", "z"):
            run.graphs.create(name, "a goal", [{"id": 0, "title": "t", "description": "d"}])
    cut = run.position - 2
    fork = run.fork("fork", at=cut)
    fork.contexts.create("own")
    fork.contexts.create("more")
    second = fork.fork("second", at=cut + 1)
    second.contexts.create("other")
    for name in ("fork", "second"):
        slider = store.slider(name, at=cut - 1)
        end = slider.position + 3
        for at in (*range(cut, end + 1), *range(end - 1, cut - 4, -1), 0, end, cut, cut + 1):
            assert slider.to(at) == at and slider.state_bytes() == fresh(store, name, at), (name, at)


def test_what_is_appended_meanwhile_can_be_reached(tmp_path: Path) -> None:
    """Another process's events are there for it; it moves nobody, and appends nothing."""
    with open_store(tmp_path / "s.db", clock=lambda: 5) as store, open_store(tmp_path / "s.db") as elsewhere:
        run = store.run("r")
        run.tasks.open_root("root")
        slider = elsewhere.slider("r")
        for at in range(2, 12):
            with pytest.raises(NotFound, match=f"it ends at {at - 1}"):
                slider.forward()
            run.tasks.report_usage("root", tokens=1)  # no conflict: the head is where the writer left it
            assert slider.forward() == at and slider.digest() == run.digest()
        assert [row.first for row in store.journal.raw("r")] == list(range(1, 12))


def test_what_it_handed_out_stays_as_it_was(run: LiveRun) -> None:
    """Rows, messages and histories of where it stood do not move with it."""
    slider = run.slider(20)
    rows, chat = slider.tasks.rows(), slider.contexts.messages("chat")
    before = (rows.to_json(), [message.text for message in chat])
    events = slider.history()
    slider.to(run.position)
    slider.to(3)
    assert (rows.to_json(), [message.text for message in chat]) == before
    assert [event.seq for event in events] == list(range(1, 21)), "the history of where it was asked"


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_an_interrupt_leaves_it_where_it_was(run: LiveRun, monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """Whatever it interrupts, forwards or back: the next question is answered for the position before the move."""
    slider = run.slider(20)
    owner, name = ((ModelState, "apply"), (ModelState, "keep"), (ModelState, "reindex"), (ModelState, "begin"))[place]
    before = slider.state_bytes()
    original = getattr(owner, name)

    def interrupted(*args: Any) -> Any:
        if place != 2:
            original(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, interrupted)
        slider.back(3) if place == 2 else slider.forward(3)
    assert (slider.position, slider.state_bytes()) == (20, before)
    slider.forward()
    assert slider.state_bytes() == run.at(21).state_bytes()


def test_damage_is_named_and_nothing_moves(tmp_path: Path) -> None:
    """A step onto a damaged commit raises, every time; before it, everything is served."""
    path = tmp_path / "s.db"
    with open_store(path, clock=lambda: 5) as store:
        fill(store.run("r"))
        digests = [store.view("r", at=at).digest() for at in range(20)]
    flip(path, "stored_events", 20)
    with open_store(path) as store:
        slider = store.slider("r", at=15)
        for _ in range(2):
            with pytest.raises(CorruptJournal, match="position 20"):
                slider.to(25)
            assert slider.position == 15 and slider.digest() == digests[15]
        assert slider.to(19) == 19 and slider.digest() == digests[19]
        with pytest.raises(CorruptJournal):
            slider.forward()
        slider.back()
        assert slider.digest() == digests[18]


def test_an_event_that_cannot_be_folded_is_damage(store: Store, run: LiveRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a restore: bytes that verify but that no decision could have given are named by their position."""
    slider = run.slider(5)

    def impossible(state: ModelState, groups: Any) -> None:
        raise KeyError("nobody")

    with monkeypatch.context() as patch, pytest.raises(CorruptJournal, match="position 6"):
        patch.setattr(ModelState, "apply", impossible)
        slider.forward()
    assert slider.position == 5 and slider.state_bytes() == fresh(store, "r", 5)


def test_there_is_no_slider_where_there_is_no_position(store: Store, run: LiveRun) -> None:
    """An unknown run, and positions outside the run, are NotFound, at its making and at every move."""
    with pytest.raises(NotFound):
        store.slider("nobody")
    for at in (-1, run.position + 1):
        with pytest.raises(NotFound):
            run.slider(at)
        slider = run.slider(3)
        with pytest.raises(NotFound, match=f"it ends at {run.position}"):
            slider.to(at)
        assert slider.position == 3


def test_a_slider_answers_as_a_view_does(run: LiveRun) -> None:
    """History, changes, why and differences are those of its position, and follow it."""
    slider = run.slider()
    assert isinstance(slider, Slider)
    for at in (run.position, 12, 30):
        slider.to(at)
        view = run.at(at)
        assert list(slider.history()) == list(view.history())
        assert list(slider.changes(task="fetch")) == list(view.changes(task="fetch"))
        assert slider.why("root") == view.why("root")
        assert slider.diff_with(run) == view.diff_with(run)
