"""A type as statements need it, and what can be done with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from typing import Literal as OneOf

Category = OneOf["integer", "numeric", "float", "text", "boolean", "moment", "label", "other"]
"""What can be done with a type; a ``moment`` is a date or a timestamp, a ``label`` the text of a
value whose own type is not published."""

NUMBERS: Final[frozenset[Category]] = frozenset({"integer", "numeric", "float"})


@dataclass(frozen=True, slots=True)
class Type:
    """A type as statements need it.

    Attributes
    ----------
    name : str
        SQL name, without modifiers, safe in a statement.
    category : Category
    operator_schema : str or None
        Quoted schema of the type's own comparison operators; None for PostgreSQL's.
    has_constant_input : bool
        Whether reading a text as this type depends on nothing else (on no setting, say).
    labels : tuple of str
        All values of an enumeration, in their order.
    is_ordered : bool
        Whether ``<`` and ``>`` mean on the publication what they mean on the source.
    has_equality : bool
        Whether values are equal on the publication where they are on the source, and only there.
    """

    name: str
    category: Category
    operator_schema: str | None = None
    has_constant_input: bool = True
    labels: tuple[str, ...] = ()
    is_ordered: bool = True
    has_equality: bool = True


CATEGORIES: Final[Mapping[str, Category]] = {
    **dict.fromkeys(("smallint", "integer", "bigint"), "integer"),
    "numeric": "numeric",
    **dict.fromkeys(("real", "double precision"), "float"),
    **dict.fromkeys(("text", "character varying", "bpchar"), "text"),
    "boolean": "boolean",
    **dict.fromkeys(("date", "timestamp without time zone", "timestamp with time zone"), "moment"),
}
"""The categories of PostgreSQL's own types."""

_RANGES: Final[Mapping[str, tuple[str, ...]]] = {
    "int4range": ("integer", "smallint"),
    "int8range": ("bigint", "integer"),
    "numrange": ("numeric", "bigint", "real", "double precision"),
    "daterange": ("date",),
    "tsrange": ("timestamp without time zone",),
    "tstzrange": ("timestamp with time zone",),
}
"""The types of values whose cells are such ranges; the first one if nothing is described."""

DISCRETE_RANGES: Final = ("int4range", "int8range", "daterange")
"""The types of ranges whose values can be counted."""


def type_in_range(range_type: str, described: object) -> Type | None:
    """Return the type of the values that ranges stand for; None where these are no such ranges.

    Parameters
    ----------
    range_type : str
        Of the published cells.
    described : object
        The name of the source's type, if the catalog has one.
    """
    allowed = _RANGES.get(range_type)
    if allowed is None:
        return None
    name = described if isinstance(described, str) and described in allowed else allowed[0]
    return Type(name, CATEGORIES[name], has_constant_input=CATEGORIES[name] != "moment")
