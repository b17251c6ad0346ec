"""Runs of all four projections, made from lists of numbers that hypothesis chooses: the first is an action, the others
say on what. What the run refuses is left out; the ids and texts are such that programs stumble over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from engine.core.errors import EngineError
from engine.runs import LiveRun

__all__ = ["NASTY", "Step", "live", "steps"]

NASTY: Final = (
    "a",
    "b'; DROP TABLE tasks; --",
    'c" OR "1"="1',
    "d?:x@y$z",
    "e%_\\",
    "ü \U0001f600",
    "0",
    "[x](y) {z}",
)
"""Ids and texts that a statement built of strings would not survive."""

TEXTS: Final = (*NASTY, "", "null", "nul\0byte", '{"a":1}', "NEAR/2 AND *", "2e5")
VALUES: Final = (
    None, True, 1, 1.0, 0.1, 2**64 - 1, -(2**63), "1", [], {}, {"a": {"b": [1, {"c": None}]}}, {"$bytes": "eA=="},
    {"a.b": {'"': [True, "x"]}}, {"$map": {}},
)  # fmt: skip


class Step(NamedTuple):
    """One action: which, and three numbers that choose what it is about."""

    action: int
    one: int
    two: int
    three: int


def steps(min_size: int = 20, max_size: int = 60) -> st.SearchStrategy[list[Step]]:
    """Return lists of actions: evenly spread, which small numbers that are drawn one by one are not."""
    return st.builds(_spread, st.integers(0, 2**32), st.integers(min_size, max_size))


def _spread(seed: int, size: int) -> list[Step]:
    random = Random(seed)
    return [Step(random.randrange(2**16), *(random.randrange(64) for _ in range(3))) for _ in range(size)]


def live(run: LiveRun, chosen: Sequence[Step]) -> None:
    """Let a run live through these actions; now and then several are one commit."""
    left = list(chosen)
    for begin in _BEGINNINGS:
        if left and left[0].action % 8:
            _try(begin, run, left.pop(0))
    while left:
        step = left.pop(0)
        if step.action % 7 == 6 and left:
            with run.batch():
                for inner in (step, *left[: step.one % 4 + 1]):
                    _act(run, inner)
            left = left[step.one % 4 + 1 :]
        else:
            _act(run, step)


def _act(run: LiveRun, step: Step) -> None:
    actions = _ACTIONS if step.action % 6 else _BEGINNINGS
    _try(_of(actions, step.action // 6), run, step)


def _try(action: Callable[..., None], run: LiveRun, step: Step) -> None:
    how = {
        "actor": _of(NASTY, step.two) if step.three % 3 == 0 else None,
        "command_id": f"{_of(NASTY, step.one)} {step.two}" if step.three % 5 == 0 else None,
        "cause": max(run.position - 1, 1) if step.two % 5 == 0 and run.position else None,
    }
    try:
        action(run, step.one, step.two, step.three, how)
    except EngineError as error:
        assert not error.retryable


def _of(pool: Sequence[Any], number: int) -> Any:
    return pool[number % len(pool)]


# -- tasks ------------------------------------------------------------------------------------------------------------


def _a_task(run: LiveRun, number: int) -> str:
    ids = [row.task_id for row in run.tasks.rows()]
    return str(_of(ids, number)) if ids else "a"


def _open_root(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    run.tasks.open_root(_of(NASTY, one), capability_ids=[_of(NASTY, two)], **how)
    run.tasks.start(_of(NASTY, one), **how)


def _spawn(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    task = _of(NASTY, one)
    run.tasks.spawn(task, parent=_a_task(run, two), role=_of(("explore", "verify"), three), **how)
    if three % 4:
        run.tasks.publish_launch(task)
    if three % 4 > 1:
        run.tasks.acknowledge_launch(task, 1)


def _suspend(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    task = _a_task(run, one)
    if three % 3:
        children = [row.task_id for row in run.tasks.children(task) if row.lifecycle != "done"]
        run.tasks.suspend(task, wait="sub_agent_join", waiting_on=children[: two % 3 + 1], **how)
    else:
        run.tasks.suspend(task, wait="signal", awaited=_of(TEXTS, two), due_ms=two, **how)


def _go_on(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    task = _a_task(run, one)
    if three % 2:
        run.tasks.resume(task, **how)
    else:
        run.tasks.extend_join(task, waiting_on=[row.task_id for row in run.tasks.children(task)][two % 3 :], **how)


def _finish(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    task = _a_task(run, one)
    attempt = run.tasks.launch(task).attempt
    result = {"final_message": _of(TEXTS, two), _of(TEXTS, three): _of(VALUES, two)} if two % 2 else None
    run.tasks.finish(
        task,
        attempt=attempt,
        termination=_of(("completed", "error"), three),
        result=result,
        on_children=_of(("cancel_children", "detach", None), two),
        **how,
    )


def _usage(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    run.tasks.report_usage(_a_task(run, one), tokens=_of((1, 7, 2**62, 2**63), two), turns=three, **how)


def _otherwise(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    task = _a_task(run, one)
    if three % 2:
        run.tasks.fail_launch(task, run.tasks.launch(task).attempt, reason=_of(TEXTS, two), **how)
    else:
        run.tasks.yield_task(task, **how)


def _relaunch(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    run.tasks.relaunch(_a_task(run, one), mode=_of(("restart", "retry"), two), **how)


def _grant(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    change = run.tasks.grant_capabilities if three % 3 else run.tasks.revoke_capabilities
    change(_a_task(run, one), [_of(NASTY, two)], **how)


# -- conversations ----------------------------------------------------------------------------------------------------


def _context(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    context = _of(NASTY[:3], one)
    if three % 4:
        run.contexts.create(context, model_window=_of((0, 20, 2**64 - 1), two), **how)
        return
    record = {
        "kind": "root",
        "version": two,
        "messages": [{"role": "user", "text": _of(TEXTS, two), "ts": 2**64 - 1, "content": _of(VALUES, three)}],
        "preflight": _of(VALUES, two),
        "unknown": _of(VALUES, three),
        "task": "nobody",
    }
    run.contexts.import_record(context, record, partial=True, **how)


def _a_context(run: LiveRun, number: int) -> str:
    ids = run.contexts.ids()
    return str(_of(ids, number)) if ids else "a"


def _say(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    text, value = _of(TEXTS, two), _of(VALUES, three)
    messages: list[dict[str, Any]] = [
        {"role": "user", "text": text, "principal": _of(NASTY, three)},
        {"role": "assistant", "text": text},
        {"role": "assistant", "tool_calls": [{"id": "k", "name": text, "arguments": value, "extra": 1}]},
        {"role": "tool", "id": "k", "name": text, "content": value, "is_error": bool(two % 2)},
        {"role": "note", "text": text, "name": value},
        {"role": "system", "text": text},
    ]
    first = two % len(messages)
    run.contexts.append_all(_a_context(run, one), messages[first : first + three % 3 + 1], **how)


def _compact(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    context = _a_context(run, one)
    plan = run.contexts.plan_compaction(context, keep_last=two % 3)
    if plan is None:
        return
    if three % 2:
        run.contexts.apply_fallback(context, plan, **how)
    else:
        run.contexts.apply_compaction(context, plan, {"facts": [f"fact {_of(TEXTS, two)}"]}, **how)


def _shape_context(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    contexts, context = run.contexts, _a_context(run, one)
    [
        lambda: contexts.set_window(context, three, **how),
        lambda: contexts.load_skill(context, _of(NASTY, two), "hash", **how),
        lambda: contexts.unload_skill(context, _of(NASTY, two), **how),
        lambda: contexts.create_plan(context, _of(NASTY, two), [_of(NASTY, three)], **how),
        lambda: contexts.update_plan(context, item=1, status="done", **how),
        lambda: contexts.set_preflight(context, _of(VALUES, two), **how),
        lambda: contexts.attach_task(context, _a_task(run, two), **how),
        lambda: contexts.detach_task(context, **how),
        lambda: contexts.begin_turn(context, **how),
        lambda: contexts.set_principal(context, _of(NASTY, two), **how),
        lambda: contexts.clear_plan(context, **how),
        lambda: contexts.touch(context, **how),
        lambda: contexts.close_calls(context, _of(TEXTS, two), **how),
    ][three % 13]()


# -- graphs -----------------------------------------------------------------------------------------------------------


def _nodes(first: int, one: int, two: int, three: int) -> list[dict[str, Any]]:
    return [
        {
            "id": first + number,
            "title": _of(TEXTS, one + number),
            "description": "",
            "depends_on": sorted({(first + number) * (two + 1) // (three % 4 + 2)} if number else set()),
            "failure_strategy": _of((None, "abort", "retry", "skip", "ask"), two + number),
            "execution_mode": _of(("parallel", "sequential"), three + number),
            "verify_predicate": {"kind": "natural", "value": "good"} if (two + number) % 3 == 0 else None,
            "recovery": {"route_to": first + number + 1} if number == 1 and three % 3 == 0 else None,
            "token_budget_cents": 0.5 if two % 2 else None,
            "unknown": _of(VALUES, three),
        }
        for number in range(one % 4 + 2)
    ]


def _graph(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    graph = _of(NASTY[:3], one)
    nodes = _nodes(0, one, two, three)
    for node in nodes:
        node["depends_on"] = [number for number in node["depends_on"] if number < node["id"]]
    run.graphs.create(graph, _of(TEXTS, two), nodes, extra={"unknown": _of(VALUES, three)}, **how)
    if three % 5:
        run.graphs.start(graph, **how)


def _a_graph(run: LiveRun, number: int) -> str:
    ids = run.graphs.ids()
    return str(_of(ids, number)) if ids else "a"


def _work(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    """Take a graph a step on: dispatch what is ready, or end what runs, or judge what awaits."""
    graph = _a_graph(run, one)
    running, awaiting = run.graphs.running(graph), run.graphs.awaiting(graph)
    if awaiting and two % 2:
        outcome = {"passed": bool(three % 3), "confidence": 0.5, "reason": _of(TEXTS, two), "by": "judge"}
        run.graphs.record_predicate(graph, _of(awaiting, two), outcome, **how)
    elif running and three % 3:
        at = _of(running, two)
        if two % 5 == 0:
            run.graphs.defer(graph, at.node, _of(TEXTS, three), attempt=at.attempt.number, **how)
        elif three % 4:
            result = {"output": _of(TEXTS, two), "artifacts": ["x"], "score": _of(VALUES, three)}
            run.graphs.complete(graph, at.node, result, attempt=at.attempt.number, **how)
        else:
            run.graphs.fail(graph, at.node, "tools", _of(TEXTS, three), attempt=at.attempt.number, **how)
    else:
        handle: Any = {"task": _a_task(run, three)} if three % 4 == 0 else _of(TEXTS, two)
        run.graphs.dispatch(graph, _of(run.graphs.ready(graph) or (0,), two), handle, _of(NASTY, three), **how)


def _steer(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    graphs, graph = run.graphs, _a_graph(run, one)
    node = two % 5
    [
        lambda: graphs.start(graph, **how),
        lambda: graphs.pause(graph, **how),
        lambda: graphs.resume(graph, **how),
        lambda: graphs.inject(graph, _nodes(len(graphs.get(graph).nodes), one, two, three), **how),
        lambda: graphs.retry(graph, node, **how),
        lambda: graphs.skip(graph, node, **how),
        lambda: graphs.correct(graph, node, _of(TEXTS, three), **how),
        lambda: graphs.cancel(graph, node, **how),
        lambda: graphs.recover(graph, _of(("keep", "requeue", "fail"), two), **how),
        lambda: graphs.retry_graph(graph, **how),
        lambda: graphs.cancel_graph(graph, **how),
        lambda: graphs.import_graph({**graphs.get(graph).to_json(), "id": f"{graph} again"}, **how),
    ][three % 12]()


# -- swarms -----------------------------------------------------------------------------------------------------------


def _swarm(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    if three % 3:
        run.swarm.start(one % 4 + 1, max_ticks=two, failure_threshold=2, task=_of(VALUES, three), **how)
        return
    worker = _of((0, 3, 2**64 - 1), two)
    summary = {"id": worker, "consecutive_failures": 1, "history_len": 2, "has_escalation": bool(one % 2)}
    escalation = {"reason": {"agent_requested": _of(TEXTS, two)}, "raised_at_tick": 1, "more": _of(VALUES, one)}
    record = {
        "tick": one + 1,
        "workers": {str(worker): {**summary, "odd": _of(VALUES, two)}},
        "success_rate": 0.25,
        "progress": 0.5,
        "escalations": [[worker, escalation]] if one % 2 else [],
        "excluded_actions": [_of(TEXTS, two)],
        "previous_guidances": {},
        "done_workers": [],
        "metadata": {_of(TEXTS, two): _of(VALUES, one)},
        "beyond": _of(VALUES, two),
    }
    run.swarm.import_record(record, **how)


def _swarm_on(run: LiveRun, one: int, two: int, three: int, how: Any) -> None:
    swarm = run.swarm
    worker = _of(swarm.worker_ids() or [0], two)
    [
        lambda: swarm.advance_tick(swarm.context().tick + one + 1, **how),
        lambda: swarm.complete_action(
            worker, _of(TEXTS, one), success=bool(one % 2), output=_of(TEXTS, two), duration_ms=1, **how
        ),
        lambda: swarm.complete_action(worker, "think", success=True, duration_ms=1, kind="llm", **how),
        lambda: swarm.idle(worker, **how),
        lambda: swarm.raise_escalation(worker, {"unknown": _of(TEXTS, one)}, context=_of(TEXTS, two), **how),
        lambda: swarm.clear_escalation(worker, **how),
        lambda: swarm.finish_worker(worker, success=True, message=_of(TEXTS, one), **how),
        lambda: swarm.issue_guidance(worker, {"content": _of(TEXTS, one)}, **how),
        lambda: swarm.set_metadata(_of(TEXTS, one), _of(VALUES, two), **how),
        lambda: swarm.set_metadata(_of(TEXTS, two), _of(VALUES, one), **how),
        lambda: swarm.remove_metadata(_of(TEXTS, one), **how),
        lambda: swarm.update_exploration([_of(TEXTS, one)], [{"content": "x"}] if two % 2 else None, **how),
        lambda: swarm.record_verdict(bool(one % 2), _of(TEXTS, two), details=_of(VALUES, one), **how),
        lambda: swarm.configure_actions(
            {"actions": {"go": {"name": "go", "description": "", "category": "node_state_change"}}, "groups": {}}, **how
        ),
    ][three % 14]()


_BEGINNINGS: Final[tuple[Callable[..., None], ...]] = (_open_root, _context, _graph, _swarm, _spawn)
_ACTIONS: Final[tuple[Callable[..., None], ...]] = (
    _spawn, _suspend, _go_on, _finish, _usage, _relaunch, _grant, _spawn, _otherwise,
    _say, _say, _compact, _shape_context,
    _work, _work, _work, _steer,
    _swarm_on, _swarm_on, _swarm_on,
)  # fmt: skip
