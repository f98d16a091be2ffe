"""Checking, before rows are published, of how many entities they are.

Readers see no entities, so that this cannot be repeated afterwards. SQL counts the entities of the
source's records with the cells that were written for them, by what the cells show; nothing is
shared with the algorithms.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Self

from kanon_db.algorithms.bucketization.specification import PrivacySpecification
from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.counting.layout import RowView
from kanon_db.publications.exposure import check_exposure, measure_exposure
from kanon_db.publications.job import Job
from kanon_db.publications.results import Check
from kanon_db.publications.rows.cell_table import CellTable
from kanon_db.publications.rows.digest import digest_rows
from kanon_db.session import Session, fetch_one
from kanon_db.session.settings import grouping_by_hash
from kanon_db.transfer.columns import int4_bytes, with_numbers


def counted_parameters(job: Job[Any]) -> dict[str, Any]:
    """Return what the catalog keeps: whether entities were counted, of a source that has them.

    A batch in which each has one record says that they were not, whatever other batches say.
    """
    return {} if job.source.entity is None else {"counts_entities": job.entities is not None}


def counted_layout(job: Job[Any], view: RowView) -> dict[str, Any]:
    """Return the digest by which readers can tell that the rows are those that were checked."""
    return {} if job.entities is None else {"digest": digest_rows(job.session, view)}


@dataclass(frozen=True)
class CountedRows:
    """The published rows, each with the entity that it is about, as a temporary table.

    Attributes
    ----------
    session : Session
    view : RowView
    table : str
    entity : str
        Its columns are this one, whose name no other column has, and those of the view that are
        compared; names are quoted.
    cells : str
        The columns by which rows are told apart, with commas between them.
    sensitive : str or None
    """

    session: Session
    view: RowView
    table: str
    entity: str
    cells: str
    sensitive: str | None

    @classmethod
    def of(
        cls,
        job: Job[Any],
        view: RowView,
        cells: CellTable,
        cell_of_record: AnyIntArray,
        *,
        with_sensitive: bool = False,
    ) -> Self:
        """Join the records of the source with the cells that they are published with.

        Parameters
        ----------
        job : Job
            Of a source with entities.
        view : RowView
        cells : CellTable
        cell_of_record : ndarray of int, shape (n_records,)
            The number of each record's cells; -1 for a record that is left out.
        with_sensitive : bool
            Whether the sensitive attribute is needed.
        """
        session, source, snapshot = job.session, job.source, job.snapshot
        suffix = secrets.token_hex(8)
        entity = session.identifier(f"kanon_entity_{suffix}")
        its_entity = f"s.{session.identifier(str(source.entity))} AS {entity}"
        names = [*view.quasi_identifiers, *([] if view.pattern is None else [view.pattern])]
        sensitive = session.identifier(str(source.sensitive)) if with_sensitive else None
        others = [its_entity, *([] if sensitive is None else [f"s.{sensitive}"])]
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
        compared = self.cells if self.sensitive is None else f"{self.cells}, {self.sensitive}"
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
                " which ones; a view with fewer rows of each entity makes this less"
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

    def check_exposure(self, privacy: PrivacySpecification) -> Check:
        """Check the share of the entities of a class that have a value in any of its rows."""
        exposure = measure_exposure(
            self.session,
            privacy,
            "SELECT value, n::numeric AS count, size::numeric AS size, count(*) AS buckets FROM ("
            f" SELECT {self.sensitive} AS value, count(*) AS n,"
            f" sum(sum({self.entity})) OVER (PARTITION BY {self.cells}) AS size FROM ("
            f"  SELECT {self.cells}, {self.sensitive}, (row_number() OVER"
            f"  (PARTITION BY {self.cells}, {self.entity}) = 1)::int4 AS {self.entity}"
            f"  FROM {self.table} AS t GROUP BY {self.cells}, t.{self.entity}, {self.sensitive}"
            ") AS pair"
            f" GROUP BY {self.cells}, {self.sensitive}) AS counted GROUP BY 1, 2, 3",
        )
        return check_exposure("class, by entities,", exposure)

    def drop(self) -> None:
        """Remove the table before the transaction ends."""
        self.session.fetch(f"DROP TABLE {self.table}")
