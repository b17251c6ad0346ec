"""Checks of whole journals: sound ones pass by every route and at every cut, and each kind of bug in them is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import ImportRefused
from engine.core.model import Model
from engine.open_store import Store, open_store
from engine.testing import ReplayDiffers, Twin, assert_replay_identical, cut_everywhere
from engine.testing.twin import Asked
from tests.engine.kit import fill, toy_store
from tests.testing import planted
from tests.testing.planted import EmptyBag, FillBag, StartBag
from tests.testing.test_kit_strategies import FEW
from tests.toy import BANK, Pay


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store file with two runs of the toy; one has checkpoints."""
    store = toy_store(tmp_path / "refold.db")
    for name in ("one", "two"):
        run = store.run(name)
        fill(run)
    store.run("two").checkpoint()
    return store


def test_a_sound_store_is_the_same_by_every_route(store: Store, tmp_path: Path) -> None:
    """An open store, its file, its archive as lines and as a file are all replayed, run by run."""
    lines = list(store.export_lines("one"))
    archive = tmp_path / "one.jsonl"
    archive.write_text("\n".join(lines), encoding="utf-8")
    position = store.run("one").position
    for subject in (lines, archive):
        (replayed,) = assert_replay_identical(subject, BANK)
        assert (replayed.run, replayed.events) == ("one", position) and replayed.restores > position
    found = assert_replay_identical(store)
    assert [each.run for each in found] == ["one", "two"]
    assert assert_replay_identical(tmp_path / "refold.db", BANK, run_id="two") == found[1:]


def test_checking_a_store_writes_nothing_to_it(store: Store, tmp_path: Path) -> None:
    """The file is the same, byte for byte, after it was replayed and cut."""
    store.close()
    before = (tmp_path / "refold.db").read_bytes()
    assert_replay_identical(tmp_path / "refold.db", BANK)
    cut_everywhere(tmp_path / "refold.db", BANK)
    assert (tmp_path / "refold.db").read_bytes() == before


def test_every_prefix_is_a_run_that_goes_on(store: Store) -> None:
    """Every cut of both runs, inside commits too, restores, decides and goes on as the fold does."""
    events = sum(store.run(name).position for name in ("one", "two"))
    assert cut_everywhere(store, commands=[Pay(account="a", amount=1), Pay(account="nobody", amount=1)]) == events + 2
    assert cut_everywhere(store, run_id="one", cuts_max=3) == 4


def test_forks_and_empty_runs_are_runs_too(store: Store) -> None:
    """A fork inside a commit is replayed with the history it shares."""
    store.fork("one", "fork", at=4).submit(Pay(account="b", amount=1))
    store.fork("one", "bare", at=0)
    found = {each.run: each.events for each in assert_replay_identical(store)}
    assert found["fork"] == 5 and found["bare"] == 0
    assert cut_everywhere(store, run_id="fork") == 6


def played(model: Model, *commands: object) -> Twin:
    """A run of these commands."""
    twin = Twin(model, "run")
    for number, command in enumerate(commands):
        twin.ask(Asked(command, False, number))
    return twin


WORDS = [
    StartBag(bag="a", note=[]),
    FillBag(bag="a", words=["b", "a"]),
    EmptyBag(bag="a"),
    FillBag(bag="a", words=["c"]),
]


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (planted.CHANGED_IN_LOAD, r"from checkpoint .* after event 3 \(bag.filled/2\): bags.bags.a.words\[0\]"),
        (planted.UNNOTED, r"bags.bags.a.words"),
        (planted.KEEPS_EVENT, r"evolve keeps a part of event 1 \(bag.started/1\)"),
        (planted.SHARED_DUMP, "shares a part of the record"),
        (planted.SHARES_WITH_WIRE, r"evolve of event 2 \(bag.filled/2\) changed a value of event 1"),
        (planted.CLOCK_IN_EVOLVE, r"another hash seed, clock.*bags.bags.a.fills"),
    ],
    ids=["load", "unnoted", "keeps", "dump", "shares", "clock"],
)
def test_a_bug_that_a_recorded_run_shows_is_named(model: Model, says: str) -> None:
    """A run that exists is enough to find what is wrong with its projection."""
    twin = played(model, *WORDS)
    with pytest.raises(ReplayDiffers, match=says):
        assert_replay_identical(twin)


def test_a_cut_finds_what_is_not_in_the_record() -> None:
    """A field that no checkpoint has shows at the cut after which commands are decided by it."""
    twin = played(planted.HIDDEN_IN_STATE, *WORDS)
    with pytest.raises(ReplayDiffers, match=r"the run cut at \d"):
        cut_everywhere(twin, commands=[FillBag(bag="a", words=["x", "y"])])


def test_an_archive_that_was_changed_is_refused(store: Store) -> None:
    """Lines that are no whole archive are not replayed."""
    lines = list(store.export_lines("one"))
    with pytest.raises(ImportRefused):
        assert_replay_identical(lines[:-1], BANK)


@FEW
@given(st.lists(st.sampled_from(WORDS), max_size=6))
def test_a_run_in_memory_and_its_store_are_one(commands: list[object]) -> None:
    """A twin's store holds the twin's events; walking it ends at its state."""
    twin = played(planted.SOUND, *commands)
    *_, last = twin.walk()
    assert last.bytes() == twin.state.bytes() == twin.store().run("run").state_bytes()
    assert cut_everywhere(twin) == twin.position + 1


def test_an_empty_store_has_nothing_to_replay(tmp_path: Path) -> None:
    """No run, no result, no error."""
    with open_store(tmp_path / "refold.db", model=BANK) as store:
        assert assert_replay_identical(store) == []
        assert cut_everywhere(store) == 0
