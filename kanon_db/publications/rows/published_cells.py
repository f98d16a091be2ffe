"""The cells of published rows as the codes that they cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.algorithms.recoding.cells import Ranges, Sets
from kanon_db.counting.layout import ANYTHING
from kanon_db.errors import SchemaMismatchError
from kanon_db.session.protocol import fetch_one
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.labels import text_in_set
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import (
    DistinctValues,
    distinct_values,
    read_codes,
    read_integers,
    read_known_codes,
    read_numbers,
)

_CLOSED, _NULL, _ANYTHING = 1, 2, 3  # kinds of ranges; of any other kind, the upper end is open


@dataclass(frozen=True, eq=False)
class RowCodes:
    """Published rows as codes.

    Attributes
    ----------
    cells : list of Ranges or Sets
        The distinct cells of each quasi-identifier, by the codes of the source's values.
    numbers : ndarray of int32, shape (n_rows, n_qi)
        Which of them each row has.
    values : ndarray of int64, shape (n_rows,)
        The code of each row's sensitive value; 0 without a sensitive attribute.
    """

    cells: Sequence[Ranges | Sets]
    numbers: CodeArray
    values: IntArray


def classes_of_rows(numbers: CodeArray) -> tuple[IntArray, IntArray]:
    """Return the number of each row's class, which has the same cells, and a row of each class."""
    columns: Sequence[CodeArray] = [numbers[:, a] for a in range(numbers.shape[1])]
    _, first, classes = np.unique(sort_keys(columns), return_index=True, return_inverse=True)
    return classes.astype(np.int64), first


def read_cells(
    view: Snapshot,
    types: Mapping[str, ColumnType],
    described: Sequence[Mapping[str, Any]],
    columns: Sequence[DistinctValues],
    pattern: Sequence[str] = (),
) -> tuple[list[Ranges | Sets], CodeArray]:
    """Read the distinct cells of each quasi-identifier, and which of them each row has.

    Parameters
    ----------
    view : Snapshot
        The published rows.
    types : mapping of str to ColumnType
        The columns of the view.
    described : sequence of mapping
        The ``name`` of each quasi-identifier, what its ``cell`` is, and its ``labels`` if it has
        any, as in the layout.
    columns : sequence of DistinctValues
        Their values in the source, by which cells are coded. Values that the source no longer has
        are covered by no code.
    pattern : sequence of str
        The column that marks suppressed cells, if there is one.

    Returns
    -------
    cells : list of Ranges or Sets
        A suppressed cell covers everything.
    numbers : ndarray of int32, shape (n_rows, n_qi)
    """
    cells: list[Ranges | Sets] = []
    numbers = np.empty((view.n_records, len(columns)), dtype=np.int32)
    for position, (cell, column) in enumerate(zip(described, columns, strict=True)):
        if cell["cell"] == "value":
            codes = read_known_codes(view, [column])[:, 0]
            cells.append(single_values(len(column.labels)))
            # Not coded: only a row of people who are gone; it covers no code.
            numbers[:, position] = np.where(codes < 0, len(column.labels) + 1, codes)
            for name in pattern:
                mark = f"s.{view.session.identifier(name)}"
                stars = read_integers(view, f"(substr({mark}, {position + 1}, 1) = '*')::int4")
                numbers[stars == 1, position] = len(column.labels)
            continue
        distinct = distinct_values(view, types[cell["name"]])
        numbers[:, position] = read_codes(view, [distinct])[:, 0]
        if cell["cell"] == "label":
            cells.append(_labelled(distinct, column, cell["labels"]))
        else:
            is_range = cell["cell"] == "range"
            cells.append(_ranges(distinct, column) if is_range else _sets(distinct, column))
        distinct.drop()
    return cells, numbers


def single_values(n_codes: int) -> Ranges:
    """Cells of each single value, of all together, and of none."""
    low = np.append(np.arange(n_codes), [0, n_codes]).astype(np.int32)
    high = np.append(np.arange(n_codes), [n_codes - 1, -1]).astype(np.int32)
    return Ranges(low, high, np.arange(n_codes + 2) == n_codes)


