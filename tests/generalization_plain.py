"""Plain versions of the algorithms of generalization, record by record in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, combinations

import numpy as np

from kanon_db.algorithms.recoding.changing_classes import Constraint
from kanon_db.algorithms.recoding.loss import simplest_fraction
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata

Classes = list[list[int]]


def numeric_table(
    rows: Sequence[Sequence[int]],
    weights: Sequence[float | str] | None = None,
    bounds: Sequence[Sequence[int]] | None = None,
) -> Microdata:
    """Numeric attributes, bounded by the data unless told."""
    columns, attributes = [], []
    for j, column in enumerate(np.array(rows).T):
        numbers, codes = np.unique(column, return_inverse=True)
        low, high = bounds[j] if bounds else (numbers[0], numbers[-1])
        weight = float(Fraction(weights[j])) if weights else 1.0
        columns.append(codes)
        attributes.append(
            Attribute(numbers.size, numbers.astype(np.float64), float(low), float(high), weight)
        )
    return Microdata(np.column_stack(columns).astype(np.int32), tuple(attributes))


def random_table(
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


def ncp(table: Microdata, members: Iterable[int], measure: str = "ncp") -> Fraction:
    """Weighted NCP by [FF] of one record of a class, or its binary loss by [OB]."""
    total = Fraction(0)
    rows = table.codes[list(members)]
    for attribute, column in zip(table.attributes, rows.T.tolist(), strict=True):
        weight = simplest_fraction(attribute.weight)
        if attribute.numbers is None:
            n, of = len(set(column)), attribute.n_values
            if n > 1:
                total += weight * (Fraction(n - 1, of - 1) if measure == "ncp" else Fraction(n, of))
            continue
        numbers = [float(attribute.numbers[code]) for code in column]
        known = [simplest_fraction(number) for number in numbers if number == number]
        if known and len(known) < len(numbers):
            total += weight
        elif known and attribute.upper > attribute.lower:
            span = simplest_fraction(attribute.upper) - simplest_fraction(attribute.lower)
            total += weight * (max(known) - min(known)) / span
    return total


def loss(table: Microdata, classes: Classes, measure: str = "ncp") -> Fraction:
    return sum((len(members) * ncp(table, members, measure) for members in classes), Fraction(0))


def total_loss(table: Microdata, class_of_record: np.ndarray, measure: str = "ncp") -> Fraction:
    """Loss of all records."""
    return loss(table, as_classes(class_of_record), measure)


def optimal_loss(table: Microdata, k: int, measure: str = "ncp") -> Fraction:
    """Least loss of any classes of at least k records, however large: all partitions count."""
    n = table.n_records
    losses: dict[int, Fraction] = {}
    for size in range(k, n + 1):
        for members in combinations(range(n), size):
            losses[sum(1 << i for i in members)] = loss(table, [list(members)], measure)
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


def assert_valid(class_of_record: np.ndarray, n_records: int, k: int) -> None:
    """Check that every record has a class, that numbers leave no gaps, and the sizes."""
    assert class_of_record.shape == (n_records,)
    assert class_of_record.dtype == np.int64
    sizes = np.bincount(class_of_record)
    assert sizes.size == 0 or (sizes.min() >= k and sizes.max() <= 2 * k - 1)


def distance(table: Microdata, a: int, b: int) -> Fraction:
    """Distance of two records by Byun et al., where categories have no taxonomy."""
    total = Fraction(0)
    for j, attribute in enumerate(table.attributes):
        if attribute.numbers is None:
            total += int(table.codes[a, j] != table.codes[b, j])
        else:
            unweighted = replace(attribute, weight=1.0)
            total += ncp(Microdata(table.codes[:, [j]], (unweighted,)), [a, b])
    return total


def grow(table: Microdata, left: list[int], seed: int, k: int) -> list[int]:
    members = [seed]
    left.remove(seed)
    while len(members) < k:
        best = min(left, key=lambda record: ncp(table, [*members, record]))
        members.append(best)
        left.remove(best)
    return members


def place(table: Microdata, classes: Classes, left: list[int], rule: str) -> Classes:
    for record in left:

        def cost(members: list[int], record: int = record) -> Fraction:
            after = (len(members) + 1) * ncp(table, [*members, record])
            before = len(members) * ncp(table, members) if rule == "least_increase" else 0
            return after - before

        min(classes, key=cost).append(record)
    return classes


def greedy_search(
    table: Microdata, order: Iterable[int], k: int, rule: str = "least_increase"
) -> Classes:
    left, classes = [int(record) for record in order], []
    while len(left) >= k:
        classes.append(grow(table, left, left[0], k))
    return place(table, classes, left, rule)


def k_member(table: Microdata, order: Iterable[int], k: int, first: int) -> Classes:
    left, classes, last = [int(record) for record in order], [], first
    while len(left) >= k:
        seed = max(left, key=lambda record: distance(table, last, record))
        classes.append(grow(table, left, seed, k))
        last = classes[-1][-1]
    return place(table, classes, left, "least_increase")


def as_classes(class_of_record: np.ndarray) -> Classes:
    """Members of each class, in order of the records."""
    return [
        np.flatnonzero(class_of_record == number).tolist()
        for number in range(int(class_of_record.max(initial=-1)) + 1)
    ]


def mondrian(table: Microdata, members: list[int], k: int, cut: str) -> Classes:
    """Cut at the median, of the cuts just below and above it the one that halves better."""
    widths = [
        ncp(Microdata(table.codes[:, [j]], (attribute,)), members)
        for j, attribute in enumerate(table.attributes)
    ]
    size = len(members)
    half = (size + 1) // 2
    for j in sorted(range(len(widths)), key=lambda j: -widths[j]):
        if widths[j] == 0 or size < 2 * k:
            break
        values = {record: int(table.codes[record, j]) for record in members}
        ordered = sorted(members, key=lambda record: values[record])
        median = values[ordered[half - 1]]
        at = sum(value <= median for value in values.values())
        below = sum(value < median for value in values.values())
        n_lower = at
        if cut == "relaxed":
            n_lower = half
        elif below >= k and (size - at < k or half - below < at - half):
            n_lower = below
        if n_lower >= k and size - n_lower >= k:
            chosen = set(ordered[:n_lower])
            lower = [record for record in members if record in chosen]
            upper = [record for record in members if record not in chosen]
            return [*mondrian(table, lower, k, cut), *mondrian(table, upper, k, cut)]
    return [members]


def holds_for(constraint: Constraint, members: list[int]) -> bool:
    """Whether a class of these records fulfils the constraint on each attribute."""
    if constraint.entities is None:
        return all(holds(one, one.codes[members].tolist()) for one in constraint.each)
    counted = {"entities": constraint.entities, "least_entities": constraint.least_entities}
    return all(
        holds_for_entities(replace(one, also=(), **counted), members)  # type: ignore[arg-type]
        for one in constraint.each
    )


def holds_for_entities(constraint: Constraint, members: list[int]) -> bool:
    """Whether a class of these records fulfils a constraint on one attribute, by entities."""
    assert constraint.entities is not None
    values_of: dict[int, set[int]] = {}
    for record in members:
        values = values_of.setdefault(int(constraint.entities[record]), set())
        values.add(int(constraint.codes[record]))
    allowed = [
        len(values_of) >= constraint.least_entities,
        len(set().union(*values_of.values())) >= (constraint.l or 0),
    ]
    if constraint.f_prime is not None:
        allowed += [
            sum(value in values for values in values_of.values()) <= threshold * len(values_of)
            for value, threshold in enumerate(constraint.f_prime.thresholds)
        ]
    return all(allowed)


def holds(constraint: Constraint, values: list[int]) -> bool:
    """Whether a class with these sensitive values fulfils a constraint, by its definition."""
    size, whole = len(values), int(constraint.totals.sum())
    counts = [values.count(value) for value in range(constraint.n_values)]
    shares = [Fraction(count, size) for count in counts]
    totals = [Fraction(total, whole) for total in constraint.totals.tolist()]
    allowed = [len(set(values)) >= (constraint.l or 0)]
    if constraint.entropy_l is not None:
        entropy = -sum(float(share) * math.log(share) for share in shares if share)
        allowed.append(entropy >= math.log(constraint.entropy_l) - 1e-9)
    if constraint.t is not None:
        differences = [share - total for share, total in zip(shares, totals, strict=True)]
        if constraint.distance == "ordered":
            distance = sum(map(abs, accumulate(differences)), Fraction(0))
            distance /= max(constraint.n_values - 1, 1)
        else:
            distance = sum(map(abs, differences), Fraction(0)) / 2
        allowed.append(distance <= constraint.t)
    if constraint.f_prime is not None:
        thresholds = constraint.f_prime.thresholds
        allowed += [
            count <= math.floor(threshold * size)
            for count, threshold in zip(counts, thresholds, strict=True)
        ]
    return all(allowed)
