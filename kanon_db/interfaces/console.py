"""Prints for the command line: tables, numbers, errors, progress and JSON."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from kanon_db.catalog.names import HIDING
from kanon_db.declaration.shown import cell as cell
from kanon_db.declaration.shown import plain as plain
from kanon_db.declaration.shown import unrun
from kanon_db.errors import KanonError
from kanon_db.session.progress import Progress, Watcher
from kanon_db.wording import for_shell

if TYPE_CHECKING:
    import pandas as pd

PIPE_WIDTH = 160
"""Width to use when the output is not a terminal; otherwise rich folds tables at 80 columns."""

_QUIET_SECONDS: Final = 10.0
"""Time that a command runs before it prints lines where there is no terminal."""

_RARER: Final = 1.5
"""How much later than one such line the next one comes, as seen from when the command began."""

_INVISIBLE: Final = re.compile(
    rf"[{HIDING[1:-1]}\x00\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that command a terminal, turn text round, or do not show at all.

Format characters that join letters stay, since some scripts cannot do without them.
"""

_LINES: Final = re.compile(rf"(?![\n\t]){_INVISIBLE.pattern}")
"""The same in a text of several lines."""


def visible(text: str, *, hidden: re.Pattern[str] = _INVISIBLE) -> str:
    r"""Write characters that act on a terminal, or hide, as in JSON, so that they show.

    Examples
    --------
    >>> visible("\x1b[2Jdone\u202e")
    '\\u001b[2Jdone\\u202e'
    """
    return hidden.sub(lambda found: json.dumps(found[0])[1:-1], text)


def say(text: str, *, err: bool = False) -> None:
    """Print a text, of several lines perhaps, that may quote names and data."""
    click.echo(visible(text, hidden=_LINES), err=err)


def make_console(*, stderr: bool = False) -> Console:
    """Make a console that prints names as they are, without interpreting markup in them."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if terminal or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def print_json(value: Any) -> None:
    """Print one JSON document on a single line."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
    click.echo(visible(text))  # which means the same in JSON


def print_error(error: KanonError, *, as_json: bool) -> None:
    """Print an error: to stderr for people, to stdout as JSON for programs."""
    hint = for_shell(error.hint)
    if as_json:
        fields = ("message", "detail", "hint", "sqlstate")
        print_json({"error": {name: getattr(error, name) for name in fields} | {"hint": hint}})
        return
    say(f"error: {visible(error.message)}", err=True)
    if error.detail:
        say(f"detail: {visible(error.detail)}", err=True)
    if hint:
        say(f"hint: {visible(hint)}", err=True)


def print_outcome(text: str, document: Any, *, as_json: bool) -> None:
    """Print what was done: in words for people, as JSON for programs."""
    if as_json:
        print_json(document)
    else:
        say(text)


def print_warning(message: str) -> None:
    """Print something that does not stop the operation."""
    say(f"warning: {visible(for_shell(message))}", err=True)


