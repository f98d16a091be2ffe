"""Describes quasi-identifiers, as their owner registers them: kind, domain, bins, hierarchy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

from kanon_db.declaration import (
    BOUND,
    MAX_WEIGHT,
    ParameterType,
    choice,
    number,
    options,
    parameter,
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


@dataclass(frozen=True, slots=True)
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
    hierarchy: Any = parameter(  # noqa: RUF009  # as all others
        HIERARCHY, "Labels of each value, the narrowest first, that are published instead of sets.",
        default=None,
    )  # fmt: skip


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
        if found.hierarchy is not None and (others or found.kind == "numeric"):
            raise InvalidParameterError(
                "a column with a hierarchy has no ranges",
                hint=f"leave out {', '.join(others) or 'the kind, which is numeric'}",
            )
    return given
