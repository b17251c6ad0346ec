"""What users of the eventsourcing library reported (the E rows of ``rows_k_z_x_e.py``): snapshots that change
types, caches that hide a broken path, integrity code that nobody calls. None of it can happen here."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import pytest

import engine.core.envelope
from engine.core.catalog import EventType
from engine.core.codec import encode
from engine.core.decider import Decision
from engine.core.errors import EngineError, InvalidValue, NotAStore, Refused, SchemaError
from engine.core.fields import ID, Field
from engine.core.limits import ID_BYTES_MAX
from engine.core.model import Model
from engine.documents import document
from engine.open_store import Store, open_store
from projections.tasks import PROJECTION as TASKS
from tests.engine.kit import NEVER, Ticks, fill, raw, toy_store
from tests.field_reports.whole_run import STEPS, live
from tests.field_reports.whole_run import TASKS as TASK_STEPS
from tests.toy import BANK, BankProjection, Close, Open, Pay, Write

# -- snapshots and caches ---------------------------------------------------------------------------------------------


def attributes(view: Any) -> Any:
    """Every attribute of every record of every table, with its type, whatever the record's own dump says."""

    def typed(value: Any) -> Any:
        if isinstance(value, dict):
            return dict, [(typed(key), typed(inner)) for key, inner in value.items()]
        if isinstance(value, list | tuple):
            return type(value), [*map(typed, value)]
        if isinstance(value, set | frozenset):
            return type(value), sorted(map(repr, value))
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        if slots and not isinstance(value, int | str | bytes | float):
            return type(value), [(name, typed(getattr(value, name, None))) for name in slots]
        return type(value), value

    def question(state: Any) -> Any:
        return {name: [(typed(key), typed(row)) for key, row in t.rows.items()] for name, t in state.tables.items()}

    return view.ask(question)


def test_a_restore_has_the_types_of_the_fold(lines: list[str]) -> None:
    """E2, E3: each attribute of each record, restored from a checkpoint at any of many positions, has the value and the
    very type that folding the events gives it, and the records shown are equal."""
    store = open_store("memory:", checkpoints=NEVER, clock=Ticks())
    store.import_lines(lines)
    compared = 0
    for position in range(1, store.view("r").position + 1, 7):
        fork = store.fork("r", f"fork-{position}", at=position)
        assert fork.checkpoint(full=True) is not None
        restored = store.view(fork.id)
        folded = store.view(fork.id, start="genesis")
        assert restored.report.used == position and folded.report.used == "genesis"
        assert attributes(restored) == attributes(folded)
        assert document(restored) == document(folded)
        compared += 1
    assert compared > 15


@pytest.mark.parametrize("handles", ["one", "a new one each time", "two in turn"])
def test_no_cache_is_needed_and_none_is_in_the_way(store: Store, handles: str) -> None:
    """E8: a run that is driven by one handle that knows everything, by a handle that is restored for every command, and
    by two handles of which each finds what the other did, comes to the same bytes and the same history."""
    kept = [store.run("r"), store.run("r")]
    for number, step in enumerate(STEPS):
        run = kept[0] if handles == "one" else kept[number % 2] if handles == "two in turn" else store.run("r")
        run.refresh()
        run._clock = lambda number=number: number + 1
        step(run)
    undisturbed = open_store("memory:").run("r")
    for number, step in enumerate(STEPS):
        undisturbed._clock = lambda number=number: number + 1
        step(undisturbed)
    assert store.view("r").state_bytes() == undisturbed.state_bytes()
    assert [event.to_json() for event in store.history("r")] == [event.to_json() for event in undisturbed.history()]


