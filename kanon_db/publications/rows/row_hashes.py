"""Whether the rows of a view are those of a table of classes, by hashes of all their cells.

To look up the number of each cell of a million rows takes three times as long as to hash it. So the
cells of each row become one number of 64 bits, the exclusive or of their hashes, in the view and
from the numbers that the table of classes has of the same row. Both are summed up, so that the
order of rows does not matter. The hashes begin at numbers that are drawn anew each time, which
nobody can foresee: that a difference is not seen is as likely as to guess one of these.

**Source:** hashes of the cells of a row, one function for each column, combined by exclusive or:
simple tabulation (M. Patrascu and M. Thorup, JACM 2012), with the server's own hash functions.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray, WordArray
from kanon_db.algorithms.ground.scattering import scattered
from kanon_db.publications.rows.numbered_rows import CODES, NumberedRows, packed_rows, packing
from kanon_db.publications.rows.numbering import Numbering
from kanon_db.session import fetch_one
from kanon_db.session.settings import helped
from kanon_db.transfer.columns import parts_of

_HASHES: Final = {
    "smallint": "hashint2extended",
    "integer": "hashint4extended",
    "text": "hashtextextended",
    "character varying": "hashtextextended",
    "text[]": "hash_array_extended",
    "int4range": "hash_range_extended",
    "daterange": "hash_range_extended",
    "numrange": "hash_range_extended",
}
"""The functions of 64 bits by which the server hashes a type, so that equal cells have equal ones.

