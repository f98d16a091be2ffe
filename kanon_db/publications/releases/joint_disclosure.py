"""Measures what releases of the same people tell together.

Releases are read as arrays, with the same numbers for the same people and values in all. Rows with
the same cells are classes; people who are in the source now may be in those that they fit.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray, sort_keys
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.generalized_cells import Ranges, Sets
from kanon_db.algorithms.releases.bucket_releases import BucketRelease, coarsening, holds_the_same
from kanon_db.algorithms.releases.release_measures import (
    ReleaseCheck,
    measure_differences,
    measure_releases,
)
from kanon_db.algorithms.releases.row_releases import (
    ClassContents,
    ClassFits,
    MergedClasses,
    are_within,
    boxes_of,
    fits_of,
    merge,
)
from kanon_db.catalog.entries import Source
from kanon_db.catalog.published_types import cell_layout
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError, PermissionDeniedError, SchemaMismatchError
from kanon_db.publications.kind import PublishedBuckets, PublishedClasses
from kanon_db.publications.releases.ledger import (
    EarlierRelease,
    ReleaseFinding,
    not_measured,
)
from kanon_db.publications.rows.published_rows import read_covering
from kanon_db.publications.rows.stored_cells import PublicationReader
from kanon_db.session.protocol import Session
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.columns import (
    column_types,
    describe_types,
    find_relation,
    fix_labels,
    label,
)
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.values import DistinctValues, distinct_values, read_codes, read_integers


@dataclass(frozen=True, eq=False)
class People:
    """Everybody who is in the source now."""

    # The values of each quasi-identifier that a publication of rows has.
    values: dict[str, DistinctValues]
    codes: CodeArray  # shape (n_tuples, n_qi); the distinct combinations of their codes
    number: IntArray  # shape (n_tuples,); how many people have each
    # Shape (n_tuples,); a keyed hash of the quasi-identifiers that all releases show.
    person: IntArray

    @property
    def n_codes(self) -> dict[str, int]:
        """Number of values of each quasi-identifier."""
        return {name: len(values.labels) for name, values in self.values.items()}

    def drop(self) -> None:
        """Remove what was read of the source before the transaction ends."""
        for values in self.values.values():
            values.drop()


@dataclass(frozen=True, eq=False)
class ReleasedClasses:
    """A publication of rows."""

    fits: ClassFits  # the classes that each combination of quasi-identifiers fits
    class_of_row: IntArray  # shape (n_rows,)
    cells: Sequence[Ranges | Sets]  # the distinct cells of each quasi-identifier
    cell_of_class: CodeArray  # shape (n_classes, n_qi)
    # The texts of each other column's values, and the code of each row, if values can be compared.
    others: dict[str, tuple[list[str | None], AnyIntArray]]

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return int(self.cell_of_class.shape[0])


def read_people(
    session: Session,
    source: Source,
    publications: Sequence[PublishedClasses],
    hashed: str,  # SQL for the keyed hash of a row ``s``
    shown: set[str],  # the columns that it reads
) -> People:
    """Read the quasi-identifiers that publications of rows have, of everybody in the source."""
    names = list(dict.fromkeys(name for one in publications for name in one.quasi_identifiers))
    described = describe_types(session, source.relation, names)
    for one in publications:
        types = one.publication.layout.get("types", {})
        if any(types.get(n) != described.get(n, {}) for n in one.quasi_identifiers):
            raise SchemaMismatchError("the source's columns are not those that it has")
    columns = list(dict.fromkeys([*names, *sorted(shown)]))
    snapshot = take_snapshot(session, source.relation, columns, Allowance.of(session))
    _, oid, _ = find_relation(session, source.relation.quoted(session))
    types = column_types(session, oid)
    values = {name: distinct_values(snapshot, types[name]) for name in names}
    codes = read_codes(snapshot, list(values.values()))
    with fix_labels(session):
        person = read_integers(snapshot, hashed, kind="int8")
    snapshot.drop()
    keys = sort_keys([codes[:, a] for a in range(len(names))])
    _, first, number = np.unique(keys, return_index=True, return_counts=True)
    return People(values, codes[first], number.astype(np.int64), person[first].astype(np.int64))


def read_classes(
    session: Session, publication: PublishedClasses, people: People
) -> ReleasedClasses:
    """Read the published rows, and find who fits which of their classes."""
    names = publication.quasi_identifiers
    reader = PublicationReader.of(session, publication.schema, publication.publication)
    layout = cell_layout(session, publication.schema, publication.publication)
    columns = [people.values[name] for name in names]
    cells, cell_of_class, class_of_row = read_covering(reader, layout, columns)
    # Values of some types (json) cannot be compared, so no record is linked by them.
    linked = [n for n in publication.others if not reader.store.columns[n].tells_presence]
    of_rows = reader.store.all_codes(linked)
    others = {name: (reader.labels(name), of_rows[name]) for name in linked}
    place = {name: position for position, name in enumerate(people.values)}
    fits = fits_of(
        people.codes[:, [place[name] for name in names]], cells, cell_of_class,
        [len(column.labels) for column in columns], Pulse(heartbeat=session.heartbeat),
    )  # fmt: skip
    if fits is None:
        raise InfeasibleError("its classes overlap too much")
    return ReleasedClasses(fits, class_of_row, cells, cell_of_class, others)


_PLACED = np.dtype([("person", ">i8"), ("bucket", ">i4")])
_HELD = np.dtype([("bucket", ">i4"), ("count", ">i4")])


@dataclass(frozen=True, eq=False)
class ReleasedRows:
    """A release of rows, and what may be somebody's."""

    read: ReleasedClasses
    contents: ClassContents  # the sensitive values of each class
    merged: MergedClasses


