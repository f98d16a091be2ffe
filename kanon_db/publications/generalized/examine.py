"""Verifying and measuring a generalized publication, using only its view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kanon_db.catalog.entries import Publication
from kanon_db.counting.layout import RowView
from kanon_db.publications.exposure import check_exposure, measure_exposure, report_unbounded
from kanon_db.publications.generalized.constraints import ClassConstraints
from kanon_db.publications.results import Check, Examination
from kanon_db.publications.rows.class_sizes import ClassSizes
from kanon_db.session import Row, Session, fetch_one

_ROUNDING = 1e-9  # allowed in an entropy, for its logarithms


def examine_generalized(
    session: Session, view: RowView, publication: Publication, counted: ClassSizes
) -> Examination:
    """Check what a generalized publication promises, and measure it.

    Whether each original value lies within its cell, and of how many entities the rows are, was
    checked when publishing, since that needs the originals.

    Parameters
    ----------
    session : Session
        The session of any role that may read the publication.
    view : RowView
    publication : Publication
        Its entry in the catalog, with what the publisher asked for.
    counted : ClassSizes

    Returns
    -------
    Examination
        Metrics: ``records``, ``suppressed_records``, ``classes`` (rows with the same cells),
        ``average_class_size``, ``smallest_class``, ``largest_class``, and ``discernibility_loss``:
        the sum of the squared class sizes, plus the number of all records for each suppressed one.
    """
    sizes, parameters, records = counted.sizes, publication.parameters, publication.records
    k, suppressed = int(parameters["k"]), publication.left_out
    n_rows, n_classes = int(sizes.sum()), sizes.size
    smallest, below = int(sizes.min(initial=n_rows)), int((sizes < k).sum())
    checks = [
        Check(
            "every record is published once, or suppressed",
            f"{records} records, {suppressed} suppressed",
            f"{n_rows} published",
            holds=n_rows + suppressed == records,
        ),
        Check(
            "k-anonymity: every combination of cells occurs k times",
            f"k = {k}, 0 combinations below",
            f"{below} below, the rarest occurs {smallest} times",
            holds=below == 0,
        ),
    ]
    if parameters.get("constraints") is not None:
        constraints = ClassConstraints.parse(parameters["constraints"])
        if parameters.get("counts_entities"):  # thresholds are for shares of them, not of rows
            constraints = replace(constraints, privacy=None)
        sensitive = str(publication.layout["sensitive"])
        checks += _check_constraints(session, view, constraints, sensitive)
    metrics = {
        "records": n_rows,
        "suppressed_records": suppressed,
        "classes": n_classes,
        "average_class_size": n_rows / n_classes if n_classes else 0.0,
        "smallest_class": smallest,
        "largest_class": int(sizes.max(initial=0)),
        "discernibility_loss": float((sizes.astype(float) ** 2).sum())
        + float(suppressed) * records,
    }
    return Examination(checks, metrics)


def measure_thresholds(
    session: Session, view: RowView, constraints: ClassConstraints, sensitive: str
) -> Row | None:
    """Compare the frequencies in each class with the thresholds; None where there are none.

    See :func:`~kanon_db.publications.exposure.measure_exposure`.
    """
    if constraints.privacy is None:
        return None
    return measure_exposure(
        session,
        constraints.privacy,
        "SELECT value, n::numeric AS count, size::numeric AS size, count(*) AS buckets"
        f" FROM ({_counted(session, view, sensitive)}) AS c GROUP BY 1, 2, 3",
    )


def _counted(session: Session, view: RowView, sensitive: str) -> str:
    """Write how often each value occurs in each class."""
    cells, value = ", ".join(view.quasi_identifiers), session.identifier(sensitive)
    return (
        f"SELECT dense_rank() OVER (ORDER BY {cells}) AS class, {value} AS value,"
        f" count(*) AS n, sum(count(*)) OVER (PARTITION BY {cells}) AS size"
        f" FROM {view.view} GROUP BY {cells}, {value}"
    )


def _check_constraints(
    session: Session, view: RowView, constraints: ClassConstraints, sensitive: str
) -> list[Check]:
    counted = _counted(session, view, sensitive)
    checks = []
    if constraints.l is not None:
        row = fetch_one(
            session,
            f"SELECT count(*) FILTER (WHERE l < $1::int8) AS below, min(l) AS least FROM"
            f" (SELECT count(*) AS l FROM ({counted}) AS c GROUP BY class) AS d",
            str(constraints.l),
        )
        checks.append(_check("distinct l-diversity", "l", constraints.l, row, "least"))
    if constraints.entropy_l is not None:
        row = fetch_one(
            session,
            "SELECT count(*) FILTER (WHERE h < ln($1::float8) - $2::float8) AS below,"
            " exp(min(h)) AS least FROM (SELECT -sum(n / size * ln((n / size)::float8)) AS h"
            f" FROM ({counted}) AS c GROUP BY class) AS d",
            str(float(constraints.entropy_l)),
            str(_ROUNDING),
        )
        checks.append(
            _check("entropy l-diversity", "l", float(constraints.entropy_l), row, "least")
        )
    if constraints.t is not None:
        checks.append(_check_closeness(session, view, constraints, sensitive))
    exposure = measure_thresholds(session, view, constraints, sensitive)
    if exposure is not None:
        checks += [check_exposure("class", exposure), report_unbounded(exposure)]
    return [*checks, _UNINFORMED]


_UNINFORMED: Final = Check(
    "constraints bound inferences by readers who do not know how classes were formed",
    "classes depend on sensitive values",
    "not measured",
    holds=True,
)


def _check_closeness(
    session: Session, view: RowView, constraints: ClassConstraints, sensitive: str
) -> Check:
    """Compare the distribution in each class with that in the whole view, exactly.

    If a value occurs in n of the s records of a class, and in N of all S records, the distances are
    sums of |n S - N s|, or of the absolute values of its running totals, divided by s S.
    """
    assert constraints.t is not None  # noqa: S101  # for the type checker
    cells, value = ", ".join(view.quasi_identifiers), session.identifier(sensitive)
    distance = "abs(d)" if constraints.distance == "equal" else "abs(running)"
    # The equal distance is half of the sum; the ordered one divides by its v - 1 steps.
    scale = "2" if constraints.distance == "equal" else "greatest(v - 1, 1)"
    row = fetch_one(
        session,
        f"WITH records AS (SELECT dense_rank() OVER (ORDER BY {cells}) AS class,"
        f" dense_rank() OVER (ORDER BY {value}) AS position FROM {view.view}),"
        " total AS (SELECT position, count(*)::numeric AS n, sum(count(*)) OVER () AS whole,"
        "  count(*) OVER () AS v FROM records GROUP BY position),"
        " sizes AS (SELECT class, count(*)::numeric AS size FROM records GROUP BY class),"
        " counted AS (SELECT class, position, count(*)::numeric AS n FROM records GROUP BY 1, 2),"
        " pairs AS (SELECT s.class, s.size, t.position, t.whole, t.v,"
        "  coalesce(c.n, 0) * t.whole - t.n * s.size AS d FROM sizes AS s CROSS JOIN total AS t"
        "  LEFT JOIN counted AS c ON c.class = s.class AND c.position = t.position),"
        " sums AS (SELECT *, sum(d) OVER (PARTITION BY class ORDER BY position) AS running"
        "  FROM pairs),"
        f" judged AS (SELECT sum({distance}) AS moved, size * whole * {scale} AS most FROM sums"
        "  GROUP BY class, size, whole, v)"
        " SELECT count(*) FILTER (WHERE moved * $2::numeric > most * $1::numeric) AS below,"
        " max((moved / most)::float8) AS least FROM judged",
        str(constraints.t.numerator),
        str(constraints.t.denominator),
    )
    return _check(
        f"t-closeness ({constraints.distance} distance)", "t", float(constraints.t), row, "greatest"
    )


def _check(name: str, symbol: str, bound: float, row: Mapping[str, Any], extreme: str) -> Check:
    measured = "none" if row["least"] is None else f"{row['least']:.6g}"
    return Check(
        f"{name} of every class",
        f"{symbol} = {bound:g}, 0 classes violate it",
        f"{row['below']} violate it, {extreme} {measured}",
        holds=row["below"] == 0,
    )
