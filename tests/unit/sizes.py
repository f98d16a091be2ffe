"""The sizes of buckets that are listed one by one."""

from __future__ import annotations

from collections.abc import Sequence, Sized

import numpy as np

from kanon_db.publications.codes import Sizes


def sizes_of(buckets: Sequence[Sized]) -> Sizes:
    """The sizes of some buckets, as those of a block are."""
    distinct, which = np.unique([len(bucket) for bucket in buckets], return_inverse=True)
    return Sizes(distinct) if distinct.size == 1 else Sizes(distinct, which)
