"""``refold restore``: fold a run again, and say what was used for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine.app.output import print_json, printable, progress_bar
from engine.app.shell import command_options, opened_store, run_argument
from engine.app.times import moment_options, position_in

if TYPE_CHECKING:
    from engine.open_store import Store


def _start_at(ctx: click.Context, param: click.Parameter, value: str | None) -> str | int:
    """Return where to start: the best checkpoint, ``genesis``, or the position of a checkpoint."""
    if value is None or value == "genesis":
        return value or "best"
    if value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    raise click.BadParameter(f"{value!r:.40} is neither 'genesis' nor the position of a checkpoint", ctx, param)


def _check_unread(store: Store, run: str, used: int) -> None:
    """Check the chain of what a checkpoint spared the restore from reading. Its state is right all the same, but
    whoever asks for a restore by name would learn of the damage when the checkpoint is gone, and not before. Raises
    CorruptJournal, SchemaError."""
    for _ in store.journal.commits(run, until=used):
        pass


@click.command("restore")
@run_argument
@click.option(
    "--from",
    "start",
    metavar="genesis|N",
    callback=_start_at,
    help="Start at nothing, or at the checkpoint at N, instead of at the newest good checkpoint.",
)
@moment_options
@command_options
def command(run: str, start: Any, at: int | None, at_time: int | None, as_json: bool) -> None:
    """Restore a run, or what it was at a position or a time, and report how: which checkpoint was used, how many events
    were folded after it.

    A checkpoint that does not verify is not used and is listed as rejected, with the reason; an older one serves, or
    the whole journal. The digest is the same whatever was used: that is what checkpoints may never change. So is the
    answer to damage: the events before a checkpoint are read too, though not folded, and a damaged one is named.

    \b
    Examples:
      refold restore nightly
      refold restore nightly --from genesis
      refold restore nightly --at 42
    """
    with opened_store() as store, progress_bar(f"folding {run}") as progress:
        view = store.view(run, at=position_in(store, run, at, at_time), start=start, progress=progress)
        digest = view.digest()
        if isinstance(view.report.used, int):
            _check_unread(store, run, view.report.used)
    report = view.report.to_json()
    seconds = report.pop("seconds")
    if as_json:
        print_json({"run": run, "position": view.position, "digest": digest, **report})
        return
    used = report["used"]
    click.echo(f"run {printable(run)} restored to position {view.position}")
    click.echo(f"used           {used if used == 'genesis' else f'the checkpoint at {used}'}")
    click.echo(f"events folded  {report['events_folded']} in {seconds * 1000:.1f} ms")
    for rejected in report["rejected"]:
        click.echo(f"rejected       the checkpoint at {rejected['position']}: {printable(rejected['reason'])}")
    click.echo(f"digest         {digest}")
