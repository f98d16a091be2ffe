"""Whether standard errors are honest: how far estimates are off, against what they say.

``python -m benchmarks --write calibration``. The constants of the error models were chosen on the
tables marked as such; the figures that count are those of the others.

Tables are looked for in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import psycopg

import kanon_db
from benchmarks.harness import REST, private_server, table
from kanon_db.errors import KanonError

DATA: Final = (
    Path(os.environ.get("KANON_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data"
)
N_RECORDS: Final = 8_000
N_QUESTIONS: Final = 60
SEED: Final = 7


@dataclass(frozen=True)
class Data:
    """A real table: of more records, a random sample of 8,000."""

    file: str
    quasi_identifiers: tuple[str, ...]
    sensitive: str
    summed: tuple[str, ...]
    privacy: str
    was_tuned_on: bool = False

    @property
    def name(self) -> str:
        """The file's name up to its number of rows."""
        return self.file.split("_")[0].split(".")[0]


THETA: Final = '{"theta": 8, "base": 0.02}'
TABLES: Final = (
    Data(
        "adult_30162.csv.gz",
        ("age", "workclass", "education", "marital-status", "race", "sex", "hours-per-week"),
        "occupation",
        ("age", "hours-per-week"),
        THETA,
        was_tuned_on=True,
    ),
    Data(
        "fars_occupants.csv.gz",
        ("age", "sex", "year", "airbag", "inimpact", "Restraint"),
        "state",
        ("age",),
        THETA,
        was_tuned_on=True,
    ),
    Data(
        "ipums1980.csv.gz",
        ("age", "sex", "race", "marstat", "educrec", "inctot"),
        "classwk",
        ("age", "inctot"),
        '{"default": 0.75}',
        was_tuned_on=True,
    ),
    Data(
        "nmes1988.csv.gz",
        ("age", "gender", "region", "married", "school", "income"),
        "chronic",
        ("age", "school", "income"),
        '{"default": 0.5}',
    ),
    Data(
        "brfss_cdc20k.csv.gz",
        ("age", "gender", "height", "weight", "exerany"),
        "genhlth",
        ("age", "weight"),
        '{"default": 0.6}',
    ),
    Data(
        "cps_sw8.csv.gz",
        ("age", "gender", "region", "earnings"),
        "education",
        ("age", "earnings"),
        '{"default": 0.5}',
    ),
    Data(
        "nursery.csv.gz",
        ("parents", "has_nurs", "form", "children", "housing", "finance", "social"),
        "class",
        (),
        '{"default": 0.5}',
    ),
)

PUBLISHED: Final = {
    "buckets, two_size, random": "publish_buckets|privacy => '{privacy}', assignment => 'random'",
    "buckets, cells": "publish_buckets|privacy => '{privacy}'",
    "generalized, k = 5": "publish_generalized|k => 5, method => 'mondrian', refine => false",
    "generalized, k = 20": "publish_generalized|k => 20, method => 'mondrian', refine => false",
    "generalized, refined": "publish_generalized|k => 5, options => '{{\"time_limit\": 10}}'",
    "freeform, k = 5": "publish_freeform|k => 5, options => '{{\"refine\": false}}'",
    "suppressed, k = 5": "publish_suppressed|k => 5",
}
AGGREGATES: Final = ("COUNT", "GROUP BY", "SUM", "AVG")


@dataclass(frozen=True)
class Answer:
    """What was true, what was estimated, and its error."""

    truth: float
    estimate: float
    error: float
    by_paper: float
    likely: tuple[float, float]


