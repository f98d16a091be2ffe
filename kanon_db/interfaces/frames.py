"""Anonymizes a pandas frame in the private cluster, without a server of one's own."""

from __future__ import annotations

import math
import os
import secrets
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import MAXYEAR, MINYEAR, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeGuard
from uuid import UUID

import numpy as np
import pandas as pd
from psycopg.types.range import Range

from kanon_db.catalog.attributes import KeepRule
from kanon_db.catalog.entries import published_schema
from kanon_db.catalog.names import looks_like_entity, require_plain
from kanon_db.cluster.local_cluster import LocalCluster, default_directory
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.errors import InvalidParameterError, KanonError
from kanon_db.installation.install import install
from kanon_db.interfaces.python import Kanon, ResultFrame
from kanon_db.session.psycopg_session import PsycopgSession, open_connection
from kanon_db.transfer.columns import column_types, find_relation
from kanon_db.wording import explained, for_python

RowKind = Literal["generalized", "freeform", "suppressed"]

_KINDS: Final = ("generalized", "freeform", "suppressed")
_SCHEMA: Final = "public"
_DEPTH: Final = 3
"""How far up the stack whoever calls `anonymize` is, which a decorator wraps."""


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
        not, and have infinite ends where a cell could be anything; ends with more digits than a
        float has are rounded outward. Sets are tuples; suppressed cells and NULLs are missing, as
        ``isna`` tells. Columns of values keep their dtypes where these can be missing.
        ``attrs`` has the ``guarantee``, and the ``metrics``.

    Warns
    -----
    UserWarning
        As ``register_source`` does, such as of a column that seems to say whom a row is about, and
        has recurring values, while no `entity` is given.

    Raises
    ------
    InvalidParameterError
        For another kind: buckets are two tables, which need a database to ask. For values that
        PostgreSQL would not keep as they are, such as nanoseconds, or of several types.
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
    if not isinstance(frame, pd.DataFrame):
        raise InvalidParameterError(
            "only a frame of pandas is anonymized",
            detail=f"it is of the type {type(frame).__name__}",
            hint="make one of it: pandas.DataFrame(...), or its own .to_pandas()",
        )
    lists = {
        "quasi_identifiers": quasi_identifiers, "insensitive": insensitive,
        "also_sensitive": also_sensitive, "identifiers": identifiers,
    }  # fmt: skip
    for parameter, names in lists.items():
        if isinstance(names, str):
            raise InvalidParameterError(
                f"{parameter} must be a list", hint=f"{parameter}=[{names!r}]"
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
    for name in roles:
        _require_name(name)
    # Those that seem to say whom a row is about are looked at, too: rows may be no people.
    roles += [name for name in frame if _is_name(name) and looks_like_entity(name)]
    columns = [_FrameColumn.of(name, frame[name]) for name in dict.fromkeys(roles)]
    chosen = directory or os.environ.get("KANON_DIR")
    dsn = LocalCluster(Path(chosen) if chosen else default_directory()).start()
    install(dsn)
    name = f"frame_{secrets.token_hex(8)}"
    warned: list[str] = []
    with open_connection(dsn) as connection, connection.transaction(force_rollback=True):
        session = PsycopgSession(connection, on_warning=warned.append)
        kanon = Kanon(session)
        with session.transaction():
            _write(session, session.identifier(_SCHEMA, name), columns)
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
        frame_read = _read(session, name, {column.name: column.values.dtype for column in columns})
    for text in dict.fromkeys(warned):
        if not text.startswith("quasi-identifier "):  # which buckets alone show as they are
            warnings.warn(for_python(text), stacklevel=_DEPTH)
    return ResultFrame.of(
        frame_read, guarantee=published.guarantee, metrics=dict(published.metrics)
    )


def _is_name(name: object) -> TypeGuard[str]:
    """Tell whether PostgreSQL can keep a column's name as it is."""
    try:
        _require_name(name)
    except KanonError:
        return False
    return True


def _require_name(name: object) -> None:
    """Refuse a column whose name PostgreSQL would not keep as it is."""
    if not isinstance(name, str):
        raise InvalidParameterError(
            "a column's name is not a text",
            detail=f"column {name!r}",
            hint="name the columns of a copy: frame.set_axis([...], axis=1), with texts such as"
            f" {'_'.join(map(str, name)) if isinstance(name, tuple) else f'column_{name}'!r}",
        )
    if not name or not _is_unicode(name) or "\0" in name or len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidParameterError(
            f"a column's name is empty, longer than {MAX_NAME_BYTES} bytes, or not a text that"
            " PostgreSQL keeps",
            detail=f"column {name!r}",
            hint="give it another one: frame.rename(columns={...: ...})",
        )
    require_plain("a column", name)


@dataclass(frozen=True)
class _FrameColumn:
    """A column of a frame, as PostgreSQL keeps it."""

    name: str
    sql: str
    values: pd.Series[Any]

    @classmethod
    def of(cls, name: str, values: pd.Series[Any] | pd.DataFrame) -> Self:
        """Find the type that keeps all values of a column.

        Raises InvalidParameterError.
        """
        if isinstance(values, pd.DataFrame):
            raise InvalidParameterError(
                "two columns have the same name", detail=f'column "{name}"', hint="rename one"
            )
        dtype: Any = values.dtype
        kind: Any = dtype.categories if isinstance(dtype, pd.CategoricalDtype) else values
        for fits, sql in _DTYPES:
            if fits(kind.dtype):
                return cls(name, sql, values)
        cells = [_plain(value) for value in kind[~kind.isna()]]
        held = {next((one for one in _HELD if isinstance(cell, one)), type(cell)) for cell in cells}
        sql = _HELD.get(next(iter(held)), "") if len(held) == 1 else "" if held else "text"
        if sql == "timestamp":
            zones = {cell.tzinfo is None for cell in cells}
            sql = ("timestamptz" if False in zones else sql) if len(zones) == 1 else ""
        if sql == "bigint" and max(map(abs, cells)) >= 2**63:
            sql = "numeric"
        if not sql:
            names = ", ".join(sorted(one.__name__ for one in held))
            names = "times with and without a time zone" if held == {datetime} else names
            raise InvalidParameterError(
                "a column has values of a type that is not kept",
                detail=f'column "{name}": {names if kind.dtype == "object" else dtype}',
                hint="make them numbers, texts, dates or times of one type each, such as"
                f" frame[{name!r}].astype(str)",
            )
        return cls(name, sql, values)

    def cells(self) -> list[Any]:
        """Return its values as Python's, with None for those that are missing.

        Raises
        ------
        InvalidParameterError
        """
        missing = self.values.isna()
        cells = [
            None if is_missing else _plain(value)
            for value, is_missing in zip(self.values.astype(object), missing, strict=True)
        ]
        if self.sql in ("timestamp", "timestamptz"):
            if any(getattr(value, "nanosecond", 0) for value in cells):
                raise InvalidParameterError(
                    "a time has nanoseconds, of which PostgreSQL keeps microseconds only",
                    detail=f'column "{self.name}"',
                    hint=f"round it: frame[{self.name!r}].dt.round('us')",
                )
            if any(isinstance(value, pd.Timestamp) and not _is_of_python(value) for value in cells):
                raise InvalidParameterError(
                    "a time is in a year before 1 or after 9999, which Python does not have",
                    detail=f'column "{self.name}"',
                    hint=f"make it missing, or a number: frame[{self.name!r}].dt.year",
                )
            return [
                value.to_pydatetime() if isinstance(value, pd.Timestamp) else value
                for value in cells
            ]
        if self.sql == "text" and any(
            value is not None and ("\0" in value or not _is_unicode(value)) for value in cells
        ):
            raise InvalidParameterError(
                "a text holds a NUL character, or is not valid Unicode",
                detail=f'column "{self.name}"',
                hint=f"replace it: frame[{self.name!r}].str.replace('\\0', '')",
            )
        return cells


_api: Final = pd.api.types
_DTYPES: Final[tuple[tuple[Callable[[Any], bool], str], ...]] = (
    (_api.is_bool_dtype, "boolean"),
    # The largest are none of PostgreSQL's integers.
    (lambda dtype: _api.is_unsigned_integer_dtype(dtype) and dtype.itemsize == 8, "numeric"),
    (_api.is_integer_dtype, "bigint"),
    # Longer ones are none of PostgreSQL's.
    (
        lambda dtype: _api.is_float_dtype(dtype) and getattr(dtype, "itemsize", 8) <= 8,
        "double precision",
    ),
    (lambda dtype: isinstance(dtype, pd.DatetimeTZDtype), "timestamptz"),
    (_api.is_datetime64_dtype, "timestamp"),
    (lambda dtype: isinstance(dtype, pd.StringDtype), "text"),
)
_HELD: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    Decimal: "numeric",
    str: "text",
    datetime: "timestamp",
    date: "date",
    time: "time",
    UUID: "uuid",
}
"""The types of objects, and those of PostgreSQL that keep them."""


