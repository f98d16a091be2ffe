"""Draws whole records from published relations alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Any, Final, NamedTuple

import numpy as np

from kanon_db.algorithms.bucketization.bucket_assignment import draw_matchings
from kanon_db.algorithms.bucketization.buckets import BucketSetting, in_slots
from kanon_db.algorithms.ground.arrays import IntArray, unpack_levels
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.answers.scope import cell_layout
from kanon_db.catalog.entries import (
    Publication,
    find_publication,
    published_schema,
    require_whole,
)
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.registry import kind_named
from kanon_db.query.layout import BucketTables, CellDescription
from kanon_db.session.protocol import Session, settings

DRAWS: Final = (
    "these records are draws, not people: they are made of the publication and of chance alone, and"
    " tell nothing that it does not tell"
)

_MOST_DRAWN: Final = 1_000_000
"""Records of which all are held in memory at once, as texts."""


class DrawnRecord(NamedTuple):
    """A record that was drawn, as a JSON object with its columns in their order."""

    record: str


def draw(session: Session, name: str, seed: int | None) -> list[DrawnRecord]:
    """Draw a record for each published one, in a random order.

    Raises NotFoundError when there is no such publication, or the role may not read it.
    """
    # Raises InvalidParameterError for a kind whose values cannot be drawn, ranges that Python
    # cannot write (infinite ones, and dates that are not in the years 1 to 9999), or more than
    # 1,000,000 records.
    # In buckets, each record keeps its quasi-identifiers and gets one value of its bucket: by the
    # published weights, as :func:`.draw_matchings` says, or all matchings alike where there are
    # none. In generalized and freeform rows, each value of a set, or number of a range, is equally
    # likely.
    publication = find_publication(session, name)
    require_whole(publication)
    declared = kind_named(publication.kind)
    if not declared.description.draws:
        raise InvalidParameterError(
            "records are drawn from buckets, and from generalized and freeform rows",
            detail=f'"{name}" is of the kind {publication.kind}',
            hint="publish buckets, or ask kanon.estimate",
        )
    if publication.records > _MOST_DRAWN:
        raise InvalidParameterError(
            "the publication is too large to draw all of its records",
            detail=f"{publication.records:,} records, limit {_MOST_DRAWN:,}",
            hint="publish a part of the source",
        )
    session.warn(DRAWS)
    random = np.random.default_rng(seed)
    schema = published_schema(session)
    # Texts of values must not depend on the caller's settings.
    with settings(session, {"intervalstyle": "iso_8601", "timezone": "UTC"}):
        if declared.shape == "buckets":
            tables = BucketTables.of(session, schema, name, publication.layout)
            texts = _draw_from_buckets(session, tables, random)
        else:
            texts = _draw_from_cells(session, schema, publication, random)
    return [DrawnRecord(texts[place]) for place in random.permutation(len(texts)).tolist()]


def _draw_from_buckets(
    session: Session, tables: BucketTables, random: np.random.Generator
) -> list[str]:
    session.step("reading the published relations")
    setting = BucketSetting.of(list(tables.sizes), tables.buckets_of_sizes)
    known = ", ".join(f"q.{one}" for one in tables.quasi_identifiers)
    # Without an order of slots, in that of the columns: the same seed must meet the same rows.
    order = tables.slot_order or known
    rows = session.stream(
        10_000,
        f"SELECT (SELECT row_to_json(r)::text FROM (SELECT {known}) AS r) AS record"
        f" FROM {tables.qit} AS q ORDER BY q.{tables.bucket_id}, {order}",
    )
    records = [row["record"] for row in rows]
    numbers: dict[str, int] = {}
    pairs = [
        (row["bucket"], numbers.setdefault(row["value"], len(numbers)), row["count"])
        for row in session.stream(
            10_000,
            f"SELECT s.{tables.bucket_id} AS bucket, s.{tables.count} AS count,"
            f" (SELECT row_to_json(r)::text FROM (SELECT {tables.values('s')}) AS r) AS value"
            f" FROM {tables.sat} AS s ORDER BY 1, 3",
        )
    ]
    buckets, values, counts = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
    sizes = np.repeat(setting.sizes, setting.counts)
    starts = np.append(0, np.cumsum(sizes))
    n_values = np.bincount(buckets - 1, minlength=sizes.size)
    firsts = np.append(0, np.cumsum(n_values))
    offsets = np.append(0, np.cumsum(sizes * n_values))
    of_pair = sizes[buckets - 1]
    # By pair of a bucket and a value, the cells of its records in the table of weights.
    at = np.repeat(np.arange(buckets.size), of_pair)
    within = np.arange(at.size) - np.repeat(np.cumsum(of_pair) - of_pair, of_pair)
    row_of = starts[buckets - 1][at] + within
    column = np.arange(buckets.size) - firsts[buckets - 1]
    cell = offsets[buckets - 1][at] + within * n_values[buckets - 1][at] + column[at]
    weights = np.empty(int(offsets[-1]))
    weights[cell] = (counts / of_pair)[at]
    caps = np.ones(buckets.size)
    if tables.is_likely:
        bit_of = np.empty(len(records), dtype=np.int64)
        bit_of[in_slots(np.arange(len(records)), setting)] = np.arange(len(records))
        for number, levels, parts in _levels(session, tables, numbers):
            own = values[at] == number
            weights[cell[own]] = levels[bit_of[row_of[own]]] / parts
            caps[values == number] = int(levels.max(initial=0)) / parts
    session.step("drawing values")
    pulse = Pulse(heartbeat=session.heartbeat)
    drawn = values[draw_matchings(weights, starts, firsts, counts, caps, random, pulse)]
    texts = list(numbers)
    return [
        f"{record[:-1]},{texts[value][1:]}"
        for record, value in zip(records, drawn.tolist(), strict=True)
    ]


def _levels(
    session: Session, tables: BucketTables, numbers: Mapping[str, int]
) -> Iterator[tuple[int, IntArray, int]]:
    """Read the levels of each value's weights, by bit, and what they are parts of."""
    for row in session.stream(
        1,
        f"SELECT (SELECT row_to_json(r)::text FROM (SELECT {tables.values('w')}) AS r) AS value,"
        f" w.{tables.weights} AS weights, w.{tables.parts} AS parts FROM {tables.learned} AS w",
    ):
        yield numbers[row["value"]], unpack_levels(row["weights"], tables.n_records), row["parts"]


