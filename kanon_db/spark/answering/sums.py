"""Which values the records of groups have, where conditions mention a column with others.

It is what :class:`kanon_db.answers.evidence_sql.SpreadSumWriter` writes as SQL.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.answers.coded_rows import TypeCounter, key_of_values
from kanon_db.answers.evidence_sql import NumberedSpreadWriter, has_pieces
from kanon_db.session.protocol import Row
from kanon_db.spark.query import only_in_postgresql, read_or_refused

if TYPE_CHECKING:
    from kanon_db.answers.scope import OpenQuery
    from kanon_db.query.layout import CellLayout
    from kanon_db.query.sql import Request


def value_sums(opened: OpenQuery, request: Request, layout: CellLayout, most: int) -> list[Row]:
    """Count the records with each value of what is summed, and between which values they are.

    Raises
    ------
    UnsupportedQueryError
        If there is too much to be listed or tried.
    """
    if not has_pieces(request, layout):
        raise only_in_postgresql()
    pieces = NumberedSpreadWriter(request, layout).pieces()
    expected: defaultdict[tuple[float, ...], float] = defaultdict(float)
    between: defaultdict[tuple[float, ...], float] = defaultdict(float)
    with read_or_refused():
        types = opened.known_types(request, layout, pieces)
        counter = TypeCounter(pieces, types.read, opened.session.heartbeat)
        for codes, n in types.all():
            for found in counter.spread(codes, n):
                for key, records in _summed([found.group, found.x], found.expected):
                    expected[key] += records
                ends = [np.nan_to_num(end, nan=np.inf) for end in (found.least, found.most)]
                for key, records in _summed([found.of_group, *ends, found.surely], found.n):
                    between[key] += records
                opened.session.heartbeat()
                if len(expected) + len(between) > most:
                    raise opened.limits.too_many()
    names = [key.name for key in request.query.keys]

    def key_of(group: float) -> str:
        return key_of_values(names, counter.values(int(group))[1])

    rows: list[Row] = [
        {"group_key": key_of(group), "is_value": True, "surely": False, "least": x, "most": None,
         "n": records}
        for (group, x), records in expected.items()
    ]  # fmt: skip
    for (group, *ends_of, surely), records in between.items():
        least, most_ = (None if np.isinf(end) else end for end in ends_of)
        rows.append(
            {"group_key": key_of(group), "is_value": False, "surely": bool(surely), "least": least,
             "most": most_, "n": records}
        )  # fmt: skip
    return rows


def _summed(keys: Sequence[Any], n: FloatArray) -> Iterator[tuple[tuple[float, ...], float]]:
    """Sum numbers by the keys that they have in common."""
    distinct, place = np.unique(np.column_stack(keys), axis=0, return_inverse=True)
    sums = np.bincount(place.reshape(-1), n, len(distinct)).tolist()
    yield from zip(map(tuple, distinct.tolist()), sums, strict=True)
