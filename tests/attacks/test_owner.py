"""Attacks on the role that owns publications, and by publishers on what is not theirs."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Iterator

import pytest

from kanon_db.installation.install import install
from kanon_db.publications.relations import StagedRelations
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import (
    KINDS,
    Connection,
    Functions,
    Parties,
    create_people,
    create_source,
    create_table,
    fetch,
    hearing,
    holds,
    quoted,
    refused_in_savepoint,
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
def test_21_nothing_can_be_attached(published: Parties, spied: Callable[[], bool]) -> None:
    """The publisher has SELECT on what was published, and may grant it; that is all."""
    before = published_state(published)
    for relation in ("people_qit", "rows_row", "rows_cel"):
        for what, statement in ATTACHED.items():
            its = re.sub(r"\bage\b", "number" if relation == "rows_row" else "age", statement)
            with hearing(published.publisher) as notices:
                refused = in_savepoint(published.publisher, its.format(f"published.{relation}"))
            # ANALYZE only warns.
            assert refused == DENIED or any("skipping" in one for one in notices), (what, relation)
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


WRITING = """
CREATE TABLE published.mine (a int)
CREATE VIEW published.mine AS SELECT 1
CREATE FUNCTION published.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'
CREATE TABLE kanon.mine (a int)
DROP VIEW published.people
REFRESH MATERIALIZED VIEW published.rows
INSERT INTO kanon.publication (name) VALUES ('mine')
UPDATE kanon.publication SET guarantee = 'perfect'
DELETE FROM kanon.publication
UPDATE kanon.source SET identifiers = '{}'
DELETE FROM kanon.source
INSERT INTO kanon.setting VALUES ('query_memory', '1 TB')
SET ROLE kanon_owner
ALTER ROLE kanon_owner LOGIN
GRANT kanon_owner TO CURRENT_USER
SELECT kanon.owner_drop(10, '{"name": "people"}')
CREATE TRIGGER c INSTEAD OF INSERT ON data.desk FOR EACH ROW EXECUTE FUNCTION kanon.run_errand()
INSERT INTO kanon.errand (caller, task) VALUES (10, 'drop')
UPDATE kanon.errand SET caller = 10
CREATE TRIGGER c BEFORE INSERT ON kanon.errand EXECUTE FUNCTION "RI_FKey_check_ins"()
"""


@pytest.mark.pitfall(26)
def test_26_publishers_write_nothing_else(published: Parties) -> None:
    """No statement makes a publisher the owner of a publication, an entry or a function."""
    fetch(published.publisher, "CREATE VIEW data.desk AS SELECT 1 AS task")
    for statement in WRITING.strip().splitlines():
        assert in_savepoint(published.publisher, statement) in (DENIED, "55000"), statement


@pytest.mark.pitfall(29)
def test_29_nobody_else_locks_the_catalog(published: Parties) -> None:
    """What publishers can lock does not keep others from publishing."""
    modes = (
        "SHARE",
        "EXCLUSIVE",
        *(f"{x} EXCLUSIVE" for x in ("SHARE UPDATE", "SHARE ROW", "ACCESS")),
    )
    clauses = "UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"
    for table in ("publication", "source", "setting", "errand"):
        locking = [f"LOCK TABLE kanon.{table} IN {mode} MODE" for mode in modes]
        locking += [f"SELECT 1 FROM kanon.{table} FOR {clause}" for clause in clauses]
        for statement in locking:
            allowed = (DENIED, "0A000") if statement.startswith("SELECT") else (DENIED,)
            assert in_savepoint(published.publisher, statement) in allowed, statement


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


def in_savepoint(connection: Connection, statement: str) -> str | None:
    return refused_in_savepoint(connection, lambda: fetch(connection, statement))


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
def test_21_no_type_of_others(undone: Parties) -> None:
    """Whoever owns a type could attach casts to it, or drop the column with it."""
    fetch(undone.publisher, "CREATE TYPE data.grade AS ENUM ('a')")
    fetch(undone.publisher, "CREATE DOMAIN data.short AS text CHECK (length(VALUE) < 9)")
    fetch(undone.publisher, "CREATE TYPE data.pair AS (a int)")
    fetch(undone.publisher, 'CREATE COLLATION data.mine FROM "C"')
    oid_of = lambda name, kind: value(undone.publisher, f"SELECT $1::text::{kind}::oid::text", name)
    columns = [
        {"type": oid_of(name, "regtype")}
        for name in ("data.grade", "data.grade[]", "data.short", "data.pair")
    ]
    columns.append({"type": "25", "collating": oid_of("data.mine", "regcollation")})
    for column in columns:
        assert sqlstate_of(lambda: staged(undone.publisher, **column)) == "42804", column


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


DESCRIBED = {
    "quasi_identifiers": ["age"], "sensitive": "sick", "identifiers": [], "attributes": {},
    "insensitive": [], "entity": None,
}  # fmt: skip


def people_oid(parties: Parties) -> int:
    return int(value(parties.admin, "SELECT 'data.people'::regclass::oid"))


@pytest.mark.pitfall(26)
def test_26_a_description_needs_rights(published: Parties, stranger: Connection) -> None:
    """A table is described by those who may read it, and not after its owner did."""
    register = lambda: errand(stranger, "register", relation=people_oid(published), **DESCRIBED)
    assert sqlstate_of(register) == DENIED
    with may_read(published, stranger, "SELECT"):
        assert sqlstate_of(register) == DENIED  # the source has a description, of its owner
        kanon = Functions(stranger)
        assert sqlstate_of(lambda: kanon.register("data.people", ["sick"], "age")) == DENIED
    sensitive = "SELECT sensitive FROM kanon.source WHERE relation_name = 'people'"
    assert value(published.admin, sensitive) == "sick"


@contextlib.contextmanager
def may_read(parties: Parties, role: Connection, right: str) -> Iterator[None]:
    """Let a role have a right on the source for a while."""
    fetch(parties.publisher, f"GRANT {right} ON data.people TO {role.info.user}")
    yield
    fetch(parties.publisher, f"REVOKE {right} ON data.people FROM {role.info.user}")


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


def test_rights_on_the_columns_suffice(published: Parties, stranger: Connection) -> None:
    """What is not published need not be readable; what is, must be."""
    kanon = Functions(stranger)
    publish = lambda: kanon.publish("data.people", "stolen", privacy='{"l": 3}')
    assert sqlstate_of(publish) == DENIED
    with may_read(published, stranger, "SELECT (age)"):
        assert sqlstate_of(publish) == DENIED
        assert sqlstate_of(lambda: kanon.register("data.people", ["age"], "sick")) == DENIED
    create_table(
        published.publisher, "data.columns", "name text, age int, sick int",
        [(f"name {i}", i % 5, i % 7) for i in range(70)],
    )  # fmt: skip
    fetch(published.publisher, f"GRANT SELECT (age, sick) ON data.columns TO {stranger.info.user}")
    kanon.register("data.columns", ["age"], "sick", identifiers=["name"])
    kanon.publish("data.columns", "columns", privacy='{"l": 3}')
    kanon.drop("columns")


@pytest.mark.pitfall(26)
def test_drop_and_replace(published: Parties, stranger: Connection) -> None:
    """Another's publication is neither dropped nor replaced."""
    kanon = Functions(stranger)
    assert sqlstate_of(lambda: kanon.drop("people")) == DENIED
    fetch(published.admin, f"CREATE SCHEMA other AUTHORIZATION {stranger.info.user}")
    rows = [(i, i % 4) for i in range(40)]
    create_source(stranger, "other.people", "age int, sick int", rows)
    replace = lambda: kanon.publish("other.people", "people", privacy='{"l": 3}', replace=True)
    assert sqlstate_of(replace) == DENIED
    assert holds(published.publisher, "people")
    assert Functions(published.publisher).publications() == ["people", "rows"]


