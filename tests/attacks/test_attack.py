"""What `attack` says: against publications that an attack breaks, and against those that hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kanon_db.errors import VerificationError
from kanon_db.publications.rows import published_rows
from tests.integration.parties import (
    KINDS,
    WAYS,
    Connection,
    Functions,
    Package,
    Parties,
    create_source,
    fetch,
    sqlstate_of,
    value,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

FORBIDDEN, UNKNOWN = "42501", "42704"
MIXED = "number int, age int, income numeric, born date, seen timestamptz, city text, sick text"
# NULLs everywhere, and cells of every type.
PEOPLE = [
    (
        i,
        None if i % 17 == 0 else 20 + i * 7 % 60,
        None if i % 29 == 0 else f"{i * 37 % 500}.5",
        f"{1950 + i % 50}-0{1 + i % 9}-11",
        f"2020-01-01 {i % 24:02}:00+00",
        None if i % 13 == 0 else f"city {i % 6}",
        f"disease {i * i % 5}",
    )
    for i in range(150)
]
Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    columns = ["age", "income", "born", "seen", "city"]
    create_source(
        parties.publisher, "data.people", MIXED, PEOPLE, columns, "sick", identifiers=["number"]
    )


def attacked(parties: Parties, name: str = "p") -> Found:
    rows = Functions(parties.publisher).rows("attack", name)
    return {row["attack"]: row for row in rows}


def publish(parties: Parties, kind: str, **given: Any) -> None:
    Functions(parties.publisher).of_kind(kind, "data.people", "p", **given)


# -- what attacks achieve ----------------------------------------------------------------------


_COVERS = {
    **{
        name: f"CASE WHEN p.{name} IS NULL THEN g.{name} IS NULL OR (lower_inf(g.{name}) AND"
        f" upper_inf(g.{name})) ELSE coalesce(p.{name} <@ g.{name}, false) END"
        for name in ("age", "income", "born", "seen")
    },
    "city": "array_position(g.city, p.city) IS NOT NULL",
}
_KEEPS = {
    name: f"(substr(g.pattern, {place}, 1) = '*' OR p.{name} IS NOT DISTINCT FROM g.{name})"
    for place, name in enumerate(_COVERS, start=1)
}


@pytest.mark.long
@pytest.mark.parametrize("kind", [name for name in KINDS if name != "buckets"])
def test_rows_that_may_be_a_persons(parties: Parties, kind: str) -> None:
    """Cells of every type cover whom SQL says that they cover, with and without NULLs.

    Whoever is not in the source any more cannot be scored; new people were not published.
    """
    publish(parties, kind)
    covers = " AND ".join((_KEEPS if kind == "suppressed" else _COVERS).values())
    share, values, certain = fetch(
        parties.publisher,
        "SELECT avg(1.0 / n)::float8, avg(right_)::float8, avg((v = 1)::int)::float8 FROM ("
        " SELECT sum(n) AS n, count(*) AS v, (array_agg((sick = own)::int ORDER BY n DESC))[1]"
        "  AS right_ FROM (SELECT p.number, p.sick AS own, g.sick, count(*) AS n"
        f"  FROM data.people AS p JOIN published.p AS g ON {covers} GROUP BY 1, 2, 3) AS pairs"
        " GROUP BY number) AS people",
    )[0]
    found = attacked(parties)
    linked = found["linking a row"]
    assert linked["people"] == len(PEOPLE)
    assert linked["rate"] == pytest.approx(share)
    assert linked["rate"] <= linked["bound"] == pytest.approx(1 / 3)
    assert linked["base_rate"] == pytest.approx(1 / len(PEOPLE))
    # Ties of the most frequent value are broken in another way.
    assert found["most frequent value"]["rate"] == pytest.approx(values, abs=0.2)
    assert found["most frequent value"]["bound"] is None
    if kind == "freeform":
        assert found["homogeneity"]["rate"] == pytest.approx(certain)
    shown = [*_COVERS, "sick", *(["pattern"] if kind == "suppressed" else [])]
    isolated, n_rows = fetch(
        parties.publisher,
        "SELECT sum((right_::float8 / n) * power(1 - 1.0 / n, greatest(right_ - 1, 0)))::float8,"
        " count(*) FROM (SELECT g.ctid, g.n, count(p) AS right_ FROM (SELECT *, count(*) OVER"
        f"  (PARTITION BY {', '.join(shown)}) AS n, ctid FROM published.p) AS g"
        f" LEFT JOIN data.people AS p ON {covers} AND p.sick IS NOT DISTINCT FROM g.sick"
        "  GROUP BY 1, 2) AS rows",
    )[0]
    assert found["singling out"]["people"] == n_rows
    assert found["singling out"]["rate"] == pytest.approx(isolated / n_rows)
    assert found["singling out"]["base_rate"] < 0.37
    assert ("downcoding" in found) == (kind != "suppressed")
    check_refinement(kind, found)
    check_some_come_and_go(parties)


def check_refinement(kind: str, found: Found) -> None:
    """Who knows the method excludes tables, and of suppressed rows all but a class."""
    names = {"refinement", "refinement: known values"}
    if kind == "suppressed":
        names |= {"refinement: linking a row", "refinement: most frequent value"}
        linked = found["refinement: linking a row"]
        assert linked["bound"] == found["linking a row"]["bound"]
        assert found["linking a row"]["rate"] < linked["rate"] <= linked["bound"]
    assert {name for name in found if name.startswith("refinement")} == names
    for name in names:
        assert found[name]["people"] > 0
        assert 0 <= found[name]["rate"] <= 1
    assert 0 < found["refinement"]["rate"] < 1


def check_some_come_and_go(parties: Parties) -> None:
    with parties.publisher.transaction(force_rollback=True):
        fetch(parties.publisher, "DELETE FROM data.people WHERE number % 5 = 0")
        fetch(
            parties.publisher,
            "INSERT INTO data.people VALUES (900, 99, 1e6, '2001-01-01', now(), 'x', 'new'),"
            " (901, 21, NULL, NULL, NULL, NULL, NULL)",
        )
        found = attacked(parties)
    for line in found.values():
        assert line["people"] <= len(PEOPLE)
        assert line["rate"] is None or 0 <= line["rate"] <= 1
    assert 0 < found["most frequent value"]["people"] < len(PEOPLE)


def test_homogeneous_buckets_are_counted(parties: Parties) -> None:
    """Of people in buckets of one value, the value is certain."""
    publish(parties, "buckets", privacy='{"theta": 4, "base": 0.02}')
    in_one = value(
        parties.publisher,
        "SELECT coalesce(sum(count), 0)::int8 FROM (SELECT count, count(*) OVER (PARTITION BY"
        " bucket_id) AS n_values FROM published.p_sat) AS s WHERE n_values = 1",
    )
    found = attacked(parties)["homogeneity"]
    assert found["rate"] == pytest.approx(in_one / len(PEOPLE))
    check_some_come_and_go(parties)


def test_constraints_bound_attacks_on_rows(parties: Parties) -> None:
    publish(
        parties, "generalized", constraints='{"l": 2, "default": 0.5}',
    )  # fmt: skip
    found = attacked(parties)
    assert found["homogeneity"]["rate"] == found["homogeneity"]["bound"] == 0
    assert found["most frequent value"]["bound"] == 0.5
    assert found["most frequent value"]["rate"] <= 0.6  # classes overlap


def test_correlations_of_the_source_tell_values(parties: Parties) -> None:
    """Someone who knows that age decides the disease is right, whatever the buckets."""
    rows = [(20 + i % 40, f"d{i % 40 // 10}") for i in range(800)]
    columns = "age int, sick text"
    kanon = create_source(parties.publisher, "data.correlated", columns, rows, ["age"], "sick")
    kanon.publish("data.correlated", "p", privacy='{"l": 4}')
    found = attacked(parties)
    assert found["most frequent value"]["rate"] == pytest.approx(0.25, abs=0.1)
    assert found["correlations of the source"]["rate"] > 0.95


def test_a_learner_is_surer_than_the_bound(parties: Parties) -> None:
    """Values that go with ages are learned from the publication alone; others are not.

    So many people's values are believed to be likelier than the threshold, and rightly so.
    """
    rates = {}
    for name in ("correlated", "independent"):
        random = np.random.default_rng(7)
        ages = random.integers(0, 40, 3000)
        told = ages // 10 if name == "correlated" else random.integers(0, 4, 3000)
        values = np.where(random.random(3000) < 0.9, told, random.integers(0, 8, 3000))
        rows = [(20 + int(age), f"d{one}") for age, one in zip(ages, values, strict=True)]
        columns = "age int, sick text"
        kanon = create_source(parties.publisher, f"data.{name}_l", columns, rows, ["age"], "sick")
        kanon.publish(f"data.{name}_l", "p", privacy='{"l": 3}', assignment="random")
        found = attacked(parties)
        kanon.drop("p")
        surer, learned = found["surer than the bound: deFinetti"], found["deFinetti"]
        assert learned["bound"] == pytest.approx(1 / 3)
        assert surer["people"] <= learned["people"] == 3000
        if surer["people"]:  # where nothing is related, nobody may be
            assert surer["bound"] == pytest.approx(1 / 3)
        rates[name] = (learned["rate"], surer["rate"] or 0.0, surer["people"])
    assert min(rates["correlated"]) > 0.6
    assert max(rates["independent"][:2]) < 0.4


@pytest.mark.pitfall(65)
def test_learners_are_scored_on_those_who_are_easily_found(parties: Parties) -> None:
    """People who are alike hide in the average that the others are told; the same twice."""
    random = np.random.default_rng(3)
    alike = [(i % 4, 0, f"d{random.integers(6)}") for i in range(1200)]
    alone = [(i % 3, 100 + i, f"d{i % 3}") for i in range(400)]
    columns = "trade int, zip int, sick text"
    kanon = create_source(
        parties.publisher, "data.alone", columns, [*alike, *alone], ["trade", "zip"], "sick"
    )
    rates = []
    for draw in range(3):  # of one draw in 24, all starts of the learner end in a poor place
        fetch(parties.admin, f"UPDATE kanon.draw_key SET key = sha256('{draw}')")
        kanon.publish("data.alone", "p", privacy='{"l": 3}', assignment="random", replace=True)
        found = attacked(parties)
        rates.append(found["unique people: deFinetti"]["rate"])
    assert found["unique people: deFinetti"]["people"] == len(alone)
    assert found["unusual people: deFinetti"]["people"] >= len(alone)
    assert found["unique people: deFinetti"]["bound"] == pytest.approx(1 / 3)
    assert found["deFinetti"]["rate"] < 0.5 < 0.6 < sorted(rates)[1]
    assert found["unusual people: most frequent value"]["rate"] < 0.45
    assert attacked(parties) == found
    kanon.drop("p")
    kanon.of_kind("suppressed", "data.alone", "p", k=3)
    assert attacked(parties)["unique people: deFinetti"]["people"] == len(alone)


@pytest.mark.pitfall(66)
def test_a_code_of_a_list_exceeds_the_bound_of_the_list(parties: Parties) -> None:
    """No list is above its bound in a bucket; a code of many lists is, and the attack says so."""
    random = np.random.default_rng(4)
    codes = ["B20", "E11", "F32", "G47", "H25", "I10", "J44"]
    lists = [
        ", ".join(["B20"] * (i % 2) + sorted(random.choice(codes[1:], 2, replace=False)))
        for i in range(240)
    ]
    rows = [(i, text) for i, text in enumerate(lists)]
    kanon = create_source(parties.publisher, "data.lists", "age int, codes text", rows)
    kanon.publish("data.lists", "p", privacy='{"l": 3}', assignment="random")
    found = attacked(parties)
    share = value(
        parties.publisher,
        "SELECT avg(best::float8) FROM (SELECT bucket_id, max(n) AS best FROM ("
        " SELECT s.bucket_id, sum(s.count)::float8 / z.size AS n FROM published.p_sat AS s"
        " JOIN (SELECT bucket_id, sum(count) AS size FROM published.p_sat GROUP BY 1) AS z"
        " USING (bucket_id) CROSS JOIN string_to_table(s.codes, ', ') AS part"
        " GROUP BY s.bucket_id, part, z.size) AS parts GROUP BY bucket_id) AS b"
        " JOIN published.p_qit USING (bucket_id)",
    )
    said = value(parties.publisher, "SELECT guarantee FROM kanon.publications WHERE name = 'p'")
    assert "the values of codes are lists: how many of them have one code in common" in said
    part = found["a part of the value"]
    assert part["people"] == len(rows)
    assert part["bound"] is None
    assert part["base_rate"] == pytest.approx(0.5)  # B20
    assert part["rate"] == pytest.approx(share, abs=0.12)
    assert share > 0.5 > found["most frequent value"]["bound"]
    kanon.drop("p")
    kanon.register("data.lists", ["codes"], "age")
    kanon.publish("data.lists", "p", privacy='{"l": 3}')
    assert "a part of the value" not in attacked(parties)


def test_rows_without_a_sensitive_attribute(parties: Parties) -> None:
    rows = [(20 + i % 40, "mf"[i % 2]) for i in range(100)]
    columns = "age int, sex text"
    kanon = create_source(parties.publisher, "data.plain", columns, rows, ["age", "sex"], None)
    kanon.of_kind("generalized", "data.plain", "p", k=4)
    found = attacked(parties)
    assert list(found) == [
        "linking a row", "unusual people: linking a row", "singling out", "downcoding",
        "refinement", "refinement: known values",
    ]  # fmt: skip
    assert found["linking a row"]["rate"] <= 0.25


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "buckets"])
def test_samples_depend_on_no_order_of_rows(
    parties: Parties, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Neither of the source's nor of the published ones: the same are looked up, and guessed."""
    publish(parties, kind)
    monkeypatch.setattr(published_rows, "MOST_PEOPLE", 40)
    package = Package(parties.publisher)
    found = package.attack("p")
    assert [row[-1] for row in found if row[0] == "linking a row"] == [40]
    for order in ("number DESC", "md5(number::text)"):
        with parties.publisher.transaction(force_rollback=True):
            fetch(parties.publisher, f"CREATE TEMP TABLE t AS TABLE data.people ORDER BY {order}")
            fetch(parties.publisher, "DELETE FROM data.people")
            fetch(parties.publisher, "INSERT INTO data.people TABLE t")
            assert str(package.attack("p")) == str(found)  # some bounds are NaN


