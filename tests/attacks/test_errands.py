"""Attacks on what the owner of publications is told: every value of another's is refused."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kanon_db.catalog.entries import ask_model, run_errand
from kanon_db.errors import DatabaseError
from kanon_db.session.psycopg_session import PsycopgSession
from tests.attacks.test_owner import DENIED, ENTRY, errand, published, source_of, staged, stranger
from tests.integration.parties import (
    Connection,
    Functions,
    Parties,
    create_source,
    fetch,
    sqlstate_of,
    value,
    warn_only,
)
from tests.profiles import long_but

__all__ = ["published", "stranger"]

ONE = {"name": "a", "type": "23", "modifier": -1, "collating": "0"}
LABEL = "census of another"
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "operation.md"


def oid_of(connection: Connection, relation: str) -> str:
    return str(value(connection, "SELECT $1::text::regclass::oid::text", relation))


@pytest.fixture(scope="module")
def victim(published: Parties) -> Parties:
    """Has publications, one with a label, one that is dropped; a draft, a type, a collation."""
    publisher = published.publisher
    fetch(publisher, "CREATE TYPE data.grade AS ENUM ('a')")
    fetch(publisher, 'CREATE COLLATION data.mine FROM "C"')
    fetch(publisher, "CREATE TABLE data.other AS SELECT i % 3 AS q, i % 2 AS s"
          " FROM generate_series(1, 30) AS i")  # fmt: skip
    kanon = Functions(publisher)
    kanon.register("data.other", ["q"], "s")
    kanon.suppress("data.other", "gone", k=2)
    kanon.drop("gone")
    given = {**ENTRY, "prefix": staged(publisher), "name": "labelled", "label": LABEL}
    errand(publisher, "publish", **given)
    staged(publisher, suffix="")
    return published


@pytest.fixture(scope="module")
def own(victim: Parties, stranger: Connection) -> Iterator[str]:
    """The stranger's own schema, with a source and a publication of it, which are named alike."""
    name = f"s_{secrets.token_hex(4)}"
    fetch(victim.admin, f"CREATE SCHEMA {name} AUTHORIZATION {stranger.info.user}")
    rows = [(f"person {i}", i % 3, f"disease {i % 2}") for i in range(30)]
    kanon = create_source(
        stranger, f"{name}.own", "who text, q int, s text", rows, ["q"], "s", entity="who"
    )
    kanon.suppress(f"{name}.own", name, k=2)
    yield name
    fetch(victim.admin, f"DROP SCHEMA {name} CASCADE")


def described(connection: Connection, relation: str, **more: object) -> dict[str, object]:
    """What an errand is told to register a source."""
    return {
        "relation": oid_of(connection, relation), "quasi_identifiers": ["q"], "sensitive": "s",
        "identifiers": [], "attributes": {}, "insensitive": [], "also_sensitive": [], **more,
    }  # fmt: skip


def own_source(stranger: Connection, own: str, relation: str = "own") -> dict[str, object]:
    ((source_id, at),) = fetch(
        stranger, "SELECT source_id, registered_at::text FROM kanon.source"
        " WHERE schema_name = $1::text AND relation_name = $2::text", own, relation,
    )  # fmt: skip
    return {"source_id": source_id, "registered_at": at}


def valid(stranger: Connection, own: str, task: str) -> dict[str, object]:
    """What the stranger may tell this errand."""

    def digests() -> str:
        prefix = f"kanon_{secrets.token_hex(16)}"
        columns = [
            {**ONE, "name": "digest", "type": "17"}, {**ONE, "name": "record", "type": "17"},
            {**ONE, "name": "signature"},
        ]  # fmt: skip
        for suffix in ("", "_new"):
            errand(stranger, "create table", prefix=prefix, suffix=suffix, columns=columns)
        return prefix

    made: dict[str, Callable[[], dict[str, object]]] = {
        "create table": lambda: {
            "prefix": f"kanon_{secrets.token_hex(16)}", "suffix": "", "columns": [ONE],
            "uncompressed": [],
        },
        "create view": lambda: {"prefix": staged(stranger), "tables": ["_qit"]},
        "analyze": lambda: {"prefix": staged(stranger), "suffixes": ["_qit"], "columns": ["a"]},
        "drop staged": lambda: {"prefix": staged(stranger), "suffixes": ["_qit"]},
        "publish": lambda: {
            **ENTRY, **own_source(stranger, own), "prefix": staged(stranger),
            "name": f"{own}_{secrets.token_hex(4)}",
        },
        "drop": lambda: {"name": own},
        "close": lambda: {"name": own},
        "keep attacks": lambda: {"name": own, "found": []},
        "keep waits": lambda: {"name": own, "waits": {"late": {"records": 1}}},
        "batches": lambda: {"name": own},
        "grant": lambda: {"name": own, "readers": ["kanon_analyst"], "accept": {}, "seen": []},
        "unknown entities": lambda: {"name": own, "prefix": digests()},
        "earlier releases": lambda: {
            "source_id": own_source(stranger, own)["source_id"], "readers": ["kanon_analyst"],
        },
        "seed": lambda: {"digest": "00", "dry_run": False},
        "register": lambda: described(stranger, f"{own}.own", entity="who"),
    }  # fmt: skip
    return made[task]()