def test_relation_in_the_way(published: Parties) -> None:
    """A relation made by hand under a publication's name is neither replaced nor adopted."""
    kanon = Functions(published.publisher)
    for suffix in ("", "_qit", "_sat", "_cod"):
        fetch(published.admin, f"CREATE TABLE published.taken{suffix} (mine int)")
        for replace in (False, True):
            publish = lambda replace=replace: kanon.publish(
                "data.people", "taken", privacy='{"l": 3}', replace=replace
            )
            assert sqlstate_of(publish) == "42710", suffix
        assert fetch(published.admin, f"SELECT mine FROM published.taken{suffix}") == []
        fetch(published.admin, f"DROP TABLE published.taken{suffix}")


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


@pytest.mark.pitfall(21)
def test_21_a_superuser_reads_nothing_of_others(
    published: Parties, spied: Callable[[], bool]
) -> None:
    """Neither a publisher's table whose index calls the spy, nor what reads it."""
    admin, hostile = published.admin, "data.hostile"
    create_table(published.publisher, hostile, "age int, sick text", [(1, "a"), (2, "b")])
    fetch(published.publisher, f"CREATE INDEX ON {hostile} ((age + data.spy(1)))")
    fetch(published.publisher, f"CREATE INDEX ON {hostile} (age) WHERE data.spy(1) = 1")
    fetch(published.publisher, f"GRANT SELECT ON {hostile} TO PUBLIC")
    fetch(admin, f"SELECT FROM {hostile}")
    assert spied()  # the attack itself works
    kanon = Functions(admin)
    with admin.transaction(force_rollback=True):
        fetch(admin, f"CREATE VIEW public.of_admins AS SELECT * FROM {hostile}")
        fetch(admin, "CREATE TABLE public.parent (age int, sick text)")
        fetch(admin, f"ALTER TABLE {hostile} INHERIT public.parent")
        fetch(admin, "ALTER SEQUENCE public.spied RESTART")
        for source in (hostile, "public.of_admins", "public.parent"):
            fetch(
                admin,
                "INSERT INTO kanon.source (schema_name, relation_name, quasi_identifiers,"
                " sensitive, identifiers, attributes, columns, registered_by, fingerprint) VALUES"
                " (split_part($1, '.', 1), split_part($1, '.', 2), '{age}', 'sick', '{}', '{}',"
                " '{age,sick}', 10, kanon.fingerprint($1::text::regclass))",
                source,
            )
            register = lambda source=source: kanon.register(source, ["age"], "sick")
            assert refused_in_savepoint(admin, register) == DENIED, source
            for kind in KINDS:
                publish = lambda s=source, kind=kind: kanon.of_kind(kind, s, "hostile")
                assert refused_in_savepoint(admin, publish) == DENIED, (source, kind)
        query = f"SELECT COUNT(*) FROM people JOIN {hostile} AS l ON people.age = l.age"
        assert refused_in_savepoint(admin, lambda: kanon.estimate(query)) == DENIED
        assert not spied()
    fetch(published.publisher, f"DROP TABLE {hostile}")


