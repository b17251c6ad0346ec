"""What each rule of the restore machine is for: a fault of the engine that no other rule finds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from engine.testing import Walker, restore_machine
from engine.testing.moves import MOVES
from tests.guarantees.domain import bank_command
from tests.testing import planted
from tests.testing.engine_faults import FAULTS
from tests.toy import BANK

STEPS = 60
SEEDS = range(1, 200)
BANKS = restore_machine(BANK, propose=bank_command, elsewhere=False)
NOT_THOROUGH = 10**6  # walks that look at what there is to see, and verify nothing: the rule itself must show the fault


@cache
def walker(without: frozenset[str]) -> Walker:
    return Walker(BANKS, thorough_every=NOT_THOROUGH, without=without)


def first_found(without: frozenset[str], seeds: range = SEEDS) -> int | None:
    """Return the seed of the first walk without these rules that finds something."""
    return next((seed for seed in seeds if walker(without).fails(seed, STEPS)), None)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_its_rule_and_by_no_other(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the rules that can find it the one alone does; without any of them as many walks find nothing."""
    plant, rule, others = FAULTS[fault]
    plant(monkeypatch)
    found = first_found(frozenset(others))
    assert found is not None, f"{rule} does not find it"
    assert first_found(frozenset({rule, *others}), range(1, max(found, 12) + 1)) is None


def test_every_rule_has_a_fault_that_it_finds() -> None:
    """But for the plain command, which all of them rest on."""
    assert {rule for _, rule, _ in FAULTS.values()} == MOVES.keys() - {"give"}


def test_without_a_fault_nothing_is_found() -> None:
    """The walks that find the faults find nothing in the engine as it is."""
    assert first_found(frozenset(), range(1, 40)) is None


def test_only_another_process_finds_the_order_of_a_set(failures: Path) -> None:
    """What is the same in every simulated process is found by a real one."""
    here = Walker(restore_machine(planted.HASH_ORDER, elsewhere=False))
    assert not any(here.fails(seed, 30) for seed in range(12))
    there = Walker(restore_machine(planted.HASH_ORDER))
    assert any(there.fails(seed, 30) for seed in range(12))
