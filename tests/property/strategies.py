"""Generators of small tables, privacy thresholds and bucket settings."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from kanon_db.algorithms.bucketization.buckets import BucketSetting


def counts(max_values: int, max_count: int) -> st.SearchStrategy[list[int]]:
    """Records of each sensitive value, at least one value and one record of each."""
    return st.lists(st.integers(1, max_count), min_size=1, max_size=max_values)


@st.composite
def tables(
    draw: st.DrawFn, max_values: int, max_count: int, *, eligible: bool = False
) -> tuple[list[int], tuple[Fraction, ...]]:
    """Counts with a threshold for each value, most of them close to the value's frequency."""
    table = draw(counts(max_values, max_count))
    n_records = sum(table)
    above = st.fractions(0, 1, max_denominator=20).map(lambda x: x**3)
    thresholds = []
    for count in table:
        frequency = Fraction(count, n_records)
        enough = above.map(lambda x, f=frequency: f + x * (1 - f))  # type: ignore[misc]
        anything = st.fractions(Fraction(1, 40), 1, max_denominator=40)
        thresholds.append(draw(enough if eligible else st.one_of(enough, enough, anything)))
    return table, tuple(thresholds)


@st.composite
def settings_for(draw: st.DrawFn, n_records: int, max_size: int) -> BucketSetting:
    """One or two sizes whose buckets hold exactly the records."""
    size1 = draw(st.integers(1, min(max_size, n_records)))
    count1 = draw(st.integers(0, n_records // size1))
    rest = n_records - size1 * count1
    divisors = [size for size in range(1, max_size + 1) if rest and rest % size == 0]
    if not divisors:
        return BucketSetting.of([1], [n_records]) if rest else BucketSetting.of([size1], [count1])
    size2 = draw(st.sampled_from(divisors))
    if size2 == size1:
        return BucketSetting.of([size1], [n_records // size1])
    return BucketSetting.of([size1, size2], [count1, rest // size2])
