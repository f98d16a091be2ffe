"""Defines the commands ``kanon spark``, by the declarations of Spark's operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

import click

from kanon_db.declaration import Parameter
from kanon_db.interfaces import console
from kanon_db.interfaces.cli.command_base import (
    Command,
    CommandGroup,
    Function,
    choose_dsn,
    click_parameter,
    database_options,
    drop_unset,
    is_quiet,
    print_result,
)
from kanon_db.spark import CONNECTION_TYPE, SOURCE_TYPE, SPARK_OPERATIONS, SparkOperation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def _source(source: str, table: str | None) -> Any:
    from kanon_db.spark import PostgresTable

    if source.startswith("jdbc:") != (table is not None):
        raise click.UsageError("a JDBC URL needs --table, and no other source has one")
    return source if table is None else PostgresTable(source, table)


@contextmanager
def _open_session(
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


def spark_command(operation: SparkOperation) -> click.Command:
    """Make the command of an operation of Spark."""

    @spark_options
    def run(master: str, conf: Sequence[str], as_json: bool, **given: Any) -> None:
        arguments = dict(given)
        if "table" in arguments:
            arguments["source"] = _source(arguments["source"], arguments.pop("table"))
        if "dsn" in arguments:
            arguments["connection"] = choose_dsn(arguments.pop("dsn"), arguments.pop("directory"))
        with _open_session(master, conf, as_json=as_json) as (session, listeners):
            heard = {name: listeners[name] for name in operation.hears}
            answer = operation.perform(session, **drop_unset(arguments), **heard)
        if isinstance(answer, list):
            answer = _frame(answer)
        word = (*operation.declared.command, "")[0]
        print_result(word, given, answer, as_json=as_json)

    run.__doc__ = f"{operation.declared.sentence}\n\n{operation.declared.details}"
    command = click.command(operation.command[-1], cls=Command)(run)
    for item in reversed(operation.parameters):
        command.params[:0] = _click_parameters(item)
    return command


def _click_parameters(parameter: Parameter) -> list[click.Parameter]:
    """Make what stands for a parameter: of a source its table, too; of a connection its options."""
    if parameter.type is CONNECTION_TYPE:
        return click.command()(database_options(lambda: None)).params
    parameters = [click_parameter(parameter)]
    if parameter.type is SOURCE_TYPE:
        text = "The table, where the source is jdbc:postgresql://host/database?user=..."
        parameters.append(click.Option(["--table"], metavar="RELATION", help=text))
    return parameters


def _frame(rows: Sequence[Any]) -> Any:
    """Put rows into a data frame, as they are."""
    import pandas as pd

    described = [asdict(row) if is_dataclass(row) else dict(row) for row in rows]  # type: ignore[arg-type]
    return pd.DataFrame(described, dtype=object)


for _operation in SPARK_OPERATIONS:
    if _operation.command:
        group = publish if _operation.command[0] == "publish" else spark
        group.add_command(spark_command(_operation))
