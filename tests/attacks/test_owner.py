"""Attacks on the role that owns publications, and by publishers on what is theirs no longer."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator

import pytest

from tests.integration.parties import (
    Connection,
    Functions,
    Parties,
    create_people,
    create_source,
    create_table,
    fetch,
    holds,
    quoted,
    sqlstate_of,
    value,
)

DENIED = "42501"


@pytest.fixture(scope="module")
def published(parties: Parties) -> Parties:
    kanon = create_people(parties.publisher)
    kanon.publish("data.people", "people", privacy='{"l": 3}')
    kanon.suppress("data.people", "rows", k=3)
    fetch(parties.admin, "GRANT USAGE ON SCHEMA data TO PUBLIC")
    return parties


@pytest.fixture(scope="module")
def spied(published: Parties) -> Callable[[], bool]:
    """A function of the publisher's, data.spy; and whether it ran with another's rights."""
    fetch(published.admin, "CREATE SEQUENCE public.spied")
    fetch(published.admin, "GRANT USAGE ON SEQUENCE public.spied TO PUBLIC")
    for arguments in ("", "int"):
        fetch(
            published.publisher,
            f"CREATE FUNCTION data.spy({arguments}) RETURNS int IMMUTABLE LANGUAGE plpgsql AS"
            f" $$BEGIN IF current_user <> '{published.publisher.info.user}' THEN"
            " PERFORM nextval('public.spied'); END IF; RETURN 1; END$$",
        )
    return lambda: bool(value(published.admin, "SELECT is_called FROM public.spied"))


ATTACHED = {
    "an index on an expression": "CREATE INDEX ON {} ((data.spy(1)))",
    "a partial index": "CREATE INDEX ON {} (age) WHERE data.spy(age) = 1",
    "extended statistics": "CREATE STATISTICS data.spied ON (data.spy(age)), age FROM {}",
    "a child table": "CREATE TABLE data.child () INHERITS ({})",
    "a trigger": (
        "CREATE TRIGGER spy BEFORE INSERT ON {} FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    ),
    "a rule": "CREATE RULE spy AS ON INSERT TO {} DO INSTEAD SELECT data.spy()",
    "a policy": "CREATE POLICY spy ON {} USING (data.spy() = 1)",
    "row security": "ALTER TABLE {} ENABLE ROW LEVEL SECURITY",
    "a default": "ALTER TABLE {} ALTER age SET DEFAULT data.spy()",
    "a check": "ALTER TABLE {} ADD CHECK (data.spy(age) = 1)",
    "a generated column": "ALTER TABLE {} ADD spied int GENERATED ALWAYS AS (data.spy(age)) STORED",
    "another type": "ALTER TABLE {} ALTER age TYPE bigint",
    "another name": "ALTER TABLE {} RENAME TO other",
    "another owner": "ALTER TABLE {} OWNER TO CURRENT_USER",
    "another schema": "ALTER TABLE {} SET SCHEMA data",
    "a comment": "COMMENT ON TABLE {} IS 'publication 1 of kanon_db: '",
    "rows": "INSERT INTO {} VALUES (1)",
    "other rows": "UPDATE {} SET age = 1",
    "no rows": "DELETE FROM {}",
    "nothing": "TRUNCATE {}",
    "a look at it": "ANALYZE {}",
    "its end": "DROP TABLE {}",
    "a lock": "LOCK TABLE {} IN SHARE MODE",
}


@pytest.mark.pitfall(21)
@pytest.mark.parametrize(
    "relation", ["published.people_qit", "published.rows_row", "published.rows_cel"]
)
@pytest.mark.parametrize("what", ATTACHED)
def test_21_nothing_can_be_attached(
    published: Parties, spied: Callable[[], bool], what: str, relation: str
) -> None:
    """The publisher has SELECT on what was published, and may grant it; that is all."""
    before = published_state(published)
    notices: list[str] = []
    listen = lambda notice: notices.append(str(notice.message_primary))
    published.publisher.add_notice_handler(listen)
    statement = ATTACHED[what].format(relation)
    if relation == "published.rows_row":
        statement = re.sub(r"\bage\b", "number", statement)
    try:
        refused = in_savepoint(published.publisher, statement)
        # ANALYZE only warns.
        assert refused == DENIED or any("skipping" in notice for notice in notices)
    finally:
        published.publisher.remove_notice_handler(listen)
    assert published_state(published) == before
    assert not spied()


def published_state(parties: Parties) -> list[tuple[object, ...]]:
    return fetch(
        parties.admin,
        "SELECT c.relname::text, c.relowner::regrole::text, c.relacl::text, c.relhasindex,"
        " c.relhastriggers, c.relhasrules, c.relhassubclass, c.relrowsecurity,"
        " obj_description(c.oid, 'pg_class') FROM pg_class AS c"
        " WHERE c.relnamespace = 'published'::regnamespace ORDER BY 1",
    )


@pytest.mark.pitfall(26)
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE published.mine (a int)",
        "CREATE VIEW published.mine AS SELECT 1",
        "CREATE FUNCTION published.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TABLE kanon.mine (a int)",
        "DROP VIEW published.people",
        "REFRESH MATERIALIZED VIEW published.rows",
        "INSERT INTO kanon.publication (name) VALUES ('mine')",
        "UPDATE kanon.publication SET guarantee = 'perfect'",
        "DELETE FROM kanon.publication",
        "UPDATE kanon.source SET identifiers = '{}'",
        "DELETE FROM kanon.source",
        "INSERT INTO kanon.setting VALUES ('query_memory', '1 TB')",
        "SET ROLE kanon_owner",
        "ALTER ROLE kanon_owner LOGIN",
        "GRANT kanon_owner TO CURRENT_USER",
        'SELECT kanon.owner_drop(10, \'{"name": "people"}\')',
        "CREATE TRIGGER mine INSTEAD OF INSERT ON data.desk FOR EACH ROW EXECUTE FUNCTION {run}",
        "INSERT INTO kanon.errand (caller, task) VALUES (10, 'drop')",
        "UPDATE kanon.errand SET caller = 10",
        "CREATE TRIGGER c INSTEAD OF INSERT ON kanon.errand FOR EACH ROW EXECUTE FUNCTION {last}",
    ],
)
def test_26_publishers_write_nothing_else(published: Parties, statement: str) -> None:
    """No statement makes a publisher the owner of a publication, an entry or a function."""
    fetch(published.publisher, "CREATE OR REPLACE VIEW data.desk AS SELECT 1 AS task")
    functions = {
        "{run}": "kanon.run_errand()", "{last}": "suppress_redundant_updates_trigger()",
    }  # fmt: skip
    for mark, function in functions.items():
        statement = statement.replace(mark, function)
    assert in_savepoint(published.publisher, statement) in (DENIED, "55000")


@pytest.mark.pitfall(29)
@pytest.mark.parametrize("table", ["publication", "source", "setting", "errand"])
def test_29_nobody_else_locks_the_catalog(published: Parties, table: str) -> None:
    """What publishers can lock does not keep others from publishing."""
    others = (
        "SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE", "SHARE UPDATE EXCLUSIVE"
    )  # fmt: skip
    for mode in others:
        locking = f"LOCK TABLE kanon.{table} IN {mode} MODE"
        assert in_savepoint(published.publisher, locking) == DENIED
    for clause in ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"):
        locking = f"SELECT 1 FROM kanon.{table} FOR {clause}"
        assert in_savepoint(published.publisher, locking) in (DENIED, "0A000")


@pytest.mark.pitfall(29)
def test_29_advisory_locks_block_nothing(published: Parties) -> None:
    """No key of an advisory lock that a stranger may hold matters."""
    advisory = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    with published.publisher.transaction(force_rollback=True):
        kanon = Functions(published.publisher)
        kanon.register("data.people", ["age"], "sick")
        kanon.publish("data.people", "people", privacy='{"l": 3}', replace=True)
        kanon.verify("people")
        kanon.drop("people")
        assert value(published.admin, advisory) == 0


def in_savepoint(connection: Connection, statement: str, *values: object) -> str | None:
    def run() -> None:
        with connection.transaction():
            fetch(connection, statement, *values)

    return sqlstate_of(run)


def errand(connection: Connection, task: str, **given: object) -> object:
    with connection.transaction():
        return value(
            connection,
            "INSERT INTO kanon.errand (task, given) VALUES ($1::text, $2::text::jsonb)"
            " RETURNING answer",
            task,
            json.dumps(given),
        )


def staged(connection: Connection, suffix: str = "_qit", **column: object) -> str:
    """Stage a table of one column of integers, or of the given one; return the prefix."""
    prefix = f"kanon_{secrets.token_hex(16)}"
    one = {"name": "a", "type": "23", "modifier": -1, "collating": "0", **column}
    errand(connection, "create table", prefix=prefix, suffix=suffix, columns=[one], uncompressed=[])
    return prefix


ENTRY = {
    "kind": "buckets", "method": "two_size", "parameters": {"readers": []}, "layout": {},
    "records": 1, "guarantee": "none", "metrics": {}, "source_metrics": {}, "closed": [],
    "readers": [], "suffixes": ["_qit"],
}  # fmt: skip


def source_of(connection: Connection) -> dict[str, object]:
    ((source_id, at),) = fetch(
        connection, "SELECT source_id, registered_at::text FROM kanon.source"
        " WHERE relation_name = 'people'"
        " AND schema_name = 'data'",
    )  # fmt: skip
    return {"source_id": source_id, "registered_at": at}


@pytest.fixture
def undone(published: Parties) -> Iterator[Parties]:
    """What the publisher does here is rolled back."""
    with published.publisher.transaction(force_rollback=True):
        yield published


@pytest.fixture(scope="module")
def stranger(
    published: Parties, connect_as: Callable[[str, str], Connection], new_role: Callable[..., str]
) -> Iterator[Connection]:
    """Another publisher, who may read nothing."""
    with connect_as(published.dsn, new_role("kanon_publisher")) as connection:
        yield connection


@pytest.mark.pitfall(21)
@pytest.mark.parametrize(
    "column",
    [
        {"type": "data.grade"},
        {"type": "data.grade[]"},
        {"type": "data.short"},
        {"type": "data.pair"},
        {"type": "text", "collating": "data.mine"},
        {"type": "public.people_of_admins"},
    ],
)
def test_21_no_type_of_others(undone: Parties, column: dict[str, str]) -> None:
    """Whoever owns a type could attach casts to it, or drop the column with it."""
    fetch(undone.publisher, "CREATE TYPE data.grade AS ENUM ('a')")
    fetch(undone.publisher, "CREATE DOMAIN data.short AS text CHECK (length(VALUE) < 9)")
    fetch(undone.publisher, "CREATE TYPE data.pair AS (a int)")
    fetch(undone.publisher, 'CREATE COLLATION data.mine FROM "C"')
    known = value(undone.publisher, "SELECT to_regtype($1::text)::oid::text", column["type"])
    if known is None:
        pytest.skip("a type that does not exist is refused by the server itself")
    given = {"type": known}
    if "collating" in column:
        given["collating"] = value(
            undone.publisher, "SELECT $1::text::regcollation::oid::text", column["collating"]
        )
    assert sqlstate_of(lambda: staged(undone.publisher, **given)) == "42804"


HOSTILE = 'a" int); DROP TABLE published.people_qit; --'


@pytest.mark.pitfall(3)
def test_3_names_are_quoted(undone: Parties) -> None:
    """What is asked of the owner of publications: names in it are quoted, or refused."""
    before = published_state(undone)
    prefix = staged(undone.publisher, name=HOSTILE[:60])
    columns = fetch(
        undone.publisher,
        "SELECT attname::text FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0",
        f"published.{prefix}_qit",
    )
    assert columns == [(HOSTILE[:60],)]
    for task, given in {
        "create table": {"prefix": HOSTILE, "suffix": "", "columns": [], "uncompressed": []},
        "publish": {**ENTRY, **source_of(undone.publisher), "prefix": HOSTILE, "name": "x"},
        "create view": {"prefix": prefix, "tables": [HOSTILE]},
        "drop": {"name": HOSTILE},
    }.items():
        call = lambda: errand(undone.publisher, task, **given)
        assert sqlstate_of(call) in ("42602", "42501", "42704", "42P01", "20000"), task
    layout = {
        "quasi_identifiers": [HOSTILE[:60]], "sensitive": HOSTILE[:60], "count": HOSTILE,
        "bucket_id": "a", "weight": "w", "sizes": [1, "1), (SELECT 1"], "first_bucket_ids": [1, 2],
    }  # fmt: skip
    given = {"prefix": prefix, "tables": ["_qit", "_qit"], "layout": layout}
    assert sqlstate_of(lambda: errand(undone.publisher, "create view", **given)) == "22P02"
    assert [row for row in published_state(undone) if not str(row[0]).startswith(prefix)] == before


@pytest.mark.pitfall(26)
def test_26_entries_are_about_what_was_staged(
    published: Parties, stranger: Connection, undone: Parties
) -> None:
    """Nobody publishes relations of others, sources of others, or in another's name."""
    mine = staged(undone.publisher)
    source = source_of(undone.publisher)
    publish = lambda connection, **given: sqlstate_of(
        lambda: errand(connection, "publish", **{**ENTRY, **source, "name": "x", **given})
    )
    # Without the right to read the source.
    assert publish(stranger, prefix=staged(stranger)) == DENIED
    # Relations that somebody else staged, that were published, or that do not exist.
    assert publish(undone.publisher, prefix="people") == "42P01"
    assert publish(undone.publisher, prefix=mine, suffixes=["_qit", "_sat"]) == "42P01"
    # A publication of another.
    for name, replace, state in (("people", False, "42710"), ("rows_row", False, "42P07")):
        given = {"name": name, "replace": replace, "prefix": staged(undone.publisher, suffix="")}
        assert publish(undone.publisher, **given, suffixes=[""]) == state
    for name in ("", "a" * 60, mine):
        assert publish(undone.publisher, prefix=mine, name=name) == "42602"
    assert sqlstate_of(lambda: errand(stranger, "drop", name="people")) == DENIED
    keep = lambda: errand(stranger, "keep attacks", name="people", found=[])
    assert sqlstate_of(keep) == DENIED


