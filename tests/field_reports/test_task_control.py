"""What users of runtimes with a task table reported (the K rows of ``rows_k_z_x_e.py``): checkpoints that cost a
commit, denials that are lost, budgets that leak, writers that are stale. None of it can happen here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint import CheckpointPolicy
from engine.core.decider import fingerprint_of
from engine.core.errors import BackendUnavailable, CommandMismatch, Conflict, IllegalTransition
from engine.open_store import Store, open_store
from engine.runs import LiveRun
from projections.contexts import AssistantMsg, ToolCall, ToolMsg, UserMsg
from projections.graph import TaskNode, VerifyPredicate
from tests.engine.kit import BACKENDS, Ticks, raw, toy_store, url_of
from tests.field_reports.surface import COMMANDS, spied
from tests.field_reports.whole_run import STEPS, TAKE_OVER
from tests.toy import Open, Pay

# -- checkpoints and rebuilt runs -------------------------------------------------------------------------------------

TROUBLE = [BackendUnavailable("full", hint="make room"), MemoryError("too large"), OSError(28, "no space")]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("error", TROUBLE, ids=lambda error: type(error).__name__)
def test_a_checkpoint_that_fails_costs_no_commit_and_no_later_checkpoint(
    backend: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K1, K17: whatever a checkpoint by policy fails of, the command before it is acknowledged and durable, the run
    goes on, and the next checkpoint is taken as soon as it can be: no failure switches them off."""
    with toy_store(url_of(backend, tmp_path), policy=CheckpointPolicy(every_events=1)) as store:
        run = store.run("r")
        run.submit(Open(account="a"))
        put = store.checkpoints.put
        monkeypatch.setattr(store.checkpoints, "put", failing(error))
        for amount in range(1, 6):
            assert run.submit(Pay(account="a", amount=amount)).position == amount + 1
            assert run.checkpoint_error is not None and str(error) in str(run.checkpoint_error)
        assert store.view("r").position == 6 == run.position
        monkeypatch.setattr(store.checkpoints, "put", put)
        run.submit(Pay(account="a", amount=6))
        assert run.checkpoint_error is None
        assert store.view("r").report.used == 7
        assert store.view("r").digest() == store.view("r", start="genesis").digest() == run.digest()


