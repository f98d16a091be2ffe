"""Opens CSV files: encoding, delimiter, header, where something is wrong, what texts may be.

Hierarchies in ARX's format are CSV files, too (`read_hierarchy`).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final, Self, TextIO

from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.errors import InvalidParameterError, NotFoundError

DELIMITERS: Final = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
"""Those that are tried, in this order, and their names."""

_SAMPLE: Final = 1 << 16
"""Characters that are looked at to find the delimiter."""

_CHUNK: Final = 1 << 20
"""Characters that are read at a time, and what is left of the line."""

_MARKS: Final = (
    # UTF-32 comes first: its mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_UTF_8: Final = "utf-8-sig"
"""UTF-8, with or without a byte-order mark."""

_MARKED_BYTES: Final = "surrogateescape"
"""Reads bytes that are not in the encoding as surrogates, which no text contains."""

_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")

BLANKS: Final = " \t\r\n\v\f\u00a0\u2007\u202f\u3000\ufeff"
"""What may stand around a value without being part of it."""

_SEPARATOR: Final = re.compile(r'"?sep=(.)"?\r?\n', re.IGNORECASE)
"""The line by which Excel is told the delimiter; it stands before the header."""

_QUOTES: Final = 'in a quoted field, write each quote twice: "say ""yes"""'


