"""Rows that the server makes from codes, in any order: nothing needs to be sorted or copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.session.protocol import Session
from kanon_db.transfer.columns import WHOLE_NUMBERS, number_bytes, with_numbers
from kanon_db.transfer.values import CodedColumn, DistinctValues

_ROWS_AT_ONCE: Final = 1 << 23
"""Rows that are made by one statement, so that what is bound stays small."""


@dataclass(frozen=True)
class DecodedRows:
    """Columns of records that are known by their codes, and of numbers from 0 on.

    Whole numbers follow from their codes, and other values are looked up in an array.

    Attributes
    ----------
    session : Session
    columns : mapping of str to CodedColumn
        By the quoted names of the rows' columns.
    numbers : mapping of str to ndarray of int, shape (n_records,)
        Likewise; they come after the others.
    """

    session: Session
    columns: Mapping[str, CodedColumn]
    numbers: Mapping[str, AnyIntArray]

    @property
    def names(self) -> list[str]:
        """The quoted names of all columns."""
        return [*self.columns, *self.numbers]

    @property
    def shape(self) -> str:
        """SQL for rows with these columns."""
        shown = [f"{values.alias}.value AS {name}" for name, values in self._values.items()]
        shown += [f"0 AS {name}" for name in self.numbers]
        tables = [f"{values.table} AS {values.alias}" for values in self._values.values()]
        return f"SELECT {', '.join(shown)} FROM {', '.join([*tables, '(SELECT) AS one'])}"

    def parts(self, order: AnyIntArray) -> Iterator[tuple[str, list[bytes]]]:
        """Select the rows of some records, a part of them at a time.

        Parameters
        ----------
        order : ndarray of int, shape (n_rows,)
            The records, in the order of the rows.

        Yields
        ------
        tuple of str and list of bytes
            SQL, with what it has bound.
        """
        values = self._values
        for start in range(0, order.size, _ROWS_AT_ONCE):
            self.session.done(start, order.size)
            some = order[start : start + _ROWS_AT_ONCE]
            codes = [column.codes for column in self.columns.values()]
            bound = [number_bytes(one[some]) for one in (*codes, *self.numbers.values())]
            numbered, found = with_numbers(
                self.session,
                f"(SELECT generate_series(0, {some.size - 1}) AS i)",
                *((i, "r.i") for i in range(1, len(bound) + 1)),
                widths=[width for _, width in bound],
            )
            named = zip(values.items(), found, strict=False)
            shown = [f"{one.of(f'n.{code}')} AS {name}" for (name, one), code in named]
            named_numbers = zip(self.numbers, found[len(values) :], strict=True)
            shown += [f"n.{number} AS {name}" for name, number in named_numbers]
            # In a subquery of its own, so that no array is made anew for each row.
            known = ", ".join(one.known for one in values.values())
            source = f"{numbered} AS n CROSS JOIN (SELECT {known} OFFSET 0) AS v"
            yield f"SELECT {', '.join(shown)} FROM {source}", [content for content, _ in bound]

    @property
    def _values(self) -> dict[str, _Values]:
        return {
            name: _Values(f"v{i}", column.values)
            for i, (name, column) in enumerate(self.columns.items())
        }


@dataclass(frozen=True)
class _Values:
    """How a statement finds the values of a column by their codes."""

    alias: str
    values: DistinctValues

    @property
    def table(self) -> str:
        return self.values.table

    @property
    def is_run(self) -> bool:
        """Whether they are whole numbers, one after the other."""
        first, last = self.values.labels[0], self.values.labels[-1]
        if first is None or last is None or self.values.column.type_name not in WHOLE_NUMBERS:
            return False
        return int(last) - int(first) == len(self.values.labels) - 1

    @property
    def known(self) -> str:
        """What the statement knows of them: the first one, or all in an array."""
        found = "min(o.value)" if self.is_run else "array_agg(o.value ORDER BY o.code)"
        return f"(SELECT {found} FROM {self.table} AS o) AS {self.alias}"

    def of(self, code: str) -> str:
        """Write the value of a code."""
        return f"v.{self.alias} + {code}" if self.is_run else f"v.{self.alias}[1 + {code}]"