def print_notice(message: str) -> None:
    """Print something worth knowing, if somebody reads it: scripts take stderr for errors."""
    if sys.stderr.isatty():
        say(visible(for_shell(message)), err=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; numbers are rounded, right-aligned and have thousands separators."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    rows = [list(row) for row in rows]
    for position, column in enumerate(columns):
        numeric = bool(rows) and all(_is_number(row[position]) for row in rows)
        table.add_column(visible(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(visible(cell(value)) for value in row))
    make_console().print(table)


def format_range(low: float | None, high: float | None) -> str:
    """Write what lies between two numbers, of which one or both may be missing, for people to read.

    Examples
    --------
    >>> format_range(923.2749, 1035.3251), format_range(730, 1264)
    ('923.3 to 1,035.3', '730 to 1,264')
    >>> format_range(float("nan"), 17.5), format_range(17.5, None), format_range(None, None)
    ('at most 17.5', 'at least 17.5', '')
    """
    least, most = cell(low), cell(high)
    if least and most:
        return f"{least} to {most}"
    return f"at least {least}" if least else f"at most {most}" if most else ""


def print_frame(frame: Any) -> None:
    """Print a data frame as a table."""
    print_table(list(frame.columns), frame.itertuples(index=False))


def print_count(answer: pd.DataFrame) -> None:
    """Print the estimate of one count, with its ranges."""
    (one,) = answer.to_dict("records")
    number = plain(one["estimate"])
    print_fields(
        {
            "estimate": answer.attrs["few"] if number is None else round(number, 1),
            "likely range": format_range(one["likely_low"], one["likely_high"]),
            "certain bounds": format_range(one["lower_bound"], one["upper_bound"]),
        }
    )


def print_answers(frame: Any) -> None:
    """Print answers, whose last columns are their numbers: what is likely, then what is certain."""
    rows = []
    # By place, since a group may be called anything.
    for row in frame.itertuples(index=False, name=None):
        *named, estimate, _, lower, upper, low, high = row
        # By a rule of figures: of a sum over so few, not even bounds are told.
        if plain(estimate) is None and plain(upper) is not None and frame.attrs.get("few"):
            estimate = frame.attrs["few"]
        rows.append([*named, estimate, format_range(low, high), format_range(lower, upper)])
    print_table([*frame.columns[:-5], "likely range", "certain bounds"], rows)


def print_csv(frame: pd.DataFrame) -> None:
    """Print a data frame as comma-separated values, which spreadsheets do not run."""
    # A text that they would take for a formula gets an apostrophe before it; numbers stay. Where a
    # text has a semicolon, at which some spreadsheets divide lines, all texts are in quotes. To a
    # program every other value goes as it is, and to a terminal so that it shows.
    marked = frame.map(_unrun).rename(columns=_unrun)
    divides = any(";" in str(name) for name in marked)
    divides = divides or bool(marked.map(_has_semicolon).any(axis=None))
    quoting: Literal[0, 2] = csv.QUOTE_NONNUMERIC if divides else csv.QUOTE_MINIMAL
    text = marked.to_csv(index=False, quoting=quoting)
    # Not click.echo, which takes out of a value what looks like a terminal's codes.
    sys.stdout.write(visible(text, hidden=_LINES) if sys.stdout.isatty() else text)


def _unrun(value: Any) -> Any:
    return unrun(value) if isinstance(value, str) else value


def _has_semicolon(value: Any) -> bool:
    return isinstance(value, str) and ";" in value


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print names with their values, one per line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(visible(name), visible(cell(value)))
    make_console().print(table)


class _Remaining(ProgressColumn):
    """Time that the step may still take, as a text that counts down."""

    def render(self, task: Task) -> Text:
        """Show nothing any more once the time is over."""
        said: Progress | None = task.fields.get("said")
        if said is None or said.seconds is None:
            return Text("")
        left = said.seconds - (time.monotonic() - task.fields["said_at"])
        return Text(said._replace(seconds=left).remaining if left > 0 else "")


@contextmanager
def progress(*, quiet: bool) -> Iterator[Watcher]:
    """Show what is being done, on stderr; yield the callback that says it."""
    # On a terminal it is a line that goes away. Elsewhere, where nobody waits for it, steps are
    # lines of their own, once the command has run for some seconds: that of a short one stays
    # quiet, since scripts take stderr for errors.
    if quiet:
        yield lambda _said: None
        return
    if not sys.stderr.isatty():
        yield _ProgressLines().show
        return
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TaskProgressColumn(),
        TimeElapsedColumn(), _Remaining(),
    )  # fmt: skip
    with Bar(
        *columns, console=make_console(stderr=True), transient=True, refresh_per_second=5
    ) as bar:
        task = bar.add_task("starting", total=None)

        def show(said: Progress) -> None:
            bar.update(
                task, description=visible(said.title), completed=said.share or 0,
                total=None if said.share is None else 1, said=said, said_at=time.monotonic(),
            )  # fmt: skip

        yield show


class _ProgressLines:
    """Steps as lines, for logs: some ten, however many steps there are, of six minutes."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last = ""
        self._due = _QUIET_SECONDS

    def show(self, said: Progress) -> None:
        """Print a step once, the more seldom the longer it has taken."""
        passed = time.monotonic() - self._began
        if said.title != self._last and passed >= self._due:
            self._last = said.title
            self._due = passed * _RARER
            say(said.title, err=True)


@contextmanager
def progress_bar(title: str, *, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on a terminal; yield what moves it: what comes next, how many are done, of all."""
    if quiet or not sys.stderr.isatty():
        yield lambda _what, _done, _n: None
        return
    what = TextColumn("{task.description}")
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), what, TimeElapsedColumn())
    with Bar(*columns, console=make_console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, n: bar.update(
            task, description=visible(what), completed=done, total=n
        )


def _is_number(value: Any) -> bool:
    value = plain(value)
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def command_here() -> str:
    """Return how the command kanon is typed here: by its name, or by where it is."""
    own = Path(sys.prefix, "bin", "kanon")
    if not own.exists() or Path(shutil.which("kanon") or "") == own:
        return "kanon"
    is_below = own.is_relative_to(Path.cwd())
    return shlex.quote(str(own.relative_to(Path.cwd()) if is_below else own))
