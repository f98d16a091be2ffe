"""Publishing columns of every kind of type, as quasi-identifier and as sensitive attribute."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction

import psycopg
import pytest

from kanon_db.query.expressions import Type
from kanon_db.query.ranges import AXES, RANGES, place_of, place_of_end, value_at, value_of_end
from tests.integration.parties import (
    KINDS,
    Functions,
    Package,
    Parties,
    check_published,
    create_source,
    drop_all,
    fetch,
    holds,
    sqlstate_of,
    value,
)
from tests.profiles import long_but

SETUP = (
    "CREATE SCHEMA types",
    "GRANT USAGE ON SCHEMA types TO PUBLIC",
    "CREATE TYPE types.mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE DOMAIN types.short AS text CHECK (length(value) < 9)",
    "CREATE DOMAIN types.shorter AS types.short CHECK (value <> 'x')",
    "CREATE TYPE types.pair AS (a int, b text)",
    "CREATE TYPE types.spans AS RANGE (subtype = text)",
    (
        "CREATE COLLATION types.ignoring (provider = icu, locale = 'und-u-ks-level2',"
        " deterministic = false)"
    ),
)

TYPES: dict[str, Sequence[str | None]] = {
    # Texts of values as COPY reads them, some of them equal though they are spelt apart.
    "smallint": ["1", "-1", "32767"],
    "int": ["1", "2", "-2147483648"],
    "bigint": ["1", "9223372036854775807", "-1"],
    "numeric": ["1.0", "1.00", "2", "NaN", "Infinity", "1e-30"],
    "numeric(9,2)": ["1.10", "1.1", "0"],
    "real": ["0.1", "NaN", "-0", "0"],
    "float8": ["NaN", "0", "-0", "Infinity", "0.1", "1e-300"],
    "money": ["1", "1.00", "2"],
    "text": ["", " ", "a", "A", "é", "e\u0301", "NULL", "null", "\\\\N", "%s", "漢字", "a'b\"c"],
    "varchar(5)": ["", "a", "a ", "b"],
    "char(4)": ["", "a", "a ", "ab"],
    '"char"': ["a", "b", ""],
    "name": ["a", "b"],
    "bool": ["t", "f"],
    "date": ["2020-02-29", "infinity", "0044-03-15 BC", "1999-12-31"],
    "time": ["00:00", "24:00", "12:30:00.5"],
    "timetz": ["00:00+00", "02:00+02"],
    "timestamp": ["2020-02-29 12:00", "-infinity", "2020-02-29 12:00:00.000001"],
    "timestamptz": ["2020-02-29 12:00+00", "2020-02-29 14:00+02", "infinity"],
    "interval": ["1 day", "24 hours", "1 mon", "30 days", "-1 year"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12"],
    "inet": ["10.0.0.1", "10.0.0.1/32", "10.0.0.0/8", "::1"],
    "cidr": ["10.0.0.0/8", "::/0"],
    "macaddr": ["08:00:2b:01:02:03", "08:00:2b:01:02:04"],
    "bit(3)": ["101", "000"],
    "varbit": ["101", "0101", ""],
    "oid": ["1", "2"],
    "pg_lsn": ["0/1", "1/0"],
    "jsonb": ['{"a": 1, "b": 2}', '{"b": 2, "a": 1.0}', "null", '"null"', "[]"],
    "bytea": ["\\\\x00", "\\\\xff27", "\\\\x"],
    "tsvector": ["a b", "b a", "c"],
    "types.mood": ["sad", "happy", "ok"],
    "int4range": ["[1,3)", "[1,2]", "empty", "(,)"],
    "types.spans": ["[a,b)", "empty"],
    "int4multirange": ["{}", "{[1,3),[5,6)}"],
    "int[]": ["{1,2}", "{}", "{NULL}", "{{1},{2}}", "[0:1]={1,2}"],
    "text[]": ["{a,NULL}", '{a,"NULL"}', "{}"],
    "types.short": ["a", "b", ""],
    "types.shorter": ["a", "b", ""],
    "types.pair": ["(1,a)", "(1,)", "(,)", "(,a)"],
    "types.pair[]": ['{"(1,a)","(,)"}', "{}"],
    "text COLLATE types.ignoring": ["a", "A", "b", "B", "c"],
    'text COLLATE pg_catalog."und-x-icu"': ["a", "A", "b"],
    "citext": ["a", "A", "b"],
    "hstore": ["a=>1", "a=>NULL", ""],
}
EXTENSIONS = ("citext", "hstore")
SHORT = {
    "numeric", "float8", "text", "char(4)", "date", "timestamptz", "interval", "jsonb",
    "types.mood", "types.pair", "text COLLATE types.ignoring", "citext",
}  # fmt: skip
"""One of each sort: what has several texts, no order, an order of its own, or parts."""


@pytest.fixture(scope="module")
def extensions(parties: Parties) -> set[str]:
    """Create the types; return the extensions that this server has."""
    available = {
        name for (name,) in fetch(parties.admin, "SELECT name::text FROM pg_available_extensions")
    }
    for name in available.intersection(EXTENSIONS):
        fetch(parties.admin, f"CREATE EXTENSION {name} SCHEMA public")
    for statement in SETUP:
        fetch(parties.admin, statement)
    return available


def bound(_: Fraction) -> Fraction:
    return Fraction(1, 2)


SETTINGS = (
    "timezone = 'Asia/Tokyo'",
    "datestyle = 'German'",
    "intervalstyle = 'sql_standard'",
    "extra_float_digits = -5",
    "bytea_output = 'escape'",
    "quote_all_identifiers = on",
)


@pytest.mark.parametrize("kind", long_but(SHORT, TYPES))
def test_sensitive_attribute(parties: Parties, extensions: set[str], kind: str) -> None:
    """Every value is published, and its own threshold is found by its text, whatever is set."""
    if kind in EXTENSIONS and kind not in extensions:
        pytest.skip(f"this server has no extension {kind}")
    texts: list[str | None] = [*TYPES[kind], None]
    table, publisher = "data.typed", Functions(parties.publisher)
    analyst = Functions(parties.analyst)
    drop_all(parties)
    fetch(parties.publisher, f"DROP TABLE IF EXISTS {table}")
    kind = f"public.{kind}" if kind in EXTENSIONS else kind
    fetch(parties.publisher, f"CREATE TABLE {table} (typed {kind}, plain int)")
    with parties.publisher.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
        for i in range(12 * len(texts)):
            text = texts[i % len(texts)]
            copy.write(f"{chr(92) + 'N' if text is None else text}\t{i % 5}\n")
    publisher.register(table, ["plain"], "typed")
    spelled = "SELECT DISTINCT format('%s', typed) FROM {} WHERE num_nulls(typed) = 0"
    values = fetch(parties.publisher, spelled.format(table))
    n = value(
        parties.publisher, f"SELECT count(*) FROM (SELECT typed FROM {table} GROUP BY typed) AS t"
    )
    if n != len(values) + 1:
        # Of equal values, such as 1.0 and 1.00, one stands for all: as it was published.
        publisher.publish(table, "typed", privacy='{"default": 0.5}', replace=True)
        values = fetch(parties.admin, spelled.format("published.typed_sat"))
    privacy = json.dumps({"values": {text: "1/2" for (text,) in values}, "null": "2/3"})
    for setting in SETTINGS:
        fetch(parties.publisher, f"SET {setting}")
        fetch(parties.analyst, f"SET {setting}")
    # No general rule covers a value that is not found among these.
    published = publisher.publish(table, "typed", privacy=privacy, replace=True)
    assert published["metrics"]["sensitive_values"] == len(values) + 1 == n
    assert published["metrics"].pop("cells")  # which only the publisher sees
    assert holds(parties.analyst, "typed")
    assert analyst.metrics("typed") == pytest.approx(published["metrics"], rel=1e-5)
    for connection in (parties.publisher, parties.analyst):
        fetch(connection, "RESET ALL")
    assert holds(parties.analyst, "typed")
    check_published(parties.publisher, table, "typed", ["plain"], "typed", lambda _: Fraction(2, 3))
    for condition in ("typed IS NULL", "typed IS NOT NULL", "typed IS NULL AND plain >= 0"):
        n = value(parties.publisher, f"SELECT count(*) FROM {table} WHERE {condition}")
        estimate, _, *bounds = analyst.estimate(f"SELECT COUNT(*) FROM typed WHERE {condition}")
        assert bounds[0] <= n <= bounds[1]
        assert estimate == pytest.approx(n)


@pytest.mark.long
def test_quasi_identifiers(parties: Parties, extensions: set[str]) -> None:
    """One table has a column of each type, with all its values and NULL."""
    kinds = [kind for kind in TYPES if kind not in EXTENSIONS or kind in extensions]
    names = [f"typed_{number}" for number, _ in enumerate(kinds)]
    columns = ", ".join(
        f"{name} {'public.' if kind in EXTENSIONS else ''}{kind}"
        for name, kind in zip(names, kinds, strict=True)
    )
    fetch(parties.publisher, f"CREATE TABLE data.all_types ({columns}, plain int)")
    with parties.publisher.cursor().copy("COPY data.all_types FROM STDIN") as copy:
        for i in range(240):
            texts = [[*(TYPES[kind]), None][i % (len(TYPES[kind]) + 1)] for kind in kinds]
            line = ["\\N" if text is None else text for text in texts]
            copy.write("\t".join([*line, str(i % 5)]) + "\n")
    kanon = Package(parties.publisher)
    kanon.register("data.all_types", names, "plain")
    kanon.publish("data.all_types", "all_types", privacy='{"l": 2}', method="anatomy")
    check_published(parties.publisher, "data.all_types", "all_types", names, "plain", bound)
    analyst = Package(parties.analyst)
    assert holds(parties.analyst, "all_types")
    for name, kind in zip(names, kinds, strict=True):
        n = value(parties.publisher, f"SELECT count(*) FROM data.all_types WHERE {name} IS NULL")
        found = analyst.estimate(f"SELECT COUNT(*) FROM all_types WHERE {name} IS NULL")
        assert found == (n, 0, n, n), kind
    kanon.drop("all_types")


@pytest.mark.parametrize("kind", long_but({"generalized"}, KINDS))
def test_types_are_known_where_all_names_are_quoted(parties: Parties, kind: str) -> None:
    """format_type() then says "text" and "integer" with quotes, which no type of ours has."""
    rows = [(f"r{i % 4}", i % 5, f"2020-01-{1 + i % 5:02}", f"d{i % 3}") for i in range(60)]
    columns = "region text, age int, day date, sick text"
    table, seen = f"data.quoted_{kind}", []
    publisher = create_source(parties.publisher, table, columns, rows)
    for setting in ("off", "on"):
        for connection in (parties.publisher, parties.analyst):
            fetch(connection, f"SET quote_all_identifiers = {setting}")
        publisher.register(table, ["region", "age", "day"], "sick")
        publisher.of_kind(kind, table, "quoted")
        seen.append(
            fetch(
                parties.admin,
                "SELECT attname, atttypid FROM pg_attribute WHERE attnum > 0"
                " AND attrelid = 'published.quoted'::regclass ORDER BY attnum",
            )
        )
        for condition, exact in (
            ("region LIKE 'r1%'", 15),
            ("age + 1 > 3 AND day > DATE '2020-01-03'", 24),
        ):
            query = f"SELECT COUNT(*) FROM quoted WHERE {condition}"
            *_, lower, upper = Functions(parties.analyst).estimate(query)
            assert lower <= exact <= upper
        assert holds(parties.analyst, "quoted")
        publisher.drop("quoted")
    for connection in (parties.publisher, parties.analyst):
        fetch(connection, "RESET ALL")
    assert seen[0] == seen[1]


OTHERS = {
    "mood": ["sad", "ok"], "pair": ["(1,a)", "(,)"], "spans": ["[a,b)", "empty"],
    "mood[]": ["{sad,ok}", "{}"],
}  # fmt: skip


@pytest.mark.pitfall(21)
def test_types_of_others_are_published_as_texts(parties: Parties) -> None:
    """Whoever owns a type could drop the published column with it, or attach casts to it."""
    fetch(parties.publisher, "CREATE TYPE data.mood AS ENUM ('sad', 'ok')")
    fetch(parties.publisher, "CREATE TYPE data.pair AS (a int, b text)")
    fetch(parties.publisher, "CREATE TYPE data.spans AS RANGE (subtype = text)")
    for kind, texts in OTHERS.items():
        rows = [(i % 4, [None, *texts][i % 3]) for i in range(48)]
        columns = f"plain int, typed data.{kind}"
        kanon = create_source(parties.publisher, "data.others", columns, rows)
        kanon.publish("data.others", "others", privacy='{"default": 0.5}')
        counted = "SELECT typed, sum(count) FROM published.others_sat GROUP BY typed"
        assert dict(fetch(parties.analyst, counted)) == {None: 16, texts[0]: 16, texts[1]: 16}
        fetch(parties.publisher, "DROP TABLE data.others")
        kanon.drop("others")


def test_refused(parties: Parties) -> None:
    """Types whose values cannot be told equal or put in order, in either role."""
    kanon = Functions(parties.publisher)
    for kind in ("json", "xml", "point", "box", "polygon", "xid", "cid", "json[]"):
        fetch(parties.publisher, "DROP TABLE IF EXISTS data.refused")
        fetch(parties.publisher, f"CREATE TABLE data.refused (typed {kind}, plain int)")
        for roles in ((["plain"], "typed"), (["typed"], "plain")):
            register = lambda: kanon.register("data.refused", *roles)
            assert sqlstate_of(register) == "42804", (kind, roles)
        # Where it plays no part, such a column is no obstacle.
        kanon.register("data.refused", ["plain"], None, identifiers=["typed"])


def test_arrays_and_json_of_a_subquery_are_no_constants(parties: Parties) -> None:
    """A key's JSON is not how PostgreSQL writes them, and the null of JSON is not NULL."""
    rows = [(["null", "1", '{"a": 1}'][i % 3], [[], [i % 2]][i % 2], i % 5) for i in range(60)]
    texts = [(told, "{" + ", ".join(map(str, listed)) + "}", sick) for told, listed, sick in rows]
    columns = "told jsonb, listed int[], sick int"
    kanon = create_source(parties.publisher, "data.documents", columns, texts)
    kanon.publish("data.documents", "documents", privacy='{"l": 2}')
    analyst = Functions(parties.analyst)
    for name, constant in (("told", "null"), ("listed", "{1}")):
        asked = f"SELECT COUNT(*) FROM documents WHERE {name} "
        subquery = f"(SELECT {name} FROM documents WHERE {name} = '{constant}' GROUP BY {name})"
        assert sqlstate_of(lambda: analyst.estimate(f"{asked} IN {subquery}")) == "0A000"
        n = value(parties.publisher, f"{asked} = '{constant}'".replace("FROM ", "FROM data."))
        assert analyst.estimate(f"{asked} IN ('{constant}')") == (n, 0, n, n)


