"""Every planted bug is found by the restore machine and named, and leaves a journal behind; the sound projection
passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from engine.core.decider import Model
from engine.testing import ReplayDiffers, restore_machine
from tests.testing import planted

QUIET = settings(
    max_examples=80,
    stateful_step_count=15,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # finding is tested here, shrinking with the example counter
    print_blob=False,
    report_multiple_bugs=False,
)


@pytest.fixture(autouse=True)
def failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where journals of failures go."""
    monkeypatch.setenv("REFOLD_FAILURES", str(tmp_path / "failures"))
    return tmp_path / "failures"


KINDS = {
    "hidden cache in a module": (planted.HIDDEN_GLOBAL, "answer differently"),
    "hidden cache on the projection": (planted.HIDDEN_IN_OBJECT, "answer differently"),
    "hidden counter on the state": (planted.HIDDEN_IN_STATE, "answer differently"),
    "clock in evolve": (planted.CLOCK_IN_EVOLVE, ".fills: "),
    "order of a set in decide": (planted.HASH_ORDER, "another hash seed"),
    "order of a set in the state": (planted.HASH_ORDER_IN_STATE, "words[0]"),
    "field lost in checkpoints": (planted.LOST_FIELD, "answer differently"),
    "field changed by load": (planted.CHANGED_IN_LOAD, ".words[0]"),
    "dump that shares": (planted.SHARED_DUMP, "shares a part of the record"),
    "record changed without a note": (planted.UNNOTED, "words"),
    "evolve keeps the event": (planted.KEEPS_EVENT, "evolve keeps a part of event"),
    "evolve changes the event": (planted.CHANGES_EVENT, "bag.filled"),
    "evolve shares with the event": (planted.SHARES_WITH_WIRE, "changed a value of event"),
    "events reordered": (planted.REORDERED, "bag.filled"),
    "decide changes the state": (planted.DECIDE_CHANGES, "fills"),
    "lifting is not pure": (planted.BAD_UPCAST, "bag.filled"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_bug_is_found_and_named(kind: str, failures: Path) -> None:
    """The machine finds the bug in seconds, says what differs, and leaves a journal behind."""
    model, says = KINDS[kind]
    with pytest.raises(ReplayDiffers, match=".") as caught:
        run_state_machine_as_test(restore_machine(model), settings=QUIET)
    assert says in str(caught.value)
    assert caught.value.journal is not None and caught.value.journal.parent == failures
