"""Verifying and measuring a suppressed publication, using only its view.

Nothing here is shared with the algorithms: SQL groups the published rows by what they show.
"""

from __future__ import annotations

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.catalog.entries import Publication
from kanon_db.counting.layout import RowView
from kanon_db.publications.results import Check, Examination
from kanon_db.session import Row, Session
from kanon_db.session.settings import grouping_by_hash


def examine_suppressed(
    session: Session,
    view: RowView,
    publication: Publication,
    _sizes: IntArray,
) -> Examination:
    """Check everything that a suppressed publication promises, and measure it.

    Parameters
    ----------
    session : Session
        The session of any role that may read the publication.
    view : RowView
    publication : Publication
        Its entry in the catalog, with what the publisher asked for.

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
    with grouping_by_hash(session):
        profile = _profile(session, view, k)
    allowed = publication.parameters["patterns"]
    strange = [
        row
        for row in profile
        if len(row["pattern"] or "") != n_columns
        or set(row["pattern"]) - {"*", "."}
        or (allowed is not None and row["pattern"] not in allowed)
    ]
    everything = "*" * n_columns
    published = sum(row["records"] for row in profile)
    shown = sum(row["shown"] for row in profile)
    # Before there was a choice, left-over records were published.
    with_left_over = publication.parameters.get("left_over", "publish") == "publish"
    left_over = sum(
        row["records"]
        for row in profile
        if with_left_over and row["pattern"] == everything and row["records"] < k
    )
    kept = [row for row in profile if not with_left_over or row["pattern"] != everything]
    smallest_kept = min((row["smallest"] for row in kept), default=None)
    below = sum(row["below"] for row in kept)
    stars = sum((row["pattern"] or "").count("*") * row["records"] for row in profile)
    classes = sum(row["classes"] for row in profile)
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
            f"{sum(row['records'] for row in strange)} match none",
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
            "smallest_class": min((row["smallest"] for row in profile), default=0),
            "largest_class": max((row["largest"] for row in profile), default=0),
        },
    )


def _profile(session: Session, view: RowView, k: int) -> list[Row]:
    """Describe the rows of each pattern: their classes, and what their suppressed cells show."""
    cells = ", ".join(view.quasi_identifiers)
    # Unlike IS NULL, num_nulls() distinguishes a NULL from a row of NULLs.
    shown = " + ".join(
        f"(substr({view.pattern}, {position}, 1) = '*' AND num_nulls({cell}) = 0)::int4"
        for position, cell in enumerate(view.quasi_identifiers, start=1)
    )
    return session.fetch(
        "SELECT pattern, sum(n)::int8 AS records, count(*) AS classes, min(n) AS smallest,"
        " max(n) AS largest, count(*) FILTER (WHERE n < $1::int8) AS below,"
        " coalesce(sum(n * shown), 0)::int8 AS shown"
        f" FROM (SELECT {view.pattern} AS pattern, count(*) AS n, {shown} AS shown"
        f" FROM {view.view} GROUP BY {view.pattern}, {cells}) AS class GROUP BY pattern",
        str(k),
    )
