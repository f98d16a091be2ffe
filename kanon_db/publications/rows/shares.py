"""How often each value occurs in a cell: a table that is published with rows of ranges and sets.

It follows from the published rows alone, so it tells nothing that they do not; the estimator would
take too long to calculate it for each question. It has a row for each distinct cell, by its text:
the shares of a set's values, or the parts of the column's axis that a range covers, with its own
share at either end; and for which share of the records this is known. The axis is a row without a
cell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.algorithms.recoding import Sets
from kanon_db.algorithms.recoding.known_shares import MOST_CELLS, KnownRanges, KnownSets
from kanon_db.counting.layout import SHARES, Cell, RowView
from kanon_db.counting.layout import Shares as WhatIsKnown
from kanon_db.counting.writing.cell_values import is_endless
from kanon_db.counting.writing.intervals import ends_of, value_at
from kanon_db.counting.writing.labels import labels, members_of, texts
from kanon_db.publications.results import Check
from kanon_db.publications.rows.classes import WrittenClasses
from kanon_db.publications.staging import Staging
from kanon_db.session import Row, Session, fetch_one
from kanon_db.session.settings import grouping_by_hash
from kanon_db.transfer.columns import int4_bytes, with_numbers

_TABLE: Final = (
    "SELECT * FROM json_to_recordset($1::text::json) AS r (attribute text, cell text,"
    " shares float8[], first int4, last int4, own float8, known float8, points text[])"
)

_AMISS: Final = """
SELECT count(*) AS n FROM {} AS e WHERE coalesce(CASE
    WHEN e.shares IS NULL THEN e.first BETWEEN 1 AND e.last AND e.own BETWEEN 0 AND 0.5
    ELSE (SELECT abs(sum(s) - 1) < 1e-6 AND min(s) >= 0 FROM unnest(e.shares) AS s)
END, false) IS FALSE
"""

Line = dict[str, Any]


def write_shares(
    staging: Staging, classes: WrittenClasses, cells: Mapping[str, Cell], matches: int | None
) -> dict[str, WhatIsKnown]:
    """Write the table of shares.

    Parameters
    ----------
    staging : Staging
    classes : WrittenClasses
        The table of the distinct cells, and how many classes have each.
    cells : mapping of str to Cell
        The quasi-identifiers, in the view's order.
    matches : int or None
        How many originals each cell covers as tightly as possible; None if it covers those of all
        records that have the same cells.

    Returns
    -------
    dict of str to str
        What is known of each column; without those that have too many different cells.
    """
    session = staging.session
    session.step("finding the shares of values in cells")
    lines: list[Line] = []
    known: dict[str, WhatIsKnown] = {}
    counted = _counted(session, classes, cells, matches)
    for (name, cell), rows in zip(cells.items(), counted, strict=True):
        found, own = (_of_ranges if cell.kind == "range" else _of_sets)(session, cell, rows)
        session.heartbeat()
        if own:
            known[name] = found
            lines += [{"attribute": name, **line} for line in own]
    staging.fill_table(SHARES, _TABLE, json.dumps(lines))
    staging.analyze(SHARES)
    return known


def check_shares(session: Session, view: RowView) -> Check:
    """Check that the shares of each cell are shares: estimates then lie within the bounds."""
    amiss = fetch_one(session, _AMISS.format(view.shares))["n"]
    return Check(
        "the shares of the values of each cell add up to one",
        "0 cells differ",
        f"{amiss} cells differ",
        holds=amiss == 0,
    )


def _counted(
    session: Session, classes: WrittenClasses, cells: Mapping[str, Cell], matches: int | None
) -> Iterator[list[Row]]:
    """Count the records of each column's distinct cells; no rows if there are too many.

    Of the records that have all cells in common, one at least has each value of a set, and each
    end of a range, unless it was coarsened. Where a cell covers as many originals as it has
    matches, any of these is as likely to be its own (freeform generalization), so that one in as
    many records has.
    """
    table = classes.table
    for name, cell in cells.items():
        n_classes = classes.classes_of_cells.get(name)
        if n_classes is None or n_classes.size > MOST_CELLS:
            yield []
            continue
        numbered, (its_classes,) = with_numbers(
            session,
            f"(SELECT * FROM {table.table} AS t WHERE t.{table.codes} IS NULL"
            f" AND t.{table.attribute} = {session.literal(name)})",
            (1, f"r.{table.number}"),
        )
        value = f"n.{cell.column.sql}"
        witnesses = f"n.{its_classes}"
        if matches is not None:  # not a whole number
            witnesses = f"n.{table.records} / {matches}::float8"
        shown = {"members": "c.cell"}
        if cell.kind == "range":
            shown = dict(zip(("low", "high"), ends_of(cell, "c.cell"), strict=True))
        listed = ", ".join(f"{sql} AS {alias}" for alias, sql in shown.items())
        where = f"num_nulls({value}) = 0"
        if cell.kind == "range":
            where += f" AND NOT {is_endless(value)}"
        counted = (
            f"(SELECT {value} AS cell, n.{table.records} AS records,"
            f" ({witnesses})::float8 AS witnesses FROM {numbered} AS n WHERE {where})"
        )
        described = [] if cell.labels is None else [cell.labels]
        if described:
            kept = "$2::text::jsonb"
            members = members_of("c.cell", "l", texts(kept).write())
            counted = (
                f"(SELECT {members} AS cell, c.records, c.witnesses FROM {counted} AS c"
                f" JOIN ({labels(kept).write()}) AS l ON l.label = c.cell)"
            )
        with grouping_by_hash(session):
            yield session.fetch(
                f"SELECT c.cell::text AS cell, {listed}, c.records, c.witnesses"
                f" FROM {counted} AS c",
                int4_bytes(n_classes),
                *described,
            )


def _column(rows: Sequence[Row], name: str) -> FloatArray:
    return np.array([row[name] for row in rows], dtype=np.float64)


def _of_sets(
    session: Session,  # noqa: ARG001
    cell: Cell,
    rows: Sequence[Row],
) -> tuple[WhatIsKnown, list[Line]]:
    members = [list(row["members"]) for row in rows]
    codes: dict[str | None, int] = {}
    total = [codes.setdefault(value, len(codes)) for values in members for value in values]
    ends: IntArray = np.cumsum([len(values) for values in members], dtype=np.int64)
    cells = Sets(np.array(total, dtype=np.int32), ends)
    records, witnesses = _column(rows, "records").astype(np.int64), _column(rows, "witnesses")
    found = KnownSets.of(cells, records, witnesses, is_tight=cell.is_tight)
    if found is None:
        return "of_each", []
    return "of_each", [
        {"cell": row["cell"], "shares": found.shares[end - size : end].tolist(), "known": known}
        for row, end, size, known in zip(
            rows, ends.tolist(), cells.sizes.tolist(), found.known.tolist(), strict=True
        )
    ]


def _of_ranges(session: Session, cell: Cell, rows: Sequence[Row]) -> tuple[WhatIsKnown, list[Line]]:
    low, high = (_column(rows, name) for name in ("low", "high"))
    records, witnesses = _column(rows, "records").astype(np.int64), _column(rows, "witnesses")
    found = KnownRanges.of(
        low, high, records, witnesses, is_tight=cell.is_tight, is_discrete=cell.is_discrete
    )
    if found is None:
        return "of_parts", []
    value = value_at(cell.column.type, "p")
    points = session.fetch(
        f"SELECT array_agg(({value})::text ORDER BY i) AS points"
        " FROM unnest($1::text[]::float8[]) WITH ORDINALITY AS u (p, i)",
        list(map(repr, found.axis.middles.tolist())),
    )
    lines: list[Line] = [
        {"shares": found.axis.shares.tolist(), "points": list(points[0]["points"])}
    ]
    lines += [
        {"cell": row["cell"], "first": one, "last": other, "own": own, "known": 2 * own}
        for row, one, other, own in zip(
            rows,
            (1 + found.first).tolist(),
            (1 + found.last).tolist(),
            found.own.tolist(),
            strict=True,
        )
    ]
    return ("of_each" if found.is_each else "of_parts"), lines
