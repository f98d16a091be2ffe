"""Generators of small tables, privacy thresholds and bucket settings."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st


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
