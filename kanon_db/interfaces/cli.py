"""The command ``kanon``: options in, one call of the Python interface, results out."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

# Only what every command needs: numpy, pandas and the driver are imported when one needs them.
from kanon_db import __version__
from kanon_db.cluster.local import DEFAULT_DIRECTORY, LocalCluster
from kanon_db.errors import KanonError, ServerError
from kanon_db.interfaces import console

if TYPE_CHECKING:
    import pandas as pd

    from kanon_db.interfaces.python import Kanon
    from kanon_db.publications.pipeline import Published

Function = TypeVar("Function", bound=Callable[..., Any])


class Command(click.Command):
    """A command with ``--json`` which reports a :class:`KanonError` and exits with 1."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params.append(
            click.Option(["--json", "as_json"], is_flag=True, help="Print JSON for programs.")
        )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KanonError as error:
            console.print_error(error, as_json=ctx.params["as_json"])
            ctx.exit(1)


class Group(click.Group):
    """A group of such commands."""

    command_class = Command
    group_class = type


class Names(click.ParamType[list[str]]):
    """Names separated by commas; one with a comma or a quote in it is quoted as in CSV."""

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


def names_option(flag: str, *, text: str, required: bool = False) -> Callable[[Function], Function]:
    """Make an option for several names, which may also be repeated."""

    def flatten(
        _ctx: click.Context, _param: click.Parameter, value: tuple[list[str], ...]
    ) -> list[str]:
        return [name for names in value for name in names]

    return click.option(
        flag,
        type=Names(),
        multiple=True,
        required=required,
        callback=flatten,
        metavar="NAME,…",
        help=text,
    )


dir_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DIRECTORY,
    show_default=True,
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


