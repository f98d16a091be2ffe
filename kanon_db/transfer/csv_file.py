"""Finds how a CSV file is written; PostgreSQL's COPY reads its records.

What COPY would read as something else than is written never reaches it: quotes that open or close
within a field, other line ends, bytes of another encoding (benchmarks/csv_readers.py compares other
readers). Python's reader reads the header, and hierarchies in ARX's format.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, TextIO

from kanon_db.dataclasses import dataclass
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

_SEPARATOR: Final = re.compile(r'"?sep=(.)"?\r?\n', re.IGNORECASE)
"""The line by which Excel is told the delimiter; it stands before the header."""

_END_OF_DATA: Final = re.compile(r"(?:^|(?<=\n))\\\.(?:\r?\n|$)")
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
        if not isinstance(given, Mapping):
            given = dict(str(pair).rpartition("=")[::2] for pair in given)
        if not all(name and isinstance(name, str) for pair in given.items() for name in pair):
            raise InvalidParameterError(
                "a column is renamed with its name in the file, =, and the new name",
                hint="rename => 'OLD=NEW'",
            )
        return {**given}


@dataclass(frozen=True)
class CsvFile:
    """A CSV file with a header line, and how it is to be read."""

    path: Path  # A ``.csv`` or ``.csv.gz`` file
    encoding: str  # Python's name of it
    delimiter: str = ","
    quote: str = '"'  # Or `_NO_QUOTE`
    escape: str = ""  # What stands before a quote in a quoted field; by default, another quote
    newline: str | None = "\n"  # As `open` has it
    n_before: int = 0  # Lines before the header

    @classmethod
    def of(cls, path: Path, reading: CsvOptions | None = None) -> Self:
        """Look at the first lines of a file, and guess what is not given."""
        reading = reading or CsvOptions()
        if path.exists() and not path.is_file() and not path.is_dir():
            raise InvalidParameterError(
                "the file is a pipe or a device, and is read more than once",
                detail=str(path),
                hint="write what it gives into a file (.csv or .csv.gz), and load that",
            )
        named = {name: mark for mark, name in DELIMITERS.items()} | {r"\t": "\t"}
        own = _sign("delimiter", reading.delimiter, **named)
        quote = _sign("quote", reading.quote, none=_NO_QUOTE) or '"'
        escape = _sign("escape", reading.escape, backslash="\\").removeprefix(quote)
        file = cls(path, _encoding(path, reading.encoding), quote=quote, escape=escape)
        with file.open() as text:
            sample, is_whole = text.read(_SAMPLE), not text.read(1)
        separator = _SEPARATOR.match(sample)
        if separator and not own:
            own = _sign("delimiter", separator[1])
        if own and own in (quote, escape):
            raise InvalidParameterError(
                "the delimiter is what stands around fields, or escapes quotes",
                hint="delimiter => ',', or another sign around fields: quote => 'none'",
            )
        n_before = int(bool(separator)) if reading.skip is None else reading.skip
        # As Macintosh wrote lines once, or else as everybody does
        newline = None if "\r" in sample and "\n" not in sample else "\n"
        file = replace(file, newline=newline, n_before=n_before)
        lines = io.StringIO(sample, newline=newline).readlines()[n_before:]
        if not is_whole:  # the last line may be cut
            lines = lines[:-1] or lines
        samples = {mark: replace(file, delimiter=mark)._sample(lines)
                   for mark in dict.fromkeys([*DELIMITERS, own or ","])}  # fmt: skip
        likely = max(DELIMITERS, key=lambda mark: _usual_width(samples[mark]))
        (header, *records), width = samples[own or likely], _usual_width(samples[own or likely])[1]
        where = f"{path.name}, line {n_before + 1}"
        if reading.delimiter and len(header) == 1 < len(samples[likely][0]):
            raise InvalidParameterError(
                "the header has only one field with this delimiter",
                detail=where,
                hint=f"the fields seem to be separated by another one: delimiter => '{likely}'",
            )
        titles = (n for n, row in enumerate(records, 1) if len(row) == width > 1 < sum(row))
        n_titles = next(titles, 0) if sum(header) == 1 and len(header) != 2 else 0
        if n_titles and reading.skip is None:
            raise InvalidParameterError(
                "the first line seems to be a title, and no header",
                detail=f"{where}: it has one text, where later lines have several",
                hint=f"skip => {n_titles}, or skip => 0 if it is the header",
            )
        return replace(file, delimiter=own or likely)

    def _sample(self, lines: Sequence[str]) -> list[list[bool]]:
        """Tell of each field of each record whether there is something in it."""
        try:
            rows = [[bool(field.strip(BLANKS)) for field in row]
                    for row in self.rows(lines, strict=False)]  # fmt: skip
        except csv.Error:  # a field longer than Python reads
            rows = []
        return rows or [[]]

    @contextmanager
    def open(self) -> Iterator[TextIO]:
        """Open it as text, in which surrogates stand for bytes that are not in the encoding."""
        opened = gzip.open if self.path.suffix == ".gz" else open
        try:
            with (
                _readable(self.path),
                opened(self.path, "rt", encoding=self.encoding, errors="surrogateescape",
                       newline=self.newline) as text,
            ):  # fmt: skip
                yield text
        except UnicodeError:
            raise self._other_encoding(self.path.name) from None

    def rows(self, lines: Iterable[str], *, strict: bool = True, skip_blanks: bool = True) -> Any:
        """Read rows with Python's reader: headers and hierarchies."""
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape or None,
            quoting=csv.QUOTE_NONE if self.quote == _NO_QUOTE else csv.QUOTE_MINIMAL,
            strict=strict,
            skipinitialspace=skip_blanks and self.delimiter != " ",
        )

    def header(self, text: TextIO) -> tuple[list[str], int]:
        """Read the names of the columns as they are, and count the lines that were read.

        They may be empty, or be there twice: see :func:`column_names`.
        """
        where = f"{self.path.name}, line {self.n_before + 1}"
        for _ in range(self.n_before):
            text.readline()
        reader = self.rows(iter(lambda: text.readline(_LONGEST), ""))
        try:  # The header has several lines if a name contains a line break.
            header: list[str] = next(reader, [])
        except csv.Error:
            raise InvalidParameterError(
                "the header cannot be read as CSV", detail=where, hint=_QUOTES
            ) from None
        names = [name.replace(self.delimiter, " ").replace(self.quote, " ") for name in header]
        self.check_characters(self.delimiter.join(names), self.n_before)
        if not any(header):
            raise InvalidParameterError(
                "the file has no header line",
                detail=where,
                hint="write the names of the columns into the first line",
            )
        if len(header) > _MOST_COLUMNS:
            raise InvalidParameterError(
                "the file has more columns than a table of PostgreSQL can have",
                detail=f"{where}: {len(header):,} of at most {_MOST_COLUMNS:,}",
                hint="write the columns that are needed into a file of their own",
            )
        return header, self.n_before + reader.line_num

    def copy_options(self) -> dict[str, str]:
        """Return how COPY is to read `records`."""
        escape = self.escape or self.quote
        return {"DELIMITER": self.delimiter, "QUOTE": self.quote, "ESCAPE": escape, "NULL": ""}

    def records(self, text: TextIO, header: Sequence[str], n_lines: int) -> Iterator[bytes]:
        """Read what follows the first lines, as many lines for COPY as there are in the file.

        A line without values is a record, unless of one column; what COPY misreads is refused.
        """
        chunk = ""
        while more := text.read(_CHUNK):
            rest = text.readline(_LONGEST)
            chunk += more + rest
            if len(rest) == _LONGEST and not rest.endswith("\n"):
                place = self._place(chunk, len(chunk), n_lines, header)
                raise InvalidParameterError(
                    "a line is too long for a record",
                    detail=f"{place}: at least {_LONGEST:,} characters",
                    hint="look whether it is a CSV file, and is whole",
                )
            # A quoted field that is open may be closed in the next lines.
            quotes = re.sub(rf"{re.escape(self.escape)}(?s:.)", "", chunk) if self.escape else chunk
            if quotes.count(self.quote) % 2 == 0 or len(chunk) > _LONGEST:
                yield self._settle(chunk, header, n_lines).encode()
                n_lines += chunk.count("\n")
                chunk = ""
        if chunk:
            yield self._settle(chunk, header, n_lines).encode()

    def _fields_in_quotes(self, chunk: str) -> re.Pattern[str]:
        """Return what matches quoted fields of records, with the blanks around them."""
        quote, escape = re.escape(self.quote), re.escape(self.escape)
        within = f"[^{re.escape(self.delimiter)}\r\n]"
        plain, pair = f"[^{quote}{escape}]*", f"{escape}(?s:.)" if escape else f"{quote}{quote}"
        # It begins with a character, which is found fast, unless there are blanks.
        begin, end = f"{quote}(?<!{within}{quote})", quote
        if self.delimiter != " " and (f" {self.quote}" in chunk or f"{self.quote} " in chunk):
            begin, end = f"(?<!{within}) *{quote}", f"{quote} *"
        return re.compile(f"({begin}{plain}(?:{pair}{plain})*{end}(?!{within}))")

    def _settle(self, chunk: str, header: Sequence[str], n_lines: int) -> str:
        """Return records with one kind of line ends, and empty ones for empty lines."""
        self.check_characters(chunk, n_lines, header)
        if not chunk.endswith("\n"):
            chunk += "\n"
        quoted = self._fields_in_quotes(chunk)
        parts = quoted.split(chunk)  # those at odd places are quoted fields
        bare = "\n" + "\0".join(parts[::2]).replace("\r\n", "\n")
        if self.quote in bare or "\r" in bare:
            masked = quoted.sub(lambda field: "\0" * len(field[0]), chunk)
            odd = next(re.finditer(rf"{re.escape(self.quote)}|\r(?!\n)", masked))
            is_quote, place = odd[0] != "\r", self._place(chunk, odd.start(), n_lines, header)
            raise InvalidParameterError(
                "a field has a quote within it, or one that nothing closes"
                if is_quote else "a line ends in another way than the first one",
                detail=place,
                hint=_QUOTES
                if is_quote else "make all lines end alike, or put the field into double quotes",
            )  # fmt: skip
        if len(header) > 1:
            empty = rf"\n[{re.escape(self.delimiter)}\t ]*(?=\n)"
            bare = re.sub(empty, "\n" + self.delimiter * (len(header) - 1), bare)
        parts[::2] = bare[1:].split("\0")
        settled = "".join(parts)
        if "\\." in settled and (end := _END_OF_DATA.search(settled)):
            place = self._place(settled, end.start(), n_lines, header)
            raise InvalidParameterError(
                r"the file has a line that reads \.",
                detail=f"{place}: PostgreSQL would take it for the end of the data",
                hint=r'put the value into double quotes: "\."',
            )
        return settled

    def _place(self, text: str, at: int, n_lines: int, header: Sequence[str]) -> str:
        """Say in which line and column a character is; delimiters in quotes do not count."""
        closed = self._fields_in_quotes(text).sub("", text[:at])
        record = closed.partition(self.quote)[0].rpartition("\n")[2]
        n = 1 + record.count(self.delimiter)
        name = header[n - 1] if n <= len(header) else ""
        shown = f' ("{name}")' if name and name.isprintable() else ""
        line = n_lines + 1 + text.count("\n", 0, at)
        return f"{self.path.name}, line {line}, column {n}{shown}"

    def check_characters(self, text: str, n_lines: int, header: Sequence[str] = ()) -> None:
        """Refuse bytes of another encoding, and characters that PostgreSQL does not take."""
        try:
            text.encode()
        except UnicodeEncodeError as error:  # bytes that are not in the encoding
            raise self._other_encoding(self._place(text, error.start, n_lines, header)) from None
        controls = "\0" + (_NO_QUOTE if self.quote == _NO_QUOTE else "")
        if odd := re.search(f"[{controls}]", text):
            raise InvalidParameterError(
                "the file contains a control character that is in no text, such as NUL",
                detail=self._place(text, odd.start(), n_lines, header),
                hint="if the file is in UTF-16: encoding => 'utf-16-le' (of Windows) or encoding =>"
                r" 'utf-16-be'; otherwise remove it, for example with: tr -d '\000\001'",
            )

    def _other_encoding(self, place: str) -> InvalidParameterError:
        return InvalidParameterError(
            "the file is in another encoding",
            detail=f"{place}: not {encoding_name(self.encoding)}",
            hint="name its encoding, such as encoding => 'cp1252' (Windows, western Europe)"
            " or encoding => 'latin-1'",
        )