@dataclass(frozen=True, eq=False)
class ReleaseArrays:
    """Releases of the same people."""

    # Releases of rows; two classes are merged where somebody fits both.
    releases: list[BucketRelease]
    n_tuples: int
    # The sensitive values, as texts, in the order of their codes; None is NULL.
    labels: list[str | None]
    rows: list[ReleasedRows | None]  # the rows of each release of rows
    people: People | None  # everybody who is in the source, if there are releases of rows
    linked: IntArray  # shape (n,); the tuples of these people


def read_releases(
    session: Session,
    source: Source,  # it says who may be in classes of rows
    partitions: Sequence[PublishedBuckets | PublishedClasses],
    sensitive: str,  # without such a column, all rows have the same value
) -> ReleaseArrays:
    """Read partitions, with the values of one sensitive attribute."""
    # People are told apart by the quasi-identifiers that all partitions show. Who is who is only
    # known while this runs: each combination is a keyed hash, with a key of its own for each call.
    common = [
        name
        for name in partitions[0].quasi_identifiers
        if all(name in partition.quasi_identifiers for partition in partitions)
    ]
    key = secrets.randbits(62)
    classes = [one for one in partitions if isinstance(one, PublishedClasses)]
    people = None
    if classes:
        people = read_people(session, source, classes, *_hashed_people(session, common, key))
    read = [
        read_classes(session, one, people) if isinstance(one, PublishedClasses) and people else None
        for one in partitions
    ]
    nobody = np.zeros(0, dtype=np.int64)
    with fix_labels(session):
        placed = [
            _read_people(session, one, common, key)
            if isinstance(one, PublishedBuckets)
            else (nobody, nobody)
            for one in partitions
        ]
        held = [
            _read_contents(session, one) if isinstance(one, PublishedBuckets) else {}
            for one in partitions
        ]
    texts = {text for found in held for text in found}
    for rows in read:
        texts.update(_values_of(rows, sensitive)[0] if rows else ())
    labels = sorted(texts, key=lambda x: (x is not None, x))
    codes = {text: code for code, text in enumerate(labels)}
    distinct, numbers = np.unique(
        np.concatenate([*(one for one, _ in placed), nobody if people is None else people.person]),
        return_inverse=True,
    )
    numbers = numbers.astype(np.int64)
    ends = np.cumsum([0, *(one.size for one, _ in placed)])
    linked = numbers[ends[-1] :]
    if people is not None:
        people.drop()
    releases: list[BucketRelease] = []
    merged: list[ReleasedRows | None] = []
    for first, last, (_, buckets), found, rows in zip(
        ends, ends[1:], placed, held, read, strict=False
    ):
        if rows is None or people is None:
            merged.append(None)
            releases.append(_release(numbers[first:last], buckets, found, codes))
            continue
        own, value_of_row = _values_of(rows, sensitive)
        known = np.array([codes[text] for text in own], dtype=np.int64)[value_of_row]
        contents = ClassContents.of(rows.class_of_row, known, rows.n_classes)
        put_together = merge(rows.fits, people.number, linked, contents)
        merged.append(ReleasedRows(rows, contents, put_together))
        releases.append(put_together.release)
    return ReleaseArrays(releases, int(distinct.size), labels, merged, people, linked)


