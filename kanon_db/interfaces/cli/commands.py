"""Defines the command ``kanon`` with its groups, and the commands that no operation declares."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from kanon_db import __version__
from kanon_db.advice.identifying_columns import NEARLY_UNIQUE
from kanon_db.advice.publication_candidates import PROTECTIONS, PURPOSES
from kanon_db.cluster.local_cluster import LocalCluster
from kanon_db.declaration import SECONDS
from kanon_db.errors import (
    DuplicateError,
    InUseError,
    NotFoundError,
    ServerError,
    UndoneInterrupt,
)
from kanon_db.interfaces import console
from kanon_db.interfaces.cli.command_base import (
    Command,
    CommandGroup,
    Names,
    choose_dsn,
    click_parameter,
    confirm,
    connected,
    database_options,
    dir_option,
    figure_option,
    flatten_names,
    is_quiet,
    make_command,
    print_publications,
    read_dsn,
)
from kanon_db.interfaces.cli.installation_commands import (
    db,
    doctor,
    extension_command,
    install_command,
    service,
    uninstall_command,
    worker_command,
)
from kanon_db.interfaces.cli.spark_commands import spark
from kanon_db.operations import operations
from kanon_db.publications.results import is_attack
from kanon_db.session.progress import Progress
from kanon_db.wording import for_shell

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from kanon_db.transfer.csv_table import CsvPreview


@click.group(cls=CommandGroup)
def local() -> None:
    """Run a private PostgreSQL in a folder that only you can use."""


@local.command("start")
@dir_option
def local_start(directory: Path, as_json: bool) -> None:
    """Start the private cluster, and create it the first time."""
    cluster = LocalCluster(directory)
    with console.progress(quiet=is_quiet()) as show:
        show(Progress(0, 0, "starting PostgreSQL"))
        dsn = cluster.start()
    text = f'The private cluster in {cluster.directory} is running.\nConnect with: psql "{dsn}"'
    console.print_outcome(text, {"dsn": dsn}, as_json=as_json)


@local.command("stop")
@dir_option
def local_stop(directory: Path, as_json: bool) -> None:
    """Stop the private cluster; its data is kept."""
    cluster = LocalCluster(directory)
    stopped = cluster.stop()
    done = "Stopped the private cluster" if stopped else "No private cluster is running"
    text = f"{done} in {cluster.directory}."
    console.print_outcome(text, {"stopped": stopped}, as_json=as_json)


@local.command("status")
@dir_option
def local_status(directory: Path, as_json: bool) -> None:
    """Say whether the private cluster is running, and where its data is."""
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
    done = "Removed the private cluster" if destroyed else "There is no private cluster"
    text = f"{done} in {cluster.directory}."
    console.print_outcome(text, {"destroyed": destroyed}, as_json=as_json)


@click.command(cls=Command)
def version(as_json: bool) -> None:
    """Print the version of this program.

    `kanon doctor` shows the version that is installed in a database.
    """
    console.print_outcome(__version__, {"version": __version__}, as_json=as_json)


@click.command(cls=Command)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("table")
@database_options
@click.option("--replace", is_flag=True, help="Replace the table if it exists.")
@click.option("--dry-run", is_flag=True, help="Read the whole file, but make no table.")
@click.option(
    "--anew",
    is_flag=True,
    help="Replace a registered source also by a table with other columns; register it again.",
)
@click.option("--null", multiple=True, metavar="TEXT", help="Text that means NULL, too; repeat it.")
@click.option(
    "--delimiter",
    metavar="CHAR",
    help="What separates fields, or its name: comma, semicolon, tab, bar.",
)
@click.option("--encoding", metavar="NAME", help="Encoding of the file, such as latin-1.")
@click.option("--quote", metavar="CHAR", help="What stands around fields, or none.")
@click.option("--escape", metavar="CHAR", help="What escapes a quote, such as backslash.")
@click.option("--skip", type=int, metavar="N", help="Lines before the header.")
@click.option(
    "--decimal", type=click.Choice([".", ","]), metavar="CHAR", help="Decimal sign: . or ,"
)
@click.option(
    "--date-format",
    metavar="FORMAT",
    help="Format of dates beside ISO, such as DD.MM.YYYY or DD-MON-YY.",
)
@click.option(
    "--first-year",
    type=int,
    metavar="YEAR",
    help="First year that two digits mean; by default, none is after this year.",
)
@click.option("--trim", is_flag=True, help="Leave out blanks around texts.")
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="A column's new name; repeat it.")
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
    the narrowest type that all values of a column have. What could mean two things is not guessed:
    such a column has texts, and a note with the option that says what it means.
    """
    with connected(dsn, directory, as_json=as_json) as kanon:
        listen = None if as_json else _print_found
        try:
            report = kanon.load(file, table, on_found=listen, **options)
        except InUseError as refused:
            if as_json or not sys.stdin.isatty():
                raise
            console.say(f"{refused.message}\n{refused.detail}", err=True)
            confirm("Make the table anew? You must register it again, then.")
            report = kanon.load(file, table, on_found=listen, **{**options, "anew": True})
    if as_json:
        columns = [{"name": name, "type": kind} for name, kind in report.columns]
        notes = {name: for_shell(note) for name, note in report.notes.items()}
        console.print_json({**console.plain(report), "columns": columns, "notes": notes})
        return
    done = "Would load" if options["dry_run"] else "Loaded"
    console.say(f"{done} {report.records:,} records into {report.table}"
               f" in {report.seconds:.2f} seconds.")  # fmt: skip