@pytest.mark.pitfall(26)
def test_26_a_description_needs_rights(published: Parties, stranger: Connection) -> None:
    """A table is described by those who may read it, and not after its owner did."""
    relation = value(published.admin, "SELECT 'data.people'::regclass::oid::text")
    given = {
        "relation": relation, "quasi_identifiers": ["age"], "sensitive": "sick", "identifiers": [],
        "attributes": {}, "insensitive": [], "entity": None,
    }  # fmt: skip
    assert sqlstate_of(lambda: errand(stranger, "register", **given)) == DENIED
    fetch(published.publisher, f"GRANT SELECT ON data.people TO {stranger.info.user}")
    # The source has a description, of its owner.
    assert sqlstate_of(lambda: errand(stranger, "register", **given)) == DENIED
    fetch(published.publisher, f"REVOKE ALL ON data.people FROM {stranger.info.user}")


@pytest.mark.pitfall(26)
def test_26_a_strangers_description_is_not_trusted(
    published: Parties, stranger: Connection
) -> None:
    """Whoever may read a table may describe it, but publishes only for themselves."""
    create_table(
        published.publisher, "data.described", "name text, age int, sick text",
        [(f"name {i}", i % 5, f"disease {i % 4}") for i in range(60)],
    )  # fmt: skip
    fetch(published.publisher, f"GRANT SELECT ON data.described TO {stranger.info.user}")
    Functions(stranger).register("data.described", ["age"], "sick", insensitive=["name"])
    owner = Functions(published.publisher)
    assert sqlstate_of(lambda: owner.suppress("data.described", "described", k=2)) == DENIED
    # The owner describes it, and then both may publish it.
    owner.register("data.described", ["age"], "sick", identifiers=["name"])
    owner.suppress("data.described", "described", k=2)
    owner.drop("described")
    Functions(stranger).suppress("data.described", "described", k=2)
    Functions(stranger).drop("described")


