"""The command `kanon report`."""

from __future__ import annotations

from pathlib import Path

import click

from kanon_db.errors import ServerError
from kanon_db.interfaces import console
from kanon_db.interfaces.cli.base import Command, connected, database_options


@click.command(cls=Command)
@click.argument("name")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file to write, such as report.html.",
)
@click.option("--replace", is_flag=True, help="Overwrite the file if it exists.")
@database_options
def report(
    name: str, output: Path, *, replace: bool, dsn: str | None, directory: Path, as_json: bool
) -> None:
    """Write a report on a publication, for whoever answers for the people in the data.

    One HTML file that needs no network: what was published, what is promised and what is not, what
    someone can infer before and after, attacks, losses, errors, releases, and how to check it. It
    measures with the original data, so only the role that published can have it made, and readers
    should not get it.
    """
    if output.exists() and not replace:
        raise ServerError(
            "the file of the report exists already",
            hint="give another file, or --replace to overwrite it",
        )
    if not output.parent.is_dir():
        raise ServerError("there is no such folder for the report", hint="make it, or give another")
    with connected(dsn, directory, as_json=as_json) as kanon:
        text = kanon.report(name)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ServerError("the report cannot be written", detail=str(error.strerror)) from None
    if as_json:
        console.print_json({"file": str(output), "bytes": len(text.encode())})
        return
    console.say(f"Wrote {output} ({len(text.encode()) / 1000:,.0f} kB): open it in a browser.")