def _print_found(preview: CsvPreview) -> None:
    """Print what was guessed, each with the option that says something else."""
    from kanon_db.transfer.csv_file import DELIMITERS

    console.print_fields(
        {
            "delimiter": f"{DELIMITERS.get(preview.delimiter, preview.delimiter)}   (--delimiter)",
            "encoding": f"{preview.encoding}   (--encoding)",
        }
    )
    console.say("")
    rows: list[tuple[Any, ...]] = [
        (name, kind, preview.missing.get(name, ""), for_shell(preview.notes.get(name, "")))
        for name, kind in preview.columns
    ]
    heading = ["column", "type (--types)", "missing", ""]
    if not preview.missing:
        heading.remove("missing")
        rows = [(name, kind, note) for name, kind, _, note in rows]
    console.print_table(heading, rows)
    for remark in preview.remarks:
        console.say(remark)
    console.say("")


@click.command(cls=Command)
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--relation",
    type=click.Choice(["view", "qit", "sat", "wgt", "draws"]),
    default="view",
    show_default=True,
    help="What to write. Buckets have tables QIT and SAT, and a view with learned weights, too;"
    " draws are there if it was published with --draws.",
)
@click.option(
    "--format",
    type=click.Choice(["csv", "parquet"]),
    help="Format, where the file's name does not say it (.csv, .csv.gz, .parquet).",
)
@click.option("--replace", is_flag=True, help="Overwrite the file if it exists.")
@figure_option
@database_options
def export(
    name: str, file: Path, *, dsn: str | None, directory: Path, as_json: bool, **options: Any
) -> None:
    """Write a publication to a CSV or Parquet file.

    Whoever may read the publication may export it. Rows are sorted by their columns. In CSV, texts
    are in quotes, NULL is nothing, and what a spreadsheet would take for a formula has an
    apostrophe before it. In Parquet, which needs the extra parquet, values are as they are; ranges
    and sets are texts.
    """
    with connected(dsn, directory, as_json=as_json) as kanon:
        done = kanon.export(name, file, **options)
    if as_json:
        console.print_json(done)
        return
    console.say(f"Wrote {done.rows:,} rows to {done.file} ({done.bytes / 1e6:,.1f} MB)"
               f" in {done.seconds:.2f} seconds.")  # fmt: skip
    console.say(f"{name}: {done.guarantee}")


@click.command(cls=Command)
@click.argument("given", required=False, metavar="[NAME]")
@database_options
def publications(given: str | None, dsn: str | None, directory: Path, as_json: bool) -> None:
    """List the publications, or describe one with its exact guarantee."""
    with connected(dsn, directory, as_json=as_json) as kanon:
        found = kanon.publications()
    if given is not None:
        found = found[found["name"] == given]
        if not len(found):
            raise NotFoundError(
                "there is no such publication, or you may not read it",
                detail=f'name "{given}"',
                hint="kanon publications lists the ones that you may read",
            )
    if as_json:  # a manifest, to be passed on: what waits is the publisher's alone
        console.print_json({"publications": found.drop(columns=["waiting", "waits"])})
    elif len(found):
        print_publications(found, is_exact=given is not None)
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
    callback=flatten_names,
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
    chosen = read_dsn(dsn)
    from kanon_db.interfaces.demo import run, write_fair

    if save is not None:
        if save.exists():
            raise DuplicateError(
                "the file exists", detail=str(save), hint="move it away, or give another name"
            )
        try:
            columns = write_fair(save)
        except OSError as error:
            raise ServerError("the file cannot be written", detail=str(error.strerror)) from None
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