@pytest.mark.pitfall(31)
def test_26_roles_go_by_identity(published: Parties, new_role: Callable[..., str]) -> None:
    """A renamed role keeps its publications; one that is dropped and made again is a stranger."""
    admin, role = published.admin, new_role("kanon_publisher")
    kanon, renamed = Functions(admin), f"{role}_renamed"
    fetch(admin, f"CREATE SCHEMA {role} AUTHORIZATION {role}")
    with acting_as(admin, role):
        rows = [(1, i % 3) for i in range(9)]
        create_source(admin, f"{role}.people", "age int, sick int", rows)
        kanon.publish(f"{role}.people", "roles", privacy='{"l": 2}')
    fetch(admin, f"ALTER ROLE {role} RENAME TO {renamed}")
    try:
        with acting_as(admin, renamed):
            assert "roles" in kanon.publications()
            kanon.publish(f"{role}.people", "roles", privacy='{"l": 2}', replace=True)
            by = "SELECT published_by FROM kanon.publications WHERE name = 'roles'"
            assert value(admin, by) == renamed
        # The role is dropped, with its rights, and another gets its name.
        for statement in (
            f"REASSIGN OWNED BY {renamed} TO CURRENT_USER", f"DROP OWNED BY {renamed}",
            f"DROP ROLE {renamed}", f"CREATE ROLE {renamed} LOGIN IN ROLE kanon_publisher",
        ):  # fmt: skip
            fetch(admin, statement)
        with acting_as(admin, renamed):
            assert sqlstate_of(lambda: kanon.drop("roles")) == DENIED
            assert sqlstate_of(lambda: kanon.attack("roles")) == "42704"  # not even a reader
        kanon.drop("roles")
    finally:
        fetch(admin, f"DROP SCHEMA IF EXISTS {role} CASCADE")
        fetch(admin, f"DROP OWNED BY {renamed}")
        fetch(admin, f"ALTER ROLE {renamed} RENAME TO {role}")