def test_long_values(parties: Parties) -> None:
    """Values that no index can hold are published all the same."""
    fetch(
        parties.publisher,
        "CREATE TABLE data.long AS SELECT i % 7 AS age, (SELECT string_agg(md5((i % 4)::text ||"
        " j::text), '') FROM generate_series(1, 160) AS j) AS sick,"
        " repeat('long ', 1000) || i AS essay FROM generate_series(1, 80) AS i",
    )
    assert value(parties.publisher, "SELECT min(length(sick)) FROM data.long") > 5000
    kanon = Functions(parties.publisher)
    kanon.register("data.long", ["age", "essay"], "sick")
    kanon.publish(
        "data.long", "long", privacy='{"l": 4}', method="anatomy",
        accept='{"free_text": "made up"}',
    )  # fmt: skip
    check_published(
        parties.publisher, "data.long", "long", ["age", "essay"], "sick", lambda _: Fraction(1, 4)
    )


DESCRIBED = {
    "age": {"type": "integer"},
    "grade": {"labels": ["low", "high", "unused"]},
    "code": {"type": "bpchar", "length": 3},
    "sick": {"type": "text"},
}


def test_types_with_all_labels_and_nothing_else(parties: Parties) -> None:
    fetch(parties.publisher, "CREATE TYPE data.grade AS ENUM ('low', 'high', 'unused')")
    rows = [(i % 9, ("low", "high")[i % 2], f"c{i % 3}", f"d{i % 4}", i) for i in range(80)]
    columns = "age int, grade data.grade, code char(3), sick text, person int"
    kanon = create_source(
        parties.publisher, "data.kept", columns, rows, ["age", "grade", "code"], "sick",
        identifiers=["person"],
    )  # fmt: skip
    for kind in ("buckets", "generalized"):
        kanon.of_kind(kind, "data.kept", kind)
        layout = "SELECT layout::text FROM kanon.publications WHERE name = $1::text"
        types = json.loads(value(parties.analyst, layout, kind))["types"]
        types["grade"].pop("is_ordered", None)
        assert types == DESCRIBED, kind


