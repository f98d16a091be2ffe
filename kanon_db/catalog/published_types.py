"""Says what the columns of a publication are: their types, and what their cells may stand for.

Types decide what comparisons mean. A publication describes those of its source's columns. Its
publisher wrote the description, so names of types are taken from a list only, and labels are bound
as values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, get_args
from typing import Literal as OneOf

from kanon_db.catalog.entries import Publication
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import unknown
from kanon_db.errors import NotFoundError
from kanon_db.query.expressions import CATEGORIES, Category, Column, Type
from kanon_db.query.layout import CellDescription, CellLayout, RowView, Shares, check_described
from kanon_db.query.ranges import RANGES, describe_cells
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.columns import ColumnType, column_types

Estimator = OneOf["published", "paper"]
"""Either the distribution that the publication itself implies, or the papers' assumption that every
matching in a bucket, and every value in a cell, is equally likely."""

NAMES: Final = get_args(Estimator)


def read_estimator(session: Session) -> Estimator:
    """Read the caller's setting.

    Raises InvalidParameterError when the setting names no estimator.
    """
    row = fetch_one(session, "SELECT current_setting('kanon.estimator', true) AS value")
    given = row["value"] or NAMES[0]
    if given not in NAMES:
        raise unknown("estimator", given, NAMES)
    estimator: Estimator = given
    return estimator


_CONSTANT: Final = (
    "uuid", "inet", "cidr", "macaddr", "macaddr8", "bytea", "bit", "bit varying", "oid", "xid8",
    "pg_lsn", "tid", '"char"', "name", "jsonb", "tsvector", "tsquery", "pg_snapshot",
    "txid_snapshot",
)  # fmt: skip
_DEPENDENT: Final = (
    "interval", "time without time zone", "time with time zone",
    *RANGES, *(name.replace("range", "multirange") for name in RANGES),
)  # fmt: skip
_ELEMENTS: Final = (
    *CATEGORIES, "uuid", "inet", "cidr", "macaddr", "macaddr8", "bytea", "interval", "jsonb",
    "time without time zone", "time with time zone",
)  # fmt: skip
_OTHERS: Final = {
    **dict.fromkeys(_CONSTANT, True),
    **dict.fromkeys((*_DEPENDENT, *(f"{of}[]" for of in _ELEMENTS if of != "bpchar")), False),
}
"""More types of sets' elements, and whether their texts mean the same under all settings.

Texts of money do not, so it is not listed.
"""

_SPELLED: Final = {"bit": '"bit"'}
"""Types whose plain names mean another type in a cast: a single bit."""

_SET: Final = "text[]"
_LONGEST: Final = 10_485_760  # characters in char(n), PostgreSQL's limit


@dataclass(frozen=True)
class PublishedTypes:
    """Finds the types of a publication's columns."""

    session: Session
    publication: Publication
    # Whether values of a cell are as likely as the publication implies, or all the same
    estimator: Estimator = "published"

    def column(self, published: ColumnType) -> Column:
        """Return a column whose values are published as they are, or as their texts."""
        described = self._describe(published.name)
        column = self._plain(published, described)
        if published.type_name == "text" and (labels := self._labels(described)):
            return replace(column, type=Type("text", "label", labels=labels))
        if described.get("is_ordered") is False:
            category: Category = column.type.category if "type" in described else "label"
            type_ = replace(column.type, category=category, is_ordered=False, has_equality=False)
            return replace(column, type=type_)
        return column

    def _plain(self, published: ColumnType, described: Mapping[str, Any]) -> Column:
        prefix = described.get("prefix")
        column = plain_column(self.session, published)
        return replace(column, prefix=prefix) if isinstance(prefix, int) else column

    def cell(
        self, published: ColumnType, kind: str, mark: int | None, labels: object = None
    ) -> CellDescription:
        """Describe the cells of a column.

        `kind`: the catalog's kind of cells, or ``label``.
        """
        # `labels`: the catalog's description of labels.
        # Raises NotFoundError when the published cells are of another kind.
        if kind == "value":
            return CellDescription(self.column(published), "value", mark=mark)
        described = self._describe(published.name)
        column = self._plain(published, described)
        known = (
            check_described(labels) if kind == "label" and published.type_name == "text" else None
        )
        if known is not None or (kind == "set" and published.type_name == _SET):
            type_, element = self._element(described)
            return CellDescription(
                replace(column, type=type_), "set", element, is_discrete=False, mark=mark,
                shares=self._shares(column.name), labels=known,
            )  # fmt: skip
        cell = describe_cells(column, published.type_name, described.get("type"))
        if kind == cell.kind == "range":
            return cell._replace(mark=mark, shares=self._shares(column.name))
        raise NotFoundError(
            "the cells of a published column cannot be read",
            detail=f'column "{column.name}" of {self.publication.name}, type {published.type_name}',
            hint="publish the source again",
        )

    def _element(self, described: Mapping[str, Any]) -> tuple[Type, str]:
        """Return the type of a set's elements, and the SQL that reads a text as this type."""
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
        """Write the collation of a set's texts, if it exists and is a superuser's."""
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
        kind = shares.get(name) if isinstance(shares, dict) else None
        return kind if kind in ("of_each", "of_parts") else None

    def _describe(self, name: str) -> Mapping[str, Any]:
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


def types_of_view(session: Session, publication: Publication, view: str) -> dict[str, ColumnType]:
    """Return the columns of a publication's view, which has those of all its tables."""
    # Raises NotFoundError when a column's type does not belong to a superuser any more: the new
    # owner can attach code to the type, which would run with the rights of whoever asks.
    row = fetch_one(session, "SELECT to_regclass($1::text)::oid::text AS oid", view)
    types = column_types(session, row["oid"])
    hidden = [name for name, column in types.items() if column.is_others]
    if hidden:
        raise NotFoundError(
            "the type of a published column belongs to somebody else by now",
            detail=f"{publication.name}: {', '.join(hidden)}",
            hint="the publisher can publish again; it is then published as text",
        )
    return types


def cell_layout(
    session: Session, schema: str, publication: Publication, estimator: Estimator = "published"
) -> CellLayout:
    """Describe published rows, and the values that their cells may stand for."""
    view = RowView.of(session, schema, publication.name, publication.layout)
    types = types_of_view(session, publication, view.view)
    described: dict[str, Any] = dict(publication.layout)
    published = PublishedTypes(session, publication, estimator)
    cells = {
        str(written["name"]): published.cell(
            types[written["name"]],
            written["cell"],
            None if view.pattern is None else position,
            written.get("labels"),
        )
        for position, written in enumerate(described["quasi_identifiers"], start=1)
    }
    cells |= {name: published.cell(types[name], "value", None) for name in described["others"]}
    left_out = publication.left_out
    n_rows = publication.records - left_out
    k = int(publication.parameters.get("k", 1))
    return CellLayout(view, cells, left_out, n_rows, is_paper=estimator == "paper", k=k)
