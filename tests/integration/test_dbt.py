"""The test for dbt, as dbt reads it: Jinja, with dbt's own macros around it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import jinja2
import psycopg
import pytest

from tests.integration.parties import Parties, create_source, fetch

MACRO = Path(__file__).parents[2] / "dbt" / "macros" / "verified.sql"


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
