"""Attacks on buckets: QIT and SAT as the attacker reads them, and the source, which scores."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from kanon_db.algorithms.attacks import (
    ALL_ORDERS_OF,
    Achieved,
    Beliefs,
    BucketValues,
    Guesses,
    Truth,
    achieved,
    candidates_of,
    learned_weights,
    name_rarest,
    sweep_orders,
    unusual_records,
    weights_of_source,
)
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.catalog.entries import Publication
from kanon_db.counting.layout import SUFFIXES
from kanon_db.publications.attacks import Listener
from kanon_db.publications.buckets.thresholds import published_thresholds
from kanon_db.publications.kind import Target
from kanon_db.publications.results import Attack
from kanon_db.transfer.columns import Relation
from kanon_db.transfer.snapshot import Snapshot, take_snapshot
from kanon_db.transfer.values import (
    distinct_values,
    read_codes,
    read_integers,
    read_known_codes,
)

MOST_CANDIDATES: Final = 1_000_000
"""Pairs of a record and a value of its bucket from which a learner learns at once."""


@dataclass(frozen=True, eq=False)
class Published:
    """What the attacker knows.

    Attributes
    ----------
    codes : ndarray of int32, shape (n_records, n_qi)
        Of the QIT, by the order of each column's values, NULL last.
    buckets : ndarray of int64, shape (n_records,)
        From 0.
    values : BucketValues
    bounds : ndarray of float64, shape (n_values,)
        The threshold of each sensitive value.
    """

    codes: CodeArray
    buckets: IntArray
    values: BucketValues
    bounds: FloatArray


@dataclass(frozen=True, eq=False)
class SourceKnown:
    """What only the source tells; `tuples` number the quasi-identifiers of the QIT's records."""

    codes: CodeArray
    values: IntArray
    tuples: IntArray
    truth: Truth

    @classmethod
    def of(cls, published: Published, codes: CodeArray, values: IntArray) -> Self:
        """Set the source's records against the QIT.

        Parameters
        ----------
        published : Published
        codes : ndarray of int32, shape (n_source, n_qi)
            By the published values; -1 for others.
        values : ndarray of int64, shape (n_source,)
            The code of the sensitive value, likewise.
        """
        is_published = (codes >= 0).all(axis=1)
        codes, values = codes[is_published], values[is_published]
        tuples, n_tuples = _tuples(np.concatenate([published.codes, codes]))
        n_published = len(published.codes)
        truth = Truth.of(tuples[n_published:], values, n_tuples, published.bounds.size)
        return cls(codes, values, tuples[:n_published], truth)


def attack_buckets(target: Target) -> list[Attack]:
    """Play all attacks on a bucketization.

    Returns
    -------
    list of Attack
        See ``docs/attacks.md``. The learners play against a random sample of the buckets if all
        of them would be too many.
    """
    return play_attacks(target.session, target.pulse(), *_read(target))


def play_attacks(
    listener: Listener, pulse: Pulse, published: Published, source: SourceKnown
) -> list[Attack]:
    """Play all attacks with what was read; see :func:`attack_buckets`."""
    return [
        Attack(name, found.bound, found.base_rate, found.rate, found.people)
        for name, found in _play(listener, pulse, published, source)
    ]


def _play(
    session: Listener, pulse: Pulse, published: Published, source: SourceKnown
) -> Iterator[tuple[str, Achieved]]:
    random = np.random.default_rng(secrets.randbits(128))
    codes, buckets, values, bounds = (
        published.codes, published.buckets, published.values, published.bounds,
    )  # fmt: skip

    def scored(found: Guesses) -> Achieved:
        return achieved(source.truth, found.tuples, found.values, bounds, found.people)

    session.step("attacking: most frequent value")
    guesses = _most_frequent(published, source.tuples, pulse)
    yield "most frequent value", scored(guesses)
    session.step("attacking: unusual people")
    is_unusual = np.zeros(source.truth.people.size, dtype=np.bool_)
    is_unusual[source.tuples[unusual_records(codes, pulse=pulse)]] = True
    people = np.where(is_unusual[guesses.tuples], guesses.people, 0)
    found = scored(Guesses(guesses.tuples, guesses.values, people))
    yield "unusual people: most frequent value", found

    session.step("attacking: minimality")
    orders = sweep_orders(codes)
    if codes.shape[1] > ALL_ORDERS_OF:
        session.tell(f"minimality tries {len(orders)} orders of the quasi-identifiers, not all")
    half = random.random(values.sizes.size) < 0.5
    yield (
        "minimality",
        name_rarest(
            codes, buckets, values, source.tuples, source.truth, bounds, orders, half, pulse
        ),
    )

    session.step("attacking: learners")
    chosen, its_values = _sample(buckets, values, random)
    if chosen.size < buckets.size:
        session.tell(
            f"the learners attack a random sample of {chosen.size:,} of {buckets.size:,} people"
        )
    codes, tuples = codes[chosen], source.tuples[chosen]
    candidates = candidates_of(_numbered(buckets[chosen]), its_values)
    holders = np.bincount(its_values.value, its_values.count, bounds.size).astype(np.int64)
    known = source.values >= 0
    own = source.truth.share(tuples[candidates.record], candidates.value)
    for name, weights in (
        ("deFinetti", learned_weights(codes, candidates, bounds.size, pulse=pulse)),
        (
            "correlations of the source",
            weights_of_source(
                codes, candidates, source.codes[known], source.values[known], bounds.size,
                own=np.nan_to_num(own), pulse=pulse,
            ),
        ),
    ):  # fmt: skip
        beliefs = Beliefs.of(candidates, weights, tuples, bounds.size)
        yield name, scored(beliefs.among(bounds < 1).named(holders))

    counts = np.bincount(values.value, values.count, bounds.size)
    certain = int(values.count[values.count == values.sizes[values.bucket]].sum())
    unbounded = float(counts[bounds >= 1].sum() / counts.sum())
    base = float(np.count_nonzero(counts) == 1)
    yield "homogeneity", Achieved(buckets.size, certain / buckets.size, base, unbounded)