def column_names(
    header: Sequence[str], rename: Mapping[str, str], where: str
) -> tuple[list[str], dict[str, str]]:
    """Return names that columns can have, and what to say of those that are not the file's.

    Examples
    --------
    >>> column_names([" age ", "", "age"], {"age_2": "years"}, "file.csv, line 1")[0]
    ['age', 'column_2', 'years']
    """
    # Blanks around a name go, and others become one space.
    plain = [" ".join(name.strip(BLANKS).split()) for name in header]
    unique: list[str] = []
    names: list[str] = []
    notes: dict[str, str] = {}
    wanted = dict(rename)
    for position, (given, name) in enumerate(zip(header, plain, strict=True), start=1):
        # A column without a name is called by its number, and a name that is there again gets one.
        own = name or f"column_{position}"
        numbered = itertools.chain([own], (f"{own}_{n}" for n in itertools.count(2)))
        one = next(free for free in numbered
                   if free not in unique and (free == name or free not in plain))  # fmt: skip
        unique.append(one)
        old = next((old for old in (one, given) if old in wanted), None)
        chosen = one if old is None else wanted.pop(old)
        is_taken = chosen in names or chosen in _SYSTEM_COLUMNS
        if is_taken or not 0 < len(chosen.encode()) <= MAX_NAME_BYTES or "\0" in chosen:
            raise InvalidParameterError(
                "the header has a name that the column cannot have",
                detail=f"{where}, column {position}"
                + (": PostgreSQL or another column has it" if is_taken else ""),
                hint=f"give the column another name of 1 to {MAX_NAME_BYTES} bytes:"
                f" rename => '{chosen if chosen in _SYSTEM_COLUMNS else 'OLD'}=NEW'",
            )
        names.append(chosen)
        if old is None and one != given:
            why = "another column has its name" if one != name else "named so here"
            quoted = one.replace("'", "''")
            notes[chosen] = (
                f"{why if name else 'it has no name in the file'}: rename => '{quoted}=NEW'"
            )
    require_columns(wanted, unique, "rename")
    return names, notes