def _values_of(rows: ReleasedClasses, sensitive: str) -> tuple[list[str | None], AnyIntArray]:
    """Return the sensitive values of rows; the same for all, where they show none."""
    nothing: tuple[list[str | None], AnyIntArray] = [None], np.zeros_like(rows.class_of_row)
    return rows.others.get(sensitive, nothing)


def _hashed_people(session: Session, common: Sequence[str], key: int) -> tuple[str, set[str]]:
    columns = ", ".join(f"s.{session.identifier(name)}" for name in common)
    return f"hashtextextended(ROW({columns})::text, {key})", set(common)


def _read_people(
    session: Session, partition: PublishedBuckets, names: Sequence[str], key: int
) -> tuple[IntArray, IntArray]:
    columns = ", ".join(f"p.{partition.quasi_identifiers[name]}" for name in names)
    hashed = f"hashtextextended(ROW({columns})::text, {key})"
    (row,) = session.fetch(
        f"SELECT string_agg(int8send({hashed}) || int4send(p.{partition.bucket}::int4), ''::bytea)"
        f" AS placed FROM {partition.people} AS p"
    )
    found = np.frombuffer(row["placed"] or b"", dtype=_PLACED)
    return found["person"].astype(np.int64), found["bucket"].astype(np.int64)


def _read_contents(
    session: Session, partition: PublishedBuckets
) -> dict[str | None, tuple[IntArray, IntArray]]:
    """Return the buckets that hold each value, and how often."""
    text = label(f"c.{partition.value}")
    found = {}
    for row in session.fetch(
        f"SELECT {text} AS label, string_agg(int4send(c.{partition.bucket}::int4)"
        f" || int4send(c.{partition.count}::int4), ''::bytea) AS held"
        f" FROM {partition.contents} AS c GROUP BY 1"
    ):
        held = np.frombuffer(row["held"], dtype=_HELD)
        found[row["label"]] = held["bucket"].astype(np.int64), held["count"].astype(np.int64)
    return found


def _release(
    people: IntArray,
    buckets: IntArray,
    held: dict[str | None, tuple[IntArray, IntArray]],
    codes: dict[str | None, int],
) -> BucketRelease:
    numbers, dense = np.unique(buckets, return_inverse=True)
    n_buckets = max(int(numbers.size), 1)
    keys, n = np.unique(people * n_buckets + dense, return_counts=True)
    value = np.concatenate([np.full(b.size, codes[text]) for text, (b, _) in held.items()])
    bucket, count = (np.concatenate([one[k] for one in held.values()]) for k in range(2))
    return BucketRelease(
        keys // n_buckets, keys % n_buckets, n,
        np.searchsorted(numbers, bucket), value.astype(np.int64), count,
    )  # fmt: skip


