"""What the texts of a column may be: numbers and dates, as people write them.

A column is looked at by the *shapes* of its texts, in which each digit is a 9, but for a leading 0.
All patterns here match a text and its shape alike. Whether a date exists, PostgreSQL tells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import field, replace
from datetime import date
from typing import Final

from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError

MOMENT: Final = "timestamp with time zone"
NUMBERS: Final = ("integer", "bigint", "numeric", "double precision")
"""From narrow to wide."""

MISSING: Final = frozenset(
    {"", "-", "--", ".", "..", "?", "*", "#N/A", "#NULL!", "#VALUE!", "#DIV/0!", "N/A", "n/a", "NA",
     "na", "NaN", "nan", "NAN", "NULL", "null", "Null", "None", "none", "NONE", "missing",
     "Missing", "MISSING", "unknown", "Unknown", "UNKNOWN", "k.A.", "k. A.", "<NA>", "NaT"}
)  # fmt: skip
"""What files write for a missing value. A note may name these words of ours, as no other value."""

NO_DAY: Final = "0000-00-00"
"""MySQL's missing date, which a note may name, too."""

_APART: Final = ("'\u2019", " \u00a0\u2009\u202f")
"""Marks between thousands that are never a decimal sign: apostrophes, and spaces of any width."""

_UNITS: Final = ("%", "€", "$", "£", "EUR", "USD", "CHF", "GBP")
"""What may stand before or after each number of a column."""

_OTHER_SIGN: Final = {".": ",", ",": "."}
_EXPONENT: Final = "(?:[eE][+-]?[0-9]{1,2})?"
_ROUNDED: Final = "some have an exponent: digits may have been lost where the file was written"


@dataclass(frozen=True)
class ValueType:
    """A type of PostgreSQL, and how the texts of a column are read as values of it."""

    sql: str
    pattern: str = ""  # Matches all texts, and their shapes
    # Patterns, and what their groups make: a date that PostgreSQL reads
    rewrites: tuple[tuple[str, str], ...] = ()
    between: str = ""  # Marks between thousands
    decimal: str = ""  # The decimal sign, if the texts have one
    doubt: str = ""  # The decimal signs that would make numbers of these texts
    unit: str = ""  # What each number has before or after it
    category: str = ""  # PostgreSQL's, of types that were given
    note: str = ""  # What is worth knowing about the guess

    @property
    def may_fail(self) -> bool:
        """Tell whether a text may match without being a value, such as 30 February."""
        return self.sql in ("date", "timestamp", MOMENT, "double precision")


TEXT: Final = ValueType("text")

_PARTS: Final = {
    # PostgreSQL's words for the parts of a date format, and the pattern that each matches.
    "YYYY": "[0-9]{4}",
    "YY": "[0-9]{2}",
    "MM": "[0-9]{1,2}",
    "MON": "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?",
    "DD": "[0-9]{1,2}",
    "HH24": "[0-9]{1,2}",
    "HH12": "[0-9]{1,2}",
    "MI": "[0-9]{2}",
    "SS": "[0-9]{2}",
    "AM": "[ap]m",
}
_WORD: Final = re.compile("|".join(_PARTS))
_FORMAT: Final = re.compile(f"(?:(?:{_WORD.pattern})[-./:, ]*)+")
_DAYS: Final = tuple(
    {year, month, "DD"} for year in ("YYYY", "YY") for month in ("MM", "MON")
)  # fmt: skip
_CLOCKS: Final = ({"HH24", "MI"}, {"HH12", "MI", "AM"})


@dataclass(frozen=True)
class DateFormat:
    """A format of dates or times, such as ``DD.MM.YYYY`` or ``DD-MON-YY HH12:MI AM``."""

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

    def _pattern(self, years: str = _PARTS["YY"]) -> str:
        between, words = _WORD.split(self.text), _WORD.findall(self.text)
        parts = {**_PARTS, "YY": years}
        if not all(between[1:-1]) and "MON" not in words:  # only two digits can be told apart
            parts = {word: part.replace("{1,2}", "{2}") for word, part in parts.items()}
        groups = [*(f"({parts[word]})" for word in words), "$"]
        folded = "(?i)" if {"MON", "AM"} & {*words} else ""
        marks = map(re.escape, between)
        return f"{folded}^{''.join(a + b for a, b in zip(marks, groups, strict=True))}"

    @property
    def type(self) -> ValueType:
        """The type of a column with such dates."""
        place = {word: f"\\{n}" for n, word in enumerate(_WORD.findall(self.text), start=1)}
        hour = place.get("HH24") or place.get("HH12")
        clock = ":".join(place[word] for word in ("MI", "SS") if word in place)
        day = f"-{place.get('MM') or place.get('MON')}-{place['DD']}"
        rest = (day + (f" {hour}:{clock} {place.get('AM', '')}" if hour else "")).rstrip()
        note = f"read as date_format => '{self.text}'"
        rewrites = [(self._pattern(), f"{place.get('YYYY')}{rest}")]
        if "YY" in place:
            first = date.today().year - 99 if self.first_year is None else self.first_year
            century, start = divmod(first, 100)
            both = ((century, range(start, 100)), (century + 1, range(start)))
            rewrites = [
                (self._pattern("|".join(f"{n:02d}" for n in own)), f"{hundred}{place['YY']}{rest}")
                for hundred, own in both if own
            ]  # fmt: skip
            note += f", years from {first} to {first + 99}: first_year => {first}"
        sql = "timestamp" if hour else "date"
        return ValueType(sql, self._pattern(), tuple(rewrites), note=note)


