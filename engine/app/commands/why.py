"""``refold why``: what led to the state that something is in, in words."""

from __future__ import annotations

import click

from engine.app.output import print_json, printable, progress_bar
from engine.app.shell import command_options, opened_store, run_argument
from engine.app.times import moment_options, position_in


def _node(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Return a node named as GRAPH/N; the graph's id may hold slashes too."""
    if value is None:
        return None
    graph, _, number = value.rpartition("/")
    if not graph or not (number.isascii() and number.isdigit() and len(number) <= 10 and int(number) < 2**32):
        raise click.BadParameter(f"{value!r:.60} does not name a node as GRAPH/N", ctx, param)
    return graph, int(number)


@click.command("why")
@run_argument
@click.argument("task", required=False)
@click.option("--node", callback=_node, metavar="GRAPH/N", help="A node of a task graph, in place of a task.")
@click.option("--context", metavar="ID", help="A conversation, in place of a task.")
@click.option("--worker", type=click.IntRange(0, 2**64 - 1), metavar="N", help="A worker of the swarm.")
@moment_options
@command_options
def command(
    run: str,
    task: str | None,
    node: tuple[str, int] | None,
    context: str | None,
    worker: int | None,
    at: int | None,
    at_time: int | None,
    as_json: bool,
) -> None:
    """Say why a task is in its state: since when, by whom, because of what, and what it waits for.

    Follows the tasks that it waits on. The rows below the sentence are the events that led there; '#12' is event 12,
    'refold history RUN' shows it. The same for a node that does not become ready, a conversation that is over its
    window, a worker whose escalation is open.

    \b
    Examples:
      refold why nightly root
      refold why nightly root --at-time 2026-05-01T12:00
      refold why nightly --node build/1
      refold why nightly --context chat
    """
    if sum(subject is not None for subject in (task, node, context, worker)) != 1:
        raise click.UsageError("name one task, or one of --node, --context and --worker")
    with opened_store() as store, progress_bar(f"folding {run}") as progress:
        view = store.view(run, at=position_in(store, run, at, at_time), progress=progress)
        why = view.why(task, node=node, context=context, worker=worker)
    if as_json:
        print_json({"run": run, "position": view.position, **why.to_json()})
        return
    click.echo(printable(why.answer))
    if why.steps:
        from engine.app.tables import print_steps

        click.echo()
        print_steps(why.steps)