def require_columns(named: Iterable[str], columns: Sequence[str], option: str) -> None:
    """Refuse an option that names a column which the file does not have."""
    if missing := [name for name in named if name not in columns]:
        raise NotFoundError(
            "the file has no such column",
            detail=f'column "{missing[0]}", named in {option}',
            hint=f"its columns are {', '.join(columns)}",
        )


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


def _encoding(path: Path, name: str | None) -> str:
    """Return the encoding that is given, or that a byte-order mark says, or else UTF-8."""
    if name is None:
        with _readable(path), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            first = file.read(4)
        return next((name for mark, name in _MARKS if first.startswith(mark)), _UTF_8)
    try:
        codec = codecs.lookup(name)
        "".encode(name)  # refuses codecs that are not encodings, such as base64
    except (LookupError, ValueError):
        raise InvalidParameterError(
            "the encoding is not known",
            hint="encoding => 'utf-8', 'latin-1', 'cp1252', 'utf-16', or another one of Python's",
        ) from None
    return _UTF_8 if codec.name == "utf-8" else codec.name


def _sign(option: str, given: str | None, **named: str) -> str:
    """Return the character that an option names, or gives by itself; none if it is not given."""
    if given is None:
        return ""
    sign = named.get(given, given)
    if sign not in named.values() and not re.fullmatch(r"[ -/:-@\[-`{-~]", sign):
        raise InvalidParameterError(
            f"the {option} must be one character of ASCII, no letter or digit",
            hint=f"give such a character, or {' or '.join(named)}",
        )
    return sign


