"""Attacks through a session that several users share: a connection pool's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.integration.parties import (
    Connection,
    Functions,
    Parties,
    create_people,
    create_table,
    fetch,
    holds,
    value,
)


@pytest.fixture(scope="module")
def published(parties: Parties, new_role: Callable[..., str]) -> dict[str, str]:
    """Two publications, each with a reader of its own; the readers' names."""
    kanon = create_people(parties.publisher)
    readers = {name: new_role("kanon_analyst") for name in ("first", "second")}
    for name, reader in readers.items():
        kanon.publish("data.people", name, privacy='{"l": 3}', readers=[reader])
    return readers


@pytest.fixture(scope="module")
def backend(parties: Parties) -> Iterator[Connection]:
    """A session that all tests of this module share, as users of a pool do."""
    with psycopg.connect(parties.dsn, autocommit=True, prepare_threshold=None) as connection:
        yield connection


@pytest.fixture(params=["SET SESSION AUTHORIZATION", "SET ROLE"])
def become(
    request: pytest.FixtureRequest, backend: Connection
) -> Iterator[tuple[Connection, Callable[[str], object]]]:
    """The backend, and a way to change its user."""
    yield backend, lambda role: backend.execute(f"{request.param} {role}".encode())
    backend.execute("DISCARD ALL")


@pytest.mark.pitfall(17)
def test_each_user_sees_what_is_theirs(
    published: dict[str, str], become: tuple[Connection, Callable[[str], object]]
) -> None:
    """Two readers in turn in one backend see their own publications, also when plans are warm."""
    connection, as_role = become
    kanon = Functions(connection)
    for _ in range(3):  # plans and modules are warm from the second round on
        for name, reader in published.items():
            (other,) = published.keys() - {name}
            as_role(reader)
            assert kanon.publications() == [name]
            assert kanon.metrics(name)["records"] == 300
            assert holds(kanon.connection, name)
            assert kanon.estimate(f"SELECT COUNT(*) FROM {name} WHERE age = 3")[0] == 10
            for call in (
                lambda: kanon.metrics(other),  # called at once
                lambda: kanon.verify(other),
                lambda: kanon.estimate(f"SELECT COUNT(*) FROM {other}"),
                lambda: kanon.rewrite(f"SELECT COUNT(*) FROM {other}"),
            ):
                with pytest.raises(psycopg.errors.UndefinedObject):
                    call()


