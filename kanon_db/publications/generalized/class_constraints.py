"""Reads the constraints on the sensitive values of each equivalence class, written in JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final, Literal, Self

import numpy as np

from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.exact_numbers import exact_number
from kanon_db.algorithms.recoding.changing_classes import Constraint
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import unknown
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.guarantees import SensitiveCounts, share_unbounded
from kanon_db.publications.rows.published_rows import ValueBounds

_MOST_L: Final = 2**31 - 1
_OWN: Final = ("l", "entropy_l", "t", "distance")
_ATTRIBUTES: Final = "attributes"
_HINT: Final = (
    'write {"l": 3}, {"entropy_l": 2.5}, {"t": 0.2, "distance": "ordered"} or an F\'-privacy'
    ' specification such as {"default": 0.3}; they combine'
)


@dataclass(frozen=True)
class ClassConstraints:
    """Constraints on a sensitive attribute, as the publisher wrote them."""

    l: int | None  # Distinct l-diversity
    entropy_l: Fraction | None  # Entropy l-diversity; t-closeness
    t: Fraction | None
    distance: Literal["equal", "ordered"]  # The distance of t-closeness
    privacy: PrivacySpecification | None  # F'-privacy

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Read constraints, or raise InvalidParameterError."""
        if not given:
            raise InvalidParameterError("constraints are empty", hint=_HINT)
        if any(value is None for value in given.values()):
            raise InvalidParameterError("a constraint must not be null", hint=_HINT)
        l = given.get("l")
        if l is not None and (
            isinstance(l, bool) or not isinstance(l, int) or not 1 <= l <= _MOST_L
        ):
            raise InvalidParameterError(
                f"l must be a whole number of at least 2 and at most {_MOST_L:,}", hint=_HINT
            )
        distance = given.get("distance", "equal")
        if distance not in ("equal", "ordered") or ("distance" in given and "t" not in given):
            raise InvalidParameterError("distance must be equal or ordered and needs t", hint=_HINT)
        rest = {key: value for key, value in given.items() if key not in _OWN}
        return cls(
            l=l,
            entropy_l=_fraction(given, "entropy_l"),
            t=_fraction(given, "t"),
            distance=distance,
            privacy=PrivacySpecification.parse(rest) if rest else None,
        )

    @property
    def depends_on_frequencies(self) -> bool:
        """Tell whether the constraints depend on how frequent values are in the table."""
        relative = self.privacy is not None and self.privacy.theta is not None
        return self.t is not None or relative

    @property
    def counts_records(self) -> bool:
        """Tell whether the constraints compare distributions of records, not of entities."""
        return self.entropy_l is not None or self.depends_on_frequencies

    def of(self, values: SensitiveCounts, codes: CodeArray) -> Constraint:
        """Apply them to a table.

        Raises InvalidParameterError where a number is out of range, or a named value is not there.
        """
        f_prime = None
        if self.privacy is not None:
            f_prime = self.privacy.thresholds(values.labels, values.counts)
            share_unbounded(f_prime, values.counts)
        return Constraint(
            codes.astype(np.int64),
            len(values.labels),
            l=self.l,
            entropy_l=self.entropy_l,
            t=self.t,
            distance=self.distance,
            f_prime=f_prime,
            missing=values.labels.index(None) if None in values.labels else -1,
        )

    def bounds(self, values: SensitiveCounts) -> ValueBounds:
        """Return what they allow to infer from a class, by the published values.

        Distinct and entropy l-diversity bound no frequency in a class, but no value is certain.
        """
        shares = values.counts / values.counts.sum()
        largest = np.array(list(map(float, self.thresholds(values.labels, values.counts))))
        is_diverse = self.l is not None or self.entropy_l is not None
        if (largest >= 1).all():
            return ValueBounds(None, 0.0 if is_diverse else None)
        return ValueBounds(largest, 0.0 if is_diverse else float(shares[largest >= 1].sum()))

    def thresholds(self, labels: Sequence[str | None], counts: IntArray) -> list[Fraction]:
        """Return the largest share of each published value in a class; 1 where there is none.

        `labels`: the values' texts; `counts`: how often each is published, at least once.
        """
        largest = [Fraction(1)] * len(labels)
        if self.privacy is not None:
            published = set(labels)  # records with a value may have been left out
            named = {v: f for v, f in self.privacy.values.items() if v in published}
            privacy = replace(self.privacy, values=named)
            largest = list(privacy.thresholds(labels, counts).thresholds)
        if self.t is not None and self.distance == "equal":
            total = int(counts.sum())
            nearest = [Fraction(n, total) + self.t for n in counts.tolist()]
            largest = list(map(min, largest, nearest))
        return largest

    @property
    def figures(self) -> dict[str, Any]:
        """Return them as plain JSON, without naming a value."""
        figures = {
            "l": self.l,
            "entropy_l": None if self.entropy_l is None else float(self.entropy_l),
            "t": None if self.t is None else float(self.t),
            "distance": None if self.t is None else self.distance,
            "guessing": None if self.privacy is None else self.privacy.figures,
        }
        return {name: figure for name, figure in figures.items() if figure is not None}


