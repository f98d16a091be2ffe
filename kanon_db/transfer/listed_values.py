"""Columns with few values, which are found beforehand, in a sample or in all records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.packed import Known
from kanon_db.transfer.records import Records
from kanon_db.transfer.values import DistinctValues, number_values

_TEXTS = ("text", "character varying")


@dataclass(frozen=True)
class Listed(Known):
    """Values in a table, in their type's order, where the server looks them up one by one.

    Attributes
    ----------
    value : str
        The table's column with them, in which other rows have NULL; quoted.
    table : str
        Quoted.
    """

    value: str
    table: str

    def digit(self, value: str) -> str:
        """See :meth:`Known.digit`."""
        known = f"(SELECT array_agg(k.v ORDER BY k.v) FROM ({self._values}) AS k)"
        null = f"CASE WHEN {value} IS NULL THEN {self.null} ELSE 0 END"
        return f"coalesce(array_position({known}, {value}), {null})"

    def number_values(self, records: Records, counts: IntArray) -> DistinctValues:
        """See :meth:`Known.number_values`."""
        return number_values(
            records,
            self.column,
            "SELECT k.v AS value, c.records FROM unnest($1::text[]::int8[]) WITH ORDINALITY AS c"
            " (records, place) LEFT JOIN (SELECT k.v, row_number() OVER"
            f" (ORDER BY {self._key('k.v')}) AS place FROM ({self._values}) AS k) AS k"
            " ON k.place = c.place WHERE c.records > 0",
            [*map(str, counts.tolist())],
        )

    @property
    def _values(self) -> str:
        return f"SELECT {self.value} AS v FROM {self.table} WHERE {self.value} IS NOT NULL"

    def _key(self, value: str) -> str:
        """Write what values are ordered by."""
        return value


@dataclass(frozen=True)
class ListedTexts(Listed):
    """Texts in a table, by their bytes, where the server finds them by halving.

    It looks for their place among the ends of ranges that hold one text each: a text, and the next
    one that is possible, which has a character more, with the least code. So odd digits mean known
    texts, even ones what lies between these.
    """

    @property
    def places(self) -> IntArray:
        """See :attr:`Known.places`."""
        places = np.arange(2 * self.n_values + 1) // 2
        places[::2] = -1
        return self._with_null(places)

    @property
    def n_bits(self) -> int:
        """See :attr:`Known.n_bits`."""
        return (2 * self.n_values + 1).bit_length()

    def digit(self, value: str) -> str:
        """See :meth:`Known.digit`."""
        ends = (
            f"(SELECT array_agg(e.v ORDER BY e.v) FROM (SELECT {self._key('k.v')} || e.v AS v"
            f" FROM ({self._values}) AS k CROSS JOIN (VALUES (''), (chr(1))) AS e (v)) AS e)"
        )
        return f"coalesce(width_bucket({self._key(value)}, {ends}), {self.null})"

    def codes_of(self, values: DistinctValues) -> IntArray:
        """See :meth:`Known.codes_of`; the order of the type may be another one."""
        rows = values.session.fetch(
            f"SELECT v.code FROM {values.table} AS v WHERE v.value IS NOT NULL"
            f" ORDER BY {self._key('v.value')}"
        )
        return np.array([row["code"] for row in rows], dtype=np.int64)

    def _key(self, value: str) -> str:
        return f'({value}::text COLLATE "C")'


def list_values(
    session: Session, columns: Sequence[ColumnType], relation: str, most: int, most_bytes: int
) -> list[Listed] | None:
    """List the values of columns.

    Parameters
    ----------
    session : Session
    columns : sequence of ColumnType
        Equal values of each are the same value.
    relation : str
        Where to look for them, as SQL.
    most : int
        Values that a column may have.
    most_bytes : int
        Of a text, and of all texts of a column together.

    Returns
    -------
    list of Listed or None
        In the order of the columns; their table lasts until the transaction ends. None if there
        are too many values, or a text is too long.
    """
    table = session.identifier("pg_temp", f"kanon_known_{os.urandom(8).hex()}")
    names = [f"s.{session.identifier(column.name)}" for column in columns]
    lengths = [
        f"octet_length({name})"  # which does not read a long text
        for name, column in zip(names, columns, strict=True)
        if column.type_name in _TEXTS
    ]
    # If there are as many rows, some column has too many values, NULL among them.
    limit = (most + 1) * len(columns) + 1
    values = [f"value_{i}" for i in range(len(columns))]
    kept = [
        f"CASE WHEN octet_length({name}) <= {most_bytes} THEN {name} END"
        if column.type_name in _TEXTS
        else name
        for name, column in zip(names, columns, strict=True)
    ]
    named = ", ".join(f"{name} AS {value}" for name, value in zip(names, values, strict=True))
    session.fetch(
        f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS SELECT {named}, 0 AS longest"
        f" FROM {relation} AS s WITH NO DATA"
    )
    read = ", ".join(f"{one} AS {value}" for one, value in zip(kept, values, strict=True))
    session.fetch(
        f"INSERT INTO {table} SELECT {', '.join(values)}, max(longest) FROM"
        f" (SELECT {read}, greatest({', '.join([*lengths, '0'])}) AS longest"
        f" FROM {relation} AS s) AS s"
        f" GROUP BY GROUPING SETS ({', '.join(f'({value})' for value in values)}) LIMIT {limit}"
    )
    n_bytes = ", ".join(f"coalesce(sum(octet_length({value}::text)), 0)" for value in values)
    found = fetch_one(
        session,
        f"SELECT count(*) AS n, max(longest) AS longest,"
        f" ARRAY[{', '.join(f'count({value})' for value in values)}] AS n_values,"
        f" ARRAY[{n_bytes}] AS n_bytes FROM {table}",
    )
    is_too_long = found["longest"] is not None and found["longest"] > most_bytes
    is_much = found["n"] >= limit or is_too_long or max(found["n_bytes"]) > most_bytes
    if is_much or max(found["n_values"]) > most:
        session.fetch(f"DROP TABLE {table}")
        return None
    counted = zip(columns, found["n_values"], values, strict=True)
    return [
        (ListedTexts if column.type_name in _TEXTS else Listed)(column, n, value, table)
        for column, n, value in counted
    ]
