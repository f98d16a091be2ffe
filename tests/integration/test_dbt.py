"""What dbt can do: the test as dbt reads it, and publications that dbt itself makes.

For these, KANON_DBT names the command of an environment with dbt-core and dbt-postgres.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import psycopg
import pytest

from kanon_db.operations import operations
from tests.docs.console import PAGES, blocks
from tests.integration.parties import (
    Connection,
    Parties,
    create_source,
    create_table,
    fetch,
    value,
)
from tests.service import served

PACKAGE = Path(__file__).parents[2] / "dbt"
MACRO = PACKAGE / "macros" / "verified.sql"
DBT = os.environ.get("KANON_DBT") or shutil.which("dbt")
with_dbt = pytest.mark.skipif(
    DBT is None, reason="dbt is not installed; KANON_DBT=/path/to/dbt names it"
)


def statement(name: str) -> str:
    """What dbt runs for a source of this name."""
    text = MACRO.read_text()
    found = re.search(r"{% test verified\(model\) %}(.*){% endtest %}", text, re.DOTALL)
    assert found is not None
    # https://github.com/dbt-labs/dbt-adapters: default__escape_single_quotes
    dbt = SimpleNamespace(escape_single_quotes=lambda text: text.replace("'", "''"))
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)  # noqa: S701  # SQL, no HTML
    return environment.from_string(found[1]).render(model=SimpleNamespace(identifier=name), dbt=dbt)


def test_rows_are_failures(parties: Parties) -> None:
    rows = [(i % 9, i % 4) for i in range(60)]
    kanon = create_source(parties.publisher, "data.tested", "age int, sick int", rows)
    kanon.publish("data.tested", "tested", privacy='{"l": 2}')
    assert fetch(parties.publisher, statement("tested")) == []
    fetch(parties.admin, "UPDATE published.tested_sat SET count = count + 1")
    failures = fetch(parties.publisher, statement("tested"))
    assert failures
    assert all(len(row) == 3 for row in failures)
    # What is no publication is an error.
    for name in ("absent", "o'clock"):
        with pytest.raises(psycopg.Error, match="there is no such publication"):
            fetch(parties.publisher, statement(name))


def test_any_model_is_measured(parties: Parties) -> None:
    """By the macros as dbt reads them: a failure for each bound that does not hold."""
    create_table(parties.publisher, "data.\"o'clock\"", "age int, sick int",
                 [(i % 5, i % 3) for i in range(60)])  # fmt: skip
    texts = [
        (PACKAGE / "macros" / f"{name}.sql").read_text()
        for name in ("kanon_publication", "disclosive_classes")
    ]
    macros = re.findall(r"{% macro (?:arguments|literal|failing_measures)\(.*?{%-? endmacro %}",
                        "\n".join(texts), re.DOTALL)  # fmt: skip
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, extensions=["jinja2.ext.do"])  # noqa: S701  # SQL, no HTML
    environment.globals.update(
        dbt=SimpleNamespace(escape_single_quotes=lambda text: text.replace("'", "''")),
        adapter=SimpleNamespace(quote=lambda name: f'"{name}"'),
        tojson=json.dumps,
    )
    environment.globals["kanon_db"] = environment.from_string(
        "\n".join(macros).replace("kanon_db.", "")
    ).module

    def failures(bounds: dict[str, Any]) -> list[Any]:
        text = environment.globals["kanon_db"].failing_measures(
            '"data"."o\'clock"', ["age"], bounds
        )
        return fetch(parties.publisher, text)

    assert failures({"k": 12, "entity": None}) == []
    assert len(failures({"k": 13, "entity": None})) == 1
    assert failures({"sensitive": ["sick"], "l": 3, "entity": None}) == []
    l_measures = failures({"sensitive": ["sick"], "l": 4, "entity": None})
    assert [(value, bound) for _, value, bound, *_ in l_measures] == [(3, 4), (3, 4)]


def test_the_example_on_the_page_has_parameters_that_there_are() -> None:
    (block,) = blocks(PAGES / "howto" / "workers.md", "jinja")
    given: dict[str, Any] = {}
    environment = jinja2.Environment()  # noqa: S701  # SQL, no HTML
    text = environment.from_string(block).render(
        config=lambda **named: given.update(named) or "", ref=lambda name: f'"db"."data"."{name}"'
    )
    assert text.split() == ["SELECT", "*", "FROM", '"db"."data"."stays"']
    assert given["materialized"] == "kanon_publication"
    for word, name in (("register", "register_source"), ("publish", f"publish_{given['kind']}")):
        assert given[word].keys() <= {item.name for item in operations()[name].parameters}
    assert (
        "{% materialization kanon_publication, adapter='postgres' %}"
        in (PACKAGE / "macros" / "kanon_publication.sql").read_text()
    )


# -- publications ----------------------------------------------------------------------------------

PROJECT = """
name: clinic
version: 1.0.0
config-version: 2
profile: clinic
models: {clinic: {+schema: published}}
"""
NAMED = """
{% macro generate_schema_name(custom_schema_name, node) %}
{{ custom_schema_name or target.schema }}
{% endmacro %}
"""
SOURCES = """
sources:
  - {name: data, tables: [{name: "it's"}]}
  - {name: published, tables: [{name: stays_b, data_tests: [kanon_db.verified]}]}
