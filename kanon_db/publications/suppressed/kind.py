"""Publishes and verifies rows with suppressed cells [PG].

Verification shares nothing with the algorithms: SQL finds out what the published rows show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.attacks import Deductions, deduce_from_patterns
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray
from kanon_db.algorithms.suppression import LEFT_OVER, PatternSet, Suppression, classes_of
from kanon_db.catalog.entries import Publication, Source
from kanon_db.dataclasses import dataclass
from kanon_db.metrics.information_loss import RowTypeDiversity
from kanon_db.publications.guarantees import Guarantee, summed, times_of
from kanon_db.publications.kind import (
    AttackTarget,
    Job,
    MethodResult,
    Written,
    bytes_of_texts,
    bytes_of_values,
    run_method,
)
from kanon_db.publications.results import Check, Examination, Remark
from kanon_db.publications.rows.distinct_cells import (
    CellColumn,
    CellTable,
    ClassSizes,
    SourceColumns,
)
from kanon_db.publications.rows.published_rows import AttackedRows
from kanon_db.publications.rows.row_kind import AT_ONCE, RowKind, check_k, row_layout
from kanon_db.publications.rows.row_relations import (
    RowsWithEntities,
    counted_parameters,
    finish_rows,
    settle_classes,
    write_row_view,
)
from kanon_db.publications.suppressed import methods
from kanon_db.publications.suppressed.methods import (
    SuppressibleRows,
    allowed_patterns,
    by_name,
    patterns_of,
    recorded_patterns,
)
from kanon_db.publications.suppressed.request import SuppressedRequest
from kanon_db.query.layout import RowView
from kanon_db.session.protocol import Fetching, temporary_table
from kanon_db.transfer.allowance import Needs, size_text
from kanon_db.transfer.columns import ColumnType, inverse_permutation
from kanon_db.transfer.snapshot import Size
from kanon_db.transfer.values import DistinctValues, read_numbers


@dataclass(frozen=True, kw_only=True)
class SuppressedGuarantee(Guarantee):
    """Every combination of kept values occurs k times; left-over records are an exception."""

    k: int
    of_people: bool  # Whether it is known whom each record is about
    left_over: int = summed()
    are_published: bool = False  # The left-over records, fully suppressed

    @classmethod
    def of(
        cls, request: SuppressedRequest, n_left_over: int, *, with_entities: bool = False
    ) -> SuppressedGuarantee:
        """Say what holds for every row, and what became of the left-over records."""
        return cls(
            k=request.k, of_people=with_entities, left_over=n_left_over,
            are_published=request.options.left_over == "publish",
        )  # fmt: skip

    @property
    def short(self) -> str:
        """See :attr:`.Guarantee.short`."""
        return f"{self.k}-anonymity"

    @property
    def promise(self) -> str:
        """See :attr:`.Guarantee.promise`."""
        return (
            f"{self.k}-anonymity by suppression: every combination of kept quasi-identifiers"
            f" occurs at least {times_of(self.k, of_people=self.of_people)}"
        )

    @property
    def conditions(self) -> Sequence[str]:
        """See :attr:`.Guarantee.conditions`."""
        if not self.left_over:
            return ()
        became = (
            "suppressed fully, and whoever knows the quasi-identifiers can tell whose they are"
            if self.are_published
            else "left out"
        )
        return [f"{self.left_over} left-over records are {became}"]


def examine_suppressed(
    session: Fetching,  # noqa: ARG001
    view: RowView,
    publication: Publication,
    counted: ClassSizes,
) -> Examination:
    """Check everything that a suppressed publication promises, and measure it.

    Parameters
    ----------
    session : Fetching
        Such as the session of any role that may read the publication.
    view : RowView
    publication : Publication
        Its entry in the catalog, with what the publisher asked for.
    counted : ClassSizes

    Returns
    -------
    Examination
        Metrics: ``records`` that are published, ``suppressed_records`` that are left out,
        ``suppressed_cells``, ``suppressed_share`` of all cells, ``left_over_records`` that are
        published all the same, and ``classes`` (output row types, [PG] Section 3.3), with their
        ``average_class_size``, ``smallest_class`` and ``largest_class``. Published left-over
        records count as one class.
    """
    n_columns = len(view.quasi_identifiers)
    k, records = int(publication.parameters["k"]), publication.records
    profile = _profile(counted, k)
    allowed = publication.parameters["patterns"]
    strange = [
        row
        for row in profile
        if len(row.pattern) != n_columns
        or set(row.pattern) - {"*", "."}
        or (allowed is not None and row.pattern not in allowed)
    ]
    everything = "*" * n_columns
    published = sum(row.records for row in profile)
    with_left_over = publication.parameters.get("left_over") == "publish"
    left_over = sum(
        row.records
        for row in profile
        if with_left_over and row.pattern == everything and row.records < k
    )
    kept = [row for row in profile if not with_left_over or row.pattern != everything]
    smallest_kept = min((row.smallest for row in kept), default=None)
    below = sum(row.below for row in kept)
    stars = sum(row.pattern.count("*") * row.records for row in profile)
    classes = sum(row.classes for row in profile)
    checks = [
        Check(
            "every record is published once, or left out",
            f"{records} records, {publication.left_out} left out",
            f"{published} published",
            holds=published + publication.left_out == records,
        ),
        Check(
            "every row matches one of the patterns",
            "0 rows match none"
            + (f" of the {len(allowed)} allowed" if allowed is not None else ""),
            f"{sum(row.records for row in strange)} match none",
            holds=not strange,
        ),
        Check(
            "every suppressed cell is NULL",
            "0 are shown",
            f"{counted.n_shown} are shown",
            holds=counted.n_shown == 0,
        ),
        Check(
            "k-anonymity: every combination of kept cells occurs k times",
            f"k = {k}, 0 combinations below",
            f"{below} below"
            + ("" if smallest_kept is None else f", the rarest occurs {smallest_kept} times"),
            holds=below == 0,
        ),
    ]
    if left_over:
        checks.append(
            Remark(
                "left-over records: whoever knows the quasi-identifiers can tell whose they are",
                f"fewer than {k} records",
                f"{left_over} records",
            )
        )
    return Examination(
        checks,
        {
            "records": published,
            "suppressed_records": publication.left_out,
            "suppressed_cells": stars,
            "suppressed_share": stars / (published * n_columns) if published else 0.0,
            "left_over_records": left_over,
            "classes": classes,
            "average_class_size": published / classes if classes else 0.0,
            "smallest_class": min((row.smallest for row in profile), default=0),
            "largest_class": max((row.largest for row in profile), default=0),
        },
    )


@dataclass(frozen=True)
class _PatternProfile:
    """The rows of a pattern, and their classes."""

    pattern: str
    records: int
    classes: int
    smallest: int
    largest: int
    below: int


def _profile(counted: ClassSizes, k: int) -> list[_PatternProfile]:
    """Describe the rows of each pattern."""
    profile = []
    for place, pattern in enumerate(counted.patterns):
        sizes = counted.sizes[counted.pattern_of_class == place]
        profile.append(
            _PatternProfile(
                pattern or "", int(sizes.sum()), sizes.size, int(sizes.min()), int(sizes.max()),
                int((sizes < k).sum()),
            )
        )  # fmt: skip
    return profile


class Suppressed(RowKind):
    """The kind ``suppressed``.

    Notes
    -----
    **Source:** [PG] Sections 1 and 2. A kept cell is published as the first of the values that
    are equal for its type; otherwise 1.0 and 1.00 would distinguish two rows of a class.
    Where several records are about the same entity, k entities share what is kept of them.
    """

    protects_several = True
    counts_entities = True
    takes_codes = True
    examine_rows = staticmethod(examine_suppressed)

    def in_order(self, source: Source) -> Source:
        """Leave quasi-identifiers in the order in which patterns name them."""
        return source

    def promise_in_words(self, target: AttackTarget, linked: str) -> str:
        """See :meth:`RowKind.promise_in_words`; published left-over records are an exception."""
        said = super().promise_in_words(target, linked)
        promised = SuppressedGuarantee.read(target.publication.promise)
        if not (promised.left_over and promised.are_published):
            return said
        return (
            f"{said}; none of this holds for {promised.left_over:,} left-over records, which can be"
            " told apart"
        )

    def prepare(self, request: SuppressedRequest, source: Source) -> None:
        """Refuse patterns, rules and weights that do not fit the quasi-identifiers."""
        _allowed(request, source)

    def risks(self, request: SuppressedRequest) -> Sequence[str]:
        """Who is left over follows from the quasi-identifiers, which others may know."""
        return ["left_over_records"] if request.options.left_over == "publish" else []

    def needs(
        self,
        request: SuppressedRequest,
        source: Source,
        types: Mapping[str, ColumnType],  # noqa: ARG002
        size: Size,
    ) -> Needs:
        """See :meth:`Kind.needs`; only after reading it is known what an integer program takes."""
        n, width = size.n_records, size.width
        record = 70 + 10 * len(source.published)
        memory = 130e6 + record * n + bytes_of_values(size) + bytes_of_texts(size)
        if request.method == "optimal":
            memory = _bytes_of_optimum(n * len(_allowed(request, source)))
        return Needs(memory, (60 + 3.4 * width + 20 * len(source.quasi_identifiers)) * n)

    def search(self, job: Job[SuppressedRequest]) -> MethodResult:
        """Choose a pattern for each record."""
        check_k(job, job.request.k)
        read = SourceColumns.of(job)
        # In whatever order columns were registered, what is found is the same.
        places, allowed = by_name(job.source.quasi_identifiers), _allowed(job.request, job.source)
        data = SuppressibleRows(
            read.codes()[:, places],
            allowed.of_columns(places),
            job.random,
            None if job.entities is None else job.entities.codes,
            lambda n: _require_program(job, n),
        )
        job.session.step("choosing patterns")
        found = run_method(methods, job, data)
        data = replace(data, codes=data.codes[:, inverse_permutation(places)], patterns=allowed)
        return MethodResult((data, read, found.result), found.proof)

    def write(self, job: Job[SuppressedRequest], found: MethodResult) -> Written:
        """Write the rows, each with the cells that it keeps."""
        session, request, source = job.session, job.request, job.source
        data: SuppressibleRows
        read: SourceColumns
        suppression: Suppression
        data, read, suppression = found.hand_over()
        values = read.values
        layout = row_layout(source, ["value"] * len(source.quasi_identifiers), with_pattern=True)
        view = RowView.of(session, job.schema, job.staging.name, layout)
        pattern = suppression.pattern_of_record
        with_all = request.options.left_over == "publish"
        published = np.flatnonzero((pattern != LEFT_OVER) | with_all)
        codes, shown = data.codes[published], Suppression(data.patterns, pattern[published])
        job.random.settle(published)
        cells, class_of_row = _write_cells(job, view, values, codes, shown)
        metrics = _loss(source, values, codes, class_of_row)
        cell_of_record = np.full(pattern.size, -1, dtype=np.int32)
        cell_of_record[published] = class_of_row
        n_left_out = pattern.size - published.size
        del codes, class_of_row, published  # as long as the table, as is what is written now
        write_row_view(job, view, cells, cell_of_record)
        if request.weights is not None or data.patterns.cost_unit != 1:
            metrics["suppression_cost"] = float(shown.cost)
        checks = []
        if job.entities is not None:
            counted = RowsWithEntities.of(job, view, cells, cell_of_record)
            checks = counted.check(request.k)
            counted.drop()
        named = dict(zip(source.quasi_identifiers, cells.columns.values(), strict=False))
        layout = finish_rows(job, view, cells, layout, read.shown(named, cell_of_record))
        cells.drop(session)
        read.drop()
        return Written(
            SuppressedGuarantee.of(
                request, suppression.n_left_over, with_entities=job.source.entity is not None
            ),
            layout=layout,
            checks=checks,
            metrics=metrics,
            parameters={
                **recorded_patterns(request, data.patterns),
                "suppressed": n_left_out,
                **counted_parameters(job),
            },
        )

    def deductions(
        self,
        publication: Publication,
        attacked: AttackedRows,
        attributes: Mapping[str, Mapping[str, Any]],
    ) -> Deductions | None:
        """No class has records, or k of them, that would have got a cheaper pattern elsewhere."""
        given, covering = publication.parameters, attacked.covering
        is_greedy = publication.method == "greedy" and given["left_over"] != "join"
        is_optimal = publication.metrics.get("gap") == 0
        is_whole = publication.layout.get(AT_ONCE) and not given.get("counts_entities")
        if not (is_whole and (is_greedy or is_optimal)):
            return None
        sizes = np.bincount(attacked.class_of_row, minlength=covering.n_classes)
        return deduce_from_patterns(
            covering, sizes, patterns_of(publication, attributes), int(given["k"]),
            is_greedy=is_greedy, is_drawn=given["options"].get("order") == "drawn",
        )  # fmt: skip


KIND: Final = Suppressed()


def _bytes_of_optimum(n_cells: int, n_variables: int = 0) -> float:
    """Forecast what the optimum of records and patterns takes, and an integer program for it."""
    return 400e6 + 80.0 * n_cells + 2000.0 * n_variables


def _require_program(job: Job[SuppressedRequest], n_variables: int) -> None:
    """Refuse an integer program that there is no room for, or say what it needs."""
    patterns = _allowed(job.request, job.source)
    needs = Needs(_bytes_of_optimum(job.records.n_records * len(patterns), n_variables), 0)
    what = f"an integer program of {n_variables:,} variables"
    job.room.require(needs, what, "use the method greedy, or fewer patterns")
    job.session.tell(f"{what} needs some {size_text(needs.memory)} of memory")


def _allowed(request: SuppressedRequest, source: Source) -> PatternSet:
    return allowed_patterns(source, request.patterns, request.rules, request.weights)


def _loss(
    source: Source, values: Sequence[DistinctValues], codes: AnyIntArray, class_of_row: CodeArray
) -> dict[str, float]:
    diversity, total = RowTypeDiversity(class_of_row), 0.0
    for column, its_codes in zip(values, codes.T, strict=True):
        numbers = None
        if not source.is_categorical(column.column.name):
            numbers = read_numbers(column)
        if numbers is None or np.isnan(numbers).any():
            total += diversity.of_categories(its_codes)
        else:
            total += diversity.of_numbers(numbers[its_codes])
    return {"usefulness_loss": total / max(diversity.n_row_types, 1)}


def _write_cells(
    job: Job[SuppressedRequest],
    view: RowView,
    values: Sequence[DistinctValues],
    codes: AnyIntArray,
    suppression: Suppression,
) -> tuple[CellTable, CodeArray]:
    """Write which quasi-identifiers the rows of each class show, and by which pattern.

    Parameters
    ----------
    codes : ndarray of int, shape (n, m)
        The codes of the records that are published.
    suppression : Suppression
        Their patterns.

    Returns
    -------
    cells : CellTable
    class_of_row : ndarray of int32, shape (n,)
    """
    session = job.session
    session.step("writing the classes")
    patterns = suppression.patterns
    # Left-over records exist only where the last pattern suppresses everything.
    pattern = np.where(
        suppression.pattern_of_record == LEFT_OVER, len(patterns) - 1, suppression.pattern_of_record
    )
    class_of_row = settle_classes(job, classes_of(codes, suppression, pattern))
    member = np.empty(class_of_row.max() + 1, dtype=np.int64)
    member[class_of_row] = np.arange(class_of_row.size)
    pattern = pattern[member]
    shown = np.where(patterns.stars[pattern], -1, codes[member].astype(np.int64))

    texts = temporary_table(session, "patterns")
    session.fetch(
        f"CREATE TEMPORARY TABLE {texts} ON COMMIT DROP AS SELECT u.i::int4 - 1 AS number, u.cell"
        " FROM unnest($1::text[]) WITH ORDINALITY AS u (cell, i)",
        list(patterns.texts),
    )
    columns = {
        name: CellColumn.of_values(column, its_codes)
        for name, column, its_codes in zip(view.quasi_identifiers, values, shown.T, strict=True)
    }
    columns[str(view.pattern)] = CellColumn(texts, "number", "cell", len(patterns), pattern)
    return CellTable.write(job.staging, view, columns, job.random), class_of_row
