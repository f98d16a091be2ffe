"""How often values occur in the cells of published rows, found from the files alone.

PostgreSQL keeps this beside the rows (`kanon_db.publications.rows.class_table`). Here it is found
when a question first needs it, by the same algorithm, and kept in memory for the next ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.recoding import Sets
from kanon_db.algorithms.recoding.generalized_cells import (
    MOST_CELLS,
    RangeDistributions,
    SetDistributions,
)
from kanon_db.query.layout import CellDescription
from kanon_db.spark.answering.cells import ANYTHING, CellShares
from kanon_db.spark.answering.places import coordinate, nearest
from kanon_db.spark.answering.types import CellColumns, cell_keys
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_KEPT: Final = 64
"""Columns whose shares are kept."""

_kept: dict[tuple[str, ...], CellShares | None] = {}


def kept_shares(
    release: str, name: str, find: Callable[[], CellShares | None]
) -> CellShares | None:
    """Return the shares of a column of a release, which never change."""
    key = release, name
    if key not in _kept:
        while len(_kept) >= _MOST_KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = find()
    return _kept[key]


def find_shares(
    rows: DataFrame, quasi_identifiers: list[str], cell: CellDescription, matches: int | None
) -> CellShares | None:
    """Find the shares of a column; None if it has too many different cells.

    Parameters
    ----------
    rows : DataFrame
    quasi_identifiers : list of str
    cell : Cell
    matches : int or None
        How many originals each cell covers, if it is not all of a class.
    """
    from pyspark.sql import functions as f

    by_cell = CellColumns(cell, 0, None)
    aliases = [f"k{place}" for place in range(len(quasi_identifiers))]
    named = [f.col(quoted(name)).alias(alias)
             for name, alias in zip(quasi_identifiers, aliases, strict=True)]  # fmt: skip
    own = f.col(aliases[quasi_identifiers.index(cell.column.name)])
    with in_own_words("the cells of the rows could not be counted"):
        classes = rows.select(*named, f.lit(1).alias("n"))
        if matches is None:
            classes = rows.select(*named).groupBy(*aliases).agg(f.count("*").alias("n"))
        counted = (
            classes.select(*by_cell(own), "n")
            .groupBy(*by_cell.names)
            .agg(f.sum("n").alias("records"), f.count("*").alias("classes"))
            .limit(MOST_CELLS + 1)
            .toArrow()
        )
    if counted.num_rows > MOST_CELLS:
        return None
    keys, of_row = cell_keys(cell, 0, counted)
    records = np.bincount(of_row, counted["records"].to_numpy(), len(keys)).astype(np.int64)
    n_classes = np.bincount(of_row, counted["classes"].to_numpy(), len(keys))
    there = [i for i, key in enumerate(keys) if key not in (None, ANYTHING)]
    keys, records = [keys[i] for i in there], records[there]
    witnesses = n_classes[there] if matches is None else records / float(matches)
    return (_of_sets if cell.kind == "set" else _of_ranges)(cell, keys, records, witnesses)


def _of_sets(
    cell: CellDescription, keys: list[Any], records: Any, witnesses: Any
) -> CellShares | None:
    codes: dict[str | None, int] = {}
    total = [codes.setdefault(text, len(codes)) for key in keys for text in key]
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    cells = Sets(np.array(total, dtype=np.int32), ends)
    found = SetDistributions.of(cells, records, witnesses, is_tight=cell.is_tight)
    if found is None:
        return None
    shares = np.split(found.shares, ends[:-1])
    return CellShares(
        "of_each",
        {key: (own.tolist(), known)
         for key, own, known in zip(keys, shares, found.known.tolist(), strict=True)},
        {}, np.zeros(1), [],
    )  # fmt: skip


def _of_ranges(
    cell: CellDescription, keys: list[Any], records: Any, witnesses: Any
) -> CellShares | None:
    type_ = cell.column.type
    half = 0.5 if cell.is_discrete else 0.0
    low = np.array([coordinate(key[0], type_) for key in keys]) - half
    high = np.array([coordinate(key[1], type_) for key in keys]) + half
    found = RangeDistributions.of(
        low, high, records, witnesses, is_tight=cell.is_tight, is_discrete=cell.is_discrete
    )
    if found is None:
        return None
    parts = zip(found.first.tolist(), found.last.tolist(), found.own.tolist(), strict=True)
    return CellShares(
        "of_each" if found.is_each else "of_parts",
        {},
        dict(zip(keys, parts, strict=True)),
        np.append(0.0, np.cumsum(found.axis.shares)),
        [nearest(at, type_) for at in found.axis.middles.tolist()],
    )
