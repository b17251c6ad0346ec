"""``refold explain``: what a code means, and what to do about it."""

from __future__ import annotations

from textwrap import fill

import click

from engine.app.output import print_json, print_table
from engine.app.shell import command_options


def _codes(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from engine.app.explain import catalogue

    return [code for code in catalogue() if code.startswith(incomplete)]


@click.command("explain")
@click.argument("code", required=False, shell_complete=_codes)
@command_options
def command(code: str | None, as_json: bool) -> None:
    """Explain a code: when it comes, why, what to do, and an example.

    A code is what an error, a fault of 'verify' or a violation of an import is called. Without one, all are listed.
    The same pages are in engine/ERRORS.md.

    \b
    Examples:
      refold explain
      refold explain broken_link
    """
    from engine.app.explain import PARTS, catalogue, page_of

    if code is None:
        pages = catalogue().values()
        if as_json:
            print_json([page.to_json() for page in pages])
        else:
            print_table(("code", "family", "what it says"), [(p.code, p.family, p.summary) for p in pages])
        return
    page = page_of(code)
    if as_json:
        print_json(page.to_json())
        return
    click.echo(f"{page.code}: {page.summary}")
    for name, text in zip(PARTS, (page.when, page.why, page.fix, page.example), strict=True):
        click.echo()
        click.echo(fill(f"{name}. {text}", width=100, subsequent_indent="  ", break_on_hyphens=False))
