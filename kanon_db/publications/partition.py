"""Where to read who is in which bucket or class of a publication, and what these hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.transfer.columns import Relation


@dataclass(frozen=True)
class Partition:
    """A publication of buckets; every name is quoted.

    Attributes
    ----------
    people : str
        A relation with a row for each record.
    contents : str
        A relation with a row for each value in a bucket.
    bucket, value, count : str
        Columns: the bucket in both relations, the value and how often it occurs.
    quasi_identifiers : mapping of str to str
        Columns of `people`, by their names.
    sensitive : str
        The name of the attribute that the values are of.
    thresholds : callable
        The largest share that each value, by its text, may have, from how often it occurs.
    """

    people: str
    contents: str
    bucket: str
    value: str
    count: str
    quasi_identifiers: Mapping[str, str]
    sensitive: str
    thresholds: Callable[[Sequence[str | None], IntArray], Sequence[Fraction]]


@dataclass(frozen=True)
class Classes:
    """A publication of rows, where those with the same cells are a class; no name is quoted.

    Attributes
    ----------
    relation : Relation
        The published rows.
    cells : sequence of mapping
        The ``name`` of each quasi-identifier, and what its ``cell`` is, as in the layout.
    pattern : str or None
        The column that marks suppressed cells, if there is one.
    others : sequence of str
        What the rows show besides quasi-identifiers.
    sensitive : str or None
    types : mapping of str to object
        What the types of the source's columns were.
    k : int
        The least number of rows of a class that was promised.
    least : int
        The least number of sensitive values in a class that was promised, at least 1.
    thresholds : callable or None
        As of :class:`Partition`; 1 where nothing is promised. None if that is so of all values.
    """

    relation: Relation
    cells: Sequence[Mapping[str, str]]
    pattern: str | None
    others: Sequence[str]
    sensitive: str | None
    types: Mapping[str, object]
    k: int
    least: int
    thresholds: Callable[[Sequence[str | None], IntArray], Sequence[Fraction]] | None

    @property
    def quasi_identifiers(self) -> list[str]:
        """The names of the quasi-identifiers."""
        return [cell["name"] for cell in self.cells]