def test_a_checkpoint_of_other_code_is_not_used(tmp_path: Path) -> None:
    """E20: checkpoints carry what they were made by: under another version of the state, or other events, they are
    passed over with the reason, and the state is folded anew by the code that is there."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        fill(store.run("r"))
        store.run("r").checkpoint()

    class Doubling(BankProjection):
        state_version = 2
        evolve: ClassVar[dict[str, Any]] = {
            **BankProjection.evolve,
            "account.paid": lambda s, w, q: BankProjection.evolve["account.paid"](s, [*w[:3], 2 * w[3], w[4]], q),
        }

    with toy_store(path, model=Model((Doubling(),))) as store:
        run = store.run("r")
        assert run.restored.used == "genesis" and run.restored.rejected
        assert run.ask(lambda state: state.parts["bank"].total) == 2 * (5 + 9 + 7)
        run.checkpoint()
    with toy_store(path) as store:
        assert store.run("r").ask(lambda state: state.parts["bank"].total) == 5 + 9 + 7


# -- projections of other shapes --------------------------------------------------------------------------------------

TIPPED = EventType("account.tipped", (Field("account", ID),), number=1010)


class Inherited(BankProjection):
    """A projection that inherits its events, and adds one."""

    events = (*BankProjection.events, TIPPED)
    evolve: ClassVar[dict[str, Any]] = {
        **BankProjection.evolve,
        "account.tipped": lambda s, w, q: BankProjection.evolve["account.paid"](s, [0, 0, w[2], 1, None], q),
    }

    def decide(self, state: Any, command: Any, moment: Any) -> Any:
        if isinstance(command, Tip):
            decision = Decision()
            decision.emit(TIPPED, command.account)
            return decision.events
        return super().decide(state, command, moment)


class Tip(Pay):
    """A command that inherits its fields."""

    name: ClassVar[str] = "tip"
    amount: int = 1


def test_inherited_events_and_commands_replay(tmp_path: Path) -> None:
    """E5: a projection that inherits its events from another, and a command that inherits from another, fold live what
    they fold on replay, on a journal that the parent began."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        fill(store.run("r"))
    with toy_store(path, model=Model((Inherited(),))) as store:
        run = store.run("r")
        run.submit(Tip(account="a"))
        run.submit(Pay(account="a", amount=2))
        assert run.ask(lambda state: state.parts["bank"].total) == 5 + 9 + 7 + 1 + 2
        run.checkpoint()
        assert run.digest() == store.view("r").digest() == store.view("r", start="genesis").digest()
        assert store.verify("r").ok


def test_a_projection_that_is_added_later_is_the_one_that_was_there(tmp_path: Path) -> None:
    """E23: a run that was written when there were only tasks, opened when there are conversations, graphs and a swarm,
    and a read model that is made when the run is long, are those of a run that had them from the start."""
    path = tmp_path / "refold.db"
    with open_store(path, model=Model((TASKS,)), clock=Ticks()) as store:
        early = store.run("r")
        full = open_store("memory:", clock=Ticks())
        live_run = full.run("r")
        with full.readmodel() as along:
            for number, step in enumerate(TASK_STEPS):
                for run in (early, live_run):
                    run._clock = lambda number=number: number + 1
                    step(run)  # type: ignore[arg-type]
                along.update()
            followed = along.find("tasks")
        early.checkpoint()
    with open_store(path) as store:
        run = store.run("r")
        assert run.state_bytes() == live_run.state_bytes()
        with store.readmodel() as later:
            assert later.find("tasks") == followed
        run.contexts.create("c")
        assert store.view("r").contexts.ids() == ["c"]


@pytest.mark.parametrize("given", [None, 5, "text", [None], [[]], [{"a": 1}]], ids=repr)
def test_a_projection_that_forgets_to_return_is_an_error(toy: Store, given: Any) -> None:
    """E27: a decide that returns nothing, or no events, is an error to whoever gave the command, never a command that
    silently did nothing; the run is as before and goes on."""

    class Forgetful(BankProjection):
        def decide(self, state: Any, command: Any, moment: Any) -> Any:
            return given if isinstance(command, Write) else super().decide(state, command, moment)

    store = Store(toy._backend, Model((Forgetful(),)), toy._clock)
    run = store.run("r")
    run.submit(Open(account="a"))
    before = run.state_bytes()
    with pytest.raises((TypeError, IndexError, KeyError, AttributeError, ValueError, EngineError)):
        run.submit(Write(account="a", letter=1))
    assert run.state_bytes() == before and store.view("r").position == 1
    assert run.submit(Pay(account="a", amount=1)).position == 2
    assert store.verify("r").ok


def test_a_command_from_within_a_command_is_refused(toy: Store) -> None:
    """E11: a projection that appends to its run, or reads it, while it decides or folds is refused with a clear error;
    nothing is half there and the chain is whole."""
    reached: list[str] = []

    class Reentrant(BankProjection):
        evolve: ClassVar[dict[str, Any]] = {**BankProjection.evolve}

        def decide(self, state: Any, command: Any, moment: Any) -> Any:
            if isinstance(command, Write):
                reached.append("decide")
                run.submit(Open(account="inner"))
            return super().decide(state, command, moment)

    def folding(state: Any, wire: Any, seq: int) -> None:
        reached.append("fold")
        run.submit(Open(account="inner"))

    Reentrant.evolve["account.closed"] = folding
    store = Store(toy._backend, Model((Reentrant(),)), toy._clock)
    run = store.run("r")
    run.submit(Open(account="a"))
    before = run.state_bytes()
    for command in (Write(account="a", letter=1), Close(account="a")):
        with pytest.raises(Refused, match="while it decides or folds"):
            run.submit(command)
        with pytest.raises(Refused), run.batch():
            run.submit(command)
        assert run.state_bytes() == before and store.view("r").position == 1
    assert set(reached) == {"decide", "fold"}
    assert run.submit(Pay(account="a", amount=1)).position == 2 and store.verify("r").ok


