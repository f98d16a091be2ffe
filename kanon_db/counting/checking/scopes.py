"""Which column a name of the query means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kanon_db.counting.expressions import Column, Name
from kanon_db.counting.reading.query import RelationText
from kanon_db.counting.refusals import refusal


class Scope(NamedTuple):
    """A relation of the query's FROM with the columns that it offers.

    Attributes
    ----------
    relation : RelationText
    columns : mapping of str to Column
    hidden : str or None
        Column that USING merges into the publication's.
    """

    relation: RelationText
    columns: Mapping[str, Column]
    hidden: str | None = None


class Scopes:
    """The relations of a query: the publication, then its lookup tables."""

    def __init__(self, scopes: Sequence[Scope]) -> None:
        self._scopes = scopes

    def has(self, name: str) -> bool:
        """Whether some relation has a column of this name."""
        return any(name in scope.columns for scope in self._scopes)

    def column(self, name: Name) -> Column:
        """Find the one column that a name means.

        Raises
        ------
        UnsupportedQueryError
            When there is none, or there are several.
        """
        *qualifier, column = name.parts
        found = [
            scope.columns[column]
            for scope in self._qualified(tuple(qualifier))
            if column in scope.columns and (qualifier or column != scope.hidden)
        ]
        if not found:
            raise refusal(
                "the query names a column that the publication does not have",
                hint=f"its columns are {', '.join(self._scopes[0].columns)}; strings need"
                " single quotes, not double quotes",
            )
        if len(found) > 1:
            raise refusal(
                "a column's name belongs to several relations", hint="qualify it with the relation"
            )
        return found[0]

    def _qualified(self, qualifier: tuple[str, ...]) -> Sequence[Scope]:
        if not qualifier:
            return self._scopes
        scopes = [scope for scope in self._scopes if scope.relation.answers_to(qualifier)]
        if not scopes:
            raise refusal(
                "a column is qualified with a name that FROM does not have",
                hint="write only the column's name",
            )
        return scopes