def main(tables: Sequence[Data] = TABLES, only: str = "") -> str:
    """Return the results as Markdown."""
    found: dict[tuple[str, str, bool], list[list[Answer]]] = defaultdict(list)
    with private_server() as dsn:
        for data in tables:
            source = _load(dsn, data)
            for name, call in PUBLISHED.items():
                if only not in name:
                    continue
                with psycopg.connect(dsn, autocommit=True) as connection:
                    connection.execute("SET client_min_messages = error")
                    function, given = call.split("|")
                    connection.execute(
                        f"SELECT * FROM kanon.{function}('public.{data.name}', 'asked',"
                        f" replace => true, {given.format(privacy=data.privacy)})"
                    )
                for aggregate in AGGREGATES:
                    if aggregate in ("SUM", "AVG") and not data.summed:
                        continue
                    answers = list(_answers(dsn, data, source, aggregate, name))
                    found[name, aggregate, data.was_tuned_on].append(answers)
                    row = [data.name, name, aggregate, *_judged([answers])]
                    print(row, file=sys.stderr, flush=True)
    heading = [
        "published as", "aggregate", "answers", "in the likely range", "within 1", "within 2",
        "within 3", "median error", "median standard error / median error",
        "mean error / the paper's",
    ]  # fmt: skip
    parts, rest = [], []
    for was_tuned_on, title in ((False, "Other tables"), (True, "Tables they were chosen on")):
        names = ", ".join(data.name for data in tables if data.was_tuned_on == was_tuned_on)
        rows = [
            [name, aggregate, *_judged(found[name, aggregate, was_tuned_on])]
            for name in PUBLISHED
            for aggregate in AGGREGATES
            if found[name, aggregate, was_tuned_on]
        ]
        titled = f"**{title}** ({names}):\n\n"
        parts.append(titled + table(heading, [row for row in rows if row[1] in ("COUNT", "AVG")]))
        rest.append(titled + table(heading, rows))
    return (
        f"Questions with conditions on one to three columns, {N_QUESTIONS} for each table,"
        " publication and aggregate; answers that are exact, or have no error, are left out. The"
        " error is relative to the true answer.\n\n"
        + parts[0]
        + REST
        + "\n".join([parts[1], *rest])
    )


def _load(dsn: str, data: Data) -> pd.DataFrame:
    source = pd.read_csv(DATA / data.file)
    source = source[[*data.quasi_identifiers, data.sensitive]]
    source = source.sample(min(N_RECORDS, len(source)), random_state=SEED)
    with kanon_db.connect(dsn) as kanon:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "source.csv")
            source.to_csv(path, index=False)
            kanon.load(path, f"public.{data.name}")
        kanon.register_source(
            f"public.{data.name}",
            quasi_identifiers=data.quasi_identifiers,
            sensitive=data.sensitive,
        )
    return source


def _answers(
    dsn: str, data: Data, source: pd.DataFrame, aggregate: str, published: str
) -> Iterator[Answer]:
    random = np.random.default_rng(SEED)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET client_min_messages = error")
        for _ in range(N_QUESTIONS):
            where = _condition(random, data, source, with_sensitive="buckets" in published)
            selected = "COUNT(*)"
            if aggregate in ("SUM", "AVG"):
                selected = f'{aggregate}("{random.choice(data.summed)}")'
            if aggregate == "GROUP BY":
                yield from _groups(connection, random, data, source, where)
                continue
            query = f"SELECT {selected} FROM {{}} WHERE {where}"
            truth = _fetch(connection, query.format(f"public.{data.name}"))[0][0]
            asked = ("SELECT * FROM kanon.estimate(%s)", query.format("asked"))
            rows = _fetch(connection, *asked)
            if rows and truth is not None:
                _, _, estimate, error, lower, upper, *likely = rows[0]
                if None not in (estimate, error) and (lower is None or lower < upper):
                    with _paper(connection):
                        by_paper = _fetch(connection, *asked)[0][2]
                    paper = float("nan") if by_paper is None else float(by_paper)
                    yield Answer(
                        float(truth), float(estimate), float(error), paper, (likely[0], likely[1])
                    )


