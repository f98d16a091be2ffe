"""Loads a CSV file into a new table, with types inferred from its values.

The file is first copied into a temporary table of texts (`StagedFile`), where the server says
which types its columns can have, and which line does not fit.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.declaration.parameter_types import read_object
from kanon_db.declaration.shown import ShownResult
from kanon_db.errors import DatabaseError, DuplicateError, InvalidParameterError, NotFoundError
from kanon_db.session.protocol import DATA_EXCEPTION_CLASS, fetch_one
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.csv_file import CsvFile, shown_encoding

_COMMA_FILES: Final = ";"
"""Delimiter of files whose numbers may have a decimal comma: it is used because of them."""

_PARTS: Final = {
    # PostgreSQL's words for the parts of a date format, and the pattern that each matches.
    "YYYY": "[0-9]{4}",
    "MM": "0?[1-9]|1[0-2]",
    "DD": "0?[1-9]|[12][0-9]|3[01]",
    "HH24": "[01]?[0-9]|2[0-3]",
    "MI": "[0-5][0-9]",
    "SS": "[0-5][0-9]",
}
_WORD: Final = re.compile("|".join(_PARTS))
_FORMAT: Final = re.compile(f"(?:(?:{_WORD.pattern})[-./:, ]*)+")
_DATE: Final = ("YYYY", "MM", "DD")
_TIME: Final = ("HH24", "MI", "SS")

_ORDERED_DATES: Final = ("DD.MM.YYYY", "YYYY/MM/DD", "YYYY.MM.DD")
"""Date formats whose order of day and month is beyond doubt."""


@dataclass(frozen=True)
class ValueType:
    """A type that a column's texts may have."""

    sql: str  # PostgreSQL's name of it
    pattern: str  # What all its texts match
    # How the groups of the pattern make a date that PostgreSQL reads, if it would not read these
    iso: str = ""
    has_comma: bool = False  # Whether they may have a decimal comma
    note: str = ""  # What is worth knowing about the guess

    @property
    def may_fail(self) -> bool:
        """Tell whether a text may match without being a date, such as 30 February."""
        return self.sql in ("date", "timestamp")


TEXT: Final = ValueType("text", "")


@dataclass(frozen=True)
class DateFormat:
    """A format of dates or times, such as ``DD.MM.YYYY`` or ``YYYY-MM-DD HH24:MI``.

    Raises
    ------
    InvalidParameterError
    """

    text: str

    def __post_init__(self) -> None:
        words = _WORD.findall(self.text)
        known = (sorted(_DATE), sorted([*_DATE, *_TIME[:2]]), sorted([*_DATE, *_TIME]))
        if not _FORMAT.fullmatch(self.text) or sorted(words) not in known:
            raise InvalidParameterError(
                "the date format is not known",
                hint="write it with YYYY, MM and DD, and HH24, MI and SS for a time: date_format =>"
                " 'DD.MM.YYYY' or 'MM/DD/YYYY HH24:MI'",
            )

    @property
    def pattern(self) -> str:
        """Return the pattern of dates of this format, with a group for each part."""
        between = _WORD.split(self.text)
        # Without separators, only numbers of two digits can be told apart.
        optional = "?" if all(between[1:-1]) else ""
        groups = [f"({_PARTS[word].replace('?', optional)})" for word in _WORD.findall(self.text)]
        marks = [re.escape(mark) for mark in between]
        return f"^{''.join(a + b for a, b in zip(marks, [*groups, '$'], strict=True))}"

    @property
    def type(self) -> ValueType:
        """The type of a column with such dates."""
        place = {word: f"\\{n}" for n, word in enumerate(_WORD.findall(self.text), start=1)}
        sql = "timestamp" if "HH24" in place else "date"
        time = ":".join(place[word] for word in _TIME if word in place)
        iso = f"{place['YYYY']}-{place['MM']}-{place['DD']} {time}".rstrip()
        return ValueType(sql, self.pattern, iso=iso, note=f"read as date_format => '{self.text}'")


_PLAIN: Final = (
    # From narrow to wide. With a leading zero, as in a postal code, a column becomes text; also if
    # a cast might refuse a value.
    ("boolean", "^(t|f|true|false|TRUE|FALSE|True|False)$"),
    ("integer", "^-?(0|[1-9][0-9]{0,8})$"),
    ("bigint", "^-?(0|[1-9][0-9]{0,17})$"),
)
_DECIMAL: Final = (
    ("numeric", "^-?(0|[1-9][0-9]*)(@[0-9]+)?$"),
    (
        "double precision",
        "^-?((0|[1-9][0-9]{0,30})(@[0-9]{1,30})?|@[0-9]{1,30})([eE][+-]?[0-9]{1,2})?$",
    ),
)
_ISO: Final = (
    ("date", "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    ("timestamp", "^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,6})?)?$"),
)


