"""A restore that reads single commits, because a checkpoint refers to them, names the row that is damaged and not the
one after it, as a restore from nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.errors import CorruptJournal
from tests.engine.kit import fill, raw, toy_store

LETTERS = (6, 7, 8)
"""Commits whose content a checkpoint refers to, see ``fill``."""
ROW = "originator_id='r' AND originator_version=?"
DAMAGES = {
    "gone": f"DELETE FROM stored_events WHERE {ROW}",
    "a bit of its link": f"UPDATE stored_events SET state=CAST(x'00'||substr(state, 2) AS BLOB) WHERE {ROW}",
    "cut": f"UPDATE stored_events SET state=CAST(substr(state, 1, 20) AS BLOB) WHERE {ROW}",
    "empty": f"UPDATE stored_events SET state=x'' WHERE {ROW}",
    "a number": f"UPDATE stored_events SET state=5 WHERE {ROW}",
    "a text": f"UPDATE stored_events SET state='words' WHERE {ROW}",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("position", (3, 6, 7, 8))
@pytest.mark.parametrize("run", ("r", "f"))
def test_the_damaged_row_is_named(tmp_path: Path, damage: str, position: int, run: str) -> None:
    """By a restore from the checkpoint, by one from nothing and by verify, which finds no fault with the checkpoint; in
    a run, and in what a fork shares of it."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        live = store.run("r")
        fill(live, letters=len(LETTERS))
        live.checkpoint()
        store.fork("r", "f", at=11).checkpoint()
    with raw(path) as connection:
        assert connection.execute(DAMAGES[damage], (position,)).rowcount == 1
    with toy_store(path) as store:
        for start in ("best", "genesis"):
            with pytest.raises(CorruptJournal) as caught:
                store.view(run, start=start)  # type: ignore[arg-type]
            assert caught.value.position == position, start
        faults = store.verify(run).faults
        assert faults[0].seq == position
        assert all(fault.code != "bad_checkpoint" for fault in faults)
