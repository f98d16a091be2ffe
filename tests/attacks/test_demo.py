"""`kanon demo` beside what people have: it touches only what it made itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.commands import kanon
from tests.integration.parties import Connection, fetch, value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("demo") / "cluster"
    try:
        assert kanon("local", "start", "--dir", folder).returncode == 0
        assert kanon("install", "--no-compile", "--dir", folder).returncode == 0
        yield folder
    finally:
        kanon("local", "destroy", "--yes", "--dir", folder)


@pytest.fixture
def owner(folder: Path) -> Iterator[Connection]:
    dsn = kanon("local", "start", "--json", "--dir", folder).json()["dsn"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def precious(tmp_path: Path) -> list[object]:
    """Let the demo take the user's own file."""
    file = tmp_path / "precious.csv"
    file.write_text("age,ill\n" + "".join(f"{i % 5},{'abc'[i % 3]}\n" for i in range(60)))
    return [file, "--sensitive", "ill", "--quasi-identifiers", "age"]


@pytest.mark.long
@pytest.mark.pitfall(40)
def test_a_table_of_that_name_is_kept(
    folder: Path, owner: Connection, precious: list[object]
) -> None:
    """Also one with a comment, and with the name of the user's own file."""
    for table, given in (("precious", precious), ("fair", [])):
        fetch(owner, f"CREATE TABLE public.{table} (a int)")
        fetch(owner, f"COMMENT ON TABLE public.{table} IS 'for the demo'")
        fetch(owner, f"INSERT INTO public.{table} VALUES (1)")
        refused = kanon("demo", *given, "--dir", folder)
        assert refused.returncode == 1
        assert "the demo does not replace what it has not made" in refused.stderr
        assert fetch(owner, f"TABLE public.{table}") == [(1,)]
        fetch(owner, f"DROP TABLE public.{table}")


@pytest.mark.long
@pytest.mark.pitfall(40)
def test_a_publication_of_that_name_is_kept(
    folder: Path, owner: Connection, precious: list[object]
) -> None:
    """Of another table, and of the demo's own."""
    demo = lambda: kanon("demo", *precious, "--dir", folder)
    fetch(owner, "CREATE TABLE public.mine AS SELECT i % 5 AS a, i % 3 AS b"
                 " FROM generate_series(1, 60) AS i")  # fmt: skip
    fetch(owner, "SELECT kanon.register_source('mine', quasi_identifiers => '{a}',"
                 " sensitive => 'b')")  # fmt: skip
    mine = "SELECT publication_id FROM kanon.publish_buckets({}, 'precious_b', privacy => {})"
    ours = value(owner, mine.format("'mine'", """'{"l": 2}'"""))
    refused = demo()
    assert refused.returncode == 1
    assert "publication precious_b" in refused.stderr
    assert value(owner, "SELECT publication_id FROM kanon.publications") == ours
    assert value(owner, "SELECT to_regclass('public.precious')") is None

    fetch(owner, "SELECT kanon.drop_publication('precious_b')")
    assert demo().returncode == 0
    fetch(owner, "SELECT kanon.drop_publication('precious_b')")
    ours = value(owner, mine.format("'precious'", """'{"default": 0.9}'"""))
    assert demo().returncode == 1
    assert value(owner, "SELECT publication_id FROM kanon.publications") == ours

    fetch(owner, "SELECT kanon.drop_publication('precious_b')")
    assert demo().returncode == 0
    assert demo().returncode == 0


@pytest.mark.pitfall(40)
def test_saving_replaces_no_file(tmp_path: Path) -> None:
    file = tmp_path / "fair.csv"
    file.write_text("precious")
    refused = kanon("demo", "--save", file)
    assert refused.returncode == 1
    assert "the file exists" in refused.stderr
    assert file.read_text() == "precious"


def test_saving_where_nothing_can_be_written(tmp_path: Path) -> None:
    refused = kanon("demo", "--save", tmp_path / "nowhere" / "fair.csv")
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: the file cannot be written")