def has_decimal_comma(decimal: str | None, delimiter: str) -> bool:
    """Tell whether numbers may have a decimal comma."""
    return (decimal or (delimiter == _COMMA_FILES and ",")) == ","


def likely_types(
    delimiter: str, decimal: str | None = None, date_format: DateFormat | None = None
) -> tuple[ValueType, ...]:
    """Return the types to try, from narrow to wide.

    Parameters
    ----------
    delimiter : str
        The file's.
    decimal : str, optional
        The decimal sign, a point or a comma. By default it is guessed for each column, and a comma
        only in files that are separated by semicolons.
    date_format : DateFormat, optional
        The one format of dates beside ISO; by default several are tried.
    """
    marks = [decimal] if decimal else [".", ","] if delimiter in _COMMA_FILES else ["."]
    return (
        *([date_format.type] if date_format else []),
        *(ValueType(sql, pattern) for sql, pattern in _PLAIN),
        *(_decimal_type(sql, pattern, mark) for mark in marks for sql, pattern in _DECIMAL),
        *_doubtful_numbers(decimal, delimiter),
        *(ValueType(sql, pattern) for sql, pattern in _ISO),
        *([] if date_format else _likely_dates()),
    )


def _decimal_type(sql: str, pattern: str, mark: str) -> ValueType:
    if mark == ".":
        return ValueType(sql, pattern.replace("@", "\\."))
    return ValueType(sql, pattern.replace("@", ","), has_comma=True, note="read as decimal => ','")


def _doubtful_numbers(decimal: str | None, delimiter: str) -> Iterator[ValueType]:
    if decimal is None and not has_decimal_comma(decimal, delimiter):
        yield ValueType(
            "text", "^-?(0|[1-9][0-9]*)(,[0-9]+)?$",
            note="if these are numbers with a decimal comma: decimal => ','",
        )  # fmt: skip


def _likely_dates() -> Iterator[ValueType]:
    for clock in ("", " HH24:MI", " HH24:MI:SS"):
        for ordered in _ORDERED_DATES:
            yield DateFormat(ordered + clock).type
        for mark in "/-":
            both = (f"DD{mark}MM{mark}YYYY{clock}", f"MM{mark}DD{mark}YYYY{clock}")
            doubtful = DateFormat(both[0]).pattern.replace(_PARTS["DD"], _PARTS["MM"])
            yield ValueType(
                "text", doubtful,
                note="day or month first? "
                + " or ".join(f"date_format => '{text}'" for text in both),
            )  # fmt: skip
            yield from (DateFormat(text).type for text in both)


_CHUNK: Final = 1 << 20
_END_OF_DATA: Final = re.compile(r"(?:^|[\r\n])\\\.(?:[\r\n]|$)")
_SAMPLE: Final = 1000
"""Values of a column that rule out most types, so that all are matched about once."""


