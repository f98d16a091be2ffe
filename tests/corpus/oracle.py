"""What a query's answer must be, from the pairs of records and values that PostgreSQL selects."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from tests.integration.parties import Connection, fetch

_QUERY = re.compile(
    r"SELECT (?P<items>.*?) FROM (?P<first>data\.\w+(?: AS \w+)? (?:RIGHT )?JOIN )?"
    r"(?:published\.)?(?P<name>ill|paid)\b(?P<alias> AS \w+)?"
    r"(?P<joins>.*?)"
    r"(?: WHERE (?P<where>.*?))?(?: GROUP BY (?P<keys>.*?))?(?: HAVING .*?)?(?: ORDER BY .*?)?"
    r"(?: LIMIT .*?)?(?: OFFSET .*?)?$"
)
_ITEM = re.compile(r"(?P<text>.*?)(?: AS (?P<alias>\w+))?")


class Expected(NamedTuple):
    estimate: float
    std_error: float
    fewest: int
    most: int


def expected_counts(connection: Connection, query: str) -> dict[str, Expected]:
    """Answer a query of one COUNT: by group, as JSON of its values in the order of GROUP BY."""
    parts = _QUERY.fullmatch(query)
    assert parts is not None, query
    items = [_ITEM.fullmatch(item) for item in split(parts["items"])]
    (counted,) = [item["text"] for item in items if item["text"].startswith("COUNT")]
    aliases = {item["alias"]: item["text"] for item in items if item["alias"]}
    keys = [aliases.get(key, key) for key in split(parts["keys"] or "")]
    conditions = [f"({parts['where']})"] if parts["where"] else []
    counted, _, chosen = counted.partition(" FILTER (WHERE ")
    if counted != "COUNT(*)":
        conditions.append(f"({counted[6:-1]}) IS NOT NULL")
    alias = parts["alias"] or f" AS {parts['name']}"
    own = alias.removeprefix(" AS ")
    rows = fetch(
        connection,
        f"SELECT {own}.bucket_id, {own}.record_id, {own}.value_id,"
        f" {f'({chosen[:-1]}) IS TRUE' if chosen else 'true'},"
        f" jsonb_build_array({', '.join(keys)})::text FROM {parts['first'] or ''}"
        f"data.{parts['name']}_pairs{alias}"
        f"{parts['joins']} WHERE {' AND '.join(conditions) or 'true'}",
    )
    pairs: dict[str, dict[int, set[tuple[int, int]]]] = defaultdict(lambda: defaultdict(set))
    for bucket, record, value, is_chosen, key in rows:
        in_group = pairs[json.dumps(json.loads(key))]
        if is_chosen:
            in_group[bucket].add((record, value))
    found = {key: _of_buckets(connection, parts["name"], buckets) for key, buckets in pairs.items()}
    if not keys and not found:
        found["[]"] = Expected(0, 0, 0, 0)
    return found


def split(items: str) -> list[str]:
    """Split at the commas that stand in no parentheses."""
    found, depth, start = [], 0, 0
    for at, character in enumerate(items):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            found.append(items[start:at].strip())
            start = at + 1
    return [item for item in (*found, items[start:].strip()) if item]


def _of_buckets(
    connection: Connection, name: str, buckets: dict[int, set[tuple[int, int]]]
) -> Expected:
    members: dict[int, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    for bucket, record, value in fetch(
        connection, f"SELECT bucket_id, record_id, value_id FROM data.{name}_pairs"
    ):
        members[bucket][0].add(record)
        members[bucket][1].add(value)
    estimate = variance = 0.0
    fewest = most = 0
    for bucket, chosen in buckets.items():
        records, values = (sorted(side) for side in members[bucket])
        matrix = np.array([[(r, v) in chosen for v in values] for r in records], dtype=float)
        n = len(records)
        estimate += matrix.sum() / n
        centered = matrix - matrix.mean(axis=0) - matrix.mean(axis=1, keepdims=True) + matrix.mean()
        variance += (centered**2).sum() / max(n - 1, 1)
        most += _matching(matrix)
        fewest += n - _matching(1 - matrix)
    return Expected(estimate, math.sqrt(variance), fewest, most)


def _matching(matrix: np.ndarray) -> int:
    """Return the size of a largest matching of rows with columns, by augmenting paths."""
    row_of: dict[int, int] = {}

    def augment(row: int, seen: set[int]) -> bool:
        for column in np.flatnonzero(matrix[row]):
            if column not in seen:
                seen.add(column)
                if column not in row_of or augment(row_of[column], seen):
                    row_of[column] = row
                    return True
        return False

    return sum(augment(row, set()) for row in range(len(matrix)))


__all__ = ["Expected", "expected_counts", "split"]
