"""Publishes generalized rows of records on many machines: classes are searched for in each part.

The classes that lose most are then searched for once more, from the records of all parts together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from kanon_db.algorithms.generalization import recommend
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding import Constraint, Microdata, cells_of_classes
from kanon_db.algorithms.recoding.changing_classes import ineligible
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Attribute
from kanon_db.catalog.entries import Publication
from kanon_db.dataclasses import dataclass
from kanon_db.publications.generalized import methods
from kanon_db.publications.generalized.class_constraints import (
    ClassConstraints,
    constraint_of_each,
)
from kanon_db.publications.generalized.kind import (
    ClassGuarantee,
    ClassValues,
    check_constraints,
    checks_of,
    constraints_of,
    find_classes,
    judge_classes,
    profile_of,
    published_constraints,
)
from kanon_db.publications.generalized.request import GeneralizedRequest
from kanon_db.publications.guarantees import exposure_statement
from kanon_db.publications.kind import MethodResult, Written
from kanon_db.publications.results import Check, Examination
from kanon_db.publications.rows.distinct_cells import ClassSizes
from kanon_db.publications.rows.row_kind import loss_metrics, require_k, weights_of
from kanon_db.session.protocol import Row
from kanon_db.spark import _coded_records
from kanon_db.spark._coded_records import (
    CodedQuasiIdentifier,
    ValueList,
    attributes_of,
    code_column,
    codes_in,
    read_quasi_identifiers,
    read_values,
    sensitive_column,
    write_coded_records,
)
from kanon_db.spark._row_store import rows_of
from kanon_db.spark._spark_kind import SparkJob, SparkResult
from kanon_db.spark._tables import RECORD, PublishedTables, fetch_one, text_of_column
from kanon_db.spark.environment import failures_as_errors, quote_column, through_arrow
from kanon_db.spark.kinds.row_files import (
    SparkRows,
    all_covered,
    cell_array,
    choose_layout,
    compare_with_source,
    keep_recoded,
    make_recoded_schema,
    measure_rows,
    name_copied_columns,
    require_room,
    write_rows,
)
from kanon_db.transfer.columns import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession


CLASS_LOSS: Final = "loss"
"""What each record of the class loses, in units; 0 for a record that is left out."""

CLASS_NUMBER: Final = "class"
"""The number of a class among those of all parts: that of its first record."""


@dataclass(frozen=True, eq=False)
class PartSearch:
    """What each machine knows of the whole table."""

    attributes: tuple[Attribute, ...]
    ends: list[pa.Array]  # What the cells of each quasi-identifier are made of
    request: GeneralizedRequest  # Without what the attributes and the constraint say
    method: str
    constraint: Constraint | None  # Without records
    seconds: float  # For the search in a part
    passed: list[str]  # Columns that are passed on
    # Columns of the result: those, the cells, whether a record is left out, and :data:`CLASS_LOSS`
    # and :data:`CLASS_NUMBER` if classes are searched again
    names: list[str]

    def run(self, part: pa.Table) -> pa.RecordBatch:
        """Find the classes of a part, and the cells of its records."""
        import pyarrow as pa

        part = part.take(pa.array(np.argsort(part.column(RECORD).to_numpy())))
        codes = codes_in(part, [code_column(place) for place in range(len(self.attributes))])
        data = Microdata(codes, self.attributes)
        constraint = self.constraint
        if constraint is not None:
            constraint = constraint_of_each(
                [
                    replace(
                        one,
                        codes=part.column(sensitive_column(place)).to_numpy().astype(np.int64),
                        also=(),
                    )
                    for place, one in enumerate(constraint.each)
                ]
            )
        pulse = Pulse(self.seconds)
        search = partial(getattr(methods, self.method), request=self.request, pulse=pulse)
        searched = find_classes(
            data, self.request, constraint, pulse,
            method=self.method, search=search, on_step=lambda _name: None,
        )  # fmt: skip
        classes = searched.result
        is_class = np.bincount(classes + 1, minlength=1)[1:] > 0
        dense = np.append(np.cumsum(is_class) - 1, -1)[classes]
        cells = [
            cell_array(its_cells, attribute.numbers, ends, dense)
            for its_cells, attribute, ends in zip(
                cells_of_classes(data, dense), self.attributes, self.ends, strict=True
            )
        ]
        columns = [pa.concat_arrays(part.column(name).chunks) for name in self.passed]
        columns += [*cells, pa.array(dense < 0)]
        if CLASS_LOSS in self.names:
            lost = np.append(Ncp.of(data).of_classes(dense), 0)[dense]
            number = np.append(_first_records(dense, part.column(RECORD).to_numpy()), 0)[dense]
            columns += [pa.array(lost), pa.array(number)]
        return pa.RecordBatch.from_arrays(columns, self.names)


def _first_records(classes: IntArray, records: IntArray) -> IntArray:
    """Return the number of the first record of each class; records ascend."""
    first = np.zeros(int(classes.max(initial=-1)) + 1, dtype=np.int64)
    kept = np.flatnonzero(classes >= 0)[::-1]
    first[classes[kept]] = records[kept]  # what is assigned last remains
    return first


def search_part(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Search the part of a partition."""
    import pyarrow as pa

    part = [batch for batch in batches if batch.num_rows]
    if part:
        yield known.run(pa.Table.from_batches(part))


