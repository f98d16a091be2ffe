"""Verifying and measuring a suppressed publication, using only its view.

Nothing here is shared with the algorithms: SQL finds out what the published rows show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kanon_db.catalog.entries import Publication
from kanon_db.counting.layout import RowView
from kanon_db.publications.results import Check, Examination
from kanon_db.publications.rows.class_sizes import ClassSizes
from kanon_db.session.protocol import Fetching

_BITS = 62  # of a whole number


def examine_suppressed(
    session: Fetching,
    view: RowView,
    publication: Publication,
    counted: ClassSizes,
) -> Examination:
    """Check everything that a suppressed publication promises, and measure it.

    Parameters
    ----------
    session : Fetching
        Such as the session of any role that may read the publication.
    view : RowView
    publication : Publication
        Its entry in the catalog, with what the publisher asked for.
    counted : ClassSizes

    Returns
    -------
    Examination
        Metrics: ``records`` that are published, ``suppressed_records`` that are left out,
        ``suppressed_cells``, ``suppressed_share`` of all cells, ``left_over_records`` that are
        published all the same, and ``classes`` (output row types, [PG] Section 3.3), with their
        ``average_class_size``, ``smallest_class`` and ``largest_class``. Published left-over
        records count as one class.
    """
    n_columns = len(view.quasi_identifiers)
    k, records = int(publication.parameters["k"]), publication.records
    profile = _profile(session, view, k, counted)
    allowed = publication.parameters["patterns"]
    strange = [
        row
        for row in profile
        if len(row.pattern) != n_columns
        or set(row.pattern) - {"*", "."}
        or (allowed is not None and row.pattern not in allowed)
    ]
    everything = "*" * n_columns
    published = sum(row.records for row in profile)
    shown = sum(row.shown for row in profile)
    # Before there was a choice, left-over records were published.
    with_left_over = publication.parameters.get("left_over", "publish") == "publish"
    left_over = sum(
        row.records
        for row in profile
        if with_left_over and row.pattern == everything and row.records < k
    )
    kept = [row for row in profile if not with_left_over or row.pattern != everything]
    smallest_kept = min((row.smallest for row in kept), default=None)
    below = sum(row.below for row in kept)
    stars = sum(row.pattern.count("*") * row.records for row in profile)
    classes = sum(row.classes for row in profile)
    checks = [
        Check(
            "every record is published once, or left out",
            f"{records} records, {publication.left_out} left out",
            f"{published} published",
            holds=published + publication.left_out == records,
        ),
        Check(
            "every row matches one of the patterns",
            "0 rows match none"
            + (f" of the {len(allowed)} allowed" if allowed is not None else ""),
            f"{sum(row.records for row in strange)} match none",
            holds=not strange,
        ),
        Check(
            "every suppressed cell is NULL", "0 are shown", f"{shown} are shown", holds=shown == 0
        ),
        Check(
            "k-anonymity: every combination of kept cells occurs k times",
            f"k = {k}, 0 combinations below",
            f"{below} below"
            + ("" if smallest_kept is None else f", the rarest occurs {smallest_kept} times"),
            holds=below == 0,
        ),
    ]
    if left_over:
        checks.append(
            Check(
                "left-over records: whoever knows the quasi-identifiers can tell whose they are",
                f"fewer than {k} records",
                f"{left_over} records",
                holds=True,
            )
        )
    return Examination(
        checks,
        {
            "records": published,
            "suppressed_records": publication.left_out,
            "suppressed_cells": stars,
            "suppressed_share": stars / (published * n_columns) if published else 0.0,
            "left_over_records": left_over,
            "classes": classes,
            "average_class_size": published / classes if classes else 0.0,
            "smallest_class": min((row.smallest for row in profile), default=0),
            "largest_class": max((row.largest for row in profile), default=0),
        },
    )


@dataclass(frozen=True)
class _PatternProfile:
    """The rows of a pattern: how many, their classes, and what their suppressed cells show."""

    pattern: str
    records: int
    shown: int
    classes: int
    smallest: int
    largest: int
    below: int


def _profile(
    session: Fetching, view: RowView, k: int, counted: ClassSizes
) -> list[_PatternProfile]:
    """Describe the rows of each pattern."""
    # What rows show is looked at once for all with a pattern and NULL in the same columns. Unlike
    # IS NULL, num_nulls() distinguishes a NULL from a row of NULLs.
    cells = view.quasi_identifiers
    masks = [
        " + ".join(
            f"num_nulls({cell})::int8 * {1 << bit}"
            for bit, cell in enumerate(cells[first : first + _BITS])
        )
        for first in range(0, len(cells), _BITS)
    ]
    shown = " + ".join(
        f"((nulls_{place // _BITS} & {1 << place % _BITS}) = 0"
        f" AND substr(pattern, {place + 1}, 1) = '*')::int4"
        for place in range(len(cells))
    )
    named = ", ".join(f"{mask} AS nulls_{i}" for i, mask in enumerate(masks))
    places = ", ".join(str(2 + i) for i in range(len(masks)))
    rows = session.fetch(
        "SELECT pattern, sum(records)::int8 AS records,"
        f" coalesce(sum(({shown}) * records), 0)::int8 AS shown"
        f" FROM (SELECT {view.pattern} AS pattern, {named}, count(*) AS records"
        f" FROM {view.view} GROUP BY 1, {places}) AS alike GROUP BY pattern"
    )
    sizes_of = {
        pattern: counted.sizes[counted.pattern_of_class == position]
        for position, pattern in enumerate(counted.patterns)
    }
    found = []
    for row in rows:
        sizes = sizes_of.pop(row["pattern"], np.empty(0, dtype=np.int64))
        found.append(
            _PatternProfile(
                row["pattern"] or "", row["records"], row["shown"], sizes.size,
                int(sizes.min(initial=row["records"])), int(sizes.max(initial=0)),
                int((sizes < k).sum()) + (int(sizes.sum()) != row["records"]),
            )
        )  # fmt: skip
    return found