@dataclass(frozen=True)
class CsvFile:
    """A CSV file with a header line, and how it is to be read."""

    path: Path  # A ``.csv`` or ``.csv.gz`` file
    encoding: str  # Python's name of it
    delimiter: str  # One character
    n_before: int = 0  # Lines before the header
    # Whether all lines but the header end with a delimiter, after which there is nothing
    ends_open: bool = False

    @classmethod
    def of(cls, path: Path, *, encoding: str | None = None, delimiter: str | None = None) -> Self:
        """Open a file for a moment, and guess what is not given.

        Parameters
        ----------
        path : Path
        encoding : str, optional
            UTF-8 by default, unless a byte-order mark says something else.
        delimiter : str, optional
            By default the one that divides the first lines into the most fields, and each line
            into as many.

        Raises
        ------
        NotFoundError, InvalidParameterError
        """
        with _readable(path):
            found = _encoding(encoding) if encoding is not None else _marked(path)
        file = cls(path, found, "," if delimiter is None else _delimiter(delimiter))
        with file.opened(errors=_MARKED_BYTES) as text:
            sample, is_whole = text.read(_SAMPLE), not text.read(1)
        told = _SEPARATOR.match(sample)
        file = replace(file, n_before=1 if told else 0)
        sample = sample[told.end() :] if told else sample
        if not is_whole:  # the last line may be cut
            sample = sample[: sample.rfind("\n") + 1] or sample
        likely = _delimiter(told[1]) if told else _likely_delimiter(sample)
        if delimiter is None:
            file = replace(file, delimiter=likely)
            return replace(file, ends_open=file._ends_open(sample))
        if _width(sample, file.delimiter) == 1 < _width(sample, likely):
            raise InvalidParameterError(
                "the header has only one field with this delimiter",
                detail=f"{path.name}, line 1",
                hint=f"the fields seem to be separated by another one: delimiter => '{likely}'",
            )
        return replace(file, ends_open=file._ends_open(sample))

    def _ends_open(self, sample: str) -> bool:
        try:
            header, *rows = self.rows(io.StringIO(sample, newline=""))
        except (csv.Error, ValueError):
            return False
        rows = [row for row in rows if any(row)]
        return bool(rows) and all(len(row) == len(header) + 1 and not row[-1] for row in rows)

    @contextmanager
    def opened(self, errors: str = "strict") -> Iterator[TextIO]:
        """Open it as text.

        Raises
        ------
        NotFoundError, InvalidParameterError
            Also where the block reads a text that is not in the encoding.
        """
        try:
            with (
                _readable(self.path),
                _opened(self.path, self.encoding, errors) as text,
            ):
                for _ in range(self.n_before):
                    text.readline()
                yield text
        except UnicodeError:
            raise self.fault() or self._wrong_encoding("") from None

    def rows(self, text: TextIO) -> Iterator[list[str]]:
        """Read rows from the opened file, the header among them."""
        return csv.reader(text, delimiter=self.delimiter, strict=True)

    def header(self, text: TextIO) -> list[str]:
        """Read the names of the columns as they are; the opened file then stands after them.

        They may be empty, or be there twice: see :func:`column_names`.

        Raises
        ------
        InvalidParameterError
        """
        where = f"{self.path.name}, line {self.n_before + 1}"
        try:
            # The header has several lines if a name contains a line break.
            header = next(self.rows(text), [])
        except csv.Error:
            raise InvalidParameterError(
                "the header cannot be read as CSV", detail=where, hint=_QUOTES
            ) from None
        if not any(header):
            raise InvalidParameterError(
                "the file has no header line",
                detail=where,
                hint="write the names of the columns into the first line",
            )
        for position, column in enumerate(header, start=1):
            if "\0" in column:
                raise _contains_nul(f"{where}, column {position}")
        return [*header, ""] if self.ends_open else header

    def records(self, text: TextIO, width: int) -> Iterator[tuple[int, str]]:
        """Read what follows the header, in parts, without empty lines.

        Of one column, an empty line is a value that is missing.

        Yields
        ------
        int
            The number of empty lines that were left out.
        str
            A text of whole lines.
        """
        # Quotes are counted, since an empty line within quotes belongs to a value. A quote within
        # a quoted field is written twice, so that their number tells.
        blank = rf"[{re.escape(self.delimiter)}\t ]"
        empty = re.compile(rf"(?:^|\n|\r(?!\n)){blank}*(?:(?=[\r\n])|(?<={blank})\Z)")
        quoted = False
        while chunk := text.read(_CHUNK) + text.readline():
            n_left_out = 0
            if width > 1 and empty.search(chunk):
                kept = []
                for line in io.StringIO(chunk, newline=""):
                    if quoted or not self._is_empty(line):
                        kept.append(line)
                        quoted ^= line.count('"') % 2 == 1
                    else:
                        n_left_out += 1
                chunk = "".join(kept)
            else:
                quoted ^= chunk.count('"') % 2 == 1
            yield n_left_out, chunk

    def _is_empty(self, line: str) -> bool:
        return not line.strip(f"{self.delimiter}{BLANKS}")

    def line_that_reads(self, words: str) -> int:
        """Find the first line after the header that has no other text."""
        with self.opened(errors=_MARKED_BYTES) as text:
            lines = enumerate(text, start=self.n_before + 1)
            return next((n for n, line in lines if line.rstrip("\r\n") == words), 0)

    def line_of(self, record: int) -> int:
        """Find the line in which a record begins; the first one after the header is record 1."""
        with self.opened(errors=_MARKED_BYTES) as text:
            width = len(self.header(text))
        with self.opened(errors=_MARKED_BYTES) as text:
            begun, quoted = -1, False
            for number, line in enumerate(text, start=self.n_before + 1):
                if not quoted and not (begun >= 0 and width > 1 and self._is_empty(line)):
                    begun += 1
                    if begun == record:
                        return number
                quoted ^= line.count('"') % 2 == 1
        return 0  # there is no such record

    def fault(self) -> InvalidParameterError | None:
        """Find the first thing that is wrong with the file, and say in which line and column."""
        with _opened(self.path, self.encoding, _MARKED_BYTES) as text:
            for _ in range(self.n_before):
                text.readline()
            reader = csv.reader(text, delimiter=self.delimiter, strict=True)
            line, header = self.n_before + 1, None
            try:
                for row in reader:
                    header = header or ([*row, ""] if self.ends_open else row)
                    is_empty = len(header) > 1 and not "".join(row).strip(BLANKS)
                    if not is_empty and (fault := self._fault_of(row, header, line)):
                        return fault
                    line = self.n_before + reader.line_num + 1
            except csv.Error:
                return InvalidParameterError(
                    "a line cannot be read as CSV",
                    detail=f"{self.path.name}, in what begins in line {line}: a quoted field has no"
                    " end, or something follows its end",
                    hint=_QUOTES,
                )
            except UnicodeError:  # encodings of several bytes have faults that cannot be skipped
                return self._wrong_encoding(f", line {line} or after")
        return None

    def _fault_of(
        self, row: list[str], header: list[str], line: int
    ) -> InvalidParameterError | None:
        where = f"{self.path.name}, line {line}"
        for position, value in enumerate(row, start=1):
            column = f", column {position}"
            if position <= len(header) and row is not header and header[position - 1].isprintable():
                column += f' ("{header[position - 1]}")'
            if _SURROGATE.search(value):
                return self._wrong_encoding(f", line {line}{column}")
            if "\0" in value:
                return _contains_nul(where + column)
        if line > self.n_before + 1 and len(row) != len(header) and (row or len(header) > 1):
            return InvalidParameterError(
                "a line has more or fewer fields than the header",
                detail=f"{where}: {len(row)}, while the header has {len(header) - self.ends_open}",
                hint="put fields that contain the delimiter into double quotes; if the file has"
                f" another delimiter than {DELIMITERS.get(self.delimiter, 'this')}, name it:"
                f" delimiter => '{';' if self.delimiter == ',' else ','}'",
            )
        return None

    def _wrong_encoding(self, where: str) -> InvalidParameterError:
        return InvalidParameterError(
            "the file is in another encoding",
            detail=f"{self.path.name}{where}: not {shown_encoding(self.encoding)}",
            hint="name its encoding, such as encoding => 'cp1252' (Windows, western Europe)"
            " or encoding => 'latin-1'",
        )