# Searching once more, together, for the classes of those records of all parts that lose most.
#
# In each part, the last classes are made of what the others have left. The records that are left in
# one part would often go well with those of another.


def improve_worst_classes(job: SparkJob, recoded: DataFrame, search: PartSearch) -> DataFrame:
    """Search again for the classes that lose most, as many as have the records of one part."""
    # Constraints that hold in each class of some records hold for all of these together, so the
    # classes that replace them can be enforced, too. Records that were left out stay left out.
    from pyspark.sql import functions as f

    job.voice.step("searching again for the classes that lose most")
    lose_most = _is_among_worst(recoded)
    chosen = recoded.where(lose_most)
    once_more = replace(search, request=replace(search.request, max_suppressed=Fraction(0)))
    searched = through_arrow(chosen.coalesce(1), search_part, recoded.schema, once_more)
    again = keep_recoded(job, searched, "recoded-again")
    with failures_as_errors("classes could not be compared"):
        before, after = (
            one.agg(f.sum(CLASS_LOSS).alias("lost")).collect()[0]["lost"] for one in (chosen, again)
        )
    if before is None or after >= before:
        return recoded
    return recoded.where(~lose_most).unionByName(again)


def _is_among_worst(recoded: DataFrame) -> Column:
    """Say whether a record's class is among those that lose most, all of which fit into a part."""
    from pyspark.sql import functions as f

    with failures_as_errors("the losses of classes could not be compared"):
        beyond = (
            recoded.select(CLASS_LOSS, CLASS_NUMBER)
            .orderBy(f.desc(CLASS_LOSS), CLASS_NUMBER)
            .offset(_coded_records.RECORDS_OF_PART)
            .limit(1)
            .collect()
        )
    loss, number = beyond[0] if beyond else (0, 0)
    if not loss:
        return f.col(CLASS_LOSS) > 0
    return (f.col(CLASS_LOSS) > loss) | (
        (f.col(CLASS_LOSS) == loss) & (f.col(CLASS_NUMBER) < number)
    )


VALUES: Final = ClassValues("classed", "cells", "value", "cells", "place")
"""A class is told by the structure of its cells, and a value by its text."""


