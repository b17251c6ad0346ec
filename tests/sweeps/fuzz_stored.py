"""Hostile bytes where stored ones are read: the codec alone, and rows of a store whose digests and links are right, as
only somebody who knows the format could have written them. It must never accept an answer of another kind than ours.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from engine.core.codec import NotCanonical, decode, decode_canonical, encode
from engine.core.envelope import LINK_BYTES, body_of, genesis, open_commit
from engine.core.errors import CorruptJournal
from engine.core.model import Model
from engine.doctor import diagnose, salvage
from engine.open_store import open_store
from projections.model import MODEL
from tests.engine.kit import NEVER, Ticks, fill
from tests.field_reports.whole_run import CONTEXTS, GRAPHS, SWARM, TAKE_OVER, TASKS
from tests.sweeps.asking import ABOUT_DOMAIN, ABOUT_RUN, WRITING
from tests.sweeps.fuzz_imports import Attempt, Tried
from tests.sweeps.hostile import cbor_bytes
from tests.sweeps.mutate import Dice, changed_bytes, changed_tree, odd_value
from tests.sweeps.watch import watched
from tests.toy import BANK

__all__ = ["Sample", "ask_everything", "clear", "fuzz_bombs", "fuzz_codec", "fuzz_stored", "odd_cell", "samples"]


class Sample:
    """An honest store of a few runs: its model, its bytes, and the runs in it."""

    def __init__(self, model: Model, data: bytes, runs: Sequence[str]) -> None:
        self.model, self.data, self.runs = model, data, runs


@cache
def samples() -> tuple[Sample, ...]:
    """Return a small store for each projection, each with checkpoints and a fork, and one of the toy."""
    from tests.sweeps.harness import scratch

    made = []
    for steps in (TASKS, CONTEXTS, GRAPHS[:20], (*SWARM, TAKE_OVER), None):
        with scratch() as folder:
            path, model = folder / "refold.db", BANK if steps is None else MODEL
            with open_store(path, model=model, clock=Ticks(), checkpoints=NEVER) as store:
                run = store.run("r", actor="host")
                if steps is None:
                    fill(run)
                for number, step in enumerate(steps or ()):
                    step(store.run("taken over") if step is TAKE_OVER else run)
                    if number in (5, 9):
                        run.checkpoint()
                run.checkpoint()
                store.fork("r", "fork", at=4).checkpoint()
                runs = [summary.run for summary in store.runs()]
            made.append(Sample(model, path.read_bytes(), runs))
    return tuple(made)


# -- the codec --------------------------------------------------------------------------------------------------------


@cache
def _trees() -> tuple[Any, ...]:
    """Return everything that honest stores hold, decoded."""
    found = []
    for sample in samples():
        for table, skipped in (("stored_events", LINK_BYTES), ("stored_checkpoints", 16)):
            for (stored,) in _rows(sample.data, f"SELECT state FROM {table}"):
                found.append(decode(body_of(stored) if skipped == LINK_BYTES else stored[skipped:]))
    return tuple(found)


def _rows(data: bytes, query: str) -> list[Any]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data[:18] + b"\1\1" + data[20:])  # with a log of its own SQLite would look for files
        return connection.execute(query).fetchall()


def fuzz_codec(_: Path) -> Attempt:
    """The decoder, and what unpacks and opens a commit."""
    trees = _trees()

    def attempt(dice: Dice) -> Tried:
        data = cbor_bytes(dice, changed_tree(dice, dice.choice(trees)), honest=0.3)
        if dice.random() < 0.4:
            data = changed_bytes(dice, data)
        problems = []
        plain = watched(lambda: decode(data), len(data), allowed=(NotCanonical,))
        exact = watched(lambda: decode_canonical(data), len(data), allowed=(NotCanonical,))
        problems += plain.problems + exact.problems
        if not exact.refused:
            if encode(exact.value) != data:
                problems.append("what was taken for canonical is written otherwise")
            problems += [f"a {kind} came out of bytes" for kind in _kinds(exact.value) - _PLAIN]
        body = _packed(dice, data)
        problems += watched(lambda: body_of(bytes(LINK_BYTES) + body), len(data), allowed=(NotCanonical,)).problems
        link = genesis("r")
        stored = sha256(link + (data if dice.random() < 0.9 else body)).digest() + body
        problems += watched(lambda: open_commit("r", 1, link, stored), len(data), allowed=(CorruptJournal,)).problems
        return exact.outcome, problems

    return attempt


_PLAIN: Final = frozenset((type(None), bool, int, float, str, bytes, list, dict))


def _kinds(value: Any) -> set[type]:
    """Return the types in a tree, keys included."""
    found: set[type] = set()
    ahead = [value]
    while ahead:
        at = ahead.pop()
        found.add(type(at))
        ahead.extend(at if type(at) is list else [*at, *at.values()] if type(at) is dict else ())
    return found


def _packed(dice: Dice, body: bytes) -> bytes:
    """Return a body as a commit may hold it: plain, deflated, or deflated in a way that is none."""
    kind = dice.random()
    if kind < 0.4:
        return body
    packed = zlib.compress(body, dice.choice((0, 1, 9)), -15)
    if kind < 0.6:
        packed = changed_bytes(dice, packed)
    elif kind < 0.65:
        packed += dice.choice((b"x", packed))
    checksum = zlib.crc32(packed) if dice.random() < 0.95 else 0
    return b"\0" + checksum.to_bytes(4, "big") + packed


_SMALL: Final = (
    b"\x80", b"\xa0", b"\x40", b"\x60", b"\xf6", b"\x00", b"\x61a", b"\x18\xff", b"\x19\x03\xe8", b"\x81\x80",
    b"\x82\x80\xa0", b"\xa1\x61a\x80", b"\xfb" + bytes(8), b"\x81\x81\x81\x81\x80", b"\x64\xf0\x9f\x98\x80",
)  # fmt: skip
_LARGEST: Final = 700 << 20
"""Bytes of memory that reading a commit may take: COMMIT_ITEMS_MAX items, and COMMIT_BYTES_MAX bytes of texts."""


def fuzz_bombs(_: Path) -> Attempt:
    """Commits that are small on disk, and in memory as large as they may be, or larger."""

    def attempt(dice: Dice) -> Tried:
        size = dice.choice((1, 7, 8, 20, 40, 63, 64, 65, 100)) << 20
        pattern = dice.choices(_SMALL, k=dice.choice((1, 1, 2, 4)))
        rounds = size // len(b"".join(pattern))
        filler = b"\x9a" + (rounds * len(pattern)).to_bytes(4, "big") + b"".join(pattern) * rounds
        if dice.random() < 0.1:
            filler = b"\x7a" + size.to_bytes(4, "big") + b"x" * size
        body = b"\x81\x86\x05\xf6\xf6\xf6\xf6\x81\x84\x19\x3e\x91\x00\x61a" + filler
        packed = zlib.compress(body, 1, -15)
        kept = b"\0" + zlib.crc32(packed).to_bytes(4, "big") + packed if dice.random() < 0.7 else body
        link = genesis("r")
        stored = sha256(link + body).digest() + kept
        seen = watched(
            lambda: open_commit("r", 1, link, stored).count, 0, allowed=(CorruptJournal,), room=_LARGEST + len(stored)
        )
        return seen.outcome, [f"{size >> 20} MiB of {pattern!r:.60}: {problem}" for problem in seen.problems]

    return attempt


# -- rows -------------------------------------------------------------------------------------------------------------


def fuzz_stored(folder: Path) -> Attempt:
    """Stores whose rows say what no refold would have written."""
    path = folder / "refold.db"

    def attempt(dice: Dice) -> Tried:
        sample = dice.choice(samples())
        clear(folder)
        path.write_bytes(sample.data)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            for _ in range(dice.choice((1, 1, 2))):
                what = _spoil(dice, connection, sample)
            connection.execute("PRAGMA journal_mode=WAL")
        outcome, problems = ask_everything(dice, path, sample)
        return f"{what} {outcome}", [f"{what}: {problem}" for problem in problems]

    return attempt


def clear(folder: Path) -> None:
    """Remove the files of a folder."""
    for left in folder.iterdir():
        left.unlink()


def ask_everything(dice: Dice, path: Path, sample: Sample, *, strict: bool = True) -> Tried:
    """Ask a store everything that can be asked, then write to it, then ask the doctor; return how it went.

    ``strict``: asking changes nothing in the file.
    """
    folder, size = path.parent, path.stat().st_size
    before = path.read_bytes()
    problems: list[str] = []
    refused = asked = 0
    questions = {**ABOUT_RUN, **(ABOUT_DOMAIN if sample.model is MODEL else {})}
    run = dice.choice(sample.runs)

    def ask(name: str, act: Callable[[], Any]) -> Any:
        nonlocal refused, asked
        seen = watched(act, size, folder=folder)
        problems.extend(f"{name} of {run}: {problem}" for problem in seen.problems)
        refused, asked = refused + seen.refused, asked + 1
        return seen.value

    store = ask("opening", lambda: open_store(path, model=sample.model, create=False, read_only=True, clock=Ticks()))
    if store is not None:
        with store:
            for name, question in questions.items():
                ask(name, lambda question=question: question(store, run))
    if strict and path.read_bytes() != before:
        problems.append("asking changed the file")
    store = ask("opening", lambda: open_store(path, model=sample.model, create=False, clock=Ticks()))
    if store is not None:
        with store:
            for name, question in WRITING.items():
                ask(name, lambda question=question: question(store, run))
    new = folder / "new.db"
    ask("diagnosis", lambda: diagnose(path, sample.model))
    ask("salvage", lambda: salvage(path, new, sample.model))
    return "answered" if not refused else "refused" if refused == asked else "refused in part", problems


def _spoil(dice: Dice, connection: sqlite3.Connection, sample: Sample) -> str:
    """Change a store in one way; return a word for the way."""
    ways = (_spoil_commit, _spoil_commit, _spoil_commit, _spoil_checkpoint, _spoil_head, _spoil_column, _move_rows)
    way = dice.choice(ways)
    way(dice, connection, sample)
    return way.__name__.removeprefix("_").replace("_", " ")


def _spoil_commit(dice: Dice, connection: sqlite3.Connection, sample: Sample) -> None:
    """Change what one commit says, and every link after it, so that the chain holds."""
    run = dice.choice(sample.runs)
    rows = connection.execute(
        "SELECT rowid, state FROM stored_events WHERE originator_id=? ORDER BY originator_version", (run,)
    ).fetchall()
    if not rows or any(type(stored) is not bytes for _, stored in rows):  # what was spoilt before may be no bytes now
        return
    chosen, link = dice.randrange(len(rows)), rows[0][1][:LINK_BYTES]
    for place, (number, stored) in enumerate(rows[chosen:]):
        if chosen + place:
            link = rows[chosen + place - 1][1][:LINK_BYTES] if place == 0 else link
        body = _body(stored)
        kept = stored[LINK_BYTES:]
        if place == 0:
            kept = body = _said_otherwise(dice, body)
            if dice.random() < 0.2:
                kept = b"\0" + zlib.crc32(packed := zlib.compress(body, 9, -15)).to_bytes(4, "big") + packed
        before = genesis(run) if chosen + place == 0 else link
        link = sha256(before + body).digest()
        connection.execute("UPDATE stored_events SET state=? WHERE rowid=?", (link + kept, number))
    connection.execute("UPDATE run_heads SET link=? WHERE run_id=?", (link, run))
    if dice.random() < 0.3:
        connection.execute("DELETE FROM stored_checkpoints")


def _body(stored: bytes) -> bytes:
    try:
        return body_of(stored)
    except NotCanonical:
        return stored[LINK_BYTES:]


def _said_otherwise(dice: Dice, body: bytes) -> bytes:
    """Return the body of a commit, or of a checkpoint, that says something else."""
    if dice.random() < 0.1:
        return changed_bytes(dice, body)
    try:
        tree = decode(body)
    except NotCanonical:
        return changed_bytes(dice, body)
    return cbor_bytes(dice, changed_tree(dice, tree), honest=0.8)


def _spoil_checkpoint(dice: Dice, connection: sqlite3.Connection, sample: Sample) -> None:
    """Change what one checkpoint says, and its digest with it."""
    rows = connection.execute("SELECT rowid, state FROM stored_checkpoints").fetchall()
    if rows:
        number, stored = dice.choice(rows)
        body = _said_otherwise(dice, stored[16:])
        connection.execute(
            "UPDATE stored_checkpoints SET state=? WHERE rowid=?", (sha256(body).digest()[:16] + body, number)
        )


def odd_cell(dice: Dice) -> Any:
    """Return a value that SQLite can hold, of any type."""
    value = odd_value(dice)
    if type(value) is int and not -(2**63) <= value < 2**63:
        return str(value)
    if type(value) is str:
        return value.encode("utf-8", "replace").decode()
    return value if value is None or type(value) in (bool, int, float, bytes) else repr(value)[:1000]


_COLUMNS: Final = {
    "run_heads": ("run_id", "position", "link", "origin_run", "origin_position", "origin_link", "hidden"),
    "stored_events": ("originator_id", "originator_version", "topic", "state"),
    "stored_checkpoints": ("originator_id", "originator_version", "topic", "state"),
}


def _spoil_head(dice: Dice, connection: sqlite3.Connection, sample: Sample) -> None:
    """Let a head record say something else: another end, another origin, a circle of forks."""
    run, other = dice.choice(sample.runs), dice.choice(sample.runs)
    position = dice.choice((0, 1, 2, 5, 10**6, 2**62, -1))
    link = dice.choice((bytes(32), b"", genesis(run)))
    origin = dice.choice(((None, None, None), (other, position, link), (run, 0, genesis(run)), ("nobody", 3, link)))
    _try(
        connection,
        "UPDATE run_heads SET position=?, origin_run=?, origin_position=?, origin_link=?, hidden=? WHERE run_id=?",
        (dice.choice((position, 5)), *origin, dice.choice((0, 1, 0x6869_6464_656E)), run),
    )


def _spoil_column(dice: Dice, connection: sqlite3.Connection, sample: Sample) -> None:
    """Put a value of any type into any cell."""
    table = dice.choice(list(_COLUMNS))
    column = dice.choice(_COLUMNS[table])
    key = "run_id" if table == "run_heads" else "rowid"
    keys = [row[0] for row in connection.execute(f"SELECT {key} FROM {table}")]
    if keys:
        _try(connection, f"UPDATE {table} SET {column}=? WHERE {key}=?", (odd_cell(dice), dice.choice(keys)))


def _move_rows(dice: Dice, connection: sqlite3.Connection, sample: Sample) -> None:
    """Delete, exchange and double rows."""
    table = dice.choice(("stored_events", "stored_checkpoints"))
    rows = [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")]
    one, other = (dice.choice(rows) for _ in range(2)) if rows else (0, 0)
    _try(connection, *dice.choice((
        (f"DELETE FROM {table} WHERE rowid=?", (one,)),
        (f"DELETE FROM {table} WHERE rowid>?", (one,)),
        (f"UPDATE {table} SET originator_version=originator_version+? WHERE rowid=?", (dice.choice((1, 100, -3)), one)),
        (f"UPDATE {table} SET state=(SELECT state FROM {table} WHERE rowid=?) WHERE rowid=?", (one, other)),
        (f"UPDATE {table} SET originator_id=? WHERE rowid=?", (dice.choice(("fork", "r", "new")), one)),
        ("DELETE FROM run_heads WHERE run_id=?", (dice.choice(("r", "fork")),)),
    )))  # fmt: skip


def _try(connection: sqlite3.Connection, statement: str, values: Sequence[Any]) -> None:
    """Run a statement; what SQLite itself refuses stays as it was."""
    try:
        connection.execute(statement, values)
    except (sqlite3.Error, OverflowError):
        return
