"""Measures a bucketization against its source: the errors of counts, and what attacks achieve.

Attackers and readers see QIT and SAT only; the source scores what they say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from typing import Any, Final, Self

import numpy as np

from kanon_db.algorithms.attacks import (
    ALL_ORDERS_OF,
    AttackScore,
    Beliefs,
    BucketValues,
    Guesses,
    PairCounts,
    TrueValues,
    candidates_of,
    learn_weights,
    model_weights,
    name_rarest,
    score_guesses,
    score_predicates,
    sweep_orders,
    unusual_records,
    weights_of_source,
)
from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    order_of,
    sort_keys,
)
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.catalog.entries import Publication
from kanon_db.dataclasses import dataclass
from kanon_db.metrics.count_queries import (
    CountErrors,
    CountQuery,
)
from kanon_db.publications.buckets.bucket_workload import BucketWorkload, StoredLevels, recode
from kanon_db.publications.codes import CodeTables, Store
from kanon_db.publications.examination import AttackSession
from kanon_db.publications.kind import (
    Answerer,
    AttackTarget,
    MeasuredPublication,
    Workload,
    accuracy_of,
    compare_counts,
)
from kanon_db.publications.results import Attack, CountAccuracy
from kanon_db.query.layout import QIT, SAT, BucketTables
from kanon_db.transfer.cell_texts import ListedParts
from kanon_db.transfer.values import DistinctValues, match_values


def published_thresholds(
    parameters: Mapping[str, Any],
    attribute: str,
    attributes: Sequence[str],
    labels: Sequence[str | None],
    counts: IntArray,
) -> list[Fraction]:
    """Apply a publication's specification to the values that it has, and its l, if it has one.

    Parameters
    ----------
    parameters : mapping
        As the catalog keeps them.
    attribute : str
        The sensitive attribute that has the values.
    attributes : sequence of str
        All of the publication.
    labels : sequence of str or None
        The values' texts.
    counts : ndarray of int64
        How often each of them occurs, at least once.
    """
    specification = PrivacySpecification.parse(json.dumps(parameters["privacy"]))
    privacy = specification.of_attribute(attribute, attributes)
    least = 1 / Fraction(str(parameters.get("l", 1)))
    known = replace(privacy, may_be_absent=True)
    return [min(one, least) for one in known.thresholds(labels, counts).thresholds]


def evaluate_buckets(
    target: MeasuredPublication, workload: Workload, answer: Answerer
) -> list[CountAccuracy]:
    """Answer random count queries from a bucketization and from its source, and compare them.

    Returns
    -------
    list of CountAccuracy
        One for each selectivity, then one for all queries.

    Notes
    -----
    **Source:** [GB] Section 7.2; see :func:`~kanon_db.metrics.count_queries.random_queries`.
    Deviation: the answers are those of `estimate_count`, by the weights of values where these are
    published, and otherwise the paper's.
    """
    attributes, layout = target.publication.all_sensitive, target.publication.layout
    # Each query has a condition on one of the attributes.
    first, further = divmod(workload.queries, len(attributes))
    shares = [first + (at < further) for at in range(len(attributes))]
    compared = [
        compare_counts(
            target, replace(workload, queries=n), layout["quasi_identifiers"], name, answer
        )
        for name, n in zip(attributes, shares, strict=True)
        if n
    ]
    errors = CountErrors(
        np.concatenate([errors.actual for errors, _ in compared]),
        np.concatenate([errors.estimated for errors, _ in compared]),
    )
    return accuracy_of(workload, errors, np.concatenate([expected for _, expected in compared]))


def answer_from_buckets(
    target: AttackTarget,
    columns: Sequence[DistinctValues],
    sensitive: DistinctValues,
    queries: Sequence[CountQuery],
) -> FloatArray:
    """Answer count queries from the codes of the slots: see :func:`.measure_usefulness`."""
    session, publication, name = target.session, target.publication, sensitive.column.name
    of = session, target.schema, publication.name, publication.layout
    store, tables = Store(session, CodeTables.of(*of)), BucketTables.of(*of)
    every = [*columns, sensitive]
    if name in tables.weighted:
        n_bytes = tables.n_records * (store.columns[name].n_values + 8)
        hint = "measure buckets of a part of the source, or of fewer values"
        target.room.require_memory(n_bytes, f"the weights of {name}", hint)
    places = [match_values(values, store.values(values.column.name)) for values in every]
    stored = [store.columns[values.column.name] for values in every]
    workload = BucketWorkload(
        stored, recode(queries, places), StoredLevels.read(store, tables, name)
    )
    totals = workload.begin()
    for part in store.each([column.name for column in stored], workload):
        totals = totals + part
    return workload.estimates(totals)


MOST_CANDIDATES: Final = 1_000_000
"""Pairs of a record and a value of its bucket from which a learner learns at once."""


@dataclass(frozen=True, eq=False)
class AttackedBuckets:
    """Buckets as an attacker of QIT and SAT knows them."""

    # (n_records, n_qi): the QIT's rows, coded in the order of each column's values, NULL last
    codes: CodeArray
    buckets: IntArray  # (n_records,): from 0
    values: BucketValues
    bounds: FloatArray  # (n_values,): the threshold of each sensitive value


@dataclass(frozen=True, eq=False)
class ScoringSource:
    """Facts of the source alone; `tuples` number the quasi-identifiers of the QIT's records."""

    codes: CodeArray
    values: IntArray
    tuples: IntArray
    of_people: IntArray  # (n_source,): the same numbers, of the source's people
    truth: TrueValues

    @classmethod
    def of(cls, published: AttackedBuckets, codes: CodeArray, values: IntArray) -> Self:
        """Set the source's records against the QIT.

        Parameters
        ----------
        published : AttackedBuckets
        codes : ndarray of int32, shape (n_source, n_qi)
            By the published values; -1 for others.
        values : ndarray of int64, shape (n_source,)
            The code of the sensitive value, likewise.
        """
        is_published = (codes >= 0).all(axis=1)
        codes, values = codes[is_published], values[is_published]
        tuples, n_tuples = _tuples(np.concatenate([published.codes, codes]))
        n_published = len(published.codes)
        truth = TrueValues.of(tuples[n_published:], values, n_tuples, published.bounds.size)
        return cls(codes, values, tuples[:n_published], tuples[n_published:], truth)


