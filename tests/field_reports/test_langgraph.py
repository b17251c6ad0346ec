"""What users of LangGraph's checkpointers reported (rows L1 to L50 of ``rows.py``): writers that race, checkpoints that
lose or change what they were given, forks and deletes that leave the old behind. None of it can happen here."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.catalog import EventType, Upcast
from engine.core.codec import encode
from engine.core.envelope import EVENTS, genesis, group_of, seal_commit
from engine.core.errors import Conflict, EngineError, InvalidValue, NotFound, Refused
from engine.core.fields import ID, JSON, U64, Field
from engine.core.model import Model
from engine.documents import document
from engine.open_store import Store, open_store
from engine.prune import list_checkpoints, prune_checkpoints
from projections.contexts import AssistantMsg, UserMsg
from projections.graph import TaskNode
from tests.engine.kit import NEVER, Ticks, fill, raw, stored_rows, toy_store, wires_of
from tests.field_reports.at_once import Gate, processes, threads
from tests.field_reports.surface import COMMANDS, readers, spied
from tests.field_reports.whole_run import STEPS, TAKE_OVER, live
from tests.toy import CLOSED, OPENED, WROTE, BankProjection, Open, Pay, Write

# -- writers that race ------------------------------------------------------------------------------------------------


def racer(store_of: Callable[[], Store], rounds: int) -> Callable[[int, Gate], int]:
    """A worker that in every round appends at the position where everybody stands, and counts what was acknowledged."""

    def race(number: int, gate: Gate) -> int:
        run, acknowledged = store_of().run("r"), 0
        for round_number in range(rounds):
            run.refresh()
            gate.wait()
            before = run.state_bytes()
            try:
                assert run.submit(Open(account=f"{round_number}-{number}")).position == round_number + 1
                acknowledged += 1
            except Conflict as lost:
                assert lost.retryable and run.state_bytes() == before
            gate.wait()
        return acknowledged

    return race


def test_of_many_writers_at_one_version_one_wins(tmp_path: Path) -> None:
    """L1: processes (or threads, in memory) that append at the same version: one winner a version, Conflict for the
    others, who wrote nothing; what was acknowledged adds up to what is there."""
    path, rounds = tmp_path / "refold.db", 15
    toy_store(path).close()
    acknowledged = processes(4, racer(lambda: toy_store(path), rounds))
    in_memory = toy_store("memory:")
    acknowledged_in_memory = threads(4, racer(lambda: in_memory, rounds))
    for store, counted in ((toy_store(path), acknowledged), (in_memory, acknowledged_in_memory)):
        assert sum(counted) == store.view("r").position == rounds
        assert len(list(store.history("r"))) == rounds
        assert store.verify("r").ok


def test_writers_of_different_things_lose_none(toy: Store) -> None:
    """L2: eight threads, each with its own handle, write distinct records and checkpoints of one run: all are there,
    each once, and every checkpoint that is left is a true one."""
    toy.run("r").submit(Open(account="shared"))

    def write(number: int, gate: Gate) -> int:
        run, conflicts = toy.run("r"), 0
        gate.wait()
        for step in range(6):
            while True:
                try:
                    run.submit(Write(account="shared", letter=[number, step]), command_id=f"{number}-{step}")
                    break
                except Conflict:
                    conflicts += 1
                    run.refresh()
            if step % 3 == 0:
                run.checkpoint()
        return conflicts

    threads(8, write)
    letters = [event.data["letter"] for event in toy.history("r", types=["account.wrote"])]
    assert sorted(letters) == [[number, step] for number in range(8) for step in range(6)]
    assert toy.view("r").digest() == toy.view("r", start="genesis").digest()
    assert toy.verify("r").ok


def test_one_run_object_shared_by_threads_equals_a_serial_model(store: Store) -> None:
    """L4: four threads drive 52 tasks on one run object; the fold equals a dictionary that is told the history, and a
    run that is given it from one thread."""
    run = store.run("r")
    run.tasks.open_root("root")
    run.tasks.start("root")

    def drive(number: int, gate: Gate) -> None:
        gate.wait()
        for task in range(13):
            name = f"{number}-{task}"
            run.tasks.spawn(name, parent="root")
            run.tasks.publish_launch(name)
            run.tasks.acknowledge_launch(name, 1)
            run.tasks.report_usage(name, tokens=number + 1, turns=1)
            run.tasks.finish(name, attempt=1)

    threads(4, drive)
    model: dict[str, list[Any]] = {}
    for event in store.history("r"):
        task = event.data["task_id"]
        row = model.setdefault(task, [None, 0])
        row[0] = event.type
        row[1] += event.data.get("tokens", 0)
    assert {row.task_id: row.tokens_used for row in run.tasks.rows()} == {task: row[1] for task, row in model.items()}
    assert sum(row[0] == "task.finished/1" for row in model.values()) == 52 == run.tasks.counts()["done"]
    serial = open_store("memory:").run("r")
    for event in store.history("r"):
        serial.ingest([(event.type, event.data)], at_ms=event.recorded_at_ms)
    assert serial.digest() == run.digest() == store.view("r", start="genesis").digest()


def test_no_lock_error_reaches_anybody(tmp_path: Path) -> None:
    """L5, X17: eight processes append to one file, each to its own run and all to a shared one: no database error
    reaches them, no acknowledged event is missing, and the file is whole."""
    path = tmp_path / "refold.db"
    toy_store(path).close()

    def append(number: int, gate: Gate) -> int:
        shared = 0
        with toy_store(path) as store:
            own, common = store.run(f"own-{number}"), store.run("shared")
            gate.wait()
            for step in range(25):
                own.submit(Open(account=f"a{step}"))
                try:
                    common.submit(Open(account=f"{number}-{step}"))
                    shared += 1
                except Conflict:
                    common.refresh()
        return shared

    acknowledged = processes(8, append)
    with toy_store(path) as store:
        assert {line.run: line.position for line in store.runs()} == {
            **{f"own-{number}": 25 for number in range(8)},
            "shared": sum(acknowledged),
        }
        assert all(store.verify(line.run).ok for line in store.runs())
    with raw(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == (b"ok",)


def test_stores_on_one_file_do_not_collide(tmp_path: Path) -> None:
    """L44: five stores opened on one file in one process, each with runs of its own and one in common: none sees less
    than all of them wrote, and closing one leaves the others alone."""
    path = tmp_path / "refold.db"
    stores = [toy_store(path) for _ in range(5)]
    for number, store in enumerate(stores):
        store.run(f"run-{number}").submit(Open(account=str(number)))
        store.run("common").submit(Open(account=str(number)))
    for number, store in enumerate(stores):
        assert [line.run for line in store.runs()] == ["common", *(f"run-{other}" for other in range(5))]
        store.close()
        for left in range(number + 1, 5):
            stores[left].run("common").submit(Open(account=f"{number} is closed, {left} goes on"))
    with toy_store(path) as store:
        assert store.view("common").position == 5 + 4 + 3 + 2 + 1 == len(list(store.history("common")))
        assert store.verify("common").ok


# -- acknowledged is there --------------------------------------------------------------------------------------------


def test_a_task_accepted_right_before_a_kill_is_there(tmp_path: Path) -> None:
    """L7: SIGKILL as soon as the first command returns, long before any checkpoint: the task exists after restore."""
    path = tmp_path / "refold.db"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover  # another process
        outcome = open_store(path).run("r").tasks.open_root("accepted")
        os.write(writing, str(outcome.position).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    with os.fdopen(reading) as said:
        acknowledged = said.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with open_store(path, create=False) as store:
        assert store.run("r").position == int(acknowledged) == 1
        assert store.run("r").tasks.get("accepted").lifecycle == "ready"


def test_what_any_public_write_returned_from_is_in_the_files(file_store: Store, tmp_path: Path) -> None:
    """L8, L50: after every public command, batch, ingest, checkpoint, fork, import and delete returns, a second
    connection sees it, and so does whoever opens a copy of the files as they lie there."""
    copies = tmp_path / "copies"
    copies.mkdir()
    number = 0

    def check(say: Callable[[Store], Any]) -> None:
        nonlocal number
        number += 1
        copy = copies / f"{number}.db"
        for tail in ("", "-wal"):
            if Path(f"{tmp_path / 'refold.db'}{tail}").exists():
                shutil.copyfile(f"{tmp_path / 'refold.db'}{tail}", f"{copy}{tail}")
        with open_store(copy, create=False) as copied:
            assert say(file_store) == say(second) == say(copied)
        copy.unlink()

    def ends(store: Store) -> Any:
        return [(line.run, line.position, line.link) for line in store.runs()]

    run, other = file_store.run("r"), file_store.run("taken over")
    second = open_store(tmp_path / "refold.db")
    called, called_there = spied(run), spied(other)
    known: set[str] = set()
    for step in STEPS:
        before = run.position
        step(run)
        assert run.position > before and ends(second) == ends(file_store)
        if known < (known := {name for name, noted in called.items() if noted}):
            check(ends)  # a command that was not given before
    TAKE_OVER(other)
    check(ends)
    given = {name for calls in (called, called_there) for name, noted in calls.items() if noted}
    assert given == COMMANDS, "there are commands that this test does not give"
    with run.batch():
        run.swarm.advance_tick()
        run.contexts.touch("c")
    check(ends)
    run.ingest([("swarm.tick_advanced", {"tick": 5})])
    check(lambda store: store.view("r").digest())
    run.checkpoint()
    check(lambda store: store.view("r").report.used)
    file_store.fork("r", "fork", at=7).tasks.grant_capabilities("fetch", ["more"])
    check(lambda store: store.view("fork").digest())
    file_store.import_lines(list(file_store.export_lines("r")), run_id="imported")
    check(lambda store: store.view("imported").digest())
    file_store.delete("imported")
    check(ends)
    second.close()


# -- forks, signals, handlers -----------------------------------------------------------------------------------------


def test_a_handler_that_ran_does_not_run_again_on_resume(file_store: Store, tmp_path: Path) -> None:
    """L10: a node's fallback is its error handler; that it ended is an event, so after a restart it is not offered
    again, and reporting its end again changes nothing."""
    nodes = [TaskNode.new(0, "work", "", recovery={"route_to": 1}), TaskNode.new(1, "handle the error", "")]
    graphs = file_store.run("r").graphs
    graphs.create("g", "goal", nodes)
    graphs.start("g")
    graphs.dispatch("g", 0, "h0")
    graphs.fail("g", 0, handle="h0")
    assert graphs.dispatchable("g") == (1,)
    graphs.dispatch("g", 1, "h1")
    graphs.complete("g", 1, "handled", handle="h1")
    with open_store(tmp_path / "refold.db") as store:
        again = store.run("r").graphs
        assert again.dispatchable("g") == () == again.ready("g")
        assert not again.complete("g", 1, "handled", handle="h1").changed
        with pytest.raises(Refused):
            again.dispatch("g", 1, "h2")


def runnable(run: Any) -> Any:
    """What can go on, and what is waited for: of tasks, graphs and conversations."""
    tasks, graphs, contexts = run.tasks, run.graphs, run.contexts
    return (
        [(row.task_id, row.lifecycle) for row in tasks.live()],
        tasks.waiting(),
        {graph: (graphs.dispatchable(graph), graphs.running(graph), graphs.awaiting(graph)) for graph in graphs.ids()},
        {context: contexts.open_calls(context) for context in contexts.ids()},
    )


def test_a_fork_at_any_event_can_go_on_where_the_original_could(lines: list[str], states: list[bytes]) -> None:
    """L13: a run of nested tasks, graphs that follow them and conversations, forked at every event, in the midst of
    commits too: what can run next is what could run next there, and the states are the same bytes."""
    store = open_store("memory:")
    store.import_lines(lines)
    for position in range(store.view("r").position + 1):
        fork = store.fork("r", f"fork-{position}", at=position)
        assert fork.state_bytes() == states[position]
        if position % 4 == 0:
            assert runnable(fork) == runnable(store.view("r", at=position))


def test_a_signal_is_consumed_once_on_every_branch(store: Store) -> None:
    """L14: a delivered signal is gone: after a restore, on a fork from after it, and in a view of the past it is not
    there to be taken again; a fork from before it waits for one of its own."""
    run = store.run("r")
    run.tasks.open_root("root")
    run.tasks.start("root")
    waiting = run.tasks.suspend("root", wait="signal", awaited="go").position
    run.tasks.deliver("root", kind="signal", awaited="go", payload=1)
    for again in (run, store.run("r"), store.fork("r", "after", at=run.position)):
        with pytest.raises(Refused):
            again.tasks.deliver("root", kind="signal", awaited="go", payload=2)
        assert again.tasks.waiting() == ()
    before = store.fork("r", "before", at=waiting)
    assert [wait.awaited for wait in before.tasks.waiting()] == ["go"]
    assert before.tasks.deliver("root", kind="signal", awaited="go", payload=3).changed
    assert [event.data["payload"] for event in store.history("before", types=["task.wait_ended"])] == [3]


def test_after_a_fork_every_append_is_a_new_larger_position(toy: Store) -> None:
    """L16: looking at the past moves nothing; on a fork each append gets the next position after the fork's, and its
    latest is the last one appended."""
    run = toy.run("r")
    fill(run)
    run.at(4)
    assert run.submit(Pay(account="a", amount=1)).position == 12
    fork = run.fork("what-if", at=4)
    positions = [fork.submit(Pay(account="a", amount=amount)).position for amount in range(20, 30)]
    assert positions == list(range(5, 15))
    assert toy.view("what-if").position == 14 == toy.run("what-if").position
    assert run.position == 12
    assert [event.seq for event in toy.history("what-if")] == list(range(1, 15))


def test_the_latest_of_a_thousand_is_the_thousandth(toy: Store) -> None:
    """L17: positions are numbers everywhere: of versions 1 to 1000 the latest is 1000 (not 999, nor 99), and of the
    checkpoints at 2, 9, 10, 99, 100, 999 and 1000 the newest is 1000."""
    run, position = toy.run("r"), 0
    for end in (1, 2, 8, 9, 10, 11, 12, 50, 98, 99, 100, 101, 500, 998, 999, 1000):
        run.ingest([("account.opened", {"account": str(number)}) for number in range(position, end)])
        position = end
        assert toy.run("r").position == end == next(iter(toy.runs())).position
        if end in (2, 9, 10, 99, 100, 999, 1000):
            run.checkpoint()
            assert toy.view("r").report.used == end
    assert list(toy.checkpoints.positions("r")) == [1000, 999, 100, 99, 10, 9, 2]
    assert toy.view("r", at=998).report.used == 100
    assert next(toy.history("r", newest_first=True)).seq == 1000
    assert [event.seq for event in toy.history("r", after=8, limit=3)] == [9, 10, 11]


YEAR_MS = 365 * 86_400_000


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1, None, "5", 2**53], ids=repr)
def test_a_clock_that_jumps_changes_no_order(toy: Store, bad: Any) -> None:
    """L19, D29, E21: the clock goes an hour back, ten years on, stands still, and gives no time at all between appends:
    order and state are those of a steady clock, and what is no time is refused before anything is written."""
    now = 1_700_000_000_000
    readings = [now, now - 3_600_000, now + 10 * YEAR_MS, now + 10 * YEAR_MS, 0, now]
    run = toy.run("r")
    for number, reading in enumerate(readings):
        run._clock = lambda: bad
        with pytest.raises(InvalidValue, match="clock"):
            run.submit(Open(account=f"a{number}"))
        run._clock = lambda reading=reading: reading
        assert run.submit(Open(account=f"a{number}"), command_id=f"open-{number}").position == number + 1
    steady = toy.run("r2")
    for number in range(len(readings)):
        steady.submit(Open(account=f"a{number}"), command_id=f"open-{number}", at_ms=now)
    assert [event.recorded_at_ms for event in toy.history("r")] == readings
    assert [event.data["account"] for event in toy.history("r")] == [f"a{number}" for number in range(6)]
    assert run.state_bytes() == steady.state_bytes() == toy.view("r", start="genesis").state_bytes()


# -- reading ----------------------------------------------------------------------------------------------------------


def test_two_reads_are_byte_identical(file_store: Store, tmp_path: Path) -> None:
    """L20: nothing is made up on read: every reader, asked twice and by another process's handle, says the same."""
    run = file_store.run("r")
    for _ in live(run):
        pass
    run.checkpoint()
    with open_store(tmp_path / "refold.db") as second:
        for name, read in readers(run.position).items():
            assert read(file_store) == read(file_store) == read(second), name