TASKS = (
    "analyze", "batches", "close", "create table", "create view", "drop", "drop staged",
    "earlier releases", "grant", "keep attacks", "keep waits", "publish", "register", "seed",
    "unknown entities",
)  # fmt: skip
REFUSED = {"as registered": "40001"}
"""Other rules are kept by 42501."""

OPEN = ("anything", "names", "own answer")
"""A value of another's is as good as any: what is there afterwards is the caller's own."""


def values_of_others(victim: Parties, rule: str, field: str) -> list[Any]:
    """What belongs to the other publisher, for a field of this rule."""
    admin, publisher = victim.admin, victim.publisher

    def ids(table: str, column: str) -> list[Any]:
        return [
            found for (found,) in fetch(
                admin, f"SELECT {column} FROM kanon.{table} WHERE name = ANY ($1::text[])"
                " ORDER BY 1", ["people", "rows", "labelled", "gone"],
            )
        ]  # fmt: skip

    (draft,) = (
        name for (name,) in fetch(
            admin, "SELECT relname::text FROM pg_class WHERE relname ~ '^kanon_[0-9a-f]{32}$'"
            " AND relkind = 'r' AND relacl::text LIKE $1::text", f"%{publisher.info.user}=%",
        )
    )  # fmt: skip
    type_, collation = (
        value(publisher, f"SELECT 'data.{name}'::{kind}::oid::text")
        for name, kind in (("grade", "regtype"), ("mine", "regcollation"))
    )
    source = source_of(publisher)
    entry = value(admin, "SELECT to_jsonb(p) FROM kanon.publication AS p WHERE name = 'people'")
    return {
        "own staged": [draft, draft[:9], "people", "rows", "k", ""],
        "ending": ["eople", "people", "_qit; DROP TABLE data.people", "_qit_"],
        "columns": [[{**ONE, "type": type_}], [{**ONE, "type": "25", "collating": collation}]],
        "names": [publisher.info.user, [publisher.info.user], ["people"], ["age"]],
        "free name": ["people", "rows", "labelled"],
        "own publication": ["people", "rows", "labelled"],
        "own release": ids("release", "publication_id"),
        "readable source": [source["source_id"]],
        "as registered": [source["registered_at"]],
        "own description": [oid_of(publisher, "data.people"), oid_of(publisher, "data.other")],
        "own label": [LABEL],
        "ticket": [ids("release", "release_id"), ids("release", "release_id")[:1]],
        "own answer": ["people", ["people"], True],
        "anything": [entry.get(field, "people"), entry, ["people"], True],
    }[rule]


def kept(victim: Parties, stranger: Connection) -> list[object]:
    """All that is not the stranger's."""
    mine = stranger.info.user
    role = value(victim.admin, f"SELECT '{mine}'::regrole::oid::int8")
    theirs = f"release_id IN (SELECT release_id FROM kanon.release WHERE publisher <> {role})"
    return [
        fetch(victim.admin, f"SELECT to_jsonb(t)::text FROM {table} AS t WHERE {which} ORDER BY 1")
        for table, which in {
            "kanon.publication": f"published_by <> '{mine}'",
            "kanon.release": f"publisher <> {role}",
            "kanon.release_reader": theirs,
            "kanon.release_key": theirs,
            "kanon.release_entity": theirs,
            "kanon.release_record": theirs,
            "kanon.budget": theirs,
            "kanon.source": f"registered_by <> {role}",
            "(SELECT relname, relkind, relowner, relacl::text AS acl, relnamespace,"
            " obj_description(oid, 'pg_class') AS note FROM pg_class)": (
                "relnamespace = 'published'::regnamespace"
                f" AND coalesce(acl, '') NOT LIKE '%{mine}=%' AND relkind <> 'i'"
            ),
        }.items()
    ]


