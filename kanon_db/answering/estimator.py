"""Which estimator answers: a choice of whoever asks, ``SET kanon.estimator = 'paper'``."""

from __future__ import annotations

from typing import Final, get_args
from typing import Literal as OneOf

from kanon_db.counting.layout import BucketLayout, CellLayout
from kanon_db.declaration import unknown
from kanon_db.session.protocol import Session, fetch_one

Estimator = OneOf["published", "paper"]
"""By the distribution that the publication itself implies, or as the papers have it: in a bucket
every matching, and in a cell every value, is equally likely."""

NAMES: Final = get_args(Estimator)


def describe_estimator(layout: BucketLayout | CellLayout) -> str:
    """Say how a publication is answered from, where answers are not exact."""
    if isinstance(layout, CellLayout):
        vague = [cell for cell in layout.cells.values() if cell.kind != "value"]
        is_paper = vague and not any(cell.shares for cell in vague)
        own = "as often as all cells together imply"
        return f"values of a cell {'equally often' if is_paper else own}"
    is_corrected = layout.assignment == "random" and layout.tables.spectrum is not None
    if layout.is_paper or not is_corrected:
        return "the paper's estimator: every matching inside a bucket is equally likely"
    return "the paper's estimator, corrected by what random buckets tell of records and values"


def chosen_estimator(session: Session) -> Estimator:
    """Read the caller's setting.

    Raises
    ------
    InvalidParameterError
        When it names none.
    """
    row = fetch_one(session, "SELECT current_setting('kanon.estimator', true) AS value")
    given = row["value"] or NAMES[0]
    if given not in NAMES:
        raise unknown("estimator", given, NAMES)
    found: Estimator = given
    return found
