"""What publishing of any kind needs, by what was measured (``python -m benchmarks forecast``)."""

from __future__ import annotations

from kanon_db.transfer.records import Size


def bytes_of_values(size: Size) -> float:
    """Forecast the memory that the values of quasi-identifiers take beside the rows.

    That is little where many records have the same ones.
    """
    return 250.0 * size.n_values


def bytes_of_texts(size: Size) -> float:
    """Forecast the memory that the rows themselves take in sorts, which spill to disk."""
    return min(0.3 * size.width * size.n_records, 64e6)
