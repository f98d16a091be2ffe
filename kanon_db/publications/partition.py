"""A publication as a partition of people into buckets, with the values that each bucket holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from kanon_db.algorithms.ground.arrays import IntArray


@dataclass(frozen=True)
class Partition:
    """Where to read it; every name is quoted.

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