def failing(error: Exception) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize("written", [False, True], ids=["not written", "written"])
def test_a_rebuilt_run_goes_on(store: Store, written: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """K2: at every command the store fails, before or after it wrote; the same handle finds out which, goes on from the
    rebuilt state, and ends where a run without failures ends: a failure of the store never becomes one of the run."""
    run, real = store.run("r"), store.journal.append

    def fail_once(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(store.journal, "append", real)
        if written:
            real(*args, **kwargs)
        raise BackendUnavailable("gone", hint="wait")

    undisturbed = open_store("memory:", clock=Ticks()).run("r")
    for number, step in enumerate(STEPS):
        at_ms = number + 1
        _at(undisturbed, at_ms)
        step(undisturbed)
        _at(run, at_ms)
        before = run.position
        monkeypatch.setattr(store.journal, "append", fail_once)
        with pytest.raises(BackendUnavailable):
            step(run)
        assert run.refresh() == (undisturbed.position if written else before)
        if not written:
            step(run)
        assert run.position == undisturbed.position
    assert run.state_bytes() == undisturbed.state_bytes() == store.view("r", start="genesis").state_bytes()


def _at(run: LiveRun, at_ms: int) -> None:
    run._clock = lambda: at_ms


# -- approvals and calls ----------------------------------------------------------------------------------------------


def test_a_denial_stands_and_its_call_is_never_offered_again(store: Store) -> None:
    """K4: a denied call is answered: whoever looks again, before or after a restore, finds no call that waits, nothing
    to close, and cannot approve it any more."""
    run = store.run("r")
    run.tasks.open_root("root")
    run.tasks.start("root")
    run.contexts.create("c")
    run.contexts.append("c", AssistantMsg(None, (ToolCall("call", "rm", {"path": "/"}),)))
    run.tasks.suspend("root", wait="approval", awaited="call")
    run.tasks.resolve_approval("root", approved=False, awaited="call", payload="no")
    assert [call.id for call in run.contexts.open_calls("c")] == ["call"]
    run.contexts.append("c", ToolMsg("call", "rm", {"denied": "no"}))
    for again in (run, store.run("r")):
        before = again.state_bytes()
        assert again.contexts.open_calls("c") == ()
        with pytest.raises(IllegalTransition):
            again.tasks.resolve_approval("root", approved=True, awaited="call")
        assert not again.contexts.close_calls("c", "nothing is open").changed
        assert again.state_bytes() == before
    assert [event.data["how"] for event in store.history("r", types=["task.wait_ended"])] == ["denied"]


def test_answers_in_any_order_drop_no_sibling(tmp_path: Path) -> None:
    """K5: three tasks and three calls wait for answers; in whatever order they come, across restores, each denial and
    each approval stays, and the others stay open."""
    for order in permutations(["a", "b", "c"]):
        with open_store("memory:", clock=Ticks()) as store:
            run = store.run("r")
            run.tasks.open_root("root")
            run.tasks.start("root")
            run.contexts.create("c")
            run.contexts.append("c", AssistantMsg(None, tuple(ToolCall(name, "t", {}) for name in "abc")))
            for name in "abc":
                run.tasks.spawn(name, parent="root")
                run.tasks.publish_launch(name)
                run.tasks.acknowledge_launch(name, 1)
                run.tasks.suspend(name, wait="approval", awaited=name)
            for number, name in enumerate(order):
                run = store.run("r")
                run.tasks.resolve_approval(name, approved=name == "b", awaited=name, payload=name)
                run.contexts.append("c", ToolMsg(name, "t", {"approved": name == "b"}))
                left = sorted(order[number + 1 :])
                assert [waiting.task_id for waiting in run.tasks.waiting()] == left
                assert sorted(call.id for call in run.contexts.open_calls("c")) == left
            ended = {event.data["task_id"]: event.data for event in store.history("r", types=["task.wait_ended"])}
            assert {name: (data["how"], data["payload"]) for name, data in ended.items()} == {
                "a": ("denied", "a"),
                "b": ("approved", "b"),
                "c": ("denied", "c"),
            }


# -- budgets and bounds -----------------------------------------------------------------------------------------------


def test_turns_count_whatever_happens_in_them(store: Store) -> None:
    """K7: a turn in which only text is said, and a tick in which nobody acts, counts like any other; nothing that is
    counted depends on there being a tool call. (Who stops a loop is the host, which reads these counters.)"""
    run = store.run("r")
    run.tasks.open_root("root")
    run.tasks.start("root")
    run.contexts.create("c", "root")
    run.swarm.start(1, max_ticks=10)
    for number in range(1, 6):
        run.contexts.begin_turn("c")
        run.contexts.append_all("c", [UserMsg("go on"), AssistantMsg("only text")])
        run.tasks.report_usage("root", turns=1)
        run.swarm.advance_tick()
        again = store.run("r")
        assert again.contexts.get("c").turns == number == again.tasks.get("root").turns_used
        assert again.swarm.context().progress == number / 10


def test_what_differs_at_its_end_differs(store: Store) -> None:
    """K8: two values that are the same for a megabyte and differ in the last letter are two values: a command id does
    not take one for the other, nor does a repeat, nor does the state."""
    long = "x" * 1_000_000
    run = store.run("r")
    run.swarm.start(1)
    run.swarm.set_metadata("k", long + "a", command_id="once")
    with pytest.raises(CommandMismatch):
        run.swarm.set_metadata("k", long + "b", command_id="once")
    assert not run.swarm.set_metadata("k", long + "a").changed
    before = run.digest()
    assert run.swarm.set_metadata("k", long + "b").changed
    assert run.digest() != before


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_what_is_exhausted_stays_exhausted(store: Store, retries: int) -> None:
    """K10: with a host that fails whatever it is offered, restored before each step, a node is tried once and retried
    as often as was said, a bad output is made again as often, and then the graphs have ended and offer
    nothing."""
    gate = VerifyPredicate.natural("good")
    graphs = store.run("r").graphs
    graphs.create(
        "fails",
        "x",
        [
            TaskNode.new(0, "n", "", failure_strategy="retry", max_retries=retries),
            TaskNode.new(1, "m", "", depends_on=(0,)),
        ],
    )
    graphs.create("bad", "x", [TaskNode.new(0, "n", "", verify_predicate=gate)], predicate_reruns=retries)
    graphs.start("fails")
    graphs.start("bad")
    tried = {"fails": 0, "bad": 0}
    for _ in range(50):
        graphs = store.run("r").graphs
        if graphs.dispatchable("fails"):
            tried["fails"] += 1
            graphs.dispatch("fails", 0, "h")
            graphs.fail("fails", 0, handle="h")
        if graphs.dispatchable("bad"):
            tried["bad"] += 1
            graphs.dispatch("bad", 0, "h")
            graphs.complete("bad", 0, "a draft", handle="h")
            graphs.record_predicate("bad", 0, {"passed": False, "confidence": 0.5, "reason": "no"})
    assert tried == {"fails": retries + 1, "bad": retries + 1}
    assert {graphs.get(graph).status for graph in tried} <= {"failed", "completed"}


def test_usage_is_counted_once(store: Store) -> None:
    """K11: usage that is reported again under its id, repeated in a result, or moved by detaching and ending tasks, is
    in the sum of the tree once, and a relaunch takes away only what it says it takes."""
    run = store.run("r")
    tasks = run.tasks
    tasks.open_root("root")
    tasks.start("root")
    for name, parent in (("a", "root"), ("deep", "a"), ("deeper", "deep")):
        tasks.spawn(name, parent=parent)
        tasks.publish_launch(name)
        tasks.acknowledge_launch(name, 1)
        for _ in range(3):
            assert tasks.report_usage(name, tokens=100, turns=1, command_id=f"used-{name}").position
    assert (tasks.usage("root").tokens_used, tasks.usage("root").turns_used) == (300, 3)
    tasks.finish("a", attempt=1, on_children="detach")
    assert tasks.usage("root").tokens_used == 300 and tasks.usage("a").tokens_used == 100
    tasks.finish("deeper", attempt=1, result={"total_tokens_used": 100})
    tasks.finish("deeper", attempt=1, result={"total_tokens_used": 100})
    assert tasks.usage("root").tokens_used == 300
    tasks.relaunch("deep", mode="retry")
    assert tasks.usage("root").tokens_used == 300
    tasks.publish_launch("deep")
    tasks.acknowledge_launch("deep", 2)
    tasks.relaunch("deep", mode="restart")
    assert tasks.usage("root").tokens_used == 200 == store.run("r").tasks.usage("root").tokens_used


# -- who decides, and who is stale ------------------------------------------------------------------------------------


def test_nothing_beside_the_journal_decides(tmp_path: Path) -> None:
    """K13: a read model that is made to say that the task is done, and a checkpoint that is not one, change nothing of
    the run: it goes on, and the read model is right again when it is rebuilt."""
    path = tmp_path / "refold.db"
    with open_store(path, clock=Ticks()) as store:
        run = store.run("r")
        run.tasks.open_root("root")
        run.tasks.start("root")
        run.checkpoint()
        with store.readmodel() as model:
            assert [row["lifecycle"] for row in model.find("tasks")] == ["running"]
        with raw(tmp_path / "refold.read.db") as connection:
            connection.execute("UPDATE tasks SET lifecycle='done', termination='completed'")
        with raw(path) as connection:
            connection.execute("UPDATE stored_checkpoints SET state=state || x'00'")
        again = store.run("r")
        assert again.restored.used == "genesis" and again.tasks.get("root").lifecycle == "running"
        assert again.tasks.yield_task("root").changed
        with store.readmodel(rebuild=True) as model:
            assert [row["lifecycle"] for row in model.find("tasks")] == ["ready"]


Beginning = Callable[[Store], Any]
OTHERS: dict[str, Beginning] = {
    "shorter": lambda store: begun(store, 2),
    "as long": lambda store: begun(store, 3),
    "longer": lambda store: begun(store, 5),
    "gone": lambda store: None,
    "a fork": lambda store: begun(store, 3, "origin") and store.fork("origin", "r", at=3),
    "a fork of nothing": lambda store: begun(store, 3, "origin") and store.fork("origin", "r", at=0),
}


def begun(store: Store, events: int, name: str = "r") -> LiveRun:
    run = store.run(name)
    for number in range(events):
        run.submit(Open(account=f"{name}{number}"))
    return run


@pytest.mark.parametrize("length", [0, 3])
@pytest.mark.parametrize("other", OTHERS)
def test_a_writer_of_a_run_that_is_another_now_writes_nothing(toy: Store, other: str, length: int) -> None:
    """K14: a handle is left over from a run that was deleted and made anew under its name, shorter, longer, to the very
    position where the handle stands, or as a fork: the link is compared too, so it writes nothing, says Conflict, and
    the new run is whole; opened again it goes on."""
    run = toy.run("r")
    for number in range(length):
        run.submit(Open(account=f"old{number}"))
    if length:
        toy.delete("r")
    OTHERS[other](toy)
    there = toy.journal.head("r")
    if length or there is not None:
        with pytest.raises(Conflict):
            run.submit(Open(account="stale"))
        assert toy.journal.head("r") == there
    if there is not None:
        assert toy.verify("r").ok
    position = toy.run("r").position
    assert toy.run("r").submit(Open(account="fresh")).position == position + 1
    assert toy.verify("r").ok


def test_a_stale_handle_learns_that_its_run_is_another(toy: Store) -> None:
    """K14: refreshed, such a handle says Conflict and what to do; damage it still calls damage."""
    run = begun(toy, 3)
    toy.delete("r")
    begun(toy, 4)
    with pytest.raises(Conflict, match="made anew"):
        run.refresh()
    gone = begun(toy, 2, "gone")
    toy.delete("gone")
    with pytest.raises(Conflict, match="was deleted"):
        gone.refresh()


# -- what is remembered -----------------------------------------------------------------------------------------------


def test_a_command_id_is_remembered_however_long_ago(toy: Store) -> None:
    """K16, K26: after hundreds of other ids the first one still gives its first outcome, live, restored and on a fork;
    commands without an id leave nothing to remember, and one id costs a checkpoint its own bytes alone."""
    run = toy.run("r")
    for number in range(300):
        run.submit(Open(account=f"a{number % 40}"), command_id=f"id-{number}")
    run.checkpoint()
    for again in (run, toy.run("r"), toy.fork("r", "fork", at=run.position)):
        before = again.position
        outcome = again.submit(Open(account="a0"), command_id="id-0")
        assert outcome.repeated and outcome.events[0].seq == 1 and again.position == before
        with pytest.raises(CommandMismatch):
            again.submit(Open(account="other"), command_id="id-0")
    remembered = run.ask(lambda state: len(state.ledger.rows))
    run.submit(Pay(account="a0", amount=1))
    assert run.ask(lambda state: len(state.ledger.rows)) == remembered == 300
    run.submit(Pay(account="a0", amount=1), command_id="one more")
    taken = run.checkpoint()
    assert taken is not None and not taken.full and taken.size_bytes < 500


def test_every_option_of_every_command_arrives() -> None:
    """K26: by reflection over the public commands: whatever optional argument is given makes another command than
    leaving it out does, and who, when and why are in the events."""
    with open_store("memory:", clock=Ticks()) as store:
        run, other = store.run("r"), store.run("taken over")
        calls, calls_there = spied(run), spied(other)
        for step in STEPS:
            step(run)
        TAKE_OVER(other)
        merged = {name: [*calls[name], *calls_there[name]] for name in COMMANDS}
        ignored, tried = [], 0
        for name, noted in merged.items():
            for method, arguments in noted:
                given = {key: value for key, value in arguments.items() if key not in ENVELOPE}
                for option in optional_of(method) & set(given):
                    tried += 1
                    without = {key: value for key, value in given.items() if key != option}
                    if made_of(method, given) == made_of(method, without):
                        ignored.append((name, option, given[option]))
        assert tried > 60
        defaults = [entry for entry in ignored if entry[2] != default_of(merged, entry)]
        assert defaults == []
        outcome = run.contexts.touch("c", actor="who", at_ms=123, cause=1, command_id="when and why")
        event = outcome.events[0]
        assert (event.actor, event.recorded_at_ms, event.cause, event.command_id) == ("who", 123, 1, "when and why")


ENVELOPE = {"command_id", "actor", "at_ms", "cause"}


def optional_of(method: Any) -> set[str]:
    parameters = inspect.signature(method).parameters.values()
    return {parameter.name for parameter in parameters if parameter.default is not parameter.empty}


def default_of(merged: dict[str, Any], entry: tuple[str, str, Any]) -> Any:
    return inspect.signature(merged[entry[0]][0][0]).parameters[entry[1]].default


class _Made(Exception):
    """Carries the command that a handle made."""


def made_of(method: Any, arguments: dict[str, Any]) -> bytes:
    """The fingerprint of the command that a handle's method makes of arguments."""
    handle = method.__self__
    submit = handle._submit

    def caught(command: Any, **_: Any) -> Any:
        raise _Made(fingerprint_of(command))

    handle._submit = caught
    try:
        method(**arguments)
    except _Made as made:
        return bytes(made.args[0])
    finally:
        handle._submit = submit
    raise AssertionError("no command was given")
