"""Takes one consistent copy of a source's published columns, private to the transaction."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, Self

from kanon_db.dataclasses import dataclass
from kanon_db.errors import (
    DatabaseError,
    InfeasibleError,
    InvalidParameterError,
    PermissionDeniedError,
)
from kanon_db.session.protocol import INSUFFICIENT_PRIVILEGE, Row, Session, fetch_one, withheld
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.columns import (
    Relation,
    fix_labels,
    incomparable,
    int4_bytes,
    inverse_permutation,
    parts_of,
    selected,
    with_numbers,
)

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import CodeArray, IntArray


@dataclass(frozen=True)
class Size:
    """The amount that there is to read."""

    n_records: int
    width: float  # Bytes of a row of a table, its header included
    n_values: float = 0  # Distinct values of all columns that are to be numbered, together


@dataclass(frozen=True, kw_only=True)
class Records:
    """Records of a source, numbered from 0, all read by one statement."""

    session: Session
    n_records: int
    room: Allowance
    _held: list[float] = field(default_factory=list)

    def hold(self, n_bytes: float, what: str) -> None:
        """Refuse to take more memory for what is read than there is room for, all together.

        Raises InfeasibleError.
        """
        self._held.append(n_bytes)
        self.room.require_memory(
            sum(self._held), what, "take fewer or shorter values, or fewer queries"
        )

    def in_order(self, order: IntArray) -> Self:
        """Give the records other numbers.

        `order`, shape (n_records,): a permutation: the old number of each new record.
        """
        raise NotImplementedError

    def drop(self) -> None:
        """Remove what the server keeps of them before the transaction ends."""


def require_rows(n_records: int, most: int, source: object) -> None:
    """Refuse a source without rows, or with more than may be read.

    Raises InfeasibleError.
    """
    if n_records > most:
        raise InfeasibleError(
            "the source has too many rows",
            detail=f"{source} has more than {most:,} rows, which is all that may be read",
            hint="read a part of it, through a view; docs/howto/operation.md says what limits it",
        )
    if n_records == 0:
        raise InfeasibleError("the source has no rows", detail=f"relation {source}")


MAX_RECORDS = 2**31 - 2
"""Records and buckets have numbers of 4 bytes."""

MOST_BYTES: Final = 50_000
"""The most bytes of a value's text.

