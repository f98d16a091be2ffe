"""The Python client through pgbouncer, which gives each transaction any server process."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import kanon_db
from tests.integration.parties import Parties, create_table

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")


@pytest.fixture
def pooled(parties: Parties) -> Iterator[str]:
    """A DSN of the publisher's through a pool of two processes, each for one transaction."""
    server = psycopg.conninfo.conninfo_to_dict(parties.dsn)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    assert PGBOUNCER is not None
    with contextlib.ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # whoever runs it must read what is in it
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host={server['host']} port={server['port']} "
            f"user={parties.publisher.info.user}"
            " pool_size=2\n[pgbouncer]\npool_mode=transaction\nauth_type=any\n"
            f"listen_addr=127.0.0.1\nlisten_port={port}\nunix_socket_dir=\nserver_round_robin=1\n"
        )
        # It refuses root; who runs the server may enter the folder of its socket.
        user = Path(str(server["host"])).stat().st_uid
        pooler = cleanup.enter_context(
            subprocess.Popen([PGBOUNCER, "-q", str(settings)], cwd="/", user=user)
        )
        cleanup.callback(pooler.terminate)
        dsn = psycopg.conninfo.make_conninfo(
            host="127.0.0.1", port=port, user=parties.publisher.info.user,
            dbname=server["dbname"], connect_timeout=5
        )  # fmt: skip
        for _ in range(100):
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(dsn):
                break
            time.sleep(0.05)
        yield dsn


def test_statements_find_nothing_of_other_transactions(parties: Parties, pooled: str) -> None:
    """Two clients in turn: whatever one leaves in a process, the other meets."""
    rows = [(i % 30, f"disease {i % 5}") for i in range(300)]
    create_table(parties.publisher, "data.people", "age int, sick text", rows)
    with kanon_db.connect(pooled) as first, kanon_db.connect(pooled) as second:
        first.register_source("data.people", quasi_identifiers=["age"], sensitive="sick")
        second.publish_buckets("data.people", "people", privacy={"l": 3})
        answers = [
            client.estimate_count(f"SELECT COUNT(*) FROM people WHERE age < {bound}").estimate
            for bound in range(1, 13)
            for client in (first, second, second)
        ]
        assert answers == [bound * 10 for bound in range(1, 13) for _ in range(3)]
        assert first.verify("people")["holds"].all()
        second.drop_publication("people")
        assert not len(first.publications())
