"""What users of Temporal's SDKs reported (rows T2 to T30 of the register): replays that depend on chance, on paging, on
who folds, on what is collected when; and edits that a replayer does not see. None of it can happen here."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import gc
import json
import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

import engine
from engine.core.envelope import genesis, group_of, seal_commit
from engine.core.errors import CorruptJournal, ImportRefused, Refused
from engine.core.model import Model
from engine.open_store import Store, open_store
from engine.runs import LiveRun
from engine.testing import cut_everywhere, restore_machine
from projections.contexts import AssistantMsg, ToolCall, ToolMsg, UserMsg
from projections.graph import TaskNode
from tests.engine.kit import NEVER, Ticks, fill, raw, toy_store
from tests.field_reports.anything import Anything, samples
from tests.field_reports.whole_run import live
from tests.toy import BANK, CLOSED, OPENED, PAID, BankProjection, Open, Pay

SOURCES = [*Path(engine.__file__).parent.rglob("*.py"), *Path(engine.__file__).parents[1].glob("projections/**/*.py")]

# -- what a replay may depend on --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_completions_are_replayed_in_the_order_in_which_they_came(store: Store, order: tuple[int, ...]) -> None:
    """T2: three nodes run at once and complete in any order: that order is the record, the restored state is the live
    one, and the node that waited for all three is ready in it."""
    run = store.run("r")
    nodes = [*(TaskNode.new(number, "n", "") for number in range(3)), TaskNode.new(3, "all", "", depends_on=(0, 1, 2))]
    run.graphs.create("g", "goal", nodes)
    run.graphs.start("g")
    for number in range(3):
        run.graphs.dispatch("g", number, f"h{number}")
    for number in order:
        run.graphs.complete("g", number, f"out {number}", handle=f"h{number}")
    again = store.run("r", start="genesis")
    assert [event.data["node"] for event in again.history(types=["node.completed"])] == list(order)
    assert again.state_bytes() == run.state_bytes()
    assert again.graphs.ready("g") == (3,)


def test_no_identity_is_drawn_from_a_stream_of_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """T3: the same commands give the same events, launch tokens included, whatever else draws random numbers, ids or
    readings of a clock in between; and no code that decides or folds imports what makes them."""

    def lived(noise: Callable[[], Any]) -> list[str]:
        with open_store("memory:", clock=Ticks(), checkpoints=NEVER) as store:
            for _ in live(store.run("r")):
                noise()
            return list(store.export_lines("r"))

    quiet = lived(lambda: None)
    random.seed(3)
    assert lived(lambda: (random.random(), uuid.uuid4(), os.urandom(3), time.time())) == quiet
    monkeypatch.setattr(random, "random", lambda: 0.5)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=1))
    assert lived(lambda: None) == quiet
    for path in SOURCES:
        if "projections" in path.parts or "core" in path.parts:
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                banned = {"random", "uuid", "secrets", "time", "datetime", "os", "socket", "threading", "sqlite3"}
                assert not banned & {name.partition(".")[0] for name in names}, path


class Counting(BankProjection):
    """Counts its folds of payments."""

    def __init__(self) -> None:
        self.folded = 0
        paid = BankProjection.evolve["account.paid"]

        def counted(state: Any, wire: Any, seq: int) -> None:
            self.folded += 1
            paid(state, wire, seq)

        self.evolve = {**BankProjection.evolve, "account.paid": counted}  # type: ignore[misc]


def test_whoever_folds_calls_the_same_function(tmp_path: Path) -> None:
    """T5: live, refresh, restore, view, verify, import, fork, diff and divergence fold by one and the same evolve: each
    is seen to call it, once for every payment that it had to fold."""
    projection = Counting()
    model = Model((projection,))
    with toy_store(tmp_path / "refold.db", model=model) as store:
        behind = store.run("r")
        run = store.run("r")
        run.submit(Open(account="a"))

        def folds(work: Callable[[], Any]) -> int:
            before = projection.folded
            work()
            return projection.folded - before

        assert folds(lambda: [run.submit(Pay(account="a", amount=1)) for _ in range(5)]) == 5
        exported = list(store.export_lines("r"))
        assert folds(behind.refresh) == 5
        assert folds(lambda: store.run("r")) == 5
        assert folds(lambda: store.view("r", at=4)) == 3
        assert folds(lambda: store.verify("r")) == 5
        assert folds(lambda: store.import_lines(exported, run_id="copy")) == 5
        assert folds(lambda: store.fork("r", "fork", at=3)) == 2
        assert folds(lambda: store.divergence("r", model)) == 10
        run.checkpoint()
        assert folds(lambda: store.run("r")) == 0
        assert folds(lambda: store.verify("r")) == 5


# -- what is left half-done -------------------------------------------------------------------------------------------


def half_a_batch(run: LiveRun) -> Iterator[None]:
    """Begin a batch, give a command, and never come back unless asked for."""
    with run.batch():
        run.submit(Pay(account="a", amount=1))
        yield
        run.submit(Pay(account="a", amount=2))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_runtime_that_is_dropped_half_way_appends_nothing(toy: Store) -> None:
    """T6: a batch in a generator, in a coroutine that is never resumed, in a loop that is closed, or in a thread that
    is gone when the collector comes by from another: nothing is appended, to that log or any other, and the runs go
    on."""
    for name in ("r", "other"):
        fill(toy.run(name))

    def unchanged() -> bool:
        gc.collect()
        return [line.position for line in toy.runs()] == [11, 11] and toy.verify("r").ok

    run = toy.run("r")
    before = run.state_bytes()
    halfway = half_a_batch(run)
    next(halfway)
    del halfway
    assert unchanged() and run.state_bytes() == before

    async def never_resumed() -> None:
        with run.batch():
            run.submit(Pay(account="a", amount=1))
            await asyncio.get_running_loop().create_future()

    async def starts_and_leaves() -> None:
        task = asyncio.ensure_future(never_resumed())
        await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(starts_and_leaves())
    assert unchanged() and run.state_bytes() == before
    coroutine = never_resumed()
    loop = asyncio.new_event_loop()
    with contextlib.suppress(TimeoutError):
        loop.run_until_complete(asyncio.wait_for(coroutine, 0.01))
    loop.close()
    assert unchanged() and run.state_bytes() == before

    left: list[Any] = []
    abandoned = toy.run("r")

    def begin() -> None:
        left.append(half_a_batch(abandoned))
        next(left[0])

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    left.clear()
    assert unchanged()
    assert toy.run("r").submit(Pay(account="a", amount=3)).position == 12
    assert run.refresh() == 12 and toy.run("other").position == 11


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_restore_that_fails_gives_back_what_it_took(tmp_path: Path) -> None:
    """T9: a hundred restores that fail, and as many histories that nobody reads to the end, keep no connection, file or
    lock: the next restore works, and so does the next command."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        for name in ("good", "bad"):
            fill(store.run(name))
        with raw(path) as connection:
            connection.execute("UPDATE stored_events SET state=x'' WHERE originator_id='bad' AND originator_version=7")
        open_before = None
        for _ in range(100):
            with pytest.raises(CorruptJournal):
                store.run("bad")
            with pytest.raises(CorruptJournal):
                store.view("bad")
            with pytest.raises(CorruptJournal):
                list(store.history("bad"))
            next(store.history("good"))
            next(store.history("good", newest_first=True))
            open_before = open_before or open_files()
        assert open_files() <= open_before
        assert store.run("good").submit(Pay(account="a", amount=1)).position == 12
        assert store.view("bad", at=6).position == 6


