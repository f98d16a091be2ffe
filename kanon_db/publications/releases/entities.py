"""Reads whom records are about, and recognizes who has been published, and with what.

Publishers stage plain hashes of each record's entity and published values, in a table that belongs
to the owner. The owner hashes these again with keys that nobody else has, and keeps or compares
that; see ``sql/24_entities.sql``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, number_as_seen
from kanon_db.catalog.entries import Publication, Source, run_errand
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.relations import StagedRelations
from kanon_db.session import Session, fetch_one
from kanon_db.session.protocol import Row
from kanon_db.transfer.columns import (
    WHOLE_NUMBERS,
    ColumnType,
    int4_bytes,
    label_of,
    with_numbers,
)
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
    if are_counted and source.keep is None:
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
    return Entities(number_as_seen(codes), found["entities"])


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
            hint="register the source again with keep, such as keep => 'latest by admission', so"
            " that one record of each is published; or publish generalized or suppressed rows,"
            " which count entities",
        )


_WRITTEN_ALIKE: Final = (
    "smallint", "integer", "bigint", "numeric", "uuid", "text", "character varying", "bpchar",
)  # fmt: skip
"""Types of which equal values have equal texts, whatever the settings are."""


_NEW: Final = "_new"
"""The end of the name of the table with those that are new."""


@dataclass(frozen=True)
class RecognizedRecords:
    """What a source has of the people of a publication, in records."""

    again: int  # more than were published of somebody
    # Of as many as were published, those whose published values are others now; None where the
    # ledger does not know the values.
    corrected: int | None
    deleted: int  # published ones that somebody does not have any more
    out: int  # of people who were in the publication, and are not any more
    is_exact: bool  # whether `again` and `deleted` are exact, or at least so many


@dataclass(frozen=True)
class StagedEntities:
    """The staged hashes of some entities."""

    staging: StagedRelations
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


def is_staged(column: ColumnType, value: str, entities: StagedEntities) -> str:
    """Write the condition that an entity is a staged one, or NULL: then it is refused when read."""
    # "IS NULL OR" would be no join: beyond work_mem, the server would look through all staged
    # entities for each row.
    return (
        f"coalesce({digest_of(column, value)}, ''::bytea) IN"
        f" (SELECT e.digest FROM {entities.table} AS e UNION ALL SELECT ''::bytea)"
    )


_SENT: Final = {
    **dict.fromkeys(WHOLE_NUMBERS, "{}"),
    "numeric": "trim_scale({})::text",
    "real": "encode(float4send({}), 'hex')",
    "double precision": "encode(float8send({}), 'hex')",
    "date": "encode(date_send({}), 'hex')",
    "timestamp without time zone": "encode(timestamp_send({}), 'hex')",
    "timestamp with time zone": "encode(timestamptz_send({}), 'hex')",
    "time with time zone": "encode(timetz_send({}), 'hex')",
    "interval": "encode(interval_send({}), 'hex')",
    "money": "encode(cash_send({}), 'hex')",
    "bytea": "encode({}, 'hex')",
}
"""One text for a value of types that settings write otherwise: a source is read with the caller's,
since a view may depend on them."""


def _record_of(columns: Mapping[ColumnType, str]) -> str:
    """Return SQL for the plain hash of some columns' values."""
    texts = (
        _SENT[column.type_name].format(value)
        if column.type_name in _SENT
        else label_of(column, value)
        for column, value in columns.items()
    )
    return f"sha256(convert_to(ROW({', '.join(texts)})::text, 'UTF8'))"


def stage_published(
    session: Session,
    schema: str,
    snapshot: Snapshot,
    column: ColumnType,
    published: Sequence[ColumnType],
    signatures: CodeArray | None = None,
) -> StagedEntities:
    """Stage the entities and records of a snapshot, for the ledger to keep with what is made of it.

    The ledger keeps `signatures`, shape (n_records,), if they are given.
    """
    session.step("hashing entities")
    found = StagedEntities(StagedRelations.begin(session, schema))
    digest = digest_of(column, f"s.{session.identifier(column.name)}")
    record = _record_of({one: f"s.{session.identifier(one.name)}" for one in published})
    table, number, bound = snapshot.table, "NULL::int4", []
    if signatures is not None:
        table, (name,) = with_numbers(session, table, (1, f"r.{snapshot.record}"))
        number, bound = f"s.{name}", [int4_bytes(signatures)]
    found.staging.fill_table(
        "",
        f"SELECT {digest} AS digest, {record} AS record, {number} AS signature FROM {table} AS s",
        *bound,
    )
    return found


def stage_unknown(
    session: Session,
    schema: str,
    source: Source,
    column: ColumnType,
    published: Sequence[ColumnType],
    old: Publication,
) -> tuple[StagedEntities, RecognizedRecords]:
    """Stage the entities of a source that a publication does not have yet, and others.

    The new ones have no signature; those that have one in the publication are there, too, with its
    number. Of those that it has, with what they have now, only numbers are told.
    """
    session.step("looking for new entities")
    staging = StagedRelations.begin(session, schema)
    read = column.read(session)
    record = _record_of({one: one.read(session) for one in published})
    with all_rows(session, source.relation):
        staging.fill_table(
            "",
            f"SELECT {digest_of(column, read)} AS digest, {record} AS record"
            f" FROM {source.relation.rows(session)} AND {read} IS NOT NULL",
        )
    staging.create_table(_NEW, "SELECT ''::bytea AS digest, NULL::int4 AS signature")
    found = run_errand(session, "unknown entities", name=old.name, prefix=staging.name)
    staging.drop([""])
    n_gone = found["known"] - found["people"]
    # Of the records that were published, how many are still there: where it is not known who had
    # how many, those who are gone had one each at least.
    kept, corrected = old.records - n_gone, None
    if found["knows_records"]:
        kept = found["people"] + found["further"]
        corrected = kept - found["same"]
    recognized = RecognizedRecords(
        again=max(found["records"] - kept, 0),
        corrected=corrected,
        deleted=old.records - kept,
        out=found["out"],
        is_exact=corrected is not None or found["known"] == old.records,
    )
    return StagedEntities(staging, _NEW), recognized