@contextlib.contextmanager
def acting_as(admin: Connection, role: str) -> Iterator[None]:
    """Let a superuser's session be that of a role, as if it had logged in."""
    fetch(admin, f"SET SESSION AUTHORIZATION {role}")
    yield
    fetch(admin, "RESET SESSION AUTHORIZATION")


@pytest.mark.pitfall(26)
def test_26_a_description_names_columns_that_are_there(
    undone: Parties, stranger: Connection
) -> None:
    """A publisher without any right on a table describes it, naming no column of it."""
    before = fetch(undone.admin, "TABLE kanon.source")
    for described in (
        {"quasi_identifiers": [None]}, {"quasi_identifiers": ["age", None]},
        {"quasi_identifiers": ["nothing"]}, {"quasi_identifiers": []},
        {"insensitive": [None]}, {}, {"relation": 0},
    ):  # fmt: skip
        given = {**DESCRIBED, "relation": people_oid(undone), "sensitive": None, **described}
        refused = sqlstate_of(lambda: errand(stranger, "register", **given))
        assert refused in {"42501", "42703", "23514"}, described
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
def test_29_nobody_makes_columns_of_a_published_type(published: Parties) -> None:
    """They would keep the publication from being replaced or dropped, for ever."""
    for relation in ("people", "people_qit", "people_cod", "rows", "rows_row", "rows_cel"):
        statement = f"CREATE TEMP TABLE t (c published.{relation})"
        for party in (published.analyst, published.stranger, published.publisher):
            assert sqlstate_of(lambda p=party: fetch(p, statement)) == DENIED, relation


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


@pytest.mark.long
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


# -- entries of a publisher's invention ------------------------------------------------------------

LAYOUT = {
    "quasi_identifiers": ["age"], "sensitive": "sick", "bucket_id": "bucket_id", "count": "count",
    "attribute": "attribute", "weight": "weight", "bytewise": [],
    "weights": "weights", "parts": "parts", "n_buckets": 1, "sizes": [300], "first_bucket_ids": [1],
    "store": {
        "column_no": "column_no", "code": "code", "chunk": "chunk", "codes": "codes",
        "records": 1024, "columns": [["age", 0, 1, 0], ["sick", 1, 1, 1]],
    },
}  # fmt: skip
COLUMNS = {
    "_qit": "NULL::int AS age, NULL::int AS bucket_id",
    "_sat": "NULL::int AS bucket_id, NULL::text AS sick, NULL::int AS count",
    "_est": "NULL::text AS sick, ''::bytea AS weights, 0 AS parts",
    "_val": "0 AS column_no, 0 AS code, NULL::int AS age, NULL::text AS sick",
    "_cod": "0 AS column_no, 0 AS chunk, ''::bytea AS codes",
}
SPY, SPIED = "(SELECT public.raise())", "XX123"
LAYOUTS: dict[str, dict[str, object]] = {
    "sizes": {"sizes": [SPY]},
    "several sizes": {"sizes": [3, SPY], "first_bucket_ids": [1, 2]},
    "first numbers": {"sizes": [3, 4], "first_bucket_ids": [1, SPY]},
    "number of buckets": {"n_buckets": SPY},
    "attributes with weights": {"weighted": [SPY]},
    "weights": {"weighted": ["sick"], "weights": SPY},
    "parts of weights": {"weighted": ["sick"], "parts": SPY},
    "column": {"bucket_id": SPY, "count": SPY, "sensitive": SPY},
    "columns": {"quasi_identifiers": [SPY]},
    "attribute": {"attribute": SPY},
    "columns of the store": {"store": {**LAYOUT["store"], "codes": SPY, "chunk": SPY, "code": SPY}},
    "numbers of the store": {
        "store": {**LAYOUT["store"], "records": SPY, "columns": [["age", SPY, SPY, SPY]]}
    },
}
PARAMETERS: dict[str, dict[str, object]] = {
    "l": {"l": SPY},
    "largest size": {"max_bucket_size": SPY},
    "theta": {"privacy": {"theta": SPY}},
    "values": {"privacy": {"l": 2, "values": {SPY: "1/2"}}},
}


