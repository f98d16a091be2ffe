"""What the texts of a column may be: numbers and dates, as people write them.

A column is looked at by the *shapes* of its texts, in which each digit is a 9, but for a leading 0.
All patterns here match a text and its shape alike. Whether a date exists, PostgreSQL tells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import field, replace
from datetime import date
from typing import Final

from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError
from kanon_db.transfer.csv_file import CsvOptions

MOMENT: Final = "timestamp with time zone"
NUMBERS: Final = ("integer", "bigint", "numeric", "double precision")

MISSING: Final = frozenset(
    {"", "-", "--", ".", "..", "?", "*", "#N/A", "#NULL!", "#VALUE!", "#DIV/0!", "N/A", "n/a", "NA",
     "na", "NaN", "nan", "NAN", "NULL", "null", "Null", "None", "none", "NONE", "missing",
     "Missing", "MISSING", "unknown", "Unknown", "UNKNOWN", "k.A.", "k. A.", "<NA>", "NaT"}
)  # fmt: skip
"""What files write for a missing value. A note may name these words of ours, as no other value."""

_SPACES: Final = " \u00a0\u2009\u202f"
_APART: Final = ("'\u2019", _SPACES)
"""Marks between thousands that are never a decimal sign: apostrophes, and spaces of any width."""

_UNITS: Final = ("%", "€", "$", "£", "EUR", "USD", "CHF", "GBP")
"""What may stand before or after each number of a column."""

_OTHER_SIGN: Final = {".": ",", ",": "."}
_ROUNDED: Final = "some have an exponent: digits may have been lost where the file was written"


@dataclass(frozen=True)
class ValueType:
    """A type of PostgreSQL, and how the texts of a column are read as values of it."""

    sql: str
    pattern: str = ""  # Matches all texts, and their shapes
    # Patterns, and what their groups make: a date that PostgreSQL reads
    rewrites: tuple[tuple[str, str], ...] = ()
    drops: str = ""  # Characters that numbers lose: marks between thousands, a unit
    decimal: str = ""  # The decimal sign, if the texts have one
    option: str = ""  # The option that says that the texts mean this, and nothing else
    category: str = ""  # PostgreSQL's, of types that were given
    note: str = ""  # What is worth knowing about the guess

    @property
    def may_fail(self) -> bool:
        """Tell whether a text may match without being a value, such as 30 February."""
        return self.sql in ("date", "timestamp", MOMENT, "double precision")


TEXT: Final = ValueType("text")


def as_type(sql: str) -> str:
    """Return the option that names a type, in which a note writes the name of its column."""
    return f'types => \'{{"COLUMN": "{sql}"}}\''


@dataclass
class Shapes:
    """The shapes of a column's texts, without the blanks around them."""

    counts: Counter[str] = field(default_factory=Counter)
    is_bare: bool = False  # Whether no text is empty, or has blanks around it
    # Whether they were counted at all: if not, the column is one of texts without further notes
    known: bool = True

    def fit(self, pattern: str) -> bool:
        """Tell whether there are texts, and all match."""
        return self.known and bool(self.counts) and self.n(pattern) == self.counts.total()

    def n(self, pattern: str) -> int:
        """Count the texts that match."""
        match = re.compile(pattern).search
        return sum(n for shape, n in self.counts.items() if match(shape))

    @property
    def decimals_vary(self) -> bool:
        """Tell whether two texts may be one number, such as 1.5, 1.50 and 15e-1."""
        ends = {re.sub("^-?[0-9]+", "", shape) for shape in self.counts}
        return len(ends) > 1 or any(re.search("[eE]|^-0", shape) for shape in self.counts)


def _number(decimal: str, between: str, unit: str) -> str:
    # What has an exponent has no thousands: 1.234e5 has a decimal point.
    exponent = "" if between in _OTHER_SIGN else "(?:[eE][+-]?[0-9]{1,2})?"
    integer = "0|[1-9][0-9]*"
    if between:
        integer += f"|[1-9][0-9]{{0,2}}(?:[{between}][0-9]{{3}})+"
    number = f"(?:(?:{integer})(?:[{decimal}][0-9]+)?|[{decimal}][0-9]+)"
    if not unit:
        return f"^-?{number}{exponent}$"
    mark = re.escape(unit)
    return f"^(?:-?{mark}[{_SPACES}]?-?{number}|-?{number}[{_SPACES}]?{mark})$"


