"""What a publisher may say about a quasi-identifier when registering its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kanon_db.catalog.hierarchy import Hierarchy
from kanon_db.declaration import BOUND, MAX_WEIGHT, Type, choice, number, options, parameter
from kanon_db.errors import InvalidParameterError

UNITS: Final[Mapping[str, str]] = {
    "year": "1 year",
    "quarter": "3 months",
    "month": "1 month",
    "week": "7 days",
    "day": "1 day",
    "hour": "1 hour",
}
"""What dates and times may be rounded to, and how long it is, as an interval."""

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


ROUND: Final = Type("text", "str | float", _read_round)
HIERARCHY: Final = Type(
    "jsonb", "Mapping[str, Sequence[str]]", lambda given, _: Hierarchy.of(given)
)


@dataclass(frozen=True, kw_only=True)
class AttributeDescription:
    """What a publisher may say about a quasi-identifier when registering it."""

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
    """Check the descriptions of all attributes, and return them as they were given.

    Raises
    ------
    InvalidParameterError
    """
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
