"""Opens CSV files: encoding, delimiter, header, and where something in one is wrong.

Hierarchies in ARX's format are CSV files, too (`read_hierarchy`).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TextIO

from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.errors import InvalidParameterError, NotFoundError

DELIMITERS: Final = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
"""Those that are tried, in this order, and their names."""

_SAMPLE: Final = 1 << 16
"""Characters that are looked at to find the delimiter."""

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

_QUOTES: Final = 'in a quoted field, write each quote twice: "say ""yes"""'


@dataclass(frozen=True)
class CsvFile:
    """A CSV file with a header line, and how it is to be read."""

    path: Path  # A ``.csv`` or ``.csv.gz`` file
    encoding: str  # Python's name of it
    delimiter: str  # One character

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
            sample = text.read(_SAMPLE)
            likely = _likely_delimiter(sample, is_whole=not text.read(1))
        if delimiter is None:
            return cls(path, found, likely)
        if _width(sample, file.delimiter) == 1 < _width(sample, likely):
            raise InvalidParameterError(
                "the header has only one field with this delimiter",
                detail=f"{path.name}, line 1",
                hint=f"the fields seem to be separated by another one: delimiter => '{likely}'",
            )
        return file

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
                yield text
        except UnicodeError:
            raise self.fault() or self._wrong_encoding("") from None

    def rows(self, text: TextIO) -> Iterator[list[str]]:
        """Read rows from the opened file, the header among them."""
        return csv.reader(text, delimiter=self.delimiter, strict=True)

    def header(self, text: TextIO) -> list[str]:
        """Read the names of the columns; the opened file then stands after them.

        Raises
        ------
        InvalidParameterError
        """
        where = f"{self.path.name}, line 1"
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
            if not column or len(column.encode()) > MAX_NAME_BYTES:
                raise InvalidParameterError(
                    "the header has a name that no column can have",
                    detail=f"{where}, column {position}",
                    hint=f"give the column a name of 1 to {MAX_NAME_BYTES} bytes",
                )
            if column in header[: position - 1]:
                raise InvalidParameterError(
                    "the header names a column twice",
                    detail=f"{where}, columns {header.index(column) + 1} and {position}",
                    hint="give one of them another name",
                )
        return header

    def line_of(self, record: int) -> int:
        """Find the line in which a record begins; the first one after the header is record 1."""
        with self.opened(errors=_MARKED_BYTES) as text:
            reader = csv.reader(text, delimiter=self.delimiter)
            for _ in range(record):
                next(reader)
            return reader.line_num + 1

    def fault(self) -> InvalidParameterError | None:
        """Find the first thing that is wrong with the file, and say in which line and column."""
        with _opened(self.path, self.encoding, _MARKED_BYTES) as text:
            reader = csv.reader(text, delimiter=self.delimiter, strict=True)
            line, header = 1, None
            try:
                for row in reader:
                    header = header or row
                    if fault := self._fault_of(row, header, line):
                        return fault
                    line = reader.line_num + 1
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
        if not row:
            return InvalidParameterError("a line is empty", detail=where, hint="delete the line")
        if len(row) != len(header):
            return InvalidParameterError(
                "a line has more or fewer fields than the header",
                detail=f"{where}: {len(row)}, while the header has {len(header)}",
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


def _likely_delimiter(sample: str, *, is_whole: bool) -> str:
    """Return the delimiter that divides each line into as many fields, and into the most.

    Where there is none, it is the one that divides the header into the most.
    """
    if not is_whole:  # the last line may be cut
        sample = sample[: sample.rfind("\n") + 1] or sample
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
