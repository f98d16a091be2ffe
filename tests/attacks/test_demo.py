"""`kanon demo` beside what people have: it touches only what it made itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.commands import kanon
from tests.integration.parties import Connection, fetch, value

PART = "S3cr3tPart"  # of a password


@pytest.fixture(scope="module")
def dsn(new_database: Callable[..., str]) -> str:
    return psycopg.conninfo.make_conninfo(new_database(), password=PART)


@pytest.fixture
def owner(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.mark.pitfall(40)
def test_a_table_of_that_name_is_kept(dsn: str, owner: Connection, tmp_path: Path) -> None:
    """Also one with a comment, and with the name of the user's own file."""
    file = tmp_path / "precious.csv"
    file.write_text("age,ill\n" + "".join(f"{i % 5},{'abc'[i % 3]}\n" for i in range(60)))
    arguments = [file, "--sensitive", "ill", "--quasi-identifiers", "age"]
    for table, given in (("precious", arguments), ("fair", [])):
        fetch(owner, f"CREATE TABLE public.{table} (a int)")
        fetch(owner, f"COMMENT ON TABLE public.{table} IS 'for the demo'")
        fetch(owner, f"INSERT INTO public.{table} VALUES (1)")
        refused = kanon("demo", *given, dsn=dsn)
        assert refused.returncode == 1
        assert "the demo does not replace what it has not made" in refused.stderr
        assert fetch(owner, f"TABLE public.{table}") == [(1,)]
        fetch(owner, f"DROP TABLE public.{table}")


@pytest.mark.pitfall(40)
def test_a_publication_of_that_name_is_kept(dsn: str, owner: Connection) -> None:
    """Of another table, and of the demo's own."""
    fetch(owner, "CREATE TABLE public.mine AS SELECT i % 5 AS a, i % 3 AS b"
                 " FROM generate_series(1, 60) AS i")  # fmt: skip
    fetch(owner, "SELECT kanon.register_source('mine', quasi_identifiers => '{a}',"
                 " sensitive => 'b')")  # fmt: skip
    mine = "SELECT publication_id FROM kanon.publish_buckets({}, 'fair_b', privacy => {})"
    ours = value(owner, mine.format("'mine'", """'{"l": 2}'"""))
    refused = kanon("demo", dsn=dsn)
    assert refused.returncode == 1
    assert "publication fair_b" in refused.stderr
    assert value(owner, "SELECT publication_id FROM kanon.publications") == ours
    assert value(owner, "SELECT to_regclass('public.fair')") is None

    fetch(owner, "SELECT kanon.drop_publication('fair_b')")
    assert kanon("demo", dsn=dsn).returncode == 0
    fetch(owner, "SELECT kanon.drop_publication('fair_b')")
    ours = value(owner, mine.format("'fair'", """'{"default": 0.9}'"""))
    assert kanon("demo", dsn=dsn).returncode == 1
    assert value(owner, "SELECT publication_id FROM kanon.publications") == ours

    fetch(owner, "SELECT kanon.drop_publication('fair_b')")
    for _ in range(2):
        done = kanon("demo", "--json", dsn=dsn)
        assert done.returncode == 0, done.stderr
        assert PART not in done.stdout + done.stderr


@pytest.mark.pitfall(40)
def test_saving_replaces_no_file(tmp_path: Path) -> None:
    file = tmp_path / "fair.csv"
    file.write_text("precious")
    refused = kanon("demo", "--save", file)
    assert refused.returncode == 1
    assert "the file exists" in refused.stderr
    assert file.read_text() == "precious"
