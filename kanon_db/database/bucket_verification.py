"""Verifying and measuring a bucketization, from its published relations alone.

The SQL here shares nothing with the algorithms: bucket sizes are counted, frequencies compared
with thresholds by cross-multiplication of exact numbers, totals taken from the published table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.database.bucket_tables import BucketTables
from kanon_db.database.publishing import Check
from kanon_db.database.session import Row, Session, fetch_one


@dataclass(frozen=True)
class Examination:
    """What was found in the published relations."""

    checks: list[Check]
    metrics: dict[str, float]


def examine_buckets(
    session: Session,
    tables: BucketTables,
    parameters: Mapping[str, Any],
    *,
    records: int,
) -> Examination:
    """Check everything that a bucketization promises, and measure it.

    Parameters
    ----------
    session : Session
        Of any role that may read the publication.
    tables : BucketTables
    parameters : mapping
        What the publisher asked for, as in the catalog.
    records : int
        Number of records that the source had.

    Returns
    -------
    Examination
        Metrics: ``records``, ``sensitive_values``, ``buckets``, ``buckets_of_size_<S>`` for each
        size S, ``loss`` ([GB] Eq. 2), ``msbs`` ([GB] Eq. 1), ``largest_frequency`` of a value in
        a bucket and ``largest_frequency_ratio``, the largest quotient of such a frequency and
        its value's threshold f' (at most 1).
    """
    buckets = _count_buckets(session, tables)
    exposure = _exposure(session, tables, parameters)
    sizes = {int(row["size"]): int(row["buckets"]) for row in buckets if row["size"] is not None}
    total = {name: sum(int(row[name]) for row in buckets) for name in _TOTALS}
    published = sum(size * n for size, n in sizes.items())
    loss = sum(n * (size - 1) ** 2 for size, n in sizes.items())
    checks = [
        Check(
            "every record is published once",
            f"{records} records",
            f"{total['qit_records']} in QIT, {published} in SAT",
            holds=total["qit_records"] == published == records,
        ),
        Check(
            "QIT and SAT agree on every bucket's size",
            "0 buckets differ",
            f"{total['differing']} of {total['buckets']} differ",
            holds=total["differing"] == 0,
        ),
        Check(
            "bucket numbers give the bucket sizes",
            "0 buckets differ",
            f"{total['misnumbered']} of {total['buckets']} differ",
            holds=total["misnumbered"] == 0,
        ),
        Check(
            "SAT counts each value of a bucket once",
            "0 rows break it",
            f"{total['uncounted'] + exposure['repeated']} break it",
            holds=total["uncounted"] + exposure["repeated"] == 0,
        ),
        Check(
            "F'-privacy: frequency in bucket <= threshold",
            "0 pairs of bucket and value above",
            f"{exposure['above']} above, largest ratio {exposure['ratio']:.6g}",
            holds=exposure["above"] == 0,
        ),
    ]
    if "l" in parameters:
        checks.append(
            Check(
                "l-diversity: frequency in bucket <= 1/l",
                f"l = {parameters['l']}",
                f"{exposure['not_diverse']} pairs above, largest frequency"
                f" {exposure['frequency']:.6g}",
                holds=exposure["not_diverse"] == 0,
            )
        )
    else:
        checks.append(
            Check(
                "no bucket exceeds the largest size allowed",
                f"at most {parameters['max_bucket_size']} records",
                f"largest has {max(sizes, default=0)}",
                holds=max(sizes, default=0) <= parameters["max_bucket_size"],
            )
        )
    return Examination(
        checks,
        {
            "records": published,
            "sensitive_values": exposure["values"],
            "buckets": total["buckets"],
            **{f"buckets_of_size_{size}": n for size, n in sizes.items()},
            "loss": loss,
            "msbs": loss / (published - 1) if published > 1 else 0.0,
            "largest_frequency": exposure["frequency"],
            "largest_frequency_ratio": exposure["ratio"],
        },
    )


_TOTALS = ("buckets", "qit_records", "differing", "misnumbered", "uncounted")


def _count_buckets(session: Session, tables: BucketTables) -> list[Row]:
    """Count buckets by size, and what is wrong with them."""
    bucket_id, count = tables.bucket_id, tables.count
    return session.fetch(
        f"WITH q AS (SELECT {bucket_id} AS bucket_id, count(*) AS records"
        f" FROM {tables.qit} GROUP BY {bucket_id}),"
        f" s AS (SELECT {bucket_id} AS bucket_id, sum({count}) AS records,"
        f" count(*) FILTER (WHERE {count} IS NULL OR {count} < 1) AS uncounted"
        f" FROM {tables.sat} GROUP BY {bucket_id})"
        " SELECT s.records AS size, count(*) AS buckets,"
        " coalesce(sum(q.records), 0)::int8 AS qit_records,"
        " count(*) FILTER (WHERE q.records IS DISTINCT FROM s.records) AS differing,"
        f" count(*) FILTER (WHERE s.records IS DISTINCT FROM {tables.size('s.bucket_id')})"
        " AS misnumbered, coalesce(sum(s.uncounted), 0)::int8 AS uncounted"
        " FROM q FULL JOIN s ON s.bucket_id = q.bucket_id GROUP BY s.records ORDER BY s.records"
    )


def _exposure(session: Session, tables: BucketTables, parameters: Mapping[str, Any]) -> Row:
    """Count the (bucket, value) pairs above their threshold.

    Each distinct (value, count, size) is judged once. Thresholds are fractions written as
    numerator and denominator, so that no comparison is rounded; `size` is a bucket's size as its
    number gives it, which a check of its own compares with what is counted.
    """
    privacy = PrivacySpecification.parse(json.dumps(parameters["privacy"]))
    labels = list(privacy.values)
    own = list(privacy.values.values())
    rules = _general_rules(privacy)
    above = [f"WHEN o.label IS NOT NULL THEN {_OWN_ABOVE}"]
    ratio = [f"WHEN o.label IS NOT NULL THEN {_OWN_RATIO}"]
    if privacy.null is not None:
        null_above, null_ratio = _rule(privacy.null)
        above.append(f"WHEN is_null THEN {null_above}")
        ratio.append(f"WHEN is_null THEN {null_ratio}")
    above.append(f"ELSE {' OR '.join(sql for sql, _ in rules)}")
    ratio.append(f"ELSE greatest({', '.join(sql for _, sql in rules)})")
    return fetch_one(
        session,
        "WITH profile AS ("
        f"  SELECT {tables.sensitive} AS value, {tables.count}::numeric AS count,"
        f"  ({tables.size(tables.bucket_id)})::numeric AS size, count(*) AS buckets"
        f"  FROM {tables.sat} GROUP BY 1, 2, 3),"
        " judged AS ("
        "  SELECT CASE WHEN num_nulls(value) = 0 THEN format('%s', value) END AS label,"
        "  num_nulls(value) > 0 AS is_null, count, size, buckets,"
        "  sum(count * buckets) OVER (PARTITION BY value) AS records,"
        "  sum(count * buckets) OVER () AS total FROM profile),"
        " own AS (SELECT * FROM unnest($1::text[], $2::text[]::numeric[], $3::text[]::numeric[])"
        "  AS o (label, numerator, denominator)),"
        " compared AS ("
        "  SELECT j.label, j.is_null, j.buckets, j.count / j.size AS frequency,"
        "  j.count * $4::int8 > j.size AS not_diverse,"
        f"  CASE {' '.join(above)} END AS above, CASE {' '.join(ratio)} END AS ratio"
        "  FROM judged AS j LEFT JOIN own AS o ON o.label = j.label)"
        " SELECT coalesce(sum(buckets) FILTER (WHERE above), 0)::int8 AS above,"
        " coalesce(sum(buckets) FILTER (WHERE not_diverse), 0)::int8 AS not_diverse,"
        " coalesce(max(ratio), 0)::float8 AS ratio,"
        " coalesce(max(frequency), 0)::float8 AS frequency,"
        " (count(DISTINCT label) + (count(*) FILTER (WHERE is_null) > 0)::int4)::int8 AS values,"
        f" (SELECT count(*) FROM (SELECT 1 FROM {tables.sat}"
        f" GROUP BY {tables.bucket_id}, {tables.sensitive} HAVING count(*) > 1) AS r) AS repeated"
        " FROM compared",
        labels,
        [str(threshold.numerator) for threshold in own],
        [str(threshold.denominator) for threshold in own],
        str(parameters.get("l", 1)),
    )


def _general_rules(privacy: PrivacySpecification) -> list[tuple[str, str]]:
    """Return SQL of each general rule: is a frequency above its bound, and their quotient."""
    rules = [_rule(Fraction(1))]  # no threshold exceeds 1
    if privacy.default is not None:
        rules.append(_rule(privacy.default))
    if privacy.l is not None:
        rules.append(_rule(1 / privacy.l))
    if privacy.theta is not None or privacy.base is not None:
        theta, base = privacy.theta or Fraction(0), privacy.base or Fraction(0)
        # The threshold theta * records / total + base, over one denominator.
        bound = (
            f"({theta.numerator * base.denominator} * records"
            f" + {base.numerator * theta.denominator} * total)"
        )
        scale = f"({theta.denominator * base.denominator} * total)"
        rules.append(
            (f"count * {scale} > size * {bound}", f"(count * {scale}) / (size * {bound})::float8")
        )
    return rules


def _rule(threshold: Fraction) -> tuple[str, str]:
    count = f"count * {threshold.denominator}"
    bound = f"size * {threshold.numerator}"
    return f"{count} > {bound}", f"({count}) / ({bound})::float8"


_OWN_ABOVE = "count * o.denominator > size * o.numerator"
_OWN_RATIO = "(count * o.denominator) / (size * o.numerator)::float8"