def attack_buckets(target: MeasuredPublication) -> list[Attack]:
    """Play all attacks on a bucketization.

    Returns
    -------
    list of Attack
        See ``docs/understand/attacks.md``. The learners play against a random sample of the buckets
        if all of them would be too many.
    """
    read, listener, pulse = _read(target), target.session, target.pulse()
    is_one = len(read.attributes) == 1
    found = []
    for name in read.attributes:
        labels = read.labels[read.attributes.index(name)]
        played = _play(listener, pulse, *read.of_attribute(name), labels)
        found += [(attack if is_one else f"{attack} of {name}", score) for attack, score in played]
    for known, guessed in permutations(read.attributes, 2):
        listener.step("attacking: one sensitive value tells another")
        found.append(
            (f"knows the value of {known}, guesses {guessed}", read.told_by(known, guessed))
        )
    return [
        Attack(name, score.bound, score.base_rate, score.rate, score.people)
        for name, score in found
    ]


_SEED: Final = 1
"""Attacks on the same publication achieve the same twice."""

_MOST_STARTS: Final = 6
_MOST_LEARNED: Final = 1_200_000
"""Pairs of a record and a value that the second learner learns from, in all its starts."""


def _play(
    session: AttackSession,
    pulse: Pulse,
    published: AttackedBuckets,
    source: ScoringSource,
    labels: Sequence[str | None],
) -> Iterator[tuple[str, AttackScore]]:
    random = np.random.default_rng(_SEED)
    codes, buckets, values, bounds = (
        published.codes, published.buckets, published.values, published.bounds,
    )  # fmt: skip

    def scored(guesses: Guesses) -> AttackScore:
        return score_guesses(source.truth, guesses.tuples, guesses.values, bounds, guesses.people)

    session.step("attacking: most frequent value")
    guesses = _most_frequent(published, source.tuples, bounds < 1, pulse)
    yield "most frequent value", scored(guesses)
    session.step("attacking: unusual people")
    easily_found = _easily_found(source, codes, pulse)
    yield (
        "unusual people: most frequent value",
        scored(guesses.about(easily_found["unusual people"])),
    )

    session.step("attacking: singling out")
    yield "singling out", _single_out(published, source)

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
    its_buckets = _numbered(buckets[chosen])
    candidates = candidates_of(its_buckets, its_values)
    holders = np.bincount(its_values.value, its_values.count, bounds.size).astype(np.int64)

    def believed(weights: FloatArray) -> Beliefs:
        return Beliefs.of(candidates, weights, tuples, bounds.size).among(bounds < 1)

    learned = [believed(learn_weights(codes, candidates, bounds.size, pulse=pulse))]
    n_starts = max(1, min(_MOST_STARTS, _MOST_LEARNED // candidates.record.size))
    starts = random.spawn(n_starts)
    modeled = model_weights(codes, its_buckets, its_values, bounds.size, starts, pulse)
    if modeled is not None:
        learned.append(believed(modeled))
    named = [scored(beliefs.named(holders)) for beliefs in learned]
    best = max(range(len(named)), key=lambda at: named[at].rate or 0)
    yield "deFinetti", named[best]
    for who, tuples_of in easily_found.items():
        scores = [scored(beliefs.most_likely.about(tuples_of)) for beliefs in learned]
        yield f"{who}: deFinetti", max(scores, key=lambda score: score.rate or 0)
    yield "surer than the bound: deFinetti", scored(learned[best].surer_than(bounds))
    known = source.values >= 0
    own = source.truth.share(tuples[candidates.record], candidates.value)
    weights = weights_of_source(
        codes, candidates, source.codes[known], source.values[known], bounds.size,
        own=np.nan_to_num(own), pulse=pulse,
    )  # fmt: skip
    yield "correlations of the source", scored(believed(weights).named(holders))

    counts = np.bincount(values.value, values.count, bounds.size)
    certain = int(values.count[values.count == values.sizes[values.bucket]].sum())
    unbounded = float(counts[bounds >= 1].sum() / counts.sum())
    base = float(np.count_nonzero(counts) == 1)
    yield "homogeneity", AttackScore(buckets.size, certain / buckets.size, base, unbounded)
    if (parts := ListedParts.of(labels, counts.astype(np.int64).tolist())) is not None:
        session.step("attacking: parts of values")
        yield "a part of the value", _part_guessed(published, source, parts, pulse)


def _single_out(published: AttackedBuckets, source: ScoringSource) -> AttackScore:
    """Describe single people by their quasi-identifiers, which buckets show as they are."""
    n_people = len(source.codes)
    weights = np.ones(len(published.codes))
    for column, known in zip(published.codes.T, source.codes.T, strict=True):
        counts = np.bincount(known[known >= 0], minlength=int(column.max(initial=-1)) + 1)
        weights *= counts[column] / max(n_people, 1)
    _, numbers, n_alike = np.unique(source.tuples, return_inverse=True, return_counts=True)
    return score_predicates(
        n_alike[numbers], source.truth.people[source.tuples], weights, n_people
    )  # fmt: skip


def _easily_found(source: ScoringSource, codes: CodeArray, pulse: Pulse) -> dict[str, BoolArray]:
    """Tell which combinations of quasi-identifiers are easily found, shape (n_tuples,)."""
    n_tuples = source.truth.people.size
    is_unusual = np.zeros(n_tuples, dtype=np.bool_)
    is_unusual[source.tuples[unusual_records(codes, pulse=pulse)]] = True
    is_unique = np.bincount(source.tuples, minlength=n_tuples) == 1
    return {"unusual people": is_unusual, "unique people": is_unique}


def _part_guessed(
    published: AttackedBuckets, source: ScoringSource, parts: ListedParts, pulse: Pulse
) -> AttackScore:
    """Guess of everybody the part that most records of the bucket have, of values that are lists.

    The bound is on whole values: it says nothing of parts, which many values may have.
    """
    of_value = [np.array(one, dtype=np.int64) for one in parts.of_value]
    lengths = np.array([one.size for one in of_value])
    starts, every = np.cumsum(lengths) - lengths, np.concatenate(of_value)

    def parts_of(values: IntArray) -> tuple[IntArray, IntArray]:
        """Return the parts of values, with which of these each belongs to."""
        n = lengths[values]
        own = np.repeat(np.arange(values.size), n)
        within = np.arange(own.size) - np.repeat(np.cumsum(n) - n, n)
        return every[np.repeat(starts[values], n) + within], own

    n_parts, values = len(parts.names), published.values
    part, own = parts_of(values.value)
    keys, numbers = np.unique(values.bucket[own] * n_parts + part, return_inverse=True)
    counts = np.bincount(numbers, values.count[own]).astype(np.int64)
    in_buckets = replace(
        published, values=BucketValues(keys // n_parts, keys % n_parts, counts),
        bounds=np.ones(n_parts),
    )  # fmt: skip
    all_parts = np.ones(n_parts, dtype=np.bool_)
    guesses = _most_frequent(in_buckets, source.tuples, all_parts, pulse, values.sizes)
    known = np.flatnonzero(source.values >= 0)
    part, own = parts_of(source.values[known])
    tuples = source.of_people[known][own]
    people = source.truth.people
    frequent = int(np.bincount(part, minlength=n_parts).argmax())
    truth = TrueValues(PairCounts.of(tuples, part, n_parts), people, frequent)
    return score_guesses(truth, guesses.tuples, guesses.values, None, guesses.people)


def _most_frequent(
    published: AttackedBuckets,
    tuples: IntArray,
    guessed: BoolArray,
    pulse: Pulse,
    sizes: IntArray | None = None,
) -> Guesses:
    """Guess the most frequent value in the buckets of everybody's possible records.

    `guessed`, shape (n_values,), are the values that may be guessed; `sizes` those of the buckets,
    where a record has several values.
    """
    buckets, values = published.buckets, published.values
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
        shares = candidates.share
        if sizes is not None:
            shares = candidates.count / sizes[buckets[records]][candidates.record]
        beliefs = Beliefs.of(candidates, shares, tuples[records], guessed.size)
        found.append(beliefs.among(guessed).most_likely)
    return Guesses(
        np.concatenate([part.tuples for part in found]),
        np.concatenate([part.values for part in found]),
        np.concatenate([part.people for part in found]),
    )


def _sample(
    buckets: IntArray, values: BucketValues, random: np.random.Generator
) -> tuple[IntArray, BucketValues]:
    """Draw buckets with as many candidates as there may be; return their records by bucket, too."""
    n_candidates = values.sizes * np.diff(values.starts, append=values.bucket.size)
    order = random.permutation(n_candidates.size)
    n_drawn = np.searchsorted(np.cumsum(n_candidates[order]), MOST_CANDIDATES, side="right")
    drawn = np.zeros(n_candidates.size, dtype=np.bool_)
    drawn[order[: max(1, n_drawn)]] = True
    kept = drawn[values.bucket]
    records = np.flatnonzero(drawn[buckets])
    return records[order_of(buckets[records], stable=True)], BucketValues(
        _numbered(values.bucket[kept]), values.value[kept], values.count[kept]
    )


def _numbered(buckets: IntArray) -> IntArray:
    """Return other numbers of the buckets: from 0 without gaps, in the same order."""
    numbers: IntArray = np.unique(buckets, return_inverse=True)[1].astype(np.int64)
    return numbers


@dataclass(frozen=True, eq=False)
class _ReadPublication:
    """QIT and SAT, and the source by the codes of the published values."""

    publication: Publication
    attributes: tuple[str, ...]  # The sensitive attributes
    codes: CodeArray  # (n_records, n_qi): the QIT
    buckets: IntArray  # (n_records,): from 0
    sat_buckets: IntArray  # (n_rows,): the SAT
    sat_values: CodeArray  # (n_rows, n_attributes)
    sat_counts: IntArray
    labels: Sequence[list[str | None]]  # Of each attribute's values
    source_codes: CodeArray  # (n_source, n_qi); -1 for a value that is not published
    source_values: CodeArray  # (n_source, n_attributes); likewise

    def of_attribute(self, name: str) -> tuple[AttackedBuckets, ScoringSource]:
        """Return what an attacker sees of one attribute, and what scores its guesses."""
        at = self.attributes.index(name)
        labels = self.labels[at]
        values = _values_of(self.sat_buckets, self.sat_values[:, at], self.sat_counts)
        counts = np.bincount(values.value, values.count, len(labels)).astype(np.int64)
        thresholds = published_thresholds(
            self.publication.parameters, name, self.attributes, labels, counts
        )
        bounds = np.array([float(threshold) for threshold in thresholds])
        published = AttackedBuckets(self.codes, self.buckets, values, bounds)
        of_source = self.source_values[:, at].astype(np.int64)
        return published, ScoringSource.of(published, self.source_codes, of_source)

    def told_by(self, known: str, guessed: str) -> AttackScore:
        """Guess a value of everybody, of whom another one is known, besides quasi-identifiers.

        The most likely one is guessed: a record of a bucket that has the known value n times has
        each of the combinations with it in proportion to their number. Without the publication,
        the value is guessed that goes together with the known one most often.
        """
        x, y = self.attributes.index(known), self.attributes.index(guessed)
        is_published = (self.source_codes >= 0).all(axis=1) & (
            self.source_values[:, [x, y]] >= 0
        ).all(axis=1)
        people, values = self.source_codes[is_published], self.source_values[is_published]
        tuples, _ = _tuples(np.concatenate([self.codes, people]))
        # The rows of the SAT that each record of the QIT may have.
        order = np.argsort(self.sat_buckets, kind="stable")
        n_rows = np.bincount(self.sat_buckets, minlength=int(self.buckets.max(initial=-1)) + 1)
        drawn = _drawn_of(n_rows[self.buckets], MOST_CANDIDATES)
        lengths = n_rows[self.buckets[drawn]]
        starts = (np.cumsum(n_rows) - n_rows)[self.buckets[drawn]]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        rows = order[np.repeat(starts, lengths) + within]
        sizes = np.bincount(self.buckets)
        n_x, n_y = len(self.labels[x]), len(self.labels[y])
        # Whoever knows x looks among the people with these quasi-identifiers and x.
        known_of = np.repeat(tuples[: len(self.codes)][drawn], lengths) * n_x
        known_of += self.sat_values[rows, x]
        of_people = tuples[len(self.codes) :] * n_x + values[:, x]
        distinct, numbers = np.unique(np.concatenate([known_of, of_people]), return_inverse=True)
        groups, of_people = numbers[: rows.size], numbers[rows.size :]
        shares = self.sat_counts[rows] / sizes[self.sat_buckets[rows]]
        keys, numbers = np.unique(groups * n_y + self.sat_values[rows, y], return_inverse=True)
        weights = np.bincount(numbers, shares)
        found, its_values = np.divmod(keys, n_y)
        best = np.lexsort((weights, found))
        best = best[np.flatnonzero(np.diff(found[best], append=-1))]
        truth = TrueValues.of(of_people, values[:, y], distinct.size, n_y)
        together = np.zeros((n_x, n_y), dtype=np.int64)
        np.add.at(together, (self.sat_values[:, x], self.sat_values[:, y]), self.sat_counts)
        found, guesses = found[best], its_values[best]
        numbers = truth.people[found]
        score = score_guesses(truth, found, guesses, None, numbers)
        usual = score_guesses(
            truth, found, together.argmax(axis=1)[distinct[found] % n_x], None, numbers
        )
        return replace(score, base_rate=usual.rate)


def _drawn_of(sizes: IntArray, most: int) -> IntArray:
    """Draw records whose sizes are together no more than a number; all, if these are."""
    if int(sizes.sum()) <= most:
        return np.arange(sizes.size)
    order = np.random.default_rng(_SEED).permutation(sizes.size)
    return order[: max(1, int(np.searchsorted(np.cumsum(sizes[order]), most, side="right")))]


def _read(target: MeasuredPublication) -> _ReadPublication:
    """Read the publication, and the source by the codes of the published values."""
    publication, layout = target.publication, target.publication.layout
    names, bucket_id, attributes = (
        layout["quasi_identifiers"], layout["bucket_id"], publication.all_sensitive,
    )  # fmt: skip
    qit = target.published(QIT, [*names, bucket_id])
    columns = [qit.values(name) for name in names]
    codes, buckets = qit.codes(columns), qit.numbers(bucket_id) - 1
    qit.drop()
    sat = target.published(SAT, [bucket_id, *attributes, layout["count"]])
    sensitive = [sat.values(name) for name in attributes]
    sat_buckets, sat_values = sat.numbers(bucket_id) - 1, sat.codes(sensitive)
    counts = sat.numbers(layout["count"])
    sat.drop()
    source = target.original([*names, *attributes])
    source_codes, source_values = source.codes(columns), source.codes(sensitive)
    source.drop()
    labels = [column.labels for column in sensitive]
    for column in (*columns, *sensitive):
        column.drop()
    return _ReadPublication(
        publication, attributes, codes, buckets, sat_buckets, sat_values, counts, labels,
        source_codes, source_values,
    )  # fmt: skip


def _tuples(codes: CodeArray) -> tuple[IntArray, int]:
    """Return the number of each combination of quasi-identifiers, and how many there are."""
    keys: AnyIntArray = sort_keys([codes[:, a] for a in range(codes.shape[1])])
    distinct, numbers = np.unique(keys, return_inverse=True)
    return numbers.astype(np.int64), distinct.size


def _values_of(buckets: IntArray, codes: CodeArray, counts: IntArray) -> BucketValues:
    """Count each value in each bucket, in this order; buckets count from 0."""
    n_values = int(codes.max(initial=0)) + 1
    keys, numbers = np.unique(buckets * n_values + codes, return_inverse=True)
    its_buckets, values = np.divmod(keys, n_values)
    return BucketValues(its_buckets, values, np.bincount(numbers, counts).astype(np.int64))
