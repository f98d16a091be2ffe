"""Answers from QIT and SAT, corrected by what the composition of buckets tells.

**Source:** `kanon_db.counting.regression`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kanon_db.counting.expressions import Expression
from kanon_db.counting.layout import BucketTables
from kanon_db.counting.regression import (
    REGRESSED,
    ROUNDS,
    Trust,
    answer_sql,
    between_sql,
    signal,
    trust,
)
from kanon_db.counting.sides import Sides, side_of
from kanon_db.counting.writing.joins import joined, same_value
from kanon_db.counting.writing.steps import Select
from kanon_db.counting.writing.writer import SideWriter, numbered, over, same

_FOUND = ("estimate", "variance", "lower_bound", "upper_bound", "c")


class RegressedWriter(SideWriter):
    """Corrects what the step ``counts`` has found of a random matching."""

    @property
    def is_regressed(self) -> bool:
        """Whether buckets tell how values go together with the records of at most one key."""
        return self.tables.spectrum is not None and len(self.keys_of(0)) <= 1

    def regress(
        self, sides: Sides, weighed: Expression | None = None, *, is_average: bool = False
    ) -> None:
        """Correct by the records of the step ``records_sized``, and the values asked for.

        Parameters
        ----------
        sides : tuple of Expression
        weighed : Expression, optional
            What is summed.
        is_average : bool
            The sum is then that of its differences from the average that ``counts`` has found.
        """
        of_values = weighed is not None and side_of(weighed, self.layout) == 1
        numbers = ["n" if weighed is None or of_values else "sx"]
        if is_average and not of_values:
            numbers.append("n")
        self._along(numbers)
        self._levels(sides, weighed if of_values else None, is_average=is_average)
        keys = same(*self.keys)
        columns = ["k", "ev", *_pairs("r", numbers), *_products("b", numbers)]
        columns += ["l", "l_1"] if is_average and of_values else ["l"]
        both = same(*columns) if is_average else {**same(*columns), "b": "greatest(b, 0)"}
        self.steps.add(
            "residuals",
            "Both in each direction.",
            Select({**keys, **both}, ["along", "JOIN levels USING (k)"]),
        )
        if is_average:
            self._centre(columns, of_values=of_values)
        for number in range(ROUNDS):
            found = same("ev", "r", "b", "l") | {"tau2": signal(over(keys), is_first=not number)}
            self.step(
                f"signals_{number + 1}" if number else "signals",
                "The same, weighted by what is known so far."
                if number
                else "How much values differ in how they go together, as far as it shows.",
                found,
            )
        self.steps.add(
            "regressed",
            "What is therefore missing inside the buckets.",
            Select({**keys, **REGRESSED}, [self.steps.last], group=list(keys)),
        )
        self._together()
        known = trust(self.layout.assignment, is_paper=self.layout.is_paper)
        self.answer(known, is_average=is_average)

    def answer(self, known: Trust, *, is_average: bool = False) -> None:
        """Answer from estimate, variance, ``more`` and ``doubt`` of the step before."""
        answer = answer_sql(known, is_average=is_average)
        self.step("answers", "The error is that of a matching that is not random.", answer)

    # -- steps --------------------------------------------------------------------------------

    def _along(self, numbers: Sequence[str]) -> None:
        """Find, in each direction, how often values go with a match, less what is expected."""
        sensitive, tables = self.layout.sensitive, self.tables
        keys = list(self.keys_of(0))
        window = over(keys)
        totals = {
            f"total{at}": f"(sum({number}) {window})::float8"
            for at, number in zip(_pairs("", numbers), numbers, strict=True)
        }
        packed = {
            f"packed{at}": f"(sum({one} * {other} / size::float8) {window})::float8"
            for at, (one, other) in zip(_products("", numbers), _both(numbers), strict=True)
        }
        self.steps.add(
            "records_together",
            "The sums over all buckets, also of squares over the bucket's size.",
            Select({"*": "*", **totals, **packed}, ["records_sized"]),
        )
        expected = {
            f"e{at}": f"sum(r.{number} * s.{tables.count} / r.size::float8)"
            for at, number in zip(_pairs("", numbers), numbers, strict=True)
        }
        self.steps.add(
            "expected",
            "How often a random matching brings each value together with a match.",
            Select(
                {
                    **same(*keys), "v": f"s.{sensitive.sql}", **expected,
                    **{name: f"max(r.{name})" for name in (*totals, *packed)},
                },
                ["records_together AS r",
                 f"JOIN {tables.sat} AS s ON s.{tables.bucket_id} = r.bucket_id"],
                group=numbered(len(keys) + 1),
            ),
        )  # fmt: skip
        equal = same_value(sensitive, "e.v", f"c.{sensitive.sql}")
        found = {
            f"r{at}": f"sum(e.e{at} * d.d) - max(e.total{at}) * max(x.expected)"
            for at in _pairs("", numbers)
        }
        varies = {
            f"b{at}": between_sql(
                f"max(packed{at})", f"max(total{one}) * max(total{other})",
                tables.n_records, tables.n_buckets,
            )
            for at, (one, other) in zip(
                _products("", numbers), _both(_pairs("", numbers)), strict=True
            )
        }  # fmt: skip
        self.steps.add(
            "along",
            "The same along the directions k in which buckets differ, less what is expected.",
            Select(
                {**same(*keys), "k": "d.k", "ev": "max(x.ev)", **found, **varies},
                ["expected AS e", f"JOIN {tables.composition} AS c ON {equal}",
                 f"CROSS JOIN unnest(c.{tables.directions}) WITH ORDINALITY AS d (d, k)",
                 f"JOIN {_spectrum(tables)} AS x (ev, expected, k) ON x.k = d.k"],
                group=[*keys, "d.k"],
            ),
        )  # fmt: skip

    def _levels(self, sides: Sides, weighed: Expression | None, *, is_average: bool) -> None:
        """Find what is hidden, in each direction, of the values asked for."""
        keys = {name: self.write(key, 1) for name, key in self.keys_of(1).items()}
        levels = {"l": "sum(h.h)"}
        if weighed is not None:
            levels = {"l": f"sum(h.h * ({self.write(weighed, 1)})::float8)"}
            levels |= {"l_1": "sum(h.h)"} if is_average else {}
        read = joined(
            self.tables.composition, "s", [sides[1], weighed, *self.keys_of(1).values()],
            self.lookups,
        )  # fmt: skip
        self.steps.add(
            "levels",
            "What is hidden, along these directions, of the values asked for.",
            Select(
                {**keys, "k": "h.k", **levels},
                [*read, f"CROSS JOIN unnest(s.{self.tables.hidden}) WITH ORDINALITY AS h (h, k)"],
                self.where(sides[1], 1),
                numbered(len(keys) + 1),
            ),
        )

    def _centre(self, columns: Sequence[str], *, of_values: bool) -> None:
        """Take the average from what is summed: r and b, or l, are then those of the rest."""
        # Not a join: keys may be NULL, and of types whose operators are elsewhere.
        keys = same(*self.keys)
        nothing = dict.fromkeys(columns, "NULL::float8")
        self.steps.add(
            "with_average",
            "Beside the average of a random matching.",
            Select({**keys, **same(*columns), "a": "NULL::float8"}, ["residuals"]),
            Select({**keys, **nothing, "a": "estimate"}, ["counts"]),
        )
        average = {**same(*columns), "mean": f"max(a) {over(keys)}"}
        self.step("averaged", "Each group's average.", average)
        rest = {"k": "k", "ev": "ev", "r": "r", "b": "b", "l": "l - mean * l_1"}
        if not of_values:
            rest |= {
                "r": "r - mean * r_1", "l": "l",
                "b": "greatest(b - 2 * mean * b_1 + mean * mean * b_2, 0)",
            }  # fmt: skip
        self.step("centred", "What is summed, less the average.", rest, where=["k IS NOT NULL"])

    def _together(self) -> None:
        keys = same(*self.keys)
        added = {**dict.fromkeys(_FOUND, "NULL"), **same(*REGRESSED)}
        self.steps.add(
            "with_missing",
            "What a random matching gives, and what is missing.",
            Select(
                {**keys, **same(*_FOUND), **dict.fromkeys(REGRESSED, "NULL::float8")}, ["counts"]
            ),
            Select({**keys, **added}, ["regressed"]),
        )
        whole = {name: f"max({name})" for name in _FOUND}
        whole |= {name: f"coalesce(max({name}), 0)" for name in REGRESSED}
        # Groups that a random matching does not make are none.
        self.step("corrected", "Both together.", whole, group=(), having="count(c) > 0")


def _pairs(name: str, numbers: Sequence[str]) -> list[str]:
    """Name a column for each number: ``r``, ``r_1``."""
    return [name if not at else f"{name}_{at}" for at in range(len(numbers))]


def _both(numbers: Sequence[str]) -> list[tuple[str, str]]:
    """Return each number with itself and those after it."""
    return [(one, other) for at, one in enumerate(numbers) for other in numbers[at:]]


def _products(name: str, numbers: Sequence[str]) -> list[str]:
    """Name a column for each product of two numbers: ``b``, ``b_1``, ``b_2``."""
    return [name if not at else f"{name}_{at}" for at in range(len(_both(numbers)))]


def _spectrum(tables: BucketTables) -> str:
    """Write the eigenvalues and what is expected, by the numbers of the directions."""
    spectrum = tables.spectrum
    if spectrum is None:
        raise TypeError("nothing is known of these buckets")
    arrays = (
        f"ARRAY[{', '.join(map(repr, numbers))}]::float8[]"
        for numbers in (spectrum.eigenvalues, spectrum.expected)
    )
    return f"unnest({', '.join(arrays)}) WITH ORDINALITY"
