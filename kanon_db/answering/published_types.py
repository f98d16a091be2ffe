"""The types of published columns: what a comparison with them means.

A publication describes the types of its source's columns. Whoever published it wrote that, so names
of types are taken from the list below only, and labels are bound as values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kanon_db.answering.estimator import Estimator
from kanon_db.catalog.entries import Publication
from kanon_db.counting.expressions import Category, Column, Type
from kanon_db.counting.layout import Cell, Shares
from kanon_db.counting.types import CATEGORIES, DISCRETE_RANGES, type_in_range
from kanon_db.errors import NotFoundError
from kanon_db.session.protocol import Session
from kanon_db.transfer.columns import ColumnType

_CONSTANT: Final = (
    "uuid", "inet", "cidr", "macaddr", "macaddr8", "bytea", "bit", "bit varying", "oid", "xid8",
    "pg_lsn", "tid", '"char"', "name", "jsonb", "tsvector", "tsquery", "pg_snapshot",
    "txid_snapshot",
)  # fmt: skip
_RANGES: Final = ("int4", "int8", "num", "date", "ts", "tstz")
_DEPENDENT: Final = (
    "interval", "time without time zone", "time with time zone",
    *(f"{of}{kind}" for of in _RANGES for kind in ("range", "multirange")),
)  # fmt: skip
_ELEMENTS: Final = (
    *CATEGORIES, "uuid", "inet", "cidr", "macaddr", "macaddr8", "bytea", "interval", "jsonb",
    "time without time zone", "time with time zone",
)  # fmt: skip
_OTHERS: Final = {
    **dict.fromkeys(_CONSTANT, True),
    **dict.fromkeys((*_DEPENDENT, *(f"{of}[]" for of in _ELEMENTS if of != "bpchar")), False),
}
"""More types of sets' elements: whether reading a text as one depends on nothing else.

Money is none of them: what its texts mean depends on where they are read.
"""

_SPELLED: Final = {"bit": '"bit"'}
"""Types whose plain names mean something else in a cast, here one bit only."""

_SET: Final = "text[]"
_LONGEST: Final = 10_485_760  # characters in char(n), PostgreSQL's limit


@dataclass(frozen=True)
class PublishedTypes:
    """What the columns of one publication mean.

    Attributes
    ----------
    session : Session
    publication : Publication
    estimator : {"published", "paper"}
        Whether values of a cell are as likely as the publication implies, or all the same.
    """

    session: Session
    publication: Publication
    estimator: Estimator = "published"

    def column(self, published: ColumnType) -> Column:
        """Return a column whose values are published as they are, or as their texts."""
        column = plain_column(self.session, published)
        described = self._described(column.name)
        if published.type_name == "text" and (labels := self._labels(described)):
            return replace(column, type=Type("text", "label", labels=labels))
        if described.get("is_ordered") is False:
            category: Category = column.type.category if "type" in described else "label"
            type_ = replace(column.type, category=category, is_ordered=False, has_equality=False)
            return replace(column, type=type_)
        return column

    def cell(
        self, published: ColumnType, kind: str, mark: int | None, labels: object = None
    ) -> Cell:
        """Return a column with what its cells stand for.

        Parameters
        ----------
        kind : str
            What the catalog calls it: a kind of cells, or ``label``.
        mark : int or None
            See :class:`~kanon_db.counting.layout.Cell`.
        labels : object
            What the catalog has of its labels.

        Raises
        ------
        NotFoundError
            When its cells are not of the kind that the catalog says.
        """
        if kind == "value":
            return Cell(self.column(published), "value", mark=mark)
        from kanon_db.counting.writing.labels import checked  # not needed for buckets

        column = plain_column(self.session, published)
        described = self._described(column.name)
        known = checked(labels) if kind == "label" and published.type_name == "text" else None
        if known is not None or (kind == "set" and published.type_name == _SET):
            type_, element = self._element(described)
            return Cell(
                replace(column, type=type_), "set", element, is_discrete=False, mark=mark,
                shares=self._shares(column.name), labels=known,
            )  # fmt: skip
        inside = type_in_range(published.type_name, described.get("type"))
        if kind == "range" and inside is not None:
            return Cell(
                replace(column, type=inside), "range", mark=mark,
                is_discrete=published.type_name in DISCRETE_RANGES,
                shares=self._shares(column.name),
            )  # fmt: skip
        raise NotFoundError(
            "the cells of a published column cannot be read",
            detail=f'column "{column.name}" of {self.publication.name}, type {published.type_name}',
            hint="publish the source again",
        )

    def _element(self, described: Mapping[str, Any]) -> tuple[Type, str]:
        """Return the type of a set's elements, and how a text becomes one."""
        if labels := self._labels(described):
            return Type("text", "label", labels=labels), ""
        name, length = described.get("type"), described.get("length")
        is_ordered = described.get("is_ordered") is not False
        if name == "bpchar":
            is_fit = isinstance(length, int) and 0 < length <= _LONGEST
            cast = f"::character({length})" if is_fit else "::bpchar"
            return Type(name, "text", is_ordered=is_ordered, has_equality=is_ordered), cast
        if name in ("text", "character varying", None) or not isinstance(name, str):
            category: Category = "text" if name or is_ordered else "label"
            type_ = Type("text", category, is_ordered=is_ordered, has_equality=is_ordered)
            return type_, self._collation(described)
        if name in CATEGORIES:
            own = CATEGORIES[name]
            return Type(name, own, has_constant_input=own != "moment"), f"::{name}"
        if name in _OTHERS:
            spelled = _SPELLED.get(name, name)
            return Type(spelled, "other", has_constant_input=_OTHERS[name]), f"::{spelled}"
        # Texts are in another order than values of a type that is not read here, and other texts
        # may be equal.
        return Type("text", "label", is_ordered=False, has_equality=False), ""

    def _collation(self, described: Mapping[str, Any]) -> str:
        """Write the collation of a set's texts, if it is there and a superuser's."""
        given = described.get("collation")
        if not isinstance(given, list) or len(given) != 2:  # schema and name
            return ""
        quoted = self.session.identifier(*map(str, given))
        rows = self.session.fetch(
            "SELECT 1 WHERE kanon.is_safe_collation(to_regcollation($1::text))", quoted
        )
        return f" COLLATE {quoted}" if rows else ""

    def _shares(self, name: str) -> Shares | None:
        if self.estimator == "paper":
            return None
        shares = self.publication.layout.get("shares")
        found = shares.get(name) if isinstance(shares, dict) else None
        return found if found in ("of_each", "of_parts") else None

    def _described(self, name: str) -> Mapping[str, Any]:
        types = self.publication.layout.get("types")
        described = types.get(name) if isinstance(types, dict) else None
        return described if isinstance(described, dict) else {}

    def _labels(self, described: Mapping[str, Any]) -> tuple[str, ...]:
        labels = described.get("labels")
        return tuple(map(str, labels)) if isinstance(labels, list) else ()


def plain_column(session: Session, column: ColumnType) -> Column:
    """Return a column of a relation with its own type."""
    name, schema = column.type_name, column.operator_schema
    quoted = None if schema is None else session.identifier(schema)
    category = CATEGORIES.get(name, "other")
    type_ = Type(_SPELLED.get(name, name), category, quoted, column.has_constant_input)
    return Column(column.name, session.identifier(column.name), type_)
