"""Creates, fills, comments on and checks the relations of a publication.

A publication is written under a name that nobody knows, to relations of `kanon_owner` that only the
publishing role may fill and read. The server makes rows from codes, in any order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.catalog.entries import run_errand
from kanon_db.dataclasses import dataclass
from kanon_db.publications.results import Check
from kanon_db.session import Session, fetch_one
from kanon_db.session.protocol import Value, temporary_table
from kanon_db.transfer.columns import WHOLE_NUMBERS
from kanon_db.transfer.values import CodedColumn, DistinctValues


@dataclass(frozen=True)
class Note:
    """How to use a published relation, for people who look at it with any SQL tool."""

    # Everybody who may connect can read comments, so they name columns, never a value or a figure;
    # a guarantee is in ``kanon.publications``, which readers can read. A draft, which nobody else
    # may read, has no notes (``kanon.owner_note``).

    use: str  # follows the mark in the relation's comment
    columns: Mapping[str, str] = field(default_factory=dict)  # comments on columns, by their names

    @property
    def plain(self) -> dict[str, Any]:
        """The note as plain JSON."""
        return {"use": self.use, "columns": dict(self.columns)}


class ShownNames:
    """Quotes names where PostgreSQL needs it, as people write them; a session may quote all."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def identifier(self, *parts: str) -> str:
        """Quote a name, or several joined by dots."""
        quoted = "SELECT quote_ident($1::text) AS name"
        return ".".join(fetch_one(self._session, quoted, part)["name"] for part in parts)


FOR_THE_ESTIMATOR = "Made for kanon_db, which answers counts from it; it is not meant for queries."
"""The use of relations that only repeat others."""


def counting_note(name: str) -> str:
    """Say how to count with an error and bounds; `name` is the publication's, quoted."""
    return (
        f"SELECT * FROM kanon.estimate_count($$SELECT count(*) FROM {name} WHERE ...$$) counts"
        " with a standard error and certain bounds."
    )


_COLUMNS = """
SELECT attname::text AS name, atttypid::text AS type, atttypmod AS modifier,
       attcollation::text AS collating
FROM pg_attribute WHERE attrelid = to_regclass($1::text) AND attnum > 0 ORDER BY attnum
"""