def options_of(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Put several options into one decorator."""

    def decorate(command: Function) -> Function:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def given_dsn(dsn: str | None) -> str | None:
    """Take the DSN given, unless the command line names a private cluster against the environment.

    Raises
    ------
    click.UsageError
        Both are on the command line.
    """
    ctx = click.get_current_context()
    if dsn is None or ctx.get_parameter_source("directory") is not ParameterSource.COMMANDLINE:
        return dsn
    if ctx.get_parameter_source("dsn") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--dsn and --dir exclude each other")
    return None


def chosen_dsn(dsn: str | None, directory: Path) -> str:
    """Take the DSN given, or that of the running private cluster.

    Raises
    ------
    ServerError
        No DSN is given and the private cluster does not run.
    """
    return given_dsn(dsn) or LocalCluster(directory).dsn()


@contextmanager
def connected(dsn: str | None, directory: Path, *, as_json: bool) -> Iterator[Kanon]:
    """Connect to the database chosen, showing progress on a terminal."""
    chosen = chosen_dsn(dsn, directory)
    import kanon_db

    with (
        console.progress(quiet=as_json) as on_step,
        kanon_db.connect(chosen, on_step=on_step, on_warning=console.print_warning) as kanon,
    ):
        yield kanon


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kanon")
def main() -> None:
    """Publish people's data from PostgreSQL privately, and count in what was published.

    Commands use the private cluster under .kanon unless --dsn or KANON_DSN names a database.
    """


# -- the private cluster ----------------------------------------------------------------------


@main.group()
def local() -> None:
    """Run a private PostgreSQL in a folder, open to you alone."""


@local.command("start")
@dir_option
def local_start(directory: Path, as_json: bool) -> None:
    """Start the private cluster, making it the first time."""
    cluster = LocalCluster(directory)
    with console.progress(quiet=as_json) as step:
        if step:
            step("starting PostgreSQL")
        dsn = cluster.start()
    if as_json:
        console.print_json({"dsn": dsn})
        return
    click.echo(f"The private cluster in {cluster.directory} is running.")
    click.echo(f'Connect with: psql "{dsn}"')


@local.command("stop")
@dir_option
def local_stop(directory: Path, as_json: bool) -> None:
    """Stop the private cluster; its data stay."""
    cluster = LocalCluster(directory)
    stopped = cluster.stop()
    if as_json:
        console.print_json({"stopped": stopped})
    elif stopped:
        click.echo(f"Stopped the private cluster in {cluster.directory}.")
    else:
        click.echo(f"No private cluster runs in {cluster.directory}.")


@local.command("status")
@dir_option
def local_status(directory: Path, as_json: bool) -> None:
    """Say whether the private cluster runs, and where its data are."""
    status = LocalCluster(directory).status()
    if as_json:
        console.print_json(status)
        return
    fields: dict[str, Any] = {"state": status.state, "directory": status.directory}
    if status.state != "absent":
        from rich.filesize import decimal

        fields |= {
            "PostgreSQL": status.version,
            "data directory": status.data_directory,
            "size": decimal(status.size_bytes or 0),
        }
    if status.dsn:
        fields["connection"] = status.dsn
    console.print_fields(fields)


@local.command("destroy")
@dir_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def local_destroy(directory: Path, yes: bool, as_json: bool) -> None:
    """Remove the private cluster and all its data."""
    cluster = LocalCluster(directory)
    if not yes and cluster.status().state != "absent":
        confirm(f"Remove the private cluster in {cluster.directory} and all its data?")
    destroyed = cluster.destroy()
    if as_json:
        console.print_json({"destroyed": destroyed})
    elif destroyed:
        click.echo(f"Removed the private cluster in {cluster.directory}.")
    else:
        click.echo(f"There is no private cluster in {cluster.directory}.")


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


# -- the installation -------------------------------------------------------------------------


@main.command("install")
@database_options
@click.option(
    "--published-schema",
    default="published",
    show_default=True,
    metavar="NAME",
    help="Schema for published relations.",
)
def install_command(dsn: str | None, directory: Path, published_schema: str, as_json: bool) -> None:
    """Install or upgrade kanon_db in a database."""
    chosen = chosen_dsn(dsn, directory)
    from kanon_db.installation.install import install

    report = install(chosen, published_schema=published_schema)
    if as_json:
        console.print_json(report)
        return
    for action in report.actions:
        click.echo(action)
    click.echo(f"kanon_db {report.version} is installed.")


@main.command("uninstall")
@database_options
@click.option("--drop-publications", is_flag=True, help="Drop the published relations too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def uninstall_command(
    dsn: str | None, directory: Path, drop_publications: bool, yes: bool, as_json: bool
) -> None:
    """Remove kanon_db from a database."""
    chosen = chosen_dsn(dsn, directory)
    if drop_publications and not yes:
        confirm("Drop all published relations?")
    from kanon_db.installation.install import uninstall

    uninstall(chosen, drop_publications=drop_publications)
    if as_json:
        console.print_json({"uninstalled": True})
    else:
        click.echo("kanon_db is no longer installed.")


@main.command()
@database_options
@click.pass_context
def doctor(ctx: click.Context, dsn: str | None, directory: Path, as_json: bool) -> None:
    """Examine the installation.

    Exits with 1 if something is broken.
    """
    chosen = chosen_dsn(dsn, directory)
    from kanon_db.installation.doctor import examine

    findings = examine(chosen)
    if as_json:
        console.print_json({"findings": findings})
    else:
        console.print_table(
            ["subject", "state", "found", "remedy"],
            [(item.subject, item.state, item.value, item.remedy) for item in findings],
        )
    if any(item.state == "broken" for item in findings):
        ctx.exit(1)


@main.command()
def version(as_json: bool) -> None:
    """Print the version of this program.

    That of an installation is told by doctor.
    """
    if as_json:
        console.print_json({"version": __version__})
    else:
        click.echo(__version__)


# -- microdata and publications ---------------------------------------------------------------


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("table")
@database_options
@click.option("--replace", is_flag=True, help="Replace the table if it exists.")
@click.option(
    "--null", default="", metavar="TEXT", help="Text that stands for NULL; empty text by default."
)
def load(
    file: Path,
    table: str,
    dsn: str | None,
    directory: Path,
    replace: bool,
    null: str,
    as_json: bool,
) -> None:
    """Load a CSV file into a new table.

    The file (.csv or .csv.gz) needs a header line; types are inferred from the values.
    """
    with connected(dsn, directory, as_json=as_json) as kanon:
        report = kanon.load(file, table, replace=replace, null=null)
    if as_json:
        columns = [{"name": name, "type": kind} for name, kind in report.columns]
        console.print_json({**console.plain(report), "columns": columns})
        return
    console.print_table(["column", "type"], report.columns)
    click.echo(
        f"Loaded {report.records:,} records into {report.table} in {report.seconds:.2f} seconds."
    )


@main.command()
@click.argument("source")
@database_options
@names_option("--quasi-identifiers", required=True, text="Columns an attacker may know.")
@click.option("--sensitive", metavar="NAME", help="Column to protect.")
@names_option("--identifiers", text="Columns never to publish.")
@click.option("--attributes", metavar="JSON", help="Kinds, bounds and weights of columns.")
def register(
    source: str,
    dsn: str | None,
    directory: Path,
    quasi_identifiers: list[str],
    sensitive: str | None,
    identifiers: list[str],
    attributes: str | None,
    as_json: bool,
) -> None:
    """Describe the microdata in a table or view SOURCE."""
    with connected(dsn, directory, as_json=as_json) as kanon:
        source_id = kanon.register_source(
            source,
            quasi_identifiers=quasi_identifiers,
            sensitive=sensitive,
            identifiers=identifiers,
            attributes=attributes,
        )
    if as_json:
        console.print_json({"source_id": source_id})
    else:
        click.echo(f"Registered {source} as source {source_id}.")


@main.group()
def publish() -> None:
    """Publish a registered source."""


options_option = click.option(
    "--options", metavar="JSON", help="Of the method, such as '{\"time_limit\": 60}'."
)


@publish.command("buckets")
@click.argument("source")
@click.argument("name")
@database_options
@click.option(
    "--privacy",
    required=True,
    metavar="JSON",
    help='Such as \'{"theta": 8, "base": 0.02}\' or \'{"l": 4}\'.',
)
@click.option(
    "--method",
    default="two_size",
    show_default=True,
    help="Search for the bucket setting: anatomy, two_size, multi_size or optimal.",
)
@click.option(
    "--max-bucket-size",
    type=int,
    default=50,
    show_default=True,
    metavar="RECORDS",
    help="Largest bucket size to try.",
)
@click.option(
    "--assignment",
    default="random",
    show_default=True,
    help="How records are assigned to buckets: random or local.",
)
@options_option
@names_option("--readers", text="Roles that may read it; kanon_analyst by default.")
@click.option("--replace", is_flag=True, help="Replace the publication if it exists.")
def publish_buckets(
    source: str,
    name: str,
    dsn: str | None,
    directory: Path,
    privacy: str,
    method: str,
    max_bucket_size: int,
    assignment: str,
    options: str | None,
    readers: list[str],
    replace: bool,
    as_json: bool,
) -> None:
    """Publish SOURCE as private buckets.

    Makes tables NAME_qit and NAME_sat, and view NAME which joins them.
    """
    with connected(dsn, directory, as_json=as_json) as kanon:
        publication = kanon.publish_buckets(
            source,
            name,
            method=method,
            privacy=privacy,
            max_bucket_size=max_bucket_size,
            assignment=assignment,
            options=options,
            readers=readers or None,
            replace=replace,
        )
    print_published(publication, as_json=as_json)


@publish.command("generalized")
@click.argument("source")
@click.argument("name")
@database_options
@click.option("--k", type=int, required=True, help="Fewest rows that share all their cells.")
@click.option(
    "--method",
    default="auto",
    show_default=True,
    help="auto, optimal, split_carry, greedy_search, k_member, mondrian or initial.",
)
@click.option("--weights", metavar="JSON", help="Factor of the loss, by quasi-identifier.")
@options_option
@click.option(
    "--constraints",
    metavar="JSON",
    help="On the sensitive values that share cells, such as '{\"l\": 3}' or '{\"t\": 0.2}'.",
)
@click.option(
    "--max-suppressed",
    default="0",
    show_default=True,
    metavar="SHARE",
    help="Records that may be left out where that lowers the loss.",
)
@click.option(
    "--refine/--no-refine", default=True, show_default=True, help="Lower the loss of the classes."
)
@names_option("--readers", text="Roles that may read it; kanon_analyst by default.")
@click.option("--replace", is_flag=True, help="Replace the publication if it exists.")
def publish_generalized(
    source: str,
    name: str,
    dsn: str | None,
    directory: Path,
    k: int,
    method: str,
    weights: str | None,
    options: str | None,
    constraints: str | None,
    max_suppressed: str,
    refine: bool,
    readers: list[str],
    replace: bool,
    as_json: bool,
) -> None:
    """Publish SOURCE with ranges and sets for cells, as materialized view NAME."""
    with connected(dsn, directory, as_json=as_json) as kanon:
        publication = kanon.publish_generalized(
            source,
            name,
            k=k,
            method=method,
            weights=weights,
            options=options,
            constraints=constraints,
            max_suppressed=max_suppressed,
            refine=refine,
            readers=readers or None,
            replace=replace,
        )
    print_published(publication, as_json=as_json)


@publish.command("freeform")
@click.argument("source")
@click.argument("name")
@database_options
@click.option("--k", type=int, required=True, help="Originals that each row matches.")
@click.option(
    "--method",
    default="sort_greedy",
    show_default=True,
    help="sort_greedy, greedy, hungarian, optimal, min_cost_flow or ring.",
)
@click.option("--weights", metavar="JSON", help="Factor of the loss, by quasi-identifier.")
@options_option
@names_option("--readers", text="Roles that may read it; kanon_analyst by default.")
@click.option("--replace", is_flag=True, help="Replace the publication if it exists.")
def publish_freeform(
    source: str,
    name: str,
    dsn: str | None,
    directory: Path,
    k: int,
    method: str,
    weights: str | None,
    options: str | None,
    readers: list[str],
    replace: bool,
    as_json: bool,
) -> None:
    """Publish SOURCE with ranges and sets of its own for each row, as materialized view NAME."""
    with connected(dsn, directory, as_json=as_json) as kanon:
        publication = kanon.publish_freeform(
            source,
            name,
            k=k,
            method=method,
            weights=weights,
            options=options,
            readers=readers or None,
            replace=replace,
        )
    print_published(publication, as_json=as_json)


patterns_options = options_of(
    names_option("--patterns", text="Pattern vectors: * suppresses, . keeps a quasi-identifier."),
    click.option(
        "--rules",
        metavar="JSON",
        help="Rules that make the patterns, such as"
        ' \'[{"at_most": 2}, {"never": ["age"]}, {"outliers": "suppress"}]\'.',
    ),
    click.option(
        "--weights", metavar="JSON", help="Cost of a suppressed cell by quasi-identifier."
    ),
)


@publish.command("suppressed")
@click.argument("source")
@click.argument("name")
@database_options
@click.option("--k", type=int, required=True, help="Fewest rows that share what is kept of them.")
@patterns_options
@click.option(
    "--method", default="greedy", show_default=True, help="How to choose: greedy or optimal."
)
@options_option
@names_option("--readers", text="Roles that may read it; kanon_analyst by default.")
@click.option("--replace", is_flag=True, help="Replace the publication if it exists.")
def publish_suppressed(
    source: str,
    name: str,
    dsn: str | None,
    directory: Path,
    k: int,
    patterns: list[str],
    rules: str | None,
    weights: str | None,
    method: str,
    options: str | None,
    readers: list[str],
    replace: bool,
    as_json: bool,
) -> None:
    """Publish SOURCE with cells suppressed, as materialized view NAME.

    Without --patterns and --rules, any cells may be suppressed; `kanon patterns` shows which
    combinations they allow.
    """
    with connected(dsn, directory, as_json=as_json) as kanon:
        publication = kanon.publish_suppressed(
            source,
            name,
            k=k,
            patterns=patterns or None,
            method=method,
            rules=rules,
            weights=weights,
            options=options,
            readers=readers or None,
            replace=replace,
        )
    print_published(publication, as_json=as_json)


@main.command()
@click.argument("source")
@database_options
@patterns_options
def patterns(
    source: str,
    dsn: str | None,
    directory: Path,
    patterns: list[str],
    rules: str | None,
    weights: str | None,
    as_json: bool,
) -> None:
    """Show the combinations of cells of SOURCE that a list or rules allow to suppress."""
    with connected(dsn, directory, as_json=as_json) as kanon:
        found = kanon.suppression_patterns(
            source, patterns=patterns or None, rules=rules, weights=weights
        )
    if as_json:
        console.print_json({"patterns": found})
    else:
        console.print_frame(found)


def print_published(publication: Published, *, as_json: bool) -> None:
    """Print what a publish command did."""
    if as_json:
        console.print_json(publication)
        return
    console.print_fields(
        {
            "publication": publication.name,
            "guarantee": publication.guarantee,
            "records": publication.records,
            **publication.metrics,
        }
    )
    click.echo(f"Published and verified in {publication.seconds:.2f} seconds.")


@main.command()
@click.argument("statement", metavar="QUERY")
@database_options
@click.option(
    "--explain",
    is_flag=True,
    help="Say too what is exact and what estimated, and print the SQL that answers it.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
def query(
    statement: str,
    dsn: str | None,
    directory: Path,
    explain: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Answer a query of counts, sums and averages from a publication.

    QUERY reads like "SELECT COUNT(*) FROM name WHERE age > 30 AND disease = 'Flu'"; it may join
    lookup tables and have GROUP BY.
    """
    if as_csv and (as_json or explain):
        raise click.UsageError("--csv goes with neither --json nor --explain")
    with connected(dsn, directory, as_json=as_json or as_csv) as kanon:
        explained = kanon.explain_count(statement) if explain else None
        answer = kanon.count(statement)
    if as_csv:
        click.echo(answer.to_csv(index=False), nl=False)
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
            click.echo()
            console.print_frame(explained[explained["part"] != "statement"])
            for text in explained.loc[explained["part"] == "statement", "description"]:
                click.echo(f"\n{text}")


NUMBERS = ["estimate", "std_error", "lower_bound", "upper_bound"]
"""Columns of a count without groups."""


def answered(answer: pd.DataFrame, explained: pd.DataFrame | None) -> dict[str, Any]:
    """Put an answer into the form that programs read: one count is an object, else rows."""
    one = list(answer.columns) == NUMBERS and len(answer) == 1
    value = console.plain(answer)
    found: dict[str, Any] = value[0] if one else {"rows": value}
    if explained is not None:
        found["explain"] = explained[explained["part"] != "statement"]
        statements = explained.loc[explained["part"] == "statement", "description"]
        found["sql"] = ";\n".join(statements)
    return found


@main.command()
@click.argument("name")
@database_options
@click.pass_context
def verify(ctx: click.Context, name: str, dsn: str | None, directory: Path, as_json: bool) -> None:
    """Check a publication from its published tables alone.

    Exits with 1 if a check fails.
    """
    with connected(dsn, directory, as_json=as_json) as kanon:
        checks = kanon.verify(name)
    if as_json:
        console.print_json({"checks": checks})
    else:
        console.print_frame(checks)
    if not checks["holds"].all():
        ctx.exit(1)


@main.command()
@click.argument("name")
@database_options
def metrics(name: str, dsn: str | None, directory: Path, as_json: bool) -> None:
    """Print how much a publication keeps and protects."""
    with connected(dsn, directory, as_json=as_json) as kanon:
        measured = kanon.metrics(name)
    if as_json:
        console.print_json(
            {"metrics": dict(zip(measured["metric"], measured["value"], strict=True))}
        )
    else:
        console.print_frame(measured)


@main.command()
@click.argument("name")
@database_options
@click.option("--queries", type=int, default=1000, show_default=True, help="How many queries.")
@click.option(
    "--dimensionality",
    type=int,
    multiple=True,
    help="Quasi-identifiers with a condition in a query; may be repeated.  [default: any number]",
)
@click.option(
    "--selectivity",
    type=float,
    multiple=True,
    help="Expected share of matching records; may be repeated.  [default: 0.01, 0.05, 0.1]",
)
@click.option("--seed", type=int, help="The same seed draws the same queries.")
def evaluate(
    name: str,
    dsn: str | None,
    directory: Path,
    queries: int,
    dimensionality: tuple[int, ...],
    selectivity: tuple[float, ...],
    seed: int | None,
    as_json: bool,
) -> None:
    """Compare a bucketization's answers to random count queries with the source's."""
    with connected(dsn, directory, as_json=as_json) as kanon:
        found = kanon.evaluate_counts(
            name,
            queries=queries,
            dimensionality=dimensionality or None,
            selectivity=selectivity or None,
            seed=seed,
        )
    if as_json:
        console.print_json({"accuracy": found})
    else:
        console.print_frame(found)


@main.command()
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
        click.echo("There are no publications.")


@main.command()
@click.argument("name")
@database_options
def drop(name: str, dsn: str | None, directory: Path, as_json: bool) -> None:
    """Drop a publication."""
    with connected(dsn, directory, as_json=as_json) as kanon:
        kanon.drop_publication(name)
    if as_json:
        console.print_json({"dropped": name})
    else:
        click.echo(f"Dropped publication {name}.")


@main.command()
@click.argument(
    "file",
    required=False,
    metavar="[CSV]",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@database_options
@click.option("--sensitive", metavar="NAME", help="Column to protect; needed with a CSV file.")
@names_option("--quasi-identifiers", text="Columns an attacker may know; needed with a CSV file.")
@click.option("--privacy", metavar="JSON", help='Such as \'{"theta": 8, "base": 0.02}\'.')
def demo(
    file: Path | None,
    dsn: str | None,
    directory: Path,
    sensitive: str | None,
    quasi_identifiers: list[str],
    privacy: str | None,
    as_json: bool,
) -> None:
    """Show it all on 6,366 real people, or on a CSV file of yours."""
    if file is not None and not (sensitive and quasi_identifiers):
        raise click.UsageError("a CSV file needs --sensitive and --quasi-identifiers")
    chosen = given_dsn(dsn)
    from kanon_db.interfaces.demo import run

    run(
        directory=None if chosen else directory,
        dsn=chosen,
        csv=file,
        sensitive=sensitive,
        quasi_identifiers=quasi_identifiers,
        privacy=privacy,
        as_json=as_json,
    )
