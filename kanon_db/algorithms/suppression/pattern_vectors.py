"""Reads and generates pattern vectors: combinations of cells to suppress ([PG] Section 1)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, IntArray
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError

Weight = int | float | str | Fraction


class Permuting(Protocol):
    """A source of random orders, such as numpy's Generator."""

    def permutation(self, n: int, /) -> AnyIntArray:
        """Return a uniformly random order of ``0 … n-1``."""


MAX_COLUMNS = 62
"""Most quasi-identifiers: a pattern vector is one bit mask of 64 bits."""

MAX_PATTERNS = 2**16
"""Most pattern vectors: the greedy heuristic passes over the records once for each."""

_MAX_TOTAL_WEIGHT = 2**24  # in units: summed over 2^38 records it still fits 64 bits
# Short texts only: 1e999999999 must not become an integer of a billion digits.
_WEIGHT = re.compile(
    r"[0-9]{1,15}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?|[0-9]{1,15}/0*[1-9][0-9]{0,14}"
)
_RULES = (
    'write {"at_most": 2}, {"at_most": 1, "of": [columns]}, {"never": [columns]}, '
    '{"together": [columns]} or {"outliers": "suppress"}'
)


@dataclass(frozen=True, eq=False)
class PatternSet:
    """Distinct pattern vectors, cheapest first.

    Parameters
    ----------
    masks : ndarray of int64, shape (p,)
        One bit for each quasi-identifier, the first column's the most significant: 1 suppresses.
    n_columns : int
        Number of quasi-identifiers: m.
    costs : ndarray of int64, shape (p,)
        Cost of suppressing one record by each pattern, in units of 1 / ``cost_unit``; ascending.
        Without weights, the number of stars.
    cost_unit : int
        Number of units in a weight of 1.

    Examples
    --------
    >>> patterns = parse_patterns(["**.", "...", ".*."], 3, weights=["0.5", "0.25", "1"])
    >>> patterns.texts
    ('...', '.*.', '**.')
    >>> patterns.costs.tolist(), patterns.cost_unit
    ([0, 1, 3], 4)
    """

    masks: IntArray
    n_columns: int
    costs: IntArray
    cost_unit: int

    @classmethod
    def of(
        cls, masks: npt.ArrayLike, n_columns: int, weights: Sequence[Weight] | None = None
    ) -> PatternSet:
        """Put patterns in canonical order: by cost, ties as given; repeated ones are dropped.

        Parameters
        ----------
        masks : array_like of int, shape (q,)
            Bit masks, at least one.
        n_columns : int
            Number of quasi-identifiers, in [1, 62].
        weights : sequence of int, float, str or Fraction, length n_columns, optional
            Cost of a suppressed cell of each column, above 0; taken exactly as written. All 1
            if not given.

        Returns
        -------
        PatternSet

        Raises
        ------
        InvalidParameterError
            If there is no pattern or too many, a mask exceeds the columns, or the weights are
            no positive numbers of few digits.
        """
        _check_n_columns(n_columns)
        given = np.asarray(masks, dtype=np.int64)
        if given.ndim != 1 or not given.size:
            raise InvalidParameterError("at least one pattern vector is needed")
        if (given < 0).any() or (given >> n_columns).any():
            raise InvalidParameterError(
                "a pattern vector has more characters than there are quasi-identifiers",
                detail=f"columns: {n_columns}",
            )
        distinct = given[np.sort(np.unique(given, return_index=True)[1])]
        if distinct.size > MAX_PATTERNS:
            raise _too_many_patterns()
        units, cost_unit = _exact_weights(weights, n_columns)
        costs = _stars(distinct, n_columns) @ units
        order = np.argsort(costs, kind="stable")
        for array in (ordered := distinct[order], ordered_costs := costs[order]):
            array.setflags(write=False)
        return cls(ordered, n_columns, ordered_costs, cost_unit)

    def __len__(self) -> int:
        return self.masks.size

    @property
    def stars(self) -> BoolArray:
        """Where each pattern suppresses, shape (p, m)."""
        return _stars(self.masks, self.n_columns)

    @property
    def n_stars(self) -> IntArray:
        """Number of suppressed cells of each pattern, shape (p,)."""
        return np.bitwise_count(self.masks).astype(np.int64)

    @property
    def texts(self) -> tuple[str, ...]:
        """Each pattern written out: ``*`` suppresses, ``.`` keeps."""
        return tuple(
            "".join("*" if star else "." for star in stars) for stars in self.stars.tolist()
        )

    def of_columns(self, columns: IntArray) -> PatternSet:
        """Write the same patterns for the same columns in another order.

        Examples
        --------
        >>> all_patterns(2).of_columns(np.array([1, 0])).texts
        ('..', '*.', '.*', '**')
        """
        digits = 1 << np.arange(self.n_columns - 1, -1, -1, dtype=np.int64)
        return replace(self, masks=self.stars[:, columns] @ digits)

    def in_order_of(self, columns: IntArray) -> PatternSet:
        """Put patterns of equal cost in the order that they have for columns in another order."""
        order = np.lexsort((self.of_columns(columns).masks, self.costs))
        return replace(self, masks=self.masks[order])

    @property
    def margin(self) -> int:
        """By how much a pattern may cost more, in units, and yet be tried first: see `draw_order`.

        It is less than 1.2 times what a star costs on average in the pattern where that is least.
        """
        return (6 * self._least_star - 1) // 5

    @property
    def _least_star(self) -> int:
        has_stars = self.masks > 0
        costs = self.costs[has_stars] // self.n_stars[has_stars]
        return int(costs.min()) if costs.size else 1

    def draw_order(self, random: Permuting) -> IntArray:
        """Draw an order of the patterns, about the cheapest first.

        Each cost is raised by up to 1.2 times that of a star. The pattern without stars stays the
        first, and the one that suppresses every cell the last.

        Examples
        --------
        >>> order = all_patterns(3).draw_order(np.random.default_rng(0))
        >>> order.tolist(), all_patterns(3).costs[order].tolist()
        ([0, 2, 1, 3, 5, 6, 4, 7], [0, 1, 1, 1, 2, 2, 2, 3])
        """
        n = len(self)
        drawn = np.asarray(random.permutation(n), dtype=np.int64)
        raised = 5 * n * self.costs + 6 * self._least_star * drawn
        last = (self.n_stars == self.n_columns).astype(np.int64)
        return np.lexsort((raised, last - (self.masks == 0)))

    def in_order(self, order: IntArray) -> PatternSet:
        """Return the same patterns in an order in which costs need not ascend."""
        return replace(self, masks=self.masks[order], costs=self.costs[order])

    @property
    def suppresses_fully(self) -> bool:
        """Whether the all-star pattern is among them; it is then the last."""
        return int(self.masks[-1]) == (1 << self.n_columns) - 1


