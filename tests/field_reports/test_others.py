"""What users of other event stores and agent runtimes reported (the X rows of ``rows_k_z_x_e.py``): snapshots that
count twice, conflicts that are swallowed, locks that are held too long. None of it can happen here."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import engine.checkpoint
import engine.run
from engine.checkpoint import CheckpointPolicy
from engine.core.catalog import EventType, Upcast
from engine.core.errors import Conflict, EngineError, InvalidValue, LimitExceeded, NotFound, Refused
from engine.core.fields import ID, JSON, U64, Field
from engine.core.limits import CONTAINER_ENTRIES_MAX, EVENT_BYTES_MAX, TEXT_BYTES_MAX
from engine.core.model import Model
from engine.open_store import Store, open_store
from tests.engine.kit import Ticks, fill, toy_store
from tests.field_reports.at_once import Gate, processes, threads
from tests.field_reports.surface import readers
from tests.field_reports.whole_run import live
from tests.toy import CLOSED, OPENED, PAID, WROTE, BankProjection, Open, Pay, Write

# -- gaps and snapshots -----------------------------------------------------------------------------------------------


def test_gaps_between_runs_stall_no_reader(file_store: Store) -> None:
    """X2: runs that were deleted leave holes in the numbers of the rows, at the start, in the middle and at the end;
    whoever reads goes past them, and nothing that comes after is missed."""
    with file_store.readmodel() as model:
        for number in range(9):
            file_store.run(f"run-{number}").tasks.open_root("root")
        model.update()
        for number in (0, 4, 8):
            file_store.delete(f"run-{number}")
        for number in range(9, 12):
            file_store.run(f"run-{number}").tasks.open_root("root")
            model.update()
        expected = sorted(f"run-{number}" for number in range(12) if number not in (0, 4, 8))
        assert [line.run for line in file_store.runs()] == expected
        assert sorted(row["run"] for row in model.find("runs")) == expected
        assert len(model.find("events")) == len(expected)


@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_a_snapshot_is_of_a_committed_position_and_nothing_counts_twice(toy: Store, every: int) -> None:
    """X5: whatever the spacing of checkpoints, with batches, refusals and conflicts in between, each is at a position
    that was committed, and a restore adds every payment up once."""
    policy = CheckpointPolicy(every_events=every)
    store = Store(toy._backend, toy.model, toy._clock, policy)
    run = store.run("r")
    run.submit(Open(account="a"))
    total = 0
    for amount in range(20, 40):
        with run.batch():
            run.submit(Pay(account="a", amount=amount))
            run.submit(Pay(account="a", amount=1))
        total += amount + 1
        with pytest.raises(Refused), run.batch():
            run.submit(Pay(account="a", amount=500))
            run.submit(Pay(account="a", amount=13))
        if amount % 5 == 0:
            other = toy.run("r")
            other.submit(Pay(account="a", amount=7))
            total += 7
            with pytest.raises(Conflict):
                run.submit(Pay(account="a", amount=900))
            run.refresh()
        assert store.view("r").ask(lambda state: state.parts["bank"].total) == total
    ends = {commit.last for commit in store.journal.commits("r")}
    positions = list(store.checkpoints.positions("r"))
    assert positions and set(positions) <= ends
    for position in positions:
        restored = store.run("r", start=position)
        assert restored.ask(lambda state: state.parts["bank"].total) == total and restored.digest() == run.digest()


def test_what_is_older_than_the_snapshot_survives_what_comes_later(toy: Store) -> None:
    """X6: fields that were set before a checkpoint and records that nobody touched since are there after later events,
    later checkpoints of what changed, and a restore."""
    run = toy.run("r")
    for name in "abc":
        run.submit(Open(account=name, note={"of": name}))
        run.submit(Write(account=name, letter=[name]))
    run.checkpoint(full=True)
    for round_number in range(5):
        run.submit(Pay(account="a", amount=round_number))
        assert run.checkpoint() is not None
    restored = toy.run("r")
    assert restored.restored.used == run.position
    bank = restored.ask(lambda state: {name: row.dump() for name, row in state.parts["bank"].accounts.rows.items()})
    assert bank == {"a": [10, 1, {"of": "a"}], "b": [0, 1, {"of": "b"}], "c": [0, 1, {"of": "c"}]}
    assert restored.state_bytes() == toy.view("r", start="genesis").state_bytes()


# -- conflicts --------------------------------------------------------------------------------------------------------


def test_a_conflict_is_surfaced_and_loses_no_pending_command(toy: Store) -> None:
    """X8, X9: on every backend the loser, of one command or of a batch, is told; nothing is retried behind its back,
    nothing of it is written, and the very same commands, given again after a refresh, are all there."""
    ours, theirs = toy.run("r"), toy.run("r")
    ours.submit(Open(account="a"))
    theirs.refresh()

    def batch() -> None:
        with ours.batch():
            ours.submit(Pay(account="a", amount=1), command_id="one")
            ours.submit(Pay(account="a", amount=2), command_id="two")

    gives: list[Callable[[], Any]] = [batch, lambda: ours.submit(Pay(account="a", amount=3), command_id="three")]
    for give in gives:
        theirs.submit(Pay(account="a", amount=100))
        before = (ours.position, ours.state_bytes(), list(toy.export_lines("r")))
        with pytest.raises(Conflict) as caught:
            give()
        assert caught.value.retryable
        assert (ours.position, ours.state_bytes(), list(toy.export_lines("r"))) == before
        ours.refresh()
        give()
        theirs.refresh()
    assert [event.data["amount"] for event in toy.history("r", types=["account.paid"])] == [100, 1, 2, 100, 3]


def test_stores_in_memory_share_nothing() -> None:
    """X11: a store in memory is objects of its own: two of them share no run and no lock, and no code opens a database
    in memory that connections share."""
    one, other = open_store("memory:"), open_store("memory:")
    one.run("r").tasks.open_root("root")
    assert list(other.runs()) == []
    with one.readmodel() as model, other.readmodel() as second:
        assert len(model.find("runs")) == 1 and second.find("runs") == []
    source = Path(engine.run.__file__).parent
    assert not [file for file in source.rglob("*.py") if "cache=shared" in file.read_text()]


def test_of_forks_that_collide_one_is_made(tmp_path: Path) -> None:
    """X15: a fork or an import under a name that is there, live or kept out of sight for its forks, is refused and
    merges nothing; of several at one moment one is made."""
    for store in (toy_store("memory:"), toy_store(tmp_path / "refold.db")):
        fill(store.run("r"))
        store.run("other").submit(Open(account="other"))
        store.fork("r", "fork", at=5)
        lines = list(store.export_lines("other"))
        kept = {name: list(store.export_lines(name)) for name in ("r", "other", "fork")}
        for taken in ("r", "other", "fork"):
            with pytest.raises(Conflict):
                store.fork("r", taken, at=4)
        for taken in ("r", "fork"):
            with pytest.raises(EngineError):
                store.import_lines(lines, run_id=taken)
        assert {name: list(store.export_lines(name)) for name in kept} == kept
        store.delete("r")
        with pytest.raises(Conflict):
            store.fork("other", "r", at=1)
        with pytest.raises(Conflict):
            store.run("r")

        def branch(number: int, gate: Gate, store: Store = store) -> int:
            mine = store if store.url == "memory:" else toy_store(store.url)
            gate.wait()
            try:
                return mine.fork("fork", "branch", at=number + 1).position
            except Conflict:
                return 0

        made = (threads if store.url == "memory:" else processes)(4, branch)
        assert sorted(made)[:3] == [0, 0, 0] and store.view("branch").position == max(made)
        assert store.verify("branch").ok


# -- locks ------------------------------------------------------------------------------------------------------------


def test_nothing_is_encoded_while_the_lock_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X18: while a commit, or a checkpoint, is being encoded, however long that takes, another writer commits; what
    runs under the lock is inserting bytes."""
    path = tmp_path / "refold.db"
    seal, capture = engine.run.seal_commit, engine.checkpoint.capture
    with toy_store(path) as store, toy_store(path) as second:
        others = second.run("other")
        others.submit(Open(account="a"))
        during: list[int] = []

        def while_encoding(work: Callable[..., Any]) -> Callable[..., Any]:
            def slow(*args: Any, **kwargs: Any) -> Any:
                monkeypatch.undo()  # the other writer encodes as usual
                during.append(others.submit(Pay(account="a", amount=1)).position)
                return work(*args, **kwargs)

            return slow

        run = store.run("r")
        monkeypatch.setattr(engine.run, "seal_commit", while_encoding(seal))
        run.submit(Open(account="a", note=["x" * 1000] * 1000))
        monkeypatch.setattr(engine.checkpoint, "capture", while_encoding(capture))
        assert run.checkpoint() is not None
        assert during == [2, 3]
        statements: list[str] = []
        assert store._backend._datastore._writer is not None  # type: ignore[attr-defined]
        store._backend._datastore._writer.set_trace_callback(statements.append)  # type: ignore[attr-defined]
        run.submit(Pay(account="a", amount=1))
        assert [text.split()[0] for text in statements] == ["BEGIN", "INSERT", "UPDATE", "COMMIT"]