def as_type(sql: str) -> str:
    """Return the option that names a type, in which a note writes the name of its column."""
    return f'types => \'{{"COLUMN": "{sql}"}}\''


@dataclass
class Shapes:
    """The shapes of a column's texts, without the blanks around them."""

    counts: Counter[str] = field(default_factory=Counter)
    n_blank: int = 0  # Texts with blanks around them
    n_empty: int = 0  # Empty texts in quotes
    # Whether they were counted at all: if not, the column is one of texts without further notes
    known: bool = True

    def fit(self, pattern: str) -> bool:
        """Tell whether there are texts, and all match."""
        return self.known and bool(self.counts) and self.n(pattern) == self.n()

    def n(self, pattern: str = "") -> int:
        """Count the texts that match."""
        match = re.compile(pattern).search
        return sum(n for shape, n in self.counts.items() if match(shape))

    def words(self, pattern: str) -> Counter[str]:
        """Return words for missing values that do not match."""
        match = re.compile(pattern).search
        return Counter({shape: n for shape, n in self.counts.items()
                        if shape in MISSING and not match(shape)})  # fmt: skip

    @property
    def decimals_vary(self) -> bool:
        """Tell whether two texts may be one number, such as 1.5, 1.50 and 15e-1."""
        ends = {re.sub("^-?[0-9]+", "", shape) for shape in self.counts}
        return len(ends) > 1 or any(re.search("[eE]|^-0", shape) for shape in self.counts)


def _number(decimal: str = "", between: str = "") -> str:
    integer = "0|[1-9][0-9]*"
    if between:
        integer += f"|[1-9][0-9]{{0,2}}(?:[{between}][0-9]{{3}})+"
    mark = f"[{decimal}][0-9]+"
    number = f"(?:{integer})(?:{mark})?|{mark}" if decimal else integer
    return f"^-?(?:{number}){_EXPONENT}$"


_ISO_DAY: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO_TIME: Final = f"^{_ISO_DAY}[ T][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:[.][0-9]{{1,9}})?)?"
_ZONE: Final = "(?:Z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?)"
ZONED: Final = f"{_ISO_TIME} ?{_ZONE}$"
FINER: Final = "[.][0-9]{6}"
"""Microseconds, the finest that PostgreSQL keeps: what follows is rounded."""

_ISO: Final = (
    ValueType("date", f"^{_ISO_DAY}$"),
    ValueType("timestamp", f"{_ISO_TIME}$"),
    ValueType(MOMENT, ZONED),
)

_ORDERED: Final = (
    # Formats whose order of day and month is beyond doubt, also as months have names
    "DD.MM.YYYY", "YYYY/MM/DD", "YYYY.MM.DD",
    "DD-MON-YYYY", "DD MON YYYY", "DDMONYYYY", "MON DD, YYYY", "DD-MON-YY", "DDMONYY",
)  # fmt: skip
_DOUBTFUL: Final = tuple((f"DD{mark}MM{mark}YYYY", f"MM{mark}DD{mark}YYYY") for mark in "/-")
_HOURS: Final = ("", *(mark + clock for mark in " :" for clock in (
    "HH24:MI", "HH24:MI:SS", "HH12:MI AM", "HH12:MI:SS AM")))  # fmt: skip

_LOCAL_MONTH: Final = "(?:jan|feb|m[aäe\u00e4]r|a[pv]r|ma[iyj]|jun|jul|aug|sep|o[ck]t|nov|de[cz])"
_NOTED: Final = (
    # What is kept as texts, and what to say of it
    *((f"^[0-9]{{1,2}}[{mark}][0-9]{{1,2}}[{mark}][0-9]{{1,2}}$", "if these are dates: "
       + " or ".join(f"date_format => '{text}'" for text in formats))
      for mark, formats in ((".", ["DD.MM.YY"]), ("/", ["DD/MM/YY", "MM/DD/YY"]),
                            ("-", ["DD-MM-YY", "YY-MM-DD"]))),
    ("^[0-9]{4}-[0-9]{2}$", "years with months, without a day: kept as texts, which are in order"),
    ("^[0-9]{1,2}[-. /]*[^-0-9./ ]{3,9}[.]?[-. /]*[0-9]{2,4}$",
     "if these are dates: names of months are read in English only"),
)  # fmt: skip

