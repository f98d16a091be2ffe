"""What all kinds of rows have in common: their view, order, types, options, and random tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.range import Range

from tests.integration.parties import (
    Functions,
    Parties,
    columns_of,
    create_table,
    fetch,
    forget_draws,
    sqlstate_of,
    value,
)
from tests.integration.row_checks import (
    PEOPLE,
    QUASI_IDENTIFIERS,
    QUICK,
    check_freeform,
    check_generalized,
    check_suppressed,
    make_people,
)
from tests.profiles import examples

DUPLICATE, INVALID, INFEASIBLE, INELIGIBLE = "42710", "22023", "KN002", "KN001"
RECODED = ("generalized", "freeform")
KINDS: dict[str, dict[str, Any]] = {
    "generalized": {"k": 5, "options": QUICK}, "freeform": {"k": 5}, "suppressed": {"k": 5},
}  # fmt: skip
METHODS = {
    "generalized": ("greedy_search", "mondrian", "k_member", "split_carry", "initial"),
    "freeform": ("sort_greedy", "greedy", "hungarian", "min_cost_flow", "ring"),
    "suppressed": ("greedy", "optimal"),
}


@pytest.fixture(scope="module", autouse=True)
def published(parties: Parties) -> None:
    """A publication of each kind, of the kind's name."""
    make_people(parties)
    for kind, options in KINDS.items():
        publish(parties, kind, **options)


@pytest.fixture(autouse=True)
def others_dropped(parties: Parties) -> Iterator[None]:
    yield
    kanon = Functions(parties.publisher)
    for name in set(kanon.publications()) - KINDS.keys():
        kanon.drop(name)


def publish(
    parties: Parties, kind: str, name: str = "", source: str = "data.people", **given: Any
) -> dict[str, Any]:
    return Functions(parties.publisher).call(f"publish_{kind}", source, name or kind, **given)


@pytest.mark.parametrize("kind", KINDS)
def test_view(parties: Parties, kind: str) -> None:
    """Cells in place of quasi-identifiers; all other columns that are shown are as they were."""
    shown = ["number", "age", "sex", "town", "born", "sick"]
    marks = ["pattern"] if kind == "suppressed" else []
    assert columns_of(parties.publisher, f"published.{kind}") == [*shown, *marks]
    is_kept = kind == "suppressed"
    types = fetch(
        parties.analyst,
        "SELECT pg_typeof(age)::text, pg_typeof(sex)::text, pg_typeof(born)::text"
        f" FROM published.{kind} LIMIT 1",
    )
    assert types == [
        ("integer", "text", "date") if is_kept else ("int4range", "text[]", "daterange")
    ]
    found = fetch(parties.analyst, f"SELECT number, sick FROM published.{kind} ORDER BY number")
    left_out = Functions(parties.analyst).metrics(kind).get("suppressed_records", 0)
    assert len(found) == len(PEOPLE) - left_out
    assert {*found} <= {(row[0], row[-1]) for row in PEOPLE}
    relkind = f"SELECT relkind::text FROM pg_class WHERE oid = 'published.{kind}'::regclass"
    assert value(parties.publisher, relkind) == "m"


@pytest.mark.pitfall(1)
@pytest.mark.parametrize("kind", KINDS)
def test_row_order(parties: Parties, kind: str) -> None:
    """Neither the source's order nor that of the cells is that of the rows, nor foreseeable."""
    orders = []
    columns = "age, sex, town, born"
    for name in (kind, "again"):
        if name == "again":
            forget_draws(parties.admin)  # which would be the same
            publish(parties, kind, name, **KINDS[kind])
        for relation, shown in ((name, columns), (f"{name}_row", "kanon_number")):
            numbers = f"SELECT number FROM published.{relation} ORDER BY ctid"
            order = [number for (number,) in fetch(parties.publisher, numbers)]
            orders.append(order)
            assert 30 < sum(a < b for a, b in pairwise(order)) < 90  # of 119
            cells = fetch(
                parties.publisher,
                f"SELECT dense_rank() OVER (ORDER BY {shown}) FROM published.{relation}"
                " ORDER BY ctid",
            )
            assert sum(a == b for a, b in pairwise(cells)) < 30  # in a row: 80 % of them
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_autovacuum_leaves_published_rows_alone(parties: Parties) -> None:
    """They never change, and whoever takes their place would wait for it."""
    for relation in ("suppressed", "suppressed_row", "suppressed_cel"):
        options = value(
            parties.admin,
            f"SELECT reloptions FROM pg_class WHERE oid = 'published.{relation}'::regclass",
        )
        assert options == ["autovacuum_enabled=off"]