def parse_patterns(
    texts: Iterable[str], n_columns: int, weights: Sequence[Weight] | None = None
) -> PatternSet:
    """Read pattern vectors; of equal cost, they are tried in the order given.

    Parameters
    ----------
    texts : iterable of str
        ``*`` suppresses, ``.`` keeps; one character for each quasi-identifier.
    n_columns : int
        Number of quasi-identifiers, in [1, 62].
    weights : sequence of int, float, str or Fraction, length n_columns, optional
        Cost of a suppressed cell of each column; see :meth:`PatternSet.of`.

    Returns
    -------
    PatternSet

    Raises
    ------
    InvalidParameterError
        If a text is not as described, there is none, or the weights are no positive numbers.

    Notes
    -----
    **Source:** [PG] Definition 2; weights: Section 5.

    Examples
    --------
    >>> parse_patterns(["***", "*..", "..*", "*.."], 3).texts
    ('*..', '..*', '***')
    """
    _check_n_columns(n_columns)
    masks = []
    for position, text in enumerate(texts, start=1):
        if not isinstance(text, str) or len(text) != n_columns or set(text) - {"*", "."}:
            raise InvalidParameterError(
                "a pattern vector must hold one * or . for each quasi-identifier",
                detail=f"pattern {position}, quasi-identifiers: {n_columns}",
                hint="* suppresses the column's value, . keeps it",
            )
        masks.append(int(text.replace("*", "1").replace(".", "0"), 2))
    return PatternSet.of(masks, n_columns, weights)