_RANGE: Final = "[0-9]{1,3} ?[-\u2013] ?[0-9]{1,3}"
MANGLED: Final = (
    f"(?i)^(?:[0-9]{{1,2}}[-. ]+{_LOCAL_MONTH}[a-z]*[.]?|{_LOCAL_MONTH}[a-z]*[-. ]+[0-9]{{2}})$"
)
"""What spreadsheets make of 5-9 and 10-14: 09-May and Oct-14."""

_CODE: Final = "^[0-9]+(?:[- ][0-9]+)*$"
NEARLY: Final = {
    # What a column is said to be nearly, for want of a value or two
    "numbers": _number(".,", f".,{''.join(_APART)}"),
    "dates": "(?i)^(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}"
    "|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{2,4}"
    f"|[0-9]{{1,2}}[- ]?(?:{_PARTS['MON']})[- ]?[0-9]{{2,4}})(?:[ T:][0-9]{{1,2}}:.*)?$",
    "ranges": f"(?i)^{_RANGE}$|{MANGLED.removeprefix('(?i)')}",
    "codes": f"^[+]?{_CODE[1:]}",
}
_FLAGS: Final = (
    "^(?:true|false|TRUE|FALSE|True|False)$",
    # Of one letter alone, nobody knows what it stands for: f may be female.
    "^[tf]$",
)
_FLAG: Final = "|".join(_FLAGS)


def may_be_typed(texts: Collection[str], date_format: DateFormat | None) -> bool:
    """Tell of some of a column's texts whether the column may have another type, or nearly has."""
    own = [date_format.type.pattern] if date_format else []
    noted = [*map(_unit_pattern, _UNITS), *(pattern for pattern, _ in _NOTED)]
    patterns = [*own, *NEARLY.values(), _FLAG, *noted]
    values = [text for text in texts if text not in MISSING]
    matching = [re.compile(pattern, re.IGNORECASE).search for pattern in patterns]
    n = sum(any(match(value) for match in matching) for value in values)
    return 2 * n >= len(values)


def _unit_pattern(unit: str) -> str:
    mark = "".join(f"[{letter}]" for letter in unit)
    number = "[0-9][0-9.,'\u2019 ]*"
    return f"^(?:-?{mark} ?-?{number}|-?{number} ?{mark})$"


def unit_of(shapes: Shapes) -> str:
    """Return what stands before or after each number of a column, if it is always the same."""
    return next((unit for unit in _UNITS if shapes.fit(_unit_pattern(unit))), "")


def without_unit(shapes: Shapes, unit: str) -> Shapes:
    """Return the shapes of a column's numbers."""
    counts: Counter[str] = Counter()
    for shape, n in shapes.counts.items():
        counts[shape.replace(unit, "").strip()] += n
    return replace(shapes, counts=counts)


def likely_types(
    shapes: Shapes,
    delimiter: str,
    decimal: str | None = None,
    date_format: DateFormat | None = None,
    first_year: int | None = None,
) -> Iterator[tuple[ValueType, ...]]:
    """Yield the types that a column's texts may have; several at once exclude each other."""
    # A point or a comma before three digits may be either sign. Where all of a column's marks are
    # of this kind, it is `doubt`ful: other columns may say what they mean, or else an option.
    own = [date_format.type] if date_format else []
    yield from ((kind,) for kind in own if shapes.fit(kind.pattern))
    if shapes.fit(_FLAGS[0]) or (shapes.fit(_FLAGS[1]) and len(shapes.counts) == 2):
        yield (ValueType("boolean", _FLAG),)
    yield from ((kind,) for kind in _numbers(shapes, delimiter, decimal))
    if unit := unit_of(shapes):
        note = f"numbers with {unit}, which {as_type('numeric')} leaves out"
        yield (ValueType("text", _unit_pattern(unit), note=note),)
    yield from ((kind,) for kind in _ISO if shapes.fit(kind.pattern))
    for formats in () if date_format else (*((one,) for one in _ORDERED), *_DOUBTFUL):
        for clock in _HOURS:
            kinds = tuple(DateFormat(one + clock, first_year).type for one in formats)
            if shapes.fit(kinds[0].pattern):
                yield kinds
    yield from ((ValueType("text", pattern, note=note),) for pattern, note in _NOTED
                if shapes.fit(pattern))  # fmt: skip