_LEGEND: Final = """\
certain people: those whose sensitive value follows from what is published.
count error:    half of 300 random counts are off by no more than this share of the true count.
loss:           from 0% (every row shows a column's value) to 100% (no row shows anything), the mean
                of the quasi-identifiers. Buckets show them all, and hide whose a value is.
deFinetti:      learns from what is published alone which values go with which people.
best attack:    for how many people the known attack that gains most is right; in brackets, for how
                many the same guesses would be right without the publication.
records:        how many counts were answered about; rows are searched and attacked on at most some
                10,000. seconds: what publishing these took."""

_SENTENCES: Final = {name: one.sentence for name, one in PROTECTIONS.items()}


@click.command(cls=Command)
@database_options
def recommend(dsn: str | None, directory: Path, as_json: bool, **given: Any) -> None:
    """Say what identifies people in a table, try what could be published of it, and compare.

    Nothing is published. Candidates are tried one after the other, on a random sample of a large
    table, until the time limit; the best comes first. On a terminal, it asks for the purpose and
    the protection unless the options say them.
    """
    given["purpose"] = _ask("purpose", "What will analysts do with it?", PURPOSES, given)
    given["protection"] = _ask(
        "protection", "How much are people to be protected?", _SENTENCES, given
    )
    with connected(dsn, directory, as_json=as_json) as kanon:
        end = time.monotonic() + SECONDS.read(given["time_limit"], "time_limit")
        identifying = kanon.unicity(given["source"])
        given["time_limit"] = max(end - time.monotonic(), _LEAST_SECONDS)
        candidates = kanon.recommend(**given)
    if as_json:
        console.print_json({"identifying": identifying, "candidates": candidates})
        return
    _print_identifying(given["source"], identifying)
    _print_candidates(given, candidates)


recommend.params[:0] = [click_parameter(item) for item in operations()["recommend"].parameters]


_LEAST_SECONDS: Final = 0.001
"""What is left for candidates where other work has taken all of the time."""


def _ask(name: str, question: str, choices: Mapping[str, str], given: Mapping[str, Any]) -> str:
    """Return what an option says, or what somebody at a terminal answers."""
    source = click.get_current_context().get_parameter_source(name)
    if source is not ParameterSource.DEFAULT or not sys.stdin.isatty():
        return str(given[name])
    console.say(question, err=True)
    for word, meaning in choices.items():
        console.say(f"  {word}: {meaning}", err=True)
    answer = click.prompt(
        name, type=click.Choice(list(choices)), default=given[name], show_choices=False, err=True
    )
    return str(answer)


def _print_identifying(source: str, columns: pd.DataFrame) -> None:
    console.say(f"What identifies people in {source}: records that differ from all others in")
    console.print_table(
        ["columns", "records", "share", ""],
        [
            [
                ", ".join(row["columns"]),
                row["records"],
                f"{row['share']:.1%}",
                NEARLY_UNIQUE if row["meaning"].endswith(NEARLY_UNIQUE) else "",
            ]
            for row in columns.to_dict("records")
            if row["records"]
        ],
    )
    console.say("")


def _print_candidates(given: Mapping[str, Any], candidates: pd.DataFrame) -> None:
    rows = [console.plain(row) for row in candidates.to_dict("records")]
    purpose, protection = given["purpose"], given["protection"]
    console.say(f"Purpose {purpose}: {PURPOSES[purpose]}.")
    console.say(f"Protection wanted, {protection}: {_SENTENCES[protection]}.")
    records = rows[0]["records"]
    if any(row["tried_on"] < records for row in rows):
        console.say(
            f"Tried on random samples of the {records:,} records. Of the whole table, errors and"
            " losses are as a rule smaller."
        )
    console.say("")
    measured = [row for row in rows if row["seconds"] is not None]
    if measured:
        console.print_table(
            [
                "",
                "candidate",
                "certain people",
                "count error",
                "loss",
                "best attack",
                "records",
                "seconds",
            ],
            [_line(row) for row in measured],
        )
        console.say(f"\n{_LEGEND}\n")
    for row in rows:
        _print_candidate(row)
    if not any(row["place"] for row in rows):
        console.say("None of the candidates is recommended.")
    console.say(
        "Publish one. For another group of readers, publish another one with --readers ROLE, a role"
        " of theirs in kanon_user (CREATE ROLE … IN ROLE kanon_user): nobody should read both."
    )


def _line(row: Mapping[str, Any]) -> list[Any]:
    certain = "" if row["certain_people"] is None else f"{row['certain_people']:,.0f}"
    best = _best_attack(row)
    return [
        _place(row),
        row["candidate"],
        certain,
        _percent(row["count_error"]),
        _percent(row["loss"]),
        "" if best is None else f"{_percent(best['rate'])} ({_percent(best['base_rate'])})",
        row["tried_on"],
        f"{row['seconds']:.1f}",
    ]