def _contains_nul(where: str) -> InvalidParameterError:
    return InvalidParameterError(
        "the file contains a NUL character",
        detail=where,
        hint="if the file is in UTF-16: encoding => 'utf-16-le' (of Windows) or encoding =>"
        r" 'utf-16-be'; otherwise remove the character, for example with: tr -d '\000'",
    )


def column_names(
    header: Sequence[str], rename: Mapping[str, str], where: str
) -> tuple[list[str], dict[str, str]]:
    """Return names that columns can have, and what to say of those that are not the file's.

    Blanks around a name go, and others become one space; a column without a name is called by its
    number, and a name that is there again gets a number.

    Parameters
    ----------
    header : sequence of str
        The names in the file.
    rename : mapping
        New names, by those in the file or by those that are returned without it.
    where : str
        The file and the line, for messages.

    Raises
    ------
    NotFoundError, InvalidParameterError

    Examples
    --------
    >>> column_names([" age ", "", "age"], {"age_2": "years"}, "file.csv, line 1")[0]
    ['age', 'column_2', 'years']
    """
    plain = [" ".join(name.split()) for name in (name.strip(BLANKS) for name in header)]
    unique: list[str] = []
    for position, name in enumerate(plain, start=1):
        own, n = name or f"column_{position}", 1
        one = own
        while one in unique or (one != name and one in plain):
            n += 1
            one = f"{own}_{n}"
        unique.append(one)
    names: list[str] = []
    notes: dict[str, str] = {}
    wanted = dict(rename)
    for position, (given, name, one) in enumerate(zip(header, plain, unique, strict=True), start=1):
        new = next((wanted.pop(old) for old in (one, given) if old in wanted), None)
        chosen = one if new is None else new
        if not chosen or len(chosen.encode()) > MAX_NAME_BYTES or "\0" in chosen:
            raise InvalidParameterError(
                "the header has a name that no column can have",
                detail=f"{where}, column {position}",
                hint=f"give the column another name of 1 to {MAX_NAME_BYTES} bytes:"
                " rename => 'OLD=NEW'",
            )
        names.append(chosen)
        if new is None and one != given:
            told = "named so here" if one == name else "another column has its name"
            told = told if name else "it has no name in the file"
            quoted = one.replace("'", "''")
            notes[chosen] = f"{told}: rename => '{quoted}=NEW'"
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidParameterError(
            "two columns have the same name",
            detail=f"{where}, columns"
            f" {' and '.join(str(n) for n, name in enumerate(names, 1) if name == twice[0])}",
            hint="give one of them another name: rename => 'OLD=NEW'",
        )
    if wanted:
        raise NotFoundError(
            "the file has no such column",
            detail=f'column "{next(iter(wanted))}", named in rename',
            hint=f"its columns are {', '.join(names)}",
        )
    return names, notes


