"""``refold demo``: the main job on recorded input, with proofs. A writer is killed in mid-run, and nothing is lost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from engine.app.output import print_events, print_json, print_table, print_tasks, printable
from engine.app.shell import WRONG_USAGE, Failed, command_options, named_store

if TYPE_CHECKING:
    from engine.open_store import Store

RUN: Final = "crash"
ACKNOWLEDGED: Final = 400
"""How many acknowledgements the writer lives to give, at least."""
MORE_STEPS: Final = 10


@dataclass(slots=True)
class _Report:
    """What the demonstration saw and proved."""

    store: str
    imported: list[dict[str, Any]] = field(default_factory=list)
    killed: dict[str, Any] = field(default_factory=dict)
    proofs: list[dict[str, Any]] = field(default_factory=list)

    def prove(self, what: str, found: object, expected: object) -> None:
        self.proofs.append({"what": what, "holds": found == expected, "found": found, "expected": expected})

    @property
    def ok(self) -> bool:
        return all(proof["holds"] for proof in self.proofs)


@click.command("demo")
@command_options
def command(as_json: bool) -> int:
    """Kill a writer in mid-run, restore its run, and prove that nothing is missing or different.

    Imports the recorded runs of a real agent kernel into a new store in this folder, starts a writer in a process of
    its own, kills it with SIGKILL, restores, and compares: the imported tables with the recorded ones, the restored
    run with a fold from nothing, the journal with every position that the writer had acknowledged. Exit code 1 when
    anything differs.

    The store is refold-demo.db, or refold-demo-2.db and so on when that is there; --store names another new file.

    \b
    Example:
      refold demo
    """
    from engine.open_store import open_store

    path = _new_store(named_store())
    report = _Report(str(path))
    show = (lambda text: None) if as_json else click.echo
    with open_store(path) as store:
        show(f"store {printable(str(path))}\n")
        _import_recordings(store, report)
        if not as_json:
            show("1. Imported recorded runs of an agent kernel; each table is compared with the recorded one:\n")
            columns = ("run", "steps", "events", "tasks", "digest of the table", "recorded")
            rows = [(*list(run.values())[:5], "the same" if run["same"] else "DIFFERS") for run in report.imported]
            print_table(columns, rows, right=("steps", "events", "tasks"))
    _crash(path, report)
    _restore(path, report)
    if as_json:
        print_json({**asdict(report), "ok": report.ok})
    else:
        _print_rest(path, report)
    return 0 if report.ok else 1


def _new_store(named: str | None) -> Path:
    """Make an empty file for the store: the one that was named, or the first free name. Nothing is overwritten."""
    if named is not None:
        path = Path(named.removeprefix("sqlite:///"))
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            shape = {
                "code": "refused",
                "message": f"{named} is there already, and the demonstration wants a new store",
                "hint": "name a file that does not exist, or leave --store out",
            }
            raise Failed(shape, WRONG_USAGE) from None
        return path
    number = 1
    while True:
        path = Path("refold-demo.db" if number == 1 else f"refold-demo-{number}.db")
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return path


def _import_recordings(store: Store, report: _Report) -> None:
    from engine.adapters.kernel_recording import recorded_table
    from engine.app.recordings import recorded_runs
    from engine.import_recording import import_recording

    for name, recording in recorded_runs():
        imported = import_recording(store.run(name), recording)
        view = store.view(name, start="genesis")
        found, expected = recorded_table.digests(view.tasks.rows(), recording)
        report.imported.append(
            {
                "run": name,
                "steps": len(imported.steps),
                "events": imported.events,
                "tasks": len(view.tasks.rows()),
                "digest": found,
                "same": found == expected,
            }
        )
        report.prove(f"table of {name} = the recorded table", found, expected)


def _crash(path: Path, report: _Report) -> None:
    from engine.app.crash import kill_in_mid_run

    crash = kill_in_mid_run(path, RUN, after=ACKNOWLEDGED)
    report.killed = {
        "run": RUN,
        "exit_code": crash.exit_code,
        "acknowledged": len(crash.acknowledged),
        "last_acknowledged": crash.acknowledged[-1],
    }


def _restore(path: Path, report: _Report) -> None:
    """Open the store anew, restore the killed run, prove what can be proved, and let another writer go on."""
    from engine.app.crash import go_on
    from engine.open_store import open_store

    killed = report.killed
    with open_store(path, create=False) as store:
        run = store.run(RUN)
        digest, position = run.digest(), run.position
        killed.update(restored=run.restored.to_json(), digest=digest)
        genesis = store.view(RUN, start="genesis")
        last = killed["last_acknowledged"]
        report.prove(
            f"all {killed['acknowledged']} acknowledged positions are in the journal", min(last, position), last
        )
        report.prove("restored state = a fold of every event from nothing", digest, genesis.digest())
        report.prove("every table of the past = the same from nothing", *_pasts(store, position))
        faults = store.verify(RUN).to_json()["faults"]
        report.prove("the chain, every event and every checkpoint verify", faults, [])
    report.prove(
        "another writer goes on at the next position", go_on(path, RUN, steps=MORE_STEPS), position + MORE_STEPS
    )


def _pasts(store: Store, position: int) -> tuple[list[str], list[str]]:
    """Return the digests at some positions of the past, by the best checkpoint and from nothing."""
    positions = range(0, position + 1, max(1, position // 20))
    best = [store.view(RUN, at=at).digest() for at in positions]
    return best, [store.view(RUN, at=at, start="genesis").digest() for at in positions]


def _print_rest(path: Path, report: _Report) -> None:
    from engine.open_store import open_store

    killed = report.killed
    restored = killed["restored"]
    used = "nothing" if restored["used"] == "genesis" else f"the checkpoint at {restored['used']}"
    click.echo(
        f"\n2. A writer process appended to the run '{RUN}' and was killed with SIGKILL (exit code "
        f"{killed['exit_code']}) after\n   {killed['acknowledged']} acknowledgements, the last for position "
        f"{killed['last_acknowledged']}.\n"
    )
    click.echo(
        f"3. Restored to position {restored['position']} from {used}, {restored['events_folded']} events folded, in "
        f"{restored['seconds'] * 1000:.1f} ms.\n   Digest {killed['digest']}\n"
    )
    click.echo("4. Proofs:\n")
    for proof in report.proofs:
        click.echo(f"   {'proved' if proof['holds'] else 'FAILED'}  {printable(proof['what'])}")
        if not proof["holds"]:
            click.echo(f"           expected {proof['expected']}, found {proof['found']}")
    with open_store(path, create=False) as store:
        view = store.view(RUN, at=restored["position"])
        rows = view.tasks.rows()
        click.echo(f"\n5. The task table of '{RUN}' as of the crash:\n")
        print_tasks(rows)
        task = rows[-1].task_id
        click.echo(f"\n6. What happened to the task '{task}', the last events:\n")
        print_events(list(store.history(RUN, task=task, until=restored["position"]))[-12:])
    click.echo(f"\nLook around:  refold --store {path} history {RUN} --task {task}")
    click.echo(f"              refold --store {path} show wf_quota --tasks --at 9")
