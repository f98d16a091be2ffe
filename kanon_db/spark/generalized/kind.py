"""Publishing generalized rows of records on many machines; see the kind in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.generalization import recommend
from kanon_db.algorithms.recoding import Constraint
from kanon_db.algorithms.recoding.changing_classes import ineligible
from kanon_db.algorithms.recoding.microdata import Attribute
from kanon_db.catalog.entries import Publication, Source
from kanon_db.publications.generalized.kind import (
    check_constraints,
    generalized_guarantee,
    judge_classes,
    published_constraints,
)
from kanon_db.publications.generalized.request import GeneralizedRequest
from kanon_db.publications.kind import MethodResult, Written
from kanon_db.publications.results import Check, Examination
from kanon_db.publications.rows.row_kind import loss_metrics, require_k, weights_of
from kanon_db.spark.environment import through_arrow
from kanon_db.spark.generalized.again import searched_again
from kanon_db.spark.generalized.exposure import VALUES, classed_values, measure_thresholds
from kanon_db.spark.generalized.searching import CLASS, LOSS, PartSearch, searching
from kanon_db.spark.kind import Made, SparkJob
from kanon_db.spark.rows import parts
from kanon_db.spark.rows.columns import (
    SENSITIVE,
    QuasiIdentifier,
    attributes_of,
    code_of,
    coded_records,
    read_quasi_identifiers,
)
from kanon_db.spark.rows.examine import check_columns, class_sizes, rows_of, view_of
from kanon_db.spark.rows.kind import SparkRows
from kanon_db.spark.rows.layout import (
    recoded_layout,
    refuse_coarsened,
    refuse_method,
    require_room,
)
from kanon_db.spark.rows.losses import measure_rows
from kanon_db.spark.rows.recoded import covered, passed_on, recoded_schema
from kanon_db.spark.rows.values import Values, read_values
from kanon_db.spark.rows.writing import compare_with_source, keep, write_rows
from kanon_db.spark.tables import Tables
from kanon_db.transfer.columns import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OTHERS: Final = "use greedy_search or mondrian, or publish in PostgreSQL"

_REFUSED: Final = {
    "optimal": ("the optimum is sought among all records at once", _OTHERS),
    "split_carry": ("each search carries records over to the next one, in sorted order", _OTHERS),
    "k_member": ("each class begins at the record that is furthest from the last one", _OTHERS),
    "initial": ("groups follow each other in the sorted order of all records", _OTHERS),
}
"""Methods that stay on one machine: why, and what to do instead."""


class Generalized(SparkRows):
    """The kind ``generalized``."""

    def refuse(self, request: GeneralizedRequest, source: Source) -> None:
        """Refuse methods that stay on one machine, and coarsened columns."""
        if request.method in _REFUSED:
            raise refuse_method(request.method, *_REFUSED[request.method])
        refuse_coarsened(source)

    def make(self, job: SparkJob) -> Made:
        """Cut records into parts, find the classes in each, and write the rows."""
        request: GeneralizedRequest = job.request
        require_k(job.source, request.k, job.snapshot.n_records)
        columns = read_quasi_identifiers(job, with_ranges=True)
        attributes = attributes_of(job, columns, weights_of(job.source, request.weights))
        together = min(parts.RECORDS_OF_PART, job.snapshot.n_records)
        require_room(columns, 2 * together // request.k)
        sensitive = None
        if request.constraints is not None:
            sensitive = read_values(job, str(job.source.sensitive))
        constraint = _constraint(job, sensitive)
        records = coded_records(job, columns, sensitive)
        method, recoded, n_parts = _recoded(job, records, columns, attributes, constraint)
        checks, left_out = compare_with_source(
            job, recoded, covered(columns), "every original value lies within its cell"
        )
        layout = recoded_layout(job.source, columns)
        check, rows, _ = write_rows(job, recoded, layout)
        exposure = None
        if request.constraints is not None:
            with classed_values(
                job.session, rows, list(job.source.quasi_identifiers),
                job.types[str(job.source.sensitive)],
            ) as values:  # fmt: skip
                exposure = measure_thresholds(values, request.constraints)
        measured = measure_rows(rows, columns, attributes, job.snapshot.n_records, left_out)
        return Made(
            MethodResult(None, method=method),
            Written(
                generalized_guarantee(request, left_out, exposure, job.voice.warn),
                checks=[*checks, check],
                metrics={
                    **loss_metrics(job.source, measured, gcp_ob=measured.ob_gcp), "parts": n_parts,
                },
                parameters={"suppressed": left_out},
                layout=layout,
            ),
        )  # fmt: skip

    def examine(self, tables: Tables, publication: Publication, whole: Check) -> Examination:
        """Check what is promised of the rows, and measure them, with the files alone."""
        rows = rows_of(tables, publication)
        columns = check_columns(rows, publication)
        if not columns.holds:
            return Examination([whole, columns], {})
        constraints, found = published_constraints(publication), []
        if constraints is not None:
            layout = publication.layout
            names = [str(cell["name"]) for cell in layout["quasi_identifiers"]]
            name = str(layout["sensitive"])
            sensitive = ColumnType(name, str(layout["types"][name]["type"]), "", None, True)
            with classed_values(tables.session, rows, names, sensitive) as values:
                exposure = measure_thresholds(values, constraints)
                found = check_constraints(values, VALUES, constraints, exposure)
        examined = judge_classes(
            publication, class_sizes(tables, view_of(tables, publication)), found
        )
        return Examination([whole, columns, *examined.checks], examined.metrics)


KIND: Final[Any] = Generalized()


def _recoded(
    job: SparkJob,
    records: DataFrame,
    columns: Sequence[QuasiIdentifier],
    attributes: tuple[Attribute, ...],
    constraint: Constraint | None,
) -> tuple[str, DataFrame, int]:
    """Find classes part by part; return the method, records with cells, and the number of parts."""
    as_mondrian = _chosen(job, parts.RECORDS_OF_PART)[1] == "mondrian"
    tree = parts.cut_into_parts(
        job, records, attributes, job.request.k, constraint, as_mondrian=as_mondrian
    )
    request, method = _chosen(job, max(tree.sizes[node] for node in tree.leaves))
    job.voice.step(f"searching classes: {method}")
    divided, n_parts = parts.parted(records, tree, len(columns))
    again = n_parts > 1 and not as_mondrian
    passed = passed_on(job)
    if again:
        passed += [code_of(place) for place in range(len(columns))]
        passed += [] if constraint is None else [SENSITIVE]
    schema = recoded_schema(records, passed, columns)
    if again:
        schema.add(LOSS, "long").add(CLASS, "long")
    search = PartSearch(
        attributes, [column.ends() for column in columns],
        replace(request, weights=None, constraints=None), method, constraint,
        _seconds(job, n_parts + again), passed, schema.names,
    )  # fmt: skip
    context: Any = job.session.sparkContext
    recoded = keep(job, through_arrow(divided, searching(context.broadcast(search)), schema))
    return method, searched_again(job, recoded, search) if again else recoded, n_parts


def _constraint(job: SparkJob, sensitive: Values | None) -> Constraint | None:
    """Apply the constraints to the table, without its records.

    Raises
    ------
    IneligibleError
        When no classes at all can satisfy them.
    """
    if sensitive is None:
        return None
    found: Constraint = job.request.constraints.of(sensitive, np.empty(0, dtype=np.int32))
    found = replace(found, totals=sensitive.counts)
    if not found.holds(found.totals[np.newaxis])[0]:
        raise ineligible(job.snapshot.n_records, "", len(sensitive.labels))
    return found


def _chosen(job: SparkJob, n_records: int) -> tuple[GeneralizedRequest, str]:
    """Return the request with the options that `auto` chooses, and the method to use."""
    request: GeneralizedRequest = job.request
    if request.method != "auto":
        return request, request.method
    advice = recommend(
        n_records, len(job.source.quasi_identifiers), request.k, refined=request.refine
    )
    method = "greedy_search" if advice.method in _REFUSED else advice.method
    block_size = request.options.block_size or advice.block_size
    return replace(request, options=replace(request.options, block_size=block_size)), method


def _seconds(job: SparkJob, n_parts: int) -> float:
    """Return how long a part may be searched, so that all of them take the time limit."""
    request: GeneralizedRequest = job.request
    if not request.refine:
        return inf
    rounds = max(1.0, n_parts / int(job.session.sparkContext.defaultParallelism))
    return request.options.time_limit / rounds
