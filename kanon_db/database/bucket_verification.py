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

import numpy as np

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
        its value's threshold f' (at most 1). None, and no further checks, where the relations
        are not of the kinds that were published.
    """
    relations = _check_relations(session, tables)
    if not relations.holds:
        # Reading what stands in their place would run it with the rights of whoever verifies.
        return Examination([relations], {})
    qit, _ = _count_buckets(session, tables, tables.qit, "1")
    sat, sizes = _count_buckets(session, tables, tables.sat, tables.count)
    exposure = _exposure(session, tables, parameters)
    repeated, differing = _compare_vectors(session, tables)
    loss = sum(n * (size - 1) ** 2 for size, n in sizes.items())
    checks = [
        relations,
        Check(
            "every record is published once",
            f"{records} records",
            f"{qit.records} in QIT, {sat.records} in SAT",
            holds=qit.records == sat.records == records,
        ),
        *(
            Check(
                f"{table}: every bucket has the size that its number says",
                f"{tables.n_buckets} buckets, 0 differ",
                f"{found.buckets} buckets, {found.differing} differ",
                holds=found.buckets == tables.n_buckets and found.differing == 0,
            )
            for table, found in (("QIT", qit), ("SAT", sat))
        ),
        Check(
            "SAT counts each value of a bucket once",
            "0 rows break it",
            f"{exposure['uncounted'] + repeated} break it",
            holds=exposure["uncounted"] + repeated == 0,
        ),
        Check(
            "F'-privacy: frequency in bucket <= threshold",
            "0 pairs of bucket and value above",
            f"{exposure['above']} above, largest ratio {exposure['ratio']:.6g}",
            holds=exposure["above"] == 0,
        ),
    ]
    if tables.count_width:
        checks.append(
            Check(
                "vectors repeat the SAT",
                "0 counts differ",
                f"{differing} differ",
                holds=differing == 0,
            )
        )
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
            "records": sat.records,
            "sensitive_values": exposure["values"],
            "buckets": sat.buckets,
            **{f"buckets_of_size_{size}": n for size, n in sizes.items()},
            "loss": loss,
            "msbs": loss / (sat.records - 1) if sat.records > 1 else 0.0,
            "largest_frequency": exposure["frequency"],
            "largest_frequency_ratio": exposure["ratio"],
        },
    )


_RELATIONS = """
SELECT v.relkind IS NOT DISTINCT FROM 'v' AND (
           SELECT bool_and(coalesce(t.relkind = 'r' AND NOT t.relrowsecurity, false))
           FROM unnest($2::text[]) AS name LEFT JOIN pg_class AS t ON t.oid = to_regclass(name)
       ) AS kinds,
       (SELECT count(*) FROM pg_rewrite AS r JOIN pg_depend AS d
        ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
        WHERE r.ev_class = v.oid AND (
            d.refclassid <> 'pg_class'::regclass OR d.refobjid <> v.oid
            AND d.refobjid NOT IN (SELECT to_regclass(name) FROM unnest($2::text[]) AS name))
       ) AS others
FROM (SELECT) AS one LEFT JOIN pg_class AS v ON v.oid = to_regclass($1::text)
"""


def _check_relations(session: Session, tables: BucketTables) -> Check:
    """Look at what the relations are, reading the server's catalogs alone."""
    view, *others = tables.relations
    found = fetch_one(session, _RELATIONS, view, others)
    return Check(
        "QIT and SAT are tables, the view reads them alone",
        "0 other objects in the view",
        f"{'as' if found['kinds'] else 'not as'} published, {found['others']} other objects",
        holds=found["kinds"] and found["others"] == 0,
    )


@dataclass(frozen=True)
class _Buckets:
    """What one table says of the buckets."""

    records: int
    buckets: int
    differing: int


def _count_buckets(
    session: Session, tables: BucketTables, table: str, count: str
) -> tuple[_Buckets, dict[int, int]]:
    """Count a table's buckets, and those by size.

    QIT and SAT agree on every bucket when both have the numbers 1 … n_buckets with the sizes that
    follow from them: compared through the numbers, the tables need no join.
    """
    bucket_id = tables.bucket_id
    rows = session.fetch(
        "SELECT size::int8, count(*) AS buckets, count(*) FILTER (WHERE"
        f" (bucket_id BETWEEN 1 AND {tables.n_buckets}"
        f" AND size = {tables.size('bucket_id')}) IS NOT TRUE) AS differing"
        f" FROM (SELECT {bucket_id} AS bucket_id, sum({count}) AS size"
        f" FROM {table} GROUP BY {bucket_id}) AS b GROUP BY size ORDER BY size"
    )
    sizes = {int(row["size"] or 0): int(row["buckets"]) for row in rows}
    return _Buckets(
        records=sum(size * n for size, n in sizes.items()),
        buckets=sum(sizes.values()),
        differing=sum(int(row["differing"]) for row in rows),
    ), sizes


def _compare_vectors(session: Session, tables: BucketTables) -> tuple[int, int]:
    """Count the SAT rows that repeat another's bucket and value, and the vectors' differences.

    Each vector is compared with the one that the SAT's rows of its value make.
    """
    sources = [
        (
            f"SELECT {tables.sensitive} AS value, NULL::bytea AS counts,"
            f" int8send(({tables.bucket_id}::int8 << 32) | {tables.count}) AS pair"
            f" FROM {tables.sat}"
        )
    ]
    if tables.count_width:
        sources.append(f"SELECT {tables.sensitive}, {tables.counts}, NULL FROM {tables.vec}")
    rows = session.fetch(
        "SELECT string_agg(counts, ''::bytea) AS counts, string_agg(pair, ''::bytea) AS pairs"
        f" FROM ({' UNION ALL '.join(sources)}) AS s GROUP BY value"
    )
    repeated = differing = 0
    for row in rows:
        pairs = np.frombuffer(row["pairs"] or b"", dtype=_PAIR)
        pairs = pairs[(pairs["bucket"] >= 0) & (pairs["bucket"] <= tables.n_buckets)]
        rows_of_bucket = np.bincount(pairs["bucket"], minlength=tables.n_buckets + 1)
        repeated += int((rows_of_bucket > 1).sum())
        if tables.count_width:
            expected = np.zeros(tables.n_buckets + 1, dtype=f">u{tables.count_width}")
            expected[pairs["bucket"]] = pairs["count"]
            found = np.frombuffer(row["counts"] or b"", dtype=expected.dtype)
            same_shape = found.shape == expected.shape
            differing += int((found != expected).sum()) if same_shape else expected.size
    return repeated, differing


_PAIR = np.dtype([("bucket", ">i4"), ("count", ">i4")])


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
        "  SELECT j.label, j.is_null, j.buckets, j.count, j.count / j.size AS frequency,"
        "  j.count * $4::int8 > j.size AS not_diverse,"
        f"  CASE {' '.join(above)} END AS above, CASE {' '.join(ratio)} END AS ratio"
        "  FROM judged AS j LEFT JOIN own AS o ON o.label = j.label)"
        " SELECT coalesce(sum(buckets) FILTER (WHERE above), 0)::int8 AS above,"
        " coalesce(sum(buckets) FILTER (WHERE not_diverse), 0)::int8 AS not_diverse,"
        " coalesce(sum(buckets) FILTER (WHERE count IS NULL OR count < 1), 0)::int8 AS uncounted,"
        " coalesce(max(ratio), 0)::float8 AS ratio,"
        " coalesce(max(frequency), 0)::float8 AS frequency,"
        " (count(DISTINCT label) + (count(*) FILTER (WHERE is_null) > 0)::int4)::int8 AS values"
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