def _most_frequent(published: Published, tuples: IntArray, pulse: Pulse) -> Guesses:
    """Guess the most frequent protected value in the buckets of everybody's possible records."""
    buckets, values, bounds = published.buckets, published.values, published.bounds
    order = np.argsort(tuples, kind="stable")
    n_candidates = np.diff(values.starts, append=values.bucket.size)[buckets[order]]
    blocks = np.cumsum(n_candidates) // MOST_CANDIDATES
    # A block ends where other quasi-identifiers begin.
    starts = np.flatnonzero(np.diff(tuples[order], prepend=-1))
    cuts = starts[np.flatnonzero(np.diff(blocks[starts], prepend=-1))]
    found = []
    for records in np.split(order, cuts[1:]):
        pulse.beat()
        candidates = candidates_of(buckets[records], values)
        beliefs = Beliefs.of(candidates, candidates.share, tuples[records], bounds.size)
        found.append(beliefs.among(bounds < 1).most_likely)
    return Guesses(
        np.concatenate([part.tuples for part in found]),
        np.concatenate([part.values for part in found]),
        np.concatenate([part.people for part in found]),
    )


def _sample(
    buckets: IntArray, values: BucketValues, random: np.random.Generator
) -> tuple[IntArray, BucketValues]:
    """Draw buckets with as many candidates as there may be; return their records and values."""
    n_candidates = values.sizes * np.diff(values.starts, append=values.bucket.size)
    order = random.permutation(n_candidates.size)
    n_drawn = np.searchsorted(np.cumsum(n_candidates[order]), MOST_CANDIDATES, side="right")
    drawn = np.zeros(n_candidates.size, dtype=np.bool_)
    drawn[order[: max(1, n_drawn)]] = True
    kept = drawn[values.bucket]
    return np.flatnonzero(drawn[buckets]), BucketValues(
        _numbered(values.bucket[kept]), values.value[kept], values.count[kept]
    )


def _numbered(buckets: IntArray) -> IntArray:
    """Return other numbers of the buckets: from 0 without gaps, in the same order."""
    numbers: IntArray = np.unique(buckets, return_inverse=True)[1].astype(np.int64)
    return numbers


def _read(target: Target) -> tuple[Published, SourceKnown]:
    """Read the publication, and the source by the codes of the published values."""
    session, layout, types = target.session, target.publication.layout, target.types
    names, bucket_id = layout["quasi_identifiers"], layout["bucket_id"]
    qit = _snapshot(target, SUFFIXES[1], [*names, bucket_id])
    columns = [distinct_values(qit, types[name]) for name in names]
    codes = read_codes(qit, columns)
    buckets = read_integers(qit, f"s.{session.identifier(bucket_id)}").astype(np.int64) - 1
    qit.drop()

    sat = _snapshot(target, SUFFIXES[2], [bucket_id, layout["sensitive"], layout["count"]])
    sensitive = distinct_values(sat, types[layout["sensitive"]])
    sat_codes = read_codes(sat, [sensitive])[:, 0].astype(np.int64)
    sat_buckets, counts = (
        read_integers(sat, f"s.{session.identifier(name)}").astype(np.int64)
        for name in (bucket_id, layout["count"])
    )
    sat.drop()
    values = values_of(sat_buckets - 1, sat_codes, counts)
    bounds = bounds_of(target.publication, sensitive.labels, values)

    source = take_snapshot(
        session, target.source.relation, [*names, layout["sensitive"]], target.room
    )
    source_codes = read_known_codes(source, columns)
    its_values = read_known_codes(source, [sensitive])[:, 0].astype(np.int64)
    source.drop()
    for column in (*columns, sensitive):
        column.drop()
    published = Published(codes, buckets, values, bounds)
    return published, SourceKnown.of(published, source_codes, its_values)


def _snapshot(target: Target, suffix: str, columns: list[str]) -> Snapshot:
    relation = Relation(target.schema, target.publication.name + suffix)
    return take_snapshot(target.session, relation, columns, target.room)


def _tuples(codes: CodeArray) -> tuple[IntArray, int]:
    """Return the number of each combination of quasi-identifiers, and how many there are."""
    keys: AnyIntArray = sort_keys([codes[:, a] for a in range(codes.shape[1])])
    distinct, numbers = np.unique(keys, return_inverse=True)
    return numbers.astype(np.int64), distinct.size


def values_of(buckets: IntArray, codes: IntArray, counts: IntArray) -> BucketValues:
    """Put the rows of the SAT in order; buckets count from 0."""
    order = np.lexsort((codes, buckets))
    return BucketValues(buckets[order], codes[order], counts[order])


def bounds_of(
    publication: Publication, labels: list[str | None], values: BucketValues
) -> FloatArray:
    """Return the threshold of each value, as verified from the published relations."""
    counts = np.bincount(values.value, values.count, len(labels)).astype(np.int64)
    thresholds = published_thresholds(publication.parameters, labels, counts)
    return np.array([float(threshold) for threshold in thresholds])