def shown_encoding(name: str) -> str:
    """Return the usual name of an encoding.

    Examples
    --------
    >>> shown_encoding("utf-8-sig"), shown_encoding("cp1252")
    ('UTF-8', 'CP1252')
    """
    return "UTF-8" if name == _UTF_8 else name.upper()


def _opened(path: Path, encoding: str, errors: str) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding=encoding, errors=errors, newline="")
    return path.open(encoding=encoding, errors=errors, newline="")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise NotFoundError(
            "there is no such file", detail=str(path), hint="check the path"
        ) from None
    except (gzip.BadGzipFile, EOFError):
        raise InvalidParameterError(
            "the file is no gzip file, or is cut off",
            detail=str(path),
            hint="copy it again; gzip -t FILE says whether it is whole",
        ) from None
    except (IsADirectoryError, PermissionError) as error:
        raise InvalidParameterError(
            "the file cannot be read",
            detail=f"{path}: {type(error).__name__}",
            hint="name a file that you may read",
        ) from None


def _marked(path: Path) -> str:
    """Return the encoding that the byte-order mark says, or else UTF-8."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        first = file.read(4)
    return next((name for mark, name in _MARKS if first.startswith(mark)), _UTF_8)


def _encoding(name: str) -> str:
    try:
        found = codecs.lookup(name)
        "".encode(name)  # refuses codecs that are not encodings, such as base64
    except (LookupError, ValueError):
        raise InvalidParameterError(
            "the encoding is not known",
            hint="encoding => 'utf-8', 'latin-1', 'cp1252', 'utf-16', or another one of Python's",
        ) from None
    return _UTF_8 if found.name == "utf-8" else found.name


def _delimiter(given: str) -> str:
    named = {name: character for character, name in DELIMITERS.items()} | {r"\t": "\t"}
    character = named.get(given, given)
    if len(character) != 1 or not character.isascii() or character in '"\r\n\\\0' or (
        character.isalnum()
    ):  # fmt: skip
        raise InvalidParameterError(
            "the delimiter must be one character of ASCII, no letter, digit, quote or backslash",
            hint=f"delimiter => ',' or one of {', '.join(DELIMITERS.values())}",
        )
    return character


def _likely_delimiter(sample: str) -> str:
    """Return the delimiter that divides each line into as many fields, and into the most.

    Where there is none, it is the one that divides the header into the most.
    """
    regular = {mark: _width(sample, mark, of_all=True) for mark in DELIMITERS}
    if max(regular.values()) < 2:
        regular = {mark: _width(sample, mark) for mark in DELIMITERS}
    return max(regular, key=lambda mark: regular[mark]) if max(regular.values()) > 1 else ","


def _width(sample: str, delimiter: str, *, of_all: bool = False) -> int:
    """Count the fields of the first line, or of all lines: 0 if these differ, or are no CSV."""
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter, strict=True)
    try:
        widths = {len(row) for row in (reader if of_all else [next(reader, [])]) if row}
    except csv.Error:
        return 0
    return widths.pop() if len(widths) == 1 else 0


# What the texts in a file may be: numbers and dates, as people write them.

_PARTS: Final = {
    # PostgreSQL's words for the parts of a date format, and the pattern that each matches.
    "YYYY": "[0-9]{4}",
    "YY": "[0-9]{2}",
    "MM": "0?[1-9]|1[0-2]",
    "MON": "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?",
    "DD": "0?[1-9]|[12][0-9]|3[01]",
    "HH24": "[01]?[0-9]|2[0-3]",
    "HH12": "0?[1-9]|1[0-2]",
    "MI": "[0-5][0-9]",
    "SS": "[0-5][0-9]",
    "AM": "[ap]m",
}
_WORD: Final = re.compile("|".join(_PARTS))
_FORMAT: Final = re.compile(f"(?:(?:{_WORD.pattern})[-./:, ]*)+")
_DAYS: Final = tuple(
    {year, month, "DD"} for year in ("YYYY", "YY") for month in ("MM", "MON")
)  # fmt: skip
_CLOCKS: Final = ({"HH24", "MI"}, {"HH12", "MI", "AM"})

_ORDERED_DATES: Final = ("DD.MM.YYYY", "YYYY/MM/DD", "YYYY.MM.DD")
"""Date formats whose order of day and month is beyond doubt."""

_NAMED_MONTHS: Final = (
    "DD-MON-YYYY", "DD MON YYYY", "DDMONYYYY", "MON DD, YYYY", "DD-MON-YY", "DDMONYY",
)  # fmt: skip
"""Formats with names of months, whose order is beyond doubt, too."""


@dataclass(frozen=True)
class ValueType:
    """A type that a column's texts may have."""

    sql: str  # PostgreSQL's name of it
    pattern: str  # What all its texts match, without the blanks around them
    # Pairs of a pattern and of how its groups make a date that PostgreSQL reads
    rewrites: tuple[tuple[str, str], ...] = ()
    between: str = ""  # Marks between thousands
    decimal: str = ""  # The decimal sign, if the texts have one
    doubt: str = ""  # The decimal signs that would make numbers of these texts
    n_different: int = 1  # How many different values there must be
    category: str = ""  # PostgreSQL's, of types that were given
    note: str = ""  # What is worth knowing about the guess

    @property
    def may_fail(self) -> bool:
        """Tell whether a text may match without being a date, such as 30 February."""
        return self.sql in ("date", "timestamp", _MOMENT)


