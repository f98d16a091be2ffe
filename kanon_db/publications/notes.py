"""What the comments on published relations say about how to use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kanon_db.session import Session, fetch_one


@dataclass(frozen=True)
class Note:
    """How to use a published relation, for people who look at it with any SQL tool.

    Everybody who may connect can read comments, so they name columns, never a value or a figure;
    a guarantee is in ``kanon.publications``, which readers can read. Of a draft, which nobody else
    may read, there are no notes (``kanon.owner_note``).

    Attributes
    ----------
    use : str
        Follows the mark in the relation's comment.
    columns : mapping of str to str
        Comments on columns, by their names.
    """

    use: str
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def plain(self) -> dict[str, Any]:
        """The note as plain JSON."""
        return {"use": self.use, "columns": dict(self.columns)}


class ShownNames:
    """Quotes names where PostgreSQL needs it, as people write them; a session may quote all."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def identifier(self, *parts: str) -> str:
        """Quote a name, or several joined by dots."""
        quoted = "SELECT quote_ident($1::text) AS name"
        return ".".join(fetch_one(self._session, quoted, part)["name"] for part in parts)


MADE_FOR_US = "Made for kanon_db, which answers counts from it; it is not meant for queries."
"""The use of relations that only repeat others."""


def counting(name: str) -> str:
    """Say how to count with an error and bounds; `name` is the publication's, quoted."""
    return (
        f"SELECT * FROM kanon.estimate_count($$SELECT count(*) FROM {name} WHERE ...$$) counts"
        " with a standard error and certain bounds."
    )