class StagedFile:
    """The columns of a file as texts, in a temporary table.

    Attributes
    ----------
    header : sequence of str
    table : str
        Quoted as in SQL.
    """

    def __init__(self, session: PsycopgSession, file: CsvFile, header: Sequence[str]) -> None:
        self.header = header
        self.table = session.identifier("pg_temp", f"kanon_load_{secrets.token_hex(8)}")
        self._session = session
        self._file = file
        self._names = {column: session.identifier(column) for column in header}
        columns = ", ".join(f"{name} text" for name in self._names.values())
        session.fetch(f"CREATE TEMPORARY TABLE {self.table} ({columns}) ON COMMIT DROP")

    def copy(self, text: TextIO, null: str) -> None:
        """Copy what follows the header.

        Raises
        ------
        InvalidParameterError
            With the line and the column of what is wrong with the file.
        DatabaseError
        """
        session = self._session
        options = (
            f"FORMAT csv, DELIMITER {session.literal(self._file.delimiter)},"
            f" NULL {session.literal(null)}"
        )
        statement = f"COPY {self.table} FROM STDIN WITH ({options})"
        lines = 1 + sum(column.count("\n") for column in self.header)
        try:
            with (
                session.translated_errors(),
                session.connection.cursor() as cursor,
                cursor.copy(statement.encode()) as copy,
            ):
                while chunk := text.read(_CHUNK) + text.readline():  # whole lines
                    if end := _END_OF_DATA.search(chunk):
                        line = lines + chunk.count("\n", 0, chunk.index("\\", end.start())) + 1
                        raise InvalidParameterError(
                            r"the file has a line that reads \.",
                            detail=f"{self._file.path.name}, line {line}: PostgreSQL would take it"
                            " for the end of the data",
                            hint=r'put the value into double quotes: "\."',
                        )
                    copy.write(chunk)
                    lines += chunk.count("\n")
        except DatabaseError as error:
            if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
                raise
            raise self._file.fault() or error from None

    # -- types -----------------------------------------------------------------------------------

    def given_types(
        self, types: Mapping[str, str], decimal: str | None, date_format: DateFormat | None
    ) -> dict[str, ValueType]:
        """Look up the types that were named, by column.

        Raises
        ------
        NotFoundError, InvalidParameterError
        """
        found = {}
        for column, name in types.items():
            if column not in self.header:
                raise NotFoundError(
                    "the file has no such column",
                    detail=f'column "{column}", named in types',
                    hint=f"its columns are {', '.join(self.header)}",
                )
            sql, category = self._looked_up(name, column)
            found[column] = ValueType(
                sql,
                date_format.pattern if date_format and category == "D" else "",
                iso=date_format.type.iso if date_format and category == "D" else "",
                has_comma=category == "N" and has_decimal_comma(decimal, self._file.delimiter),
            )
        return found

    def _looked_up(self, name: str, column: str) -> tuple[str, str]:
        rows = []
        if isinstance(name, str):
            try:
                with self._session.savepoint():
                    rows = self._session.fetch(
                        "SELECT format_type(oid, NULL) AS name, typcategory::text AS category"
                        " FROM pg_type WHERE oid = to_regtype($1::text)",
                        name,
                    )
            except DatabaseError:  # the name is no SQL
                rows = []
        if not rows:
            raise InvalidParameterError(
                "the type of a column is not known",
                detail=f'types, column "{column}"',
                hint="name one of PostgreSQL's types: boolean, integer, bigint, numeric, double"
                " precision, date, timestamp, text",
            )
        return rows[0]["name"], rows[0]["category"]

    def infer(
        self,
        given: Mapping[str, ValueType],
        decimal: str | None,
        date_format: DateFormat | None,
    ) -> dict[str, ValueType]:
        """Return the type of each column: the given one, or the narrowest that all values have.

        Raises
        ------
        InvalidParameterError
            When no column has dates of the given format, but one comes near.
        """
        likely = likely_types(self._file.delimiter, decimal, date_format)
        chosen = dict(given)
        left = {column: self._fit(column, likely) for column in self.header if column not in given}
        while any(left.values()):
            tests = [(column, kinds[0]) for column, kinds in left.items() if kinds]
            row = fetch_one(
                self._session,
                f"SELECT ARRAY[{', '.join(self._matched(*test) for test in tests)}] AS fits"
                f" FROM {self.table}",
            )
            for (column, kind), fits in zip(tests, row["fits"], strict=True):
                if fits:
                    chosen[column] = kind
                left[column] = () if fits else left[column][1:]
        patterns = [kind.pattern for kind in chosen.values()]
        if date_format is not None and date_format.pattern not in patterns:
            self._refuse_misfit(date_format, [name for name in left if name not in chosen])
        return {column: chosen.get(column, TEXT) for column in self.header}

    def _fit(self, column: str, kinds: Sequence[ValueType]) -> tuple[ValueType, ...]:
        """Return the types that the first values of a column have."""
        # Python matches the patterns: the server keeps only 32 compiled, and would compile any
        # further one anew for every row.
        name = self._names[column]
        rows = self._session.fetch(
            f"SELECT {name} AS text FROM {self.table} WHERE {name} IS NOT NULL LIMIT {_SAMPLE}"
        )
        return tuple(
            kind
            for kind in (kinds if rows else ())
            if all(map(re.compile(kind.pattern).search, {row["text"] for row in rows}))
        )

    def _matched(self, column: str, kind: ValueType) -> str:
        return f"bool_and({self._names[column]} ~ {self._session.literal(kind.pattern)})"

    # -- values ----------------------------------------------------------------------------------

    def select(self, types: Mapping[str, ValueType]) -> str:
        """Return the statement that reads the values."""
        columns = [
            f"{self._expression(column, types[column])} AS {name}"
            for column, name in self._names.items()
        ]
        return f"SELECT {', '.join(columns)} FROM {self.table}"

    def _expression(self, column: str, kind: ValueType) -> str:
        text = self._names[column]
        if kind.iso:
            pattern, iso = map(self._session.literal, (kind.pattern, kind.iso))
            text = f"regexp_replace({text}, {pattern}, {iso})"
        if kind.has_comma:
            text = f"replace({text}, ',', '.')"
        return f"{text}::{kind.sql}"

    def can_read(self, column: str, kind: ValueType, n: int | None = None) -> bool:
        """Tell whether all values of a column, or of the first `n` records, have a type."""
        rows = self.table if n is None else f"(SELECT * FROM {self.table} ORDER BY ctid LIMIT {n})"
        try:
            with self._session.savepoint():
                self._session.fetch(
                    f"SELECT count({self._expression(column, kind)}) FROM {rows} AS texts"
                )
        except DatabaseError as error:
            if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
                raise
            return False
        return True

    def require_readable(self, column: str, kind: ValueType) -> None:
        """Refuse a value that does not have the type that it was said to have.

        Raises
        ------
        InvalidParameterError
        """
        if self.can_read(column, kind):
            return
        low, high = 0, int(fetch_one(self._session, f"SELECT count(*) AS n FROM {self.table}")["n"])
        while high - low > 1:  # the first `low` records can be read, the first `high` cannot
            middle = (low + high) // 2
            if self.can_read(column, kind, middle):
                low = middle
            else:
                high = middle
        raise InvalidParameterError(
            f"a value cannot be read as {kind.sql}",
            detail=self._place(column, high),
            hint=f'correct it, or load the column as text: types => \'{{"{column}": "text"}}\'',
        )

    def _refuse_misfit(self, date_format: DateFormat, columns: Sequence[str]) -> None:
        """Refuse a date format that some values of a column have, but not all."""
        pattern = self._session.literal(date_format.pattern)
        for column in columns:
            row = fetch_one(
                self._session,
                f"SELECT min(n) FILTER (WHERE v !~ {pattern}) AS first, bool_or(v ~ {pattern})"
                f" AS near FROM (SELECT row_number() OVER (ORDER BY ctid) AS n,"
                f" {self._names[column]} AS v FROM {self.table}) AS texts",
            )
            if row["near"]:
                raise InvalidParameterError(
                    "a value is no date of the given format",
                    detail=f"{self._place(column, int(row['first']))}: {date_format.text}",
                    hint="correct it, or leave out date_format to load the column as text",
                )
        raise InvalidParameterError(
            "no column has dates of the given format",
            detail=f"{self._file.path.name}: {date_format.text}",
            hint="look at the file, and write the format with YYYY, MM and DD, such as"
            " date_format => 'MM/DD/YYYY'",
        )

    def _place(self, column: str, record: int) -> str:
        line = self._file.line_of(record)
        number = self.header.index(column) + 1
        shown = f' ("{column}")' if column.isprintable() else ""
        return f"{self._file.path.name}, line {line}, column {number}{shown}"


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """Settings for reading a CSV file; those that are None are guessed."""

    null: str = ""  # The unquoted text that means NULL; by default an empty field
    delimiter: str | None = None  # One character, or its name: ``semicolon``, ``tab``, ``bar``
    encoding: str | None = None  # Guessed are only UTF-8 and encodings with a byte-order mark
    # The decimal sign: ``.`` or ``,``. Guessed is a comma only in files with semicolons.
    decimal: str | None = None
    # Such as ``DD.MM.YYYY``. Nothing is guessed where day and month could be either.
    date_format: str | None = None
    # PostgreSQL's types by column; the others are the narrowest that all values have
    types: str | Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise InvalidParameterError(
                "the decimal sign is neither a point nor a comma",
                hint="decimal => '.' or decimal => ','",
            )


