"""Verifying and measuring a generalized publication, using only its view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kanon_db.catalog.entries import Publication
from kanon_db.counting.layout import Quotes, RowView
from kanon_db.publications.exposure import check_exposure, measure_exposure, report_unbounded
from kanon_db.publications.generalized.constraints import ClassConstraints
from kanon_db.publications.results import Check, Examination
from kanon_db.publications.rows.class_sizes import ClassSizes
from kanon_db.publications.waiting import check_waiting
from kanon_db.session import Row, Session
from kanon_db.session.protocol import Fetching

_ROUNDING = 1e-9  # allowed in an entropy, for its logarithms


@dataclass(frozen=True)
class ValuesOfClasses:
    """Where the sensitive values of the rows of each class can be read, as SQL.

    Attributes
    ----------
    rows : str
        A relation with the published rows.
    cells : str
        Its columns by which classes are told apart, with commas between them.
    value : str
        Its column with the sensitive values.
    number : str
        What tells classes apart in one column.
    place : str
        The place of a value among all of them, in their order.
    """

    rows: str
    cells: str
    value: str
    number: str
    place: str

    @property
    def counted(self) -> str:
        """How often each value occurs in each class."""
        return (
            f"SELECT {self.number} AS class, {self.value} AS value, count(*) AS n,"
            f" sum(count(*)) OVER (PARTITION BY {self.cells}) AS size"
            f" FROM {self.rows} GROUP BY {self.cells}, {self.value}"
        )


def counted_classes(session: Quotes, view: RowView, sensitive: str) -> ValuesOfClasses:
    """Read the values of a view."""
    cells, value = ", ".join(view.quasi_identifiers), session.identifier(sensitive)
    return ValuesOfClasses(
        view.view, cells, value,
        f"dense_rank() OVER (ORDER BY {cells})", f"dense_rank() OVER (ORDER BY {value})",
    )  # fmt: skip


def examine_generalized(
    session: Session, view: RowView, publication: Publication, counted: ClassSizes
) -> Examination:
    """Check what a generalized publication promises, and measure it; see :func:`judge`."""
    constraints, found = published_constraints(publication), None
    if constraints is not None:
        if publication.parameters.get("counts_entities"):  # thresholds are for shares of them
            constraints = replace(constraints, privacy=None)
        values = counted_classes(session, view, str(publication.layout["sensitive"]))
        exposure = measure_thresholds(session, values, constraints)
        found = check_constraints(session, values, constraints, exposure)
    return judge(publication, counted, found or [])


def published_constraints(publication: Publication) -> ClassConstraints | None:
    """Read the constraints of a publication."""
    given = publication.parameters.get("constraints")
    return None if given is None else ClassConstraints.parse(given)


def judge(
    publication: Publication, counted: ClassSizes, of_constraints: Sequence[Check]
) -> Examination:
    """Check what a generalized publication promises, and measure it.

    Whether each original value lies within its cell, and of how many entities the rows are, was
    checked when publishing, since that needs the originals.

    Parameters
    ----------
    publication : Publication
        Its entry in the catalog, with what the publisher asked for.
    counted : ClassSizes
    of_constraints : sequence of Check

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
    if of_constraints:
        checks += [*of_constraints, check_waiting(parameters)]
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
    session: Session, values: ValuesOfClasses, constraints: ClassConstraints
) -> Row | None:
    """Compare the frequencies in each class with the thresholds; None where there are none.

    See :func:`~kanon_db.publications.exposure.measure_exposure`.
    """
    if constraints.privacy is None:
        return None
    return measure_exposure(session, constraints.privacy, profile_of(values))


def profile_of(values: ValuesOfClasses) -> str:
    """Write in how many classes of a size a value occurs how often."""
    return (
        "SELECT value, n::numeric AS count, size::numeric AS size, count(*) AS buckets"
        f" FROM ({values.counted}) AS c GROUP BY 1, 2, 3"
    )


def check_constraints(
    session: Fetching,
    values: ValuesOfClasses,
    constraints: ClassConstraints,
    exposure: Row | None,
) -> list[Check]:
    """Check the constraints in each class.

    Parameters
    ----------
    session : Fetching
    values : ValuesOfClasses
    constraints : ClassConstraints
    exposure : mapping or None
        As :func:`measure_thresholds` has found it.
    """
    counted, checks = values.counted, []
    if constraints.l is not None:
        (row,) = session.fetch(
            f"SELECT count(*) FILTER (WHERE l < $1::int8) AS below, min(l) AS least FROM"
            # NULL is no value, here and in the entropy.
            f" (SELECT count(value) AS l FROM ({counted}) AS c GROUP BY class) AS d",
            str(constraints.l),
        )
        checks.append(_check("distinct l-diversity", "l", constraints.l, row, "least"))
    if constraints.entropy_l is not None:
        (row,) = session.fetch(
            "SELECT count(*) FILTER (WHERE h < ln($1::float8) - $2::float8) AS below,"
            " exp(min(h)) AS least FROM (SELECT coalesce(-sum(CASE WHEN num_nulls(value) = 0 THEN"
            " n / known * ln((n / known)::float8) END), 0) AS h FROM (SELECT c.*, sum(CASE WHEN"
            " num_nulls(value) = 0 THEN n END) OVER (PARTITION BY class) AS known"
            f" FROM ({counted}) AS c) AS k GROUP BY class) AS d",
            str(float(constraints.entropy_l)),
            str(_ROUNDING),
        )
        checks.append(
            _check("entropy l-diversity", "l", float(constraints.entropy_l), row, "least")
        )
    if constraints.t is not None:
        checks.append(_check_closeness(session, values, constraints))
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
    session: Fetching, values: ValuesOfClasses, constraints: ClassConstraints
) -> Check:
    """Compare the distribution in each class with that in the whole view, exactly.

    If a value occurs in n of the s records of a class, and in N of all S records, the distances are
    sums of |n S - N s|, or of the absolute values of its running totals, divided by s S.
    """
    assert constraints.t is not None  # noqa: S101  # for the type checker
    distance = "abs(d)" if constraints.distance == "equal" else "abs(running)"
    # The equal distance is half of the sum; the ordered one divides by its v - 1 steps.
    scale = "2" if constraints.distance == "equal" else "greatest(v - 1, 1)"
    (row,) = session.fetch(
        f"WITH records AS (SELECT {values.number} AS class, {values.place} AS position"
        f" FROM {values.rows}),"
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
        " max(moved::float8 / most::float8) AS least FROM judged",
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
