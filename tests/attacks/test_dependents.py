"""What readers make of a publication never holds up its publisher: security pitfall 38."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from kanon_db.installation.doctor import examine
from tests.integration.parties import (
    KINDS,
    Connection,
    Functions,
    Parties,
    create_source,
    drop_all,
    fetch,
    holds,
    quoted,
    refused_in_savepoint,
    sqlstate_of,
    value,
    warn_only,
)
from tests.profiles import long_but

BEFORE, CAME = 120, 40
DENIED = "42501"

OF_ROWS = ("", "_row", "_val", "_cod")
RELATIONS = {kind: ("", "_qit", "_sat", "_cod") if kind == "buckets" else OF_ROWS for kind in KINDS}

DEPENDENTS: dict[str, str] = {
    "view": "CREATE VIEW {mine} AS TABLE {theirs}",
    "temporary view": "CREATE TEMPORARY VIEW {name} AS TABLE {theirs}",
    "view of a view": "CREATE VIEW {mine}_0 AS TABLE {theirs};"
    " CREATE VIEW {mine} AS TABLE {mine}_0",
    "materialized view": "CREATE MATERIALIZED VIEW {mine} AS TABLE {theirs} WITH NO DATA",
    "function": "CREATE FUNCTION {mine}() RETURNS bigint LANGUAGE sql"
    " BEGIN ATOMIC SELECT count(*) FROM {theirs}; END",
    "policy": "CREATE TABLE {mine} (a int);"
    " CREATE POLICY mine ON {mine} USING (a < (SELECT count(*) FROM {theirs}))",
    "rule": "CREATE TABLE {mine} (a int); CREATE RULE mine AS ON INSERT TO {mine}"
    " DO ALSO UPDATE {mine} SET a = (SELECT count(*) FROM {theirs})",
    "whole row": "CREATE VIEW {mine} AS SELECT t IS NULL AS a FROM {theirs} AS t",
}


def make(who: Connection, what: str, relation: str) -> str:
    """Make a dependent of a published relation; its name."""
    name = f"v{secrets.token_hex(4)}"
    statements = DEPENDENTS[what].format(
        mine=f"mine.{name}", name=name, theirs=f"published.{relation}"
    )
    with psycopg.ClientCursor(who) as cursor:
        cursor.execute(statements.encode())
    return name


@dataclass(frozen=True)
class Published:
    """A publication of one kind, which more people can join."""

    parties: Parties
    kind: str

    def publish(self, source: str = "data.people", kind: str = "", **more: Any) -> None:
        Functions(self.parties.publisher).of_kind(kind or self.kind, source, "p", **more)

    def refresh(self) -> None:
        fetch(self.parties.publisher, "SELECT * FROM kanon.refresh('p')")

    def come(self, batch: int = 0) -> None:
        fetch(
            self.parties.publisher,
            f"INSERT INTO data.people SELECT {1000 + 1000 * batch} + i, i % 6, 'disease ' || i % 5"
            f" FROM generate_series(1, {CAME}) AS i",
        )


@pytest.fixture(scope="module", autouse=True)
def sources(parties: Parties) -> None:
    warn_only(parties.admin)
    rows = [(i, i % 6, f"disease {i % 5}") for i in range(BEFORE)]
    for table, columns, qi, sensitive, arrival in (
        ("data.people", "id int, age int, sick text", ["age"], "sick", "id"),
        ("data.others", "id int, years bigint, ill text", ["years"], "ill", None),
    ):
        create_source(
            parties.publisher, table, columns, rows, qi, sensitive, identifiers=["id"],
            arrival=arrival,
        )  # fmt: skip
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {parties.stranger.info.user}")


@pytest.fixture
def published(parties: Parties, request: pytest.FixtureRequest) -> Iterator[Published]:
    """A publication, whose readers have a schema for what they make of it."""
    fetch(parties.admin, "CREATE SCHEMA mine; GRANT ALL ON SCHEMA mine TO PUBLIC")
    publication = Published(parties, getattr(request, "param", "buckets"))
    publication.publish()
    yield publication
    for who in (parties.analyst, parties.stranger, parties.publisher):
        fetch(who, "DISCARD TEMP")
    fetch(parties.admin, "DROP SCHEMA mine CASCADE")
    fetch(parties.admin, "SELECT kanon.owner_sweep()")  # as whatever is published next does
    drop_all(parties)
    fetch(parties.publisher, "DELETE FROM data.people WHERE id > 1000")


# All kinds of rows have the same relations.
every_shape = pytest.mark.parametrize("published", long_but(["freeform"], KINDS), indirect=True)
of_rows = pytest.mark.parametrize("published", ["generalized"], indirect=True)


def make_all(published: Published) -> list[str]:
    """Let the analyst depend on every relation in every way, and on those that are closed, too.

    A view needs no right to read what it shows: a member of no role of ours makes some, too.
    """
    for suffix in RELATIONS[published.kind]:
        make(published.parties.stranger, "view", "p" + suffix)
    return [
        make(published.parties.analyst, what, "p" + suffix)
        for suffix in RELATIONS[published.kind]
        for what in DEPENDENTS
    ]


def left(parties: Parties) -> list[tuple[str, str, int]]:
    """What is withdrawn and still there, with who may do anything with it, and its rows."""
    rows = fetch(
        parties.admin,
        "SELECT w.name, (SELECT count(*) FROM pg_class AS c, aclexplode(c.relacl) AS a"
        " WHERE c.oid = w.relation AND a.grantee <> c.relowner) + (SELECT count(*) FROM"
        " pg_attribute AS b WHERE b.attrelid = w.relation AND b.attacl IS NOT NULL"
        " AND b.attacl <> '{}') FROM kanon.withdrawn() AS w",
    )
    return [(name, n, value(parties.admin, f"SELECT count(*) FROM {name}")) for name, n in rows]


def check_closed(parties: Parties) -> None:
    """Nothing that is withdrawn has rows, rights, or a place among the publications."""
    for name, n_grants, n_rows in left(parties):
        assert (n_grants, n_rows) == (0, 0), name
        for who in (parties.analyst, parties.publisher):
            assert sqlstate_of(lambda name=name, who=who: fetch(who, f"TABLE {name}")) == DENIED


@pytest.mark.long
@pytest.mark.pitfall(38)
@every_shape
def test_38_nothing_of_others_holds_up_a_withdrawal(published: Published) -> None:
    """A dropped publication is gone, whatever depends on it; what depends on it is still there.

    The doctor knows what is withdrawn, and readers cannot make foreign keys.
    """
    parties = published.parties
    reader = parties.analyst.info.user
    for suffix in RELATIONS[published.kind]:
        with pytest.raises(psycopg.Error):
            fetch(parties.analyst, f"CREATE TABLE mine.k (a int REFERENCES published.p{suffix})")
    fetch(parties.publisher, f"GRANT SELECT ON published.p TO {reader} WITH GRANT OPTION")
    fetch(parties.publisher, "GRANT SELECT (sick) ON published.p TO kanon_analyst")
    fetch(parties.analyst, "GRANT SELECT (sick) ON published.p TO PUBLIC")
    mine = make_all(published)
    temporary = mine[1]
    assert value(parties.analyst, f"SELECT count(*) FROM {temporary}") > 0
    Functions(parties.publisher).drop("p")
    assert Functions(parties.analyst).publications() == []
    assert Functions(parties.publisher).publications() == []
    assert left(parties)
    check_closed(parties)
    (found,) = (f for f in examine(parties.dsn) if f.subject == "withdrawn relations")
    assert found.state == "ok"
    assert f"view mine.{mine[0]}" in found.value
    assert not any(f.subject.startswith("relation") for f in examine(parties.dsn))
    for name, *_ in left(parties):
        fetch(parties.stranger, f"CREATE VIEW mine.more{secrets.token_hex(4)} AS TABLE {name}")
    assert sqlstate_of(lambda: fetch(parties.analyst, f"TABLE {temporary}")) == DENIED
    assert sqlstate_of(lambda: fetch(parties.analyst, f"TABLE mine.{mine[0]}")) == DENIED
    assert sqlstate_of(lambda: fetch(parties.analyst, "TABLE published.p")) == "42P01"
    published.publish()
    assert sqlstate_of(lambda: fetch(parties.analyst, f"TABLE mine.{mine[0]}")) == DENIED
    check_closed(parties)


@pytest.mark.pitfall(38)
@every_shape
def test_38_nothing_of_others_holds_up_a_replacement(published: Published) -> None:
    """What depends on a publication has the new rows; all checks of the new one hold."""
    parties = published.parties
    mine = make_all(published)
    published.come()
    published.publish(replace=True)
    rows = value(parties.admin, "SELECT count(*) FROM published.p")
    for name in (f"mine.{mine[0]}", mine[1], f"mine.{mine[2]}"):
        assert value(parties.analyst, f"SELECT count(*) FROM {name}") == rows
    assert value(parties.analyst, f"SELECT mine.{mine[4]}()") == rows
    assert holds(parties.analyst, "p")
    query = "SELECT COUNT(*) FROM p WHERE sick <> 'nothing'"
    assert Functions(parties.analyst).estimate(query)[2:] == (BEFORE + CAME,) * 2
    check_closed(parties)


@pytest.mark.long
@pytest.mark.pitfall(38)
@every_shape
def test_38_nothing_of_others_holds_up_a_refresh(published: Published) -> None:
    """Next month's people come in, and views of readers show them."""
    parties = published.parties
    mine = make_all(published)
    for batch in range(2):
        before = value(parties.analyst, f"SELECT count(*) FROM mine.{mine[0]}")
        published.come(batch)
        published.refresh()
        assert value(parties.analyst, f"SELECT count(*) FROM mine.{mine[0]}") > before
    assert holds(parties.analyst, "p")
    check_closed(parties)


