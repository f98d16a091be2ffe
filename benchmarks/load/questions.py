"""What analysts ask, what the true answer is, and which answers are right."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Rows = Sequence[Sequence[Any]]

DIRECT = "the published relations"
"""What is asked by a SELECT of the relations, and by none of our functions."""

_TOLERANCE = 1e-6
"""Of sums of weights and of averages, which are floating point numbers."""


@dataclass(frozen=True)
class Question:
    """A statement, and which answers of it are right.

    Attributes
    ----------
    publication : str
        Whose release the answer is about.
    asks : str
        What is asked: a function, or a relation.
    truth : str
        The same question to a source, for the true answer.
    fits : callable
        Whether an answer is right where this is the true answer.
    tells_sides_apart : bool
        Whether the right answer must differ between the two sources.
    """

    publication: str
    asks: str
    text: str
    truth: str
    fits: Callable[[Rows, Rows], bool]
    tells_sides_apart: bool = True


def _exactly(answer: Rows, truth: Rows) -> bool:
    """Tell whether estimate and bounds are the true number, without an error."""
    ((n,),) = truth
    return [tuple(row[:4]) for row in answer] == [(n, 0, n, n)]


def _within(answer: Rows, truth: Rows) -> bool:
    """Tell whether the bounds contain the truth, and the estimate is between them."""
    ((n,),) = truth
    ((estimate, _, lower, upper, *_),) = answer
    return bool(lower <= n <= upper and lower <= estimate <= upper)


def _groups_exactly(answer: Rows, truth: Rows) -> bool:
    """Tell whether each group is exact, and there is no other."""
    found = {next(iter(key.values())): row[:4] for key, *row in answer}
    return found == {key: [n, 0, n, n] for key, n in truth}


def _groups_within(answer: Rows, truth: Rows) -> bool:
    """Tell whether no group is missing, and the bounds of each contain the truth."""
    true = dict(map(tuple, truth))
    found = {next(iter(key.values())): row for key, *row in answer}
    return true.keys() <= found.keys() and all(
        lower <= true.get(key, 0) <= upper for key, (_, _, lower, upper, *_) in found.items()
    )


def _aggregates(answer: Rows, truth: Rows) -> bool:
    """Tell whether each aggregate of a query is exact."""
    (numbers,) = truth
    estimates = [row[2] for row in answer]
    return len(estimates) == len(numbers) and all(map(_close, estimates, numbers))


def _aggregates_within(answer: Rows, truth: Rows) -> bool:
    """Tell whether the bounds of each aggregate contain the truth."""
    (numbers,) = truth
    return len(answer) == len(numbers) and all(
        row[4] is not None and row[4] <= number <= row[5] * (1 + _TOLERANCE)
        for row, number in zip(answer, numbers, strict=True)
    )


def _same(answer: Rows, truth: Rows) -> bool:
    """Tell whether all numbers are the same, up to rounding."""
    return len(answer) == len(truth) and all(
        len(row) == len(true) and all(map(_close, row, true))
        for row, true in zip(answer, truth, strict=True)
    )


def _close(one: Any, other: Any) -> bool:
    return one is not None and math.isclose(float(one), float(other), rel_tol=_TOLERANCE)


def _all_hold(answer: Rows, _: Rows) -> bool:
    """Tell whether there are checks, and all of them hold."""
    return bool(answer) and all(row[-1] for row in answer)


def _count(name: str, where: str, fits: Callable[[Rows, Rows], bool]) -> Question:
    return _query(name, "estimate_count", f"SELECT COUNT(*) FROM {{source}} WHERE {where}", fits)


def _query(name: str, function: str, query: str, fits: Callable[[Rows, Rows], bool]) -> Question:
    asked = f"SELECT * FROM kanon.{function}($${query.format(source=name)}$$)"
    return Question(name, function, asked, query, fits)


def _direct(name: str, statement: str, truth: str) -> Question:
    return Question(name, DIRECT, statement, truth, _same)


def _verify(name: str) -> Question:
    asked = f"SELECT * FROM kanon.verify('{name}')"
    return Question(name, "verify", asked, "SELECT 1", _all_hold, tells_sides_apart=False)


def _listed(name: str) -> Question:
    asked = f"SELECT rows FROM kanon.publications WHERE name = '{name}'"
    return Question(name, "kanon.publications", asked, "SELECT count(*) FROM {source}", _same)


QUESTIONS: tuple[Question, ...] = (
    # Buckets. On one side of the query only: exact.
    _count("load_b", "true", _exactly),
    _count("load_b", "age < 30", _exactly),
    _count("load_b", "age BETWEEN 20 AND 40 AND sex = 1", _exactly),
    _count("load_b", "sick = 3", _exactly),
    _count("load_b", "sick IN (1, 2) OR sick > 8", _exactly),
    # On both sides: between bounds.
    _count("load_b", "age < 30 AND sick = 3", _within),
    _count("load_b", "age > 40 OR sick > 8", _within),
    _query(
        "load_b",
        "estimate_counts",
        "SELECT sex, COUNT(*) FROM {source} GROUP BY sex",
        _groups_exactly,
    ),
    _query(
        "load_b",
        "estimate_counts",
        "SELECT zip, COUNT(*) FROM {source} WHERE sick < 6 GROUP BY zip",
        _groups_within,
    ),
    _query(
        "load_b",
        "estimate",
        "SELECT COUNT(*), SUM(age), AVG(age) FROM {source} WHERE sex = 1",
        _aggregates,
    ),
    _query(
        "load_b", "estimate", "SELECT SUM(age) FROM {source} WHERE sick = 3", _aggregates_within
    ),
    _direct("load_b", "SELECT sum(weight) FROM published.load_b", "SELECT count(*) FROM {source}"),
    _direct(
        "load_b",
        "SELECT sum(weight) FROM published.load_b WHERE sick = 4",
        "SELECT count(*) FROM {source} WHERE sick = 4",
    ),
    _direct(
        "load_b",
        "SELECT sum(count) FROM published.load_b_sat JOIN"
        " (SELECT bucket_id FROM published.load_b_qit GROUP BY 1) AS q USING (bucket_id)",
        "SELECT count(*) FROM {source}",
    ),
    _listed("load_b"),
    _verify("load_b"),
    # Rows: the sensitive attribute is published as it is.
    _count("load_g", "true", _exactly),
    _count("load_g", "sick = 3", _exactly),
    _count("load_g", "age < 30", _within),
    _query(
        "load_g",
        "estimate_counts",
        "SELECT sick, COUNT(*) FROM {source} GROUP BY sick",
        _groups_exactly,
    ),
    _query(
        "load_g", "estimate", "SELECT SUM(age), AVG(age) FROM {source} WHERE sick = 2",
        _aggregates_within,
    ),
    _direct("load_g", "SELECT count(*) FROM published.load_g", "SELECT count(*) FROM {source}"),
    _direct(
        "load_g",
        "SELECT count(*) FROM published.load_g WHERE sick = 4",
        "SELECT count(*) FROM {source} WHERE sick = 4",
    ),
    _listed("load_g"),
    _verify("load_g"),
)  # fmt: skip
