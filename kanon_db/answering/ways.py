"""The ways in which aggregates are counted, and the one that many queries need only."""

from __future__ import annotations

from typing import Final

from kanon_db.answering.opened import OpenQuery
from kanon_db.counting.answers import Group
from kanon_db.counting.layout import BucketLayout

BY_BITMAPS: Final = "bitmaps of each attribute's values"
BY_CLASSES: Final = "the numbers of published cells"
BY_STATEMENT: Final = "the statement"


def by_bitmaps(opened: OpenQuery) -> list[Group] | None:
    """Answer from the bitmaps of buckets; None if that is not possible."""
    if not isinstance(opened.layout, BucketLayout) or not opened.layout.tables.with_bitmaps:
        return None
    from kanon_db.answering.by_bitmaps import count_with_bitmaps

    return count_with_bitmaps(opened)