@pytest.mark.pitfall(38)
@pytest.mark.parametrize(("published", "other"), [
    ("buckets", {"source": "data.others"}), ("generalized", {"kind": "buckets"}),
], indirect=["published"])  # fmt: skip
def test_38_what_cannot_live_on_is_closed(published: Published, other: dict[str, str]) -> None:
    """Where columns differ, what depends on the old relations reads nothing any more."""
    parties = published.parties
    mine = make_all(published)
    published.publish(**other, replace=True)
    assert sqlstate_of(lambda: fetch(parties.analyst, f"TABLE mine.{mine[0]}")) == DENIED
    assert holds(parties.analyst, "p")
    assert left(parties)
    check_closed(parties)


@pytest.mark.pitfall(38, 3)
def test_38_names_that_are_read_as_sql(published: Published) -> None:
    """What is put aside, filled and renamed has a name full of quotes and formats."""
    parties, kind, name = published.parties, "generalized", "Ünion \"; DROP'%s%I$1\\ _qit"
    publisher = Functions(parties.publisher)
    publisher.of_kind(kind, "data.people", name)
    for suffix in RELATIONS[kind]:
        relation = quoted("published", name + suffix)
        fetch(parties.analyst, f"CREATE VIEW mine.v{suffix} AS TABLE {relation}")
    publisher.of_kind(kind, "data.people", name, replace=True)
    assert value(parties.analyst, "SELECT count(*) FROM mine.v") >= BEFORE
    assert holds(parties.analyst, name)
    publisher.drop(name)
    check_closed(parties)


