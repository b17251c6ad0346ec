"""``refold show``: a run as it is, or as it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from engine.app.output import print_json, print_table, print_tasks, printable, progress_bar
from engine.app.shell import command_options, note, opened_store, run_argument
from engine.app.times import moment_options, position_in

if TYPE_CHECKING:
    from engine.runs import RunView


@click.command("show")
@run_argument
@click.option("--tasks", is_flag=True, help="The task table: its rows, in order of creation.")
@click.option("--contexts", is_flag=True, help="The conversations.")
@click.option("--graphs", is_flag=True, help="The task graphs.")
@click.option("--swarm", is_flag=True, help="The swarm.")
@click.option("--id", "one", metavar="X", help="One alone: a task, a conversation, a graph, a worker.")
@moment_options
@command_options
def command(
    run: str,
    tasks: bool,
    contexts: bool,
    graphs: bool,
    swarm: bool,
    one: str | None,
    at: int | None,
    at_time: int | None,
    as_json: bool,
) -> None:
    """Show a run's state, now or as of any event or time of its past.

    With --json, records are in the encodings of the runtimes that they come from: tasks a list of rows; conversations
    and graphs an object of records by id; the swarm its record, or null before there is one. What 'refold import'
    took in goes out equal. Projections of your own (see REFOLD_MODEL) are shown as records by id.

    \b
    Examples:
      refold show nightly
      refold show nightly --tasks --at 42
      refold show nightly --tasks --at-time 2026-05-01T12:00
      refold show nightly --contexts --id chat --json
    """
    named = {"tasks": tasks, "contexts": contexts, "graphs": graphs, "swarm": swarm}
    kinds = [kind for kind, wanted in named.items() if wanted]
    if one is not None and len(kinds) != 1:
        raise click.UsageError("--id goes with exactly one of --tasks, --contexts, --graphs and --swarm")
    with opened_store() as store, progress_bar(f"folding {run}") as progress:
        view = store.view(run, at=position_in(store, run, at, at_time), progress=progress)
        if as_json and kinds:
            head = {"run": run, "position": view.position}
            print_json(head | {kind: _RECORDS[kind](view, one) for kind in kinds})
            return
        if as_json:
            rows = {"tasks": _task_rows(view, None)} if _has(view, "tasks") else {}
            print_json(_overview(view) | rows | _own(view))
            return
        if not kinds:
            _print_all(view)
        for place, kind in enumerate(kinds):
            if place:
                click.echo()
            _TABLES[kind](view, one)


# -- for programs -----------------------------------------------------------------------------------------------------


def _task_rows(view: RunView, one: str | None) -> Any:
    return view.tasks.rows().to_json() if one is None else [view.tasks.get(one).to_json()]


def _context_records(view: RunView, one: str | None) -> Any:
    return {context: view.contexts.to_record(context) for context in _ids(view.contexts.ids(), one)}


def _graph_records(view: RunView, one: str | None) -> Any:
    return {graph: view.graphs.get(graph).to_json() for graph in _ids(view.graphs.ids(), one)}


def _swarm_record(view: RunView, one: str | None) -> Any:
    if one is None:
        return view.swarm.context().to_record() if view.swarm.started() else None
    return _worker(view, one).to_record()


_RECORDS = {"tasks": _task_rows, "contexts": _context_records, "graphs": _graph_records, "swarm": _swarm_record}


def _ids(known: Any, one: str | None) -> Any:
    return known if one is None else (one,)


def _worker(view: RunView, one: str) -> Any:
    """Return the swarm of one worker alone. Raises NotFound."""
    from engine.core.errors import NotFound

    number = int(one) if one.isascii() and one.isdigit() and len(one) <= 20 else -1
    context = view.swarm.context()
    if number not in context.workers:
        raise NotFound(f"the swarm of run {view.id!r} has no worker {one!r:.40}", hint="without --id all are shown")
    return context.filter_for_workers([number])


# -- for people -------------------------------------------------------------------------------------------------------


def _print_tasks(view: RunView, one: str | None) -> None:
    print_tasks(view.tasks.rows() if one is None else [view.tasks.get(one)])


def _print_contexts(view: RunView, one: str | None) -> None:
    from engine.app.tables import print_context, print_contexts

    if one is not None:
        print_context(one, view.contexts.get(one))
    elif ids := view.contexts.ids():
        print_contexts({context: view.contexts.get(context) for context in ids})
    else:
        note("there are no conversations at this position")


def _print_graphs(view: RunView, one: str | None) -> None:
    from engine.app.tables import print_graph, print_graphs

    if one is not None:
        print_graph(view.graphs.get(one))
    elif ids := view.graphs.ids():
        print_graphs([view.graphs.get(graph) for graph in ids])
    else:
        note("there are no task graphs at this position")


def _print_swarm(view: RunView, one: str | None) -> None:
    from engine.app.tables import print_swarm

    if one is not None:
        print_swarm(_worker(view, one))
    elif view.swarm.started():
        print_swarm(view.swarm.context())
    else:
        note("there is no swarm at this position")


_TABLES = {"tasks": _print_tasks, "contexts": _print_contexts, "graphs": _print_graphs, "swarm": _print_swarm}


def _has(view: RunView, projection: str) -> bool:
    return view.ask(lambda state: projection in state.parts)


def _own(view: RunView) -> dict[str, dict[str, Any]]:
    """Return the records of projections that are none of refold's."""
    from engine.own_form import own_records

    return view.ask(own_records)


def _overview(view: RunView) -> dict[str, object]:
    return {
        "run": view.id,
        "position": view.position,
        "digest": view.digest(),
        **({"lifecycles": dict(view.tasks.counts())} if _has(view, "tasks") else {}),
        "records": view.ask(lambda state: {name: len(table.rows) for name, table in sorted(state.tables.items())}),
    }


def _print_all(view: RunView) -> None:
    """Print a run's line, and a table of everything that it holds."""
    shown = _overview(view)
    click.echo(f"run {printable(view.id)}, position {view.position}")
    click.echo(f"digest {shown['digest']}")
    if _has(view, "tasks"):
        counts = [f"{count} {lifecycle}" for lifecycle, count in view.tasks.counts().items() if count]
        click.echo(f"tasks: {', '.join(counts) or 'none'}")
        if counts:
            click.echo()
            _print_tasks(view, None)
    there = {
        "contexts": _has(view, "contexts") and view.contexts.ids(),
        "graphs": _has(view, "graph") and view.graphs.ids(),
        "swarm": _has(view, "swarm") and view.swarm.started(),
    }
    for kind, title in (("contexts", "conversations"), ("graphs", "task graphs"), ("swarm", "swarm")):
        if there[kind]:
            click.echo(f"\n{title}:\n")
            _TABLES[kind](view, None)
    _print_own(view)


def _print_own(view: RunView) -> None:
    """Print the records of projections that are none of refold's, a table each."""
    for kind, records in _own(view).items():
        click.echo(f"\n{kind}: {'' if records else 'none'}".rstrip())
        if records:
            click.echo()
            shown = [(key, json.dumps(record, ensure_ascii=False)) for key, record in records.items()]
            print_table(("id", "record"), shown)