@dataclass(frozen=True)
class ConstraintsOfEach:
    """Constraints on several sensitive attributes, as the publisher wrote them."""

    general: ClassConstraints | None  # On each attribute that is not named
    named: Mapping[str, ClassConstraints]  # On others, by their names

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Read constraints, or raise InvalidParameterError."""
        named = given.get(_ATTRIBUTES, {})
        if not isinstance(named, Mapping) or not all(
            isinstance(one, Mapping) for one in named.values()
        ):
            raise InvalidParameterError(
                f"{_ATTRIBUTES} of constraints must have an object for each column",
                hint=f'write {{"{_ATTRIBUTES}": {{"cost": {{"t": 0.2}}}}}}',
            )
        rest = {key: value for key, value in given.items() if key != _ATTRIBUTES}
        return cls(
            ClassConstraints.parse(rest) if rest or not named else None,
            {name: ClassConstraints.parse(one) for name, one in named.items()},
        )

    @property
    def each(self) -> list[ClassConstraints]:
        """All of them."""
        general = [] if self.general is None else [self.general]
        return [*general, *self.named.values()]

    def of_each(self, attributes: Sequence[str]) -> dict[str, ClassConstraints]:
        """Return the constraints on each sensitive attribute of a source."""
        # Raises InvalidParameterError if one has none, another column has some, or it is not said
        # whose values are named.
        for name in self.named:
            if name not in attributes:
                raise unknown("sensitive attribute", name, attributes)
        general = self.general
        privacy = None if general is None else general.privacy
        if privacy is not None and privacy.values and len(attributes) > 1:
            raise InvalidParameterError(
                "thresholds of single values need to say which attribute has them",
                hint=f'write {{"{_ATTRIBUTES}": {{"{attributes[0]}": {{"values": ...}}}}}}',
            )
        found = {}
        for name in attributes:
            own = self.named.get(name, general)
            if own is None:
                raise InvalidParameterError(
                    "a sensitive attribute has no constraint",
                    detail=f'column "{name}"',
                    hint="name it, too, write constraints on all that are not named, or register it"
                    " as insensitive",
                )
            found[name] = own
        return found


def constraint_of_each(constraints: Sequence[Constraint]) -> Constraint:
    """Put the constraints on the attributes of the same records together."""
    first, *others = constraints
    return replace(first, also=tuple(others))


def _say(own: Mapping[str, Any]) -> str:
    said = []
    if "l" in own:
        said.append(f"distinct {own['l']}-diversity")
    if "entropy_l" in own:
        said.append(f"entropy {own['entropy_l']:g}-diversity")
    if "t" in own:
        said.append(f"{own['t']:g}-closeness ({own['distance']} distance)")
    if "guessing" in own:
        said.append("a bound on guessing (F'-privacy)")
    return ", ".join(said)


def mixed_in_words(name: str, constraints: ClassConstraints) -> Iterator[str]:
    """Say what constraints promise that bound no probability by themselves."""
    if constraints.l is not None:
        yield (
            f"every group has at least {constraints.l} different values of {name}, of which one may"
            " be far more frequent than the others"
        )
    if constraints.entropy_l is not None:
        least = f"{float(constraints.entropy_l):g}"
        yield f"the values of {name} in every group are as mixed (entropy) as {least} equal shares"
    if constraints.t is not None:
        yield (
            f"in every group, the shares of the values of {name} are within"
            f" {float(constraints.t):g} ({constraints.distance} distance) of those in the table"
        )


def bounds_guesses(own: Mapping[str, Any]) -> bool:
    """Tell whether constraints limit how frequent a value is in a class."""
    return "guessing" in own or own.get("distance") == "equal"


def say_constraints(constraints: Mapping[str, Mapping[str, Any]]) -> str:
    """Describe the figures of constraints on each attribute, which name no value."""
    if len(constraints) == 1:
        return ", ".join(map(_say, constraints.values()))
    named: dict[str, list[str]] = {}
    for name, own in constraints.items():
        named.setdefault(_say(own), []).append(name)
    return " and ".join(f"{own} of {', '.join(names)}" for own, names in named.items())


def _fraction(given: Mapping[str, Any], key: str) -> Fraction | None:
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidParameterError(f"{key} must be a number", hint=_HINT)
    return exact_number(value)
