"""``refold show``: a run as it is, or as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine.app.output import print_json, print_tasks, progress_bar
from engine.app.shell import command_options, opened_store, position_option

if TYPE_CHECKING:
    from engine.runs import RunView


@click.command("show")
@click.argument("run")
@click.option("--tasks", "only_tasks", is_flag=True, help="The task table alone: its rows, in order of creation.")
@position_option
@command_options
def command(run: str, only_tasks: bool, at: int | None, as_json: bool) -> None:
    """Show a run's state, now or as of any event of its past.

    \b
    Examples:
      refold show nightly
      refold show nightly --tasks --at 42
    """
    with opened_store() as store, progress_bar(f"folding {run}") as progress:
        view = store.view(run, at=at, progress=progress)
        rows = view.tasks.rows()
        if as_json and only_tasks:
            print_json({"run": run, "position": view.position, "tasks": rows.to_json()})
        elif as_json:
            print_json({**_overview(view), "tasks": rows.to_json()})
        else:
            if not only_tasks:
                _print_overview(view)
            print_tasks(rows)


def _overview(view: RunView) -> dict[str, object]:
    return {
        "run": view.id,
        "position": view.position,
        "digest": view.digest(),
        "lifecycles": dict(view.tasks.counts()),
        "records": view.ask(lambda state: {name: len(table.rows) for name, table in sorted(state.tables.items())}),
    }


def _print_overview(view: RunView) -> None:
    shown = _overview(view)
    click.echo(f"run {view.id}, position {view.position}")
    click.echo(f"digest {shown['digest']}")
    counts = [f"{count} {lifecycle}" for lifecycle, count in view.tasks.counts().items() if count]
    click.echo(f"tasks: {', '.join(counts) or 'none'}\n")