@pytest.mark.pitfall(26)
def test_26_a_drop_touches_nothing_else(published: Parties) -> None:
    """A relation that an entry names, and that is another publication by now, stays."""
    kanon = Functions(published.publisher)
    kanon.publish("data.people", "a", privacy='{"l": 3}')
    fetch(published.admin, "DROP TABLE published.a_qit CASCADE")
    kanon.suppress("data.people", "a_qit", k=3)
    kanon.drop("a")
    assert holds(kanon.connection, "a_qit")
    kanon.drop("a_qit")
    left = fetch(
        published.admin,
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'published'::regnamespace"
        " AND relname LIKE 'a%'",
    )
    assert left == []


@pytest.fixture
def hostile(published: Parties, spied: Callable[[], bool]) -> Iterator[str]:
    """A table of the publisher's whose index calls the spy whenever a query is planned."""
    create_table(published.publisher, "data.hostile", "age int, sick text", [(1, "a"), (2, "b")])
    fetch(published.publisher, "CREATE INDEX ON data.hostile ((age + data.spy(1)))")
    fetch(published.publisher, "CREATE INDEX ON data.hostile (age) WHERE data.spy(1) = 1")
    fetch(published.publisher, "GRANT SELECT ON data.hostile TO PUBLIC")
    fetch(published.admin, "SELECT FROM data.hostile")
    assert spied()  # the attack itself works
    fetch(published.admin, "ALTER SEQUENCE public.spied RESTART")
    yield "data.hostile"
    fetch(published.publisher, "DROP TABLE data.hostile CASCADE")


