"""Describes what owners register: quasi-identifiers, and which record of each entity is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, Self

from kanon_db.dataclasses import dataclass
from kanon_db.declaration import (
    BOUND,
    MAX_WEIGHT,
    RELATION,
    TEXT,
    ParameterType,
    choice,
    number,
    options,
    parameter,
    unknown,
    whole,
)
from kanon_db.errors import InvalidParameterError
from kanon_db.query.layout import ANYTHING

MOST_VALUES: Final = 20_000
MOST_LEVELS: Final = 20
MOST_CHARACTERS: Final = 1_000
"""Characters that a value or a label may have."""

_HINT: Final = (
    'write {"hierarchy": {"value": ["label", "wider label"], ...}}, with as many labels for each'
    " value; from Python and the command line, it may be the name of a CSV file as ARX has it"
)

Span = tuple[int, int]
"""The first and the last of the values that a label stands for, by their places."""


@dataclass(frozen=True)
class Hierarchy:
    """A hierarchy, with its values in an order in which each label's values follow each other."""

    values: tuple[str, ...]
    # At each level, from the narrowest, the label of each value, by its place.
    levels: tuple[tuple[str, ...], ...]
    # The values that each label stands for; no value is also a label, unless of itself alone.
    spans: Mapping[str, Span]

    @classmethod
    def of(cls, given: object) -> Self:
        """Read a hierarchy, and check that it is one.

        Examples
        --------
        >>> found = Hierarchy.of({"BSc": ["degree", "any"], "none": ["none", "any"],
        ...                       "MSc": ["degree", "any"]})
        >>> found.values
        ('BSc', 'MSc', 'none')
        >>> found.spans
        {'degree': (0, 1), 'none': (2, 2), 'any': (0, 2)}
        """
        labels = _read(given)
        # The widest label first: then each label's values follow each other.
        values = sorted(labels, key=lambda value: (*reversed(labels[value]), value))
        levels = tuple(zip(*(labels[value] for value in values), strict=True))
        _require_nested(levels)
        spans: dict[str, Span] = {}
        own: dict[str, Span] = {value: (at, at) for at, value in enumerate(values)}
        for depth, level in enumerate(levels):
            for label, span in _spans(level).items():
                if spans.setdefault(label, span) != span or own.get(label, span) != span:
                    raise InvalidParameterError(
                        "a label of a hierarchy stands for different values at different levels",
                        detail=f"level {depth + 1}",
                        hint="give one of them another name",
                    )
        if spans.get(ANYTHING, (0, len(values) - 1)) != (0, len(values) - 1) or ANYTHING in own:
            raise InvalidParameterError(
                f"the label {ANYTHING} stands for anything",
                hint="give another name to what stands for some values only",
            )
        return cls(tuple(values), levels, spans)

    @property
    def described(self) -> dict[str, Any]:
        """Return the catalog's JSON for the hierarchy; see :meth:`read`."""
        apart = {*self.values, ANYTHING}
        spans = [[label, *span] for label, span in self.spans.items() if label not in apart]
        return {"values": list(self.values), "labels": spans}


def _require_nested(levels: Sequence[Sequence[str]]) -> None:
    """Check that values that share a label share all wider ones: then they follow each other."""
    for depth, (level, wider) in enumerate(pairwise(levels), start=1):
        parents: dict[str, str] = {}
        if any(
            parents.setdefault(label, above) != above
            for label, above in zip(level, wider, strict=True)
        ):
            raise InvalidParameterError(
                "a label of a hierarchy has two wider ones",
                detail=f"level {depth}",
                hint="values that share a label must share all wider ones, too",
            )


def _spans(level: Sequence[str]) -> dict[str, Span]:
    """Find where the values of each label of a level begin and end."""
    spans: dict[str, Span] = {}
    for place, label in enumerate(level):
        spans[label] = (spans.get(label, (place, place))[0], place)
    return spans


def _read(given: object) -> dict[str, tuple[str, ...]]:
    """Check the form of a hierarchy."""
    if not isinstance(given, Mapping) or not given:
        raise InvalidParameterError("a hierarchy must be a JSON object with values", hint=_HINT)
    if len(given) > MOST_VALUES:
        raise InvalidParameterError(
            "a hierarchy has too many values",
            detail=f"{len(given):,} of them; {MOST_VALUES:,} are allowed",
            hint="give the source a view with wider values",
        )
    labels: dict[str, tuple[str, ...]] = {}
    for place, (value, its) in enumerate(given.items(), start=1):
        if isinstance(its, str) or not isinstance(its, Sequence):
            raise _refused("the labels of a value must be a list", place)
        if not all(isinstance(text, str) for text in (value, *its)):
            raise _refused("values and labels must be texts, and not NULL", place)
        if not all(its) or any("\0" in text for text in (value, *its)):
            raise _refused("a label is empty, or has a NUL character", place)
        if max(map(len, (value, *its)), default=0) > MOST_CHARACTERS:
            raise _refused(f"a text has more than {MOST_CHARACTERS:,} characters", place)
        if not 1 <= len(its) <= MOST_LEVELS:
            raise _refused(f"a value must have 1 to {MOST_LEVELS} labels", place)
        labels[value] = tuple(its)
    n_levels = {len(its) for its in labels.values()}
    if len(n_levels) > 1:
        raise InvalidParameterError(
            "the values of a hierarchy have different numbers of labels",
            detail=f"{min(n_levels)} to {max(n_levels)}",
            hint="repeat a label where a value has no other at a level",
        )
    return labels


