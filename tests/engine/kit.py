"""What the tests of the engine share: toy stores, raw access to a store file, and a second fold that shares no code
with
the engine. It must never import the engine's fold, or the comparison with it would prove nothing."""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import cbor2

from engine.checkpoint import CheckpointPolicy
from engine.core.model import Model
from engine.open_store import Store, open_store
from engine.runs import LiveRun
from tests.toy import BANK, Close, Open, Pay, Write

NEVER = CheckpointPolicy(every_events=None)
BACKENDS = ("sqlite", "memory")


class Ticks:
    """A clock that moves on by one millisecond a reading, the same in every test."""

    def __init__(self, start: int = 1_000) -> None:
        self.now = start

    def __call__(self) -> int:
        self.now += 1
        return self.now


def toy_store(
    url: str | Path,
    *,
    policy: CheckpointPolicy = NEVER,
    clock: Callable[[], int] | None = None,
    model: Model = BANK,
    **options: Any,
) -> Store:
    """Open a store of the toy model; without a clock of its own, time stands still at 5 ms."""
    return open_store(url, model=model, checkpoints=policy, clock=clock or (lambda: 5), **options)


def url_of(backend: str, folder: Path) -> str:
    """Return a store url for a backend, in ``folder`` when it needs one."""
    return "memory:" if backend == "memory" else str(folder / "refold.db")


def fill(run: LiveRun, letters: int = 3) -> None:
    """Give a run a handful of commits of every kind: single, batched, under command ids, closed accounts."""
    run.submit(Open(account="a", note={"k": [1, 2.5, None, "ü"]}), command_id="open-a", actor="clerk")
    run.submit(Open(account="b"))
    with run.batch():
        run.submit(Pay(account="a", amount=5))
        run.submit(Pay(account="b", amount=7), actor="other")
        run.submit(Pay(account="a", amount=9), command_id="pay-9")
    for number in range(letters):
        run.submit(Write(account="b", letter={"n": number, "text": "x" * number}), cause=2)
    run.submit(Open(account="c"))
    run.submit(Pay(account="c", amount=1, note="tip"), cause="somewhere")
    run.submit(Close(account="c"))


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a store file behind the engine's back, committing what the block did."""
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        with connection:
            yield connection


def stored_rows(path: Path, run_id: str) -> list[tuple[int, bytes]]:
    """Return (first seq, stored bytes) of every commit of a run, as they lie in the file."""
    with raw(path) as connection:
        return list(
            connection.execute(
                "SELECT originator_version, state FROM stored_events WHERE originator_id=? ORDER BY 1", (run_id,)
            )
        )


def wires_of(rows: list[tuple[int, bytes]], run_id: str, *, chained: bool = True) -> list[list[Any]]:
    """Return the groups of a run's rows as plain CBOR gives them, having checked the chain with hashlib alone."""
    link = hashlib.sha256(b"refold run/1\0" + run_id.encode()).digest()
    groups: list[list[Any]] = []
    position = 0
    for first, stored in rows:
        assert first == position + 1, f"a commit at {first} follows position {position}"
        packed = stored[32:33] == b"\0"
        form = zlib.decompress(stored[37:], -15) if packed else stored[32:]
        link = hashlib.sha256(link + form).digest()
        assert stored[:32] == link or not chained, f"the chain breaks at {first}"
        body = cbor2.loads(form)
        position += sum(len(group[5]) for group in body)
        groups.extend(body)
    return groups


def second_fold(rows: list[tuple[int, bytes]], run_id: str) -> str:
    """Return the digest of a toy run, worked out from its rows by other code than the engine's."""
    accounts: dict[str, list[Any]] = {}
    letters: dict[tuple[str, int], list[Any]] = {}
    ledger: dict[str, list[Any]] = {}
    seq = 0
    for _, _, command_id, fingerprint, _, events in wires_of(rows, run_id):
        if command_id is not None:
            ledger[command_id] = [fingerprint, seq + 1, len(events)]
        for tag, _, *fields in events:
            seq += 1
            kind = tag // 16
            if kind == 1001:
                accounts[fields[0]] = [0, 0, fields[1]]
            elif kind == 1002:
                accounts[fields[0]][0] += fields[1]
            elif kind == 1003:
                del accounts[fields[0]]
                letters = {key: letter for key, letter in letters.items() if key[0] != fields[0]}
            elif kind == 1004:
                letters[fields[0], accounts[fields[0]][1]] = [seq, fields[1]]
                accounts[fields[0]][1] += 1
            else:
                assert tag == 17, f"unknown tag {tag}"  # run.command_noted/1
    form = cbor2.dumps
    pieces = [form(["refold.state", 1, seq])]
    by_key = {"bank.accounts": accounts, "bank.letters": letters}
    for name, table in by_key.items():
        if table:
            pieces.append(form([name, len(table)]))
            pieces += sorted(form([key, row]) for key, row in table.items())  # a key's bytes come first, so they decide
    if ledger:
        pieces.append(form(["run.ledger", len(ledger)]))
        pieces += [form([key, row]) for key, row in ledger.items()]
    return hashlib.sha256(b"".join(pieces)).hexdigest()
