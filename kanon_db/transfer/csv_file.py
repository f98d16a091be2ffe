"""Reads CSV files: encoding, delimiter, quotes, header, and where something is wrong.

PostgreSQL's COPY reads the records (benchmarks/csv_readers.py compares it with other readers). What
it would read as something else than is written never reaches it: quotes that open or close within a
field, other line ends, bytes of another encoding. Hierarchies in ARX's format are CSV files, too.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self, TextIO

from kanon_db.declaration import MAX_NAME_BYTES
from kanon_db.errors import InvalidParameterError, NotFoundError

DELIMITERS: Final = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
"""Those that are tried, in this order, and their names."""

BLANKS: Final = " \t\r\n\v\f\u00a0\u2007\u202f\u3000\ufeff"
"""What may stand around a value without being part of it."""

_SAMPLE: Final = 1 << 16
"""Characters that are looked at to guess what is not given."""

_CHUNK: Final = 1 << 20
"""Characters that are read at a time, and what is left of the line."""

_LONGEST: Final = 1 << 26
"""Characters of a record; a quote that nothing closes would take all of the file."""

_MOST_TITLES: Final = 5
"""Lines before the header that are recognized."""

_NO_QUOTE: Final = "\x01"
"""Stands for no quotes where COPY needs one: it never occurs, or the file is refused."""

_MARKS: Final = (
    # UTF-32 comes first: its mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_UTF_8: Final = "utf-8-sig"
"""UTF-8, with or without a byte-order mark."""

MARKED_BYTES: Final = "surrogateescape"
"""Reads bytes that are not in the encoding as surrogates, which no text contains."""

_SEPARATOR: Final = re.compile(r'"?sep=(.)"?\r?\n', re.IGNORECASE)
"""The line by which Excel is told the delimiter; it stands before the header."""

_END_OF_DATA: Final = re.compile(r"(?:^|(?<=\n))\\\.(?:\n|$)")
_SYSTEM_COLUMNS: Final = frozenset(["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"])
_MOST_COLUMNS: Final = 1600
_DOUBLED: Final = 'in a quoted field, write each quote twice: "say ""yes"""'
_QUOTES: Final = (
    f"{_DOUBLED}; if the file has no quoted fields: quote => 'none'; if a backslash stands before"
    " such quotes: escape => 'backslash'"
)


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """Settings for reading a CSV file; those that are None are guessed."""

    # What means NULL beside an empty field, in quotes or not; "" is an empty text in quotes
    null: str | Sequence[str] = ()
    delimiter: str | None = None  # One character, or its name: ``semicolon``, ``tab``, ``bar``
    encoding: str | None = None  # Guessed are only UTF-8 and encodings with a byte-order mark
    quote: str | None = None  # What stands around fields: by default ", or ``none``
    # What stands before a quote in a quoted field, such as ``backslash``; by default another quote
    escape: str | None = None
    skip: int | None = None  # Lines before the header
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
        if self.skip is not None and self.skip < 0:
            raise InvalidParameterError("a number of lines is negative", hint="skip => 1")
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
class CsvFile:
    """A CSV file with a header line, and how it is to be read."""

    path: Path  # A ``.csv`` or ``.csv.gz`` file
    encoding: str  # Python's name of it
    delimiter: str = ","
    quote: str = '"'  # Or `_NO_QUOTE`
    escape: str = ""  # What stands before a quote in a quoted field, beside another quote
    newline: str | None = ""  # As `open` has it
    n_before: int = 0  # Lines before the header
    # Whether all lines but the header end with a delimiter, after which there is nothing
    ends_open: bool = False

    @classmethod
    def of(cls, path: Path, reading: CsvOptions | None = None) -> Self:
        """Look at the first lines of a file, and guess what is not given."""
        reading = reading or CsvOptions()
        encoding, skip = reading.encoding, reading.skip
        with _readable(path):
            known = _look_at_mark(path) if encoding is None else _encoding(encoding)
        file = cls(path, known, quote=_sign("quote", reading.quote, '"', none=_NO_QUOTE),
                   escape=_sign("escape", reading.escape, "", backslash="\\"))  # fmt: skip
        with file.open(errors=MARKED_BYTES) as text:
            sample, is_whole = text.read(_SAMPLE), not text.read(1)
        if not is_whole:  # the last line may be cut
            sample = sample[: sample.rfind("\n") + 1] or sample
        separator = _SEPARATOR.match(sample)
        n_before = bool(separator) if skip is None else skip
        # As Macintosh wrote lines once, or else as everybody does
        newline = None if "\r" in sample and "\n" not in sample else "\n"
        file = replace(file, newline=newline, n_before=int(n_before))
        lines = io.StringIO(sample, newline=newline).readlines()[n_before:]
        given = None if reading.delimiter is None else _delimiter(reading.delimiter)
        own = given or (separator and _delimiter(separator[1]))
        shapes = {mark: file._shapes(lines, mark) for mark in {*DELIMITERS, own or ","}}
        likely = _likely_delimiter(shapes)
        where = f"{path.name}, line {file.n_before + 1}"
        if given is not None and _width(shapes[given]) == 1 < _width(shapes[likely]):
            raise InvalidParameterError(
                "the header has only one field with this delimiter",
                detail=where,
                hint=f"the fields seem to be separated by another one: delimiter => '{likely}'",
            )
        if skip is None and own is None and (n_titles := _n_titles(shapes)):
            raise InvalidParameterError(
                "the first line seems to be a title, and no header",
                detail=f"{where}: it has one text, where later lines have several",
                hint=f"skip => {n_titles}, or skip => 0 if it is the header",
            )
        file = replace(file, delimiter=own or likely)
        header, *rows = [row for row in shapes[file.delimiter] if any(row)] or [[]]
        ends_open = all(len(row) == len(header) + 1 and not row[-1] for row in rows)
        return replace(file, ends_open=bool(rows) and ends_open)

    def _shapes(self, lines: Sequence[str], delimiter: str) -> list[list[bool]]:
        """Tell of each field of each record whether there is something in it."""
        rows = replace(self, delimiter=delimiter).rows(lines, strict=False)
        try:
            return [[bool(field.strip(BLANKS)) for field in row] for row in rows]
        except csv.Error:  # a field longer than Python reads
            return []

    @contextmanager
    def open(self, errors: str = "strict") -> Iterator[TextIO]:
        """Open it as text."""
        try:
            with _readable(self.path), self._open(errors) as text:
                yield text
        except UnicodeError:
            raise self._other_encoding("") from None

    def _open(self, errors: str) -> TextIO:
        encoding, newline = self.encoding, self.newline
        if self.path.suffix == ".gz":
            return gzip.open(self.path, "rt", encoding=encoding, errors=errors, newline=newline)
        return self.path.open(encoding=encoding, errors=errors, newline=newline)

    def rows(
        self, lines: Iterable[str], *, strict: bool = True, skipinitialspace: bool = True
    ) -> Iterator[list[str]]:
        """Read rows with Python's reader: headers and hierarchies."""
        return csv.reader(
            map(self._without_escapes, lines),
            delimiter=self.delimiter,
            quotechar=self.quote,
            quoting=csv.QUOTE_NONE if self.quote == _NO_QUOTE else csv.QUOTE_MINIMAL,
            strict=strict,
            skipinitialspace=skipinitialspace and self.delimiter != " ",
        )

    def _without_escapes(self, text: str) -> str:
        """Write an escaped quote twice instead, as CSV does."""
        if not self.escape or self.escape not in text:
            return text
        sign, quote = re.escape(self.escape), self.quote
        return re.sub(
            f"{sign}([{sign}{re.escape(quote)}])",
            lambda escaped: quote * 2 if escaped[1] == quote else escaped[1],
            text,
        )

    def header(self, text: TextIO) -> tuple[list[str], int]:
        """Read the names of the columns as they are, and count the lines that were read.

        They may be empty, or be there twice: see :func:`column_names`.
        """
        n_lines = 0

        def lines() -> Iterator[str]:
            nonlocal n_lines
            while line := text.readline():
                n_lines += 1
                if n_lines > self.n_before:
                    yield line

        where = f"{self.path.name}, line {self.n_before + 1}"
        try:  # The header has several lines if a name contains a line break.
            header = next(self.rows(lines()), [])
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
            self.check_characters(column, f"{where}, column {position}")
        if len(header) > _MOST_COLUMNS:
            raise InvalidParameterError(
                "the file has more columns than a table of PostgreSQL can have",
                detail=f"{where}: {len(header):,} of at most {_MOST_COLUMNS:,}",
                hint="write the columns that are needed into a file of their own",
            )
        return [*header, ""] if self.ends_open else header, n_lines

    def copy_options(self) -> dict[str, str]:
        """Return how COPY is to read `records`."""
        return {"DELIMITER": self.delimiter, "QUOTE": self.quote, "NULL": ""}

    def records(self, text: TextIO, header: Sequence[str], n_lines: int) -> Iterator[bytes]:
        """Read what follows the first lines, as many lines for COPY as there are in the file.

        A line without values is a record, unless of one column; what COPY misreads is refused.
        """
        raw = ""
        while more := text.read(_CHUNK) + text.readline():
            raw += more
            chunk = self._without_escapes(raw)
            place = self._places(chunk, header, n_lines + 1)
            pieces = chunk.split(self.quote)  # those at odd places are quoted
            self._check_quotes(pieces, place)
            if len(pieces) % 2 == 0:  # a quoted field is open, which the next lines may close
                if len(chunk) > _LONGEST:
                    break
                continue
            self.check_characters(chunk, place)
            ready = self._settle(chunk, pieces, len(header), place)
            if "\\." in ready and (end := _END_OF_DATA.search(ready)):
                line = n_lines + 1 + ready.count("\n", 0, end.start())
                raise InvalidParameterError(
                    r"the file has a line that reads \.",
                    detail=f"{self.path.name}, line {line}: PostgreSQL would take it for the end of"
                    " the data",
                    hint=r'put the value into double quotes: "\."',
                )
            yield ready.encode()
            n_lines += chunk.count("\n")
            raw = ""
        if raw:
            at = len(chunk) - len(pieces[-1]) - 1
            raise InvalidParameterError("a quoted field has no end", detail=place(at), hint=_QUOTES)

    def _places(self, chunk: str, header: Sequence[str], first: int) -> Callable[[int], str]:
        """Return what says in which line and column a character of a chunk is."""

        def place(offset: int) -> str:
            begin = chunk.rfind("\n", 0, offset) + 1
            pieces = chunk[begin:offset].split(self.quote)
            outside = pieces[chunk.count(self.quote, 0, begin) % 2 :: 2]
            n = 1 + sum(piece.count(self.delimiter) for piece in outside)
            name = header[n - 1] if n <= len(header) else ""
            shown = f' ("{name}")' if name and name.isprintable() else ""
            line = first + chunk.count("\n", 0, offset)
            return f"{self.path.name}, line {line}, column {n}{shown}"

        return place

    def _check_quotes(self, pieces: Sequence[str], place: Callable[[int], str]) -> None:
        """Refuse quotes that open or close within a field."""
        blank = " " if self.delimiter != " " else ""
        last = len(pieces) - 1

        def find_misplaced(n: int, piece: str) -> int | None:
            bare = piece.strip(blank)
            if not bare:  # two quotes that stand for one, unless blanks are between them
                return 0 if piece and 0 < n < last else None
            if n > 0 and bare[0] not in ends:
                return 0
            return len(piece) if n < last and bare[-1] not in ends else None

        ends = (self.delimiter, "\n", "\r")
        between = dict.fromkeys(pieces[2:last:2], 1)  # mostly the same few
        some = [(0, pieces[0]), (last, pieces[last] if last % 2 == 0 else "")]
        if all(find_misplaced(n, piece) is None for piece, n in between.items()) and all(
            find_misplaced(*one) is None for one in some
        ):
            return
        offset = 0
        for n, piece in enumerate(pieces):
            within = find_misplaced(n, piece) if n % 2 == 0 else None
            if within is not None:
                raise InvalidParameterError(
                    "a field has a quote within it", detail=place(offset + within), hint=_QUOTES
                )
            offset += len(piece) + 1

    def check_characters(self, text: str, place: str | Callable[[int], str]) -> None:
        """Refuse bytes of another encoding, and characters that PostgreSQL does not take."""

        def where(offset: int) -> str:
            return place if isinstance(place, str) else place(offset)

        try:
            text.encode()
        except UnicodeEncodeError as error:  # bytes that are not in the encoding
            at = where(error.start).removeprefix(self.path.name)
            raise self._other_encoding(at) from None
        if "\0" in text:
            raise InvalidParameterError(
                "the file contains a NUL character",
                detail=where(text.index("\0")),
                hint="if the file is in UTF-16: encoding => 'utf-16-le' (of Windows) or encoding =>"
                r" 'utf-16-be'; otherwise remove the character, for example with: tr -d '\000'",
            )
        if self.quote == _NO_QUOTE and _NO_QUOTE in text:
            raise InvalidParameterError(
                "the file contains a control character that stands for no quotes here",
                detail=where(text.index(_NO_QUOTE)),
                hint=r"remove the character, for example with: tr -d '\001'",
            )

    def _settle(
        self, chunk: str, pieces: list[str], width: int, place: Callable[[int], str]
    ) -> str:
        """Return a chunk with one kind of line ends, and records for empty lines."""
        empty = re.compile(rf"\n(?:[{re.escape(self.delimiter)}\t ]*\n)+")
        if not chunk.endswith("\n"):
            pieces[-1] += "\n"
        elif "\r" not in chunk and (width == 1 or not empty.search(f"\n{chunk}")):
            return chunk
        record = self.delimiter * (width - 1) + "\n"
        offset = 0
        pieces[0] = "\n" + pieces[0]
        for n, piece in enumerate(pieces):
            if n % 2 == 0:
                plain = piece.replace("\r\n", "\n")
                if lone := re.search(r"\r(?!\n)", piece):
                    at = offset + lone.start()
                    raise InvalidParameterError(
                        "a line ends in another way than the first one",
                        detail=place(at - 1),
                        hint="make all lines end alike, or put the field into double quotes",
                    )
                pieces[n] = plain if width == 1 else empty.sub(
                    lambda lines: "\n" + record * (lines[0].count("\n") - 1), plain
                )  # fmt: skip
            offset += len(piece) + 1
        return self.quote.join(pieces)[1:]

    def _other_encoding(self, where: str) -> InvalidParameterError:
        return InvalidParameterError(
            "the file is in another encoding",
            detail=f"{self.path.name}{where}: not {encoding_name(self.encoding)}",
            hint="name its encoding, such as encoding => 'cp1252' (Windows, western Europe)"
            " or encoding => 'latin-1'",
        )


