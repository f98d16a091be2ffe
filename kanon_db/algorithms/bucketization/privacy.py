"""Defines F'-privacy, and derives its thresholds from the rules of a privacy specification.

F'-privacy has a threshold of its own for each sensitive value ([GB] Section 3.3). Thresholds are
exact rationals, from the text of the specification to the number of occurrences in a bucket: in
floating point ``0.29 * 100`` is 28.999…, whose floor is one short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.buckets import record_counts
from kanon_db.algorithms.ground.arrays import BoolArray, IntArray, SmallIntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.ground.exact_numbers import (
    exact_number,
    exact_text,
    read_json,
    round_down,
    round_up,
)
from kanon_db.dataclasses import dataclass
from kanon_db.errors import IneligibleError, InvalidParameterError

_SIZES_PER_BLOCK = 64
_MOST_KEPT = 1 << 20
"""Occurrence limits that are kept."""


@dataclass(frozen=True)
class FPrimePrivacy:
    """Upper bounds f'_i on the frequency of each sensitive value within any bucket.

    Parameters
    ----------
    thresholds : tuple of Fraction, length m
        f'_i of each sensitive value, in the range (0, 1].

    Raises
    ------
    InvalidParameterError
        If a threshold lies outside the range.

    Notes
    -----
    **Source:** [GB] Definition 3.

    Examples
    --------
    >>> privacy = FPrimePrivacy((Fraction(29, 100), Fraction(1, 3)))
    >>> privacy.occurrence_limits([3, 4, 100]).tolist()
    [[0, 1, 29], [1, 1, 33]]
    >>> privacy.smallest_bucket_size(), privacy.corresponding_l()
    (3, 4)
    """

    thresholds: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        # Assignment in cells makes thousands of these; comparing integers is ten times as fast.
        outside = sum(not 0 < t.numerator <= t.denominator for t in self.thresholds)
        if outside:
            raise InvalidParameterError(
                "a privacy threshold must lie in (0, 1]",
                detail=f"{outside} of {len(self.thresholds)} thresholds lie outside",
            )

    def occurrence_limits(self, sizes: npt.ArrayLike) -> IntArray:
        """Most occurrences of each value in one bucket of each size: floor(f'_i S_j), exactly.

        Parameters
        ----------
        sizes : array_like of int, shape (q,)
            Bucket sizes, in records, at least 1.

        Returns
        -------
        ndarray of int64, shape (m, q)
            At most the bucket size.

        Notes
        -----
        **Source:** [GB] Lemma 2 (4), the factor floor(f'_i S_j) of u_ij in Definition 5.
        """
        columns = np.asarray(sizes, dtype=np.int64)
        limits: IntArray
        numerators, denominators, largest = self._in_arrays
        # No numerator exceeds its denominator.
        if largest * int(columns.max(initial=1)) < 2**63:
            limits = numerators * columns // denominators
            return limits
        products = numerators.astype(object) * columns.astype(object)
        limits = (products // denominators.astype(object)).astype(np.int64)
        return limits

    @cached_property
    def _in_arrays(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any], int]:
        """Numerators and denominators, of shape (m, 1), and no less than the largest denominator.

        Cached: assignment in cells computes limits of the same thresholds thousands of times.
        """
        numerators = [[threshold.numerator] for threshold in self.thresholds]
        denominators = [[threshold.denominator] for threshold in self.thresholds]
        largest = max((t.denominator for t in self.thresholds), default=1)
        integer = np.int64 if largest < 2**63 else object
        shape = (len(self.thresholds), 1)
        return (
            np.array(numerators, dtype=integer).reshape(shape),
            np.array(denominators, dtype=integer).reshape(shape),
            largest,
        )

    @cached_property
    def kinds(self) -> IntArray:
        """Number the distinct thresholds: values with equal ones have the same number."""
        numbers: dict[Fraction, int] = {}
        each = [numbers.setdefault(threshold, len(numbers)) for threshold in self.thresholds]
        return np.array(each, dtype=np.int64)

    def of_values(self, values: IntArray) -> FPrimePrivacy:
        """Return the thresholds of the values at some positions."""
        # Thousands of cells have some of the values each; what is known of these is not found anew.
        some = object.__new__(FPrimePrivacy)
        numerators, denominators, largest = self._in_arrays
        vars(some).update(
            thresholds=tuple(self.thresholds[i] for i in values.tolist()),
            kinds=self.kinds[values],
            _in_arrays=(numerators[values], denominators[values], largest),
            _table=(self, values),
        )
        return some

    def limits_up_to(self, largest: int, pulse: Pulse) -> SmallIntArray:
        """Return the occurrence limits of all sizes from 0 to one of at most 2^15 - 1."""
        table, places = vars(self).get("_table", (None, None))
        if table is not None and len(table.thresholds) * largest <= _MOST_KEPT:
            limits: SmallIntArray = table.limits_up_to(largest, pulse)[places]
            return limits
        if largest not in self._limits:
            if self._limits or len(self.thresholds) * largest > _MOST_KEPT:
                return self.limits_of_many(np.arange(largest + 1), pulse)
            self._limits[largest] = self.limits_of_many(np.arange(largest + 1), pulse)
        return self._limits[largest]

    @cached_property
    def _limits(self) -> dict[int, SmallIntArray]:
        """Those of one range of sizes: a thousand cells have the same."""
        return {}

    def limits_of_many(self, sizes: IntArray, pulse: Pulse) -> SmallIntArray:
        """Return the occurrence limits of sizes up to 2^15 - 1, a block of sizes at a time."""
        limits = np.empty((len(self.thresholds), sizes.size), dtype=np.int16)
        for start in range(0, sizes.size, _SIZES_PER_BLOCK):
            pulse.beat()
            block = slice(start, start + _SIZES_PER_BLOCK)
            limits[:, block] = self.occurrence_limits(sizes[block])
        return limits

    def tightened(self, factor: Fraction) -> FPrimePrivacy:
        """Lower the thresholds by as much as the odds of a guess may be raised.

        Parameters
        ----------
        factor : Fraction
            At least 1.

        Returns
        -------
        FPrimePrivacy
            f' / (f' + factor (1 - f')); 1 remains 1.

        Examples
        --------
        >>> FPrimePrivacy((Fraction(1, 2), Fraction(1))).tightened(Fraction(3)).thresholds
        (Fraction(1, 4), Fraction(1, 1))
        """
        return FPrimePrivacy(tuple(t / (t + factor * (1 - t)) for t in self.thresholds))

    def diverse(self, l: int | None = None) -> FPrimePrivacy:
        """Make all thresholds 1/l, by default for the smallest l whose l-diversity implies them.

        Examples
        --------
        >>> FPrimePrivacy((Fraction(2, 5), Fraction(1))).diverse().thresholds
        (Fraction(1, 3), Fraction(1, 3))
        """
        return FPrimePrivacy((Fraction(1, l or self.corresponding_l()),) * len(self.thresholds))

    def smallest_bucket_size(self) -> int:
        """Smallest bucket that may hold any record: M = min_i ceil(1 / f'_i).

        Returns
        -------
        int
            At least 1; 1 when there is no value at all.

        Notes
        -----
        **Source:** [GB] Section 5.
        """
        numerators, denominators, _ = self._in_arrays
        return int((-(-denominators // numerators)).min()) if self.thresholds else 1

    def corresponding_l(self) -> int:
        """Smallest l whose l-diversity implies this F'-privacy: ceil(1 / min_i f'_i).

        Returns
        -------
        int
            At least 1; 1 when there is no value at all.

        Notes
        -----
        **Source:** [GB] Remark 1.
        """
        return max((-(-t.denominator // t.numerator) for t in self.thresholds), default=1)

    def ineligible(self, counts: npt.ArrayLike) -> BoolArray:
        """Tell which values are more frequent in the whole table than their threshold.

        No bucketization satisfies F'-privacy if and only if there is such a value.

        Parameters
        ----------
        counts : array_like of int, shape (m,)
            Records of each sensitive value.

        Returns
        -------
        ndarray of bool, shape (m,)

        Notes
        -----
        **Source:** [GB] Lemma 1.
        """
        checked, n_records = record_counts(counts, len(self.thresholds))
        numerators, denominators, largest = self._in_arrays
        integer = np.int64 if largest * max(n_records, 1) < 2**63 else object
        needed = checked.astype(integer) * denominators[:, 0]
        is_broken: BoolArray = (needed > numerators[:, 0].astype(integer) * n_records).astype(bool)
        return is_broken


_RULES = ("theta", "base", "default", "l", "null", "cap")
_EXAMPLE = (
    'write for example {"l": 4}, {"default": "1/3"} or {"theta": 2, "base": 0.02, "cap": 0.5}'
)


def describe_rules(figures: Mapping[str, Any]) -> str:
    """Write what :attr:`PrivacySpecification.figures` tells."""
    rules = [f"{rule} {figures[rule]}" for rule in _RULES if rule in figures]
    if n_own := figures.get("n_own", 0):
        rules.append(
            f"{n_own} values with a threshold of their own"
            if n_own > 1
            else "1 value with a threshold of its own"
        )
    rules += [
        f"{name} ({describe_rules(own)})" for name, own in figures.get("attributes", {}).items()
    ]
    return ", ".join(rules)


@dataclass(frozen=True)
class PrivacySpecification:
    """Rules from which the threshold of every sensitive value follows.

    A value gets the strictest (smallest) threshold of the general rules given: ``1 / l``,
    ``default``, ``cap``, and ``min(1, theta * f_i + base)`` where f_i is its frequency in the
    table. An entry of ``values``, or ``null`` for SQL's NULL, takes the place of the general rules
    other than ``cap``, which no threshold exceeds.

    Parameters
    ----------
    theta : Fraction, optional
        Factor of the frequency, at least 0; 0 if only ``base`` is given.
    base : Fraction, optional
        Threshold of a value of frequency 0, in [0, 1]; 0 if only ``theta`` is given.
    default : Fraction, optional
        Threshold, in (0, 1].
    l : Fraction, optional
        Diversity, at least 1: a threshold of 1 / l.
    values : mapping of str to Fraction
        Thresholds of single values, in (0, 1], by the value's text.
    null : Fraction, optional
        Threshold of NULL as a sensitive value, in (0, 1].
    cap : Fraction, optional
        Upper bound of all thresholds, in (0, 1].
    attributes : mapping of str to PrivacySpecification
        Specifications of single sensitive attributes, by name, which take the place of all other
        rules; see :meth:`of_attribute`.
    may_be_absent : bool
        Whether ``values`` may name values that a table, a batch of a larger one, does not have.

    Raises
    ------
    InvalidParameterError
        If a number lies outside its range, or no rule is given at all.

    Notes
    -----
    **Source:** [GB] Section 3.3, which proposes thresholds set by hand, a function of f_i such as
    min{1, theta f_i + 0.02}, and l-diversity as the special case f'_i = 1/l. The cap, and how the
    rules combine, are our own choice.

    Examples
    --------
    >>> text = '{"theta": 8, "base": 0.02, "cap": 0.5, "values": {"HIV": "1/20"}}'
    >>> spec = PrivacySpecification.parse(text)
    >>> [str(f) for f in spec.thresholds(["Flu", "HIV", "Gout"], [79, 20, 1]).thresholds]
    ['1/2', '1/20', '1/10']
    """

    theta: Fraction | None = None
    base: Fraction | None = None
    default: Fraction | None = None
    l: Fraction | None = None
    values: Mapping[str, Fraction] = field(default_factory=dict)
    null: Fraction | None = None
    cap: Fraction | None = None
    attributes: Mapping[str, PrivacySpecification] = field(default_factory=dict)
    may_be_absent: bool = False

    def __post_init__(self) -> None:
        for name in ("values", "attributes"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        self._check_range("theta", self.theta is None or self.theta >= 0, "at least 0")
        self._check_range("base", self.base is None or 0 <= self.base <= 1, "in [0, 1]")
        self._check_range("default", self.default is None or 0 < self.default <= 1, "in (0, 1]")
        self._check_range("l", self.l is None or self.l >= 1, "at least 1")
        self._check_range("null", self.null is None or 0 < self.null <= 1, "in (0, 1]")
        self._check_range("cap", self.cap is None or 0 < self.cap <= 1, "in (0, 1]")
        outside = sum(not 0 < threshold <= 1 for threshold in self.values.values())
        if outside:
            raise InvalidParameterError(
                "a privacy threshold must lie in (0, 1]",
                detail=f"{outside} of the {len(self.values)} thresholds in values lie outside",
            )
        if not (self.values or self.attributes or self.has_general_rules):
            raise InvalidParameterError("the privacy specification is empty", hint=_EXAMPLE)
        if self._is_linear and not (self.theta or self.base):
            raise InvalidParameterError(
                "theta and base must not both be 0",
                detail="no record may be published under a threshold of 0",
                hint=_EXAMPLE,
            )

    @property
    def is_l_diversity(self) -> bool:
        """Whether ``l`` is the only rule."""
        return self.l is not None and type(self)(l=self.l) == replace(self, may_be_absent=False)

    @property
    def has_general_rules(self) -> bool:
        """Whether there are rules that need not name a value or an attribute."""
        return any(getattr(self, rule) is not None for rule in _RULES)

    def of_attribute(self, name: str, attributes: Sequence[str]) -> PrivacySpecification:
        """Return the specification of one of a table's sensitive attributes.

        Parameters
        ----------
        name : str
        attributes : sequence of str
            All sensitive attributes of the table.

        Raises
        ------
        InvalidParameterError
            If an attribute is named that the table does not have, no rule covers this one, or
            ``values`` does not say which of several attributes it means.

        Examples
        --------
        >>> spec = PrivacySpecification.parse('{"l": 3, "attributes": {"cost": {"l": 2}}}')
        >>> [spec.of_attribute(a, ["illness", "cost"]).describe() for a in ("illness", "cost")]
        ['l 3', 'l 2']
        """
        unknown = [one for one in self.attributes if one not in attributes]
        if unknown:
            raise InvalidParameterError(
                "the privacy specification names an attribute that is not sensitive",
                detail=f'"{unknown[0]}"',
                hint=f"the sensitive attributes are {', '.join(attributes)}",
            )
        if self.values and len(attributes) > 1:
            raise InvalidParameterError(
                "values of several sensitive attributes must say which one they are of",
                hint='write {"attributes": {"' + name + '": {"values": {...}}}}',
            )
        own = self.attributes.get(name)
        if own is None and not (self.values or self.has_general_rules):
            raise InvalidParameterError(
                "the privacy specification has no rule for a sensitive attribute",
                detail=f'"{name}"',
                hint="add a general rule, such as l or default, or one of attributes",
            )
        specification = replace(self, attributes={}) if own is None else own
        return replace(specification, may_be_absent=self.may_be_absent)

    @classmethod
    def parse(cls, specification: str | Mapping[str, Any]) -> Self:
        """Read a specification, taking every number exactly as written.

        Parameters
        ----------
        specification : str or mapping
            A JSON object, as text or decoded, with at least one of the keys ``theta``, ``base``,
            ``default``, ``l``, ``cap``, ``values``, ``null`` and ``attributes``. A number is a JSON
            number, or a string holding a decimal number or a fraction such as ``"1/3"``; at most 40
            characters, exponent -40 to 40. A float of Python is what its shortest text says.

        Returns
        -------
        PrivacySpecification

        Raises
        ------
        InvalidParameterError
            If it is anything else, repeats a key, or a number lies outside its range.
        """
        document = (
            read_json(specification, "the privacy specification")
            if isinstance(specification, str)
            else specification
        )
        if not isinstance(document, Mapping):
            raise InvalidParameterError(
                "the privacy specification must be a JSON object", hint=_EXAMPLE
            )
        values = document.get("values", {})
        if not isinstance(values, Mapping):
            raise InvalidParameterError(
                "values must be a JSON object",
                hint='write for example {"default": 0.5, "values": {"HIV": 0.05}}',
            )
        attributes = document.get("attributes", {})
        if not isinstance(attributes, Mapping) or any(
            not isinstance(one, Mapping) or "attributes" in one for one in attributes.values()
        ):
            raise InvalidParameterError(
                "attributes must be a JSON object with a privacy specification for each",
                hint='write for example {"l": 3, "attributes": {"cost": {"l": 2}}}',
            )
        unknown = len(document.keys() - {*_RULES, "values", "attributes"})
        if unknown:
            raise InvalidParameterError(
                "the privacy specification has an unknown key",
                detail=f"{unknown} unknown keys",
                hint=f"the keys are {', '.join(_RULES)}, values and attributes",
            )
        rules: dict[str, Any] = {
            rule: _number(document[rule], rule) for rule in _RULES if rule in document
        }
        return cls(
            values={value: _number(entry, "values") for value, entry in values.items()},
            attributes={name: cls.parse(own) for name, own in attributes.items()},
            **rules,
        )

    def as_json(self) -> dict[str, Any]:
        """Return what :meth:`parse` reads.

        Examples
        --------
        >>> PrivacySpecification.parse('{"base": 0.02, "values": {"HIV": "1/3"}}').as_json()
        {'base': '1/50', 'values': {'HIV': '1/3'}}
        """
        rules = {rule: getattr(self, rule) for rule in _RULES}
        content: dict[str, Any] = {rule: str(x) for rule, x in rules.items() if x is not None}
        if self.values:
            content["values"] = {value: str(x) for value, x in self.values.items()}
        if self.attributes:
            content["attributes"] = {name: own.as_json() for name, own in self.attributes.items()}
        return content

    def describe(self) -> str:
        """Describe the rules without naming a value.

        Returns
        -------
        str

        Examples
        --------
        >>> PrivacySpecification.parse('{"base": 0.02, "values": {"HIV": "1/3"}}').describe()
        'base 0.02, 1 value with a threshold of its own'
        """
        return describe_rules(self.figures)

    @property
    def figures(self) -> dict[str, Any]:
        """Return the rules as plain JSON, without naming a value."""
        numbers = {rule: getattr(self, rule) for rule in _RULES}
        rules: dict[str, Any] = {k: exact_text(x) for k, x in numbers.items() if x is not None}
        if self.values:
            rules["n_own"] = len(self.values)
        if self.attributes:
            rules["attributes"] = {name: own.figures for name, own in self.attributes.items()}
        return rules

    def thresholds(self, values: Sequence[str | None], counts: npt.ArrayLike) -> FPrimePrivacy:
        """Apply the rules to the sensitive values of a table.

        Parameters
        ----------
        values : sequence of (str or None), length m
            The distinct sensitive values as text; None is NULL.
        counts : array_like of int, shape (m,)
            Records of each of them, at least 1.

        Returns
        -------
        FPrimePrivacy
            One threshold for each of ``values``, in their order.

        Raises
        ------
        InvalidParameterError
            If no rule covers a value, or an entry of ``self.values`` is not among ``values``:
            mistyped, it would leave unprotected the value that it means.
        """
        checked, n_records = record_counts(counts, len(values))
        if (checked < 1).any():
            raise InvalidParameterError("every sensitive value needs at least one record")
        absent = 0 if self.may_be_absent else len(self.values.keys() - set(values))
        if absent:
            raise InvalidParameterError(
                "the privacy specification has a threshold for a value that does not occur",
                detail=f"{absent} of the {len(self.values)} values named do not occur in the "
                "sensitive attribute",
                hint="write each value exactly as PostgreSQL prints it as text",
            )
        general = {
            count: self._general_threshold(Fraction(count, n_records))
            for count in set(checked.tolist())
        }
        thresholds = [
            self._own_threshold(value) or general[count]
            for value, count in zip(values, checked.tolist(), strict=True)
        ]
        covered = tuple(threshold for threshold in thresholds if threshold is not None)
        if len(covered) < len(thresholds):
            raise InvalidParameterError(
                "the privacy specification leaves values without a threshold",
                detail=f"{len(thresholds) - len(covered)} of {len(thresholds)} sensitive values "
                "are not covered",
                hint="add a general rule: default, l, cap, or theta and base",
            )
        return FPrimePrivacy(covered)

    @property
    def _is_linear(self) -> bool:
        return self.theta is not None or self.base is not None

    def _linear_threshold(self, frequency: Fraction) -> Fraction:
        return (self.theta or 0) * frequency + (self.base or Fraction(0))

    def _general_threshold(self, frequency: Fraction) -> Fraction | None:
        """Threshold of a value without one of its own, None if no general rule is given."""
        candidates = []
        if self.default is not None:
            candidates.append(self.default)
        if self.l is not None:
            candidates.append(1 / self.l)
        if self._is_linear:
            candidates.append(min(Fraction(1), self._linear_threshold(frequency)))
        if self.cap is not None:
            candidates.append(self.cap)
        return min(candidates, default=None)

    def _own_threshold(self, value: str | None) -> Fraction | None:
        own = self.null if value is None else self.values.get(value)
        return own if own is None or self.cap is None else min(own, self.cap)

    def _remedies(self, values: Sequence[str | None], counts: IntArray) -> list[str]:
        """Smallest change of each rule that makes a table eligible; all of them are needed."""
        n_records = int(counts.sum())
        frequencies = [Fraction(count, n_records) for count in counts.tolist()]
        table = list(zip(values, frequencies, strict=True))
        remedies = []
        if len(table) == 1:
            return ["the table has a single value, which no publication hides"]
        # A general rule allows every value it governs if it allows the most frequent one: this
        # is plain for a constant threshold, and theta f + base < f only happens for theta < 1.
        top = max(
            (f for value, f in table if self._own_threshold(value) is None), default=Fraction(0)
        )
        if self.l is not None and 1 / self.l < top:
            rounded = 1 // top  # of a smaller l, digits of what exceeds 1: l = 1 protects nobody
            lowered = rounded if rounded > 1 else 1 + Fraction(round_down(1 / top - 1))
            other = (
                ""
                if rounded > 1
                else " or give the most frequent value a threshold of its own in values"
            )
            remedies.append(f"lower l to {exact_text(Fraction(lowered))}{other}")
        if self.default is not None and self.default < top:
            remedies.append(f"raise default to {round_up(top)}")
        if self._is_linear and self._linear_threshold(top) < top:
            theta = 1 - (self.base or 0) / top
            base = (1 - (self.theta or 0)) * top
            remedies.append(f"raise theta to {round_up(theta)} or base to {round_up(base)}")
        most = max(frequencies)
        if self.cap is not None and self.cap < most:
            remedies.append(f"raise cap to {round_up(most)}")
        low = [f for value, f in table if value is not None and self.values.get(value, 1) < f]
        if low:
            remedies.append(f"raise {len(low)} of the values' thresholds to {round_up(max(low))}")
        low = [f for value, f in table if value is None and (self.null or 1) < f]
        if low:
            remedies.append(f"raise null to {round_up(max(low))}")
        return remedies

    @staticmethod
    def _check_range(rule: str, inside: bool, allowed: str) -> None:
        if not inside:
            raise InvalidParameterError(f"{rule} must be {allowed}", hint=_EXAMPLE)


def check_eligible(
    spec: PrivacySpecification,
    values: Sequence[str | None],
    counts: npt.ArrayLike,
    attribute: str | None = None,
) -> None:
    """Refuse a specification that no bucketization of the table can satisfy.

    Parameters
    ----------
    spec : PrivacySpecification
    values : sequence of (str or None), length m
        The distinct sensitive values as text; None is NULL.
    counts : array_like of int, shape (m,)
        Records of each of them, at least 1.
    attribute : str, optional
        Its name, where there are several sensitive attributes.

    Raises
    ------
    IneligibleError
        If a value is more frequent in the table than its threshold. The detail says how many
        are, the hint the smallest changes that would pass, rounded up to three significant
        digits; where several rules fail, all named changes are needed together.
    InvalidParameterError
        As :meth:`PrivacySpecification.thresholds`.

    Notes
    -----
    **Source:** [GB] Lemma 1.

    Examples
    --------
    >>> spec = PrivacySpecification.parse('{"theta": 0.5, "base": 0.02}')
    >>> try:
    ...     check_eligible(spec, ["Flu", "HIV"], [90, 10])
    ... except IneligibleError as error:
    ...     print(error.hint)
    raise theta to 0.978 or base to 0.45
    """
    checked, _ = record_counts(counts, len(values))
    n_broken = int(spec.thresholds(values, checked).ineligible(checked).sum())
    if n_broken:
        raise IneligibleError(
            "no publication can satisfy the privacy specification",
            detail=f"{n_broken} of {len(values)} sensitive values"
            f"{'' if attribute is None else f' of {attribute}'} are more frequent in the table "
            "than their threshold",
            hint="; ".join(spec._remedies(values, checked)),
        )


def _number(entry: object, rule: str) -> Fraction:
    """Take a number exactly."""
    if isinstance(entry, str | int | float) and not isinstance(entry, bool):
        return exact_number(entry)
    raise InvalidParameterError(
        f"{rule} must be a number" if rule != "values" else "each of values must be a number",
        hint='write a number such as 0.05, or a fraction such as "1/3"',
    )
