"""Rows that the server makes from codes, in any order: nothing needs to be sorted or copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.session.protocol import Session, Value
from kanon_db.transfer.columns import WHOLE_NUMBERS
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

    def parts(self, order: AnyIntArray) -> Iterator[tuple[str, list[Value]]]:
        """Select the rows of some records, a part of them at a time.

        Parameters
        ----------
        order : ndarray of int, shape (n_rows,)
            The records, in the order of the rows.

        Yields
        ------
        tuple of str and list
            SQL, with what it has bound.
        """
        values = self._values
        for start in range(0, order.size, _ROWS_AT_ONCE):
            self.session.done(start, order.size)
            some = order[start : start + _ROWS_AT_ONCE]
            bound: list[Value] = []
            shown = []
            for name, column in self.columns.items():
                code = number_of_row(column.codes[some], bound)
                shown.append(f"{values[name].of(code)} AS {name}")
            for name, numbers in self.numbers.items():
                shown.append(f"{number_of_row(numbers[some], bound)} AS {name}")
            rows = f"(SELECT generate_series(0, {some.size - 1}) AS i) AS r"
            yield f"SELECT {', '.join(shown)} FROM {rows}", bound

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

    def of(self, code: str) -> str:
        """Write the value of a code, from the first one, or from an array of all.

        NULL comes last, where an array has nothing: one with a NULL in it would be walked through,
        as arrays of texts are, of which there are few.
        """
        if self.is_run:
            return f"(SELECT min(o.value) FROM {self.table} AS o) + {code}"
        values = (
            "SELECT array_agg(o.value ORDER BY o.code) FILTER (WHERE o.value IS NOT NULL)"
            f" FROM {self.table} AS o"
        )
        return f"(({values}))[1 + {code}]"


def number_of_row(numbers: AnyIntArray, bound: list[Value]) -> str:
    """Write the number of row ``r.i``, from 0 on, and bind a byte of all rows, then the next one.

    The planner turns every mention of a parameter into a constant, a copy of many megabytes, so
    each is mentioned once. As results of queries of their own, they are calculated before the rows,
    and need not be joined with these.
    """
    n_bytes = max(1, (int(numbers.max(initial=0)).bit_length() + 7) // 8)
    digits = []
    for shift in range(8 * (n_bytes - 1), -1, -8):
        bound.append((numbers >> shift).astype(np.uint8).tobytes())
        digits.append(f"(get_byte((SELECT ${len(bound)}::bytea), r.i) << {shift})")
    return f"({' | '.join(digits)})"
