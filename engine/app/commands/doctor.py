"""``refold doctor``: what is damaged in the store, what can be saved, and saving it. Exit code 1 says that something is
damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine.app.output import print_json, print_table, printable, progress_bar
from engine.app.shell import STORE_TROUBLE, Failed, command_options, note, store_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.doctor import Diagnosis
    from engine.salvage import Salvage
    from engine.savable import Savable


@click.command("doctor")
@click.option(
    "--salvage",
    "target",
    metavar="NEW",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Save what can be saved into a new store.",
)
@command_options
def command(target: Path | None, as_json: bool) -> int:
    """Say what is damaged in the store and what can be saved: the file, the log beside it, every run and checkpoint.

    Reads also what SQLite refuses to, page by page; a row counts when its link holds. With --salvage, NEW gets of every
    run the events before the first damage, byte for byte; what lies behind goes into NEW.rescued.jsonl, an event a
    line, "proved" when its link follows from the one before: evidence, which 'refold import' does not take. The store
    itself is never changed. Exit code 1 when anything is damaged, also when it was saved.

    \b
    Examples:
      refold doctor
      refold --store damaged.db doctor --salvage saved.db
    """
    from engine.app.model import named_model
    from engine.core.errors import EngineError, Refused
    from engine.doctor import diagnose
    from engine.salvage import refuse_to_replace, salvage

    url, model = store_url(), named_model()
    try:
        if target is not None:
            refuse_to_replace(target)  # before the work
        with _progress("examining") as step:
            found = diagnose(url, model, alone=True, saving=target is None, progress=step)
        with _progress("saving") as step:
            saved = None if target is None else salvage(url, target, model, progress=step)
    except Refused:
        raise
    except EngineError as error:
        raise Failed.with_code(error, STORE_TROUBLE) from error
    if as_json:
        print_json({**found.to_json(), "salvaged": None if saved is None else saved.to_json()})
    else:
        _print(found)
        if saved is not None:
            _print_saved(saved)
        elif found.savable:
            click.echo()
            _print_runs(found.savable, "can be saved")
        elif not found.ok:
            note("nothing can be saved: nothing that is left of the store is a commit")
    return 0 if found.ok else 1


@contextmanager
def _progress(label: str) -> Iterator[Callable[[str, int, int], None] | None]:
    with progress_bar(label) as step:
        yield None if step is None else lambda _, done, of: step(done, of)


def _print(found: Diagnosis) -> None:
    if found.ok:
        count = len(found.verdicts)
        click.echo(f"{printable(found.store)}: nothing is damaged ({count} run{'' if count == 1 else 's'})")
        return
    rows: list[tuple[str, int | None, str, str, str]] = [
        ("the store", None, finding.code, finding.problem, finding.hint) for finding in found.findings
    ]
    for verdict in found.verdicts:
        for fault in verdict.faults:
            problem = f"expected {fault.expected}, found {fault.found}"
            rows.append((verdict.run, fault.seq, fault.code, problem, fault.hint))
    print_table(("where", "position", "damage", "what", "hint"), rows, right=("position",))


def _print_runs(runs: Sequence[Savable], title: str) -> None:
    rows = [
        (run.run, f"1..{run.position}" if run.position else "nothing", run.expected, run.behind, run.unproved, run.note)
        for run in runs
    ]
    columns = ("run", title, "of", "behind the damage", "without proof", "note")
    print_table(columns, rows, right=("of", "behind the damage", "without proof"))


def _print_saved(saved: Salvage) -> None:
    if saved.store is None:
        note("nothing can be saved, and no store was made: nothing that is left is a commit")
        return
    click.echo()
    _print_runs(saved.runs, "saved")
    click.echo(f"saved in {printable(saved.store)}")
    if saved.rescued is not None:
        click.echo(f"what lay behind the damage is in {printable(saved.rescued)}")
