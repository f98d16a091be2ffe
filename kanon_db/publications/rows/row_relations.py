"""Writes published rows and what follows from them, and checks that they are those that were made.

SQL counts the entities of the source's records with the cells that were written for them. Readers
see no entities, so this cannot be repeated; a digest of the rows tells whether they are still the
same.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, number_as_seen, taken
from kanon_db.catalog.entries import Publication
from kanon_db.dataclasses import dataclass
from kanon_db.publications.codes import StoredColumn
from kanon_db.publications.guarantees import check_exposure, measure_exposure
from kanon_db.publications.kind import Job
from kanon_db.publications.relations import DecodedRows, StagedRelations
from kanon_db.publications.results import Check
from kanon_db.publications.rows.cell_codes import write_cell_codes, write_value_shares
from kanon_db.publications.rows.distinct_cells import CellTable, ShownRows
from kanon_db.query.expressions import TEXT, Column
from kanon_db.query.layout import CELLS, CODES, ROWS, VALUES, CellDescription, RowView
from kanon_db.query.ranges import describe_cells
from kanon_db.session import Session, fetch_one
from kanon_db.session.protocol import grouping_by_hash, roomy, run_with_helper
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.coded_columns import CodedRecords
from kanon_db.transfer.columns import (
    Relation,
    column_types,
    find_relation,
    fix_labels,
    int4_bytes,
    inverse_permutation,
    number_bytes,
    with_numbers,
)


def digested_suffixes(layout: Mapping[str, Any]) -> Sequence[str]:
    """Name the codes of the rows, from which these follow if codes tell all values."""
    stored = map(StoredColumn.read, layout.get("store", {}).get("columns", ()))
    told = {column.name for column in stored if not column.tells_presence}
    is_told = {layout.get("pattern"), *told} >= set(layout["columns"])
    return (VALUES, CODES) if is_told else ("",)


def digest_rows(session: Session, schema: str, name: str, layout: Mapping[str, Any]) -> str:
    """Return numbers that depend on all rows, or on their codes, but not on their order.

    They are sums of 64 bits of each row's SHA-256: a change of any row changes them, except by a
    negligible chance.
    """
    sums = []
    with fix_labels(session):
        for suffix in digested_suffixes(layout):
            row = fetch_one(
                session,
                "SELECT coalesce(sum(('x' || left(encode(hash, 'hex'), 16))::bit(64)::int8), 0)"
                "::text AS digest FROM (SELECT sha256(convert_to(format('%s', published), 'UTF8'))"
                f" AS hash FROM {session.identifier(schema, name + suffix)} AS published) AS h",
            )
            sums.append(str(row["digest"]))
    return " ".join(sums)


def same_digest(promise: str, *, same: bool) -> Check:
    """Say whether rows have the digest that they had."""
    return Check(
        promise,
        "the same digest",
        f"{'the same' if same else 'another'} digest",
        holds=same,
    )


# The count shares nothing with the algorithms: SQL counts entities by what the cells show.


def counted_parameters(job: Job[Any]) -> dict[str, Any]:
    """Return the catalog's parameters: whether entities were counted, if the source has any.

    A batch in which each has one record says that they were not, whatever other batches say.
    """
    return {} if job.source.entity is None else {"counts_entities": job.entities is not None}


@dataclass(frozen=True)
class RowsWithEntities:
    """The published rows, each with the entity that it is about, as a temporary table."""

    session: Session
    view: RowView
    table: str
    # Its columns are this one, whose name no other column has, and those of the view that are
    # compared; names are quoted.
    entity: str
    cells: str  # the columns by which rows are told apart, with commas between them
    sensitive: Sequence[str]  # the sensitive attributes that are needed

    @classmethod
    def of(
        cls,
        job: Job[Any],  # a job whose source has entities
        view: RowView,
        cells: CellTable,
        cell_of_record: AnyIntArray,
        *,
        with_values_of: Sequence[str] = (),  # the sensitive attributes that are needed
    ) -> Self:
        """Join the records of the source with the cells that they are published with.

        `cell_of_record`, shape (n_records,), has -1 for a record that is left out.
        """
        session, source, snapshot = job.session, job.source, job.snapshot
        suffix = secrets.token_hex(8)
        entity = session.identifier(f"kanon_entity_{suffix}")
        its_entity = f"s.{session.identifier(str(source.entity))} AS {entity}"
        names = [*view.quasi_identifiers, *([] if view.pattern is None else [view.pattern])]
        sensitive = [session.identifier(name) for name in with_values_of]
        others = [its_entity, *(f"s.{name}" for name in sensitive)]
        table = session.identifier("pg_temp", f"kanon_entities_{suffix}")
        numbered, (its_cell,) = with_numbers(session, snapshot.table, (1, f"r.{snapshot.record}"))
        session.fetch(
            f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS"
            f" SELECT {', '.join([*(f'c.{name}' for name in names), *others])}"
            f" FROM {numbered} AS s JOIN {cells.table} AS c ON c.{cells.number} = s.{its_cell}",
            int4_bytes(cells.numbers_of(cell_of_record)),
        )
        return cls(session, view, table, entity, ", ".join(names), sensitive)

    def check(self, k: int) -> list[Check]:
        """Check that every combination of cells is shown by k entities, in the published rows."""
        compared = ", ".join([self.cells, *self.sensitive])
        with grouping_by_hash(self.session):
            differing = fetch_one(
                self.session,
                f"SELECT count(*) AS n FROM (SELECT sum({self.entity}) AS difference FROM ("
                f"SELECT {compared}, 1 AS {self.entity} FROM {self.view.view}"
                f" UNION ALL SELECT {compared}, -1 FROM {self.table}) AS row GROUP BY {compared}"
                ") AS row WHERE difference <> 0",
            )["n"]
            found = fetch_one(
                self.session,
                "SELECT count(*) FILTER (WHERE n < $1::int8) AS below, min(n) AS least,"
                " max(share)::float8 AS share, coalesce(bool_or(share * $1::int8 > 1), false)"
                " AS is_large FROM (SELECT count(*) AS n,"
                f" max({self.entity}) / sum({self.entity}) AS share"
                f" FROM (SELECT {self.cells}, count(*) AS {self.entity} FROM {self.table} AS t"
                f" GROUP BY {self.cells}, t.{self.entity}) AS entity GROUP BY {self.cells}"
                ") AS class",
                str(k),
            )
        if found["is_large"]:
            self.session.warn(
                f"up to {found['share']:.0%} of the rows with the same cells are of one entity,"
                " although they are of k: whoever knows that somebody has many rows can tell"
                " which ones; keep publishes one row of each entity"
            )
        return [
            Check(
                "the published rows are those whose entities are counted",
                "0 combinations differ",
                f"{differing} combinations differ",
                holds=differing == 0,
            ),
            Check(
                "k-anonymity: every combination of cells is that of k entities",
                f"k = {k}, 0 combinations below",
                f"{found['below']} below, the rarest is that of {found['least']} entities",
                holds=found["below"] == 0,
            ),
        ]

    def check_exposure(self, attribute: str, privacy: PrivacySpecification) -> Check:
        """Check the share of the entities of a class that have a value in any of its rows."""
        value = self.session.identifier(attribute)
        exposure = measure_exposure(
            self.session,
            privacy,
            "SELECT value, n::numeric AS count, size::numeric AS size, count(*) AS buckets FROM ("
            f" SELECT {value} AS value, count(*) AS n,"
            f" sum(sum({self.entity})) OVER (PARTITION BY {self.cells}) AS size FROM ("
            f"  SELECT {self.cells}, {value}, (row_number() OVER"
            f"  (PARTITION BY {self.cells}, {self.entity}) = 1)::int4 AS {self.entity}"
            f"  FROM {self.table} AS t GROUP BY {self.cells}, t.{self.entity}, {value}"
            ") AS pair"
            f" GROUP BY {self.cells}, {value}) AS counted GROUP BY 1, 2, 3",
        )
        return check_exposure("class, by entities,", exposure)

    def drop(self) -> None:
        """Remove the table before the transaction ends."""
        self.session.fetch(f"DROP TABLE {self.table}")


def settle_classes(job: Job[Any], class_of_record: AnyIntArray) -> CodeArray:
    """Draw from who is in a class with whom from here on; -1 is a record that is left out.

    Returns the classes, numbered anew: however they were found, they are written in one order.
    """
    found = np.full(class_of_record.size, -1, dtype=np.int32)
    is_in = class_of_record >= 0
    found[is_in] = number_as_seen(class_of_record[is_in])
    source = job.source
    job.random.settle(sorted(source.published), sorted(source.quasi_identifiers), found)
    return found


def write_row_view(
    job: Job[Any],
    view: RowView,
    cells: CellTable,
    combination_of_record: AnyIntArray,
) -> None:
    """Write the published rows in a random order, and materialize the view.

    Rows are written with the numbers of their cells, a fraction as wide as with the cells. To join
    them in the view, the server may read either table first: both are in a random order.

    `combination_of_record`, shape (n_records,), has -1 for a record that is left out.
    """
    session = job.session
    session.step("writing the published rows")
    names = [session.identifier(column) for column in view.columns]
    others = [name for name in names if name not in cells.columns]
    if isinstance(job.records, CodedRecords):
        _write_decoded(job, job.records, cells, combination_of_record, others)
    else:
        _write_copied(job, cells, combination_of_record, others)
    session.step("materializing the view")
    with roomy(session), run_with_helper(session):
        job.staging.materialize_join(ROWS, CELLS, cells.name, view.columns)


def write_batches(
    staging: StagedRelations, before: RowView, now: RowView, number: str | None
) -> bool:
    """Write the rows of two publications as those of one, and materialize the view.

    As long as both have numbers of cells, so does what comes of them: the view is made as before,
    and what others have made of it lives on.
    """
    session = staging.session
    tables = [_columns(session, one.rows, one.cells) for one in (before, now)]
    is_numbered = number is not None and before.number == now.number and tables[0] == tables[1]
    session.step("writing the published rows")
    if not is_numbered:
        columns = ", ".join(session.identifier(column) for column in now.columns)
        staging.fill_table(
            ROWS, f"SELECT {columns} FROM {before.view} UNION ALL SELECT {columns} FROM {now.view}"
        )
        session.step("materializing the view")
        staging.materialize(ROWS)
        return False
    first = f"(SELECT coalesce(max({before.number}) + 1, 0) FROM {before.cells})"
    for suffix, names, old, new in zip(
        (ROWS, CELLS), tables[0], (before.rows, before.cells), (now.rows, now.cells), strict=True
    ):
        shifted = [f"{name} + {first}" if name == now.number else name for name in names]
        staging.fill_table(
            suffix,
            f"SELECT {', '.join(names)} FROM {old}"
            f" UNION ALL SELECT {', '.join(shifted)} FROM {new}",
        )
    staging.analyze(CELLS, columns=[str(number)])
    session.step("materializing the view")
    with roomy(session), run_with_helper(session):
        staging.materialize_join(ROWS, CELLS, str(number), now.columns)
    return True


def _columns(session: Session, *tables: str) -> list[list[str]]:
    """Return the quoted names of the columns of tables; none where there is no table."""
    return [
        [
            session.identifier(row["name"])
            for row in session.fetch(
                "SELECT attname::text AS name FROM pg_attribute"
                " WHERE attrelid = to_regclass($1::text) AND attnum > 0 ORDER BY attnum",
                table,
            )
        ]
        for table in tables
    ]


def _write_copied(
    job: Job[Any],
    cells: CellTable,
    combination_of_record: AnyIntArray,
    others: Sequence[str],
) -> None:
    """Write the rows of records of which the server has a copy."""
    session, snapshot = job.session, job.snapshot
    index = f"r.{snapshot.record}"
    numbers, width = number_bytes(cells.numbers_of(combination_of_record))
    places, place_width = number_bytes(
        inverse_permutation(job.random.permutation(snapshot.n_records))
    )
    numbered, (its_cells, place) = with_numbers(
        session, snapshot.table, (1, index), (2, index), widths=(width, place_width)
    )
    shown = [f"s.{its_cells} AS {cells.number}", *(f"s.{name}" for name in others)]
    with roomy(session):
        job.staging.fill_table(
            ROWS,
            f"SELECT {', '.join(shown)} FROM {numbered} AS s"
            f" WHERE s.{its_cells} < {cells.n_combinations} ORDER BY s.{place}",
            numbers,
            places,
        )


def _write_decoded(
    job: Job[Any],
    records: CodedRecords,
    cells: CellTable,
    combination_of_record: AnyIntArray,
    others: Sequence[str],
) -> None:
    """Write the rows of records that are known by their codes."""
    named = {job.session.identifier(name): column for name, column in records.columns.items()}
    numbers = {cells.number: cells.numbers_of(combination_of_record)}
    order = job.random.permutation(records.n_records)
    rows = DecodedRows(job.session, {name: named[name] for name in others}, numbers)
    rows.write(job.staging, ROWS, order[taken(combination_of_record, order) >= 0])


def finish_rows(
    job: Job[Any],
    view: RowView,  # already materialized
    table: CellTable,  # from which it was
    layout: Mapping[str, Any],
    rows: ShownRows,  # those of the view
    cells: Mapping[str, CellDescription] | None = None,
    matches: int | None = None,
) -> dict[str, Any]:
    """Write what the estimator reads, gather statistics, and warn of columns that may be missed."""
    numbered = {**layout, "number": table.name}
    found = write_estimator_tables(job.staging, view, numbered, rows, cells, matches)
    if matches is not None or job.entities is not None:
        # What was checked with the source cannot be checked again.
        staging = job.staging
        found["digest"] = digest_rows(job.session, staging.schema, staging.name, found)
    job.session.step("gathering statistics")
    job.staging.analyze("")
    missed = job.source.without_role
    if missed:
        job.session.tell(
            f"columns without a role are not published: {', '.join(missed)}; those that are to be"
            " published as they are must be registered as insensitive"
        )
    return found


def write_estimator_tables(
    staging: StagedRelations,
    view: RowView,
    layout: Mapping[str, Any],
    rows: ShownRows,
    cells: Mapping[str, CellDescription] | None,
    matches: int | None,
) -> dict[str, Any]:
    """Write the numbers of cells, and the shares of values in them; see :func:`finish_rows`."""
    written = write_cell_codes(staging, view, layout, rows)
    found = {**layout, "store": written.layout}
    if cells is not None:
        found["shares"] = write_value_shares(staging, written, cells, matches)
    return found


def write_from_rows(
    staging: StagedRelations,  # where the rows are
    publication: Publication,
    room: Allowance,
    *,
    with_shares: bool,  # whether cells stand for several values
    matches: int | None,  # see `write_value_shares`
) -> dict[str, Any]:
    """Write what follows from the staged rows, and return the layout with it."""
    session, name = staging.session, staging.name
    layout = dict(publication.layout)
    session.step("materializing the view")
    staging.materialize(ROWS)
    view = RowView.of(session, staging.schema, name, layout)
    rows = ShownRows.of_view(session, staging.schema, name, layout, room)
    cells = _cells(session, staging, layout) if with_shares else None
    layout = write_estimator_tables(staging, view, layout, rows, cells, matches)
    if "digest" in layout:
        layout["digest"] = digest_rows(session, staging.schema, name, layout)
    session.step("gathering statistics")
    staging.analyze("")
    return layout


def _cells(
    session: Session, staging: StagedRelations, layout: Mapping[str, Any]
) -> dict[str, CellDescription]:
    """Describe the cells of each quasi-identifier as the estimator reads them."""
    named = Relation(staging.schema, staging.name + ROWS)
    _, oid, _ = find_relation(session, named.quoted(session))
    types, described, found = column_types(session, oid), layout.get("types", {}), {}
    for written in layout["quasi_identifiers"]:
        name = str(written["name"])
        column = Column(name, session.identifier(name), TEXT)
        of_source = described.get(name, {}).get("type")
        found[name] = describe_cells(column, types[name].type_name, of_source)
    return found
