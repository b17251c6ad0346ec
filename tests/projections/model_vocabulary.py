"""Commands and facts to draw for a whole run. Most are what the run could do next, and what leads across projections;
the rest are anything at all, so that refusals and repetitions come too.

What could be done next is read from the second reading of the run, never from the run itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from hypothesis import strategies as st

from engine.core.codec import encode
from projections.contexts import commands as contexts
from projections.contexts import from_record
from projections.contexts.message import message_array
from projections.contexts.record import record_parts
from projections.graph import commands as graph
from projections.swarm import commands as swarm
from projections.tasks import TERMINATIONS
from projections.tasks import commands as tasks
from tests.projections.graph.graph_nodes import NODES_MAX, STRATEGIES, as_task, new_nodes
from tests.projections.graph.graph_oracle_followed import Followed
from tests.projections.model_oracle import KEEP, Whole, fold_point
from tests.projections.tasks.tasks_strategies import ANY

CONTEXTS = ("x", "a/b", "a//b")
GRAPHS = ("g", "h")
IDS = ("root", "a", "b", "c", "d", "e")
WORKERS = st.integers(0, 3)

anything = st.integers(0, 9)
"""A die: some of its faces are for what makes no sense."""


@cache
def _up_to(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most)


def choose(draw: st.DrawFn, choices: Sequence[Any]) -> Any:
    """Draw one of the choices; as ``sampled_from`` does, at a third of its cost."""
    return choices[draw(_up_to(len(choices) - 1))]


def pick(draw: st.DrawFn, likely: Iterable[Any], all_: Iterable[Any]) -> Any:
    """Draw one of the likely, if there are any; now and then any."""
    likely = list(likely)
    return choose(draw, likely if likely and draw(anything) else list(all_))


# -- tasks ------------------------------------------------------------------------------------------------------------

_TASK_COMMANDS = {
    kind.name: kind
    for kind in vars(tasks).values()
    if isinstance(kind, type) and issubclass(kind, tasks.TaskCommand) and "name" in kind.__dict__
}
ENDINGS = st.sampled_from(["completed", "completed", "completed", *TERMINATIONS])
RESULTS = st.sampled_from([None, {"final_message": "x"}, {"final_message": {"role": "assistant", "content": "y"}}, {}])
CHILDREN = st.sampled_from([None, None, "cancel_children", "detach"])


def task_commands(draw: st.DrawFn, whole: Whole) -> Any:
    rows = whole.tasks.rows
    if not rows:
        return tasks.OpenRoot.make(task_id="root" if draw(anything) else "a")
    live = [task for task in rows if whole.tasks.alive(task)]
    kind = choose(draw, ["spawn", "step", "step", "step", "step", "end", "end", "end", "any"])
    if kind == "any" or not live:
        name, arguments = draw(ANY)
        return _TASK_COMMANDS[name].make(**arguments)
    if kind == "spawn":
        return tasks.Spawn.make(
            task_id=pick(draw, [i for i in IDS if i not in rows], IDS), parent=pick(draw, live, rows)
        )
    carrying = [task for task in live if whole.carried(task) is not None]
    task = pick(draw, carrying if carrying and draw(st.booleans()) else live, rows)
    if kind == "step":
        return _next_step(draw, whole, task)
    if draw(anything) == 0:
        return tasks.Cancel.make(task_id=task)
    attempt = rows[task]["attempt"] if draw(anything) else 1
    return tasks.Finish.make(
        task_id=task,
        termination=draw(ENDINGS),
        attempt=attempt,
        result=draw(RESULTS),
        on_children=draw(CHILDREN),
    )


def _next_step(draw: st.DrawFn, whole: Whole, task: str) -> Any:
    row = whole.tasks.rows[task]
    where, attempt = row["lifecycle"], row["attempt"]
    if where in ("pending_launch", "starting") and draw(anything) == 0:
        reason = choose(draw, ["", "full"])
        return tasks.FailLaunch.make(task_id=task, attempt=attempt, reason=reason, on_children=draw(CHILDREN))
    if where == "pending_launch":
        return tasks.PublishLaunch.make(task_id=task, attempt=attempt)
    if where == "starting":
        return tasks.AcknowledgeLaunch.make(task_id=task, attempt=attempt)
    if where == "suspended" or (where == "ready" and draw(anything)):
        return tasks.Resume.make(task_id=task)
    kind = choose(draw, ["usage", "yield", "timer", "join", "relaunch"])
    if kind == "usage":
        return tasks.ReportUsage.make(task_id=task, tokens=3, turns=1)
    if kind == "yield":
        return tasks.YieldTask.make(task_id=task)
    if kind == "relaunch":
        return tasks.Relaunch.make(task_id=task, mode="retry")
    children = whole.tasks.living_children(task)[:2] if kind == "join" else []
    return tasks.Suspend.make(task_id=task, wait="sub_agent_join" if children else "timer", waiting_on=children)


# -- contexts ---------------------------------------------------------------------------------------------------------

_ASK = {"role": "user", "text": "a question"}
_CALL = {"role": "assistant", "tool_calls": [{"id": "c1", "name": "look", "arguments": {"at": [1, True]}}]}
_RESULT = {"role": "tool", "id": "c1", "name": "look", "content": {"found": None}, "is_error": False, "ts": 7}
MESSAGES = st.lists(
    st.sampled_from([
        _ASK,
        _ASK,
        {"role": "user", "text": "ü", "principal": "ada", "ts": 3},
        {"role": "assistant", "text": "an answer"},
        _CALL,
        _RESULT,
        {"role": "note", "text": "aside", "trace": {"id": 1}},
        {"role": "system", "text": ""},
    ]),
    max_size=3,
)  # fmt: skip
VERDICTS = st.sampled_from([{"goals": ["g"]}, {"facts": ["f"], "narrative": "so far"}, "prose", {}, " "])
JSON = st.sampled_from([None, True, 1, 1.0, "", {"k": [1]}])


def _record(task: str | None, *bound: str) -> dict[str, Any]:
    items = [
        {"id": n, "title": f"t{n}", "status": "in_progress", "bound": {"task": {"id": ref}}, "updated": 2}
        for n, ref in enumerate(bound, 1)
    ]
    plan = {"goal": "imported", "items": items, "next_id": len(items) + 1, "created": 1, "updated": 2}
    record = {
        "kind": "root",
        "version": 3,
        "summary": {"covers_messages": 5, "facts": ["old"], "updated": 1},
        "messages": [{**_ASK, "ts": 1}, {**_CALL, "ts": 2}, _RESULT],
        "model_window": 100,
        "turns": 2,
        "created": 1,
        "updated": 2,
        "x-agentd": {"shard": 4},
    }
    return record | ({} if task is None else {"task": task}) | ({"plan": plan} if bound else {})


RECORDS = [_record(None), _record("a", "a", "b"), _record("nobody"), _record(None, "root", "c")]
_PARTS = {encode(record_parts(from_record(record).state)): record for record in RECORDS}  # type: ignore[arg-type]


def record_of(parts: Any) -> dict[str, Any]:
    """The record that an import takes in."""
    return _PARTS[encode(parts)]


def context_commands(draw: st.DrawFn, whole: Whole) -> Any:
    records = whole.contexts.records
    if not records or draw(anything) == 0:
        context = pick(draw, [context for context in CONTEXTS if context not in records], CONTEXTS)
        if draw(st.booleans()):
            return contexts.CreateContext.make(context=context, model_window=draw(st.integers(0, 40)))
        parts = record_parts(from_record(choose(draw, RECORDS)).state)  # type: ignore[arg-type]
        return contexts.ImportContext.make(context=context, parts=parts, model_window=choose(draw, [None, 9]))
    to = {"context": pick(draw, records, CONTEXTS)}
    kind = choose(draw, ["say", "say", "say", "plan", "plan", "bind", "bind", "fold", "fold", "about", "task"])
    if kind == "say":
        messages = [message_array(message) for message in draw(MESSAGES)]
        return contexts.AppendMessages.make(**to, messages=messages)
    if kind == "fold":
        return _folds(draw, whole, to)
    if kind == "task":
        if draw(anything) < 2:
            return contexts.DetachTask.make(**to)
        return contexts.AttachTask.make(**to, task=pick(draw, whole.tasks.rows, ["nobody"]))
    return _plans(draw, whole, to, kind) if kind in ("plan", "bind") else _about(draw, to)


def _folds(draw: st.DrawFn, whole: Whole, to: dict[str, str]) -> Any:
    record = whole.contexts.records.get(to["context"], {"messages": [], "version": 1})
    fold = fold_point(record["messages"], KEEP) or draw(st.integers(1, 4))
    version = record["version"] + (draw(anything) == 0)
    kind = choose(draw, ["verdict", "verdict", "fallback", "close"])
    if kind == "close":
        return contexts.CloseCalls.make(**to, reason="gone")
    if kind == "fallback":
        return contexts.ApplyFallback.make(**to, fold=fold, version=version)
    return contexts.ApplyCompaction.make(**to, fold=fold, version=version, verdict=draw(VERDICTS))


def _plans(draw: st.DrawFn, whole: Whole, to: dict[str, str], kind: str) -> Any:
    plan = whole.contexts.records.get(to["context"], {}).get("plan")
    if plan is None or (kind == "plan" and draw(anything) == 0):
        items = draw(st.lists(st.sampled_from(["a", "b", "b", " ", {"title": "c", "detail": "d"}]), max_size=3))
        return contexts.CreatePlan.make(**to, goal=choose(draw, ["g", "g", " "]), items=items)
    item = pick(draw, [item["id"] for item in plan["items"]], [1, "2", "a", 99])
    if kind == "bind":
        ref = pick(draw, whole.tasks.rows, IDS)
        kind_of = choose(draw, ["task", "task", "task", "task", "run", "subagent", "nope"])
        return contexts.UpdatePlan.make(**to, changes={"item": item, "bind": {kind_of: ref}})
    if draw(anything) == 0:
        return contexts.ClearPlan.make(**to)
    if draw(anything) == 0:
        ref = pick(draw, whole.tasks.rows, IDS)
        return contexts.SettlePlan.make(**to, binding=["task", ref], ok=draw(st.booleans()), note="by hand")
    change = st.fixed_dictionaries(
        {},
        optional={
            "insert": st.sampled_from(["e", {"title": "f", "after": 1}]),
            "reorder": st.lists(st.integers(1, 4), max_size=3),
            "item": st.just(item),
            "status": st.sampled_from(["pending", "in_progress", "done", "skipped", "bogus"]),
            "note": st.sampled_from(["", "n"]),
        },
    )
    return contexts.UpdatePlan.make(**to, changes=draw(change), max_items=5)


def _about(draw: st.DrawFn, to: dict[str, str]) -> Any:
    kind = choose(draw, ["turn", "touch", "window", "preflight", "principal", "load", "unload"])
    name = choose(draw, ["s1", "s2"])
    if kind == "load":
        return contexts.LoadSkill.make(**to, skill=name, hash=choose(draw, "xy"), max_loaded=1)
    if kind == "unload":
        return contexts.UnloadSkill.make(**to, skill=name)
    if kind == "window":
        return contexts.SetWindow.make(**to, model_window=draw(st.integers(0, 2)))
    if kind == "preflight":
        return contexts.SetPreflight.make(**to, value=draw(JSON))
    if kind == "principal":
        return contexts.SetPrincipal.make(**to, principal=choose(draw, ["ada", "bob"]))
    return (contexts.BeginTurn if kind == "turn" else contexts.TouchContext).make(**to)


# -- graphs -----------------------------------------------------------------------------------------------------------

_BROKEN = st.sampled_from([
    [{"id": 1, "title": "", "description": ""}],
    [{"id": 0, "title": "", "description": "", "depends_on": [0]}],
    [{"id": 0, "title": "", "description": "", "depends_on": [7]}],
])  # fmt: skip


def _lived(task: str) -> dict[str, Any]:
    """A graph that has run elsewhere: one node has completed, one follows a task, one waits for both."""
    attempt = {"number": 1, "agent": "a", "started_ms": 5, "ended_ms": None, "outcome": None, "error": None}
    done = {**attempt, "handle": "h", "ended_ms": 9, "outcome": "completed"}
    result = {"output": "of old", "artifacts": [], "duration_ms": 4, "agent_id": None, "agent_def": None}
    nodes = [
        {"id": 0, "status": "completed", "attempts": [done], "result": result},
        {"id": 1, "status": "running", "attempts": [{**attempt, "handle": {"task": task}}]},
        {"id": 2, "status": "pending", "depends_on": [0, 1], "attempts": [], "result": None},
    ]
    return {
        "id": "i",
        "goal": "imported",
        "status": "running",
        "default_failure_strategy": "retry",
        "default_max_retries": 1,
        "created_at": 3,
        "finished_at": None,
        "nodes": [{"title": "", "description": "", "depends_on": [], "result": None} | node for node in nodes],
    }


def graph_commands(draw: st.DrawFn, whole: Whole) -> Any:
    new = [name for name in GRAPHS if name not in whole.graphs]
    if not whole.graphs or (new and draw(anything) == 0):
        return _new_graphs(draw, pick(draw, new, GRAPHS))
    if "i" not in whole.graphs and draw(anything) == 0:
        return graph.ImportGraph.make(graph="i", record=_lived(pick(draw, whole.tasks.rows, ["nobody", "a"])))
    name = pick(draw, whole.graphs, [*GRAPHS, "nowhere"])
    there = whole.graphs.get(name)
    to = {"graph": name}
    if there is None or (there.status == "created" and draw(anything)):
        return graph.Start.make(**to)
    kind = choose(draw, ["attempt"] * 8 + ["node"] * 4 + ["graph"] * 3)
    if kind == "attempt":
        return _attempts(draw, whole, to, there)
    if kind == "node":
        return _people(draw, to, there)
    if there.status not in ("created", "running") and draw(st.booleans()):
        return choose(draw, [graph.RetryGraph, graph.Resume]).make(**to)
    kinds = [graph.Start, graph.Pause, graph.Resume, graph.Recover, graph.Recover, graph.Inject, graph.Inject]
    which = choose(draw, [*kinds, graph.CancelGraph])
    if which is graph.Recover:
        return which.make(**to, policy=choose(draw, ["keep", "requeue", "fail"]))
    if which is graph.Inject:
        return _injections(draw, to, there)
    return which.make(**to)


def _new_graphs(draw: st.DrawFn, name: str) -> Any:
    head = {
        "default_failure_strategy": draw(STRATEGIES),
        "default_max_retries": draw(st.integers(0, 2)),
        "predicate_reruns": draw(st.integers(0, 2)),
        "extra": {},
    }
    nodes = [as_task(number, node) for number, node in enumerate(draw(new_nodes(0, 5)))] if draw(anything) else None
    return graph.Create.make(graph=name, goal="goal", nodes=draw(_BROKEN) if nodes is None else nodes, **head)


def _injections(draw: st.DrawFn, to: dict[str, str], there: Followed) -> Any:
    first = len(there.nodes)
    if first >= NODES_MAX or draw(anything) == 0:
        return graph.Inject.make(**to, nodes=draw(_BROKEN))
    nodes = draw(new_nodes(first, 2))
    return graph.Inject.make(**to, nodes=[as_task(number, node) for number, node in enumerate(nodes, first)])


def _attempts(draw: st.DrawFn, whole: Whole, to: dict[str, str], there: Followed) -> Any:
    ready, running = there.where("ready"), there.where("running")
    if ready and (not running or draw(st.integers(0, 2))):
        return _dispatches(draw, whole, to, pick(draw, ready, range(len(there.nodes))))
    node = pick(draw, running, range(len(there.nodes)))
    count = len(there.log[node])
    which: dict[str, Any] = {"node": node, "attempt": count if draw(anything) else draw(st.integers(0, count + 1))}
    if count and there.log[node][-1].handle is not None and draw(st.booleans()):
        which = {"node": node, "handle": there.log[node][-1].handle}
    kind = choose(draw, ["complete", "complete", "complete", "fail", "fail", "defer"])
    if kind == "complete":
        given = choose(draw, ["done", "done", "other", {"output": "whole", "duration_ms": 1}])
        return graph.Complete.make(**to, **which, result=given)
    if kind == "defer":
        return graph.Defer.make(**to, **which, reason=choose(draw, [None, "full"]))
    why = choose(draw, ["error", "run_timeout", "spawn"])
    return graph.Fail.make(**to, **which, why=why, error=choose(draw, [None, "it broke"]))


def _dispatches(draw: st.DrawFn, whole: Whole, to: dict[str, str], node: int) -> Any:
    free = [task for task in whole.tasks.rows if whole.may_follow(task)]
    how = choose(draw, ["task", "task", "task", "handle", "none"])
    handle: Any = {"task": pick(draw, free, [*IDS, "nobody"])} if how == "task" else "h" if how == "handle" else None
    return graph.Dispatch.make(**to, node=node, handle=handle, agent=choose(draw, [None, "a"]))


def _people(draw: st.DrawFn, to: dict[str, str], there: Followed) -> Any:
    every = range(len(there.nodes))
    awaiting = there.awaiting()
    if awaiting and draw(st.integers(0, 2)):
        verdict = {"passed": draw(st.booleans()), "confidence": 0.5, "reason": "so"}
        return graph.Judge.make(**to, node=pick(draw, awaiting, every), outcome=verdict)
    failed = there.where("failed")
    if failed and draw(st.booleans()):
        return choose(draw, [graph.Retry, graph.Skip]).make(**to, node=pick(draw, failed, every))
    if draw(anything) < 3:
        return graph.Correct.make(**to, node=pick(draw, there.where("completed"), every), reason="wrong")
    some = there.where("pending", "ready", "running", "dormant")
    kind = choose(draw, [graph.Skip, graph.Cancel, graph.Retry])
    return kind.make(**to, node=pick(draw, some, every))


# -- the swarm --------------------------------------------------------------------------------------------------------

_CONFIG = {
    "actions": {"look": {"name": "look", "description": "", "category": "node_expand", "groups": [], "params": []}},
    "groups": {},
}
_SUMMARY = {"consecutive_failures": 1, "history_len": 2, "has_escalation": False, "last_action": "look",
            "last_success": False, "last_output": None}  # fmt: skip
_SWARM = {
    "tick": 3,
    "workers": {"0": {"id": 0, **_SUMMARY, "phase": "working"}, "2": {"id": 2, **_SUMMARY, "phase": "idle"}},
    "success_rate": 0.5,
    "progress": 0.3,
    "escalations": [],
    "available_actions": None,
    "v2_guidances": None,
    "excluded_actions": [],
    "previous_guidances": {},
    "done_workers": [],
    "metadata": {"k": [1]},
}
_NUMBERS = {"visits": 4, "successes": 2, "max_ticks": 10, "failure_threshold": 2, "task": None}
_GUIDANCE = {"actions": ["look"], "content": None, "props": {}, "exploration_target": None, "scope": "minimal"}


def swarm_commands(draw: st.DrawFn, whole: Whole) -> Any:
    if whole.swarm.told is None and draw(anything):
        if draw(anything) == 0:
            return swarm.ImportRecord.make(record=_SWARM, **_NUMBERS)
        return swarm.Start.make(worker_count=3, max_ticks=4, failure_threshold=draw(st.integers(0, 2)), task=None)
    worker = {"worker": draw(WORKERS)}
    kind = choose(draw, ["act"] * 5 + ["tick"] * 2 + ["idle", "raise", "clear", "guide", "end", "more"])
    if kind == "act":
        success = draw(st.booleans())
        said = {"action": "look", "target": None, "output": None if success else "out", "error": None}
        kind_of = choose(draw, ["worker", "worker", "worker", "llm", "manager"])
        return swarm.CompleteAction.make(**worker, success=success, duration_ms=1, kind=kind_of, **said)
    if kind == "tick":
        return swarm.AdvanceTick.make(tick=choose(draw, [None, None, 0, 2, 9]))
    if kind == "raise":
        reason = choose(draw, ["timeout", {"agent_requested": ""}])
        return swarm.RaiseEscalation.make(**worker, reason=reason, context=None)
    if kind == "guide":
        return swarm.IssueGuidance.make(**worker, guidance=_GUIDANCE)
    if kind == "end":
        return swarm.FinishWorker.make(**worker, success=draw(st.booleans()), message=None)
    if kind == "more":
        return _situations(draw)
    return (swarm.Idle if kind == "idle" else swarm.ClearEscalation).make(**worker)


def _situations(draw: st.DrawFn) -> Any:
    kind = choose(draw, ["put", "put", "drop", "explore", "actions", "judge", "start"])
    if kind == "put":
        return swarm.SetMetadata.make(key=choose(draw, "ab"), value=draw(JSON))
    if kind == "drop":
        return swarm.RemoveMetadata.make(key=choose(draw, "ab"))
    if kind == "explore":
        v2 = choose(draw, [None, [], [_GUIDANCE]])
        return swarm.UpdateExploration.make(excluded_actions=choose(draw, [[], ["look"]]), v2_guidances=v2)
    if kind == "actions":
        return swarm.ConfigureActions.make(config=_CONFIG)
    if kind == "judge":
        return swarm.RecordVerdict.make(success=draw(st.booleans()), reason=None, details=None)
    return swarm.Start.make(worker_count=3, max_ticks=4, failure_threshold=1, task=None)


# -- all of them ------------------------------------------------------------------------------------------------------


@st.composite
def families(draw: st.DrawFn) -> list[Any]:
    """Draw how a run may begin: tasks, a plan whose items are bound to them, a graph on its way, a swarm."""
    parents = {"a": "root", "b": "root", "c": choose(draw, ["root", "a"])}
    bound = draw(st.lists(st.sampled_from("abc"), min_size=3, max_size=3))
    changes = [{"item": item, "bind": {"task": task}} for item, task in enumerate(bound, 1)]
    begun = [
        tasks.OpenRoot.make(task_id="root"),
        tasks.Start.make(task_id="root"),
        *(tasks.Spawn.make(task_id=task, parent=parent) for task, parent in parents.items()),
        *(tasks.PublishLaunch.make(task_id=task, attempt=1) for task in ("a", "b")),
        contexts.CreateContext.make(context="x", model_window=20),
        contexts.CreatePlan.make(context="x", goal="g", items=["a", "b", "c"]),
        *(contexts.UpdatePlan.make(context="x", changes=change) for change in changes),
        _new_graphs(draw, "g"),
        graph.Start.make(graph="g"),
        swarm.Start.make(worker_count=3, max_ticks=4, failure_threshold=2, task=None),
    ]
    return begun[: choose(draw, [len(begun), len(begun), len(begun), 9, 0])]


def sent(whole: Whole) -> list[Any]:
    """Dispatches of what is ready in a family's graph, each to follow a task."""
    there = whole.graphs.get("g")
    free = [task for task in ("a", "b", "c") if whole.tasks.alive(task)]
    ready = [] if there is None else there.where("ready")
    return [graph.Dispatch.make(graph="g", node=n, handle={"task": task}) for n, task in zip(ready, free, strict=False)]


