"""Describes microdata to be generalized: codes of quasi-identifiers, their domains and taxonomies.

It also orders attributes and records so that similar records are close ([OB] Section 2.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Self, get_args

import numpy as np

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    order_of,
    sort_keys,
)
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError, InvalidParameterError

_TIMES: Final = 3.0
"""Factor by which values are further apart for each level up to their first common label."""


@dataclass(frozen=True, eq=False)
class Taxonomy:
    """The tree of labels of a categorical attribute, whose values are numbered in the tree's order.

    **Source:** LeFevre, DeWitt and Ramakrishnan, *Incognito* (2005) and *Mondrian* (2006).
    """

    firsts: IntArray  # (n_levels, n_values): the first value that has the same label
    # (n_levels, n_values): the last value that has the same label as each value, at each level.
    # Level 0 is the values themselves, the last level one label for all values.
    lasts: IntArray

    @classmethod
    def of(cls, levels: Sequence[Sequence[str]]) -> Self:
        """Read the labels of each value at each level; values with the same label are adjacent."""
        n = len(levels[0])
        places = np.arange(n)
        firsts, lasts = [places], [places]
        for level in (*levels, [""] * n):
            starts = np.array([i == 0 or level[i] != level[i - 1] for i in range(n)])
            begin = np.flatnonzero(starts)
            ends = np.append(begin[1:], n) - 1
            number = np.cumsum(starts) - 1
            firsts.append(begin[number])
            lasts.append(ends[number])
        return cls(np.array(firsts), np.array(lasts))

    @property
    def n_values(self) -> int:
        """Number of values."""
        return int(self.lasts.shape[1])

    @property
    def positions(self) -> FloatArray:
        """The place of each value on the line."""
        shared = self.levels_of(np.arange(self.n_values - 1), np.arange(1, self.n_values))
        return np.concatenate([[0.0], np.cumsum(_TIMES ** (shared - 1.0))])

    def levels_of(self, low: AnyIntArray, high: AnyIntArray) -> IntArray:
        """Return the lowest level at which two values, and all between them, have one label."""
        found: IntArray = np.argmax(self.lasts[:, low] >= high, axis=0)
        return found

    def spans_of(self, low: AnyIntArray, high: AnyIntArray) -> tuple[IntArray, IntArray]:
        """Return the first and the last value of that label."""
        level = self.levels_of(low, high)
        return self.firsts[level, low], self.lasts[level, low]

    def losses_of(self, low: AnyIntArray, high: AnyIntArray) -> FloatArray:
        """Return the loss of that label: (n - 1) / (N - 1), if it covers n of N values."""
        first, last = self.spans_of(low, high)
        losses: FloatArray = (last - first) / max(self.n_values - 1, 1)
        return losses


@dataclass(frozen=True, eq=False)
class Attribute:
    """The domain of one quasi-identifier.

    Parameters
    ----------
    n_values : int
        Number of distinct values, NULL among them: codes lie in [0, n_values).
    numbers : ndarray of float64, shape (n_values,), or None
        The number of each code of a numeric attribute, ascending; NaN, at most once and last,
        stands for NULL. None for a categorical attribute.
    lower, upper : float
        Bounds L_j and U_j of a numeric attribute; ``numbers`` lie within. Unused otherwise.
    weight : float
        Factor of the attribute's loss, above 0.
    ends : ndarray of float64, shape (n_values,), or None
        End of the bin that each code of a numeric attribute stands for, which begins at its number.
        The search depends on the numbers alone, the loss on both.
    taxonomy : Taxonomy or None
        Labels, if the numbers are places of a hierarchy's values; the lowest label that covers a
        class is published.

    Notes
    -----
    **Source:** [OB] Section 2 (bounds, weights). NULL is a value of its own: a numeric class that
    holds NULL and numbers tells nothing, and loses as much as the whole range.
    """

    n_values: int
    numbers: FloatArray | None = None
    lower: float = 0.0
    upper: float = 0.0
    weight: float = 1.0
    ends: FloatArray | None = None
    taxonomy: Taxonomy | None = None

    @property
    def is_numeric(self) -> bool:
        """Whether values are generalized to ranges, not to sets."""
        return self.numbers is not None


@dataclass(frozen=True, eq=False)
class Microdata:
    """The quasi-identifiers of a table.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_records, m)
        Code of each value; the order of codes is the order of the type.
    attributes : tuple of Attribute, length m

    Raises
    ------
    InvalidParameterError
        If codes and attributes do not match.
    """

    codes: CodeArray
    attributes: tuple[Attribute, ...]

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes)
        sizes = np.array([attribute.n_values for attribute in self.attributes])
        if (
            codes.ndim != 2
            or codes.shape[1] != sizes.size
            or not sizes.size
            or not np.issubdtype(codes.dtype, np.integer)
            or (codes.size and ((codes < 0).any() or (codes >= sizes).any()))
        ):
            raise InvalidParameterError(
                "codes must hold one row for each record and one valid code for each attribute",
                detail=f"codes: shape {codes.shape}, attributes: {sizes.size}",
            )
        object.__setattr__(self, "codes", np.ascontiguousarray(codes, dtype=np.int32))

    @property
    def n_records(self) -> int:
        """Number of records."""
        return int(self.codes.shape[0])

    def every_code(self) -> Microdata:
        """Make a table in which record i has the code i in each attribute, or else its last one."""
        n_values = np.array([attribute.n_values for attribute in self.attributes])
        codes = np.minimum(np.arange(n_values.max())[:, np.newaxis], n_values - 1)
        return Microdata(codes, self.attributes)


def check_k(k: int, n_records: int) -> None:
    """Refuse a number of records that no class, or not even one class, can have.

    Parameters
    ----------
    k, n_records : int

    Raises
    ------
    InfeasibleError
        If there are records, but fewer than ``k``.
    InvalidParameterError
        If ``k`` is less than 1.
    """
    if k < 1:
        raise InvalidParameterError("k must be at least 1", detail=f"k = {k}")
    if 0 < n_records < k:
        raise InfeasibleError(
            "k must not exceed the number of records",
            detail=f"k = {k}, n_records = {n_records}",
            hint="lower k, or add records",
        )


def attribute_order(microdata: Microdata) -> IntArray:
    """Order the attributes by ascending weighted variance.

    Parameters
    ----------
    microdata : Microdata

    Returns
    -------
    ndarray of int64, shape (m,)
        Positions of the attributes; of equal variances, the first attribute comes first.

    Notes
    -----
    **Source:** [OB] Section 2.3 and Eq. (36), wVar = Var / w^2. The variance is that of the
    numbers as they are; that of categorical attributes is of their codes. NULLs are left out.
    """
    variances = [
        _variance(np.bincount(codes, minlength=attribute.n_values), attribute) / attribute.weight**2
        for codes, attribute in zip(microdata.codes.T, microdata.attributes, strict=True)
    ]
    return np.argsort(variances, kind="stable")


def _variance(counts: IntArray, attribute: Attribute) -> float:
    numbers = attribute.numbers
    if numbers is None:
        numbers = np.arange(attribute.n_values, dtype=np.float64)
    known = ~np.isnan(numbers) & (counts > 0)
    if not known.any():
        return 0.0
    mean = np.average(numbers[known], weights=counts[known])
    return float(np.average((numbers[known] - mean) ** 2, weights=counts[known]))


Sorting = Literal["alternating", "ascending"]
"""How the values of each attribute but the first are sorted, among records that agree before it."""


def sort_order(microdata: Microdata, sorting: Sorting = "alternating") -> IntArray:
    """Sort the records by the attribute of least variance, then by the next one, and so on.

    Parameters
    ----------
    microdata : Microdata
    sorting : {"alternating", "ascending"}
        Whether every other run of records that agree on the attributes before is descending, so
        that neighbors from two runs are alike as well.

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Records in order; equal ones stay in the order that they come in.

    Notes
    -----
    **Source:** [OB] Section 2.3, Table 2b, whose order is ascending. Section 6 asks for a better
    one: ``python -m benchmarks generalization_figures`` compares them. Values are compared by their
    codes, whose order is that of the type, NULL last.

    Examples
    --------
    >>> age = Attribute(3, numbers=np.array([20.0, 40.0, 60.0]), lower=20, upper=60)
    >>> sex = Attribute(2)
    >>> table = Microdata([[2, 1], [0, 1], [1, 0], [2, 0]], (age, sex))
    >>> sort_order(table), sort_order(table, "ascending")
    (array([2, 3, 0, 1]), array([2, 3, 1, 0]))
    """
    if sorting not in get_args(Sorting):
        raise InvalidParameterError(
            "unknown sorting", hint=f"use one of {', '.join(get_args(Sorting))}"
        )
    columns = microdata.codes.T[attribute_order(microdata)]
    order = order_of(sort_keys(list(columns)), stable=True)
    return order if sorting == "ascending" else order[_alternate(columns[:, order])]


def _alternate(columns: CodeArray) -> IntArray:
    """Order ascending records anew, so that every other run of each column is descending."""
    n_records = columns.shape[1]
    begins = np.zeros(n_records, dtype=np.bool_)  # where a run of equal records begins
    begins[:1] = True
    place = np.zeros(1, dtype=np.int64)  # of each run in the new order
    for column in columns:
        run = np.cumsum(begins) - 1
        begins[1:] |= column[1:] != column[:-1]
        place = _place_parts(place, run[begins], is_turned=place % 2 == 1)
    # Equal records stay in the order that they come in.
    place = _place_parts(place, np.cumsum(begins) - 1, is_turned=np.zeros_like(place, np.bool_))
    order = np.empty_like(place)
    order[place] = np.arange(n_records)
    return order


def _place_parts(place: IntArray, run_of_part: IntArray, is_turned: BoolArray) -> IntArray:
    """Place the parts of runs, which are in order, by the places of the runs."""
    n_parts = np.bincount(run_of_part, minlength=place.size)
    part = np.arange(run_of_part.size) - (np.cumsum(n_parts) - n_parts)[run_of_part]
    part = np.where(is_turned[run_of_part], n_parts[run_of_part] - 1 - part, part)
    by_place = np.argsort(place)
    starts = np.empty_like(place)
    starts[by_place] = np.cumsum(n_parts[by_place]) - n_parts[by_place]
    return starts[run_of_part] + part


def is_first_of_equal(values: CodeArray) -> BoolArray:
    """Tell which rows differ from the row before them."""
    is_first = np.ones(values.shape[0], dtype=np.bool_)
    is_first[1:] = (values[1:] != values[:-1]).any(axis=1)
    return is_first