def test_ranges_are_tight(parties: Parties) -> None:
    """A range reaches from an original of its class, or of the table, to another one."""
    classes = check_generalized(
        parties.publisher, "data.people", "generalized", QUASI_IDENTIFIERS, 5
    )
    check_freeform(parties.publisher, "data.people", "freeform", QUASI_IDENTIFIERS, 5)
    shown = {
        kind: {
            number: (age, sex)
            for number, age, sex in fetch(
                parties.publisher, f"SELECT number, age, sex FROM published.{kind}"
            )
        }
        for kind in RECODED
    }
    for members in classes.values():
        ages = [PEOPLE[number][2] for number in members]
        known = [age for age in ages if age is not None]
        age, sex = shown["generalized"][members[0]]
        assert sex == sorted({PEOPLE[number][3] for number in members})
        if not known:
            assert age is None
        elif None in ages:
            assert age == Range(None, None, "()")
        else:
            assert (age.lower, age.upper) == (min(known), max(known) + 1)
    ages = {row[2] for row in PEOPLE}
    for age, _ in shown["freeform"].values():
        if isinstance(age, Range) and not age.lower_inf:
            assert {age.lower, age.upper - 1} <= ages


@pytest.mark.parametrize("kind", RECODED)
def test_metrics(parties: Parties, kind: str) -> None:
    metrics = Functions(parties.publisher).metrics(kind)
    cells = fetch(parties.analyst, f"SELECT age, sex, town, born FROM published.{kind}")
    sizes = [*map([*map(str, cells)].count, {*map(str, cells)})]
    assert 0 < metrics["gcp"] < 1
    if kind == "generalized":
        assert (metrics["classes"], metrics["smallest_class"]) == (len(sizes), min(sizes))
        assert metrics["discernibility_loss"] == sum(size**2 for size in sizes)
    else:
        assert metrics["distinct_rows"] == len(sizes)
        losses = [metrics[f"loss_of_{column}"] for column in QUASI_IDENTIFIERS]
        assert metrics["gcp"] == pytest.approx(sum(losses) / 4)
        assert metrics["weighted_loss"] == pytest.approx(sum(losses) * len(PEOPLE))


@pytest.mark.parametrize("kind", RECODED)
def test_what_weighs_more_is_generalized_less(parties: Parties, kind: str) -> None:
    of_age = []
    for weights in ('{"age": 20}', '{"age": 0.01}'):
        given = {**KINDS[kind], "weights": weights, "dry_run": True}
        of_age.append(publish(parties, kind, "weighed", **given)["metrics"]["loss_of_age"])
    assert of_age[0] < of_age[1] / 2


@pytest.mark.parametrize("kind", RECODED)
def test_types(parties: Parties, kind: str) -> None:
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
    kanon = Functions(parties.publisher)
    kanon.register("data.typed", names, None, insensitive=["number"])
    publish(parties, kind, "typed", "data.typed", **{**KINDS[kind], "k": 8})
    types = ", ".join(f"pg_typeof({name})::text" for name in names)
    assert fetch(parties.publisher, f"SELECT DISTINCT {types} FROM published.typed") == [
        ("int4range", "int4range", "int8range", "numrange", "numrange", "tsrange", "tstzrange",
         "text[]", "text[]", "int8range", "text[]"),
    ]  # fmt: skip
    assert all(holds for *_, holds in kanon.verify("typed"))


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("generalized", {"method": "mondrian", "options": '{"cut": "deep"}'}, INVALID),
    ("generalized", {"method": "split_carry", "options": '{"s": 0}'}, INVALID),
    ("generalized", {"method": "split_carry", "options": '{"bubble": [1]}'}, INVALID),
    ("generalized", {"options": '{"block_size": 1.5}'}, INVALID),
    ("generalized", {"max_suppressed": "1.5"}, INVALID),
    ("generalized", {"constraints": "{}"}, INVALID),
    ("generalized", {"constraints": '{"k": 3}'}, INVALID),
    ("generalized", {"constraints": '{"l": "3"}'}, INVALID),
    ("generalized", {"constraints": '{"t": 2}'}, INVALID),
    ("generalized", {"constraints": '{"t": 1e99999}'}, INVALID),
    ("generalized", {"constraints": '{"l": 2, "distance": "ordered"}'}, INVALID),
    ("generalized", {"constraints": '{"l": 6}'}, INELIGIBLE),
    ("generalized", {"constraints": '{"t": 0.5}', "max_suppressed": "0.01"}, INVALID),
    ("freeform", {"options": '{"partition_size": 0}'}, INVALID),
    ("freeform", {"options": '{"partition_size": 4}'}, INVALID),
    ("freeform", {"options": '{"partition_size": "30"}'}, INVALID),
    ("freeform", {"method": "optimal", "options": '{"partition_size": 30}'}, INVALID),
    ("freeform", {"options": '{"workers": 0}'}, INVALID),
    ("freeform", {"options": '{"workers": 1000}'}, INVALID),
    ("freeform", {"options": '{"refine": "no"}'}, INVALID),
    ("freeform", {"method": "ring", "options": '{"symmetric": true}'}, INVALID),
    ("freeform", {"method": "optimal"}, INVALID),
    ("suppressed", {"patterns": []}, INVALID),
    ("suppressed", {"patterns": ["**"]}, INVALID),
    ("suppressed", {"patterns": ["***?"]}, INVALID),
    ("suppressed", {"patterns": ["****"], "rules": "[]"}, INVALID),
    ("suppressed", {"rules": "{}"}, INVALID),
    ("suppressed", {"rules": '[{"never": ["name"]}]'}, INVALID),
    ("suppressed", {"options": '{"time_limit": 1}'}, INVALID),
    ("suppressed", {"method": "optimal", "options": '{"left_over": "join"}'}, INVALID),
    ("suppressed", {"options": '{"left_over": "drop"}'}, INVALID),
    ("suppressed", {"method": "optimal", "options": '{"time_limit": [1]}'}, INVALID),
    ("suppressed", {"k": 30, "patterns": ["....", "*..."]}, INFEASIBLE),
    ("suppressed", {"k": 30, "patterns": ["....", "*..."], "method": "optimal"}, INFEASIBLE),
    *((kind, {"weights": text}, INVALID) for kind in KINDS
      for text in ('{"sick": 1}', '{"name": 1}', '{"age": 0}', '{"age": [1]}', "[1]")),
]  # fmt: skip
"""What `tests.checks` does not try of every kind."""