def column_names(
    header: Sequence[str], rename: Mapping[str, str], where: str
) -> tuple[list[str], dict[str, str]]:
    """Return names that columns can have, and what to say of those that are not the file's.

    Blanks around a name go, and others become one space; a column without a name is called by its
    number, and a name that is there again gets a number.

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
        if chosen in _SYSTEM_COLUMNS:
            raise InvalidParameterError(
                "the header has a name that PostgreSQL keeps for itself",
                detail=f'{where}, column {position}: "{chosen}"',
                hint=f"give the column another name: rename => '{chosen}=NEW'",
            )
        if not chosen or len(chosen.encode()) > MAX_NAME_BYTES or "\0" in chosen:
            raise InvalidParameterError(
                "the header has a name that no column can have",
                detail=f"{where}, column {position}",
                hint=f"give the column another name of 1 to {MAX_NAME_BYTES} bytes:"
                " rename => 'OLD=NEW'",
            )
        names.append(chosen)
        if new is None and one != given:
            reason = "named so here" if one == name else "another column has its name"
            reason = reason if name else "it has no name in the file"
            quoted = one.replace("'", "''")
            notes[chosen] = f"{reason}: rename => '{quoted}=NEW'"
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


def encoding_name(name: str) -> str:
    """Return the usual name of an encoding.

    Examples
    --------
    >>> encoding_name("utf-8-sig"), encoding_name("cp1252")
    ('UTF-8', 'CP1252')
    """
    return "UTF-8" if name == _UTF_8 else name.upper()


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


def _look_at_mark(path: Path) -> str:
    """Return the encoding that the byte-order mark says, or else UTF-8."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        first = file.read(4)
    return next((name for mark, name in _MARKS if first.startswith(mark)), _UTF_8)