def _numbers(shapes: Shapes, delimiter: str, decimal: str | None, unit: str) -> list[ValueType]:
    """Return the numbers that the texts may be: two kinds, where all are like 1.234."""
    kinds = []
    for sign in decimal or ".,":
        separators = ("", _OTHER_SIGN[sign], *_APART)
        fitting = (one for one in separators if shapes.fit(_number(sign, one, unit)))
        between = next(fitting, None)
        if between is not None:
            option = f"decimal => '{sign}'" if shapes.n("[.,]") else ""
            says_sign = option and (sign == "," or between == _OTHER_SIGN[sign])
            notes = [
                "read without the marks between thousands" if between else "",
                f"read as {option}" if says_sign else "",
                _ROUNDED if shapes.n("[0-9][eE]") else "",
            ]
            kinds.append(
                ValueType(
                    _narrowest(shapes, sign),
                    _number(sign, between, unit),
                    drops=between + (unit + _SPACES if unit else ""),
                    decimal=sign if option else "",
                    option=option,
                    note="; ".join(filter(None, notes)),
                )
            )
    if kinds and not kinds[0].option:  # all are read alike
        return kinds[:1]
    if len(kinds) > 1:
        return [replace(kind, note=f"as in other columns, {kind.option}") for kind in kinds]
    # A comma in a file that commas separate may stand in a list of two.
    is_lone = [kind.option for kind in kinds] == ["decimal => ','"] and not kinds[0].drops
    return [*kinds, TEXT] if is_lone and delimiter == "," and decimal is None else kinds


def _narrowest(shapes: Shapes, decimal: str) -> str:
    """Name the narrowest type that holds all numbers of these shapes."""
    if shapes.n("[0-9][eE]"):
        return "double precision"
    if shapes.n(f"[{decimal}]"):
        return "numeric"
    n_digits = max(len(re.findall("[0-9]", shape)) for shape in shapes.counts)
    return "integer" if n_digits <= 9 else "bigint" if n_digits <= 18 else "numeric"


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
_DAYS: Final = tuple({year, month, "DD"} for year in ("YYYY", "YY") for month in ("MM", "MON"))
_CLOCKS: Final[tuple[set[str], ...]] = (
    set(), {"HH24", "MI"}, {"HH24", "MI", "SS"}, {"HH12", "MI", "AM"}, {"HH12", "MI", "SS", "AM"}
)  # fmt: skip


def date_type(text: str, first_year: int | None = None) -> ValueType:
    """Return the type of dates or times in a format such as ``DD-MON-YY HH12:MI AM``.

    `first_year` is the first one that two digits may mean: by default, 99 years ago.
    """
    words, marks = _WORD.findall(text), _WORD.split(text)
    day = {*words} & {"YYYY", "YY", "MM", "MON", "DD"}
    is_known = day in _DAYS and {*words} - day in _CLOCKS and len({*words}) == len(words)
    if not is_known or not _FORMAT.fullmatch(text):
        raise InvalidParameterError(
            "the date format is not known",
            hint="write it with YYYY (or YY), MM (or MON, English) and DD, and HH24, MI and SS"
            " (or HH12, MI and AM) for a time: date_format => 'DD.MM.YYYY' or"
            " 'MM/DD/YYYY HH24:MI'",
        )
    parts = dict(_PARTS)
    if not all(marks[1:-1]) and "MON" not in words:  # only two digits can be told apart
        parts = {word: part.replace("{1,2}", "{2}") for word, part in parts.items()}

    def pattern(years: str = _PARTS["YY"]) -> str:
        folded = "(?i)" if {"MON", "AM"} & {*words} else ""
        groups = [f"({(parts | {'YY': years})[word]})" for word in words]
        pairs = zip(map(re.escape, marks), [*groups, "$"], strict=True)
        return f"{folded}^{''.join(mark + group for mark, group in pairs)}"

    group = {word: f"\\{n}" for n, word in enumerate(words, start=1)}
    hour = group.get("HH24", group.get("HH12"))
    rest = f"-{group.get('MM', group.get('MON'))}-{group['DD']}"
    if hour:
        clock = ":".join([hour, *(group[word] for word in ("MI", "SS") if word in group)])
        rest += f" {clock} {group.get('AM', '')}".rstrip()
    option, rewrites = f"date_format => '{text}'", [(pattern(), f"{group.get('YYYY')}{rest}")]
    note = f"read as {option}"
    if "YY" in group:
        first = date.today().year - 99 if first_year is None else first_year
        century, start = divmod(first, 100)
        both = ((century, range(start, 100)), (century + 1, range(start)))
        rewrites = [(pattern("|".join(f"{n:02d}" for n in years)), f"{hundred}{group['YY']}{rest}")
                    for hundred, years in both if years]  # fmt: skip
        note += f", years from {first} to {first + 99}: first_year => {first}"
    return ValueType("timestamp" if hour else "date", pattern(), tuple(rewrites), option=option,
                     note=note)  # fmt: skip


