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

from kanon_db.interfaces.python import Kanon
from kanon_db.session.protocol import roomy
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.bucket_ways import as_in_the_paper
from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    Parties,
    check_published,
    columns_of,
    create_source,
    drop_all,
    fetch,
    hearing,
    holds,
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
    create_source(parties.publisher, "data.people", "age int, sex text, sick text", ROWS)


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


IMPORTED = """DO LANGUAGE plpython3u $$
import sys
late = {"numba", "llvmlite", "numba.cpython.numbers", "numba.np.arrayobj",
        "numpy.ma", "subprocess"}
plpy.info(", ".join(sorted(late & {*sys.modules})))
$$"""
COMPILED = "llvmlite, numba, numpy.ma"  # that load what was compiled, without what compiles


@pytest.mark.slow("publishes in two sessions each, of which the first one may compile")
@pytest.mark.parametrize(
    ("publish", "imported"),
    [
        ("suppressed('{0}', 'few', k => 2)", ""),
        ("generalized('{0}', 'few', k => 2, refine => false)", COMPILED),
        ("buckets('{0}', 'few', privacy => '{{\"l\": 2}}')", COMPILED),
    ],
)
def test_a_first_publication_loads_what_it_needs(
    parties: Parties, publish: str, imported: str
) -> None:
    """A session waits for it: numba takes as long as all else."""
    table = f"data.few_{publish.partition('(')[0]}"
    create_source(parties.publisher, table, "age int, sex text, sick text", ROWS)
    for _ in range(2):
        with psycopg.connect(parties.dsn, autocommit=True) as session, hearing(session) as heard:
            fetch(session, f"SET SESSION AUTHORIZATION {parties.publisher.info.user}")
            fetch(session, f"SELECT kanon.publish_{publish.format(table)}")
            fetch(session, "SELECT kanon.drop_publication('few')")
            fetch(session, "RESET SESSION AUTHORIZATION")
            fetch(session, IMPORTED)
    assert heard[-1] == imported


def test_what_is_returned_and_made(kanon: Package, parties: Parties) -> None:
    published = kanon.publish("data.people", "people", privacy='{"theta": 2, "base": "1/10"}')
    assert (
        layout(parties.publisher, "people").items()
        >= {
            "": ["age", "sex", "sick", "weight"],
            "_qit": ["age", "sex", "bucket_id"],
            "_sat": ["bucket_id", "sick", "count"],
        }.items()
    )
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
    listed = "SELECT publication_id FROM kanon.publications WHERE name = 'people'"
    assert published["publication_id"] == value(parties.publisher, listed)


def test_taken_column_names(kanon: Package, parties: Parties) -> None:
    """Columns of the source keep their names; ours give way."""
    rows = [(i, i % 3, i % 4) for i in range(40)]
    create_source(parties.publisher, "data.taken", "bucket_id int, weight int, count int", rows)
    kanon.publish("data.taken", "taken", privacy='{"l": 2}')
    assert (
        layout(parties.publisher, "taken").items()
        >= {
            "": ["bucket_id", "weight", "count", "kanon_weight"],
            "_qit": ["bucket_id", "weight", "kanon_bucket_id"],
            "_sat": ["kanon_bucket_id", "count", "kanon_count"],
        }.items()
    )
    assert kanon.estimate("SELECT COUNT(*) FROM taken WHERE weight = 1") == (13, 0, 13, 13)


def test_weights_answer_any_tool(kanon: Package, parties: Parties) -> None:
    """The weights of the view add up: to each person, to each value, to all records."""
    kanon.publish("data.people", "people", privacy='{"l": 3}', method="anatomy")
    weights = "SELECT sick, sum(weight) FROM published.people GROUP BY sick"
    counts = Counter(sick for *_, sick in ROWS)
    assert dict(fetch(parties.analyst, weights)) == pytest.approx(counts)
    condition = "age < 9 AND sick IN ('disease 1', 'disease 4')"
    estimate, *_ = kanon.estimate(f"SELECT COUNT(*) FROM people WHERE {condition}")
    total = value(parties.analyst, f"SELECT sum(weight) FROM published.people WHERE {condition}")
    assert estimate == pytest.approx(total)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_bucket_size": 0}, INVALID),
    ({"max_bucket_size": -1}, INVALID),
    ({"max_bucket_size": 2147483647}, INVALID),
    ({"method": "Anatomy"}, INVALID),
    ({"assignment": "Local"}, INVALID),
    ({"privacy": "[]"}, INVALID),
    ({"privacy": '{"l": 0.5}'}, INVALID),
    ({"privacy": '{"l": 2, "values": {"disease 9": 1}}'}, INVALID),
    ({"privacy": '{"l": 5}'}, "KN001"),
    ({"privacy": '{"l": 4}', "max_bucket_size": 3}, "KN002"),
    *(({"readers": [name]}, UNKNOWN) for name in ("nobody at all", "PUBLIC", "public", "")),
    ({"readers": ["pg_monitor"]}, INVALID),
]
"""Options besides l = 2."""


def test_failed_replacement_changes_nothing(kanon: Package, parties: Parties) -> None:
    for readers in (["kanon_analyst", "kanon_publisher"], ["kanon_analyst", "kanon_analyst"]):
        given = {"privacy": '{"l": 2}', "readers": readers, "replace": True}
        kanon.publish("data.people", "people", **given)
    oids = "SELECT array_agg(oid ORDER BY oid) FROM pg_class WHERE relname LIKE 'people%'"
    state = lambda: [
        remains(parties.admin),
        fetch(parties.admin, "TABLE kanon.publication"),
        value(parties.admin, oids),
    ]
    before = state()
    for options, sqlstate in REFUSED:
        call = lambda o={**given, **options}: kanon.publish("data.people", "people", **o)
        assert sqlstate_of(call) == sqlstate, options
        assert state() == before, options
    assert holds(parties.analyst, "people")