"""
MODEL = """
{{ config(
    materialized='kanon_publication', kind='generalized',
    register={'quasi_identifiers': ['age', 'the \\'sex\\''], 'sensitive': 'sick',
              'identifiers': ['name'],
              'attributes': {'age': {'kind': 'numeric', 'lower': 0}}, 'arrival': 'seen'},
    publish={'k': 5, 'readers': [READERS], 'max_suppressed': 0.0},
) }}
SELECT * FROM {{ source('data', "it's") }}
"""

Run = Callable[..., tuple[int, str]]


def project(folder: Path, connection: Connection, reader: str) -> Run:
    """A project of a role's, and dbt in it."""
    for name in ("macros", "models"):
        (folder / name).mkdir()
    info = connection.info
    profile = {
        "type": "postgres", "host": info.host, "port": info.port, "user": info.user,
        "password": "none", "dbname": info.dbname, "schema": "data", "threads": 1,
    }  # fmt: skip
    files = {
        "dbt_project.yml": PROJECT,
        "packages.yml": f"packages: [{{local: {PACKAGE}}}]",
        "profiles.yml": json.dumps({"clinic": {"target": "own", "outputs": {"own": profile}}}),
        "macros/names.sql": NAMED,
        "models/sources.yml": SOURCES,
        "models/stays_b.sql": MODEL.replace("READERS", f"'{reader}'"),
    }
    for name, text in files.items():
        (folder / name).write_text(text)

    def called(*arguments: str) -> tuple[int, str]:
        options = ["--project-dir", str(folder), "--profiles-dir", str(folder)]
        done = subprocess.run(
            [str(DBT), *arguments, *options], cwd=folder, capture_output=True, text=True,
            env={**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "NO_COLOR": "1"},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    assert called("deps")[0] == 0
    rows = [(i, i % 30, "fm"[i % 2], f"n{i}", f"ill {i % 4}") for i in range(200)]
    columns = "seen int, age int, \"the 'sex'\" text, name text, sick text"
    create_table(connection, 'data."it\'s"', columns, rows)
    return called


ARRIVALS = (
    "INSERT INTO data.\"it's\" SELECT 200 + i, i % 30, 'f', 'n', 'ill ' || i % 4"
    " FROM generate_series(1, 60) AS i"
)


def state(connection: Connection) -> list[tuple[int, int]]:
    return fetch(
        connection,
        "SELECT rows, (parameters ->> 'k')::int4 FROM kanon.publications WHERE name = 'stays_b'",
    )


@with_dbt
def test_dbt_publishes_refreshes_and_replaces(parties: Parties, tmp_path: Path) -> None:
    run = project(tmp_path, parties.publisher, parties.analyst.info.user)
    model = tmp_path / "models" / "stays_b.sql"
    text = model.read_text()

    # What fails leaves nothing.
    model.write_text(text.replace("SELECT * FROM", "SELECT age FROM"))
    code, said = run("run")
    assert (code, state(parties.publisher)) == (1, [])
    assert "a publication is made of one relation" in said
    model.write_text(text.replace("kind=", "post_hook='SELECT 1 / 0', kind="))
    assert (run("run")[0], state(parties.publisher)) == (1, [])
    described = "SELECT identifiers, arrival, attributes FROM kanon.source WHERE relation_name = $1"
    assert fetch(parties.publisher, described, "it's") == []
    model.write_text(text)

    assert run("run")[0] == 0
    assert state(parties.publisher) == [(200, 5)]
    assert value(parties.analyst, "SELECT count(*) FROM published.stays_b") == 200
    assert fetch(parties.publisher, described, "it's") == [
        (["name"], "seen", {"age": {"kind": "numeric", "lower": 0}})
    ]
    assert run("test")[0] == 0

    # Who came since is added; nobody who was there moves.
    before = set(fetch(parties.analyst, "SELECT p::text FROM published.stays_b AS p"))
    fetch(parties.publisher, ARRIVALS)
    assert run("run")[0] == 0
    assert state(parties.publisher) == [(260, 5)]
    assert before <= set(fetch(parties.analyst, "SELECT p::text FROM published.stays_b AS p"))

    model.write_text(text.replace("'k': 5", "'k': 7"))
    assert run("run", "--full-refresh")[0] == 0
    assert state(parties.publisher) == [(260, 7)]

    # The schema must be that of publications.
    (tmp_path / "macros" / "names.sql").unlink()
    code, said = run("run")
    assert code == 1
    assert "publications are in the schema published" in said


@with_dbt
def test_the_package_for_the_hub_tests_itself(parties: Parties, tmp_path: Path) -> None:
    """Its own project, with a seed: bounds that hold, and bounds that do not."""
    shutil.copytree(PACKAGE, tmp_path / "dbt")
    info = parties.publisher.info
    names = {"PGHOST": info.host, "PGPORT": str(info.port), "PGUSER": info.user,
             "PGDATABASE": info.dbname, "PGPASSWORD": "none", "PGSCHEMA": "data"}  # fmt: skip
    for command in ("deps", "build"):
        done = subprocess.run(
            [str(DBT), command], cwd=tmp_path / "dbt" / "integration_tests", text=True,
            capture_output=True,
            env={**os.environ, **names, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    assert "PASS=5" in done.stdout


@with_dbt
def test_dbt_waits_where_operations_are_jobs(service_cluster_dsn: str, tmp_path: Path) -> None:
    """Also for their errors, which are its own."""
    with (
        served(service_cluster_dsn, "kanon_dbt", tmp_path) as service,
        service.submitter("dbt_runner", "kanon_publisher") as runner,
    ):
        with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
            fetch(superuser, "CREATE SCHEMA data AUTHORIZATION dbt_runner")
        service.work()
        run = project(tmp_path, runner, "dbt_runner")
        assert run("run")[0] == 0
        assert state(runner) == [(200, 5)]
        fetch(runner, ARRIVALS)
        assert run("run")[0] == 0
        assert state(runner) == [(260, 5)]
        fetch(runner, 'ALTER TABLE data."it\'s" ADD COLUMN more int')
        code, said = run("run")
        assert code == 1
        assert "register it again" in said
        done = "SELECT operation, state FROM kanon.jobs ORDER BY job_id"
        assert fetch(runner, done) == [
            ("register_source", "done"),
            ("publish_generalized", "done"),
            ("refresh", "done"),
            ("refresh", "failed"),
        ]
