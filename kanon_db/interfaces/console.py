"""What the command line prints: tables, numbers, errors and JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from kanon_db.errors import KanonError
from kanon_db.interfaces.wording import for_shell

PIPE_WIDTH = 160
"""Width to use when the output is not a terminal; otherwise rich folds tables at 80 columns."""


def make_console(*, stderr: bool = False) -> Console:
    """Make a console that prints names as they are, without interpreting markup in them."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if terminal or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def print_json(value: Any) -> None:
    """Print one JSON document on a single line."""
    click.echo(json.dumps(plain(value), ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """Reduce a result to what JSON can express.

    Data frames become lists of objects; numbers that JSON lacks (NaN, infinities) become null.

    Examples
    --------
    >>> plain({"loss": float("nan"), "sizes": (3, 45)})
    {'loss': None, 'sizes': [3, 45]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "to_dict"):  # a data frame, without importing pandas
        return plain(value.to_dict("records"))
    if hasattr(value, "tolist"):  # a numpy array or scalar
        return plain(value.tolist())
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return str(value)


def print_error(error: KanonError, *, as_json: bool) -> None:
    """Print an error: to stderr for people, to stdout as JSON for programs."""
    hint = for_shell(error.hint)
    if as_json:
        fields = ("message", "detail", "hint", "sqlstate")
        print_json({"error": {name: getattr(error, name) for name in fields} | {"hint": hint}})
        return
    click.echo(f"error: {error.message}", err=True)
    if error.detail:
        click.echo(f"detail: {error.detail}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)


def print_outcome(text: str, document: Any, *, as_json: bool) -> None:
    """Print what was done: in words for people, as JSON for programs."""
    if as_json:
        print_json(document)
    else:
        click.echo(text)


def print_warning(message: str) -> None:
    """Print something that does not stop the operation."""
    click.echo(f"warning: {for_shell(message)}", err=True)


def print_notice(message: str) -> None:
    """Print something worth knowing, if somebody reads it: scripts take stderr for errors."""
    if sys.stderr.isatty():
        click.echo(for_shell(message), err=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; numbers are rounded, right-aligned and have thousands separators."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    rows = [list(row) for row in rows]
    for position, column in enumerate(columns):
        numeric = bool(rows) and all(_is_number(row[position]) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    make_console().print(table)


def print_frame(frame: Any) -> None:
    """Print a data frame as a table."""
    print_table(list(frame.columns), frame.itertuples(index=False))


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print names with their values, one per line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(name, cell(value))
    make_console().print(table)


def cell(value: Any) -> str:
    """Format one value for people to read.

    Examples
    --------
    >>> cell(195924), cell(10.2539), cell(0.123456), cell(True), cell(None)
    ('195,924', '10.25', '0.1235', 'yes', '')
    >>> cell(6366.4999)
    '6,366.5'
    """
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M %Z}".rstrip()
    value = plain(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value.is_integer():
            return f"{value:,.0f}"
        return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(cell(item) for item in value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """Show the current step on a terminal; yield the callback that sets it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    with make_console(stderr=True).status("starting") as status:
        yield status.update


@contextmanager
def progress_bar(title: str, *, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on a terminal; yield what moves it: what comes next, how many are done, of all."""
    if quiet or not sys.stderr.isatty():
        yield lambda _what, _done, _n: None
        return
    what = TextColumn("{task.description}")
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), what, TimeElapsedColumn())
    with Progress(*columns, console=make_console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, n: bar.update(task, description=what, completed=done, total=n)


def _is_number(value: Any) -> bool:
    value = plain(value)
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
