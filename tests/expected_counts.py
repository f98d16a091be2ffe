"""The answer to a count query from each bucket's numbers, as docs/understand/estimation.md defines
it, and the weights of sensitive values, as readers find them in a publication's tables.

Written from the definitions, bucket by bucket; shares no code with the package.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from tests.integration.parties import Connection, fetch, quoted

UNTOLD = 0.2
"""The standard deviation of correlations with halves, where a publication does not say it."""


def of_buckets(
    buckets: Iterable[tuple[int, int, int]],
    by_weights: float | None = None,
    *,
    strength: float = UNTOLD,
    are_drawn_from_all: bool = False,
    is_paper: bool = False,
) -> tuple[float, float, int, int]:
    """Answer from the size, matching records and matching values of *every* bucket.

    Parameters
    ----------
    buckets : iterable of tuple
    by_weights : float, optional
        The sum of the weights, where there are any.
    strength : float
        The standard deviation of correlations with halves: see :func:`strength_of`.
    are_drawn_from_all : bool
        Whether buckets show a correlation of their own between them: see :func:`are_drawn`.
    is_paper : bool
        Whether the paper's estimator is asked for.
    """
    size, q, s = np.array(list(buckets), dtype=float).T
    lower, upper = int(np.maximum(0, q + s - size).sum()), int(np.minimum(q, s).sum())
    paper = float((q * s / size).sum())
    matching = float((q * (s / size) * (1 - s / size) * (size - q) / np.maximum(size - 1, 1)).sum())
    half_width = (upper - lower) / 2
    learned = 0.0 if by_weights is None else by_weights - paper
    inside = float((q * (size - q) / size).sum())
    strength *= math.sqrt(4 * inside / max(size.sum() - size.size, 1))
    miss = matching + (strength * _reach(size, q, s)) ** 2
    if are_drawn_from_all:
        heard, shown = _between(size, q, s, strength)
        miss = matching + (strength * _reach(size, q, s)) ** 2 * max(1 - heard, 0.3)
        miss += (heard * (shown - learned)) ** 2
    if is_paper:
        miss += learned**2
    estimate = paper if is_paper else paper + learned
    return min(max(estimate, lower), upper), min(math.sqrt(miss), half_width), lower, upper


def strength_of(strengths: Mapping[str, float], asked: str) -> float:
    """Return the root mean square of those of the quasi-identifiers that a question names."""
    if not strengths:
        return UNTOLD
    named = [own for name, own in strengths.items() if re.search(rf"\b{re.escape(name)}\b", asked)]
    return math.sqrt(sum(own * own for own in named) / max(len(named), 1))


def are_drawn(layout: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    """Whether buckets were drawn from all records, those of each value at random."""
    return (
        layout["assignment"] == "random"
        and "also_sensitive" not in layout
        and parameters.get("assignment") != "m_invariant"
        and parameters.get("batches", 1) == 1
    )


def _between(
    size: np.ndarray, q: np.ndarray, s: np.ndarray, strength: float
) -> tuple[float, float]:
    """How far to believe what shows between buckets, and by how much the paper is off by it."""
    n = size.sum()
    q_off, s_off = (k - size * k.sum() / n for k in (q, s))
    s_between, s_inside = float((s_off**2 / size).sum()), float((s * (size - s) / size).sum())
    if s_between < 1e-9 * n:
        return 0.0, 0.0
    slope = float((q_off * s_off / size).sum()) / s_between
    chance = 1 / (n * s_between / (s_between + s_inside))
    return (strength**2 / (strength**2 + chance) if strength else 0.0), slope * s_inside


def _reach(size: np.ndarray, q: np.ndarray, s: np.ndarray) -> float:
    """How far a correlation of 1 inside of buckets would move the count."""
    n = size.sum()
    of_s = float(s.sum() * (1 - s.sum() / n))
    inside_q, inside_s = (float((k * (size - k) / size).sum()) for k in (q, s))
    if not of_s or n == len(size):
        return 0.0
    return math.sqrt(inside_q * n / (n - len(size))) * inside_s / math.sqrt(of_s)


@dataclass(frozen=True, eq=False)
class Weighted:
    """A bucketization with the weights of an attribute's values, in the order of its slots.

    Read from `<name>_val`, `<name>_cod` and `<name>_est` by SQL.
    """

    columns: Mapping[str, np.ndarray]  # The quasi-identifiers of each record
    bucket: np.ndarray  # The bucket of each record, from 0
    sizes: np.ndarray  # Of each bucket
    values: list[Any]  # The sensitive values; NULL is None
    counts: np.ndarray  # Shape (n_buckets, n_values): how often a bucket has each
    levels: np.ndarray  # Shape (n_records, n_values)
    parts: np.ndarray  # Shape (n_values,)
    strengths: Mapping[str, float] = field(default_factory=dict)  # Of quasi-identifiers
    is_weighted: bool = True  # Whether weights left less of what shows than equal shares did
    are_drawn_from_all: bool = False  # See :func:`are_drawn`
    _known: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, connection: Connection, name: str, attribute: str) -> Weighted:
        """Read what readers see."""
        ((layout, parameters),) = fetch(
            connection,
            "SELECT layout, parameters FROM kanon.publications WHERE name = $1::text", name,
        )  # fmt: skip
        sizes = np.repeat(layout["sizes"], _numbers(layout))
        n_records = int(sizes.sum())
        bucket, first = [], 0
        for size, n in zip(layout["sizes"], _numbers(layout), strict=True):
            bucket += [np.tile(np.arange(first, first + n), size)]
            first += n
        columns = {}
        for column in layout["quasi_identifiers"]:
            own, codes = _in_slots(connection, name, layout, column)
            columns[column] = np.array([*own, None], dtype=object)[codes]
        values, codes = _in_slots(connection, name, layout, attribute)
        of_bucket = np.concatenate(bucket)
        counts = [
            np.bincount(of_bucket[codes == code], minlength=sizes.size)
            for code in range(len(values))
        ]
        which = (
            ""
            if len([layout["sensitive"], *layout.get("also_sensitive", ())]) == 1
            else (f" WHERE attribute = '{attribute}'")
        )
        found = {
            one: (weights, parts)
            for one, weights, parts in fetch(
                connection,
                f"SELECT {quoted(attribute)}, weights, parts FROM"
                f" {quoted('published', name + '_est')}{which}",
            )
        }
        is_weighted = attribute in layout["weighted"]
        assert found.keys() == (set(values) if is_weighted else set())
        length = (n_records + 7) // 8
        levels = np.zeros((n_records, len(values)), dtype=np.int64)
        for place, one in enumerate(values if is_weighted else []):
            packed = found[one][0]
            for digit in range(len(packed) // length):
                plane = packed[digit * length : (digit + 1) * length]
                levels[:, place] += _bits(plane, n_records).astype(np.int64) << digit
        parts = np.array([found[one][1] if is_weighted else 1 for one in values])
        return cls(
            columns, of_bucket, sizes, values, np.column_stack(counts), levels, parts,
            layout["strengths"].get(attribute, {}), is_weighted, are_drawn(layout, parameters),
        )  # fmt: skip

    @cached_property
    def weights(self) -> np.ndarray:
        """The weight of each value for each record."""
        found: np.ndarray = self.levels / self.parts
        return found

    @property
    def most(self) -> dict[Any, Fraction]:
        """The largest weight of each value."""
        highest = self.levels.max(axis=0).tolist()
        return dict(zip(self.values, map(Fraction, highest, self.parts.tolist()), strict=True))

    def where(self, column: str, holds: Callable[[Any], bool]) -> np.ndarray:
        """Return which records meet a condition; NULL meets none."""
        return np.array([cell is not None and holds(cell) for cell in self.columns[column]])

    def which(self, holds: Callable[[Any], bool]) -> np.ndarray:
        """Return which values meet a condition, NULL included."""
        return np.array([holds(one) for one in self.values])

    def estimate(self, records: np.ndarray, values: np.ndarray) -> float:
        """Add up weights; of most values, those of the others are taken away from 1."""
        if 2 * values.sum() > values.size:
            return float(records.sum() - self.weights[records][:, ~values].sum())
        return float(self.weights[records][:, values].sum())

    def answer(
        self, records: np.ndarray, values: np.ndarray, asked: str, *, is_paper: bool = False
    ) -> tuple[float, float, int, int]:
        """Answer a count as docs/understand/estimation.md defines it.

        `asked`: the text of the question, which names quasi-identifiers.
        """
        q = np.bincount(self.bucket[records], minlength=self.sizes.size)
        s = self.counts[:, values].sum(axis=1)
        has_weights = self.is_weighted and values.any()
        by_weights = self.estimate(records, values) if has_weights else None
        buckets = zip(self.sizes, q, s, strict=True)
        return of_buckets(
            buckets, by_weights,
            strength=strength_of(self.strengths, asked),
            are_drawn_from_all=self.are_drawn_from_all, is_paper=is_paper,
        )  # fmt: skip


def _numbers(layout: Mapping[str, Any]) -> list[int]:
    firsts = [*layout["first_bucket_ids"], layout["n_buckets"] + 1]
    return np.diff(firsts).tolist()


def _in_slots(
    connection: Connection, name: str, layout: Mapping[str, Any], attribute: str
) -> tuple[list[Any], np.ndarray]:
    """Return the values of a column, and the number of the one that each slot has."""
    (number,) = (one[1] for one in layout["store"]["columns"] if one[0] == attribute)
    values = [
        one
        for (one,) in fetch(
            connection,
            f"SELECT {quoted(attribute)} FROM {quoted('published', name + '_val')}"
            f" WHERE column_no = {number} ORDER BY code",
        )
    ]
    ((codes,),) = fetch(
        connection,
        f"SELECT codes FROM {quoted('published', name + '_cod')} WHERE column_no = {number}",
    )
    return values, np.frombuffer(codes, f"<u{1 if len(values) <= 256 else 2}")


def _bits(packed: bytes, n_records: int) -> np.ndarray:
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little", count=n_records)
    return bits.astype(bool)
