"""Publishing generalized rows [OB]: ranges and sets that at least k rows share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from kanon_db.algorithms.generalization import recommend
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray
from kanon_db.algorithms.ground.threads import n_cores
from kanon_db.algorithms.recoding import (
    Constraint,
    Microdata,
    cells_of_classes,
    distinct_cells,
)
from kanon_db.catalog.entries import Publication, Source
from kanon_db.catalog.sources import require_sensitive
from kanon_db.counting.layout import RECODED_SUFFIXES
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.generalization import measure
from kanon_db.publications.generalized import methods
from kanon_db.publications.generalized.classes import find_classes
from kanon_db.publications.generalized.examine import (
    counted_classes,
    examine_generalized,
    measure_thresholds,
    published_constraints,
)
from kanon_db.publications.generalized.promises import guarantee
from kanon_db.publications.generalized.request import GeneralizedRequest
from kanon_db.publications.job import Job
from kanon_db.publications.kind import Found, Written
from kanon_db.publications.needs import bytes_of_texts, bytes_of_values
from kanon_db.publications.partition import Classes
from kanon_db.publications.results import Check
from kanon_db.publications.rows.attack import Bounds, CountedValues
from kanon_db.publications.rows.cell_table import CellTable
from kanon_db.publications.rows.entities import CountedRows, counted_layout, counted_parameters
from kanon_db.publications.rows.needs import bytes_of_cells, bytes_of_shares
from kanon_db.publications.rows.recoding import RecodedRows, loss_metrics
from kanon_db.publications.rows.view import RowKind
from kanon_db.publications.searching import run_method
from kanon_db.session import Session
from kanon_db.transfer.coded import CodedRecords
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.records import Size
from kanon_db.transfer.room import Needs
from kanon_db.transfer.values import DistinctValues, distinct_values, read_codes


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

    counts_entities = True
    coarsens = True
    takes_codes = True
    examine_rows = staticmethod(examine_generalized)

    def prepare(self, request: GeneralizedRequest, source: Source) -> None:
        """Refuse weights of other columns, and constraints without a sensitive attribute."""
        super().prepare(request, source)
        if request.constraints is not None:
            require_sensitive(source, "constraints need a sensitive attribute")

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
        record += 10 * len(source.published)
        memory = fixed + record * size.n_records + bytes_of_values(size) + bytes_of_texts(size)
        memory += bytes_of_shares(source, types, size.n_records / request.k, size)
        return Needs(memory, bytes_of_cells(source, types, request.k, size))

    def search(self, job: Job[GeneralizedRequest]) -> Found:
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
        return Found((rows, microdata, found.result), found.proof, method)

    def write(self, job: Job[GeneralizedRequest], found: Found) -> Written:
        """Write cells and rows; check that each original value lies within its cell."""
        request, session = job.request, job.session
        rows: RecodedRows
        microdata: Microdata
        classes: IntArray
        rows, microdata, classes = found.hand_over()
        is_class = np.bincount(classes + 1, minlength=1)[1:] > 0
        dense = np.append(np.cumsum(is_class) - 1, -1)[classes].astype(np.int32)
        cells = cells_of_classes(microdata, dense, job.pulse())
        measured = measure(microdata, classes, cells)
        table = rows.write_cells([distinct_cells(own) for own in cells])
        outside = rows.write(table, dense)
        exposure = None
        if request.constraints is not None:
            exposure = measure_thresholds(
                session, counted_classes(session, rows.view, str(job.source.sensitive)),
                request.constraints,
            )  # fmt: skip
        inside = Check(
            "every original value lies within its cell",
            "0 records outside",
            f"{outside} records outside, {np.count_nonzero(is_class)} classes",
            holds=outside == 0,
        )
        written = Written(
            guarantee(
                request,
                measured.n_suppressed,
                exposure,
                session.warn,
                with_entities=job.source.entity is not None,
            ),
            checks=[inside, *_count_entities(job, rows, table, dense)],
            metrics=loss_metrics(job.source, measured, gcp_ob=measured.ob_gcp),
            parameters={"suppressed": measured.n_suppressed, **counted_parameters(job)},
            layout=counted_layout(job, rows.view),
        )
        return rows.finish(table, dense, written)

    def frozen(
        self,
        session: Session,  # noqa: ARG002
        publication: Publication,
        request: GeneralizedRequest,
    ) -> GeneralizedRequest:
        """Refuse constraints that a batch, with frequencies of its own, would mean otherwise."""
        if request.constraints is not None and request.constraints.depends_on_frequencies:
            raise InvalidParameterError(
                "constraints that depend on the table's frequencies have no batches",
                detail=f'publication "{publication.name}"',
                hint="publish with constraints on each class alone, such as l",
            )
        return request

    def bounds(self, publication: Publication, sensitive: CountedValues) -> Bounds:
        """Return what the constraints allow."""
        constraints = published_constraints(publication)
        return Bounds() if constraints is None else constraints.bounds(sensitive)

    def partition(self, session: Session, schema: str, publication: Publication) -> Classes | None:
        """Read the view, with what the constraints promise."""
        found = super().partition(session, schema, publication)
        constraints = published_constraints(publication)
        if found is None or constraints is None:
            return found
        return replace(found, least=constraints.least_values, thresholds=constraints.thresholds)


KIND: Final = Generalized()


def _constraint(job: Job[GeneralizedRequest]) -> Constraint | None:
    """Apply the constraints to the table.

    Raises
    ------
    IneligibleError
        When no classes at all can satisfy them.
    InvalidParameterError
        When they count records, of which several are about the same entity.
    """
    wanted, entities = job.request.constraints, job.entities
    if wanted is None:
        if entities is None:
            return None
        nothing = np.zeros(entities.codes.size, dtype=np.int64)
        return Constraint(nothing, 1, entities=entities.codes, least_entities=job.request.k)
    if entities is not None and wanted.counts_records:
        raise InvalidParameterError(
            "entropy_l, t and theta count records, and several records are about the same entity",
            detail="somebody with many records would count many times",
            hint="use l, or thresholds that do not depend on frequencies: default, values, base",
        )
    sensitive, codes = _sensitive(job)
    constraint = wanted.of(sensitive, codes)
    if entities is not None:
        constraint = replace(constraint, entities=entities.codes, least_entities=job.request.k)
    constraint.check_eligible()
    return constraint


def _sensitive(job: Job[GeneralizedRequest]) -> tuple[DistinctValues, CodeArray]:
    """Read the sensitive values, and the code of each record's."""
    name = str(job.source.sensitive)
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
    constraints = job.request.constraints
    privacy = None if constraints is None else constraints.privacy
    counted = CountedRows.of(job, rows.view, table, classes, with_sensitive=privacy is not None)
    checks = counted.check(job.request.k)
    if privacy is not None:
        checks.append(counted.check_exposure(privacy))
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
