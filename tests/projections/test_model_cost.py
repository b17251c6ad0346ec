"""What a step costs in a run of 10,000 tasks, nodes and messages: counted in records, bytes and calls, never in
seconds (P6, P7, P11, G13)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from engine import open_store
from engine.core.codec import encode
from engine.core.state import ModelState
from engine.open_store import Store
from engine.runs import LiveRun
from projections.contexts.message import message_array
from projections.graph import TaskNode
from tests.projections.graph.graph_bench import Visits
from tests.projections.model_shell import NEVER, indexes

SMALL, LARGE = 100, 10_000
WORDS = "the plan says to fetch every page first and then to compare what they hold with the list of last week"


def made(store: Store, count: int) -> LiveRun:
    """Return a run of ``count`` tasks, a graph of as many nodes, a conversation of as many messages; and a tenth as
    many conversations with a plan that is bound to a task of their own."""
    run = store.run(f"of {count}")
    run.tasks.open_root("root")
    run.tasks.start("root")
    child = {"parent_task_id": "root", "role": "custom", "isolation": "shared", "context_inheritance": "none"}
    spawned = [
        ("task.spawned", {"task_id": f"t{n}", **child, "capability_ids": [], "attempt": 1, "launch_token": f"l{n}"})
        for n in range(count)
    ]
    run.ingest(spawned)
    plan = [TaskNode.new(n, "step", "do it", depends_on=[n - 1] if n % 4 else []) for n in range(count)]
    run.graphs.create("g", "goal", plan, default_failure_strategy="retry", default_max_retries=1)
    run.graphs.start("g")
    run.contexts.create("chat", model_window=10**6)
    said = [message_array({"role": "user" if n % 2 else "assistant", "text": WORDS, "ts": n}) for n in range(count)]
    for start in range(0, count, 1_000):
        run.ingest([("context.messages_appended", {"context": "chat", "at_ms": 1, "messages": said[start:][:1_000]})])
    for n in range(count // 10):
        item = [1, "see to it", None, "in_progress", None, ["task", f"t{n}"], 1]
        run.ingest([
            ("context.created", {"context": f"c{n}", "at_ms": 1, "kind": "conversation", "model_window": 0}
             | {"principal": None}),
            ("context.plan_created", {"context": f"c{n}", "at_ms": 1, "plan": ["goal", [item], 2, 1, 1]}),
        ])  # fmt: skip
    for n in range(8):
        run.graphs.dispatch("g", 4 * n, task=f"t{n}")
    run.swarm.start(8)
    return run


@pytest.fixture(scope="module")
def runs() -> Iterator[tuple[Store, LiveRun, LiveRun]]:
    """A store with a small run and a large one."""
    with open_store("memory:", checkpoints=NEVER, clock=lambda: 1_000) as store:
        yield store, made(store, SMALL), made(store, LARGE)


@dataclass
class Cost:
    """What an act took: records touched, records looked at, bytes of its events, calls of any function."""

    touched: int
    visited: int
    stored: int
    called: int


def cost_of(run: LiveRun, act: Callable[[LiveRun], Any]) -> Cost:
    """Do an act in a batch that is then given up, and count."""
    called = 0

    def entering(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal called
        called += event in ("call", "c_call")

    tables = list(run.ask(lambda state: state.tables).values())
    with pytest.raises(ZeroDivisionError), run.batch():
        act(run)  # warm: what is built once is built before counting
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), run.batch():
        for table in tables:
            table.rows = Visits(table.rows)
        before = sys.getprofile()
        sys.setprofile(entering)
        try:
            outcome = act(run)
        finally:
            sys.setprofile(before)
            visited = sum(table.rows.count for table in tables)
        assert outcome.changed
        touched = sum(len(table.touched) for table in tables)
        stored = sum(len(encode([event.type, event.data])) for event in outcome.events)
        raise ZeroDivisionError
    for table in tables:
        table.rows = dict(table.rows)
    return Cost(touched, visited, stored, called)


def last(run: LiveRun) -> str:
    """The newest task, to which nothing is bound."""
    return f"t{size(run) - 1}"


def size(run: LiveRun) -> int:
    return int(run.id.removeprefix("of "))


def fold(run: LiveRun) -> Any:
    """A conversation of five messages beside the large one."""
    run.contexts.create("short")
    run.contexts.append_all("short", [{"role": "user", "text": WORDS}] * 5)
    plan = run.contexts.plan_compaction("short", keep_last=2)
    assert plan is not None
    return run.contexts.apply_compaction("short", plan, "prose")


ACTS: dict[str, Callable[[LiveRun], Any]] = {
    "append": lambda run: run.contexts.append("chat", {"role": "user", "text": WORDS}),
    "turn": lambda run: run.contexts.begin_turn("chat"),
    "attach": lambda run: run.contexts.attach_task("chat", last(run)),
    "plan": lambda run: run.contexts.update_plan("c9", item=1, note="soon"),
    "bind": lambda run: run.contexts.update_plan("c9", item=1, bind={"task": last(run)}),
    "fold": fold,
    "dispatch": lambda run: run.graphs.dispatch("g", 40, task=last(run)),
    "complete": lambda run: run.graphs.complete("g", 0, "done", attempt=1),
    "fail": lambda run: run.graphs.fail("g", 4, attempt=1),
    "defer": lambda run: run.graphs.defer("g", 8, attempt=1),
    "inject": lambda run: run.graphs.inject("g", [TaskNode.new(size(run), "more", "", depends_on=[0])]),
    "act": lambda run: run.swarm.complete_action(3, "look", success=False),
    "launch": lambda run: (run.tasks.publish_launch("t1"), run.tasks.acknowledge_launch("t1", attempt=1))[1],
    "finish": lambda run: run.tasks.finish("t2", attempt=1, result={"final_message": "done"}),
    "time out": lambda run: run.tasks.finish("t3", attempt=1, termination="timeout"),
    "not launched": lambda run: run.tasks.fail_launch("t5", attempt=1),
    "nothing follows": lambda run: run.tasks.finish(last(run), attempt=1),
}


@pytest.mark.parametrize("name", ACTS)
def test_a_step_costs_the_same_among_ten_thousand(name: str, runs: tuple[Store, LiveRun, LiveRun]) -> None:
    """P6, G13: with all its consequences in other projections a command touches, looks at, stores and calls what it
    does among a hundred."""
    small, large = (cost_of(run, ACTS[name]) for run in runs[1:])
    assert 0 < small.touched == large.touched <= 12
    assert small.visited == large.visited <= 60
    assert large.stored <= small.stored + 30  # names and numbers are longer, no more
    assert large.called <= small.called + 10


def stored_bytes(run: LiveRun, projection: str, *, changed: bool) -> int:
    """The bytes of a projection's records in a checkpoint: of all, or of those that changed."""

    def count(state: ModelState) -> int:
        total = 0
        for name, table in state.tables.items():
            if name.startswith(f"{projection}."):
                rows = [(key, table.rows[key]) for key in (table.changed if changed else table.rows)]
                total += sum(len(encode([key, table.refer(row) if table.refer else row.dump()])) for key, row in rows)
        return total

    return run.ask(count)