@contextlib.contextmanager
def planted(
    parties: Parties, layout: dict[str, object], parameters: dict[str, object]
) -> Iterator[None]:
    """An entry of the publisher's invention, over relations that they staged."""
    session = PsycopgSession(parties.publisher)
    with session.transaction():
        staging = StagedRelations.begin(session, "published")
        for suffix, columns in COLUMNS.items():
            staging.create_table(suffix, f"SELECT {columns}")
        staging.create_weighted_view(LAYOUT, "_qit", "_sat")
        entry = {
            "kind": "buckets", "method": "two_size", "records": 300, "guarantee": "",
            "metrics": {}, "source_metrics": {}, "layout": {**LAYOUT, **layout},
            "parameters": {"privacy": {"l": 2}, "max_bucket_size": 50, **parameters},
            **source_of(parties.publisher),
        }  # fmt: skip
        staging.publish(
            "planted", entry, suffixes=["", *COLUMNS], closed=[], readers=[], replace=False,
            notes={},
        )  # fmt: skip
    yield
    Functions(parties.publisher).drop("planted")


@pytest.mark.long
@pytest.mark.pitfall(6, 26)
def test_planted_entry(published: Parties) -> None:
    """SQL in an entry is never run, not even for an administrator who verifies it."""
    fetch(
        published.admin,
        "CREATE FUNCTION public.raise() RETURNS int LANGUAGE plpgsql"
        f" AS $$BEGIN RAISE EXCEPTION 'spied' USING ERRCODE = '{SPIED}'; END$$",
    )
    kanon = Functions(published.admin)
    one = "SELECT COUNT(*) FROM planted WHERE age = 3"
    both = f"{one} AND sick = 'a'"
    for place in (*LAYOUTS, *PARAMETERS):
        with planted(published, LAYOUTS.get(place, {}), PARAMETERS.get(place, {})):
            for call in (
                lambda: kanon.verify("planted"),
                lambda: kanon.metrics("planted"),
                lambda: kanon.estimate(one),
                lambda: kanon.estimate(both),
                lambda: fetch(published.admin, kanon.rewrite(both)),
            ):
                assert sqlstate_of(call) != SPIED, place


@pytest.mark.long
@pytest.mark.pitfall(26)
def test_a_planted_entry_stops_no_installation(published: Parties) -> None:
    """Not even one that repairs what a restored dump lacks, which follows what entries say."""
    for readers in (5, {"a": 1}, [None, {}, 7], "kanon_owner"):
        with planted(published, {"quasi_identifiers": 5}, {"readers": readers}):
            publisher = value(published.publisher, "SELECT quote_ident(current_user)")
            fetch(published.admin, f"REVOKE ALL ON published.planted, published.planted_qit,"
                  f" published.planted_sat, published.planted_val, published.planted_cod,"
                  f" published.planted_est"
                  f" FROM {publisher}")  # fmt: skip
            fetch(published.admin, "UPDATE kanon.setting SET value = '' WHERE name = 'home'")
            told = " ".join(install(published.dsn).actions)
            assert 'publication "planted" granted again to' in told
            assert "planted" in Functions(published.admin).publications()
