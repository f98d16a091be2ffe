"""Publishing, replacing, listing and dropping."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kanon_db
from kanon_db.interfaces.python import Kanon
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.session.settings import roomy
from tests.integration.bucket_ways import as_in_the_paper
from tests.integration.parties import (
    WAYS,
    Connection,
    Functions,
    Package,
    Parties,
    check_published,
    columns_of,
    create_table,
    fetch,
    quoted,
    remains,
    sqlstate_of,
    value,
)
from tests.profiles import examples

ROWS = [(i % 30, "mf"[i % 2], f"disease {i % 5 if i < 350 else 0}") for i in range(370)]
INVALID, UNKNOWN = "22023", "42704"


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_table(parties.publisher, "data.people", "age int, sex text, sick text", ROWS)
    Functions(parties.publisher).register("data.people", ["age", "sex"], "sick")


def layout(connection: Connection, name: str) -> dict[str, list[str]]:
    """Columns of the published relations."""
    (relations,) = fetch(
        connection, "SELECT relations FROM kanon.publication WHERE name = $1::text", name
    )[0]
    return {
        relation.removeprefix(name): columns_of(connection, quoted("published", relation))
        for relation in relations
    }


def test_joins_have_the_same_memory_on_every_server(parties: Parties) -> None:
    """What a publication needs is forecast, also where a server has much for each hash table."""
    session = PsycopgSession(parties.publisher)
    with session.transaction():
        for setting in ("1GB", "64kB"):
            fetch(parties.publisher, f"SET LOCAL work_mem = '{setting}'")
            with roomy(session):
                assert value(parties.publisher, "SHOW work_mem") == "16MB"
            assert value(parties.publisher, "SHOW work_mem") == setting


def test_relations(kanon: Functions | Package, parties: Parties) -> None:
    kanon.publish("data.people", "people", privacy='{"l": 2}')
    found = layout(parties.publisher, "people")
    assert found[""] == ["age", "sex", "sick", "weight"]
    assert found["_qit"] == ["age", "sex", "bucket_id"]
    assert found["_sat"] == ["bucket_id", "sick", "count"]


def test_taken_column_names(kanon: Functions | Package, parties: Parties) -> None:
    """Columns of the source keep their names; ours give way."""
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.taken")
    create_table(
        parties.publisher, "data.taken", "bucket_id int, weight int, count int",
        [(i, i % 3, i % 4) for i in range(40)],
    )  # fmt: skip
    kanon.register("data.taken", ["bucket_id", "weight"], "count")
    kanon.publish("data.taken", "taken", privacy='{"l": 2}')
    found = layout(parties.publisher, "taken")
    assert found[""] == ["bucket_id", "weight", "count", "kanon_weight"]
    assert found["_qit"] == ["bucket_id", "weight", "kanon_bucket_id"]
    assert found["_sat"] == ["kanon_bucket_id", "count", "kanon_count"]
    assert kanon.estimate("SELECT COUNT(*) FROM taken WHERE weight = 1") == (13, 0, 13, 13)


def test_weights_answer_any_tool(kanon: Functions | Package, parties: Parties) -> None:
    """The weights of the view add up: to each person, to each value, to all records."""
    kanon.publish("data.people", "people", privacy='{"l": 3}', method="anatomy")
    weights = fetch(
        parties.analyst, "SELECT sick, sum(weight) FROM published.people GROUP BY sick ORDER BY 1"
    )
    counts = fetch(
        parties.publisher, "SELECT sick, count(*) FROM data.people GROUP BY sick ORDER BY 1"
    )
    assert [(sick, pytest.approx(n)) for sick, n in counts] == weights
    condition = "age < 9 AND sick IN ('disease 1', 'disease 4')"
    estimate, *_ = kanon.estimate(f"SELECT COUNT(*) FROM people WHERE {condition}")
    total = value(parties.analyst, f"SELECT sum(weight) FROM published.people WHERE {condition}")
    assert estimate == pytest.approx(total)


def test_returned_row(kanon: Functions | Package, parties: Parties) -> None:
    published = kanon.publish("data.people", "people", privacy='{"theta": 2, "base": "1/10"}')
    assert published["name"] == "people"
    assert published["records"] == len(ROWS)
    assert "F'-privacy" in published["guarantee"]
    assert published["seconds"] > 0
    metrics = kanon.metrics("people")
    assert published["metrics"] == pytest.approx(metrics)
    sizes = {
        int(key.removeprefix("buckets_of_size_")): n
        for key, n in metrics.items()
        if key.startswith("buckets_of_size_")
    }
    assert sum(size * n for size, n in sizes.items()) == metrics["records"] == len(ROWS)
    assert sum(sizes.values()) == metrics["buckets"]
    assert metrics["loss"] == sum(n * (size - 1) ** 2 for size, n in sizes.items())
    assert metrics["msbs"] == pytest.approx(metrics["loss"] / (len(ROWS) - 1))
    assert metrics["sensitive_values"] == len({sick for *_, sick in ROWS})
    assert 0 < metrics["largest_frequency_ratio"] <= 1
    assert published["publication_id"] == value(
        parties.publisher, "SELECT publication_id FROM kanon.publications WHERE name = 'people'"
    )


def test_failed_replacement_changes_nothing(kanon: Functions | Package, parties: Parties) -> None:
    kanon.publish("data.people", "people", privacy='{"l": 2}')
    before = (remains(parties.admin), fetch(parties.admin, "SELECT * FROM kanon.publication"))
    oids = "SELECT array_agg(oid ORDER BY oid) FROM pg_class WHERE relname LIKE 'people%'"
    oid = value(parties.admin, oids)
    for options in (
        {"privacy": '{"l": 300}'},
        {"privacy": '{"l": 4}', "max_bucket_size": 3},
        {"privacy": '{"l": 2}', "readers": ["nobody at all"]},
        {"privacy": '{"l": 2}', "method": "magic"},
    ):
        call = lambda o=options: kanon.publish("data.people", "people", replace=True, **o)
        assert sqlstate_of(call) in ("KN001", "KN002", UNKNOWN, INVALID)
        after = (remains(parties.admin), fetch(parties.admin, "SELECT * FROM kanon.publication"))
        assert after == before
        assert value(parties.admin, oids) == oid
    assert all(holds for *_, holds in kanon.verify("people"))


@pytest.mark.pitfall(23)
def test_replaced_at_once(
    kanon: Functions | Package, parties: Parties, connect_as: Callable[[str, str], Connection]
) -> None:
    """Until the transaction commits, everybody else has the old publication, whole."""
    kanon.publish("data.people", "people", privacy='{"l": 2}', method="anatomy")
    with connect_as(parties.dsn, parties.publisher.info.user) as other:
        with other.transaction():
            Functions(other).publish("data.people", "people", privacy='{"l": 4}', replace=True)
            listed = fetch(parties.admin, "SELECT publication_id FROM kanon.publication")
            assert len(listed) == 1
        assert fetch(parties.admin, "SELECT publication_id FROM kanon.publication") != listed


def test_drop_what_is_left(kanon: Functions | Package, parties: Parties) -> None:
    """A publication of which somebody dropped tables by hand can still be dropped."""
    kanon.publish("data.people", "people", privacy='{"l": 2}')
    fetch(parties.admin, "DROP TABLE published.people_sat CASCADE")
    kanon.drop("people")
    assert remains(parties.admin) == []


def test_drop_keeps_what_depends(kanon: Functions | Package, parties: Parties) -> None:
    """A view that somebody made of a publication is not dropped with it, and shows nothing."""
    kanon.publish("data.people", "people", privacy='{"l": 2}')
    fetch(parties.publisher, "CREATE VIEW data.mine AS SELECT * FROM published.people_qit")
    kanon.drop("people")
    assert sqlstate_of(lambda: fetch(parties.publisher, "TABLE data.mine")) == "42501"
    assert len(remains(parties.admin)) == 1
    fetch(parties.publisher, "DROP VIEW data.mine")
    kanon.publish("data.people", "people", privacy='{"l": 2}')


@pytest.mark.parametrize(
    ("readers", "sqlstate"),
    [
        (["nobody at all"], UNKNOWN),
        (["PUBLIC"], UNKNOWN),
        (["public"], UNKNOWN),
        (["pg_monitor"], INVALID),
        (["kanon_analyst", "kanon_analyst"], None),
        (["kanon_analyst", "kanon_publisher"], None),
        ([""], UNKNOWN),
    ],
)
def test_readers(kanon: Functions | Package, readers: list[str], sqlstate: str | None) -> None:
    call = lambda: kanon.publish("data.people", "people", privacy='{"l": 2}', readers=readers)
    assert sqlstate_of(call) == sqlstate


def test_listing_shows_what_is_readable(
    kanon: Functions | Package, parties: Parties, new_role: Callable[..., str],
    connect_as: Callable[[str, str], Connection],
) -> None:  # fmt: skip
    reader = new_role("kanon_analyst")
    kanon.publish("data.people", "for_one", privacy='{"l": 2}', readers=[reader])
    kanon.publish("data.people", "for_all", privacy='{"l": 2}')
    assert kanon.publications() == ["for_one", "for_all"]
    assert Functions(parties.analyst).publications() == ["for_all"]
    assert Package(parties.analyst).publications() == ["for_all"]
    with connect_as(parties.dsn, reader) as connection:
        assert Functions(connection).publications() == ["for_one", "for_all"]
        assert Functions(connection).metrics("for_one")["records"] == len(ROWS)
    for way in WAYS.values():
        for call in (way(parties.analyst).verify, way(parties.analyst).metrics):
            assert sqlstate_of(lambda: call("for_one")) == UNKNOWN
    (row,) = fetch(
        parties.analyst,
        "SELECT kind, method, source, parameters, rows, published_by FROM kanon.publications",
    )
    assert row == (
        "buckets", "two_size", "data.people",
        {"privacy": {"l": 2}, "max_bucket_size": 50, "assignment": "cells", "options": {},
         "readers": ["kanon_analyst"], "accept": {}},
        len(ROWS), parties.publisher.info.user,
    )  # fmt: skip
    fetch(parties.admin, f"DROP OWNED BY {reader}")


def warnings_of(parties: Parties, call: Callable[[], object]) -> list[str]:
    heard: list[str] = []

    def listen(notice: Any) -> None:
        if notice.severity_nonlocalized == "WARNING":
            heard.append(notice.message_primary)

    parties.publisher.add_notice_handler(listen)
    call()
    parties.publisher.remove_notice_handler(listen)
    return heard


@pytest.mark.pitfall(13, 30)
def test_warning_of_other_publications(parties: Parties, new_role: Callable[..., str]) -> None:
    """Whoever can set two publications of the same rows against each other is a worry."""
    kanon = Functions(parties.publisher)
    one, other = new_role("kanon_analyst"), new_role("kanon_analyst")

    def publish(name: str, readers: list[str]) -> list[str]:
        return warnings_of(
            parties,
            lambda: kanon.publish("data.people", name, privacy='{"l": 2}', readers=readers),
        )

    assert publish("first", [one]) == []
    assert publish("second", [other]) == []
    (warning,) = publish("third", [one])
    assert "first" in warning
    assert "second" not in warning
    (warning,) = publish("fourth", [one, other])
    assert all(name in warning for name in ("first", "second", "third"))
    # What was dropped or replaced may have been kept.
    for name in ("second", "third", "fourth"):
        kanon.drop(name)
    again = lambda: kanon.publish(
        "data.people", "first", privacy='{"l": 2}', readers=[one], replace=True
    )
    (warning,) = warnings_of(parties, again)
    assert "(first, third, fourth)" in warning
    heard: list[str] = []
    session = PsycopgSession(parties.publisher, on_warning=heard.append)
    Kanon(session).publish_buckets("data.people", "second", privacy='{"l": 2}', readers=[one])
    assert len(heard) == 1
    for name in ("first", "second"):
        kanon.drop(name)
    for role in (one, other):
        fetch(parties.admin, f"DROP OWNED BY {role}")


def test_version(parties: Parties) -> None:
    assert value(parties.analyst, "SELECT kanon.version()") == kanon_db.__version__


@pytest.mark.parametrize(
    ("options", "sqlstate"),
    [
        ({"privacy": '{"l": 2}', "max_bucket_size": 0}, INVALID),
        ({"privacy": '{"l": 2}', "max_bucket_size": -1}, INVALID),
        ({"privacy": '{"l": 2}', "max_bucket_size": 2147483647}, INVALID),
        ({"privacy": '{"l": 2}', "method": "Anatomy"}, INVALID),
        ({"privacy": '{"l": 2}', "assignment": "Local"}, INVALID),
        ({"privacy": "{}"}, INVALID),
        ({"privacy": "[]"}, INVALID),
        ({"privacy": '{"l": 0.5}'}, INVALID),
        ({"privacy": '{"l": 5}'}, "KN001"),
        ({"privacy": '{"l": 4}', "max_bucket_size": 3}, "KN002"),
        ({"privacy": '{"l": 2, "values": {"disease 9": 1}}'}, INVALID),
    ],
)
def test_refused(kanon: Functions | Package, options: dict[str, Any], sqlstate: str) -> None:
    assert sqlstate_of(lambda: kanon.publish("data.people", "people", **options)) == sqlstate


SETTINGS = settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
TABLES = st.lists(
    st.tuples(
        st.none() | st.integers(0, 5),
        st.none() | st.sampled_from(["", "a", "b"]),
        st.none() | st.sampled_from(["", "x", "y", "z", "X"]),
    ),
    min_size=1,
    max_size=60,
)


@given(
    rows=TABLES,
    theta=st.fractions(0, 4, max_denominator=7),
    base=st.fractions(Fraction(1, 50), 1, max_denominator=50),
    cap=st.none() | st.fractions(Fraction(1, 3), 1, max_denominator=50),
    largest=st.integers(1, 20),
    method=st.sampled_from(["anatomy", "two_size"]),
)
@SETTINGS
def test_every_record_once_and_no_bound_broken(
    parties: Parties,
    rows: list[Any],
    theta: Fraction,
    base: Fraction,
    cap: Fraction | None,
    largest: int,
    method: str,
) -> None:
    """On random tables: what is published is the source, within the bounds; or it is refused."""
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.random")
    create_table(parties.publisher, "data.random", "age int, sex text, sick text", rows)
    kanon = Functions(parties.publisher)
    kanon.register("data.random", ["age", "sex"], "sick")
    document = {"theta": str(theta), "base": str(base)}
    privacy = json.dumps(document if cap is None else {**document, "cap": str(cap)})
    try:
        published = kanon.publish(
            "data.random", "random", privacy=privacy, method=method, max_bucket_size=largest
        )
    except psycopg.Error as error:
        assert error.sqlstate in ("KN001", "KN002", INVALID)  # noqa: PT017  # each is an answer
        return
    bound = lambda share: min(cap or Fraction(1), theta * share + base)
    try:
        check_published(parties.publisher, "data.random", "random", ["age", "sex"], "sick", bound)
        counts = Counter(sick for *_, sick in rows).values()
        unbounded = sum(n for n in counts if bound(Fraction(n, len(rows))) == 1)
        share = 0 if method == "anatomy" else unbounded / len(rows)
        assert published["metrics"]["unbounded_share"] == pytest.approx(share)
    finally:
        kanon.drop("random")


def test_buckets_of_one_cell_are_random_ones(parties: Parties) -> None:
    """As strict as can be: what buckets tell of the relation is then used, as of random ones."""
    rows = [(i % 40, f"disease {i % 5}") for i in range(1_000)]
    create_table(parties.publisher, "data.strict", "age int, sick text", rows)
    kanon = Functions(parties.publisher)
    kanon.register("data.strict", ["age"], "sick")

    def assigned(**how: Any) -> tuple[str, int]:
        # A draft, which nobody could set against another one.
        kanon.publish("data.strict", "strict", replace=True, readers=[], **how)
        statement = (
            "SELECT layout ->> 'assignment', (SELECT count(*) FROM published.strict_est)"
            " FROM kanon.publications WHERE name = 'strict'"
        )
        return fetch(parties.publisher, statement)[0]

    assert assigned(privacy='{"l": 5}') == ("random", 5)
    assert assigned(privacy='{"l": 5}', assignment="random") == ("random", 5)
    assert assigned(privacy='{"l": 2}') == ("cells", 5)


OFTEN = [120, 61, 33, 20, 9, 4, 2, 1]
SKEWED = [
    (i % 30, "mf"[i % 2], f"disease {value}") for value, n in enumerate(OFTEN) for i in range(n)
]
SKEWED_PRIVACY = '{"theta": 3, "base": 0.02}'


def bound(share: Fraction) -> Fraction:
    return min(Fraction(1), 3 * share + Fraction(1, 50))


@pytest.fixture(scope="module", autouse=True)
def skewed(parties: Parties) -> None:
    create_table(parties.publisher, "data.skewed", "age int, sex text, sick text", SKEWED)
    Functions(parties.publisher).register("data.skewed", ["age", "sex"], "sick")


def test_methods(kanon: Functions | Package, parties: Parties) -> None:
    """Each is valid, the optimum is proven, and more freedom never loses more."""
    losses = []
    for method in ("two_size", "multi_size", "optimal"):
        published = kanon.publish("data.skewed", method, privacy=SKEWED_PRIVACY, method=method)
        check_published(parties.publisher, "data.skewed", method, ["age", "sex"], "sick", bound)
        assert all(holds for *_, holds in kanon.verify(method))
        losses.append(published["metrics"]["loss"])
        sizes = [key for key in published["metrics"] if key.startswith("buckets_of_size_")]
        if method == "optimal":
            assert len(sizes) > 2
            assert published["metrics"]["gap"] == 0
    assert losses[0] > losses[1] >= losses[2]


def test_estimates(kanon: Functions | Package, parties: Parties) -> None:
    """Bitmaps of many sizes answer as the statement does."""
    kanon.publish("data.skewed", "skewed", privacy=SKEWED_PRIVACY, method="optimal")
    for where in (
        "age < 12 AND sick IN ('disease 1', 'disease 3')",
        "sex = 'm' AND sick = 'disease 0'",
    ):
        query = f"SELECT COUNT(*) FROM skewed WHERE {where}"
        with as_in_the_paper(parties.publisher):
            estimate, _, lower, upper = kanon.estimate(query)
        ((shown,),) = fetch(parties.analyst, kanon.rewrite(query))
        assert shown == pytest.approx(estimate)
        actual = fetch(parties.publisher, f"SELECT count(*) FROM data.skewed WHERE {where}")[0][0]
        assert lower <= actual <= upper