def test_every_connection_waits_and_none_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X24: every connection that is opened while stores and read models are written, read and verified is in
    write-ahead mode, waits for a lock, and not without end."""
    opened: list[sqlite3.Connection] = []
    waits: list[int] = []
    connect = sqlite3.connect

    def noted(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        opened.append(connect(*args, **kwargs))
        waits.append(opened[-1].execute("PRAGMA busy_timeout").fetchone()[0])
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    path = tmp_path / "refold.db"
    with open_store(path, clock=Ticks()) as store, open_store(path, read_only=True) as reader:
        for _ in live(store.run("r")):
            pass
        store.run("r").checkpoint()
        with store.readmodel() as model:
            model.update()
            model.find("runs")
            for read in readers(20).values():
                read(reader)
            assert len(opened) >= 4
            assert all(0 < waiting <= 60_000 for waiting in waits)
            for connection in opened:
                with suppress(sqlite3.ProgrammingError):  # it is closed already
                    assert connection.execute("PRAGMA journal_mode").fetchone()[0] in ("wal", b"wal")


# -- times, events of other names, payloads ---------------------------------------------------------------------------


def test_equal_times_are_not_stale(toy: Store) -> None:
    """X20: any number of commands of several handles at the very same millisecond are taken, in the order they came,
    and that time means the last of them."""
    ours, theirs = toy.run("r"), toy.run("r")
    for number in range(10):
        writer = (ours, theirs)[number % 2]
        writer.refresh()
        assert writer.submit(Open(account=f"a{number}"), at_ms=77).position == number + 1
    ours.refresh()
    assert [event.data["account"] for event in toy.history("r")] == [f"a{number}" for number in range(10)]
    assert ours.at(time_ms=77).position == 10 and ours.at(time_ms=76).position == 0


NOTED = EventType("account.noted", (Field("account", ID), Field("text", JSON)), number=1009)


class Renamed(BankProjection):
    """The toy as a later release: payments are called transfers, and letters are superseded by notes."""

    events = (
        OPENED,
        EventType("account.transferred", (Field("account", ID), Field("amount", U64), Field("note", JSON)), version=2,
                  number=PAID.number),
        CLOSED,
        WROTE,
        NOTED,
    )  # fmt: skip
    upcasts = tuple(Upcast(EventType("account.transferred", step.old.fields, number=step.old.number), step.lift)
                    for step in BankProjection.upcasts)  # fmt: skip
    evolve = {  # noqa: RUF012
        **{name: act for name, act in BankProjection.evolve.items() if name != "account.paid"},
        "account.transferred": BankProjection.evolve["account.paid"],
        "account.noted": lambda state, wire, seq: None,
    }


def test_events_can_be_renamed_and_superseded(tmp_path: Path) -> None:
    """X14: an event is stored by its number, so a later release may call it otherwise, and may record another in its
    place: the old journal reads under the new name, to the same state, its bytes untouched; the old release names what
    it does not know."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        fill(store.run("r"))
        digest, lines = store.view("r").digest(), list(store.export_lines("r"))
    with toy_store(path, model=Model((Renamed(),))) as store:
        run = store.run("r")
        assert run.digest() == digest
        assert {event.type for event in store.history("r", types=["account.transferred"])} == {"account.transferred/2"}
        assert store.verify("r").ok
        run.ingest([("account.transferred", {"account": "a", "amount": 5, "note": None})])
    with toy_store(path) as store:
        assert list(store.export_lines("r"))[: len(lines) - 1] == lines[:-1]
        assert next(store.history("r", newest_first=True)).type == "account.paid/2"
    with toy_store(path, model=Model((Renamed(),))) as store:
        store.run("r").ingest([("account.noted", {"account": "a", "text": "instead of a letter"})])
    with toy_store(path) as store, pytest.raises(EngineError) as caught:
        store.run("r")
    assert caught.value.code == "schema_error" and str(NOTED.tag) in str(caught.value)