def test_patterns_and_weights_say_in_which_class_somebody_is(parties: Parties) -> None:
    """The order in which patterns were tried follows from them: each person has one class left."""
    random = np.random.default_rng(5)
    rows = [tuple(random.integers(0, (4, 4, 5)).tolist()) for _ in range(120)]
    kanon = create_source(
        parties.publisher, "data.ordered", "a int, b int, c int", rows, ["c", "a", "b"], None
    )
    given: dict[str, Any]
    for given in (
        {}, {"weights": '{"a": 3}'}, {"patterns": ["...", "*..", "..*", "***"]},
        {"options": '{"left_over": "publish"}', "accept": '{"left_over_records": "a test"}'},
    ):  # fmt: skip
        kanon.of_kind("suppressed", "data.ordered", "p", k=3, **given)
        found = attacked(parties)
        # Each person is left with a class, whose shares add up to 1; left-over ones with none.
        assert found["refinement: linking a row"]["rate"] == pytest.approx(
            share_of_classes(parties)
        )
        kanon.drop("p")
    kanon.of_kind(
        "suppressed", "data.ordered", "p", k=3, patterns=["...", "*..", "..*", "***"],
        options='{"left_over": "join"}',
    )  # fmt: skip
    assert not [name for name in attacked(parties) if name.startswith("refinement")]


