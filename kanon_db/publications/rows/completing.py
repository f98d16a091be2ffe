"""What follows from published rows: the view, the numbers of cells, and the shares of values.

Where rows were published just now, it is written from what is in memory; here it is found again
from the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanon_db.catalog.entries import Publication
from kanon_db.counting.expressions import Column, Type
from kanon_db.counting.layout import ROWS, Cell, RowView
from kanon_db.counting.types import DISCRETE_RANGES, type_in_range
from kanon_db.publications.rows.digest import digest_rows
from kanon_db.publications.rows.shown_rows import ShownRows
from kanon_db.publications.rows.writing import write_for_estimator
from kanon_db.publications.staging import Staging
from kanon_db.session.protocol import Session
from kanon_db.transfer.columns import Relation, column_types, find_relation
from kanon_db.transfer.room import Room


def completed(
    staging: Staging,
    publication: Publication,
    room: Room,
    *,
    with_shares: bool,
    matches: int | None,
) -> dict[str, Any]:
    """Write what follows from the staged rows, and return the layout with it.

    Parameters
    ----------
    staging : Staging
        Where the rows are.
    publication : Publication
    room : Room
    with_shares : bool
        Whether cells stand for several values.
    matches : int or None
        See :func:`.write_shares`.
    """
    session, name = staging.session, staging.name
    layout = dict(publication.layout)
    session.step("materializing the view")
    staging.materialize(ROWS)
    view = RowView.of(session, staging.schema, name, layout)
    rows = ShownRows.of_view(session, staging.schema, name, layout, room)
    cells = _cells(session, staging, layout) if with_shares else None
    layout = write_for_estimator(staging, view, layout, rows, cells, matches)
    if "digest" in layout:
        layout["digest"] = digest_rows(session, view)
    session.step("gathering statistics")
    staging.analyze("")
    return layout


def _cells(session: Session, staging: Staging, layout: Mapping[str, Any]) -> dict[str, Cell]:
    """Describe the cells of each quasi-identifier as the estimator reads them."""
    named = Relation(staging.schema, staging.name + ROWS)
    _, oid, _ = find_relation(session, named.quoted(session))
    types, described, found = column_types(session, oid), layout.get("types", {}), {}
    for written in layout["quasi_identifiers"]:
        name = str(written["name"])
        range_type = types[name].type_name
        inside = type_in_range(range_type, described.get(name, {}).get("type"))
        found[name] = Cell(
            Column(name, session.identifier(name), inside or Type("text", "text")),
            "set" if inside is None else "range",
            is_discrete=range_type in DISCRETE_RANGES,
        )
    return found
