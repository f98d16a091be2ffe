"""Verifying and measuring a bucketization in files.

The statements are written for PostgreSQL, and translated; that on thresholds is the one which runs
there, too. They share nothing with the algorithms, and read all files.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.catalog.entries import Publication
from kanon_db.publications.buckets.bucket_relations import (
    composition_statement,
    judged_composition,
)
from kanon_db.publications.buckets.kind import BucketFindings, CountedBuckets
from kanon_db.publications.guarantees import exposure_statement
from kanon_db.publications.results import Check, Examination
from kanon_db.query.layout import SAT, BucketTables
from kanon_db.spark.labels import label
from kanon_db.spark.tables import SCHEMA, Tables, fetch_one
from kanon_db.transfer.columns import ColumnType


def examine_buckets(tables: Tables, publication: Publication, whole: Check) -> Examination:
    """Check everything that a bucketization promises, and measure it.

    Parameters
    ----------
    tables : Tables
        QIT and SAT by their names.
    publication : Publication
    whole : Check
        Whether the files are those that were published.
    """
    layout, parameters = publication.layout, publication.parameters
    names = BucketTables.of(tables, SCHEMA, publication.name, layout)
    qit = _counted(tables, names, f"SELECT q.{names.bucket_id} AS id, 1 AS n FROM {names.qit} AS q")
    sat = _counted(
        tables, names, f"SELECT s.{names.bucket_id} AS id, s.{names.count} AS n"
        f" FROM {names.sat} AS s"
    )  # fmt: skip
    repeated = fetch_one(
        tables,
        "SELECT count(*) AS n FROM (SELECT 1 AS one FROM"
        f" {names.sat} AS s GROUP BY s.{names.bucket_id}, s.{names.sensitive}"
        " HAVING count(*) > 1) AS pair",
    )["n"]
    findings = BucketFindings(
        qit, sat, repeated, count_certain(tables, names), _exposure(tables, publication, names)
    )
    further = []
    if names.spectrum is not None:
        n_directions = str(len(names.spectrum.eigenvalues))
        amiss = fetch_one(tables, composition_statement(names), n_directions)["n"]
        further.append(judged_composition(amiss))
    return findings.judged(names.n_buckets, parameters, publication.records, whole, further)


def count_certain(tables: Tables, names: BucketTables) -> int:
    """Count the people whose bucket has no other value than theirs."""
    found = fetch_one(
        tables,
        f"SELECT coalesce(sum(s.{names.count}), 0)::int8 AS n FROM {names.sat} AS s"
        f" WHERE s.{names.count} = {names.size(f's.{names.bucket_id}')}",
    )
    return int(found["n"])


def _counted(tables: Tables, names: BucketTables, rows: str) -> CountedBuckets:
    """Count the records of each bucket, of rows with its number and how many records they are."""
    found = tables.fetch(
        "SELECT b.is_readable, b.n, b.size, count(*) AS buckets, sum(b.rows)::int8 AS rows"
        f" FROM (SELECT k.is_readable, {names.size('k.id')} AS size, sum(k.n)::int8 AS n,"
        " count(*) AS rows FROM (SELECT r.id, r.n,"
        f" coalesce(r.id BETWEEN 1 AND {names.n_buckets} AND r.n >= 1, false) AS is_readable"
        f" FROM ({rows}) AS r) AS k GROUP BY k.is_readable, k.id) AS b"
        " GROUP BY b.is_readable, b.n, b.size"
    )
    known = [row for row in found if row["is_readable"]]
    of_sizes: Counter[int] = Counter()
    for row in known:
        of_sizes[row["n"]] += row["buckets"]
    as_promised = sum(row["buckets"] for row in known if row["n"] == row["size"])
    return CountedBuckets(
        records=sum(row["n"] * row["buckets"] for row in known),
        differing=names.n_buckets - as_promised,
        unreadable=sum(row["rows"] for row in found if not row["is_readable"]),
        of_sizes=dict(sorted(of_sizes.items())),
    )


def _exposure(tables: Tables, publication: Publication, names: BucketTables) -> Any:
    """Compare how frequent values are with their thresholds, by the statement of PostgreSQL."""
    layout, parameters = publication.layout, publication.parameters
    privacy = PrivacySpecification.parse(json.dumps(parameters["privacy"]))
    sensitive = str(layout["sensitive"])
    sat = tables.frames[publication.name + SAT]
    column = ColumnType(sensitive, str(layout["types"][sensitive]["type"]), "", None, True)
    labelled = Tables(
        tables.session,
        {
            "sat": sat.select(
                label(sat["`" + sensitive + "`"], column).alias("value"),
                sat["`" + layout["count"] + "`"].alias("count"),
                sat["`" + layout["bucket_id"] + "`"].alias("id"),
            )
        },
    )
    profile = (
        "SELECT p.value, p.count::numeric AS count, p.size::numeric AS size,"
        " count(*)::numeric AS buckets FROM (SELECT s.value, s.count,"
        f" {names.size('s.id')} AS size FROM sat AS s) AS p GROUP BY p.value, p.count, p.size"
    )
    statement, bound = exposure_statement(privacy, profile, l=str(parameters.get("l", 1)))
    try:
        return fetch_one(labelled, statement, *bound)
    finally:
        labelled.drop()
