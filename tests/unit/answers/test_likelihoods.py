"""How far counts of rows may be off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kanon_db.answers.likelihoods import (
    DEPENDENT,
    HIDDEN_DEPENDENT,
    MISLED,
    TOGETHER,
    error_of_sum,
    least_unknown,
)
from kanon_db.answers.rows.coded_rows import CountedRows
from kanon_db.answers.rows.type_totals import Totals
from kanon_db.publications.rows.cell_columns import Cells, ValueColumn, doubt_hidden
from kanon_db.query.expressions import INTEGER, Column
from kanon_db.query.layout import LEAST_DOUBT, RARITY, CellDescription, CellLayout, RowView
from kanon_db.transfer.tries import FALSE, TRUE, ColumnValues


def test_parts_of_an_error_add_up_as_squares() -> None:
    error = error_of_sum(9.0, 4 / TOGETHER, 12 / MISLED, 500.0)
    assert error == pytest.approx(13)
    assert error_of_sum(9.0, 4 / TOGETHER, 12 / MISLED, 6.0) == 6


def test_nothing_is_known_where_only_the_bounds_differ() -> None:
    assert error_of_sum(0.0, 0.0, 3.0, 10.0) == 10
    assert error_of_sum(0.0, 0.0, 0.0, 0.0) == 0


def test_what_sums_of_shares_are_rounded_by_is_no_error() -> None:
    """It is not known better for it where only the bounds differ."""
    unit = SimpleNamespace(condition=Column("a", '"a"', INTEGER))
    pieces: Any = SimpleNamespace(
        marked=[], keys=[], summed=None, unit=unit, least_unknown=0.0, blocks=[]
    )
    types: Any = SimpleNamespace(pieces=pieces, read=None)
    totals = Totals(types, 0, 1 << 20, is_average=False)
    totals.grow(1)
    two, flags = np.zeros(2, dtype=np.int64), np.array([True, False])
    m = np.array([1.0, 1 - 2**-53])
    totals.add(CountedRows(two, two, np.full(2, 8.0), m * 0, m, [], flags, flags | True, None))
    found = totals.answers()[0]
    assert (found.lower_bound, found.upper_bound, found.std_error) == (8, 16, 4)


def test_the_rarer_values_are_kept_the_less_is_known_of_suppressed_ones() -> None:
    hidden = np.array([False, False, False, True])
    often = doubt_hidden(hidden, np.array([5.0, 50.0, 500.0, 40.0]), 5)
    assert often.tolist() == pytest.approx([0, 0, 0, LEAST_DOUBT + (1 + 0.1 + 0.01) / 3])
    assert doubt_hidden(hidden, np.array([5.0, 6.0, 7.0, 900.0]), 10).tolist() == [0, 0, 0, 1]
    assert doubt_hidden(np.array([True]), np.array([9.0]), 2).tolist() == [1]


def test_suppressed_cells_may_have_all_values_alike() -> None:
    hidden, n = np.array([False, False, False, True]), np.array([2.0, 90.0, 7.0, 40.0])
    none = np.zeros(4, dtype=np.bool_)
    cells = Cells(n, doubt_hidden(hidden, n, 2), hidden, none, none)
    column = ValueColumn("age", cells, ColumnValues(lambda _: "", 4), RARITY)
    truths = column.truths(np.array([TRUE, TRUE, FALSE, FALSE]))
    kept = n[:3] ** RARITY / (n[:3] ** RARITY).sum()
    assert truths.true.tolist() == pytest.approx([1, 1, 0, kept[:2].sum()])
    assert truths.evenly.tolist() == pytest.approx([1, 1, 0, 2 / 3])
    assert truths.evenly_false.tolist() == pytest.approx([0, 0, 1, 1 / 3])
    listed = column.listed(1)
    assert listed.w[listed.cell == 3] == pytest.approx(kept)
    assert listed.evenly[listed.cell == 3] == pytest.approx(np.full(3, 1 / 3))


def test_a_dependence_of_suppressed_cells_on_published_values_is_allowed_for() -> None:
    names = ("range", "starred", "published")
    range_, starred, published = (Column(name, f'"{name}"', INTEGER) for name in names)
    cells = {
        "range": CellDescription(range_, "range"),
        "starred": CellDescription(starred, "value", mark=1),
        "published": CellDescription(published, "value"),
    }
    layout = CellLayout(RowView("", "", "", (), None, ()), cells)
    assert least_unknown({"range", "published"}, layout) == DEPENDENT
    assert least_unknown({"starred", "published"}, layout) == HIDDEN_DEPENDENT > DEPENDENT
    assert least_unknown({"starred"}, layout) == 0