def records_of(
    rows: Sequence[tuple[ReleasedRows, PublishedClasses]],
    linked: Sequence[str],  # the columns that make a record
) -> list[ClassContents]:
    """Count the distinct records that rows show in each class."""
    ends = np.cumsum([0, *(one.read.class_of_row.size for one, _ in rows)])
    columns: list[IntArray] = [np.zeros(int(ends[-1]), dtype=np.int64)]
    for name in linked:
        its = [one.read.others[name] for one, _ in rows]
        codes: dict[str | None, int] = {}
        for own, _ in its:
            for text in own:
                codes.setdefault(text, len(codes))
        columns.append(
            np.concatenate(
                [np.array([codes[t] for t in own], dtype=np.int64)[of_row] for own, of_row in its]
            )
        )
    records = np.unique(sort_keys(columns), return_inverse=True)[1]
    return [
        ClassContents.of(one.read.class_of_row, records[low:high], one.read.n_classes)
        for (one, _), low, high in zip(rows, ends, ends[1:], strict=False)
    ]


Rows = tuple[ReleasedRows, PublishedClasses]


def follows_from(fine: Rows, coarse: Rows, n_codes: Mapping[str, int]) -> bool:
    """Tell whether one release of rows only puts classes of another together."""
    # It is known of everybody in which class they are, in both; each coarse class has the people of
    # some fine classes, and their rows, of which it may show fewer columns; and its cells cover
    # theirs. So whoever has the fine release can make the coarse one, but for the choice of the
    # classes that were put together.
    (one, its), (other, others) = fine, coarse
    if not one.merged.is_exact or not other.merged.is_exact:
        return False
    names = others.quasi_identifiers
    if not set(names) <= set(its.quasi_identifiers):
        return False
    # What cannot be compared may tell more.
    if not set(others.others) <= one.read.others.keys() & other.read.others.keys():
        return False
    first, second = records_of([fine, coarse], sorted(others.others))
    releases = [
        BucketRelease(
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


OF_NO_CLASSES: Final = (
    "freeform rows, rows in several batches, rows of entities that have several, buckets of several"
    " sensitive attributes, and buckets that were drawn anew are not set against others"
)

IF_NOBODY_WAS_REPLACED: Final = ", if nobody was replaced"
"""Rows do not tell a person who left from a newcomer who fits the same class."""

_NO_BOUND: Final = Fraction(10**8 - 1, 10**8)
"""The bound for a value for which nothing is promised: only certainty exceeds it."""

_MOST_CANDIDATES: Final = 50_000_000
"""Values that people may have, all together, in buckets that classes were put together to."""


@dataclass(frozen=True)
class ComparableRelease:
    """A release that can be measured."""

    earlier: EarlierRelease
    partition: PublishedBuckets | PublishedClasses


def measure_together(
    session: Session, source: Source, new: ComparableRelease, others: Sequence[ComparableRelease]
) -> tuple[list[EarlierRelease], list[ReleaseFinding]]:
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
        found = [replace(one, check=f"{one.check}{IF_NOBODY_WAS_REPLACED}") for one in found]
        found += _not_measured_of_rows(read)
    return [compared[at].earlier for at in kept], found


def _measured(
    read: ReleaseArrays,
    alike: Sequence[int],
    compared: Sequence[ComparableRelease],
    bounds: Sequence[Fraction],
    pulse: Pulse,
) -> list[ReleaseFinding]:
    """Measure releases of the same attribute as buckets."""
    releases = [read.releases[at] for at in alike]
    if _n_candidates(releases, read.n_tuples) > _MOST_CANDIDATES:
        checks: Sequence[ReleaseCheck] = measure_differences(releases, read.n_tuples, bounds, pulse)
        contradicted = 0
    else:
        measured = measure_releases(releases, read.n_tuples, bounds, pulse)
        checks, contradicted = measured.checks, measured.contradicted
    rows = [one for at in alike if (one := read.rows[at])]
    others = [
        set(p.others) for at in alike if isinstance(p := compared[at].partition, PublishedClasses)
    ]
    # Readers also see which class somebody fits, and link rows by what else they show.
    more_is_known = not all(one.merged.is_exact for one in rows) or (
        len(others) > 1 and len(set.intersection(*others)) > 1
    )
    found = [
        ReleaseFinding(
            _CHECKS[check.name], "sound" if more_is_known else check.kind, "", check.people,
            check.certain, check.value, check.bound, check.holds,
        )
        for check in checks
    ]  # fmt: skip
    if contradicted:
        found.append(
            ReleaseFinding(_CONTRADICTED, "sound", "", contradicted, 0, None, None, holds=False)
        )
    return found


def _not_measured_of_rows(read: ReleaseArrays) -> list[ReleaseFinding]:
    """Say what of rows is not measured: publishers must not take it for harmless."""
    said = ["how few rows may be somebody's"]
    merged = [one.merged for one in read.rows if one]
    unknown = np.any([one.is_open for one in merged], axis=0)
    if read.people is not None and unknown.any():
        number, people = int(read.people.number[unknown].sum()), int(read.people.number.sum())
        said.append(
            f"{number:,} of {people:,} people, since it is not known who of them was left out, or"
            " came later"
        )
    return [
        ReleaseFinding(
            f"not measured: {what}", "not measured", "", None, None, None, None, holds=False
        )
        for what in said
    ]


def _n_candidates(releases: Sequence[BucketRelease], n_tuples: int) -> int:
    """Count the values that people may have, at the most."""
    least = np.full(n_tuples, np.iinfo(np.int64).max)
    for one in releases:
        sizes = np.bincount(one.bucket, minlength=one.n_buckets)
        own = np.bincount(one.tuple_of, sizes[one.bucket_of], n_tuples).astype(np.int64)
        least = np.where(own > 0, np.minimum(least, own), least)
    return int(least[least < np.iinfo(np.int64).max].sum())


def _tells_nothing_new(
    read: ReleaseArrays,
    one: tuple[int, PublishedBuckets | PublishedClasses],
    other: tuple[int, PublishedBuckets | PublishedClasses],
) -> bool:
    """Tell whether either release follows from the other."""
    n_codes = {} if read.people is None else read.people.n_codes
    for (fine, its), (coarse, others) in ((one, other), (other, one)):
        rows = read.rows[fine], read.rows[coarse]
        if (
            isinstance(its, PublishedClasses)
            and isinstance(others, PublishedClasses)
            and rows[0]
            and rows[1]
        ):
            if follows_from((rows[0], its), (rows[1], others), n_codes):
                return True
        elif set(its.quasi_identifiers) == set(others.quasi_identifiers) and not any(rows):
            releases = read.releases[fine], read.releases[coarse]
            bucket = coarsening(*releases)
            if bucket is not None and holds_the_same(*releases, bucket):
                return True
    return False


def _bounds(
    partition: PublishedBuckets | PublishedClasses,
    labels: Sequence[str | None],
    release: BucketRelease,
) -> list[Fraction]:
    """Return the threshold of each value in a release; 0 for those without, and those of others."""
    bounds = [Fraction(0)] * len(labels)
    if partition.thresholds is None:
        return bounds
    counts = np.bincount(release.value, release.count, len(labels)).astype(np.int64)
    there = np.flatnonzero(counts).tolist()
    thresholds = partition.thresholds([labels[at] for at in there], counts[there])
    for at, threshold in zip(there, thresholds, strict=True):
        is_bound = threshold < 1 or isinstance(partition, PublishedBuckets)
        bounds[at] = threshold if is_bound else Fraction(0)
    return bounds


_CHECKS: Final = {
    "inserted": "differencing: who came",
    "deleted": "differencing: who left",
    "candidates": "intersection",
}
"""The names of the checks, for people."""

_CONTRADICTED: Final = "values or quasi-identifiers changed"
