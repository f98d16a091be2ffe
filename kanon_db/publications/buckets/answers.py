"""Answers to count queries from buckets, as readers of QIT and SAT get them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kanon_db.algorithms.bucketization.composition import Composition, composition
from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.algorithms.ground.sorting import order_of
from kanon_db.counting.layout import Spectrum
from kanon_db.counting.regression import MOST_CORRECTED, between, regress
from kanon_db.metrics.workload import CountQuery
from kanon_db.publications.buckets.evaluation import read_buckets, with_unknown
from kanon_db.publications.kind import Target
from kanon_db.transfer.values import DistinctValues


def answer_from_buckets(
    target: Target,
    columns: Sequence[DistinctValues],
    sensitive: DistinctValues,
    queries: Sequence[CountQuery],
) -> FloatArray:
    """See :meth:`.Kind.usefulness`.

    Notes
    -----
    The estimates of `evaluate_counts`, with the correction of `estimate_count` where buckets are
    random; see :mod:`~kanon_db.counting.regression`.
    """
    read, pulse = read_buckets(target, columns, sensitive), target.pulse()
    n_records, n_values = read.bucket_of_record.size, len(sensitive.labels) + 1
    sizes = np.bincount(read.bucket_of_record)
    found: Composition | None = None
    layout = target.publication.layout
    known = Spectrum.of(layout["spectrum"])
    is_random = layout.get("assignment") == "random"
    if is_random and known is not None and len(known.eigenvalues) < MOST_CORRECTED:
        order = order_of(read.buckets)
        values = np.repeat(read.values[order], read.counts[order])
        found = composition(values, sizes, n_values)
    answers = np.zeros(len(queries))
    for at, asked in enumerate(queries):
        pulse.beat()
        query = with_unknown(asked, pulse)
        matching = np.ones(n_records, dtype=np.bool_)
        for a, codes in query.quasi_identifiers.items():
            matching &= codes[read.codes[:, a]]
        q = np.bincount(read.bucket_of_record[matching], minlength=sizes.size)
        of_value = np.bincount(
            read.values, (q / sizes)[read.buckets] * read.counts, minlength=n_values
        )
        answers[at] = of_value[query.sensitive].sum()
        if found is None:
            continue
        total = float(q.sum())
        spectrum = Spectrum(tuple(found.eigenvalues.tolist()), tuple(found.expected.tolist()))
        b = between(float((q * q / sizes).sum()), total, n_records, sizes.size)
        levels = query.sensitive.astype(np.float64) @ found.hidden
        more, _ = regress(found.directions.T @ of_value, total, b, levels, spectrum)
        is_asked = query.sensitive[read.values]
        s = np.bincount(read.buckets[is_asked], read.counts[is_asked], minlength=sizes.size)
        least, most = np.maximum(0, q + s - sizes).sum(), np.minimum(q, s).sum()
        answers[at] = min(max(answers[at] + more, least), most)
    return answers
