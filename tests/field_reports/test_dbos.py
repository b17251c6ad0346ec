"""What users of DBOS reported (rows D4 to D35 of ``rows.py``): purges cut short, records that hide others, silent
failures, units that differ, two recoverers at once. None of it can happen here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import (
    BackendUnavailable,
    CommandMismatch,
    Conflict,
    CorruptJournal,
    EngineError,
    ImportRefused,
    LimitExceeded,
    NotFound,
    Refused,
    SchemaError,
)
from engine.core.limits import EVENT_BYTES_MAX
from engine.core.model import Model
from engine.open_store import Store, open_store
from engine.prune import list_checkpoints
from projections.contexts import UserMsg
from projections.graph import TaskNode
from projections.graph.values import FailCause
from projections.tasks import PROJECTION as TASKS
from projections.tasks.transitions import TERMINATIONS
from tests.engine.kit import NEVER, Ticks, fill, raw, stored_rows, toy_store
from tests.field_reports.anything import Anything, samples
from tests.field_reports.at_once import Gate, processes, threads
from tests.field_reports.surface import readers
from tests.field_reports.whole_run import live
from tests.toy import OPENED, BankProjection, Open, Pay, Write

# -- purges, retries, repeats -----------------------------------------------------------------------------------------


def killed_at_statement(path: Path, number: int, work: Callable[[Store], Any]) -> bool:
    """Do work on a store in a process that dies as it begins its ``number``-th writing statement; return whether it
    did."""
    child = os.fork()
    if child == 0:  # pragma: no cover  # another process
        store = toy_store(path)
        store.run("warm").submit(Open(account=str(number)))  # the writer's connection is there from now on
        left = [number]

        def trace(_: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                os._exit(9)

        store._backend._datastore._writer.set_trace_callback(trace)  # type: ignore[attr-defined]
        work(store)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_purge_killed_at_any_statement_leaves_nothing_for_the_next_of_that_name(tmp_path: Path) -> None:
    """D4: a delete killed at each of its statements leaves the run whole or gone; the run that then takes the name
    sees no event, no state and no checkpoint of the old one."""
    template = tmp_path / "template.db"
    with toy_store(template, clock=Ticks()) as store:
        run = store.run("r")
        for number in range(4):
            run.submit(Open(account=f"old-{number}"), command_id=f"command-{number}")
            run.checkpoint()
        digest = run.digest()
    with toy_store("memory:") as store:
        fresh = store.run("r")
        for number in range(6):
            fresh.submit(Open(account=f"new-{number}"), command_id=f"command-{number}")
    number, killed = 0, True
    while killed:
        number += 1
        path = tmp_path / f"{number}.db"
        shutil.copyfile(template, path)
        killed = killed_at_statement(path, number, lambda store: store.delete("r"))
        with toy_store(path) as store:
            if any(line.run == "r" for line in store.runs()):
                assert store.view("r").digest() == digest == store.view("r", start="genesis").digest()
                assert store.verify("r").ok
                store.delete("r")
            run = store.run("r")
            assert run.position == 0
            for step in range(6):
                assert not run.submit(Open(account=f"new-{step}"), command_id=f"command-{step}").repeated
                assert store.run("r").digest() == run.digest()
            assert run.digest() == fresh.digest()
            assert {event.data["account"] for event in store.history("r")} == {f"new-{step}" for step in range(6)}
            assert all(store.view("r", at=at).report.used == "genesis" for at in range(7))
    assert number > 5


def test_what_an_attempt_says_is_said_once_however_often_it_is_retried(file_store: Store, tmp_path: Path) -> None:
    """D5: a step that emits under the id of its operation, and not of its attempt, emits once over all its retries,
    also when a crash lies between them."""
    nodes = [TaskNode.new(0, "n", "", failure_strategy="retry", max_retries=3)]
    run = file_store.run("r")
    run.contexts.create("c")
    run.graphs.create("g", "goal", nodes)
    run.graphs.start("g")
    for attempt in range(3):
        with open_store(tmp_path / "refold.db") as store:
            run = store.run("r")
            run.graphs.dispatch("g", 0, f"attempt-{attempt}")
            said = run.contexts.append("c", UserMsg("half-way"), command_id="g/0/half-way")
            assert said.repeated == (attempt > 0)
            run.graphs.fail("g", 0, handle=f"attempt-{attempt}")
    assert file_store.view("r").contexts.message_count("c") == 1


def test_what_is_decided_once_is_decided_once_among_many(tmp_path: Path) -> None:
    """D7, T20, T26: a marker that many writers, processes or threads, want to set under one command id is there once;
    each of them, whether it won, lost or came late, is told the same first outcome, and none waits for ever."""
    path = tmp_path / "refold.db"
    toy_store(path).close()
    memory = toy_store("memory:")

    def mark(store: Store) -> Callable[[int, Gate], Any]:
        def work(number: int, gate: Gate) -> Any:
            opened = store if store is memory else toy_store(path)
            run = opened.run("r")
            gate.wait()
            for _ in range(8):
                try:
                    outcome = run.submit(Open(account="marker"), command_id="patched-1")
                except Conflict:
                    run.refresh()
                else:
                    return outcome.position, [event.to_json() for event in outcome.events]
            return "waited for ever"

        return work

    told = [*processes(5, mark(toy_store(path))), *threads(5, mark(memory))]
    assert [position for position, _ in told] == [1] * 10
    assert all(events == told[0][1] for _, events in told)
    assert toy_store(path).view("r").position == memory.view("r").position == 1


def test_nothing_that_reads_appends(file_store: Store, tmp_path: Path) -> None:
    """D10: no reader, introspection included, writes a byte: not to the journal, nor to the checkpoints; and an event
    larger than an event may be is refused by the limit's name, whatever makes it so large."""
    run = file_store.run("r")
    for _ in live(run):
        pass
    run.checkpoint()

    def files() -> dict[str, bytes]:
        return {tail: Path(f"{tmp_path / 'refold.db'}{tail}").read_bytes() for tail in ("", "-wal")}

    before = files()
    for read in readers(run.position).values():
        read(file_store)
    assert files() == before
    with pytest.raises(LimitExceeded) as caught:
        run.swarm.set_metadata("listing", ["x" * (EVENT_BYTES_MAX // 8)] * 9)
    assert caught.value.details["name"] == "EVENT_BYTES_MAX"
    assert files() == before


@pytest.mark.parametrize("error", [MemoryError("encode"), RuntimeError("encode"), RecursionError("encode")], ids=repr)
def test_a_failed_encoding_is_never_silent(toy: Store, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """D11: when an event cannot be encoded the command raises, state and journal are as before, alone, in a batch and
    among ingested facts, and the next command works."""
    run = toy.run("r")
    fill(run)
    before = run.state_bytes()

    def broken(*_: Any, **__: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("engine.core.envelope.encode", broken)
        patch.setattr("engine.core.envelope.encode_many", broken)
        with pytest.raises(type(error), match="encode"):
            run.submit(Pay(account="a", amount=1), command_id="again")
        with pytest.raises(type(error), match="encode"), run.batch():
            run.submit(Pay(account="a", amount=1))
        with pytest.raises(type(error), match="encode"):
            run.ingest([("account.paid", {"account": "a", "amount": 1})])
    assert run.state_bytes() == before == toy.run("r").state_bytes()
    assert run.submit(Pay(account="a", amount=1), command_id="again").repeated is False


class Careless(BankProjection):
    """Records what nobody checked."""

    def decide(self, state: Any, command: Any, moment: Any) -> Any:
        return [OPENED.wire(command.account, object())]


def test_an_event_that_nobody_could_read_back_is_not_written(tmp_path: Path) -> None:
    """D11: a projection that puts an object into an event is told so by its command, and nothing is stored."""
    with toy_store(tmp_path / "refold.db", model=Model((Careless(),))) as store:
        run = store.run("r")
        with pytest.raises(Exception, match="object"):
            run.submit(Open(account="a"))
        assert run.position == 0 and list(store.runs()) == []


# -- a bare reader ----------------------------------------------------------------------------------------------------


class Bytes:
    """A CBOR reader that knows numbers, texts, bytes, lists and maps, and nothing else; see RFC 8949."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        assert self.at <= len(self.data)
        return self.data[self.at - count : self.at]

    def value(self) -> Any:
        (head,) = self.take(1)
        kind, low = head >> 5, head & 31
        if kind == 7:
            return {20: False, 21: True, 22: None}[low] if low != 27 else struct.unpack(">d", self.take(8))[0]
        assert low < 28, "no endless strings, lists or maps"
        number = low if low < 24 else int.from_bytes(self.take(1 << (low - 24)), "big")
        if kind == 0:
            return number
        if kind == 1:
            return -1 - number
        if kind in (2, 3):
            raw_bytes = self.take(number)
            return raw_bytes if kind == 2 else raw_bytes.decode()
        assert kind in (4, 5), "no tags"
        if kind == 4:
            return [self.value() for _ in range(number)]
        return {self.value(): self.value() for _ in range(number)}


def test_a_log_is_read_by_anybody_without_our_classes(file_store: Store, tmp_path: Path) -> None:
    """D14: sqlite3, hashlib, zlib and forty lines of CBOR read every event of every type, check the chain, and find in
    it what our own history shows; nothing in the file names a Python class."""
    run = file_store.run("r")
    for _ in live(run):
        pass
    link = hashlib.sha256(b"refold run/1\0r").digest()
    seen: list[list[Any]] = []
    for first, stored in stored_rows(tmp_path / "refold.db", "r"):
        body = zlib.decompress(stored[37:], -15) if stored[32:33] == b"\0" else stored[32:]
        link = hashlib.sha256(link + body).digest()
        assert stored[:32] == link and first == len(seen) + 1
        reader = Bytes(body)
        seen += [wire for group in reader.value() for wire in group[5]]
        assert reader.at == len(body)
    history = list(file_store.history("r"))
    numbers = {event_type.number * 16 + event_type.version: event_type for event_type in file_store.model.catalog.types}  # type: ignore[operator]
    assert [numbers[wire[0]].label for wire in seen] == [event.type for event in history]
    assert [wire[2:] for wire in seen] == [list(event.data.values()) for event in history]
    everything = (tmp_path / "refold.db").read_bytes() + (tmp_path / "refold.db-wal").read_bytes()
    assert not any(word in everything for word in (b"projections.", b"engine.", b"builtins", b"__reduce__", b"pickle"))


# -- one bad row ------------------------------------------------------------------------------------------------------

BAD_ROWS = [
    f"UPDATE run_heads SET {change} WHERE run_id='{name}'"
    for name, changes in {
        "b": [
            "run_id=x'ff00'", "run_id=''", "run_id=5", "position='x'", "position=-5", "position=1.5", "link=7",
            "hidden='x'", "hidden=7",
        ],
        "fork": [
            "origin_run=5", "origin_run=NULL", "origin_run='nobody'", "origin_run='fork'", "origin_position='x'",
            "origin_position=NULL", "origin_position=-1", "origin_position=99", "origin_link=NULL", "origin_link='x'",
        ],
    }.items()
    for change in changes
] + [
    "DELETE FROM run_heads WHERE run_id='b'",
    "UPDATE stored_events SET state=x'' WHERE originator_id='b'",
    "UPDATE stored_events SET topic='x' WHERE originator_id='b' AND originator_version=1",
    "UPDATE stored_events SET originator_id=x'ff' WHERE originator_id='b'",
    "DELETE FROM stored_events WHERE originator_id='b' AND originator_version=1",
    "UPDATE stored_checkpoints SET state='x' WHERE originator_id='b'",
    "UPDATE stored_checkpoints SET originator_version=-4 WHERE originator_id='b'",
    "UPDATE stored_checkpoints SET originator_version=400 WHERE originator_id='b'",
]  # fmt: skip


@pytest.mark.parametrize("damage", BAD_ROWS)
def test_one_bad_row_never_hides_the_others(tmp_path: Path, damage: str) -> None:
    """D16: whatever one row of any table holds, the list still shows every other run, each of them can be read, written
    and verified, and the damaged one meets nothing but errors of refold, and a verdict that is not good."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        for name in ("a", "b", "c"):
            fill(store.run(name))
            store.run(name).checkpoint()
        fill(store.fork("a", "fork", at=3))
    with raw(path) as connection:
        assert connection.execute(damage).rowcount
    with toy_store(path) as store:
        listed = [line.run for line in store.runs()]
        assert all(type(name) is str for name in listed)
        victim = "fork" if "'fork'" in damage else "b"
        for name in {"a", "b", "c", "fork"} - {victim}:
            assert name in listed
            assert store.verify(name).ok
            assert store.run(name).submit(Pay(account="a", amount=1)).position > 3
        assert victim in listed
        assert not store.verify(victim).ok
        verbs: list[Callable[[], Any]] = [
            lambda: store.run(victim),
            lambda: store.view(victim),
            lambda: list(store.history(victim)),
            lambda: list(store.history(victim, newest_first=True)),
            lambda: list(store.export_lines(victim)),
            lambda: store.fork(victim, "another", at=1),
            lambda: list_checkpoints(store.journal, store.checkpoints, store.model, victim),
        ]
        for verb in verbs:
            try:
                verb()
            except EngineError as error:
                assert error.hint


def test_statements_of_a_restore_that_fail_once_strand_nothing(tmp_path: Path) -> None:
    """D19: each read of a restore failing once in turn, from a checkpoint and from nothing, of a run and of a fork:
    BackendUnavailable or the right state, and the next try has every task; a live run that was catching up goes on."""
    path = tmp_path / "refold.db"
    with open_store(path, checkpoints=NEVER, clock=Ticks()) as store:
        run = store.run("r")
        for number, _ in enumerate(live(run)):
            if number == 80:
                run.checkpoint()
        store.fork("r", "fork", at=100).tasks.spawn("more", parent="root")
        wanted = {name: (store.view(name).digest(), store.view(name).tasks.live()) for name in ("r", "fork")}
    with open_store(path, checkpoints=NEVER) as store:
        backend: Any = store._backend
        reads = Failing([(backend.commits, ("rows", "head")), (backend.checkpoints, ("read", "positions"))])
        for name, expected in wanted.items():
            for start in ("best", "genesis"):
                failures = 0
                while True:
                    reads.fail_at(failures)
                    try:
                        view = store.view(name, start=start)  # type: ignore[arg-type]
                    except BackendUnavailable as error:
                        assert error.retryable
                        view = store.view(name, start=start)  # type: ignore[arg-type]
                    assert (view.digest(), view.tasks.live()) == expected
                    if reads.left is not None and reads.left >= 0:
                        break  # the restore was over before the read that was to fail
                    failures += 1
                assert failures > 2
        reads.fail_at(10_000)
        behind = store.run("r")
        store.run("r").tasks.grant_capabilities("root", ["more"])
        for number in range(6):
            reads.fail_at(number)
            try:
                behind.refresh()
            except BackendUnavailable:
                continue
            assert behind.tasks.get("root").capability_ids[-1] == "more"
        reads.fail_at(10_000)
        assert behind.digest() == store.view("r", start="genesis").digest()


class Failing:
    """Makes one call of some methods fail as a database does."""

    def __init__(self, targets: list[tuple[Any, tuple[str, ...]]]) -> None:
        self.left: int | None = None
        for target, names in targets:
            for name in names:
                setattr(target, name, self._counted(getattr(target, name)))

    def fail_at(self, number: int) -> None:
        self.left = number

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.left is not None:
                self.left -= 1
                if self.left == -1:
                    raise sqlite3.OperationalError("disk I/O error")
            return method(*args, **kwargs)

        return call


# -- forks, recovery, recorded errors ---------------------------------------------------------------------------------


def test_forks_of_nothing_and_of_everything(toy: Store) -> None:
    """D20: a fork at 0 is an empty run that goes on from 1; one at the head is the whole run; a fork of an empty fork
    works; a run without events cannot be forked, and says so; each verifies."""
    run = toy.run("r")
    fill(run)
    with pytest.raises(NotFound, match="no run 'empty'"):
        toy.fork("empty", "x", at=0)
    empty = toy.fork("r", "at-0", at=0)
    assert (empty.position, list(toy.history("at-0"))) == (0, [])
    again = toy.fork("at-0", "at-0-again", at=0)
    head = toy.fork("r", "at-head", at=run.position)
    assert head.state_bytes() == run.state_bytes()
    for fork, position in ((empty, 1), (again, 1), (head, 12)):
        assert fork.submit(Open(account="new")).position == position
    assert {line.run: line.position for line in toy.runs()} == {"r": 11, "at-0": 1, "at-0-again": 1, "at-head": 12}
    assert all(toy.verify(line.run).ok for line in toy.runs())


class NewerTasks(type(TASKS)):  # type: ignore[misc]
    """The task table after a change of its code."""

    state_version = 99


def test_newer_code_strands_no_work_and_older_code_says_what_it_lacks(tmp_path: Path) -> None:
    """D23: after a deploy the same runs are found under the same names with the same live tasks, checkpoints of the old
    code being passed over with the reason; code that lacks a projection is told which event it cannot read."""
    path = tmp_path / "refold.db"
    with open_store(path, model=Model((TASKS,)), checkpoints=NEVER) as store:
        run = store.run("r")
        run.tasks.open_root("root")
        run.tasks.spawn("left over", parent="root")
        run.checkpoint()
        digest = run.digest()
    with open_store(path, model=Model((NewerTasks(),))) as store:
        view = store.view("r")
        assert [row.task_id for row in view.tasks.live()] == ["root", "left over"]
        assert view.report.rejected == ((2, "written under another schema of the projections"),)
        assert view.digest() == digest
        assert store.run("r").tasks.publish_launch("left over").position == 3
    with toy_store(path, create=False) as store:
        assert [line.run for line in store.runs()] == ["r"]
        with pytest.raises(SchemaError, match="position 1"):
            store.run("r")


@pytest.mark.parametrize("why", get_args(FailCause))
def test_every_cause_of_a_failure_is_on_the_record(store: Store, why: Any) -> None:
    """D25, D26: whatever ended an attempt badly is an event with its cause and words; after a restore it is a fact that
    is shown, not an error that is raised, and nothing is tried again because of it."""
    run = store.run("r")
    nodes = [TaskNode.new(0, "n", "", failure_strategy="ask"), TaskNode.new(1, "m", "", depends_on=[0])]
    run.graphs.create("g", "goal", nodes)
    run.graphs.start("g")
    run.graphs.dispatch("g", 0, "h")
    run.graphs.fail("g", 0, why, "database is locked", handle="h")
    again = store.run("r")
    assert again.position == run.position
    (event,) = again.history(types=["node.failed"])
    assert (event.data["cause"], event.data["error"]) == (why, "database is locked")
    node = again.graphs.node("g", 0)
    assert (node.status, node.cause, node.attempts[0].error) == ("failed", why, "database is locked")
    assert again.graphs.dispatchable("g") == ()
    assert not again.graphs.fail("g", 0, why, "database is locked", handle="h").changed


@pytest.mark.parametrize("termination", TERMINATIONS)
def test_every_end_of_a_task_is_on_the_record(store: Store, termination: str) -> None:
    """D25, D26: every termination, and the failed launch, is recorded and restored as it was, the parent that waited
    goes on with it, and the end given again changes nothing."""
    run = store.run("r")
    run.tasks.open_root("root")
    run.tasks.start("root")
    for name in ("child", "never"):
        run.tasks.spawn(name, parent="root")
    run.tasks.publish_launch("child")
    run.tasks.acknowledge_launch("child", 1)
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["child", "never"])
    run.tasks.fail_launch("never", 1, reason="no host")
    run.tasks.finish("child", termination=termination, attempt=1, result={"final_message": "sqlite3.OperationalError"})
    again = store.run("r")
    assert (again.tasks.get("child").termination, again.tasks.get("never").termination) == (termination, "error")
    assert again.tasks.get("root").lifecycle == "running"
    assert again.tasks.result("child")["final_message"] == "sqlite3.OperationalError"
    ended = {"termination": termination, "attempt": 1, "result": {"final_message": "sqlite3.OperationalError"}}
    assert not again.tasks.finish("child", **ended).changed  # type: ignore[arg-type]


def test_only_errors_of_the_moment_ask_for_another_try(toy: Store) -> None:
    """D26: of all errors only Conflict and BackendUnavailable say that the same call may succeed later; a command that
    was refused is refused again, and what a history records raises nothing when it is read."""

    def family(kind: type[EngineError]) -> set[type[EngineError]]:
        return {kind}.union(*map(family, kind.__subclasses__()))

    ours = {kind for kind in family(EngineError) if kind.__module__ == "engine.core.errors"}
    assert {kind for kind in ours if kind.retryable} == {Conflict, BackendUnavailable}
    run = toy.run("r")
    run.submit(Open(account="a", note={"error": {"code": "conflict", "retryable": True}}))
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            run.submit(Pay(account="a", amount=13), command_id="thirteen")
        assert not caught.value.retryable
    assert [event.type for event in toy.history("r")] == ["account.opened/1"]


# -- time, ids, kinds -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def timed() -> Store:
    """A run whose clock stood still, went back and jumped."""
    times = iter([1_000, 1_000, 999, 1_001, 1_000_000, 1_000_001, 5, 1_000, 999_999, 1_000_000])
    opened = toy_store("memory:", clock=lambda: next(times))
    for number in range(10):
        opened.run("r").submit(Open(account=str(number)))
    return opened


bounds = st.none() | st.integers(0, 1_000_002) | st.sampled_from([5, 999, 1_000, 1_001, 999_999, 1_000_000])


@given(bounds, bounds, st.integers(0, 12), st.none() | st.integers(0, 12), st.booleans())
@settings(max_examples=80)
def test_bounds_of_time_and_position_mean_what_they_say(
    timed: Store, since: int | None, until: int | None, after: int, last: int | None, backwards: bool
) -> None:
    """D28: for any bounds, both ends included, in milliseconds throughout, the filter gives what a list comprehension
    gives; and the state as of a time is that after the last event recorded by then."""
    everything = list(timed.history("r"))
    found = [
        event
        for event in everything
        if (since is None or event.recorded_at_ms >= since)
        and (until is None or event.recorded_at_ms <= until)
        and event.seq > after
        and (last is None or event.seq <= last)
    ]
    given_bounds = {"since_ms": since, "until_ms": until, "after": after, "until": last}
    asked = list(timed.history("r", newest_first=backwards, **given_bounds))  # type: ignore[arg-type]
    assert asked == (found[::-1] if backwards else found)
    if until is not None:
        position = max((event.seq for event in everything if event.recorded_at_ms <= until), default=0)
        assert timed.run("r").at(time_ms=until).position == position


def test_two_recoverers_of_one_task_make_one_history(tmp_path: Path) -> None:
    """D31: processes that restore the same suspended task and consume the same signal: one does, the others are told
    that the position is taken and then that there is nothing to consume; nobody marks anything as failed."""
    path = tmp_path / "refold.db"
    with open_store(path) as store:
        tasks = store.run("r").tasks
        tasks.open_root("root")
        tasks.start("root")
        tasks.suspend("root", wait="signal", awaited="go")

    def recover(number: int, gate: Gate) -> str:
        with open_store(path) as store:
            run = store.run("r")
            gate.wait()
            for _ in range(3):
                try:
                    run.tasks.deliver("root", kind="signal", awaited="go", payload=number)
                    return "consumed"
                except Conflict:
                    run.refresh()
                except Refused:
                    return "nothing to consume"
            return "lost"

    answers = processes(4, recover)
    assert sorted(answers) == ["consumed", *["nothing to consume"] * 3]
    with open_store(path) as store:
        assert [event.type for event in store.history("r")][-1] == "task.wait_ended/1"
        assert store.view("r").position == 4
        assert next(store.history("r", newest_first=True)).data["payload"] == answers.index("consumed")
        assert store.view("r").tasks.get("root").lifecycle == "running"


def test_an_id_is_bound_to_what_it_was_first_used_for(store: Store) -> None:
    """D32: the same id for another kind of thing is refused and the first is untouched: a command id for another
    command, a task, conversation, graph, node handle or swarm that differs from the one of that id."""
    run = store.run("r")
    for _ in live(run):
        pass
    run.tasks.grant_capabilities("root", ["x"], command_id="grant")
    before = run.state_bytes()
    again: list[tuple[Callable[[], Any], type[EngineError]]] = [
        (lambda: run.tasks.revoke_capabilities("root", ["x"], command_id="grant"), CommandMismatch),
        (lambda: run.contexts.touch("c", command_id="grant"), CommandMismatch),
        (lambda: run.tasks.grant_capabilities("root", ["y"], command_id="grant"), CommandMismatch),
        (lambda: run.ingest([("task.capabilities_granted", GRANT)], command_id="grant"), CommandMismatch),
        (lambda: run.tasks.open_root("another root"), Refused),
        (lambda: run.tasks.spawn("root", parent="root"), Refused),
        (lambda: run.tasks.spawn("fetch", parent="root", role="verify"), Refused),
        (lambda: run.contexts.create("c", "conversation"), Refused),
        (lambda: run.graphs.create("g", "another", [TaskNode.new(0, "n", "")]), Refused),
        (lambda: run.swarm.start(7), Refused),
    ]
    for give, kind in again:
        with pytest.raises(kind):
            give()
        assert run.state_bytes() == before == store.run("r").state_bytes()
    assert run.tasks.grant_capabilities("root", ["x"], command_id="grant").repeated


GRANT = {"task_id": "root", "capability_ids": ["x"]}


def test_every_field_of_every_event_survives_export_and_import(whole: Store) -> None:
    """D34: over every event type of the catalogue: exported, imported and exported again, the lines are the same bytes,
    and so are link and state."""
    for run_id in ("r", "taken over"):
        target = open_store("memory:", checkpoints=NEVER)
        out = list(whole.export_lines(run_id))
        target.import_lines(out)
        assert list(target.export_lines(run_id)) == out
        assert target.run(run_id).link() == whole.run(run_id).link()
        assert target.view(run_id).state_bytes() == whole.view(run_id).state_bytes()
    assert samples(whole).keys() == {event_type.label for event_type in whole.model.catalog.types}


def test_no_column_is_left_out_of_an_export(whole: Store) -> None:
    """D34: by reflection over the columns of every event type: an export carries every one of them, for whichever is
    changed on the way, the import refuses the file; and it carries each under its own name, in order."""
    model = Model((Anything(whole.model),))
    for label, data in samples(whole).items():
        if label == "run.command_noted/1":
            continue
        store = open_store("memory:", model=model, clock=Ticks())
        store.run("r").ingest([(label, data)])
        (text,) = store.export_lines("r")
        line = json.loads(text)
        assert tuple(line["data"]) == model.catalog.by_name[label.partition("/")[0]].names
        empty = open_store("memory:", model=model)
        for name, value in line["data"].items():
            with pytest.raises(ImportRefused):
                empty.import_lines([json.dumps({**line, "data": {**line["data"], name: another(value)}})])
        empty.import_lines([text])
        assert list(empty.export_lines("r")) == [text]


def another(value: Any) -> Any:
    """A value of the same type, where there is one, that is not the given one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list):
        return [*value, *value] if value else [0]
    return {"x": value}


def test_processes_that_open_one_old_store_at_once_all_get_a_durable_one(tmp_path: Path) -> None:
    """D35: eight processes that open an existing store in the same moment all work, each as durably as alone: none
    falls back to memory, to another journal mode or to weaker flushing. (A new store: see the store's own tests.)"""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        fill(store.run("r"))
        digest = store.view("r").digest()

    def use(number: int, gate: Gate) -> Any:
        gate.wait()
        with toy_store(path) as store:
            store.run(f"own-{number}").submit(Open(account="a"))
            writer = store._backend._datastore._writer  # type: ignore[attr-defined]
            settings_of = [writer.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
            return store.view("r").digest(), settings_of

    assert processes(8, use) == [(digest, ["wal", 2])] * 8
    with toy_store(path) as store:
        assert [line.run for line in store.runs()] == [*(f"own-{number}" for number in range(8)), "r"]


def test_a_letter_kept_by_reference_is_never_taken_from_another_place(tmp_path: Path) -> None:
    """D16, L41: a checkpoint that refers to an event which is damaged is no way round the damage."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        run = store.run("r")
        run.submit(Open(account="a"))
        run.submit(Write(account="a", letter="one"))
        run.submit(Write(account="a", letter="two"))
        run.checkpoint()
        with raw(path) as connection:
            (other,) = connection.execute("SELECT state FROM stored_events WHERE originator_version=3").fetchone()
            connection.execute("UPDATE stored_events SET state=? WHERE originator_version=2", (other,))
        with pytest.raises(CorruptJournal, match="position 2"):
            store.view("r")