def _ranges(distinct: DistinctValues, column: DistinctValues) -> Ranges:
    """Find the codes within ranges by the same numbers by which they were published."""
    values = read_numbers(column)
    ends = [column.column.number(f"{end}(value)") for end in ("lower", "upper")]
    if values is None or None in ends:
        raise SchemaMismatchError(
            "the source's values have changed since they were published",
            detail=f'column "{column.column.name}" was published as ranges',
            hint="publish again with replace => true",
        )
    row = fetch_one(
        distinct.session,
        "SELECT string_agg(float8send(l) || float8send(u) || float8send(kind), ''::bytea"
        " ORDER BY code) AS numbers FROM ("
        " SELECT code, CASE WHEN num_nulls(value) > 0 THEN 0 WHEN lower_inf(value)"
        f" THEN '-infinity' ELSE {ends[0]} END AS l, CASE WHEN num_nulls(value) > 0 THEN 0"
        f" WHEN upper_inf(value) THEN 'infinity' ELSE {ends[1]} END AS u,"
        f" CASE WHEN num_nulls(value) > 0 THEN {_NULL}"
        f" WHEN lower_inf(value) AND upper_inf(value) THEN {_ANYTHING}"
        f" ELSE upper_inc(value)::int4 END::float8 AS kind FROM {distinct.table}) AS ranges",
    )
    lower, upper, kind = np.frombuffer(row["numbers"], dtype=">f8").reshape(-1, 3).T
    numbers: FloatArray = values[~np.isnan(values)]
    low = np.searchsorted(numbers, lower, side="left")
    high = np.where(
        kind == _CLOSED,
        np.searchsorted(numbers, upper, side="right"),
        np.searchsorted(numbers, upper, side="left"),
    )
    high = high - 1
    # NULL's code comes after all numbers; without one, such a cell covers no code.
    low = np.where(kind == _NULL, numbers.size, low)
    high = np.where(kind == _NULL, values.size - 1, high)
    return Ranges(low.astype(np.int32), high.astype(np.int32), kind == _ANYTHING)


def _labelled(
    distinct: DistinctValues, column: DistinctValues, described: Mapping[str, Any]
) -> Sets:
    """Find the codes of the values that labels stand for."""
    is_padded = column.column.type_name == "bpchar"
    code_of = {
        text.rstrip(" ") if is_padded and text is not None else text: code
        for code, text in enumerate(column.labels)
    }
    values = described["values"]
    spans = {value: (at, at) for at, value in enumerate(values)}
    spans |= {label: (first, last) for label, first, last in described["labels"]}
    codes, ends = list[int](), list[int]()
    for label in distinct.labels:
        first, last = spans.get(label or "", (0, len(values) - 1))
        texts = [None] if label is None else values[first : last + 1]
        texts = [*texts, None] if label == ANYTHING else texts
        codes += sorted(code_of[text] for text in texts if text in code_of)
        ends.append(len(codes))
    return Sets(np.array(codes, dtype=np.int32), np.array(ends, dtype=np.int64))


def _sets(distinct: DistinctValues, column: DistinctValues) -> Sets:
    """Find the codes of the texts in sets."""
    text = text_in_set(column.column, "v.label")
    null = column.labels.index(None) if None in column.labels else -1
    row = fetch_one(
        distinct.session,
        "SELECT string_agg(int4send(c.code) || int4send(coalesce(v.code,"
        f" CASE WHEN l.label IS NULL THEN {null} ELSE -1 END)), ''::bytea) AS pairs"
        f" FROM {distinct.table} AS c CROSS JOIN LATERAL unnest(c.value) AS l (label)"
        f" LEFT JOIN {column.table} AS v ON {text} = l.label",
    )
    pairs = np.frombuffer(row["pairs"] or b"", dtype=">i4").reshape(-1, 2).astype(np.int64)
    pairs = pairs[pairs[:, 1] >= 0]
    keys = np.unique(pairs[:, 0] * len(column.labels) + pairs[:, 1])
    owners, codes = np.divmod(keys, len(column.labels))
    ends = np.cumsum(np.bincount(owners, minlength=len(distinct.labels)))
    return Sets(codes.astype(np.int32), ends)
