"""Answers from QIT and SAT where each condition, group and sum is on one side.

**Source:** estimate, [GB] section 3.2; bounds and variances, docs/estimation.md.
"""

from __future__ import annotations

from kanon_db.counting.expressions import Expression, TruthTest
from kanon_db.counting.formulas import (
    BUCKET_SUMS,
    COUNTS,
    REACHED,
    SLOPE_DOUBT,
    TOTALS,
    all_but_answer,
    count_correlation,
    count_measures,
    matched_sum,
    weights,
)
from kanon_db.counting.regression import trust
from kanon_db.counting.sides import Side, Sides, factors, side_of
from kanon_db.counting.writing.regressed import RegressedWriter
from kanon_db.counting.writing.steps import Select
from kanon_db.counting.writing.writer import ANSWER, numbered, over, same

_SIDES = ("records", "values")
_WEIGHTS = same(*weights("x", ""))


class FactoredWriter(RegressedWriter):
    """Combines sums over each bucket's records with sums over its values."""

    def one_sided(self, side: Side) -> None:
        """Aggregate QIT or SAT as they are: exact."""
        value = f"coalesce({self.number(side)}, 0)"
        if self.weighed is not None:
            x = self.write(self.weighed, side)
            value = f"sum(({x})::float8{self.times(side)})"
            if self.function == "avg":
                value = f"{value} / {self.number(side)}"
        self.steps.add(
            "counted",
            "All of it is on one side, which is published as it is: the answer is exact.",
            Select(
                {**{name: self.write(key, side) for name, key in self.keys.items()}, "n": value},
                self.source(side, self.condition, self.weighed, *self.keys.values()),
                self.where(self.condition, side),
                numbered(len(self.keys)),
            ),
        )
        error = "CASE WHEN n IS NOT NULL THEN 0::float8 END"
        answer = dict(zip(ANSWER, ("n::float8", error, "n", "n"), strict=True))
        self.step("answers", "An exact number is its own bounds.", answer)

    def factored(self) -> None:
        """Estimate where the condition is a conjunction of its two sides."""
        split = factors(self.condition, self.layout)
        if split is None:
            raise TypeError("the condition does not split by side")
        if self.weighed is None:
            self._count(split)
        else:
            self._sum(split, self.weighed)

    def either(self, sides: tuple[Expression, Expression]) -> None:
        """Count what meets one condition or the other: all records but those that meet neither."""
        records, values = (TruthTest(side, "true", negated=True) for side in sides)
        self._count((records, values))
        answer = all_but_answer(self.tables.n_records)
        self.step("all_but_these", "All other records meet one of the conditions.", answer)

    # -- steps --------------------------------------------------------------------------------

    def _count(self, sides: Sides) -> None:
        side: Side
        for side in (0, 1):
            self._matching(side, sides[side])
            self._sized(side)
            self._in_all(side)
        columns = {
            "q": "r.n", "s": "v.n", "size": "r.size", "n_q": "r.total", "packed_q": "r.packed",
            "n_s": "v.total", "packed_s": "v.packed",
        }  # fmt: skip
        self.step(
            "buckets",
            "Each bucket with q matching records and s matching values.",
            columns,
            "records_in_all AS r",
            "JOIN values_in_all AS v USING (bucket_id)",
        )
        alike = {**same(*columns), "n": "count(*)"}
        self.step("alike", "Buckets with the same numbers together.", alike, group=list(columns))
        self.step("counts", "The number that a random matching gives.", COUNTS, group=())
        if self.is_regressed:
            self.regress(sides)
            return
        is_random = self.layout.assignment == "random"
        if is_random:
            n_records, n_buckets = self.tables.n_records, self.tables.n_buckets
            measures = count_measures(n_records)
            self.step("measures", "How unevenly s is spread over buckets.", measures)
            correlation = count_correlation(n_records, n_buckets)
            self.step("correlation", "How q follows s from bucket to bucket.", correlation)
            self.step("doubted", "The same may be so inside the buckets.", SLOPE_DOUBT)
        else:
            known = {"*": "*", "more": "0::float8", "doubt": "0::float8"}
            self.step("doubted", "Gathered records tell nothing of others.", known)
        self.answer(trust(self.layout.assignment, is_paper=True, is_composed=is_random))

    def _sum(self, sides: Sides, weighed: Expression) -> None:
        side: Side = side_of(weighed, self.layout) or 0
        other: Side = 0 if side else 1
        self._matching(side, sides[side], weighed)
        self._matching(other, sides[other])
        size = f"{self.tables.size()}::float8"
        self.step(
            "buckets",
            "Each bucket with q records (or values) to sum, and s that match on the other side.",
            {"q": "x.n::float8", "s": "y.n::float8", "size": size, **_WEIGHTS},
            f"{_SIDES[side]}_matching AS x",
            f"JOIN {_SIDES[other]}_matching AS y USING (bucket_id)",
        )
        self.step("reached", "Between lo and hi of the q have one of the s.", REACHED)
        self.step("sums", "Each bucket's expected sum t and count c, with bounds.", BUCKET_SUMS)
        if not self.is_regressed:
            self.sum_totals()
            return
        self.step("totals", "All buckets together.", TOTALS, group=())
        is_average = self.function == "avg"
        comment = "What a random matching gives."
        self.step("counts", comment, matched_sum(is_average=is_average))
        sized = Select({"*": "*", "size": self.tables.size()}, ["records_matching"])
        self.steps.add("records_sized", "A bucket's size follows from its number.", sized)
        self.regress(sides, weighed, is_average=is_average)

    # -- parts --------------------------------------------------------------------------------

    def _matching(
        self, side: Side, condition: Expression | None, weighed: Expression | None = None
    ) -> None:
        """Count, in each bucket, what matches on one side; or also sum x."""
        comment = f"The {'sensitive values' if side else 'records'} of each bucket that match."
        name, keys = f"{_SIDES[side]}_matching", self.keys_of(side)
        self.count_in_buckets(name, comment, side, keys, condition, weighed)

    def _sized(self, side: Side) -> None:
        name, size = _SIDES[side], {"*": "*", "size": self.tables.size()}
        self.step(f"{name}_sized", "A bucket's size follows from its number.", size)

    def _in_all(self, side: Side) -> None:
        window = over(self.keys_of(side))
        total, packed = (f"(sum({x}) {window})::float8" for x in ("n", "n * n / size::float8"))
        sums = {"*": "*", "total": total, "packed": packed}
        comment = "The group's sums of n and n^2 / size over all buckets."
        self.step(f"{_SIDES[side]}_in_all", comment, sums)
