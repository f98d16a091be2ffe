"""Plain counts, averages and sums of a draw that is kept, beside the truth.

Run from the root of the repository: ``python -m benchmarks plain_draws``. The tables are looked for
as in :mod:`benchmarks.protection`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import psycopg

import kanon_db
from benchmarks.harness import private_server, table
from benchmarks.protection import DATA, QUASI_IDENTIFIERS, SENSITIVE


class DrawnTable(NamedTuple):
    """A table, and what tools ask of it."""

    file: str
    quasi_identifiers: tuple[str, ...]
    sensitive: str
    number: str  # the column of averages and sums
    privacy: str


TABLES: Final = {
    "Adult": DrawnTable(
        "adult_30162.csv.gz", QUASI_IDENTIFIERS, SENSITIVE, "age", '{"theta": 8, "base": 0.02}'
    ),
    "FARS": DrawnTable(
        "fars_occupants.csv.gz",
        ("age", "sex", "year", "airbag", "inimpact", "Restraint"), "injury", "age",
        '{"default": 0.5}',
    ),
}  # fmt: skip
PUBLICATIONS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "buckets": ("publish_buckets", {}),
    "generalized, k = 5": ("publish_generalized", {"k": 5, "method": "mondrian", "refine": False}),
    "suppressed, k = 5": ("publish_suppressed", {"k": 5}),
}
LEAST: Final = 100
"""People that a group has: smaller ones depend on chance alone."""


class Groups(NamedTuple):
    """A question that groups people, and the relations that answer it."""

    connection: psycopg.Connection
    keys: tuple[str, ...]
    number: str

    def drawn_and_true(self, source: str) -> list[tuple[float, ...]]:
        """Return how much counts, averages and sums of a draw are of the true ones."""
        names = ", ".join(f'"{name}"::text' for name in self.keys)
        measures = f'count(*), avg("{self.number}")::float8, sum("{self.number}")::float8'
        places = ", ".join(map(str, range(1, len(self.keys) + 1)))
        true, drawn = (
            {
                tuple(row[: len(self.keys)]): row[len(self.keys) :]
                for row in self.connection.execute(
                    f"SELECT {names}, {measures} FROM {relation} GROUP BY {places}"
                )
            }
            for relation in (source, "published.drawn_draws")
        )
        asked = ", ".join(f'"{name}"' for name in self.keys)
        estimated = {
            tuple(None if key[name] is None else str(key[name]) for name in self.keys): estimate
            for key, estimate in self.connection.execute(
                "SELECT group_key, estimate FROM kanon.estimate(%s)",
                [f"SELECT {asked}, COUNT(*) FROM drawn GROUP BY {asked}"],
            )
        }
        return [
            tuple(
                (own or 0) / of
                for own, of in zip(
                    (*drawn.get(key, (0, 0, 0)), estimated.get(key, 0)),
                    (*values, values[0]),
                    strict=True,
                )
            )
            for key, values in true.items()
            if values[0] >= LEAST and values[1]
        ]


def main() -> str:
    """Return the results as Markdown."""
    rows = []
    with (
        private_server() as dsn,
        kanon_db.connect(dsn, on_warning=lambda _: None) as kanon,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        for title, asked in TABLES.items():
            columns = [*asked.quasi_identifiers, asked.sensitive]
            people = pd.read_csv(DATA / asked.file, usecols=columns)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "people.csv")
                people.to_csv(path, index=False)
                kanon.load(path, title.lower())
            kanon.register_source(
                title.lower(), quasi_identifiers=asked.quasi_identifiers, sensitive=asked.sensitive
            )
            known = [name for name in asked.quasi_identifiers if name != asked.number]
            groupings = (
                [(name,) for name in (*known, asked.sensitive)],
                [(name, asked.sensitive) for name in known],
            )
            for name, (method, given) in PUBLICATIONS.items():
                own = {"privacy": asked.privacy} if method == "publish_buckets" else {}
                publish = getattr(kanon, method)
                publish(title.lower(), "drawn", replace=True, draws=True, **given, **own)
                errors = [
                    column
                    for grouping in groupings
                    for column in _errors(connection, grouping, asked.number, title.lower())
                ]
                rows.append([title, f"{len(people):,}", name, *map(_show, errors)])
                print(rows[-1], file=sys.stderr, flush=True)
    measured = ("counts", "averages", "sums", "estimates")
    headings = [f"{what}, {of}" for of in ("one", "pairs") for what in measured]
    return (
        "`SELECT g, count(*), avg(x), sum(x) FROM … GROUP BY g`, as tools send it, of"
        " `<name>_draws` and of the source: for each column g but x, and for each pair of a"
        " quasi-identifier and the sensitive one. x is the age; groups have at least"
        f" {LEAST} people. Relative errors, the median and the 95th percentile, of groups by one"
        " column and by two; beside them, those of the counts that `kanon.estimate` gives, which"
        " knows no more.\n\n" + table(["table", "people", "publication", *headings], rows)
    )


def _show(errors: np.ndarray) -> str:
    return f"{np.median(errors):.2%}, {np.quantile(errors, 0.95):.2%}"


def _errors(
    connection: psycopg.Connection, grouping: list[tuple[str, ...]], number: str, source: str
) -> np.ndarray:
    ratios = [
        row
        for keys in grouping
        for row in Groups(connection, keys, number).drawn_and_true(f"public.{source}")
    ]
    return np.abs(np.array(ratios, dtype=float) - 1).T