def test_an_order_that_is_drawn_leaves_more_rows(parties: Parties) -> None:
    """The last one is like three others in the first column, and like three in the second."""
    rows = [(0, 0), (0, 1), (0, 2), (3, 5), (4, 5), (6, 5), (0, 5)]
    kanon = create_source(parties.publisher, "data.tied", "a int, b int", rows, ["a", "b"], None)
    for order, share in (("cheapest_first", 2), ("drawn", 3 / 4 + 3 / 3 + 1 / 7)):
        kanon.of_kind("suppressed", "data.tied", "p", k=3, options=f'{{"order": "{order}"}}')
        found = attacked(parties)["refinement: linking a row"]
        assert found["rate"] == pytest.approx(share / len(rows))
        kanon.drop("p")


def share_of_classes(parties: Parties) -> float:
    rows = "SELECT DISTINCT a, b, c, pattern FROM published.p"
    return float(value(parties.publisher, f"SELECT count(*) FROM ({rows}) AS classes")) / 120


# -- who may play them, and what is kept -------------------------------------------------------


@pytest.mark.long
def test_only_the_publisher_plays_attacks(
    parties: Parties, connect_as: Callable[[str, str], Connection], new_role: Callable[..., str]
) -> None:
    """Rates are measured from the source: neither readers nor other publishers learn them."""
    publish(parties, "buckets")
    with connect_as(parties.dsn, new_role("kanon_publisher", "kanon_analyst")) as other:
        fetch(parties.publisher, f"GRANT SELECT ON data.people TO {other.info.user}")
        fetch(parties.publisher, f"GRANT USAGE ON SCHEMA data TO {other.info.user}")
        for way in WAYS.values():
            for connection in (parties.analyst, parties.stranger, parties.admin, other):
                call = lambda: way(connection).attack("p")
                assert sqlstate_of(call) in (FORBIDDEN, UNKNOWN, "KN004"), connection.info.user
            assert way(parties.publisher).attack("p")
        attacks = "SELECT attacks FROM kanon.publication{}"
        assert sqlstate_of(lambda: fetch(other, attacks.format(""))) == FORBIDDEN
        assert fetch(other, attacks.format("s")) == [(None,)]
        assert sqlstate_of(lambda: Functions(other).attack("p")) == FORBIDDEN
        fetch(parties.admin, f"DROP OWNED BY {other.info.user}")
    assert fetch(parties.analyst, attacks.format("s")) == [(None,)]
    # Nothing is read with other rights than the caller's: the source's owner may refuse.
    owner, publisher = parties.admin, parties.publisher.info.user
    fetch(owner, "ALTER TABLE data.people OWNER TO CURRENT_USER")
    try:
        assert sqlstate_of(lambda: Functions(parties.publisher).attack("p")) == FORBIDDEN
        fetch(owner, f"GRANT SELECT ON data.people TO {publisher}")
        assert Functions(parties.publisher).attack("p")
    finally:
        fetch(owner, f'ALTER TABLE data.people OWNER TO "{publisher}"')


def test_what_has_taken_the_place_of_a_publication_is_not_attacked(parties: Parties) -> None:
    publish(parties, "buckets")
    fetch(parties.admin, "UPDATE published.p_sat SET count = count + 1")
    call = lambda: Functions(parties.publisher).attack("p")
    assert sqlstate_of(call) == VerificationError.sqlstate
    assert value(parties.publisher, "SELECT attacks FROM kanon.publications") is None
