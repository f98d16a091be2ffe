"""Loading a CSV file into a new table, with types inferred from its values."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.declaration.shown import Shown
from kanon_db.declaration.types import read_object
from kanon_db.errors import DatabaseError, DuplicateError, InvalidParameterError
from kanon_db.session.protocol import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.session.server_errors import DATA_EXCEPTION_CLASS
from kanon_db.transfer.csv_file import CsvFile, shown_encoding
from kanon_db.transfer.staged import StagedFile
from kanon_db.transfer.value_types import DateFormat, ValueType


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a CSV file is to be read; what is None is guessed.

    Attributes
    ----------
    null : str
        The unquoted text that means NULL; by default an empty field.
    delimiter : str or None
        One character, or its name: ``semicolon``, ``tab``, ``bar``.
    encoding : str or None
        Guessed are only UTF-8 and encodings with a byte-order mark.
    decimal : str or None
        The decimal sign: ``.`` or ``,``. Guessed is a comma only in files with semicolons.
    date_format : str or None
        Such as ``DD.MM.YYYY``. Nothing is guessed where day and month could be either.
    types : mapping of str to str, or JSON, or None
        PostgreSQL's types by column; the others are the narrowest that all values have.
    """

    null: str = ""
    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    date_format: str | None = None
    types: str | Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise InvalidParameterError(
                "the decimal sign is neither a point nor a comma",
                hint="decimal => '.' or decimal => ','",
            )


@dataclass(frozen=True)
class Found:
    """What a file looks like, before it becomes a table.

    Attributes
    ----------
    delimiter, encoding : str
    columns : list of (str, str)
        Name and type of each column.
    notes : dict of str to str
        By column, what is worth knowing about its type.
    """

    delimiter: str
    encoding: str
    columns: list[tuple[str, str]]
    notes: dict[str, str]


@dataclass(frozen=True)
class LoadReport(Found, Shown):
    """What was loaded.

    Attributes
    ----------
    table : str
        The new table, quoted as in SQL.
    records : int
    seconds : float
    """

    table: str
    records: int
    seconds: float


_PHASES: Final = (
    "copying the file", "inferring types", "reading the values", "writing the table",
)  # fmt: skip


def load_csv(
    session: PsycopgSession,
    path: Path,
    table: str,
    reading: Reading | None = None,
    *,
    replace: bool = False,
    dry_run: bool = False,
    on_found: Callable[[Found], None] | None = None,
) -> LoadReport:
    """Copy a CSV file with a header line into a new table.

    Parameters
    ----------
    session : PsycopgSession
        In a transaction.
    path : Path
        A ``.csv`` or ``.csv.gz`` file.
    table : str
        The new table as SQL text, like ``census`` or ``public.census``.
    reading : Reading, optional
        How to read the file.
    replace : bool
        Whether to drop a table of this name first.
    dry_run : bool
        Whether to read the whole file, and keep nothing.
    on_found : callable, optional
        Called with what was found, before the table is written.

    Returns
    -------
    LoadReport

    Raises
    ------
    NotFoundError, InvalidParameterError, DuplicateError
        When the file, its header, its values or the table's name cannot be used.
    DatabaseError
        When the server refuses the data; nothing is kept.
    """
    started = time.perf_counter()
    reading = reading or Reading()
    schema, name = _new_table(session, table)
    target = session.identifier(schema, name)
    if not replace and session.fetch("SELECT 1 WHERE to_regclass($1::text) IS NOT NULL", target):
        raise DuplicateError(
            "a relation of this name exists",
            detail=f"table {target}",
            hint="choose another name, or pass replace => true",
        )
    named = read_object(reading.types or {}, "types")
    date_format = DateFormat(reading.date_format) if reading.date_format else None
    file = CsvFile.of(path, encoding=reading.encoding, delimiter=reading.delimiter)
    with file.opened() as text:
        staged = StagedFile(session, file, file.header(text))
        given = staged.given_types(named, reading.decimal, date_format)
        session.plan(_PHASES)
        session.phase("copying the file")
        staged.copy(text, reading.null)
    session.phase("inferring types")
    types = staged.infer(given, reading.decimal, date_format)
    session.phase("reading the values")
    types = _readable(staged, types, given, date_format)
    found = Found(
        file.delimiter,
        shown_encoding(file.encoding),
        [(column, types[column].sql) for column in staged.header],
        {column: kind.note for column, kind in types.items() if kind.note},
    )
    if on_found is not None:
        on_found(found)
    session.phase("writing the table")
    if not dry_run:
        if replace:
            session.fetch(f"DROP TABLE IF EXISTS {target}")
        session.fetch(f"CREATE TABLE {target} AS {staged.select(types)}")
        session.fetch(f"ANALYZE {target}")
    count = fetch_one(session, f"SELECT count(*) AS n FROM {staged.table}")
    session.fetch(f"DROP TABLE {staged.table}")
    return LoadReport(
        **vars(found),
        table=target,
        records=int(count["n"]),
        seconds=time.perf_counter() - started,
    )


def _readable(
    staged: StagedFile,
    types: Mapping[str, ValueType],
    given: Mapping[str, ValueType],
    date_format: DateFormat | None,
) -> dict[str, ValueType]:
    """Return types as which all values can be read: a guess that fails becomes text."""
    found = dict(types)
    for column, kind in types.items():
        if column in given:
            staged.require_readable(column, kind)
        elif kind.may_fail and not staged.can_read(column, kind):
            if date_format is not None and kind == date_format.type:
                staged.require_readable(column, kind)
            found[column] = ValueType("text", "", note="some of its values are no dates")
    return found


def _new_table(session: PsycopgSession, table: str) -> tuple[str, str]:
    """Split the name as SQL does; without a schema, the table goes into ``public``."""
    try:
        row = fetch_one(session, "SELECT parse_ident($1::text) AS parts", table)
    except DatabaseError as error:
        if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
            raise
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