def test_what_a_list_shows_is_what_get_gives(whole: Store) -> None:
    """L22: for every task, conversation, graph, node, worker, run and checkpoint the list and the single answer are
    one and the same, and a filtered history is the whole one filtered."""
    run = whole.run("r")
    shown = document(run)
    for row in run.tasks.rows():
        assert row == run.tasks.get(row.task_id) and row.to_json() == shown["tasks"][row.task_id]
    for context in run.contexts.ids():
        assert run.contexts.get(context).to_json() == shown["contexts"][context] == run.contexts.to_record(context)
        assert run.contexts.messages(context) == tuple(run.contexts.get(context).messages)
    for graph in run.graphs.ids():
        nodes = run.graphs.get(graph).nodes
        assert tuple(run.graphs.node(graph, node.id) for node in nodes) == tuple(nodes)
        assert {entry.node for entry in run.graphs.running(graph)} == {n.id for n in nodes if n.status == "running"}
    workers = run.swarm.context().workers
    assert {worker: run.swarm.worker(worker) for worker in run.swarm.worker_ids()} == dict(workers)
    assert [(line.position, line.link) for line in whole.runs()] == [
        (whole.run(line.run).position, whole.run(line.run).link()) for line in whole.runs()
    ]
    everything = [event.to_json() for event in whole.history("r")]
    for event in everything:
        (alone,) = whole.history("r", after=event["seq"] - 1, until=event["seq"])
        assert alone.to_json() == event


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_no_payload_is_ever_logged(toy: Store, caplog: pytest.LogCaptureFixture) -> None:
    """L31: whatever happens to a command, taken, refused, conflicting, or followed by a checkpoint that fails, no log
    record holds its payload. (That secret types are refused is part of the battery of awkward values.)"""
    secret = "hunter2-hunter2"
    with caplog.at_level(0):
        run = toy.run("r")
        run.submit(Open(account="a", note=secret))
        slow = toy.run("r")
        run.submit(Write(account="a", letter={"token": secret}))
        with pytest.raises(Conflict):
            slow.submit(Write(account="a", letter=secret))
        with pytest.raises(InvalidValue):
            run.submit(Write(account="a", letter=[secret, object()]))
        run.checkpoint()
        toy.checkpoints._recorder.put("r", 2, "refold.checkpoint/1", secret.encode(), [2])
        assert toy.run("r").position == 2 and not toy.verify("r").ok
    assert secret not in caplog.text


