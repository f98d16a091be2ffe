"""Losses in fractions, straight from the definitions, and the optimum over all partitions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata


def numeric_microdata(
    rows: Sequence[Sequence[int]],
    lower: Sequence[int],
    upper: Sequence[int],
    weights: Sequence[str] | None = None,
) -> Microdata:
    """Microdata of numeric attributes with these bounds."""
    columns, attributes = [], []
    for j, column in enumerate(np.array(rows).T):
        numbers, codes = np.unique(column, return_inverse=True)
        weight = float(Fraction(weights[j])) if weights else 1.0
        columns.append(codes)
        attributes.append(
            Attribute(numbers.size, numbers.astype(np.float64), lower[j], upper[j], weight)
        )
    return Microdata(np.column_stack(columns), tuple(attributes))


def random_microdata(
    random: np.random.Generator, n_records: int, kinds: str, n_values: int, weights: str = ""
) -> Microdata:
    """Random records: "n" is a numeric attribute, "0" one with a NULL, "c" a categorical one."""
    attributes = []
    for j, kind in enumerate(kinds):
        weight = float(weights.split()[j]) if weights else 1.0
        numbers = np.arange(n_values, dtype=np.float64) * 1.5 + 2
        if kind == "0":
            numbers[-1] = np.nan
        if kind == "c":
            attributes.append(Attribute(n_values + 1, weight=weight))
        else:
            attributes.append(Attribute(n_values, numbers, 1, 2 + 2 * n_values, weight))
    codes = random.integers(0, n_values, size=(n_records, len(kinds)))
    return Microdata(codes, tuple(attributes))


def loss_of_class(microdata: Microdata, members: Sequence[int], loss: str) -> Fraction:
    """Loss of all records of a class."""
    total = Fraction(0)
    for attribute, column in zip(microdata.attributes, microdata.codes.T, strict=True):
        codes = {int(column[i]) for i in members}
        if attribute.numbers is None:
            c, size = len(codes), attribute.n_values
            of_sets = {"ncp": Fraction(c - 1, max(size - 1, 1)), "binary": Fraction(c, size)}
            share = of_sets[loss] if c > 1 else Fraction(0)
        else:
            numbers = [float(attribute.numbers[code]) for code in codes]
            known = [Fraction(number) for number in numbers if number == number]
            width = Fraction(attribute.upper) - Fraction(attribute.lower)
            share = (max(known) - min(known)) / width if len(set(known)) > 1 else Fraction(0)
            if known and len(known) < len(numbers):
                share = Fraction(1)
        total += share * Fraction(str(attribute.weight))
    return total * len(members)


def total_loss(microdata: Microdata, class_of_record: IntArray, loss: str = "ncp") -> Fraction:
    """Loss of all records."""
    members: dict[int, list[int]] = {}
    for record, number in enumerate(class_of_record.tolist()):
        members.setdefault(number, []).append(record)
    return sum((loss_of_class(microdata, one, loss) for one in members.values()), Fraction(0))


def exhaustive_optimum(microdata: Microdata, k: int, loss: str = "ncp") -> Fraction:
    """Least loss of any classes of at least k records, however large: all partitions count."""
    n = microdata.n_records
    losses: dict[int, Fraction] = {}
    for size in range(k, n + 1):
        for members in combinations(range(n), size):
            losses[sum(1 << i for i in members)] = loss_of_class(microdata, members, loss)
    best: dict[int, Fraction] = {0: Fraction(0)}

    def least(left: int) -> Fraction | None:
        if left not in best:
            lowest = left & -left
            found = [
                losses[one] + rest
                for one in losses
                if one & lowest and one & ~left == 0 and (rest := least(left & ~one)) is not None
            ]
            if not found:
                return None
            best[left] = min(found)
        return best[left]

    optimum = least(2**n - 1)
    assert optimum is not None
    return optimum


def assert_valid(class_of_record: IntArray, n_records: int, k: int) -> None:
    """Check that every record has a class, that numbers leave no gaps, and the sizes."""
    assert class_of_record.shape == (n_records,)
    assert class_of_record.dtype == np.int64
    sizes = np.bincount(class_of_record)
    assert sizes.size == 0 or (sizes.min() >= k and sizes.max() <= 2 * k - 1)