_NUMBERS = ("-7", "0", "10", "9")
_FLOATS = ("-0.1", "0.1", "1e-5", "16777216", "2.5e10")
_TIMES = ("1999-12-31 23:59:59.999999", "2000-01-01", "2024-02-29 12:00")
ON_AXES = {
    **dict.fromkeys(("smallint", "integer", "bigint", "numeric"), _NUMBERS),
    **dict.fromkeys(("real", "double precision"), _FLOATS),
    "date": ("1999-12-31", "2000-01-01", "0044-03-15 BC", "2024-02-29"),
    **dict.fromkeys(("timestamp without time zone", "timestamp with time zone"), _TIMES),
    "time without time zone": ("00:00", "00:00:00.000001", "23:59:59.999999", "24:00"),
    "interval": ("-1 year", "0", "00:00:00.000001", "1 year", "364 days", "1 mon -30 days 1 hour"),
}
"""Values of each type that may be published as ranges."""


@pytest.mark.parametrize("name", AXES)
def test_values_stand_on_their_axis_in_their_order(parties: Parties, name: str) -> None:
    """Values are found again at their places, and as the ends of ranges of each type."""
    type_, axis = Type(name, "other"), AXES[name]
    values = f"unnest($1::text[]::{name}[]) AS {{0}} (v)".format
    own, other = (place_of(type_, f"{alias}.v") for alias in "ab")
    ends = [f"({axis.end.format('a.v')})::{RANGES[of].end}" for of in axis.ranges]
    conditions = [
        f"(a.v < b.v) = ({own} < {other})",
        f"(a.v < b.v) = ({axis.number.format('a.v')} < {axis.number.format('b.v')})",
        f"{value_at(type_, f'({own})::float8')} = a.v",
        f"num_nulls({value_at(type_, 'NULL::float8')}) = 1",
        *(f"num_nulls({value_of_end(type_, f'NULL::{RANGES[of].end}')}) = 1" for of in axis.ranges),
        *(f"{value_of_end(type_, end)} = a.v" for end in ends),
        *(f"{place_of_end(type_, end)} = {own}" for end in ends),
        *(f"{of}({end}, {end}, '[]') @> {end}" for of, end in zip(axis.ranges, ends, strict=True)),
    ]
    counted = ", ".join(f"count(*) FILTER (WHERE ({one}) IS NOT TRUE)" for one in conditions)
    (wrong,) = fetch(
        parties.admin, f"SELECT {counted} FROM {values('a')}, {values('b')}", list(ON_AXES[name])
    )
    assert dict(zip(conditions, wrong, strict=True)) == dict.fromkeys(conditions, 0)