def fields(connection: Connection, task: str) -> list[tuple[str, str]]:
    return fetch(
        connection, "SELECT field, rule FROM kanon.errand_fields() WHERE task = $1::text", task
    )


@pytest.mark.slow("changes every field of every errand")
@pytest.mark.pitfall(34)
@pytest.mark.parametrize("task", long_but({"publish", "create table", "grant"}, TASKS))
def test_34_every_field_of_every_errand(
    victim: Parties, stranger: Connection, own: str, task: str
) -> None:
    """Another publisher's value is refused in each of them, and changes nothing."""
    before = kept(victim, stranger)
    declared = fields(victim.admin, task)
    assert declared
    for field, rule in declared:
        for told in values_of_others(victim, rule, field):
            given = {**valid(stranger, own, task), field: told}
            if field == "label":  # instead of a source
                given.pop("source_id")
            found = sqlstate_of(lambda: errand(stranger, task, **given))
            if rule not in OPEN:
                assert found == REFUSED.get(rule, DENIED), (field, rule, told)
        assert kept(victim, stranger) == before, (field, rule)
        if rule in ("names", "columns", "free name", "own label"):
            hiding: object = "a\x1b]0;b"
            if rule == "columns":
                hiding = [{**ONE, "name": hiding}]
            given = {**valid(stranger, own, task), field: hiding}
            assert sqlstate_of(lambda: errand(stranger, task, **given)) == "42602", field
    # All of this was refused for the one value: the rest may be told.
    with stranger.transaction(force_rollback=True):
        errand(stranger, task, **valid(stranger, own, task))
    given = {**valid(stranger, own, task), "something": "else"}
    assert sqlstate_of(lambda: errand(stranger, task, **given)) == "22023"


@pytest.mark.pitfall(34)
def test_34_all_errands_are_tried(victim: Parties, stranger: Connection) -> None:
    declared = fetch(victim.admin, "SELECT DISTINCT task FROM kanon.errand_fields()")
    assert {task for (task,) in declared} == set(TASKS)
    rules = fetch(victim.admin, "SELECT rule FROM kanon.errand_rules()")
    used = fetch(victim.admin, "SELECT DISTINCT rule FROM kanon.errand_fields()")
    assert sorted(rules) == sorted(used)
    for task in ("drop everything", "", "DROP"):
        assert sqlstate_of(lambda t=task: errand(stranger, t, name="people")) == "22023"
    code = value(victim.admin, "SELECT pg_get_functiondef('kanon.run_errand'::regproc)")
    assert all(f"WHEN '{task}' THEN" in code for task in TASKS)
    assert code.count("WHEN ") == len(TASKS)


def test_the_page_has_the_table(victim: Parties) -> None:
    """``KANON_WRITE_PAGES=1`` writes what has changed."""
    rows = fetch(
        victim.admin,
        "SELECT f.task, string_agg(format('`%s`', f.field), ', ' ORDER BY f.position), r.says"
        " FROM kanon.errand_fields() WITH ORDINALITY AS f (task, field, rule, position)"
        " JOIN kanon.errand_rules() AS r ON r.rule = f.rule"
        " GROUP BY f.task, r.says ORDER BY min(f.position)",
    )
    told: dict[str, dict[str, list[str]]] = {}
    for task, names, says in rows:
        told.setdefault(says, {}).setdefault(names, []).append(task)
    lines = ["| an errand is told | which must be |", "|---|---|"]
    for says, by in told.items():
        fields = "; ".join(f"{names} ({', '.join(tasks)})" for names, tasks in by.items())
        lines.append(f"| {fields} | {says} |")
    mark, end = "<!-- generated: errands -->\n", "\n<!-- end -->"
    before, _, rest = PAGE.read_text().partition(mark)
    written, _, after = rest.partition(end)
    table = "\n".join(lines)
    if os.environ.get("KANON_WRITE_PAGES"):
        PAGE.write_text(before + mark + table + end + after)
    else:
        assert written == table


