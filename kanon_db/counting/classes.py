"""Dividing records and values into classes, where a condition needs both sides of a bucketization.

Records are divided into classes by what the condition asks of records alone, and values likewise.
The condition is then evaluated once for each pair of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kanon_db.counting import expressions as ex
from kanon_db.counting.bitmaps import Truth, evaluate, is_combination
from kanon_db.counting.layout import BucketLayout
from kanon_db.counting.sides import Side, by_side, side_of

Labels: TypeAlias = tuple[int, ...]
"""The number of a class's part in each division."""

Classes: TypeAlias = list[tuple[int, Labels]]
"""The bitmaps of classes that have nothing in common, with their labels."""

Pairs: TypeAlias = Callable[[Labels, Labels], bool | None]
"""Whether a condition is true for a class of records and one of values; None is unknown."""


@dataclass(frozen=True)
class Leaves:
    """The parts of a condition by which it is evaluated: on records, on values, and on a pair."""

    records: tuple[ex.Expression, ...]
    values: tuple[ex.Expression, ...]
    pairs: tuple[ex.Expression, ...]


def by_sides(condition: ex.Expression, layout: BucketLayout) -> ex.Expression:
    """Bring the parts of each AND and OR that are on one side together."""
    if side_of(condition, layout) is not None:
        return condition
    inner = ex.rebuilt(condition, lambda part: by_sides(part, layout))
    if not isinstance(inner, ex.And | ex.Or):
        return inner
    kind = type(inner)
    records, values, both = by_side(inner.parts, layout)
    sides = [one for side in (records, values) if (one := ex.joined(kind, side)) is not None]
    return kind((*sides, *both))


def leaves_of(condition: ex.Expression, layout: BucketLayout) -> Leaves:
    """Find the largest parts that are on one side, and what compares both sides."""
    found: tuple[dict[ex.Expression, None], ...] = ({}, {}, {})

    def collect(part: ex.Expression) -> None:
        side = side_of(part, layout)
        if side is None and is_combination(part):
            for inner in ex.children(part):
                collect(inner)
        else:
            found[2 if side is None else side][part] = None

    collect(condition)
    return Leaves(*map(tuple, found))


def divided(classes: Classes, parts: Sequence[int], most: int) -> Classes | None:
    """Divide classes by the part that they are in; None if there would be more than `most`."""
    found = []
    for bits, labels in classes:
        for number, part in enumerate(parts):
            if both := bits & part:
                found.append((both, (*labels, number)))
        if len(found) > most:
            return None
    return found


@dataclass(frozen=True)
class Matching:
    """Which classes of records and of values match; each of them matches one at least.

    Attributes
    ----------
    sides : tuple of list of int
        The bitmaps of the classes of records, and of values.
    matches : list of tuple of bool
        For each class of records, whether it matches each class of values.
    """

    sides: tuple[list[int], list[int]]
    matches: list[tuple[bool, ...]]

    def along(self, side: Side) -> list[tuple[bool, ...]]:
        """Return the matches of each class of one side."""
        return list(zip(*self.matches, strict=True)) if side else self.matches


def match(
    condition: ex.Expression, truths: Mapping[ex.Expression, Pairs], sides: tuple[Classes, Classes]
) -> Matching:
    """Evaluate a condition for each pair of classes, and put alike ones together.

    Parameters
    ----------
    condition : Expression
    truths : mapping
        The truth of each of its leaves.
    sides : tuple of Classes
        Of records and of values.
    """
    records, values = sides
    pairs = [(record, value) for _, record in records for _, value in values]

    def read(leaf: ex.Expression) -> Truth:
        found = [truths[leaf](*pair) for pair in pairs]
        return Truth(
            _bitmap([truth is True for truth in found]), _bitmap([truth is None for truth in found])
        )

    true = evaluate(condition, read, _bitmap([True] * len(pairs)), truths.__contains__).true
    matches = [bit == "1" for bit in reversed(f"{true:0{len(pairs)}b}")]
    width = len(values)
    of_records = _alike(records, [matches[n * width :][:width] for n in range(len(records))])
    rows = list(of_records)
    of_values = _alike(values, [[row[n] for row in rows] for n in range(width)])
    bitmaps = list(of_records.values()), list(of_values.values())
    return Matching(bitmaps, list(zip(*of_values, strict=True)))


def _bitmap(bits: Sequence[bool]) -> int:
    return int("".join("01"[bit] for bit in reversed(bits)) or "0", 2)


def _alike(classes: Classes, rows: Sequence[Sequence[bool]]) -> dict[tuple[bool, ...], int]:
    """Put classes together that match the same, and leave out those that match nothing."""
    found: dict[tuple[bool, ...], int] = {}
    for (bits, _), row in zip(classes, map(tuple, rows), strict=True):
        if any(row):
            found[row] = found.get(row, 0) | bits
    return found
