"""Microdata to be generalized: codes of quasi-identifiers, and what their domains are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray
from kanon_db.algorithms.recoding.taxonomy import Taxonomy
from kanon_db.errors import InfeasibleError, InvalidParameterError


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
        Where a code of a numeric attribute stands for a bin that begins at its number: where this
        ends. What is searched for depends on the numbers alone; what is lost, on both.
    taxonomy : Taxonomy or None
        Where numbers are places in the order of a hierarchy's values: its labels, of which the
        lowest covers a class.

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
