"""What MIN, MAX, percentiles and COUNT(DISTINCT ...) need of a column, found on the driver.

It is what `kanon_db.answers.evidence_sql`, `rungs` and `sure_cells` write as SQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from kanon_db.answers.evidence import Flags, NotReadError, combinations, distinct
from kanon_db.answers.evidence_sql import MOST_COMBINED
from kanon_db.answers.value_counts import MOST_RUNGS
from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import is_vague
from kanon_db.query.likelihoods import most_listed
from kanon_db.session.protocol import Row
from kanon_db.spark.answering.cells import ColumnCells, Key
from kanon_db.spark.answering.outcomes import Tried, outcomes
from kanon_db.spark.answering.places import Place, text_of
from kanon_db.spark.answering.trying import SparkTries
from kanon_db.spark.query import only_in_postgresql, read_or_refused

if TYPE_CHECKING:
    from kanon_db.spark.answering.types import CountedTypes

_MOST_ROWS: Final = 5_000_000
"""Combinations of values of all types."""


@dataclass(frozen=True, eq=False)
class CountedColumn:
    """:class:`~kanon_db.answers.evidence.KnownColumn` of cells that Spark has counted.

    Attributes
    ----------
    own : ColumnCells
    tries : SparkTries
    rarity : float
        See :class:`~kanon_db.query.layout.CellLayout`.
    """

    own: ColumnCells
    tries: SparkTries
    rarity: float

    def values(
        self,
        operand: ex.Expression,
        condition: ex.Expression,
        type_: ex.Type,
        most: int | None,
        *,
        is_numbered: bool,
    ) -> list[Row]:
        """Return what values an expression on the column has in each cell.

        Raises
        ------
        UnsupportedQueryError
            If there are too many of them, or one is not finite.
        """
        if not is_numbered:
            raise only_in_postgresql()
        own, name = self.own, self.own.cell.column.name

        def tried(values: Any) -> tuple[Flags, Flags]:
            return self.tries.flags(condition, {name: values})

        with read_or_refused():
            truths = outcomes(condition, own, tried, self.rarity, is_tabled=False)
            of_each = list(
                self._ends(type_) if most is None else self._listed(operand, tried, type_, most)
            )
        return [
            {
                "cell_key": str(i), "suppressed": bool(own.hidden[i]), "n": int(own.n[i]),
                "t": float(truths.true[i]), "st": bool(truths.surely[i]),
                "pt": bool(truths.possibly[i]), **told,
            }
            for i, told in enumerate(of_each)
        ]  # fmt: skip

    def axis(self) -> Row | None:
        """Return the ``points`` and ``shares`` of the parts of an axis of ranges, if known."""
        shares, type_ = self.own.shares, self.own.cell.column.type
        if shares is None:
            return None
        points = [text_of(point, type_) for point in shares.points]
        return {"points": points, "shares": np.diff(shares.upto).tolist()}

    def sure_cells(self, numbers: Sequence[int] | None, most: int) -> list[Row]:  # noqa: ARG002
        """Return cells with these numbers."""
        if numbers is None:
            raise only_in_postgresql()
        keys = [self.own.keys[number] for number in numbers]
        if self.own.cell.kind == "set":
            return [{"elements": json.dumps(list(key))} for key in keys]
        ends = (_ends_of(key, self.own.cell.column.type) for key in keys)
        return [{"low": low, "high": high} for low, high in ends]

    def _ends(self, type_: ex.Type) -> Iterator[Row]:
        """Return the ends of ranges, and what is known of their shares."""
        of_ranges = {} if self.own.shares is None else self.own.shares.of_ranges
        for key in self.own.keys:
            least, most = _ends_of(key, type_)
            known = of_ranges.get(key)
            # The parts of the table of shares are counted from 1.
            first, last, own = (
                (None,) * 3 if known is None else (known[0] + 1, known[1] + 1, known[2])
            )
            yield {"least": least, "most": most, "first": first, "last": last, "own": own}

    def _listed(
        self, operand: ex.Expression, tried: Tried, type_: ex.Type, most: int
    ) -> Iterator[Row]:
        """Return the values of each cell that meet the condition, and between which they lie."""
        own, listed = self.own, self.own.listed(most)
        x = self.tries.values(operand, {own.cell.column.name: listed.values}, type_)
        numbers = np.array([np.nan if one is None else float(one) for one in x])
        exact = [None if one is None else Decimal(text_of(one, type_)) for one in x]
        is_met = tried(listed.values)[0][listed.value]
        ends = np.cumsum(np.bincount(listed.cell, minlength=own.n.size))
        for key, cell in zip(
            self._keys, np.split(np.arange(listed.cell.size), ends[:-1]), strict=True
        ):
            met = cell[is_met[cell]]
            values = listed.value[met]
            least = most_ = None
            if not listed.is_open[cell].any():
                known = [one for value in values.tolist() if (one := exact[value]) is not None]
                if known:
                    least, most_ = str(min(known)), str(max(known))
            elif isinstance(operand, ex.Column):
                least, most_ = _ends_of(key, type_)
            yield {
                "least": least, "most": most_,
                "xs": numbers[values].tolist(), "ws": listed.w[met].tolist(),
            }  # fmt: skip

    @property
    def _keys(self) -> Sequence[Key]:
        return self.own.keys or [None] * self.own.n.size


def _ends_of(key: Key, type_: ex.Type) -> tuple[str | None, str | None]:
    """Write the ends of a range; None where it has none."""
    low, high = (None, None) if key is None else key
    return (
        None if low is None else text_of(low, type_),
        None if high is None else text_of(high, type_),
    )


@dataclass(frozen=True, eq=False)
class Rungs:
    """The values that an operand may have, each of them once, in their order.

    Attributes
    ----------
    exact : list of Decimal
    rows : list of Row
        Its ``rung`` and ``place``.
    """

    exact: list[Decimal]
    rows: list[Row]

    @classmethod
    def of(cls, values: Iterable[Place | None], type_: ex.Type) -> Self:
        """Put values in order."""
        found: dict[Decimal, Row] = {}
        for value in values:
            if value is not None:
                text = text_of(value, type_)
                found.setdefault(Decimal(text), {"rung": text, "place": float(value)})
        ordered = sorted(found)
        return cls(ordered, [found[one] for one in ordered])

    @classmethod
    def of_column(
        cls, own: ColumnCells, operand: ex.Expression, type_: ex.Type, tries: SparkTries
    ) -> Self:
        """List the ends of ranges, or the values of an expression on a column.

        Raises
        ------
        NotReadError
            If there are too many of them, or one is not finite.
        """
        if isinstance(operand, ex.Column) and own.cell.kind == "range":
            return cls.of((end for key in own.keys if key is not None for end in key), type_)
        listed = own.listed(with_shares=False)
        x = tries.values(operand, {own.cell.column.name: listed.values}, type_)
        return cls.of((x[value] for value in np.unique(listed.value).tolist()), type_)

    @classmethod
    def of_columns(
        cls,
        counted: CountedTypes,
        names: Sequence[str],
        operand: ex.Expression,
        type_: ex.Type,
        tries: SparkTries,
    ) -> Self:
        """List the values of an expression on the columns that types are told apart by.

        Raises
        ------
        NotReadError
            If there are too many of them, or one is not finite.
        """
        import pyarrow as pa

        columns = counted.columns
        most = most_listed(own.cell for own in columns.values() if is_vague(own.cell))
        listed = {place: own.listed(most, with_shares=False) for place, own in columns.items()}
        lists = {place: one.listing(columns[place].n.size) for place, one in listed.items()}
        n_rows = np.ones(counted.n.size)
        for place, listing in lists.items():
            n_rows = n_rows * listing.lengths[counted.codes[place]]
        if n_rows.sum() > _MOST_ROWS:
            raise NotReadError
        rows = combinations(lists, counted.codes, counted.n.size)
        values = {place: lists[place].value[at] for place, at in rows.at.items()}
        first, _ = distinct(list(values.values()), [len(one.values) for one in listed.values()])
        if first.size > MOST_COMBINED:
            raise NotReadError
        given = {name: listed[place].values.take(pa.array(values[place][first]))
                 for place, name in enumerate(names)}  # fmt: skip
        return cls.of(tries.values(operand, given, type_), type_)

    def between(self, above: str | None, below: str | None) -> list[Row]:
        """Return those between two, both included: of too many, some at equal distances."""
        low, high = (None if end is None else Decimal(end) for end in (above, below))
        rows = [
            row
            for one, row in zip(self.exact, self.rows, strict=True)
            if (low is None or one >= low) and (high is None or one <= high)
        ]
        n = len(rows)
        step = max(n - 2, 0) // MOST_RUNGS + 1
        return [{**row, "n": n} for i, row in enumerate(rows) if i % step == 0 or i == n - 1]
