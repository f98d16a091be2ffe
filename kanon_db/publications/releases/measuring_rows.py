"""Which rows may be somebody's, if releases of rows are set against others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.algorithms.releases.fitting import Fits
from kanon_db.algorithms.releases.merging import Contents
from kanon_db.algorithms.releases.placements import Release
from kanon_db.algorithms.releases.possible import Possible, Shown, possible
from kanon_db.publications.partition import Classes, Partition
from kanon_db.publications.releases.findings import ROWS, VALUES, Finding
from kanon_db.publications.releases.reading import ReadReleases, ReadRows

_ROUNDING: Final = 1e-9
_UNLESS: Final = ", unless they were left out or came later"

Releases = Sequence[tuple[int, Partition | Classes]]


def measure_rows(
    read: ReadReleases,
    together: Releases,
    sensitive: str | None,
    bounds: Sequence[Fraction],
    pulse: Pulse,
) -> list[Finding]:
    """Count the rows, and the sensitive values, that may be somebody's in all releases.

    Parameters
    ----------
    read : ReadReleases
    together : sequence of int and Partition or Classes
        The releases, with their positions in what was read.
    sensitive : str or None
    bounds : sequence of Fraction
        Of the sensitive values.
    pulse : Pulse
    """
    assert read.people is not None  # noqa: S101  # there are rows
    people = read.people.number
    rows = [
        (one, partition)
        for at, partition in together
        if isinstance(partition, Classes) and (one := read.rows[at])
    ]
    linked = sorted(set.intersection(*(set(partition.others) for _, partition in rows)))
    with_values = sensitive in linked
    records, sensitive_of = records_of(
        rows, linked, sensitive if with_values else None, read.labels
    )
    shown = [
        Shown(one.merged.fits, contents, one.merged.is_known, partition.k)
        for (one, partition), contents in zip(rows, records, strict=True)
    ]
    limits = np.array(list(map(float, bounds)) if with_values else [1.0])
    if with_values:
        shown += [
            _of_buckets(read, read.releases[at])
            for at, partition in together
            if isinstance(partition, Partition)
        ]
    least = min((p.least for _, p in rows if p.least > 1), default=1)
    found = possible(shown, sensitive_of, limits, pulse)
    unknown = np.any([one.merged.is_open for one, _ in rows], axis=0)
    is_whole = not unknown.any() and not found.n_beyond
    findings = _found(found, people, with_values, least, "exact" if is_whole else "sound", "")
    if unknown.any():
        number = int(people[unknown].sum())
        findings.append(
            Finding(
                f"not measured: {number:,} of {int(people.sum()):,} people, since it is not known"
                " who of them was left out, or came later",
                "not measured", "", None, None, None, None, holds=False,
            )
        )  # fmt: skip
        supposed = [
            one if one.k is None else replace(one, is_bound=np.diff(one.fits.first) > 0)
            for one in shown
        ]
        found = possible(supposed, sensitive_of, limits, pulse)
        findings += _found(found, people, with_values, least, "estimate", _UNLESS)
    return findings


def _found(
    found: Possible, people: IntArray, with_values: bool, least: int, result: str, unless: str
) -> list[Finding]:
    looked_at = found.is_seen & ~found.is_contradicted
    by_rows = looked_at & (found.k > 0)
    ratio = np.where(by_rows, found.rows / np.maximum(found.k, 1), np.inf)
    findings = [
        _finding(
            f"{ROWS}{unless}", result, people,
            by_rows & (found.rows < found.k), by_rows & (found.rows == 1), ratio,
            1 / np.maximum(found.rows, 1), 1 / np.maximum(found.k, 1),
        )
    ]  # fmt: skip
    if with_values:
        number = np.maximum(found.values, 1)
        exceeds = looked_at & ((found.limit < 1 - _ROUNDING) | (found.values < least))
        ratio = np.where(looked_at, np.minimum(found.limit, found.values / least), np.inf)
        findings.append(
            _finding(
                f"{VALUES}{unless}", result, people, exceeds,
                exceeds & (found.values == 1), ratio, 1 / number,
                np.minimum(found.limit / number, 1 / least) if least > 1 else found.limit / number,
            )
        )  # fmt: skip
    return findings


def _finding(
    check: str,
    result: str,
    people: IntArray,
    exceeds: BoolArray,
    certain: BoolArray,
    ratio: np.ndarray,
    share: np.ndarray,
    bound: np.ndarray,
) -> Finding:
    worst = int(ratio.argmin())
    seen = bool(np.isfinite(ratio[worst]))
    return Finding(
        check, result, "", int(people[exceeds].sum()), int(people[certain].sum()),
        float(share[worst]) if seen else 0.0, float(bound[worst]) if seen else 1.0,
        holds=not exceeds.any(),
    )  # fmt: skip


def records_of(
    rows: Sequence[tuple[ReadRows, Classes]],
    linked: Sequence[str],
    sensitive: str | None,
    labels: Sequence[str | None],
) -> tuple[list[Contents], IntArray]:
    """Find the distinct records that rows show, and the sensitive value of each.

    Parameters
    ----------
    rows : sequence of ReadRows and Classes
    linked : sequence of str
        The columns that make a record.
    sensitive : str or None
        One of them.
    labels : sequence of str or None
        The texts of its values, in the order of their codes.

    Returns
    -------
    list of Contents
        The records in each class.
    ndarray of int64, shape (n_records,)
        Their sensitive values; 0 without such a column.
    """
    ends = np.cumsum([0, *(one.read.class_of_row.size for one, _ in rows)])
    columns: list[IntArray] = [np.zeros(int(ends[-1]), dtype=np.int64)]
    values = columns[0]
    for name in linked:
        its = [one.read.others[name] for one, _ in rows]
        texts = labels if name == sensitive else dict.fromkeys(t for own, _ in its for t in own)
        codes = {text: code for code, text in enumerate(texts)}
        columns.append(
            np.concatenate(
                [np.array([codes[t] for t in own], dtype=np.int64)[of_row] for own, of_row in its]
            )
        )
        if name == sensitive:
            values = columns[-1]
    _, first, records = np.unique(sort_keys(columns), return_index=True, return_inverse=True)
    contents = [
        Contents.of(one.read.class_of_row, records[low:high], one.read.n_classes)
        for (one, _), low, high in zip(rows, ends, ends[1:], strict=False)
    ]
    return contents, values[first].astype(np.int64)


def _of_buckets(read: ReadReleases, release: Release) -> Shown:
    """Return which buckets the people of each combination of quasi-identifiers are in."""
    assert read.people is not None  # noqa: S101  # there are rows
    linked = read.linked
    order = np.argsort(release.tuple_of, kind="stable")
    starts = np.searchsorted(release.tuple_of[order], np.arange(read.n_tuples + 1))
    numbers = np.diff(starts)[linked]
    first = np.append(0, np.cumsum(numbers)).astype(np.int64)
    places = np.repeat(starts[:-1][linked] - first[:-1], numbers) + np.arange(first[-1])
    fits = Fits(first, release.bucket_of[order][places].astype(np.int64))
    by_bucket = np.lexsort((release.value, release.bucket))
    contents = Contents(
        release.bucket[by_bucket].astype(np.int64),
        release.value[by_bucket].astype(np.int64),
        release.count[by_bucket].astype(np.int64),
        release.n_buckets,
    )
    # Of several people, all must be there.
    now = np.bincount(linked, read.people.number, read.n_tuples)
    return Shown(fits, contents, (release.numbers(read.n_tuples) >= now)[linked], None)
