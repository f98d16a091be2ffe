"""Publishing freeform rows: what is published, along which assignment, what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.range import Range

from kanon_db.errors import VerificationError
from kanon_db.publications.rows.distinct_cells import CellTable
from kanon_db.publications.rows.recoded_cells import write_cells
from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    Parties,
    columns_of,
    create_table,
    fetch,
    forget_draws,
    keep_cells_with_rows,
    quoted,
    sqlstate_of,
)
from tests.integration.test_generalized import covers
from tests.profiles import examples

INVALID, INFEASIBLE, DUPLICATE = "22023", "KN002", "42710"

# The number tells which person a published row's other columns are about.
PEOPLE = [
    (
        i, f"name {i}", 18 + i * 7 % 60 if i % 11 else None, "mf"[i % 2], f"town {i * i % 9}",
        f"{1940 + i % 50}-0{1 + i % 9}-11", f"disease {i * 13 % 5}",
    )
    for i in range(120)
]  # fmt: skip
QUASI_IDENTIFIERS = ("age", "sex", "town", "born")
METHODS = ("sort_greedy", "greedy", "hungarian", "min_cost_flow", "ring")


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_table(
        parties.publisher,
        "data.people",
        "number int, name text, age int, sex text, town text, born date, sick text",
        PEOPLE,
    )
    Functions(parties.publisher).register(
        "data.people", QUASI_IDENTIFIERS, "sick", ["name"], insensitive=["number"]
    )


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


@pytest.mark.parametrize("method", METHODS)
def test_methods(kanon: Functions | Package, parties: Parties, method: str) -> None:
    published = kanon.freeform("data.people", "people", k=4, method=method)
    rows = check_freeform(parties.publisher, "data.people", "people", QUASI_IDENTIFIERS, 4)
    metrics = kanon.metrics("people")
    assert metrics == published["metrics"]
    assert metrics["distinct_rows"] == len(set(map(str, rows.values())))
    losses = [metrics[f"loss_of_{column}"] for column in QUASI_IDENTIFIERS]
    assert metrics["gcp"] == pytest.approx(sum(losses) / 4)
    assert metrics["weighted_loss"] == pytest.approx(sum(losses) * len(PEOPLE))
    assert all(holds for *_, holds in kanon.verify("people"))


def test_less_is_lost_than_in_classes(kanon: Functions | Package) -> None:
    freeform = kanon.freeform("data.people", "free", k=5)["metrics"]["gcp"]
    classes = kanon.generalize("data.people", "classes", k=5, refine=False)["metrics"]["gcp"]
    assert freeform < classes


def test_view(kanon: Functions | Package, parties: Parties) -> None:
    kanon.freeform("data.people", "people", k=5)
    assert columns_of(parties.publisher, "published.people") == [
        "number", "age", "sex", "town", "born", "sick",
    ]  # fmt: skip
    types = fetch(
        parties.analyst,
        "SELECT pg_typeof(age)::text, pg_typeof(sex)::text, pg_typeof(born)::text"
        " FROM published.people LIMIT 1",
    )
    assert types == [("int4range", "text[]", "daterange")]
    found = fetch(parties.analyst, "SELECT number, sick FROM published.people ORDER BY number")
    assert found == [(row[0], row[-1]) for row in PEOPLE]


def test_counts_are_answered(kanon: Functions | Package, parties: Parties) -> None:
    kanon.freeform("data.people", "people", k=3)
    condition = "sex = 'm' AND age BETWEEN 20 AND 50"
    ((truth,),) = fetch(parties.publisher, f"SELECT count(*) FROM data.people WHERE {condition}")
    estimate, error, lower, upper = Functions(parties.analyst).estimate(
        f"SELECT COUNT(*) FROM people WHERE {condition}"
    )
    assert lower <= truth <= upper
    assert abs(estimate - truth) <= 6 * error


def test_the_draw_is_random(kanon: Functions | Package, parties: Parties) -> None:
    """Drawn with another key, the same cells belong to other people."""
    found = []
    for _ in range(2):
        forget_draws(parties.admin)
        # Refined, the records may come to lie in classes: then each row of a class shows the same.
        kanon.freeform("data.people", "people", k=5, options='{"refine": false}', replace=True)
        rows = fetch(parties.publisher, "SELECT number, age, sex, town, born FROM published.people")
        found.append({number: str(cells) for number, *cells in rows})
    first, second = found
    # The cells are the same, but of those who share them by chance few keep them: 1 / 5 or so.
    assert Counter(first.values()) == Counter(second.values())
    assert sum(first[number] == second[number] for number in first) < 0.6 * len(PEOPLE)


def test_true_matches_are_drawn_uniformly(parties: Parties) -> None:
    """Three people, each of whom two rows cover: it is either of them, evenly."""
    kanon = Functions(parties.publisher)
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.three")
    create_table(
        parties.publisher, "data.three", "number int, age int", [(0, 10), (1, 11), (2, 12)]
    )
    kanon.register("data.three", ["age"], None, insensitive=["number"])
    with_cell: Counter[tuple[int, int]] = Counter()
    draws = 60
    for _ in range(draws):
        forget_draws(parties.admin)
        kanon.freeform("data.three", "three", k=2, method="ring", replace=True)
        for number, low, high in fetch(
            parties.publisher, "SELECT number, lower(age), upper(age) FROM published.three"
        ):
            with_cell[number, low * 100 + high] += 1
    kanon.drop("three")
    for number in range(3):
        cells = [count for (of, _), count in with_cell.items() if of == number]
        assert sum(cells) == draws
        assert len(cells) == 2
        assert min(cells) >= 10  # of 60 fair coins: less once in 10 million


@pytest.mark.pitfall(1)
def test_row_order(kanon: Functions | Package, parties: Parties) -> None:
    """Neither the source's order nor that of the cells is that of the rows."""
    kanon.freeform("data.people", "people", k=5)
    for relation, shown in {"people": "sex, town, age", "people_row": "kanon_number"}.items():
        numbers = f"SELECT number FROM published.{relation} ORDER BY ctid"
        order = [number for (number,) in fetch(parties.publisher, numbers)]
        assert 30 < sum(a < b for a, b in pairwise(order)) < 90  # of 119
        cells = fetch(
            parties.publisher,
            f"SELECT dense_rank() OVER (ORDER BY {shown}) FROM published.{relation} ORDER BY ctid",
        )
        assert sum(a == b for a, b in pairwise(cells)) < 30


