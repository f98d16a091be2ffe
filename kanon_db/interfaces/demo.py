"""Demonstrates the whole way from a CSV file to verified, private count answers: `kanon demo`."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from kanon_db.catalog.entries import published_schema
from kanon_db.cluster.local_cluster import LocalCluster, default_directory
from kanon_db.dataclasses import dataclass
from kanon_db.errors import DuplicateError
from kanon_db.installation.install import install
from kanon_db.interfaces import console
from kanon_db.interfaces.python import Kanon, connect
from kanon_db.publications.results import Published
from kanon_db.query.formulas import Estimated
from kanon_db.session.progress import Progress
from kanon_db.session.protocol import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession, open_connection
from kanon_db.transfer.csv_table import LoadReport, load_csv

FAIR_PRIVACY: Final = '{"default": 0.2, "values": {"0.0": 0.9}}'
"""Nobody may infer a number of affairs with more than 20 %, or that there were none with 90 %."""

DEFAULT_PRIVACY: Final = '{"theta": 2, "base": 0.05, "cap": 0.8}'
"""The rarer a value, the stricter; and none is certain, however frequent."""

_ACCEPTED: Final = '{"combined_releases": "the demo publishes the same people every time"}'
"""Risks that the demo accepts; it runs in the private cluster and replaces its own publication."""

_MARK: Final = "made by kanon demo, with publication "
"""Beginning of the comment on the demo's table; the publication's number follows."""

_FAIR: Final = Path(__file__).with_name("fair.csv.gz")

N_QUERIES: Final = 10
_SEED: Final = 20160127  # the same questions in every run; nothing private depends on it


@dataclass(frozen=True)
class _Data:
    """A CSV file, the table that it becomes, and the roles of its columns."""

    csv: Path
    table: str
    sensitive: str
    quasi_identifiers: Sequence[str]
    privacy: str

    @property
    def publication(self) -> str:
        """The name of the publication."""
        return f"{self.table}_b"


@dataclass(frozen=True)
class Inference:
    """What someone who knows a person's quasi-identifiers can infer."""

    certain: float  # Share of the people whose sensitive value is certain
    # Probability of a person's true value, as seen by someone like that, on average
    own_value: float


@dataclass(frozen=True)
class DemoAnswer:
    """A count query, its estimate and the true count."""

    query: str
    estimate: Estimated
    true_count: int


def run(
    *,
    directory: Path | None,
    dsn: str | None,
    csv: Path | None,
    sensitive: str | None,
    quasi_identifiers: Sequence[str],
    privacy: str | None,
    as_json: bool,
    quiet: bool = False,
) -> None:
    """Load, register, publish and verify a table, and run count queries on it.

    `csv` needs `sensitive` and `quasi_identifiers`; by default 6,366 real people are loaded.
    """
    # A table or a publication of its names that is not from an earlier demo is refused, before
    # anything changes.
    with (
        console.progress(quiet=quiet) as show,
        _data(csv, sensitive, quasi_identifiers, privacy) as data,
    ):
        is_private = dsn is None
        folder = directory or default_directory()
        if dsn is None:
            show(Progress(0, 0, "starting a private PostgreSQL"))
            dsn = LocalCluster(folder).start()
        report = install(dsn, on_progress=show)
        with (
            connect(dsn, on_progress=show, on_warning=console.print_warning) as kanon,
            open_connection(dsn) as connection,
        ):
            owner = PsycopgSession(connection, on_progress=show)
            if _is_made(kanon, owner, data, replace=is_private):
                kanon.drop_publication(data.publication)
            loaded = _load(owner, data, replace=is_private)
            kanon.register_source(
                loaded.table, quasi_identifiers=data.quasi_identifiers, sensitive=data.sensitive
            )
            published = _publish(owner, loaded.table, data, _ACCEPTED if is_private else "{}")
            checks = kanon.verify(published.name)
            before, after = _infer(owner, loaded.table, data)
            answers = _ask(kanon, owner, loaded.table, data)
    if as_json:
        console.print_json(
            {
                "dsn": dsn if is_private else None,  # it may hold a password
                "publication": published,
                "checks": checks,
                "inference": {"original": before, "published": after},
                "answers": answers,
            }
        )
        return
    console.say(f"kanon_db {report.version} is installed in a database of the "
               f"{'private cluster' if is_private else 'given server'}.")  # fmt: skip
    console.say(f"Loaded {loaded.records:,} records of {data.csv.name}; published them as "
               f"{published.name} in {published.seconds:.1f} seconds.")  # fmt: skip
    takes_risk = checks["check"].str.startswith("accepted risk: ").any()
    accept = f", accept => '{_ACCEPTED}'" if takes_risk else ""
    console.say(f"  SELECT * FROM kanon.publish_buckets('{loaded.table}', '{published.name}',"
               f" privacy => '{data.privacy}'{accept});")  # fmt: skip
    console.say(f"Guarantee: {published.guarantee}.")
    console.say(f"Verified, using only the published tables: {int(checks['holds'].sum())} of "
               f"{len(checks)} checks hold.\n")  # fmt: skip
    _print_inference(data, before, after)
    _print_answers(answers)
    _print_next(data.publication, answers, dsn, folder if is_private else None)