@dataclass(frozen=True)
class StagedRelations:
    """Relations of `kanon_owner` that only the publishing role may fill and read."""

    # They get the publication's name when it is published. Until then, an old publication of this
    # name stays as it is, and its readers do not wait.

    session: Session
    schema: str  # the schema of published relations
    name: str  # how the relations' names begin

    @classmethod
    def begin(cls, session: Session, schema: str) -> StagedRelations:
        """Choose a name at random."""
        import secrets  # with OpenSSL, which no question needs

        return cls(session, schema, f"kanon_{secrets.token_hex(16)}")

    def create_table(
        self, suffix: str, select: str, *values: Value, uncompressed: Sequence[str] = ()
    ) -> None:
        """Create a table with the columns of a query, without rows.

        Columns that are `uncompressed` are read completely, and hardly shrink.
        """
        session = self.session
        shape = temporary_table(session, "shape")
        session.fetch(
            f"CREATE TEMPORARY TABLE {shape} ON COMMIT DROP AS {select} WITH NO DATA", *values
        )
        columns = [dict(row) for row in session.fetch(_COLUMNS, shape)]
        session.fetch(f"DROP TABLE {shape}")
        self._run("create table", suffix=suffix, columns=columns, uncompressed=list(uncompressed))

    def fill_table(self, suffix: str, select: str, *values: Value) -> None:
        """Create a table with the columns and rows of a query, in the order of its rows."""
        # The owner creates the table, and the publishing role fills it: no row of the source, and
        # no code that its owner may have attached to it, is touched with other rights.
        self.create_table(suffix, select, *values)
        table = self.session.identifier(self.schema, self.name + suffix)
        self.session.fetch(f"INSERT INTO {table} {select}", *values)

    def create_weighted_view(
        self, layout: Mapping[str, Any], qit: str, sat: str, learned: str = "", *, suffix: str = ""
    ) -> None:
        """Join the tables with these suffixes to a view of a bucketization, with this suffix.

        Where the table of weights is not given, a value weighs its share of the bucket.
        """
        tables = [qit, sat, learned] if learned else [qit, sat]
        self._run("create view", tables=tables, layout=layout, suffix=suffix)

    def materialize(self, rows: str) -> None:
        """Create the materialized view of all rows of the table with this suffix."""
        self._run("create view", tables=[rows])

    def materialize_join(self, rows: str, cells: str, number: str, columns: Sequence[str]) -> None:
        """Create the materialized view of two tables, which are joined by a column of both.

        The number is the only column that both tables have.
        """
        self._run("create view", tables=[rows, cells], number=number, columns=list(columns))

    def analyze(
        self, *suffixes: str, columns: Sequence[str] = (), keys: Sequence[str] = ()
    ) -> None:
        """Gather the planner's statistics, of all columns or of some.

        Rows are found by the columns `keys`, which tell them apart, without reading the rest.
        """
        self._run("analyze", suffixes=suffixes, columns=columns, keys=keys)

    def drop(self, suffixes: Sequence[str]) -> None:
        """Drop the relations with these suffixes; what depends on others comes first."""
        self._run("drop staged", suffixes=list(suffixes))

    def publish(
        self,
        name: str,
        entry: Mapping[str, Any],  # What the catalog keeps
        *,
        suffixes: Sequence[str],  # of all relations; those first that depend on others
        closed: Collection[str],  # suffixes of the relations that readers may not read
        readers: Sequence[str],
        notes: Mapping[str, Note],  # what comments say about the relations with these suffixes
        replace: bool,  # whether a publication of this name may be dropped
    ) -> int:
        """Enter the publication into the catalog, name its relations, and return its id."""
        return int(
            self._run(
                "publish",
                **entry,
                name=name,
                suffixes=suffixes,
                closed=list(closed),
                readers=readers,
                notes={suffix: note.plain for suffix, note in notes.items()},
                replace=replace,
            )
        )

    def _run(self, task: str, **given: Any) -> Any:
        return run_errand(self.session, task, prefix=self.name, **given)


_RELATIONS = """
SELECT v.relkind::text IS NOT DISTINCT FROM $3::text AND (
           SELECT bool_and(coalesce(t.relkind = 'r' AND NOT t.relrowsecurity, false))
           FROM unnest($2::text[]) AS name LEFT JOIN pg_class AS t ON t.oid = to_regclass(name)
       ) AS kinds,
       (SELECT count(*) FROM pg_rewrite AS r JOIN pg_depend AS d
        ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
        WHERE r.ev_class = v.oid AND (
            d.refclassid <> 'pg_class'::regclass OR d.refobjid <> v.oid
            AND d.refobjid NOT IN (SELECT to_regclass(name) FROM unnest($2::text[]) AS name))
            AND d.refobjid IS DISTINCT FROM (
                SELECT to_regprocedure(format('%I.require_visible(boolean)', s.value))
                FROM kanon.setting AS s WHERE s.name = 'published_schema')
            -- What sorts and compares values of an extension's type belongs to a superuser.
            AND NOT EXISTS (
                SELECT FROM pg_operator AS o JOIN pg_roles AS u ON u.oid = o.oprowner AND u.rolsuper
                WHERE d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid)
            AND NOT (d.refclassid = 'pg_type'::regclass AND kanon.is_safe_type(d.refobjid))
       ) AS others
FROM (SELECT) AS one LEFT JOIN pg_class AS v ON v.oid = to_regclass($1::text)
"""


