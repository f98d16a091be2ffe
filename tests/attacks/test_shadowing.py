"""Attacks by look-alikes: objects with the names of the server's or ours, in reach of a caller.

Each look-alike raises an error, or gives a wrong answer, if anything of ours picks it up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from kanon_db.installation.install import install
from tests.integration.parties import (
    WAYS,
    Connection,
    Functions,
    Package,
    Parties,
    create_table,
    fetch,
    quoted,
)

ROOT = Path(__file__).parents[2]
OURS = [
    "alembic_version", "errand", "people", "publication", "publications", "setting", "shadowed",
    "shadowed_qit", "shadowed_sat", "source",
]  # fmt: skip
THE_SERVERS = sorted(
    {
        name
        for pattern in ("sql/*.sql", "kanon_db/**/*.py")
        for file in ROOT.glob(pattern)
        for name in re.findall(r"\bpg_[a-z_]+\b", file.read_text(encoding="utf-8"))
    }
    - {"pg_catalog", "pg_temp"}
)
"""Every name of the server's that our code mentions, its catalogs among them."""

RELATIONS = [*THE_SERVERS, *OURS]
TYPES = ["text", "int4", "int8", "numeric", "float8", "bool", "regclass", "oid", "record", "jsonb"]
FUNCTIONS = """
count(anyelement); sum(int4); format(text, text); format(text, anyelement); num_nulls(anyelement);
row_number(); string_agg(bytea, bytea); int8send(int8); get_byte(bytea, int4);
width_bucket(int4, int4[]); to_regclass(text); has_table_privilege(oid, text);
current_setting(text); set_config(text, text, bool); unnest(text[]); generate_series(int4, int4);
hashtextextended(text, int4); greatest(float8, float8); least(int8, int8); sqrt(float8);
coalesce_(int8, int4)
""".split(";")
OPERATORS = ["= (int4, int4)", "= (text, text)", "<> (text, text)", "< (int4, int4)",
             "<= (int4, int4)", ">= (int4, int4)", "* (int4, int4)", "/ (float8, int4)",
             "<< (int8, int4)", "| (int8, int4)", "~ (text, text)"]  # fmt: skip


Answers = dict[str, object]


def answers(parties: Parties, way: Callable[[Connection], Functions | Package]) -> Answers:
    """Publish, ask everything there is to ask, and drop again."""
    publisher, analyst = way(parties.publisher), way(parties.analyst)
    publisher.register("data.people", ["age", "sex"], "sick")
    publisher.publish("data.people", "shadowed", privacy='{"default": "1/3"}')
    query = "SELECT COUNT(*) FROM shadowed WHERE age > 3 AND sex <> 'b'"
    found: Answers = {
        "verify": analyst.verify("shadowed"),
        "metrics": analyst.metrics("shadowed"),
        "publications": analyst.publications(),
        "rewrite": analyst.rewrite(query),
        "estimate": analyst.estimate(query),
    }
    publisher.drop("shadowed")
    for kind in ("generalize", "freeform", "suppress"):
        options = {"method": "mondrian", "refine": False} if kind == "generalize" else {}
        options |= {"options": '{"refine": false}'} if kind == "freeform" else {}
        getattr(publisher, kind)("data.people", "shadowed", k=3, **options)
        checks, (*_, lower, upper) = analyst.verify("shadowed"), analyst.estimate(query)
        found[kind] = [(check, holds) for check, *_, holds in checks], lower <= upper
        assert publisher.attack("shadowed")
        publisher.drop("shadowed")
    assert fetch(parties.admin, "SELECT FROM kanon.publication") == []
    return found


@pytest.fixture(scope="module")
def expected(parties: Parties) -> dict[str, Answers]:
    """The answers, each way, where nobody has planted anything."""
    rows = [(i % 9, "ab"[i % 2], i % 4) for i in range(60)]
    create_table(parties.publisher, "data.people", "age int, sex text, sick int", rows)
    return {name: answers(parties, way) for name, way in WAYS.items()}


@pytest.fixture(scope="module")
def trap(parties: Parties, expected: dict[str, Answers]) -> None:
    """Look-alikes in a schema of a stranger's."""
    fetch(parties.admin, f"CREATE SCHEMA trap AUTHORIZATION {parties.stranger.info.user}")
    fetch(parties.admin, "GRANT USAGE ON SCHEMA trap TO PUBLIC")
    plant(parties.stranger, "trap")


@pytest.mark.pitfall(4)
@pytest.mark.usefixtures("trap")
def test_look_alikes_do_not_reach_the_installer(parties: Parties) -> None:
    """Installing again, with the look-alikes on the path of the whole database."""
    database = quoted(parties.admin.info.dbname)
    fetch(parties.admin, f"ALTER DATABASE {database} SET search_path = trap, pg_catalog, public")
    try:
        install(parties.dsn)
    finally:
        fetch(parties.admin, f"ALTER DATABASE {database} RESET search_path")


@pytest.mark.slow("publishes every kind twice")
@pytest.mark.pitfall(2)
@pytest.mark.usefixtures("trap")
def test_look_alikes_change_nothing(parties: Parties, expected: dict[str, Answers]) -> None:
    """Everything is published, verified and answered as where nobody planted anything.

    Though the look-alikes are in the schema that is first on everybody's path.
    """
    assert {"pg_class", "pg_roles", "pg_auth_members", "pg_inherits"} <= set(THE_SERVERS)
    for schema in ("trap", "pg_temp"):
        for connection in (parties.publisher, parties.analyst):
            if schema == "pg_temp":
                plant(connection, schema)
            fetch(connection, f"SET search_path = {schema}, pg_catalog, public")
        # Those same callers do fall for them in statements of their own.
        assert fetch(parties.publisher, "SELECT nothing FROM pg_class") == []
        with pytest.raises(psycopg.errors.CheckViolation):
            fetch(parties.publisher, "SELECT '7'::text")
        for name, way in WAYS.items():
            assert answers(parties, way) == expected[name], (schema, name)


def plant(connection: Connection, schema: str) -> None:
    for statement in look_alikes(schema):
        fetch(connection, statement)


def look_alikes(schema: str) -> Iterator[str]:
    """Statements that put look-alikes into a schema; types last, since they shadow at once."""
    raising = "LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'trapped'; END$$"
    for signature in FUNCTIONS:
        yield f"CREATE FUNCTION {schema}.{signature} RETURNS pg_catalog.text {raising}"
    for operator in OPERATORS:
        name, arguments = operator.split(" ", 1)
        left, right = arguments.strip("()").split(", ")
        function = quoted(f"trapped {operator}")
        yield f"CREATE FUNCTION {schema}.{function}{arguments} RETURNS pg_catalog.bool {raising}"
        yield (
            f"CREATE OPERATOR {schema}.{name} (FUNCTION = {schema}.{function},"
            f" LEFTARG = {left}, RIGHTARG = {right})"
        )
    temporary = "TEMPORARY" if schema == "pg_temp" else ""
    for name in RELATIONS:
        yield f"CREATE {temporary} TABLE {schema}.{name} (nothing pg_catalog.int4)"
        yield f"GRANT SELECT ON {schema}.{name} TO PUBLIC"
    for name in TYPES:
        yield (
            f"CREATE DOMAIN {schema}.{name} AS pg_catalog.varchar"
            " CHECK (pg_catalog.length(value) OPERATOR(pg_catalog.<) 0)"
        )