# -- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spacing", [1, 3, 8])
def test_snapshot_and_tail_equal_the_full_fold(lines: list[str], states: list[bytes], spacing: int) -> None:
    """L34: for every prefix k and every spacing s of checkpoints: the newest checkpoint before k and the tail after it
    give the bytes of the fold of all k events, for all four projections."""
    store = open_store("memory:", checkpoints=NEVER)
    store.import_lines(lines)
    ends = [commit.last for commit in store.journal.commits("r")]
    walk = _walker(store)
    for number, end in enumerate(ends):
        walk(end, number % spacing == 0)
    used = set()
    for position, state in enumerate(states):
        view = store.view("r", at=position)
        used.add(view.report.used)
        assert view.state_bytes() == state
    assert {"genesis"} < used <= {"genesis", *ends[::spacing]}


def _walker(store: Store) -> Callable[[int, bool], None]:
    """Return what takes a checkpoint of run ``r`` as it was at a position, each one on top of the last."""
    from engine.checkpoint import take_checkpoint
    from engine.core.envelope import genesis as begun
    from engine.restore import Restored, RestoreReport, fold

    nothing = RestoreReport("r", 0, "genesis", 0, (), 0.0)
    at = Restored(store.model.initial(), begun("r"), nothing)

    def walk(position: int, checkpoint: bool) -> None:
        fold(store.journal, "r", at, until=position)
        if checkpoint:
            assert take_checkpoint(store.checkpoints, "r", at) is not None

    return walk


