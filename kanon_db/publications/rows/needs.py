"""What publishing rows needs, by what was measured (``python -m benchmarks forecast``)."""

from __future__ import annotations

from collections.abc import Mapping

from kanon_db.catalog.entries import Source
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.records import Size


def bytes_of_cells(source: Source, types: Mapping[str, ColumnType], k: int, size: Size) -> float:
    """Forecast how much disk rows with ranges and sets need, and what they are made of.

    Sets are the larger, and how large depends on how many values come together in them: k at most
    in most classes, and fewer where a column has few values.
    """
    columns = source.quasi_identifiers
    n_sets = sum(
        source.is_categorical(column) or types[column].number("") is None for column in columns
    )
    row = 100 + 4.2 * size.width + 20 * len(columns) + (300 + 25 * k) * n_sets
    return row * size.n_records


def bytes_of_values(size: Size) -> float:
    """Forecast the memory that the values of quasi-identifiers take beside the rows.

    That is little where many records have the same ones.
    """
    return 250.0 * size.n_values


def bytes_of_texts(size: Size) -> float:
    """Forecast the memory that the rows themselves take in sorts, which spill to disk."""
    return min(0.3 * size.width * size.n_records, 64e6)
