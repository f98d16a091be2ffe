"""Whether likely ranges and standard errors are honest, table by table.

Each table is published several times in each way, by keys of its own, and asked other questions
each time: answers of one publication are off together, and so are the groups of one answer.

``python -m benchmarks --write calibration`` asks all tables; ``python -m benchmarks.calibration
choose`` asks those that settings are chosen on, or ``choose adult cmc`` some of them, and prints
each. Only a release looks at the others.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
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

ASKED: Final = {"COUNT": 40, "SUM, AVG": 30, "groups": 20, OF_ANOTHER: 30}
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
TIMES: Final = 4
"""How often each table is published in each way."""

FEW: Final = 20
"""Of fewer answers, no share is shown."""

AIM, LEAST, MOST_OF_PAPER = 0.95, 0.93, 1.02
"""The share of the answers that should lie in the likely range, and the least that may in any cell;
the error over that of the paper's estimator that none should exceed."""

BEYOND_CHANCE: Final = 2.0
"""Standard errors."""

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
    """How honest the answers of one table, published several times in one way, are."""

    answers: tuple[int, ...]  # Of each publication
    likely: tuple[int, ...]  # Those in the likely range
    within: tuple[float, float, float]
    error_over_observed: float
    over_paper: float
    over_paper_error: float
    bounds_missed: int

    @classmethod
    def of(cls, publications: Sequence[Sequence[Answer]]) -> Judgement:
        """Judge answers; of sums, errors count as parts of the mean of their column."""
        answers = [answer for publication in publications for answer in publication]
        number = np.repeat(np.arange(len(publications)), [len(own) for own in publications])
        truth = np.array([answer.truth for answer in answers])
        estimate, error, low, high, likely_low, likely_high = np.array(
            [answer.default for answer in answers], dtype=np.float64
        ).T
        lost = 1e-9 * (1 + np.abs(truth))
        scale = _scale([answer.of for answer in answers], truth)
        off = np.abs(truth - estimate)
        by_paper = np.array([answer.by_paper for answer in answers])
        is_both = np.isfinite(by_paper)  # the paper's estimator has no answer to some
        ours, papers = (
            np.bincount(number[is_both], (of / scale)[is_both], len(publications))
            for of in (off, np.abs(truth - by_paper))
        )
        ratio = float(ours.sum() / max(papers.sum(), 1e-12))
        is_likely = (likely_low - lost <= truth) & (truth <= likely_high + lost)
        return cls(
            tuple(map(len, publications)),
            tuple(np.bincount(number, is_likely, len(publications)).astype(int).tolist()),
            tuple(float(np.mean(off <= times * error + lost)) for times in (1, 2, 3)),
            float(np.median(error / scale) / max(np.median(off / scale), 1e-12)),
            ratio,
            math.sqrt(_apart(ours - ratio * papers)) / max(float(papers.sum()), 1e-12),
            int(np.sum((truth < low - lost) | (truth > high + lost))),
        )

    @property
    def n(self) -> int:
        """How many numbers there are."""
        return sum(self.answers)

    @property
    def share(self) -> float:
        """The part of them that lies in the likely range."""
        return sum(self.likely) / self.n

    @property
    def apart(self) -> float:
        """The variance of how many lie there, by how far publications are from each other."""
        return _apart(np.array(self.likely) - np.array(self.answers) * self.share)

    def row(self) -> list[str]:
        """Write this as cells of a table."""
        return [
            f"{self.n}", f"{self.share:.1%} ± {math.sqrt(self.apart) / self.n:.1%}",
            *(f"{share:.0%}" for share in self.within), f"{self.error_over_observed:.1f}",
            f"{self.over_paper:.2f} ± {self.over_paper_error:.2f}", f"{self.bounds_missed}",
        ]  # fmt: skip


def _apart(differences: FloatArray) -> float:
    """Return the variance of a sum over publications, of differences from what is expected."""
    n = differences.size
    return float((differences**2).sum()) * n / (n - 1) if n > 1 else 0.0