def test_nothing_tells_the_graph(kanon: Functions | Package, parties: Parties) -> None:
    kanon.freeform("data.people", "people", k=5)
    ((parameters, layout),) = fetch(
        parties.admin, "SELECT parameters, layout FROM kanon.publication WHERE name = 'people'"
    )
    assert set(parameters) == {"k", "weights", "options", "readers", "accept"}
    assert set(layout) == {
        "quasi_identifiers", "sensitive", "others", "columns", "types", "digest", "shares",
        "at_once", "classes", "number",
    }  # fmt: skip


TAMPERED = {
    "a cell is widened": "SET age = '(,)' WHERE number = 5",
    "a cell is another's": "SET town = (SELECT town FROM published.people_row WHERE town <> t.town"
    " LIMIT 1) WHERE number = 5",
    "a sensitive value": "SET sick = 'disease 9' WHERE number = 5",
    "two rows change places": "SET number = 11 - number WHERE number IN (5, 6)",
}


@pytest.mark.parametrize("case", TAMPERED)
def test_tampering_is_found(kanon: Functions | Package, parties: Parties, case: str) -> None:
    """Nobody can check the matches afterwards, but whether the rows are those of then."""
    kanon.freeform("data.people", "people", k=5)
    with parties.admin.transaction(force_rollback=True):
        keep_cells_with_rows(parties.admin, "people")
        fetch(parties.admin, f"UPDATE published.people_row AS t {TAMPERED[case]}")
        fetch(parties.admin, "REFRESH MATERIALIZED VIEW published.people")
        failed = [row[0] for row in Functions(parties.admin).verify("people") if not row[3]]
    assert failed == [
        "the rows are those whose matches were checked when they were published",
        "the numbers of the cells are those of the rows",
    ]
    fetch(parties.analyst, "SET timezone = 'Asia/Tokyo'; SET datestyle = 'SQL, DMY'")
    assert all(holds for *_, holds in Functions(parties.analyst).verify("people"))


