"""Answers from QIT and SAT where a condition, a group or a sum mentions both sides.

Every pair of a record and a sensitive value of one bucket is looked at, alike ones together;
bounds and variances are in docs/estimation.md.
"""

from __future__ import annotations

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.types import TEXT
from kanon_db.counting.formulas import EXTREMES
from kanon_db.counting.sides import Side, by_side, parts_of, side_of
from kanon_db.counting.writing.sql import write
from kanon_db.counting.writing.steps import Select
from kanon_db.counting.writing.writer import SideWriter, over, same

_SIDES = ("record", "value")
_ALIASES = ("r", "v")
_OF_RECORDS, _OF_VALUES = "NOT is_value", "is_value"

Features = dict[ex.Expression, str]
"""Expressions on one side, with the names of their columns."""


class PairWriter(SideWriter):
    """Looks at the pairs of a record and a value."""

    def paired(self) -> None:
        """Estimate whatever the condition."""
        on_records, on_values, both = by_side(parts_of(self.condition), self.layout)
        weighed = [] if self.weighed is None else [self.weighed]
        features: tuple[Features, Features] = ({}, {})
        for expression in (*both, *self.keys.values(), *weighed):
            self._collect(expression, features)
        self._classes(0, ex.joined(ex.And, on_records), features[0])
        self._classes(1, ex.joined(ex.And, on_values), features[1])
        self._pairs(both, features)
        if self.weighed is None:
            self._count()
        else:
            self._sum()
            self.sum_totals()

    def _collect(self, expression: ex.Expression, found: tuple[Features, Features]) -> None:
        """Name the largest parts of an expression that are on one side."""
        if not ex.attributes(expression):
            return
        side = side_of(expression, self.layout)
        if side is None:
            for inner in ex.children(expression):
                self._collect(inner, found)
        else:
            found[side].setdefault(expression, f"f{len(found[side])}")

    def _classes(self, side: Side, condition: ex.Expression | None, features: Features) -> None:
        name = _SIDES[side]
        comment = f"The {name}s of each bucket; those alike in all that both sides need, together."
        parts = {column: feature for feature, column in features.items()}
        self.count_in_buckets(f"alike_{name}s", comment, side, parts, condition)
        numbers = {"*": "*", "size": self.tables.size(), "id": "row_number() OVER ()"}
        self.step(f"{name}_classes", "A bucket's size follows from its number.", numbers)

    def _pairs(self, both: list[ex.Expression], features: tuple[Features, Features]) -> None:
        names = {
            feature: f"{alias}.{column}"
            for alias, on_side in zip(_ALIASES, features, strict=True)
            for feature, column in on_side.items()
        }
        columns = {key: self._over(part, names) for key, part in self.keys.items()}
        columns |= {"bucket_id": "r.bucket_id", "size": "r.size"}
        columns |= {"record": "r.id", "n_records": "r.n", "value": "v.id", "n_values": "v.n"}
        if self.weighed is not None:
            columns["x"] = f"({self._over(self.weighed, names)})::float8"
        self.step(
            "pairs",
            "Each pair of a record and a value of one bucket that counts, if it is a real one.",
            columns,
            "record_classes AS r",
            "JOIN value_classes AS v ON v.bucket_id = r.bucket_id",
            where=[f"({self._over(part, names)})" for part in both],
        )

    def _over(self, expression: ex.Expression, names: dict[ex.Expression, str]) -> str:
        """Write an expression of which some parts are columns already."""

        def change(part: ex.Expression) -> ex.Expression | None:
            if part not in names:
                return None
            # A column's type decides on the operators; conditions and results need none.
            type_ = part.type if isinstance(part, ex.Column) else TEXT
            return ex.Column(names[part], names[part], type_)

        return write(ex.replaced(expression, change), lambda column: column.sql, self.constants)

    def _lines(self, sums: dict[str, str]) -> None:
        """Sum the pairs of each record and of each value; `{n}` is how many of the other side."""
        keys = list(self.keys)
        lines = []
        for side in (0, 1):
            one, other = _SIDES[side], _SIDES[1 - side]
            columns = same(*keys, "bucket_id", "size")
            columns |= {"is_value": str(bool(side)).lower(), "n": f"n_{one}s"}
            columns |= {name: sql.format(n=f"n_{other}s") for name, sql in sums.items()}
            lines.append(
                Select(columns, ["pairs"], group=[*keys, "bucket_id", "size", one, f"n_{one}s"])
            )
        self.steps.add("lines", "The pairs of each record, then those of each value.", *lines)

    def _count(self) -> None:
        """Count with bounds on a matching: each cover of the pairs by records and values is one.

        A record is full that goes with every value of its bucket. Of the pairs, the matching's
        size is at most that of a cover; of the pairs that do not count, too.
        """
        self._lines({"total": "sum({n})::int8"})
        window = over([*self.keys, "bucket_id"])

        def number(which: str) -> str:
            return f"sum(n) FILTER (WHERE {which})"

        full = "AND total = size"
        self.step(
            "marked",
            "With how many of the bucket's records (q) and values (s) are in any pair, or in all.",
            {
                "*": "*",
                "q_any": f"{number(_OF_RECORDS)} {window}",
                "s_any": f"{number(_OF_VALUES)} {window}",
                "q_full": f"coalesce({number(f'{_OF_RECORDS} {full}')} {window}, 0)",
                "s_full": f"coalesce({number(f'{_OF_VALUES} {full}')} {window}, 0)",
            },
        )
        whole = same("size", "q_any", "s_any", "q_full", "s_full")
        rest = {
            "q_all": f"{_OF_RECORDS} AND total = s_any",
            "s_all": f"{_OF_VALUES} AND total = q_any",
            "q_rest": f"{_OF_RECORDS} AND total > s_full",
            "s_rest": f"{_OF_VALUES} AND total > q_full",
        }
        self.step(
            "buckets",
            "Each bucket: t pairs, and the records and values by which they can be covered.",
            {
                **whole,
                "size": "size::float8",
                "t": f"sum(n * total) FILTER (WHERE {_OF_RECORDS})::float8",
                "squares": "sum(n * total * total)::float8",
                **{name: f"coalesce({number(which)}, 0)" for name, which in rest.items()},
            },
            group=["bucket_id", *whole],
        )
        self.step(
            "matched",
            "Of a random matching: the expected number of pairs, its error and its bounds.",
            {
                "estimate": "coalesce(sum(t / size), 0)::float8",
                "std_error": f"sqrt(greatest(coalesce(sum({_spread('t', 'squares', 't * t')}), 0),"
                " 0))::float8",
                "lower_bound": "coalesce(sum(greatest(q_full, s_full, q_any + s_all - size,"
                " q_all + s_any - size, 0)), 0)::int8",
                "upper_bound": "coalesce(sum(least(q_any, s_any, q_full + s_rest,"
                " s_full + q_rest)), 0)::int8",
            },
            group=(),
        )
        self.calibrated()

    def _sum(self) -> None:
        """Sum with bounds: what every record, or else every value, can add at least and at most."""
        self._lines(
            {
                "tx": "sum({n} * x)", "tc": "sum({n})::int8", "txx": "sum({n} * x * x)",
                "may_miss": "sum({n}) < size", "least_x": "min(x)", "most_x": "max(x)",
            }
        )  # fmt: skip
        records, values = (f"FILTER (WHERE {which})" for which in (_OF_RECORDS, _OF_VALUES))
        high = "sum(n * CASE WHEN may_miss THEN greatest(most_x, 0) ELSE most_x END)"
        low = "sum(n * CASE WHEN may_miss THEN least(least_x, 0) ELSE least_x END)"
        certain = [
            f"coalesce(sum(n) FILTER (WHERE {which} AND NOT may_miss), 0)"
            for which in (_OF_RECORDS, _OF_VALUES)
        ]
        self.step(
            "buckets",
            "Each bucket's sums over its pairs, over the lines' squares, and their bounds.",
            {
                "size": "size::float8",
                "sx": f"sum(n * tx) {records}",
                "sc": f"(sum(n * tc) {records})::float8",
                "sxx": f"sum(n * txx) {records}",
                "lxx": "sum(n * tx * tx)",
                "lcc": "sum(n * tc * tc)::float8",
                "lxc": "sum(n * tx * tc)",
                "t_high": f"least({high} {records}, {high} {values})",
                "t_low": f"greatest({low} {records}, {low} {values})",
                "c_high": f"least(sum(n) {records}, sum(n) {values})::float8",
                "c_low": f"greatest({', '.join(certain)})::float8",
                **EXTREMES,
            },
            group=["bucket_id", "size"],
        )
        self.step(
            "sums",
            "Each bucket's expected sum t and count c, with variances, covariance and bounds.",
            {
                "t": "sx / size",
                "c": "sc / size",
                "tt": _spread("sxx", "lxx", "sx * sx"),
                "cc": _spread("sc", "lcc", "sc * sc"),
                "tc": _spread("sx", "lxc", "sx * sc"),
                **same("t_low", "t_high", "c_low", "c_high", "least_x", "most_x"),
            },
        )


def _spread(pairs: str, lines: str, product: str) -> str:
    """Write a variance, or the covariance, over random matchings."""
    return f"({pairs} - {lines} / size + {product} / (size * size)) / greatest(size - 1, 1)"
