"""Reads whom records are about, and recognizes who has been published.

Publishers stage a plain hash of each entity, in a table that belongs to the owner. The owner hashes
it again with a key that nobody else has, and keeps or compares that; see ``sql/24_entities.sql``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray
from kanon_db.catalog.entries import Source, run_errand
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.relations import StagedRelations
from kanon_db.session import Session, fetch_one
from kanon_db.session.protocol import Row
from kanon_db.transfer.columns import ColumnType, int4_bytes, with_numbers
from kanon_db.transfer.snapshot import Snapshot, all_rows
from kanon_db.transfer.values import read_integers


@dataclass(frozen=True, eq=False)
class Entities:
    """The entity that each record is about."""

    codes: AnyIntArray  # shape (n_records,); a number from 0 on for each entity
    number: int  # how many entities there are, fewer than records


def read_entities(snapshot: Snapshot, source: Source, *, are_counted: bool) -> Entities | None:
    """Read whom each record is about; None if there is one record of each entity."""
    if source.entity is None:
        return None
    session = snapshot.session
    session.step("counting entities")
    name = session.identifier(source.entity)
    found = fetch_one(session, entity_statement(name, snapshot.table))
    if are_counted:
        require_entities(found, source)
    else:
        require_one_record(found, source)
    if not found["repeated"]:
        return None
    numbered = (
        f"(SELECT {snapshot.record}, dense_rank() OVER (ORDER BY {name})::int4 - 1 AS code"
        f" FROM {snapshot.table})"
    )
    codes = read_integers(replace(snapshot, table=numbered, is_table=False), "s.code")
    return Entities(codes, found["entities"])


def entity_statement(name: str, table: str) -> str:
    """Write the statement that counts entities, and those with several records."""
    return (
        "SELECT count(*) AS entities, count(*) FILTER (WHERE n > 1) AS repeated, max(n) AS most,"
        " coalesce(sum(n) FILTER (WHERE is_null), 0)::int8 AS without"
        f" FROM (SELECT count(*) AS n, num_nulls({name}) > 0 AS is_null FROM {table}"
        f" GROUP BY {name}) AS entity"
    )


def require_entities(found: Row, source: Source) -> None:
    """Refuse records without an entity, by what :func:`entity_statement` has counted."""
    if found["without"]:
        raise InvalidParameterError(
            "some records have no entity",
            detail=f'column "{source.entity}" of {source.relation} is NULL in {found["without"]}'
            " records",
            hint="publish a view that leaves these records out, or gives each an entity of its own",
        )


def require_one_record(found: Row, source: Source) -> None:
    """Refuse records without an entity, and several records of one."""
    require_entities(found, source)
    if found["repeated"]:
        raise InvalidParameterError(
            "several records are about the same entity, and this kind of publication counts"
            " records",
            detail=f"{source.relation}: {found['repeated']} of {found['entities']} entities in"
            f' column "{source.entity}" have several records, one of them {found["most"]}',
            hint="publish generalized or suppressed rows, which count entities, or a view with one"
            " record of each entity",
        )


_WRITTEN_ALIKE: Final = (
    "smallint", "integer", "bigint", "numeric", "uuid", "text", "character varying", "bpchar",
)  # fmt: skip
"""Types of which equal values have equal texts, whatever the settings are."""


_NEW: Final = "_new"
"""The end of the name of the table with those that are new."""


@dataclass(frozen=True)
class StagedEntities:
    """The staged hashes of some entities."""

    staging: StagedRelations
    n_gone: int = 0  # how many of those that have a signature in the publication are not among them
    suffix: str = ""  # the end of the table's name

    @property
    def table(self) -> str:
        """The table, with the columns ``digest`` and ``signature``; quoted."""
        return self.staging.session.identifier(self.staging.schema, self.staging.name + self.suffix)

    def count(self) -> int:
        """Count the records."""
        row = fetch_one(self.staging.session, f"SELECT count(*) AS n FROM {self.table}")
        return int(row["n"])

    def drop(self) -> None:
        """Drop the table before the transaction ends."""
        self.staging.drop([self.suffix])


def can_be_hashed(session: Session, source: Source, types: Mapping[str, ColumnType]) -> bool:
    """Tell whether equal entities of a source have equal texts, so that hashes recognize them."""
    if source.entity is None:
        return False
    column = types[source.entity]
    if column.is_others or column.type_name not in _WRITTEN_ALIKE:
        return False
    row = fetch_one(
        session,
        "SELECT coalesce(l.collisdeterministic, true) AS is_plain FROM pg_attribute AS a"
        " LEFT JOIN pg_collation AS l ON l.oid = a.attcollation"
        " WHERE a.attrelid = to_regclass($1::text) AND a.attname = $2::text",
        source.relation.quoted(session),
        source.entity,
    )
    return bool(row["is_plain"])


def digest_of(column: ColumnType, value: str) -> str:
    """Return SQL for the plain hash of an entity; NULL if it is NULL."""
    # 1.0 and 1.00 are equal, and so are texts of char(n) with blanks at the end.
    text = f"trim_scale({value})::text" if column.type_name == "numeric" else f"{value}::text"
    return f"sha256(convert_to({text}, 'UTF8'))"


def stage_published(
    session: Session,
    schema: str,
    snapshot: Snapshot,
    column: ColumnType,
    signatures: CodeArray | None = None,
) -> StagedEntities:
    """Stage the entities of a snapshot, for the ledger to keep with what is made of it.

    The ledger keeps `signatures`, shape (n_records,), if they are given.
    """
    session.step("hashing entities")
    found = StagedEntities(StagedRelations.begin(session, schema))
    digest = digest_of(column, f"s.{session.identifier(column.name)}")
    table, number, bound = snapshot.table, "NULL::int4", []
    if signatures is not None:
        table, (name,) = with_numbers(session, table, (1, f"r.{snapshot.record}"))
        number, bound = f"s.{name}", [int4_bytes(signatures)]
    found.staging.fill_table(
        "",
        f"SELECT {digest} AS digest, {number} AS signature FROM {table} AS s",
        *bound,
    )
    return found


def stage_unknown(
    session: Session, schema: str, source: Source, column: ColumnType, publication: str, where: str
) -> StagedEntities:
    """Stage the entities of a source that a publication does not have yet, and others.

    `where` is a condition on the rows ``s`` to look at. The new ones have no signature; those that
    have one in the publication are there, too, with its number.
    """
    session.step("looking for new entities")
    staging = StagedRelations.begin(session, schema)
    digest = digest_of(column, column.read(session))
    with all_rows(session, source.relation):
        staging.fill_table(
            "",
            f"SELECT {digest} AS digest, NULL::int4 AS signature"
            f" FROM {source.relation.quoted(session)} AS s"
            f" WHERE ({where}) AND {column.read(session)} IS NOT NULL",
        )
    staging.create_table(_NEW, "SELECT ''::bytea AS digest, NULL::int4 AS signature")
    n_gone = run_errand(session, "unknown entities", name=publication, prefix=staging.name)
    staging.drop([""])
    return StagedEntities(staging, int(n_gone), _NEW)
