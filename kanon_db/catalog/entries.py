"""kanon_db's own tables: settings, registered sources, publications."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kanon_db.errors import NotFoundError
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.columns import Relation


@dataclass(frozen=True)
class Source:
    """Microdata as its owner described it with `register_source`.

    Attributes
    ----------
    insensitive : tuple of str
        The columns that rows are published with as they are.
    entity : str or None
        The column that says whom a record is about; None if there is one record of each person.
    columns : tuple of str
        All columns that the relation had when it was registered.
    """

    source_id: int
    relation: Relation
    quasi_identifiers: tuple[str, ...]
    sensitive: str | None
    identifiers: tuple[str, ...]
    attributes: Mapping[str, Mapping[str, Any]]
    columns: tuple[str, ...]
    insensitive: tuple[str, ...] = ()
    entity: str | None = None

    @property
    def published(self) -> list[str]:
        """The columns that publications of rows show, in the order of the source."""
        shown = {*self.quasi_identifiers, self.sensitive, *self.insensitive}
        return [column for column in self.columns if column in shown]

    @property
    def without_role(self) -> list[str]:
        """The columns that have no role, which no publication shows."""
        roles = {*self.published, *self.identifiers, self.entity}
        return [column for column in self.columns if column not in roles]

    def is_categorical(self, column: str) -> bool:
        """Whether a column was registered as categorical, whatever its type."""
        return self.attributes.get(column, {}).get("kind") == "categorical"


@dataclass(frozen=True, kw_only=True)
class Publication:
    """One publication, as the catalog describes it.

    Attributes
    ----------
    parameters : dict
        What the publisher asked for, as plain JSON.
    layout : dict
        What the estimator and the verification need to read the published relations: column
        names and, for buckets, the range of bucket numbers for each size.
    metrics : dict
        The metrics that were measured when it was published; some need the source.
    """

    name: str
    kind: str
    method: str
    source: str
    parameters: Mapping[str, Any]
    layout: Mapping[str, Any]
    records: int
    guarantee: str
    metrics: Mapping[str, float]

    @property
    def left_out(self) -> int:
        """How many records of the source have no published row."""
        return int(self.parameters.get("suppressed", 0))


def published_schema(session: Session) -> str:
    """Return the schema of all published relations, which `kanon install` has chosen."""
    row = fetch_one(session, "SELECT value FROM kanon.setting WHERE name = 'published_schema'")
    return str(row["value"])


def find_source(session: Session, relation: Relation) -> Source:
    """Look up a registered source.

    Raises
    ------
    NotFoundError
        When the relation was not registered.
    """
    rows = session.fetch(
        "SELECT source_id, quasi_identifiers, sensitive, identifiers, attributes::text, columns,"
        " insensitive, entity"
        " FROM kanon.source WHERE schema_name = $1::text AND relation_name = $2::text",
        relation.schema,
        relation.name,
    )
    if not rows:
        raise NotFoundError(
            "the source is not registered",
            detail=f"relation {relation}",
            hint="describe it first with kanon.register_source or `kanon register`",
        )
    (row,) = rows
    lists = ("quasi_identifiers", "identifiers", "columns", "insensitive")
    described = {key: tuple(row[key]) for key in lists}
    attributes = json.loads(row["attributes"])
    return Source(**{**row, **described, "relation": relation, "attributes": attributes})


def find_publication(session: Session, name: str) -> Publication:
    """Look up a publication that the current role may read.

    Raises
    ------
    NotFoundError
        When there is none of that name, or the role may not read it; both look the same.
    """
    rows = session.fetch(
        "SELECT name, kind, method, source, parameters::text AS parameters,"
        " layout::text AS layout, rows AS records, guarantee, metrics::text AS metrics"
        " FROM kanon.publications WHERE name = $1::text",
        name,
    )
    if not rows:
        raise NotFoundError(
            "there is no such publication, or you may not read it",
            detail=f'name "{name}"',
            hint="TABLE kanon.publications lists the ones that you may read",
        )
    row = rows[0]
    described = {key: json.loads(row[key]) for key in ("parameters", "layout", "metrics")}
    return Publication(**{**row, **described})


def source_of(session: Session, name: str) -> Relation:
    """Return the relation that a publication was made from, as it was named then."""
    row = fetch_one(
        session,
        "SELECT source_schema AS schema, source_relation AS name FROM kanon.publication"
        " WHERE name = $1::text",
        name,
    )
    return Relation(**row)


def record_publication(
    session: Session,
    publication: Publication,
    source: Relation,
    *,
    metrics: Mapping[str, float],
    relations: Sequence[str],
) -> int:
    """Enter a publication into the catalog, and return its id."""
    row = fetch_one(
        session,
        "INSERT INTO kanon.publication (name, kind, method, source_schema, source_relation,"
        " parameters, layout, records, guarantee, metrics, relations, source_metrics)"
        " VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::jsonb, $7::jsonb,"
        " $8::bigint, $9::text, $10::jsonb, $11::text[], $12::jsonb) RETURNING publication_id",
        publication.name,
        publication.kind,
        publication.method,
        source.schema,
        source.name,
        json.dumps(publication.parameters, ensure_ascii=False),
        json.dumps(publication.layout, ensure_ascii=False),
        str(publication.records),
        publication.guarantee,
        json.dumps(metrics, ensure_ascii=False),
        list(relations),
        json.dumps(publication.metrics),
    )
    return int(row["publication_id"])


def record_attacks(session: Session, name: str, found: Sequence[Mapping[str, Any]]) -> None:
    """Keep with a publication what attacks on it achieved, and when they were played."""
    session.fetch(
        "UPDATE kanon.publication SET attacks ="
        " jsonb_build_object('at', now(), 'found', $2::text::jsonb) WHERE name = $1::text",
        name,
        json.dumps(found),
    )
