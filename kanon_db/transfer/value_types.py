"""The types that the texts of a CSV file may have, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kanon_db.errors import InvalidParameterError

_COMMA_FILES: Final = ";"
"""Delimiter of files whose numbers may have a decimal comma: it is used because of them."""

_PARTS: Final = {
    # What a date format consists of: PostgreSQL's words, and what each of them matches.
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

_DAY_OR_MONTH: Final = "(?:0?[1-9]|1[0-2])"
_ORDERED_DATES: Final = ("DD.MM.YYYY", "YYYY/MM/DD", "YYYY.MM.DD")
"""Date formats whose order of day and month is beyond doubt."""


@dataclass(frozen=True)
class ValueType:
    """A type that a column's texts may have.

    Attributes
    ----------
    sql : str
        PostgreSQL's name of it.
    pattern : str
        What all its texts match.
    iso : str
        How the groups of the pattern make a date that PostgreSQL reads, if it would not read these.
    has_comma : bool
        Whether they may have a decimal comma.
    note : str
        What is worth knowing about the guess.
    """

    sql: str
    pattern: str
    iso: str = ""
    has_comma: bool = False
    note: str = ""

    @property
    def may_fail(self) -> bool:
        """Whether a text may match, and yet be none, as 30 February is no date."""
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
        """What a date of this format matches; each of its parts is a group."""
        between = _WORD.split(self.text)
        # Where nothing is between them, only numbers of two digits can be told apart.
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