_WHOLE_TYPES: Final = ("smallint", "integer", "bigint")


def _draw_from_cells(
    session: Session, schema: str, publication: Publication, random: np.random.Generator
) -> list[str]:
    layout = cell_layout(session, schema, publication)
    cells = [layout.cells[name] for name in publication.layout["columns"] if name in layout.cells]
    shown = ", ".join(_cell_as_json(cell) for cell in cells)
    session.step("reading the published rows")
    rows = session.stream(
        10_000, f"SELECT json_build_array({shown})::text AS cells FROM {layout.view.view} AS v"
    )
    # The order of stored rows may differ after a restore; the same seed must meet the same rows.
    texts = sorted(row["cells"] for row in rows)
    session.step("drawing values")
    names = [cell.column.name for cell in cells]
    drawn = []
    for done, text in enumerate(texts):
        if done % 10_000 == 0:
            session.heartbeat()
        try:
            values = [
                _draw_value(cell, value, random)
                for cell, value in zip(cells, json.loads(text), strict=True)
            ]
        except (ValueError, OverflowError):
            raise InvalidParameterError(
                "a range of this publication is too wide to draw from",
                detail="an end is infinite, or before the year 1 or after 9999",
                hint="publish that column in bins, or ask kanon.estimate",
            ) from None
        drawn.append(json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False))
    return drawn


def _cell_as_json(cell: CellDescription) -> str:
    """Write a cell for JSON: a range by its ends, and whether these belong to it."""
    name = f"v.{cell.column.sql}"
    if cell.kind != "range":
        return name
    ends = [f"{end}({name})" for end in ("lower", "upper")]
    return f"json_build_array({', '.join(ends)}, lower_inc({name}), upper_inc({name}))"


def _draw_value(cell: CellDescription, stored: Any, random: np.random.Generator) -> Any:
    """Draw one of the values that a cell stands for; each is equally likely."""
    if stored is None or cell.kind == "value" or cell.labels is not None:
        return stored
    if cell.kind == "set":
        return stored[int(random.integers(len(stored)))]
    type_name = cell.column.type.name
    low, high, has_low, has_high = stored
    if low is None or high is None:  # beyond one end nothing is known; without both, it is NULL
        return high if low is None else low
    if type_name == "date":
        first, last = (date.fromisoformat(end).toordinal() for end in (low, high))
        day = first + (not has_low) + int(random.integers(last - first + has_high - (not has_low)))
        return date.fromordinal(day).isoformat()
    if type_name.startswith("timestamp"):
        since, until = (datetime.fromisoformat(end) for end in (low, high))
        return (since + float(random.random()) * (until - since)).isoformat()
    if type_name in _WHOLE_TYPES:
        start, end = int(low) + (not has_low), int(high) + bool(has_high)
        return start + int(random.integers(end - start))
    width = float(high) - float(low)
    if not math.isfinite(width):
        raise ValueError
    return float(low) + float(random.random()) * width
