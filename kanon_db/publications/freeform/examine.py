"""Verifying and measuring a freeform publication.

Its guarantee rests on the graph of matches, which readers must not have. The view by itself does
not show how likely each record belongs to a person. So the guarantee is checked when publishing;
afterwards, a digest of the rows shows whether the view is still the one that was published.
"""

from __future__ import annotations

from typing import Final

from kanon_db.catalog.entries import Publication
from kanon_db.counting.layout import RowView
from kanon_db.publications.results import Check, Examination
from kanon_db.publications.rows.class_sizes import ClassSizes
from kanon_db.publications.rows.digest import check_digest
from kanon_db.session import Session


def examine_freeform(
    session: Session, view: RowView, publication: Publication, counted: ClassSizes
) -> Examination:
    """Check what can be checked with the view alone, and measure it.

    Parameters
    ----------
    session : Session
        The session of any role that may read the publication.
    view : RowView
    publication : Publication
        Its entry in the catalog, with the digest of the rows when they were published; see
        :func:`digest_rows`.
    counted : ClassSizes

    Returns
    -------
    Examination
        Metrics: ``records``, and ``distinct_rows``, the number of distinct combinations of cells.
    """
    same = check_digest(session, view, publication.layout["digest"], SAME_ROWS)
    return judge(publication, counted, same)


SAME_ROWS: Final = "the rows are those whose matches were checked when they were published"


def judge(publication: Publication, counted: ClassSizes, same: Check) -> Examination:
    """Judge what was counted; see :func:`examine_freeform`.

    Parameters
    ----------
    publication : Publication
    counted : ClassSizes
    same : Check
        Whether the rows are those that were published.
    """
    n_rows = int(counted.sizes.sum())
    return Examination(
        [
            Check(
                "every record is published once",
                f"{publication.records} records",
                f"{n_rows} records",
                holds=n_rows == publication.records,
            ),
            same,
        ],
        {"records": n_rows, "distinct_rows": counted.sizes.size},
    )
