"""Constraints on the sensitive values, and on the entities, of each equivalence class.

Where records are counted, all of them hold for the union of two classes that they hold for. So
there are classes that fulfil a constraint exactly if one class of all records does, and merging
ends there at the latest. The same is true of the number of entities. Only thresholds for shares of
entities may hold for two classes and not for their union, where the classes have entities in
common: then merging goes on, and what is refused is refused because one class of all records
violates it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, IntArray
from kanon_db.algorithms.recoding.constraint_rules import Rules, all_hold, classes_hold
from kanon_db.errors import IneligibleError, InvalidParameterError

_LARGEST_INTEGER = 2**62


@dataclass(frozen=True, eq=False)
class Constraint:
    """What the sensitive values and the entities of each class have to fulfil; all that is given.

    Parameters
    ----------
    codes : ndarray of int64, shape (n_records,)
        Sensitive value of each record, in [0, v).
    n_values : int
        v, at least 1.
    l : int, optional
        Distinct l-diversity: fewest distinct values, at least 1.
    entropy_l : Fraction, optional
        Entropy l-diversity: the entropy is at least log(l); l is at least 1.
    t : Fraction, optional
        t-closeness: most that the distribution may differ from that in the table, in [0, 1].
    distance : {"equal", "ordered"}
        Earth mover's distance for t: all values equally far from each other, or by their order.
    f_prime : FPrimePrivacy, optional
        Thresholds f'_i: a class of s records holds value i at most floor(f'_i s) times. Where
        entities are counted, at most floor(f'_i s) of the s entities of a class have value i in
        any of their records there.
    totals : ndarray of int64, shape (v,), optional
        Records of each value in the whole table; by default those of ``codes``.
    entities : ndarray of int, shape (n_records,), optional
        Whom each record is about, in [0, e). Given if several records can be about the same
        entity: then these are counted, and not records. It cannot be combined with
        ``entropy_l`` and ``t``, which compare distributions of records.
    least_entities : int
        Fewest entities of a class, at least 1 if there are ``entities``.
    missing : int
        The code that stands for no value, NULL; -1 if there is none.

    Raises
    ------
    InvalidParameterError
        If a number lies out of its range, or entities are combined with what counts records.

    Notes
    -----
    **Source:** l-diversity: Machanavajjhala et al. 2007, Definitions 4.1 and 4.2. t-closeness: Li,
    Li and Venkatasubramanian 2007, Sections 4 and 5.2; the ordered distance of adjacent ones of v
    values is 1 / (v - 1). F'-privacy: [GB] Definition 3.

    Deviation: a missing value is none of the values that ``l`` and ``entropy_l`` count. Otherwise
    a class of three equal values and a missing one would be 2-diverse, although whoever has a value
    has that one. By ``t`` and ``f_prime``, which compare shares, it is a value like all others.

    All comparisons are exact, but that of entropies, which holds up to 1e-9.

    Examples
    --------
    >>> constraint = Constraint(np.array([0, 1, 1, 2]), 3, l=2, t=Fraction(1, 2))
    >>> constraint.holds([[1, 1, 0], [0, 1, 1], [0, 2, 0], [1, 0, 1]]).tolist()
    [True, True, False, True]
    """

    codes: IntArray
    n_values: int
    l: int | None = None
    entropy_l: Fraction | None = None
    t: Fraction | None = None
    distance: Literal["equal", "ordered"] = "equal"
    f_prime: FPrimePrivacy | None = None
    totals: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    entities: AnyIntArray | None = None
    least_entities: int = 0
    missing: int = -1

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes, dtype=np.int64)
        object.__setattr__(self, "codes", codes)
        if codes.ndim != 1 or (codes < 0).any() or (codes >= self.n_values).any():
            raise InvalidParameterError(
                "each record must have a valid code for its sensitive value",
                detail=f"codes: shape {codes.shape}, values: {self.n_values}",
            )
        if not self.totals.size:
            object.__setattr__(self, "totals", np.bincount(codes, minlength=self.n_values))
        _check("l must be at least 1", self.l is None or self.l >= 1)
        _check("entropy_l must be at least 1", self.entropy_l is None or self.entropy_l >= 1)
        _check("t must lie in [0, 1]", self.t is None or 0 <= self.t <= 1)
        _check("distance must be equal or ordered", self.distance in ("equal", "ordered"))
        _check(
            "thresholds must be one for each sensitive value",
            self.f_prime is None or len(self.f_prime.thresholds) == self.n_values,
        )
        _check(
            "entities must be one for each record, and at least one is needed in a class",
            self.least_entities == 0
            if self.entities is None
            else self.entities.shape == codes.shape and self.least_entities >= 1,
        )
        _check(
            "entropy_l and t count records, not entities",
            self.entities is None or (self.entropy_l is None and self.t is None),
        )
        size = int(self.totals.sum()) + 1
        if (
            self.t is not None
            and 2 * size**2 * self.n_values * self.t.denominator > _LARGEST_INTEGER
        ):
            raise InvalidParameterError(
                "t has too large a denominator for the number of records",
                detail=f"denominator {self.t.denominator:,}, records {codes.size:,}",
                hint="write t with fewer digits",
            )
        if self.f_prime is not None and any(
            threshold.denominator * size > _LARGEST_INTEGER for threshold in self.f_prime.thresholds
        ):
            raise InvalidParameterError(
                "a privacy threshold has too large a denominator for the number of records",
                detail=f"{codes.size:,} records",
                hint="write the thresholds with fewer digits",
            )

    @property
    def rules(self) -> Rules:
        """The constraint as compiled code reads it."""
        thresholds = np.zeros((2, 0), dtype=np.int64)
        if self.f_prime is not None:
            fractions = self.f_prime.thresholds
            thresholds = np.array(
                [[f.numerator for f in fractions], [f.denominator for f in fractions]],
                dtype=np.int64,
            )
        codes = self.codes
        if self.entities is not None:
            codes = codes + self.entities.astype(np.int64) * self.n_values
        return Rules(
            codes,
            self.totals,
            self.l or 0,
            math.log(self.entropy_l) if self.entropy_l else 0.0,
            (self.t.numerator, self.t.denominator) if self.t is not None else (-1, 1),
            self.distance == "ordered",
            thresholds,
            self.least_entities,
            self.missing,
        )

    def holds(self, counts: npt.ArrayLike) -> BoolArray:
        """Tell which classes fulfil the constraint, which must not count entities.

        Parameters
        ----------
        counts : array_like of int, shape (n_classes, v)
            Records of each sensitive value in each class, at least one in each class.

        Returns
        -------
        ndarray of bool, shape (n_classes,)
        """
        table = np.ascontiguousarray(np.asarray(counts, dtype=np.int64))
        return all_hold(self.rules, table)

    def holds_for(self, class_of_record: npt.ArrayLike) -> BoolArray:
        """Tell which classes of records fulfil the constraint.

        Parameters
        ----------
        class_of_record : array_like of int, shape (n_records,)
            Classes numbered from 0 without gaps; -1 for a record in none.

        Returns
        -------
        ndarray of bool, shape (n_classes,)
        """
        classes = np.asarray(class_of_record, dtype=np.int64)
        order = np.argsort(classes, kind="stable")
        order = order[np.searchsorted(classes[order], 0) :]
        return classes_hold(self.rules, order, classes)

    def restricted_to(self, records: IntArray) -> Constraint:
        """Take some records, in some order; what their distribution is compared to stays.

        Parameters
        ----------
        records : ndarray of int64

        Returns
        -------
        Constraint
        """
        entities = None if self.entities is None else self.entities[records]
        return replace(self, codes=self.codes[records], totals=self.totals, entities=entities)

    def check_matches(self, n_records: int) -> None:
        """Refuse a constraint on another number of records.

        Parameters
        ----------
        n_records : int

        Raises
        ------
        InvalidParameterError
            If there is not one sensitive value for each record.
        """
        if self.codes.size != n_records:
            raise InvalidParameterError(
                "each record must have a sensitive value",
                detail=f"sensitive values: {self.codes.size}, records: {n_records}",
            )

    def check_eligible(self) -> None:
        """Refuse a constraint that no classes can fulfil.

        Raises
        ------
        IneligibleError
            If not even one class of all records fulfils it.
        """
        if self.codes.size and not self.holds_for(np.zeros_like(self.codes))[0]:
            entities = ""
            if self.entities is not None:
                entities = f" of {np.unique(self.entities).size:,} entities"
            known = self.codes[self.codes != self.missing]
            raise ineligible(self.codes.size, entities, np.unique(known).size)


def ineligible(n_records: int, entities: str, n_values: int) -> IneligibleError:
    """Return the error for a constraint that one class of all records violates."""
    return IneligibleError(
        "no equivalence classes can satisfy the constraint on the sensitive attribute",
        detail=f"even a single class of all {n_records:,} records{entities}, with "
        f"{n_values:,} distinct sensitive values, does not satisfy it",
        hint="weaken the constraint",
    )


def _check(message: str, is_so: bool) -> None:
    if not is_so:
        raise InvalidParameterError(message)