def test_pruning_at_random_changes_no_state(toy: Store) -> None:
    """L35: whatever checkpoints are removed, those that others rest on too, every position reads as before; pruning
    removes what no longer stands, and a restore then uses what is left."""
    run = toy.run("r")
    for number in range(40):
        run.submit(Open(account=f"a{number % 9}"))
        run.submit(Write(account=f"a{number % 9}", letter=number))
        run.checkpoint(full=number % 13 == 0)
    states = [toy.view("r", at=position, start="genesis").digest() for position in range(run.position + 1)]
    dice = random.Random(35)
    recorder: Any = toy.checkpoints._recorder
    for _ in range(8):
        for doomed in dice.sample(list(recorder.positions("r")), 4):
            stored = recorder.read("r", doomed)
            recorder.put("r", doomed, stored[0], b"pruned", [doomed])
        assert [toy.view("r", at=position).digest() for position in range(0, run.position + 1, 3)] == states[::3]
    removed = prune_checkpoints(toy.journal, toy.checkpoints, toy.model, "r")
    assert removed
    assert all(c.problem is None for c in list_checkpoints(toy.journal, toy.checkpoints, toy.model, "r"))
    assert [toy.view("r", at=position).digest() for position in range(run.position + 1)] == states
    assert toy.verify("r").ok


