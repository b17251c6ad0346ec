"""Commits across projections as a whole: batches with refusals in them, repetitions, conflicts, failures, restores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import open_store
from engine.checkpoint import CheckpointPolicy
from engine.core.errors import BackendUnavailable, CommandMismatch, Conflict, Refused
from engine.run import Clock
from engine.runs import LiveRun
from engine.testing import CrashableStore
from projections.model import MODEL
from tests.projections.model_shell import (
    NEVER,
    bind,
    check,
    family,
    followed,
    indexes,
    launch,
    started,
    statuses,
)


def story(run: LiveRun) -> None:
    """Go on from a family of a, b and c: everything that one projection may do to another happens at least once."""
    run.swarm.start(2, max_ticks=9, failure_threshold=1)
    bind(run, "chat", "a", "b", "c")
    run.contexts.attach_task("chat", "a")
    started(run, "g", [], [], [0, 1], default_failure_strategy="retry", default_max_retries=1)
    followed(run, "g", "a", "b")
    launch(run, "a")
    run.contexts.append_all("chat", [{"role": "user", "text": f"question {n}"} for n in range(4)])
    run.swarm.complete_action(0, "look", success=False)
    run.tasks.finish("a", attempt=1, result={"final_message": "found"})
    plan = run.contexts.plan_compaction("chat", keep_last=1)
    assert plan is not None
    run.contexts.apply_compaction("chat", plan, {"facts": ["four questions"]})
    run.tasks.fail_launch("b", attempt=1)
    run.tasks.spawn("b2", parent="root")
    run.graphs.dispatch("g", 1, task="b2")
    run.tasks.cancel("root")
    run.swarm.advance_tick()


def test_a_batch_with_a_refused_command_is_the_batch_without_it() -> None:
    """G6: refused in the middle, among commands that have moved other projections: state, indexes and journal are those
    of the batch without it, before the block ends and after."""
    with family("a", "b") as (store, run):
        bind(run, "c", "a", "b")
        started(run, "g", [], [0])
        followed(run, "g", "a")
        launch(run, "a", "b")
        twin = store.fork("r", "twin", at=run.position)
        for each, refused in ((run, True), (twin, False)):
            with each.batch():
                each.tasks.finish("a", attempt=1, at_ms=5)
                assert statuses(each, context="c")[0] == "done" and statuses(each, graph="g") == ["completed", "ready"]
                if refused:
                    before = each.ask(indexes), each.state_bytes()
                    for wrong in (
                        lambda: run.tasks.finish("a", termination="error", attempt=1),
                        lambda: run.contexts.attach_task("c", "nobody"),
                        lambda: run.graphs.dispatch("g", 1, task="a"),
                        lambda: run.ingest([
                            ("task.finished", {"task_id": "b", "termination": "completed", "attempt": 1, "result": None,
                                               "wakes": None, "because": None}),
                            ("context.task_attached", {"context": "c", "at_ms": 5, "task": "nobody"}),
                        ]),
                    ):  # fmt: skip
                        with pytest.raises(Refused):
                            wrong()
                        assert (each.ask(indexes), each.state_bytes()) == before
                each.tasks.finish("b", termination="timeout", attempt=1, at_ms=6)
        assert run.state_bytes() == twin.state_bytes() and run.ask(indexes) == twin.ask(indexes)
        assert statuses(run, context="c") == ["done", "blocked"]
        check(store, run)


def test_a_batch_that_is_given_up_leaves_every_index_as_it_was() -> None:
    """G6: an error at the end of a block of commands to all four takes back records and indexes, and the next command
    gives the events that it would have given."""
    with family("a", "b", "c") as (store, run):
        twin = store.fork("r", "twin", at=run.position)
        before = run.ask(indexes), run.state_bytes(), run.position, run.link()
        with pytest.raises(ZeroDivisionError), run.batch():
            story(run)
            raise ZeroDivisionError
        assert (run.ask(indexes), run.state_bytes(), run.position, run.link()) == before
        for each in (run, twin):
            launch(each, "a")
            bind(each, "chat", "a")
        assert [event.data for event in run.tasks.finish("a", attempt=1, at_ms=7).events] == [
            event.data for event in twin.tasks.finish("a", attempt=1, at_ms=7).events
        ]
        check(store, run)


def test_a_command_with_consequences_counts_once() -> None:
    """G5: repeated under its id, in the same process and in another, the end of a task gives the same events, those in
    other projections with them, and adds nothing; the id is refused to any other command."""
    with family("a") as (store, run):
        bind(run, "c", "a")
        started(run, "g", [])
        followed(run, "g", "a")
        launch(run, "a")
        first = run.tasks.finish("a", attempt=1, command_id="end")
        assert first.count == 4
        for again in (run, store.run("r")):
            repeated = again.tasks.finish("a", attempt=1, command_id="end")
            assert repeated.repeated and repeated == first and repeated.count == 4
            with pytest.raises(CommandMismatch):
                again.contexts.touch("c", command_id="end")
            assert again.position == first.position
        cut = store.fork("r", "cut", at=first.position - 2)
        assert cut.tasks.finish("a", attempt=1, command_id="end").count == 2, "what the cut has of it"
        check(store, run)


def test_the_loser_of_a_conflict_has_moved_nothing() -> None:
    """G4, G6: another process is first with the end of a task; ours, which had decided the same with all its
    consequences, is told so, is as it was, and after a refresh finds it done."""
    with family("a", "b") as (store, run):
        bind(run, "c", "a", "b")
        started(run, "g", [], [])
        followed(run, "g", "a", "b")
        launch(run, "a", "b")
        before = run.ask(indexes), run.state_bytes(), run.position
        store.run("r").tasks.finish("a", attempt=1)
        with pytest.raises(Conflict):
            run.tasks.finish("a", attempt=1)
        assert (run.ask(indexes), run.state_bytes(), run.position) == before
        with pytest.raises(Conflict), run.batch():
            run.tasks.finish("b", attempt=1)
            run.graphs.cancel_graph("g")
        assert (run.ask(indexes), run.state_bytes(), run.position) == before
        run.refresh()
        assert statuses(run, context="c") == ["done", "in_progress"]
        assert statuses(run, graph="g") == ["completed", "running"]
        assert not run.tasks.finish("a", attempt=1).changed
        check(store, run)


@pytest.mark.parametrize("point", ["append.before", "append.after"])
def test_a_write_that_fails_is_wholly_there_or_wholly_absent(point: str) -> None:
    """G1, G6: when the commit of a task's end fails, or seems to, its consequences are there if it is, and only
    then."""
    now = iter(range(1_000, 10**6))
    clock: Clock = lambda: next(now)  # noqa: E731
    with family("a") as (source, made):
        bind(made, "c", "a")
        started(made, "g", [])
        followed(made, "g", "a")
        launch(made, "a")
        disk = CrashableStore(lambda: source._backend, model=MODEL, clock=clock)
        run = disk.store.run("r")
        before = run.ask(indexes), run.state_bytes()
        disk.arm(point, fail=True)
        with pytest.raises(BackendUnavailable):
            run.tasks.finish("a", attempt=1)
        if point == "append.before":
            assert (run.ask(indexes), run.state_bytes()) == before
            assert statuses(run, graph="g") == ["running"] and statuses(run, context="c") == ["in_progress"]
        else:
            assert statuses(run, graph="g") == ["completed"] and statuses(run, context="c") == ["done"]
            assert run.position == source.run("r").position
        check(disk.beside(), run)


SPACINGS = (1, 2, 3, 5, 8, 13, 100)


def test_checkpoints_of_all_four_at_every_spacing_change_no_answer(tmp_path: Path) -> None:
    """G7, G8: one story, checkpointed every so many commands: digest, state, indexes and next events are the same from
    every checkpoint and from none, at every position."""
    digests = set()
    for spacing in SPACINGS:
        url = tmp_path / f"{spacing}.db"
        with family("a", "b", "c", url=url) as (_, run):
            submit, given = run.submit, 0

            def counted(command: Any, submit: Any = submit, run: Any = run, spacing: int = spacing, **how: Any) -> Any:
                nonlocal given
                outcome = submit(command, **how)
                given += 1
                if given % spacing == 0:
                    run.checkpoint()
                return outcome

            for handle in (run.tasks, run.contexts, run.graphs, run.swarm):
                handle._submit = counted
            story(run)
            digests.add(run.digest())
            live = run.state_bytes(), run.ask(indexes)
        with open_store(url, checkpoints=NEVER) as store:
            positions = list(store.checkpoints.positions("r"))
            assert bool(positions) == (spacing < given)
            for start in ("best", "genesis", *positions):
                view = store.view("r", start=start)
                assert (view.state_bytes(), view.ask(indexes)) == live
            if spacing == 1:
                for at in range(store.view("r").position + 1):
                    assert store.view("r", at=at).state_bytes() == store.view("r", at=at, start="genesis").state_bytes()
            assert store.verify("r").ok
    assert len(digests) == 1


def test_the_digest_covers_all_four() -> None:
    """A step of any of the four moves the digest, and every table of each of them is in the state's bytes."""
    with family("a", "b", "c") as (store, run):
        digests = [run.digest()]
        for step in (
            lambda: run.contexts.create("c"),
            lambda: run.contexts.append("c", {"role": "user", "text": "x"}),
            lambda: started(run, "g", []),
            lambda: run.swarm.start(1),
            lambda: run.swarm.set_metadata("k", 1),
            lambda: run.tasks.report_usage("root", tokens=1),
        ):
            step()
            digests.append(run.digest())
        assert len(set(digests)) == len(digests)
        story_run = store.fork("r", "story", at=4)
        story(story_run)
        filled = story_run.ask(lambda state: {name.partition(".")[0] for name, t in state.tables.items() if t.rows})
        assert filled == {projection.name for projection in MODEL.projections}


def test_checkpoints_by_policy_survive_a_restart_in_the_middle_of_everything(tmp_path: Path) -> None:
    """G2: a store that checkpoints by itself every few events, reopened after each command: the run is the one that was
    never closed."""
    url = tmp_path / "a.db"
    commands: list[Any] = []
    with family("a", "b", "c") as (_, run):
        submit = run.submit

        def noted(command: Any, **how: Any) -> Any:
            commands.append((command, {**how, "at_ms": 5_000 + len(commands)}))
            return submit(command, **commands[-1][1])

        for handle in (run.tasks, run.contexts, run.graphs, run.swarm):
            handle._submit = noted
        story(run)
        expected = run.state_bytes(), run.ask(indexes)
    with family("a", "b", "c", url=url):
        pass
    for command, how in commands:
        with open_store(url, checkpoints=CheckpointPolicy(every_events=7)) as store:
            reopened = store.run("r")
            reopened.submit(command, **how)
            got = reopened.state_bytes(), reopened.ask(indexes)
    assert got == expected