def check_relations(
    session: Session, promise: str, view: str, tables: Sequence[str], *, materialized: bool = False
) -> Check:
    """Check what the published relations are, reading only the server's catalogs.

    The view, quoted, may read nothing but the tables, which may not have row-level security.
    """
    kind = "m" if materialized else "v"
    found = fetch_one(session, _RELATIONS, view, list(tables), kind)
    return Check(
        promise,
        "0 other objects in the view",
        f"{'as' if found['kinds'] else 'not as'} published, {found['others']} other objects",
        holds=found["kinds"] and found["others"] == 0,
    )


_ROWS_AT_ONCE: Final = 1 << 18
"""Rows that are made by one statement, which keeps some copies of what is bound."""


@dataclass(frozen=True)
class DecodedRows:
    """Columns of records that are known by their codes, and of numbers from 0 on.

    Whole numbers follow from their codes, and other values are looked up in an array.
    """

    session: Session
    columns: Mapping[str, CodedColumn]  # by the quoted names of the rows' columns
    numbers: Mapping[str, AnyIntArray]  # shape (n_records,); likewise; they come after the others

    def write(self, staging: StagedRelations, suffix: str, order: AnyIntArray) -> None:
        """Create the table with this suffix, with the rows of some records, in this order."""
        shown = [f"{values.alias}.value AS {name}" for name, values in self._values.items()]
        shown += [f"0 AS {name}" for name in self.numbers]
        tables = [f"{values.table} AS {values.alias}" for values in self._values.values()]
        staging.create_table(
            suffix, f"SELECT {', '.join(shown)} FROM {', '.join([*tables, '(SELECT) AS one'])}"
        )
        table = self.session.identifier(staging.schema, staging.name + suffix)
        for select, bound in self._parts(order):
            self.session.fetch(f"INSERT INTO {table} {select}", *bound)

    def _parts(self, order: AnyIntArray) -> Iterator[tuple[str, list[Value]]]:
        """Select the rows of some records, a part of them at a time."""
        values = self._values
        for start in range(0, order.size, _ROWS_AT_ONCE):
            self.session.done(start, order.size)
            some = order[start : start + _ROWS_AT_ONCE]
            bound: list[Value] = []
            shown = [
                values[name].of(number_of_row(column.codes[some], bound))
                for name, column in self.columns.items()
            ]
            shown += [number_of_row(numbers[some], bound) for numbers in self.numbers.values()]
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
    """SQL with which a statement finds the values of a column by their codes."""

    alias: str
    values: DistinctValues

    @property
    def table(self) -> str:
        return self.values.table

    @property
    def is_run(self) -> bool:
        """Whether the codes stand for consecutive whole numbers."""
        first, last = self.values.labels[0], self.values.labels[-1]
        if first is None or last is None or self.values.column.type_name not in WHOLE_NUMBERS:
            return False
        return int(last) - int(first) == len(self.values.labels) - 1

    def of(self, code: str) -> str:
        """Write the value of a code, from the first one, or from an array of all."""
        # NULL comes last, where an array has nothing: one with a NULL in it would be walked
        # through, as arrays of texts are, of which there are few.
        if self.is_run:
            return f"(SELECT min(o.value) FROM {self.table} AS o) + {code}"
        values = (
            "SELECT array_agg(o.value ORDER BY o.code) FILTER (WHERE o.value IS NOT NULL)"
            f" FROM {self.table} AS o"
        )
        return f"(({values}))[1 + {code}]"


def number_of_row(numbers: AnyIntArray, bound: list[Value]) -> str:
    """Write the number of row ``r.i``, from 0, and bind a byte of all rows, then the next one."""
    # The planner turns every mention of a parameter into a constant, a copy of many megabytes, so
    # each is mentioned once. As results of queries of their own, they are calculated before the
    # rows, and need not be joined with these.
    n_bytes = max(1, (int(numbers.max(initial=0)).bit_length() + 7) // 8)
    digits = []
    for shift in range(8 * (n_bytes - 1), -1, -8):
        bound.append((numbers >> shift).astype(np.uint8).tobytes())
        byte = f"get_byte((SELECT ${len(bound)}::bytea), r.i)"
        digits.append(f"({byte} << {shift})" if shift else byte)
    return f"({' | '.join(digits)})"
