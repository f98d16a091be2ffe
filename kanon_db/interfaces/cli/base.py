"""What all commands share: --json, how they report errors, and which database they use."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

# Only what every command needs; numpy, pandas and the driver are imported by those that use them.
from kanon_db.cluster.local import LocalCluster, default_directory
from kanon_db.errors import KanonError, ServerError, UndoneInterrupt
from kanon_db.interfaces import console

if TYPE_CHECKING:
    from kanon_db.interfaces.python import Kanon

_QUIET: Final = "kanon_db.quiet"

Function = TypeVar("Function", bound=Callable[..., Any])


class Command(click.Command):
    """A command with ``--json``, which reports a :class:`KanonError` and exits with 1."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params += [
            click.Option(["--json", "as_json"], is_flag=True, help="Print JSON for programs."),
            click.Option(
                ["--quiet", "-q"], is_flag=True, expose_value=False, callback=_be_quiet,
                help="Do not say how far it is.",
            ),
        ]  # fmt: skip

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KanonError as error:
            console.print_error(error, as_json=ctx.params["as_json"])
        except UndoneInterrupt:
            stopped = KanonError("stopped: nothing was published or changed")
            if ctx.params["as_json"]:
                console.print_error(stopped, as_json=True)
            else:
                console.say(stopped.message, err=True)
        return ctx.exit(1)


def _be_quiet(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta[_QUIET] = value


def is_quiet() -> bool:
    """Whether the command is not to say how far it is."""
    ctx = click.get_current_context()
    return bool(ctx.params.get("as_json") or ctx.meta.get(_QUIET))


class Group(click.Group):
    """A group of such commands."""

    command_class = Command
    group_class = type


class Names(click.ParamType[list[str]]):
    """Names separated by commas; names that contain commas or quotes are quoted as in CSV."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """Split the text of one option."""
        if isinstance(value, list):
            return value
        try:
            rows = list(csv.reader([value], skipinitialspace=True, strict=True))
        except csv.Error as error:
            self.fail(f"not a comma-separated list: {error}", param, ctx)
        if len(rows) != 1 or not rows[0] or not all(rows[0]):
            self.fail("a name is empty", param, ctx)
        return rows[0]


def flattened(
    _ctx: click.Context, _param: click.Parameter, value: tuple[list[str], ...]
) -> list[str]:
    """Put the names of an option that was repeated into one list."""
    return [name for names in value for name in names]


dir_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=default_directory,
    show_default=".kanon",
    envvar="KANON_DIR",
    show_envvar=True,
    help="Folder of the private cluster.",
)


def database_options(command: Function) -> Function:
    """Add the options that pick a database."""
    command = dir_option(command)
    return click.option(
        "--dsn",
        envvar="KANON_DSN",
        show_envvar=True,
        metavar="CONNINFO",
        help="Database to use instead of the private cluster's.",
    )(command)


def given_dsn(dsn: str | None) -> str | None:
    """Return the given DSN, unless it is from the environment and the command line has ``--dir``.

    Raises
    ------
    click.UsageError
        Both are on the command line.
    """
    ctx = click.get_current_context()
    if dsn is None or ctx.get_parameter_source("directory") is not ParameterSource.COMMANDLINE:
        return dsn
    if ctx.get_parameter_source("dsn") is ParameterSource.COMMANDLINE:
        raise click.UsageError("use either --dsn or --dir, not both")
    return None


def chosen_dsn(dsn: str | None, directory: Path) -> str:
    """Return the given DSN, or else that of the running private cluster.

    Raises
    ------
    ServerError
        No DSN is given and the private cluster is not running.
    """
    return given_dsn(dsn) or LocalCluster(directory).dsn()


@contextmanager
def connected(dsn: str | None, directory: Path, *, as_json: bool) -> Iterator[Kanon]:
    """Connect to the chosen database, and say how far it is."""
    chosen = chosen_dsn(dsn, directory)
    with console.progress(quiet=as_json or is_quiet()) as on_progress:
        try:  # loading takes a moment, in which nothing is done yet
            from kanon_db.interfaces.python import connect

            kanon = connect(
                chosen,
                on_progress=on_progress,
                on_warning=console.print_warning,
                on_notice=None if is_quiet() else console.print_notice,
            )
        except KeyboardInterrupt:
            raise UndoneInterrupt from None
        with kanon:
            yield kanon


def confirm(question: str) -> None:
    """Ask before something that cannot be undone.

    Raises
    ------
    ServerError
        There is no terminal to ask on.
    click.Abort
        The answer is no.
    """
    if not sys.stdin.isatty():
        raise ServerError(
            "confirmation needed", detail="there is no terminal to ask on", hint="add --yes"
        )
    click.confirm(question, abort=True, err=True)
