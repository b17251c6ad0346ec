"""Verify and restore name every damage with its position; neither repairs it, and no reader is given damaged data."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest

from engine.core.envelope import genesis, group_of, seal_commit
from engine.core.errors import CorruptJournal, EngineError, NotFound, SchemaError
from engine.core.model import Model
from engine.prune import list_checkpoints, prune_checkpoints
from tests.engine.kit import fill, raw, stored_rows, toy_store
from tests.toy import BANK, CLOSED, OPENED, PAID, PAID_1, Pay

# What fill() writes: commits at 1, 2, 3 (three events), 6, 7, 8, 9, 10, 11.
LAST = 11


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store file with one filled run ``r`` and another run that no damage below touches."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        fill(store.run("r"))
        fill(store.run("untouched"))
    return path


def sql(statement: str, *parameters: Any) -> Callable[[Path], None]:
    def tamper(path: Path) -> None:
        with raw(path) as connection:
            changed = connection.execute(statement, parameters).rowcount
            assert changed == 1, f"{statement} changed {changed} rows"

    return tamper


ROW = "originator_id='r' AND originator_version"
DELETE = f"DELETE FROM stored_events WHERE {ROW}=?"


def rewritten(first: int, change: Callable[[list[Any]], Any]) -> Callable[[Path], None]:
    """Change the groups of a commit, then work out its link anew, and those of all after it and the head: a forger."""

    def tamper(path: Path) -> None:
        rows = stored_rows(path, "r")
        link = genesis("r")
        with raw(path) as connection:
            for version, stored in rows:
                body = stored[32:]
                if version == first:
                    changed = change(cbor2.loads(body))
                    body = changed if isinstance(changed, bytes) else cbor2.dumps(changed)
                link = hashlib.sha256(link + body).digest()
                connection.execute(f"UPDATE stored_events SET state=? WHERE {ROW}=?", (link + body, version))
            connection.execute("UPDATE run_heads SET link=? WHERE run_id='r'", (link,))

    return tamper


def with_first_wire(wire: list[Any]) -> Callable[[list[Any]], Any]:
    def change(groups: list[Any]) -> list[Any]:
        groups[0][5][0] = wire
        return groups

    return change


def swapped(path: Path) -> None:
    """Swap the content of two commits of one event each."""
    with raw(path) as connection:
        rows = dict(stored_rows(path, "r"))
        for here, there in ((6, 7), (7, 6)):
            connection.execute(f"UPDATE stored_events SET state=? WHERE {ROW}=?", (rows[there], here))


def from_the_other_run(path: Path) -> None:
    """Put the first commit of another run, which begins alike, in the place of our first."""
    with raw(path) as connection:
        (state,) = connection.execute(
            "SELECT state FROM stored_events WHERE originator_id='untouched' AND originator_version=1"
        ).fetchone()
        connection.execute(f"UPDATE stored_events SET state=? WHERE {ROW}=1", (state,))


def a_commit_more(path: Path) -> None:
    """Append a commit by hand without moving the head."""
    link = stored_rows(path, "r")[-1][1][:32]
    stored, _ = seal_commit(link, [group_of(5, None, None, None, None, [PAID.wire("a", 1, None)])])
    with raw(path) as connection:
        connection.execute(
            "INSERT INTO stored_events (originator_id, originator_version, topic, state) VALUES ('r', 12, ?, ?)",
            ("refold.commit/1", stored),
        )


def flip(first: int, byte: int) -> Callable[[Path], None]:
    def tamper(path: Path) -> None:
        with raw(path) as connection:
            (state,) = connection.execute(f"SELECT state FROM stored_events WHERE {ROW}=?", (first,)).fetchone()
            damaged = bytearray(state)
            damaged[byte] ^= 0x10
            connection.execute(f"UPDATE stored_events SET state=? WHERE {ROW}=?", (bytes(damaged), first))

    return tamper


def both(*tampers: Callable[[Path], None]) -> Callable[[Path], None]:
    def tamper(path: Path) -> None:
        for one in tampers:
            one(path)

    return tamper


HEAD_FAULTS = ("head_behind", "head_link", "missing_head")
"""The events are whole; only the record of where the run ends is not."""

CASES: dict[str, tuple[Callable[[Path], None], list[tuple[int, str]], int | None]] = {
    # name: how to damage, the faults that verify must name, the position that restore must name (None: it restores)
    "first commit gone": (sql(DELETE, 1), [(1, "missing_commit")], 1),
    "commit gone": (sql(DELETE, 3), [(3, "missing_commit")], 3),
    "last commit gone": (sql(DELETE, 11), [(11, "missing_tail")], 11),
    "two gaps": (both(sql(DELETE, 2), sql(DELETE, 8)), [(2, "missing_commit"), (8, "missing_commit")], 2),
    "bit in the link": (flip(6, 3), [(6, "broken_link"), (7, "broken_link")], 6),
    "bit in the body": (flip(6, -3), [(6, "broken_link")], 6),
    "bit in the middle of three": (flip(3, -20), [(3, "broken_link")], 3),
    "bit in the first group's head": (flip(3, 32), [(3, "broken_link")], 3),
    "bits in two commits": (both(flip(2, -3), flip(9, -3)), [(2, "broken_link"), (9, "broken_link")], 2),
    "bit in the last": (flip(11, -3), [(11, "broken_link")], 11),
    "bit in the last's first byte": (flip(11, 32), [(11, "broken_link")], 11),
    "emptied": (sql(f"UPDATE stored_events SET state=x'' WHERE {ROW}=7"), [(7, "broken_link"), (8, "broken_link")], 7),
    "cut": (sql(f"UPDATE stored_events SET state=substr(state, 1, 40) WHERE {ROW}=7"), [(7, "broken_link")], 7),
    "longer": (
        sql(f"UPDATE stored_events SET state=CAST(state||x'00' AS BLOB) WHERE {ROW}=7"),
        [(7, "broken_link")],
        7,
    ),
    "a text": (
        sql(f"UPDATE stored_events SET state='words' WHERE {ROW}=7"),
        [(7, "broken_link"), (8, "broken_link")],
        7,
    ),
    "a number": (sql(f"UPDATE stored_events SET state=5 WHERE {ROW}=7"), [(7, "broken_link"), (8, "broken_link")], 7),
    "moved on": (
        sql(f"UPDATE stored_events SET originator_version=12 WHERE {ROW}=11"),
        [(11, "missing_commit"), (12, "head_behind")],
        11,
    ),
    "moved to a word": (
        sql(f"UPDATE stored_events SET originator_version='x' WHERE {ROW}=11"),
        [(11, "unreadable")],
        11,
    ),
    "moved to a fraction": (
        sql(f"UPDATE stored_events SET originator_version=6.5 WHERE {ROW}=7"),
        [(7, "unreadable")],
        7,
    ),
    "moved to another run": (
        sql(f"UPDATE stored_events SET originator_id='s' WHERE {ROW}=7"),
        [(7, "missing_commit")],
        7,
    ),
    "swapped": (swapped, [(6, "broken_link"), (7, "broken_link"), (8, "broken_link")], 6),
    "from another run": (from_the_other_run, [(1, "broken_link"), (2, "broken_link")], 1),
    "topic of nobody": (sql(f"UPDATE stored_events SET topic='x' WHERE {ROW}=7"), [(7, "broken_link")], 7),
    "topic of bytes": (sql(f"UPDATE stored_events SET topic=x'ff' WHERE {ROW}=7"), [(7, "broken_link")], 7),
    "topic not in UTF-8": (
        sql(f"UPDATE stored_events SET topic=CAST(x'7265ff' AS TEXT) WHERE {ROW}=7"),
        [(7, "broken_link")],
        7,
    ),
    "newer row": (sql(f"UPDATE stored_events SET topic='refold.commit/2' WHERE {ROW}=7"), [(7, "schema_error")], None),
    "head behind": (sql("UPDATE run_heads SET position=9 WHERE run_id='r'"), [(10, "head_behind")], 11),
    "head ahead": (sql("UPDATE run_heads SET position=20 WHERE run_id='r'"), [(12, "missing_tail")], 12),
    "head of another link": (sql("UPDATE run_heads SET link=zeroblob(32) WHERE run_id='r'"), [(11, "head_link")], 11),
    "head with a word": (sql("UPDATE run_heads SET link='x' WHERE run_id='r'"), [(11, "head_link")], 11),
    "head nowhere": (sql("UPDATE run_heads SET position='x' WHERE run_id='r'"), [(1, "head_behind")], 11),
    "head gone": (sql("DELETE FROM run_heads WHERE run_id='r'"), [(11, "missing_head")], 11),
    "a commit by hand": (a_commit_more, [(12, "head_behind")], 12),
    # Forgeries: the chain is whole, but no refold wrote this.
    "forged: unknown event": (rewritten(7, with_first_wire([99999, 0])), [(7, "schema_error")], None),
    "forged: newer event": (rewritten(7, with_first_wire([1002 * 16 + 3, 0, "a"])), [(7, "schema_error")], None),
    "forged: no such account": (
        rewritten(7, with_first_wire([PAID.tag, 0, "z", 1, None])),
        [(7, "impossible_event")],
        7,
    ),
    "forged: opened twice": (rewritten(7, with_first_wire([OPENED.tag, 0, "a", None])), [(7, "impossible_event")], 7),
    "forged: too few fields": (rewritten(7, with_first_wire([PAID.tag, 0])), [(7, "impossible_event")], 7),
    "forged: no event": (rewritten(7, with_first_wire([])), [(7, "schema_error")], None),
    "forged: a list as tag": (rewritten(7, with_first_wire([[1], 0])), [(7, "schema_error")], None),
    "forged: closed twice": (rewritten(11, with_first_wire([CLOSED.tag, 0, "z"])), [(11, "impossible_event")], 11),
    "forged: no groups": (rewritten(7, lambda groups: {"a": 1}), [(7, "broken_link")], 7),
    "forged: long heads": (
        rewritten(7, lambda groups: b"\x98\x01" + cbor2.dumps(groups)[1:]),
        [(7, "not_canonical")],
        None,
    ),
    "forged: keys out of order": (
        rewritten(6, with_first_wire([1004 * 16 + 1, 0, "b", {"b": 1, "a": 2}])),
        [(6, "not_canonical")],
        None,
    ),
    "forged: undefined": (
        rewritten(6, with_first_wire([1004 * 16 + 1, 0, "b", cbor2.undefined])),
        [(6, "not_canonical")],
        None,
    ),
    # Forgeries that fold: replay believes the fields of bytes whose links hold, and verification does not.
    "forged: a fraction is paid": (
        rewritten(11, with_first_wire([PAID.tag, 0, "b", 1.5, None])),
        [(11, "impossible_event")],
        None,
    ),
    "forged: true is paid": (
        rewritten(11, with_first_wire([PAID.tag, 0, "b", True, None])),
        [(11, "impossible_event")],
        None,
    ),
    "forged: a debt is paid": (
        rewritten(11, with_first_wire([PAID.tag, 0, "b", -5, None])),
        [(11, "impossible_event")],
        None,
    ),
    "forged: bytes as a note": (
        rewritten(11, with_first_wire([PAID.tag, 0, "b", 1, b"x"])),
        [(11, "impossible_event")],
        None,
    ),
    "forged: a note with a minus nought": (
        rewritten(11, with_first_wire([PAID.tag, 0, "b", 1, {"k": -0.0}])),
        [(11, "impossible_event")],
        None,
    ),
    "forged: more fields": (
        rewritten(11, with_first_wire([PAID.tag, 0, "b", 1, None, "more"])),
        [(11, "impossible_event")],
        None,
    ),
    "forged: a cause in the future": (
        rewritten(11, with_first_wire([PAID.tag, -1, "b", 1, None])),
        [(11, "impossible_event")],
        None,
    ),
    "forged: an older event with a bad field": (
        rewritten(11, with_first_wire([PAID_1.tag, 0, "b", "five"])),
        [(11, "impossible_event")],
        None,
    ),
    "forged: a tag": (rewritten(6, with_first_wire([1004 * 16 + 1, 0, "b", 2**70])), [(6, "broken_link")], 6),
}


@pytest.mark.parametrize("name", CASES)
def test_every_damage_is_named_with_its_position(path: Path, name: str) -> None:
    """Verify names exactly these faults; restore stops at the first one; what is before it can be read; others are
    untouched."""
    tamper, faults, position = CASES[name]
    tamper(path)
    with toy_store(path) as store:
        verdict = store.verify("r")
        assert [(fault.seq, fault.code) for fault in verdict.faults] == faults
        assert not verdict.ok
        assert all(fault.expected and fault.found and fault.hint for fault in verdict.faults)
        assert verdict.position == (
            max(LAST, faults[0][0]) if faults[0][1] in HEAD_FAULTS else min(seq for seq, _ in faults) - 1
        )
        assert verdict.to_json()["faults"][0]["seq"] == faults[0][0]
        if position is not None:
            for verb in (store.run, store.view):
                with pytest.raises(CorruptJournal) as caught:
                    verb("r")
                assert caught.value.run == "r"
                endless = name in ("head gone", "head nowhere") and verb == store.view
                assert caught.value.position == (1 if endless else position)
                assert caught.value.expected
                assert caught.value.found
                assert "refold verify" in caught.value.hint
        assert store.verify("untouched").ok
        assert store.run("untouched").submit(Pay(account="a", amount=1)).position == LAST + 1


@pytest.mark.parametrize(
    "name", [name for name in CASES if not name.startswith("forged") and name != "a commit by hand"]
)
def test_no_reader_is_given_anything_but_a_true_prefix(path: Path, name: str) -> None:
    """History and export of a damaged run yield the events that were written, in order, and then an error, never
    another."""
    with toy_store(path) as store:
        truth = [event.to_json() for event in store.history("r")]
        states = [store.view("r", at=position).state_bytes() for position in range(LAST + 1)]
    CASES[name][0](path)
    with toy_store(path) as store:
        seen: list[Any] = []
        with contextlib.suppress(CorruptJournal, SchemaError):
            seen.extend(event.to_json() for event in store.history("r"))
        assert seen == truth[: len(seen)]
        for position in range(LAST + 1):
            try:
                state = store.view("r", at=position).state_bytes()
            except (CorruptJournal, SchemaError, NotFound):
                continue
            assert state == states[position]


def test_a_sound_run_has_no_faults(path: Path) -> None:
    """An intact run with checkpoints of both kinds verifies, and says how far it looked."""
    with toy_store(path) as store:
        run = store.run("r")
        run.checkpoint()
        run.submit(Pay(account="a", amount=1))
        run.checkpoint()
        seen: list[tuple[int, int]] = []
        verdict = store.verify("r", progress=lambda at, of: seen.append((at, of)))
        assert verdict.ok
        assert (verdict.position, verdict.events, verdict.checkpoints) == (12, 12, 2)
        assert verdict.to_json() == {"run": "r", "ok": True, "position": 12, "faults": []}
        assert seen[-1] == (12, 12)
        with pytest.raises(NotFound):
            store.verify("nobody")


CHECKPOINT = "originator_id='r' AND originator_version"
CHECKPOINT_CASES: dict[str, tuple[str, list[tuple[int, str]]]] = {
    "digest": (
        f"UPDATE stored_checkpoints SET state=CAST(x'00'||state AS BLOB) WHERE {CHECKPOINT}=12",
        [(12, "bad_checkpoint")],
    ),
    "emptied": (f"UPDATE stored_checkpoints SET state=x'' WHERE {CHECKPOINT}=12", [(12, "bad_checkpoint")]),
    "a number": (f"UPDATE stored_checkpoints SET state=7 WHERE {CHECKPOINT}=12", [(12, "bad_checkpoint")]),
    "topic": (f"UPDATE stored_checkpoints SET topic='x' WHERE {CHECKPOINT}=12", [(12, "bad_checkpoint")]),
    "topic bytes": (f"UPDATE stored_checkpoints SET topic=x'ff' WHERE {CHECKPOINT}=12", [(12, "bad_checkpoint")]),
    "its base": (
        f"UPDATE stored_checkpoints SET state=x'' WHERE {CHECKPOINT}=11",
        [(11, "bad_checkpoint"), (12, "bad_checkpoint")],
    ),
    "its base gone": (f"DELETE FROM stored_checkpoints WHERE {CHECKPOINT}=11", [(12, "bad_checkpoint")]),
    "elsewhere": (
        f"UPDATE stored_checkpoints SET originator_version=10 WHERE {CHECKPOINT}=12",
        [(10, "bad_checkpoint")],
    ),
    "ahead": (f"UPDATE stored_checkpoints SET originator_version=30 WHERE {CHECKPOINT}=12", [(30, "checkpoint_ahead")]),
    "of another run": (
        f"INSERT INTO stored_checkpoints SELECT 'r', 3, topic, state FROM stored_checkpoints WHERE {CHECKPOINT}=12",
        [(3, "bad_checkpoint")],
    ),
}


@pytest.mark.parametrize("name", CHECKPOINT_CASES)
def test_a_bad_checkpoint_is_named_and_changes_nothing(path: Path, name: str) -> None:
    """Verify names it; restore says it was refused and why, and gives the very state it gives without checkpoints."""
    statement, faults = CHECKPOINT_CASES[name]
    with toy_store(path) as store:
        run = store.run("r")
        run.checkpoint()
        run.submit(Pay(account="a", amount=1))
        run.checkpoint()
        run.submit(Pay(account="a", amount=2))
        digest = run.digest()
    sql(statement)(path)
    with toy_store(path) as store:
        verdict = store.verify("r")
        assert [(fault.seq, fault.code) for fault in verdict.faults] == faults
        assert verdict.position == 13
        run = store.run("r")
        assert run.digest() == digest
        named = {position for position, _ in faults}
        assert named <= {position for position, _ in run.restored.rejected} | {3, 10, 11, 30}
        assert all(reason for _, reason in run.restored.rejected)
        assert run.submit(Pay(account="a", amount=3)).position == 14


def test_a_checkpoint_of_other_code_is_counted_and_is_no_fault(path: Path) -> None:
    """What another version of the code wrote is as it was written, and so is a checkpoint that rests on it: the record
    is intact. Prune removes these, and leaves the good one after them."""
    with toy_store(path, model=aged(BANK)) as store:
        run = store.run("r")
        run.checkpoint()
        run.submit(Pay(account="b", amount=1))
        run.checkpoint()
    with toy_store(path) as store:
        run = store.run("r")
        run.submit(Pay(account="b", amount=2))
        run.checkpoint()
        verdict = store.verify("r")
        assert verdict.ok and verdict.checkpoints == 3 and verdict.outdated == (11, 12)
        states = [state.problem for state in list_checkpoints(store.journal, store.checkpoints, store.model, "r")]
        assert states[0] is None
        assert all("written under another schema" in str(problem) for problem in states[1:]) and len(states) == 3
        assert prune_checkpoints(store.journal, store.checkpoints, store.model, "r") == [11, 12]
        assert store.checkpoints.positions("r") == [13]
        assert store.view("r").report.used == 13
        assert store.verify("r").outdated == ()


def test_an_outdated_checkpoint_that_is_damaged_is_a_fault(path: Path) -> None:
    """Age is no excuse for bytes that are not those that were written; nor is it for those that rest on them."""
    with toy_store(path, model=aged(BANK)) as store:
        run = store.run("r")
        run.checkpoint()
        run.submit(Pay(account="b", amount=1))
        run.checkpoint()
    sql(f"UPDATE stored_checkpoints SET state=CAST(state||x'00' AS BLOB) WHERE {CHECKPOINT}=12")(path)
    with toy_store(path) as store:
        verdict = store.verify("r")
        assert [(fault.seq, fault.code) for fault in verdict.faults] == [(12, "bad_checkpoint")]
        assert verdict.outdated == (11,)
        assert prune_checkpoints(store.journal, store.checkpoints, store.model, "r") == [11, 12]


def aged(model: Model) -> Model:
    """Return a model whose checkpoints are of other code."""
    older = copy.copy(model)
    object.__setattr__(older, "fingerprint", bytes(byte ^ 0xFF for byte in older.fingerprint))
    return older


def test_a_checkpoint_that_differs_from_the_fold_is_named(path: Path) -> None:
    """A checkpoint whose digest is right but whose state is not what the events give is found by verify."""
    with toy_store(path) as store:
        run = store.run("r")
        run._at.state.parts["bank"].accounts.edit("a").balance += 1
        run.checkpoint()
        assert [(fault.seq, fault.code) for fault in store.verify("r").faults] == [(11, "checkpoint_differs")]


def test_a_writer_finds_out_that_the_end_of_its_run_is_gone(path: Path) -> None:
    """When commits vanish under a live handle it stops with the position, instead of writing after a gap."""
    with toy_store(path) as store:
        run = store.run("r")
        with raw(path) as connection:
            connection.execute(f"DELETE FROM stored_events WHERE {ROW}>=10")
            (link,) = connection.execute(f"SELECT substr(state, 1, 32) FROM stored_events WHERE {ROW}=9").fetchone()
            connection.execute("UPDATE run_heads SET position=9, link=? WHERE run_id='r'", (link,))
        with pytest.raises(EngineError) as caught:
            run.submit(Pay(account="a", amount=1))
        assert caught.value.code == "conflict"
        with pytest.raises(CorruptJournal, match="position 11"):
            run.refresh()
        assert len(stored_rows(path, "r")) == 7
        assert store.run("r").submit(Pay(account="a", amount=1)).position == 10


def pages_of(path: Path, name: str) -> list[int]:
    """Return the numbers of the pages that hold a table, root first, as far as one page points to others."""
    with sqlite3.connect(path) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name=?", (name,)).fetchone()
    return [root]


@pytest.mark.parametrize("table", ["stored_events", "stored_checkpoints", "run_heads"])
def test_a_broken_page_is_damage_not_a_crash(path: Path, table: str) -> None:
    """When the database itself is broken the journal names the run, a checkpoint costs time only, and all errors are
    typed."""
    with toy_store(path) as store:
        run = store.run("r")
        run.checkpoint()
        digest = run.digest()
    page = pages_of(path, table)[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 200)
    with toy_store(path) as store:
        if table == "stored_checkpoints":
            run = store.run("r")
            assert run.digest() == digest
            assert run.restored.used == "genesis"
            assert "cannot" in run.restored.rejected[0][1]
            assert [fault.code for fault in store.verify("r").faults] == ["bad_checkpoint"]
        elif table == "stored_events":
            with pytest.raises(CorruptJournal, match="'r'"):
                store.run("r")
            assert [fault.code for fault in store.verify("r").faults][:1] == ["unreadable"]
        else:
            with pytest.raises(EngineError, match="damaged"):
                store.run("r")