_ISO_DAY: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO_TIME: Final = f"^{_ISO_DAY}[ T][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:[.][0-9]{{1,9}})?)?"
ZONED: Final = f"{_ISO_TIME} ?(?:Z|UTC|GMT|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)$"
FINER: Final = "[.][0-9]{6}"
"""Microseconds, the finest that PostgreSQL keeps: what follows is rounded."""

_ISO: Final = (
    ValueType("date", f"^{_ISO_DAY}$"),
    ValueType("timestamp", f"{_ISO_TIME}$"),
    ValueType(MOMENT, ZONED),
)
_FORMATS: Final = (
    "DD.MM.YYYY", "YYYY/MM/DD", "YYYY.MM.DD",
    "DD-MON-YYYY", "DD MON YYYY", "DDMONYYYY", "MON DD, YYYY", "DD-MON-YY", "DDMONYY",
    # Of these, two have the same shape.
    "DD/MM/YYYY", "MM/DD/YYYY", "DD-MM-YYYY", "MM-DD-YYYY",
)  # fmt: skip
_HOURS: Final = tuple(mark + clock for mark in " :" for clock in (
    "HH24:MI", "HH24:MI:SS", "HH12:MI AM", "HH12:MI:SS AM"))  # fmt: skip

_MONTH: Final = "(?:jan|feb|m[aäe]r|a[pv]r|ma[iyj]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-zäûé]*"
"""A name of a month, in several languages."""

_MANGLED: Final = f"(?i)^(?:[0-9]{{1,2}}[-. ]+{_MONTH}[.]?|{_MONTH}[-. ]+[0-9]{{2}})$"
"""What spreadsheets make of 5-9 and 10-14: 09-May and Oct-14."""

_CODE: Final = "^[0-9]+(?:[- ][0-9]+)*$"
_NEARLY: Final = {
    # What a column is said to be nearly, for want of a value or two
    "numbers": _number(".,", f".,{''.join(_APART)}", ""),
    "dates": "(?i)^(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}"
    "|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{2,4}"
    f"|[0-9]{{1,2}}[-. /]*{_MONTH}[.]?[-. /]*[0-9]{{2,4}}|{_MONTH} [0-9]{{1,2}}, [0-9]{{4}}"
    ")(?:[ T:][0-9]{1,2}:.*)?$",
    "ranges": f"(?i)^[0-9]{{1,3}} ?[-\u2013] ?[0-9]{{1,3}}$|{_MANGLED.removeprefix('(?i)')}",
    "codes": f"^[+]?{_CODE[1:]}",
}
_KEPT: Final = {
    # Why texts are kept that nearly are numbers, ranges or codes
    "^-?0[0-9][0-9 -]*$": "begin with 0, as codes do: kept as texts",
    "^[+]": f"begin with +, as codes may: kept as texts, or {as_type('numeric')}",
    _MANGLED: "look like ranges that a spreadsheet took for dates: correct them there",
}
_ODD_NUMBERS: Final = "its numbers are written in several ways, or with another decimal sign"
_ODD_DATES: Final = (
    "if these are dates, they are written in several ways, or in one that is not guessed, such as"
    " date_format => 'DD.MM.YY'; names of months are read in English only"
)
_FEW: Final = 500
"""Shapes among some thousand texts: numbers, dates and codes have no more, addresses have."""

_FLAGS: Final = (
    "^(?:true|false|TRUE|FALSE|True|False)$",
    # Of one letter alone, nobody knows what it stands for: f may be female.
    "^[tf]$",
)


def _dates(shapes: Shapes, first_year: int | None) -> list[ValueType]:
    """Return the dates that the texts may be: two kinds, where day or month could be first."""
    kinds = [*_ISO]
    if shapes.fit(_NEARLY["dates"]):
        hours = _HOURS if shapes.n(":") else ("",)
        kinds += [date_type(day + hour, first_year) for day in _FORMATS for hour in hours]
    return [kind for kind in kinds if shapes.fit(kind.pattern)]