def _groups(
    connection: psycopg.Connection,
    random: np.random.Generator,
    data: Data,
    source: pd.DataFrame,
    where: str,
) -> Iterator[Answer]:
    few = [name for name in data.quasi_identifiers if source[name].nunique() <= 20]
    key = str(random.choice(few))
    query = f'SELECT "{key}" AS key, COUNT(*) FROM {{}} WHERE {where} GROUP BY 1'
    truth = {str(value): n for value, n in _fetch(connection, query.format(f"public.{data.name}"))}
    answered = (
        "SELECT group_key ->> 'key', estimate, std_error, lower_bound, upper_bound, likely_low,"
        " likely_high FROM kanon.estimate_counts(%s)"
    )
    asked = (answered, query.format("asked"))
    rows = _fetch(connection, *asked)
    with _paper(connection):
        by_paper = {row[0]: row[1] for row in _fetch(connection, *asked)}
    open_ = [row for row in rows if row[3] < row[4]]
    for at in random.permutation(len(open_))[:3]:
        value, estimate, error, _, _, *likely = open_[at]
        yield Answer(
            float(truth.get(str(value), 0)), float(estimate), float(error), float(by_paper[value]),
            (likely[0], likely[1]),
        )  # fmt: skip


@contextmanager
def _paper(connection: psycopg.Connection) -> Iterator[None]:
    connection.execute("SET kanon.estimator = 'paper'")
    yield
    connection.execute("RESET kanon.estimator")


def _fetch(connection: psycopg.Connection, statement: str, *values: str) -> list[Any]:
    try:
        return connection.execute(statement, values or None).fetchall()
    except (psycopg.Error, KanonError) as error:
        print(f"{values or statement}: {error}", file=sys.stderr)
        return []


def _condition(
    random: np.random.Generator, data: Data, source: pd.DataFrame, *, with_sensitive: bool
) -> str:
    """Draw a conjunction on one to three columns whose values are drawn from the records."""
    size = random.integers(1, 4)
    columns = [str(name) for name in random.choice(data.quasi_identifiers, size, replace=False)]
    if with_sensitive:
        columns.append(data.sensitive)
    parts = []
    for column in columns:
        values = source[column].dropna()
        number = values.nunique()
        if number > 8 and pd.api.types.is_numeric_dtype(values):
            low, high = np.sort(random.choice(values.to_numpy(), 2))
            parts.append(f'"{column}" BETWEEN {low} AND {high}')
        else:
            taken = random.choice(values.to_numpy(), random.integers(1, max(2, number // 2 + 1)))
            listed = ", ".join(sorted({_sql(value) for value in taken}))
            parts.append(f'"{column}" IN ({listed})')
    return " AND ".join(parts)


def _judged(several: Sequence[Sequence[Answer]]) -> list[str]:
    answers = [answer for one in several for answer in one if answer.truth]
    if not answers:
        return ["0", *[""] * 7]
    truth, estimate, error, by_paper = (
        np.array([getattr(answer, name) for answer in answers])
        for name in ("truth", "estimate", "error", "by_paper")
    )
    low, high = np.array([answer.likely for answer in answers]).T
    lost = np.abs(truth) * 1e-9 + 1e-9
    is_likely = (low - lost <= truth) & (truth <= high + lost)
    off = np.abs(truth - estimate)
    relative = off / np.abs(truth)
    ratio = np.median(error / np.abs(truth)) / max(np.median(relative), 1e-12)
    return [
        f"{len(answers):,}",
        f"{np.mean(is_likely):.1%}",
        *(f"{np.mean(off <= times * error * (1 + 1e-9) + 1e-9):.0%}" for times in (1, 2, 3)),
        f"{np.median(relative):.2%}",
        f"{ratio:.1f}",
        f"{off.mean() / max(np.nanmean(np.abs(truth - by_paper)), 1e-12):.2f}",
    ]


def _sql(value: object) -> str:
    return str(value) if isinstance(value, int | float | np.number) else f"'{value}'"


if __name__ == "__main__":
    chosen = [data for data in TABLES if not sys.argv[2:] or data.name in sys.argv[2:]]
    print(main(chosen, *sys.argv[1:2]))