# -- ids --------------------------------------------------------------------------------------------------------------

IDS = [
    "0",
    str(uuid.UUID(int=7)),
    "ü/☃",
    "a b",
    "x" * ID_BYTES_MAX,
    "é" * (ID_BYTES_MAX // 2),
    "e\u0301",
    "../..",
    "null",
]
NO_IDS = [uuid.UUID(int=7), 7, None, b"x", "", " ", "a\nb", "x" * (ID_BYTES_MAX + 1), "é" * 129, "\ud800", ("a",)]


def test_ids_are_texts_of_any_kind(store: Store) -> None:
    """E6: text of any script up to 256 bytes is an id of a run, a task, a command and an actor, through every verb and
    not changed by it; a UUID object, a number, bytes, nothing, or more than that is refused by its name."""
    for name in IDS:
        run = store.run(name, actor=name)
        assert run.tasks.open_root(name, command_id=name).changed
        run.checkpoint()
        assert store.view(name).tasks.get(name).task_id == name == next(store.history(name, actor=name)).command_id
        assert store.verify(name).ok
        copy = store.fork(name, name[:-1] + "!" if len(name) > 1 else "!", at=1)
        assert copy.tasks.get(name).task_id == name
        assert store.import_lines(list(store.export_lines(name))) == (name, 1)
    assert {line.run for line in store.runs()} >= set(IDS)
    for name in IDS:
        store.delete(name)
    run = store.run("r")
    for wrong in NO_IDS:
        given: Any = wrong
        for ask in (
            lambda given=given: store.run(given),
            lambda given=given: store.view(given),
            lambda given=given: run.tasks.open_root(given),
            *((lambda given=given: run.tasks.open_root("t", command_id=given),) if wrong is not None else ()),
        ):
            with pytest.raises(InvalidValue) as caught:
                ask()
            assert caught.value.path
    assert run.position == 0


# -- integrity --------------------------------------------------------------------------------------------------------


def test_the_integrity_code_is_what_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E9: the check of the chain is called for every commit by everything that reads events: with a hash that is not
    the one the journal was written with, every reader says that it is damaged; a reader that did not check would not
    notice."""
    path = tmp_path / "refold.db"
    with toy_store(path, clock=Ticks()) as store:
        fill(store.run("r"))
    wrong = lambda data=b"": sha256(b"another" + data)  # noqa: E731
    hashed: list[int] = []

    def counting(data: bytes = b"") -> Any:
        hashed.append(len(data))
        return sha256(data)

    reads: dict[str, Callable[[Store], Any]] = {
        "view": lambda s: s.view("r"),
        "view at": lambda s: s.view("r", at=6),
        "run": lambda s: s.run("r"),
        "history": lambda s: list(s.history("r")),
        "history backwards": lambda s: list(s.history("r", newest_first=True)),
        "export": lambda s: list(s.export_lines("r")),
        "fork": lambda s: s.fork("r", "forked", at=6),
    }
    with toy_store(path) as store:
        commits = len(list(store.journal.commits("r")))
        for name, read in reads.items():
            with monkeypatch.context() as patched:
                patched.setattr(engine.core.envelope, "sha256", wrong)
                with pytest.raises(EngineError) as caught:
                    read(store)
                assert caught.value.code == "corrupt_journal", name
            with monkeypatch.context() as patched:
                patched.setattr(engine.core.envelope, "sha256", counting)
                hashed.clear()
                read(store)
                assert len(hashed) >= (1 if name == "fork" else commits - 4), name
        with monkeypatch.context() as patched:
            patched.setattr(engine.core.envelope, "sha256", wrong)
            assert not store.verify("r").ok
        assert store.verify("r").ok


def test_every_bit_of_every_record_counts(tmp_path: Path) -> None:
    """E12: any byte of any stored commit or head, with any one bit of it flipped, is found by verify."""
    path = tmp_path / "refold.db"
    with toy_store(path, clock=Ticks()) as store:
        fill(store.run("r"))
    with closing(sqlite3.connect(path)) as behind, toy_store(path) as store:
        places = [("stored_events", "state", row) for (row,) in behind.execute("SELECT rowid FROM stored_events")]
        places.append(("run_heads", "link", None))
        flipped = 0
        for table, column, row in places:
            where = "" if row is None else f" WHERE rowid={row}"
            (value,) = behind.execute(f"SELECT {column} FROM {table}{where}").fetchone()
            for place in range(len(value)):
                damaged = bytearray(value)
                damaged[place] ^= 1 << (place % 8)
                behind.execute(f"UPDATE {table} SET {column}=?{where}", (bytes(damaged),))
                behind.commit()
                assert not store.verify("r").ok, (table, row, place)
                flipped += 1
            behind.execute(f"UPDATE {table} SET {column}=?{where}", (value,))
            behind.commit()
        assert flipped > 600 and store.verify("r").ok


# -- readers of another's store ---------------------------------------------------------------------------------------


def test_a_reader_of_another_log_gets_typed_events_or_refuses(tmp_path: Path) -> None:
    """E18: a store of one model, read with another: events that it knows come typed, as its own; those that it does not
    are named, never given as bare values; a read model is only followed into its own kind of file."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        fill(store.run("r"))
    with open_store(path) as store:
        for read in (
            lambda: store.run("r"),
            lambda: store.view("r"),
            lambda: list(store.history("r")),
            lambda: list(store.export_lines("r")),
        ):
            with pytest.raises(SchemaError, match="unknown event"):
                read()
        with pytest.raises(NotAStore):
            store.readmodel(path)
    with toy_store(path, model=Model((*BANK.projections, TASKS))) as store:
        assert [event.data["account"] for event in store.history("r", types=["account.opened"])] == ["a", "b", "c"]
        assert store.run("r").ask(lambda state: state.parts["bank"].total) == 5 + 9 + 7


def test_two_stores_in_two_files_are_two(tmp_path: Path) -> None:
    """E24: stores that lie side by side, or are attached to one connection, share no run. (Schemas of one database come
    with PostgreSQL.)"""
    one, other = toy_store(tmp_path / "one.db"), toy_store(tmp_path / "other.db")
    fill(one.run("r"))
    assert list(other.runs()) == []
    other.run("r").submit(Open(account="other"))
    assert one.view("r").position == 11 and other.view("r").position == 1
    with closing(sqlite3.connect(tmp_path / "one.db")) as connection:
        connection.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
        for name, count in (("main", 9), ("other", 1)):
            assert connection.execute(f"SELECT count(*) FROM {name}.stored_events").fetchone() == (count,)


def test_numbers_of_rows_are_never_used_again(tmp_path: Path) -> None:
    """E29: rows are numbered on after the last run is deleted, after VACUUM and after a new opening; positions of a run
    are its own, and a run that is made anew has another chain."""
    path = tmp_path / "refold.db"
    seen: set[int] = set()

    def numbers() -> set[int]:
        with raw(path) as connection:
            return {row for (row,) in connection.execute("SELECT rowid FROM stored_events WHERE originator_id<>''")}

    for number in range(4):
        with toy_store(path) as store:
            run = store.run("r")
            for account in "abc":
                run.submit(Open(account=account, note=number))
            assert not numbers() & seen
            seen |= numbers()
            store.delete("r")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM")
    assert len(seen) == 12 and max(seen) >= 12


def test_what_is_read_back_is_stored_the_same(whole: Store) -> None:
    """E2: what an event is stored as is what it is encoded as again: reading changes no type on the way."""
    for commit in whole.journal.commits("r"):
        for group in commit.groups:
            for wire in group[-1]:
                kind = whole.model.catalog.type_of(wire)
                assert encode(kind.check(kind.data(wire))[2:]) == encode(wire[2:]), kind.label


def test_a_read_model_with_a_backlog_takes_it_in_once(file_store: Store, tmp_path: Path) -> None:
    """E17: a read model that is left behind, dropped in the middle of taking its backlog in and opened again, has every
    event once, whatever number of times it begins."""
    with file_store.readmodel():
        pass
    for _ in live(file_store.run("r")):
        pass
    position = file_store.run("r").position

    class Stop(Exception):
        pass

    def stop(*_: Any) -> None:
        raise Stop

    for _ in range(3):
        with suppress(Stop):
            file_store.readmodel(progress=stop).close()
    with file_store.readmodel() as model:
        seqs = [row["seq"] for row in model.find("events", limit=100_000)]
        assert sorted(seqs) == list(range(1, position + 1))
