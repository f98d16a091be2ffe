"""Verifying and measuring a bucketization, using only its published relations.

Nothing here is shared with the algorithms: buckets are counted row by row, SQL compares frequencies
with thresholds by cross-multiplying exact numbers, and totals come from the published table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kanon_db.algorithms.bucketization.specification import PrivacySpecification
from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.publications.buckets.bitmaps import count_bitmap_differences
from kanon_db.publications.buckets.findings import Counted, Findings
from kanon_db.publications.buckets.regression import check_composition
from kanon_db.publications.buckets.tables import BucketTables
from kanon_db.publications.exposure import measure_exposure
from kanon_db.publications.relations import check_relations
from kanon_db.publications.results import Check, Examination
from kanon_db.session import Session
from kanon_db.session.protocol import Row
from kanon_db.session.settings import shared
from kanon_db.transfer.labels import fixed_labels, label


def examine_buckets(
    session: Session,
    tables: BucketTables,
    parameters: Mapping[str, Any],
    *,
    records: int,
    all_bitmaps: bool = True,
) -> Examination:
    """Check everything that a bucketization promises, and measure it.

    Parameters
    ----------
    session : Session
        The session of any role that may read the publication.
    tables : BucketTables
    parameters : mapping
        What the publisher asked for, as in the catalog.
    records : int
        Number of records that the source had.
    all_bitmaps : bool
        Whether to compare the bitmaps with QIT and SAT in all buckets or in a random sample.

    Returns
    -------
    Examination
        Metrics: ``records``, ``sensitive_values``, ``buckets``, ``buckets_of_size_<S>`` for each
        size S, ``loss`` ([GB] Eq. 2), ``msbs`` ([GB] Eq. 1), ``largest_frequency`` of a value in
        a bucket and ``largest_frequency_ratio``, the largest quotient of such a frequency and
        its value's threshold f' (at most 1). If the relations are not those that were published,
        there are no metrics and no further checks.
    """
    view, *others = tables.relations
    relations = check_relations(
        session, "QIT and SAT are tables, and the view reads nothing else", view, others
    )
    if not relations.holds:
        return Examination([relations], {})
    session.step("checking the sizes of buckets")
    qit = _count_qit(session, tables)
    sat, profile = _count_sat(session, tables)
    privacy = PrivacySpecification.parse(json.dumps(parameters["privacy"]))
    session.step("checking the values of buckets")
    exposure = measure_exposure(
        session,
        privacy,
        "SELECT number, value, count, size, buckets FROM unnest($5::text[]::int4[], $6::text[],"
        " $7::text[]::numeric[], $8::text[]::numeric[], $9::text[]::int8[])"
        " AS p (number, value, count, size, buckets)",
        *profile.columns,
        l=str(parameters.get("l", 1)),
        by="number",
    )
    session.step("checking the bitmaps")
    differing = count_bitmap_differences(session, tables, whole=all_bitmaps)
    further = []
    if tables.with_bitmaps:
        further.append(
            Check(
                f"bitmaps repeat QIT and SAT ({'all' if all_bitmaps else 'sampled'} buckets)",
                "0 values of a bucket differ",
                f"{differing} differ",
                holds=differing == 0,
            )
        )
    if tables.spectrum is not None:
        further.append(check_composition(session, tables))
    found = Findings(qit.counted, sat.counted, sat.repeated, profile.certain, exposure)
    return found.judged(tables.n_buckets, parameters, records, relations, further)


_PAIR = np.dtype([("bucket", ">i4"), ("count", ">i4")])
_ROWS_PER_BLOCK = 2**20  # keeps copies small, compared with the table itself


class _Buckets:
    """The buckets of one table, counted from its rows."""

    def __init__(self, tables: BucketTables) -> None:
        self._sizes = np.zeros(tables.n_buckets + 1, dtype=np.int64)
        self._expected = np.repeat([0, *tables.sizes], [1, *tables.buckets_of_sizes])
        self.unreadable = 0
        self.repeated = 0

    def add(self, n_rows: int, bucket_ids: AnyIntArray, counts: AnyIntArray | None = None) -> None:
        """Count rows, of one record or of `counts` records each; find rows without bucket or count.

        If there are counts, no two of the rows may have the same bucket.
        """
        seen = np.zeros(self._sizes.size, dtype=np.int32)
        at_once = max(
            _ROWS_PER_BLOCK, self._sizes.size
        )  # each block takes a number for each bucket
        for start in range(0, bucket_ids.size, at_once):
            block = slice(start, start + at_once)
            ids = bucket_ids[block].astype(np.int64)
            known = (ids >= 1) & (ids < self._sizes.size)
            if counts is not None:
                known &= counts[block] >= 1
            n_rows -= int(known.sum())
            rows = np.bincount(ids[known], minlength=self._sizes.size)
            if counts is None:
                self._sizes += rows
            else:
                seen += rows.astype(np.int32)
                np.add.at(self._sizes, ids[known], counts[block][known].astype(np.int64))
        self.unreadable += n_rows
        self.repeated += int((seen > 1).sum())

    @property
    def counted(self) -> Counted:
        """What was counted."""
        sizes, counts = np.unique(self._sizes[1:], return_counts=True)
        return Counted(
            records=int(self._sizes.sum()),
            differing=int((self._sizes != self._expected).sum()),
            unreadable=self.unreadable,
            of_sizes={int(size): int(n) for size, n in zip(sizes, counts, strict=True) if size},
        )


class _Profile:
    """In how many buckets of each size a value occurs how often."""

    def __init__(self, tables: BucketTables) -> None:
        self.columns: tuple[list[str | None], ...] = ([], [], [], [], [])
        """Number of the value, its text, how often, size of the bucket, and how many buckets."""
        self.certain = 0
        """People whose bucket has no other value than theirs."""
        self._firsts = np.array(tables.first_bucket_ids)
        self._sizes = np.array([0, *tables.sizes])

    def add(
        self, number: str, label: str | None, bucket_ids: AnyIntArray, counts: AnyIntArray
    ) -> None:
        """Add rows of a value, which has this number."""
        found: Counter[tuple[int, int]] = Counter()
        for start in range(0, bucket_ids.size, _ROWS_PER_BLOCK):
            block = slice(start, start + _ROWS_PER_BLOCK)
            classes = np.searchsorted(self._firsts, bucket_ids[block], side="right")
            keys = counts[block].astype(np.int64) * self._sizes.size + classes
            for key, n in zip(*np.unique(keys, return_counts=True), strict=True):
                count, size_class = divmod(int(key), self._sizes.size)
                found[count, int(self._sizes[size_class])] += int(n)
        for (count, size), n in found.items():
            # A bucket below all numbers has no size.
            row = (number, label, str(count), str(size) if size else None, str(n))
            for column, value in zip(self.columns, row, strict=True):
                column.append(value)
            if count == size:
                self.certain += count * n


_MOST_SHARED = 2**22
"""Records of which all numbers are fetched at once."""

_MOST_AT_ONCE = 2**26
"""Rows whose numbers the server puts into one value, which may have a gigabyte."""


def _grouped_by(tables: BucketTables, *columns: str) -> str:
    """Group rows also by parts of the buckets, each of them in one, if there are many rows."""
    n_parts = -(-tables.n_records // _MOST_AT_ONCE)
    if n_parts > 1:
        columns += (f"s.bucket / {1 + tables.n_buckets // n_parts}",)
    return f" GROUP BY {', '.join(columns)}" if columns else ""


def _read(session: Session, tables: BucketTables, statement: str) -> Iterator[Row]:
    """Give the rows of a statement: at once, as a parallel plan needs it, or of many one by one."""
    if tables.n_records > _MOST_SHARED:
        yield from session.stream(1, statement)
        return
    with shared(session):
        rows = session.fetch(statement)
    yield from rows


def _count_qit(session: Session, tables: BucketTables) -> _Buckets:
    found = _Buckets(tables)
    bucket_id = tables.bucket_id
    for row in _read(
        session,
        tables,
        "SELECT count(*) AS n, string_agg(s.sent, ''::bytea) AS buckets"
        f" FROM (SELECT {bucket_id} AS bucket, int4send({bucket_id}) AS sent FROM {tables.qit}"
        f" OFFSET 0) AS s{_grouped_by(tables)}",
    ):
        found.add(row["n"], np.frombuffer(row["buckets"] or b"", dtype=">i4"))
    return found


def _count_sat(session: Session, tables: BucketTables) -> tuple[_Buckets, _Profile]:
    found, profile = _Buckets(tables), _Profile(tables)
    bucket_id = tables.bucket_id
    with fixed_labels(session):
        for row in _read(
            session,
            tables,
            # A prepared statement fails where the collation of its result has changed since.
            f'SELECT dense_rank() OVER (ORDER BY value) AS number, {label("value")} COLLATE "C"'
            " AS label,"
            " n, pairs FROM (SELECT s.value, count(*) AS n, string_agg(s.sent, ''::bytea) AS pairs"
            f" FROM (SELECT {bucket_id} AS bucket, {tables.sensitive} AS value,"
            f" int4send({bucket_id}) || int4send({tables.count}) AS sent FROM {tables.sat}"
            f" OFFSET 0) AS s{_grouped_by(tables, 's.value')}) AS s",
        ):
            pairs = np.frombuffer(row["pairs"] or b"", dtype=_PAIR)
            bucket_ids, counts = pairs["bucket"].astype(np.int32), pairs["count"].astype(np.int32)
            found.add(row["n"], bucket_ids, counts)
            profile.add(str(row["number"]), row["label"], bucket_ids, counts)
    return found, profile
