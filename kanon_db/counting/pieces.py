"""What is known of cells and values, of which answers are put together, and how it is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kanon_db.counting import expressions as ex


@dataclass(frozen=True)
class Unit:
    """A condition, or a part of it whose columns nothing else mentions.

    Attributes
    ----------
    condition : Expression or None
    spread : list of int
        The columns whose values are listed.
    places : list of int
        All of its columns.
    by_cell : mapping of Expression to (str, int)
        The leaves that follow from one cell, with the names of their pieces, and the column.
    by_ends : mapping of Expression to (str, int)
        The same of columns of which the ends of cells are known.
    by_value : mapping of Expression to (str, list of int)
        Those that follow from values, with the columns of these.
    compared : mapping of Expression to (str, int, int)
        Of the latter, comparisons of ranges: what is certain follows from the ends of these two.
    parts : mapping of Expression to Unit
    open_ : list of int
        Listed columns of which a leaf needs all values, for anything to be certain.
    tested : list of int
        Listed ranges of which it is asked whether they hold a NULL.
    """

    condition: ex.Expression | None
    spread: list[int]
    places: list[int]
    by_cell: Mapping[ex.Expression, tuple[str, int]]
    by_ends: Mapping[ex.Expression, tuple[str, int]]
    by_value: Mapping[ex.Expression, tuple[str, list[int]]]
    compared: Mapping[ex.Expression, tuple[str, int, int]]
    parts: Mapping[ex.Expression, Unit]
    open_: list[int]
    tested: list[int]


@dataclass(frozen=True)
class Summed:
    """What is summed.

    Attributes
    ----------
    moments : int or None
        The column whose cells alone decide on it.
    values : list of int
        Otherwise, the columns whose values do.
    own : int or None
        If it is one of these that is listed, itself.
    open_ : list of int
        Listed columns of which all values are needed, for bounds; not of the column itself.
    """

    moments: int | None
    values: list[int]
    own: int | None
    open_: list[int]


@dataclass(frozen=True)
class Pieces:
    """A statement, and what its rows mean.

    Attributes
    ----------
    text : str
        Its rows have a ``piece``, a ``part`` (bytes) and ``texts``.
    bound : tuple of str
        Its values.
    places : dict of str to int
        The number of each column that the request mentions.
    vague : list of int
        Those whose cells stand for several values, and have numbers.
    ended : list of int
        Those whose cells have their ends instead.
    marked : list of int
        Those that have suppressed cells.
    unit : Unit
    keys : list of list of int
        The columns of each group key.
    summed : Summed or None
    together : float
        See `kanon_db.counting.writing.cell_totals`.
    """

    text: str
    bound: tuple[str | list[str], ...]
    places: Mapping[str, int]
    vague: list[int]
    ended: list[int]
    marked: list[int]
    unit: Unit
    keys: list[list[int]]
    summed: Summed | None
    together: float
