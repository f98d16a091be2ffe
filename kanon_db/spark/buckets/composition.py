"""What buckets tell of how values go together, from the SAT; see the same in PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kanon_db.algorithms.bucketization.composition import Composition, decomposed
from kanon_db.counting.layout import SHARES, BucketTables
from kanon_db.publications.buckets.regression import is_composed, spectrum_of
from kanon_db.spark.buckets.values import CODE, VALUE, NumberedValues
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.tables import Tables, folder_of, write_table

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray


def write_composition(
    job: SparkJob, tables: Tables, names: BucketTables, values: NumberedValues, *, is_random: bool
) -> dict[str, list[float]] | None:
    """Write the directions in which buckets differ, a row for each sensitive value.

    Parameters
    ----------
    job : SparkJob
    tables : Tables
        With the SAT.
    names : BucketTables
    values : NumberedValues
    is_random : bool
        Whether records of the whole table were drawn into each bucket.

    Returns
    -------
    dict or None
        The spectrum, as the manifest keeps it; None if there is none. The table then has no rows.
    """
    spectrum, found, n_values = None, None, len(values.counts)
    if is_composed(n_values, is_random=is_random):
        job.voice.step("finding how the values of buckets go together")
        found = decomposed(_together(tables, names, values), values.counts)
        spectrum = spectrum_of(found)
    lines = _lines(found) if found is not None and spectrum is not None else []
    arrays = job.session.createDataFrame(
        lines, "code int, directions array<double>, hidden array<double>"
    )
    frame = values.frame.join(arrays, values.frame[CODE] == arrays["code"])
    directions, hidden, sensitive = (
        _unquoted(name) for name in (names.directions, names.hidden, names.sensitive)
    )
    with in_own_words("the composition of buckets could not be written"):
        rows = frame.select(
            frame[VALUE].alias(sensitive),
            frame["directions"].alias(directions),
            frame["hidden"].alias(hidden),
        )
        write_table(rows.coalesce(1), job.staging.tables / folder_of(SHARES))
    return spectrum


def _lines(found: Composition) -> list[Any]:
    pairs = zip(found.directions.tolist(), found.hidden.tolist(), strict=True)
    return [(code, directions, hidden) for code, (directions, hidden) in enumerate(pairs)]


def _together(tables: Tables, names: BucketTables, values: NumberedValues) -> FloatArray:
    """Add up, over the buckets, n_g n_g' / |g| of each pair of values.

    Whole numbers of the buckets of each size are added up, so that no order rounds anything.
    """
    coded = Tables(
        tables.session,
        {
            "sat": replace(values, column="v").coded(
                tables.select(
                    f"SELECT s.{names.bucket_id} AS id, s.{names.sensitive} AS v,"
                    f" s.{names.count}::int8 AS n FROM {names.sat} AS s"
                )
            )
        },
    )
    try:
        rows = coded.fetch(
            "SELECT p.size, p.one, p.other, sum(p.n)::int8 AS n FROM (SELECT"
            f" {names.size('a.id')} AS size, a.{CODE} AS one, b.{CODE} AS other, a.n * b.n AS n"
            " FROM sat AS a JOIN sat AS b ON a.id = b.id) AS p GROUP BY p.size, p.one, p.other"
        )
    finally:
        coded.drop()
    found = np.zeros((len(values.counts), len(values.counts)))
    for row in sorted(rows, key=lambda row: int(row["size"])):
        found[row["one"], row["other"]] += row["n"] / row["size"]
    return found


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"')
