"""``refold import``: bring in a run, or a record into a run, from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

import click

from engine.app.output import print_json, printable, progress_bar
from engine.app.shell import command_options, known_runs, note, opened_store


@click.command("import")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--run",
    "run_id",
    metavar="ID",
    shell_complete=known_runs,
    help="The run's id here. Default: the one that the file names.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("archive", "kernel-recording", "context", "task-graph", "task-context")),
    help="What the file is. Default: found out by its content.",
)
@click.option("--id", metavar="X", help="The id of a conversation (default: the file's name) or, anew, of a graph.")
@click.option("--partial", is_flag=True, help="Leave out what is malformed in a record, by name, and import the rest.")
@command_options
def command(file: IO[bytes], run_id: str | None, form: Any, id: str | None, partial: bool, as_json: bool) -> None:
    """Bring in a run from a file: an export of refold, or the recording of another runtime. Or take a record of another
    runtime into a run: a conversation, a task graph, a swarm.

    Everything in the file is checked before anything is written, and every violation is named with its place. Importing
    the same file again adds nothing. An export comes back byte-identical under its own id; under another id its hash
    chain is made anew. A record goes out of 'refold show' equal to what came in, keys that refold does not know
    included. FILE may be - for standard input. Makes the store if there is none.

    Where a recording says what cannot have come about, the step is named on standard error, with what stands here
    instead.

    With --partial a malformed message, node or worker is left out, and with a node all that depends on it; the nodes
    that are kept are numbered anew. The answer lists what was left out.

    \b
    Formats:
      archive           JSON Lines as 'refold export' writes them
      kernel-recording  JSON of a DeepStrike kernel run: decoded_inputs, planned_steps
      context           JSON of an agentd conversation: messages, summary, plan, ...; into --run, as --id
      task-graph        JSON of a zeph task graph: id, goal, nodes, ...; into --run
      task-context      JSON of a swarm at a tick: tick, workers, ...; into --run
    \b
    Examples:
      refold import nightly.jsonl
      refold import recording.json --format kernel-recording --run r1
      refold import chat.json --format context --run nightly --id chat
      refold import plan.json --run nightly --partial
    """
    from engine.import_file import read_file

    name = getattr(file, "name", "-")
    label = "standard input" if name in ("-", "<stdin>") else str(name)
    content = read_file(file, format=form, name=label)
    if content.format == "context" and id is None and label != "standard input":
        id = Path(label).stem
    with opened_store(create=True, read_only=False) as store, progress_bar(f"importing {label}") as progress:
        imported = content.into(store, run_id=run_id, id=id, partial=partial, progress=progress)
    for step in imported.steps or ():
        for text in step.notes:
            note(f"step {step.step}: {printable(text)}")
    if as_json:
        print_json(imported.to_json())
        return
    for lost in imported.lost or ():
        note(f"left out: {printable(json.dumps(lost, ensure_ascii=False))}")
    what = "" if imported.id is None else f" {printable(imported.id)}"
    steps = "" if imported.steps is None else f" in {len(imported.steps)} steps"
    count = f"{imported.events} event{'s' if imported.events > 1 else ''}"
    added = f"{count} added" if imported.events else "nothing added, it is here already"
    click.echo(f"run {printable(imported.run)}: {imported.format}{what}{steps}, {added}, position {imported.position}")
