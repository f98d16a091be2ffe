"""What all kinds of rows have in common: their view, order, types, options, and random tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.range import Range

from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    columns_of,
    create_source,
    create_table,
    fetch,
    forget_draws,
    hearing,
    holds,
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
    people,
)
from tests.profiles import examples

__all__ = ["people"]

INVALID, INFEASIBLE, INELIGIBLE = "22023", "KN002", "KN001"
RECODED = ("generalized", "freeform")
KINDS: dict[str, dict[str, Any]] = {
    "generalized": {"k": 5, "method": "mondrian"}, "freeform": {"k": 5}, "suppressed": {"k": 5},
}  # fmt: skip
METHODS = {
    "generalized": ("greedy_search", "mondrian", "k_member", "split_carry", "initial"),
    "freeform": ("sort_greedy", "greedy", "hungarian", "min_cost_flow", "ring"),
    "suppressed": ("greedy", "optimal"),
}


@pytest.fixture(scope="module", autouse=True)
def published(parties: Parties, people: None) -> None:
    """A publication of each kind, of the kind's name."""
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("kind", RECODED)
def test_what_weighs_more_is_generalized_less(parties: Parties, kind: str) -> None:
    quick = {"options": QUICK} if kind == "generalized" else {}
    of_age = []
    for weights in ('{"age": 20}', '{"age": 0.01}'):
        tried = publish(parties, kind, "weighed", k=5, weights=weights, dry_run=True, **quick)
        of_age.append(tried["metrics"]["loss_of_age"])
    assert of_age[0] < of_age[1] / 2


@pytest.mark.long
def test_types(parties: Parties) -> None:
    """Each type has its kind of cell, at its largest values, too."""
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
    names = columns_of(parties.publisher, "data.typed")[1:]
    kanon = Functions(parties.publisher)
    kanon.register("data.typed", names, None, insensitive=["number"])
    for kind in RECODED:
        publish(parties, kind, f"typed_{kind}", "data.typed", **{**KINDS[kind], "k": 8})
        types = ", ".join(f"pg_typeof({name})::text" for name in names)
        found = fetch(parties.publisher, f"SELECT DISTINCT {types} FROM published.typed_{kind}")
        assert found == [
            ("int4range", "int4range", "int8range", "numrange", "numrange", "tsrange", "tstzrange",
             "text[]", "text[]", "int8range", "text[]"),
        ]  # fmt: skip
        assert holds(parties.analyst, f"typed_{kind}")


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
    ("suppressed", {"k": 3, "method": "two_anonymity"}, INVALID),
    ("suppressed", {"k": 2, "method": "two_anonymity"}, INVALID),  # too many records
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


@pytest.mark.long
def test_options_that_another_method_knows_are_no_error(parties: Parties) -> None:
    for kind, options in {
        "generalized": {"method": "greedy_search", "options": '{"s": 3, "time_limit": 1}'},
        "freeform": {"method": "sort_greedy", "options": '{"partition_size": 2000}'},
    }.items():
        publish(parties, kind, "contract", k=5, **options, dry_run=True)


@pytest.mark.long
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
    max_examples=examples(40),
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
        assert holds(parties.publisher, "random")
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


# -- suppressed cells -----------------------------------------------------------------------------

ORIGINALS = [(row[0], *row[2:6]) for row in PEOPLE]


def suppressed(parties: Parties, **given: Any) -> tuple[dict[str, Any], Counter[str]]:
    """Publish with k = 7 and compare with the originals: the row, and the rows of each pattern."""
    row = publish(parties, "suppressed", "stars", k=7, **given)
    found = check_suppressed(parties.analyst, "stars", ORIGINALS, QUASI_IDENTIFIERS, 7)
    return row, found


def test_what_is_suppressed_is_measured(parties: Parties) -> None:
    published, patterns = suppressed(parties)
    assert published["records"] == len(PEOPLE)
    assert published["guarantee"].startswith("7-anonymity by suppression")
    stars = sum(pattern.count("*") * n for pattern, n in patterns.items())
    metrics = published["metrics"]
    assert metrics["suppressed_cells"] == stars
    assert metrics["suppressed_share"] == pytest.approx(stars / (4 * len(PEOPLE)))
    cells = "SELECT DISTINCT age, sex, town, born, pattern FROM published.stars"
    assert metrics["classes"] == len(fetch(parties.analyst, cells))
    assert metrics["average_class_size"] == pytest.approx(len(PEOPLE) / metrics["classes"])


@pytest.mark.pitfall(15)
def test_null_and_suppressed_differ(parties: Parties) -> None:
    """A NULL of the source is not taken for a cell that was suppressed."""
    publish(parties, "suppressed", "stars", k=2, patterns=[".***", "****"])
    kept = "SELECT count(*) FROM published.stars WHERE age IS NULL AND pattern = '.***'"
    assert value(parties.analyst, kept) == sum(row[2] is None for row in PEOPLE)