def test_other_cells_than_those_that_were_checked_are_not_published(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here each combination has the first cell of another one."""

    def shifted(*given: Any) -> CellTable:
        table = write_cells(*given)
        name, column = next(iter(table.columns.items()))
        moved = replace(column, of_combination=np.roll(column.of_combination, 1))
        return replace(table, columns={**table.columns, name: moved})

    monkeypatch.setattr("kanon_db.publications.rows.row_kind.write_cells", shifted)
    with pytest.raises(VerificationError) as failed:
        Package(parties.publisher).freeform("data.people", "shifted", k=4)
    assert "the view shows the cells that were made" in failed.value.detail


def test_optimal(kanon: Functions | Package, parties: Parties) -> None:
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.few")
    fetch(parties.publisher, "CREATE TABLE data.few AS SELECT * FROM data.people LIMIT 9")
    kanon.register("data.few", QUASI_IDENTIFIERS, "sick", ["name"], insensitive=["number"])
    losses = {}
    for method in (*METHODS, "optimal"):
        published = kanon.freeform("data.few", method, k=3, method=method)
        check_freeform(parties.publisher, "data.few", method, QUASI_IDENTIFIERS, 3)
        losses[method] = published["metrics"]["weighted_loss"]
    assert published["metrics"]["gap"] == 0
    assert losses["optimal"] <= min(losses.values()) + 1e-9


@pytest.mark.parametrize("method", ["sort_greedy", "optimal"])
def test_symmetric(kanon: Functions | Package, parties: Parties, method: str) -> None:
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.few")
    fetch(parties.publisher, "CREATE TABLE data.few AS SELECT * FROM data.people LIMIT 8")
    kanon.register("data.few", QUASI_IDENTIFIERS, "sick", ["name"], insensitive=["number"])
    published = kanon.freeform("data.few", "few", k=3, method=method, options='{"symmetric": true}')
    assert published["guarantee"].endswith("matches are mutual, which does not change that")
    check_freeform(parties.publisher, "data.few", "few", QUASI_IDENTIFIERS, 3)


def test_partitions(kanon: Functions | Package, parties: Parties) -> None:
    """Two at a time or one after the other: the same cells."""
    loss = []
    for workers in (1, 2):
        options = f'{{"partition_size": 30, "workers": {workers}}}'
        published = kanon.freeform("data.people", "people", k=5, options=options, replace=True)
        check_freeform(parties.publisher, "data.people", "people", QUASI_IDENTIFIERS, 5)
        loss.append(published["metrics"]["weighted_loss"])
    assert loss[0] == loss[1]


def test_k_concealment_is_said_to_be_weaker(kanon: Functions | Package, parties: Parties) -> None:
    given: dict[str, Any] = {"k": 4, "method": "k_concealment"}
    refused = lambda: kanon.freeform("data.people", "people", **given)
    assert sqlstate_of(refused) == INVALID
    options = '{"allow_weaker": true}'
    published = kanon.freeform("data.people", "people", options=options, **given)
    assert "weaker than k-anonymity" in published["guarantee"]
    originals = [(row[2], row[3], row[4]) for row in PEOPLE]
    rows = fetch(parties.publisher, "SELECT age, sex, town FROM published.people")
    for original in originals:
        assert sum(all(map(covers, cells, original)) for cells in rows) >= 4


def test_weights(kanon: Functions | Package) -> None:
    of_age = []
    for weights in ('{"age": 20}', '{"age": 0.01}'):
        published = kanon.freeform("data.people", "people", k=5, weights=weights, replace=True)
        of_age.append(published["metrics"]["loss_of_age"])
    assert of_age[0] < of_age[1] / 2


def test_types(kanon: Functions | Package, parties: Parties) -> None:
    """Each type has its kind of cell, at its largest values, too."""
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.typed")
    create_table(
        parties.publisher, "data.typed",
        "number int, big bigint, exact numeric, inexact float8, zoned timestamptz, day time,"
        " largest int, nothing int",
        [
            (i, 2**40 + i % 3, f"{i % 3}.50", i % 3 / 7, f"2020-01-0{1 + i % 9} 10:00+02",
             f"1{i % 3}:00", 2**31 - 1 - i % 2, None)
            for i in range(24)
        ],
    )  # fmt: skip
    names = ["big", "exact", "inexact", "zoned", "day", "largest", "nothing"]
    kanon.register("data.typed", names, None, insensitive=["number"])
    kanon.freeform("data.typed", "typed", k=5)
    types = ", ".join(f"pg_typeof({name})::text" for name in names)
    assert fetch(parties.publisher, f"SELECT DISTINCT {types} FROM published.typed") == [
        ("int8range", "numrange", "numrange", "tstzrange", "text[]", "int8range", "text[]"),
    ]
    assert all(holds for *_, holds in kanon.verify("typed"))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "k is 0": ({"k": 0}, INVALID),
    "k exceeds the table": ({"k": 121}, INVALID),
    "no such method": ({"method": "best"}, INVALID),
    "strange option": ({"options": '{"seed": 1}'}, INVALID),
    "no partitions": ({"options": '{"partition_size": 0}'}, INVALID),
    "partitions below k": ({"options": '{"partition_size": 4}'}, INVALID),
    "partitions are no number": ({"options": '{"partition_size": "30"}'}, INVALID),
    "partitions of the optimum": (
        {"method": "optimal", "options": '{"partition_size": 30}'}, INVALID,
    ),
    "nobody works": ({"options": '{"workers": 0}'}, INVALID),
    "a crowd works": ({"options": '{"workers": 1000}'}, INVALID),
    "refine is no truth value": ({"options": '{"refine": "no"}'}, INVALID),
    "symmetric is no truth value": ({"options": '{"symmetric": 1}'}, INVALID),
    "symmetric ring": ({"method": "ring", "options": '{"symmetric": true}'}, INVALID),
    "no time": ({"method": "optimal", "options": '{"time_limit": 0}'}, INVALID),
    "too many for the optimum": ({"method": "optimal"}, INVALID),
    "weight of the sensitive attribute": ({"weights": '{"sick": 1}'}, INVALID),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(kanon: Functions | Package, case: str) -> None:
    given, expected = REFUSED[case]
    options = {"k": 5, **given}
    assert sqlstate_of(lambda: kanon.freeform("data.people", "people", **options)) == expected
    assert kanon.publications() == []


def test_no_symmetric_graph(kanon: Functions | Package, parties: Parties) -> None:
    """An odd number of records with an odd number of others each."""
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.few")
    fetch(parties.publisher, "CREATE TABLE data.few AS SELECT * FROM data.people LIMIT 7")
    kanon.register("data.few", QUASI_IDENTIFIERS, "sick", ["name"], insensitive=["number"])
    refused = lambda: kanon.freeform("data.few", "few", k=4, options='{"symmetric": true}')
    assert sqlstate_of(refused) == INFEASIBLE


def test_example_of_the_contract(parties: Parties) -> None:
    kanon = Functions(parties.publisher)
    options = '{"partition_size": 2000}'
    kanon.freeform("data.people", "people", k=5, method="sort_greedy", options=options)
    assert sqlstate_of(lambda: kanon.freeform("data.people", "people", k=5)) == DUPLICATE
    kanon.drop("people")


@given(
    cells=st.lists(
        st.tuples(st.sampled_from([None, 1, 2, 9]), st.sampled_from([None, "", "x", "{y}"])),
        min_size=1,
        max_size=14,
    ),
    k=st.integers(2, 6),
    method=st.sampled_from(METHODS),
)
@settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_random_tables(parties: Parties, cells: list[tuple[Any, ...]], k: int, method: str) -> None:
    """NULLs, ties, duplicates, and hardly more records than k."""
    kanon = Functions(parties.publisher)
    with parties.publisher.transaction(force_rollback=True):
        rows = [(number, *row) for number, row in enumerate(cells)]
        fetch(parties.publisher, "CREATE TABLE data.random (number int, a int, b text)")
        with parties.publisher.cursor() as cursor:
            cursor.executemany("INSERT INTO data.random VALUES (%s, %s, %s)", rows)
        kanon.register("data.random", ["a", "b"], None, insensitive=["number"])
        publish = lambda: kanon.freeform("data.random", "random", k=k, method=method)
        if k > len(rows):
            with parties.publisher.transaction(force_rollback=True):
                assert sqlstate_of(publish) == INVALID
            return
        publish()
        check_freeform(parties.publisher, "data.random", "random", ["a", "b"], k)


def test_ranges_are_tight(kanon: Functions | Package, parties: Parties) -> None:
    """A cell reaches from an original of the table to another one, and holds k of them."""
    kanon.freeform("data.people", "people", k=5)
    ages = Counter(row[2] for row in PEOPLE)
    for (age,) in fetch(parties.publisher, "SELECT age FROM published.people"):
        if isinstance(age, Range) and not age.lower_inf:
            assert age.lower in ages
            assert age.upper - 1 in ages