def test_the_last_values_of_types_are_published_or_named(parties: Parties) -> None:
    """A range of days ends on the day after its last; all that estimates try is of the type."""
    last = ("5874897-12-31", *["294276-12-31 23:59:59.999999+00"] * 2)
    columns = ("day", "at", "zoned")
    kanon = create_source(
        parties.publisher, "data.last", "day date, at timestamp, zoned timestamptz, ill text",
        [(*last, "a"), (*["2020-01-01 00:00+00"] * 3, "b")] * 3,
    )  # fmt: skip
    with pytest.raises(psycopg.Error, match="a range would end beyond all values") as raised:
        kanon.generalize("data.last", "p", k=2)
    assert raised.value.diag.message_detail == 'column "day" of type date'
    assert "give the column a top" in str(raised.value.diag.message_hint)
    kanon.register("data.last", columns, "ill", attributes='{"day": {"top": "2021-01-01"}}')
    kanon.generalize("data.last", "p", k=2)
    assert holds(parties.publisher, "p")
    for column in columns:
        asked = f"SELECT COUNT(*) FROM p WHERE {column} > '2020-12-31'"
        assert Functions(parties.analyst).estimate(asked) == (3, 0, 3, 3)
    drop_all(parties)
    fetch(parties.publisher, "DROP TABLE data.last")