@pytest.mark.pitfall(34)
def test_34_a_release_is_not_taken_over(victim: Parties, stranger: Connection, own: str) -> None:
    """Only who published a publication refreshes it, and only under its name."""
    before = kept(victim, stranger)
    given = {**valid(stranger, own, "publish"), "name": "evil"}
    number = "SELECT publication_id FROM kanon.publication WHERE name = $1::text"
    releases = [{"refreshes": value(victim.admin, number, n)} for n in ("people", "rows", own)]
    for wrong in (*releases, {"suffixes": []}, source_of(victim.publisher)):
        assert sqlstate_of(lambda w=wrong: errand(stranger, "publish", **{**given, **w})) == DENIED
    assert kept(victim, stranger) == before


@pytest.mark.pitfall(34)
def test_34_refused_before_anything_is_locked(
    victim: Parties, stranger: Connection, own: str
) -> None:
    """Who may not do it neither waits for locks of others nor holds any."""
    describe = described(stranger, "data.other")
    calls: dict[str, dict[str, object]] = {
        "drop": {"name": "people"},
        "close": {"name": "people"},
        "keep attacks": {"name": "people", "found": []},
        "grant": {"name": "people", "readers": ["kanon_analyst"], "accept": {}},
        "batches": {"name": "people"},
        "register": describe,
        "publish": {**valid(stranger, own, "publish"), "name": "people", "replace": True},
    }
    with victim.publisher.transaction(force_rollback=True):
        errand(victim.publisher, "batches", name="people")
        errand(victim.publisher, "register", **describe)
        fetch(stranger, "SET lock_timeout = '300ms'")
        for task, given in calls.items():
            assert sqlstate_of(lambda: errand(stranger, task, **given)) == DENIED, task
        fetch(stranger, "RESET lock_timeout")


@pytest.mark.pitfall(34)
def test_34_labels_are_no_queue(victim: Parties, stranger: Connection, own: str) -> None:
    """Whoever publishes under one label keeps nobody from publishing under another."""
    given = {**ENTRY, "prefix": staged(stranger), "name": f"{own}_l", "label": own}
    other = {**ENTRY, "prefix": staged(victim.publisher), "name": "more", "label": LABEL}
    with stranger.transaction(force_rollback=True):
        errand(stranger, "publish", **given)
        # Nor does an advisory lock, whatever its key.
        fetch(stranger, "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))", LABEL)
        fetch(victim.publisher, "SET lock_timeout = '2s'")
        assert errand(victim.publisher, "publish", **other)
        fetch(victim.publisher, "RESET lock_timeout")
    errand(victim.publisher, "drop", name="more")


@pytest.mark.pitfall(34)
def test_34_a_label_that_two_take_at_once(victim: Parties, stranger: Connection, own: str) -> None:
    """The second one waits, and is then refused as who comes later."""
    given = {**ENTRY, "prefix": staged(stranger), "name": f"{own}_l", "label": f"new {own}"}
    other = {**given, "prefix": staged(victim.publisher), "name": "more"}
    fetch(victim.publisher, "SET lock_timeout = '300ms'")
    with stranger.transaction():
        errand(stranger, "publish", **given)
        assert sqlstate_of(lambda: errand(victim.publisher, "publish", **other)) == "55P03"
    fetch(victim.publisher, "RESET lock_timeout")
    assert sqlstate_of(lambda: errand(victim.publisher, "publish", **other)) == DENIED
    # A label stays whose it was: copies of what was dropped may be about.
    errand(stranger, "drop", name=f"{own}_l")
    assert sqlstate_of(lambda: errand(victim.publisher, "publish", **other)) == DENIED
    errand(victim.publisher, "drop staged", prefix=other["prefix"], suffixes=["_qit"])