def _encoding(name: str) -> str:
    try:
        codec = codecs.lookup(name)
        "".encode(name)  # refuses codecs that are not encodings, such as base64
    except (LookupError, ValueError):
        raise InvalidParameterError(
            "the encoding is not known",
            hint="encoding => 'utf-8', 'latin-1', 'cp1252', 'utf-16', or another one of Python's",
        ) from None
    return _UTF_8 if codec.name == "utf-8" else codec.name


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


def _sign(option: str, given: str | None, default: str, **named: str) -> str:
    """Return a character that an option names, or gives by itself."""
    if given is None:
        return default
    sign = named.get(given, given)
    if sign not in named.values() and not re.fullmatch(r"[!-/:-@\[-`{-~]", sign):
        raise InvalidParameterError(
            f"the {option} must be one character of ASCII, no letter or digit",
            hint=f"give such a character, or {' or '.join(named)}",
        )
    return sign


def _width(shapes: Sequence[Sequence[bool]], *, of_all: bool = False) -> int:
    """Count the fields of the first line, or of all lines: 0 if these differ."""
    widths = {len(row) for row in (shapes if of_all else shapes[:1]) if row}
    return widths.pop() if len(widths) == 1 else 0


def _likely_delimiter(shapes: Mapping[str, Sequence[Sequence[bool]]]) -> str:
    """Return the delimiter that divides each line into as many fields, and into the most.

    Where there is none, it is the one that divides the header into the most.
    """
    regular = {mark: _width(shapes[mark], of_all=True) for mark in DELIMITERS}
    if max(regular.values()) < 2:
        regular = {mark: _width(shapes[mark]) for mark in DELIMITERS}
    return max(regular, key=lambda mark: regular[mark]) if max(regular.values()) > 1 else ","


