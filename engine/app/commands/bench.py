"""``refold bench``: ratios against what people use today, measured here and now."""

from __future__ import annotations

from typing import Any

import click

from engine.app.output import print_json, print_table
from engine.app.shell import command_options, note


@click.command("bench")
@click.option("--only", metavar="IDS", help="Measure only these targets, e.g. P1,P4.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=5, show_default=True, help="Rounds of each pair.")
@click.option(
    "--scale",
    type=click.FloatRange(0, 1000, min_open=True),
    default=1.0,
    show_default=True,
    help="Size of the workloads; small ones say little.",
)
@command_options
def command(only: str | None, rounds: int, scale: float, as_json: bool) -> None:
    """Measure refold against raw floors and other libraries, in turns in one process.

    Prints ratios: 'measured' is our median over the other's, to be compared with 'target'. Machines differ and are
    noisy; only the ratio of two things measured together says something. Peers that are not installed come with
    'pip install refold[bench]'. Works in temporary folders below the current one; --store is not touched.

    \b
    Examples:
      refold bench
      refold bench --only P1,P8 --rounds 9 --json
    """
    from engine.bench import run

    if scale != scale:  # not a number: between 0 and 1000 as click compares
        raise click.BadParameter("nan is no size", param_hint="--scale")
    names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    rows = run(names, rounds, scale, note)
    if as_json:
        print_json(rows)
        return
    columns = ("id", "what", "target", "measured", "met", "ours", "against")
    print_table(columns, [_cells(row) for row in rows], right=("measured",))


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    measured = row["measured"]
    return (
        row["id"],
        " ".join(row["what"].split()),
        row["target"],
        "not measured" if measured is None else f"{measured:.3g}x",
        {True: "yes", False: "no", None: ""}[row["met"]],
        _spread(row["ours"]),
        _spread(row["against"]),
    )


def _spread(side: dict[str, Any] | None) -> str:
    if side is None:
        return ""
    return f"{side['median']:.3g} {side['unit']} ({side['min']:.3g}..{side['max']:.3g})"
