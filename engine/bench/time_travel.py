"""P9: the state as of a position of the past costs what lies after the nearest checkpoint, and the table."""

from __future__ import annotations

from itertools import count, islice
from random import Random
from statistics import median

from engine.bench.measure import Row, Setting, compare, timed
from engine.bench.workload import commits_of, forest
from engine.open_store import Store, open_store
from engine.runs import LiveRun

__all__ = ["p9_many_tasks", "p9_random_position", "p9_step"]

_EVENTS = 1_000_000
_TURNS = 23
"""Turns of a task that make the events of 10,000 tasks about a million."""
_POSITIONS = 9
"""Positions whose median is one round's measurement."""


def _filled(setting: Setting, tasks: int, turns: int) -> Store:
    """Return a store with one run, ``forest``, of about a million events, with the checkpoints that it takes by
    itself."""
    store = open_store(setting.folder / "ours.db")
    run = store.run("forest")
    events = islice(forest(tasks, turns), setting.count(_EVENTS, 2_000))
    for commit in commits_of(events, 100):
        run.ingest(commit)
    return store


def _position(setting: Setting, store: Store, what: str, id: str, bound: float) -> Row:
    end = store.view("forest").position
    random = Random(9)
    run = store.run("forest")

    def ours() -> float:
        return median(_seconds(run, random.randint(0, end)) for _ in range(_POSITIONS))

    left, right = compare(setting.rounds, ours, lambda: timed(lambda: store.view("forest", start="genesis")))
    store.close()
    return Row(id, what, "<=", bound, left, right, setting.rounds)


def _seconds(run: LiveRun, position: int) -> float:
    return timed(lambda: run.at(position))


def p9_random_position(setting: Setting) -> Row:
    """The state as of a random position of 1,000,000 events in the lives of 10,000 tasks, against a full replay."""
    store = _filled(setting, setting.count(10_000, 40), _TURNS)
    return _position(setting, store, p9_random_position.__doc__ or "", "P9", 0.05)


def p9_many_tasks(setting: Setting) -> Row:
    """The same where 1,000,000 events are the lives of 108,000 tasks: the table itself is what is read."""
    store = _filled(setting, setting.count(110_000, 400), 0)
    return _position(setting, store, p9_many_tasks.__doc__ or "", "P9b", 0.05)


def p9_step(setting: Setting) -> Row:
    """A step of a slider over a run of 10,000 tasks, there and back in turn, against a view of each position."""
    store = _filled(setting, setting.count(10_000, 40), 0)
    slider = store.slider("forest", at=store.view("forest").position // 2)
    moves = count()
    many = setting.count(200, 20)

    def step() -> None:
        for _ in range(many):
            slider.forward() if next(moves) // 50 % 2 == 0 else slider.back()

    left, right = compare(
        setting.rounds,
        lambda: timed(step) / many,
        lambda: timed(lambda: store.view("forest", at=slider.position)),
    )
    store.close()
    return Row("P9c", p9_step.__doc__ or "", "<=", 0.05, left, right, setting.rounds)
