"""The texts of sensitive values, by which thresholds are given: the same in every session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from kanon_db.database.session import Session

_SETTINGS: Final = {
    "bytea_output": "hex",
    "datestyle": "ISO, YMD",
    "extra_float_digits": "1",
    "intervalstyle": "postgres",
    "lc_monetary": "C",
    "timezone": "UTC",
}


@contextmanager
def fixed_labels(session: Session) -> Iterator[None]:
    """Run the block under fixed settings of how values are written.

    An analyst's time zone must not decide whether a threshold is found when verifying. Reading
    the source keeps the caller's own settings: a view may depend on them.
    """
    rows = session.fetch(
        "SELECT name, current_setting(name) AS value FROM unnest($1::text[]) AS name",
        list(_SETTINGS),
    )
    _set(session, _SETTINGS)
    yield
    # After an error the server itself puts them back, with the rest of the transaction.
    _set(session, {row["name"]: row["value"] for row in rows})


def label(value: str) -> str:
    """Return SQL for the text of a value, an expression; NULL where it is NULL.

    num_nulls() tells a NULL from a row of NULLs, which IS NULL does not; format() uses the type's
    output function, which a cast to text may not.
    """
    return f"CASE WHEN num_nulls({value}) = 0 THEN format('%s', {value}) END"


def _set(session: Session, settings: Mapping[str, str]) -> None:
    session.fetch(
        "SELECT set_config(name, value, true)"
        " FROM unnest($1::text[], $2::text[]) AS s (name, value)",
        list(settings),
        list(settings.values()),
    )
