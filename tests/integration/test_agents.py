"""A language model asks over `kanon mcp`, as a client of the protocol: it has answers, no rows.

``KANON_WRITE_PAGES=1 pytest tests/integration/test_agents.py`` writes the session of the page.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from tests.acceptance.commands import KANON
from tests.integration.parties import Parties, create_source, fetch, quoted

# Imported where it is used: that takes most of a second, which others need not wait for.
pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="the extra mcp is not installed")

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "agents.md"
SESSION = re.compile(r"(?<=<!-- session -->\n```text\n).*?(?=```\n<!-- end -->)", re.DOTALL)
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
UNTOLD = re.compile(r'"this publication does not tell [^"]*"')  # by chance, which deals values out
"""Buckets are drawn at random, so that every run has other numbers."""

COUNTS = ("COUNT(*)", "SUM(age)", "AVG(age)", "MIN(age)", "COUNT(DISTINCT town)")
WHERE = (
    "", " WHERE age > 40", " WHERE town = 't1'", " WHERE sick = 'd1'",
    " WHERE age BETWEEN 20 AND 30 AND sick = 'd2'", " WHERE sick IN ('d0', 'd1') GROUP BY town",
    " GROUP BY sick", " WHERE NOT town = 't2' GROUP BY sick ORDER BY 1",
)  # fmt: skip
QUESTIONS = [f"SELECT {count} FROM agents_b{where}" for count in COUNTS for where in WHERE]
ATTACKS = (
    ("ask", {"query": "SELECT * FROM agents_b"}),
    ("ask", {"query": "SELECT age, sick FROM data.agents"}),
    ("ask", {"query": "SELECT COUNT(*) FROM data.agents"}),
    ("ask", {"query": "SELECT COUNT(*) FROM agents_b; DROP TABLE data.agents"}),
    ("ask", {"query": "DELETE FROM published.agents_b_qit"}),
    ("ask", {"query": "SELECT COUNT(*) FROM agents_b JOIN data.agents ON age = age"}),
    ("ask", {"query": "SELECT string_agg(sick, ',') FROM agents_b"}),
    ("ask", {"query": "SELECT COUNT(*) FROM agents_b WHERE pg_read_file('/etc/passwd') <> ''"}),
    ("describe_publication", {"name": "agents_b'; TABLE data.agents; --"}),
    ("draw", {"name": "data.agents"}),
)


@pytest.fixture(scope="module", autouse=True)
def reader(parties: Parties) -> str:
    fetch(parties.admin, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    rows = [(18 + i * 7 % 50, f"t{i % 5}", f"d{i * 3 % 4}") for i in range(200)]
    kanon = create_source(parties.publisher, "data.agents", "age int, town text, sick text", rows)
    kanon.publish("data.agents", "agents_b", privacy='{"default": 0.7}')
    return str(parties.analyst.info.user)


def served(parties: Parties, role: str) -> Any:
    dsn = make_conninfo(parties.dsn, user=role)
    import mcp

    return mcp.StdioServerParameters(command=str(KANON), args=["mcp", "--dsn", dsn])


async def converse(server: Any, calls: list[tuple[str, dict[str, Any]]]) -> list[tuple[bool, str]]:
    import mcp

    async with mcp.Client(server) as client:
        answers = [await client.call_tool(name, given) for name, given in calls]
    return [(bool(one.is_error), "\n".join(part.text for part in one.content)) for one in answers]


def write_session(calls: Sequence[tuple[str, Any]], answers: Sequence[tuple[bool, str]]) -> str:
    lines = []
    for (name, given), (is_error, text) in zip(calls, answers, strict=True):
        lines.append(f"> {name} {json.dumps(given)}")
        lines += [f"{'refused: ' if is_error else ''}{text}", ""]
    return "\n".join(lines[:-1]) + "\n"


@pytest.mark.slow("a login of its own asks more than fifty times")
def test_forty_questions_and_ten_attacks(parties: Parties, reader: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [("list_publications", {})]
    calls += [("describe_publication", {"name": "agents_b"})]
    calls += [("ask", {"query": question}) for question in QUESTIONS]
    calls += [("explain", {"query": QUESTIONS[0]}), ("draw", {"name": "agents_b", "limit": 3})]
    answers = asyncio.run(converse(served(parties, reader), calls + list(ATTACKS)))
    told, refused = answers[: len(calls)], answers[len(calls) :]
    assert len(QUESTIONS) == 40
    assert [text for is_error, text in told if is_error] == []
    assert json.loads(told[0][1])[0]["name"] == "agents_b"
    assert [one["name"] for one in json.loads(told[1][1])["columns"]][:3] == ["age", "town", "sick"]
    for question, (_, text) in zip(QUESTIONS, told[2:42], strict=True):
        rows = json.loads(text)["rows"]
        assert rows, question
        if "GROUP BY" not in question:
            truth = fetch(parties.publisher, question.replace("agents_b", "data.agents"))[0][0]
            (row,) = rows
            assert row["lower_bound"] <= float(truth) <= row["upper_bound"], question
    assert len(json.loads(told[-1][1])) == 3
    assert all(is_error for is_error, _ in refused), refused
    shown = [0, 1, *(2 + place for place in (0, 3, 5, 12)), len(calls) - 2, len(calls) - 1]
    session = write_session(
        [*(calls[place] for place in shown), *ATTACKS],
        [*(told[place] for place in shown), *refused],
    )
    if "KANON_WRITE_PAGES" in os.environ:
        PAGE.write_text(SESSION.sub(lambda _: session, PAGE.read_text()))
    (on_page,) = SESSION.findall(PAGE.read_text())
    by_chance, on_page = (NUMBER.sub("n", UNTOLD.sub("", one)) for one in (session, on_page))
    assert by_chance == on_page
    assert fetch(parties.publisher, "SELECT count(*) FROM data.agents") == [(200,)]


_UNDONE = (
    "REVOKE SELECT ON pg_statistic FROM {role}", "DROP FUNCTION IF EXISTS data.all_rows()",
    "SELECT lo_unlink(oid) FROM pg_largeobject_metadata",
    "DROP FOREIGN DATA WRAPPER IF EXISTS w CASCADE", "DROP SEQUENCE IF EXISTS data.numbers",
    "DROP ROLE IF EXISTS agents_far, agents_near",
)  # fmt: skip


@pytest.mark.parametrize(
    ("grant", "named"),
    [
        ("GRANT SELECT (sick) ON data.agents TO {role}", "it may SELECT data.agents"),
        ("GRANT kanon_publisher TO {role}", "it is a member of kanon_publisher"),
        (
            (
                "CREATE ROLE agents_far; CREATE ROLE agents_near NOINHERIT;"
                " GRANT agents_far TO agents_near; GRANT agents_near TO {role}"
            ),
            "it is a member of agents_far",
        ),
        (
            "CREATE SEQUENCE data.numbers; GRANT SELECT ON SEQUENCE data.numbers TO {role}",
            "it may SELECT data.numbers",
        ),
        ("ALTER ROLE {role} BYPASSRLS", "it is allowed to bypass row security"),
        ("GRANT CREATE ON SCHEMA public TO {role}", "it may create in schema public"),
        ("GRANT CREATE ON DATABASE {database} TO {role}", "it may create schemas"),
        ("GRANT TRUNCATE ON data.agents TO {role}", "it may TRUNCATE data.agents"),
        ("ALTER ROLE {role} CREATEDB", "it is allowed to create databases"),
        ("GRANT SELECT ON pg_statistic TO {role}", "it may SELECT pg_catalog.pg_statistic"),
        (
            "CREATE FUNCTION data.all_rows() RETURNS int SECURITY DEFINER LANGUAGE sql RETURN 1",
            "it may execute data.all_rows(), which has its owner's rights",
        ),
        (
            "SELECT lo_create(4711); GRANT SELECT ON LARGE OBJECT 4711 TO {role}",
            "it may read large object 4711",
        ),
        (
            (
                "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER far FOREIGN DATA WRAPPER w;"
                " GRANT USAGE ON FOREIGN SERVER far TO {role}"
            ),
            "it may use foreign server far",
        ),
    ],
)
def test_a_login_with_more_rights_is_refused(
    parties: Parties, new_role: Any, grant: str, named: str
) -> None:
    from kanon_db.errors import PermissionDeniedError
    from kanon_db.interfaces.agent_server import AgentTools

    role = new_role("kanon_user")
    fetch(parties.publisher, f"GRANT USAGE ON SCHEMA data TO {quoted(role)}")
    dsn = make_conninfo(parties.dsn, user=role)
    AgentTools(dsn).close()
    database = quoted(parties.admin.info.dbname)
    for statement in grant.format(role=quoted(role), database=database).split("; "):
        fetch(parties.admin, statement)
    with pytest.raises(PermissionDeniedError) as refused:
        AgentTools(dsn)
    assert refused.value.detail == named
    fetch(parties.publisher, f"REVOKE USAGE ON SCHEMA data FROM {quoted(role)}")
    for statement in _UNDONE:
        fetch(parties.admin, statement.format(role=quoted(role)))
