"""The views and the columns of events say what the queries of the same meaning say in Python."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.changes import changes
from engine.open_store import Store, open_store
from engine.readmodel import ReadModel
from engine.runs import LiveRun
from tests.engine.readmodel.readmodel_runs import NASTY, Step, live, steps

RUN = "a 'run'"


def _rows(model: ReadModel, name: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in model.find(name)]


def _lived(store: Store, chosen: list[Step]) -> LiveRun:
    run = store.run(RUN)
    live(run, chosen)
    assume(run.position)
    return run


@settings(max_examples=25)
@given(chosen=steps(30, 80))
def test_views_agree_with_the_queries(chosen: list[Step]) -> None:
    """Live and waiting tasks, usage of subtrees, blocked nodes, live attempts, open escalations and full windows are
    those that the run itself names."""
    with open_store("memory:") as store:
        run = _lived(store, chosen)
        with store.readmodel() as model:
            assert {task for (task,) in _rows(model, "live_tasks", "task_id")} == {
                row.task_id for row in run.tasks.live()
            }
            assert _rows(model, "waiting_tasks", "task_id", "wait", "waiting_on", "awaited", "due_ms") == sorted(
                (
                    (one.task_id, one.wait, child, one.awaited, one.due_ms)
                    for one in run.tasks.waiting()
                    for child in one.waiting_on or (None,)
                ),
                key=lambda row: (row[0], row[1], row[3] or "", row[2] or ""),
            )
            for task, tasks, tokens, turns in _rows(
                model, "subtree_usage", "task_id", "tasks", "tokens_used", "turns_used"
            ):
                usage = run.tasks.usage(task)
                assert (tasks, turns) == (usage.tasks, usage.turns_used)
                exact = usage.tokens_used < 2**63
                assert tokens == usage.tokens_used if exact else abs(tokens / usage.tokens_used - 1) < 1e-6
            assert sorted(_rows(model, "blocked_nodes", "graph", "node", "blocked_by", "reason"), key=repr) == sorted(
                (
                    (graph, found.node, found.on, found.reason)
                    for graph in run.graphs.ids()
                    for found in run.graphs.blocked(graph)
                ),
                key=repr,
            )
            assert _rows(model, "live_attempts", "graph", "node", "number") == sorted(
                (graph, found.node, found.attempt.number)
                for graph in run.graphs.ids()
                for found in run.graphs.running(graph)
            )
            assert {context for (context,) in _rows(model, "contexts_over_window", "context")} == {
                context for context in run.contexts.ids() if run.contexts.needs_compaction(context)
            }
            escalations = run.swarm.context().escalations if run.swarm.started() else ()
            assert _rows(model, "open_escalations", "worker", "reason", "detail", "context", "raised_at_tick") == [
                (worker, found.reason.kind, found.reason.value, found.context, found.raised_at_tick)
                for worker, found in escalations
            ]
            assert _rows(model, "open_escalations", "attempts") == [
                (run.swarm.escalation_attempts(worker),) for worker, _ in escalations
            ]
            assert _rows(model, "run_summaries", "run", "position", "tasks", "live_tasks", "open_escalations") == [
                (RUN, run.position, len(run.tasks.rows()), len(run.tasks.live()), len(escalations))
            ]


@settings(max_examples=25)
@given(chosen=steps(30, 80))
def test_transitions_and_last_changes_are_those_of_the_journal(chosen: list[Step]) -> None:
    """Every change of a lifecycle is one transition, and a row's changed_seq is the last event that changed the row:
    worked out by comparing the public rows before and after every event."""
    with open_store("memory:") as store:
        run = _lived(store, chosen)
        steps_seen: list[tuple[int, str, Any, Any]] = []
        last: dict[str, int] = {}
        for seq, found in changes(store.journal, store.checkpoints, store.model, RUN):
            for change in found:
                if change.kind != "tasks.tasks":
                    continue
                last[change.id] = seq
                if change.field == "lifecycle":
                    steps_seen.append((seq, change.id, change.before, change.after))
        with store.readmodel() as model:
            rows = _rows(model, "task_transitions", "seq", "task_id", "from_lifecycle", "to_lifecycle")
            assert rows == sorted(steps_seen)
            assert dict(_rows(model, "last_changes", "task_id", "seq")) == last
            events = {event.seq: event for event in run.history()}
            for row in model.find("task_history"):
                event = events[row["seq"]]
                assert (row["type"], row["actor"], row["command_id"]) == (event.type, event.actor, event.command_id)
                assert event.cause == (row["cause_seq"] if row["cause"] is None else row["cause"])


_FILTERS = {
    "task": "EXISTS (SELECT 1 FROM event_tasks n WHERE n.run = e.run AND n.seq = e.seq AND n.task_id = :task)",
    "context": "e.context = :context",
    "graph": "e.graph = :graph",
    "node": "e.node = :node",
    "worker": "e.worker = :worker",
    "types": ":types IN (e.type, e.name, e.prefix)",
    "actor": "e.actor = :actor",
    "command_id": "e.command_id = :command_id",
    "cause": ":cause IN (e.cause_seq, e.cause)",
    "after": "e.seq > :after",
    "until": "e.seq <= :until",
    "since_ms": "e.recorded_at_ms >= :since_ms",
    "until_ms": "e.recorded_at_ms <= :until_ms",
}


@settings(max_examples=25)
@given(chosen=steps(20, 50), data=st.data())
def test_the_filters_of_history_are_columns(chosen: list[Step], data: st.DataObject) -> None:
    """Every filter of ``history`` has its column, and any combination of them gives the same events in SQL."""
    with open_store("memory:", clock=iter(range(1000, 10**9)).__next__) as store:
        run = _lived(store, chosen)
        events = list(run.history())
        of = data.draw(st.sampled_from(events))
        choices: dict[str, Any] = {
            "task": data.draw(st.sampled_from(NASTY)),
            **{name: of.data[name] for name in ("context", "graph", "node", "worker") if of.data.get(name) is not None},
            "types": data.draw(st.sampled_from((of.type, of.type.partition("/")[0], of.type.partition(".")[0]))),
            **{name: value for name in ("actor", "command_id", "cause") if (value := getattr(of, name)) is not None},
            "after": of.seq - data.draw(st.integers(0, 5)),
            "until": of.seq + data.draw(st.integers(0, 5)),
            "since_ms": of.recorded_at_ms - data.draw(st.integers(0, 5)),
            "until_ms": of.recorded_at_ms + data.draw(st.integers(0, 5)),
        }
        names = data.draw(st.sets(st.sampled_from(sorted(choices)), max_size=3))
        chosen_filters = {name: choices[name] for name in names}
        conditions = " AND ".join(["e.run = :run", *(_FILTERS[name] for name in sorted(names))])
        with store.readmodel() as model:
            found = model.query(f"SELECT seq FROM events e WHERE {conditions} ORDER BY seq", {"run": RUN, **choices})
            in_sql = [seq for (seq,) in found]
        types = chosen_filters.pop("types", None)
        in_python = run.history(types=None if types is None else [types], **chosen_filters)
        assert in_sql == [event.seq for event in in_python]
