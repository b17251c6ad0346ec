"""``refold demo``: the main job on recorded input, with proofs. A writer is killed in mid-run, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from engine.app.output import print_events, print_json, print_table, print_tasks, printable
from engine.app.shell import WRONG_USAGE, Failed, command_options, named_store

if TYPE_CHECKING:
    from engine.open_store import Store
    from engine.restore import StartAt
    from projections.tasks import TaskControlState

RUN: Final = "crash"
FORK: Final = "what-if"
ACKNOWLEDGED: Final = 400
"""How many acknowledgements the writer lives to give, at least."""
MORE_STEPS: Final = 10
EVENTS_SHOWN: Final = 8


@dataclass(slots=True)
class _Report:
    """What the demonstration saw and proved; with ``aloud`` it says so as it goes."""

    store: str
    aloud: bool
    imported: list[dict[str, Any]] = field(default_factory=list)
    killed: dict[str, Any] = field(default_factory=dict)
    restored: dict[str, Any] = field(default_factory=dict)
    forked: dict[str, Any] = field(default_factory=dict)
    proofs: list[dict[str, Any]] = field(default_factory=list)

    def say(self, text: str = "") -> None:
        if self.aloud:
            click.echo(text)

    def prove(self, what: str, found: object, expected: object) -> None:
        holds = found == expected
        self.proofs.append({"what": what, "holds": holds, "found": found, "expected": expected})
        self.say(f"   {'proved' if holds else 'FAILED'}  {what}" + ("" if holds else f": {found}, not {expected}"))

    @property
    def ok(self) -> bool:
        return all(proof["holds"] for proof in self.proofs)

    def to_json(self) -> dict[str, Any]:
        return {
            "store": self.store,
            "ok": self.ok,
            "imported": self.imported,
            "killed": self.killed,
            "restored": self.restored,
            "forked": self.forked,
            "proofs": self.proofs,
        }


@click.command("demo")
@click.option("--tour", is_flag=True, help="Walk through restore, history, why, diff, fork and verify on its store.")
@command_options
def command(tour: bool, as_json: bool) -> int:
    """Kill a writer in mid-run, restore its run, and prove that nothing is missing or different.

    Imports the recorded runs of a real agent kernel into a new store in this folder, starts a writer in a process of
    its own, kills it with SIGKILL, restores, and compares: the imported tables with the recorded ones, the restored
    run with a fold from nothing, the journal with every position that the writer had acknowledged. Then forks the run
    where it was killed, and lets the fork end otherwise. Exit code 1 when anything differs.

    With --tour it shows what can be asked of such a store, one command after the other with its real output; on a
    terminal Enter goes on.

    The store is refold-demo.db, or refold-demo-2.db and so on when that is there; --store names another new file.

    \b
    Examples:
      refold demo
      refold demo --tour
    """
    path = _new_store(named_store())
    report = _Report(str(path), aloud=not as_json and not tour)
    if not as_json:
        click.echo(f"The store is {printable(str(path))}.")
    _import_recordings(path, report)
    _kill_a_writer(path, report)
    _restore(path, report)
    if report.aloud:
        _show(path, report)
    _fork(path, report)
    if tour:
        return _tour(path, report, as_json)
    if as_json:
        print_json(report.to_json())
    else:
        _point_on(path, report)
    return 0 if report.ok else 1


def _new_store(named: str | None) -> Path:
    """Make an empty file for the store: the one that was named, or the first free name. Nothing is overwritten."""
    names = (f"refold-demo{'' if number == 1 else f'-{number}'}.db" for number in count(1))
    plain = None if named is None else named.removeprefix("sqlite:///")
    if plain is not None and (plain == "memory:" or "://" in plain):
        raise _refused(f"{named} is no file", "name a new file: the writer that is killed is another process")
    for name in names if plain is None else (plain,):
        path = Path(name)
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        return path
    raise _refused(f"{named} is there already", "name a file that does not exist, or leave --store out")


def _refused(message: str, hint: str) -> Failed:
    return Failed({"code": "refused", "message": message, "hint": hint}, WRONG_USAGE)


def _import_recordings(path: Path, report: _Report) -> None:
    """Import every recorded run, and compare the table after each of its steps with the recorded one."""
    from engine.adapters.kernel_recording import recorded_table
    from engine.app.recordings import recorded_runs
    from engine.import_recording import import_recording
    from engine.open_store import open_store

    with open_store(path) as store:
        for name, recording in recorded_runs():
            imported = import_recording(store.run(name), recording)
            digests = [
                recorded_table.digests(store.view(name, at=step.position).tasks.rows(), recording, step.step)
                for step in imported.steps
            ]
            report.imported.append(
                {
                    "run": name,
                    "steps": len(imported.steps),
                    "events": imported.events,
                    "tasks": len(store.view(name).tasks.rows()),
                    "tables_equal": sum(ours == recorded for ours, recorded in digests),
                    "table_digest": digests[-1][0],
                }
            )
    report.say("\n1. Imported: recorded runs of an agent kernel\n")
    if report.aloud:
        columns = ("run", "steps", "events", "tasks", "tables as recorded", "digest of the last table")
        rows = [tuple(run.values()) for run in report.imported]
        print_table(columns, rows, right=columns[1:5])
        report.say()
    steps = sum(run["steps"] for run in report.imported)
    equal = sum(run["tables_equal"] for run in report.imported)
    report.prove(f"the task table after each of {steps} recorded steps is the recorded one", equal, steps)


def _kill_a_writer(path: Path, report: _Report) -> None:
    from engine.app.crash import kill_in_mid_run

    report.say(f"\n2. Killed: a writer process that appended to the run '{RUN}'\n")
    crash = kill_in_mid_run(path, RUN, after=ACKNOWLEDGED)
    acknowledged = crash.acknowledged
    report.killed = {
        "run": RUN,
        "exit_code": crash.exit_code,
        "acknowledged": len(acknowledged),
        "last_acknowledged": acknowledged[-1],
    }
    report.say(f"   SIGKILL after {len(acknowledged)} acknowledged commits, the last at position {acknowledged[-1]}")


def _restore(path: Path, report: _Report) -> None:
    """Open the store anew, restore the killed run and those imported, prove what can be proved, and let another writer
    go on."""
    from engine.adapters.kernel_recording import recorded_table
    from engine.app.crash import go_on
    from engine.app.recordings import recorded_runs
    from engine.open_store import open_store

    with open_store(path, create=False) as store:
        run = store.run(RUN)
        report.restored = {**run.restored.to_json(), "digest": run.digest()}
        restored = report.restored
        end, used = restored["position"], restored["used"]
        report.say("\n3. Restored\n")
        report.say(f"   position       {end}")
        report.say(f"   used           {'nothing' if used == 'genesis' else f'the checkpoint at {used}'}")
        report.say(f"   events folded  {restored['events_folded']} in {restored['seconds'] * 1000:.1f} ms")
        report.say(f"   digest         {restored['digest']}\n")

        count_, last = report.killed["acknowledged"], report.killed["last_acknowledged"]
        report.prove(f"all {count_} acknowledged positions are in the journal", min(last, end), last)
        nothing = store.view(RUN, start="genesis")
        report.prove("the restored state is a fold of every event from nothing", restored["digest"], nothing.digest())
        places = range(0, end + 1, max(1, end // 20))
        differing = [at for at in places if _digest(store, at, "best") != _digest(store, at, "genesis")]
        report.prove(f"so it is at {len(places)} positions of the past", differing, [])
        faults = store.verify(RUN).to_json()["faults"]
        report.prove("the chain, every event and every checkpoint verify", faults, [])
        changed = [
            name
            for name, recording in recorded_runs()
            if len(set(recorded_table.digests(store.view(name).tasks.rows(), recording))) > 1
        ]
        report.prove(f"the {len(report.imported)} imported runs come back with their recorded tables", changed, [])
    reached = go_on(path, RUN, steps=MORE_STEPS)
    report.prove(f"another writer went on and took {MORE_STEPS} steps", reached - end, MORE_STEPS)


def _digest(store: Store, at: int, start: StartAt) -> str:
    return store.view(RUN, at=at, start=start).digest()


def _show(path: Path, report: _Report) -> None:
    """Print the table of the killed run as of the crash, and the last events of the youngest task that has worked."""
    from engine.open_store import open_store

    end = report.restored["position"]
    with open_store(path, create=False) as store:
        rows = store.view(RUN, at=end).tasks.rows()
        report.say(f"\n4. The task table of '{RUN}' as of the crash\n")
        print_tasks(rows)
        task = _worked(rows)
        report.say(f"\n5. The last events of the task '{task}' before the crash\n")
        newest = list(store.history(RUN, task=task, until=end, newest_first=True, limit=EVENTS_SHOWN))
        print_events(reversed(newest))


def _worked(rows: Iterable[TaskControlState]) -> str:
    """Return the youngest task that has worked."""
    return next(row.task_id for row in reversed(tuple(rows)) if row.turns_used)


def _fork(path: Path, report: _Report) -> None:
    """Fork the killed run where it was killed, and call the fork off: what would have happened is a run of its own."""
    from engine.open_store import open_store

    end = report.restored["position"]
    report.say(f"\n6. Forked: '{FORK}' leaves '{RUN}' at the crash, and is called off there\n")
    with open_store(path, create=False) as store:
        fork = store.fork(RUN, FORK, at=end)
        own = fork.tasks.cancel("root", actor="person").count
        report.forked = {"run": FORK, "origin": RUN, "origin_position": end, "events": own}
        commits = [row.first for row in store.journal.raw(FORK)]
        report.prove(f"it shares {end} events and stores one commit of its own, {own} events", commits, [end + 1])
        faults = store.verify(FORK).to_json()["faults"]
        report.prove("it verifies across the joint", faults, [])


def _point_on(path: Path, report: _Report) -> None:
    """Say what else there is to see."""
    refold = f"refold --store {printable(str(path))}"
    report.say(f"\nLook around: {refold} diff {RUN}@{report.restored['position']} {FORK}")
    report.say(f"             {refold} why wf_quota root --at-time 2023-11-14T22:13:26")
    report.say("             refold demo --tour")


def _tour(path: Path, report: _Report, as_json: bool) -> int:
    """Walk through the store. Exit code 1 when a proof does not hold or a command ends otherwise than it should."""
    from engine.app.tour import steps, take
    from engine.open_store import open_store

    end = report.restored["position"]
    with open_store(path, read_only=True) as store:
        task = _worked(store.view(RUN, at=end).tasks.rows())
    seen = take(steps(path, RUN, FORK, end, task), aloud=not as_json)
    if as_json:
        print_json({"store": str(path), "ok": report.ok, "steps": seen})
    return 0 if report.ok and all(step.pop("expected") for step in seen) else 1