@pytest.mark.pitfall(38)
@of_rows
def test_38_rights_that_cannot_be_taken_are_on_nothing(published: Published) -> None:
    """Rights that roles have from each other outlive REVOKE: what they are on does not live on."""
    parties, reader = published.parties, published.parties.analyst.info.user
    fetch(parties.publisher, "GRANT SELECT ON published.p TO kanon_publisher WITH GRANT OPTION")
    name = make(parties.publisher, "view", "p")
    published.publish(replace=True, readers=[reader])
    rows = fetch(
        parties.admin,
        "SELECT DISTINCT a.grantee::regrole::text FROM pg_class AS c, aclexplode(c.relacl) AS a"
        " WHERE c.oid = 'published.p'::regclass AND a.grantee <> c.relowner",
    )
    assert {role for (role,) in rows} == {reader, parties.publisher.info.user}
    assert not fetch(parties.admin, f"TABLE mine.{name}")
    published.publish(replace=True)
    assert all(n == 0 for *_, n in left(parties))


@pytest.mark.pitfall(38)
@of_rows
def test_38_withdrawn_relations_do_not_pile_up(published: Published) -> None:
    """One view keeps what it was made of, however often the publication changes; then it goes."""
    parties = published.parties
    name = make(parties.analyst, "view", "p")
    found = set()
    for source in ("data.others", "data.people") * 2:
        published.publish(source, replace=True)
        found.add(tuple(left(parties)))
    assert len(found) == 1
    fetch(parties.analyst, f"DROP VIEW mine.{name}")
    published.publish(replace=True)
    assert left(parties) == []
    assert not any(f.subject == "withdrawn relations" for f in examine(parties.dsn))


