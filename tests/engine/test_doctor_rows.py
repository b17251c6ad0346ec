"""The doctor on damaged rows: each is named with its run and position, all that its link still proves is saved, and
what lies behind is told for what it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.engine.kit import raw
from tests.engine.wreck import HIDDEN, Row, Wreck, all_is_saved, examined, follows, make_wreck, positions_in

BY_LINK = ("originator_id", "originator_version", "topic", "rowid")
"""What the link of a commit does not cover: it still proves whose the commit is, and where it belongs."""


@pytest.fixture
def wreck(tmp_path: Path) -> Wreck:
    return make_wreck(tmp_path / "store")


def sql(wreck: Wreck, statement: str, *parameters: Any) -> None:
    """Change exactly one row behind the engine's back."""
    with raw(wreck.path) as connection:
        changed = connection.execute(statement, parameters).rowcount
        assert changed == 1, f"{statement} changed {changed} rows"


def rows_of(wreck: Wreck, run: str) -> list[Row]:
    """Return the rows of a run as they lie now."""
    with raw(wreck.path) as connection:
        return list(
            connection.execute(
                "SELECT originator_version, state FROM stored_events WHERE originator_id=? ORDER BY 1", (run,)
            )
        )


def turned(value: Any, bit: int) -> Any:
    """Return a value with one bit of it turned, of the same type."""
    if type(value) is int:
        return value ^ 1 << bit % 40
    changed = bytearray(value)
    changed[bit // 8 % len(changed)] ^= 1 << bit % 8
    return bytes(changed)


def turn(wreck: Wreck, table: str, key: str, column: str, bit: int) -> bool:
    """Turn one bit in a column of a row; return whether SQLite took it, which it does not where a row is then twice."""
    with raw(wreck.path) as connection:
        (value, kind) = connection.execute(f"SELECT {column}, typeof({column}) FROM {table} WHERE {key}").fetchone()
        if value is None:
            return False
        taken = {"text": "CAST(? AS TEXT)", "blob": "CAST(? AS BLOB)", "integer": "?"}[kind.decode()]
        try:
            connection.execute(f"UPDATE {table} SET {column}={taken} WHERE {key}", (turned(value, bit),))
        except sqlite3.IntegrityError:
            return False
        return True


# -- commits ---------------------------------------------------------------------------------


def expected_lines(rows: list[Row], saved: int, link: bytes) -> dict[int, bool]:
    """Return first position -> whether its link follows from the row before it, worked out with hashlib alone."""
    proved = {}
    for first, stored in rows:
        if first > saved:
            proved[first] = follows(link, stored)
            link = stored[:32]
    return proved


def look_at_a_turned_bit(wreck: Wreck, number: int, column: str, bit: int) -> None:
    """Turn a bit in a commit, and check what the doctor names, saves and tells."""
    run, first, _ = wreck.truth.numbers[number]
    if not turn(wreck, "stored_events", f"rowid={number}", column, bit):
        return
    found = examined(wreck)
    where = f"{column} of {run} {first}, bit {bit}"
    if column == "rowid":
        assert found.codes() <= {"damaged_file"}, where
    elif run == HIDDEN:
        assert found.faults("orphan"), where
    else:
        assert first in {seq for seq, _ in found.faults(run)}, where
    if column in BY_LINK:
        all_is_saved(found, wreck)
        return
    rows = wreck.truth.rows[run]
    at = [position for position, _ in rows].index(first)
    assert [row[0] for row in found.rows.get(run, [])] == [row[0] for row in rows[:at]], where
    if run in wreck.truth.positions and at:
        proved = expected_lines(rows_of(wreck, run), first - 1, rows[at - 1][1][:32])
        assert proved.pop(first) is False
        for row in rows[at + 1 :]:
            told = {
                line["proved"]
                for line in found.lines
                if (line["run"], line["seq"]) in {(run, p) for p in positions_in(row)}
            }
            assert told == {proved[row[0]]}, f"{where}: {row[0]} is told as {told}"


COLUMNS = ("rowid", "originator_id", "originator_version", "topic", "state")


@pytest.mark.parametrize("column", COLUMNS)
def test_a_turned_bit_in_a_commit(wreck: Wreck, tmp_path: Path, column: str) -> None:
    """It is named. What the link covers ends the run there; all else is found by its link, and nothing is lost. Every
    commit: the sweep of the doctor."""
    dice = Random(f"commit {column}")
    for number in dice.sample(sorted(wreck.truth.numbers), 8):
        look_at_a_turned_bit(make_wreck(tmp_path / "store"), number, column, dice.randrange(1 << 20))


@pytest.mark.parametrize("at", [0, 1, 17, -1], ids=["first", "second", "middle", "last"])
def test_a_lost_commit(wreck: Wreck, at: int) -> None:
    """The run is saved up to it; the one behind follows from nothing that is left, all others from those before."""
    rows = wreck.truth.rows["main"]
    first = rows[at][0]
    sql(wreck, "DELETE FROM stored_events WHERE originator_id='main' AND originator_version=?", first)
    found = examined(wreck)
    assert found.faults("main") == [(first, "missing_tail" if at == -1 else "missing_commit")]
    assert len(found.events.get("main", ())) == first - 1
    behind = [row for row in rows if row[0] > first]
    assert found.proved("main") == [seq for row in behind[1:] for seq in positions_in(row)]
    assert [line["seq"] for line in found.lines if line["run"] == "main" and not line["proved"]] == (
        list(positions_in(behind[0])) if behind else []
    )


def test_two_commits_exchanged(wreck: Wreck) -> None:
    """Their links prove where each belongs: nothing is lost."""
    rows = dict(wreck.truth.rows["other"])
    for here, there in ((5, 9), (9, 5)):
        sql(
            wreck,
            "UPDATE stored_events SET state=? WHERE originator_id='other' AND originator_version=?",
            rows[there],
            here,
        )
    found = examined(wreck)
    assert (5, "broken_link") in found.faults("other")
    all_is_saved(found, wreck)


def test_a_commit_of_one_run_under_the_name_of_another(wreck: Wreck) -> None:
    """It is found where it lies, by its link; the run that it was put into is whole too."""
    sql(
        wreck,
        "UPDATE stored_events SET originator_id='other' WHERE originator_id='small' AND originator_version=200",
    )
    found = examined(wreck)
    assert found.faults("small") == [(200, "missing_commit")]
    assert found.faults("other") == [(13, "head_behind"), (13, "missing_commit")]
    all_is_saved(found, wreck)


def test_a_damaged_origin_cuts_its_forks(wreck: Wreck) -> None:
    """A fork whose origin is damaged before the fork is saved as far as both are one; its own events are told."""
    first, stored = wreck.truth.rows["main"][6]
    assert first < 18
    sql(
        wreck,
        "UPDATE stored_events SET state=? WHERE originator_id='main' AND originator_version=?",
        stored[:-1],
        first,
    )
    found = examined(wreck)
    for run in ("main", "fork", "cut in a commit", "bare", "grandchild"):
        assert len(found.events[run]) == first - 1
    notes = {run.run: run.note for run in found.saved.runs}
    assert "origin 'main' is damaged" in notes["fork"] and "origin 'fork' is damaged" in notes["grandchild"]
    assert found.proved("fork") == list(range(21, 27)) and found.proved("grandchild") == list(range(25, 31))
    all_is_saved(found, wreck, but=("main", "fork", "cut in a commit", "bare", "grandchild"))


# -- head records ---------------------------------------------------------------------------------


HEAD_COLUMNS = ("run_id", "position", "link", "origin_run", "origin_position", "origin_link", "hidden")


@pytest.mark.parametrize("run", ["main", "other", "fork", "cut in a commit", "bare", "grandchild", "orphan"])
@pytest.mark.parametrize("column", HEAD_COLUMNS)
def test_a_turned_bit_in_a_head_record(wreck: Wreck, column: str, run: str) -> None:
    """It is named, and every event of every run is saved: the chain tells where a run begins, and how far it goes."""
    dice = Random(f"head {column} {run}")
    if not turn(wreck, "run_heads", f"run_id='{run}'", column, dice.randrange(1 << 20)):
        return  # a run that is no fork has no origin
    found = examined(wreck)
    assert not found.diagnosis.ok
    all_is_saved(found, wreck, but=("bare",) if (run, column) == ("bare", "run_id") else ())


@pytest.mark.parametrize("column", HEAD_COLUMNS)
def test_a_turned_bit_in_the_head_record_of_a_deleted_run(wreck: Wreck, column: str) -> None:
    """What is kept for a fork is there for it, whether or not the record still says that it was deleted."""
    if turn(wreck, "run_heads", f"run_id='{HIDDEN}'", column, 5):
        all_is_saved(examined(wreck), wreck)


@pytest.mark.parametrize("run", ["main", "other", "fork", "grandchild", "orphan", HIDDEN])
def test_a_lost_head_record(wreck: Wreck, run: str) -> None:
    """The events are whole, and so saved; that the run may have been deleted is said."""
    sql(wreck, "DELETE FROM run_heads WHERE run_id=?", run)
    found = examined(wreck)
    assert not found.diagnosis.ok
    all_is_saved(found, wreck)
    (told,) = [line for line in found.saved.runs if line.run == run]
    assert told.expected is None and "head record is lost" in told.note and not told.whole


def test_all_head_records_lost(wreck: Wreck) -> None:
    """Every run that has a commit of its own is found by these, forks of forks too."""
    with raw(wreck.path) as connection:
        connection.execute("DELETE FROM run_heads")
    found = examined(wreck)
    assert "missing_head" in found.codes()
    all_is_saved(found, wreck, but=("bare",))


def test_a_record_that_says_nothing(wreck: Wreck) -> None:
    """A head record of other types than ours is none."""
    sql(wreck, "UPDATE run_heads SET position='far', link=7, hidden='no' WHERE run_id='other'")
    found = examined(wreck)
    assert found.faults("other")
    all_is_saved(found, wreck)


# -- checkpoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["originator_id", "originator_version", "topic", "state"])
def test_a_turned_bit_in_a_checkpoint(wreck: Wreck, column: str) -> None:
    """It costs time only: it is named where a run still has it, and every event is saved."""
    assert turn(wreck, "stored_checkpoints", "originator_id='main' AND originator_version>30", column, 37)
    found = examined(wreck)
    assert found.codes() <= {"bad_checkpoint", "checkpoint_ahead"}
    assert found.diagnosis.ok == (column == "originator_id"), "one of no run is nobody's"
    all_is_saved(found, wreck)


# -- several at once ---------------------------------------------------------------------------------


def test_two_damages_in_one_run(wreck: Wreck) -> None:
    """The first ends the run; what is behind either is proved as far as its links follow."""
    rows = wreck.truth.rows["small"]
    for at in (50, 100):
        first, stored = rows[at]
        sql(
            wreck,
            "UPDATE stored_events SET state=? WHERE originator_id='small' AND originator_version=?",
            stored[:40] + b"\xff" + stored[41:],
            first,
        )
    found = examined(wreck)
    assert found.faults("small") == [(51, "broken_link"), (101, "broken_link")]
    assert len(found.events["small"]) == 50
    assert found.proved("small") == [seq for seq in range(52, 262) if seq != 101]


DAMAGES: dict[str, Callable[[Wreck], None]] = {
    "a commit that is no commit": lambda wreck: sql(
        wreck, "UPDATE stored_events SET state=zeroblob(90) WHERE originator_id='other' AND originator_version=3"
    ),
    "a commit of no run": lambda wreck: sql(
        wreck, "UPDATE stored_events SET originator_id=x'00' WHERE originator_id='other' AND originator_version=3"
    ),
    "a commit nowhere": lambda wreck: sql(
        wreck, "UPDATE stored_events SET originator_version='x' WHERE originator_id='other' AND originator_version=3"
    ),
    "a newer row": lambda wreck: sql(
        wreck, "UPDATE stored_events SET topic='refold.commit/2' WHERE originator_id='other' AND originator_version=3"
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_other_damages_are_named(wreck: Wreck, name: str) -> None:
    """A row of other types is named where it is missed, and saved when its link still holds."""
    DAMAGES[name](wreck)
    found = examined(wreck)
    assert {seq for seq, _ in found.faults("other")} & {3, 4, 12}
    all_is_saved(found, wreck, but=("other",) if name == "a commit that is no commit" else ())
