"""Verifies, measures and attacks a publication of any kind, and checks any relation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from fractions import Fraction
from itertools import pairwise
from math import inf
from typing import Final, Protocol

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.catalog.entries import (
    Publication,
    changed,
    find_publication,
    published_schema,
    record_attacks,
    require_harmless,
    require_publisher,
    require_whole,
)
from kanon_db.catalog.sources import open_source_of, require_readable
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import unknown
from kanon_db.errors import InfeasibleError, InvalidParameterError, SchemaMismatchError
from kanon_db.publications.draws import check_draws
from kanon_db.publications.kind import AttackTarget, Workload
from kanon_db.publications.publish_request import COMBINED, RISKS
from kanon_db.publications.registry import kind_named
from kanon_db.publications.results import (
    Attack,
    Check,
    CountAccuracy,
    Examination,
    Metric,
    Remark,
)
from kanon_db.session import Session, fetch_one
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.columns import ColumnType, column_types, find_relation, label
from kanon_db.transfer.snapshot import all_rows


def verify(session: Session, name: str) -> list[Check]:
    """Check a publication, using only its published relations."""
    session.phase("verifying")
    publication = find_publication(session, name)
    if not publication.is_whole:
        return [
            Check(
                "the published relations are there, and belong to kanon_owner",
                "all of them",
                "some are missing, or belong to others",
                holds=False,
            )
        ]
    examined = _examine(session, publication)
    # Whatever has taken the place of a published relation is not read.
    drawn = check_draws(session, publication) if examined.metrics else []
    return [*examined.checks, *drawn, *accepted_checks(publication)]


def accepted_checks(publication: Publication) -> list[Check]:
    """Say which risks were accepted, and why."""
    if not isinstance(publication.parameters.get("accept", {}), dict):
        return [Check("accepted risks are recorded", "an object", "none", holds=False)]
    return [
        Remark(f"accepted risk: {risk}", RISKS.get(risk, ""), f"because: {why}")
        for risk, why in accepted_reasons(publication)
    ]


def accepted_reasons(publication: Publication) -> list[tuple[str, str]]:
    """Return the accepted risks with their reasons, and which releases who can set beside it."""
    accepted = publication.parameters.get("accept") or {}
    also = [
        f"{', '.join(one['readers'])} could also read {one['name']}"
        for one in publication.parameters.get("combined_with", ())
    ]
    return [
        (risk, "; ".join([str(reason), *(also if risk == COMBINED else ())]))
        for risk, reason in accepted.items()
    ]


def metrics(session: Session, name: str) -> list[Metric]:
    """Measure a publication from its published relations.

    Metrics that need the source are repeated as they were measured when publishing.
    """
    session.phase("measuring")
    publication = find_publication(session, name)
    measured = _examine(session, publication).metrics if publication.is_whole else {}
    if not measured:
        raise changed(publication)
    found = {**measured, **publication.metrics, **measured}
    return [Metric(name, value) for name, value in found.items()]


def _examine(session: Session, publication: Publication) -> Examination:
    return kind_named(publication.kind).load().examine(session, publication)


class AttackSession(Protocol):
    """Hears of the steps of an attack; implemented by sessions."""

    def step(self, name: str) -> None:
        """Hear what is done next."""

    def tell(self, message: str) -> None:
        """Hear what is worth knowing."""


def attack(session: Session, name: str) -> list[Attack]:
    """Play known attacks against a publication, and keep what they achieve.

    Guesses are made from the published relations; the source scores them, and teaches the one
    attacker who knows its correlations.

    Only the publishing role may do this, and everything runs with its rights.
    """
    session.plan(["verifying", "attacking"])
    target = open_target(session, name)
    session.phase("attacking")
    found = list(kind_named(target.publication.kind).load().attack(target))
    record_attacks(session, name, [asdict(line) for line in found])
    return found


def open_target(session: Session, name: str) -> AttackTarget:
    """Open a publication with its source, for the role that published it."""
    publication = find_publication(session, name)
    # Not a superuser either: a source may be a view, which runs code.
    require_publisher(
        session, name, "play attacks against it", "ask this role to play them", or_superuser=False
    )
    require_whole(publication)
    kind = kind_named(publication.kind).load()
    target = _with_source(session, publication)
    session.phase("verifying")
    # Whatever has taken the place of a published relation is not read.
    if not all(check.holds for check in kind.examine(session, publication, is_new=True).checks):
        raise changed(publication)
    return target


def _with_source(session: Session, publication: Publication) -> AttackTarget:
    source, types = open_source_of(session, publication.name)
    return AttackTarget(
        session, publication, source, types, published_schema(session), Allowance.of(session)
    )


EVALUATING: Final = (
    "reading the source", "drawing the queries", "counting in the source",
    "estimating from the publication",
)  # fmt: skip


def evaluate_counts(
    session: Session,  # the session of a role that may read both
    name: str,  # the publication
    *,
    queries: int = 1000,  # how many queries, up to 100,000
    dimensionality: Sequence[int] | None = None,
    selectivity: Sequence[float] | None = None,
    seed: int | None = None,
) -> list[CountAccuracy]:
    """Answer random count queries from a bucketization and from its source, and compare them."""
    publication = find_publication(session, name)
    declared = kind_named(publication.kind)
    if declared.shape != "buckets":
        raise InvalidParameterError(
            "only buckets can be evaluated with count queries",
            detail=f'publication "{name}" is of the kind {publication.kind}',
        )
    require_whole(publication)
    session.plan(EVALUATING)
    target = _with_source(session, publication)
    workload = Workload.of(queries, dimensionality, selectivity, seed)
    return list(declared.load().evaluate(target, workload))


# -- any relation ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RelationMeasure:
    """A figure of a relation, and how many of its classes lie beyond the bound."""

    measure: str
    value: float | None
    bound: float | None = None  # As the caller gave it
    classes: int | None = None  # Those that violate the bound; or those of the sizes it names
    records: int | None = None  # Their records, or people
    holds: bool | None = None  # None without a bound


_SIZES: Final = (1, 2, 3, 5, 10, 20, 50, 100)
"""The least sizes of the classes that are counted together."""

_AT_ONCE: Final = 50_000

_KEY: Final = "kanon_class"
_VALUE: Final = "kanon_value"
_ENTITY: Final = "kanon_entity"
_WEIGHT: Final = "kanon_weight"


def check_relation(
    session: Session,  # of a role that may read the columns; everything runs with its rights
    relation: str,
    *,
    quasi_identifiers: Sequence[str],
    sensitive: Sequence[str] = (),
    entity: str | None = None,
    survey_weight: str | None = None,
    k: int | None = None,
    l: int | None = None,
    t: Fraction | None = None,
) -> list[RelationMeasure]:
    """Measure how well a relation protects, as it stands, whoever made it.

    Cells are alike if their texts are: NULL and NULL, ``*`` and ``*``, but not a range and a number
    in it. Of the risks, those are measured that follow from the sizes of classes alone.

    Raises
    ------
    NotFoundError, PermissionDeniedError
        When there is no such relation, or the role may not read all rows of the columns.
    InvalidParameterError
        When a column does not exist or has two roles, or `l` or `t` has no sensitive column.
    InfeasibleError
        When the relation has no rows.

    Notes
    -----
    **Source:** l-diversity: Machanavajjhala et al. 2007; t-closeness, with equal distances between
    values: Li et al. 2007, Section 5.2; for risks, see :mod:`kanon_db.metrics.disclosure_risk`.
    """
    found, oid, _ = find_relation(session, relation)
    require_harmless(session, found, oid)
    types = column_types(session, oid)
    others = [name for name in (entity, survey_weight) if name is not None]
    named = [*quasi_identifiers, *sensitive, *others]
    _require_roles(types, quasi_identifiers, named)
    if (l is not None or t is not None) and not sensitive:
        raise InvalidParameterError(
            "l and t are about sensitive columns, and none is named",
            hint="name them: sensitive => '{...}'",
        )
    require_readable(session, found, oid, named)
    class_of = ", ".join(_text(session, types[name]) for name in quasi_identifiers)
    # The text of a row tells NULL from empty text, and where one cell ends and the next begins.
    read = [f'ROW({class_of})::text COLLATE pg_catalog."C" AS {_KEY}']
    if entity is not None:
        read.append(f"{_text(session, types[entity])} AS {_ENTITY}")
    if survey_weight is not None:
        weight = types[survey_weight].number(types[survey_weight].read(session))
        if weight is None or types[survey_weight].type_category != "N":
            raise SchemaMismatchError(
                "a survey weight must be a number",
                detail=f'column "{survey_weight}" has the type {types[survey_weight].type_name}',
            )
        read.append(f"{weight} AS {_WEIGHT}")
    size = "count(*)" if entity is None else f"count(DISTINCT {_ENTITY})"
    rows = f"FROM {found.rows(session)}"
    with all_rows(session, found, copies=False):
        session.phase("counting classes")
        measured = list(_sizes(session, f"SELECT {', '.join(read)} {rows}", size, entity, k,
                               is_weighted=survey_weight is not None))  # fmt: skip
        for name in sensitive:
            session.phase("counting the values of a sensitive column")
            value = f"{_text(session, types[name])} AS {_VALUE}"
            records = f"SELECT {', '.join([*read, value])} {rows}"
            measured += _diversity(session, records, size, name, l, t)
    return measured


def _require_roles(
    types: Iterable[str], quasi_identifiers: Sequence[str], named: Sequence[str]
) -> None:
    if not quasi_identifiers:
        raise InvalidParameterError(
            "there is no quasi-identifier",
            hint="name what others may know about a person: quasi_identifiers => '{...}'",
        )
    for name in named:
        if name not in types:
            raise unknown("column", name, list(types))
        if named.count(name) > 1:
            raise InvalidParameterError(
                "a column can have only one role", detail=f'column "{name}" is named twice'
            )


def _text(session: Session, column: ColumnType) -> str:
    """Write the text of a cell, which is compared byte by byte, whatever the collation."""
    return f'{label(column.read(session))} COLLATE pg_catalog."C"'


def _sizes(
    session: Session, records: str, size: str, entity: str | None, k: int | None, *,
    is_weighted: bool,
) -> Iterator[RelationMeasure]:  # fmt: skip
    """Measure what follows from the sizes of classes: k, uniqueness, and the risks."""
    from kanon_db.metrics.disclosure_risk import (  # numba, which verifying does without
        journalist_risk,
        marketer_risk,
        prosecutor_risk,
        uniqueness,
    )

    nobody = "false" if entity is None else f"{_ENTITY} IS NULL"
    weightless = "false"
    people = size
    if is_weighted:  # the people in the population, at least those in the table
        weightless = f"coalesce(NOT ({_WEIGHT} > 0 AND {_WEIGHT} < 'Infinity'), true)"
        people = f"greatest({size}, avg({_WEIGHT}) * {size})"
    row = fetch_one(
        session,
        f"WITH r AS ({records}) SELECT count(*) AS n, count(*) FILTER (WHERE {nobody}) AS nobody,"
        f" count(*) FILTER (WHERE {weightless}) AS weightless FROM r",
    )
    if not row["n"]:
        raise InfeasibleError("the relation has no rows")
    for n, what in ((row["nobody"], "an entity"), (row["weightless"], "a weight above 0")):
        if n:
            raise InvalidParameterError(
                f"some rows have not {what}", detail=f"{n:,} of {row['n']:,} rows"
            )
    triples = session.stream(
        _AT_ONCE,
        f"WITH r AS ({records}), c AS (SELECT ({size})::float8 AS size, ({people})::float8 AS"
        f" people FROM r GROUP BY {_KEY}) SELECT size, people, count(*) AS n FROM c GROUP BY 1, 2",
    )
    found = np.array([(row["size"], row["people"], row["n"]) for row in triples])
    sizes, population, times = found.T
    yield RelationMeasure("records" if entity is None else "people", float(sizes @ times))
    yield RelationMeasure("classes", float(times.sum()))
    below = sizes < (0 if k is None else k)
    yield _judged(
        "smallest class (k)", float(sizes.min()), k,
        int(times[below].sum()), int(sizes[below] @ times[below]),
    )  # fmt: skip
    alone = int(times[sizes == 1].sum())
    share = uniqueness(sizes, times=times)
    yield RelationMeasure("share of unique records", share, classes=alone, records=alone)
    risk = prosecutor_risk(sizes, k=k or 1, times=times)
    yield RelationMeasure("prosecutor risk, highest", risk.highest)
    yield RelationMeasure("prosecutor risk, average", risk.average)
    if is_weighted:
        risk = journalist_risk(sizes, population, k=k or 1, times=times)
        yield RelationMeasure("journalist risk, highest, by weights", risk.highest)
        yield RelationMeasure("journalist risk, average, by weights", risk.average)
        marketer = marketer_risk(sizes, population, times=times)
        yield RelationMeasure("marketer risk, by weights", marketer)
    else:
        yield RelationMeasure("marketer risk", marketer_risk(sizes, times=times))
    yield from _histogram(sizes, times)


def _histogram(sizes: FloatArray, times: FloatArray) -> Iterator[RelationMeasure]:
    for least, above in pairwise((*_SIZES, inf)):
        those = (sizes >= least) & (sizes < above)
        if not times[those].sum():
            continue
        if above == inf:
            name = f"classes of {least} or more"
        else:
            name = f"classes of {least}" + (f" to {above - 1:.0f}" if above > least + 1 else "")
        n = int(times[those].sum())
        yield RelationMeasure(name, None, classes=n, records=int(sizes[those] @ times[those]))


def _diversity(
    session: Session, records: str, size: str, name: str, l: int | None, t: Fraction | None
) -> list[RelationMeasure]:
    """Measure one sensitive column: distinct values, the most frequent one's share, closeness.

    If a value has n of the s records of a class, and N of all S records, the distance is half of
    the sum of |n / s - N / S|; values that the class has not add N / S each. Shares of the most
    frequent value are of people, where several records are about one.
    """
    session.step("comparing distributions")
    values = str(l), str((t or Fraction(0)).numerator), str((t or Fraction(1)).denominator)
    row = fetch_one(
        session,
        f"WITH r AS ({records}),"
        f" counted AS (SELECT {_KEY}, {_VALUE}, count(*)::numeric AS n, {size} AS people"
        f"  FROM r GROUP BY {_KEY}, {_VALUE}),"
        f" c AS (SELECT {_KEY}, count(*)::numeric AS s, {size} AS size FROM r GROUP BY {_KEY}),"
        f" v AS (SELECT *, sum(n) OVER (PARTITION BY {_VALUE}) AS total, sum(n) OVER () AS whole"
        "  FROM counted),"
        f" d AS (SELECT c.size, count({_VALUE}) AS l, max(people) AS most,"
        "  sum(abs(n * whole - total * s)) + s * (whole - sum(total)) AS moved,"
        f"  2 * s * whole AS greatest FROM v JOIN c USING ({_KEY})"
        f"  GROUP BY {_KEY}, c.size, s, whole),"
        " j AS (SELECT *, l < $1::int8 AS few, most * $1::int8 > size AS frequent,"
        "  moved * $3::numeric > greatest * $2::numeric AS far FROM d)"
        " SELECT min(l) AS l, min(size::float8 / most) AS frequency,"
        " max((moved / greatest)::float8) AS t,"
        + ", ".join(
            f"count(*) FILTER (WHERE {what}) AS {what}_classes,"
            f" coalesce(sum(size) FILTER (WHERE {what}), 0)::int8 AS {what}_records"
            for what in ("few", "frequent", "far")
        )
        + " FROM j",
        values[0] if l is not None else None,
        values[1],
        values[2],
    )
    return [
        _judged(measure, float(row[key]), bound, row[f"{what}_classes"], row[f"{what}_records"])
        for measure, key, bound, what in (
            (f"distinct values of {name} (l)", "l", l, "few"),
            (f"1 / share of the most frequent {name} (l)", "frequency", l, "frequent"),
            (f"distance of {name} (t)", "t", None if t is None else float(t), "far"),
        )
    ]


def _judged(
    measure: str, value: float, bound: float | None, classes: int, records: int
) -> RelationMeasure:
    if bound is None:
        return RelationMeasure(measure, value)
    return RelationMeasure(measure, value, bound, classes, records, holds=classes == 0)
