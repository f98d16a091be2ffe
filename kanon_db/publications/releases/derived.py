"""Whether a release of rows follows from another one, so that readers of both learn nothing new."""

from __future__ import annotations

from collections.abc import Mapping

from kanon_db.algorithms.releases.coarser import coarsening, holds_the_same
from kanon_db.algorithms.releases.containing import are_within
from kanon_db.algorithms.releases.fitting import boxes_of
from kanon_db.algorithms.releases.placements import Release
from kanon_db.publications.partition import Classes
from kanon_db.publications.releases.measuring_rows import records_of
from kanon_db.publications.releases.reading import ReadRows

Rows = tuple[ReadRows, Classes]


def follows(fine: Rows, coarse: Rows, n_codes: Mapping[str, int]) -> bool:
    """Tell whether one release of rows only puts classes of another together.

    It is known of everybody in which class they are, in both; each coarse class has the people of
    some fine classes, and their rows, of which it may show fewer columns; and its cells cover
    theirs. So whoever has the fine release can make the coarse one, but for the choice of the
    classes that were put together.

    Parameters
    ----------
    fine, coarse : tuple of ReadRows and Classes
    n_codes : mapping of str to int
        How many values each quasi-identifier has.
    """
    (one, its), (other, others) = fine, coarse
    if not one.merged.is_exact or not other.merged.is_exact:
        return False
    names = others.quasi_identifiers
    if not set(names) <= set(its.quasi_identifiers) or not set(others.others) <= set(its.others):
        return False
    (first, second), _ = records_of([fine, coarse], sorted(others.others), None, ())
    releases = [
        Release(
            rows.merged.release.tuple_of, rows.merged.release.bucket_of, rows.merged.release.people,
            contents.class_of, contents.value, contents.count,
        )
        for rows, contents in ((one, first), (other, second))
    ]  # fmt: skip
    bucket = coarsening(releases[0], releases[1])
    if bucket is None or not holds_the_same(releases[0], releases[1], bucket):
        return False
    sizes = [n_codes[name] for name in names]
    place = {name: at for at, name in enumerate(its.quasi_identifiers)}
    at = [place[name] for name in names]
    inner = boxes_of([one.read.cells[a] for a in at], one.read.cell_of_class[:, at], sizes)
    outer = boxes_of(other.read.cells, other.read.cell_of_class, sizes)
    return are_within(inner, outer, bucket)
