"""Loads a CSV file into a new table, with types that its values prove.

The file is first copied into a temporary table of texts (`StagedFile`), where the server counts
their shapes, tries types, and finds the record that does not fit.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import psycopg

from kanon_db.dataclasses import dataclass
from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.declaration.parameter_types import read_object
from kanon_db.declaration.shown import ShownResult
from kanon_db.errors import (
    DatabaseError,
    DuplicateError,
    InUseError,
    InvalidParameterError,
)
from kanon_db.session.protocol import DATA_EXCEPTION_CLASS, fetch_one, temporary_table
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.csv_file import (
    BLANKS,
    DELIMITERS,
    CsvFile,
    CsvOptions,
    column_names,
    encoding_name,
    require_columns,
)
from kanon_db.transfer.csv_types import (
    FINER,
    MOMENT,
    NUMBERS,
    TEXT,
    ZONED,
    Shapes,
    ValueType,
    as_type,
    clock_note,
    date_type,
    likely_types,
    may_be_typed,
    text_note,
)

_SAMPLE: Final = 2000
"""Records, from all over the file, that say which columns can only be texts."""

_MOST_SHAPES: Final = 1000
_LIMITS: Final = ("54000", "54011")
"""What a server says of rows that are too wide for it."""

_HOUSEHOLDS: Final = re.compile(
    "(?i)(?:^|[^a-z])(?:hh|household|haushalts?|famil(?:y|ie|ien))_?(?:id|no|nr|num(?:ber|mer)?|key|code)$"
)
"""Names of columns whose values several people have."""


class OddTexts(NamedTuple):
    """How many values of a column are missing, have blanks around them, or are empty texts."""

    n_missing: int
    n_blank: int
    n_empty: int

    def note(self, column: str, kind: ValueType) -> str:
        """Say what is worth knowing about a column, but none of its values."""
        name = json.dumps(column, ensure_ascii=False).replace("'", "''")
        said = [
            kind.note.replace('"COLUMN"', name),
            f"{self.n_blank:,} have blanks around them: trim => true" if self.n_blank else "",
            f"{self.n_empty:,} are empty texts in quotes: null => ''" if self.n_empty else "",
        ]
        return "; ".join(filter(None, said))


class StagedFile:
    """The columns of a file as texts, in a temporary table."""

    def __init__(
        self, session: PsycopgSession, file: CsvFile, header: Sequence[str], reading: CsvOptions
    ) -> None:
        self.header = list(header)
        self.table = temporary_table(session, "load")  # quoted
        self.is_kept = False  # Whether its types are those of a registered source
        self.n_records = 0  # With empty lines
        self._session, self._file, self._reading = session, file, reading
        self._dates = (
            date_type(reading.date_format, reading.first_year) if reading.date_format else None
        )
        self._blanks = session.literal(BLANKS)
        self._places = {column: n for n, column in enumerate(header, start=1)}
        self._names = {column: session.identifier(column) for column in header}
        self._shapes: dict[str, Shapes] = {}
        self._samples: dict[str, list[str]] = {}
        self._n_lines = 0  # Before the records
        columns = ", ".join(f"{name} text" for name in self._names.values())
        session.fetch(f"CREATE TEMPORARY TABLE {self.table} ({columns}) ON COMMIT DROP")

    def copy(self, text: TextIO, n_lines: int) -> None:
        """Copy what follows the first lines; refuse what is wrong, with its line and column."""
        self._n_lines, blocks = n_lines, self._file.records(text, self.header, n_lines)
        options = ", ".join(f"{name} {self._session.literal(value)}"
                            for name, value in self._file.copy_options().items())  # fmt: skip
        statement = f"COPY {self.table} FROM STDIN WITH (FORMAT csv, HEADER, {options})"
        try:
            # The first line is empty, so that the end of a line is known in it.
            self._session.copy(statement, itertools.chain([b"\n"], blocks))
        except DatabaseError as error:
            cause = error.__context__
            context = cause.diag.context if isinstance(cause, psycopg.Error) else None
            line = re.search(r"^COPY [^,]+,\D*([0-9]+)", context or "")
            where = f"{self._file.path.name}, line {int(line[1]) + n_lines - 1}" if line else ""
            if where and error.sqlstate in _LIMITS:  # records are written some at a time
                raise _too_wide(f"{where} or before") from None
            if not where or not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
                raise
            raise self._misfit(where) from None
        self.n_records = self._n(self.table)

    def _misfit(self, where: str) -> InvalidParameterError:
        delimiter = self._file.delimiter
        return InvalidParameterError(
            "a line has more or fewer fields than the header",
            detail=f"{where}: the header has {len(self._places)}",
            hint="put fields that contain the delimiter into double quotes; if the file has another"
            f" delimiter than {DELIMITERS.get(delimiter, 'this')}, name it:"
            f" delimiter => '{';' if delimiter == ',' else ','}'",
        )

    @property
    def _records(self) -> str:
        """The records, without those that have no value, unless of one column."""
        return f"{self.table} AS r WHERE {'NOT r.* IS NULL' if len(self._places) > 1 else 'true'}"

    def _n(self, rows: str, what: str = "*") -> int:
        return int(fetch_one(self._session, f"SELECT count({what}) AS n FROM {rows} AS t")["n"])

    def drop_unnamed(self, unnamed: Sequence[str]) -> int:
        """Leave out those columns without a name that have no value, and count them."""
        empty = [one for one in unnamed if not self._n(self.table, self._names[one])]
        for column in empty:
            del self._names[column]
            self.header.remove(column)
        return len(empty)

    def _line(self, condition: str, record: int | None = None) -> int:
        """Find the line of the first record that fulfils a condition, or of the nth one."""
        # A record has as many lines more than one as its values have within them.
        return self._n_lines + int(fetch_one(
            self._session,
            f"WITH texts AS (SELECT row_number() OVER (ORDER BY ctid) AS n, ({condition}) AS fits,"
            " length(r.*::text) - length(replace(r.*::text, chr(10), '')) AS breaks"
            f" FROM {self.table} AS r), first AS (SELECT min(n) AS n FROM texts"
            f" WHERE {'fits' if record is None else f'n = {record:d}'})"
            " SELECT first.n + coalesce(sum(breaks) FILTER (WHERE texts.n < first.n), 0) AS line"
            " FROM texts, first GROUP BY first.n",
        )["line"])  # fmt: skip

    def _line_of(self, column: str, pattern: str) -> int:
        """Find the line of the first text that does not match a pattern."""
        return self._line(f"{self._text(column)} !~ {self._session.literal(pattern)}")

    def _place(self, column: str, line: int) -> str:
        shown = f' ("{column}")' if column.isprintable() else ""
        return f"{self._file.path.name}, line {line}, column {self._places[column]}{shown}"

    def find_types(self, names: Mapping[str, str]) -> dict[str, ValueType]:
        """Look up the types that were named, by column."""
        require_columns(names, self.header, "types")
        return {column: self._look_up(str(name), column) for column, name in names.items()}

    def _look_up(self, name: str, column: str) -> ValueType:
        session, table = self._session, temporary_table(self._session, "type")
        try:
            with session.savepoint():
                session.fetch("SELECT $1::text::regtype", name)
                # So it is nothing but the name of a type, perhaps with a length.
                session.fetch(f"CREATE TEMPORARY TABLE {table} (v {name}\n) ON COMMIT DROP")
                return _columns_of(session, table)["v"]
        except DatabaseError:
            raise InvalidParameterError(
                "the type of a column is not known",
                detail=f'types, column "{column}"',
                hint="name one of PostgreSQL's types: boolean, integer, bigint, numeric, double"
                " precision, date, timestamp, text",
            ) from None

    def infer(self, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
        """Return the type of each column: the given one, or one that all values have."""
        self._count_shapes(given)
        likely = {column: self._likely_types(column, given.get(column)) for column in self.header}
        signs = {kinds[0].decimal for kinds in likely.values() if len(kinds) == 1} - {""}
        chosen = {}
        for column, kinds in likely.items():
            # What one column proves holds of the whole file.
            proven = [kind for kind in kinds if {kind.decimal} == signs]
            chosen[column] = self._choose(column, proven or kinds, given.get(column))
        if self._dates is not None and self._dates.option not in [
            kind.option for kind in chosen.values()
        ]:
            raise self._no_dates(self._dates)
        return chosen

    def _count_shapes(self, given: Mapping[str, ValueType]) -> None:
        """Count the shapes of the columns that may be something else than texts."""
        share = min(100.0, 100.0 * _SAMPLE / max(self.n_records, 1))
        rows = self._session.fetch(
            f"SELECT ARRAY[{', '.join(map(self._text, self.header))}] AS texts"
            f" FROM {self.table} AS r TABLESAMPLE BERNOULLI ({share}) REPEATABLE (0)"
        )
        for place, column in enumerate(self.header):
            texts = [row["texts"][place] for row in rows if row["texts"][place]]
            is_open = given[column].category in "ND" if column in given else may_be_typed(texts)
            self._samples[column] = texts
            self._shapes[column] = self._count_shapes_of(column) if is_open else Shapes(known=False)

    def _count_shapes_of(self, column: str) -> Shapes:
        signs = self._session.literal(f"+-{BLANKS}")
        rows = self._session.fetch(
            "SELECT translate(v, '012345678', '999999999') AS shape, count(*) AS n,"
            f" left(ltrim(v, {signs}), 1) = '0' AS is_zero"
            f" FROM (SELECT {self._raw(column)} AS v FROM {self.table} AS r) AS texts"
            f" WHERE v IS NOT NULL GROUP BY 1, 3 LIMIT {_MOST_SHAPES + 1}"
        )
        shapes = Shapes(known=len(rows) <= _MOST_SHAPES)
        shapes.is_bare = shapes.known
        for row in rows:
            shape = row["shape"].strip(BLANKS)
            shapes.is_bare &= bool(shape) and shape == row["shape"]
            if shape:
                shape = shape.replace("9", "0", 1) if row["is_zero"] else shape
                shapes.counts[shape] += int(row["n"])
        return shapes

    def _likely_types(self, column: str, given: ValueType | None) -> list[ValueType]:
        """Return the types that all values of a column have; several exclude each other."""
        category = None if given is None else given.category
        likely = likely_types(self._shapes[column], self._file.delimiter, self._reading, category)
        kinds = [kind for kind in likely if not kind.may_fail or self._can_read(column, kind)]
        if kinds or not likely or given is not None:
            return kinds
        if likely[0] == self._dates:
            self._require_readable(column, likely[0])
        line = self._first_unreadable(column, likely[0])
        note = (
            "some of its values are days that do not exist, such as 30 February, the first one in"
            f" line {line}: correct them, or null => '0000-00-00' if they are written so"
        )
        return [replace(TEXT, note=note)]

    def _choose(
        self, column: str, likely: Sequence[ValueType], given: ValueType | None
    ) -> ValueType:
        """Return the only likely type, or the given one, read as its values are written."""
        if len(likely) > 1:
            what = "dates" if likely[0].rewrites else "numbers"
            options = " or ".join(kind.option for kind in likely if kind.option)
            if given is None:
                return replace(TEXT, note=f"if these are {what}: {options}")
            raise InvalidParameterError(
                "values of a column could mean two things",
                detail=f'{self._file.path.name}, column "{column}"',
                hint=f"say what they mean: {options}",
            )
        kind = likely[0] if likely else TEXT
        if given is None:
            return self._annotate(column, kind)
        kind = replace(kind, sql=given.sql, category=given.category, note="")
        lost = self._require_whole(column, kind)
        n = self._n_alike(column, kind) if kind.category == "N" else 0
        merged = f"{n:,} numbers are written in several ways, which is not kept" if n else ""
        return replace(kind, note="; ".join(filter(None, [lost, merged])))

    def _annotate(self, column: str, kind: ValueType) -> ValueType:
        """Keep texts where numbers would merge them, and say what else is worth knowing."""
        shapes, notes, n = self._shapes[column], [kind.note], 0
        if kind.sql in NUMBERS:
            n = self._n_alike(column, kind)
        if n:
            said = f"{n:,} numbers are written in several ways, such as with another last 0"
            kind, notes = TEXT, [f"{said}, as codes are: kept as texts, or {as_type(kind.sql)}"]
        elif kind == TEXT:
            notes.append(text_note(shapes, lambda pattern: self._line_of(column, pattern)))
        elif kind.sql == "integer" and {*shapes.counts} == {"99999999"}:
            days = date_type("YYYYMMDD")
            if self._can_read(column, days):
                notes.append(f"if these are dates: {days.option}")
        elif kind.sql in ("timestamp", MOMENT):
            notes.append(clock_note(self._samples[column]))
            if shapes.n(f"{FINER}[0-9]"):
                notes.append(self._require_whole(column, kind))
        if kind.sql != "text" and re.search(kind.pattern, column):
            # Where there is no header line, a record is taken for it.
            notes.append("its name could be a value: if the file has no header line, write one")
        if re.search(_HOUSEHOLDS, column):
            values = f"(SELECT {self._text(column)} AS v FROM {self.table} AS r) AS texts"
            if n := self._n(f"(SELECT FROM {values} GROUP BY v HAVING count(*) > 1)"):
                notes.append(f"{n:,} of its values are those of several records: if these are the"
                             " members of a household, k and l count members")  # fmt: skip
        return replace(kind, note="; ".join(filter(None, notes)))

    def _n_alike(self, column: str, kind: ValueType) -> int:
        """Count the numbers that are written in several ways."""
        if kind.drops or not self._shapes[column].decimals_vary:
            return 0
        texts = (f"SELECT DISTINCT {self._text(column)} AS text, {self._expression(column, kind)}"
                 f" AS number FROM {self.table} AS r")  # fmt: skip
        return self._n(f"(SELECT FROM ({texts}) AS texts WHERE number IS NOT NULL"
                       " GROUP BY number HAVING count(*) > 1)")  # fmt: skip

    def _no_dates(self, dates: ValueType) -> InvalidParameterError:
        """Say that no column has the given format of dates, and where one has another value."""
        nearly = [column for column in self.header if self._shapes[column].n(dates.pattern)]
        where = self._file.path.name
        if nearly:
            where = self._place(nearly[0], self._line_of(nearly[0], dates.pattern))
        return InvalidParameterError(
            "no column has dates of the given format, and nothing else",
            detail=f"{where}: {self._reading.date_format}",
            hint="correct the value or the format, which is written with YYYY, MM and DD, such as"
            " date_format => 'MM/DD/YYYY', or leave it out to load the column as text",
        )

    def _require_whole(self, column: str, kind: ValueType) -> str:
        """Refuse a type that would cut texts or zones; say how many values it rounds."""
        self._require_readable(column, kind)
        value, text, sql = self._expression(column, kind), self._text(column), kind.sql
        is_zoned = "with time zone" in sql
        is_moment = sql == "date" or sql.startswith("timestamp")
        cut, hint = "false", ""
        if kind.category == "S":
            cut = f"rtrim({value}::text) <> rtrim({self._raw(column)})"
            hint = "name a longer type, or text"
        elif kind.category == "V":
            cut, hint = f"{value}::text <> {text}", "name bit with the length that all values have"
        elif is_moment and not is_zoned:
            cut = f"{text} ~ {self._session.literal(ZONED)}"
            if sql == "date":
                cut += f" AND {text} !~ '[ T]00:00(:00([.]0*)?)?[^:.0-9]'"  # but midnight
            hint = (
                "its day depends on the time zone: load it as timestamp with time zone, and"
                " register a view that says AT TIME ZONE"
            )
        if hint and self._n(f"(SELECT FROM {self.table} AS r WHERE {cut})"):
            place = self._place(column, self._line(cut))
            raise InvalidParameterError(f"a value does not fit into {sql}", detail=place, hint=hint)
        if not is_moment and not sql.startswith(("numeric(", "real", "double precision")):
            return ""
        wide = "numeric" if not is_moment else MOMENT if is_zoned else "timestamp"
        exact = self._expression(column, replace(kind, sql=wide))
        rounded = f"{value}::text::{wide} <> {exact}"
        if is_moment:
            rounded += f" OR {text} ~ '{FINER}0*[1-9]'"
        lost = "lose their time of day" if sql == "date" else f"are rounded to {sql}"
        n = self._n(f"(SELECT FROM {self.table} AS r WHERE {rounded})")
        return f"{n:,} of its values {lost}" if n else ""

    def count(self, types: Mapping[str, ValueType]) -> tuple[int, dict[str, OddTexts]]:
        """Count the records, and the values of each column that are worth knowing about."""
        counts = []
        for name, kind in types.items():
            raw = self._raw(name)
            counts.append(f"count({raw if _is_text(kind) else self._text(name)})")
            for odd in (f"{raw} <> btrim({raw}, {self._blanks})", f"{raw} = ''"):
                is_odd = odd if kind.sql == "text" and not self._is_bare(name) else "false"
                counts.append(f"count(*) FILTER (WHERE {is_odd})")
        row = fetch_one(
            self._session,
            f"SELECT count(*) AS n, ARRAY[{', '.join(counts)}] AS counts FROM {self._records}",
        )
        n, each = int(row["n"]), iter(map(int, row["counts"]))
        return n, {name: OddTexts(n - next(each), next(each), next(each)) for name in types}

    def count_different(self) -> int:
        """Count the records that no earlier one is the same as."""
        return self._n(f"(SELECT FROM {self._records} GROUP BY hash_record_extended(r.*, 0))")

    def select(self, types: Mapping[str, ValueType]) -> str:
        """Return the statement that reads the values."""
        columns = [
            f"{self._expression(column, types[column])} AS {name}"
            for column, name in self._names.items()
        ]
        return f"SELECT {', '.join(columns)} FROM {self._records}"

    def _raw(self, column: str) -> str:
        """Return the text of a value, as it is, or NULL if it means so."""
        own = f"r.{self._names[column]}"
        bare = f"btrim({own}, {self._blanks})"
        text = bare if self._reading.trim else own
        null = ", ".join(map(self._session.literal, self._reading.null_texts))
        return f"CASE WHEN {bare} IN ({null}) THEN NULL ELSE {text} END" if null else text

    def _text(self, column: str) -> str:
        """Return the text of a value that may be no text: without blanks, and NULL if empty."""
        text = self._raw(column)
        return text if self._is_bare(column) else f"nullif(btrim({text}, {self._blanks}), '')"

    def _is_bare(self, column: str) -> bool:
        return column in self._shapes and self._shapes[column].is_bare

    def _expression(self, column: str, kind: ValueType) -> str:
        """Return a value as SQL."""
        if _is_text(kind):
            return f"({self._raw(column)})::{kind.sql}"
        text, literal = self._text(column), self._session.literal
        for pattern, iso in kind.rewrites:
            text = f"regexp_replace({text}, {literal(pattern)}, {literal(iso)})"
        old, new = (f",{kind.drops}", ".") if kind.decimal == "," else (kind.drops, "")
        if old:
            text = f"translate({text}, {literal(old)}, '{new}')"
        return f"({text})::{kind.sql}"

    def _can_read(self, column: str, kind: ValueType, n: int | None = None) -> bool:
        """Tell whether all values of a column, or of the first `n` records, have a type."""
        rows, name = self.table, self._names[column]
        if n is not None:
            rows = f"(SELECT * FROM {self.table} ORDER BY ctid LIMIT {n})"
        values = f"SELECT DISTINCT {name} FROM {rows} AS t"
        try:
            with self._session.savepoint():
                self._n(f"(SELECT {self._expression(column, kind)} AS v FROM ({values}) AS r)", "v")
        except DatabaseError as error:
            if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
                raise
            return False
        return True

    def _first_unreadable(self, column: str, kind: ValueType) -> int:
        """Find the line of the first value that does not have a type."""
        low, high = 0, self.n_records
        while high - low > 1:  # the first `low` records can be read, the first `high` cannot
            middle = (low + high) // 2
            if self._can_read(column, kind, middle):
                low = middle
            else:
                high = middle
        return self._line("true", high)

    def _require_readable(self, column: str, kind: ValueType) -> None:
        """Refuse a value that does not have the type that it was said to have."""
        if self._can_read(column, kind):
            return
        sign = " or which is the decimal sign (decimal => ',')" if kind.category == "N" else ""
        raise InvalidParameterError(
            f"a value cannot be read as {kind.sql}",
            detail=self._place(column, self._first_unreadable(column, kind)),
            hint=f"correct it, or say what means that a value is missing (null => 'TEXT'){sign};"
            + (
                " or make the registered table anew, with other types: anew => true"
                if self.is_kept
                else f' or load the column as text: types => \'{{"{column}": "text"}}\''
            ),
        )


def _is_text(kind: ValueType) -> bool:
    return kind.sql == "text" or kind.category == "S"


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
    """Copy a CSV file with a header line into a new table, within a transaction."""
    # With `replace`, a table with the same columns stays the same table, and another one is dropped
    # first, unless `must_keep` says that it is to stay; `on_found` hears what is about to be
    # written.
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
    file = CsvFile.of(path, reading)
    with file.open() as text:
        given_names, n_lines = file.header(text)
        where = f"{path.name}, line {file.n_before + 1}"
        header, names_notes = column_names(given_names, reading.new_names, where)
        staged = StagedFile(session, file, header, reading)
        session.plan(_PHASES)
        session.phase("copying the file")
        staged.copy(text, n_lines)
    unnamed = [name for name, old in zip(header, given_names, strict=True) if not old.strip(BLANKS)]
    n_dropped = staged.drop_unnamed(unnamed)
    session.phase("inferring types")
    kept = {name: own.sql for name, own in _columns_of(session, target).items() if replace}
    if replace and must_keep is not None and must_keep(target):
        staged.is_kept = True
        named = {**{name: own for name, own in kept.items() if name in staged.header}, **named}
    given = staged.find_types(named)
    if staged.is_kept:
        _require_same_columns(
            target, kept, {name: given[name].sql if name in given else "" for name in staged.header}
        )
    types = staged.infer(given)
    session.phase("reading the values")
    n, odd = staged.count(types)
    duplicates = n - staged.count_different()
    notes = {column: [names_notes.get(column), odd[column].note(column, kind)]
             for column, kind in types.items()}  # fmt: skip
    remarks = {
        "empty lines left out": staged.n_records - n,
        "columns without a name and a value left out": n_dropped,
        "records that repeat an earlier one": duplicates,
    }
    preview = CsvPreview(
        file.delimiter,
        encoding_name(file.encoding),
        columns=[(column, kind.sql) for column, kind in types.items()],
        notes={
            column: "; ".join(filter(None, said)) for column, said in notes.items() if any(said)
        },
        missing={column: one.n_missing for column, one in odd.items() if one.n_missing},
        records=n,
        duplicates=duplicates,
        remarks=[f"{what}: {n:,}" for what, n in remarks.items() if n],
    )
    if on_found is not None:
        on_found(preview)
    session.phase("writing the table")
    if not dry_run:
        new = {name: _FULL.get(types[name].sql, types[name].sql) for name in staged.header}
        try:
            if [*kept.items()] == [*new.items()]:
                session.fetch(f"TRUNCATE {target}")
                session.fetch(f"INSERT INTO {target} {staged.select(types)}")
            else:
                if replace:
                    session.fetch(f"DROP TABLE IF EXISTS {target}")
                session.fetch(f"CREATE TABLE {target} AS {staged.select(types)}")
        except DatabaseError as error:
            if error.sqlstate not in _LIMITS:
                raise
            raise _too_wide(path.name) from None
        session.fetch(f"ANALYZE {target}")
    session.fetch(f"DROP TABLE {staged.table}")
    return LoadReport(**vars(preview), table=target, seconds=time.perf_counter() - started)


def _too_wide(where: str) -> InvalidParameterError:
    return InvalidParameterError(
        "a record is too wide for a table of PostgreSQL",
        detail=where,
        hint="write the columns that are needed into a file of their own",
    )


_FULL: Final = {"timestamp": "timestamp without time zone"}


def _columns_of(session: PsycopgSession, target: str) -> dict[str, ValueType]:
    """Return the types of a table that can be filled anew as it is, without code of others."""
    rows = session.fetch(
        "SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type,"
        " t.typcategory::text AS category"
        " FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid"
        " JOIN pg_type AS t ON t.oid = a.atttypid"
        " WHERE c.oid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped"
        " AND c.relkind = 'r' AND NOT c.relispartition AND NOT c.relhassubclass"
        " AND NOT c.relhastriggers AND NOT c.relhasrules AND NOT c.relrowsecurity"
        " AND (SELECT u.oid FROM pg_roles AS u WHERE u.rolname = current_user) = c.relowner"
        " ORDER BY a.attnum",
        target,
    )
    return {row["name"]: ValueType(row["type"], category=row["category"]) for row in rows}


def _require_same_columns(target: str, kept: Mapping[str, str], types: Mapping[str, str]) -> None:
    """Refuse to make another table of a registered source."""
    if not kept:
        raise InUseError(
            "the table is a registered source, and cannot be filled anew as it is",
            detail=f"table {target}: it belongs to another role, or has triggers, rules, policies,"
            " partitions or children",
            hint="load the file into a table of your own, or make this one anew, and register it"
            " again: anew => true",
        )
    gone, added = [*kept.keys() - types.keys()], [*types.keys() - kept.keys()]
    parts = [
        f"without {', '.join(sorted(gone))}" if gone else "",
        f"with {', '.join(sorted(added))}" if added else "",
        *(f'"{name}" would be {types[name]} instead of {own}'
          for name, own in kept.items() if types.get(name, own) != own),
    ]  # fmt: skip
    if [*kept.items()] != [*types.items()]:
        raise InUseError(
            "the table is a registered source, and the file has other columns",
            detail=f"table {target}: {'; '.join(filter(None, parts)) or 'in another order'}",
            hint="say so if they are the same: rename => 'OLD=NEW'; or make the table anew, and"
            " register it again: anew => true",
        )


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
