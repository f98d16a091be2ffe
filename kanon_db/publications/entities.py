"""Whom records are about, where several of them can be about the same person."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.catalog.entries import Source
from kanon_db.errors import InvalidParameterError
from kanon_db.session import fetch_one
from kanon_db.session.protocol import Row
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import read_integers


@dataclass(frozen=True, eq=False)
class Entities:
    """Whom each record is about.

    Attributes
    ----------
    codes : ndarray of int, shape (n_records,)
        A number from 0 on for each entity.
    number : int
        How many entities there are, fewer than records.
    """

    codes: AnyIntArray
    number: int


def read_entities(snapshot: Snapshot, source: Source, *, are_counted: bool) -> Entities | None:
    """Read whom each record is about; None if there is one record of each entity.

    Parameters
    ----------
    snapshot : Snapshot
        With the column of entities, if the source has one.
    source : Source
    are_counted : bool
        Whether the publication counts entities, and not records.

    Raises
    ------
    InvalidParameterError
        When the entity of a record is NULL, or entities with several records cannot be counted.
    """
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
    """Write the statement that counts entities, and those with several records.

    Parameters
    ----------
    name, table : str
        The column of entities and its table, quoted.
    """
    return (
        "SELECT count(*) AS entities, count(*) FILTER (WHERE n > 1) AS repeated, max(n) AS most,"
        " coalesce(sum(n) FILTER (WHERE is_null), 0)::int8 AS without"
        f" FROM (SELECT count(*) AS n, num_nulls({name}) > 0 AS is_null FROM {table}"
        f" GROUP BY {name}) AS entity"
    )


def require_entities(found: Row, source: Source) -> None:
    """Refuse records without an entity, by what :func:`entity_statement` has counted.

    Raises
    ------
    InvalidParameterError
    """
    if found["without"]:
        raise InvalidParameterError(
            "some records have no entity",
            detail=f'column "{source.entity}" of {source.relation} is NULL in {found["without"]}'
            " records",
            hint="publish a view that leaves these records out, or gives each an entity of its own",
        )


def require_one_record(found: Row, source: Source) -> None:
    """Refuse records without an entity, and several records of one.

    Raises
    ------
    InvalidParameterError
    """
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