def _numbers(shapes: Shapes, delimiter: str, decimal: str | None) -> Iterator[ValueType]:
    if shapes.fit(_number()):
        yield _narrowest(shapes, ValueType("", _number()))
    if decimal is None:
        for sign, name in ((".", "point"), (",", "comma")):
            if shapes.fit(f"^-?(?:0|[1-9][0-9]*|[1-9][0-9]{{0,2}}[{sign}][0-9]{{3}})$"):
                yield ValueType(
                    "text", doubt=".,",
                    note=f"is the {name} a decimal sign or between thousands? decimal => '.' or"
                    " decimal => ','",
                )  # fmt: skip
        if delimiter == "," and shapes.fit("^-?(?:0|[1-9][0-9]*)(?:,[0-9]+)?$"):
            yield ValueType(
                "text", doubt=",",
                note="if these are numbers with a decimal comma: decimal => ','",
            )  # fmt: skip
    for between in _APART:
        if shapes.fit(_number("", between)):
            note = "read without the marks between thousands"
            kind = ValueType("", _number("", between), between=between, note=note)
            yield _narrowest(shapes, kind)
    for sign in decimal or ".,":
        read = f"read as decimal => '{sign}'"
        grouped = f"without the marks between thousands, {read}"
        for between in ("", _OTHER_SIGN[sign], *_APART):
            pattern = _number(sign, between)
            note = grouped if between else read if sign == "," else ""
            kind = ValueType("", pattern, between=between, decimal=sign, note=note)
            if shapes.fit(pattern):
                yield _narrowest(shapes, kind)


def _narrowest(shapes: Shapes, kind: ValueType) -> ValueType:
    """Name the narrowest type that holds all numbers of these shapes."""
    if any(re.search("[eE]", shape) for shape in shapes.counts):
        note = "; ".join(filter(None, [kind.note, _ROUNDED]))
        return replace(kind, sql="double precision", note=note)
    if kind.decimal and any(kind.decimal in shape for shape in shapes.counts):
        return replace(kind, sql="numeric")
    n_digits = max(len(re.findall("[0-9]", shape)) for shape in shapes.counts)
    sql = "integer" if n_digits <= 9 else "bigint" if n_digits <= 18 else "numeric"
    return replace(kind, sql=sql)


@dataclass(frozen=True)
class TextNote:
    """What is said of a column of texts; ``LINE`` stands for the line of the first one."""

    note: str = ""
    pattern: str = ""  # Of the texts to look for, or of all others
    is_matching: bool = False


def text_note(shapes: Shapes) -> TextNote:
    """Say what a column of texts nearly is."""
    missing = shapes.words("^$")
    plain = replace(shapes, counts=shapes.counts - missing)
    n, n_plain = shapes.n(), plain.n()
    nearly = (what for what, pattern in NEARLY.items() if plain.n(pattern) * 2 >= n_plain)
    what = next(nearly, "") if shapes.known and n_plain else ""
    null = " ".join(f"null => '{word}'" for word in sorted(missing))
    zeros, plus, mangled = plain.n("^-?0[0-9]"), plain.n("^[+]"), plain.n(MANGLED)
    if what and zeros and plain.fit(_CODE):
        said = f"{zeros:,} of {n:,} begin with 0, as codes do: kept as texts"
        return TextNote("; ".join(filter(None, [said, _lengths(plain), null])))
    if what and plus and plain.fit(f"^(?:[+]|(?=-))?{_number('.')[3:]}"):
        said = f"{plus:,} of {n:,} begin with +, as codes may: kept as texts"
        return TextNote("; ".join(filter(None, [f"{said}, or {as_type('numeric')}", null])))
    if what == "ranges" and mangled:
        return TextNote(
            f"{mangled:,} of {n:,} look like ranges that a spreadsheet took for dates, the first"
            " one in line LINE: correct them where the file was made", MANGLED, is_matching=True,
        )  # fmt: skip
    if what in ("", "ranges", "codes"):
        return TextNote(_lengths(plain) if what == "codes" else "")
    pattern = NEARLY[what]
    misses, unknown = n - shapes.n(pattern), n_plain - plain.n(pattern)
    if misses == 0:
        return TextNote(f"its {what} are written in several ways: make them alike")
    said = f"{misses:,} of {n:,} values are no {what}, the first one in line LINE: "
    if not missing:
        said += "correct them, or null => 'TEXT' if they mean that it is missing"
    elif unknown:
        null += f", and correct the other {unknown:,}"
    return TextNote(said + null, pattern)


def _lengths(shapes: Shapes) -> str:
    """Say how many codes have another length than most."""
    lengths: Counter[int] = Counter()
    for shape, n in shapes.counts.items():
        lengths[len(shape)] += n
    (usual, most), *rarer = lengths.most_common()
    n = sum(lengths.values())
    if not rarer or 2 * most < n:
        return ""
    return f"{n - most:,} of {n:,} have another length than {usual} characters"
