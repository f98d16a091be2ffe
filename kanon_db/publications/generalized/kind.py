"""Publishes and verifies generalized rows [OB]: ranges and sets that at least k rows share.

Classes are found by a method, made to keep the constraints, refined, and some records are left out.
Verification uses the published view only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.attacks import Deductions
from kanon_db.algorithms.generalization import (
    enforce,
    one_of_each,
    prove_least_loss,
    recommend,
    refine,
    suppress,
)
from kanon_db.algorithms.generalization.optimal_classes import (
    MOST_RECORDS,
    best_partition,
    members_of_sets,
)
from kanon_db.algorithms.generalization.set_partition import MAX_RECORDS
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray
from kanon_db.algorithms.ground.computation import Proof, Pulse, n_cores
from kanon_db.algorithms.recoding import Constraint, Microdata, cells_of_classes, distinct_cells
from kanon_db.catalog.entries import Publication, Source
from kanon_db.catalog.sources import require_sensitive
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.information_loss import class_ncp, measure_classes
from kanon_db.publications.generalized import methods
from kanon_db.publications.generalized.class_constraints import (
    ClassConstraints,
    ConstraintsOfEach,
    bounds_guesses,
    constraint_of_each,
    mixed_in_words,
    say_constraints,
)
from kanon_db.publications.generalized.request import GeneralizedRequest
from kanon_db.publications.guarantees import (
    Guarantee,
    SensitiveCounts,
    check_exposure,
    classes_in_words,
    inferred_in_words,
    largest,
    measure_exposure,
    proof_of_published,
    report_unbounded,
    summed,
    threshold_of_1,
    times_of,
)
from kanon_db.publications.kind import (
    AttackTarget,
    Job,
    MethodResult,
    PublishedClasses,
    Written,
    bytes_of_texts,
    bytes_of_values,
    measure_bounds,
    run_method,
)
from kanon_db.publications.results import (
    WAITING_NOT_COVERED,
    Check,
    Examination,
    Remark,
    check_waiting,
)
from kanon_db.publications.rows.distinct_cells import CellTable, ClassSizes
from kanon_db.publications.rows.published_rows import AttackedRows, ValueBounds
from kanon_db.publications.rows.row_kind import (
    AT_ONCE,
    RecodedRows,
    RowKind,
    bytes_of_cells,
    bytes_of_shares,
    check_cells,
    loss_metrics,
    tight_attributes,
)
from kanon_db.publications.rows.row_relations import (
    RowsWithEntities,
    counted_parameters,
    settle_classes,
)
from kanon_db.query.layout import RECODED_SUFFIXES, Quotes, RowView
from kanon_db.session import Row, Session
from kanon_db.session.protocol import Fetching
from kanon_db.transfer.allowance import Needs
from kanon_db.transfer.coded_columns import CodedRecords
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.snapshot import Size
from kanon_db.transfer.values import DistinctValues, distinct_values, read_codes

_HEURISTICS: Final = (
    methods.split_carry, methods.greedy_search, methods.k_member, methods.mondrian,
    methods.initial,
)  # fmt: skip
"""What `optimal` starts from, too, where what it has found is not proven to be published best."""

_NEGLIGIBLE_GAP: Final = 1e-5  # Of millions of records, rounded losses prove no less


def find_classes(
    data: Microdata,
    request: GeneralizedRequest,
    constraint: Constraint | None,
    pulse: Pulse,
    *,
    method: str,
    search: Callable[[Microdata], MethodResult],  # Runs the method of this name
    # (n_records,): whom each record is about, if several can be about the same entity
    entities: AnyIntArray | None = None,
    workers: int = 1,  # Threads that refine
    on_step: Callable[[str], None],
) -> MethodResult:
    """Find classes, enforce the constraints, lower the loss, and leave records out.

    The classes are numbered from 0; that of a record that is left out is -1.
    """
    finishing = _Finishing(data, request, constraint, workers, on_step)
    on_step(f"searching classes: {method}")
    searched, place = data, None
    if entities is not None:
        searched, place = one_of_each(data, entities)
    found = search(searched)
    classes: IntArray = found.result if place is None else found.result[place]
    is_usual = request.options.loss == "ncp"  # Refining lowers no other
    if method != "optimal":
        classes = finishing.finished(classes, pulse, is_refined=request.refine and is_usual)
        return MethodResult(classes, None, method)
    # Classes that are optimal for some of the records need not be so for all of them.
    bound = found.proof if place is None else None
    best = finishing.finished(classes, pulse, is_refined=False)
    is_found = np.array_equal(best, classes)
    proof, least = finishing.proof(bound, best, is_found=is_found), finishing.loss(best)
    if proof is not None and proof.gap <= _NEGLIGIBLE_GAP:
        return MethodResult(best, proof, method)
    if data.n_records <= MOST_RECORDS and is_usual:
        return MethodResult(*finishing.best_of_all(pulse), method)
    starts = [classes]
    for heuristic in _HEURISTICS if data.n_records <= MAX_RECORDS else (methods.mondrian,):
        pulse.beat()
        start = heuristic(searched, request, pulse).result
        starts.append(start if place is None else start[place])
    for number, start in enumerate(starts):
        part = pulse.within(max(pulse.seconds_left, 0) / (len(starts) - number))
        # Refining lowers the loss of the search, which need not be that of what is published.
        for is_refined in (False, True) if request.refine else (False,):
            other = finishing.finished(start, part, is_refined=is_refined)
            if finishing.loss(other) < least:
                best, least, is_found = other, finishing.loss(other), False
    return MethodResult(best, finishing.proof(bound, best, is_found=is_found), method)


@dataclass(frozen=True, eq=False)
class _Finishing:
    """Changes that the classes of any method undergo before they are published."""

    data: Microdata
    request: GeneralizedRequest
    constraint: Constraint | None
    workers: int
    on_step: Callable[[str], None]

    def finished(self, classes: IntArray, pulse: Pulse, *, is_refined: bool) -> IntArray:
        """Enforce the constraints, lower the loss, and leave records out."""
        data, request, constraint = self.data, self.request, self.constraint
        if constraint is not None:
            self.on_step("enforcing the constraints")
            enforced = enforce(data, classes, request.k, constraint, pulse=pulse)
            classes = enforced.class_of_record
        if is_refined:
            self.on_step("refining the classes")
            classes = refine(
                data, classes, request.k, random=methods.new_random(), constraint=constraint,
                pulse=pulse, workers=self.workers,
            ).class_of_record  # fmt: skip
        if request.max_suppressed:
            self.on_step("suppressing records")
            classes = suppress(
                data, classes, request.k, request.max_suppressed, constraint=constraint,
                pulse=pulse,
            ).class_of_record  # fmt: skip
        return classes

    def best_of_all(self, pulse: Pulse) -> tuple[IntArray, Proof]:
        """Find the best of everything that may be published of a few records."""
        data, k = self.data, self.request.k
        records, sets = members_of_sets(data.n_records)
        sizes = np.bincount(sets, minlength=2**data.n_records)
        weights = np.array([attribute.weight for attribute in data.attributes])
        every = Microdata(data.codes[records], data.attributes)
        losses = class_ncp(every, sets)[0] @ weights * sizes
        if self.constraint is not None:
            holds = self.constraint.restricted_to(records).holds_for(sets - 1)
            losses[1:][~holds] = np.inf
        losses[sizes < k] = np.inf
        most = int(self.request.max_suppressed * data.n_records)
        classes, _ = best_partition(losses, float(weights.sum()), most, pulse=pulse)
        loss = Fraction(self.loss(classes))
        return classes, Proof(loss, loss)

    def loss(self, classes: IntArray) -> float:
        """Measure the loss of what is published, as the search does."""
        measured = measure_classes(self.data, classes)
        is_usual = self.request.options.loss == "ncp"
        return measured.weighted_loss if is_usual else measured.binary_loss

    def proof(self, bound: Proof | None, classes: IntArray, *, is_found: bool) -> Proof | None:
        """Compare what is published with a bound on the loss of all records, without constraints.

        None where more is allowed than classes of all records: then less may be lost.
        """
        if int(self.request.max_suppressed * self.data.n_records):
            return None
        return proof_of_published(bound, self.data, self.loss(classes), is_found=is_found)


@dataclass(frozen=True, kw_only=True)
class ClassGuarantee(Guarantee):
    """Classes have k rows, and keep the constraints on their sensitive values."""

    k: int
    of_people: bool  # Whether it is known whom each record is about
    constraints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # By attribute
    unbounded: float = largest()  # The share of the records whose value has a threshold of 1
    left_out: int = summed()

    @classmethod
    def of(
        cls,
        request: GeneralizedRequest,
        n_suppressed: int,
        constraints: Mapping[str, ClassConstraints],  # Those on each sensitive attribute
        # How frequencies compare with thresholds, for the attributes that have any
        exposures: Mapping[str, Row],
        warn: Callable[[str], None],  # Called with a text where they bound nothing
        *,
        with_entities: bool = False,  # Whether it is known whom each record is about
    ) -> ClassGuarantee:
        """Say what holds in each class, and for whom."""
        shares = [0.0]
        for name, exposure in exposures.items():
            if exposure["unbounded"]:
                shares.append(exposure["unbounded"] / exposure["records"])
                which = of_attribute(name, constraints)
                warn(f"the threshold is 1 for {shares[-1]:.1%} of the records{which}: no bound")
        return cls(
            k=request.k,
            of_people=with_entities,
            constraints={name: own.figures for name, own in constraints.items()},
            unbounded=max(shares),
            left_out=n_suppressed,
        )

    @property
    def bounded(self) -> Sequence[str]:
        """Those whose values have thresholds, or frequencies close to those of the table."""
        return [name for name, own in self.constraints.items() if bounds_guesses(own)]

    @property
    def short(self) -> str:
        """See :attr:`.Guarantee.short`."""
        said = f"{self.k}-anonymity"
        return f"{said}, {say_constraints(self.constraints)}" if self.constraints else said

    @property
    def promise(self) -> str:
        """See :attr:`.Guarantee.promise`."""
        said = (
            f"{self.k}-anonymity: every combination of generalized quasi-identifiers occurs at"
            f" least {times_of(self.k, of_people=self.of_people)}"
        )
        if not self.constraints:
            return said
        has_thresholds = any(own.get("guessing") for own in self.constraints.values())
        counting = ", counting people," if self.of_people and has_thresholds else ","
        return (
            f"{said}, with {say_constraints(self.constraints)} in each{counting} which bounds"
            " inferences by readers who do not know how classes were formed"
        )

    @property
    def conditions(self) -> Sequence[str]:
        """See :attr:`.Guarantee.conditions`."""
        said = [
            f"{WAITING_NOT_COVERED}, is not covered" if self.constraints else "",
            threshold_of_1(self.unbounded),
            TOGETHER if len(self.constraints) > 1 else "",
            f"{self.left_out} records are left out" if self.left_out else "",
        ]
        return [one for one in said if one]


TOGETHER: Final = (
    "what one sensitive value of a person tells about another is not bounded: rows show both"
)
"""What guarantees say where there are several sensitive attributes."""


def of_attribute(name: str, attributes: Collection[str]) -> str:
    """Say which of several sensitive attributes is meant; nothing where there is one."""
    return f" of {name}" if len(attributes) > 1 else ""


# Verification reads the view only.

_ROUNDING = 1e-9  # allowed in an entropy, for its logarithms


@dataclass(frozen=True)
class ClassValues:
    """SQL that reads the sensitive values of the rows of each class."""

    rows: str  # A relation with the published rows
    cells: str  # Its columns by which classes are told apart, with commas between them
    value: str  # Its column with the sensitive values
    number: str  # What tells classes apart in one column
    place: str  # The place of a value among all of them, in their order

    @property
    def counted(self) -> str:
        """Return how often each value occurs in each class."""
        return (
            f"SELECT {self.number} AS class, {self.value} AS value, count(*) AS n,"
            f" sum(count(*)) OVER (PARTITION BY {self.cells}) AS size"
            f" FROM {self.rows} GROUP BY {self.cells}, {self.value}"
        )


def counted_classes(session: Quotes, view: RowView, sensitive: str) -> ClassValues:
    """Read the values of a view."""
    cells, value = ", ".join(view.quasi_identifiers), session.identifier(sensitive)
    return ClassValues(
        view.view, cells, value,
        f"dense_rank() OVER (ORDER BY {cells})", f"dense_rank() OVER (ORDER BY {value})",
    )  # fmt: skip


def examine_generalized(
    session: Session, view: RowView, publication: Publication, counted: ClassSizes
) -> Examination:
    """Check what a generalized publication promises, and measure it; see :func:`judge_classes`."""
    constraints, found = published_constraints(publication), list[Check]()
    for name, own in constraints.items():
        one = own
        if publication.parameters.get("counts_entities"):  # thresholds are for shares of them
            one = replace(own, privacy=None)
        values = counted_classes(session, view, name)
        exposure = measure_thresholds(session, values, one)
        found += checks_of(name, constraints, check_constraints(session, values, one, exposure))
    return judge_classes(publication, counted, found)


def published_constraints(publication: Publication) -> dict[str, ClassConstraints]:
    """Read the constraints on each sensitive attribute of a publication."""
    given = publication.parameters.get("constraints")
    if given is None:
        return {}
    return ConstraintsOfEach.parse(given).of_each(publication.all_sensitive)


def constraints_of(request: GeneralizedRequest, source: Source) -> dict[str, ClassConstraints]:
    """Return the constraints on each sensitive attribute; none where none are asked for."""
    wanted = request.constraints
    return {} if wanted is None else wanted.of_each(source.all_sensitive)


def checks_of(name: str, attributes: Collection[str], checks: Sequence[Check]) -> list[Check]:
    """Say in checks which of several sensitive attributes they are about."""
    which = of_attribute(name, attributes)
    return [replace(check, check=f"{check.check}{which}") for check in checks]


def judge_classes(
    publication: Publication, counted: ClassSizes, of_constraints: Sequence[Check]
) -> Examination:
    """Check what a generalized publication promises, and measure it.

    Classes are rows with the same cells.
    """
    # Whether each original value lies within its cell, and of how many entities the rows are, was
    # checked when publishing, since that needs the originals.
    #
    # The discernibility loss is the sum of the squared class sizes, plus the number of all records
    # for each suppressed one.
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
        checks += [*of_constraints, _UNINFORMED, check_waiting(parameters)]
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
    session: Session, values: ClassValues, constraints: ClassConstraints
) -> Row | None:
    """Compare the frequencies in each class with the thresholds; None where there are none.

    See :func:`~kanon_db.publications.guarantees.measure_exposure`.
    """
    if constraints.privacy is None:
        return None
    return measure_exposure(session, constraints.privacy, profile_of(values))


def profile_of(values: ClassValues) -> str:
    """Write in how many classes of a size a value occurs how often."""
    return (
        "SELECT value, n::numeric AS count, size::numeric AS size, count(*) AS buckets"
        f" FROM ({values.counted}) AS c GROUP BY 1, 2, 3"
    )


def check_constraints(
    session: Fetching,
    values: ClassValues,
    constraints: ClassConstraints,
    exposure: Row | None,  # As `measure_thresholds` has found it
) -> list[Check]:
    """Check the constraints in each class."""
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
    return checks


_UNINFORMED: Final = Remark(
    "constraints bound inferences by readers who do not know how classes were formed",
    "classes depend on sensitive values",
    "not measured",
)


def _check_closeness(
    session: Fetching, values: ClassValues, constraints: ClassConstraints
) -> Check:
    """Compare the distribution in each class with that in the whole view, exactly."""
    # If a value occurs in n of the s records of a class, and in N of all S records, the distances
    # are sums of |n S - N s|, or of the absolute values of its running totals, divided by s S.
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


class Generalized(RowKind):
    """The kind ``generalized``.

    Notes
    -----
    **Source:** [OB]; see the modules of :mod:`kanon_db.algorithms.generalization`. Ranges and sets
    are as tight as the values of their class allow.

    Deviation: the paper has one record of each person. Where there are several, each class has
    records of k entities, and thresholds are for the share of a class's entities that have a value
    in any of their records there. Distinct l-diversity counts values, as always. Constraints that
    compare distributions of records (entropy, t-closeness, theta) are refused.
    """

    suffixes = RECODED_SUFFIXES

    protects_several = True
    counts_entities = True
    coarsens = True
    is_slow_if_wide = True
    takes_codes = True
    examine_rows = staticmethod(examine_generalized)

    def promise_in_words(self, target: AttackTarget, linked: str) -> str:
        """See :meth:`RowKind.promise_in_words` and :func:`.classes_in_words`."""
        constraints = published_constraints(target.publication)
        if not constraints:
            return super().promise_in_words(target, linked)
        privacies = {name: own.privacy for name, own in constraints.items() if own.privacy}
        inferred = [
            words for name, own in constraints.items() for words in mixed_in_words(name, own)
        ]
        if privacies:
            inferred.append(inferred_in_words(measure_bounds(target, privacies)))
        return classes_in_words(linked, "; ".join(inferred))

    def prepare(self, request: GeneralizedRequest, source: Source) -> None:
        """Refuse weights of other columns, and constraints without a sensitive attribute."""
        super().prepare(request, source)
        if request.constraints is not None:
            require_sensitive(source, "constraints need a sensitive attribute")
            request.constraints.of_each(source.all_sensitive)

    def needs(
        self,
        request: GeneralizedRequest,
        source: Source,
        types: Mapping[str, ColumnType],
        size: Size,
    ) -> Needs:
        """See :meth:`Kind.needs`; solvers need the more, and so does what changes classes."""
        fixed, record = 170e6, 70.0
        if request.refine or request.constraints is not None or request.max_suppressed:
            fixed, record = 250e6, 450.0
        if request.method in ("split_carry", "optimal"):
            fixed = 300e6
        record += 10 * len(source.published) + 40 * len(source.also_sensitive)
        memory = fixed + record * size.n_records + bytes_of_values(size) + bytes_of_texts(size)
        memory += bytes_of_shares(source, types, size.n_records / request.k, size)
        return Needs(memory, bytes_of_cells(source, types, request.k, size))

    def search(self, job: Job[GeneralizedRequest]) -> MethodResult:
        """Find classes, enforce the constraints, lower the loss, and leave records out."""
        request, session = job.request, job.session
        rows, microdata = RecodedRows.of(job, request.k, request.weights)
        constraint = _constraint(job)
        if request.refine or constraint is not None or request.max_suppressed:
            rows.require_room(
                2 * microdata.n_records // request.k,
                microdata.n_records,
                "leave out quasi-identifiers with very many values, or refine => false",
            )
        job, method = _chosen(job, microdata.n_records)
        pulse = job.pulse(request.options.time_limit)
        found = find_classes(
            microdata, request, constraint, pulse,
            method=method,
            search=lambda data: run_method(methods, job, data, pulse, method),
            entities=None if job.entities is None else job.entities.codes,
            workers=n_cores(), on_step=session.step,
        )  # fmt: skip
        proof, seconds = found.proof, request.options.bound_time
        has_labels = any(attribute.taxonomy is not None for attribute in microdata.attributes)
        if proof is None and seconds is not None and (has_labels or (found.result < 0).any()):
            session.tell("no bound on the loss is proven where records are left out, or of labels")
        elif proof is None and seconds is not None:
            session.step("bounding the loss")
            bound = prove_least_loss(microdata, request.k, found.result, pulse=job.pulse(seconds))
            loss = measure_classes(microdata, found.result).weighted_loss
            proof = proof_of_published(bound, microdata, loss, is_found=True)
        return MethodResult((rows, microdata, found.result), proof, method)

    def write(self, job: Job[GeneralizedRequest], found: MethodResult) -> Written:
        """Write cells and rows; check that each original value lies within its cell."""
        request, session = job.request, job.session
        rows: RecodedRows
        microdata: Microdata
        classes: IntArray
        rows, microdata, classes = found.hand_over()
        dense = settle_classes(job, classes)
        cells = cells_of_classes(microdata, dense, job.pulse())
        measured = measure_classes(microdata, dense, cells)
        del microdata  # as long as what is read again
        table = rows.write_cells([distinct_cells(own) for own in cells])
        outside = rows.count_outside(table, dense[np.newaxis])
        rows.write(table, dense)
        constraints = constraints_of(request, job.source)
        exposures = {
            name: exposure
            for name, own in constraints.items()
            if (
                exposure := measure_thresholds(
                    session, counted_classes(session, rows.view, name), own
                )
            )
        }
        inside = Check(
            "every original value lies within its cell",
            "0 records outside",
            f"{outside} records outside, {int(dense.max(initial=-1)) + 1} classes",
            holds=outside == 0,
        )
        written = Written(
            ClassGuarantee.of(
                request,
                measured.n_suppressed,
                constraints,
                exposures,
                session.warn,
                with_entities=job.source.entity is not None,
            ),
            checks=[
                inside,
                check_cells(session, table.table, table),
                *_count_entities(job, rows, table, dense),
            ],
            metrics=loss_metrics(
                job.source, measured, gcp_ob=measured.ob_gcp, binary_loss=measured.binary_loss
            ),
            parameters={"suppressed": measured.n_suppressed, **counted_parameters(job)},
        )
        return rows.finish(table, dense, written)

    def bounds_values(self, request: GeneralizedRequest) -> bool:
        """Bound what constraints bound."""
        return request.constraints is not None

    def frozen(
        self,
        session: Session,  # noqa: ARG002
        publication: Publication,
        request: GeneralizedRequest,
    ) -> GeneralizedRequest:
        """Refuse constraints that a batch, with frequencies of its own, would mean otherwise."""
        constraints = request.constraints
        if constraints is not None and any(o.depends_on_frequencies for o in constraints.each):
            raise InvalidParameterError(
                "constraints that depend on the table's frequencies have no batches",
                detail=f'publication "{publication.name}"',
                hint="publish with constraints on each class alone, such as l",
            )
        return request

    def bounds(
        self, publication: Publication, name: str, sensitive: SensitiveCounts
    ) -> ValueBounds:
        """Return what the constraints allow."""
        own = published_constraints(publication).get(name)
        return ValueBounds() if own is None else own.bounds(sensitive)

    def deductions(
        self,
        publication: Publication,
        attacked: AttackedRows,  # noqa: ARG002
        attributes: Mapping[str, Mapping[str, Any]],  # noqa: ARG002
    ) -> Deductions:
        """Cells are tight; a class of Mondrian's that nothing has changed since cannot be cut."""
        given = publication.parameters
        is_cut_only = (
            publication.method == "mondrian"
            and (given["options"].get("cut") or "strict") == "strict"
            and not (given["refine"] or given["constraints"] or given.get("counts_entities"))
            and not Fraction(str(given["max_suppressed"]))
            and bool(publication.layout.get(AT_ONCE))
        )
        return Deductions(int(given["k"]), tight_attributes(publication), is_uncut=is_cut_only)

    def partition(
        self, session: Session, schema: str, publication: Publication
    ) -> PublishedClasses | None:
        """Read the view, with what the constraints promise."""
        found = super().partition(session, schema, publication)
        constraints = published_constraints(publication)
        if found is None or not constraints:
            return found
        first, *others = (
            replace(one, thresholds=own.thresholds)
            for one, own in zip(found.of_each, constraints.values(), strict=True)
        )
        return replace(first, also=others)


