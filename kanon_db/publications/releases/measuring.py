"""Releases that are still there, set against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.releases.coarser import coarsening, holds_the_same
from kanon_db.algorithms.releases.measure import Check, measure, measure_differences
from kanon_db.algorithms.releases.placements import Release
from kanon_db.catalog.entries import Source
from kanon_db.errors import InfeasibleError, PermissionDeniedError, SchemaMismatchError
from kanon_db.publications.partition import Classes, Partition
from kanon_db.publications.releases.derived import follows
from kanon_db.publications.releases.findings import Finding, not_measured
from kanon_db.publications.releases.ledger import Earlier
from kanon_db.publications.releases.measuring_rows import measure_rows
from kanon_db.publications.releases.reading import ReadReleases, read_releases
from kanon_db.session.protocol import Session

OF_NO_CLASSES: Final = (
    "freeform rows, rows in several batches, rows of entities that have several, and buckets that"
    " were drawn anew are not set against others"
)

IF_NOBODY_WAS_REPLACED: Final = ", if nobody was replaced"
"""Rows do not tell somebody who left from whoever came, and fits the same class."""

_NO_BOUND: Final = Fraction(10**8 - 1, 10**8)
"""Of a value for which nothing is promised: what is certain exceeds it."""

_MOST_CANDIDATES: Final = 50_000_000
"""Values that people may have, all together, in buckets that classes were put together to."""


@dataclass(frozen=True)
class Compared:
    """A release that can be measured."""

    earlier: Earlier
    partition: Partition | Classes


def measure_together(
    session: Session, source: Source, new: Compared, others: Sequence[Compared]
) -> tuple[list[Earlier], list[Finding]]:
    """Return the releases that tell more together with the new one, and how much.

    Findings without releases are about all of them.
    """
    compared = [new, *others]
    sensitive = new.partition.sensitive
    try:
        read = read_releases(
            session, source, [one.partition for one in compared], sensitive or ""
        )  # fmt: skip
    except (InfeasibleError, PermissionDeniedError, SchemaMismatchError) as error:
        against = [one.earlier for one in others]
        return against, not_measured({error.message: against})
    kept = [
        at
        for at, one in enumerate(others, 1)
        if not _tells_nothing_new(read, (0, new.partition), (at, one.partition))
    ]
    if not kept:
        return [], []
    together = [*kept, 0]
    bounds = [Fraction(0)] * len(read.labels)
    for at in together:
        if compared[at].partition.sensitive == sensitive:
            its = _bounds(compared[at].partition, read.labels, read.releases[at])
            bounds = list(map(max, bounds, its))
    bounds = [bound or _NO_BOUND for bound in bounds]
    pulse = Pulse(heartbeat=session.heartbeat)
    found = []
    alike = [at for at in together if compared[at].partition.sensitive == sensitive]
    if sensitive is not None and len(alike) > 1:
        found = _measured(read, alike, compared, bounds, pulse)
    if any(read.rows):
        found += measure_rows(
            read, [(at, compared[at].partition) for at in together], sensitive, bounds, pulse
        )
        found = [
            replace(one, check=f"{one.check}{IF_NOBODY_WAS_REPLACED}")
            if one.result in ("exact", "sound")
            else one
            for one in found
        ]
    return [compared[at].earlier for at in kept], found


def _measured(
    read: ReadReleases,
    alike: Sequence[int],
    compared: Sequence[Compared],
    bounds: Sequence[Fraction],
    pulse: Pulse,
) -> list[Finding]:
    """Measure releases of the same attribute as buckets."""
    releases = [read.releases[at] for at in alike]
    if _n_candidates(releases, read.n_tuples) > _MOST_CANDIDATES:
        checks: Sequence[Check] = measure_differences(releases, read.n_tuples, bounds, pulse)
        contradicted = uncounted = 0
    else:
        measured = measure(releases, read.n_tuples, bounds, pulse)
        checks, contradicted = measured.checks, measured.contradicted
        uncounted = measured.uncounted
    rows = [one for at in alike if (one := read.rows[at])]
    others = [set(p.others) for at in alike if isinstance(p := compared[at].partition, Classes)]
    # Readers also see which class somebody fits, and link rows by what else they show.
    more_is_known = not all(one.merged.is_exact for one in rows) or (
        len(others) > 1 and len(set.intersection(*others)) > 1
    )
    found = [
        Finding(
            _CHECKS[check.name], _result(check, more_is_known), "", check.people, check.certain,
            check.value, check.bound, check.holds,
        )
        for check in checks
    ]  # fmt: skip
    if any(one.merged.is_open.any() for one in rows):
        found += _all_together(read, alike, bounds)
    if uncounted:
        # Publishers must not take what was not measured for harmless.
        check = f"{_UNCOUNTED} how likely the values of {uncounted:,} people are"
        found.append(Finding(check, "not measured", "", None, None, None, None, holds=False))
    if contradicted:
        found.append(Finding(_CONTRADICTED, "sound", "", contradicted, 0, None, None, holds=False))
    return found


def _result(check: Check, more_is_known: bool) -> str:
    if not more_is_known or check.kind != "exact":
        return check.kind
    return "estimate" if check.name == "worlds" else "sound"


def _n_candidates(releases: Sequence[Release], n_tuples: int) -> int:
    """Count the values that people may have, at the most."""
    least = np.full(n_tuples, np.iinfo(np.int64).max)
    for one in releases:
        sizes = np.bincount(one.bucket, minlength=one.n_buckets)
        own = np.bincount(one.tuple_of, sizes[one.bucket_of], n_tuples).astype(np.int64)
        least = np.where(own > 0, np.minimum(least, own), least)
    return int(least[least < np.iinfo(np.int64).max].sum())


def _tells_nothing_new(
    read: ReadReleases,
    one: tuple[int, Partition | Classes],
    other: tuple[int, Partition | Classes],
) -> bool:
    """Whether either release follows from the other."""
    n_codes = {} if read.people is None else read.people.n_codes
    for (fine, its), (coarse, others) in ((one, other), (other, one)):
        rows = read.rows[fine], read.rows[coarse]
        if isinstance(its, Classes) and isinstance(others, Classes) and rows[0] and rows[1]:
            if follows((rows[0], its), (rows[1], others), n_codes):
                return True
        elif set(its.quasi_identifiers) == set(others.quasi_identifiers) and not any(rows):
            releases = read.releases[fine], read.releases[coarse]
            bucket = coarsening(*releases)
            if bucket is not None and holds_the_same(*releases, bucket):
                return True
    return False


def _all_together(
    read: ReadReleases, alike: Sequence[int], bounds: Sequence[Fraction]
) -> list[Finding]:
    """Compare how often each value occurs in the new release, the last one, and in others.

    Where it is not known who came, this is known all the same, unless somebody left, too.
    """
    *others, new = (_totals(read, at) for at in alike)
    found = []
    for check, sign in ((_ALL_CAME, 1), (_ALL_LEFT, -1)):
        for other in others:
            change = sign * (new - other)
            size = int(change.sum())
            if size <= 0 or (change < 0).any():
                continue
            shares = [Fraction(int(n), size) for n in change]
            share, bound = max(zip(shares, bounds, strict=True), key=lambda pair: pair[0] / pair[1])
            found.append(
                Finding(
                    check, "estimate", "", size if share > bound else 0,
                    size if share == 1 > bound else 0,
                    float(share), float(bound), holds=share <= bound,
                )
            )  # fmt: skip
    return found


def _totals(read: ReadReleases, at: int) -> IntArray:
    rows, release = read.rows[at], read.releases[at]
    held = release if rows is None else rows.contents
    return np.bincount(held.value, held.count, len(read.labels)).astype(np.int64)


def _bounds(
    partition: Partition | Classes, labels: Sequence[str | None], release: Release
) -> list[Fraction]:
    """Return the threshold of each value in a release; 0 for those without, and those of others."""
    bounds = [Fraction(0)] * len(labels)
    if partition.thresholds is None:
        return bounds
    counts = np.bincount(release.value, release.count, len(labels)).astype(np.int64)
    there = np.flatnonzero(counts).tolist()
    thresholds = partition.thresholds([labels[at] for at in there], counts[there])
    for at, threshold in zip(there, thresholds, strict=True):
        is_bound = threshold < 1 or isinstance(partition, Partition)
        bounds[at] = threshold if is_bound else Fraction(0)
    return bounds


_CHECKS: Final = {
    "inserted": "differencing: who came",
    "deleted": "differencing: who left",
    "candidates": "intersection",
    "forced": "forced values",
    "worlds": "all worlds counted",
}
"""The names of the checks, for people."""

_ALL_CAME: Final = "differencing: all who came, unless somebody left"
_ALL_LEFT: Final = "differencing: all who left, unless somebody came"
_UNCOUNTED: Final = "too many possible worlds to say"
_CONTRADICTED: Final = "values or quasi-identifiers changed"
