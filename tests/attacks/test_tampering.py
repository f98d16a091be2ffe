"""Attacks on what was published: every change that breaks a promise is found, and named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import psycopg
import pytest

from kanon_db.query.layout import SUFFIXES
from tests.integration.parties import (
    WHOLE,
    Functions,
    Parties,
    create_source,
    failed_checks,
    fetch,
    keep_cells_with_rows,
    make_whole,
)


@pytest.fixture
def owner(parties: Parties) -> Iterator[psycopg.Connection]:
    """A superuser, in a transaction that is rolled back."""
    with parties.admin.transaction(force_rollback=True):
        yield parties.admin


def tamper(
    owner: psycopg.Connection, name: str, statements: str, names: Mapping[str, str]
) -> list[str]:
    """Run statements, in which names stand for others; the checks that fail then."""
    for short, filled in names.items():
        statements = statements.replace(short, filled)
    for statement in statements.split("; ") if "$$" not in statements else [statements]:
        fetch(owner, statement)
    make_whole(owner, name, sorted({x for x in names.values() if x.startswith("published.")}))
    return failed_checks(owner, name)


# -- buckets ---------------------------------------------------------------------------------------

RECORDS = "every record is published once"
QIT_SIZES = "QIT: every bucket has the size that follows from its number"
SAT_SIZES = "SAT: every bucket has the size that follows from its number"
BITMAPS = "bitmaps repeat QIT and SAT (all buckets)"
COUNTS = "SAT counts each value of a bucket once"
F_PRIME = "F'-privacy: frequency in bucket <= threshold"
RELATIONS = "QIT and SAT are tables, and the view reads nothing else"

# What is done to the tables, and the check that must name it.
TAMPERINGS: dict[str, tuple[str, str]] = {
    "a record moves to another bucket": (
        (
            "UPDATE $qit SET bucket_id = $large WHERE ctid = (SELECT min(ctid) FROM $qit WHERE "
            "bucket_id = $small)"
        ),
        QIT_SIZES,
    ),
    "a record moves to a bucket that does not exist": (
        "UPDATE $qit SET bucket_id = 999999 WHERE $a_record",
        QIT_SIZES,
    ),
    "a record loses its bucket": ("UPDATE $qit SET bucket_id = NULL WHERE $a_record", QIT_SIZES),
    "a record is removed": ("DELETE FROM $qit WHERE $a_record", RECORDS),
    "a record is added": ("INSERT INTO $qit (age, bucket_id) VALUES (1, $small)", RECORDS),
    "a record and its value are removed": (
        (
            "WITH s AS (UPDATE $sat SET count = count - 1 WHERE ctid = (SELECT min(ctid) FROM $sat "
            "WHERE bucket_id = $large)) DELETE FROM $qit WHERE ctid = (SELECT min(ctid) FROM $qit "
            "WHERE bucket_id = $large)"
        ),
        RECORDS,
    ),
    "a count is raised": ("UPDATE $sat SET count = count + 1 WHERE $a_count", SAT_SIZES),
    "a count is removed": ("UPDATE $sat SET count = NULL WHERE $a_count", SAT_SIZES),
    "a count is negative": ("UPDATE $sat SET count = -count WHERE $a_count", SAT_SIZES),
    "a count is huge": ("UPDATE $sat SET count = 2147483647 WHERE $a_count", SAT_SIZES),
    "counts cancel out": (
        (
            "WITH s AS (INSERT INTO $sat SELECT bucket_id, 'new', -1 FROM $sat WHERE $a_count) "
            "UPDATE $sat SET count = count + 1 WHERE $a_count"
        ),
        SAT_SIZES,
    ),
    "a count lies in no bucket": ("UPDATE $sat SET bucket_id = -7 WHERE $a_count", SAT_SIZES),
    "a count lies in a bucket that does not exist": (
        "UPDATE $sat SET bucket_id = 999999 WHERE $a_count",
        SAT_SIZES,
    ),
    "a count loses its bucket": ("UPDATE $sat SET bucket_id = NULL WHERE $a_count", SAT_SIZES),
    "a value takes over a bucket": (
        (
            "WITH s AS (DELETE FROM $sat WHERE bucket_id = $small RETURNING *) INSERT INTO $sat "
            "SELECT bucket_id, min(value), sum(count)::int4 FROM s GROUP BY 1"
        ),
        F_PRIME,
    ),
    "a value takes the place of another": (
        (
            "UPDATE $sat SET value = (SELECT min(value) FROM $sat WHERE bucket_id = $small) WHERE "
            "bucket_id = $small"
        ),
        COUNTS,
    ),
    "a row of the SAT is removed": ("DELETE FROM $sat WHERE $a_count", RECORDS),
    "a row of the SAT is doubled": ("INSERT INTO $sat SELECT * FROM $sat WHERE $a_count", COUNTS),
    "a bucket vanishes from both": (
        (
            "WITH q AS (DELETE FROM $qit WHERE bucket_id = $small) DELETE FROM $sat WHERE bucket_id"
            " = $small"
        ),
        RECORDS,
    ),
    "all buckets become one": (
        (
            "WITH q AS (UPDATE $qit SET bucket_id = 1), s AS (DELETE FROM $sat RETURNING value, "
            "count) INSERT INTO $sat SELECT 1, value, sum(count)::int4 FROM s GROUP BY value"
        ),
        QIT_SIZES,
    ),
    "everything is removed": ("WITH q AS (DELETE FROM $qit) DELETE FROM $sat", RECORDS),
    "buckets exchange their numbers in the QIT": ("$swap_qit", QIT_SIZES),
    "buckets exchange their numbers in the SAT": ("$swap_sat", SAT_SIZES),
    "buckets exchange their numbers in both": ("WITH q AS ($swap_qit) $swap_sat", QIT_SIZES),
    "all records of a bucket lose it": (
        "UPDATE $qit SET bucket_id = NULL WHERE bucket_id = $large",
        QIT_SIZES,
    ),
    "a bucket holds another value": ("UPDATE $sat SET value = 'new' WHERE $a_count", BITMAPS),
    "a bitmap changes": (
        "UPDATE $bit SET bits = set_bit(bits, 5, 1 - get_bit(bits, 5)) WHERE $a_bitmap",
        BITMAPS,
    ),
    "a bitmap is removed": ("DELETE FROM $bit WHERE $a_bitmap", BITMAPS),
    "a bitmap is doubled": ("INSERT INTO $bit SELECT * FROM $bit WHERE $a_bitmap", BITMAPS),
    "a bitmap gets longer": ("UPDATE $bit SET bits = bits || bits WHERE $a_bitmap", BITMAPS),
    "a bitmap gets lost": ("UPDATE $bit SET bits = NULL WHERE $a_bitmap", BITMAPS),
    "a bitmap of a value that does not occur": (
        (
            "INSERT INTO $bit (attribute, value, bits) SELECT attribute, 'new', bits FROM $bit "
            "WHERE attribute = 'value' LIMIT 1"
        ),
        BITMAPS,
    ),
    "bitmaps exchange their values": (
        (
            "UPDATE $bit SET value = CASE value WHEN 'a' THEN 'd' ELSE 'a' END WHERE value IN ('a',"
            " 'd')"
        ),
        BITMAPS,
    ),
    "a table hides rows": ("ALTER TABLE $sat ENABLE ROW LEVEL SECURITY", RELATIONS),
    "the view reads the source": (
        (
            "DO $$BEGIN GRANT USAGE ON SCHEMA data TO kanon_owner; GRANT SELECT ON $source TO "
            "kanon_owner; CREATE OR REPLACE VIEW $view AS SELECT age, value, 1::float8 AS weight "
            "FROM $source; END$$"
        ),
        RELATIONS,
    ),
    "the view calls a function": (
        (
            "CREATE OR REPLACE VIEW $view AS SELECT q.age, s.value, data.spy() AS weight FROM $qit "
            "AS q JOIN $sat AS s ON s.bucket_id = q.bucket_id"
        ),
        RELATIONS,
    ),
    "the view is gone": ("DROP VIEW $view", WHOLE),
    "the view is a table": (
        (
            "DO $$BEGIN DROP VIEW $view; CREATE TABLE $view AS SELECT age, value, 1 AS weight FROM "
            "$source; END$$"
        ),
        RELATIONS,
    ),
    "the QIT is a view of the source": (
        (
            "DO $$BEGIN ALTER TABLE $qit RENAME TO moved; ALTER TABLE published.moved SET SCHEMA "
            "data; CREATE VIEW $qit AS SELECT m.* FROM data.moved AS m; END$$"
        ),
        RELATIONS,
    ),
}

SWAP = (
    "UPDATE {} SET bucket_id = CASE bucket_id WHEN $small THEN $large ELSE $small END"
    " WHERE bucket_id IN ($small, $large)"
)


@pytest.fixture(scope="module", params=["anatomy", "two_size"])
def method(request: pytest.FixtureRequest, parties: Parties) -> str:
    """A publication with buckets of two sizes, verified."""
    name = str(request.param)
    if name == "anatomy":
        fetch(parties.publisher, "CREATE FUNCTION data.spy() RETURNS float8 RETURN 1")
        counts, privacy = [5, 5, 4, 3], '{"l": 3}'
    else:
        counts, privacy = [10, 8, 2, 1], '{"theta": 1.5, "base": 0.1}'
    rows = [(i, chr(97 + code)) for code, n in enumerate(counts) for i in range(n)]
    create_source(parties.publisher, f"data.{name}", "age int, value text", rows)
    published = Functions(parties.publisher).publish(
        f"data.{name}", name, privacy=privacy, method=name, max_bucket_size=12
    )
    sizes = [key for key in published["metrics"] if key.startswith("buckets_of_size_")]
    assert len(sizes) == 2
    return name


def test_untouched(owner: psycopg.Connection, method: str) -> None:
    assert failed_checks(owner, method) == []


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_tampering(owner: psycopg.Connection, method: str, tampering: str) -> None:
    ids = fetch(
        owner,
        f"SELECT bucket_id FROM published.{method}_qit GROUP BY 1 ORDER BY count(*), bucket_id",
    )
    statement, check = TAMPERINGS[tampering]
    first = "ctid = (SELECT min(ctid) FROM {})"
    names = {
        "$swap_qit": SWAP.format("$qit"), "$swap_sat": SWAP.format("$sat"),
        "$a_record": first.format("$qit"), "$a_count": first.format("$sat"),
        "$a_bitmap": first.format("$bit"), "$qit": f"published.{method}_qit",
        "$sat": f"published.{method}_sat", "$bit": f"published.{method}_bit",
        "$view": f"published.{method}", "$source": f"data.{method}",
        "$small": str(ids[0][0]), "$large": str(ids[-1][0]),
    }  # fmt: skip
    assert check in tamper(owner, method, statement, names)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_relation_of_another(owner: psycopg.Connection, method: str, suffix: str) -> None:
    """What belongs to anybody else is not even looked at."""
    relation = f"published.{method}{suffix}"
    fetch(owner, f"ALTER TABLE {relation} OWNER TO CURRENT_USER")
    assert failed_checks(owner, method) == [WHOLE]


@pytest.mark.parametrize("suffix", ["_qit", "_sat", "_bit"])
def test_dropped_table(owner: psycopg.Connection, method: str, suffix: str) -> None:
    fetch(owner, f"DROP TABLE published.{method}{suffix} CASCADE")
    assert failed_checks(owner, method) == [WHOLE]


# -- rows ------------------------------------------------------------------------------------------

VIEW = "the materialized view reads only the table of its rows"
COLUMNS = "the view has the published columns, and no identifier"
OF_ROWS_RECORDS = "every record is published once, or left out"
PATTERNS = "every row matches one of the patterns"
SHOWN = "every suppressed cell is NULL"
NUMBERS = "the numbers of the cells are those of the rows"
K_ANONYMITY = "k-anonymity: every combination of kept cells occurs k times"

# What is done to the rows before the view is refreshed, and the check that must name it.
ROWS: dict[str, tuple[str, str]] = {
    "a row is removed": ("DELETE FROM $rows WHERE $kept", OF_ROWS_RECORDS),
    "a row is added": ("INSERT INTO $rows SELECT * FROM $rows WHERE $kept", OF_ROWS_RECORDS),
    "everything is removed": ("DELETE FROM $rows", OF_ROWS_RECORDS),
    "a kept cell changes": ("UPDATE $rows SET age = 99 WHERE $kept", K_ANONYMITY),
    "a kept cell is lost": ("UPDATE $rows SET age = NULL WHERE $kept", K_ANONYMITY),
    "a suppressed cell is shown": ("UPDATE $rows SET town = 'x' WHERE $suppressed", SHOWN),
    "a left-over record is shown": ("UPDATE $rows SET age = 1 WHERE $left_over", SHOWN),
    "a mark disappears": ("UPDATE $rows SET pattern = '..' WHERE $suppressed", K_ANONYMITY),
    "a pattern that is not allowed": (
        "UPDATE $rows SET pattern = '*.', age = NULL WHERE $kept",
        PATTERNS,
    ),
    "a pattern is lost": ("UPDATE $rows SET pattern = NULL WHERE $kept", PATTERNS),
    "a pattern is cut": ("UPDATE $rows SET pattern = '.' WHERE $kept", PATTERNS),
    "a pattern is no pattern": ("UPDATE $rows SET pattern = '.?' WHERE $kept", PATTERNS),
}

# What is done to rows and cells that are in two tables.
OF_TWO: dict[str, tuple[str, str]] = {
    "a row has other cells": (
        (
            "UPDATE $rows SET number = (SELECT number FROM $cells WHERE pattern = '..') WHERE "
            "number IN (SELECT number FROM $cells WHERE pattern = '**')"
        ),
        NUMBERS,
    ),
    "a row has no cells": ("UPDATE $rows SET number = NULL WHERE $any", OF_ROWS_RECORDS),
    "a row is removed": ("DELETE FROM $rows WHERE $any", OF_ROWS_RECORDS),
    "cells change": ("UPDATE $cells SET age = 99 WHERE pattern = '..'", NUMBERS),
    "cells are removed": ("DELETE FROM $cells WHERE pattern = '..'", OF_ROWS_RECORDS),
    "cells are there twice": (
        "INSERT INTO $cells SELECT * FROM $cells WHERE pattern = '..'",
        OF_ROWS_RECORDS,
    ),
    "suppressed cells are shown": ("UPDATE $cells SET town = 'x' WHERE pattern = '.*'", SHOWN),
    "a mark disappears": ("UPDATE $cells SET pattern = '..' WHERE pattern = '.*'", NUMBERS),
    "the cells hide some": ("ALTER TABLE $cells ENABLE ROW LEVEL SECURITY", VIEW),
}

# What is done to the relations themselves.
RELATIONS_OF_ROWS: dict[str, tuple[str, str]] = {
    "the view is gone": ("DROP MATERIALIZED VIEW $view", WHOLE),
    "the view is a table": (
        "DROP MATERIALIZED VIEW $view; CREATE TABLE $view AS SELECT * FROM $rows",
        VIEW,
    ),
    "the view is not materialized": (
        "DROP MATERIALIZED VIEW $view; CREATE VIEW $view AS SELECT * FROM $rows",
        VIEW,
    ),
    "the view reads the source": ("$again age, town, sick, '..' AS pattern FROM data.people", VIEW),
    "the view calls a function": ("$again age, town, data.say() AS sick, pattern FROM $rows", VIEW),
    "the rows hide some": ("ALTER TABLE $rows ENABLE ROW LEVEL SECURITY", VIEW),
    "the view has lost a column": ("$again age, town, pattern FROM $rows", COLUMNS),
    "the view has a column more": (
        "$again age, town, sick, pattern, 'name' AS name FROM $rows",
        COLUMNS,
    ),
    "columns exchange their names": (
        "$again age, sick AS town, town AS sick, pattern FROM $rows",
        SHOWN,
    ),
}

_ONE = "ctid = (SELECT min(ctid) FROM $rows WHERE pattern = '{}')"
NAMES = {
    "$again": "DROP MATERIALIZED VIEW $view; CREATE MATERIALIZED VIEW $view AS SELECT",
    "$kept": _ONE.format(".."), "$suppressed": _ONE.format(".*"), "$left_over": _ONE.format("**"),
    "$any": "ctid = (SELECT min(ctid) FROM $rows)", "$rows": "published.people_row",
    "$cells": "published.people_cel", "$view": "published.people",
}  # fmt: skip
REFRESH = "; REFRESH MATERIALIZED VIEW $view"


@pytest.fixture(scope="module")
def people(parties: Parties) -> None:
    """Rows of all three patterns, left-over ones among them."""
    towns = ["a"] * 8 + [f"town {i}" for i in range(6)] + ["b"]
    ages = [30] * 8 + [40] * 6 + [99]
    rows = [(age, town, f"sick {age % 4}") for age, town in zip(ages, towns, strict=True)]
    fetch(parties.publisher, "CREATE FUNCTION data.say() RETURNS text RETURN 'x'")
    kanon = create_source(parties.publisher, "data.people", "age int, town text, sick text", rows)
    kanon.suppress(
        "data.people", "people", k=4, patterns=["..", ".*", "**"],
        options='{"left_over": "publish"}', accept='{"left_over_records": "it is a test"}',
    )  # fmt: skip
    patterns = "SELECT pattern, count(*) FROM published.people GROUP BY 1 ORDER BY 1"
    assert dict(fetch(parties.publisher, patterns)) == {"..": 8, ".*": 6, "**": 1}


@pytest.mark.usefixtures("people")
class TestRows:
    """What has its cells itself, as rows in batches, and what has them in a table of their own."""

    def test_untouched(self, owner: psycopg.Connection) -> None:
        assert tamper(owner, "people", REFRESH[2:], NAMES) == []
        keep_cells_with_rows(owner, "people")
        assert tamper(owner, "people", REFRESH[2:], NAMES) == []

    @pytest.mark.parametrize("case", ROWS)
    def test_rows(self, owner: psycopg.Connection, case: str) -> None:
        statement, check = ROWS[case]
        keep_cells_with_rows(owner, "people")
        assert check in tamper(owner, "people", statement + REFRESH, NAMES)

    @pytest.mark.parametrize("case", OF_TWO)
    def test_rows_and_cells(self, owner: psycopg.Connection, case: str) -> None:
        statement, check = OF_TWO[case]
        assert check in tamper(owner, "people", statement + REFRESH, NAMES)

    @pytest.mark.parametrize("case", RELATIONS_OF_ROWS)
    def test_relations(self, owner: psycopg.Connection, case: str) -> None:
        statements, check = RELATIONS_OF_ROWS[case]
        keep_cells_with_rows(owner, "people")
        assert check in tamper(owner, "people", statements, NAMES)

    def test_nothing_foreign_is_read(self, owner: psycopg.Connection) -> None:
        """What stands in the view's place is not run when somebody verifies."""
        keep_cells_with_rows(owner, "people")
        fetch(owner, "CREATE TABLE data.seen (n int)")
        fetch(
            owner,
            "CREATE FUNCTION data.trap() RETURNS text LANGUAGE sql"
            " AS $$INSERT INTO data.seen VALUES (1) RETURNING 'x'$$",
        )
        statements = (
            "DROP MATERIALIZED VIEW $view; CREATE VIEW $view AS"
            " SELECT age, town, data.trap() AS sick, pattern FROM $rows"
        )
        assert tamper(owner, "people", statements, NAMES) == [VIEW]
        assert fetch(owner, "SELECT count(*) FROM data.seen") == [(0,)]

    def test_metrics_of_what_is_gone(self, owner: psycopg.Connection) -> None:
        fetch(owner, "DROP MATERIALIZED VIEW published.people")
        with pytest.raises(psycopg.DatabaseError, match="have changed since they were published"):
            Functions(owner).metrics("people")