_MOMENT: Final = "timestamp with time zone"
TEXT: Final = ValueType("text", "")


@dataclass(frozen=True)
class DateFormat:
    """A format of dates or times, such as ``DD.MM.YYYY`` or ``DD-MON-YY HH12:MI AM``.

    Raises
    ------
    InvalidParameterError
    """

    text: str
    first_year: int | None = None  # That two digits may mean; None is 99 years ago

    def __post_init__(self) -> None:
        words = _WORD.findall(self.text)
        parts = set(words)
        clock = parts & {"HH24", "HH12", "MI", "SS", "AM"}
        known = parts - clock in _DAYS and (not clock or clock - {"SS"} in _CLOCKS)
        if not _FORMAT.fullmatch(self.text) or not known or len(parts) != len(words):
            raise InvalidParameterError(
                "the date format is not known",
                hint="write it with YYYY (or YY), MM (or MON, English) and DD, and HH24, MI and SS"
                " (or HH12, MI and AM) for a time: date_format => 'DD.MM.YYYY' or"
                " 'MM/DD/YYYY HH24:MI'",
            )

    @property
    def first(self) -> int:
        """The first year that two digits may mean: by default, no date lies after this year."""
        return date.today().year - 99 if self.first_year is None else self.first_year

    @property
    def pattern(self) -> str:
        """Return the pattern of dates of this format, with a group for each part."""
        return self._pattern()

    def _pattern(self, years: str = "[0-9]{2}") -> str:
        between = _WORD.split(self.text)
        words = _WORD.findall(self.text)
        # Without separators, only numbers of two digits can be told apart.
        optional = "?" if all(between[1:-1]) or "MON" in words else ""
        known = {**_PARTS, "YY": years}
        for word in ("MM", "DD", "HH24", "HH12"):
            known[word] = known[word].replace("?", optional)
        groups = [f"({known[word]})" for word in words]
        marks = [re.escape(mark) for mark in between]
        folded = "(?i)" if {"MON", "AM"} & {*words} else ""
        return f"{folded}^{''.join(a + b for a, b in zip(marks, [*groups, '$'], strict=True))}"

    @property
    def type(self) -> ValueType:
        """The type of a column with such dates."""
        place = {word: f"\\{n}" for n, word in enumerate(_WORD.findall(self.text), start=1)}
        hour = place.get("HH24") or place.get("HH12")
        clock = ":".join(place[word] for word in ("MI", "SS") if word in place)
        day = f"-{place.get('MM') or place.get('MON')}-{place['DD']}"
        time = f" {hour}:{clock} {place.get('AM', '')}" if hour else ""
        note = f"read as date_format => '{self.text}'"
        if "YYYY" in place:
            rewrites = [(self.pattern, f"{place['YYYY']}{day}{time}".rstrip())]
        else:
            century, first = divmod(self.first, 100)
            both = ((century, range(first, 100)), (century + 1, range(first)))
            rewrites = [
                (self._pattern("|".join(f"{year:02d}" for year in years)),
                 f"{start}{place['YY']}{day}{time}".rstrip())
                for start, years in both if years
            ]  # fmt: skip
            note += f", years from {self.first} to {self.first + 99}: first_year => {self.first}"
        return ValueType("timestamp" if hour else "date", self.pattern, tuple(rewrites), note=note)