@pytest.mark.long
def test_patterns_that_are_listed_or_follow_from_rules(parties: Parties) -> None:
    for listed in (["...*", "*.**", "****"], [".***", "****", ".***"], ["****"]):
        _, found = suppressed(parties, patterns=listed, replace=True)
        assert set(found) <= set(listed)
    rules = '[{"at_most": 2}, {"never": ["sex"]}, {"outliers": "suppress"}]'
    kanon = Package(parties.publisher)
    shown = kanon.patterns("data.people", rules=rules)
    patterns = {"....", "...*", "..*.", "*...", "..**", "*..*", "*.*.", "****"}
    assert {row["pattern"] for row in shown} == patterns
    assert [row["position"] for row in shown] == [*range(1, 9)]
    (both,) = (row["suppressed"] for row in shown if row["pattern"] == "..**")
    assert list(both) == ["town", "born"]
    assert [row["cost"] for row in shown] == [0, 1, 1, 1, 2, 2, 2, 4]
    _, found = suppressed(parties, rules=rules, replace=True)
    assert set(found) <= {*patterns}


def test_weights_of_patterns(parties: Parties) -> None:
    """A dear attribute is kept where a cheap one can be suppressed in its place."""
    weights, kanon = '{"town": 0.1, "age": 2.5, "born": 5}', Package(parties.publisher)
    shown = kanon.patterns("data.people", weights=weights)
    assert [row["pattern"] for row in shown][:3] == ["....", "..*.", ".*.."]
    assert [row["cost"] for row in shown][:3] == pytest.approx([0, 0.1, 1])
    published, found = suppressed(parties, weights=weights)
    costs = (2.5, 1, 0.1, 5)
    expected = sum(
        n * costs[place] for pattern, n in found.items() for place in range(4)
        if pattern[place] == "*"
    )  # fmt: skip
    assert published["metrics"]["suppression_cost"] == pytest.approx(expected)
    fetch(parties.publisher, "CREATE VIEW data.weighed AS TABLE data.people")
    kanon.register("data.weighed", QUASI_IDENTIFIERS, None, (), '{"town": {"weight": 0.25}}')
    cheapest = kanon.patterns("data.weighed")[1]
    assert (cheapest["pattern"], cheapest["cost"]) == ("..*.", 0.25)


LEFT_OVER = {
    "withhold": ({".": 10}, "2 left-over records are left out"),
    "join": ({".": 9, "*": 3}, "at least 3 times"),
    "publish": ({".": 10, "*": 2}, "can tell whose they are"),
}


def test_left_over_records(parties: Parties) -> None:
    lonely = [(i, 1 if i < 10 else i) for i in range(12)]
    kanon = create_source(
        parties.publisher, "data.lonely", "number int, a int", lonely, ["a"], insensitive=["number"]
    )
    refused = lambda: kanon.suppress("data.lonely", "none", k=3, patterns=["."])
    assert sqlstate_of(refused) == INFEASIBLE
    for left_over in (None, *LEFT_OVER):
        given = {} if left_over is None else {"options": f'{{"left_over": "{left_over}"}}'}
        if left_over == "publish":
            given["accept"] = '{"left_over_records": "it is a test"}'
        published = kanon.suppress("data.lonely", "lonely", k=3, replace=True, **given)
        rows, said = LEFT_OVER[left_over or "withhold"]
        left_out = len(lonely) - sum(rows.values())
        shown = rows["*"] if left_over == "publish" else 0
        assert published["guarantee"].endswith(said)
        assert published["records"] == len(lonely)
        assert published["metrics"]["records"] == sum(rows.values())
        assert published["metrics"]["suppressed_records"] == left_out
        assert published["metrics"]["left_over_records"] == shown
        assert rows == check_suppressed(
            parties.analyst, "lonely", lonely, ["a"], 3, left_out=left_out, left_over=shown
        )
        checks = kanon.verify("lonely")
        assert all(good for *_, good in checks)
        of_left_over = [line[2] for line in checks if line[0].startswith("left-over records")]
        assert of_left_over == ["2 records"] * (left_over == "publish")


def test_equal_values_look_equal_and_others_need_no_order(parties: Parties) -> None:
    """1.0 and 1.00 are equal: written apart, they would tell two rows of one class apart."""
    rows = [
        (("1.0", "1.00", "1.000")[i % 3], ("1 day", "24:00")[i % 2], "(1,2)") for i in range(12)
    ]
    kanon = create_source(
        parties.publisher, "data.scales", "a numeric, b interval, shape point", rows, ["a", "b"],
        insensitive=["shape"],
    )  # fmt: skip
    kanon.suppress("data.scales", "scales", k=12)
    texts = "SELECT DISTINCT a::text, b::text, shape::text, pattern FROM published.scales"
    assert [row[2:] for row in fetch(parties.analyst, texts)] == [("(1,2)", "..")]


def test_names_of_columns(parties: Parties) -> None:
    """The view's own name gives way; the publisher hears of columns that are not published."""
    with hearing(parties.publisher) as heard:
        kanon = create_source(
            parties.publisher, "data.taken", "pattern int, kanon_pattern int, position int, b int",
            [(i % 2, i % 3, i, i) for i in range(30)], ["pattern", "position"], "kanon_pattern",
        )  # fmt: skip
        kanon.suppress("data.taken", "taken", k=3)
    registered, published = (text for text in heard if text.startswith("columns without a role"))
    assert '"b"' in registered
    assert "b" in published.split(":")[1]
    assert columns_of(parties.publisher, "published.taken") == [
        "pattern", "kanon_pattern", "position", "kanon_pattern_",
    ]  # fmt: skip
    assert holds(parties.analyst, "taken")