@contextmanager
def _data(
    csv: Path | None, sensitive: str | None, quasi_identifiers: Sequence[str], privacy: str | None
) -> Iterator[_Data]:
    """Find the data; the data set that comes with the demo is written to a temporary CSV file."""
    if csv is not None and sensitive is not None:
        stem = re.sub(r"\W+", "_", csv.name.removesuffix(".gz").removesuffix(".csv")).lower()
        yield _Data(csv, stem, sensitive, quasi_identifiers, privacy or DEFAULT_PRIVACY)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fair.csv")
        columns = write_fair(path)
        columns.remove("affairs")
        yield _Data(path, "fair", "affairs", columns, privacy or FAIR_PRIVACY)


def write_fair(path: Path) -> list[str]:
    """Write the survey of Redbook magazine (1974) as a CSV file.

    Returns the columns.
    """
    # R. C. Fair: A theory of extramarital affairs, Journal of Political Economy 86(1), 1978. The
    # file is the data set `fair` of statsmodels, which its author permits to include.
    text = gzip.decompress(_FAIR.read_bytes()).decode()
    path.write_text(text, encoding="utf-8")
    return text.splitlines()[0].split(",")


def _is_made(kanon: Kanon, owner: PsycopgSession, data: _Data, *, replace: bool) -> bool:
    """Tell whether the demo's publication is there, from an earlier run.

    If somebody else's table or publication has its name, `DuplicateError` is raised.
    """
    with owner.transaction():
        row = fetch_one(
            owner,
            "SELECT c.oid IS NOT NULL AS is_there, obj_description(c.oid, 'pg_class') AS comment"
            " FROM (SELECT to_regclass($1::text) AS oid) AS c",
            owner.identifier("public", data.table),
        )
    mark = row["comment"] or ""
    if row["is_there"] and not (replace and mark.startswith(_MARK)):
        raise _refuse_taken(f"table public.{data.table}")
    publications = kanon.publications()
    numbers = publications.loc[publications["name"] == data.publication, "publication_id"].tolist()
    if any(mark != f"{_MARK}{number}" for number in numbers):
        raise _refuse_taken(f"publication {data.publication}")
    return bool(numbers)


def _refuse_taken(what: str) -> DuplicateError:
    return DuplicateError(
        "the demo does not replace what it has not made",
        detail=f"{what} exists",
        hint="use another private server, --dir FOLDER, or another name for the CSV file",
    )


def _load(owner: PsycopgSession, data: _Data, *, replace: bool) -> LoadReport:
    """Load the table, and mark it as the demo's at once."""
    with owner.transaction(), owner.reporting():
        table = owner.identifier("public", data.table)
        report = load_csv(owner, data.csv, table, replace=replace)
        owner.fetch(f"COMMENT ON TABLE {table} IS {owner.literal(_MARK)}")
    return report


def _publish(owner: PsycopgSession, table: str, data: _Data, accept: str) -> Published:
    """Publish with the SQL function, as a data owner would."""
    with owner.transaction():
        row = fetch_one(
            owner,
            "SELECT publication_id, name, guarantee, records, metrics::text, seconds"
            " FROM kanon.publish_buckets($1::text::regclass, $2::text, privacy => $3::text::jsonb,"
            " accept => $4::text::jsonb)",
            table, data.publication, data.privacy, accept,
        )  # fmt: skip
        mark = owner.literal(f"{_MARK}{row['publication_id']}")
        owner.fetch(f"COMMENT ON TABLE {table} IS {mark}")
    return Published(**{**row, "metrics": json.loads(row["metrics"])})


def _infer(owner: PsycopgSession, table: str, data: _Data) -> tuple[Inference, Inference]:
    """Compare what quasi-identifiers reveal in the source and in the publication."""
    # A person's group is everybody with the same quasi-identifiers in the source, and a bucket in
    # the publication.
    known = ", ".join(map(owner.identifier, data.quasi_identifiers))
    sensitive = owner.identifier(data.sensitive)
    share = (
        "SELECT coalesce(sum(n) FILTER (WHERE n = size), 0)::float8 / sum(n) AS certain,"
        " sum(n * n / size)::float8 / sum(n) AS own_value FROM"
    )
    with owner.transaction():
        original = fetch_one(
            owner,
            f"{share} (SELECT count(*)::numeric AS n, sum(count(*)) OVER (PARTITION BY {known})"
            f" AS size FROM {table} GROUP BY {known}, {sensitive}) AS groups",
        )
        sat = owner.identifier(published_schema(owner), f"{data.publication}_sat")
        published = fetch_one(
            owner,
            f"{share} (SELECT s.count::numeric AS n, sum(s.count) OVER (PARTITION BY s.bucket_id)"
            f" AS size FROM {sat} AS s) AS buckets",
        )
    return Inference(**original), Inference(**published)


