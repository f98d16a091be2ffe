"""Counting below many values from two statements, where a column's cells decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Self

from kanon_db.answering.by_classes import OfCells, count_cells_with_classes
from kanon_db.answering.opened import OpenQuery
from kanon_db.counting import expressions as ex
from kanon_db.counting.answers import Estimated, known_as
from kanon_db.counting.cell_sums import CellSums, Ends, Listed, Ranges
from kanon_db.counting.checking import Measure, Query
from kanon_db.counting.layout import CellLayout
from kanon_db.counting.sides import chosen_by, parts_of
from kanon_db.counting.writing.cell_sums import CellSumWriter
from kanon_db.counting.writing.writer import Request

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray
    from kanon_db.counting.cell_sums import Below
    from kanon_db.session.protocol import Row

_MOST_SUMS: Final = 1_000_000
"""Groups times cells."""

_MOST_LISTED: Final = 200_000
"""Values that are listed of all cells together."""

_FEWEST_LISTED: Final = 5
_MOST_OF_A_CELL: Final = 1_000


@dataclass(frozen=True)
class _Split:
    """A condition, as what is on one column, and the rest."""

    column: str
    on_column: ex.Expression
    rest: ex.Expression | None
    is_plain: bool

    @classmethod
    def of(cls, query: Query, aggregate: ex.Aggregate) -> Self | None:
        """Split by the column that an aggregate is of; None if that is not possible."""
        operand = aggregate.operand
        if operand is None or len(ex.attributes(operand)) != 1:
            return None
        (column,) = ex.attributes(operand)
        parts = parts_of(chosen_by(query, aggregate))
        own = [part for part in parts if ex.attributes(part) == {column}]
        rest = [part for part in parts if column not in ex.attributes(part)]
        has_lookup = any(
            one.lookup is not None for part in (operand, *own) for one in ex.columns(part)
        )
        in_keys = any(column in ex.attributes(key.expression) for key in query.keys)
        if has_lookup or in_keys or len(own) + len(rest) < len(parts):
            return None
        on_column = ex.joined(ex.And, [*own, ex.NullTest(operand, negated=True)])
        if on_column is None:
            raise TypeError("there is a condition at least")
        is_plain = isinstance(operand, ex.Column) and not own
        return cls(column, on_column, ex.joined(ex.And, rest), is_plain)


class CellCounts:
    """Counts the records of each group whose value lies below or above any number.

    The numbers are those of a statement for each value, up to the accuracy of the shares.
    """

    def __init__(
        self,
        groups: Sequence[str],
        sums: CellSums,
        values: Sequence[Row],
        below: Below,
        together: float,
        left_out: tuple[int, int],
        is_unknown: bool,
    ) -> None:
        import numpy as np

        self._groups, self._sums = [known_as(group) for group in groups], sums
        self._below, self._together = below, together
        self._left_out, self._n_published = left_out
        self._is_unknown = is_unknown
        suppressed = np.array([row["suppressed"] for row in values], dtype=bool)
        surely = np.array([bool(row["st"]) for row in values]) & ~suppressed
        possibly = np.array([bool(row["pt"]) for row in values]) | suppressed
        self._suppressed = suppressed
        self._kept: FloatArray = np.array([float(row["n"]) for row in values]) * ~suppressed
        self._whole = self._of_all(np.array([row["t"] for row in values], dtype=float))

        def ends(name: str) -> Ends:
            texts = [None if row["suppressed"] else row[name] for row in values]
            return Ends(texts, sums, surely, possibly)

        self._least, self._most = ends("least"), ends("most")

    @classmethod
    def of(cls, opened: OpenQuery, aggregate: ex.Aggregate) -> Self | None:
        """Read the sums; None where cells of one column alone do not decide.

        Also where there are more of them than the memory of a query holds.
        """
        layout, query, operand = opened.layout, opened.query, aggregate.operand
        split = _Split.of(query, aggregate) if isinstance(layout, CellLayout) else None
        if not isinstance(layout, CellLayout) or split is None:
            return None
        if operand is None or aggregate.type is None:
            return None
        count = ex.Aggregate("count", None)
        counted = Query(split.rest, query.keys, (Measure("", count),), listed=(0,))

        request, most = Request(counted, count, opened.lookups), opened.limits.n_answers
        numbered = count_cells_with_classes(opened, request, split.column, _MOST_SUMS)
        if numbered is None:
            own = CellSumWriter(request, layout, split.column)
            written = own.sums(most + 1)
            rows = opened.fetch(written.text, *written.bound)
            n_cells = len({(row["cell_key"], row["suppressed"]) for row in rows})
            groups = list(dict.fromkeys(row["group_key"] for row in rows))
            together, is_unknown = own.together(), any(row["is_unknown"] for row in rows)
            if len(rows) > most or n_cells * len(groups) > _MOST_SUMS:
                return None
        else:
            groups, n_cells = numbered.groups, numbered.expected.shape[1]
            together, is_unknown = numbered.together, numbered.is_unknown
        cell = layout.cells[split.column]
        is_range = split.is_plain and cell.kind == "range" and cell.mark is None
        n_listed = _MOST_LISTED // max(n_cells, 1)
        listed = None if is_range else min(max(n_listed, _FEWEST_LISTED), _MOST_OF_A_CELL)
        column = opened.column(request, layout, split.column)
        values = column.values(
            operand, split.on_column, aggregate.type, listed, is_numbered=numbered is not None
        )
        below: Below
        if listed:
            below = Listed.of(values)
        else:
            below = Ranges(values, column.axis(), is_discrete=cell.is_discrete)
        sums = _gathered(rows, groups, values) if numbered is None else _in_order(numbered, values)
        left_out = opened.publication.left_out
        try:
            return cls(
                groups, sums, values, below, together,
                (left_out, opened.publication.records - left_out), is_unknown,
            )  # fmt: skip
        except ArithmeticError:
            return None

    def count(self, operator: ex.ComparisonOperator, number: str) -> dict[str, Estimated]:
        """Count the records of each group, by its key, whose value compares like that."""
        import numpy as np

        at, is_included = Decimal(number), operator in ("<=", ">")
        is_above, sums = operator in (">", ">="), self._sums
        shares = self._of_all(self._below(float(number), is_included=is_included))
        surely, possibly = self._most, self._least
        if is_above:
            shares = np.clip(self._whole - shares, 0, 1)
            surely, possibly = possibly, surely
        lower = surely.sure(at, is_included=is_included, is_above=is_above)
        upper = possibly.possible(at, is_included=is_included, is_above=is_above) + self._left_out
        expected = sums.expected * shares
        p = expected / np.maximum(sums.possible, 1e-12)
        variance = np.clip(p * (1 - p), 0, None)
        added = self._together * (sums.possible * sums.unknown * np.sqrt(variance)).sum(axis=1)
        error = np.sqrt((sums.possible * variance).sum(axis=1) + added**2)
        widest = (upper - lower) / 2
        error = widest if self._is_unknown else np.minimum(error, widest)
        estimate = expected.sum(axis=1) * (1 + self._left_out / max(self._n_published, 1))
        estimate = np.clip(estimate, lower, upper)
        columns = (estimate.tolist(), error.tolist(), lower.tolist(), upper.tolist())
        return {
            group: Estimated(one, off, round(least), round(most))
            for group, one, off, least, most in zip(self._groups, *columns, strict=True)
        }

    def _of_all(self, shares: FloatArray) -> FloatArray:
        """Take suppressed cells as those that are kept, all together."""
        import numpy as np

        kept = float(self._kept.sum())
        average = float(self._kept @ shares) / kept if kept else 0.0
        found: FloatArray = np.where(self._suppressed, average, shares)
        return found


def _gathered(rows: Sequence[Row], groups: Sequence[str], values: Sequence[Row]) -> CellSums:
    import numpy as np

    places = {(row["cell_key"], row["suppressed"]): at for at, row in enumerate(values)}
    numbers = {group: at for at, group in enumerate(groups)}
    at = (
        np.array([numbers[row["group_key"]] for row in rows], dtype=int),
        np.array([places[row["cell_key"], row["suppressed"]] for row in rows], dtype=int),
    )

    def table(name: str) -> FloatArray:
        found = np.zeros((len(groups), len(values)))
        found[at] = [row[name] for row in rows]
        return found

    return CellSums(*map(table, ("expected", "sure", "possible", "u")))


def _in_order(counted: OfCells, values: Sequence[Row]) -> CellSums:
    """Put the numbers of cells in the order of their values."""
    at = [int(row["cell_key"]) for row in values]
    return CellSums(
        counted.expected[:, at], counted.sure[:, at], counted.possible[:, at],
        counted.unknown[:, at],
    )  # fmt: skip