The server hears no cancel while it unpacks and compares values for one row, which a query may do
10,000 times.
"""

_MOST_ROWS_UNSEEN: Final = 256
"""Rows of a copy between two looks at its size, at most; a look takes as long as 30 rows."""

_NO_ROOM: Final = "2201G"
"""SQLSTATE of a copy that has become too large: of width_bucket, which no source will use."""

_ROW_HEADER: Final = 28
"""Bytes that a row takes in a table beside its values."""


@dataclass(frozen=True, kw_only=True)
class Snapshot(Records):
    """A temporary table ``(record, columns…)`` with records numbered from 0.

    Everything is computed from this copy: each SQL statement of a READ COMMITTED transaction sees
    a newer state of the source, and LOCK … IN SHARE MODE would need more rights than SELECT.
    What replaces the table with a query says so in ``is_table``. The least and the greatest number
    of columns of whole numbers are in ``ends``; columns without a number are not.
    """

    table: str
    record: str
    is_table: bool = True
    ends: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def size(self) -> Size:
        """Return how much was read, as the server has stored it."""
        row = fetch_one(
            self.session, "SELECT pg_table_size(to_regclass($1::text)) AS bytes", self.table
        )
        return Size(self.n_records, int(row["bytes"]) / self.n_records)

    def parts(self, alias: str) -> list[str]:
        """Divide the copy into parts that can be read at once; see :func:`parts_of`."""
        if not self.is_table:
            return ["true"]
        return parts_of(self.session, self.table, self.n_records, alias)

    def greatest(self, column: str) -> str | None:
        """Return the greatest value of a column as a text; None if there are only NULLs.

        Refuses those where nothing can ever be greater: infinity, and what is no number.
        """
        name = self.session.identifier(column)
        with fix_labels(self.session):
            row = fetch_one(self.session, f"SELECT max({name})::text AS value FROM {self.table}")
        if row["value"] is not None and row["value"].lower() in ("infinity", "nan"):
            raise InvalidParameterError(
                "nothing can come after the greatest value of a column",
                detail=f'column "{column}" has infinity, or what is no number',
                hint="give these records the time when they came, or NULL",
            )
        return None if row["value"] is None else str(row["value"])

    def in_order(self, order: IntArray) -> Self:
        """See :meth:`Records.in_order`; the old copy is dropped."""
        return self.keeping(inverse_permutation(order))

    def keeping(self, places: CodeArray) -> Self:
        """Copy some of the records, numbered anew; the old copy is dropped.

        `places`, int32 of shape (n_records,): new numbers from 0 without gaps, -1 to leave out.
        """
        session = self.session
        table = session.identifier("pg_temp", f"kanon_snapshot_{os.urandom(8).hex()}")
        numbered, (place,) = with_numbers(session, self.table, (1, f"r.{self.record}"))
        session.fetch(
            f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS SELECT * FROM {numbered} AS s"
            f" WHERE s.{place} >= 0",
            int4_bytes(places),
        )
        self.drop()
        n_records = int((places >= 0).sum())
        return replace(self, n_records=n_records, table=table, record=place)

    def drop(self) -> None:
        """Remove the copy before the transaction ends."""
        self.session.fetch(f"DROP TABLE {self.table}")


def estimate_size(session: Session, source: Relation, columns: Sequence[str]) -> Size:
    """Ask the server's planner how much there is to read, without reading it.

    Raises PermissionDeniedError as :func:`take_snapshot`.
    """
    names = selected(session, source, columns)
    with all_rows(session, source):
        (row,) = session.fetch(f"EXPLAIN (FORMAT JSON) SELECT {names} FROM {source.rows(session)}")
    plan = _read_plan(row)
    n_records = plan["Plan Rows"]
    if source.kept is not None:  # of which the planner has no idea
        n_records = int(expected_values(session, source, [source.kept.entity.name]))
    return Size(n_records, plan["Plan Width"] + _ROW_HEADER)


def expected_values(session: Session, source: Relation, columns: Sequence[str]) -> float:
    """Ask the server's planner how many values some columns have, each by itself, together.

    Raises PermissionDeniedError as :func:`take_snapshot`.
    """
    unequal = set(incomparable(session, source, columns))
    there = [column for column in columns if column not in unequal]
    expected = 0
    for column in there:
        read = selected(session, source, [column])
        with all_rows(session, source):
            (row,) = session.fetch(
                f"EXPLAIN (FORMAT JSON) SELECT FROM (SELECT {read} FROM {source.columns(session)})"
                f" AS s GROUP BY s.{session.identifier(column)}"
            )
        expected += _read_plan(row)["Plan Rows"]
    return expected


def _read_plan(row: Row) -> Mapping[str, Any]:
    """Read the plan that EXPLAIN has written."""
    (plan,) = row.values()
    (planned,) = json.loads(plan) if isinstance(plan, str) else plan
    found: Mapping[str, Any] = planned["Plan"]
    return found


def count_records(session: Session, source: Relation, where: str = "true") -> int:
    """Count the rows ``s`` of a source that meet a condition; of those, the kept ones.

    Raises PermissionDeniedError as :func:`take_snapshot`.
    """
    session.step("counting the rows of the source")
    with all_rows(session, source):
        row = fetch_one(session, f"SELECT count(*) AS n FROM {source.rows(session, where)}")
    return int(row["n"])


def take_snapshot(
    session: Session,
    source: Relation,
    columns: Sequence[str],
    room: Allowance,
    most: int = MAX_RECORDS,
    where: str = "true",
) -> Snapshot:
    """Copy the columns of all rows ``s`` of `source` that meet `where`, in one statement."""
    # No more than one row above `most` is copied, and a copy that takes more disk than there is
    # `room` for is refused before it takes a 64th more, or 256 rows.
    session.step("reading the source")
    suffix = os.urandom(8).hex()
    table = session.identifier("pg_temp", f"kanon_snapshot_{suffix}")
    record = session.identifier(f"kanon_record_{suffix}")
    names = selected(session, source, columns)
    # It finds the table while this is filled. A running sum of the values' sizes takes half as long
    # as the copy; this takes a tenth.
    size = f"pg_table_size(to_regclass({session.literal(table)}))"
    try:
        with all_rows(session, source):
            session.fetch(
                f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS SELECT * FROM"
                f" (SELECT (row_number() OVER ())::int4 - 1 AS {record}, {names}"
                f" FROM {source.rows(session, where)} LIMIT {most + 1}) AS copied"
                f" WHERE CASE WHEN {record} % least(1 + {record} / 64, {_MOST_ROWS_UNSEEN}) <> 0"
                f" THEN true WHEN {size} <= {room.disk} THEN true"
                f" ELSE width_bucket({record}, 1, 1, 1) = 1 END"
            )
    except DatabaseError as error:
        if error.sqlstate != _NO_ROOM:
            raise
        raise room.no_disk(
            f"the copy of {source}", "read fewer rows or columns, through a view"
        ) from None
    n_records, ends = _survey(session, source, table)
    require_rows(n_records, most, source)
    return Snapshot(
        session=session, n_records=n_records, room=room, table=table, record=record, ends=ends
    )


def _survey(
    session: Session, source: Relation, table: str
) -> tuple[int, dict[str, tuple[int, int]]]:
    """Count the rows, refuse texts that are too long, and find the ends of whole numbers.

    One scan finds all of that; the server keeps the lengths of texts beside them.
    """
    columns = session.fetch(
        "SELECT attname::text AS name, atttypid = ANY ('{text,varchar,bpchar}'::regtype[]) AS text"
        " FROM pg_attribute WHERE attrelid = to_regclass($1::text) AND attnum > 1"  # the record's
        " AND atttypid = ANY ('{text,varchar,bpchar,smallint,integer,bigint}'::regtype[])",
        table,
    )
    texts = [row["name"] for row in columns if row["text"]]
    numbers = [row["name"] for row in columns if not row["text"]]
    names = [session.identifier(name) for name in numbers]
    lengths = [f"max(octet_length({session.identifier(name)}))" for name in texts]
    survey = fetch_one(
        session,
        f"SELECT count(*) AS n, ARRAY[{', '.join(lengths)}]::int4[] AS longest,"
        f" ARRAY[{', '.join(f'min({name})' for name in names)}]::int8[] AS least,"
        f" ARRAY[{', '.join(f'max({name})' for name in names)}]::int8[] AS greatest FROM {table}",
    )
    for name, longest in zip(texts, survey["longest"], strict=True):
        if longest is not None and longest > MOST_BYTES:
            raise too_long(name, source)
    ends = zip(numbers, survey["least"], survey["greatest"], strict=True)
    return int(survey["n"]), {name: (low, high) for name, low, high in ends if low is not None}


def too_long(column: str, source: object) -> InfeasibleError:
    """Make the refusal of a value of more than :data:`MOST_BYTES`."""
    return InfeasibleError(
        "a value is too long",
        detail=f'column "{column}" of {source} has a text of more than {MOST_BYTES:,} bytes',
        hint="publish a view that shortens it, or leave the column out",
    )


@contextmanager
def all_rows(session: Session, source: Relation, *, copies: bool = True) -> Iterator[None]:
    """Read a source in the block, whole: refuse where the role may not read all of its rows.

    Without `copies`, the block makes no temporary table.
    """
    # With row_security off a query fails where a policy would silently leave rows out.
    (before,) = session.fetch("SELECT current_setting('row_security') AS value")
    session.fetch("SELECT set_config('row_security', 'off', true)")
    try:
        with session.savepoint():
            yield
    except DatabaseError as error:
        if error.sqlstate != INSUFFICIENT_PRIVILEGE:
            raise withheld(error.sqlstate) from None
        if copies:
            _require_unrestricted(session)
        needed = "SELECT on the columns, " + ("TEMPORARY on the database, " if copies else "")
        raise PermissionDeniedError(
            "not all of the source can be read",
            detail=f"relation {source}",
            hint=f"this needs {needed}and no row-level security policy that applies to the role (be"
            " the owner, or have BYPASSRLS)",
        ) from None
    session.fetch("SELECT set_config('row_security', $1::text, true)", before["value"])


def _require_unrestricted(session: Session) -> None:
    """Refuse to run where PostgreSQL allows nobody to create a temporary table."""
    (may,) = session.fetch("SELECT has_database_privilege(current_database(), 'TEMP') AS create")
    if not may["create"]:
        return
    try:
        with session.savepoint():
            table = session.identifier("pg_temp", f"kanon_none_{os.urandom(8).hex()}")
            session.fetch(f"CREATE TEMPORARY TABLE {table} () ON COMMIT DROP")
    except DatabaseError as error:
        if error.sqlstate == INSUFFICIENT_PRIVILEGE:
            raise PermissionDeniedError(
                "this operation cannot be part of a security-restricted one",
                detail="such as REFRESH MATERIALIZED VIEW, CREATE INDEX or ANALYZE, in which"
                " PostgreSQL creates no temporary tables",
                hint="call it in a statement of its own",
            ) from None
        raise
