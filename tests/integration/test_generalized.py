"""Publishing ranges and sets: what is published, what is refused."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.range import Range

from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    Parties,
    columns_of,
    create_table,
    fetch,
    quoted,
    sqlstate_of,
    value,
)
from tests.profiles import examples

INVALID, INELIGIBLE, DUPLICATE = "22023", "KN001", "42710"
QUICK = '{"time_limit": 2}'

# The number tells which person a published row is about: it is no quasi-identifier here, so that
# the tests can compare each row with its original.
PEOPLE = [
    (
        i, f"name {i}", 18 + i * 7 % 60 if i % 11 else None, "mf"[i % 2], f"town {i * i % 9}",
        f"{1940 + i % 50}-0{1 + i % 9}-11", f"disease {i * 13 % 5}",
    )
    for i in range(300)
]  # fmt: skip
QUASI_IDENTIFIERS = ("age", "sex", "town", "born")
METHODS = ("auto", "split_carry", "greedy_search", "k_member", "mondrian", "initial")


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


def covers(cell: Any, original: Any) -> bool:
    """Whether a cell says nothing false about an original value."""
    if isinstance(cell, Range):
        unbounded = cell.lower_inf and cell.upper_inf
        return unbounded or (original is not None and original in cell)
    if isinstance(cell, list):
        return original in cell
    return cell is None and original is None


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


@pytest.mark.parametrize("method", METHODS)
def test_methods(kanon: Functions | Package, parties: Parties, method: str) -> None:
    published = kanon.generalize("data.people", "people", k=7, method=method, options=QUICK)
    classes = check_generalized(parties.publisher, "data.people", "people", QUASI_IDENTIFIERS, 7)
    metrics = kanon.metrics("people")
    assert metrics == published["metrics"]
    assert metrics["classes"] == len(classes)
    assert metrics["smallest_class"] == min(map(len, classes.values()))
    assert metrics["discernibility_loss"] == sum(len(members) ** 2 for members in classes.values())
    assert 0 < metrics["gcp"] < 1
    assert all(holds for *_, holds in kanon.verify("people"))


def test_view(kanon: Functions | Package, parties: Parties) -> None:
    kanon.generalize("data.people", "people", k=5, options=QUICK)
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


def test_cells_are_tight(kanon: Functions | Package, parties: Parties) -> None:
    kanon.generalize("data.people", "people", k=6, method="mondrian", refine=False)
    classes = check_generalized(parties.publisher, "data.people", "people", QUASI_IDENTIFIERS, 6)
    cells = {
        number: (age, sex)
        for number, age, sex in fetch(
            parties.publisher, "SELECT number, age, sex FROM published.people"
        )
    }
    for members in classes.values():
        ages = [PEOPLE[number][2] for number in members]
        known = [age for age in ages if age is not None]
        age, sex = cells[members[0]]
        assert sex == sorted({PEOPLE[number][3] for number in members})
        if not known:
            assert age is None
        elif None in ages:
            assert age == Range(None, None, "()")
        else:
            assert (age.lower, age.upper) == (min(known), max(known) + 1)


def test_optimal(kanon: Functions | Package, parties: Parties) -> None:
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.few")
    fetch(parties.publisher, "CREATE TABLE data.few AS SELECT * FROM data.people LIMIT 18")
    kanon.register("data.few", QUASI_IDENTIFIERS, "sick", ["name"], insensitive=["number"])
    losses = {}
    for method in ("optimal", "greedy_search", "initial"):
        published = kanon.generalize("data.few", method, k=3, method=method, refine=False)
        check_generalized(parties.publisher, "data.few", method, QUASI_IDENTIFIERS, 3)
        losses[method] = published["metrics"]["weighted_loss"]
        if method == "optimal":
            assert published["metrics"]["gap"] == 0
    assert losses["optimal"] <= min(losses.values())


def test_refinement_never_loses_more(kanon: Functions | Package) -> None:
    plain = kanon.generalize("data.people", "plain", k=5, method="initial", refine=False)
    refined = kanon.generalize("data.people", "fine", k=5, method="initial", options=QUICK)
    assert refined["metrics"]["gcp"] < plain["metrics"]["gcp"]


def test_weights(kanon: Functions | Package) -> None:
    """What weighs more is generalized less."""
    of_age = []
    for weights in ('{"age": 20}', '{"age": 0.01}'):
        published = kanon.generalize(
            "data.people", "people", k=5, weights=weights, options=QUICK, replace=True
        )
        of_age.append(published["metrics"]["loss_of_age"])
    assert of_age[0] < of_age[1] / 2


def sick(members: Sequence[int]) -> Counter[str]:
    return Counter(PEOPLE[number][-1] for number in members)


def test_constraints(kanon: Functions | Package, parties: Parties) -> None:
    total = sick(range(300))

    def closeness(values: Counter[str]) -> Fraction:
        size = sum(values.values())
        return sum(
            abs(Fraction(values[v], size) - Fraction(n, 300)) for v, n in total.items()
        ) / Fraction(2)

    def entropy(values: Counter[str]) -> float:
        size = sum(values.values())
        return -sum(n / size * math.log(n / size) for n in values.values())

    checks = {
        '{"l": 3}': lambda values: len(values) >= 3,
        '{"entropy_l": 2.5}': lambda values: entropy(values) >= math.log(2.5) - 1e-9,
        '{"t": 0.25}': lambda values: closeness(values) <= Fraction(1, 4),
        '{"default": "1/3"}': lambda values: max(values.values()) * 3 <= sum(values.values()),
        '{"l": 2, "theta": 2}': lambda values: len(values) >= 2
        and all(Fraction(n, sum(values.values())) <= 2 * Fraction(total[v], 300)
                for v, n in values.items()),
    }  # fmt: skip
    for method in ("greedy_search", "mondrian", "initial"):
        for constraints, holds in checks.items():
            published = kanon.generalize(
                "data.people", "people", k=4, method=method, constraints=constraints,
                options='{"time_limit": 1}', replace=True,
            )  # fmt: skip
            classes = check_generalized(
                parties.publisher, "data.people", "people", QUASI_IDENTIFIERS, 4
            )
            assert all(holds(sick(members)) for members in classes.values()), constraints
            verified = kanon.verify("people")
            assert all(good for *_, good in verified)
            assert len(verified) > 4
            assert (
                "in each, which bounds inferences by readers who do not" in published["guarantee"]
            )


def test_verification_finds_broken_constraints(
    kanon: Functions | Package, parties: Parties
) -> None:
    for constraints in ('{"l": 3}', '{"entropy_l": 2}', '{"t": 0.3}', '{"default": 0.5}'):
        kanon.generalize(
            "data.people", "people", k=4, constraints=constraints, options=QUICK, replace=True
        )
        with parties.admin.transaction(force_rollback=True):
            fetch(
                parties.admin,
                "UPDATE published.people_row SET sick = 'disease 0' WHERE kanon_number IN"
                " (SELECT kanon_number FROM published.people_cel"
                "  WHERE num_nulls(age, sex, town, born) = 0 LIMIT 1)",
            )
            fetch(parties.admin, "REFRESH MATERIALIZED VIEW published.people")
            broken = [check for check, *_, holds in Functions(parties.admin).verify("people")
                      if not holds]  # fmt: skip
        assert len(broken) == 2, constraints
        assert "the numbers of the cells are those of the rows" in broken


def test_ordered_closeness(kanon: Functions | Package, parties: Parties) -> None:
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.earners")
    rows = [(i, i % 40, 1000 * (i * 7 % 10)) for i in range(200)]
    create_table(parties.publisher, "data.earners", "number int, age int, income int", rows)
    kanon.register("data.earners", ["age"], "income", insensitive=["number"])
    for distance in ("equal", "ordered"):
        kanon.generalize(
            "data.earners", distance, k=4, options=QUICK,
            constraints=f'{{"t": 0.2, "distance": "{distance}"}}',
        )  # fmt: skip
        assert all(holds for *_, holds in kanon.verify(distance))
    classes = check_generalized(parties.publisher, "data.earners", "ordered", ["age"], 4)
    for members in classes.values():
        running, moved = Fraction(0), Fraction(0)
        values = Counter(rows[number][2] for number in members)
        for income in range(0, 10_000, 1000):
            running += Fraction(values[income], len(members)) - Fraction(1, 10)
            moved += abs(running) / 9
        assert moved <= Fraction(1, 5)


def test_suppression(kanon: Functions | Package, parties: Parties) -> None:
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.odd")
    rows = [(i, 30 + i % 3) for i in range(60)] + [(60, 999), (61, -5)]
    create_table(parties.publisher, "data.odd", "number int, age int", rows)
    kanon.register("data.odd", ["age"], None, insensitive=["number"])
    whole = kanon.generalize("data.odd", "whole", k=5, options=QUICK)
    published = kanon.generalize("data.odd", "odd", k=5, max_suppressed="0.05", options=QUICK)
    suppressed = int(published["metrics"]["suppressed_records"])
    assert 1 <= suppressed <= 3
    assert published["guarantee"].endswith(f"{suppressed} records are left out")
    assert published["metrics"]["weighted_loss"] < whole["metrics"]["weighted_loss"]
    check_generalized(parties.publisher, "data.odd", "odd", ["age"], 5, suppressed=suppressed)
    assert all(holds for *_, holds in kanon.verify("odd"))


def test_types(kanon: Functions | Package, parties: Parties) -> None:
    """Each type has its kind of cell, at its largest values, too."""
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.typed")
    create_table(
        parties.publisher, "data.typed",
        "number int, small smallint, whole int, big bigint, exact numeric, inexact float8,"
        " at timestamp, zoned timestamptz, day time, flag bool, largest int, nothing int",
        [
            (i, i % 4, i % 5, 2**40 + i % 3, f"{i % 3}.50", i % 3 / 7, f"2020-01-0{1 + i % 9}",
             f"2020-01-0{1 + i % 9} 10:00+02", f"1{i % 3}:00", i % 2 == 0, 2**31 - 1 - i % 2, None)
            for i in range(40)
        ],
    )  # fmt: skip
    names = [
        "small", "whole", "big", "exact", "inexact", "at", "zoned", "day", "flag", "largest",
        "nothing",
    ]  # fmt: skip
    kanon.register("data.typed", names, None, insensitive=["number"])
    kanon.generalize("data.typed", "typed", k=8, options=QUICK)
    types = ", ".join(f"pg_typeof({name})::text" for name in names)
    assert fetch(parties.publisher, f"SELECT DISTINCT {types} FROM published.typed") == [
        ("int4range", "int4range", "int8range", "numrange", "numrange", "tsrange", "tstzrange",
         "text[]", "text[]", "int8range", "text[]"),
    ]  # fmt: skip
    assert all(holds for *_, holds in kanon.verify("typed"))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "k is 0": ({"k": 0}, INVALID),
    "k exceeds the table": ({"k": 301}, INVALID),
    "no such method": ({"method": "best"}, INVALID),
    "strange option": ({"options": '{"seed": 1}'}, INVALID),
    "no time": ({"options": '{"time_limit": 0}'}, INVALID),
    "strange cut": ({"method": "mondrian", "options": '{"cut": "deep"}'}, INVALID),
    "strange s": ({"method": "split_carry", "options": '{"s": 0}'}, INVALID),
    "strange bubble": ({"method": "split_carry", "options": '{"bubble": [1]}'}, INVALID),
    "strange block": ({"options": '{"block_size": 1.5}'}, INVALID),
    "weight of the sensitive attribute": ({"weights": '{"sick": 1}'}, INVALID),
    "suppresses more than all": ({"max_suppressed": "1.5"}, INVALID),
    "empty constraints": ({"constraints": "{}"}, INVALID),
    "strange constraint": ({"constraints": '{"k": 3}'}, INVALID),
    "l is no number": ({"constraints": '{"l": "3"}'}, INVALID),
    "t is too large": ({"constraints": '{"t": 2}'}, INVALID),
    "t is huge": ({"constraints": '{"t": 1e99999}'}, INVALID),
    "distance alone": ({"constraints": '{"l": 2, "distance": "ordered"}'}, INVALID),
    "more diverse than the table": ({"constraints": '{"l": 6}'}, INELIGIBLE),
    "closeness and suppression": (
        {"constraints": '{"t": 0.5}', "max_suppressed": "0.01"}, INVALID,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(kanon: Functions | Package, case: str) -> None:
    given, expected = REFUSED[case]
    options = {"k": 5, **given}
    assert sqlstate_of(lambda: kanon.generalize("data.people", "people", **options)) == expected
    assert kanon.publications() == []


def test_no_sensitive_attribute(kanon: Functions | Package, parties: Parties) -> None:
    fetch(parties.publisher, "CREATE TABLE IF NOT EXISTS data.plain AS SELECT 1 AS number, 2 AS a")
    kanon.register("data.plain", ["a"], None, insensitive=["number"])
    refused = lambda: kanon.generalize("data.plain", "p", k=2, constraints='{"l": 2}')
    assert sqlstate_of(refused) == INVALID


def test_example_of_the_contract(parties: Parties) -> None:
    """Options that another method knows are no error."""
    kanon = Functions(parties.publisher)
    kanon.generalize(
        "data.people", "people", k=5, method="greedy_search", weights='{"age": 0.8}',
        options='{"s": 3, "time_limit": 1}',
    )  # fmt: skip
    assert sqlstate_of(lambda: kanon.generalize("data.people", "people", k=5)) == DUPLICATE
    kanon.drop("people")


@given(
    cells=st.lists(
        st.tuples(st.sampled_from([None, 1, 2, 9]), st.sampled_from([None, "", "x", "{y}"])),
        min_size=1,
        max_size=25,
    ),
    k=st.integers(2, 5),
    method=st.sampled_from(["greedy_search", "mondrian", "k_member", "split_carry", "initial"]),
)
@settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_random_tables(parties: Parties, cells: list[tuple[Any, ...]], k: int, method: str) -> None:
    kanon = Functions(parties.publisher)
    with parties.publisher.transaction(force_rollback=True):
        rows = [(number, *row) for number, row in enumerate(cells)]
        fetch(parties.publisher, "CREATE TABLE data.random (number int, a int, b text)")
        with parties.publisher.cursor() as cursor:
            cursor.executemany("INSERT INTO data.random VALUES (%s, %s, %s)", rows)
        kanon.register("data.random", ["a", "b"], None, insensitive=["number"])
        publish = lambda: kanon.generalize(
            "data.random", "random", k=k, method=method, options='{"time_limit": 0.2}'
        )
        if k > len(rows):
            with parties.publisher.transaction(force_rollback=True):
                assert sqlstate_of(publish) == INVALID
            return
        publish()
        check_generalized(parties.publisher, "data.random", "random", ["a", "b"], k)


@pytest.mark.pitfall(1)
def test_row_order(kanon: Functions | Package, parties: Parties) -> None:
    """Neither the source's order nor the classes' is that of the rows."""
    kanon.generalize("data.people", "people", k=5, options=QUICK)
    for relation, shown in {"people": "age, sex, town, born", "people_row": "kanon_number"}.items():
        numbers = f"SELECT number FROM published.{relation} ORDER BY ctid"
        order = [number for (number,) in fetch(parties.publisher, numbers)]
        rising = sum(a < b for a, b in pairwise(order))
        assert 100 < rising < 200
        cells = fetch(
            parties.publisher,
            f"SELECT dense_rank() OVER (ORDER BY {shown}) FROM published.{relation} ORDER BY ctid",
        )
        together = sum(a == b for a, b in pairwise(cells))
        assert together < 30  # of 299; classes of 5 in a row would give 239
    assert value(parties.analyst, "SELECT count(*) FROM published.people") == 300