@dataclass(frozen=True)
class Chance:
    """What chance does to shares of answers in the likely range.

    `together`: how many times as much shares vary as those of answers that know nothing of each
    other would.
    """

    together: float

    @classmethod
    def of(cls, judgements: Iterable[Judgement]) -> Chance:
        """Find how far publications of one table differ, beside answers that were independent."""
        several = [judgement for judgement in judgements if len(judgement.answers) > 1]
        alone = sum(own.n * own.share * (1 - own.share) for own in several)
        return cls(max(sum(own.apart for own in several) / alone, 1.0) if alone else 1.0)

    def error(self, n: int) -> float:
        """Return the standard error of the share of n answers, of which as many as aimed at are."""
        return math.sqrt(self.together * AIM * (1 - AIM) / n)

    def is_low(self, judgement: Judgement) -> bool:
        """Whether a share is below the least by more than chance explains."""
        most = AIM - BEYOND_CHANCE * self.error(judgement.n)
        return judgement.share < min(LEAST, most)

    def n_below(self, judgements: Iterable[Judgement]) -> float:
        """Return how many shares would be below the least if all were what is aimed at."""
        normal = NormalDist()
        return sum(normal.cdf((LEAST - AIM) / self.error(own.n)) for own in judgements)

    def brief(self, judgement: Judgement) -> str:
        """Write what counts most; in bold letters, a share that is low."""
        share = f"{100 * judgement.share:.0f}"
        share = f"**{share}**" if self.is_low(judgement) else share
        return f"{share} · {judgement.over_paper:.2f}" if judgement.n >= FEW else ""


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
    shown = [judgement for judgement in judgements.values() if judgement.n >= FEW]
    chance = Chance.of(shown)
    parts, rest = [], []
    for half, title in (("choose", "Tables to choose by"), ("look once", "Other tables")):
        names = [source.name for source in TABLES if source.half == half]
        parts.append(f"**{title}**\n\n" + "\n".join(_matrix(judgements, names, chance)))
        rest.append(f"**{title}**\n\n" + _details(judgements, names))
    return "\n\n".join([_summary(shown, chance), *parts]) + REST + "\n".join(rest)


def _summary(shown: Sequence[Judgement], chance: Chance) -> str:
    sizes = sorted(judgement.n for judgement in shown)
    n_below = sum(judgement.share < LEAST for judgement in shown)
    worse = [judgement for judgement in shown if judgement.over_paper > MOST_OF_PAPER]
    n_surely_worse = sum(
        own.over_paper - BEYOND_CHANCE * own.over_paper_error > MOST_OF_PAPER for own in worse
    )
    return (
        f"{sum(sizes):,} numbers that are not exact, of {TIMES} publications of each table in each"
        " way. In each cell: the share within the likely range, in percent, and the mean error over"
        " that of the paper's estimator on the same publications. A cell has"
        f" {sizes[0]} to {sizes[-1]} numbers, {statistics.median(sizes):.0f} in the middle. Certain"
        f" bounds missed: {sum(judgement.bounds_missed for judgement in shown)}.\n\n"
        "Numbers of one publication are off together, so that these shares vary"
        f" {math.sqrt(chance.together):.1f} times as much as those of numbers that know nothing of"
        f" each other. If the range held {AIM:.0%} of the numbers everywhere, chance alone would"
        f" take {chance.n_below(shown):.0f} of the {len(shown)} cells below {LEAST:.0%}."
        f" {n_below} are below; {sum(map(chance.is_low, shown))} of them, in bold, are more than"
        f" {BEYOND_CHANCE:g} standard errors below {AIM:.0%}. Of the ratios, {len(worse)} are above"
        f" {MOST_OF_PAPER}, {n_surely_worse} of them by more than {BEYOND_CHANCE:g} standard errors"
        " over publications."
    )


