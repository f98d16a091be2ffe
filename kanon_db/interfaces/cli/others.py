"""Commands that are more than a single operation: `kanon query`, `publications`, `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanon_db.errors import DuplicateError, UndoneInterrupt
from kanon_db.interfaces import console
from kanon_db.interfaces.cli.base import (
    Command,
    Names,
    connected,
    database_options,
    flattened,
    given_dsn,
    is_quiet,
)

if TYPE_CHECKING:
    import pandas as pd


@click.command(cls=Command)
@click.argument("statement", metavar="QUERY")
@database_options
@click.option(
    "--explain",
    is_flag=True,
    help="Also say what is exact and what is estimated, and print the SQL that answers the query.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
def query(
    statement: str, dsn: str | None, directory: Path, explain: bool, as_csv: bool, as_json: bool
) -> None:
    """Answer a query for counts, sums, percentiles and the like from a publication.

    QUERY looks like "SELECT COUNT(*) FROM name WHERE age > 30 AND disease = 'Flu'". It may join
    lookup tables and use GROUP BY.
    """
    if as_csv and (as_json or explain):
        raise click.UsageError("--csv cannot be combined with --json or --explain")
    with connected(dsn, directory, as_json=as_json or as_csv) as kanon:
        explained = kanon.explain_count(statement) if explain else None
        answer = kanon.count(statement)
    if as_csv:
        console.print_csv(answer)
    elif as_json:
        console.print_json(answered(answer, explained))
    else:
        if list(answer.columns) == NUMBERS:
            (one,) = answer.to_dict("records")
            console.print_fields(
                {
                    "estimate": round(one["estimate"], 1),
                    "standard error": round(one["std_error"], 1),
                    "certain bounds": f"{one['lower_bound']:,} to {one['upper_bound']:,}",
                }
            )
        else:
            console.print_frame(answer)
        if explained is not None:
            console.say("")
            console.print_frame(explained[explained["part"] != "statement"])
            for text in explained.loc[explained["part"] == "statement", "description"]:
                console.say(f"\n{text}")


NUMBERS = ["estimate", "std_error", "lower_bound", "upper_bound"]
"""The columns of a count without groups."""


def answered(answer: pd.DataFrame, explained: pd.DataFrame | None) -> dict[str, Any]:
    """Return an answer in the form for programs: one count as an object, anything else as rows."""
    one = list(answer.columns) == NUMBERS and len(answer) == 1
    value = console.plain(answer)
    found: dict[str, Any] = value[0] if one else {"rows": value}
    if explained is not None:
        found["explain"] = explained[explained["part"] != "statement"]
        statements = explained.loc[explained["part"] == "statement", "description"]
        found["sql"] = ";\n".join(statements)
    return found


@click.command(cls=Command)
@database_options
def publications(dsn: str | None, directory: Path, as_json: bool) -> None:
    """List the publications."""
    with connected(dsn, directory, as_json=as_json) as kanon:
        found = kanon.publications()
    if as_json:
        console.print_json({"publications": found})
    elif len(found):
        shown = ["name", "source", "method", "rows", "guarantee", "published_at", "published_by"]
        console.print_frame(found[shown])
    else:
        console.say("There are no publications.")


@click.command(cls=Command)
@click.argument(
    "file",
    required=False,
    metavar="[CSV]",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@database_options
@click.option("--sensitive", metavar="NAME", help="Column to protect; needed with a CSV file.")
@click.option(
    "--quasi-identifiers",
    type=Names(),
    multiple=True,
    callback=flattened,
    metavar="NAME,…",
    help="Columns that an attacker may know; needed with a CSV file.",
)
@click.option("--privacy", metavar="JSON", help="Privacy, such as '{\"l\": 4}'.")
@click.option(
    "--save",
    metavar="CSV",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Only write the demo's data to a file.",
)
def demo(
    file: Path | None,
    dsn: str | None,
    directory: Path,
    sensitive: str | None,
    quasi_identifiers: list[str],
    privacy: str | None,
    save: Path | None,
    as_json: bool,
) -> None:
    """Show everything on 6,366 real people, or on your own CSV file."""
    if file is not None and not (sensitive and quasi_identifiers):
        raise click.UsageError("a CSV file needs --sensitive and --quasi-identifiers")
    chosen = given_dsn(dsn)
    from kanon_db.interfaces.demo import run, write_fair

    if save is not None:
        if save.exists():
            raise DuplicateError(
                "the file exists", detail=str(save), hint="move it away, or give another name"
            )
        columns = write_fair(save)
        console.print_outcome(f"Wrote {save}.", {"columns": columns}, as_json=as_json)
        return

    try:
        run(
            directory=None if chosen else directory,
            dsn=chosen,
            csv=file,
            sensitive=sensitive,
            quasi_identifiers=quasi_identifiers,
            privacy=privacy,
            as_json=as_json,
            quiet=is_quiet(),
        )
    except UndoneInterrupt:
        raise KeyboardInterrupt from None  # what came before it is done
