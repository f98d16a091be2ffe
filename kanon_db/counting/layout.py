"""What the estimator knows of a publication: its columns, and where to count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal as OneOf

Category = OneOf["integer", "numeric", "float", "text", "boolean", "moment", "other"]
"""How constants compare with a column; a ``moment`` is a date or a timestamp."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a publication.

    Attributes
    ----------
    name : str
        As the analyst may write it.
    sql : str
        The same, quoted for a statement.
    type_name : str
        SQL name of its type, without modifiers, safe in a statement.
    category : Category
    operator_schema : str or None
        Quoted schema of the type's own comparison operators; None for PostgreSQL's.
    has_constant_input : bool
        Whether reading a text as this type depends on nothing else (on no setting, say).
    """

    name: str
    sql: str
    type_name: str
    category: Category
    operator_schema: str | None = None
    has_constant_input: bool = True


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """The published relations of a bucketization; all names are quoted.

    Attributes
    ----------
    quasi_identifiers : mapping of str to Column
    sensitive : Column
    qit, sat : str
        Schema-qualified tables.
    bucket_id, count : str
        Columns of QIT and SAT, and of the SAT.
    size : str
        Expression for the size of the bucket whose number is ``bucket_id``, unqualified.
    """

    quasi_identifiers: Mapping[str, Column]
    sensitive: Column
    qit: str
    sat: str
    bucket_id: str
    count: str
    size: str
