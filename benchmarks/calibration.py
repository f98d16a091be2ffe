"""Whether likely ranges and standard errors are honest, table by table.

``python -m benchmarks --write calibration`` asks all tables; ``python -m benchmarks.calibration
choose`` asks those that settings are chosen on, or ``choose adult cmc`` some of them, and prints
each. Only a release looks at the others.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import psycopg

import kanon_db
from benchmarks.calibration_tables import TABLES, SourceTable
from benchmarks.harness import REST, private_server, table
from kanon_db.algorithms.ground.arrays import FloatArray

SEED: Final = 11
OF_ANOTHER: Final = "SUM, AVG where another"
"""Sums and averages of a sensitive attribute under a condition on another one."""

ASKED: Final = {"COUNT": 40, "SUM, AVG": 30, "groups": 12, OF_ANOTHER: 30}
MOST_GROUPS: Final = 5
"""Groups of one answer that are looked at, drawn from those whose bounds differ."""

PUBLISHED: Final = {
    "buckets, random": ("buckets", "privacy => '{privacy}', assignment => 'random'"),
    "buckets, cells": ("buckets", "privacy => '{privacy}'"),
    "buckets, two sensitive": ("buckets", "privacy => '{privacy}'"),
    "generalized": ("generalized", "k => 5, method => 'mondrian', refine => false"),
    "freeform": ("freeform", "k => 5, options => '{{\"refine\": false}}'"),
    "suppressed": ("suppressed", "k => 5"),
}
FEW: Final = 10
"""Of fewer answers, no share is shown."""

HEADING: Final = [
    "table", "answers", "in the likely range", "within 1", "within 2", "within 3",
    "median error / observed", "error / the paper's", "bounds missed",
]  # fmt: skip


class Estimate(NamedTuple):
    """What was answered for one number."""

    estimate: float
    error: float
    low: float | None
    high: float | None
    likely_low: float
    likely_high: float


@dataclass(frozen=True)
class Answer:
    """A number that was asked for, and what the default and the paper's estimator said."""

    of: str  # what was added up: numbers of different columns are compared as parts of their mean
    truth: float
    default: Estimate
    by_paper: float


@dataclass(frozen=True)
class Judgement:
    """How honest the answers of one table, published in one way, are."""

    answers: int
    likely: float
    within: tuple[float, float, float]
    error_over_observed: float
    over_paper: float
    bounds_missed: int

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Judgement:
        """Judge answers; of sums, errors count as parts of the mean of their column."""
        truth = np.array([answer.truth for answer in answers])
        estimate, error, low, high, likely_low, likely_high = np.array(
            [answer.default for answer in answers], dtype=np.float64
        ).T
        lost = 1e-9 * (1 + np.abs(truth))
        off, by_paper = (
            np.abs(truth - numbers)
            for numbers in (estimate, np.array([answer.by_paper for answer in answers]))
        )
        scale = _scale([answer.of for answer in answers], truth)
        is_both = np.isfinite(by_paper)  # the paper's estimator has no answer to some
        return cls(
            len(answers),
            float(np.mean((likely_low - lost <= truth) & (truth <= likely_high + lost))),
            tuple(float(np.mean(off <= times * error + lost)) for times in (1, 2, 3)),
            float(np.median(error / scale) / max(np.median(off / scale), 1e-12)),
            float(np.sum((off / scale)[is_both]) / max(np.sum((by_paper / scale)[is_both]), 1e-12)),
            int(np.sum((truth < low - lost) | (truth > high + lost))),
        )

    def brief(self) -> str:
        """Write what counts most."""
        return f"{100 * self.likely:.0f} · {self.over_paper:.2f}" if self.answers >= FEW else ""

    def row(self) -> list[str]:
        """Write this as cells of a table."""
        return [
            f"{self.answers}", f"{self.likely:.1%}", *(f"{share:.0%}" for share in self.within),
            f"{self.error_over_observed:.1f}", f"{self.over_paper:.2f}", f"{self.bounds_missed}",
        ]  # fmt: skip


def _scale(kinds: Sequence[str], truth: FloatArray) -> FloatArray:
    names = np.array(kinds)
    scale = np.ones(truth.size)
    for name in set(kinds):
        scale[names == name] = max(float(np.abs(truth[names == name]).mean()), 1e-9)
    return scale


Judgements = dict[tuple[str, str, str], Judgement]
"""By the way of publishing, what was asked for, and the table."""


