"""G13: Cost of an append, of its memory and of a checkpoint follows what changed, not how large the table or how long
the run is.

Counted, not timed: statements, records touched, bytes written, functions entered, memory taken, for one command after
the other. What holds for all of them together is in test_g13_cost_follows_what_changed.py.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from engine.core.table import Table
from engine.open_store import Store
from engine.runs import LiveRun
from tests.guarantees.domain import BANK_DOMAIN, TASKS_DOMAIN, Domain
from tests.toy import Close, Open, Pay, Write

SMALL, LARGE = 100, 2_000


def bank_of(store: Store, count: int) -> LiveRun:
    run = store.run("r")
    run.ingest([("account.opened", {"account": f"a{number:06}"}) for number in range(count)])
    return run


def tasks_of(store: Store, count: int) -> LiveRun:
    """A root with many running children, all alive."""
    run = store.run("r")
    run.tasks.open_root("root")
    run.tasks.start("root")
    for start in range(0, count, 1000):
        with run.batch():
            for number in range(start, min(start + 1000, count)):
                name = f"t{number:06}"
                run.tasks.spawn(name, parent="root")
                run.tasks.publish_launch(name)
                run.tasks.acknowledge_launch(name, attempt=1)
    return run


def finish_one(run: LiveRun, name: str) -> Any:
    return run.tasks.finish(name, attempt=1, result={"final_message": None})


ACTS: dict[str, tuple[Domain, Callable[[LiveRun], Any]]] = {
    "open": (BANK_DOMAIN, lambda run: run.submit(Open(account="new"))),
    "pay": (BANK_DOMAIN, lambda run: run.submit(Pay(account="a000050", amount=1), command_id="pay")),
    "write": (BANK_DOMAIN, lambda run: run.submit(Write(account="a000051", letter="x"))),
    "close": (BANK_DOMAIN, lambda run: run.submit(Close(account="a000052"))),
    "spawn": (TASKS_DOMAIN, lambda run: run.tasks.spawn("new", parent="root")),
    "usage": (TASKS_DOMAIN, lambda run: run.tasks.report_usage("t000050", tokens=5, command_id="usage")),
    "suspend": (TASKS_DOMAIN, lambda run: run.tasks.suspend("t000051", wait="signal")),
    "join": (TASKS_DOMAIN, lambda run: run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["t000052"])),
    "finish": (TASKS_DOMAIN, lambda run: finish_one(run, "t000053")),
    "relaunch": (TASKS_DOMAIN, lambda run: run.tasks.relaunch("t000054", mode="retry")),
    "cancel": (TASKS_DOMAIN, lambda run: run.tasks.cancel("t000055")),
    "grant": (TASKS_DOMAIN, lambda run: run.tasks.grant_capabilities("t000056", ["net"])),
}


@dataclass
class Cost:
    """What an act took."""

    statements: int
    records: int
    stored: int
    entered: int
    memory: int


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], tuple[Store, LiveRun, Path]]:
    """A small and a large run of each domain."""
    folder = tmp_path_factory.mktemp("cost")
    found = {}
    for domain, make in ((BANK_DOMAIN, bank_of), (TASKS_DOMAIN, tasks_of)):
        for count in (SMALL, LARGE):
            path = folder / f"{domain}-{count}.db"
            store = domain.store(path)
            found[domain.name, count] = store, make(store, count), path
    return found


def cost_of(store: Store, run: LiveRun, act: Callable[[LiveRun], Any], monkeypatch: pytest.MonkeyPatch) -> Cost:
    """Do an act and count."""
    statements: list[str] = []
    touched: set[tuple[str, Any]] = set()
    stored: list[int] = []
    entered = 0
    real_edit, real_add, real_record = Table.edit, Table.add, store.journal._commits.record

    def edit(self: Any, key: Any) -> Any:
        touched.add((self.name, key))
        return real_edit(self, key)

    def add(self: Any, key: Any, row: Any) -> Any:
        touched.add((self.name, key))
        return real_add(self, key, row)

    def record(run_id: str, first: int, topic: str, state: bytes, head: Any, after: Any) -> None:
        stored.append(len(state))
        real_record(run_id, first, topic, state, head, after)

    def entering(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal entered
        entered += event == "call"

    writer = store._backend._datastore._writer  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(Table, "edit", edit)
        patch.setattr(Table, "add", add)
        patch.setattr(store.journal._commits, "record", record)
        writer.set_trace_callback(statements.append)
        tracemalloc.start()
        before = sys.getprofile()
        sys.setprofile(entering)
        try:
            assert act(run).changed
        finally:
            sys.setprofile(before)
            _, memory = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            writer.set_trace_callback(None)
    return Cost(len(statements), len(touched), sum(stored), entered, memory)


@pytest.mark.parametrize("name", ACTS)
def test_an_append_costs_what_it_changes(
    name: str, runs: dict[tuple[str, int], tuple[Store, LiveRun, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """G13: with thousands of live records a command takes the statements, records, bytes and calls that it takes with
    100."""
    domain, act = ACTS[name]
    costs = []
    for count in (SMALL, LARGE):
        store, run, _ = runs[domain.name, count]
        with pytest.raises(ZeroDivisionError), run.batch():  # warm: what is built once is built before counting
            act(run)
            raise ZeroDivisionError
        costs.append(cost_of(store, run, act, monkeypatch))
    small, large = costs
    assert small.statements == large.statements <= 4
    assert small.records == large.records <= 3
    assert large.stored <= small.stored + 8  # positions are longer numbers, no more
    assert large.entered <= small.entered + 5
    assert large.memory <= small.memory * 2 + 20_000


def test_a_long_run_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """G13: restoring from nothing and reading history hold a page of commits at a time, however long the run is."""
    with BANK_DOMAIN.store(tmp_path / "refold.db") as store:
        run = store.run("r")
        run.submit(Open(account="a"))
        for _ in range(50):
            run.ingest([("account.paid", {"account": "a", "amount": 1, "note": "x" * 3000})] * 70)
        for read in (lambda: store.view("r", start="genesis"), lambda: sum(1 for _ in store.history("r"))):
            tracemalloc.start()
            read()
            _, memory = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert memory < 4_000_000  # the events themselves are ten million bytes
