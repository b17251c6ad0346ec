"""``refold checkpoint``: write one, list them, remove the unusable ones."""

from __future__ import annotations

import click

from engine.app.output import print_json, print_table, printable
from engine.app.shell import command_options, note, opened_store, run_argument


@click.command("checkpoint")
@run_argument
@click.option("--full", is_flag=True, help="Write the whole state, not only what changed since the last one.")
@click.option("--list", "listing", is_flag=True, help="Write nothing; list the checkpoints there are.")
@click.option(
    "--prune", "pruning", is_flag=True, help="Remove those that a restore would not use, and those that rest on them."
)
@command_options
def command(run: str, full: bool, listing: bool, pruning: bool, as_json: bool) -> None:
    """Write a checkpoint of a run's state, so that its next restore folds fewer events.

    Checkpoints cost or save time and nothing else: each is checked before it is used, and every one may be removed. A
    checkpoint holds what changed since the last one, and now and then everything.

    \b
    Examples:
      refold checkpoint nightly
      refold checkpoint nightly --list
    """
    if full + listing + pruning > 1:
        raise click.UsageError("--full, --list and --prune exclude each other")
    if listing:
        _list(run, as_json)
    elif pruning:
        _prune(run, as_json)
    else:
        _take(run, full, as_json)


def _take(run: str, full: bool, as_json: bool) -> None:
    with opened_store(read_only=False) as store:
        store.journal.existing_head(run)
        live = store.run(run)
        taken = live.checkpoint(full=full)
        position = live.position
    if as_json:
        shape = None
        if taken is not None:
            shape = {"full": taken.full, "records": taken.records, "size_bytes": taken.size_bytes}
        print_json({"run": run, "position": position, "taken": shape})
    elif taken is None:
        click.echo(f"run {printable(run)} has a checkpoint at {position} already")
    else:
        kind = "full" if taken.full else "what changed"
        size = f"{taken.records} records, {taken.size_bytes} bytes"
        click.echo(f"run {printable(run)}: checkpoint at {position} ({kind}: {size})")


def _list(run: str, as_json: bool) -> None:
    from engine.prune import list_checkpoints

    with opened_store() as store:
        found = list_checkpoints(store.journal, store.checkpoints, store.model, run)
    if as_json:
        print_json({"run": run, "checkpoints": [checkpoint.to_json() for checkpoint in found]})
    elif not found:
        note("there is no checkpoint; a restore folds the whole journal")
    else:
        rows = [(c.position, c.kind, c.size_bytes, c.problem or "good") for c in found]
        print_table(("position", "kind", "bytes", "state"), rows, right=("position", "bytes"))


def _prune(run: str, as_json: bool) -> None:
    from engine.prune import prune_checkpoints

    with opened_store(read_only=False) as store:
        removed = prune_checkpoints(store.journal, store.checkpoints, store.model, run)
    if as_json:
        print_json({"run": run, "removed": list(removed)})
    elif removed:
        click.echo(f"run {printable(run)}: removed the checkpoints at {', '.join(map(str, removed))}")
    else:
        click.echo(f"run {printable(run)}: nothing to remove")