def _matrix(judgements: Judgements, names: Sequence[str], chance: Chance) -> Iterator[str]:
    for asked in ASKED:
        rows = []
        for published in PUBLISHED:
            cells = [judgements.get((published, asked, name)) for name in names]
            briefs = ["" if cell is None else chance.brief(cell) for cell in cells]
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
    """Publish each table in every way, several times, ask, and judge what is answered."""
    judgements: Judgements = {}
    with private_server() as dsn, _sessions(dsn) as sessions:
        for source in tables:
            frame = source.read()
            for published, (kind, given) in PUBLISHED.items():
                asker = _Asker(sessions, source, frame, "two" in published, kind == "buckets")
                asker.load(dsn)
                answers = []
                for number in range(TIMES):
                    asker.publish(kind, given.format(privacy=source.privacy), number)
                    answers.append(dict(asker.ask()))
                for asked in ASKED:
                    of_each = [own[asked] for own in answers]
                    if any(of_each):
                        judgement = Judgement.of(of_each)
                        judgements[published, asked, source.name] = judgement
                        row = [published, asked, source.name, *judgement.row()]
                        print(" | ".join(row), file=sys.stderr, flush=True)
    return judgements


class _Sessions(NamedTuple):
    """Who publishes and asks by the default, and who asks by the paper's estimator."""

    default: psycopg.Connection
    paper: psycopg.Connection


@contextmanager
def _sessions(dsn: str) -> Iterator[_Sessions]:
    with (
        psycopg.connect(dsn, autocommit=True) as default,
        psycopg.connect(dsn, autocommit=True) as paper,
    ):
        for connection in (default, paper):
            connection.execute("SET client_min_messages = error")
        paper.execute("SET kanon.estimator = 'paper'")
        yield _Sessions(default, paper)


class _Asker:
    """Asks questions about publications of one table, whose source stands beside them."""

    def __init__(
        self,
        sessions: _Sessions,
        source: SourceTable,
        frame: pd.DataFrame,
        is_joint: bool,
        is_buckets: bool,
    ) -> None:
        self._sessions = sessions
        self._frame = frame
        self._source = f"public.{source.name}{'_two' if is_joint else ''}"
        self._sensitive = [source.sensitive, *([source.also_sensitive] if is_joint else [])]
        self._known = [name for name in source.quasi_identifiers if name not in self._sensitive]
        self._summed = [name for name in source.summed if name in (*self._known, *self._sensitive)]
        self._is_buckets = is_buckets
        self._random = np.random.default_rng(SEED)

    def load(self, dsn: str) -> None:
        """Load and register the source, unless that is done."""
        columns = list(dict.fromkeys([*self._known, *self._sensitive]))
        exists = self._sessions.default.execute("SELECT to_regclass(%s)", (self._source,))
        if exists.fetchone() != (None,):
            return
        with tempfile.TemporaryDirectory() as folder, kanon_db.connect(dsn) as kanon:
            path = Path(folder, "source.csv")
            self._frame[columns].to_csv(path, index=False)
            kanon.load(path, self._source)
            kanon.register_source(
                self._source,
                quasi_identifiers=self._known,
                sensitive=self._sensitive[0],
                also_sensitive=self._sensitive[1:],
            )

    def publish(self, kind: str, given: str, number: int) -> None:
        """Publish the source, and draw what is asked; both are others for each number."""
        default = self._sessions.default
        # The same records are drawn in the same way again, unless the server has another key.
        key = f"{self._source} {number}"
        default.execute("UPDATE kanon.draw_key SET key = sha256(convert_to(%s, 'UTF8'))", (key,))
        default.execute(
            f"SELECT FROM kanon.publish_{kind}('{self._source}', 'asked', replace => true, {given})"
        )
        self._random = np.random.default_rng(SEED + number)

    def ask(self) -> Iterator[tuple[str, list[Answer]]]:
        """Ask for counts, for sums and averages, and for groups."""
        for asked, times in ASKED.items():
            answers: list[Answer] = []
            for _ in range(times if self._can_ask(asked) else 0):
                of, *question = self._question(asked)
                answers += self._answers(of, *question)
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

    def _answers(self, of: str, select: str, where: str, key: str) -> Iterator[Answer]:
        default = self._sessions.default
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
            _estimates(connection, text.format("asked"), key) for connection in self._sessions
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