def _is_of_python(time: pd.Timestamp) -> bool:
    """Tell whether Python's own times have a year."""
    return MINYEAR <= time.year <= MAXYEAR


def _plain(value: Any) -> Any:
    """Return a number of numpy as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _write(session: PsycopgSession, table: str, columns: Sequence[_FrameColumn]) -> None:
    named = [f"{session.identifier(column.name)} {column.sql}" for column in columns]
    session.fetch(f"CREATE TABLE {table} ({', '.join(named)})")
    with (
        session.translate_errors(),
        session.connection.cursor() as cursor,
        cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy,
    ):
        for row in zip(*(column.cells() for column in columns), strict=True):
            copy.write_row(row)
    session.fetch(f"ANALYZE {table}")


def _read(session: PsycopgSession, name: str, dtypes: Mapping[str, Any]) -> pd.DataFrame:
    """Read what is published; columns whose cells are values have their dtypes again."""
    with session.transaction():
        schema = published_schema(session)
        types = column_types(session, find_relation(session, session.identifier(schema, name))[1])
        # A range of days ends before the day after its last one, which Python may not have.
        read = [
            f"CASE WHEN {own} IS NOT NULL THEN ARRAY[lower({own}), upper({own}) - 1] END AS {own}"
            if types[column].type_name == "daterange"
            else own
            for column, own in ((column, session.identifier(column)) for column in types)
        ]
        rows = session.fetch(f"SELECT {', '.join(read)} FROM {session.identifier(schema, name)}")
    frame = pd.DataFrame(index=range(len(rows)))
    for column in types:
        cells = pd.Series([row[column] for row in rows], dtype=object)
        if types[column].type_name == "daterange":
            frame[column] = pd.Series([_days(cell) for cell in cells], dtype=object)
        elif cells.map(lambda value: isinstance(value, Range | list)).any():
            frame[column] = pd.Series([_cell(value) for value in cells], dtype=object)
        else:
            frame[column] = _restore_dtype(cells, dtypes.get(column))
    return frame


def _restore_dtype(cells: pd.Series[Any], dtype: Any) -> pd.Series[Any]:
    """Give cells the dtype of the original, unless it has no value for those that are hidden."""
    if dtype is None:
        return cells.infer_objects()
    if isinstance(dtype, pd.api.extensions.ExtensionDtype):
        return cells.astype(dtype)
    if dtype.kind == "O" or (dtype.kind in "iub" and cells.isna().any()):
        return cells
    return cells.astype(dtype)


def _days(cell: list[date | None] | None) -> Any:
    if cell is None:
        return None
    low, high = cell
    if low is None or high is None:
        return pd.Interval(float("-inf"), float("inf"), closed="neither")
    return pd.Interval(pd.Timestamp(low), pd.Timestamp(high), closed="both")


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return _interval(value) if isinstance(value, Range) else value


def _interval(bounds: Range[Any]) -> Any:
    """Make an interval of a range; whole numbers and days include both ends."""
    low: Any = bounds.lower
    high: Any = bounds.upper
    if low is None or high is None:
        return pd.Interval(float("-inf"), float("inf"), closed="neither")
    closed: Any = {"[]": "both", "[)": "left", "(]": "right", "()": "neither"}[bounds.bounds]
    if closed == "left" and isinstance(high, int):
        high, closed = high - 1, "both"
    if isinstance(low, date):
        return pd.Interval(pd.Timestamp(low), pd.Timestamp(high), closed=closed)
    return pd.Interval(_end(low, -math.inf), _end(high, math.inf), closed=closed)


def _end(end: Any, outward: float) -> int | float:
    """Return the end of a range as a number of Python's; what is longer is rounded outward."""
    if isinstance(end, int):
        return end
    near = float(end)
    if Decimal(repr(near)) == end:
        return near
    if end == end.to_integral_value():
        return int(end)
    return near if (near > end) == (outward > 0) else math.nextafter(near, outward)
