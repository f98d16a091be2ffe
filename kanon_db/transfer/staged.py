"""A CSV file in a temporary table of texts: which types they have, and which line does not fit."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

from kanon_db.errors import DatabaseError, InvalidParameterError, NotFoundError
from kanon_db.session.protocol import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.session.server_errors import DATA_EXCEPTION_CLASS
from kanon_db.transfer.csv_file import CsvFile
from kanon_db.transfer.value_types import (
    TEXT,
    DateFormat,
    ValueType,
    has_decimal_comma,
    likely_types,
)

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
        """Return the types that the first values of a column have.

        They are matched here, not by the server: it keeps 32 patterns compiled, and would compile
        each of more patterns anew for every row.
        """
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
