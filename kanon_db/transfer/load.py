"""Loading a CSV file into a new table, with types inferred from its values."""

from __future__ import annotations

import csv
import gzip
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.errors import DatabaseError, DuplicateError, InvalidParameterError, NotFoundError
from kanon_db.session.protocol import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.session.server_errors import DATA_EXCEPTION_CLASS

_CHUNK: Final = 1 << 20
_END_OF_DATA: Final = re.compile(r"(?:^|[\r\n])\\\.(?:[\r\n]|$)")

_TYPES: Final[tuple[tuple[str, str], ...]] = (
    # Types from narrow to wide, each with a pattern that all values of a column must match. With a
    # leading zero, as in a postal code, a column becomes text; also if a cast might refuse a value.
    ("boolean", r"^(t|f|true|false|TRUE|FALSE|True|False)$"),
    ("integer", r"^-?(0|[1-9][0-9]{0,8})$"),
    ("bigint", r"^-?(0|[1-9][0-9]{0,17})$"),
    ("numeric", r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"),
    (
        "double precision",
        r"^-?((0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?$",
    ),
    ("date", r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    ("timestamp", r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?$"),
)
_DATE_AND_TIME: Final = ("date", "timestamp")


@dataclass(frozen=True)
class LoadReport:
    """What was loaded.

    Attributes
    ----------
    table : str
        The new table, quoted as in SQL.
    records : int
    columns : list of (str, str)
        Name and type of each column.
    seconds : float
    """

    table: str
    records: int
    columns: list[tuple[str, str]]
    seconds: float


def load_csv(
    session: PsycopgSession, path: Path, table: str, *, replace: bool = False, null: str = ""
) -> LoadReport:
    """Copy a CSV file with a header line into a new table.

    Parameters
    ----------
    session : PsycopgSession
        In a transaction.
    path : Path
        A ``.csv`` or ``.csv.gz`` file in UTF-8.
    table : str
        The new table as SQL text, like ``census`` or ``public.census``.
    replace : bool
        Whether to drop a table of this name first.
    null : str
        The unquoted text that means NULL; by default an empty field.

    Returns
    -------
    LoadReport

    Raises
    ------
    NotFoundError, InvalidParameterError, DuplicateError
        When the file, its header or the table's name cannot be used.
    DatabaseError
        When the server refuses the data; nothing is kept.
    """
    started = time.perf_counter()
    schema, name = _new_table(session, table)
    target = session.identifier(schema, name)
    staging = session.identifier("pg_temp", f"kanon_load_{secrets.token_hex(8)}")
    with _opened(path) as file:
        header = _header(file, path)
        names = [session.identifier(column) for column in header]
        session.fetch(
            f"CREATE TEMPORARY TABLE {staging} ({', '.join(f'{n} text' for n in names)})"
            " ON COMMIT DROP"
        )
        session.step("copying the file")
        _copy(session, staging, file, null)
    session.step("inferring types")
    types = _infer_types(session, staging, names)
    session.step("writing the table")
    if replace:
        session.fetch(f"DROP TABLE IF EXISTS {target}")
    elif session.fetch("SELECT 1 WHERE to_regclass($1::text) IS NOT NULL", target):
        raise DuplicateError(
            "a relation of this name exists",
            detail=f"table {target}",
            hint="choose another name, or pass --replace",
        )
    types = _write(session, target, staging, names, types)
    session.fetch(f"DROP TABLE {staging}")
    session.fetch(f"ANALYZE {target}")
    count = fetch_one(session, f"SELECT count(*) AS n FROM {target}")
    return LoadReport(
        table=target,
        records=int(count["n"]),
        columns=list(zip(header, types, strict=True)),
        seconds=time.perf_counter() - started,
    )


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except FileNotFoundError:
        raise NotFoundError("there is no such file", detail=str(path)) from None
    except (IsADirectoryError, PermissionError, gzip.BadGzipFile, EOFError) as error:
        raise InvalidParameterError(
            "the file cannot be read", detail=f"{path}: {type(error).__name__}"
        ) from None
    except UnicodeDecodeError:
        raise InvalidParameterError(
            "the file is not in UTF-8", detail=str(path), hint="convert it, for example with iconv"
        ) from None


def _header(file: TextIO, path: Path) -> list[str]:
    where = f"{path}, line 1"
    try:
        # The header has several lines if a name contains a line break.
        header = next(csv.reader(file, strict=True), [])
    except csv.Error:
        raise InvalidParameterError("the header cannot be read as CSV", detail=where) from None
    if not any(header):
        raise InvalidParameterError("the file has no header line", detail=where)
    if len(set(header)) < len(header):
        raise InvalidParameterError(
            "the header names a column twice", detail=f"{where}: {len(header)} columns"
        )
    for position, column in enumerate(header, start=1):
        if not column or "\0" in column or len(column.encode()) > MAX_NAME_BYTES:
            raise InvalidParameterError(
                "the header has a name that no column can have",
                detail=f"{where}, column {position}: names have 1 to {MAX_NAME_BYTES} bytes",
            )
    return header


def _new_table(session: PsycopgSession, table: str) -> tuple[str, str]:
    """Split the name as SQL does; without a schema, the table goes into ``public``."""
    try:
        row = fetch_one(session, "SELECT parse_ident($1::text) AS parts", table)
    except DatabaseError:
        raise InvalidParameterError(
            "the table's name is not a SQL name",
            hint='quote it as in SQL: census, "my table", archive."my table"',
        ) from None
    parts = row["parts"]
    if len(parts) > 2 or any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise InvalidParameterError(
            "the table's name is too long or has too many parts",
            hint=f"write schema.table, each of at most {MAX_NAME_BYTES} bytes",
        )
    return ("public", parts[0]) if len(parts) == 1 else (parts[0], parts[1])


def _copy(session: PsycopgSession, staging: str, file: TextIO, null: str) -> None:
    options = f"FORMAT csv, NULL {session.literal(null)}"
    statement = f"COPY {staging} FROM STDIN WITH ({options})"
    with (
        session.translated_errors(),
        session.connection.cursor() as cursor,
        cursor.copy(statement.encode()) as copy,
    ):
        while chunk := file.read(_CHUNK) + file.readline():  # whole lines
            if _END_OF_DATA.search(chunk):
                raise InvalidParameterError(
                    r"the file has a line that reads \.",
                    detail="PostgreSQL would take it for the end of the data",
                    hint=r'quote the value, as "\."',
                )
            copy.write(chunk)


def _infer_types(session: PsycopgSession, staging: str, names: Sequence[str]) -> list[str]:
    """Return the narrowest type of each column.

    A sample rules out most types, so that each complete column is matched about once.
    """
    sample = f"(SELECT * FROM {staging} LIMIT 1000) AS sample"
    candidates = dict.fromkeys(names, _TYPES)
    chosen: dict[str, str] = {}
    for rows in (sample, *[staging] * len(_TYPES)):
        tests = [
            (name, kind)
            for name, kinds in candidates.items()
            for kind in (kinds if rows == sample else kinds[:1])
        ]
        if not tests:
            break
        matched = [f"bool_and({name} ~ {session.literal(kind[1])})" for name, kind in tests]
        row = fetch_one(session, f"SELECT ARRAY[{', '.join(matched)}] AS fits FROM {rows}")
        for (name, kind), fits in zip(tests, row["fits"], strict=True):
            if rows != sample and fits:
                chosen[name] = kind[0]
                del candidates[name]
            elif rows != sample or fits is False:
                candidates[name] = tuple(other for other in candidates[name] if other != kind)
    return [chosen.get(name, "text") for name in names]


def _write(
    session: PsycopgSession, target: str, staging: str, names: Sequence[str], types: Sequence[str]
) -> list[str]:
    """Create the table; a column with impossible dates, such as 2023-02-30, becomes text."""
    try:
        with session.savepoint():
            _create(session, target, staging, names, types)
        return list(types)
    except DatabaseError as error:
        if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
            raise
    safe = ["text" if name in _DATE_AND_TIME else name for name in types]
    _create(session, target, staging, names, safe)
    return safe


def _create(
    session: PsycopgSession, target: str, staging: str, names: Sequence[str], types: Sequence[str]
) -> None:
    casts = ", ".join(f"{n}::{t} AS {n}" for n, t in zip(names, types, strict=True))
    session.fetch(f"CREATE TABLE {target} AS SELECT {casts} FROM {staging}")