def test_a_checkpoint_holds_what_changed(runs: tuple[Store, LiveRun, LiveRun]) -> None:
    """P7, G13: after a hundred messages more, and after work on fifty nodes whose tasks end, a checkpoint holds the
    records that they touched, at most 3 % of the bytes of all; a message is two numbers and its key."""
    _, _, run = runs
    run.checkpoint(full=True)
    with run.batch():
        for _ in range(100):
            run.contexts.append("chat", {"role": "user", "text": WORDS})
    delta, full = (stored_bytes(run, "contexts", changed=changed) for changed in (True, False))
    assert delta <= 0.03 * full
    assert delta <= 100 * 20 + 100 < len(WORDS) * 100
    taken = run.checkpoint()
    assert taken is not None and not taken.full and taken.records == 101
    with run.batch():
        for n in range(200, 250):
            run.graphs.dispatch("g", 4 * n, task=f"t{n}")
            run.tasks.finish(f"t{n}", attempt=1)
    delta, full = (stored_bytes(run, "graph", changed=changed) for changed in (True, False))
    assert delta <= 0.03 * full
    taken = run.checkpoint()
    assert taken is not None and not taken.full
    # For each: the task, its plan and the conversation; the node, its attempt, its result and the node that it readied.
    assert taken.records == 50 * 7


def test_ten_thousand_of_everything_are_restored_from_any_side(runs: tuple[Store, LiveRun, LiveRun]) -> None:
    """G2: the large run from its checkpoints and from nothing: state, digest and indexes."""
    store, _, run = runs
    run.checkpoint(full=True)
    run.contexts.append("chat", {"role": "user", "text": "the last word"})
    live, derived = run.digest(), run.ask(indexes)
    for start in ("best", "genesis"):
        view = store.view(run.id, start=start)
        assert view.digest() == live and view.ask(indexes) == derived


def test_a_conversation_checkpointed_every_turn_is_stored_once(tmp_path: Path) -> None:
    """P11: two hundred turns of about a kilobyte, a checkpoint after each, take at most 1.3 times their raw bytes."""
    raw = 0
    with open_store(tmp_path / "a.db", checkpoints=NEVER) as store:
        run = store.run("r")
        run.contexts.create("chat", model_window=128_000)
        for number in range(200):
            said = " ".join(f"{word}{number * place % 89}" for place, word in enumerate(WORDS.split() * 3))
            turn = [{"role": "user", "text": said[:200]}, {"role": "assistant", "text": said + said[::-1]}]
            raw += sum(len(json.dumps({**message, "ts": number})) for message in turn)
            run.contexts.append_all("chat", turn)
            run.checkpoint()
        assert 800 < raw / 200 < 1_300
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 1.3 * raw
