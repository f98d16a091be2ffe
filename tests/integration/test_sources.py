"""Publishing every kind of relation: all of its rows, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import psycopg
import pytest

from tests.integration.parties import (
    Connection,
    Functions,
    Parties,
    check_published,
    create_source,
    create_table,
    fetch,
    holds,
    remains,
    sqlstate_of,
    value,
)

ROWS = [(i, i % 30, "mf"[i % 2], f"disease {i % 5}") for i in range(300)]
COLUMNS = "person int, age int, sex text, sick text"
A_THIRD = Fraction(1, 3)

SOURCES = {
    "partitioned by list": [
        "CREATE TABLE data.source (LIKE data.people) PARTITION BY LIST (sex)",
        "CREATE TABLE data.source_f PARTITION OF data.source FOR VALUES IN ('f')",
        "CREATE TABLE data.source_rest PARTITION OF data.source DEFAULT",
        "INSERT INTO data.source SELECT * FROM data.people",
    ],
    "partitioned by range, in two levels": [
        "CREATE TABLE data.source (LIKE data.people) PARTITION BY RANGE (age)",
        "CREATE TABLE data.source_0 PARTITION OF data.source FOR VALUES FROM (0) TO (10)",
        (
            "CREATE TABLE data.source_1 PARTITION OF data.source FOR VALUES FROM (10) TO (20)"
            " PARTITION BY HASH (sick)"
        ),
        (
            "CREATE TABLE data.source_1_0 PARTITION OF data.source_1"
            " FOR VALUES WITH (MODULUS 2, REMAINDER 0)"
        ),
        (
            "CREATE TABLE data.source_1_1 PARTITION OF data.source_1"
            " FOR VALUES WITH (MODULUS 2, REMAINDER 1)"
        ),
        "CREATE TABLE data.source_rest PARTITION OF data.source DEFAULT",
        "CREATE TABLE data.source_none PARTITION OF data.source FOR VALUES FROM (90) TO (99)",
        "INSERT INTO data.source SELECT * FROM data.people",
    ],
    "parent of inheriting tables": [
        "CREATE TABLE data.source (LIKE data.people)",
        "CREATE TABLE data.source_child (more int) INHERITS (data.source)",
        "CREATE TABLE data.source_grandchild () INHERITS (data.source_child)",
        "INSERT INTO data.source SELECT * FROM data.people WHERE age < 10",
        "INSERT INTO data.source_child SELECT * FROM data.people WHERE age BETWEEN 10 AND 19",
        "INSERT INTO data.source_grandchild SELECT * FROM data.people WHERE age > 19",
    ],
    "view that joins": [
        (
            "CREATE VIEW data.source AS SELECT p.*, q.sick AS other FROM data.people AS p"
            " JOIN data.people AS q USING (person)"
        ),
    ],
    "view that orders and limits": [
        "CREATE VIEW data.source AS SELECT * FROM data.people ORDER BY person LIMIT 100",
    ],
    "view with a column named ctid": [
        "CREATE VIEW data.source AS SELECT *, 1 AS ctid FROM data.people",
    ],
    "materialized view": ["CREATE MATERIALIZED VIEW data.source AS SELECT * FROM data.people"],
    "table with generated and dropped columns": [
        (
            "CREATE TABLE data.source (gone int, LIKE data.people, born int GENERATED ALWAYS AS"
            " (2020 - age) STORED)"
        ),
        "ALTER TABLE data.source DROP gone",
        "INSERT INTO data.source SELECT * FROM data.people",
    ],
    "unlogged table with a rule, a trigger and an index on an expression": [
        (
            "CREATE FUNCTION data.fails() RETURNS trigger LANGUAGE plpgsql"
            " AS $$BEGIN RAISE EXCEPTION 'run'; END$$"
        ),
        "CREATE UNLOGGED TABLE data.source AS SELECT * FROM data.people",
        "CREATE RULE never AS ON UPDATE TO data.source DO INSTEAD NOTHING",
        "CREATE TRIGGER never BEFORE INSERT ON data.source EXECUTE FUNCTION data.fails()",
        "CREATE INDEX ON data.source (lower(sick))",
    ],
    "table of a composite type": [
        "CREATE TYPE data.person AS (person int, age int, sex text, sick text)",
        "CREATE TABLE data.source OF data.person",
        "INSERT INTO data.source SELECT * FROM data.people",
    ],
}


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_table(parties.publisher, "data.people", COLUMNS, ROWS)


@pytest.fixture
def people_again(parties: Parties) -> Iterator[None]:
    yield
    fetch(parties.publisher, "DROP SCHEMA data CASCADE")
    fetch(parties.publisher, "CREATE SCHEMA data")
    create_table(parties.publisher, "data.people", COLUMNS, ROWS)


@pytest.mark.long
@pytest.mark.pitfall(16)
@pytest.mark.parametrize("source", SOURCES)
def test_every_row_once(parties: Parties, people_again: None, source: str) -> None:
    """Every row of partitioned tables, inheriting tables and views is published once."""
    for statement in SOURCES[source]:
        fetch(parties.publisher, statement)
    kanon = Functions(parties.publisher)
    kanon.register("data.source", ["age", "sex"], "sick", ["person"])
    published = kanon.publish("data.source", "people", privacy='{"l": 3}')
    assert published["records"] == value(parties.publisher, "SELECT count(*) FROM data.source")
    check_published(
        parties.publisher, "data.source", "people", ["age", "sex"], "sick", lambda _: A_THIRD
    )
    kanon.drop("people")


def test_column_of_a_view_that_no_table_can_have(parties: Parties) -> None:
    """A view may have a column named ctid; a QIT may not: refused, and nothing is left."""
    fetch(parties.publisher, "CREATE VIEW data.odd AS SELECT age, sick AS ctid FROM data.people")
    before = remains(parties.admin)
    kanon = Functions(parties.publisher)
    kanon.register("data.odd", ["age"], "ctid")
    assert sqlstate_of(lambda: kanon.publish("data.odd", "odd", privacy='{"l": 2}'))
    assert remains(parties.admin) == before


def test_foreign_table(parties: Parties, cluster_dsn: str) -> None:
    available = "SELECT count(*) FROM pg_available_extensions WHERE name = 'file_fdw'"
    if not value(parties.admin, available):
        pytest.skip("this server has no extension file_fdw")
    for statement in (
        "CREATE EXTENSION file_fdw",
        "CREATE SERVER files FOREIGN DATA WRAPPER file_fdw",
        f"GRANT USAGE ON FOREIGN SERVER files TO {parties.publisher.info.user}",
        (
            "CREATE FOREIGN TABLE public.source (age int, sick text) SERVER files OPTIONS"
            " (program 'for i in 1 2 3 4 5 6; do echo $i,a$i; done', format 'csv')"
        ),
        f"GRANT SELECT ON public.source TO {parties.publisher.info.user}",
    ):
        fetch(parties.admin, statement)
    kanon = Functions(parties.publisher)
    kanon.register("public.source", ["age"], "sick")
    assert kanon.publish("public.source", "foreign", privacy='{"l": 3}')["records"] == 6
    check_published(
        parties.publisher, "public.source", "foreign", ["age"], "sick", lambda _: A_THIRD
    )
    kanon.drop("foreign")


EXTREMES: dict[str, tuple[list[tuple[object, object]], str]] = {
    "one record": ([(1, "a")], '{"l": 1}'),
    "one value": ([(i, "a") for i in range(20)], '{"default": 1}'),
    "all null": ([(None, None)] * 9, '{"null": 1}'),
    "two records": ([(1, "a"), (1, "b")], '{"l": 2}'),
    "all values differ": ([(i, str(i)) for i in range(97)], '{"l": 9}'),
    "one record more than a multiple": ([(i, str(i % 5)) for i in range(101)], '{"l": 4}'),
}
"""In the first three, only a threshold of 1 can be kept, which protects nobody."""


@pytest.mark.long
@pytest.mark.parametrize("method", ["anatomy", "two_size"])
def test_extremes(parties: Parties, method: str) -> None:
    for extreme, (rows, privacy) in EXTREMES.items():
        fetch(parties.publisher, "DROP TABLE IF EXISTS data.extreme")
        kanon = create_source(parties.publisher, "data.extreme", "age int, sick text", rows)
        publish = lambda: kanon.publish("data.extreme", "extreme", privacy=privacy, method=method)
        if extreme in list(EXTREMES)[:3]:
            assert sqlstate_of(publish) == "22023", extreme
            continue
        assert publish()["records"] == len(rows), extreme
        bound = Fraction(1, int(privacy[-2]))
        check_published(
            parties.publisher, "data.extreme", "extreme", ["age"], "sick", lambda _: bound
        )
        assert holds(parties.publisher, "extreme"), extreme
        kanon.drop("extreme")


@pytest.fixture(scope="module")
def secured(
    parties: Parties, new_role: Callable[..., str],
    connect_as: Callable[[str, str], Connection],
) -> Iterator[dict[str, Connection]]:  # fmt: skip
    """Publishers by what the policies mean for them."""
    owner = parties.publisher
    create_table(owner, "data.secured", COLUMNS, ROWS)
    fetch(owner, "ALTER TABLE data.secured ENABLE ROW LEVEL SECURITY")
    fetch(owner, "CREATE POLICY few ON data.secured USING (age < 10)")
    fetch(owner, "CREATE VIEW data.secured_view AS SELECT * FROM data.secured")
    fetch(owner, "CREATE VIEW data.invoking WITH (security_invoker) AS"
                 " SELECT * FROM data.secured")  # fmt: skip
    other, bypassing = new_role("kanon_publisher"), new_role("kanon_publisher")
    fetch(parties.admin, f"ALTER ROLE {bypassing} BYPASSRLS")
    for role in (other, bypassing):
        fetch(owner, f"GRANT USAGE ON SCHEMA data TO {role}")
        fetch(owner, f"GRANT SELECT ON ALL TABLES IN SCHEMA data TO {role}")
    with connect_as(parties.dsn, other) as one, connect_as(parties.dsn, bypassing) as two:
        yield {"owner": owner, "other": one, "bypassing": two}
        for table in ("kanon.publication", "kanon.source"):
            fetch(parties.admin, f"DELETE FROM {table}")


# All rows, or a refusal: never silently those that a policy leaves.
ROW_SECURITY = [
    # who, from what, FORCE ROW LEVEL SECURITY, is everything there
    ("owner", "secured", False, True),
    ("owner", "secured", True, False),
    ("owner", "secured_view", False, True),
    ("owner", "secured_view", True, False),
    ("owner", "invoking", False, True),
    ("owner", "invoking", True, False),
    ("other", "secured", False, False),
    ("other", "secured_view", False, True),
    ("other", "secured_view", True, False),
    ("other", "invoking", False, False),
    ("bypassing", "secured", False, True),
    ("bypassing", "secured", True, True),
    ("bypassing", "invoking", True, True),
]


@pytest.mark.long
@pytest.mark.pitfall(16)
def test_all_or_nothing(parties: Parties, secured: dict[str, Connection]) -> None:
    """Under row security, all rows are published or none: never those that a policy leaves."""
    before = remains(parties.admin)
    for who, relation, force, allowed in ROW_SECURITY:
        forced = f"{'' if force else 'NO '}FORCE ROW LEVEL SECURITY"
        fetch(parties.publisher, f"ALTER TABLE data.secured {forced}")
        fetch(parties.admin, "DELETE FROM kanon.source WHERE relation_name <> 'people'")
        kanon = Functions(secured[who])
        publish = lambda: kanon.publish(f"data.{relation}", "secured", privacy='{"l": 3}')
        for setting in ("on", "off"):
            case = f"{who} from {relation}, {forced}, row_security = {setting}"
            fetch(secured[who], f"SET row_security = {setting}")
            kanon.register(f"data.{relation}", ["age"], "sick")
            if allowed:
                assert publish()["records"] == len(ROWS), case
                assert value(secured[who], "SHOW row_security") == setting
                kanon.drop("secured")
            else:
                assert sqlstate_of(publish) == "42501", case
                assert remains(parties.admin) == before, case


# A number that may be written in several ways needs a copy, which is made by the first CREATE TABLE
# AS; of other columns all has been read when the first table is staged.
@pytest.mark.parametrize(("age", "when"), [("numeric", "CREATE TABLE AS"), ("int", "CREATE TABLE")])
def test_one_snapshot(parties: Parties, age: str, when: str) -> None:
    """Rows that come and go while a publication is made are in all of it, or in nothing of it."""
    columns = COLUMNS.replace("age int", f"age {age}")
    fetch(parties.admin, "DROP TABLE IF EXISTS data.moving")
    create_table(parties.publisher, "data.moving", columns, ROWS)
    kanon = Functions(parties.publisher)
    kanon.register("data.moving", ["age"], "sick")
    with psycopg.connect(parties.dsn, autocommit=True) as other:
        fetch(
            parties.admin,
            "CREATE FUNCTION public.move() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER"
            " AS $$BEGIN DELETE FROM data.moving WHERE age = 1;"
            " INSERT INTO data.moving SELECT person, 77, sex, 'new' FROM data.people; END$$",
        )
        fetch(
            parties.admin,
            f"CREATE EVENT TRIGGER move ON ddl_command_end WHEN TAG IN ('{when}')"
            " EXECUTE FUNCTION public.move()",
        )
        try:
            published = kanon.publish("data.moving", "moving", privacy='{"l": 3}')
        finally:
            fetch(parties.admin, "DROP EVENT TRIGGER move")
            fetch(parties.admin, "DROP FUNCTION public.move()")
        assert value(other, "SELECT count(*) FROM data.moving WHERE age = 77") > 0
    assert published["records"] == len(ROWS)
    check_published(parties.publisher, "data.people", "moving", ["age"], "sick", lambda _: A_THIRD)
    kanon.drop("moving")


@pytest.mark.long
def test_concurrent_publications(
    parties: Parties, connect_as: Callable[[str, str], Connection]
) -> None:
    """Of two publications of one name, the later waits for the earlier, and is refused."""
    kanon = Functions(parties.publisher)
    kanon.register("data.people", ["age"], "sick")
    create_table(parties.publisher, "data.others", COLUMNS, ROWS)
    kanon.register("data.others", ["age"], "sick")
    with connect_as(parties.dsn, parties.publisher.info.user) as other:
        twice = lambda: Functions(other).publish("data.people", "twice", privacy='{"l": 3}')
        thrice = lambda source: Functions(other).publish(source, "thrice", privacy='{"l": 3}')
        again = lambda: Functions(other).register("data.people", ["sex"], "sick")
        with parties.publisher.transaction():
            kanon.publish("data.people", "twice", privacy='{"l": 3}')
            fetch(other, "SET lock_timeout = '100ms'")
            # Another name waits, too: readers could set both against each other. Nor may the
            # description change meanwhile.
            for call in (twice, lambda: thrice("data.people"), again):
                assert sqlstate_of(call) == "55P03"
            thrice("data.others")  # other people do not wait
        assert sqlstate_of(twice) == "42710"
    kanon.drop("twice")
    kanon.drop("thrice")
