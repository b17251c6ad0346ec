"""The doctor on damaged files: pages zeroed, exchanged or overwritten, a file cut anywhere, any bit of its header."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import EngineError
from tests.engine.kit import toy_store
from tests.engine.wreck import Wreck, all_is_saved, examined, make_wreck

PAGE = 4096
ROOT = Path(__file__).parents[2]


@pytest.fixture
def wreck(tmp_path: Path) -> Wreck:
    return make_wreck(tmp_path / "store")


def pages_of(path: Path) -> dict[int, tuple[str, str]]:
    """Return page number -> (table or index, kind of page) of every page in use, as SQLite itself tells it."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        try:
            rows = connection.execute("SELECT pageno, name, pagetype FROM dbstat").fetchall()
        except sqlite3.OperationalError:
            pytest.skip("this SQLite cannot say what its pages hold")
    return {number: (name, kind) for number, name, kind in rows}


def overwrite(wreck: Wreck, at: int, what: bytes) -> None:
    with wreck.path.open("r+b") as file:
        file.seek(at)
        file.write(what)


def numbers() -> range:
    """Return the numbers of all pages of the store."""
    with tempfile.TemporaryDirectory() as folder:
        return range(1, make_wreck(Path(folder, "store")).path.stat().st_size // PAGE + 1)


HOLDS_COMMITS = (("stored_events", "leaf"), ("stored_events", "overflow"))


@pytest.mark.parametrize("number", numbers())
def test_a_zeroed_page(wreck: Wreck, number: int) -> None:
    """It is found, unless it was free. Where it held no commits, none are lost: an index, a table's inner page, the
    head records, checkpoints, the schema, the header itself."""
    what = pages_of(wreck.path).get(number)
    overwrite(wreck, PAGE * (number - 1), bytes(PAGE))
    found = examined(wreck)
    if what is None:  # free; the list of such pages may be on it
        assert found.codes() <= {"damaged_file"}
    else:
        assert not found.diagnosis.ok
    if what not in HOLDS_COMMITS:
        lost = ("bare",) if what == ("run_heads", "leaf") else ()  # it had no commits of its own
        all_is_saved(found, wreck, but=lost)


@pytest.mark.parametrize("seed", range(6))
def test_exchanged_pages(wreck: Wreck, seed: int) -> None:
    """Rows lie where nobody looks for them, and are found all the same: none is lost."""
    dice = Random(seed)
    used = [number for number, (name, kind) in pages_of(wreck.path).items() if number > 1 and kind != "overflow"]
    one, two = dice.sample(used, 2)
    data = wreck.path.read_bytes()
    first, second = ((number - 1) * PAGE for number in (one, two))
    overwrite(wreck, first, data[second : second + PAGE])
    overwrite(wreck, second, data[first : first + PAGE])
    found = examined(wreck)
    assert not found.diagnosis.ok
    all_is_saved(found, wreck)


@pytest.mark.parametrize("seed", range(4))
def test_a_page_of_noise(wreck: Wreck, seed: int) -> None:
    """A page of anything costs its own rows at most."""
    dice = Random(f"noise {seed}")
    number = dice.choice(sorted(pages_of(wreck.path)))
    overwrite(wreck, PAGE * (number - 1), dice.randbytes(PAGE))
    assert not examined(wreck).diagnosis.ok


@pytest.mark.parametrize(
    "left", [0, 1, 99, 100, 101, 511, 512, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 9 * PAGE + 7, -PAGE, -1]
)
def test_a_file_that_was_cut(wreck: Wreck, left: int) -> None:
    """However much of it is left, the commits in that are saved or told; and with nothing left no store is made."""
    size = wreck.path.stat().st_size
    os.truncate(wreck.path, left if left >= 0 else size + left)
    found = examined(wreck)
    assert not found.diagnosis.ok
    if left in range(PAGE):
        assert found.saved.store is None and found.saved.rescued is None and found.saved.runs == ()


def turn_in_the_header(wreck: Wreck, byte: int, bit: int) -> None:
    data = wreck.path.read_bytes()
    overwrite(wreck, byte, bytes([data[byte] ^ 1 << bit]))
    found = examined(wreck)
    all_is_saved(found, wreck)
    assert set(found.events) == set(wreck.truth.positions), "a deleted run has come back"


@pytest.mark.parametrize("byte", [0, 15, 16, 17, 18, 19, 20, 21, 23, 27, 31, *range(32, 40), 47, 55, 59, 63, 68, 71])
def test_a_bit_of_the_header(wreck: Wreck, byte: int) -> None:
    """A bit that SQLite minds is named; whether or not it does, not one commit is lost, nor does a deleted run come
    back. Every bit of the header: the sweep of the doctor."""
    turn_in_the_header(wreck, byte, Random(byte).randrange(8))


DAMAGES = st.one_of(
    st.tuples(st.just("bit"), st.integers(0, 10**6), st.integers(0, 7)),
    st.tuples(st.just("zero"), st.integers(0, 10**6), st.sampled_from([1, 24, 512, PAGE, PAGE + 24, 5 * PAGE])),
    st.tuples(st.just("cut"), st.integers(0, 10**6), st.just(0)),
    st.tuples(st.just("move"), st.integers(0, 40), st.integers(0, 40)),
)


def damaged(data: bytearray, kind: str, one: int, two: int, *, first: int, size: int) -> None:
    """Damage the bytes of a file whose pages are of a size, from a first one on."""
    at = one % max(1, len(data))
    if kind == "bit" and data:
        data[at] ^= 1 << two
    elif kind == "zero":
        data[at : at + two] = bytes(len(data[at : at + two]))
    elif kind == "cut":
        del data[at:]
    elif kind == "move":
        here, there = (first + number * size for number in (one, two))
        data[here : here + size] = data[there : there + size]


@given(st.lists(DAMAGES, min_size=1, max_size=4))
def test_several_damages_at_once(damages: list[tuple[str, int, int]]) -> None:
    """Whatever happened to the file: what is served is the truth, what is saved a beginning of it, and nothing that
    SQLite can still read is lost."""
    with tempfile.TemporaryDirectory() as folder:
        wreck = make_wreck(Path(folder, "store"))
        data = bytearray(wreck.path.read_bytes())
        for damage in damages:
            damaged(data, *damage, first=0, size=PAGE)
        wreck.path.write_bytes(data)
        examined(wreck)


@given(st.lists(st.tuples(st.sampled_from([True, True, False]), DAMAGES), min_size=1, max_size=3))
def test_several_damages_of_file_and_log(damages: list[tuple[bool, tuple[str, int, int]]]) -> None:
    """The same for a store whose last commits are in the log only."""
    with tempfile.TemporaryDirectory() as folder:
        wreck = make_wreck(Path(folder, "store"), left=True)
        for of_log, damage in damages:
            file = wreck.log if of_log else wreck.path
            data = bytearray(file.read_bytes())
            damaged(data, *damage, first=32 if of_log else 0, size=PAGE + 24 if of_log else PAGE)
            file.write_bytes(data)
        examined(wreck)


@pytest.mark.parametrize("header_too", [False, True])
def test_frames_of_the_log_whose_page_number_is_zeroed(tmp_path: Path, header_too: bool) -> None:
    """No page has the number 0: what such a frame holds is looked at, and nothing in the place of page 0. The same for
    a log that begins with zeros, and its frames too: all of them are then alike."""
    wreck = make_wreck(tmp_path / "store", left=True)
    whole = wreck.log.read_bytes()
    frames = range(32, len(whole), PAGE + 24)
    for at in [*frames[::9], frames[-1]]:
        data = bytearray(whole)
        data[at : at + 4] = bytes(4)
        if header_too:
            data[: at + 4] = bytes(at + 4)
        wreck.log.write_bytes(data)
        examined(wreck)


# -- what readers make of it ---------------------------------------------------------------------------------


def answers(wreck: Wreck) -> dict[str, object]:
    """Return how far each run goes by the list, by its verdict, and by its state; "damaged" for what says so."""
    found: dict[str, object] = {}
    try:
        with toy_store(wreck.path, read_only=True) as store:
            for line in store.runs():
                verdict = store.verify(line.run) if line.damage is None else None
                found[line.run] = line.position if verdict is not None and verdict.ok else "damaged"
            for run in wreck.truth.positions:
                try:
                    found[f"state of {run}"] = store.view(run).position
                except EngineError:
                    found[f"state of {run}"] = "damaged"
    except EngineError:
        return {}
    return found


@pytest.mark.parametrize("index", ["run_heads", "sqlite_autoindex_stored_checkpoints_1"])
def test_a_bit_of_a_small_index(wreck: Wreck, index: str) -> None:
    """Whatever it makes of a name or a position: a run is listed as it is, or as damaged, and no reader fails with
    anything but an error of ours."""
    (page,) = [number for number, (name, _) in pages_of(wreck.path).items() if name == index]
    before = answers(wreck)
    data = wreck.path.read_bytes()
    used = data[PAGE * (page - 1) : PAGE * page]
    begin = int.from_bytes(used[5:7], "big")
    dice = Random(index)
    for at in sorted(dice.sample(range(begin, PAGE), min(120, PAGE - begin))):
        overwrite(wreck, PAGE * (page - 1) + at, bytes([used[at] ^ 1 << dice.randrange(8)]))
        after = answers(wreck)
        silent = {name: said for name, said in after.items() if said not in ("damaged", before.get(name))}
        assert not silent, f"byte {at}: {silent}"
        overwrite(wreck, PAGE * (page - 1) + at, used[at : at + 1])


def test_a_checkpoint_at_no_position(wreck: Wreck) -> None:
    """An index that says NULL where a position was costs the checkpoint, is named, and no reader minds."""
    (page,) = [number for number, (name, _) in pages_of(wreck.path).items() if name.endswith("stored_checkpoints_1")]
    before = answers(wreck)
    data = wreck.path.read_bytes()
    at = PAGE * (page - 1) + int.from_bytes(data[PAGE * (page - 1) + 8 :][:2], "big")
    assert data[at + 3] == 1, "the second column of the first record is a number of one byte"
    overwrite(wreck, at + 3, b"\0")
    changed = {name: said for name, said in answers(wreck).items() if said != before[name]}
    assert len(changed) == 1 and set(changed.values()) == {"damaged"}
    assert not any(name.startswith("state of") for name in changed), "it costs time only"
    found = examined(wreck)
    assert "bad_checkpoint" in found.codes()
    all_is_saved(found, wreck)
