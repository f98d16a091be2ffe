"""Labels of hierarchies that are published instead of sets of values."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Self

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.algorithms.recoding import Ranges
from kanon_db.algorithms.recoding.taxonomy import Taxonomy
from kanon_db.catalog.hierarchy import Hierarchy
from kanon_db.counting.layout import ANYTHING
from kanon_db.counting.writing.labels import labels
from kanon_db.errors import SchemaMismatchError
from kanon_db.session.protocol import Session
from kanon_db.session.settings import roomy
from kanon_db.transfer.columns import int4_bytes, with_numbers
from kanon_db.transfer.labels import label_of, text_in_set
from kanon_db.transfer.values import DistinctValues

_NULL = -1  # instead of a label


@dataclass(frozen=True, eq=False)
class Labels:
    """A hierarchy, and which of its values each value of a column is.

    Attributes
    ----------
    hierarchy : Hierarchy
    taxonomy : Taxonomy
    codes : ndarray of int32, shape (n_values,)
        The place of each distinct value in the hierarchy; NULL's comes after them.
    table : str
        Temporary table ``(label, first, last)`` of the labels, quoted.
    places : str
        Temporary table ``(label, first)`` of the values alone, by their texts, quoted.
    """

    values: DistinctValues
    hierarchy: Hierarchy
    taxonomy: Taxonomy
    codes: CodeArray
    table: str
    places: str

    @classmethod
    def of(cls, values: DistinctValues, described: object) -> Self:
        """Find the values of a column in a hierarchy.

        Raises
        ------
        SchemaMismatchError
            When the hierarchy lacks values; the message says how many.
        """
        hierarchy, column, session = Hierarchy.of(described), values.column, values.session
        places: dict[str | None, int] = {text: at for at, text in enumerate(hierarchy.values)}
        places[None] = len(places)
        is_padded = column.type_name == "bpchar"
        texts = [None if t is None else t.rstrip(" ") if is_padded else t for t in values.labels]
        n_missing = sum(text not in places for text in texts)
        if n_missing:
            raise SchemaMismatchError(
                "the hierarchy of a column lacks values that the column has",
                detail=f'column "{column.name}": {n_missing:,} of {len(texts):,} distinct values',
                hint="list every value of the column, as PostgreSQL writes it: SELECT DISTINCT"
                f" {session.identifier(column.name)} shows them",
            )
        suffix = secrets.token_hex(8)
        table, own = (
            session.identifier("pg_temp", f"kanon_{what}_{suffix}") for what in ("labels", "places")
        )
        with roomy(session):
            session.fetch(
                f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS SELECT l.label, l.first, l.last"
                f" FROM ({labels('$1::text::jsonb').write()}) AS l",
                json.dumps(hierarchy.described, ensure_ascii=False),
            )
            session.fetch(
                f"CREATE TEMPORARY TABLE {own} ON COMMIT DROP AS SELECT u.label, u.i::int4 - 1 AS"
                " first FROM unnest($1::text[]) WITH ORDINALITY AS u (label, i)",
                list(hierarchy.values),
            )
        for each in (table, own):  # looked up for each record
            session.fetch(f"CREATE INDEX ON {each} (label)")
            session.fetch(f"ANALYZE {each}")
        codes = np.array([places[text] for text in texts], dtype=np.int32)
        return cls(values, hierarchy, Taxonomy.of(hierarchy.levels), codes, table, own)

    def covers(self, name: str) -> str:
        """Return SQL for whether the label ``c.name`` stands for the value ``s.name``, quoted."""
        text = text_in_set(self.values.column, label_of(self.values.column, f"s.{name}"))
        return (
            f"CASE WHEN num_nulls(s.{name}) > 0 THEN coalesce(c.{name} = '{ANYTHING}', true) ELSE"
            f" EXISTS (SELECT FROM {self.table} AS l JOIN {self.places} AS v"
            f" ON v.first BETWEEN l.first AND l.last WHERE l.label = c.{name} AND v.label = {text})"
            " END"
        )

    def write(self, session: Session, part: str, cells: Ranges) -> None:
        """Write the lowest label that covers the values of each cell, numbered from 0."""
        n, levels = self.taxonomy.n_values, self.hierarchy.levels
        is_known = ~cells.tells_nothing & (cells.low < n)
        low, high = cells.low[is_known], cells.high[is_known]
        level = self.taxonomy.levels_of(low, high)
        first = self.taxonomy.firsts[level, low]
        nodes, number = np.unique(level * n + first, return_inverse=True)
        named = [self.hierarchy.values, *levels, (ANYTHING,) * n]
        texts = [named[node // n][node % n] for node in nodes.tolist()]
        of_cell = np.where(cells.tells_nothing, len(texts), _NULL)
        of_cell[is_known] = number
        numbered, (label_of,) = with_numbers(
            session, "(SELECT generate_series(0, $3::int4 - 1) AS i)", (1, "r.i")
        )
        with roomy(session):
            session.fetch(
                f"CREATE TEMPORARY TABLE {part} ON COMMIT DROP AS SELECT c.i AS number,"
                f" t.label AS cell FROM {numbered} AS c LEFT JOIN unnest($2::text[])"
                f" WITH ORDINALITY AS t (label, i) ON t.i = c.{label_of} + 1",
                int4_bytes(of_cell),
                [*texts, ANYTHING],
                str(of_cell.size),
            )

    def drop(self) -> None:
        """Remove the tables before the transaction ends."""
        self.values.session.fetch(f"DROP TABLE {self.table}, {self.places}")