Of wider numbers and times, the server folds two halves into one first, so that some always have the
same hash: these are looked up. So are columns of which two cells have the same hash, whatever it
begins at, such as ranges to infinity and to NaN.
"""


_ROWS_AT_ONCE: Final = 1 << 20


def shows_rows(numbering: Numbering, rows: NumberedRows) -> bool:
    """Tell whether the rows of the view are those of the table of classes.

    Parameters
    ----------
    numbering : Numbering
    rows : NumberedRows
        What the table has; of each column, its numbers are those of its cells.
    """
    hashing = _Hashing(numbering, rows)
    return hashing.of_view() == hashing.of_table()


class _Hashing:
    """Functions drawn at random for each column, and the sums of what they make of all rows."""

    def __init__(self, numbering: Numbering, rows: NumberedRows) -> None:
        self._numbering, self._rows = numbering, rows
        self._seeds = {
            name: (secrets.randbits(62), secrets.randbits(62))  # of values, and of NULL
            for name in (*rows.cells, *rows.others)
            if name not in rows.ends and numbering.type_of(name) in _HASHES
        }
        # A cell that the table has twice is looked up, and found twice.
        self._hashed = {
            name: hashes for name in self._seeds if (hashes := self._of_cells(name)) is not None
        }
        self._marks, self._start = secrets.randbits(62), np.uint64(secrets.randbits(64))
        self._cells, self._others = (
            {
                name: numbers
                for name, numbers in zip(names, columns, strict=True)
                if name not in self._hashed
            }
            for names, columns in ((rows.cells, rows.of_classes), (rows.others, rows.of_rows))
        )
        self._bases = [
            CODES if name in rows.ends else 2 + int(numbers.max(initial=0))
            for name, numbers in (*self._cells.items(), *self._others.items())
        ]

    def of_view(self) -> tuple[int, int]:
        """Return how many rows the view has, and the sum."""
        session, view = self._numbering.session, self._numbering.view
        hashes = [self._hash(name, "v") for name in self._hashed]
        if view.pattern is not None:
            marks = self._numbering.marks(self._rows.cells, "v")
            hashes.append(f"hashtextextended({marks}, {self._marks})")
        sent = [f"int8send({' # '.join(hashes) or '0'})"]
        digits, joins = self._numbering.looked_up([*self._cells, *self._others])
        groups = packing(self._bases) if digits else []
        for first, end in groups:
            number = digits[first]
            for digit, base in zip(
                digits[first + 1 : end], self._bases[first + 1 : end], strict=True
            ):
                number = f"({number})::int8 * {base} + {digit}"
            sent.append(f"int8send({number})")
        n_rows, total = 0, 0
        for part in parts_of(session, view.view, int(self._rows.sizes.sum()), "v"):
            with helped(session):
                row = fetch_one(
                    session,
                    # A statement without parameters, so that the server may make a parallel plan,
                    # and OFFSET, in quotes as in :func:`.digest`, so that cells stay where they
                    # are read.
                    f"SELECT string_agg(r.hashes, ''::bytea) AS hashes FROM"
                    f" (SELECT {' || '.join(sent)} AS hashes"
                    f" FROM {view.view} AS v{joins} WHERE {part} OFFSET '0') AS r",
                )
            found = np.frombuffer(row["hashes"] or b"", dtype=">u8").reshape(-1, 1 + len(groups))
            n_rows += len(found)
            total += self._sum(found[:, 0], list(found[:, 1:].T))
        return n_rows, total % 2**64

    def of_table(self) -> tuple[int, int]:
        """Return how many rows the table has, and the sum."""
        rows, session = self._rows, self._numbering.session
        of_class = np.zeros(rows.sizes.size, dtype=np.uint64)
        if self._numbering.view.pattern is not None:
            patterns, pattern_of_class = rows.patterns(
                [self._numbering.special(name).hidden for name in rows.cells]
            )
            found = fetch_one(
                session,
                f"SELECT string_agg(int8send(hashtextextended(u.marks, {self._marks})), ''::bytea"
                " ORDER BY u.i) AS hashes FROM unnest($1::text[]) WITH ORDINALITY AS u (marks, i)",
                patterns,
            )
            of_class ^= np.frombuffer(found["hashes"] or b"", dtype=">u8")[pattern_of_class]
        for name, numbers in zip(rows.cells, rows.of_classes, strict=True):
            if name in self._hashed:
                of_class ^= self._hashed[name][numbers]
        class_of_row = np.repeat(np.arange(rows.sizes.size, dtype=np.int32), rows.sizes)
        hashes = of_class[class_of_row]
        for name, numbers in zip(rows.others, rows.of_rows, strict=True):
            if name in self._hashed:
                hashes ^= self._hashed[name][numbers]
        packed: list[IntArray] = []
        if self._bases:
            packed = packed_rows(
                self._bases, list(self._cells.values()), class_of_row, list(self._others.values())
            )
        return class_of_row.size, self._sum(hashes, packed) % 2**64

    def _of_cells(self, name: str) -> WordArray | None:
        """Return the hash of each cell of a column, by its number; None if two have the same."""
        table = self._numbering.table
        row = fetch_one(
            self._numbering.session,
            f"SELECT string_agg(int8send({self._hash(name, 't')}), ''::bytea"
            f" ORDER BY t.{table.number}) AS hashes FROM {table.table} AS t"
            f" WHERE t.{table.attribute} = $1::text AND t.{table.codes} IS NULL",
            name,
        )
        found = np.frombuffer(row["hashes"], dtype=">u8").astype(np.uint64)
        shown = np.delete(found, [n for n in [self._numbering.special(name).hidden] if n >= 0])
        return found if np.unique(shown).size == shown.size else None

    def _hash(self, name: str, alias: str) -> str:
        """Write the hash of a cell."""
        of_value, of_null = self._seeds[name]
        hashing = _HASHES[self._numbering.type_of(name)]
        cell = f"{alias}.{self._numbering.session.identifier(name)}"
        return f"coalesce({hashing}({cell}, {of_value}), {of_null})"

    def _sum(self, hashes: AnyIntArray, groups: Sequence[AnyIntArray]) -> int:
        """Add up what the hashes and the digits of all rows make together."""
        total = 0
        for first in range(0, hashes.size, _ROWS_AT_ONCE):
            own = slice(first, first + _ROWS_AT_ONCE)
            mixed = scattered(hashes[own] ^ self._start)
            for group in groups:
                mixed = scattered(mixed ^ group[own].astype(np.uint64))
            total += int(mixed.sum())
        return total