@pytest.mark.pitfall(34)
def test_34_an_entry_without_relations_is_dropped(
    victim: Parties, stranger: Connection, own: str
) -> None:
    """By who made it, or an administrator, and nobody else; so is one whose relations are gone."""
    for without in ("emptied", "robbed"):
        for party in (stranger, victim.admin):
            name = f"{own}_{without}"
            errand(stranger, "publish", **{**valid(stranger, own, "publish"), "name": name})
            fetch(victim.admin, f"DROP TABLE published.{name}_qit")
            if without == "emptied":
                emptied = "UPDATE kanon.publication SET relations = '{}' WHERE name = $1::text"
                fetch(victim.admin, emptied, name)
            assert sqlstate_of(lambda n=name: Functions(victim.publisher).drop(n)) == DENIED
            Functions(party).drop(name)
            left = "SELECT count(*) FROM kanon.publication WHERE name = $1::text"
            assert value(victim.admin, left, name) == 0


@pytest.mark.pitfall(35)
def test_35_a_view_does_not_lend_its_table(victim: Parties, stranger: Connection, own: str) -> None:
    """A view over a table that its maker may not read is no source, and was not for long."""
    fetch(stranger, f"CREATE VIEW {own}.over AS SELECT age AS q, 's' AS s FROM data.people")
    given = described(stranger, f"{own}.over")
    assert sqlstate_of(lambda: errand(stranger, "register", **given)) == DENIED
    fetch(victim.publisher, f"GRANT SELECT ON data.people TO {stranger.info.user}")
    errand(stranger, "register", **given)
    fetch(victim.publisher, f"REVOKE SELECT ON data.people FROM {stranger.info.user}")
    source = own_source(stranger, own, "over")
    before = kept(victim, stranger)
    publish = {**valid(stranger, own, "publish"), **source}
    assert sqlstate_of(lambda: errand(stranger, "publish", **publish)) == DENIED
    earlier = {"source_id": source["source_id"], "readers": ["kanon_analyst"]}
    assert sqlstate_of(lambda: errand(stranger, "earlier releases", **earlier)) == DENIED
    call = lambda: Functions(stranger).suppress(f"{own}.over", f"{own}_over", k=2)
    assert sqlstate_of(call) == DENIED
    assert kept(victim, stranger) == before


@pytest.mark.pitfall(35)
def test_35_columns_that_one_may_not_read_are_no_source(
    victim: Parties, stranger: Connection, own: str
) -> None:
    """Whoever may read some of a table's columns describes no others."""
    fetch(victim.publisher, f"CREATE TABLE data.{own} (q int, s text)")
    fetch(victim.publisher, f"GRANT USAGE ON SCHEMA data TO {stranger.info.user}")
    fetch(victim.publisher, f"GRANT SELECT (q) ON data.{own} TO {stranger.info.user}")
    given = described(stranger, f"data.{own}")
    assert sqlstate_of(lambda: errand(stranger, "register", **given)) == DENIED
    fetch(victim.publisher, f"GRANT SELECT (s) ON data.{own} TO {stranger.info.user}")
    errand(stranger, "register", **given)
    fetch(victim.publisher, f"DROP TABLE data.{own}")


@pytest.fixture
def guest(victim: Parties, new_role: Callable[..., str]) -> Iterator[str]:
    """A role that reads a release of data.other, of which there is a second one."""
    kanon, role = Functions(victim.publisher), new_role()
    fetch(victim.admin, "DELETE FROM kanon.setting WHERE name = 'combined_releases'")
    fetch(victim.admin, f"GRANT USAGE ON SCHEMA published TO {role}")
    kanon.suppress("data.other", "first", k=2, readers=[role])
    kanon.suppress("data.other", "second", k=2, readers=[])
    yield role
    fetch(victim.admin, f"DROP OWNED BY {role}")
    kanon.drop("second")
    kanon.drop("first")
    warn_only(victim.admin)


GRANT = "GRANT SELECT ON published.second TO {}"


def readers_of_second(victim: Parties) -> list[str]:
    rows = fetch(
        victim.admin,
        "SELECT d.role_name FROM kanon.release_reader AS d JOIN kanon.release AS r"
        " ON r.release_id = d.release_id WHERE r.name = 'second' AND r.ended IS NULL ORDER BY 1",
    )
    return [name for (name,) in rows]