def test_a_deleted_run_leaves_no_row_behind(file_store: Store, tmp_path: Path) -> None:
    """L37: a delete takes the run out of every table, not only the first; the other run keeps all of its rows. (That
    no byte is left in the file is what erasure will bring.)"""
    for name in ("doomed", "kept"):
        run = file_store.run(name)
        for _ in live(run):
            pass
        run.checkpoint()
    before = counts_of(tmp_path / "refold.db", "kept")
    assert all(counts_of(tmp_path / "refold.db", "doomed").values())
    file_store.delete("doomed")
    assert not any(counts_of(tmp_path / "refold.db", "doomed").values())
    assert counts_of(tmp_path / "refold.db", "kept") == before


def counts_of(path: Path, run_id: str) -> dict[str, int]:
    """How many rows of each table of the file, whatever tables there are, hold a run's id in any column."""
    with raw(path) as connection:
        names = [name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        counts = {}
        for name in names:
            columns = [row[1].decode() for row in connection.execute(f"PRAGMA table_info({name})")]
            where = " OR ".join(f"{column}=?" for column in columns)
            (counts[name],) = connection.execute(
                f"SELECT count(*) FROM {name} WHERE {where}", [run_id] * len(columns)
            ).fetchone()
    return counts


def test_a_conversation_of_ten_thousand_turns_costs_its_own_bytes(tmp_path: Path) -> None:
    """L38: 10,000 messages, in 100 sittings each ended by a checkpoint, take at most 1.3 times their raw text on
    disk."""
    path, dice, raw_bytes = tmp_path / "refold.db", random.Random(38), 0
    words = ["checkpoint", "thread", "state", "resume", "tool", "planner", "answer", "message", "why", "because"]
    with open_store(path, checkpoints=NEVER) as store:
        run = store.run("r")
        run.contexts.create("c")
        for sitting in range(100):
            said: list[Any] = []
            for _ in range(50):
                question, answer = (" ".join(dice.choices(words, k=12)) + str(dice.random()) for _ in range(2))
                raw_bytes += len(question) + len(answer)
                said += [UserMsg(question), AssistantMsg(answer)]
            run.contexts.append_all("c", said, at_ms=sitting)
            run.checkpoint()
        assert run.contexts.message_count("c") == 10_000
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 1.3 * raw_bytes


# -- state that outlives code -----------------------------------------------------------------------------------------

_ACCOUNT = Field("account", ID)
PAID_BY_VERSION = {
    1: EventType("account.paid", (_ACCOUNT, Field("amount", U64)), version=1, number=1002),
    2: EventType("account.paid", (_ACCOUNT, Field("amount", U64), Field("note", JSON)), version=2, number=1002),
    3: EventType("account.paid", (_ACCOUNT, Field("note", JSON), Field("cents", U64)), version=3, number=1002),
}
STEPS_UP = {
    1: Upcast(PAID_BY_VERSION[1], lambda fields: [*fields, None]),
    2: Upcast(PAID_BY_VERSION[2], lambda fields: [fields[0], fields[2], fields[1] * 100]),
}


def generation(version: int) -> Model:
    """The toy as its release of that version had it: payments carry an amount, then a note, then cents."""

    class Released(BankProjection):
        events = (OPENED, PAID_BY_VERSION[version], CLOSED, WROTE)
        upcasts = tuple(STEPS_UP[older] for older in range(1, version))
        state_version = version

    paid = BankProjection.evolve["account.paid"]
    amount_at = 3 if version < 3 else 4
    evolve = {**BankProjection.evolve, "account.paid": lambda s, w, q: paid(s, [*w[:3], w[amount_at]], q)}
    Released.evolve = evolve
    return Model((Released(),))


def paid(version: int, amount: int) -> dict[str, Any]:
    return [{"amount": amount}, {"amount": amount, "note": None}, {"note": None, "cents": amount * 100}][version - 1]


def test_journals_of_every_release_restore_under_the_newest(tmp_path: Path) -> None:
    """L40, X26, X27: a journal that three releases wrote one after another, each with checkpoints, restores under the
    newest as if the newest had written it all; stepwise upcasts equal the direct one; the stored bytes stay as they
    were; and an older release names the event it cannot read instead of guessing. (X26 asks for the same through the
    adapter that other frameworks keep their checkpoints by; that comes with the adapter.)"""
    path = tmp_path / "refold.db"
    for version in (1, 2, 3):
        with toy_store(path, model=generation(version)) as store:
            run = store.run("r")
            run.submit(Open(account="a"))
            run.ingest([("account.paid", {"account": "a", **paid(version, version)})])
            run.checkpoint()
    before = stored_rows(path, "r")
    with toy_store(path, model=generation(3)) as store:
        run = store.run("r")
        assert run.ask(lambda state: state.parts["bank"].total) == 100 + 200 + 300
        assert [event.data.get("cents") for event in store.history("r", types=["account.paid"])] == [100, 200, 300]
        verdict = store.verify("r")
        assert verdict.ok and verdict.outdated == (2, 3), "checkpoints of older code are counted, and no fault"
        fresh = toy_store("memory:", model=generation(3)).run("r")
        fresh.submit(Open(account="a"))
        for amount in (1, 2, 3):
            fresh.ingest([("account.paid", {"account": "a", **paid(3, amount)})])
        assert run.digest() == fresh.digest()
    assert stored_rows(path, "r") == before
    with toy_store(path, model=generation(2)) as store, pytest.raises(EngineError, match=r"account\.paid/3 is newer"):
        store.run("r")


# -- cells that were moved, names that bite ---------------------------------------------------------------------------


def test_a_stored_cell_is_good_in_its_own_place_only(tmp_path: Path) -> None:
    """L41: any two cells of any two rows exchanged, within a run and between runs, in journal and checkpoints, and any
    row relabelled as an older or other format: found by verify, and never served as if it belonged there."""
    path = tmp_path / "refold.db"
    with toy_store(path, clock=Ticks()) as store:
        for name in ("r", "s"):
            run = store.run(name)
            for number in range(2):
                run.submit(Open(account=f"{name}{number}"))
                run.submit(Pay(account=f"{name}{number}", amount=number + 1))
                run.checkpoint()
        digest = store.view("r").digest()
        with raw(path) as connection:
            cells = [
                (table, rowid, state, topic)
                for table in ("stored_events", "stored_checkpoints")
                for rowid, state, topic in connection.execute(f"SELECT rowid, state, topic FROM {table}")
            ]
        edits: list[list[tuple[str, int, str, Any, Any]]] = [
            [(one[0], one[1], "state", other[2], one[2]), (other[0], other[1], "state", one[2], other[2])]
            for one, other in combinations(cells, 2)
        ]
        for table, rowid, _, topic in cells:
            for label in ("", "refold.commit/0", "refold.commit/1", "refold.checkpoint/0", "refold.checkpoint/1"):
                if label != topic.decode():
                    edits.append([(table, rowid, "topic", label, topic.decode())])
        for edit in edits:
            put(path, [(table, rowid, column, value) for table, rowid, column, value, _ in edit])
            assert not (store.verify("r").ok and store.verify("s").ok), edit
            try:
                assert store.view("r").digest() == digest
            except EngineError as error:
                assert error.code in ("corrupt_journal", "schema_error")
            put(path, [(table, rowid, column, before) for table, rowid, column, _, before in edit])
        assert store.verify("r").ok and store.verify("s").ok


def put(path: Path, cells: list[tuple[str, int, str, Any]]) -> None:
    with raw(path) as connection:
        for table, rowid, column, value in cells:
            connection.execute(f"UPDATE {table} SET {column}=? WHERE rowid=?", (value, rowid))


NASTY = [
    "'; DROP TABLE stored_events; --",
    '" OR "1"="1',
    "' OR 1=1 --",
    "%",
    "_",
    "a%",
    "*",
    "[a-z]*",
    "\\",
    "$.x",
    ":run_id",
    "?1",
    "NULL",
    "0",
    "a' UNION SELECT run_id FROM run_heads --",
]


@pytest.fixture(scope="module")
def biting(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store in a file for names that try to be SQL."""
    return toy_store(tmp_path_factory.mktemp("names") / "refold.db", clock=Ticks())


@given(
    st.lists(
        st.sampled_from(NASTY) | st.text("'\"%_;-\\$?:x", min_size=1, max_size=6), min_size=2, max_size=2, unique=True
    )
)
@settings(max_examples=15)
def test_a_name_is_only_a_name(biting: Store, names: list[str]) -> None:
    """L43: whatever is used as the id of a run, account, actor, command or cause, every query gives what a list in
    Python gives, and the other run is untouched."""
    one, other = names
    store = biting
    for name in names:
        if any(line.run == name for line in store.runs()):
            store.delete(name)
        run = store.run(name, actor=one)
        run.submit(Open(account=one, note={one: other}), command_id=other)
        run.submit(Open(account=other), actor=other, cause=one)
    assert {line.run for line in store.runs()} >= set(names)
    everything = list(store.history(one))
    for wanted in ({"actor": one}, {"actor": other}, {"command_id": other}, {"command_id": one}, {"cause": one}):
        ((field, value),) = wanted.items()
        found = [event for event in everything if getattr(event, field) == value]
        assert list(store.history(one, **wanted)) == found  # type: ignore[arg-type]
    assert list(store.history(one, types=[one])) == []
    store.run(one).checkpoint()
    assert store.view(one).report.used == 2 and store.view(one).state_bytes() == store.view(other).state_bytes()
    untouched = list(store.export_lines(other))
    store.delete(one)
    with pytest.raises(NotFound):
        store.view(one)
    assert list(store.export_lines(other)) == untouched


# -- bytes ------------------------------------------------------------------------------------------------------------


def wires(store: Store, run_id: str) -> list[Any]:
    return [wire for commit in store.journal.commits(run_id) for group in commit.groups for wire in group[EVENTS]]


def test_every_type_of_event_keeps_to_its_budget_of_bytes(whole: Store) -> None:
    """L49: an event of any type costs no more than its bare values would as JSON, without a single field name, and
    eight bytes; a commit costs 60 bytes above its events, its link included."""
    seen = set()
    for wire in wires(whole, "r") + wires(whole, "taken over"):
        event_type = whole.model.catalog.type_of(wire)
        values = [value.hex() if type(value) is bytes else value for value in wire[2:]]
        bare = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
        assert len(encode(wire)) <= len(bare) + 8, event_type.label
        seen.add(event_type)
    assert seen == set(whole.model.catalog.types), "the run in which everything happened left a type out"
    wire = OPENED.wire("a", None)
    stored, _ = seal_commit(genesis("r"), [group_of(1_700_000_000_000, "actor", None, None, None, [wire])])
    assert len(stored) - len(encode(wire)) <= 60


def test_the_rows_of_the_whole_run_are_plain(file_store: Store, tmp_path: Path) -> None:
    """L49: what is stored of a run is one row a commit, and its bytes are those that a bare CBOR reader gives back."""
    run = file_store.run("r")
    ends = list(live(run))
    rows = stored_rows(tmp_path / "refold.db", "r")
    assert [first for first, _ in rows] == [1, *(end + 1 for end in ends[:-1])]
    groups = wires_of(rows, "r")
    assert sum(len(group[EVENTS]) for group in groups) == run.position