def likely_types(
    shapes: Shapes, delimiter: str, options: CsvOptions, category: str | None = None
) -> list[ValueType]:
    """Return the types that a column's texts may have; several exclude each other.

    Of a given type, `category` is PostgreSQL's: nothing else is returned; numbers may have a unit.
    """
    own = [date_type(options.date_format, options.first_year)] if options.date_format else []
    if own and category in (None, "D") and shapes.fit(own[0].pattern):
        return own
    if category is None and shapes.fit(_FLAGS[0]):
        return [ValueType("boolean", _FLAGS[0])]
    if category is None and shapes.fit(_FLAGS[1]) and len(shapes.counts) == 2:
        return [ValueType("boolean", _FLAGS[1])]
    likely = []
    if category in (None, "N"):
        units = ("",) if category is None else ("", *_UNITS)
        ways = (_numbers(shapes, delimiter, options.decimal, unit) for unit in units)
        likely = next(filter(None, ways), [])
    if category in (None, "D"):
        likely = likely or _dates(shapes, options.first_year)
    return likely


def may_be_typed(texts: Collection[str]) -> bool:
    """Tell of some of a column's texts whether the column may be something else than texts."""
    shapes = [re.sub("[0-9]", "9", text) for text in texts if text not in MISSING]
    # A digit is the first or the last letter of all but flags, or stands before AM or PM.
    likely = re.compile(rf"^[\W_]*9|9[\W_]*$|9 ?[apAP][mM]$|{'|'.join(_FLAGS)}")
    return 2 * sum(map(bool, map(likely.search, shapes))) >= len(shapes) and len({*shapes}) <= _FEW


def clock_note(texts: Collection[str]) -> str:
    """Say of some times whether all are at one or two hours, as days of another time zone are."""
    clocks = {re.sub("[^:.0-9].*|[+-].*", "", text[11:]) for text in texts}
    hours = {clock[:2] for clock in clocks if not clock[3:].strip("0:.")}
    if len(texts) < 3 or len(hours) != len(clocks) or len(hours) > 2:
        return ""
    if hours == {"00"}:
        return f"all times are midnight: if these are days, {as_type('date')}"
    return (
        f"all times are at {' or '.join(sorted(hours))} o'clock, as days begin in another time"
        " zone: the day may be the one before or after"
    )


def text_note(shapes: Shapes, line_of: Callable[[str], int]) -> str:
    """Say what a column of texts nearly is; `line_of` finds the first that matches no pattern."""
    if not shapes.known or not shapes.counts:
        return ""
    if shapes.fit("^[0-9]{4}-[0-9]{2}$"):
        return "years with months, without a day: kept as texts, which are in order"
    for unit in _UNITS:
        if _numbers(shapes, ";", None, unit):
            return f"numbers with {unit}, which {as_type('numeric')} leaves out"
    missing = Counter({shape: n for shape, n in shapes.counts.items() if shape in MISSING})
    null = " ".join(f"null => '{word}'" for word in sorted(missing))
    plain = replace(shapes, counts=shapes.counts - missing)
    n, n_plain = shapes.counts.total(), plain.counts.total()
    nearly = (what for what, pattern in _NEARLY.items() if plain.n(pattern) * 2 >= n_plain > 0)
    what = next(nearly, "")
    odd = {} if what in ("", "dates") else {said: plain.n(one) for one, said in _KEPT.items()}
    notes = [f"{n_odd:,} of {n:,} {said}" for said, n_odd in odd.items() if n_odd]
    if plain.fit(_CODE) and (notes or what == "codes"):
        notes.append(_lengths(plain))
    if notes or what not in ("numbers", "dates"):
        return "; ".join(filter(None, [*notes, null if notes else ""]))
    misses = n - shapes.n(_NEARLY[what])
    if not misses:
        return _ODD_DATES if what == "dates" else _ODD_NUMBERS
    said = f"{misses:,} of {n:,} values are no {what}, the first one in line"
    null = null or "null => 'TEXT'"
    return f"{said} {line_of(_NEARLY[what])}: correct them, or say that they are missing: {null}"


def _lengths(shapes: Shapes) -> str:
    """Say how many codes have another length than most."""
    lengths: Counter[int] = Counter()
    for shape, n in shapes.counts.items():
        lengths[len(shape)] += n
    (usual, most), *_ = lengths.most_common(1)
    n_odd = lengths.total() - most
    if not 0 < n_odd <= most:
        return ""
    return f"{n_odd:,} of {lengths.total():,} have another length than {usual} characters"
