"""``refold import``: bring in a run from a file."""

from __future__ import annotations

from typing import IO, Any

import click

from engine.app.output import print_json, printable, progress_bar
from engine.app.shell import command_options, note, opened_store


@click.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--run", "run_id", metavar="ID", help="The run's id here. Default: the one that the file names.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("kernel-recording", "archive")),
    help="What the file is. Default: found out by its content.",
)
@command_options
def command(file: IO[bytes], run_id: str | None, form: Any, as_json: bool) -> None:
    """Bring in a run from a file: an export of refold, or the recording of another runtime.

    Everything in the file is checked before anything is written. Importing the same file again adds nothing. An export
    comes back byte-identical under its own id; under another id its hash chain is made anew. FILE may be - for
    standard input. Makes the store if there is none.

    \b
    Formats:
      archive           JSON Lines as 'refold export' writes them
      kernel-recording  JSON of a DeepStrike kernel run: decoded_inputs, planned_steps
    \b
    Examples:
      refold import nightly.jsonl
      refold import recording.json --format kernel-recording --run r1
    """
    from engine.import_file import read_file

    name = getattr(file, "name", "-")
    label = "standard input" if name == "-" else str(name)
    content = read_file(file, format=form, name=label)
    with opened_store(create=True, read_only=False) as store, progress_bar(f"importing {label}") as progress:
        imported = content.into(store, run_id=run_id, progress=progress)
    if as_json:
        print_json(imported.to_json())
        return
    steps = "" if imported.steps is None else f" in {len(imported.steps)} steps"
    for step in imported.steps or ():
        for text in step.notes:
            note(f"step {step.step}: {printable(text)}")
    added = f"{imported.events} events added" if imported.events else "nothing added, it is here already"
    click.echo(f"run {printable(imported.run)}: {imported.format}{steps}, {added}, position {imported.position}")
