"""Generators of small tables to be generalized."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from kanon_db.algorithms.recoding.microdata import Attribute, Microdata


@st.composite
def attributes(draw: st.DrawFn) -> Attribute:
    n_values = draw(st.integers(1, 5))
    weight = draw(st.sampled_from([1.0, 0.5, 2.0, 0.3]))
    if draw(st.booleans()):
        return Attribute(n_values, weight=weight)
    numbers = sorted(draw(st.sets(st.integers(0, 20), min_size=n_values, max_size=n_values)))
    lower, upper = numbers[0], numbers[-1] + draw(st.integers(0, 3))
    column = np.array(numbers, dtype=np.float64)
    if n_values > 1 and draw(st.booleans()):
        column[-1] = np.nan
    return Attribute(n_values, column, float(lower), float(upper), weight)


@st.composite
def tables(
    draw: st.DrawFn, max_records: int = 24, max_k: int = 5, *, least_records: int = 1
) -> tuple[Microdata, int]:
    """Records with NULLs, ties and duplicates among them, and a k that they are enough for."""
    domains = draw(st.lists(attributes(), min_size=1, max_size=4))
    n_records = draw(st.integers(least_records, max_records))
    codes = [
        draw(st.lists(st.integers(0, d.n_values - 1), min_size=n_records, max_size=n_records))
        for d in domains
    ]
    table = Microdata(np.array(codes, dtype=np.int32).T, tuple(domains))
    return table, draw(st.integers(1, min(n_records, max_k)))