_OTHER_SIGN: Final = {".": ",", ",": "."}
_APART: Final = ("'\u2019", " \u00a0\u2009\u202f")
"""Marks between thousands that are never a decimal sign: apostrophes, and spaces of any width."""

_GROUPED: Final = "read without the marks between thousands"
_ROUNDED: Final = "some have an exponent: digits may have been lost where the file was written"
_EXPONENT: Final = "([eE][+-]?[0-9]{1,2})?"
_PLAIN: Final = (
    # From narrow to wide. With a leading zero, as in a postal code, a column becomes text; also if
    # a cast might refuse a value.
    ValueType("boolean", "^(true|false|TRUE|FALSE|True|False)$"),
    # Of one letter alone, nobody knows what it stands for: f may be female.
    ValueType("boolean", "^(t|f)$", n_different=2),
    ValueType(
        "integer",
        "^(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])$",
        note="if these are dates: date_format => 'YYYYMMDD'",
    ),
    ValueType("integer", "^-?(0|[1-9][0-9]{0,8})$"),
    ValueType("bigint", "^-?(0|[1-9][0-9]{0,17})$"),
    ValueType("numeric", "^-?(0|[1-9][0-9]*)$"),
    ValueType("double precision", f"^-?(0|[1-9][0-9]{{0,30}}){_EXPONENT}$", note=_ROUNDED),
)


def _whole_numbers(between: str, decimal: str = "", note: str = "") -> Iterator[ValueType]:
    """Yield the types of whole numbers with these marks between thousands."""
    for sql, groups in (("integer", "{1,2}"), ("bigint", "{1,5}"), ("numeric", "+")):
        yield ValueType(
            sql, f"^-?(0|[1-9][0-9]*|[1-9][0-9]{{0,2}}([{between}][0-9]{{3}}){groups})$".replace(
                "[0-9]*", {"integer": "[0-9]{0,8}", "bigint": "[0-9]{0,17}"}.get(sql, "[0-9]*")
            ), between=between, decimal=decimal, note=note,
        )  # fmt: skip


_ISO_TIME: Final = (
    "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[ T]([01][0-9]|2[0-3]):[0-5][0-9]"
    "(:[0-5][0-9]([.][0-9]{1,9})?)?"
)
_ISO: Final = (
    ValueType("date", "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"),
    ValueType("timestamp", f"{_ISO_TIME}$"),
    ValueType(_MOMENT, f"{_ISO_TIME} ?(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)$"),
)
NUMBERS: Final = ("integer", "bigint", "numeric", "double precision")
UNITS: Final = ("%", "€", "$", "£", "EUR", "USD", "CHF", "GBP")
"""What may stand before or after each number of a column."""

MISSING: Final = frozenset(
    {"", "-", "--", ".", "..", "?", "*", "#N/A", "#NULL!", "#VALUE!", "#DIV/0!", "N/A", "n/a", "NA",
     "na", "NaN", "nan", "NAN", "NULL", "null", "Null", "None", "none", "NONE", "missing",
     "Missing", "MISSING", "unknown", "Unknown", "UNKNOWN", "k.A.", "k. A.", "<NA>", "NaT"}
)  # fmt: skip
"""What files write for a missing value. A note may name these words of ours, as no other value."""


