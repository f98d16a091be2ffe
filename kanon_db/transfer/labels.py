"""Sensitive values as text, by which thresholds name them: the same in every session."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from kanon_db.session.protocol import Session
from kanon_db.session.settings import settings
from kanon_db.transfer.columns import ColumnType

_SETTINGS: Final = {
    "bytea_output": "hex",
    "datestyle": "ISO, YMD",
    "extra_float_digits": "1",
    "intervalstyle": "postgres",
    "lc_monetary": "C",
    "timezone": "UTC",
}


def fixed_labels(session: Session) -> AbstractContextManager[None]:
    """Run the block with fixed settings for how values are written.

    Otherwise an analyst's time zone would decide whether verifying finds a threshold. The source is
    read with the caller's own settings, since a view may depend on them.
    """
    return settings(session, _SETTINGS)


def label(value: str) -> str:
    """Return SQL for the text of an expression's value; NULL if the value is NULL.

    Unlike IS NULL, num_nulls() distinguishes a NULL from a row of NULLs. format() uses the type's
    output function, which a cast to text may not.
    """
    return f"CASE WHEN num_nulls({value}) = 0 THEN format('%s', {value}) END"


def label_of(column: ColumnType, value: str) -> str:
    """Return SQL for the text of a column's value, as :func:`label` does; a text is its own."""
    return f"{value}::text" if column.type_name in _TEXTS else label(value)


_TEXTS: Final = ("text", "character varying")


def text_in_set(column: ColumnType, label: str) -> str:
    """Return SQL for the text in a set that stands for a value, from the value's label.

    Texts in sets are compared as they are, so the blanks that fill up a ``char(n)`` must go.
    """
    return f"rtrim({label}, ' ')" if column.type_name == "bpchar" else label
