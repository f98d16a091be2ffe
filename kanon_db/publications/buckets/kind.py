"""Publishing a bucketization [GB]: QIT, SAT and their weighted view."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.anatomy import anatomy
from kanon_db.algorithms.bucketization.multi_size import multi_size
from kanon_db.algorithms.bucketization.optimal import optimal
from kanon_db.algorithms.bucketization.random_assignment import assign_randomly
from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.bucketization.specification import PrivacySpecification, check_eligible
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.catalog.entries import record_publication
from kanon_db.catalog.sources import open_source
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.buckets.bitmaps import write_bitmaps
from kanon_db.publications.buckets.examine import examine_buckets
from kanon_db.publications.buckets.tables import SUFFIXES, BucketTables, first_bucket_ids, layout_of
from kanon_db.publications.options import MAX_TIME_LIMIT, number_option, parse_options
from kanon_db.publications.pipeline import (
    Published,
    check_choice,
    check_readers,
    grant_select,
    require_checks,
    reserve_name,
    warn_of_other_publications,
)
from kanon_db.randomness import SecureRandom
from kanon_db.session.protocol import Session
from kanon_db.transfer.columns import (
    ColumnType,
    check_comparable,
    int4_bytes,
    inverse_permutation,
    with_numbers,
)
from kanon_db.transfer.snapshot import (
    DistinctValues,
    Snapshot,
    distinct_values,
    read_codes,
    take_snapshot,
)

METHODS: Final = ("anatomy", "two_size", "multi_size", "optimal")
OPTIONS: Final = {"optimal": ("time_limit",)}
ASSIGNMENTS: Final = ("random", "local")


@dataclass(frozen=True)
class _Plan:
    """A bucket setting, how often a value may stand in a bucket, and what that guarantees.

    ``proof`` holds the metrics that tell how far from the optimum it can be.
    """

    setting: BucketSetting
    limits: IntArray
    guarantee: str
    l: int | None = None
    proof: dict[str, float] = field(default_factory=dict)


def publish_buckets(
    session: Session,
    source: str,
    name: str,
    *,
    privacy: str,
    method: str = "two_size",
    max_bucket_size: int = 50,
    assignment: str = "random",
    options: str | None = None,
    readers: Sequence[str] | None = None,
    replace: bool = False,
) -> Published:
    """Publish a source as QIT, SAT and their weighted view, verified before it is visible.

    Parameters
    ----------
    session : Session
        In a transaction of the publishing role, which needs SELECT on the source.
    source : str
        A registered relation with a sensitive attribute, as SQL text.
    name : str
        The publication: view ``<name>``, tables ``<name>_qit`` and ``<name>_sat``.
    privacy : str
        JSON: ``{"theta", "base"}``, ``{"l"}``, ``{"default", "values", "null"}``; see
        :meth:`PrivacySpecification.parse`.
    method : {"two_size", "anatomy", "multi_size", "optimal"}
        How many buckets of which size: the least loss with two sizes, Anatomy's, less loss with
        more sizes, or the least loss of all.
    max_bucket_size : int
        M', the largest size of a bucket; Anatomy knows its own.
    assignment : {"random", "local"}
        Draw records into buckets at random, or gather records with similar quasi-identifiers:
        buckets of sizes of its own, under the same thresholds; `method` then plays no part. What
        that changes for an attacker is measured in ``docs/local-buckets.md``.
    options : str, optional
        JSON: ``time_limit`` in seconds, of the method optimal (60).
    readers : sequence of str, optional
        Roles that may read the publication; ``kanon_analyst`` by default.
    replace : bool
        Replace a publication of this name in the same transaction.

    Returns
    -------
    Published

    Raises
    ------
    IneligibleError
        When no bucketization at all can keep the bounds ([GB] Lemma 1).
    InfeasibleError
        When none exists within `max_bucket_size`.
    KanonError
        For everything else that is refused; the transaction must then be rolled back.

    Notes
    -----
    **Source:** [GB] sections 3 to 5. The setting is found from the values' counts alone, so its
    cost does not grow with the table. Within a value, records come in random order; the values go
    round robin over the buckets of a size (RRA, Lemma 2). Bucket numbers are a random permutation
    within their size, and the rows of the QIT come in a random order of their own, all drawn from
    the operating system's cryptographic source.
    """
    started = time.perf_counter()
    check_choice("method", method, METHODS)
    check_choice("assignment", assignment, ASSIGNMENTS)
    if assignment == "local" and method == "anatomy":
        raise InvalidParameterError(
            "the assignment local makes buckets of its own sizes, Anatomy's are given",
            hint='leave out the method: {"l": …} holds for local buckets, too',
        )
    chosen = parse_options(options, OPTIONS.get(method, ()))
    specification = PrivacySpecification.parse(privacy)
    registered, types = open_source(session, source)
    relation = registered.relation
    if registered.sensitive is None:
        raise InvalidParameterError(
            "buckets need a sensitive attribute",
            detail=f"{relation} was registered without one",
            hint="register it again with sensitive => …",
        )
    schema = reserve_name(session, name, SUFFIXES, replace=replace)
    roles = check_readers(session, readers, schema)
    random = SecureRandom()

    columns = [*registered.quasi_identifiers, registered.sensitive]
    snapshot = take_snapshot(session, relation, columns)
    check_comparable(session, relation, columns)
    values = distinct_values(snapshot, types[registered.sensitive])
    codes = read_codes(snapshot, [values])[:, 0]
    if assignment == "local":
        others = [types[column] for column in registered.quasi_identifiers]
        plan, slots = _gather(
            session, snapshot, specification, values, codes, others, max_bucket_size, random
        )
    else:
        session.step("searching the bucket setting")
        plan = _find_setting(session, method, specification, values, max_bucket_size, chosen)
        session.step("assigning records to buckets")
        slots = assign_randomly(codes, values.counts, plan.limits, plan.setting, random)
    bucket_ids = _number_buckets(plan.setting, random)[slots]
    del slots

    layout = layout_of(registered, plan.setting)
    tables = BucketTables.of(session, schema, name, layout)
    # Drawn afresh: in the order of the assignment, records of one value follow each other.
    order = random.permutation(snapshot.n_records)
    _write_qit(tables, snapshot, bucket_ids, order)
    _write_sat(tables, snapshot, values, codes, bucket_ids)
    _write_view(tables, session)
    layout["with_bitmaps"] = write_bitmaps(
        tables,
        snapshot,
        values,
        registered.quasi_identifiers,
        registered.sensitive,
        codes,
        bucket_ids,
        plan.setting,
        order,
    )
    tables = BucketTables.of(session, schema, name, layout)
    snapshot.drop()
    values.drop()
    grant_select(session, tables.relations, roles)
    session.step("gathering statistics")
    session.fetch(f"ANALYZE {tables.qit}, {tables.sat}")

    session.step("verifying")
    parameters = {
        "privacy": json.loads(privacy, parse_float=str),  # as text: never through a double
        "max_bucket_size": max_bucket_size,
        "assignment": assignment,
        "readers": list(roles),
        **({} if plan.l is None else {"l": plan.l}),
        **({"options": chosen} if chosen else {}),
    }
    examined = examine_buckets(
        session, tables, parameters, records=snapshot.n_records, all_bitmaps=False
    )
    require_checks(examined.checks)
    warn_of_other_publications(session, relation, roles)
    metrics = {**examined.metrics, **plan.proof}
    publication_id = record_publication(
        session,
        name=name,
        kind="buckets",
        method="local" if assignment == "local" else method,
        source=registered,
        parameters=parameters,
        layout=layout,
        records=snapshot.n_records,
        guarantee=plan.guarantee,
        metrics=metrics,
        relations=[name + suffix for suffix in SUFFIXES],
    )
    return Published(
        publication_id=publication_id,
        name=name,
        guarantee=plan.guarantee,
        records=snapshot.n_records,
        metrics=metrics,
        seconds=time.perf_counter() - started,
    )


def _find_setting(
    session: Session,
    method: str,
    specification: PrivacySpecification,
    values: DistinctValues,
    max_bucket_size: int,
    options: Mapping[str, Any],
) -> _Plan:
    check_eligible(specification, values.labels, values.counts)
    privacy = specification.thresholds(values.labels, values.counts)
    if method == "anatomy":
        l = privacy.corresponding_l()
        setting = anatomy(values.counts, l)
        return _Plan(
            setting=setting,
            limits=np.ones((len(values.counts), len(setting.sizes)), dtype=np.int64),
            guarantee=f"{l}-diversity: no person's sensitive value can be inferred with a"
            f" probability above 1/{l}",
            l=l,
        )
    proof = {}
    if method == "optimal":
        found = optimal(
            values.counts,
            privacy,
            max_bucket_size,
            pulse=Pulse(
                number_option(options, "time_limit", 60.0, above=0.0, most=MAX_TIME_LIMIT),
                session.heartbeat,
            ),
        )
        setting, proof = found.setting, {"gap": found.proof.gap}
        if found.proof.status != "optimal":
            session.warn(
                "time ran out: the bucket setting is not proven optimal, its loss may be up to"
                f" {found.proof.gap:.2%} above the optimum"
            )
    else:
        search = two_size if method == "two_size" else multi_size
        setting = search(
            values.counts, privacy, max_bucket_size, pulse=Pulse(heartbeat=session.heartbeat)
        )
    return _Plan(
        setting=setting,
        limits=privacy.occurrence_limits(setting.sizes),
        guarantee=_guarantee(specification),
        proof=proof,
    )


def _gather(
    session: Session,
    snapshot: Snapshot,
    specification: PrivacySpecification,
    values: DistinctValues,
    codes: CodeArray,
    quasi_identifiers: Sequence[ColumnType],
    max_bucket_size: int,
    random: SecureRandom,
) -> tuple[_Plan, CodeArray]:
    """Put records with similar quasi-identifiers into the same bucket."""
    from kanon_db.algorithms.bucketization.local_assignment import assign_locally  # a compiler

    check_eligible(specification, values.labels, values.counts)
    privacy = specification.thresholds(values.labels, values.counts)
    columns = [distinct_values(snapshot, column) for column in quasi_identifiers]
    qi_codes = read_codes(snapshot, columns)
    for column in columns:
        column.drop()
    session.step("gathering similar records")
    found = assign_locally(
        qi_codes, codes, privacy, max_bucket_size, random,
        pulse=Pulse(heartbeat=session.heartbeat),
    )  # fmt: skip
    plan = _Plan(
        setting=found.setting,
        limits=privacy.occurrence_limits(found.setting.sizes),
        guarantee=_guarantee(specification),
    )
    return plan, found.bucket_of_record


def _guarantee(specification: PrivacySpecification) -> str:
    return (
        "F'-privacy: no person's sensitive value can be inferred with a probability above the"
        f" threshold of that value ({specification.describe()})"
    )


def _number_buckets(setting: BucketSetting, random: SecureRandom) -> CodeArray:
    """Return the published number of each bucket: random within its size."""
    return np.concatenate(
        [
            np.int32(first) + random.permutation(n_buckets).astype(np.int32)
            for first, n_buckets in zip(
                first_bucket_ids(setting), setting.counts.tolist(), strict=True
            )
        ]
    )


def _write_qit(
    tables: BucketTables,
    snapshot: Snapshot,
    bucket_ids: CodeArray,
    order: AnyIntArray,
) -> None:
    """Write the quasi-identifiers with their bucket, in the order given."""
    session = snapshot.session
    session.step("writing the quasi-identifier table")
    names = ", ".join(f"s.{name}" for name in tables.quasi_identifiers)
    index = f"r.{snapshot.record}"
    numbered, (bucket_id, place) = with_numbers(session, snapshot.table, (1, index), (2, index))
    session.fetch(
        f"CREATE TABLE {tables.qit} AS SELECT {names}, s.{bucket_id} AS {tables.bucket_id}"
        f" FROM {numbered} AS s ORDER BY s.{place}",
        int4_bytes(bucket_ids),
        int4_bytes(inverse_permutation(order)),
    )


def _write_sat(
    tables: BucketTables,
    snapshot: Snapshot,
    values: DistinctValues,
    codes: CodeArray,
    bucket_ids: CodeArray,
) -> None:
    """Write how often each sensitive value stands in each bucket, by value and bucket.

    Whatever order the join makes of that, it knows nothing of the records' order.
    """
    session = snapshot.session
    session.step("writing the sensitive table")
    pairs = codes.astype(np.int64)
    pairs <<= 32
    pairs |= bucket_ids
    pairs.sort()  # in place: np.unique would hold several copies
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    counts = np.diff(starts, append=pairs.size)
    numbered, (code, bucket_id, count) = with_numbers(
        session,
        "(SELECT generate_series(0, $3::int4 - 1) AS i)",
        (1, "2 * r.i"),
        (1, "2 * r.i + 1"),
        (2, "r.i"),
    )
    session.fetch(
        f"CREATE TABLE {tables.sat} AS SELECT b.{bucket_id} AS {tables.bucket_id},"
        f" v.value AS {tables.sensitive}, b.{count} AS {tables.count}"
        f" FROM {numbered} AS b JOIN {values.table} AS v ON v.code = b.{code}",
        pairs[starts].astype(">i8").tobytes(),  # each value's code, then its bucket
        int4_bytes(counts),
        str(starts.size),
    )


def _write_view(tables: BucketTables, session: Session) -> None:
    """Join QIT and SAT, weighting each possible value by its share of the bucket."""
    names = ", ".join(f"q.{column}" for column in tables.quasi_identifiers)
    session.fetch(
        f"CREATE VIEW {tables.view} AS SELECT {names}, s.{tables.sensitive},"
        f" s.{tables.count}::float8 / {tables.size(f's.{tables.bucket_id}')} AS {tables.weight}"
        f" FROM {tables.qit} AS q JOIN {tables.sat} AS s"
        f" ON s.{tables.bucket_id} = q.{tables.bucket_id}"
    )
