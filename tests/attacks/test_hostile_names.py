"""Attacks through names: nothing in a name is ever read as SQL, a format or a path."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import cycle, product
from pathlib import Path

import psycopg
import pytest

from kanon_db.declaration import Operation
from kanon_db.errors import InvalidNameError, KanonError
from kanon_db.installation.install import install, uninstall
from kanon_db.operations import operations
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.csv_file import BLANKS
from kanon_db.transfer.csv_table import load_csv
from tests.hostile_input.arguments import as_json
from tests.hostile_input.entries import REFUSED, ways_in
from tests.hostile_input.tables import make_tables, restore
from tests.hostile_input.verdict import Verdict
from tests.integration.parties import (
    WAYS,
    Connection,
    Functions,
    Package,
    Parties,
    check_published,
    columns_of,
    create_source,
    create_table,
    fetch,
    holds,
    quoted,
    value,
)
from tests.profiles import long_but

NAMES = {
    "quotes": "x\"\"; it's '') ; DROP TABLE data.canary; -- /* c",
    "formats": "$$ $1 $python$ 100% %s %(n)s %I {} {0} {n!r} :n ::text",
    "escapes": '{"a": ["\\b", null]} \\\' \\n \\',
    "spaces": "  ..NULL.CamelCase.  ",
    "bytes": "漢" * 18 + "e\u0301é",
    "public": "public",
}
"""The worst that names can have: each has several things that were read as SQL somewhere."""

OWN = (
    "a", "b c", "select", "user", "16384", "q", "NULL", "n" * 59, "😀",
    "attribute", "bucket_id", "code", "count", "kanon_attribute",
    "kanon_count", "kanon_number", "kanon_pairs", "kanon_pattern", "kanon_positions", "label", "n",
    "number", "pattern", "positions", "record", "records", "size", "value", "weight",
)  # fmt: skip
"""Key words, and names that columns and aliases of ours have."""

HIDING = {
    "newline": "line\nbreak\r\n\ttab",
    "escape": "\x1b]0;title\x07",
    "control of eight bits": "a\x9b2Jb",
    "right to left": "e\u0301 \u202e right to left",
    "isolate": "a\u2066b",
    "mark": "a\u200fb",
}
"""Names that do not show what they are: those of tables may have them, and nothing of ours."""


@pytest.fixture(autouse=True)
def canary(parties: Parties) -> Iterator[None]:
    """A table that attacks try to drop, and that outlives them."""
    fetch(parties.publisher, "CREATE TABLE IF NOT EXISTS data.canary ()")
    yield
    fetch(parties.publisher, "SELECT FROM data.canary")


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Callable[[Connection], Functions | Package]:
    return WAYS[request.param]


@pytest.fixture
def hostile(request: pytest.FixtureRequest) -> str:
    return NAMES[request.param]


worst_names = pytest.mark.parametrize(
    "hostile", long_but(("quotes", "bytes"), NAMES), indirect=True
)


@pytest.fixture
def table(parties: Parties, hostile: str) -> Iterator[str]:
    """A table of 40 records; schema, table and a column are named alike, and two values."""
    schema, table = quoted(f"{hostile}_s"), quoted(f"{hostile}_s", hostile)
    other = "count" if hostile != "count" else "bucket_id"
    fetch(parties.publisher, f"CREATE SCHEMA {schema}")
    rows = [(i % 3, i % 7, hostile * (i % 4 == 0) or f"{hostile} {i % 4}") for i in range(40)]
    create_table(
        parties.publisher, table, f"{quoted(hostile)} int, {quoted(other)} int, sick text", rows
    )
    yield table
    fetch(parties.publisher, f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def reader(parties: Parties, hostile: str) -> Iterator[str]:
    """A role of a hostile name that may use the schema of publications."""
    role = quoted(hostile)
    if hostile == "public":
        yield "kanon_analyst"
        return
    fetch(parties.admin, f"CREATE ROLE {role} IN ROLE kanon_analyst")
    yield hostile
    fetch(parties.admin, f"DROP OWNED BY {role}")
    fetch(parties.admin, f"DROP ROLE {role}")


@pytest.mark.slow("every kind is published under each name")
@pytest.mark.pitfall(3)
@pytest.mark.parametrize(("hostile", "way"), long_but(
    [*zip(NAMES, cycle(WAYS))], product(NAMES, WAYS)
), indirect=True)  # fmt: skip
def test_hostile_names(
    parties: Parties,
    hostile: str,
    table: str,
    reader: str,
    way: Callable[[Connection], Functions | Package],
) -> None:
    """As the name of a schema, a table, a publication, a role, of columns, and as a value."""
    kanon = way(parties.publisher)
    first, second, sick = columns_of(parties.publisher, table)
    # Each way quotes names by itself, so both see each of them; which columns are the
    # quasi-identifiers is for the statements, which the ways have in common.
    qi, sensitive, privacy = (
        ([first, second], sick, {"default": "1/2", "values": {hostile: "1/3"}})
        if way is Functions
        else ([sick, second], first, {"l": 2})
    )
    attributes = {column: {"weight": 2} for column in qi}
    kanon.register(table, qi, sensitive, attributes=json.dumps(attributes))
    readers = [reader, "kanon_analyst"]
    published = kanon.publish(table, hostile, privacy=json.dumps(privacy), readers=readers)
    assert published["name"] == hostile
    check_published(parties.publisher, table, hostile, qi, sensitive, lambda _: Fraction(1, 2))
    assert holds(kanon.connection, hostile)
    assert kanon.metrics(hostile)["records"] == 40
    assert kanon.attack(hostile)
    assert kanon.publications() == [hostile]
    view = quoted("published", hostile)
    assert value(parties.publisher, f"SELECT count(*) FROM {view}") >= 40
    for suffix in ("", "_qit", "_sat"):
        assert may_read(parties, reader, hostile + suffix)
    check_answers(parties, way(parties.analyst), table, hostile)
    kanon.drop(hostile)
    assert kanon.publications() == []


def may_read(parties: Parties, reader: str, relation: str) -> bool:
    return bool(
        value(
            parties.admin,
            "SELECT has_table_privilege($1::text::name, $2::text, 'SELECT')",
            reader,
            quoted("published", relation),
        )
    )


def check_answers(parties: Parties, kanon: Functions | Package, table: str, hostile: str) -> None:
    """Put queries that are full of the name to a publication."""
    column, literal = quoted(hostile), hostile.replace("'", "''")
    for relation, condition in (
        (quoted(hostile), f"{column} = 2"),
        (quoted("published", hostile), f"sick = '{literal}'"),
        (f"{quoted(hostile)} AS {column}", f"{column}.{column} = 2"),
    ):
        n = value(parties.publisher, f"SELECT count(*) FROM {table} AS {column} WHERE {condition}")
        query = f"SELECT COUNT(*) FROM {relation} WHERE {condition}"
        assert kanon.estimate(query) == (n, 0, n, n)
        assert fetch(parties.analyst, kanon.rewrite(query))[0] == pytest.approx((n,))


def publish_rows(
    kanon: Functions | Package, table: str, name: str, qi: list[str], **options: object
) -> Iterator[None]:
    """Publish, check and drop each kind of publication of whole rows; pause at each."""
    weights = json.dumps({qi[0]: 2})
    for publish in (
        lambda: kanon.suppress(
            table, name, k=3, weights=weights,
            rules=json.dumps([{"at_most": 2, "of": qi[:2]}, {"at_most": len(qi)}]), **options,
        ),
        lambda: kanon.generalize(
            table, name, k=3, weights=weights, method="mondrian", refine=False, **options
        ),
        lambda: kanon.freeform(table, name, k=3, weights=weights, **options),
    ):  # fmt: skip
        publish()
        assert holds(kanon.connection, name)
        assert kanon.metrics(name)["records"] == 40
        yield
        kanon.drop(name)


@pytest.mark.long
@pytest.mark.pitfall(3)
@worst_names
def test_hostile_names_of_rows(parties: Parties, hostile: str, table: str, reader: str) -> None:
    """As a quasi-identifier's name, in rules, weights and constraints, and a publication's."""
    kanon = Package(parties.publisher)
    first, second, sick = columns_of(parties.publisher, table)
    kanon.register(table, [first, second], sick)
    assert len(kanon.patterns(table, rules=json.dumps([{"never": [first]}]))) == 2
    for _ in publish_rows(kanon, table, hostile, [first, second], readers=[reader]):
        assert columns_of(parties.publisher, quoted("published", hostile))[:3] == [
            first, second, sick,
        ]  # fmt: skip
        assert may_read(parties, reader, hostile)
        assert kanon.attack(hostile)
    kanon.generalize(
        table, hostile, k=3, method="initial", refine=False,
        constraints=json.dumps({"l": 2, "default": 1, "values": {hostile: "5/6"}}),
    )  # fmt: skip
    assert holds(kanon.connection, hostile)
    kanon.drop(hostile)
    with pytest.raises(KanonError):
        kanon.patterns(table, rules=json.dumps([{"never": [f"{hostile} "]}]))
    # As the name of the column that says whom a record is about, which is not published.
    kanon.register(table, [second], sick, entity=first)
    constraints = json.dumps({"l": 2})
    for publish in (
        lambda: kanon.suppress(table, "entities", k=2),
        lambda: kanon.generalize(table, "entities", k=2, refine=False, constraints=constraints),
    ):
        assert "different people" in publish()["guarantee"]
        shown = columns_of(parties.publisher, "published.entities")
        assert shown[:2] == [second, sick]
        assert shown[2:] in ([], ["pattern"])  # of suppressed rows
        assert holds(kanon.connection, "entities")
        kanon.drop("entities")


@pytest.mark.long
def test_hostile_names_side_by_side(parties: Parties) -> None:
    """Some of them name quasi-identifiers, the rest columns that are published as they are."""
    kanon, names = Package(parties.publisher), [*OWN, *NAMES.values()]
    columns = ", ".join(f"{quoted(name)} int" for name in names)
    rows = [[(i * (j + 1) + i // 3) % 3 for j in range(len(names))] for i in range(40)]
    create_table(parties.publisher, "data.all", columns, rows)
    for qi in (names[:8], names[-8:]):
        kanon.register("data.all", qi, None, insensitive=[n for n in names if n not in qi])
        for _ in publish_rows(kanon, "data.all", "all", qi):
            found = columns_of(parties.publisher, "published.all")
            assert found[: len(names)] == names
            others = ", ".join(quoted(name) for name in names if name not in qi)
            left, right = (f"SELECT {others} FROM {x}.all" for x in ("data", "published"))
            for missing in (f"{left} EXCEPT ALL {right}", f"{right} EXCEPT ALL {left}"):
                assert fetch(parties.publisher, missing) == []
    for sensitive in ("count", "bucket_id"):
        qi = [name for name in names if name != sensitive]
        kanon.register("data.all", qi, sensitive)
        kanon.publish("data.all", "all", privacy='{"l": 2}')
        check_published(
            parties.publisher, "data.all", "all", qi, sensitive, lambda _: Fraction(1, 2)
        )
        for name in names[sensitive == "count" :: 2]:
            where = f"{quoted(name)} = 2"
            n = value(parties.publisher, f"SELECT count(*) FROM data.all WHERE {where}")
            answer = kanon.estimate(f'SELECT COUNT(*) FROM "all" WHERE {where}')
            assert answer == (n, 0, n, n)
        kanon.drop("all")


MEANT: dict[str, object] = {
    "source": "data.people", "relation": "data.people", "publication": "ranged",
    "name": "ill", "k": 3, "label": "sex",
    "privacy": {"l": 2}, "quasi_identifiers": ["age"], "readers": ["kanon_analyst"],
    "query": "SELECT COUNT(*) FROM ill", "features": {"age": 3}, "rows": [{"age": 3}],
}  # fmt: skip
"""What the other arguments of a call are, where there must be some."""


def named(operation: Operation, hostile: str) -> Iterator[dict[str, object]]:
    """Put a name into each argument in turn: as a text, in a list, as a key, and as a value."""
    needed = {item.name: MEANT[item.name] for item in operation.parameters if item.is_required}
    for item in operation.parameters:
        if item.type.sql in ("text", "regclass"):
            yield {**needed, item.name: hostile}
        elif item.type.sql == "text[]":
            yield {**needed, item.name: [hostile]}
        elif item.type.sql == "jsonb":
            yield {**needed, item.name: {hostile: {hostile: 1}}}
            yield {**needed, item.name: [{"never": [hostile]}]}
    if "query" in needed:
        name, literal = quoted(hostile), hostile.replace("'", "''")
        for query in (
            f"SELECT COUNT(*) FROM {name}", f"SELECT COUNT(*) FROM ill WHERE {name} = 1",
            f"SELECT COUNT(*) AS {name} FROM ill AS {name} WHERE {name}.sex = '{literal}'",
        ):  # fmt: skip
            yield {"query": query}


@pytest.fixture(scope="module")
def tables(parties: Parties) -> None:
    make_tables(parties)


@pytest.mark.pitfall(3)
@pytest.mark.parametrize(("hostile", "name"), long_but(
    [*zip(cycle(NAMES), operations())], product(NAMES, operations())
), indirect=["hostile"])  # fmt: skip
def test_hostile_argument(parties: Parties, tables: None, name: str, hostile: str) -> None:
    """As every argument of every operation, by every way in: refused with a reason, or a name."""
    operation, verdict = operations()[name], Verdict(frozenset(REFUSED))
    for given in named(operation, hostile):
        for way, calling in ways_in(parties, operation, given):
            verdict.of(way, f"{operation.name}: {as_json(given)}", calling)
    restore(parties)
    assert verdict.defects == []
    if operation.parameters and hostile != "public":
        assert {outcome for _, outcome in verdict.outcomes} - {""}


def test_impossible_names(parties: Parties) -> None:
    """Of 60 bytes or more, empty, and what the driver cannot send."""
    kanon = create_source(parties.publisher, "data.plain", "a int, b int", [])
    for name in ("n" * 60, "n" * 64, "n" * 200, "漢" * 20, "é" * 30, "", "nul\0", "sole\ud800"):
        with pytest.raises(InvalidNameError):
            Package(parties.publisher).publish("data.plain", name, privacy='{"l": 2}')
        if "\0" not in name and name.isprintable():
            with pytest.raises(psycopg.errors.InvalidName):
                kanon.publish("data.plain", name, privacy='{"l": 2}')


@pytest.mark.pitfall(34)
@pytest.mark.parametrize("hiding", HIDING.values(), ids=HIDING)
def test_34_names_that_hide_what_they_are(parties: Parties, hiding: str) -> None:
    """They would reach terminals, comments, the ledger and reports."""
    kanon = Package(parties.publisher)
    before = kanon.publications()
    column, table = quoted(hiding), quoted("data", hiding)
    rows = [(1, hiding), (2, "x")] * 9  # values may be anything
    create_table(parties.publisher, table, f"{column} int, b text", rows)
    create_table(parties.publisher, "data.hiding", f"{column} int, b text, a int",
                 [(*row, i % 3) for i, row in enumerate(rows)])  # fmt: skip
    kanon.register("data.hiding", ["a"], "b")
    privacy = '{"l": 2}'
    for call in (
        lambda: kanon.publish("data.hiding", hiding, privacy=privacy),
        lambda: kanon.register("data.hiding", [hiding], "b"),
        lambda: kanon.register("data.hiding", ["b"], None, entity=hiding),
        lambda: kanon.register(table, ["b"], None),
        lambda: kanon.publish("data.hiding", "p", privacy=privacy, readers=[hiding]),
    ):
        with pytest.raises((InvalidNameError, psycopg.errors.InvalidName)):
            call()
        assert kanon.publications() == before
    kanon.publish("data.hiding", "values", privacy=privacy)
    assert holds(kanon.connection, "values")
    kanon.drop("values")
    fetch(parties.publisher, f"DROP TABLE {table}, data.hiding")


@pytest.mark.pitfall(3)
def test_hostile_csv(parties: Parties, tmp_path: Path) -> None:
    """Header, values and table of a CSV file named alike.

    A table's name is SQL text: unquoted, it is a name or refused, and never run.
    """
    session, file = PsycopgSession(parties.publisher), tmp_path / "hostile.csv"
    for hostile in (*NAMES.values(), *HIDING.values()):
        field, table = '"' + hostile.replace('"', '""') + '"', quoted("data", hostile)
        file.write_bytes(f"{field},other\n{field},1\n{field},2\n".encode())
        with session.transaction():
            assert load_csv(session, file, table).table == table
        name = " ".join(hostile.strip(BLANKS).split())
        assert columns_of(parties.publisher, table) == [name, "other"]
        rows = fetch(parties.publisher, f"SELECT {quoted(name)}::text, other FROM {table}")
        assert sorted(rows) == [(hostile, 1), (hostile, 2)]
        fetch(parties.publisher, f"DROP TABLE {table}")
        before = value(parties.admin, "SELECT count(*) FROM pg_class")
        with pytest.raises(KanonError), session.transaction():
            load_csv(session, file, "nowhere." + hostile)
        assert value(parties.admin, "SELECT count(*) FROM pg_class") == before


@pytest.mark.long
@pytest.mark.pitfall(3)
def test_hostile_database_and_schema(cluster_dsn: str) -> None:
    """Installing in a database, and into a schema, of hostile names."""
    database, schema = 'x"; DROP TABLE canary; -- $$ %s {}', "s\"; DROP TABLE canary; -- '"
    with psycopg.connect(cluster_dsn, autocommit=True) as connection:
        fetch(connection, f"CREATE DATABASE {quoted(database)} TEMPLATE template0")
    try:
        dsn = psycopg.conninfo.make_conninfo(cluster_dsn, dbname=database)
        install(dsn, published_schema=schema)
        with psycopg.connect(dsn, autocommit=True) as connection:
            fetch(connection, "CREATE TABLE people AS SELECT i % 3 AS a, i % 4 AS b"
                  " FROM generate_series(1, 60) AS i")  # fmt: skip
            kanon = Functions(connection)
            kanon.register("people", ["a"], "b")
            kanon.publish("people", "people", privacy='{"l": 3}')
            assert value(connection, f"SELECT count(*) FROM {quoted(schema, 'people_qit')}") == 60
            assert holds(kanon.connection, "people")
            kanon.drop("people")
        uninstall(dsn)
    finally:
        with psycopg.connect(cluster_dsn, autocommit=True) as connection:
            fetch(connection, f"DROP DATABASE {quoted(database)} WITH (FORCE)")
