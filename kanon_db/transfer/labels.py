"""The texts of sensitive values, by which thresholds are given: the same in every session."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from kanon_db.session.protocol import Session
from kanon_db.session.settings import settings

_SETTINGS: Final = {
    "bytea_output": "hex",
    "datestyle": "ISO, YMD",
    "extra_float_digits": "1",
    "intervalstyle": "postgres",
    "lc_monetary": "C",
    "timezone": "UTC",
}


def fixed_labels(session: Session) -> AbstractContextManager[None]:
    """Run the block under fixed settings of how values are written.

    An analyst's time zone must not decide whether a threshold is found when verifying. Reading
    the source keeps the caller's own settings: a view may depend on them.
    """
    return settings(session, _SETTINGS)


def label(value: str) -> str:
    """Return SQL for the text of a value, an expression; NULL where it is NULL.

    num_nulls() tells a NULL from a row of NULLs, which IS NULL does not; format() uses the type's
    output function, which a cast to text may not.
    """
    return f"CASE WHEN num_nulls({value}) = 0 THEN format('%s', {value}) END"
