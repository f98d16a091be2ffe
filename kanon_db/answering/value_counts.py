"""Counting below many values from one statement, where conditions mention a column with others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import sqrt
from typing import TYPE_CHECKING, Self

from kanon_db.answering.opened import OpenQuery
from kanon_db.counting import expressions as ex
from kanon_db.counting.answers import Estimated, known_as
from kanon_db.counting.layout import CellLayout
from kanon_db.counting.writing.cell_sums import SpreadSumWriter
from kanon_db.counting.writing.writer import Request

if TYPE_CHECKING:
    from kanon_db.session.protocol import Row


@dataclass
class _Sums:
    """Numbers in the order of values, and the sums of all before each."""

    pairs: list[tuple[float, float]] = field(default_factory=list)

    def ordered(self) -> Self:
        self.pairs.sort()
        self._values = [value for value, _ in self.pairs]
        self._sums = list(accumulate((n for _, n in self.pairs), initial=0.0))
        return self

    def below(self, number: float, *, is_included: bool) -> float:
        return self._sums[(bisect_right if is_included else bisect_left)(self._values, number)]

    @property
    def total(self) -> float:
        return self._sums[-1]


class _Group:
    """What is known of one group."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.expected, self.surely_least, self.surely_most = _Sums(), _Sums(), _Sums()
        self.least, self.most = _Sums(), _Sums()
        self.anywhere = 0.0
        for row in rows:
            n = float(row["n"])
            if row["is_value"]:
                self.expected.pairs.append((row["least"], n))
            elif row["least"] is None or row["most"] is None:
                self.anywhere += n
            else:
                self.least.pairs.append((row["least"], n))
                self.most.pairs.append((row["most"], n))
                if row["surely"]:
                    self.surely_least.pairs.append((row["least"], n))
                    self.surely_most.pairs.append((row["most"], n))
        for sums in (
            self.expected, self.least, self.most, self.surely_least, self.surely_most
        ):  # fmt: skip
            sums.ordered()


class ValueCounts:
    """Counts the records of each group whose value lies below or above any number.

    The bounds are those of a statement for each value; the error is one of all records together.
    """

    def __init__(
        self, groups: dict[str, _Group], together: float, left_out: int, n_published: int
    ) -> None:
        self._groups, self._together = groups, together
        self._left_out, self._n_published = left_out, n_published

    @classmethod
    def of(cls, opened: OpenQuery, aggregate: ex.Aggregate) -> Self | None:
        """Read the sums; None if these are not rows of cells, or memory does not hold the sums."""
        layout, most = opened.layout, opened.limits.n_answers
        if not isinstance(layout, CellLayout):
            return None
        summed = replace(aggregate, function="sum", share=None)
        request = Request(opened.query, summed, opened.lookups)
        rows: Sequence[Row] = opened.value_sums(request, layout, most + 1)
        if len(rows) > most:
            return None
        by_group: dict[str, list[Row]] = {}
        for row in rows:
            by_group.setdefault(known_as(row["group_key"]), []).append(row)
        left_out = opened.publication.left_out
        return cls(
            {key: _Group(own) for key, own in by_group.items()},
            SpreadSumWriter(request, layout).together(),
            left_out, opened.publication.records - left_out,
        )  # fmt: skip

    def count(self, operator: ex.ComparisonOperator, number: str) -> dict[str, Estimated]:
        """Count the records of each group, by its key, whose value compares like that."""
        at, is_included = float(number), operator in ("<=", ">")
        return {
            key: self._counted(group, at, is_included, is_above=operator in (">", ">="))
            for key, group in self._groups.items()
        }

    def _counted(
        self, group: _Group, at: float, is_included: bool, *, is_above: bool
    ) -> Estimated:  # fmt: skip
        expected = group.expected.below(at, is_included=is_included)
        surely, possibly = group.surely_most, group.least
        if is_above:
            expected = group.expected.total - expected
            surely, possibly = group.surely_least, group.most
        lower, upper = (sums.below(at, is_included=is_included) for sums in (surely, possibly))
        if is_above:
            lower, upper = surely.total - lower, possibly.total - upper
        n = upper + group.anywhere
        p = min(max(expected / n, 0.0), 1.0) if n else 0.0
        error = sqrt(n * p * (1 - p) + (self._together * n) ** 2 * p * (1 - p))
        upper = n + self._left_out
        estimate = expected * (1 + self._left_out / max(self._n_published, 1))
        return Estimated(
            min(max(estimate, lower), upper), min(error, (upper - lower) / 2),
            round(lower), round(upper),
        )  # fmt: skip
