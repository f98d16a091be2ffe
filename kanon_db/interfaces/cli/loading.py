"""The command `kanon load`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanon_db.interfaces import console
from kanon_db.interfaces.cli.base import Command, connected, database_options
from kanon_db.wording import for_shell

if TYPE_CHECKING:
    from kanon_db.transfer.load import Found


@click.command(cls=Command)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("table")
@database_options
@click.option("--replace", is_flag=True, help="Replace the table if it exists.")
@click.option("--dry-run", is_flag=True, help="Read the whole file, but make no table.")
@click.option(
    "--null", default="", metavar="TEXT", help="Text that means NULL; empty text by default."
)
@click.option(
    "--delimiter",
    metavar="CHAR",
    help="What separates fields, or its name: comma, semicolon, tab, bar.",
)
@click.option("--encoding", metavar="NAME", help="Encoding of the file, such as latin-1.")
@click.option(
    "--decimal", type=click.Choice([".", ","]), metavar="CHAR", help="Decimal sign: . or ,"
)
@click.option(
    "--date-format", metavar="FORMAT", help="Format of dates beside ISO, such as DD.MM.YYYY."
)
@click.option(
    "--types", metavar="JSON", help='Types of columns by name, such as \'{"zip": "text"}\'.'
)
def load(
    file: Path,
    table: str,
    dsn: str | None,
    directory: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Load a CSV file into a new table.

    The file (.csv or .csv.gz) needs a header line. What no option says is guessed, and shown before
    the table is written: the delimiter, the encoding (UTF-8, or what a byte-order mark says), and
    the narrowest type that all values of a column have.
    """
    with connected(dsn, directory, as_json=as_json) as kanon:
        report = kanon.load(file, table, on_found=None if as_json else _print_found, **options)
    if as_json:
        columns = [{"name": name, "type": kind} for name, kind in report.columns]
        notes = {name: for_shell(note) for name, note in report.notes.items()}
        console.print_json({**console.plain(report), "columns": columns, "notes": notes})
        return
    done = "Would load" if options["dry_run"] else "Loaded"
    console.say(f"{done} {report.records:,} records into {report.table}"
               f" in {report.seconds:.2f} seconds.")  # fmt: skip


def _print_found(found: Found) -> None:
    """Print what was guessed, each with the option that says something else."""
    console.print_fields(
        {
            "delimiter": f"{_named(found.delimiter)}   (--delimiter)",
            "encoding": f"{found.encoding}   (--encoding)",
        }
    )
    console.say("")
    rows = [(name, kind, for_shell(found.notes.get(name, ""))) for name, kind in found.columns]
    console.print_table(["column", "type (--types)", ""], rows)
    console.say("")


def _named(delimiter: str) -> str:
    from kanon_db.transfer.csv_file import DELIMITERS

    return DELIMITERS.get(delimiter, delimiter)
