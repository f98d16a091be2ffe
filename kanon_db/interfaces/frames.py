"""Anonymizes a pandas frame in the private cluster, without a server of one's own."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import pandas as pd
from psycopg.types.range import Range

from kanon_db.catalog.attributes import KeepRule
from kanon_db.catalog.entries import published_schema
from kanon_db.cluster.local_cluster import LocalCluster, default_directory
from kanon_db.errors import InvalidParameterError
from kanon_db.installation.install import install
from kanon_db.interfaces.python import Kanon, ResultFrame
from kanon_db.session.psycopg_session import PsycopgSession, open_connection
from kanon_db.wording import explained

RowKind = Literal["generalized", "freeform", "suppressed"]

_KINDS: Final = ("generalized", "freeform", "suppressed")
_SCHEMA: Final = "public"


@explained()
def anonymize(
    frame: pd.DataFrame,
    *,
    quasi_identifiers: Iterable[str],
    sensitive: str | None = None,
    insensitive: Iterable[str] = (),
    entity: str | None = None,
    keep: str | None = None,
    also_sensitive: Iterable[str] = (),
    identifiers: Iterable[str] = (),
    attributes: Mapping[str, Any] | None = None,
    kind: RowKind = "generalized",
    directory: str | Path | None = None,
    **given: Any,
) -> pd.DataFrame:
    """Anonymize a frame, and verify the result; the original stays as it is.

    The frame is copied into the private cluster, which is started if it does not run, published
    there to nobody, verified and read back, all in one transaction that is rolled back.

    Parameters
    ----------
    frame : DataFrame
        A row for each person, or several with an `entity`.
    quasi_identifiers : iterable of str
        Columns that others may know about a person.
    sensitive : str, optional
        The column to protect; it is kept as it is.
    insensitive : iterable of str
        Columns to keep as they are. Columns without a role are left out.
    entity : str, optional
        The column that says whom a row is about.
    keep : str, optional
        Which row of each entity is published, such as ``latest by admission``.
    also_sensitive : iterable of str
        Further columns to protect, as `sensitive`.
    identifiers : iterable of str
        Columns that name a person, as all others without a role: they are left out.
    attributes : mapping, optional
        How quasi-identifiers are described and coarsened, as of ``register_source``.
    kind : {"generalized", "freeform", "suppressed"}
    directory : str or Path, optional
        The folder of the private cluster; by default what ``KANON_DIR`` names, or ``.kanon``.
    **given
        Parameters of ``publish_<kind>``, such as ``k=5`` or ``method="mondrian"``.

    Returns
    -------
    DataFrame
        The rows in random order. Ranges are intervals that include both ends unless the range does
        not, and have infinite ends where a cell could be anything; sets are tuples; suppressed
        cells and NULLs are None. ``attrs`` has the ``guarantee``, and the ``metrics``.

    Raises
    ------
    InvalidParameterError
        For another kind: buckets are two tables, which need a database to ask.
    KanonError
        Whatever registering, publishing or verifying refuses.

    Examples
    --------
    ::

        anonymize(people, quasi_identifiers=["age", "town"], sensitive="illness", k=5)
    """
    if kind not in _KINDS:
        raise InvalidParameterError(
            "a frame is anonymized as rows",
            detail=f'kind "{kind}"',
            hint=f"one of {', '.join(_KINDS)}; for buckets, connect to a database",
        )
    known, kept = list(quasi_identifiers), list(insensitive)
    by = None if keep is None else KeepRule.of(keep).by
    also, names = list(also_sensitive), list(identifiers)
    named = (*known, sensitive, *also, *kept, entity, by, *names)
    roles = [name for name in dict.fromkeys(named) if name is not None]
    missing = [name for name in roles if name not in frame.columns]
    if missing:
        raise InvalidParameterError(
            "the frame has no such column", detail=", ".join(map(str, missing))
        )
    chosen = directory or os.environ.get("KANON_DIR")
    dsn = LocalCluster(Path(chosen) if chosen else default_directory()).start()
    install(dsn)
    name = f"frame_{secrets.token_hex(8)}"
    with open_connection(dsn) as connection, connection.transaction(force_rollback=True):
        session = PsycopgSession(connection)
        kanon = Kanon(session)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "frame.csv")
            frame[roles].to_csv(path, index=False)
            kanon.load(path, f"{_SCHEMA}.{name}", types=_types(frame[roles]))
        kanon.register_source(
            f"{_SCHEMA}.{name}", quasi_identifiers=known, sensitive=sensitive, insensitive=kept,
            entity=entity, keep=keep, also_sensitive=also, identifiers=names, attributes=attributes,
        )  # fmt: skip
        published = kanon.perform(
            f"publish_{kind}",
            {
                "source": f"{_SCHEMA}.{name}",
                "publication": name,
                **given,
                "readers": [],
                "dry_run": False,
            },
        )
        found = _read(session, name)
    return ResultFrame.of(found, guarantee=published.guarantee, metrics=dict(published.metrics))


def _types(frame: pd.DataFrame) -> Mapping[str, str]:
    """Give columns the types that they have in the frame: a text of digits stays a text."""
    types = {}
    for name, column in frame.items():
        if pd.api.types.is_bool_dtype(column):
            types[str(name)] = "boolean"
        elif pd.api.types.is_integer_dtype(column):
            types[str(name)] = "bigint"
        elif pd.api.types.is_float_dtype(column):
            types[str(name)] = "double precision"
        elif not pd.api.types.is_datetime64_any_dtype(column) and not _holds_dates(column):
            types[str(name)] = "text"
    return types


def _holds_dates(column: pd.Series[Any]) -> bool:
    return all(isinstance(value, date) for value in column.dropna())


def _read(session: PsycopgSession, name: str) -> pd.DataFrame:
    with session.transaction():
        view = session.identifier(published_schema(session), name)
        rows = session.fetch(f"SELECT * FROM {view}")
    frame = pd.DataFrame(rows)
    for column in frame:
        if frame[column].map(lambda value: isinstance(value, Range | list)).any():
            frame[column] = pd.Series([_cell(value) for value in frame[column]], dtype=object)
    return frame


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return _interval(value) if isinstance(value, Range) else value


def _interval(found: Range[Any]) -> Any:
    """Make an interval of a range; whole numbers and days include both ends."""
    low: Any = found.lower
    high: Any = found.upper
    if low is None or high is None:
        return pd.Interval(float("-inf"), float("inf"), closed="neither")
    closed: Any = {"[]": "both", "[)": "left", "(]": "right", "()": "neither"}[found.bounds]
    if closed == "left" and isinstance(high, int):
        high, closed = high - 1, "both"
    elif closed == "left" and isinstance(high, date) and not isinstance(high, datetime):
        high, closed = high - timedelta(days=1), "both"
    if isinstance(low, date):
        return pd.Interval(pd.Timestamp(low), pd.Timestamp(high), closed=closed)
    number = int if isinstance(low, int) else float
    return pd.Interval(number(low), number(high), closed=closed)