KIND: Final = Generalized()


def _constraint(job: Job[GeneralizedRequest]) -> Constraint | None:
    """Apply the constraints to the table."""
    # Raises IneligibleError when no classes at all can satisfy them; InvalidParameterError when
    # they count records, of which several are about the same entity.
    wanted, entities = job.request.constraints, job.entities
    if wanted is None:
        if entities is None:
            return None
        nothing = np.zeros(entities.codes.size, dtype=np.int64)
        return Constraint(nothing, 1, entities=entities.codes, least_entities=job.request.k)
    if entities is not None and any(one.counts_records for one in wanted.each):
        raise InvalidParameterError(
            "entropy_l, t and theta count records, and several records are about the same entity",
            detail="somebody with many records would count many times",
            hint="use l, or thresholds that do not depend on frequencies: default, values, base; or"
            " register the source with keep, for one record of each",
        )
    found = {
        name: own.of(*_sensitive(job, name))
        for name, own in constraints_of(job.request, job.source).items()
    }
    counted: dict[str, Any] = {}
    if entities is not None:
        counted = {"entities": entities.codes, "least_entities": job.request.k}
    for name, one in found.items():
        replace(one, **counted).check_eligible(f" {name}" if len(found) > 1 else "")
    return replace(constraint_of_each(list(found.values())), **counted)


