"""``refold show``: a run as it is, or as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine.app.output import print_json, print_table, print_tasks, printable, progress_bar
from engine.app.shell import command_options, opened_store, position_option

if TYPE_CHECKING:
    from engine.runs import RunView


@click.command("show")
@click.argument("run")
@click.option("--tasks", "part", flag_value="tasks", help="The task table alone: its rows, in order of creation.")
@click.option("--contexts", "part", flag_value="contexts", help="The conversations: their records by id.")
@click.option("--graphs", "part", flag_value="graphs", help="The task graphs: their records by id.")
@click.option("--swarm", "part", flag_value="swarm", help="The swarm: its record, or null before it is started.")
@click.option("--id", "one", metavar="ID", help="With --tasks, --contexts or --graphs: only this one.")
@position_option
@command_options
def command(run: str, part: str | None, one: str | None, at: int | None, as_json: bool) -> None:
    """Show a run's state, now or as of any event of its past.

    With --json records come in the encodings of the runtimes that they are from.

    \b
    Examples:
      refold show nightly
      refold show nightly --tasks --at 42
      refold show nightly --contexts --id chat --json
    """
    if one is not None and part not in ("tasks", "contexts", "graphs"):
        raise click.UsageError("--id goes with --tasks, --contexts or --graphs")
    with opened_store() as store, progress_bar(f"folding {run}") as progress:
        view = store.view(run, at=at, progress=progress)
        if part is None:
            _show_all(view, as_json)
            return
        found = _records(view, part, one)
        if as_json:
            print_json({"run": run, "position": view.position, part: found})
        elif part == "tasks":
            print_tasks(view.tasks.rows() if one is None else [view.tasks.get(one)])
        else:
            _PRINTERS[part](view, found)


def _records(view: RunView, part: str, one: str | None) -> Any:
    """Return the records of one projection as JSON. Raises NotFound for an unknown id."""
    if part == "tasks":
        return view.tasks.rows().to_json() if one is None else [view.tasks.get(one).to_json()]
    if part == "contexts":
        ids = view.contexts.ids() if one is None else [one]
        return {context: view.contexts.to_record(context) for context in ids}
    if part == "graphs":
        return {graph: view.graphs.get(graph).to_json() for graph in (view.graphs.ids() if one is None else [one])}
    return view.swarm.context().to_record() if view.swarm.started() else None


def _show_all(view: RunView, as_json: bool) -> None:
    counts = view.tasks.counts()
    if as_json:
        tables = view.ask(lambda state: {name: len(table.rows) for name, table in sorted(state.tables.items())})
        print_json(
            {
                "run": view.id,
                "position": view.position,
                "digest": view.digest(),
                "lifecycles": dict(counts),
                "records": tables,
                "tasks": view.tasks.rows().to_json(),
            }
        )
        return
    click.echo(f"run {printable(view.id)}, position {view.position}")
    click.echo(f"digest {view.digest()}")
    click.echo(f"tasks: {', '.join(f'{count} {name}' for name, count in counts.items() if count) or 'none'}")
    if view.tasks.root() is not None:
        click.echo()
        print_tasks(view.tasks.rows())
    for title, part in (("conversations", "contexts"), ("task graphs", "graphs"), ("swarm", "swarm")):
        found = _records(view, part, None)
        if found:
            click.echo(f"\n{title}:\n")
            _PRINTERS[part](view, found)


def _print_contexts(view: RunView, found: Any) -> None:
    columns = ("context", "kind", "version", "messages", "tokens", "window", "turns", "task")
    rows = []
    for context in found:
        state = view.contexts.get(context)
        numbers = (state.version, len(state.messages), state.est_tokens, state.model_window, state.turns)
        rows.append((context, state.kind, *numbers, state.task))
    print_table(columns, rows, right=columns[2:7])


def _print_graphs(view: RunView, found: Any) -> None:
    rows = []
    for graph in found:
        counts = view.graphs.counts(graph)
        nodes = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        known = view.graphs.get(graph)
        rows.append((graph, known.status, nodes, known.goal))
    print_table(("graph", "status", "nodes", "goal"), rows)


def _print_swarm(view: RunView, found: Any) -> None:
    if not found:
        return
    rows = []
    for worker_id in view.swarm.worker_ids():
        worker = view.swarm.worker(worker_id)
        assert worker is not None
        rows.append((worker_id, worker.phase, worker.history_len, worker.consecutive_failures, worker.last_action))
    columns = ("worker", "phase", "actions", "failures in a row", "last action")
    print_table(columns, rows, right=("worker", "actions", "failures in a row"))


_PRINTERS = {"contexts": _print_contexts, "graphs": _print_graphs, "swarm": _print_swarm}