def main() -> str:
    """Return the results as Markdown."""
    judgements = judged(TABLES)
    parts, rest = [], []
    for half, title in (("choose", "Tables to choose by"), ("look once", "Other tables")):
        names = [source.name for source in TABLES if source.half == half]
        parts.append(f"**{title}**\n\n" + "\n".join(_matrix(judgements, names)))
        rest.append(f"**{title}**\n\n" + _details(judgements, names))
    missed = sum(judgement.bounds_missed for judgement in judgements.values())
    n_answers = sum(judgement.answers for judgement in judgements.values())
    return (
        f"{n_answers:,} numbers that are not exact. In each cell: the share within the likely"
        " range, in percent, and the mean error over that of the paper's estimator on the same"
        f" publication. Certain bounds missed: {missed}.\n\n"
        + "\n".join(parts) + REST + "\n".join(rest)
    )  # fmt: skip


def _matrix(judgements: Judgements, names: Sequence[str]) -> Iterator[str]:
    for asked in ASKED:
        rows = []
        for published in PUBLISHED:
            cells = [judgements.get((published, asked, name)) for name in names]
            briefs = ["" if cell is None else cell.brief() for cell in cells]
            if any(briefs):
                rows.append([published, *briefs])
        yield table([asked, *names], rows)


def _details(judgements: Judgements, names: Sequence[str]) -> str:
    rows = [
        [published, asked, name, *judgement.row()]
        for (published, asked, name), judgement in judgements.items()
        if name in names
    ]
    return table(["published as", "asked", *HEADING], rows)


def judged(tables: Sequence[SourceTable]) -> Judgements:
    """Publish each table in every way, ask, and judge what is answered."""
    judgements: Judgements = {}
    with private_server() as dsn:
        for source in tables:
            frame = source.read()
            for published, (kind, given) in PUBLISHED.items():
                asker = _Asker(dsn, source, frame, "two" in published, kind == "buckets")
                asker.publish(kind, given.format(privacy=source.privacy))
                for asked, answers in asker.ask():
                    if answers:
                        judgement = Judgement.of(answers)
                        judgements[published, asked, source.name] = judgement
                        row = [published, asked, source.name, *judgement.row()]
                        print(" | ".join(row), file=sys.stderr, flush=True)
    return judgements


