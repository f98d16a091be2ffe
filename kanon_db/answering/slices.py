"""The parts of records, or of sensitive values, that the keys of GROUP BY make, as bitmaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Final, NamedTuple

_MOST_SPARSE: Final = 10
"""Combinations of values, for each one that occurs."""


class Slice(NamedTuple):
    """A group's part of the records or values, with the values of its keys so far."""

    values: tuple[tuple[int, str, int], ...]  # number of the key, JSON, rank
    bits: int


@dataclass(frozen=True)
class Slices:
    """The parts of records, or values, that the keys of one side make, one at a time.

    Only the bitmaps of each attribute are kept, not those of their combinations.
    """

    bits: int
    divisions: Sequence[Sequence[Slice]]
    heartbeat: Callable[[], None]

    def __iter__(self) -> Iterator[Slice]:
        return self._divided(Slice((), self.bits), 0)

    def _divided(self, part: Slice, depth: int) -> Iterator[Slice]:
        if depth == len(self.divisions):
            yield part
            return
        self.heartbeat()
        for other in self.divisions[depth]:
            if both := part.bits & other.bits:
                yield from self._divided(Slice(part.values + other.values, both), depth + 1)

    def count(self, most: int) -> int:
        """Return the number of parts, or more than `most` if there are more.

        Where most combinations do not occur, finding those that do takes long: their number is not
        looked for, and taken as more.
        """
        if prod(map(len, self.divisions)) > _MOST_SPARSE * most:
            return most + 1
        return sum(1 for _ in islice(self, most + 1))
