"""Answers to count queries from published rows, as readers of the view get them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.catalog.entries import Publication
from kanon_db.counting.layout import RARITY
from kanon_db.metrics.row_counts import column_losses, row_counts
from kanon_db.metrics.workload import CountQuery
from kanon_db.publications.kind import Target
from kanon_db.publications.rows.published_cells import RowCodes, classes_of_rows, read_cells
from kanon_db.publications.usefulness import Usefulness
from kanon_db.transfer.columns import Relation, column_types, find_relation
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.values import DistinctValues, read_known_codes


def answer_from_rows(
    target: Target,
    columns: Sequence[DistinctValues],
    sensitive: DistinctValues | None,
    queries: Sequence[CountQuery],
    *,
    shares_cells: bool,
) -> Usefulness:
    """See :meth:`.Kind.usefulness`.

    Parameters
    ----------
    shares_cells : bool
        Whether the rows with the same cells are a class.
    """
    session, layout = target.session, target.publication.layout
    relation = Relation(target.schema, target.publication.name)
    names = [cell["name"] for cell in layout["quasi_identifiers"]]
    pattern = [layout["pattern"]] if layout.get("pattern") else []
    its_column = [] if sensitive is None else [sensitive.column.name]
    view = take_snapshot(session, relation, [*names, *pattern, *its_column], target.room)
    _, oid, _ = find_relation(session, relation.quoted(session))
    cells, numbers = read_cells(
        view, column_types(session, oid), layout["quasi_identifiers"], columns, pattern
    )
    values = np.zeros(view.n_records, dtype=np.int64)
    if sensitive is not None:
        values = read_known_codes(view, [sensitive])[:, 0].astype(np.int64)
    view.drop()
    answers = estimate_counts(
        target.publication, RowCodes(cells, numbers, values), queries, target.pulse(),
        shares_cells=shares_cells,
    )  # fmt: skip
    n_codes = [len(column.labels) for column in columns]
    losses = column_losses(cells, numbers, n_codes, target.publication.left_out)
    return Usefulness(answers, losses)


def estimate_counts(
    publication: Publication,
    read: RowCodes,
    queries: Sequence[CountQuery],
    pulse: Pulse,
    *,
    shares_cells: bool,
) -> FloatArray:
    """Answer queries from rows whose values have the same codes as in the source.

    Parameters
    ----------
    publication : Publication
    read : RowCodes
    queries : sequence of CountQuery
    pulse : Pulse
    shares_cells : bool
        As of :func:`answer_from_rows`.

    Returns
    -------
    ndarray of float64, shape (n_queries,)
    """
    layout = publication.layout
    _, first = classes_of_rows(read.numbers)
    return row_counts(
        read.cells, read.numbers, read.numbers[first], read.values, queries,
        matches=None if shares_cells else int(publication.parameters["k"]),
        n_left_out=publication.left_out, pulse=pulse,
        rarity=RARITY if layout.get("pattern") else 1.0,
        coarse=[bool(cell.get("is_coarse")) for cell in layout["quasi_identifiers"]],
    )  # fmt: skip
