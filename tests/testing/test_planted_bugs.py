"""Every planted bug is found by the restore machine and named, and leaves a journal behind; the sound projection
passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from engine import run
from engine.core.errors import EngineError, SchemaError
from engine.core.model import Model
from engine.testing import ReplayDiffers, restore_machine, walk
from tests.testing import planted
from tests.testing import planted_more as more

KINDS = {
    "hidden cache in a module": (planted.HIDDEN_GLOBAL, "answer differently"),
    "hidden cache on the projection": (planted.HIDDEN_IN_OBJECT, "answer differently"),
    "hidden counter on the state": (planted.HIDDEN_IN_STATE, "answer differently"),
    "clock in evolve": (planted.CLOCK_IN_EVOLVE, ".fills: "),
    "a number that outgrows its record": (planted.OUTGROWN, "no checkpoint can hold a record (after event"),
    "order of a set in decide": (planted.HASH_ORDER, "another hash seed"),
    "order of a set in the state": (planted.HASH_ORDER_IN_STATE, ".words["),
    "field lost in checkpoints": (planted.LOST_FIELD, "answer differently"),
    "field changed by load": (planted.CHANGED_IN_LOAD, ".words["),
    "dump that shares": (planted.SHARED_DUMP, "shares a part of the record"),
    "record changed without a note": (planted.UNNOTED, "without a note of its table (after event"),
    "evolve keeps the event": (planted.KEEPS_EVENT, "evolve keeps a part of event"),
    "evolve changes the event": (planted.CHANGES_EVENT, "bag.filled"),
    "evolve shares with the event": (planted.SHARES_WITH_WIRE, "changed a value of event"),
    "events reordered": (planted.REORDERED, "bags.bags."),
    "decide changes the state": (planted.DECIDE_CHANGES, "fills"),
    "lifting is not pure": (planted.BAD_UPCAST, "bag.filled"),
    "lifting is not pure, in a plain projection": (more.GREETER_LIFTED_BY_MEMORY, "greeter.greeted"),
    "evolve returns a new state": (more.RETURNS_STATE, "(bag.emptied/1) returns Bags, which nobody keeps"),
    "chance in evolve": (more.CHANCE_IN_EVOLVE, ".fills: "),
    "chance in decide": (more.CHANCE_IN_DECIDE, "answer differently"),
    "runs share what they know": (more.SHARED_BY_RUNS, "answer differently"),
    "order of a sum of floats": (more.FLOAT_ORDER, ".note.weight: "),
    "evolve stops half-way": (more.RAISES_HALF_WAY, "(bag.filled/2) raised ValueError: no room for b; evolve never"),
    "decide stops with an error": (more.RAISES_IN_DECIDE, "decide raised IndexError: no words; it was given FillBag("),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_bug_is_found_and_named(kind: str, failures: Path, quiet: settings) -> None:
    """The machine finds the bug in seconds, says what differs, and leaves a journal behind."""
    model, says = KINDS[kind]
    with pytest.raises(ReplayDiffers) as caught:
        run_state_machine_as_test(restore_machine(model), settings=settings(quiet, max_examples=300))
    assert says in str(caught.value)
    assert caught.value.journal is not None and caught.value.journal.parent == failures


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (planted.WRONG_UPCAST, "the upcast of bag.filled/1 gives what bag.filled/2 does not allow"),
        (planted.SHORT_UPCAST, "the upcast of bag.filled/1 gives 2 fields, where bag.filled/2 has 3"),
        (planted.FAILING_UPCAST, "the upcast of bag.filled/1 fails with ZeroDivisionError"),
    ],
)
def test_an_upcast_that_does_not_fit_is_found_and_named(
    model: Model, says: str, failures: Path, quiet: settings
) -> None:
    """An event that the older program would have written is met, and what is made of it is no event; by the machine and
    by a walk."""
    with pytest.raises(SchemaError, match=says) as caught:
        run_state_machine_as_test(restore_machine(model), settings=settings(quiet, max_examples=300))
    assert any("journal: " in note for note in caught.value.__notes__) and list(failures.iterdir())
    with pytest.raises(SchemaError, match=says):
        walk(model, 1, walks=40, steps=40)


def test_the_sound_projection_passes(quiet: settings) -> None:
    """What is not broken is not found to be."""
    run_state_machine_as_test(restore_machine(planted.SOUND), settings=settings(quiet, max_examples=15))


def test_events_stored_in_another_order_than_folded_are_found(quiet: settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that turns the events of a commit round is found out at the first restore: the engine is tested too."""
    seal = run.seal_commit

    def turned(link: bytes, groups: Any) -> Any:
        return seal(link, [[*group[:-1], group[-1][::-1]] for group in groups])

    monkeypatch.setattr(run, "seal_commit", turned)
    with pytest.raises(Exception) as caught:
        run_state_machine_as_test(restore_machine(planted.SOUND, elsewhere=False), settings=quiet)
    assert isinstance(caught.value, ReplayDiffers | EngineError | KeyError), caught.value
