"""Loads a CSV file into a new table, with types inferred from its values.

The file is first copied into a temporary table of texts (`StagedFile`), where the server says
which types its columns can have, and which line does not fit.

A reader of others was considered. Of the files in ``tests/acceptance/test_messy_files.py``, DuckDB
2.0 reads 1.234 as a fraction beside 3.228,94, 01/02/2020 as the first of February, and
a column of f as false, drops a line with a field too many, and says nothing of it. pandas guesses,
too. What is guessed here is what the file proves, and what it does not is said.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Final, Self, TextIO

from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.declaration.parameter_types import read_object
from kanon_db.declaration.shown import ShownResult
from kanon_db.errors import (
    DatabaseError,
    DuplicateError,
    InUseError,
    InvalidParameterError,
    NotFoundError,
)
from kanon_db.session.protocol import DATA_EXCEPTION_CLASS, fetch_one
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.csv_file import (
    BLANKS,
    MISSING,
    NEARLY,
    NUMBERS,
    TEXT,
    UNITS,
    CsvFile,
    DateFormat,
    ValueType,
    column_names,
    likely_types,
    shown_encoding,
    unit_type,
)

_END_OF_DATA: Final = re.compile(r"(?:^|[\r\n])\\\.(?:[\r\n]|$)")
_SAMPLE: Final = 1000
"""Values of a column that rule out most types, so that all are matched about once."""

_SPREAD: Final = 2000
"""Records, from all over the file, that say what columns of texts are nearly."""


_MONTHS: Final = "janfebmaraprmayjunjulaugsepoctnovdec"


def _is_day(text: str) -> bool:
    """Tell whether there is such a day; names of months are as good as numbers here."""
    year, month, day = text.split("-")
    number = int(month) if month.isdigit() else _MONTHS.index(month[:3].lower()) // 3 + 1
    try:
        date(int(year), number, int(day))
    except ValueError:
        return False
    return True


class StagedFile:
    """The columns of a file as texts, in a temporary table.

    Attributes
    ----------
    header : sequence of str
    table : str
        Quoted as in SQL.
    """

    def __init__(
        self,
        session: PsycopgSession,
        file: CsvFile,
        header: Sequence[str],
        null: Sequence[str] = (),
        *,
        trim: bool = False,
    ) -> None:
        self.header = list(header)
        self.table = session.identifier("pg_temp", f"kanon_load_{secrets.token_hex(8)}")
        self.n_empty_lines = 0
        self._session = session
        self._file = file
        self._places = {column: n for n, column in enumerate(header, start=1)}
        self._null = null
        self._trim = trim
        self._names = {column: session.identifier(column) for column in header}
        self._units: dict[str, str] = {}
        columns = ", ".join(f"{name} text" for name in self._names.values())
        session.fetch(f"CREATE TEMPORARY TABLE {self.table} ({columns}) ON COMMIT DROP")

    def copy(self, text: TextIO) -> None:
        """Copy what follows the header.

        Raises
        ------
        InvalidParameterError
            With the line and the column of what is wrong with the file.
        DatabaseError
        """
        session = self._session
        options = f"FORMAT csv, DELIMITER {session.literal(self._file.delimiter)}, NULL ''"
        statement = f"COPY {self.table} FROM STDIN WITH ({options})"
        try:
            with (
                session.translated_errors(),
                session.connection.cursor() as cursor,
                cursor.copy(statement.encode()) as copy,
            ):
                for n_left_out, chunk in self._file.records(text, len(self.header)):
                    if _END_OF_DATA.search(chunk):
                        line = self._file.line_that_reads("\\.")
                        raise InvalidParameterError(
                            r"the file has a line that reads \.",
                            detail=f"{self._file.path.name}, line {line}: PostgreSQL would take it"
                            " for the end of the data",
                            hint=r'put the value into double quotes: "\."',
                        )
                    self.n_empty_lines += n_left_out
                    copy.write(chunk)
        except DatabaseError as error:
            if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
                raise
            raise self._file.fault() or error from None

    def drop_unnamed(self, unnamed: Sequence[str]) -> list[str]:
        """Leave out columns without a name if they have no value; returns those that stay."""
        if unnamed:
            counts = ", ".join(f"count({self._names[column]})" for column in unnamed)
            row = fetch_one(self._session, f"SELECT ARRAY[{counts}] AS n FROM {self.table}")
            for column in [name for name, n in zip(unnamed, row["n"], strict=True) if not n]:
                del self._names[column]
                self.header.remove(column)
            if self._file.ends_open and self.header[-1] == unnamed[-1]:
                first = fetch_one(
                    self._session,
                    "SELECT min(n) AS n FROM (SELECT row_number() OVER (ORDER BY ctid) AS n,"
                    f" {self._names[unnamed[-1]]} AS v FROM {self.table}) AS texts"
                    " WHERE v IS NOT NULL",
                )
                raise InvalidParameterError(
                    "a line has more or fewer fields than the header",
                    detail=f"{self._file.path.name}, line {self._file.line_of(int(first['n']))}",
                    hint="put fields that contain the delimiter into double quotes",
                )
        return [column for column in unnamed if column in self._names]

    # -- types -----------------------------------------------------------------------------------

    def given_types(
        self, types: Mapping[str, str], date_format: DateFormat | None
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
            found[column] = ValueType(sql, "", category=category)
            if category == "D" and date_format:
                pattern, rewrites = date_format.pattern, date_format.type.rewrites
                found[column] = replace(found[column], pattern=pattern, rewrites=rewrites)
            elif category == "N":
                self._find_unit(column)
        return found

    def _find_unit(self, column: str) -> None:
        """Find out which unit, such as %, stands before or after each number of a column."""
        for unit in UNITS:
            if self._fits(column, unit_type(unit)):
                self._units[column] = unit

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
        first_year: int | None = None,
    ) -> dict[str, ValueType]:
        """Return the type of each column: the given one, or the narrowest that all values have.

        Raises
        ------
        InvalidParameterError
            When no column has dates of the given format, but one comes near.
        """
        likely = likely_types(self._file.delimiter, decimal, date_format, first_year)
        of_category = {
            "N": [kind for kind in likely if kind.sql in NUMBERS or kind.doubt],
            "D": [kind for kind in likely if kind.may_fail],
        }
        columns = {
            column: of_category.get(given[column].category, ()) if column in given else likely
            for column in self.header
        }
        chosen = self._narrowest(columns)
        signs = {kind.decimal for kind in chosen.values()} - {""}
        doubtful = [column for column, kind in chosen.items() if kind.doubt]
        if doubtful and len(signs) == 1:
            # What the other columns prove holds of the whole file.
            (sign,) = signs
            again = likely_types(self._file.delimiter, sign, date_format, first_year)
            for column, kind in self._narrowest(
                {column: again for column in doubtful if sign in chosen[column].doubt}
            ).items():
                if kind.sql in NUMBERS:
                    note = f"as in other columns, decimal => '{sign}'"
                    chosen[column] = replace(kind, note=note)
        found = {
            column: self._as_given(given[column], chosen.get(column, TEXT), column)
            if column in given
            else chosen.get(column, TEXT)
            for column in self.header
        }
        patterns = [kind.pattern for kind in found.values()]
        if date_format is not None and date_format.pattern not in patterns:
            others = {*chosen, *given}
            self._refuse_misfit(date_format, [name for name in columns if name not in others])
        return found

    def _as_given(self, given: ValueType, found: ValueType, column: str) -> ValueType:
        """Read numbers and dates of a given type as they were found to be written."""
        if found.doubt:
            raise InvalidParameterError(
                "numbers of a column could be a thousandfold larger or smaller",
                detail=f'{self._file.path.name}, column "{column}": a point or a comma stands'
                " before three digits, and nothing tells what it means",
                hint="say which one is the decimal sign: decimal => '.' or decimal => ','",
            )
        rewrites = given.rewrites or found.rewrites
        return replace(given, between=found.between, decimal=found.decimal, rewrites=rewrites)

    def _narrowest(self, columns: Mapping[str, Sequence[ValueType]]) -> dict[str, ValueType]:
        """Return the first type that all values of a column have, of columns that have one."""
        chosen = {}
        left = {column: self._fit(column, kinds) for column, kinds in columns.items()}
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
        return chosen

    def _fit(self, column: str, kinds: Sequence[ValueType]) -> tuple[ValueType, ...]:
        """Return the types that the first values of a column have."""
        # Python matches the patterns: the server keeps only 32 compiled, and would compile any
        # further one anew for every row.
        text = self._text(column)
        rows = self._session.fetch(
            f"SELECT {text} AS text FROM {self.table} WHERE {text} IS NOT NULL LIMIT {_SAMPLE}"
        )
        texts = {row["text"] for row in rows}
        return tuple(
            kind
            for kind in (kinds if rows else ())
            if all(map(re.compile(kind.pattern).search, texts))
        )

    def _fits(self, column: str, kind: ValueType) -> bool:
        return bool(self._narrowest({column: [kind]}))

    def _matched(self, column: str, kind: ValueType) -> str:
        text = self._text(column)
        matched = f"coalesce(bool_and({text} ~ {self._session.literal(kind.pattern)}), false)"
        if kind.n_different > 1:
            matched += f" AND count(DISTINCT {text}) >= {kind.n_different}"
        return matched

    # -- notes -----------------------------------------------------------------------------------

    def notes(self, types: Mapping[str, ValueType]) -> dict[str, str]:
        """Say of each column what is worth knowing, but none of its values.

        A column of texts may be nearly one of numbers or dates, for a few values; texts may have
        blanks around them, or be empty.
        """
        plain = [column for column, kind in types.items() if kind == TEXT]
        near = self._nearly(plain)
        texts = [column for column, kind in types.items() if kind.sql == "text"]
        counts = self._blanks(texts)
        notes = {}
        for column, kind in types.items():
            n_blank, n_empty = counts.get(column, (0, 0))
            name = json.dumps(column, ensure_ascii=False).replace("'", "''")
            said = [
                # Where there is no header line, a record is taken for it.
                "its name could be a value: if the file has no header line, write one"
                if kind.pattern and kind.sql != "text" and re.search(kind.pattern, column)
                else "",
                kind.note.replace('"COLUMN"', name),
                self._missed(column, near[column]) if column in near else "",
                f"{n_blank:,} have blanks around them: trim => true" if n_blank else "",
                f"{n_empty:,} are empty texts in quotes: null => ''" if n_empty else "",
            ]
            if any(said):
                notes[column] = "; ".join(filter(None, said))
        return notes

    def _blanks(self, columns: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Count texts with blanks around them, and empty ones."""
        if not columns:
            return {}
        blanks = self._session.literal(BLANKS)
        counts = ", ".join(
            f"count(*) FILTER (WHERE {text} <> btrim({text}, {blanks})),"
            f" count(*) FILTER (WHERE {text} = '')"
            for text in map(self._unmarked, columns)
        )
        row = fetch_one(self._session, f"SELECT ARRAY[{counts}] AS n FROM {self.table}")
        numbers = iter(map(int, row["n"]))
        return dict(zip(columns, zip(numbers, numbers, strict=True), strict=True))

    def _nearly(self, columns: Sequence[str]) -> dict[str, tuple[str, ValueType]]:
        """Find columns of texts of which most, in a sample, are numbers or dates."""
        if not columns:
            return {}
        texts = ", ".join(self._text(column) for column in columns)
        rows = self._session.fetch(
            f"SELECT ARRAY[{texts}] AS texts FROM {self.table}"
            " WHERE hashtext(ctid::text) & 1048575 <"
            f" 1048576.0 * {_SPREAD} / (SELECT greatest(count(*), 1) FROM {self.table})"
        )
        found = {}
        for place, column in enumerate(columns):
            values = [row["texts"][place] for row in rows if row["texts"][place] is not None]
            values = [value for value in values if value not in MISSING]
            for what, kind in NEARLY:
                matching = re.compile(kind.pattern).search
                if values and sum(map(bool, map(matching, values))) * 2 >= len(values):
                    found[column] = what, kind
        return found

    def _missed(self, column: str, near: tuple[str, ValueType]) -> str:
        """Say how many values keep a column from being of numbers or dates, and what to write."""
        what, kind = near
        text, literal = self._text(column), self._session.literal
        row = fetch_one(
            self._session,
            f"SELECT count(v) AS n, count(v) FILTER (WHERE misses) AS misses,"
            " min(n) FILTER (WHERE misses) AS first,"
            " count(v) FILTER (WHERE misses AND v ~ '^-?0[0-9]+$') AS zeros,"
            " array_agg(DISTINCT v) FILTER (WHERE misses AND v = ANY ($1::text[])) AS words,"
            " count(v) FILTER (WHERE misses AND v = ANY ($1::text[])) AS n_words"
            f" FROM (SELECT row_number() OVER (ORDER BY ctid) AS n, {text} AS v,"
            f" {text} !~ {literal(kind.pattern)} AS misses FROM {self.table}) AS texts",
            sorted(MISSING),
        )
        n, misses = int(row["n"]), int(row["misses"])
        if misses == 0:
            return f"its {what} are written in several ways: make them alike"
        if int(row["zeros"]) == misses:
            return f"{misses:,} of {n:,} begin with 0, as codes do: kept as texts"
        line = self._file.line_of(int(row["first"]))
        said = f"{misses:,} of {n:,} values are no {what}, the first one in line {line}: "
        if row["words"]:
            said += " ".join(f"null => '{word}'" for word in row["words"])
            others = misses - int(row["n_words"])
            return said + (f", and correct the other {others:,}" if others else "")
        return said + "correct them, or null => 'TEXT' if they mean that it is missing"

    # -- values ----------------------------------------------------------------------------------

    def select(self, types: Mapping[str, ValueType]) -> str:
        """Return the statement that reads the values."""
        columns = [
            f"{self._expression(column, types[column])} AS {name}"
            for column, name in self._names.items()
        ]
        return f"SELECT {', '.join(columns)} FROM {self.table}"

    def is_without_values(self, column: str) -> bool:
        """Tell whether all values of a column are missing."""
        text = self._text(column)
        return not self._session.fetch(
            f"SELECT 1 FROM {self.table} WHERE {text} IS NOT NULL LIMIT 1"
        )

    def count(self, types: Mapping[str, ValueType]) -> tuple[int, int, dict[str, int]]:
        """Count records, those that are the same as an earlier one, and values that are missing."""
        counts = ", ".join(
            f"count(*) - count({self._expression(column, types[column])})" for column in self.header
        )
        row = fetch_one(
            self._session, f"SELECT count(*) AS n, ARRAY[{counts}] AS missing FROM {self.table}"
        )
        again = fetch_one(
            self._session,
            "SELECT coalesce(sum(n - 1), 0) AS n FROM (SELECT count(*) AS n FROM"
            f" {self.table} AS record GROUP BY hashtextextended(record::text, 0)) AS same",
        )
        missing = zip(self.header, map(int, row["missing"]), strict=True)
        return int(row["n"]), int(again["n"]), {column: n for column, n in missing if n}

    def _unmarked(self, column: str) -> str:
        """Return the text of a value, as it is, or NULL if it means so."""
        text, literal = self._names[column], self._session.literal
        if self._trim:
            text = f"btrim({text}, {literal(BLANKS)})"
        if self._null:
            words = ", ".join(map(literal, self._null))
            bare = f"btrim({text}, {literal(BLANKS)})"
            text = f"CASE WHEN {bare} IN ({words}) THEN NULL ELSE {text} END"
        return text

    def _text(self, column: str) -> str:
        """Return the text of a value that may be no text: without blanks, and NULL if empty."""
        bare = f"btrim({self._unmarked(column)}, {self._session.literal(BLANKS)})"
        if unit := self._units.get(column):
            # The order matters: a minus may stand before the unit.
            bare = f"btrim(replace({bare}, {self._session.literal(unit)}, ''))"
        return f"nullif({bare}, '')"

    def _expression(self, column: str, kind: ValueType) -> str:
        literal = self._session.literal
        if kind.sql == "text" or kind.category == "S":
            return f"({self._unmarked(column)})::{kind.sql}"
        text = self._rewritten(column, kind)
        if kind.between:
            text = f"translate({text}, {literal(kind.between)}, '')"
        if kind.decimal == ",":
            text = f"replace({text}, ',', '.')"
        return f"({text})::{kind.sql}"

    def _rewritten(self, column: str, kind: ValueType) -> str:
        """Return the text of a value, and of a date as PostgreSQL reads it."""
        text, literal = self._text(column), self._session.literal
        for pattern, iso in kind.rewrites:
            text = f"regexp_replace({text}, {literal(pattern)}, {literal(iso)})"
        return text

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

    def no_dates(self, column: str, kind: ValueType) -> str:
        """Say how many values look like dates without being any, such as 30 February."""
        day = self._rewritten(column, kind)
        rows = self._session.fetch(
            f"SELECT substring({day} FROM '^[0-9]+-[[:alnum:]]+-[0-9]+') AS day, count(*) AS n"
            f" FROM {self.table} GROUP BY 1"
        )
        n = sum(int(row["n"]) for row in rows if row["day"] and not _is_day(row["day"]))
        return f"{n:,} of its values are days that do not exist, such as 30 February: correct them"

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
        sign = " or which is the decimal sign (decimal => ',')" if kind.category == "N" else ""
        raise InvalidParameterError(
            f"a value cannot be read as {kind.sql}",
            detail=self._place(column, high),
            hint=f"correct it, or say what means that a value is missing (null => 'TEXT'){sign};"
            f' or load the column as text: types => \'{{"{column}": "text"}}\'',
        )

    def _refuse_misfit(self, date_format: DateFormat, columns: Sequence[str]) -> None:
        """Refuse a date format that some values of a column have, but not all."""
        pattern = self._session.literal(date_format.pattern)
        for column in columns:
            row = fetch_one(
                self._session,
                f"SELECT min(n) FILTER (WHERE v !~ {pattern}) AS first, bool_or(v ~ {pattern})"
                f" AS near FROM (SELECT row_number() OVER (ORDER BY ctid) AS n,"
                f" {self._text(column)} AS v FROM {self.table}) AS texts",
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
        number = self._places[column]
        shown = f' ("{column}")' if column.isprintable() else ""
        return f"{self._file.path.name}, line {line}, column {number}{shown}"


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """Settings for reading a CSV file; those that are None are guessed."""

    # What means NULL beside an empty field, in quotes or not; "" is an empty text in quotes
    null: str | Sequence[str] = ()
    delimiter: str | None = None  # One character, or its name: ``semicolon``, ``tab``, ``bar``
    encoding: str | None = None  # Guessed are only UTF-8 and encodings with a byte-order mark
    # The decimal sign, ``.`` or ``,``; the other one may stand between thousands
    decimal: str | None = None
    # Such as ``DD.MM.YYYY``. Nothing is guessed where day and month could be either.
    date_format: str | None = None
    # The first year that two digits may mean; by default no date lies after this year
    first_year: int | None = None
    trim: bool = False  # Whether texts lose the blanks around them; other types always do
    # New names of columns: a mapping, or texts such as ``old=new``
    rename: str | Sequence[str] | Mapping[str, str] = ()
    # PostgreSQL's types by column; the others are the narrowest that all values have
    types: str | Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise InvalidParameterError(
                "the decimal sign is neither a point nor a comma",
                hint="decimal => '.' or decimal => ','",
            )
        if self.first_year is not None and not 1000 <= self.first_year <= 9900:
            raise InvalidParameterError(
                "the first year of two digits is no year",
                hint="write it with four digits, such as first_year => 1930",
            )

    @property
    def null_texts(self) -> tuple[str, ...]:
        """The texts that mean NULL, without the blanks around them."""
        texts = [self.null] if isinstance(self.null, str) else [*self.null]
        for text in texts:
            if not isinstance(text, str) or re.search(r'["\r\n\0]', text):
                raise InvalidParameterError(
                    "a text that means NULL is in one line, without quotes",
                    hint="null => 'NA', and each further text on its own",
                )
        return tuple(text.strip(BLANKS) for text in texts)

    @property
    def new_names(self) -> dict[str, str]:
        """The new names of columns, by the old ones."""
        given = [self.rename] if isinstance(self.rename, str) else self.rename
        pairs: list[tuple[Any, ...]] = (
            [*given.items()]
            if isinstance(given, Mapping)
            else [tuple(pair.rsplit("=", 1)) if isinstance(pair, str) else () for pair in given]
        )
        if not all(len(pair) == 2 and all(isinstance(one, str) for one in pair) for pair in pairs):
            raise InvalidParameterError(
                "a column is renamed with its name in the file, =, and the new name",
                hint="rename => 'OLD=NEW'",
            )
        return dict(pairs)


@dataclass(frozen=True)
class CsvPreview:
    """A preview of a file, before it becomes a table."""

    delimiter: str
    encoding: str
    columns: list[tuple[str, str]]  # Name and type of each column
    notes: dict[str, str]  # By column, what is worth knowing about its name, type and values
    missing: dict[str, int]  # By column that has some, values that are NULL
    records: int
    duplicates: int  # Records that are the same as an earlier one
    remarks: list[str]  # What is worth knowing about the file


@dataclass(frozen=True)
class LoadReport(CsvPreview, ShownResult):
    """The table that was loaded."""

    table: str  # The new table, quoted as in SQL
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
    must_keep: Callable[[str], bool] | None = None,
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
        Whether a table of this name gets these records instead of its own. One with the same
        columns stays the same table, with its rights and views; another one is dropped first.
    must_keep : callable, optional
        Called with a table that would be dropped; if it is to stay, this is refused.
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
    date_format = (
        DateFormat(reading.date_format, reading.first_year) if reading.date_format else None
    )
    file = CsvFile.of(path, encoding=reading.encoding, delimiter=reading.delimiter)
    with file.opened() as text:
        given_names = file.header(text)
        where = f"{path.name}, line {file.n_before + 1}"
        header, names_notes = column_names(given_names, reading.new_names, where)
        staged = StagedFile(session, file, header, reading.null_texts, trim=reading.trim)
        session.plan(_PHASES)
        session.phase("copying the file")
        staged.copy(text)
    unnamed = [name for name, old in zip(header, given_names, strict=True) if not old.strip(BLANKS)]
    stay = staged.drop_unnamed(unnamed)
    given = staged.given_types(named, date_format)
    session.phase("inferring types")
    types = staged.infer(given, reading.decimal, date_format, reading.first_year)
    session.phase("reading the values")
    kept = _Kept.of(session, target) if replace else None
    is_bound = replace and must_keep is not None and must_keep(target)
    if is_bound and kept is not None:
        types = kept.types(types, given, staged)
    types = _readable(staged, types, given, date_format)
    found_types = {column: _FULL.get(types[column].sql, types[column].sql) for column in types}
    is_kept = kept is not None and kept.fits(found_types)
    if is_bound and not is_kept:
        raise _other_columns(target, kept, found_types, staged.notes(types))
    notes = staged.notes(types)
    for column, note in names_notes.items():
        if column in staged.header:
            notes[column] = "; ".join(filter(None, [note, notes.get(column)]))
    count, duplicates, missing = staged.count(types)
    found = CsvPreview(
        file.delimiter,
        shown_encoding(file.encoding),
        [(column, types[column].sql) for column in staged.header],
        notes,
        missing,
        count,
        duplicates,
        _remarks(staged, duplicates, [name for name in unnamed if name not in stay]),
    )
    if on_found is not None:
        on_found(found)
    session.phase("writing the table")
    if not dry_run:
        if is_kept:
            session.fetch(f"TRUNCATE {target}")
            session.fetch(f"INSERT INTO {target} {staged.select(types)}")
        else:
            if replace:
                session.fetch(f"DROP TABLE IF EXISTS {target}")
            session.fetch(f"CREATE TABLE {target} AS {staged.select(types)}")
        session.fetch(f"ANALYZE {target}")
    session.fetch(f"DROP TABLE {staged.table}")
    return LoadReport(**vars(found), table=target, seconds=time.perf_counter() - started)


def _remarks(staged: StagedFile, duplicates: int, dropped: Sequence[str]) -> list[str]:
    counts = {
        "empty lines left out": staged.n_empty_lines,
        "columns without a name and a value left out": len(dropped),
        "records that repeat an earlier one": duplicates,
    }
    return [f"{what}: {n:,}" for what, n in counts.items() if n]


_FULL: Final = {"timestamp": "timestamp without time zone"}
_WIDER: Final = (NUMBERS, ("date", *_FULL.values()))
"""Types that hold all values of those before them."""


def _holds(wider: str, sql: str) -> bool:
    return any(wider in order and sql in order[: order.index(wider)] for order in _WIDER)


class _Kept:
    """A table that stays the same table while its records are replaced."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = dict(columns)

    @classmethod
    def of(cls, session: PsycopgSession, target: str) -> Self | None:
        """Look at a table; None if there is none, or code of others could run when it is filled."""
        rows = session.fetch(
            "SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type"
            " FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid"
            " WHERE c.oid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped"
            " AND c.relkind = 'r' AND NOT c.relispartition AND NOT c.relhassubclass"
            " AND NOT c.relhastriggers AND NOT c.relhasrules AND NOT c.relrowsecurity"
            " AND (SELECT u.oid FROM pg_roles AS u WHERE u.rolname = current_user) = c.relowner"
            " ORDER BY a.attnum",
            target,
        )
        return cls({row["name"]: row["type"] for row in rows}) if rows else None

    def fits(self, types: Mapping[str, str]) -> bool:
        """Tell whether it has these columns, in this order."""
        return list(self._columns.items()) == list(types.items())

    def types(
        self,
        found: Mapping[str, ValueType],
        given: Mapping[str, ValueType],
        staged: StagedFile,
    ) -> dict[str, ValueType]:
        """Return types as which it can hold the values: wider ones, where it has them."""
        types = dict(found)
        for column, own in self._columns.items():
            if column not in found or column in given:
                continue
            kind = found[column]
            if own == "text":
                note = "text, as in the registered table" if kind.sql != own else kind.note
                types[column] = replace(TEXT, note=note)
            elif _holds(own, kind.sql) or (kind == TEXT and staged.is_without_values(column)):
                types[column] = replace(kind, sql=own)
        return types

    def other(self, types: Mapping[str, str]) -> list[str]:
        """Return the columns whose types differ."""
        return [name for name, kind in self._columns.items() if types.get(name, kind) != kind]

    def difference(self, types: Mapping[str, str]) -> str:
        """Say which columns differ."""
        gone = [name for name in self._columns if name not in types]
        added = [name for name in types if name not in self._columns]
        other = [
            f'"{name}" would be {types[name]} instead of {self._columns[name]}'
            for name in self.other(types)
        ]
        parts = [
            f"without {', '.join(gone)}" if gone else "",
            f"with {', '.join(added)}" if added else "",
            *other,
        ]
        return "; ".join(filter(None, parts)) or "in another order"


def _other_columns(
    target: str, kept: _Kept | None, types: Mapping[str, str], notes: Mapping[str, str]
) -> InUseError:
    if kept is None:
        return InUseError(
            "the table is a registered source, and cannot be filled anew as it is",
            detail=f"table {target}: it belongs to another role, or has triggers, rules, policies,"
            " partitions or children",
            hint="load the file into a table of your own, or make this one anew, and register it"
            " again: anew => true",
        )
    return InUseError(
        "the table is a registered source, and the file has other columns",
        detail=f"table {target}: {kept.difference(types)}",
        hint="".join(f'"{name}": {notes[name]}; ' for name in kept.other(types) if name in notes)
        + "say so if they are the same: rename => 'OLD=NEW', types => '{\"COLUMN\": \"TYPE\"}';"
        " or make the table anew, and register it again: anew => true",
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
            if date_format is not None and kind.pattern == date_format.pattern:
                staged.require_readable(column, kind)
            found[column] = ValueType("text", "", note=staged.no_dates(column, kind))
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