@pytest.mark.pitfall(21)
@pytest.mark.parametrize("shape", ["{0}", "public.of_admins", "public.parent"])
def test_21_a_superuser_reads_nothing_of_others(
    published: Parties, spied: Callable[[], bool], hostile: str, shape: str
) -> None:
    """Not the table itself, not behind a view, not as a child."""
    source = shape.format(hostile)
    fetch(published.admin, f"CREATE VIEW public.of_admins AS SELECT * FROM {hostile}")
    fetch(published.admin, "CREATE TABLE public.parent (age int, sick text)")
    fetch(published.admin, f"ALTER TABLE {hostile} INHERIT public.parent")
    fetch(published.admin, "ALTER SEQUENCE public.spied RESTART")
    kanon = Functions(published.admin)
    try:
        fetch(
            published.admin,
            "INSERT INTO kanon.source (schema_name, relation_name, quasi_identifiers, sensitive,"
            " identifiers, attributes, columns, registered_by, fingerprint) VALUES (split_part($1,"
            " '.', 1), split_part($1, '.', 2), '{age}', 'sick', '{}', '{}', '{age,sick}', 10,"
            " kanon.fingerprint($1::text::regclass))",
            source,
        )
        for call in (
            lambda: kanon.register(source, ["age"], "sick"),
            lambda: kanon.publish(source, "hostile", privacy='{"l": 2}'),
            lambda: kanon.suppress(source, "hostile", k=2),
            lambda: kanon.generalize(source, "hostile", k=2),
            lambda: kanon.freeform(source, "hostile", k=2),
        ):
            assert sqlstate_of(call) == DENIED
        if shape == "{0}":
            query = f"SELECT COUNT(*) FROM people JOIN {hostile} AS l ON people.age = l.age"
            assert sqlstate_of(lambda: kanon.estimate(query)) == DENIED
        assert not spied()
    finally:
        fetch(published.admin, "DELETE FROM kanon.source WHERE relation_name <> 'people'")
        fetch(published.admin, f"ALTER TABLE {hostile} NO INHERIT public.parent")
        fetch(published.admin, "DROP VIEW public.of_admins")
        fetch(published.admin, "DROP TABLE public.parent")


