"""People with several rows: why one of them is kept, by a column that is not sensitive.

Everything is enumerated: all tables that have the same people and the same number of rows with each
value, and all publications that a way to publish could have made of them.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations, permutations

import pytest

from tests.hospital import Hospital, Stay

Values = tuple[str, ...]
Buckets = tuple[int, ...]


def placed(values: Values, buckets: Sequence[Sequence[str]]) -> Iterator[Buckets]:
    """Yield every way to put rows into buckets that are to have these values."""
    left = [Counter(one) for one in buckets]

    def go(at: int, found: Buckets) -> Iterator[Buckets]:
        if at == len(values):
            yield found
            return
        for bucket, counts in enumerate(left):
            if counts[values[at]]:
                counts[values[at]] -= 1
                yield from go(at + 1, (*found, bucket))
                counts[values[at]] += 1

    return go(0, ())


def inferred(
    buckets: Sequence[Sequence[str]], may_be: Callable[[Buckets], bool] = lambda _: True
) -> Iterator[tuple[Buckets, Callable[[Callable[[Values], bool]], Fraction]]]:
    """Yield, for each way to see rows in buckets, the probability of what is true of their values.

    Of the ways that may be, each is drawn as often as the others.
    """
    rows = [value for one in buckets for value in one]
    weights: dict[Buckets, dict[Values, Fraction]] = defaultdict(dict)
    for values in set(permutations(rows)):
        found = [one for one in placed(values, buckets) if may_be(one)]
        for one in found:
            weights[one][values] = Fraction(1, len(found))
    for seen, of in weights.items():
        yield (
            seen,
            lambda holds, of=of: (
                sum(weight for values, weight in of.items() if holds(values)) / sum(of.values())
            ),
        )


def apart(persons: str) -> Callable[[Buckets], bool]:
    """Rows of one person, who has a letter, are in different buckets."""
    pairs = [(i, j) for i, j in combinations(range(len(persons)), 2) if persons[i] == persons[j]]
    return lambda seen: all(seen[i] != seen[j] for i, j in pairs)


@pytest.mark.pitfall(15)
def test_rows_of_one_person_in_different_buckets_exceed_the_sum_of_their_shares() -> None:
    """So thresholds that are divided by the number of rows are no bound."""
    persons, buckets = "AABBC", ["xy", "xyz"]
    worst = max(
        chance(lambda values, row=row: values[row] == "z") for seen, chance in
        inferred(buckets, apart(persons)) for row in range(5) if seen[row] == 1
    )  # fmt: skip
    assert worst == Fraction(2, 5) > Fraction(1, 3)
    persons, buckets = "AABBCC", ["xy", "xz", "yz"]
    excess = Fraction(0)
    for seen, chance in inferred(buckets, apart(persons)):
        for person, value in ((person, value) for person in "ABC" for value in "xyz"):
            rows = [i for i in range(6) if persons[i] == person]
            bound = sum(Fraction(buckets[seen[i]].count(value), 2) for i in rows)
            has = lambda values, rows=rows, value=value: any(values[i] == value for i in rows)
            excess = max(excess, chance(has) - bound)
    assert excess == Fraction(8, 15) - Fraction(1, 2)


@pytest.mark.parametrize(
    ("buckets", "other"), [((("xy", "z", "w"), ("x", "yw", "z")), "w"),
                           ((("x", "xyz"), ("y", "zw", "x")), "z")],
)  # fmt: skip
def test_one_row_with_all_values_keeps_the_share_of_people(
    buckets: Sequence[Sequence[str]], other: str
) -> None:
    """But whoever knows one of somebody's values can be certain of another, where sets are shown.

    In one of the buckets, y comes with the other value only.
    """
    for seen, chance in inferred(buckets):
        for person, bucket in enumerate(seen):
            has = lambda value, person=person: lambda values: value in values[person]
            for value in "xyzw":
                having = sum(value in one for one in buckets[bucket])
                assert chance(has(value)) == Fraction(having, len(buckets[bucket]))
            if any(f"y{other}" in one for one in buckets[bucket]):
                both = lambda values, person=person: {"y", other} <= {*values[person]}
                assert chance(both) == chance(has("y")) > 0


KEPT = [("x", "y"), ("y", "x"), ("x", "x"), ("y", "y")]
"""The values of somebody's first and second row, all as likely; the first was at 40 years."""


def kept_value_at(age: int, keep: Callable[[Values], int], value: str) -> Fraction:
    """How likely a value is for whoever sees the age of the row that is kept, and no value."""
    seen = [values[keep(values)] for values in KEPT if (40, 41)[keep(values)] == age]
    return Fraction(seen.count(value), len(seen))


@pytest.mark.pitfall(15)
def test_a_row_that_is_kept_for_its_value_tells_the_value() -> None:
    """So `keep` refuses to order rows by what is sensitive."""
    for value in "xy":
        assert kept_value_at(41, lambda _: 1, value) == Fraction(1, 2)
    latest_by_value = lambda values: max((0, 1), key=lambda row: (values[row], -row))
    assert kept_value_at(41, latest_by_value, "y") == 1


def test_other_rows_tell_what_goes_with_them() -> None:
    """Whoever knows that a disease is chronic, and what somebody had, knows what they have."""
    chronic = [values for values in KEPT if values[0] == values[1]]
    assert {values[1] for values in chronic if values[0] == "x"} == {"x"}


def test_what_publishing_all_rows_would_cost_in_a_hospital() -> None:
    """The figures of the page on what a publication protects."""
    stays_of: dict[int, list[Stay]] = defaultdict(list)
    stays = [*Hospital().stays.values()]
    for stay in stays:
        stays_of[stay.patient].append(stay)
    # m rows with thresholds of 1/5m: the most frequent value has to fit.
    ((_, most),) = Counter(stay.diagnosis for stay in stays).most_common(1)
    most_rows = len(stays) // (5 * most)
    too_many = [len(of) for of in stays_of.values() if len(of) > most_rows]
    assert (most_rows, len(too_many), round(sum(too_many) / len(stays), 2)) == (3, 909, 0.27)
    several = [of for of in stays_of.values() if len(of) > 1]
    known = [{(one.age, one.sex, one.postcode, one.insurance) for one in of} for of in several]
    assert round(sum(len(of) > 1 for of in known) / len(several), 2) == 0.47

    sets = [frozenset(one.diagnosis for one in of) for of in stays_of.values()]
    assert len({*sets}) == 3501
    draw = random.Random(1)  # noqa: S311
    draw.shuffle(sets)
    certain = [
        {one for one in bucket if known in one} == {own}
        for bucket in (sets[at : at + 10] for at in range(0, len(sets), 10))
        for own in bucket
        if len(own) > 1
        for known in [draw.choice(sorted(own))]
    ]
    assert sum(certain) / len(certain) == pytest.approx(0.83, abs=0.02)