def likely_types(
    delimiter: str,
    decimal: str | None = None,
    date_format: DateFormat | None = None,
    first_year: int | None = None,
) -> tuple[ValueType, ...]:
    """Return the types to try, from narrow to wide.

    A point or a comma before three digits may be either sign. Where all of a column's marks are
    of this kind, it is `doubt`ful: other columns may say what they mean, or else an option.

    Parameters
    ----------
    delimiter : str
        The file's.
    decimal : str, optional
        The decimal sign, a point or a comma; the other one then stands between thousands. By
        default it is guessed for each column, and a comma not where it separates fields.
    date_format : DateFormat, optional
        The one format of dates beside ISO; by default several are tried.
    first_year : int, optional
        See `DateFormat`.
    """
    return (
        *([date_format.type] if date_format else []),
        *_PLAIN,
        *([] if decimal else _doubtful_numbers(delimiter)),
        *(kind for between in _APART for kind in _whole_numbers(between, note=_GROUPED)),
        *(kind for sign in (decimal or ".,") for kind in _numbers(sign)),
        *map(unit_type, UNITS),
        *_ISO,
        *([] if date_format else _likely_dates(first_year)),
    )


def _numbers(sign: str) -> Iterator[ValueType]:
    """Yield the types of numbers with this decimal sign: first those with nothing else."""
    told = f"read as decimal => '{sign}'"
    note = told if sign == "," else ""
    mark = f"[{sign}]"
    yield ValueType("numeric", f"^-?(0|[1-9][0-9]*)({mark}[0-9]+)?$", decimal=sign, note=note)
    mantissa = f"((0|[1-9][0-9]{{0,30}})({mark}[0-9]{{1,30}})?|{mark}[0-9]{{1,30}})"
    yield ValueType("double precision", f"^-?{mantissa}$", decimal=sign, note=note)
    yield ValueType(
        "double precision", f"^-?{mantissa}{_EXPONENT}$", decimal=sign,
        note=f"{note}; {_ROUNDED}" if note else _ROUNDED,
    )  # fmt: skip
    grouped = f"without the marks between thousands, {told}"
    yield from _whole_numbers(_OTHER_SIGN[sign], decimal=sign, note=grouped)
    for between in (_OTHER_SIGN[sign], *_APART):
        yield ValueType(
            "numeric",
            f"^-?(0|[1-9][0-9]*|[1-9][0-9]{{0,2}}([{between}][0-9]{{3}})+)({mark}[0-9]+)?$",
            between=between, decimal=sign, note=grouped,
        )  # fmt: skip


def _doubtful_numbers(delimiter: str) -> Iterator[ValueType]:
    """Yield what could be numbers of two kinds, a thousandfold apart."""
    for sign, name in ((".", "point"), (",", "comma")):
        yield ValueType(
            "text", f"^-?(0|[1-9][0-9]*|[1-9][0-9]{{0,2}}[{sign}][0-9]{{3}})$", doubt=".,",
            note=f"is the {name} a decimal sign or between thousands? decimal => '.' or"
            " decimal => ','",
        )  # fmt: skip
    if delimiter == ",":
        yield ValueType(
            "text", "^-?(0|[1-9][0-9]*)(,[0-9]+)?$", doubt=",",
            note="if these are numbers with a decimal comma: decimal => ','",
        )  # fmt: skip


_AS_NUMERIC: Final = '{"COLUMN": "numeric"}'


def unit_type(unit: str) -> ValueType:
    """Return the type of numbers that all have a unit."""
    mark = "".join(f"[{letter}]" for letter in unit)
    number = "[0-9][0-9.,'\u2019 ]*"
    return ValueType(
        "text", f"^(-?{mark} ?-?{number}|-?{number} ?{mark})$",
        note=f"numbers with {unit}, which types => '{_AS_NUMERIC}' leaves out",
    )  # fmt: skip


def _likely_dates(first_year: int | None) -> Iterator[ValueType]:
    for clock in ("", " HH24:MI", " HH24:MI:SS", " HH12:MI AM", " HH12:MI:SS AM"):
        for ordered in (*_ORDERED_DATES, *_NAMED_MONTHS):
            yield DateFormat(ordered + clock, first_year).type
        for mark in "/-":
            both = (f"DD{mark}MM{mark}YYYY{clock}", f"MM{mark}DD{mark}YYYY{clock}")
            doubtful = DateFormat(both[0]).pattern.replace(_PARTS["DD"], _PARTS["MM"])
            yield ValueType(
                "text", doubtful,
                note="day or month first? "
                + " or ".join(f"date_format => '{text}'" for text in both),
            )  # fmt: skip
            yield from (DateFormat(text).type for text in both)
    for mark, formats in ((".", ("DD.MM.YY",)), ("/", ("DD/MM/YY", "MM/DD/YY")),
                          ("-", ("DD-MM-YY", "YY-MM-DD"))):  # fmt: skip
        yield ValueType(
            "text", f"^[0-9]{{1,2}}[{mark}][0-9]{{1,2}}[{mark}][0-9]{{1,2}}$",
            note="if these are dates: "
            + " or ".join(f"date_format => '{text}'" for text in formats),
        )  # fmt: skip
    yield ValueType(
        "text", "^[0-9]{1,2}[-. /]*[[:alpha:]]{3,9}[.]?[-. /]*[0-9]{2,4}$".replace(
            "[[:alpha:]]", "[^-0-9./ ]"
        ),
        note="if these are dates: names of months are read in English only",
    )  # fmt: skip