def _usual_width(rows: Sequence[Sequence[bool]]) -> tuple[float, int]:
    """Return the share of records with the most usual number of fields, and it: 0 of one field."""
    widths = Counter(len(row) for row in rows if any(row))
    width, n = next(iter(widths.most_common(1)), (1, 0))
    return (n / widths.total(), width) if width > 1 else (0.0, 1)


_MOST_CHARACTERS: Final = 20_000_000
_A_LINE: Final = "write a value and its labels, the narrowest first, such as BSc;degree;any"


def read_hierarchy(path: Path) -> dict[str, list[str]]:
    """Read a hierarchy as ARX keeps it: in each line a value and its labels, narrowest first."""
    file = CsvFile.of(path, CsvOptions(skip=0))
    with file.open() as opened:
        text = opened.read(_MOST_CHARACTERS + 1)
    if len(text) > _MOST_CHARACTERS:
        raise InvalidParameterError(
            "the file of a hierarchy is too long",
            detail=f"{path.name}: more than {_MOST_CHARACTERS:,} characters",
            hint="give the source a view with wider values",
        )
    file.check_characters(text, 0)
    labels: dict[str, list[str]] = {}
    rows = file.rows(io.StringIO(text), skip_blanks=False)
    try:
        for row in filter(None, rows):
            where = f"{path.name}, line {rows.line_num}"
            width = len(next(iter(labels.values()), row[1:])) + 1
            if len(row) != width or width < 2 or not all(row[1:]):
                raise InvalidParameterError(
                    "a line is no value with its labels",
                    detail=f"{where}: {len(row)} fields, {sum(map(bool, row))} of them not"
                    f" empty; the first line has {width}",
                    hint=f"{_A_LINE}; repeat a label where a value has no other at a level",
                )
            if row[0] in labels:
                raise InvalidParameterError(
                    "a value of a hierarchy has two lines",
                    detail=where,
                    hint="leave one of them out",
                )
            labels[row[0]] = row[1:]
    except csv.Error:
        raise InvalidParameterError(
            "a line cannot be read as CSV",
            detail=f"{path.name}, line {rows.line_num}",
            hint=_DOUBLED,
        ) from None
    if not labels:
        raise InvalidParameterError(
            "the file of a hierarchy is empty", detail=path.name, hint=f"{_A_LINE}, a line for each"
        )
    return labels
