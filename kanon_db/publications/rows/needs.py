"""What publishing rows needs, by what was measured (``python -m benchmarks forecast``)."""

from __future__ import annotations

from collections.abc import Mapping

from kanon_db.algorithms.recoding.known_shares import MOST_CELLS
from kanon_db.catalog.entries import Source
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.records import Size


def bytes_of_cells(source: Source, types: Mapping[str, ColumnType], k: int, size: Size) -> float:
    """Forecast how much disk rows with ranges and sets need, and what they are made of.

    Sets are the larger, and how large depends on how many values come together in them: k at most
    in most classes, and fewer where a column has few values.
    """
    n_columns, n_sets = len(source.quasi_identifiers), _n_sets(source, types)
    row = 100 + 4.2 * size.width + 20 * n_columns + (300 + 25 * k) * n_sets
    return row * size.n_records


def bytes_of_shares(
    source: Source, types: Mapping[str, ColumnType], n_cells: float, size: Size
) -> float:
    """Forecast the memory in which the shares of values in sets are found, with their texts.

    Parameters
    ----------
    n_cells : float
        Distinct ones that a column may have; of more than :data:`.MOST_CELLS`, nothing is kept.
    """
    width = size.width / (1 + len(source.quasi_identifiers))
    return _n_sets(source, types) * min(n_cells, MOST_CELLS) * (120 + 12 * width)


def _n_sets(source: Source, types: Mapping[str, ColumnType]) -> int:
    """Count the quasi-identifiers whose cells are sets."""
    return sum(
        source.is_categorical(column) or types[column].number("") is None
        for column in source.quasi_identifiers
    )