@pytest.mark.pitfall(17)
def test_rights_of_the_user_before_are_gone(
    parties: Parties,
    published: dict[str, str],
    become: tuple[Connection, Callable[[str], object]],
) -> None:
    """After a publisher, an analyst in the same backend can neither publish nor read the source."""
    connection, as_role = become
    kanon = Functions(connection)
    as_role(parties.publisher.info.user)
    kanon.publish("data.people", "third", privacy='{"l": 3}')
    as_role(parties.analyst.info.user)
    for call in (
        lambda: kanon.publish("data.people", "fourth", privacy='{"l": 3}'),
        lambda: kanon.drop("third"),
        lambda: fetch(connection, "SELECT * FROM data.people"),
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            call()
    as_role(parties.publisher.info.user)
    kanon.drop("third")


@pytest.mark.pitfall(17)
def test_settings_are_put_back(
    parties: Parties, become: tuple[Connection, Callable[[str], object]]
) -> None:
    """What an operation sets, the session has as before: path, row security, time zone."""
    connection, as_role = become
    as_role(parties.publisher.info.user)
    fetch(connection, "SET search_path = data, public")
    fetch(connection, "SET datestyle = 'German'")
    fetch(connection, "SET timezone = 'Asia/Tokyo'")
    with connection.transaction():
        # PL/pgSQL brings settings of its own when it is loaded.
        settings = "SELECT name, setting FROM pg_settings WHERE name NOT LIKE 'plpgsql.%'"
        before = fetch(connection, settings)
        Functions(connection).publish("data.people", "fifth", privacy='{"l": 3}')
        Functions(connection).verify("fifth")
        Functions(connection).drop("fifth")
        assert fetch(connection, settings) == before
    fetch(connection, "CREATE TEMPORARY TABLE kanon_snapshot (a int)")


@pytest.mark.pitfall(17)
def test_nothing_stays_behind(
    parties: Parties, become: tuple[Connection, Callable[[str], object]]
) -> None:
    """No temporary table, prepared statement or lock of an operation outlives its transaction."""
    connection, as_role = become
    as_role(parties.publisher.info.user)
    Functions(connection).publish("data.people", "sixth", privacy='{"l": 3}', replace=True)
    assert fetch(connection, "SELECT name FROM pg_prepared_statements") == []
    held = value(
        parties.admin,
        "SELECT count(*) FROM pg_locks WHERE pid = $1::int4",
        connection.info.backend_pid,
    )
    assert held == 0
    temporary = (
        "SELECT count(*) FROM pg_class WHERE relname LIKE 'kanon\\_%' AND relpersistence = 't'"
    )
    assert value(parties.admin, temporary) == 0
    Functions(connection).drop("sixth")


CANARY = "canary of the pool"

LOOK_AROUND = """
CREATE FUNCTION pg_temp.look_around(backwards text) RETURNS text[] LANGUAGE plpython3u AS $$
import gc
gc.collect()
canary = "".join(reversed(backwards))
return [
    f"{type(part).__name__} in {type(holder).__name__}"
    for holder in gc.get_objects() for part in gc.get_referents(holder)
    if part is not canary and (
        isinstance(part, str) and canary in part
        or isinstance(part, (bytes, bytearray)) and canary.encode() in part
    )
]
$$
"""


@pytest.mark.pitfall(17)
def test_the_interpreter_forgets_what_it_has_read(parties: Parties) -> None:
    """Modules of Python live as long as the backend: none of their objects keeps a value.

    Not even a superuser who looks through the interpreter finds one of the user before. (PL/Python
    itself keeps the arguments of each function's last call, where no SQL reaches them.)
    """
    rows = [(i % 30, f"{CANARY} {i % 5}") for i in range(300)]
    create_table(parties.publisher, "data.pooled", "age int, sick text", rows)
    with psycopg.connect(parties.dsn, autocommit=True) as connection:
        kanon = Functions(connection)
        fetch(connection, f"SET SESSION AUTHORIZATION {parties.publisher.info.user}")
        kanon.register("data.pooled", ["age"], "sick")
        kanon.publish("data.pooled", "pooled", privacy='{"l": 2}')
        kanon.suppress("data.pooled", "rows", k=2)
        assert kanon.attack("pooled")
        assert kanon.evaluate("pooled", queries=2)
        with pytest.raises(psycopg.DatabaseError):
            kanon.publish("data.pooled", "refused", privacy='{"l": 20}')
        fetch(connection, f"SET SESSION AUTHORIZATION {parties.analyst.info.user}")
        for name in ("pooled", "rows"):
            query = f"SELECT sick, COUNT(*) FROM {name} GROUP BY sick"
            found = fetch(connection, "SELECT * FROM kanon.estimate_counts($1::text)", query)
            assert CANARY in str(found)
        fetch(connection, "RESET SESSION AUTHORIZATION")
        fetch(connection, "DISCARD ALL")
        fetch(connection, LOOK_AROUND)
        look = "SELECT pg_temp.look_around($1::text)"
        assert value(connection, look, CANARY[::-1]) == []
        # What is there, is found.
        fetch(connection, f"DO LANGUAGE plpython3u $$GD['kept'] = ['{CANARY}']$$")
        assert "str in list" in value(connection, look, CANARY[::-1])
    for name in ("pooled", "rows"):
        Functions(parties.publisher).drop(name)
