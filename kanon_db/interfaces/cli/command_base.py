"""Defines what all commands share, and derives the commands of declared operations.

They share --json, how they report errors, and the options that pick a database.
"""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from kanon_db.cluster.local_cluster import LocalCluster, default_directory
from kanon_db.declaration import Operation, Parameter
from kanon_db.errors import KanonError, ServerError, UndoneInterrupt
from kanon_db.interfaces import console
from kanon_db.publications.results import FIGURES, HELD, waits_in_words

if TYPE_CHECKING:
    import pandas as pd

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
    """Tell whether the command reports no progress."""
    ctx = click.get_current_context()
    return bool(ctx.params.get("as_json") or ctx.meta.get(_QUIET))


class CommandGroup(click.Group):
    """A group of commands."""

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


def flatten_names(
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


figure_option = click.option(
    "--figures",
    metavar="JSON",
    help="The rule by which figures are shown, beside that of the publication, such as"
    ' \'{"least": 6, "round": 5}\': counts are 0 or at least 6, rounded to 5, and there are no sums'
    " of fewer people.",
)


def read_dsn(dsn: str | None) -> str | None:
    """Return the given DSN, unless it is from the environment and the command line has ``--dir``.

    Raises click.UsageError if both are on the command line.
    """
    ctx = click.get_current_context()
    if dsn is None or ctx.get_parameter_source("directory") is not ParameterSource.COMMANDLINE:
        return dsn
    if ctx.get_parameter_source("dsn") is ParameterSource.COMMANDLINE:
        raise click.UsageError("use either --dsn or --dir, not both")
    return None


def choose_dsn(dsn: str | None, directory: Path) -> str:
    """Return the given DSN, or else that of the running private cluster.

    Raises ServerError if no DSN is given and the private cluster is not running.
    """
    return read_dsn(dsn) or LocalCluster(directory).dsn()


@contextmanager
def connected(dsn: str | None, directory: Path, *, as_json: bool) -> Iterator[Kanon]:
    """Connect to the chosen database, and report the progress of operations."""
    chosen = choose_dsn(dsn, directory)
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

    Raises ServerError if there is no terminal to ask on. Raises click.Abort if the answer is no.
    """
    if not sys.stdin.isatty():
        raise ServerError(
            "confirmation needed", detail="there is no terminal to ask on", hint="add --yes"
        )
    click.confirm(question, abort=True, err=True)


_CLICK_TYPES: Final[Mapping[str, Any]] = {
    "integer": int,
    "bigint": int,
    "integer[]": int,
    "double precision[]": float,
}


def make_command(operation: Operation, name: str) -> click.Command:
    """Make the command of an operation."""

    def run(dsn: str | None, directory: Path, as_json: bool, **given: Any) -> None:
        with connected(dsn, directory, as_json=as_json) as kanon:
            answer = kanon.perform(operation.name, drop_unset(given))
            if operation.command[0] == "publish" and not as_json and not given["dry_run"]:
                given[_READERS] = kanon.readers(answer.name)
                given[_BESIDE] = _beside(kanon, answer.name, given[_READERS])
        print_result(operation.command[0], given, answer, as_json=as_json)

    run.__doc__ = f"{operation.sentence}\n\n{operation.details}"
    command = click.command(name, cls=Command)(database_options(run))
    command.params[:0] = [click_parameter(parameter) for parameter in operation.parameters]
    return command


def drop_unset(given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the options that were not given."""
    return {key: value for key, value in given.items() if value not in (None, [], ())}


def print_result(word: str, given: Mapping[str, Any], answer: Any, *, as_json: bool) -> None:
    """Print the answer of a command, by its first word; exit with 1 if a check fails."""
    if as_json:
        console.print_json(_DOCUMENTS.get(word, _rows)(given, answer))
    else:
        _PRINTED.get(word, _print_rows)(given, answer)
    if word in ("verify", "check") and any(holds is False for holds in answer["holds"].tolist()):
        click.get_current_context().exit(1)


def click_parameter(parameter: Parameter) -> click.Parameter:
    """Make the argument or the option of a declared parameter."""
    metavar = parameter.metavar or parameter.type.metavar
    if parameter.is_positional:
        return click.Argument([parameter.name], metavar=metavar)
    flag = f"--{parameter.name.replace('_', '-')}"
    default = parameter.default
    shared: dict[str, Any] = {"help": parameter.help, "metavar": metavar}
    if parameter.type.sql == "boolean":
        flags = f"{flag}/--no-{flag[2:]}" if default else flag
        return click.Option([flags], is_flag=True, default=default, show_default=default, **shared)
    if parameter.type.sql == "text[]":
        shared |= {"type": Names(), "callback": flatten_names}
    if parameter.type.sql.endswith("[]"):
        shared["multiple"] = True
    shared.setdefault("type", _CLICK_TYPES.get(parameter.type.sql, str))
    if parameter.is_required:
        return click.Option([flag], required=True, **shared)
    if parameter.type.choices:
        shared["shell_complete"] = _beginning_with(list(parameter.type.choices))
        shared["help"] += f" One of {', '.join(parameter.type.choices)}."
    if default in (None, ()):
        return click.Option([flag], **shared)
    return click.Option([flag], default=default, show_default=True, **shared)


def _beginning_with(words: Sequence[str]) -> Callable[..., list[str]]:
    """Make what the shell asks for when it completes a word."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


_DOCUMENTS: Final[Mapping[str, Callable[[Mapping[str, Any], Any], Any]]] = {
    "register": lambda _given, found: {"source_id": found},
    "publish": lambda _given, found: found,
    "patterns": lambda _given, found: {"patterns": found},
    "unicity": lambda _given, found: {"identifying": found},
    "inspect": lambda _given, found: {"inspected": found},
    "verify": lambda _given, found: {"checks": found},
    "check": lambda _given, found: {"measures": found},
    "releases": lambda _given, found: {"releases": found},
    "metrics": lambda _given, found: {
        "metrics": dict(zip(found["metric"], found["value"], strict=True))
    },
    "evaluate": lambda _given, found: {"accuracy": found},
    "attack": lambda _given, found: {"attacks": found},
    "refresh": lambda _given, found: found,
    "classify": lambda _given, found: found,
    "grant": lambda given, _found: {"granted": given["name"]},
    "drop": lambda given, _found: {"dropped": given["name"]},
    "draw": lambda _given, found: {"draws": found},
}
"""Functions that make the JSON for programs, from the parameters and the result."""


def _rows(_given: Mapping[str, Any], frame: Any) -> Any:
    return {"rows": frame}


def _print_rows(_given: Mapping[str, Any], frame: Any) -> None:
    if frame.columns.empty:
        console.say("There are none.")
    else:
        console.print_frame(frame)


def _print_answers(given: Mapping[str, Any], answers: Any) -> None:
    if answers.columns.empty:
        _print_rows(given, answers)
    else:
        console.print_answers(answers)


def _print_inspected(_given: Mapping[str, Any], frame: Any) -> None:
    summary, *columns = frame.to_dict("records")
    console.say(f"{summary['notes']}.\n")
    console.print_table(
        ["column", "type", "looks like", "because of", "values", "missing", "once", "notes"],
        [
            [
                one["name"], one["type"], one["role"], one["reason"], one["distinct_values"],
                f"{one['missing']:.1%}", f"{one['once']:.1%}", one["notes"],
            ]
            for one in columns
        ],
    )  # fmt: skip
    if isinstance(summary["command"], str):
        console.say("\nThese are guesses: check them, and then register it.")
        view, is_two, _ = summary["sql"].partition("\n")  # it may need a view
        if is_two:
            console.say(f"First, in SQL: {view}")
        console.say(summary["command"])


def _print_registered(given: Mapping[str, Any], source_id: int) -> None:
    console.say(f"Registered {given['source']} as source {source_id}.")


def _print_published(given: Mapping[str, Any], report: Any) -> None:
    """Print what was published, for people; `kanon metrics` has the rest of what is kept."""
    is_dry_run = bool(given.get("dry_run"))
    siblings = ", ".join(given.get(_BESIDE, ()))
    console.print_fields(
        {
            "publication": report.name,
            "guarantee": report.guarantee,
            # Of a trial there are none, and files are read by whoever may open them.
            **({_READERS: _who_reads(given[_READERS])} if _READERS in given else {}),
            **({_BESIDE: f"{siblings}, of the same people"} if siblings else {}),
            "records": report.records,
            **{
                name: value
                for name, value in report.metrics.items()
                if name in _HEADLINES or (is_dry_run and name != FIGURES)
            },
        }
    )
    if FIGURES in report.metrics:
        _print_figures(report.metrics[FIGURES])
    done = "Tried and verified, nothing kept," if is_dry_run else "Published and verified"
    console.say(f"{done} in {report.seconds:.2f} seconds.")
    if not is_dry_run:
        name = shlex.quote(report.name)
        console.say(
            f"Next: kanon report {name} -o {name}.html, for whoever answers for data protection;"
            f" kanon metrics {name} has its figures."
        )


_READERS: Final = "who can read"
_BESIDE: Final = "they also read"

_HEADLINES: Final = ("certain_records", "suppressed_records")
"""Metrics that somebody who publishes has to see."""


def _beside(kanon: Kanon, name: str, readers: Iterable[str]) -> list[str]:
    """Name other publications of the source for the same roles, whose members would read both."""
    rows = {row["name"]: row for row in kanon.publications().to_dict("records")}
    return [
        other
        for other, row in rows.items()
        if other != name
        and row["source"] == rows[name]["source"]
        and set(row["parameters"].get("readers") or ()) & set(readers)
    ]


def _who_reads(readers: Mapping[str, Sequence[str]]) -> str:
    """Say which roles a publication is for, and who that is.

    Examples
    --------
    >>> _who_reads({"kanon_analyst": ["ann"], "team": []})
    'kanon_analyst (ann), team (nobody yet: GRANT team TO somebody)'
    >>> _who_reads({})
    'nobody: it is a draft'
    """
    from kanon_db.publications.releases.ledger import shortened

    said = [
        f"{role} ({shortened(members) if members else f'nobody yet: GRANT {role} TO somebody'})"
        for role, members in readers.items()
        if members != [role]
    ]
    said += [role for role, members in readers.items() if members == [role]]
    return ", ".join(said) or "nobody: it is a draft"


def _print_figures(figures: Mapping[str, Any]) -> None:
    """Print what a dry run measured: a table for each kind of figures that there is."""
    for name, title in (
        ("counts", "Answers to 1,000 random counts, compared with the source"),
        ("attacks", "Attacks"),
        ("risks", "Known risks"),
    ):
        if figures[name]:
            console.say(f"\n{title}:")
            columns = list(figures[name][0])
            console.print_table(columns, ([row.get(c) for c in columns] for row in figures[name]))
    for name, reason in figures["not_measured"].items():
        console.say(f"\n{name} were not measured: {reason}")
    console.say("")


def _print_refreshed(_given: Mapping[str, Any], report: Any) -> None:
    console.print_fields(
        {
            "publication": report.name,
            "guarantee": report.guarantee,
            "records": report.records,
            "added": report.added,
            "waiting": report.waiting,
            **({"withdrawn": report.withdrawn} if report.withdrawn else {}),
            **({"left out": report.left_out} if report.left_out else {}),
            **({"corrected": report.corrected} if report.corrected else {}),
            **({"missing": report.missing} if report.missing else {}),
            **({"held back": waits_in_words(report.waits)} if report.waits else {}),
            **{
                f"if {HELD[kind].short}": one["hint"]
                for kind, one in report.waits.items()
                if one["records"]
            },
        }
    )
    console.say(f"Refreshed and verified in {report.seconds:.2f} seconds.")


def _print_classified(_given: Mapping[str, Any], classified: Any) -> None:
    console.print_fields(
        {
            "label": classified.label,
            "agreement": classified.agreement,
            **({} if classified.logits is None else {"logits": classified.logits}),
            **(
                {} if classified.answers_left is None else {"answers left": classified.answers_left}
            ),
        }
    )


def print_publications(publications: pd.DataFrame, *, is_exact: bool) -> None:
    """List publications, each with its promise in a few words or exactly."""
    console.print_frame(
        publications[["name", "source", "method", "rows", "published_at", "published_by"]]
    )
    columns = ["name", "guarantee", "promise", "waits", "layout"]
    for name, guarantee, promise, waits, layout in publications[columns].itertuples(index=False):
        console.say(f"{name}: {guarantee if is_exact else promise['short']}")
        if weight := layout.get("weight"):
            console.say(
                f"{name}: count with sum({weight}) in other tools, never with count(*), which"
                " counts each record once for each value of its bucket"
            )
        if waits:  # the publisher alone is told
            console.say(f"{name}: {waits_in_words(waits)}")
    if not is_exact:
        console.say("What one of them promises exactly: kanon publications NAME")


def _print_granted(given: Mapping[str, Any], _found: None) -> None:
    console.say(f"Granted publication {given['name']}.")


def _print_dropped(given: Mapping[str, Any], _found: None) -> None:
    console.say(f"Dropped publication {given['name']}.")


_PRINTED: Final[Mapping[str, Callable[[Mapping[str, Any], Any], None]]] = {
    "estimate": _print_answers,
    "inspect": _print_inspected,
    "register": _print_registered,
    "publish": _print_published,
    "refresh": _print_refreshed,
    "classify": _print_classified,
    "grant": _print_granted,
    "drop": _print_dropped,
    "draw": lambda _given, found: console.print_csv(found),
}
"""Functions that print for people what is not a table of rows."""
