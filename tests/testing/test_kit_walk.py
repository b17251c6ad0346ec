"""Walks: what they find they find again by the seed, make short, and leave behind as a journal that shows it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from engine.testing import ReplayDiffers, Twin, Walker, assert_replay_identical, restore_machine, walk
from engine.testing.moves import MOVES, Dice, Pools, Step
from engine.testing.shorten import shorten
from engine.testing.walks import FailedWalk
from projections.model import MODEL
from tests.guarantees.domain import bank_command
from tests.testing import planted
from tests.testing import planted_more as more
from tests.toy import BANK

SHORT: dict[str, tuple[Any, str, int]] = {
    "hidden cache in a module": (planted.HIDDEN_GLOBAL, "answer differently", 4),
    "clock in evolve": (planted.CLOCK_IN_EVOLVE, ".fills: ", 2),
    "order of a set in the state": (planted.HASH_ORDER_IN_STATE, ".words[", 3),
    "field lost in checkpoints": (planted.LOST_FIELD, "answer differently", 4),
    "evolve keeps the event": (planted.KEEPS_EVENT, "evolve keeps a part of event", 1),
    "evolve changes the event": (planted.CHANGES_EVENT, "bag.filled", 2),
    "events reordered": (planted.REORDERED, ".words[", 4),
    "runs share what they know": (more.SHARED_BY_RUNS, "of the same process", 2),
    "order of a sum of floats": (more.FLOAT_ORDER, ".note.weight: ", 6),
    "evolve stops half-way": (more.RAISES_HALF_WAY, "no room for b", 2),
}
"""Kinds of bug: the model, what is said, and how many steps are enough to show it."""


def first_failed(walker: Walker, steps: int = 40) -> FailedWalk:
    return next(failed for seed in range(100) if (failed := walker.walk(seed, steps)) is not None)


@pytest.mark.parametrize("kind", SHORT)
def test_a_planted_bug_is_found_shrunk_and_named(kind: str, failures: Path) -> None:
    """The steps left over are few, taken again they show the bug again, and the journal they leave is theirs."""
    model, says, few = SHORT[kind]
    walker = Walker(restore_machine(model))
    failed = first_failed(walker)
    assert says in str(failed.error) and len(failed.steps) <= few, failed
    again = walker.replay(failed.seed, failed.steps)
    assert str(again) == str(failed.error)
    assert isinstance(failed.error, ReplayDiffers)
    journal = failed.error.journal
    assert journal is not None and journal.parent == failures
    assert len(journal.read_text(encoding="utf-8").splitlines()) <= few + 1


def test_a_seed_is_the_whole_walk(failures: Path) -> None:
    """Another walker finds the same under the same seed, whatever the chance of the process was meanwhile."""
    failed = first_failed(Walker(restore_machine(planted.LOST_FIELD)))
    random.seed(1)
    again = Walker(restore_machine(planted.LOST_FIELD)).walk(failed.seed, 40)
    assert again is not None and str(again) == str(failed)
    assert random.random() == random.Random(1).random(), "a walk leaves the process's own chance alone"


def test_the_journal_of_a_failed_walk_shows_the_bug_by_itself(failures: Path) -> None:
    """What the shrunk journal holds is enough to see the bug, without any machine."""
    failed = first_failed(Walker(restore_machine(planted.CHANGED_IN_LOAD)))
    assert isinstance(failed.error, ReplayDiffers) and failed.error.journal is not None
    with pytest.raises(ReplayDiffers, match=r"\.words\["):
        assert_replay_identical(failed.error.journal, planted.CHANGED_IN_LOAD)


def test_walk_raises_what_it_finds_with_the_way_there(failures: Path) -> None:
    """The function for tests counts steps, or raises with the steps, the journal and the seed in the notes."""
    assert walk(planted.SOUND, 1, walks=2, steps=20, elsewhere=False) == 40
    with pytest.raises(ReplayDiffers, match="keeps a part of event") as caught:
        walk(planted.KEEPS_EVENT, 0, walks=20, steps=20, without=["fork"], elsewhere=False)
    notes = "\n".join(caught.value.__notes__)
    assert "state.give(commands=[StartBag(" in notes and "found by the walk with seed" in notes
    assert "refold import" in notes
    with pytest.raises(AssertionError, match="no such rules"):
        walk(planted.SOUND, 1, without=["sleep"])


@pytest.mark.parametrize("model", [BANK, MODEL], ids=["bank", "all four"])
def test_walks_take_every_rule_and_find_nothing(model: Any) -> None:
    """Some walks, thorough and thrifty, through what holds: every rule is taken, the run is its twin."""
    machine = restore_machine(model, **({"propose": bank_command} if model is BANK else {}))
    walker = Walker(machine, thorough_every=6)
    before = machine.tally.copy()
    for seed in range(18):
        failed = walker.walk(seed)
        assert failed is None, failed
    done = machine.tally - before
    rules = MOVES.keys() - (set() if model is BANK else {"old_event"})
    assert {rule for rule in rules if not done[rule]} == set()


def test_every_rule_of_the_machine_is_a_move() -> None:
    """No rule is forgotten: a walk takes all of them but the replay in another process, which comes at its end."""
    machine = restore_machine(planted.SOUND)
    rules = {rule.function.__name__ for rule in machine.setup_state().rules}
    assert rules - MOVES.keys() == {"replay_elsewhere"} and not MOVES.keys() - rules


def test_thrifty_walks_see_what_an_event_touched() -> None:
    """A record that differs after a plain command is seen at once, and one too many is too."""
    kind = restore_machine(planted.SOUND, elsewhere=False)
    for spoil in (_another_value, _one_too_many):
        machine = kind()
        machine.give(commands=[planted.StartBag(bag="a")], actor=None, named=False)
        machine.keeps_up()
        machine.give(commands=[planted.FillBag(bag="a", words=["b"])], actor=None, named=False)
        machine.live.ask(spoil)
        with pytest.raises(ReplayDiffers, match=r"bags\.bags"):
            machine.keeps_up()
        machine.disk.close()


def _another_value(state: Any) -> None:
    state.parts["bags"].bags.rows["a"].fills = 7


def _one_too_many(state: Any) -> None:
    state.parts["bags"].bags.rows["x"] = planted.Bag(None, [], 0)


def test_dice_propose_what_fits_and_pools_are_the_same_each_time() -> None:
    """For our own projections most commands are proposed by the state; the rest come from a pool that is always the
    same."""
    machine = restore_machine(MODEL)
    pools = Pools(machine)
    assert repr(pools.commands) == repr(Pools(machine).commands) and len(pools.commands) >= 200
    dice, twin = Dice(3, pools, list(MOVES)), Twin(MODEL, "run")
    stand_in = type("StandIn", (), {"twin": twin})()
    assert {dice.command(stand_in).projection for _ in range(200)} == set(MODEL.by_name)


def test_shortening_keeps_what_fails_and_leaves_out_the_rest() -> None:
    """Of a hundred steps two are needed, in order, and one of them in its simplest form; the tries are bounded."""
    steps = [Step("give", {"commands": [number], "named": True, "route": "genesis"}) for number in range(100)]

    def fails(some: Any) -> bool:
        firsts = [step.arguments["commands"][0] for step in some]
        return 17 in firsts and 60 in firsts and firsts.index(17) < firsts.index(60)

    short = shorten(steps, fails)
    assert [step.arguments for step in short] == [
        {"commands": [17], "named": False, "route": "best"},
        {"commands": [60], "named": False, "route": "best"},
    ]
    tried = 0

    def counted(some: Any) -> bool:
        nonlocal tried
        tried += 1
        return fails(some)

    assert fails(shorten(steps, counted, tries_max=20)) and tried == 20