def _ask(kanon: Kanon, owner: PsycopgSession, table: str, data: _Data) -> list[DemoAnswer]:
    """Ask random questions about two quasi-identifiers and the sensitive attribute."""
    random = np.random.default_rng(_SEED)
    values = {
        column: _distinct_values(owner, table, column)
        for column in [*data.quasi_identifiers, data.sensitive]
    }
    answers = []
    for _ in range(N_QUERIES):
        n_columns = min(2, len(data.quasi_identifiers))
        columns = random.choice(data.quasi_identifiers, size=n_columns, replace=False).tolist()
        where = " AND ".join(
            _predicate(owner, column, values[column], random)
            for column in [*columns, data.sensitive]
        )
        with owner.transaction():
            true = fetch_one(owner, f"SELECT count(*) AS n FROM {table} WHERE {where}")["n"]
        query = f"SELECT COUNT(*) FROM {_name(owner, data.publication)} WHERE {where}"
        answers.append(DemoAnswer(query, kanon.estimate_count(query), int(true)))
    return answers


def _distinct_values(owner: PsycopgSession, table: str, column: str) -> list[tuple[str, bool]]:
    """Return a column's distinct values in order, as text, and whether they are numbers."""
    name = owner.identifier(column)
    with owner.transaction():
        rows = owner.fetch(
            "SELECT format('%s', v) AS value, pg_typeof(v)::text IN"
            " ('integer', 'bigint', 'numeric', 'double precision') AS is_number"
            f" FROM (SELECT DISTINCT {name} AS v FROM {table} WHERE {name} IS NOT NULL) AS d"
            " ORDER BY v"
        )
    return [(row["value"], row["is_number"]) for row in rows]


def _name(owner: PsycopgSession, name: str) -> str:
    """Quote a name only if it needs quotes."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else owner.identifier(name)


def _predicate(
    owner: PsycopgSession, column: str, values: Sequence[tuple[str, bool]],
    random: np.random.Generator,
) -> str:  # fmt: skip
    """Ask for a range with half of a column's numbers, or for a few values that are no numbers."""
    name = _name(owner, column)
    n_wanted = max(1, len(values) // 2)
    if all(is_number for _, is_number in values):
        first = int(random.integers(0, len(values) - n_wanted + 1))
        low, high = values[first][0], values[first + n_wanted - 1][0]
        return f"{name} = {low}" if low == high else f"{name} BETWEEN {low} AND {high}"
    chosen = sorted(random.choice(len(values), size=min(n_wanted, 4), replace=False).tolist())
    return f"{name} IN ({', '.join(owner.literal(values[i][0]) for i in chosen)})"


def _print_inference(data: _Data, before: Inference, after: Inference) -> None:
    console.say(f"What someone who knows {len(data.quasi_identifiers)} other columns of a person "
               f"can infer about {data.sensitive}:\n")  # fmt: skip
    console.print_table(
        ["", "original", "published"],
        [
            ("people whose value is certain", f"{before.certain:.1%}", f"{after.certain:.1%}"),
            ("probability of a person's own value, on average", f"{before.own_value:.1%}",
             f"{after.own_value:.1%}"),
        ],
    )  # fmt: skip


def _print_answers(answers: Sequence[DemoAnswer]) -> None:
    console.say(f"\n{len(answers)} count queries, answered from the published tables:\n")
    console.print_table(
        ["WHERE", "true count", "estimate", "likely range", "certain bounds"],
        [
            (
                answer.query.split(" WHERE ", 1)[1],
                answer.true_count,
                round(one.estimate or 0, 1),
                console.format_range(one.likely_low or 0, one.likely_high or 0),
                console.format_range(one.lower_bound or 0, one.upper_bound or 0),
            )
            for answer in answers
            for one in (answer.estimate,)
        ],
    )


def _print_next(
    publication: str, answers: Sequence[DemoAnswer], dsn: str, directory: Path | None
) -> None:
    option = "" if directory == default_directory() else f" --dir {shlex.quote(str(directory))}"
    if directory is None:
        option = " --dsn …"
    query = min((answer.query for answer in answers), key=len)
    kanon = console.command_here()
    lines = [
        f"{kanon} query{option} {shlex.quote(query)}",
        f"{kanon} verify{option} {publication}",
        f"{kanon} metrics{option} {publication}",
    ]
    if directory is not None:
        lines.append(f"psql {shlex.quote(dsn)} -c 'TABLE kanon.publications'")
        lines.append(f"{kanon} local stop{option}")
    console.say("\nType next:")
    for line in lines:
        console.say(f"  {line}")
