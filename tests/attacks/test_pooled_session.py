"""Attacks through a session that several users share: a connection pool's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

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
    sqlstate_of,
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


HOW = ["SET SESSION AUTHORIZATION", "SET ROLE"]


@pytest.mark.pitfall(17)
def test_each_user_sees_what_is_theirs(published: dict[str, str], backend: Connection) -> None:
    """Two readers in turn in one backend see their own publications, also when plans are warm."""
    kanon = Functions(backend)
    for how, _ in product(HOW, range(2)):  # plans and modules are warm from the second round on
        for name, reader in published.items():
            (other,) = published.keys() - {name}
            fetch(backend, f"{how} {reader}")
            assert kanon.publications() == [name]
            assert kanon.metrics(name)["records"] == 300
            assert holds(backend, name)
            assert kanon.estimate(f"SELECT COUNT(*) FROM {name} WHERE age = 3")[0] == 10
            for call in (
                lambda: kanon.metrics(other),  # called at once
                lambda: kanon.verify(other),
                lambda: kanon.estimate(f"SELECT COUNT(*) FROM {other}"),
                lambda: kanon.rewrite(f"SELECT COUNT(*) FROM {other}"),
            ):
                assert sqlstate_of(call) == "42704"
        fetch(backend, "DISCARD ALL")


@pytest.mark.pitfall(17)
def test_rights_of_the_user_before_are_gone(
    parties: Parties, published: dict[str, str], backend: Connection
) -> None:
    """After a publisher, an analyst in the same backend can neither publish nor read the source."""
    assert published
    kanon = Functions(backend)
    for how in HOW:
        fetch(backend, f"{how} {parties.publisher.info.user}")
        kanon.publish("data.people", "third", privacy='{"l": 3}')
        fetch(backend, f"{how} {parties.analyst.info.user}")
        for call in (
            lambda: kanon.publish("data.people", "fourth", privacy='{"l": 3}'),
            lambda: kanon.drop("third"),
            lambda: fetch(backend, "SELECT * FROM data.people"),
        ):
            assert sqlstate_of(call) == "42501", how
        fetch(backend, f"{how} {parties.publisher.info.user}")
        kanon.drop("third")
        fetch(backend, "DISCARD ALL")


@pytest.mark.pitfall(17)
@pytest.mark.usefixtures("published")
def test_nothing_stays_behind(parties: Parties, backend: Connection) -> None:
    """What an operation sets, the session has as before: path, row security, time zone.

    No temporary table, prepared statement or lock of an operation outlives its transaction.
    """
    kanon = Functions(backend)
    temporary = (
        "SELECT count(*) FROM pg_class WHERE relname LIKE 'kanon\\_%' AND relpersistence = 't'"
    )
    for how in HOW:
        fetch(backend, f"{how} {parties.publisher.info.user}")
        for setting in ("search_path = data, public", "datestyle = 'German'",
                        "timezone = 'Asia/Tokyo'"):  # fmt: skip
            fetch(backend, f"SET {setting}")
        with backend.transaction():
            # PL/pgSQL brings settings of its own when it is loaded.
            settings = "SELECT name, setting FROM pg_settings WHERE name NOT LIKE 'plpgsql.%'"
            before = fetch(backend, settings)
            kanon.publish("data.people", "fifth", privacy='{"l": 3}')
            assert holds(backend, "fifth")
            kanon.drop("fifth")
            assert fetch(backend, settings) == before
        kanon.publish("data.people", "sixth", privacy='{"l": 3}', replace=True)
        assert fetch(backend, "SELECT name FROM pg_prepared_statements") == []
        held = "SELECT count(*) FROM pg_locks WHERE pid = $1::int4"
        assert value(parties.admin, held, backend.info.backend_pid) == 0
        assert value(parties.admin, temporary) == 0
        kanon.drop("sixth")
        fetch(backend, "DISCARD ALL")


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
def test_the_interpreter_forgets_what_it_has_read(parties: Parties, backend: Connection) -> None:
    """Modules of Python live as long as the backend: none of their objects keeps a value.

    Not even a superuser who looks through the interpreter finds one of the user before. (PL/Python
    itself keeps the arguments of each function's last call, where no SQL reaches them.)
    """
    rows = [(i % 30, f"{CANARY} {i % 5}") for i in range(300)]
    create_table(parties.publisher, "data.pooled", "age int, sick text", rows)
    kanon = Functions(backend)
    fetch(backend, f"SET SESSION AUTHORIZATION {parties.publisher.info.user}")
    kanon.register("data.pooled", ["age"], "sick")
    kanon.publish("data.pooled", "pooled", privacy='{"l": 2}')
    kanon.suppress("data.pooled", "rows", k=2)
    assert kanon.attack("pooled")
    assert kanon.evaluate("pooled", queries=2)
    with pytest.raises(psycopg.DatabaseError):
        kanon.publish("data.pooled", "refused", privacy='{"l": 20}')
    fetch(backend, f"SET SESSION AUTHORIZATION {parties.analyst.info.user}")
    for name in ("pooled", "rows"):
        query = f"SELECT sick, COUNT(*) FROM {name} GROUP BY sick"
        found = fetch(backend, "SELECT * FROM kanon.estimate_counts($1::text)", query)
        assert CANARY in str(found)
    fetch(backend, "RESET SESSION AUTHORIZATION")
    fetch(backend, "DISCARD ALL")
    fetch(backend, LOOK_AROUND)
    look = "SELECT pg_temp.look_around($1::text)"
    assert value(backend, look, CANARY[::-1]) == []
    # What is there, is found.
    fetch(backend, f"DO LANGUAGE plpython3u $$GD['kept'] = ['{CANARY}']$$")
    assert "str in list" in value(backend, look, CANARY[::-1])
    for name in ("pooled", "rows"):
        Functions(parties.publisher).drop(name)


def test_a_type_that_is_made_again(parties: Parties) -> None:
    """A session that has asked before asks again, where another type has the name of then."""
    asking, kanon = Functions(parties.analyst), Functions(parties.publisher)
    rows = [(["sad", "glad"][i % 2], i % 5) for i in range(100)]
    for _ in range(2):
        fetch(parties.admin, "CREATE TYPE public.mood AS ENUM ('sad', 'glad')")
        create_table(parties.publisher, "data.moods", "mood public.mood, sick int", rows)
        kanon.register("data.moods", ["mood"], "sick")
        kanon.publish("data.moods", "moods", privacy='{"l": 2}')
        assert asking.estimate("SELECT COUNT(*) FROM moods WHERE mood > 'sad'")[0] == 50
        kanon.drop("moods")
        fetch(parties.publisher, "DROP TABLE data.moods")
        fetch(parties.admin, "DROP TYPE public.mood")
