"""A table of PostgreSQL as the source, over JDBC, which knows no Unix sockets: we pass bytes on."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kanon_db import spark as on_spark
from kanon_db.errors import ServerError
from kanon_db.spark.environment import POSTGRESQL_DRIVER
from tests.integration.parties import Parties, create_table, fetch, parties
from tests.spark import data

__all__ = ["parties"]

N_RECORDS = 600


@pytest.fixture(scope="module")
def url(parties: Parties) -> Iterator[str]:
    """Listen on 127.0.0.1 for the test's cluster, which has a Unix socket only."""
    if not POSTGRESQL_DRIVER.exists():
        pytest.skip("there is no JDBC driver of PostgreSQL")
    info = parties.publisher.info
    unix = f"{info.host}/.s.PGSQL.{info.port}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server, unix), daemon=True).start()
        port = server.getsockname()[1]
        yield f"jdbc:postgresql://127.0.0.1:{port}/{info.dbname}?user={info.user}"


def serve(server: socket.socket, unix: str) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return  # the test is over
        threading.Thread(target=connect, args=(client, unix), daemon=True).start()


def connect(client: socket.socket, unix: str) -> None:
    with client, socket.socket(socket.AF_UNIX) as inner:
        inner.connect(unix)
        back = threading.Thread(target=pass_on, args=(inner, client), daemon=True)
        back.start()
        pass_on(client, inner)
        back.join()


def pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while received := one.recv(1 << 16):
            other.sendall(received)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def census(parties: Parties) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = data.table(N_RECORDS).to_pylist()
    create_table(
        parties.publisher, "data.census", "id int8, age int4, sex text, zip int8, disease text",
        [list(row.values()) for row in rows],
    )  # fmt: skip
    return rows


def test_publishing_from_postgresql(
    spark: Any, url: str, census: list[dict[str, Any]], target: Path
) -> None:
    source = on_spark.PostgresTable(url, "data.census")
    found = on_spark.publish_buckets(spark, source, str(target), **data.ASKED)
    assert found.records == N_RECORDS
    names = data.ROLES["quasi_identifiers"]
    published = data.read(target, "qit").select(names).to_pylist()
    assert Counter(tuple(row.values()) for row in published) == Counter(
        tuple(row[name] for name in names) for row in census
    )
    (release,) = on_spark.releases(spark, str(target.parent))
    assert release["source"].endswith("data.census")
    assert "user=" not in release["source"]


def test_what_cannot_be_read(
    spark: Any, url: str, census: list[dict[str, Any]], parties: Parties, target: Path
) -> None:
    quoted = "a value that nobody may see"
    fetch(
        parties.publisher,
        f"CREATE VIEW data.broken AS SELECT (sex || '{quoted}')::int4 AS age, sex, zip, disease"
        " FROM data.census",
    )
    for table in ("data.nothing", "data.broken"):
        with pytest.raises(ServerError) as caught:
            on_spark.publish_buckets(
                spark, on_spark.PostgresTable(url, table), str(target), **data.ASKED
            )
        assert quoted not in f"{caught.value} {caught.value.detail}"
        assert not target.exists()
