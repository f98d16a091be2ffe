"""Published relations in the making, under a name that nobody knows."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kanon_db.catalog.errands import run_errand
from kanon_db.publications.notes import Note
from kanon_db.session import Session
from kanon_db.session.protocol import Value

_COLUMNS = """
SELECT attname::text AS name, atttypid::text AS type, atttypmod AS modifier,
       attcollation::text AS collating
FROM pg_attribute WHERE attrelid = to_regclass($1::text) AND attnum > 0 ORDER BY attnum
"""


@dataclass(frozen=True)
class Staging:
    """Relations that belong to `kanon_owner`, and that only the publishing role may fill and read.

    They get the publication's name when it is published. Until then, an old publication of this
    name stays as it is, and its readers do not wait.

    Attributes
    ----------
    session : Session
    schema : str
        The schema of published relations.
    name : str
        How the relations' names begin.
    """

    session: Session
    schema: str
    name: str

    @classmethod
    def begin(cls, session: Session, schema: str) -> Staging:
        """Choose a name at random."""
        return cls(session, schema, f"kanon_{secrets.token_hex(16)}")

    def create_table(
        self, suffix: str, select: str, *values: Value, uncompressed: Sequence[str] = ()
    ) -> None:
        """Create a table with the columns of a query, without rows.

        Parameters
        ----------
        suffix : str
            The end of the table's name.
        select : str
            The query, with its bound values.
        uncompressed : sequence of str
            Columns whose values are read completely, and hardly shrink.
        """
        session = self.session
        shape = session.identifier("pg_temp", f"kanon_shape_{secrets.token_hex(8)}")
        session.fetch(
            f"CREATE TEMPORARY TABLE {shape} ON COMMIT DROP AS {select} WITH NO DATA", *values
        )
        columns = [dict(row) for row in session.fetch(_COLUMNS, shape)]
        session.fetch(f"DROP TABLE {shape}")
        self._run("create table", suffix=suffix, columns=columns, uncompressed=list(uncompressed))

    def fill_table(self, suffix: str, select: str, *values: Value) -> None:
        """Create a table with the columns and rows of a query, in the order of its rows.

        The owner creates the table, and the publishing role fills it: no row of the source, and no
        code that its owner may have attached to it, is touched with other rights.
        """
        self.create_table(suffix, select, *values)
        table = self.session.identifier(self.schema, self.name + suffix)
        self.session.fetch(f"INSERT INTO {table} {select}", *values)

    def create_weighted_view(self, layout: Mapping[str, Any], qit: str, sat: str) -> None:
        """Join the tables with these suffixes to the view of a bucketization."""
        self._run("create view", tables=[qit, sat], layout=layout)

    def materialize(self, rows: str) -> None:
        """Create the materialized view of all rows of the table with this suffix."""
        self._run("create view", tables=[rows])

    def materialize_join(self, rows: str, cells: str, number: str, columns: Sequence[str]) -> None:
        """Create the materialized view of two tables, which are joined by a column of both.

        Parameters
        ----------
        rows, cells : str
            The ends of the tables' names. No other column is in both.
        number : str
        columns : sequence of str
            Those of the view.
        """
        self._run("create view", tables=[rows, cells], number=number, columns=list(columns))

    def analyze(self, *suffixes: str, columns: Sequence[str] = ()) -> None:
        """Gather the planner's statistics, of all columns or of some."""
        self._run("analyze", suffixes=suffixes, columns=columns)

    def drop(self, suffixes: Sequence[str]) -> None:
        """Drop the relations with these suffixes; what depends on others comes first."""
        self._run("drop staged", suffixes=list(suffixes))

    def publish(
        self,
        name: str,
        entry: Mapping[str, Any],
        *,
        suffixes: Sequence[str],
        closed: Collection[str],
        readers: Sequence[str],
        notes: Mapping[str, Note],
        replace: bool,
    ) -> int:
        """Enter the publication into the catalog, and give the relations its name.

        Parameters
        ----------
        name : str
        entry : mapping
            What the catalog keeps, with the source's id and the time of its registration.
        suffixes : sequence of str
            Of all relations, in the order in which to drop them: what depends on others first.
        closed : collection of str
            Suffixes of the relations that readers may not read.
        readers : sequence of str
        notes : mapping of str to Note
            What comments say about the relations with these suffixes.
        replace : bool
            Whether a publication of this name may be dropped.

        Returns
        -------
        int
            The publication's id.
        """
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