@pytest.mark.long
@pytest.mark.pitfall(23)
def test_replaced_at_once(
    kanon: Package, parties: Parties, connect_as: Callable[[str, str], Connection]
) -> None:
    """Until the transaction commits, everybody else has the old publication, whole."""
    kanon.publish("data.people", "people", privacy='{"l": 2}', method="anatomy")
    with connect_as(parties.dsn, parties.publisher.info.user) as other:
        with other.transaction():
            Functions(other).publish("data.people", "people", privacy='{"l": 4}', replace=True)
            listed = fetch(parties.admin, "SELECT publication_id FROM kanon.publication")
            assert len(listed) == 1
        assert fetch(parties.admin, "SELECT publication_id FROM kanon.publication") != listed


@pytest.mark.long
def test_drop_what_is_left(kanon: Package, parties: Parties) -> None:
    """What somebody dropped in part is dropped; a view that somebody made is not, but is empty."""
    kanon.publish("data.people", "people", privacy='{"l": 2}')
    fetch(parties.admin, "DROP TABLE published.people_sat CASCADE")
    kanon.drop("people")
    assert remains(parties.admin) == []
    kanon.publish("data.people", "people", privacy='{"l": 2}')
    fetch(parties.publisher, "CREATE VIEW data.mine AS SELECT * FROM published.people_qit")
    kanon.drop("people")
    assert sqlstate_of(lambda: fetch(parties.publisher, "TABLE data.mine")) == "42501"
    assert len(remains(parties.admin)) == 1
    fetch(parties.publisher, "DROP VIEW data.mine")
    kanon.publish("data.people", "people", privacy='{"l": 2}')


@pytest.mark.long
@pytest.mark.pitfall(13, 30)
def test_warning_of_other_publications(parties: Parties, new_role: Callable[..., str]) -> None:
    """Whoever can set two publications of the same rows against each other is a worry."""
    kanon = Functions(parties.publisher)
    one, other = new_role("kanon_analyst"), new_role("kanon_analyst")

    def publish(name: str, readers: list[str], **options: Any) -> list[str]:
        given = {"privacy": '{"l": 2}', "readers": readers, **options}
        with hearing(parties.publisher) as heard:
            kanon.publish("data.people", name, **given)
        return [text for text in heard if not text.startswith("publishing about")]

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
    (warning,) = publish("first", [one], replace=True)
    assert "(first, third, fourth)" in warning
    heard: list[str] = []
    session = PsycopgSession(parties.publisher, on_warning=heard.append)
    Kanon(session).publish_buckets("data.people", "second", privacy='{"l": 2}', readers=[one])
    assert len(heard) == 1
    drop_all(parties)
    fetch(parties.admin, f"DROP OWNED BY {one}, {other}")


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
    kanon = create_source(parties.publisher, "data.random", "age int, sex text, sick text", rows)
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
    """As strict as can be."""
    rows = [(i % 40, f"disease {i % 5}") for i in range(1_000)]
    kanon = create_source(parties.publisher, "data.strict", "age int, sick text", rows)

    def assigned(**how: Any) -> str:
        # A draft, which nobody could set against another one.
        kanon.publish("data.strict", "strict", replace=True, readers=[], **how)
        statement = "SELECT layout ->> 'assignment' FROM kanon.publications WHERE name = 'strict'"
        return str(fetch(parties.publisher, statement)[0][0])

    assert assigned(privacy='{"l": 5}') == "random"
    assert assigned(privacy='{"l": 5}', assignment="random") == "random"
    assert assigned(privacy='{"l": 2}') == "cells"


OFTEN = [120, 61, 33, 20, 9, 4, 2, 1]
SKEWED = [
    (i % 30, "mf"[i % 2], f"disease {value}") for value, n in enumerate(OFTEN) for i in range(n)
]
SKEWED_PRIVACY = '{"theta": 3, "base": 0.02}'


def bound(share: Fraction) -> Fraction:
    return min(Fraction(1), 3 * share + Fraction(1, 50))


@pytest.mark.long
def test_methods(kanon: Package, parties: Parties) -> None:
    """Each is valid, the optimum is proven, and more freedom never loses more."""
    create_source(parties.publisher, "data.skewed", "age int, sex text, sick text", SKEWED)
    losses = []
    for method in ("two_size", "multi_size", "optimal"):
        published = kanon.publish("data.skewed", method, privacy=SKEWED_PRIVACY, method=method)
        check_published(parties.publisher, "data.skewed", method, ["age", "sex"], "sick", bound)
        assert holds(parties.publisher, method)
        losses.append(published["metrics"]["loss"])
    assert len([key for key in published["metrics"] if key.startswith("buckets_of_size_")]) > 2
    assert published["metrics"]["gap"] == 0
    assert losses[0] > losses[1] >= losses[2]
    # Bitmaps of many sizes answer as the statement does.
    for where in (
        "age < 12 AND sick IN ('disease 1', 'disease 3')",
        "sex = 'm' AND sick = 'disease 0'",
    ):
        query = f"SELECT COUNT(*) FROM optimal WHERE {where}"
        with as_in_the_paper(parties.publisher):
            estimate, _, lower, upper = kanon.estimate(query)
        ((shown, *_),) = fetch(parties.analyst, kanon.rewrite(query))
        assert shown == pytest.approx(estimate)
        actual = value(parties.publisher, f"SELECT count(*) FROM data.skewed WHERE {where}")
        assert lower <= actual <= upper