@pytest.mark.parametrize("kind", KINDS)
def test_refused(parties: Parties, kind: str) -> None:
    for one, options, expected in REFUSED:
        if one == kind:
            call = lambda: publish(parties, kind, "refused", **{"k": 5, **options})
            assert sqlstate_of(call) == expected, options
    assert "refused" not in Functions(parties.publisher).publications()


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("generalized", {"method": "greedy_search", "weights": '{"age": 0.8}',
                         "options": '{"s": 3, "time_limit": 1}'}),
        ("freeform", {"method": "sort_greedy", "options": '{"partition_size": 2000}'}),
        ("suppressed", {"method": "greedy", "patterns": ["....", "*...", "****"]}),
    ],
)  # fmt: skip
def test_example_of_the_contract(parties: Parties, kind: str, given: dict[str, Any]) -> None:
    """Options that another method knows are no error."""
    publish(parties, kind, "contract", k=5, **given)
    assert sqlstate_of(lambda: publish(parties, kind, "contract", k=5)) == DUPLICATE


@given(
    cells=st.lists(
        st.tuples(st.sampled_from([None, 1, 2, 9]), st.sampled_from([None, "", "x", "{y}"])),
        min_size=1,
        max_size=14,
    ),
    k=st.integers(2, 6),
    how=st.sampled_from([(kind, method) for kind, its in METHODS.items() for method in its]),
    left_over=st.sampled_from(["withhold", "join", "publish"]),
)
@settings(
    max_examples=examples(80),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_random_tables(
    parties: Parties, cells: list[tuple[Any, ...]], k: int, how: tuple[str, str], left_over: str
) -> None:
    """NULLs, ties, duplicates, and hardly more records than k."""
    kind, method = how
    kanon, names = Functions(parties.publisher), ["a", "b"]
    given: dict[str, Any] = {"method": method}
    if kind == "generalized":
        given["options"] = '{"time_limit": 0.2}'
    elif kind == "suppressed":
        given["accept"] = '{"left_over_records": "it is a test"}'
        if method == "greedy":
            given["options"] = f'{{"left_over": "{left_over}"}}'
    with parties.publisher.transaction(force_rollback=True):
        rows = [(number, *row) for number, row in enumerate(cells)]
        create_table(parties.publisher, "data.random", "number int, a int, b text", rows)
        kanon.register("data.random", names, None, insensitive=["number"])
        call = lambda: publish(parties, kind, "random", "data.random", k=k, **given)
        if k > len(rows):
            with parties.publisher.transaction(force_rollback=True):
                assert sqlstate_of(call) == INVALID
            return
        metrics = call()["metrics"]
        assert all(holds for *_, holds in kanon.verify("random"))
        if kind == "generalized":
            check_generalized(parties.publisher, "data.random", "random", names, k)
        elif kind == "freeform":
            check_freeform(parties.publisher, "data.random", "random", names, k)
        else:
            left_out, left = int(metrics["suppressed_records"]), int(metrics["left_over_records"])
            assert left_out < k
            assert left_out == 0 or (method, left_over) == ("greedy", "withhold")
            assert left == 0 or (method, left_over) == ("greedy", "publish")
            check_suppressed(
                parties.publisher, "random", rows, names, k, left_out=left_out, left_over=left
            )
