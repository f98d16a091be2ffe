"""Defines the commands of those who ask."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanon_db.interfaces import console
from kanon_db.interfaces.cli.command_base import (
    Command,
    choose_dsn,
    connected,
    database_options,
    figure_option,
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
@figure_option
def query(
    statement: str,
    *,
    dsn: str | None,
    directory: Path,
    explain: bool,
    as_csv: bool,
    as_json: bool,
    figures: str | None,
) -> None:
    """Answer a query for counts, sums, percentiles and the like from a publication.

    QUERY looks like "SELECT COUNT(*) FROM name WHERE age > 30 AND disease = 'Flu'". It may join
    lookup tables and use GROUP BY.
    """
    if as_csv and (as_json or explain):
        raise click.UsageError("--csv cannot be combined with --json or --explain")
    with connected(dsn, directory, as_json=as_json or as_csv) as kanon:
        explained = kanon.explain_count(statement) if explain else None
        answer = kanon.count(statement, figures=figures)
    if as_csv:
        console.print_csv(answer)
    elif as_json:
        console.print_json(form_answer(answer, explained))
    else:
        if list(answer.columns) == NUMBERS:
            console.print_count(answer)
        else:
            console.print_answers(answer)
        for note in answer.attrs["notes"]:
            console.say(f"Note: {note}")
        if explained is not None:
            console.say("")
            console.print_frame(explained[explained["part"] != "statement"])
            for text in explained.loc[explained["part"] == "statement", "description"]:
                console.say(f"\n{text}")


NUMBERS = ["estimate", "std_error", "lower_bound", "upper_bound", "likely_low", "likely_high"]


def form_answer(answer: pd.DataFrame, explained: pd.DataFrame | None) -> dict[str, Any]:
    """Return an answer in the form for programs: one count as an object, anything else as rows."""
    one = list(answer.columns) == NUMBERS and len(answer) == 1
    value, notes = console.plain(answer), answer.attrs["notes"]
    document = {**(value[0] if one else {"rows": value}), **({"notes": notes} if notes else {})}
    if explained is not None:
        document["explain"] = explained[explained["part"] != "statement"]
        document["sql"] = ";\n".join(explained.loc[explained["part"] == "statement", "description"])
    return document


@click.command("mcp", cls=Command)
@database_options
def mcp_command(dsn: str | None, directory: Path, as_json: bool) -> None:  # noqa: ARG001
    """Serve publications to a language model, over MCP, with a login that reads nothing else."""
    from kanon_db.interfaces.agent_server import serve

    serve(choose_dsn(dsn, directory))