def all_patterns(n_columns: int, weights: Sequence[Weight] | None = None) -> PatternSet:
    """Make all 2^m pattern vectors: k-anonymity by suppression, without guidance.

    Parameters
    ----------
    n_columns : int
        Number of quasi-identifiers, in [1, 16].
    weights : sequence of int, float, str or Fraction, length n_columns, optional
        Cost of a suppressed cell of each column; see :meth:`PatternSet.of`.

    Returns
    -------
    PatternSet
        Patterns of equal cost count in binary, the first column the most significant digit, a
        star 1: stars on the last columns come first.

    Raises
    ------
    InvalidParameterError
        If there are too many columns, or the weights are no positive numbers.

    Notes
    -----
    **Source:** [PG] Section 3.5. The paper does not tell the order of equal costs; this one
    reproduces its Tables 1 to 4 and 6.

    Examples
    --------
    >>> all_patterns(2).texts
    ('..', '.*', '*.', '**')
    """
    _check_n_columns(n_columns)
    if 1 << n_columns > MAX_PATTERNS:
        raise _too_many_patterns()
    return PatternSet.of(np.arange(1 << n_columns), n_columns, weights)


def expand_rules(
    rules: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    weights: Sequence[Weight] | None = None,
) -> PatternSet:
    """Make all pattern vectors that obey a list of rules.

    Parameters
    ----------
    rules : sequence of mappings
        As read from JSON. All must hold, except that the last form allows one more pattern:

        - ``{"at_most": 2}``: no more than 2 columns suppressed;
        - ``{"at_most": 1, "of": ["age", "sex", "race"]}``: no more than 1 of these;
        - ``{"never": ["education"]}``: these are kept;
        - ``{"together": ["workclass", "occupation"]}``: all of these are suppressed, or none;
        - ``{"outliers": "suppress"}``: a record may be suppressed fully, whatever the other
          rules say.
    columns : sequence of str
        Names of the quasi-identifiers, in order; at most 62.
    weights : sequence of int, float, str or Fraction, length m, optional
        Cost of a suppressed cell of each column; see :meth:`PatternSet.of`.

    Returns
    -------
    PatternSet
        In the order of :func:`all_patterns`.

    Raises
    ------
    InvalidParameterError
        If a rule is malformed or names an unknown column, the rules allow more than
        :data:`MAX_PATTERNS` patterns, or the weights are no positive numbers.

    Notes
    -----
    **Source:** [PG] Section 3.6, "Adult2" (rules) and "CMC" (the all-star pattern for outliers).

    Examples
    --------
    >>> expand_rules(
    ...     [{"at_most": 2}, {"never": ["education"]}, {"together": ["work", "job"]}],
    ...     ["age", "work", "job", "education"],
    ... ).texts
    ('....', '*...', '.**.')
    """
    if isinstance(rules, str | Mapping) or not isinstance(rules, Sequence):
        raise InvalidParameterError("rules must be a list", hint=_RULES)
    n_columns = len(columns)
    _check_n_columns(n_columns)
    bits = {name: 1 << (n_columns - 1 - i) for i, name in enumerate(columns)}
    limits: list[tuple[int, int]] = []  # no more than so many stars within a mask
    groups = list(bits.values())  # disjoint masks of columns that are suppressed together
    never = 0
    outliers = False
    for position, rule in enumerate(rules, start=1):
        match rule:
            case {"at_most": int(most), **rest} if not isinstance(most, bool) and most >= 0:
                named = rest.pop("of", list(columns))
                if rest:
                    raise _refuse_pattern(position)
                limits.append((most, sum(_bits_of(named, bits, position))))
            case {"never": named, **rest} if not rest:
                never |= sum(_bits_of(named, bits, position))
            case {"together": named, **rest} if not rest:
                tied = sum(_bits_of(named, bits, position))
                touched = [group for group in groups if group & tied]
                groups = [group for group in groups if not group & tied] + [sum(touched)]
            case {"outliers": "suppress", **rest} if not rest:
                outliers = True
            case _:
                raise _refuse_pattern(position)
    masks = _combinations([group for group in groups if not group & never], limits)
    if outliers:
        masks = np.append(masks, (1 << n_columns) - 1)
    return PatternSet.of(np.unique(masks), n_columns, weights)


