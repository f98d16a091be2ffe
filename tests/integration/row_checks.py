"""Published rows compared with their originals, in Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from psycopg.types.range import Range

from tests.integration.parties import (
    Connection,
    Functions,
    Parties,
    create_source,
    fetch,
    quoted,
    value,
)

# The number tells which person a published row is about: it is no quasi-identifier here, so that
# tests can compare each row with its original.
PEOPLE = [
    (
        i, f"name {i}", 18 + i * 7 % 60 if i % 11 else None, "mf"[i % 2], f"town {i * i % 9}",
        f"{1940 + i % 50}-0{1 + i % 9}-11", f"disease {i * 13 % 5}",
    )
    for i in range(120)
]  # fmt: skip
QUASI_IDENTIFIERS = ("age", "sex", "town", "born")
QUICK = '{"time_limit": 1}'


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    """Create and register data.people, for each module that imports this."""
    columns = "number int, name text, age int, sex text, town text, born date, sick text"
    create_source(
        parties.publisher, "data.people", columns, PEOPLE, QUASI_IDENTIFIERS, "sick",
        identifiers=["name"], insensitive=["number"],
    )  # fmt: skip


def covers(cell: Any, original: Any) -> bool:
    """Whether a cell says nothing false about an original value."""
    if isinstance(cell, Range):
        unbounded = cell.lower_inf and cell.upper_inf
        return unbounded or (original is not None and original in cell)
    if isinstance(cell, list):
        return original in cell
    return cell is None and original is None


def check_bounds(parties: Parties, name: str, where: str) -> None:
    """Count in a publication, and in the table of its name in the schema data."""
    truth = value(parties.publisher, f"SELECT count(*) FROM data.{name} WHERE {where}")
    query = f"SELECT COUNT(*) FROM {name} WHERE {where}"
    _, _, lower, upper = Functions(parties.analyst).estimate(query)
    assert lower <= truth <= upper, where


def check_generalized(
    connection: Connection,
    source: str,
    name: str,
    quasi_identifiers: Sequence[str],
    k: int,
    suppressed: int = 0,
) -> dict[tuple[str, ...], list[Any]]:
    """Compare a publication with its source, in Python; the numbers in each class."""
    columns = ", ".join(map(quoted, ("number", *quasi_identifiers)))
    originals = {row[0]: row[1:] for row in fetch(connection, f"SELECT {columns} FROM {source}")}
    n = len(originals)
    classes: defaultdict[tuple[str, ...], list[Any]] = defaultdict(list)
    for number, *cells in fetch(connection, f"SELECT {columns} FROM {quoted('published', name)}"):
        for cell, original in zip(cells, originals.pop(number), strict=True):
            assert covers(cell, original), (cell, original)
        classes[tuple(map(str, cells))].append(number)
    assert len(originals) == suppressed
    assert sum(map(len, classes.values())) == n - suppressed
    assert all(len(members) >= k for members in classes.values())
    return classes


def most_matches(possible: Sequence[Sequence[int]], k: int) -> int:
    """Most edges of a subgraph with at most k at each original and k at each published row.

    Ford and Fulkerson's method: one more edge along an augmenting path, as long as there is one.
    """
    n = len(possible)
    taken: list[set[int]] = [set() for _ in range(n)]  # rows of each original
    owners: list[set[int]] = [set() for _ in range(n)]  # originals of each row

    def augment(original: int) -> bool:
        came_from: dict[int, tuple[int, int]] = {}  # row -> the original, and the row it gave up
        waiting, seen = [(original, -1)], {original}
        while waiting:
            current, given_up = waiting.pop()
            for row in possible[current]:
                if row in taken[current] or row in came_from:
                    continue
                came_from[row] = current, given_up
                if len(owners[row]) < k:
                    gained = row
                    while gained >= 0:
                        current, given_up = came_from[gained]
                        taken[current].add(gained)
                        owners[gained].add(current)
                        if given_up >= 0:
                            taken[current].remove(given_up)
                            owners[given_up].remove(current)
                        gained = given_up
                    return True
                for other in owners[row] - seen:
                    seen.add(other)
                    waiting.append((other, row))
        return False

    return sum(augment(original) for original in range(n) for _ in range(k))


def check_freeform(
    connection: Connection, source: str, name: str, quasi_identifiers: Sequence[str], k: int
) -> dict[Any, tuple[Any, ...]]:
    """Compare a publication with its source, in Python; the cells of each number."""
    columns = ", ".join(map(quoted, ("number", *quasi_identifiers)))
    originals = {row[0]: row[1:] for row in fetch(connection, f"SELECT {columns} FROM {source}")}
    rows = {
        row[0]: row[1:]
        for row in fetch(connection, f"SELECT {columns} FROM {quoted('published', name)}")
    }
    assert rows.keys() == originals.keys()
    possible = [
        [place for place, cells in enumerate(rows.values()) if all(map(covers, cells, original))]
        for original in originals.values()
    ]
    for place, number in enumerate(originals):
        assert list(rows).index(number) in possible[place]  # where its other columns are
    assert most_matches(possible, k) == k * len(rows)
    return rows


def check_suppressed(
    connection: Connection,
    name: str,
    originals: Sequence[tuple[Any, ...]],
    quasi_identifiers: Sequence[str],
    k: int,
    *,
    left_out: int = 0,
    left_over: int = 0,
) -> Counter[str]:
    """Compare a publication with its originals, in Python; the rows of each pattern.

    Parameters
    ----------
    originals : sequence of tuples
        A number that the view shows, and the quasi-identifiers.
    left_out, left_over : int
        How many of them have no row, or are suppressed without k records like them.
    """
    columns = ", ".join(map(quoted, ("number", *quasi_identifiers, "pattern")))
    rows = fetch(connection, f"SELECT {columns} FROM {quoted('published', name)}")
    original = {number: cells for number, *cells in originals}
    classes: Counter[tuple[Any, ...]] = Counter()
    patterns: Counter[str] = Counter()
    for number, *cells, pattern in rows:
        whole = original.pop(number)
        assert len(pattern) == len(cells)
        for mark, cell, was in zip(pattern, cells, whole, strict=True):
            assert cell == (was if mark == "." else None)
        classes[pattern, *cells] += 1
        patterns[pattern] += 1
    assert len(original) == left_out
    for (pattern, *_), n in classes.items():
        assert n >= k or (set(pattern) == {"*"} and n == left_over)
    return patterns