@dataclass(frozen=True)
class CsvPreview:
    """A preview of a file, before it becomes a table."""

    delimiter: str
    encoding: str
    columns: list[tuple[str, str]]  # Name and type of each column
    notes: dict[str, str]  # By column, what is worth knowing about its type


@dataclass(frozen=True)
class LoadReport(CsvPreview, ShownResult):
    """The table that was loaded."""

    table: str  # The new table, quoted as in SQL
    records: int
    seconds: float


_PHASES: Final = (
    "copying the file", "inferring types", "reading the values", "writing the table",
)  # fmt: skip


def load_csv(
    session: PsycopgSession,
    path: Path,
    table: str,
    reading: CsvOptions | None = None,
    *,
    replace: bool = False,
    dry_run: bool = False,
    on_found: Callable[[CsvPreview], None] | None = None,
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
    reading : CsvOptions, optional
        How to read the file.
    replace : bool
        Whether to drop a table of this name first.
    dry_run : bool
        Whether to read the whole file, and keep nothing.
    on_found : callable, optional
        Called with what was found, before the table is written.

    Raises
    ------
    NotFoundError, InvalidParameterError, DuplicateError
        When the file, its header, its values or the table's name cannot be used.
    DatabaseError
        When the server refuses the data; nothing is kept.
    """
    started = time.perf_counter()
    reading = reading or CsvOptions()
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
    found = CsvPreview(
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