class _Asker:
    """Asks questions about one publication, whose source stands beside it."""

    def __init__(
        self, dsn: str, source: SourceTable, frame: pd.DataFrame, is_joint: bool, is_buckets: bool
    ) -> None:
        self._dsn = dsn
        self._frame = frame
        self._source = f"public.{source.name}{'_two' if is_joint else ''}"
        self._sensitive = [source.sensitive, *([source.also_sensitive] if is_joint else [])]
        self._known = [name for name in source.quasi_identifiers if name not in self._sensitive]
        self._summed = [name for name in source.summed if name in (*self._known, *self._sensitive)]
        self._is_buckets = is_buckets
        self._random = np.random.default_rng(SEED)

    def publish(self, kind: str, given: str) -> None:
        """Load and register the source, unless that is done, and publish it."""
        columns = list(dict.fromkeys([*self._known, *self._sensitive]))
        with (
            psycopg.connect(self._dsn, autocommit=True) as connection,
            kanon_db.connect(self._dsn) as kanon,
        ):
            connection.execute("SET client_min_messages = error")
            exists = connection.execute("SELECT to_regclass(%s)", (self._source,)).fetchone()
            if exists == (None,):
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder, "source.csv")
                    self._frame[columns].to_csv(path, index=False)
                    kanon.load(path, self._source)
                kanon.register_source(
                    self._source,
                    quasi_identifiers=self._known,
                    sensitive=self._sensitive[0],
                    also_sensitive=self._sensitive[1:],
                )
            connection.execute(
                f"SELECT FROM kanon.publish_{kind}('{self._source}', 'asked',"
                f" replace => true, {given})"
            )

    def ask(self) -> Iterator[tuple[str, list[Answer]]]:
        """Ask for counts, for sums and averages, and for groups."""
        with (
            psycopg.connect(self._dsn, autocommit=True) as default,
            psycopg.connect(self._dsn, autocommit=True) as paper,
        ):
            for connection in (default, paper):
                connection.execute("SET client_min_messages = error")
            paper.execute("SET kanon.estimator = 'paper'")
            for asked, times in ASKED.items():
                answers = []
                for _ in range(times if self._can_ask(asked) else 0):
                    of, select, where, group = self._question(asked)
                    answers += self._answers(default, paper, of, (select, where, group))
                yield asked, answers

    def _can_ask(self, asked: str) -> bool:
        if asked == OF_ANOTHER:
            return len(self._sensitive) > 1 and bool(self._sensitive_numbers)
        return bool(self._summed) or asked != "SUM, AVG"

    @property
    def _sensitive_numbers(self) -> list[str]:
        return [
            name for name in self._sensitive if pd.api.types.is_numeric_dtype(self._frame[name])
        ]

    def _question(self, asked: str) -> tuple[str, str, str, str]:
        if asked == "SUM, AVG":
            column = str(self._random.choice(self._summed))
            function = "SUM" if self._random.random() < 0.5 else "AVG"
            condition = self._condition(column in self._sensitive)
            return f"{function} {column}", f'{function}("{column}")', condition, ""
        if asked == OF_ANOTHER:
            column = str(self._random.choice(self._sensitive_numbers))
            function = "SUM" if self._random.random() < 0.5 else "AVG"
            other = next(name for name in self._sensitive if name != column)
            condition = f"{self._condition(True)} AND {self._part(other)}"
            return f"{function} {column}", f'{function}("{column}")', condition, ""
        if asked == "groups":
            numbers = self._frame[self._known].nunique()
            few = [name for name in self._known if numbers[name] <= max(20, numbers.min())]
            key = str(self._random.choice(few))
            return "COUNT", "COUNT(*)", self._condition(False), key
        return "COUNT", "COUNT(*)", self._condition(False), ""

    def _condition(self, is_sensitive_summed: bool) -> str:
        """Draw a conjunction; on buckets, one that combines both sides."""
        size = min(self._random.integers(1, 4), len(self._known))
        columns = [str(name) for name in self._random.choice(self._known, size, replace=False)]
        if not is_sensitive_summed and (self._is_buckets or self._random.random() < 0.3):
            columns += [str(self._random.choice(self._sensitive))]
        return " AND ".join(self._part(column) for column in columns)

    def _part(self, column: str) -> str:
        values = self._frame[column].dropna()
        number = values.nunique()
        if number > 8 and pd.api.types.is_numeric_dtype(values):
            low, high = np.sort(self._random.choice(values.to_numpy(), 2))
            return f'"{column}" BETWEEN {low} AND {high}'
        size = self._random.integers(1, max(2, number // 2 + 1))
        taken = self._random.choice(values.to_numpy(), size)
        listed = ", ".join(sorted({_constant(value) for value in taken}))
        return f'"{column}" IN ({listed})'

    def _answers(
        self,
        default: psycopg.Connection,
        paper: psycopg.Connection,
        of: str,
        question: tuple[str, str, str],
    ) -> Iterator[Answer]:
        select, where, key = question
        columns, group = (f'"{key}", ', " GROUP BY 1") if key else ("", "")
        text = f"SELECT {columns}{select} FROM {{}} WHERE {where}{group}"
        # Keys are written as those of answers are.
        actually = f"to_jsonb(\"{key}\") #>> '{{}}'" if key else "''"
        truth = {
            str(name): number
            for name, number in default.execute(
                f"SELECT {actually}, {select} FROM {self._source} WHERE {where}{group}"
            ).fetchall()
        }
        open_ones, by_paper = (
            _estimates(connection, text.format("asked"), key) for connection in (default, paper)
        )
        names = sorted(name for name, answer in open_ones.items() if answer.low != answer.high)
        for name in self._random.permutation(names)[:MOST_GROUPS]:
            actual = truth.get(name, None if select != "COUNT(*)" else 0)
            if actual is not None:
                other = by_paper.get(name)
                yield Answer(
                    of, float(actual), open_ones[name], np.nan if other is None else other.estimate
                )


def _estimates(connection: psycopg.Connection, text: str, key: str) -> dict[str, Estimate]:
    """Ask; what is refused, or has no error, is left out."""
    try:
        rows: list[Any] = connection.execute(
            "SELECT group_key ->> %s, estimate, std_error, lower_bound, upper_bound, likely_low,"
            " likely_high FROM kanon.estimate(%s)",
            (key, text),
        ).fetchall()
    except psycopg.Error as error:
        print(f"{text}: {error.diag.message_primary}", file=sys.stderr)
        return {}
    return {
        str(name) if key else "": Estimate(*(None if x is None else float(x) for x in numbers))
        for name, *numbers in rows
        if numbers[0] is not None and numbers[1] is not None
    }


def _constant(value: object) -> str:
    return str(value) if isinstance(value, int | float | np.number) else f"'{value}'"


if __name__ == "__main__":
    half, *wanted = sys.argv[1:]
    asked_tables = [
        source
        for source in TABLES
        if source.half == half.replace("-", " ") and (not wanted or source.name in wanted)
    ]
    print(_details(judged(asked_tables), [source.name for source in asked_tables]))