def pending(run: Any) -> Any:
    """Everything that somebody or something is still to answer."""
    return (
        run.tasks.waiting(),
        [run.contexts.open_calls(context) for context in run.contexts.ids()],
        [run.graphs.running(graph) for graph in run.graphs.ids()],
        [run.graphs.awaiting(graph) for graph in run.graphs.ids()],
    )


def test_what_is_pending_survives_rolling_and_compacting(store: Store) -> None:
    """T11: signals, approvals, calls, attempts and verdicts that are still to come are there after a checkpoint of
    either kind, a fork, an export and a compaction of the conversation; and a compaction that would fold an unanswered
    call is not to be had."""
    run = store.run("r")
    for step in live(run):
        if step == 60:
            run.checkpoint()
    run.contexts.create("talk")
    for number in range(6):
        run.contexts.append("talk", UserMsg(f"m{number}"))
        call = ToolCall(f"call-{number}", "t", {})
        run.contexts.append("talk", AssistantMsg(None, (call,)))
        if number != 5:
            run.contexts.append("talk", ToolMsg(f"call-{number}", "t", "done"))
    before = pending(run)
    assert before[0] and any(before[1]) and any(before[2])
    run.checkpoint()
    run.checkpoint(full=True)
    store.import_lines(list(store.export_lines("r")), run_id="copy")
    for again in (store.run("r"), store.fork("r", "fork", at=run.position), store.run("copy"), store.view("r")):
        assert pending(again) == before
    for keep in range(1, 18):
        plan = run.contexts.plan_compaction("talk", keep_last=keep)
        if plan is not None:
            with contextlib.suppress(Refused):
                run.contexts.apply_compaction("talk", plan, "so far")
            assert pending(run) == before == pending(store.run("r"))


