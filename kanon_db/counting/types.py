"""A type as statements need it, and what can be done with it."""

from __future__ import annotations

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
    """

    name: str
    category: Category
    operator_schema: str | None = None
    has_constant_input: bool = True
    labels: tuple[str, ...] = ()
    is_ordered: bool = True