_PARTS_OF_A_RUN = [task_commands] * 4 + [graph_commands] * 4 + [context_commands] * 3 + [swarm_commands] * 2


@st.composite
def commands(draw: st.DrawFn, whole: Whole) -> Any:
    """Draw a command to any of the four."""
    return choose(draw, _PARTS_OF_A_RUN)(draw, whole)


@st.composite
def facts(draw: st.DrawFn, whole: Whole, at_ms: int) -> Any:
    """Draw a fact that another runtime has decided, of those that reach into another projection."""
    rows, context = whole.tasks.rows, pick(draw, whole.contexts.records, CONTEXTS)
    task = pick(draw, [task for task in rows if whole.tasks.alive(task)], [*IDS, "nobody"])
    attempt = rows[task]["attempt"] if task in rows else 1
    kind = choose(draw, ["finish", "finish", "run", "attach", "settle", "dispatch", "tick"])
    if kind == "finish":
        told = {"termination": draw(ENDINGS), "attempt": attempt, "result": None, "wakes": None, "because": None}
        return "task.finished", {"task_id": task, **told}
    if kind == "run":
        return "task.launch_acknowledged", {"task_id": task, "attempt": attempt}
    if kind == "attach":
        return "context.task_attached", {"context": context, "at_ms": at_ms, "task": task}
    if kind == "settle":
        items, ok = draw(st.lists(st.integers(1, 3), max_size=2, unique=True)), draw(st.booleans())
        return "context.plan_items_settled", {
            "context": context,
            "at_ms": at_ms,
            "items": items,
            "ok": ok,
            "note": None,
        }
    if kind == "tick":
        return "swarm.tick_advanced", {"tick": draw(st.integers(0, 5))}
    name = pick(draw, whole.graphs, GRAPHS)
    there = whole.graphs.get(name)
    ready = [] if there is None else there.where("ready")
    node = pick(draw, ready, range(3))
    number = 1 if there is None or node >= len(there.nodes) else len(there.nodes[node].attempts) + 1
    told = {"handle": None, "task": task, "agent": None, "at_ms": at_ms}
    return "node.dispatched", {"graph": name, "node": node, "attempt": number, **told}