@pytest.mark.pitfall(36)
def test_36_a_grant_of_a_function(victim: Parties, guest: str, stranger: Connection) -> None:
    """Who granted it is what the ACL says, whoever calls the publisher's function."""
    fetch(
        victim.publisher,
        "CREATE OR REPLACE FUNCTION data.give() RETURNS void LANGUAGE sql SECURITY DEFINER AS"
        f" '{GRANT.format(guest)}'",
    )
    settings = ("SET ROLE kanon_publisher", "SET ROLE NONE")
    for party, setting in product((victim.publisher, stranger), settings):
        fetch(party, setting)
        try:
            assert sqlstate_of(lambda p=party: fetch(p, "SELECT data.give()")) == "KN005"
        finally:
            fetch(party, "RESET ROLE")
    assert readers_of_second(victim) == []


@pytest.mark.pitfall(36)
def test_36_a_grant_by_who_was_let_grant(victim: Parties, guest: str, stranger: Connection) -> None:
    """Not by way of a friend either."""
    friend = stranger.info.user
    fetch(victim.publisher, GRANT.format(f"{friend} WITH GRANT OPTION"))
    assert sqlstate_of(lambda: fetch(stranger, GRANT.format(guest))) == "KN005"
    assert readers_of_second(victim) == [friend]
    fetch(victim.publisher, f"REVOKE SELECT ON published.second FROM {friend} CASCADE")


@pytest.mark.pitfall(36)
def test_36_what_administrators_grant_is_noted(
    victim: Parties, guest: str, new_role: Callable[..., str]
) -> None:
    """Whatever the publisher has granted before, or the readers' roles have got since."""
    one, two = new_role(), new_role()
    fetch(victim.admin, f"GRANT USAGE ON SCHEMA published TO {one}, {two}")
    fetch(victim.publisher, GRANT.format(one))
    assert readers_of_second(victim) == [one]
    fetch(victim.admin, f"GRANT {one} TO {guest}")
    fetch(victim.admin, GRANT.format(two))
    assert readers_of_second(victim) == sorted([one, two, guest])
    fetch(victim.publisher, f"REVOKE SELECT ON published.second FROM {one}")
    fetch(victim.admin, f"DROP OWNED BY {one}, {two}")


@pytest.mark.pitfall(34)
def test_34_what_was_seen_is_what_was_told(victim: Parties, guest: str) -> None:
    """Nobody has seen a release it was not told of, or measured what is gone."""
    publisher = victim.publisher
    kanon = Functions(publisher)
    source = value(
        publisher, "SELECT source_id FROM kanon.source WHERE relation_name = 'other'"
        " AND schema_name = 'data'",
    )  # fmt: skip
    session = PsycopgSession(publisher)
    asks = {"source_id": source, "readers": [guest]}
    given = {"name": "second", "readers": [guest], "accept": {}}

    def grant(**more: object) -> str | None:
        return sqlstate_of(lambda: errand(publisher, "grant", **given, **more))

    with publisher.transaction():
        old = [one["ticket"] for one in run_errand(session, "earlier releases", **asks)]
    assert old
    assert grant() == "40001"
    numbers = [ticket.split(":")[0] for ticket in old]
    for seen in (old, numbers, [int(n) for n in numbers], [f"{n}:00" for n in numbers]):
        assert grant(seen=seen) == DENIED, seen

    def told() -> None:
        with publisher.transaction():
            seen = [one["ticket"] for one in run_errand(session, "earlier releases", **asks)]
            errand(publisher, "grant", **given, seen=seen)

    kanon.drop("first")
    try:
        assert sqlstate_of(told) == "KN005"
        assert readers_of_second(victim) == []
        given["accept"] = {"combined_releases": "the copy is the team's own"}
        told()
        assert readers_of_second(victim) == [guest]
    finally:
        kanon.suppress("data.other", "first", k=2, readers=[])


@pytest.mark.pitfall(37)
def test_37_triggers_that_are_switched_off(victim: Parties) -> None:
    """Without triggers, an errand is an error and not a success; so is a question."""
    session = PsycopgSession(victim.admin)
    with victim.admin.transaction(force_rollback=True):
        fetch(victim.admin, "SET LOCAL session_replication_role = replica")
        with pytest.raises(DatabaseError, match="switched off") as raised:
            run_errand(session, "drop", name="people")
        assert raised.value.sqlstate == "55000"
        with pytest.raises(DatabaseError, match="switched off") as raised:
            ask_model(session, "members", name="people")
        assert raised.value.sqlstate == "55000"
