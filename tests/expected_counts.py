"""The answer to a count query from each bucket's numbers, as docs/understand/estimation.md defines
it, and the weights of sensitive values, as readers find them in a publication's tables.

Written from the definitions, bucket by bucket; shares no code with the package but the factors of
errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from kanon_db.query.formulas import trust, trust_of_counts
from kanon_db.query.layout import Assignment
from tests.integration.parties import Connection, fetch, quoted, value


def of_buckets(
    buckets: Iterable[tuple[int, int, int]],
    assignment: Assignment = "random",
    by_weights: float | None = None,
    *,
    is_paper: bool = False,
) -> tuple[float, float, int, int]:
    """Answer from the size, matching records and matching values of *every* bucket.

    Parameters
    ----------
    buckets : iterable of tuple
    assignment : Assignment
    by_weights : float, optional
        The sum of the weights, where there are any.
    is_paper : bool
        Whether the paper's estimator is asked for.
    """
    size, q, s = np.array(list(buckets), dtype=float).T
    lower, upper = int(np.maximum(0, q + s - size).sum()), int(np.minimum(q, s).sum())
    paper = float((q * s / size).sum())
    matching = float((q * (s / size) * (1 - s / size) * (size - q) / np.maximum(size - 1, 1)).sum())
    half_width = (upper - lower) / 2
    if by_weights is not None:
        known = trust(assignment, is_weighted=True, is_paper=is_paper)
        error = math.hypot(known.times * math.sqrt(matching), known.missed * (by_weights - paper))
        estimate = min(max(paper if is_paper else by_weights, lower), upper)
        return estimate, min(error, half_width), lower, upper
    known = trust_of_counts(assignment)
    miss = known.doubted**2 * _of_slope(size, q, s) if known.doubted and lower < upper else 0.0
    error = math.sqrt(known.times**2 * matching + miss)
    return paper, min(error, half_width), lower, upper


def _of_slope(size: np.ndarray, q: np.ndarray, s: np.ndarray) -> float:
    """What a dependence of q on s may add, as far as random buckets show it."""
    p_q, p_s = q.sum() / size.sum(), s.sum() / size.sum()
    # Weighted least squares: how the share of q in a bucket depends on that of s.
    off_q, off_s = q - size * p_q, s - size * p_s
    spread = float((off_s**2 / size).sum())
    if spread <= 1e-9 * s.sum():
        return math.inf
    slope = float((off_q * off_s / size).sum()) / spread
    slope_variance = p_q * (1 - p_q) / spread
    hidden_s = float((s * (size - s) / size).sum())
    hidden_q = float((q * (size - q) / size).sum())
    if_random = (size.sum() - len(size)) * p_q * (1 - p_q)
    return (slope**2 + slope_variance) * (hidden_s * hidden_q / if_random) ** 2


@dataclass(frozen=True, eq=False)
class Weighted:
    """A bucketization with the weights of an attribute's values, in the order of its slots.

    Read from `<name>_val`, `<name>_cod` and `<name>_est` by SQL.
    """

    columns: Mapping[str, np.ndarray]  # The quasi-identifiers of each record
    bucket: np.ndarray  # The bucket of each record, from 0
    sizes: np.ndarray  # Of each bucket
    assignment: Assignment
    values: list[Any]  # The sensitive values; NULL is None
    counts: np.ndarray  # Shape (n_buckets, n_values): how often a bucket has each
    levels: np.ndarray  # Shape (n_records, n_values)
    parts: np.ndarray  # Shape (n_values,)
    _known: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, connection: Connection, name: str, attribute: str) -> Weighted:
        """Read what readers see."""
        layout = value(
            connection, "SELECT layout FROM kanon.publications WHERE name = $1::text", name
        )
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
        assert found.keys() == set(values)
        length = (n_records + 7) // 8
        levels = np.zeros((n_records, len(values)), dtype=np.int64)
        for place, one in enumerate(values):
            packed = found[one][0]
            for digit in range(len(packed) // length):
                plane = packed[digit * length : (digit + 1) * length]
                levels[:, place] += _bits(plane, n_records).astype(np.int64) << digit
        parts = np.array([found[one][1] for one in values])
        return cls(
            columns, of_bucket, sizes, layout["assignment"], values, np.column_stack(counts),
            levels, parts,
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
        self, records: np.ndarray, values: np.ndarray, *, is_paper: bool = False
    ) -> tuple[float, float, int, int]:
        """Answer a count as docs/understand/estimation.md defines it."""
        q = np.bincount(self.bucket[records], minlength=self.sizes.size)
        s = self.counts[:, values].sum(axis=1)
        by_weights = self.estimate(records, values) if values.any() else None
        buckets = zip(self.sizes, q, s, strict=True)
        return of_buckets(buckets, self.assignment, by_weights, is_paper=is_paper)


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