def _refused(message: str, place: int) -> InvalidParameterError:
    return InvalidParameterError(message, detail=f"value number {place} of a hierarchy", hint=_HINT)


UNITS: Final[Mapping[str, str]] = {
    "year": "1 year",
    "quarter": "3 months",
    "month": "1 month",
    "week": "7 days",
    "day": "1 day",
    "hour": "1 hour",
}
"""Units to which dates and times may be rounded, each with its length as an interval."""

MAX_WIDTH: Final = 1e15
"""The largest width of bins of numbers; their ends fit a bigint."""

BINNED: Final = ("round", "top", "bottom")
"""The keys that make bins of a column's values before the search."""

COARSE: Final = (*BINNED, "hierarchy")
"""The keys that coarsen a column before the search."""


def _read_round(value: Any, name: str) -> str | float:
    """Accept a unit of time, or a width."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 < value <= MAX_WIDTH:
        return float(value)
    if isinstance(value, str) and value in UNITS:
        return value
    raise InvalidParameterError(
        f"{name} must be a unit of time, or a number above 0 and at most {MAX_WIDTH:g}",
        hint=f'units are {", ".join(UNITS)}: {{"round": "month"}}; numbers: {{"round": 5}}',
    )


MAX_PREFIX: Final = 100
"""The most characters that may remain of a text that is shortened."""

ROUND: Final = ParameterType("text", "str | float", _read_round)
HIERARCHY: Final = ParameterType(
    "jsonb", "Mapping[str, Sequence[str]]", lambda given, _: Hierarchy.of(given)
)


@dataclass(frozen=True, kw_only=True)
class AttributeDescription:
    """A quasi-identifier as its publisher describes it when registering a source."""

    kind: str | None = parameter(
        choice("kind", numeric="cells are ranges", categorical="cells are sets"),
        "Whether its cells are ranges or sets.", default=None,
    )  # fmt: skip
    lower: str | float | None = parameter(BOUND, "Least value of its domain.", default=None)
    upper: str | float | None = parameter(BOUND, "Largest value of its domain.", default=None)
    weight: float = parameter(number(most=MAX_WEIGHT), "What one of its cells costs.", default=1)
    round: str | float | None = parameter(
        ROUND, "Unit of time, or width of the bins, in which its values are published.",
        default=None,
    )  # fmt: skip
    top: str | float | None = parameter(
        BOUND, "Values from here on are published as one.", default=None
    )
    bottom: str | float | None = parameter(
        BOUND, "Values below this are published as one.", default=None
    )
    hierarchy: Any = parameter(
        HIERARCHY, "Labels of each value, the narrowest first, that are published instead of sets.",
        default=None,
    )  # fmt: skip
    prefix: int | None = parameter(
        whole(most=MAX_PREFIX), "How many characters of its texts are read: the first ones.",
        default=None,
    )  # fmt: skip
    areas: str | None = parameter(
        RELATION, "A relation with the columns area and people, for texts that begin with an area.",
        default=None,
    )  # fmt: skip
    least_people: int | None = parameter(
        whole(sql="bigint"), "Areas with fewer people are read as zeros.", default=None
    )


def read_attributes(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check the descriptions of all attributes, and return them as they were given."""
    description = options(AttributeDescription, "key", is_shown=False)
    for described in given.values():
        if isinstance(described, str):  # which may itself be JSON
            raise InvalidParameterError("an attribute's description must be a JSON object")
        found = description.read(described, "an attribute's description")
        for key, what in described.items():
            if what is None or (key == "weight" and isinstance(what, str)):
                raise InvalidParameterError(f"{key} of an attribute is NULL or a text")
        binned = [key for key in BINNED if key in described]
        if binned and found.kind == "categorical":
            raise InvalidParameterError(
                f"{binned[0]} is for columns whose cells are ranges",
                hint="leave out the kind, which is categorical",
            )
        others = [key for key in (*BINNED, "lower", "upper") if key in described]
        _require_prefix(found, others)
        if found.hierarchy is not None and (others or found.kind == "numeric"):
            raise InvalidParameterError(
                "a column with a hierarchy has no ranges",
                hint=f"leave out {', '.join(others) or 'the kind, which is numeric'}",
            )
    return given