@pytest.mark.parametrize("first", ["delivery", "timeout"])
def test_of_a_signal_and_a_timeout_in_one_instant_the_recorded_one_counts(store: Store, first: str) -> None:
    """T12: a signal and the end of its time in the same millisecond: whichever was recorded first ended the wait, the
    other is refused, and every replay says the same."""
    run = store.run("r")
    run.tasks.open_root("root")
    run.tasks.start("root")
    run.tasks.suspend("root", wait="signal", awaited="go", due_ms=5_000)
    steps: dict[str, Callable[[], Any]] = {
        "delivery": lambda: run.tasks.deliver("root", kind="signal", awaited="go", payload=1, at_ms=5_000),
        "timeout": lambda: run.tasks.expire_wait("root", payload=None, at_ms=5_000),
    }
    outcome = steps.pop(first)()
    (later,) = steps.values()
    with pytest.raises(Refused):
        later()
    how = "delivered" if first == "delivery" else "timed_out"
    assert outcome.events[0].data["how"] == how
    again = store.run("r", start="genesis")
    assert [event.data["how"] for event in again.history(types=["task.wait_ended"])] == [how]
    assert again.state_bytes() == run.state_bytes()


def classes_of(value: Any) -> Counter[type[Any]]:
    """The classes inside a value, each as often as it is there."""
    found: Counter[type[Any]] = Counter([type(value)])
    inside: Any = ()
    if isinstance(value, dict):
        inside = (*value, *value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        inside = value
    elif hasattr(value, "__slots__") or hasattr(value, "__dict__"):
        names = [*getattr(type(value), "__slots__", ()), *getattr(value, "__dict__", ())]
        inside = [getattr(value, name) for name in names if not name.startswith("_") and hasattr(value, name)]
    for part in inside:
        found += classes_of(part)
    return found


def test_what_a_restored_run_hands_out_is_of_the_very_classes_of_a_live_one(store: Store) -> None:
    """T15: rows, records, nodes, contexts and events of a restored run are instances of the classes that a live run
    hands out, all the way down; none is a dict where the other is an object, or an object of a twin class."""
    run = store.run("r")
    for _ in live(run):
        pass
    run.checkpoint()

    def handed_out(of: Any) -> list[Any]:
        return [
            *of.tasks.rows(),
            *of.tasks.waiting(),
            *(of.contexts.get(context) for context in of.contexts.ids()),
            *(of.graphs.get(graph) for graph in of.graphs.ids()),
            of.swarm.context(),
            of.swarm.counts(),
            of.swarm.verdict(),
        ]

    told = handed_out(run)
    for again in (store.run("r"), store.view("r"), store.view("r", start="genesis")):
        others = handed_out(again)
        assert others == told
        assert [classes_of(other) for other in others] == [classes_of(value) for value in told]


# -- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 7, 50, 190, 1000])
def test_pages_of_any_size_are_one_sequence(whole: Store, size: int) -> None:
    """T17: forwards and backwards, pages of 1, 2, 7 or all events, joined, are the history, each event once."""
    everything = list(whole.history("r"))
    forwards: list[Any] = []
    while page := list(whole.history("r", after=forwards[-1].seq if forwards else 0, limit=size)):
        assert len(page) == min(size, len(everything) - len(forwards))
        forwards += page
    backwards: list[Any] = []
    while page := list(
        whole.history("r", until=backwards[-1].seq - 1 if backwards else None, newest_first=True, limit=size)
    ):
        backwards += page
    assert forwards == everything == backwards[::-1]


PAGE = 2


@pytest.mark.parametrize("commits", [1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1, 100 * PAGE])
def test_logs_of_any_number_of_pages_are_read_whole(toy: Store, commits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """T21: a journal of one page, of one commit less or more than a page, and of a hundred pages is restored, verified
    and read in both directions to its very end; so is a fork whose joint lies anywhere near the ends of pages."""
    monkeypatch.setattr("engine.store.heads._PAGE_ROWS", PAGE)
    monkeypatch.setattr("engine.store.reader._PAGE_BACK", PAGE)
    run = toy.run("r")
    for number in range(commits):
        run.submit(Open(account=str(number)))
    assert toy.view("r", start="genesis").state_bytes() == run.state_bytes()
    assert toy.verify("r").events == commits
    seqs = list(range(1, commits + 1))
    assert [event.seq for event in toy.history("r")] == seqs
    assert [event.seq for event in toy.history("r", newest_first=True)] == seqs[::-1]
    for at in {0, 1, commits // 2, commits - 1, commits}:
        fork = toy.fork("r", f"fork-{at}", at=at)
        for number in range(PAGE):
            assert [event.seq for event in toy.history(fork.id, newest_first=True)] == list(range(at + number, 0, -1))
            fork.submit(Open(account=f"more-{number}"))
        assert len(list(toy.history(fork.id))) == at + PAGE


def test_the_end_of_a_log_is_missed_by_readers_of_either_direction(tmp_path: Path) -> None:
    """T21: a reader that goes backwards begins at the end of the run, not at the last row that happens to be there: a
    log whose end was cut off is damaged for it too, also below a fork."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        fill(store.run("r"))
        store.fork("r", "fork", at=11)
        with raw(path) as connection:
            connection.execute("DELETE FROM stored_events WHERE originator_version=11")
        for run_id in ("r", "fork"):
            for options in ({}, {"newest_first": True}, {"newest_first": True, "until": 11}):
                with pytest.raises(CorruptJournal, match="position 11"):
                    list(store.history(run_id, **options))  # type: ignore[arg-type]
            assert next(store.history(run_id, newest_first=True, until=10)).seq == 10


# -- bulk, edits, prefixes --------------------------------------------------------------------------------------------


def test_many_histories_are_checked_at_once(tmp_path: Path) -> None:
    """T18: over a store of twenty runs, three of them damaged, verifying all gives every verdict, and restoring until
    the first failure stops there; neither needs a store of its own for each."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        for number in range(20):
            fill(store.run(f"r{number:02}"))
        with raw(path) as connection:
            for number in (4, 9, 17):
                connection.execute(
                    "UPDATE stored_events SET state=x'' WHERE originator_id=? AND originator_version=6",
                    (f"r{number:02}",),
                )
        verdicts = {line.run: store.verify(line.run).ok for line in store.runs()}
        assert [run for run, ok in verdicts.items() if not ok] == ["r04", "r09", "r17"]
        with pytest.raises(CorruptJournal, match="'r04'"):
            for line in store.runs():
                store.run(line.run)


def edits_of(lines: list[str], number: int, labels: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The ways to tamper with one line of an export: take it away, double it, exchange it with the next, call it
    otherwise."""
    line = json.loads(lines[number])
    yield "removed", [*lines[:number], *lines[number + 1 :]]
    yield "added", [*lines[: number + 1], lines[number], *lines[number + 1 :]]
    if number + 1 < len(lines):
        yield "swapped", [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]
        following = json.loads(lines[number + 1])
        exchanged = [{**line, **payload(following)}, {**following, **payload(line)}]
        if payload(line) != payload(following):
            yield "exchanged", [*lines[:number], *map(json.dumps, exchanged), *lines[number + 2 :]]
    for label in labels:
        yield f"renamed to {label}", [*lines[:number], json.dumps({**line, "type": label}), *lines[number + 1 :]]


def payload(line: dict[str, Any]) -> dict[str, Any]:
    return {key: line[key] for key in ("type", "data")}


def test_no_edit_of_any_kind_of_event_goes_unseen(whole: Store) -> None:
    """T23: each kind of event taken out, doubled, exchanged with its neighbour in whole or in part, or renamed (to the
    kinds around it in the catalogue, another version, and one nobody knows): the import refuses every single one, and
    keeps nothing of it."""
    model = Model((Anything(whole.model),))
    labels = [event_type.label for event_type in model.catalog.types]
    known = samples(whole)
    empty = open_store("memory:", model=model)
    for number, label in enumerate(labels[1:], 1):
        store = open_store("memory:", model=model, clock=Ticks())
        neighbour = labels[number - 1] if number > 1 else labels[2]
        for kind in (neighbour, label, neighbour):
            store.run("r").ingest([(kind, known[kind])])
        lines = list(store.export_lines("r"))
        others = {*labels[number - 1 : number + 2], label[:-1] + "2", "nobody.knows/1"} - {label}
        for edit, edited in edits_of(lines, 1, sorted(others)):
            with pytest.raises(ImportRefused):
                empty.import_lines(edited)
            assert list(empty.runs()) == [], (label, edit)
        empty.import_lines(lines)
        empty.delete("r")


def test_no_edit_of_a_real_run_goes_unseen(whole: Store) -> None:
    """T23: in the run in which everything happened too, one edit of every kind of event, each of another kind."""
    empty, seen = open_store("memory:"), set()
    for run_id in ("taken over", "r"):
        lines = list(whole.export_lines(run_id))
        for number, text in enumerate(lines):
            label = json.loads(text)["type"]
            if label not in seen:
                edits = list(edits_of(lines, number, ["task.started/1"]))
                edit, edited = edits[len(seen) % len(edits)]
                if edited != lines and (label, edit) != ("task.started/1", "renamed to task.started/1"):
                    seen.add(label)
                    with pytest.raises(ImportRefused):
                        empty.import_lines(edited)
    assert list(empty.runs()) == [] and len(seen) >= len(whole.model.catalog.types) - 1


def test_every_prefix_of_a_log_restores_without_alarm(whole: Store, lines: list[str], states: list[bytes]) -> None:
    """T24, T27, T30: a log that ends after any commit verifies without a fault, restores to the state of that moment
    and shows what was unfinished then; one that ends inside a commit too: the public kit cuts it everywhere."""
    growing, link = open_store("memory:", checkpoints=NEVER), genesis("r")
    for number, commit in enumerate(whole.journal.commits("r")):
        stored, link = seal_commit(link, commit.groups)
        growing.journal.append("r", commit.first, commit.count, stored, link)
        run = growing.run("r")
        assert run.state_bytes() == states[commit.last]
        if number % 9 == 0:
            run.checkpoint()
            assert growing.verify("r").ok
    assert cut_everywhere(lines, whole.model, cuts_max=8) >= 6
    check_tails(whole, [growing.view("r", at=position) for position in range(len(states))])


def check_tails(whole: Store, tails: list[Any]) -> None:
    """Check against a count of events that each prefix shows its unfinished tasks and nodes."""
    alive: list[str] = []
    running: set[tuple[str, int]] = set()
    for event, view in zip(whole.history("r"), tails[1:], strict=True):
        name, data = event.type.partition("/")[0], event.data
        if name in ("task.root_opened", "task.spawned"):
            alive.append(data["task_id"])
        elif name in ("task.finished", "task.launch_failed"):
            alive.remove(data["task_id"])
        elif name == "node.dispatched":
            running.add((data["graph"], data["node"]))
        elif name in ("node.completed", "node.failed", "node.deferred", "node.requeued", "node.canceled"):
            running.discard((data["graph"], data["node"]))
        elif name == "node.imported" and data["status"] == "running":
            running.add((data["graph"], data["node"]))
        assert [row.task_id for row in view.tasks.live()] == alive, event
        found = {(graph, entry.node) for graph in view.graphs.ids() for entry in view.graphs.running(graph)}
        assert found == running, event


READS: dict[str, Callable[[Store], Any]] = {
    "history": lambda store: [event.seq for event in store.history("r")],
    "history backwards": lambda store: [event.seq for event in store.history("r", newest_first=True)],
    "verify": lambda store: store.verify("r").faults,
    "view": lambda store: store.view("r").position,
    "restore": lambda store: store.run("r").position,
    "export": lambda store: [json.loads(line)["seq"] for line in store.export_lines("r")],
}


def with_a_write_after(recorder: Any, method: str, calls: int, write: Callable[[], Any]) -> None:
    """Let somebody write as soon as a method of the recorder was called so often, before its answer is used."""
    plain = getattr(recorder, method)
    left = [calls]

    def call(*args: Any, **kwargs: Any) -> Any:
        answer = plain(*args, **kwargs)
        left[0] -= 1
        if left[0] == 0:
            write()
        return answer

    setattr(recorder, method, call)


@pytest.mark.parametrize("read", READS)
def test_a_reader_is_not_alarmed_by_a_writer(toy: Store, read: str) -> None:
    """T24: a run that grows while it is read in either direction, restored, exported or verified, at any moment of the
    reading, is sound: what came since is seen or not, and never taken for damage."""
    writer = toy.run("r")
    fill(writer)
    recorder: Any = toy._backend.commits
    plain = {method: getattr(recorder, method) for method in ("head", "rows")}

    def write() -> None:
        for method, bound in plain.items():
            setattr(recorder, method, bound)
        writer.submit(Pay(account="a", amount=1))
        writer.checkpoint()

    for method in plain:
        for calls in range(1, 8):
            with_a_write_after(recorder, method, calls, write)
            answer = READS[read](toy)
            setattr(recorder, method, plain[method])
            if isinstance(answer, list):
                assert sorted(answer) == list(range(1, len(answer) + 1)) and 11 <= len(answer) <= writer.position
            else:
                assert answer == () or 11 <= answer <= writer.position


# -- size and the kit -------------------------------------------------------------------------------------------------


def test_a_long_run_restores_in_time(tmp_path: Path) -> None:
    """T29: 100,000 events, twice what the other engine takes, restore at a rate of more than 25,000 a second, also on a
    busy machine, and with a checkpoint none of them is folded again. (``refold bench`` measures a million.)"""
    commits, payments = 20, 5_000
    with toy_store(tmp_path / "refold.db") as store:
        link, first = genesis("r"), 1
        for number in range(commits):
            account = f"a{number}"
            events = [OPENED.wire(account, None), *([PAID.wire(account, 1, None)] * payments), CLOSED.wire(account)]
            stored, link = seal_commit(link, [group_of(5, None, None, None, None, events)])
            store.journal.append("r", first, len(events), stored, link)
            first += len(events)
        began = time.perf_counter()
        run = store.run("r")
        took = time.perf_counter() - began
        assert run.position == first - 1 == commits * (payments + 2)
        assert took < run.position / 25_000
        run.checkpoint()
        assert store.view("r").report.events_folded == 0


def test_the_machine_that_fuzzes_restores_is_for_everybody() -> None:
    """T30: the state machine is public, takes any model, and finds nothing wrong with the toy."""
    machine = restore_machine(BANK, elsewhere=False)
    run_state_machine_as_test(machine, settings=settings(max_examples=4, stateful_step_count=12, database=None))