def test_definitions_are_in_the_run_and_not_beside_it(store: Store) -> None:
    """X23: what actions there are is recorded when it is set: whatever becomes of the object it was given in, of later
    definitions, or of another process, each position has its own."""
    run = store.run("r")
    run.swarm.start(1)
    config: dict[str, Any] = {
        "actions": {
            "Grep": {
                "name": "Grep", "description": "search", "category": "node_expand", "groups": [], "params": [],
                "example": None,
            },
        },
        "groups": {},
    }  # fmt: skip
    first = run.swarm.configure_actions(config).position
    shown = run.swarm.context().to_record()["available_actions"]
    config["actions"]["Grep"]["description"] = "changed behind its back"
    second = run.swarm.configure_actions({"actions": {}, "groups": {}}).position
    for at, wanted in ((first, shown), (second, {"actions": {}, "groups": {}})):
        for view in (run.at(at), store.view("r", at=at, start="genesis")):
            assert view.swarm.context().to_record()["available_actions"] == wanted


OVERSIZE: dict[str, Callable[[], Any]] = {
    "a text": lambda: "x" * (TEXT_BYTES_MAX + 1),
    "a list": lambda: [0] * (CONTAINER_ENTRIES_MAX + 1),
    "an event": lambda: ["x" * (TEXT_BYTES_MAX - 10)] * (EVENT_BYTES_MAX // TEXT_BYTES_MAX + 1),
}


@pytest.mark.parametrize("kind", OVERSIZE)
def test_what_is_too_large_is_refused_before_anything_is_written(
    store: Store, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X23: a value over its limit is refused by the limit or the field, before the store is asked for anything, and the
    run goes on."""
    run = store.run("r")
    run.swarm.start(1)
    before = run.state_bytes()

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the store was asked")

    with monkeypatch.context() as patched:
        patched.setattr(store.journal, "append", never)
        with pytest.raises((InvalidValue, LimitExceeded)) as caught:
            run.swarm.set_metadata("k", OVERSIZE[kind]())
    assert "value" in str(caught.value) or "EVENT_BYTES_MAX" in str(caught.value)
    assert run.state_bytes() == before
    assert run.swarm.set_metadata("k", "small").changed


def test_whatever_is_not_there_is_not_found(store: Store) -> None:
    """X8, X9: the backends agree also on what there is not: the same error for the same question."""
    for ask in (lambda: store.view("r"), lambda: store.delete("r"), lambda: store.fork("r", "s", at=0)):
        with pytest.raises(NotFound):
            ask()
    assert list(store.runs()) == []
