"""Defines the commands ``kanon spark``, by the declarations of the same operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kanon_db.declaration import parameters_of
from kanon_db.interfaces import console
from kanon_db.interfaces.cli.command_base import (
    Command,
    CommandGroup,
    chosen_dsn,
    click_parameter,
    database_options,
    is_quiet,
    print_published,
)
from kanon_db.operations import EvaluateRequest, RegisterRequest
from kanon_db.publications import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMES: Final = ("source", "publication", "readers")
"""Here the target names the publication, and the file system knows its readers."""
_ROLES: Final = (
    "quasi_identifiers", "sensitive", "identifiers", "attributes", "insensitive", "entity",
)  # fmt: skip

Function = TypeVar("Function", bound=Callable[..., Any])


@click.group("spark", cls=CommandGroup)
def spark() -> None:
    """Publish from Parquet, or a large PostgreSQL, on a cluster of Spark.

    Needs the extra spark (pip install 'kanon_db[spark]') and Java 17.
    """


@spark.group("publish", cls=CommandGroup)
def publish() -> None:
    """Publish a source; the target is a folder for this publication alone."""


def spark_options(command: Function) -> Function:
    """Add the options that say where Spark is."""
    command = click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        help="More of Spark's settings, such as spark.executor.memory=4g.",
    )(command)
    return click.option(
        "--master",
        default="local[*]",
        show_default=True,
        envvar="KANON_SPARK_MASTER",
        show_envvar=True,
        metavar="URL",
        help="Spark's master, such as spark://host:7077 or yarn.",
    )(command)


def source_options(command: Function) -> Function:
    """Add the options that name the source."""
    command = click.option(
        "--table", metavar="RELATION", help="The table, where the source is a JDBC URL."
    )(command)
    return click.option(
        "--source",
        required=True,
        metavar="PATH|JDBC",
        help="Parquet, or jdbc:postgresql://host/database?user=... with --table.",
    )(command)


def _source(source: str, table: str | None) -> Any:
    from kanon_db.spark import PostgresTable

    if source.startswith("jdbc:") != (table is not None):
        raise click.UsageError("a JDBC URL needs --table, and no other source has one")
    return source if table is None else PostgresTable(source, table)


@contextmanager
def _opened(
    master: str, conf: Sequence[str], *, as_json: bool
) -> Iterator[tuple[SparkSession, dict[str, Any]]]:
    """Open a session; what to pass on, so that it says how far it is."""
    from kanon_db.spark.environment import spark_session

    if any("=" not in one for one in conf):
        raise click.UsageError("--conf is written as KEY=VALUE")
    settings = dict(one.split("=", 1) for one in conf)
    named = {name.replace(".", "__"): value for name, value in settings.items()}
    with (
        spark_session(master, **named) as session,
        console.progress(quiet=as_json or is_quiet()) as on_progress,
    ):
        yield session, {"on_progress": on_progress, "on_warning": console.print_warning}


def _print_rows(word: str, rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        console.print_json({word: list(rows)})
    elif rows:
        console.print_table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        console.say("There are none.")


def publish_command(kind: str) -> click.Command:
    """Make the command that publishes a kind."""
    declared = KINDS[kind]

    @spark_options
    @source_options
    def run(
        source: str,
        table: str | None,
        target: str,
        source_name: str | None,
        master: str,
        conf: Sequence[str],
        as_json: bool,
        **given: Any,
    ) -> None:
        from kanon_db.spark.publishing import publish

        known = {key: value for key, value in given.items() if value not in (None, [], ())}
        people = _source(source, table)
        with _opened(master, conf, as_json=as_json) as (session, heard):
            found = publish(session, kind, people, target, known, source_name=source_name, **heard)
        if as_json:
            console.print_json(found)
        else:
            print_published(given, found)

    run.__doc__ = f"{declared.help[0].upper()}{declared.help[1:]}.\n\n{declared.details}"
    command = click.command(kind, cls=Command)(run)
    roles = [item for item in parameters_of(RegisterRequest) if item.name in _ROLES]
    own = [item for item in parameters_of(declared.request) if item.name not in _NAMES]
    command.params += [
        click.Option(["--target"], required=True, metavar="PATH", help="Where to publish it."),
        click.Option(
            ["--source-name"], metavar="NAME", help="What the ledger calls the source."
        ),
        *(click_parameter(item) for item in (*roles, *own)),
    ]  # fmt: skip
    return command


for _name, _kind in KINDS.items():
    if _kind.shape != "model":
        publish.add_command(publish_command(_name))


@spark.command("verify", cls=Command)
@click.argument("target")
@spark_options
def verify(target: str, master: str, conf: Sequence[str], as_json: bool) -> None:
    """Check a publication, using only its published files; exit with 1 if a check fails."""
    from kanon_db import spark as on_spark

    with _opened(master, conf, as_json=as_json) as (session, _):
        checks = on_spark.verify(session, target)
    _print_rows("checks", [asdict(check) for check in checks], as_json=as_json)
    if not all(check.holds for check in checks):
        click.get_current_context().exit(1)


@spark.command("metrics", cls=Command)
@click.argument("target")
@spark_options
def metrics(target: str, master: str, conf: Sequence[str], as_json: bool) -> None:
    """Measure a publication from its published files."""
    from kanon_db import spark as on_spark

    with _opened(master, conf, as_json=as_json) as (session, _):
        found = on_spark.metrics(session, target)
    if as_json:
        console.print_json({"metrics": {one.metric: one.value for one in found}})
    else:
        console.print_fields({one.metric: one.value for one in found})


@spark.command("releases", cls=Command)
@click.argument("folder")
@spark_options
def releases(folder: str, master: str, conf: Sequence[str], as_json: bool) -> None:
    """List what was released in a folder of publications."""
    from kanon_db import spark as on_spark

    with _opened(master, conf, as_json=as_json) as (session, _):
        found = on_spark.releases(session, folder)
    _print_rows("releases", [dict(one) for one in found], as_json=as_json)


@spark.command("estimate", cls=Command)
@click.argument("target")
@click.argument("statement", metavar="QUERY")
@click.option("--estimator", default="published", show_default=True, metavar="NAME",
              help="One of published, paper.")  # fmt: skip
@spark_options
def estimate(
    target: str, statement: str, estimator: str, master: str, conf: Sequence[str], as_json: bool
) -> None:
    """Answer a query for counts, sums and the like from a publication, with errors and bounds."""
    from kanon_db import spark as on_spark

    with _opened(master, conf, as_json=as_json) as (session, heard):
        found = on_spark.estimate(
            session, target, statement, estimator=estimator, on_warning=heard["on_warning"]
        )
    _print_rows("rows", [asdict(row) for row in found], as_json=as_json)


def load_command() -> click.Command:
    """Make the command that loads a publication into PostgreSQL."""
    from kanon_db.publications.publish_request import LoadRequest

    @click.argument("target")
    @spark_options
    @database_options
    def run(
        target: str,
        dsn: str | None,
        directory: Path,
        master: str,
        conf: Sequence[str],
        as_json: bool,
        **given: Any,
    ) -> None:
        """Load a publication into PostgreSQL, where SQL answers from it."""
        from kanon_db import spark as on_spark

        known = {key: value for key, value in given.items() if value not in (None, [], ())}
        chosen = chosen_dsn(dsn, directory)
        with _opened(master, conf, as_json=as_json) as (session, heard):
            found = on_spark.load(session, target, chosen, **known, **heard)
        if as_json:
            console.print_json(found)
        else:
            print_published({"dry_run": False}, found)

    command = click.command("load", cls=Command)(run)
    command.params += [click_parameter(item) for item in parameters_of(LoadRequest)]
    return command


spark.add_command(load_command())


@spark.command("attack", cls=Command)
@click.argument("target")
@source_options
@spark_options
def attack(
    target: str,
    source: str,
    table: str | None,
    master: str,
    conf: Sequence[str],
    as_json: bool,
) -> None:
    """Play known attacks against a publication; the source scores them."""
    from kanon_db import spark as on_spark

    people = _source(source, table)
    with _opened(master, conf, as_json=as_json) as (session, heard):
        found = on_spark.attack(session, target, people, **heard)
    _print_rows("attacks", [asdict(one) for one in found], as_json=as_json)


def evaluate_command() -> click.Command:
    """Make the command that compares random counts with the source."""

    @click.argument("target")
    @source_options
    @spark_options
    def run(
        target: str,
        source: str,
        table: str | None,
        master: str,
        conf: Sequence[str],
        as_json: bool,
        **given: Any,
    ) -> None:
        """Compare answers of a publication to random count queries with the source."""
        from kanon_db import spark as on_spark

        known = {key: value for key, value in given.items() if value not in (None, [], ())}
        people = _source(source, table)
        with _opened(master, conf, as_json=as_json) as (session, heard):
            found = on_spark.evaluate_counts(session, target, people, **known, **heard)
        _print_rows("accuracy", [asdict(one) for one in found], as_json=as_json)

    command = click.command("evaluate-counts", cls=Command)(run)
    own = [item for item in parameters_of(EvaluateRequest) if item.name != "name"]
    command.params += [click_parameter(item) for item in own]
    return command


spark.add_command(evaluate_command())