def _require_prefix(described: AttributeDescription, of_ranges: Sequence[str]) -> None:
    """Refuse what does not go with a prefix, and areas without one."""
    if described.prefix is not None and (of_ranges or described.kind == "numeric"):
        raise InvalidParameterError(
            "a column of which a prefix is read has no ranges",
            detail="prefix is for texts, whose cells are sets",
            hint=f"leave out {', '.join(of_ranges) or 'the kind, which is numeric'}",
        )
    of_areas = [described.areas, described.least_people]
    if of_areas.count(None) == 1 or (None not in of_areas and described.prefix is None):
        raise InvalidParameterError(
            "areas, least_people and prefix belong together",
            hint='write such as {"prefix": 3, "areas": "public.zip_people", "least_people": 20001}',
        )


# Which record of each entity is published: "latest by admission, max of cost".

AGGREGATES: Final[Mapping[str, tuple[str, str]]] = {
    "max": ("max", "the greatest"),
    "min": ("min", "the least"),
    "sum": ("sum", "the sum of"),
    "mean": ("avg", "the mean of"),
    "count": ("count", "the number of"),
}
"""What may stand in the kept record in place of its own value: SQL's function, and words."""

_CHOICES: Final = {"latest": "latest", "first": "first", "earliest": "first", "random": "random"}
_KEEP_TOKEN: Final = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^\s",]+)|(,))\s*')
_PLAIN_COLUMN: Final = re.compile(r'[^\s",]+')
_KEEP_HINT: Final = (
    "write such as 'latest by admission', 'first by admission', 'random' or 'latest by admission,"
    ' max of cost, count of "stay id"\''
)


@dataclass(frozen=True)
class KeepRule:
    """Which record of each entity is kept, and what of all its records stands in it."""

    choice: str  # latest, first or random
    by: str | None = None  # the column that orders records; None for the one of their arrival
    aggregates: tuple[tuple[str, str], ...] = ()  # a word of `AGGREGATES`, and a column

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a rule.

        Examples
        --------
        >>> KeepRule.of('Latest by admission, max of "total cost"')
        KeepRule(choice='latest', by='admission', aggregates=(('max', 'total cost'),))
        >>> KeepRule.of("earliest")
        KeepRule(choice='first', by=None, aggregates=())
        """
        first, *others = _clauses(text)
        word = first[0].lower()
        if word not in _CHOICES:
            raise unknown("rule of keep", word, [*_CHOICES], is_shown=False)
        match first[1:]:
            case []:
                by = None
            case [preposition, column] if preposition.lower() == "by" and word != "random":
                by = column
            case _:
                raise _unread(1)
        aggregates: list[tuple[str, str]] = []
        for place, clause in enumerate(others, start=2):
            if len(clause) != 3 or clause[1].lower() != "of":
                raise _unread(place)
            function, _, column = clause
            if function.lower() not in AGGREGATES:
                raise unknown("aggregate of keep", function, [*AGGREGATES], is_shown=False)
            if column in (named for _, named in aggregates):
                raise InvalidParameterError(
                    "keep names a column twice", detail=f'column "{column}"', hint=_KEEP_HINT
                )
            aggregates.append((function.lower(), column))
        return cls(_CHOICES[word], by, tuple(aggregates))

    def __str__(self) -> str:
        """Write it in the one way in which the catalog has it."""
        by = "" if self.by is None else f" by {_named(self.by)}"
        aggregates = [f"{function} of {_named(column)}" for function, column in self.aggregates]
        return ", ".join([f"{self.choice}{by}", *aggregates])

    def described(self, by: str | None) -> str:
        """Say in words what each entity is published with, by the column that orders records."""
        chosen = "drawn at random" if self.choice == "random" else f"the {self.choice} by {by}"
        found = [f"{AGGREGATES[function][1]} {column}" for function, column in self.aggregates]
        if not found:
            return chosen
        return f"{chosen}, with {', '.join(found)} of all records of that person"


def _clauses(text: str) -> list[list[str]]:
    """Divide a rule at its commas, and each clause into words."""
    clauses: list[list[str]] = [[]]
    place = 0
    while place < len(text):
        found = _KEEP_TOKEN.match(text, place)
        if found is None:
            raise _unread(len(clauses))
        quoted, word, comma = found.groups()
        if comma:
            clauses.append([])
        else:
            clauses[-1].append(word if quoted is None else quoted.replace('""', '"'))
        place = found.end()
    if not all(clauses):
        raise InvalidParameterError("keep has nothing where a rule should be", hint=_KEEP_HINT)
    return clauses


def _unread(clause: int) -> InvalidParameterError:
    return InvalidParameterError(
        "keep cannot be read", detail=f"part {clause} of it", hint=_KEEP_HINT
    )


def _named(column: str) -> str:
    """Quote a column where a rule has to."""
    if _PLAIN_COLUMN.fullmatch(column):
        return column
    doubled = column.replace('"', '""')
    return f'"{doubled}"'


def _read_keep(value: Any, name: str) -> str:
    return str(KeepRule.of(TEXT.read(value, name)))


KEEP: Final = replace(TEXT, read=_read_keep)
"""The type of the parameter `keep`."""