def _n_titles(shapes: Mapping[str, Sequence[Sequence[bool]]]) -> int:
    """Count the lines before what seems to be the header."""
    if any(sum(rows[0]) != 1 for rows in shapes.values() if rows):
        return 0
    for rows in shapes.values():
        n = next((n for n, row in enumerate(rows) if sum(row) > 1), 0)
        first, width = (len(rows[0]), len(rows[n])) if n else (0, 0)
        is_title = first == 1 < width or (first == width > 2 and all(rows[n]))
        is_regular = len(rows) > n + 1 and _width(rows[n:], of_all=True) == width
        if 0 < n <= _MOST_TITLES and is_title and is_regular:
            return n
    return 0


_MOST_BYTES: Final = 20_000_000
_A_LINE: Final = "write a value and its labels, the narrowest first, such as BSc;degree;any"


def read_hierarchy(path: Path) -> dict[str, list[str]]:
    """Read a hierarchy as ARX keeps it: in each line a value and its labels, narrowest first."""
    file = CsvFile.of(path, CsvOptions(skip=0))
    if path.stat().st_size > _MOST_BYTES:
        raise InvalidParameterError(
            "the file of a hierarchy is too long",
            detail=f"{path.name}: more than {_MOST_BYTES:,} bytes",
            hint="give the source a view with wider values",
        )
    labels: dict[str, list[str]] = {}
    line, width = 1, 0
    try:
        with file.open(errors=MARKED_BYTES) as text:
            for row in file.rows(text, skipinitialspace=False):
                where = f"{path.name}, line {line}"
                width = width or len(row)
                file.check_characters("".join(row), where)
                if row and (len(row) != width or width < 2 or not all(row[1:])):
                    raise InvalidParameterError(
                        "a line is no value with its labels",
                        detail=f"{where}: {len(row)} fields, {sum(map(bool, row))} of them not"
                        f" empty; the first line has {width}",
                        hint=f"{_A_LINE}; repeat a label where a value has no other at a level",
                    )
                if row and row[0] in labels:
                    raise InvalidParameterError(
                        "a value of a hierarchy has two lines",
                        detail=where,
                        hint="leave one of them out",
                    )
                labels |= {row[0]: row[1:]} if row else {}
                line += 1 + "".join(row).count("\n")
    except csv.Error:
        raise InvalidParameterError(
            "a line cannot be read as CSV", detail=f"{path.name}, line {line}", hint=_DOUBLED
        ) from None
    if not labels:
        raise InvalidParameterError(
            "the file of a hierarchy is empty", detail=path.name, hint=f"{_A_LINE}, a line for each"
        )
    return labels
