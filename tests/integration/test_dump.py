"""A dump of the publications alone, restored where the microdata is not."""

from __future__ import annotations

import subprocess
from dataclasses import astuple

import psycopg
import pytest

import kanon_db
from kanon_db.cluster._host import find_programs
from kanon_db.installation.install import install

QUERY = "SELECT COUNT(*) FROM {} WHERE age < 40 AND disease = 'flu'"
NAMES = "people_b", "people_p", "people_k", "people_f"


@pytest.mark.pitfall(12, 19)
def test_estimates_do_not_need_the_microdata(database, new_database, new_role, connect_as):
    """Restored where the microdata is not, all estimates are the same, and all checks hold."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT 20 + i % 50 AS age, i AS person, i % 3 AS ward,"
            " (ARRAY['flu', 'cold', 'hiv', NULL])[1 + i % 4] AS disease"
            " FROM generate_series(1, 400) AS i"
        )
    with kanon_db.connect(database) as kanon:
        kanon.register_source(
            "people", quasi_identifiers=["age"], sensitive="disease", insensitive=["ward"],
            entity="person",
        )  # fmt: skip
        kanon.publish_buckets("people", "people_b", privacy='{"l": 3}')
        kanon.publish_suppressed("people", "people_p", k=5)
        kanon.publish_generalized("people", "people_k", k=5, constraints='{"l": 2}', refine=False)
        kanon.publish_freeform("people", "people_f", k=5)
        estimates = {name: kanon.estimate_count(QUERY.format(name)) for name in NAMES}

    programs = find_programs(None)
    dump = subprocess.run(
        [programs.path("pg_dump"), "--schema=kanon", "--schema=published", f"--dbname={database}"],
        capture_output=True,
        check=True,
    ).stdout
    empty = new_database(installed=False)
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION plpython3u")
    subprocess.run(
        ["psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={empty}"],
        input=dump,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    analyst = new_role("kanon_analyst")
    with connect_as(empty, analyst) as connection:
        asked = "SELECT * FROM kanon.estimate_count(%s)"
        answers = {
            name: connection.execute(asked, [QUERY.format(name)]).fetchone() for name in NAMES
        }
        checks = [
            check
            for name in NAMES
            for check in connection.execute("SELECT * FROM kanon.verify(%s)", [name]).fetchall()
        ]
        rows = connection.execute("SELECT count(ward) FROM published.people_p").fetchone()
    for name, estimate in estimates.items():
        # The server may add up in another order, which changes the last digits.
        assert answers[name] == pytest.approx(astuple(estimate), rel=1e-12), name
    assert all(holds for *_, holds in checks)
    assert rows == (400,)
    # An installation on the new server takes the restored one over.
    install(empty)
    with psycopg.connect(empty) as connection:
        roles = connection.execute("SELECT insensitive, entity, columns FROM kanon.source")
        assert roles.fetchall() == [(["ward"], "person", ["age", "person", "ward", "disease"])]
    with kanon_db.connect(empty) as kanon:
        for name, estimate in estimates.items():
            assert kanon.estimate_count(QUERY.format(name)) == estimate