NEARLY: Final = (
    # What a column is said to be nearly, for want of a value or two
    ("numbers", ValueType("text",
        "^-?((0|[1-9][0-9]*)([.,][0-9]+)?|[1-9][0-9]{0,2}([.,'\u2019 ][0-9]{3})+([.,][0-9]+)?)"
        "([eE][+-]?[0-9]{1,2})?$")),
    ("dates", ValueType("text",
        "(?i)^([0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{2,4}"
        f"|[0-9]{{1,2}}[- ]?({_PARTS['MON']})[- ]?[0-9]{{2,4}})([ T][0-9]{{1,2}}:.*)?$")),
)  # fmt: skip


# ARX keeps a hierarchy as a CSV file without a header: a value and its labels in each line.

_MOST_BYTES: Final = 20_000_000
_MARKED: Final = re.compile(r"[\ud800-\udfff]")


def read_hierarchy(path: Path) -> dict[str, list[str]]:
    """Read the labels of each value, the narrowest first.

    Parameters
    ----------
    path : Path
        In UTF-8, or with a byte-order mark; separated by semicolons, commas, tabs or bars.

    Raises
    ------
    NotFoundError
        When there is no such file.
    InvalidParameterError
        It says in which line the file is no hierarchy.
    """
    file = CsvFile.of(path)
    if path.stat().st_size > _MOST_BYTES:
        raise InvalidParameterError(
            "the file of a hierarchy is too long",
            detail=f"{path.name}: more than {_MOST_BYTES:,} bytes",
            hint="give the source a view with wider values",
        )
    labels: dict[str, list[str]] = {}
    line, width = 1, 0
    try:
        with file.opened(errors="surrogateescape") as text:
            reader = csv.reader(text, delimiter=file.delimiter, strict=True)
            for row in reader:
                if row:
                    width = width or len(row)
                    _check(row, width, labels, f"{path.name}, line {line}")
                    labels[row[0]] = row[1:]
                line = reader.line_num + 1
    except csv.Error:
        raise InvalidParameterError(
            "a line cannot be read as CSV",
            detail=f"{path.name}, line {line}",
            hint='in a quoted field, write each quote twice: "say ""yes"""',
        ) from None
    if not labels:
        raise InvalidParameterError(
            "the file of a hierarchy is empty", detail=path.name, hint=f"{_HINT}, a line for each"
        )
    return labels


def _check(row: list[str], width: int, before: dict[str, list[str]], where: str) -> None:
    if any(_MARKED.search(field) for field in row):
        raise InvalidParameterError(
            "the file is in another encoding", detail=f"{where}: not UTF-8", hint="save it as UTF-8"
        )
    if any("\0" in field for field in row):
        raise InvalidParameterError(
            "the file contains a NUL character", detail=where, hint="save it as UTF-8"
        )
    if len(row) != width or width < 2 or not all(row[1:]):
        raise InvalidParameterError(
            "a line is no value with its labels",
            detail=f"{where}: {len(row)} fields, {sum(map(bool, row))} of them not empty; the first"
            f" line has {width}",
            hint=f"{_HINT}; repeat a label where a value has no other at a level",
        )
    if row[0] in before:
        raise InvalidParameterError(
            "a value of a hierarchy has two lines", detail=where, hint="leave one of them out"
        )


_HINT: Final = "write a value and its labels, the narrowest first, such as BSc;degree;any"