@pytest.mark.pitfall(31)
def test_26_roles_go_by_identity(
    published: Parties,
    connect_as: Callable[[str, str], Connection],
    new_role: Callable[..., str],
) -> None:
    """A renamed role keeps its publications; one that is dropped and made again is a stranger."""
    role = new_role("kanon_publisher")
    fetch(published.admin, f"CREATE SCHEMA {role} AUTHORIZATION {role}")
    with connect_as(published.dsn, role) as connection:
        rows = [(1, i % 3) for i in range(9)]
        kanon = create_source(connection, f"{role}.people", "age int, sick int", rows)
        kanon.publish(f"{role}.people", "roles", privacy='{"l": 2}')
    renamed = f"{role}_renamed"
    fetch(published.admin, f"ALTER ROLE {role} RENAME TO {renamed}")
    try:
        with connect_as(published.dsn, renamed) as connection:
            kanon = Functions(connection)
            assert "roles" in kanon.publications()
            kanon.publish(f"{role}.people", "roles", privacy='{"l": 2}', replace=True)
            assert value(
                connection, "SELECT published_by FROM kanon.publications WHERE name = 'roles'"
            ) == renamed  # fmt: skip
        # The role is dropped, with its rights, and another gets its name.
        fetch(published.admin, f"REASSIGN OWNED BY {renamed} TO CURRENT_USER")
        fetch(published.admin, f"DROP OWNED BY {renamed}")
        fetch(published.admin, f"DROP ROLE {renamed}")
        fetch(published.admin, f"CREATE ROLE {renamed} LOGIN IN ROLE kanon_publisher")
        with connect_as(published.dsn, renamed) as connection:
            kanon = Functions(connection)
            assert sqlstate_of(lambda: kanon.drop("roles")) == DENIED
            assert sqlstate_of(lambda: kanon.attack("roles")) == "42704"  # not even a reader
        Functions(published.admin).drop("roles")
    finally:
        fetch(published.admin, f"DROP SCHEMA IF EXISTS {role} CASCADE")
        fetch(published.admin, f"DROP OWNED BY {quoted(renamed)}")
        fetch(published.admin, f"ALTER ROLE {renamed} RENAME TO {role}")