@contextmanager
def open_classed_values(
    session: SparkSession, rows: DataFrame, quasi_identifiers: list[str], sensitive: ColumnType
) -> Iterator[PublishedTables]:
    """Open :data:`VALUES` of published rows."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    value = f.col(quote_column(sensitive.name))
    known = rows.select(value.alias("known")).distinct()
    order = Window.orderBy(f.col("known").asc_nulls_last())
    known = known.withColumn("place", f.row_number().over(order))
    shown = rows.select(
        f.struct(*map(quote_column, quasi_identifiers)).alias("cells"), value.alias("own")
    )
    joined = shown.join(f.broadcast(known), f.col("own").eqNullSafe(f.col("known")))
    tables = PublishedTables(
        session,
        {
            VALUES.rows: joined.select(
                "cells", text_of_column(f.col("own"), sensitive).alias("value"), "place"
            )
        },
    )
    try:
        yield tables
    finally:
        tables.drop()


def measure_thresholds(tables: PublishedTables, constraints: ClassConstraints) -> Row | None:
    """Compare the frequencies in each class with the thresholds; None where there are none."""
    if constraints.privacy is None:
        return None
    statement, bound = exposure_statement(constraints.privacy, profile_of(VALUES))
    measured: Row = fetch_one(tables, statement, *bound)
    return measured


_OTHERS: Final = "use greedy_search or mondrian, or publish in PostgreSQL"


class SparkGeneralized(SparkRows):
    """The kind ``generalized``."""

    on_one_machine: ClassVar = {
        "optimal": ("the optimum is sought among all records at once", _OTHERS),
        "split_carry": ("each search carries records over to the next one, as sorted", _OTHERS),
        "k_member": ("each class begins at the record that is furthest from the last one", _OTHERS),
        "initial": ("groups follow each other in the sorted order of all records", _OTHERS),
    }

    def make(self, job: SparkJob) -> SparkResult:
        """Cut records into parts, find the classes in each, and write the rows."""
        request: GeneralizedRequest = job.request
        require_k(job.source, request.k, job.snapshot.n_records)
        columns = read_quasi_identifiers(job, with_ranges=True)
        attributes = attributes_of(job, columns, weights_of(job.source, request.weights))
        together = min(_coded_records.RECORDS_OF_PART, job.snapshot.n_records)
        require_room(columns, 2 * together // request.k)
        constraints = constraints_of(request, job.source)
        sensitive = {name: read_values(job, name) for name in constraints}
        constraint = _constraint(job, constraints, sensitive)
        records = write_coded_records(job, columns, sensitive)
        method, recoded, n_parts = _recode(job, records, columns, attributes, constraint)
        checks, left_out = compare_with_source(
            job, recoded, all_covered(columns), "every original value lies within its cell"
        )
        layout = choose_layout(job.source, columns)
        check, rows, _ = write_rows(job, recoded, layout)
        exposures = {}
        for name, own in constraints.items():
            with open_classed_values(
                job.session, rows, list(job.source.quasi_identifiers), job.types[name]
            ) as values:
                if exposure := measure_thresholds(values, own):
                    exposures[name] = exposure
        measured = measure_rows(rows, columns, attributes, job.snapshot.n_records, left_out)
        return SparkResult(
            MethodResult(None, method=method),
            Written(
                ClassGuarantee.of(request, left_out, constraints, exposures, job.voice.warn),
                checks=[*checks, check],
                metrics={
                    **loss_metrics(job.source, measured, gcp_ob=measured.ob_gcp), "parts": n_parts,
                },
                parameters={"suppressed": left_out},
                layout=layout,
            ),
        )  # fmt: skip

    def judge(
        self, tables: PublishedTables, publication: Publication, counted: ClassSizes
    ) -> Examination:
        """Check k and the constraints in each class."""
        constraints, findings = published_constraints(publication), list[Check]()
        for name, own in constraints.items():
            layout = publication.layout
            names = [str(cell["name"]) for cell in layout["quasi_identifiers"]]
            sensitive = ColumnType(name, str(layout["types"][name]["type"]), "", None, True)
            rows = rows_of(tables, publication)
            with open_classed_values(tables.session, rows, names, sensitive) as values:
                exposure = measure_thresholds(values, own)
                checks = check_constraints(values, VALUES, own, exposure)
            findings += checks_of(name, constraints, checks)
        return judge_classes(publication, counted, findings)


KIND: Final[Any] = SparkGeneralized()


def _recode(
    job: SparkJob,
    records: DataFrame,
    columns: Sequence[CodedQuasiIdentifier],
    attributes: tuple[Attribute, ...],
    constraint: Constraint | None,
) -> tuple[str, DataFrame, int]:
    """Find classes part by part; return the method, records with cells, and the number of parts."""
    as_mondrian = _choose_method(job, _coded_records.RECORDS_OF_PART)[1] == "mondrian"
    tree = _coded_records.cut_into_parts(
        job, records, attributes, job.request.k, constraint, as_mondrian=as_mondrian
    )
    request, method = _choose_method(job, max(tree.sizes[node] for node in tree.leaves))
    job.voice.step(f"searching classes: {method}")
    divided, n_parts = _coded_records.with_parts(records, tree, len(columns))
    again = n_parts > 1 and not as_mondrian
    passed = name_copied_columns(job)
    if again:
        passed += [code_column(place) for place in range(len(columns))]
        each = [] if constraint is None else constraint.each
        passed += [sensitive_column(place) for place in range(len(each))]
    schema = make_recoded_schema(records, passed, columns)
    if again:
        schema.add(CLASS_LOSS, "long").add(CLASS_NUMBER, "long")
    search = PartSearch(
        attributes, [column.ends() for column in columns],
        replace(request, weights=None, constraints=None), method, constraint,
        _seconds(job, n_parts + again), passed, schema.names,
    )  # fmt: skip
    recoded = keep_recoded(job, through_arrow(divided, search_part, schema, search))
    return method, improve_worst_classes(job, recoded, search) if again else recoded, n_parts


def _constraint(
    job: SparkJob,
    constraints: Mapping[str, ClassConstraints],
    sensitive: Mapping[str, ValueList],
) -> Constraint | None:
    """Apply the constraints to the table, without its records."""
    if not constraints:
        return None
    nobody = np.empty(0, dtype=np.int32)
    constraint = constraint_of_each(
        [
            replace(own.of(sensitive[name], nobody), totals=sensitive[name].counts)
            for name, own in constraints.items()
        ]
    )
    for name, one in zip(sensitive, constraint.each, strict=True):
        if not replace(one, also=()).holds(one.totals[np.newaxis])[0]:
            which = f" {name}" if len(sensitive) > 1 else ""
            raise ineligible(job.snapshot.n_records, "", [len(sensitive[name].labels)], which)
    return constraint


def _choose_method(job: SparkJob, n_records: int) -> tuple[GeneralizedRequest, str]:
    """Return the request with the options that `auto` chooses, and the method to use."""
    request: GeneralizedRequest = job.request
    if request.method != "auto":
        return request, request.method
    advice = recommend(
        n_records, len(job.source.quasi_identifiers), request.k, refined=request.refine
    )
    is_refused = advice.method in SparkGeneralized.on_one_machine
    method = "greedy_search" if is_refused else advice.method
    block_size = request.options.block_size or advice.block_size
    return replace(request, options=replace(request.options, block_size=block_size)), method


def _seconds(job: SparkJob, n_parts: int) -> float:
    """Return how long a part may be searched, so that all of them take the time limit."""
    request: GeneralizedRequest = job.request
    if not request.refine:
        return inf
    rounds = max(1.0, n_parts / int(job.session.sparkContext.defaultParallelism))
    return request.options.time_limit / rounds
