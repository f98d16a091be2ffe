"""A kind that somebody adds: a folder and a registration, and every way in has it."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kanon_db.errors import KanonError
from kanon_db.installation.interpreter import import_paths, preamble
from kanon_db.installation.sql_objects import ENVIRONMENT_MARK, function_sql
from kanon_db.interfaces.cli.commands import add_operations, main
from kanon_db.publications.registry import KINDS
from tests.integration.parties import Functions, Package, Parties, create_table, fetch, sqlstate_of

PEOPLE = [(20 + i % 3, "mf"[i % 2]) for i in range(30)]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The toy's folder where the server's user can read it."""
    place = Path(tempfile.mkdtemp(prefix="kanon-toy-"))
    place.chmod(0o755)
    source = Path(__file__).parents[1] / "toy_kind"
    shutil.copytree(source, place / "toy_kind", ignore=shutil.ignore_patterns("__pycache__"))
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module", autouse=True)
def registered(parties: Parties, folder: Path) -> Iterator[None]:
    """Install the derived SQL function, and describe a source."""
    body = preamble(import_paths()) + f"sys.path[:0] = [{str(folder)!r}]\nimport toy_kind\n"
    from tests.toy_kind import TALLY  # the registration

    text = function_sql(TALLY.operation).replace(ENVIRONMENT_MARK, body)
    parties.admin.execute(text.encode())
    create_table(parties.publisher, "data.people", "age int, sex text", PEOPLE)
    create_table(parties.admin, "data.admins", "age int, sex text", PEOPLE)
    Functions(parties.admin).register("data.admins", ["age", "sex"], None)
    Functions(parties.publisher).register("data.people", ["age", "sex"], None)
    yield
    KINDS.pop("tally")
    publish = main.commands["publish"]
    publish.commands.pop("tally", None)  # type: ignore[attr-defined]


def test_sql(parties: Parties) -> None:
    statement = "SELECT * FROM kanon.publish_tally('data.people', 'tally', k => 3)"
    ((_, name, guarantee, records, metrics, _),) = fetch(parties.publisher, statement)
    assert (name, records, metrics) == ("tally", 30, {"least": 5})
    assert guarantee == "at least 3 people in each line"
    # The same session: its interpreter knows the kind.
    ((_, _, _, holds),) = fetch(parties.publisher, "SELECT * FROM kanon.verify('tally')")
    assert holds
    assert fetch(parties.publisher, "SELECT * FROM kanon.attack('tally')") == []
    assert len(fetch(parties.analyst, "TABLE published.tally")) == 6
    again = lambda: fetch(parties.publisher, statement)
    assert sqlstate_of(again) == "42710"
    mistaken = statement.replace("k => 3", "k => 1")
    assert sqlstate_of(lambda: fetch(parties.publisher, mistaken)) == "22023"
    fetch(parties.publisher, "SELECT kanon.drop_publication('tally')")


def test_python(parties: Parties) -> None:
    kanon = Package(parties.publisher).kanon
    given = {"source": "data.people", "publication": "tally", "k": 5, "method": "count_down"}
    assert kanon.perform("publish_tally", given).metrics == {"least": 5.0}
    assert kanon.verify("tally")["holds"].all()
    assert kanon.publications()["kind"].tolist() == ["tally"]
    kanon.drop_publication("tally")
    with pytest.raises(KanonError, match="the method is not known") as refused:
        kanon.perform("publish_tally", given | {"method": "count_dwn"})
    assert "did you mean count_down?" in refused.value.hint


def test_command(parties: Parties) -> None:
    add_operations(main)
    run = CliRunner().invoke
    arguments = ["publish", "tally", "data.admins", "tally", "--k", "3", "--dsn", parties.dsn]
    done = run(main, arguments)
    assert done.exit_code == 0, done.output
    assert "at least 3 people in each line" in done.stdout
    assert run(main, [*arguments, "--k", "1"]).exit_code == 1
    assert run(main, [*arguments, "--method"]).exit_code == 2
    assert run(main, ["drop", "tally", "--dsn", parties.dsn]).exit_code == 0


def test_registration_is_all(folder: Path) -> None:
    """Nothing outside the folder names the kind but this test."""
    root = Path(sys.modules["kanon_db"].__file__ or "").parents[1]
    named = [
        path
        for place in ("kanon_db", "sql", "migrations", "scripts")
        for path in (root / place).rglob("*")
        if path.suffix in (".py", ".sql")
        and re.search(r"publish_tally|[\"']tally[\"']", path.read_text(encoding="utf-8"))
    ]
    assert named == []
