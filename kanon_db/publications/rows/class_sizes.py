"""How many rows have the same cells, by the rows of a view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.counting.layout import RowView
from kanon_db.publications.rows.numbered_rows import NumberedRows
from kanon_db.session import Session
from kanon_db.session.settings import grouping_by_hash


@dataclass(frozen=True, eq=False)
class ClassSizes:
    """The sizes of the classes of a view: of its rows with the same cells, and the same pattern.

    Attributes
    ----------
    sizes : ndarray of int64, shape (n_classes,)
    patterns : sequence of (str or None)
        Distinct ones; one empty text if nothing is suppressed.
    pattern_of_class : ndarray of int64, shape (n_classes,)
    """

    sizes: IntArray
    patterns: Sequence[str | None]
    pattern_of_class: IntArray

    @classmethod
    def of_numbers(cls, rows: NumberedRows, hidden: Sequence[int]) -> Self:
        """Take them from the numbers of all cells.

        Parameters
        ----------
        rows : NumberedRows
            With numbers of all quasi-identifiers.
        hidden : sequence of int
            The number of the suppressed cells of each; -1 if there are none.
        """
        return cls(rows.sizes, *rows.patterns(hidden))

    @classmethod
    def counted(cls, session: Session, view: RowView) -> Self:
        """Count the rows of a view."""
        pattern = "''" if view.pattern is None else view.pattern
        names = ", ".join([*view.quasi_identifiers, *([view.pattern] if view.pattern else [])])
        with grouping_by_hash(session):
            found = session.fetch(
                "SELECT pattern, string_agg(int4send(n::int4), ''::bytea) AS sizes FROM"
                f" (SELECT {pattern} AS pattern, count(*) AS n FROM {view.view} GROUP BY {names})"
                " AS class GROUP BY pattern"
            )
        sizes = [np.frombuffer(row["sizes"], dtype=">i4").astype(np.int64) for row in found]
        return cls(
            np.concatenate([np.empty(0, dtype=np.int64), *sizes]),
            [row["pattern"] for row in found],
            np.repeat(np.arange(len(found)), [each.size for each in sizes]),
        )