def _place(row: Mapping[str, Any]) -> str:
    return f"{row['place']:.0f}" if row["place"] else "-"


def _best_attack(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    rate = row["attack_rate"]
    return next((one for one in row["attacks"] or () if rate and one["rate"] == rate), None)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _print_candidate(row: Mapping[str, Any]) -> None:
    console.say(f"{_place(row)}  {row['candidate']}")
    if row["objection"] is not None:
        console.say(f"   NOT RECOMMENDED: {row['objection']}.")
    best = _best_attack(row)
    for line in row["attacks"] or ():
        if line["rate"] is not None and (line is best or is_attack(line["attack"], "deFinetti")):
            allowed = "no bound" if line["bound"] is None else f"bound {_percent(line['bound'])}"
            console.say(
                f"   {'best attack, ' if line is best else ''}{line['attack']}: right for"
                f" {_percent(line['rate'])} ({allowed}, without the publication"
                f" {_percent(line['base_rate'])})"
            )
    console.say(f"   promises: {row['guarantee']}.")
    lost = {column: loss for column, loss in (row["loss_by_column"] or {}).items() if loss}
    if lost:
        console.say(
            f"   loses: {', '.join(f'{column} {_percent(v)}' for column, v in lost.items())}"
        )
    console.say(f"   {row['command']}\n")


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
@click.option(
    "--population",
    metavar="RELATION|PEOPLE",
    help="For the journalist and the marketer risk: a relation with the quasi-identifiers of the"
    " people from whom the source was drawn (and a column people, if its rows stand for several),"
    " or how many they are, if the source is a simple random sample.",
)
@figure_option
@database_options
def report(
    name: str,
    output: Path,
    *,
    replace: bool,
    population: str | None,
    figures: str | None,
    dsn: str | None,
    directory: Path,
    as_json: bool,
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
        is_number = population is not None and population.isdecimal()
        people = int(population or 0) if is_number else population
        text = kanon.report(name, population=people, figures=figures)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ServerError("the report cannot be written", detail=str(error.strerror)) from None
    if as_json:
        console.print_json({"file": str(output), "bytes": len(text.encode())})
        return
    console.say(f"Wrote {output} ({len(text.encode()) / 1000:,.0f} kB): open it in a browser.")


@click.command(cls=Command)
@click.argument("statement", metavar="QUERY")
@database_options
@click.option(
    "--explain",
    is_flag=True,
    help="Also say what is exact and what is estimated, and print the SQL that answers the query.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@click.option(
    "--params",
    metavar="JSON",
    help="The values of its parameters: '[30, \"flu\"]' for $1 and $2, '{\"x\": 30}' for :x.",
)
@click.option(
    "--publication",
    metavar="NAME",
    help="The publication that answers it, where FROM names the publication's source.",
)
@figure_option
def query(
    statement: str,
    *,
    dsn: str | None,
    directory: Path,
    explain: bool,
    as_csv: bool,
    as_json: bool,
    params: str | None,
    publication: str | None,
    figures: str | None,
) -> None:
    """Answer a query for counts, sums, percentiles and the like from a publication.

    QUERY looks like "SELECT COUNT(*) FROM name WHERE age > 30 AND disease = 'Flu'". It may join
    lookup tables and use GROUP BY.
    """
    if as_csv and (as_json or explain):
        raise click.UsageError("--csv cannot be combined with --json or --explain")
    with connected(dsn, directory, as_json=as_json or as_csv) as kanon:
        how: dict[str, Any] = {"params": params, "publication": publication}
        explained = kanon.explain_count(statement, **how) if explain else None
        answer = kanon.count(statement, figures=figures, **how)
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


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kanon")
def main() -> None:
    """Publish people's data from PostgreSQL privately, and run count queries on what was published.

    Commands use the private cluster under .kanon unless --dsn or KANON_DSN names a database.
    """


def add_operations(group: click.Group) -> None:
    """Add a command for each operation that declares one and has none yet."""
    for operation in operations().values():
        *names, last = operation.command or ("",)
        inner = group
        for name in names:
            found = inner.commands.setdefault(
                name, CommandGroup(name, help=f"{name.capitalize()} a registered source.")
            )
            assert isinstance(found, click.Group)  # noqa: S101  # groups and commands differ in name
            inner = found
        if last and last not in inner.commands:
            inner.add_command(make_command(operation, last))


for command in (
    local, install_command, extension_command, uninstall_command, doctor, db, service,
    worker_command, version, load, query, export, publications, demo, recommend, report, spark,
    mcp_command,
):  # fmt: skip
    main.add_command(command)
add_operations(main)