def _sensitive(job: Job[GeneralizedRequest], name: str) -> tuple[DistinctValues, CodeArray]:
    """Read the values of a sensitive attribute, and the code of each record's."""
    if isinstance(job.records, CodedRecords):
        column = job.records.columns[name]
        return column.values, column.codes.astype(np.int32)
    values = distinct_values(job.snapshot, job.types[name])
    codes = read_codes(job.snapshot, [values])[:, 0]
    values.drop()
    return values, codes


def _count_entities(
    job: Job[GeneralizedRequest], rows: RecodedRows, table: CellTable, classes: AnyIntArray
) -> list[Check]:
    """Check what is promised about entities, which the view does not show."""
    if job.entities is None:
        return []
    constraints = constraints_of(job.request, job.source)
    bounded = {name: own.privacy for name, own in constraints.items() if own.privacy is not None}
    counted = RowsWithEntities.of(job, rows.view, table, classes, with_values_of=list(bounded))
    checks = counted.check(job.request.k)
    for name, privacy in bounded.items():
        checks += checks_of(name, constraints, [counted.check_exposure(name, privacy)])
    counted.drop()
    return checks


def _chosen(job: Job[GeneralizedRequest], n_records: int) -> tuple[Job[GeneralizedRequest], str]:
    """Return the job with the options that `auto` chooses, and the name of the method to use."""
    request = job.request
    if request.method != "auto":
        return job, request.method
    advice = recommend(
        n_records, len(job.source.quasi_identifiers), request.k, refined=request.refine
    )
    job.session.tell(f"method {advice.method} was chosen: {advice.reason}")
    block_size = request.options.block_size or advice.block_size
    options = replace(request.options, block_size=block_size)
    return replace(job, request=replace(request, options=options)), advice.method
