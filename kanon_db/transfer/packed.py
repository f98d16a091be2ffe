"""Columns of which much is known before they are read: all of them in a few numbers a record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Self, TypeVar

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.heartbeat import beat
from kanon_db.session.protocol import Session
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.records import Records
from kanon_db.transfer.values import CodedColumn, DistinctValues, least_type

_BITS_AT_ONCE: Final = 63
"""Of all columns that are read together: an int8 without its sign."""

_AT_ONCE: Final = 1 << 20
"""Records whose numbers are taken apart at once, so that this takes little memory."""


@dataclass(frozen=True)
class Known(ABC):
    """The values that a column is known to have, in an order: the server sends a digit for each.

    By default their digits are 1 and more, and 0 is that of a value that is not known.

    Attributes
    ----------
    column : ColumnType
    n_values : int
        How many are known, beside NULL.
    """

    column: ColumnType
    n_values: int

    @property
    def places(self) -> IntArray:
        """The place among the values that each digit means, shape (2^n_bits,).

        It is :attr:`n_values` for NULL, the greatest digit, and -1 for a value that is not known.
        """
        return self._with_null(np.arange(-1, self.n_values))

    @abstractmethod
    def digit(self, value: str) -> str:
        """Write the digit of the value that an expression gives."""

    @abstractmethod
    def number_values(self, records: Records, counts: IntArray) -> DistinctValues:
        """Give codes to the values that occur, of which, and of NULL, there are so many records.

        Raises
        ------
        InfeasibleError
            As :func:`.number_values`.
        """

    def codes_of(self, values: DistinctValues) -> IntArray:
        """Return the codes of the values that occur, by their places, without that of NULL."""
        return np.arange(len(values.labels) - (None in values.labels))

    @property
    def null(self) -> int:
        """The digit of NULL: all of its bits are set, so that it does not tell how many others."""
        return (1 << self.n_bits) - 1

    @property
    def n_bits(self) -> int:
        """How many bits a digit takes."""
        return (self.n_values + 1).bit_length()

    def _with_null(self, places: IntArray) -> IntArray:
        """Complete the places that digits mean by unknown ones, and by NULL."""
        found = np.full(1 << self.n_bits, -1)
        found[: places.size] = places
        found[-1] = self.n_values
        return found


_Known = TypeVar("_Known", bound=Known)


@dataclass(frozen=True)
class Packing(Generic[_Known]):
    """Some columns whose digits share an int8.

    Attributes
    ----------
    columns : sequence of Known
        The digits of the first one are in the highest bits.
    """

    columns: Sequence[_Known]

    @classmethod
    def of(cls, columns: Sequence[_Known]) -> Iterator[Self]:
        """Divide columns among as few numbers as their order allows."""
        start = 0
        while start < len(columns):
            end, n_bits = start, 0
            while end < len(columns) and n_bits + columns[end].n_bits <= _BITS_AT_ONCE:
                n_bits += columns[end].n_bits
                end += 1
            yield cls(columns[start:end])
            start = end

    def expression(self, session: Session) -> str:
        """Write the number of a record ``s``."""
        packed = ""
        for known in self.columns:
            digit = f"({known.digit(f's.{session.identifier(known.column.name)}')})::int8"
            packed = f"(({packed} << {known.n_bits}) | {digit})" if packed else digit
        return packed

    def unpacked(self, packed: AnyIntArray) -> Iterator[Digits]:
        """Find the digits of each column, from the last one on.

        Parameters
        ----------
        packed : ndarray of int64, shape (n_records,)
            The number of each record, in any order of bytes.
        """
        shift = 0
        for known in reversed(self.columns):
            yield Digits(known, packed, shift)
            shift += known.n_bits


class Digits:
    """The digits of a column in packed numbers, which are taken out a block at a time.

    Attributes
    ----------
    known : Known
    are_known : bool
        Whether each record has a value that is known.
    """

    def __init__(self, known: Known, packed: AnyIntArray, shift: int) -> None:
        self.known = known
        self._packed = packed
        self._shift = shift
        counts = np.zeros(1 << known.n_bits, dtype=np.int64)
        for _, digits in self._blocks():
            counts += np.bincount(digits, minlength=counts.size)
        places = known.places
        means = places >= 0
        self.are_known = not counts[~means].any()
        self._counts = np.zeros(known.n_values + 1, dtype=np.int64)
        self._counts[places[means]] = counts[means]

    def coded(self, records: Records) -> CodedColumn:
        """Give codes to the values of the column.

        Raises
        ------
        InfeasibleError
            As :func:`.number_values`.
        """
        known, counts = self.known, self._counts
        values = known.number_values(records, counts)
        code_at = np.zeros(known.n_values + 1, dtype=least_type(values))
        code_at[:-1][counts[:-1] > 0] = known.codes_of(values)
        code_at[-1] = max(len(values.labels) - 1, 0)  # NULL comes last
        code_of = code_at[known.places]
        codes: AnyIntArray = np.empty(self._packed.size, dtype=least_type(values))
        for block, digits in self._blocks():
            np.take(code_of, digits, out=codes[block])
        return CodedColumn(values, codes)

    def _blocks(self) -> Iterator[tuple[slice, AnyIntArray]]:
        """Give each block of records with their digits."""
        for start in range(0, self._packed.size, _AT_ONCE):
            block = slice(start, start + _AT_ONCE)
            digits = self._packed[block].astype(np.int64)
            digits >>= self._shift
            digits &= self.known.null
            yield block, digits
            beat()
