"""``refold sql``: SQL over the read model, which is brought up to date first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from engine.app.output import JsonList, print_json, print_table, printable, progress_bar
from engine.app.shell import command_options, note, opened_store

if TYPE_CHECKING:
    from engine.readmodel import Answer, Updated


def _parameters(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """Return ``name=value`` options as a dict."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{text!r:.60} is not name=value", ctx, param)
        found[name] = value
    return found


def _names(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from engine.readmodel.page import described

    return [shape["name"] for shape in described() if shape["name"].startswith(incomplete)]


@click.command("sql")
@click.argument("query", required=False, shell_complete=_names)
@click.option(
    "--param", "parameters", multiple=True, callback=_parameters, metavar="NAME=VALUE",
    help="What :NAME stands for in the query. Repeatable.",
)  # fmt: skip
@click.option("--schema", is_flag=True, help="Describe the tables, views and questions; with QUERY, the one so named.")
@click.option("--rebuild", is_flag=True, help="Make every row anew from the journal first.")
@click.option(
    "--path", metavar="FILE", help="Where the read model lies; 'memory:' for nowhere. Default: beside the store."
)
@command_options
def command(
    query: str | None, parameters: dict[str, str], schema: bool, rebuild: bool, path: str | None, as_json: bool
) -> int | None:
    """Run a SELECT over the runs, tasks, conversations, graphs, swarms and events of the store.

    QUERY may be SQL, or the name of a table, a view or a documented question. The tables lie in a SQLite file beside
    the store, refold.read.db for refold.db: the query brings them up to date first and cannot change them, any other
    SQLite tool may read them at the same time, and deleting the file loses nothing.

    Parameters are texts; SQLite compares them as the column's type, and CAST does elsewhere. Exit code 1 when a run
    could be read only up to some damage: its rows end there.

    \b
    Examples:
      refold sql waiting_tasks
      refold sql "SELECT run, count(*) FROM tasks WHERE lifecycle = 'done' GROUP BY run"
      refold sql who_changed --param run=nightly --param task=fetch
      refold sql said --param words=deadline --json
      refold sql --schema tasks
    """
    if schema:
        _describe(query, as_json=as_json)
        return None
    if query is None:
        raise click.UsageError("give a query, or --schema")
    with (
        opened_store() as store,
        progress_bar("reading the journal") as progress,
        store.readmodel(path, rebuild=rebuild, progress=progress) as model,
    ):
        updated = model.updated
        with model.query(query, parameters) as answer:
            _print(answer, as_json=as_json)
    return _faults(updated)


def _print(answer: Answer, *, as_json: bool) -> None:
    columns = _told_apart(answer.columns)
    if as_json:
        with JsonList() as printed:
            for row in answer:
                printed.add(dict(zip(columns, map(_plain, row), strict=True)))
        return
    rows = list(answer)
    if not rows:
        note("no row matches")
        return
    numbers = [
        name
        for place, name in enumerate(columns)
        if all(row[place] is None or isinstance(row[place], int | float) for row in rows)
    ]
    print_table(columns, rows, right=numbers)


def _told_apart(names: Iterable[str]) -> list[str]:
    """Return names of columns each once: a second ``run`` becomes ``run_2``."""
    found: list[str] = []
    for name in names:
        number, unique = 2, name
        while unique in found:
            number, unique = number + 1, f"{name}_{number}"
        found.append(unique)
    return found


def _plain(value: Any) -> Any:
    """Return a cell as JSON can hold it."""
    from engine.archive import to_json

    return str(value) if isinstance(value, float) and not isfinite(value) else to_json(value)


def _faults(updated: Updated) -> int:
    """Name the runs that could not be read to their end; return the exit code."""
    for fault in updated.faults:
        note(f"run {printable(fault.run)} ends here at {fault.position}: {printable(fault.error.message)}")
    return 1 if updated.faults else 0


def _describe(name: str | None, *, as_json: bool) -> None:
    from engine.readmodel.page import described

    found = described(name)
    if as_json:
        print_json(found)
        return
    for shape in found:
        click.echo(f"{shape['name']}, {shape['what']}: {shape['doc']}")
        if "sql" in shape:
            click.echo("".join(f"\n    {line}" for line in shape["sql"].splitlines()) + "\n")
        if shape["columns"]:
            print_table(("column", "type", "meaning"), [tuple(column.values()) for column in shape["columns"]])
        click.echo()
