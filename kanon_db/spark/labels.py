"""Values as texts: what PostgreSQL writes for them, by which thresholds name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

    from kanon_db.transfer.columns import ColumnType


def label(value: Column, column: ColumnType) -> Column:
    """Return a column's text; NULL for NULL. Inexact numbers have none that both agree on."""
    from pyspark.sql import functions as f

    text = value.cast("string")
    if column.type_name == "boolean":
        return f.when(value, "t").when(~value, "f")
    if column.type_name == "timestamp with time zone":
        return f.concat(text, f.lit("+00"))  # the session's time zone is UTC
    return text
