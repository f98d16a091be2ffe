"""Forty questions of analysts to publications of Adult, with the truth beside each answer.

Each is asked with psql, through the SQL functions, and with Python, through `kanon_db.connect`.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any, Final

import psycopg

import kanon_db
from benchmarks.analysts_questions import QUESTIONS, Question
from benchmarks.harness import REST, private_server, table
from kanon_db.cluster import _host
from kanon_db.errors import KanonError
from kanon_db.interfaces.python import Kanon

DATA: Final = Path(os.environ.get("KANON_SHARED", "../shared")) / "data" / "adult_30162.csv.gz"
SOURCE: Final = "public.adult"
COLUMNS: Final = {
    "age": "age", "education-num": "education", "marital-status": "marital", "race": "race",
    "sex": "sex", "hours-per-week": "hours", "salary-class": "salary", "occupation": "occupation",
}  # fmt: skip
"""The columns of Adult, with shorter names."""

SENSITIVE: Final = "occupation"
PRIVACY: Final = '{"theta": 8, "base": 0.02, "cap": 0.5}'
PUBLISHED: Final = {
    "adult_b": (
        "buckets",
        f"kanon.publish_buckets('public.adult', 'adult_b', privacy => '{PRIVACY}')",
    ),
    "adult_l": (
        "stricter buckets, which leave one cell",
        """kanon.publish_buckets('public.adult', 'adult_l', privacy => '{"l": 4}')""",
    ),
    "adult_k": (
        "generalized rows",
        "kanon.publish_generalized('public.adult', 'adult_k', k => 5, method => 'mondrian')",
    ),
    "adult_p": ("suppressed rows", "kanon.publish_suppressed('public.adult', 'adult_p', k => 5)"),
}
SHOWN: Final = "adult_b"
"""The publication whose answer to each question the page shows."""
LIKE_OTHERS: Final = frozenset({3, 7, 8, 10, 13, 15, 16, 19, 22, 23, 25, 28, 30, 32, 34, 35, 38})
"""Questions that are much like others, which the page leaves out."""
"""What is asked, by its name: what it is, and how it was published."""


@dataclass(frozen=True)
class Number:
    """One number of an answer.

    Attributes
    ----------
    label : str
        Its group, and which of several aggregates it is.
    truth : float or None
        None if the source has no such group, or the number is NULL.
    estimate, error, lower, upper : float or None
    """

    label: str
    truth: float | None
    estimate: float | None
    error: float | None
    lower: float | None
    upper: float | None

    @property
    def is_inside(self) -> bool:
        """Whether the truth lies within the bounds; a bound that is missing promises nothing."""
        truth = self.truth
        if truth is None:
            return True
        slack = 1e-9 * max(1.0, abs(truth))
        return (self.lower is None or self.lower - slack <= truth) and (
            self.upper is None or truth <= self.upper + slack
        )

    @property
    def off_by(self) -> float | None:
        """The error of the estimate, as a share of the truth."""
        if not self.truth or self.estimate is None:
            return None
        return abs(self.estimate - self.truth) / abs(self.truth)


@dataclass(frozen=True)
class Answer:
    """The answer of one publication to one question.

    Attributes
    ----------
    publication : str
    numbers : list of Number
        None at all if the question was refused.
    missing : int
        How many groups of the source have no answer.
    psql_ms, python_ms : float
    refusal : str
    """

    publication: str
    numbers: list[Number]
    missing: int = 0
    psql_ms: float = 0.0
    python_ms: float = 0.0
    refusal: str = ""


def main() -> str:
    """Return the results as Markdown."""
    with (
        private_server() as dsn,
        psycopg.connect(dsn, autocommit=True) as source,
        kanon_db.connect(dsn) as kanon,
    ):
        _publish(source, kanon)
        answered = [
            (question, [_answer(dsn, source, kanon, question, name) for name in PUBLISHED])
            for question in QUESTIONS
        ]
    parts = [_introduction(source_rows=_n_records()), _summary(answered)]
    parts.append(_questions(answered))
    return "\n".join(parts)


def _n_records() -> int:
    with gzip.open(DATA, "rt") as lines:
        return sum(1 for _ in lines) - 1


def _publish(source: psycopg.Connection, kanon: Kanon) -> None:
    kanon.load(DATA, "loaded")
    named = ", ".join(f'"{old}" AS {new}' for old, new in COLUMNS.items())
    quasi_identifiers = ",".join(name for name in COLUMNS.values() if name != SENSITIVE)
    source.execute(f"CREATE TABLE {SOURCE} AS SELECT {named} FROM loaded".encode())
    source.execute("ANALYZE public.adult")
    source.execute(
        "SELECT kanon.register_source('public.adult', quasi_identifiers =>"
        f" '{{{quasi_identifiers}}}', sensitive => '{SENSITIVE}')".encode()
    )
    for _, call in PUBLISHED.values():
        source.execute(f"SELECT * FROM {call}".encode())


def _answer(
    dsn: str, source: psycopg.Connection, kanon: Kanon, question: Question, name: str
) -> Answer:
    query = question.query.format(t=name)
    try:
        kanon.estimate(query)
    except KanonError as error:
        return Answer(name, [], refusal=str(error))
    started = time.perf_counter()
    in_python = kanon.estimate(query)
    python_ms = 1000 * (time.perf_counter() - started)
    in_psql, psql_ms = _ask_psql(dsn, query)
    _require_same(in_psql, in_python.to_dict("records"))
    truths = _truths(source, question.query.format(t=SOURCE), in_psql)
    numbers = [
        Number(
            _label(line, several=len({line["aggregate"] for line in in_psql}) > 1),
            truths.pop((_key(line["group_key"]), line["aggregate"]), None),
            line["estimate"],
            line["std_error"],
            line["lower_bound"],
            line["upper_bound"],
        )
        for line in in_psql
    ]
    # HAVING and LIMIT choose by the estimates: others may be among the truth's.
    is_chosen = re.search("HAVING|LIMIT", question.query) is not None
    return Answer(name, numbers, 0 if is_chosen else len(truths), psql_ms, python_ms)


def _ask_psql(dsn: str, query: str) -> tuple[list[dict[str, Any]], float]:
    """Ask twice in one session, and return the second answer with its time in milliseconds.

    The first call in a session imports what the functions need.
    """
    call = f"SELECT json_agg(e) FROM kanon.estimate($kanon${query}$kanon$) AS e;\n"
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(f"\\o /dev/null\n{call}\\o\n\\timing on\n{call}")
        script.flush()
        printed = subprocess.run(
            [_host.find_programs(None).path("psql"), "-XqAt", "-v", "ON_ERROR_STOP=1",
             "-f", script.name, dsn],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    answer, _, timing = printed.strip().rpartition("Time: ")
    return json.loads(answer.strip() or "[]"), float(timing.split()[0])


def _require_same(one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]]) -> None:
    """Fail if SQL and Python do not answer alike."""
    numbers = (
        "estimate", "std_error", "lower_bound", "upper_bound", "likely_low", "likely_high",
    )  # fmt: skip
    for line, its_like in zip(one, other, strict=True):
        for column in numbers:
            here, there = line[column], its_like[column]
            if (here is None) != (there is None or there != there):
                raise RuntimeError(f"psql and Python differ: {here}, {there}")
            if here is not None and not isclose(here, there, rel_tol=1e-9, abs_tol=1e-9):
                raise RuntimeError(f"psql and Python differ: {here}, {there}")


def _key(group: dict[str, Any] | None) -> str:
    return json.dumps(group or {}, sort_keys=True)


def _truths(
    source: psycopg.Connection, query: str, answer: Sequence[dict[str, Any]]
) -> dict[tuple[str, str], float | None]:
    """Ask the source; its columns that are no keys are the aggregates, in the same order."""
    keys = list(answer[0]["group_key"] or {}) if answer else []
    aggregates = list(dict.fromkeys(line["aggregate"] for line in answer))
    cursor = source.execute(query.encode())
    names = [column.name for column in cursor.description or ()]
    found: dict[tuple[str, str], float | None] = {}
    for row in cursor.fetchall():
        cells = list(zip(names, row, strict=True))
        key = _key({name: value for name, value in cells if name in keys})
        values = [value for name, value in cells if name not in keys]
        for aggregate, value in zip(aggregates, values, strict=True):
            found[key, aggregate] = None if value is None else float(value)
    return found


def _label(line: dict[str, Any], *, several: bool) -> str:
    group = ", ".join(str(value) for value in (line["group_key"] or {}).values())
    return ", ".join(filter(None, [group, line["aggregate"] if several else ""]))


def _introduction(*, source_rows: int) -> str:
    published = "\n".join(
        f"* `{name}`, {what}: `SELECT * FROM {call};`" for name, (what, call) in PUBLISHED.items()
    )
    return (
        f"Adult (UCI, {source_rows:,} people) has the columns"
        f" {', '.join(COLUMNS.values())}; `{SENSITIVE}` is sensitive, and all others are"
        f" quasi-identifiers. It is published four times:\n\n{published}\n\n"
        "Each question is asked with psql (`SELECT * FROM kanon.estimate($$…$$)`) and with Python"
        " (`kanon_db.connect(dsn).estimate(…)`), which must answer alike. The times are those of"
        " one question in a session that has asked before. *Off by* is the error of the answer;"
        " ± is the standard error that kanon_db expected. The answers of `adult_b` to"
        " questions that are not much like others are shown, with their largest group; all are"
        f" judged. {os.cpu_count()} cores, shared with others.\n"
    )


def _summary(answered: Sequence[tuple[Question, Sequence[Answer]]]) -> str:
    rows = []
    for place, (name, (what, _)) in enumerate(PUBLISHED.items()):
        answers = [found[place] for _, found in answered]
        given = [answer for answer in answers if not answer.refusal]
        numbers = [number for answer in given for number in answer.numbers]
        off = [number.off_by for number in numbers if number.off_by is not None]
        rows.append(
            [f"`{name}` ({what})", f"{len(given)} of {len(answers)}", len(numbers),
             f"{sum(number.is_inside for number in numbers)} of {len(numbers)}",
             sum(answer.missing for answer in given),
             f"{statistics.median(off):.1%}" if off else "",
             f"{statistics.median(a.psql_ms for a in given):.0f} ms",
             f"{max(a.psql_ms for a in given):.0f} ms",
             f"{statistics.median(a.python_ms for a in given):.0f} ms"]
        )  # fmt: skip
    heading = ["publication", "questions answered", "numbers", "truth within the bounds",
               "groups missing", "median off by", "psql, median", "psql, slowest",
               "Python, median"]  # fmt: skip
    return table(heading, rows)


def _questions(answered: Sequence[tuple[Question, Sequence[Answer]]]) -> str:
    heading = ["", "question", "query", "group", "truth", SHOWN, "bounds"]
    rows = []
    for number, (question, answers) in enumerate(answered, start=1):
        first = _largest(answers[0])
        cells = [_cell(answer, first) for answer in answers if answer.publication == SHOWN]
        query = f"`{question.query.format(t='adult')}`"
        shown = ["-"] * 3
        if first is not None:
            bounds = f"{_written(first.lower)} … {_written(first.upper)}"
            shown = [first.label, _written(first.truth), bounds]
        rows.append([number, question.words, query, *shown[:2], *cells, shown[2]])
    return (
        table(heading, [row for row in rows if row[0] not in LIKE_OTHERS])
        + REST
        + table(heading, rows)
    )


def _largest(answer: Answer) -> Number | None:
    return max(answer.numbers, key=lambda n: abs(n.truth or 0), default=None)


def _cell(answer: Answer, first: Number | None) -> str:
    """Write an answer, with its group where that is another one than the first publication's."""
    number = _largest(answer)
    if number is None:
        return f"refused: {answer.refusal}" if answer.refusal else "-"
    written = f"{_written(number.estimate)} ± {_written(number.error)}"
    is_same = first is not None and number.label == first.label
    return written if is_same else f"{written} ({number.label})"


def _written(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