def _combinations(groups: list[int], limits: list[tuple[int, int]]) -> IntArray:
    """Unions of groups within the limits.

    Suppressing less keeps within the limits, so each union on the way counts and bounds the work.
    """
    masks = np.zeros(1, dtype=np.int64)
    for group in groups:
        more = masks | group
        for most, within in limits:
            more = more[np.bitwise_count(more & within) <= most]
        masks = np.concatenate([masks, more])
        if masks.size > MAX_PATTERNS:
            raise _too_many_patterns()
    return masks


def _bits_of(named: object, bits: Mapping[str, int], position: int) -> Iterator[int]:
    """Bits of the distinct columns that a rule names."""
    if not isinstance(named, list | tuple) or not named:
        raise _refuse_pattern(position)
    for name in dict.fromkeys(map(str, named)):
        if name not in bits:
            raise InvalidParameterError(
                "a rule names a column that is not a quasi-identifier",
                detail=f'rule {position}, column "{name}"',
            )
        yield bits[name]


def _stars(masks: IntArray, n_columns: int) -> BoolArray:
    return (masks[:, np.newaxis] >> np.arange(n_columns - 1, -1, -1) & 1).astype(np.bool_)


def _exact_weights(weights: Sequence[Weight] | None, n_columns: int) -> tuple[IntArray, int]:
    """Weights as whole multiples of a common unit, and how many units make 1."""
    if weights is None:
        return np.ones(n_columns, dtype=np.int64), 1
    # A float is what its shortest text says: 0.1 is one tenth.
    texts = [str(weight) for weight in weights]
    exact = [Fraction(text) for text in texts if _WEIGHT.fullmatch(text)]
    if len(exact) != n_columns or len(texts) != n_columns or min(exact) <= 0:
        raise InvalidParameterError(
            "weights must hold one number above 0 for each quasi-identifier",
            detail=f"weights: {len(texts)}, quasi-identifiers: {n_columns}",
        )
    # Integers compare exactly where sums of floats would break ties by rounding.
    unit = math.lcm(*(weight.denominator for weight in exact))
    units = [int(weight * unit) for weight in exact]
    if sum(units) > _MAX_TOTAL_WEIGHT:
        raise InvalidParameterError(
            "the weights have too many digits",
            detail=f"their sum, in units of 1 / {unit:,}, exceeds {_MAX_TOTAL_WEIGHT:,}",
            hint="round them",
        )
    return np.array(units, dtype=np.int64), unit


def _check_n_columns(n_columns: int) -> None:
    if not 1 <= n_columns <= MAX_COLUMNS:
        raise InvalidParameterError(
            f"the number of quasi-identifiers must lie in [1, {MAX_COLUMNS}]",
            detail=f"quasi-identifiers: {n_columns}",
        )


def _refuse_pattern(position: int) -> InvalidParameterError:
    return InvalidParameterError("a rule is malformed", detail=f"rule {position}", hint=_RULES)


def _too_many_patterns() -> InvalidParameterError:
    return InvalidParameterError(
        "too many pattern vectors",
        detail=f"limit: {MAX_PATTERNS:,}",
        hint="list the patterns, or add rules that allow fewer",
    )
