"""Checking joins: which columns they compare, and what they ask of a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kanon_db.counting.checking.scopes import Scope
from kanon_db.counting.expressions import Column, Matched
from kanon_db.counting.layout import Lookup
from kanon_db.counting.reading.query import LookupText, QueryText, RelationText
from kanon_db.counting.refusals import refusal

MOST_LOOKUPS: Final = 8


class LookupTable(NamedTuple):
    """A lookup table as it was found: quoted, with its columns of ordinary types."""

    relation: str
    columns: Mapping[str, Column]


class Joined(NamedTuple):
    """The relations of a query.

    Attributes
    ----------
    scopes : tuple of Scope
        The publication, then the lookup tables.
    lookups : tuple of Lookup
    matches : tuple of Matched
        What the joins that are not outer ask of a record.
    """

    scopes: tuple[Scope, ...]
    lookups: tuple[Lookup, ...]
    matches: tuple[Matched, ...]


def check_relations(text: QueryText) -> None:
    """Refuse more lookup tables than are supported, and two relations of one name.

    Raises
    ------
    UnsupportedQueryError
    """
    if len(text.lookups) > MOST_LOOKUPS:
        raise refusal(f"more than {MOST_LOOKUPS} lookup tables are not supported")
    relations = [text.publication, *(lookup.relation for lookup in text.lookups)]
    if len({relation.alias or relation.name for relation in relations}) < len(relations):
        raise refusal(
            "two relations have the same name", hint="give each a name of its own with AS"
        )


def join(text: QueryText, columns: Mapping[str, Column], tables: Sequence[LookupTable]) -> Joined:
    """Check the joins of a query against the relations that they name.

    Parameters
    ----------
    text : QueryText
    columns : mapping of str to Column
        The publication's.
    tables : sequence of LookupTable
        In the query's order.

    Raises
    ------
    UnsupportedQueryError
        When a join compares anything but a column of the publication with one of its lookup
        table, or columns whose types do not go together.
    """
    publication = Scope(text.publication, columns)
    scopes, lookups, matches = [publication], [], []
    for number, (written, table) in enumerate(zip(text.lookups, tables, strict=True)):
        own, key = _join_columns(written, publication, table.columns)
        via = {
            name: replace(column, lookup=number, via=own.name)
            for name, column in table.columns.items()
        }
        lookups.append(Lookup(table.relation, via[key.name], own))
        scopes.append(Scope(written.relation, via, key.name if written.is_using else None))
        if not written.is_outer:
            matches.append(Matched(via[key.name]))
    return Joined(tuple(scopes), tuple(lookups), tuple(matches))


def _join_columns(
    written: LookupText, publication: Scope, columns: Mapping[str, Column]
) -> tuple[Column, Column]:
    """Tell the publication's join column from the lookup table's."""
    left, right = written.left.parts, written.right.parts
    pairs = [
        (own, key)
        for one, other in ((left, right), (right, left))
        if (own := _find(one, publication.relation, publication.columns)) is not None
        and (key := _find(other, written.relation, columns)) is not None
    ]
    if not pairs or (len(pairs) > 1 and left != right):
        raise refusal(
            "the join does not compare a column of the publication with one of the lookup table",
            hint="write ON <publication>.<column> = <lookup table>.<column>; the lookup table's"
            " column must have an ordinary type",
        )
    own, key = pairs[0]
    is_whole = own.type.category in ("integer", "numeric")
    if not (
        own.type.name == key.type.name
        or (is_whole and key.type.category in ("integer", "numeric"))
        or ({own.type.name, key.type.name} <= {"text", "character varying"})
    ):
        raise refusal(
            f"a column of type {own.type.name} cannot be joined with one of type {key.type.name}",
            hint="give the lookup table's column the type of the publication's",
            detail=f'columns "{own.name}" and "{key.name}"',
        )
    return own, key


def _find(
    parts: tuple[str, ...], relation: RelationText, columns: Mapping[str, Column]
) -> Column | None:
    *qualifier, name = parts
    if qualifier and not relation.answers_to(tuple(qualifier)):
        return None
    return columns.get(name)
