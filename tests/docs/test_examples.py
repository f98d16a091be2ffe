"""The examples in README.md and docs/ run, in their order, on the demo's data."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import kanon_db
from kanon_db.interfaces.demo import write_fair
from tests.acceptance.commands import kanon

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def _commands(page: Path) -> Iterator[list[str]]:
    for block in _blocks(page, "console"):
        for line in block.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            # The cluster and its installation are the fixture's.
            if words[0] == "kanon" and words[1] not in ("local", "install"):
                yield words


@pytest.fixture(scope="module")
def fair_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("statsmodels", reason="the demo's data set needs statsmodels")
    path = tmp_path_factory.mktemp("docs") / "fair.csv"
    write_fair(path)
    return path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_console_examples_run(page: Path, database: str, fair_csv: Path) -> None:
    for words in _commands(page):
        answer = kanon(*words[1:], "--dsn", database, cwd=fair_csv.parent)
        assert answer.returncode == 0, f"{shlex.join(words)}\n{answer.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sql_examples_run(page: Path, database: str, fair_csv: Path) -> None:
    with kanon_db.connect(database) as kanon:
        kanon.load(fair_csv, "fair")
    with psycopg.connect(database, autocommit=True) as connection:
        for block in _blocks(page, "sql"):
            for statement in block.split(";\n"):
                if re.sub(r"--.*", "", statement).strip():
                    connection.execute(statement.encode())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_run(
    page: Path, database: str, fair_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with kanon_db.connect(database) as kanon:
        kanon.load(fair_csv, "fair")
        kanon.register_source("fair", quasi_identifiers=["age", "educ"], sensitive="affairs")
        kanon.publish_buckets("fair", "fair_b", privacy='{"default": 0.1, "values": {"0.0": 0.8}}')
    for block in _blocks(page, "python"):
        exec(compile(block, str(page), "exec"), {"dsn": database})  # noqa: S102  # our own pages
        assert capsys.readouterr().out


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_sql_function_is_in_the_reference(installed: Callable[[], list[str]]) -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    assert [name for name in installed() if f"`{name}(" not in reference] == []


@pytest.fixture
def installed(database: str) -> Callable[[], list[str]]:
    def names() -> list[str]:
        with psycopg.connect(database) as connection:
            rows = connection.execute(
                "SELECT proname FROM pg_proc WHERE pronamespace = 'kanon'::regnamespace"
                " AND proname NOT LIKE 'python\\_%'"  # what the others call
            ).fetchall()
        return [name for (name,) in rows]

    return names
