"""Publications of rows: a materialized view with a cell for each quasi-identifier.

Generalized, freeform and suppressed publications differ in what a cell is; their names, their
layout and the way they are written are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.catalog.entries import Publication, Source, published_schema
from kanon_db.catalog.names import free_column_name
from kanon_db.counting.layout import (
    ANYTHING,
    CELLS,
    CLASSED_SUFFIXES,
    CLASSES,
    ROWS,
    SHARES,
    Quotes,
    RowView,
)
from kanon_db.declaration import unknown
from kanon_db.errors import TooFewError
from kanon_db.metrics.workload import CountQuery
from kanon_db.publications.attacks import Listener
from kanon_db.publications.guarantees import of_both
from kanon_db.publications.job import Job
from kanon_db.publications.kind import Kind, Target, Written
from kanon_db.publications.notes import Note
from kanon_db.publications.partition import Classes
from kanon_db.publications.relations import check_relations
from kanon_db.publications.results import Attack, Check, Examination
from kanon_db.publications.rows.answers import answer_from_rows
from kanon_db.publications.rows.attack import (
    AttackedRows,
    Bounds,
    CountedValues,
    play_attacks,
    read_rows,
)
from kanon_db.publications.rows.class_sizes import ClassSizes
from kanon_db.publications.rows.classes import number_again
from kanon_db.publications.rows.completing import completed
from kanon_db.publications.rows.digest import check_digest, digest_rows
from kanon_db.publications.rows.notes import row_notes
from kanon_db.publications.rows.shares import check_shares
from kanon_db.publications.rows.shown_rows import ShownRows
from kanon_db.publications.rows.writing import write_batches, write_for_estimator
from kanon_db.publications.staging import Staging
from kanon_db.publications.usefulness import Usefulness
from kanon_db.session import Session, fetch_one
from kanon_db.transfer.columns import (
    ColumnType,
    Relation,
)
from kanon_db.transfer.room import Room
from kanon_db.transfer.values import DistinctValues

AT_ONCE: Final = "at_once"
"""In a layout: that all rows were published together, not in batches."""


class RowKind(Kind):
    """A kind that publishes all columns whose role allows it, in a materialized view."""

    suffixes: Sequence[str] = CLASSED_SUFFIXES
    closed = (ROWS, CELLS)
    told = (ROWS,)
    examine_rows: Callable[[Session, RowView, Publication, ClassSizes], Examination]
    """Checks what the kind promises of its rows, and measures them, using only the view; given how
    many rows have each combination of cells."""
    shares_cells = True
    """Whether rows are published in classes of the same cells."""

    def prepare(self, request: Any, source: Source) -> None:
        """Refuse weights of columns that are not quasi-identifiers."""
        weights_of(source, request.weights)

    def made(self, layout: Mapping[str, Any]) -> Sequence[str]:
        """Leave out the table of cells where rows have their cells themselves."""
        has_numbers = layout.get("number") is not None
        return [suffix for suffix in self.suffixes if suffix != CELLS or has_numbers]

    def digested(self, layout: Mapping[str, Any]) -> Sequence[str]:
        """Name the numbers of the rows, from which these follow if all columns have them."""
        classes = layout.get("classes", {})
        told = {layout.get("pattern"), *classes.get("columns", ()), *classes.get("ends", ())}
        return (CLASSES,) if told >= set(layout["columns"]) else ("",)

    def columns(self, source: Source, types: Mapping[str, ColumnType]) -> list[str]:  # noqa: ARG002
        """Read only what is published."""
        return source.published

    def examine(
        self,
        session: Session,
        publication: Publication,
        *,
        is_new: bool = False,  # noqa: ARG002
    ) -> Examination:
        """Check that the relations are those that were published, and only then read the rows."""
        schema = published_schema(session)
        view = RowView.of(session, schema, publication.name, publication.layout)
        with_shares = bool(publication.layout.get("shares"))
        relations = check_row_view(session, view, with_shares=with_shares)
        if not all(check.holds for check in relations):
            return Examination(relations, {})
        sizes, numbered = None, []
        if "classes" in publication.layout:
            sizes, check = number_again(session, view, schema, publication)
            numbered.append(check)
        if sizes is None:
            session.step("counting the rows with the same cells")
            sizes = ClassSizes.counted(session, view)
        examined = self.examine_rows(session, view, publication, sizes)
        checks = [*relations, *check_labels(session, view, publication), *examined.checks]
        if with_shares:
            checks.append(check_shares(session, view))
        checks += numbered
        if publication.parameters.get("counts_entities"):
            promise = "the rows are those whose entities were counted when they were published"
            checks.append(check_digest(session, view, publication.layout["digest"], promise))
        return Examination(checks, examined.metrics)

    def extend(self, job: Job[Any], old: Publication, batch: Written, whole: Staging) -> Written:
        """See :meth:`Kind.extend`: all rows in one view, with shares of their own."""
        session = job.session
        before, now = (
            RowView.of(session, job.schema, one, layout)
            for one, layout in ((old.name, old.layout), (job.staging.name, batch.layout))
        )
        is_numbered = write_batches(whole, before, now, batch.layout.get("number"))
        view = RowView.of(session, job.schema, whole.name, batch.layout)
        dropped = {AT_ONCE} if is_numbered else {AT_ONCE, "number"}
        layout = {key: kept for key, kept in batch.layout.items() if key not in dropped}
        rows = ShownRows.of_view(session, job.schema, whole.name, layout, job.room)
        layout = write_for_estimator(
            whole, view, layout, rows, batch.cells if "shares" in layout else None, batch.matches
        )
        parameters = dict(batch.parameters)
        # Entities were counted if they were in any batch.
        if counts := bool(old.parameters.get("counts_entities")):
            parameters["counts_entities"] = True
        if counts or "digest" in layout:
            layout["digest"] = digest_rows(session, view)
        whole.analyze("")
        if "suppressed" in parameters:
            parameters["suppressed"] += old.left_out
        return replace(
            batch, guarantee=of_both(old.guarantee, batch.guarantee), layout=layout,
            parameters=parameters,
        )  # fmt: skip

    def complete(self, staging: Staging, publication: Publication, room: Room) -> Mapping[str, Any]:
        """See :func:`.completed`."""
        return completed(
            staging, publication, room, with_shares=SHARES in self.suffixes,
            matches=self.matches(publication),
        )  # fmt: skip

    def matches(self, publication: Publication) -> int | None:  # noqa: ARG002
        """Return how many originals each cell covers, if it is not all of a class."""
        return None

    def partition(
        self,
        session: Session,  # noqa: ARG002
        schema: str,
        publication: Publication,
    ) -> Classes | None:
        """Read the view; None if rows have no classes, are not people, or came in batches.

        Rows of different batches may look alike, but whoever has a copy of before tells them apart.
        """
        layout, parameters = publication.layout, publication.parameters
        is_people = not parameters.get("counts_entities")
        if not (self.shares_cells and is_people and layout.get(AT_ONCE)):
            return None
        return Classes(
            Relation(schema, publication.name), layout["quasi_identifiers"], layout.get("pattern"),
            layout["others"], layout["sensitive"], layout.get("types", {}), int(parameters["k"]),
            least=1, thresholds=None,
        )  # fmt: skip

    def notes(self, publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
        """See :func:`.row_notes`."""
        return row_notes(publication, quotes)

    def bounds(self, publication: Publication, sensitive: CountedValues) -> Bounds:  # noqa: ARG002
        """Return what the guarantee says about sensitive values; k-anonymity says nothing."""
        return Bounds()

    def usefulness(
        self,
        target: Target,
        columns: Sequence[DistinctValues],
        sensitive: DistinctValues | None,
        queries: Sequence[CountQuery],
    ) -> Usefulness:
        """See :func:`.answer_from_rows`."""
        return answer_from_rows(target, columns, sensitive, queries, shares_cells=self.shares_cells)

    def attack(self, target: Target) -> Sequence[Attack]:
        """See :meth:`play`."""
        return self.play(target.session, target.pulse(), target.publication, read_rows(target))

    def play(
        self, listener: Listener, pulse: Pulse, publication: Publication, attacked: AttackedRows
    ) -> list[Attack]:
        """Play all attacks with what was read; see :func:`.play_attacks`."""
        bounds = Bounds()
        if attacked.sensitive is not None:
            bounds = self.bounds(publication, attacked.sensitive)
        return play_attacks(
            listener, pulse, publication, attacked, bounds, shares_cells=self.shares_cells
        )


def check_k(job: Job[Any], k: int) -> None:
    """Refuse a k that is larger than the table, or than the number of entities in it.

    Raises
    ------
    TooFewError
    """
    if job.entities is None:
        require_k(job.source, k, job.records.n_records)
    else:
        require_k(job.source, k, job.entities.number, "entities")


def require_k(source: Source, k: int, number: int, what: str = "records") -> None:
    """Refuse a k that is larger than a number of records or entities.

    Raises
    ------
    TooFewError
    """
    if k > number:
        raise TooFewError(
            f"k must not exceed the number of {what}",
            detail=f"{source.relation}: k = {k}, n_{what} = {number}",
            hint=f"lower k to {number} or less, or publish more {what}"
            if number > 1
            else "nobody can be hidden in this table: it needs at least two people",
        )


def weights_of(
    source: Source, weights: Mapping[str, Fraction] | None
) -> list[int | float | Fraction] | None:
    """Return the weight of each quasi-identifier; None if all weights are 1.

    An attribute that `weights` does not name has its registered weight.

    Raises
    ------
    InvalidParameterError
        When `weights` names another column.
    """
    given = weights or {}
    for column in given:
        if column not in source.quasi_identifiers:
            raise unknown("quasi-identifier", column, source.quasi_identifiers)
    found = [
        given.get(column, source.attributes.get(column, {}).get("weight", 1))
        for column in source.quasi_identifiers
    ]
    return None if all(weight == 1 for weight in found) else found


def layout_of(
    source: Source, cells: Sequence[str], *, with_pattern: bool = False
) -> dict[str, Any]:
    """Choose the layout of a publication, which the catalog keeps for :meth:`RowView.of`.

    Parameters
    ----------
    source : Source
        The view keeps the order of its columns.
    cells : sequence of str
        ``range``, ``set`` or ``value`` for each quasi-identifier.
    with_pattern : bool
        Whether an extra column says which cells of a row are suppressed.
    """
    columns = source.published
    layout: dict[str, Any] = {
        "quasi_identifiers": [
            {"name": name, "cell": cell}
            for name, cell in zip(source.quasi_identifiers, cells, strict=True)
        ],
        "sensitive": source.sensitive,
        "others": [column for column in columns if column not in source.quasi_identifiers],
        AT_ONCE: True,
    }
    if with_pattern:
        layout["pattern"] = free_column_name("pattern", columns)
        columns.append(layout["pattern"])
    layout["columns"] = columns
    return layout


def check_labels(session: Session, view: RowView, publication: Publication) -> list[Check]:
    """Check that all labels are known: the estimator would not know what others stand for."""
    described = publication.layout["quasi_identifiers"]
    checks = []
    for name, cell in zip(view.quasi_identifiers, described, strict=True):
        if cell["cell"] != "label":
            continue
        row = fetch_one(
            session,
            f"SELECT count(*) AS n FROM {view.view} AS c WHERE c.{name} <> ALL ($1::text[])",
            [
                *cell["labels"]["values"],
                *(label for label, *_ in cell["labels"]["labels"]),
                ANYTHING,
            ],
        )
        checks.append(
            Check(
                f"every label of {cell['name']} is one of its hierarchy",
                "0 rows differ",
                f"{row['n']} rows differ",
                holds=row["n"] == 0,
            )
        )
    return checks


_COLUMNS = """
SELECT coalesce(array_agg(attname::text ORDER BY attnum), '{}') AS columns
FROM pg_attribute WHERE attrelid = to_regclass($1::text) AND attnum > 0 AND NOT attisdropped
"""


def check_row_view(session: Session, view: RowView, *, with_shares: bool = False) -> list[Check]:
    """Check in the server's catalogs that the relations are those that were published."""
    columns = fetch_one(session, _COLUMNS, view.view)["columns"]
    tables = [view.rows] if view.number is None else [view.rows, view.cells]
    differing = len(set(columns).symmetric_difference(view.columns))
    return [
        check_relations(
            session,
            "the materialized view reads only the table of its rows",
            view.view,
            [*tables, view.shares] if with_shares else tables,
            materialized=True,
        ),
        Check(
            "the view has the published columns, and no identifier",
            f"{len(view.columns)} columns, 0 differ",
            f"{len(columns)} columns, {differing} differ",
            holds=list(columns) == list(view.columns),
        ),
    ]