@pytest.mark.pitfall(26)
@pytest.mark.parametrize(
    "described",
    [
        {"quasi_identifiers": [None]},
        {"quasi_identifiers": ["age", None]},
        {"quasi_identifiers": ["nothing"]},
        {"quasi_identifiers": []},
        {"quasi_identifiers": ["age"], "insensitive": [None]},
        {"quasi_identifiers": ["age"]},
        {"quasi_identifiers": ["age"], "relation": 0},
    ],
)
def test_26_a_description_names_columns_that_are_there(
    undone: Parties, stranger: Connection, described: dict[str, object]
) -> None:
    """A publisher without any right on a table describes it, naming no column of it."""
    oid = value(undone.admin, "SELECT 'data.people'::regclass::oid::int8")
    given = {
        "relation": oid, "sensitive": None, "identifiers": [], "attributes": {}, "insensitive": [],
        "entity": None, **described,
    }  # fmt: skip
    before = fetch(undone.admin, "TABLE kanon.source")
    refused = sqlstate_of(lambda: errand(stranger, "register", **given))
    assert refused in {"42501", "42703", "23514"}
    assert fetch(undone.admin, "TABLE kanon.source") == before


@pytest.mark.pitfall(21, 26)
def test_21_nothing_staged_is_left_open(published: Parties) -> None:
    """A view is published, and the tables behind it, which its publisher may fill, are not."""
    publisher = published.publisher
    prefix = f"kanon_{secrets.token_hex(16)}"
    columns = [
        {"name": name, "type": type_, "modifier": -1, "collating": collation}
        for name, type_, collation in (
            ("age", "23", "0"), ("sick", "25", "100"), ("bucket", "23", "0"), ("n", "23", "0"),
        )
    ]  # fmt: skip
    for suffix in ("_qit", "_sat"):
        errand(publisher, "create table", prefix=prefix, suffix=suffix, columns=columns)
    layout = {
        "quasi_identifiers": ["age"], "sensitive": "sick", "count": "n", "weight": "weight",
        "bucket_id": "bucket", "sizes": [3], "first_bucket_ids": [1],
    }  # fmt: skip
    errand(publisher, "create view", prefix=prefix, tables=["_qit", "_sat"], layout=layout)
    entry = {**ENTRY, **source_of(publisher), "name": "open", "layout": layout, "prefix": prefix}

    def publish(suffixes: list[str]) -> object:
        return errand(publisher, "publish", **{**entry, "suffixes": suffixes})

    assert sqlstate_of(lambda: publish([""])) == "42P17"
    assert publish(["", "_qit", "_sat"])
    insert = "INSERT INTO published.open_qit VALUES (1, 'x', 1, 1)"
    assert sqlstate_of(lambda: fetch(publisher, insert)) == DENIED
    Functions(publisher).drop("open")


@pytest.mark.pitfall(29)
@pytest.mark.parametrize(
    "relation", ["people", "people_qit", "people_bit", "rows", "rows_row", "rows_cel"]
)
def test_29_nobody_makes_columns_of_a_published_type(published: Parties, relation: str) -> None:
    """They would keep the publication from being replaced or dropped, for ever."""
    statement = f"CREATE TEMP TABLE t (c published.{relation})"
    for party in (published.analyst, published.stranger, published.publisher):
        assert sqlstate_of(lambda p=party: fetch(p, statement)) == DENIED