@pytest.mark.long
@pytest.mark.pitfall(38, 23)
def test_38_a_snapshot_from_before_is_refused(published: Published) -> None:
    """What lives on does not look empty, or old, to who began to read before."""
    parties = published.parties
    name = make_all(published)[0]
    query = "SELECT COUNT(*) FROM p WHERE sick <> 'nothing'"
    calls: dict[str, Callable[[], object]] = {
        "estimate": lambda: Functions(parties.analyst).estimate(query),
        "metrics": lambda: Functions(parties.analyst).metrics("p"),
        "verify": lambda: Functions(parties.analyst).verify("p"),
    }
    rows: list[int] = []
    for number, call in enumerate(calls.values()):
        with parties.analyst.transaction(force_rollback=True):
            fetch(parties.analyst, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            fetch(parties.analyst, "SELECT 1")
            if number % 2 == 0:
                published.come()
            published.publish(replace=True)
            failing = contextlib.suppress(psycopg.errors.SerializationFailure)
            with failing, parties.analyst.transaction():
                rows.append(value(parties.analyst, f"SELECT count(*) FROM mine.{name}"))
            assert sqlstate_of(call) == "40001"
        call()
    assert all(n >= BEFORE for n in rows)


@pytest.mark.long
@pytest.mark.pitfall(38, 29)
def test_38_a_lock_is_waited_for_and_nothing_changes(published: Published) -> None:
    """Who reads in an open transaction is waited for, with dependents as without."""
    parties = published.parties
    make_all(published)
    fetch(parties.publisher, "SET lock_timeout = '1s'")
    with parties.analyst.transaction():
        fetch(parties.analyst, "SELECT count(*) FROM published.p")
        assert sqlstate_of(lambda: published.publish(replace=True)) == "55P03"
    fetch(parties.publisher, "RESET lock_timeout")
    assert left(parties) == []


def prepared(who: Connection) -> str | None:
    """Run what was prepared before, in the same transaction."""
    return refused_in_savepoint(who, lambda: fetch(who, "EXECUTE mine"))


@pytest.mark.slow("holds locks, and waits that nobody waits")
@pytest.mark.pitfall(38, 29)
@pytest.mark.parametrize(
    ("published", "depends"), [("buckets", True), ("generalized", False)], indirect=["published"]
)
def test_38_a_withdrawal_waits_for_nobody(
    published: Published, depends: bool, connect_as: Callable[[str, str], Connection]
) -> None:
    """Whoever keeps a publication in use, with a statement that is only prepared even.

    Nobody reads it from then on. Within a transaction that has it locked, PostgreSQL looks at
    rights anew when this locks anything else.
    """
    parties = published.parties
    kanon = Functions(parties.publisher)
    if depends:
        make_all(published)
    with parties.analyst.transaction(), parties.stranger.transaction():
        for who in (parties.analyst, parties.stranger):
            fetch(who, "PREPARE mine AS TABLE published.p")
        assert prepared(parties.analyst) is None
        assert prepared(parties.stranger) == DENIED
        began = time.monotonic()
        kanon.drop("p")
        assert time.monotonic() - began < 20  # not the minute of what waits for a lock
        with connect_as(parties.dsn, parties.analyst.info.user) as another:
            assert sqlstate_of(lambda: fetch(another, "TABLE published.p")) == DENIED
        fetch(parties.analyst, "SELECT count(*) FROM pg_foreign_server")
        assert prepared(parties.analyst) == DENIED
        assert prepared(parties.stranger) == DENIED
        assert kanon.publications() == []
        with_rights = fetch(
            parties.admin,
            "SELECT c.relname FROM kanon.closed() AS d JOIN pg_class AS c ON c.oid = d.relation"
            " CROSS JOIN aclexplode(c.relacl) AS a WHERE a.grantee <> c.relowner",
        )
        assert with_rights == []
        query = "SELECT COUNT(*) FROM p"
        for who in (parties.analyst, parties.publisher):
            assert sqlstate_of(lambda w=who: Functions(w).estimate(query)) == "42704"
        found = [one for one in examine(parties.dsn) if one.subject == "closed relations"]
        assert [one.state for one in found] == ["ok"]
        # Only its name is taken until nobody keeps it in use.
        fetch(parties.publisher, "SET lock_timeout = '300ms'")
        assert sqlstate_of(published.publish) == "55P03"
        fetch(parties.publisher, "RESET lock_timeout")
    published.publish()
    assert fetch(parties.admin, "SELECT * FROM kanon.closed()") == []
    check_closed(parties)
    assert (left(parties) == []) is not depends
    for who in (parties.analyst, parties.stranger):
        fetch(who, "DEALLOCATE mine")


@pytest.mark.long
@pytest.mark.pitfall(38, 29)
def test_38_what_was_closed_goes_with_the_next_withdrawal(published: Published) -> None:
    """Whatever it is called, and however many are still in use."""
    parties = published.parties
    kanon = Functions(parties.publisher)
    with parties.analyst.transaction():
        fetch(parties.analyst, "SELECT count(*) FROM published.p")
        kanon.drop("p")
        kanon.publish("data.people", "q", privacy='{"l": 2}')
        kanon.drop("q")
        # What the reader does not use is gone already.
        names = fetch(parties.admin, "SELECT name FROM kanon.closed() ORDER BY 1")
        assert [name for (name,) in names] == ["p", "p_qit", "p_sat"]
    kanon.publish("data.people", "q", privacy='{"l": 2}')
    kanon.drop("q")
    assert left(parties) == []
    assert fetch(parties.admin, "SELECT name FROM kanon.closed()") == []


@pytest.mark.pitfall(38)
def test_38_readers_are_kept_when_the_kind_changes(published: Published) -> None:
    """Relations that the old kind lacked are open to whoever may read the view."""
    parties, analyst = published.parties, published.parties.analyst
    query = "SELECT COUNT(*) FROM p WHERE sick <> 'nothing'"
    for kind in ("generalized", "buckets", "suppressed", "freeform"):
        published.publish(kind=kind, replace=True)
        assert Functions(analyst).estimate(query)[3] == BEFORE
        assert holds(analyst, "p")
        assert sqlstate_of(lambda: fetch(parties.stranger, "TABLE published.p")) == DENIED
        if kind != "buckets":
            assert sqlstate_of(lambda: fetch(analyst, "TABLE published.p_row")) == DENIED


@pytest.mark.pitfall(38)
def test_statistics_do_not_outlive_rows(published: Published) -> None:
    """A stranger's view keeps a table alive; whoever reads it next reads nothing of before."""
    admin, publisher = published.parties.admin, published.parties.publisher
    fetch(admin, "CREATE VIEW mine.kept AS SELECT * FROM published.p_cod")
    fetch(admin, "CREATE VIEW mine.kept_too AS SELECT * FROM published.p_sat")
    shown = "concat(histogram_bounds, most_common_vals)"
    told = f"SELECT count(*) FROM pg_stats WHERE tablename = $1::text AND {shown} ~ $2::text"
    for table in ("p_cod", "p_sat"):
        fetch(admin, f"ANALYZE published.{table}")  # as autovacuum would
        assert value(admin, told, table, "[0-9]")
    fetch(publisher, "UPDATE data.people SET sick = 'x' || sick")
    published.publish(replace=True)
    for table in ("p_cod", "p_sat"):
        assert not value(admin, told, table, "\\ydisease")
    fetch(publisher, "UPDATE data.people SET sick = substr(sick, 2)")