@pytest.mark.pitfall(5, 21)
def test_21_a_type_in_the_schema_of_somebody_else(published: Parties) -> None:
    """Its owner makes operators for texts there, and then for the type that was published."""
    admin, owner = published.admin, published.stranger
    name = quoted(owner.info.user)
    for statement in (
        f"CREATE SCHEMA app AUTHORIZATION {name}",
        "CREATE EXTENSION citext SCHEMA app",
        "CREATE TABLE public.loot (who text)",
        "GRANT INSERT ON public.loot TO PUBLIC",
        "CREATE TABLE public.towns (age int, town app.citext, sick text)",
        (
            "INSERT INTO public.towns"
            " SELECT i % 7, 't' || i % 20, 'd' || i % 5 FROM generate_series(1, 300) AS i"
        ),
    ):
        fetch(admin, statement)
    for left in ("text", "app.citext"):
        fetch(
            owner,
            f"CREATE FUNCTION app.spy({left}, text) RETURNS boolean LANGUAGE plpgsql AS"
            " $$BEGIN INSERT INTO public.loot VALUES (current_user); RETURN true; END$$",
        )
        fetch(
            owner,
            f"CREATE OPERATOR app.= (LEFTARG = {left}, RIGHTARG = text, FUNCTION = app.spy)",
        )
    kanon = Functions(admin)
    kanon.register("public.towns", ["age", "town"], "sick")
    kanon.publish("public.towns", "towns", privacy='{"l": 3}')
    query = "SELECT COUNT(*) FROM towns WHERE town = 't3'"
    assert sqlstate_of(lambda: Functions(published.analyst).estimate(query)) == "0A000"
    assert Functions(published.analyst).estimate("SELECT COUNT(*) FROM towns WHERE age < 3")
    # Published as what it is, while the schema is a superuser's, and given away afterwards.
    fetch(admin, "ALTER SCHEMA app OWNER TO CURRENT_USER")
    fetch(admin, "GRANT USAGE ON SCHEMA app TO kanon_owner, kanon_analyst")
    kanon.publish("public.towns", "towns", privacy='{"l": 3}', replace=True)
    assert (
        value(
            admin,
            "SELECT format_type(atttypid, -1) FROM pg_attribute"
            " WHERE attrelid = 'published.towns_qit'::regclass AND attname = 'town'",
        )
        == "app.citext"
    )
    fetch(admin, f"ALTER SCHEMA app OWNER TO {name}")
    for party in (admin, published.analyst):
        assert sqlstate_of(lambda p=party: Functions(p).estimate(query)) == "42704"
    assert value(admin, "SELECT count(*) FROM public.loot") == 0


@pytest.mark.pitfall(21)
def test_21_a_type_of_somebody_elses_extension(published: Parties) -> None:
    """Whoever created a trusted extension can drop it, with all columns of its types."""
    admin, publisher = published.admin, published.publisher
    fetch(admin, "CREATE SCHEMA trusted")
    fetch(admin, "GRANT USAGE ON SCHEMA trusted TO PUBLIC")
    fetch(admin, f"GRANT CREATE ON SCHEMA trusted TO {quoted(publisher.info.user)}")
    fetch(publisher, "CREATE EXTENSION hstore SCHEMA trusted")
    assert value(admin, "SELECT kanon.is_safe_type('trusted.hstore'::regtype)") is False


@pytest.mark.pitfall(29)
def test_29_nobody_waits_for_ever_to_describe_a_source(
    published: Parties, connect_as: Callable[[str, str], Connection], new_role: Callable[..., str]
) -> None:
    """Another role that may read a table describes it, and does not end its transaction."""
    create_table(published.publisher, "data.shared", "age int", [(i % 3,) for i in range(9)])
    role = new_role("kanon_publisher")
    fetch(published.publisher, "GRANT SELECT ON data.shared TO PUBLIC")
    with connect_as(published.dsn, role) as other, other.transaction(force_rollback=True):
        Functions(other).register("data.shared", ["age"], None)
        register = lambda: Functions(published.publisher).register("data.shared", ["age"], None)
        assert sqlstate_of(register) == "55P03"  # after two seconds
    register()
