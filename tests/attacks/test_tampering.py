"""Attacks on what was published: every change that breaks a promise is found, and named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

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
    value,
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
    for statement in statements.split("; "):
        fetch(owner, statement)
    make_whole(owner, name, sorted({x for x in names.values() if x.startswith("published.")}))
    try:
        with owner.transaction():
            return failed_checks(owner, name)
    except psycopg.errors.UndefinedObject as error:
        # Columns are gone, or more records than there can be: nothing is read by such an entry.
        return [UNREAD] if UNREAD in str(error.diag.message_detail) else [str(error)]


UNREAD = "is not as kanon_db writes it"


def changes(text: str) -> list[tuple[str, str]]:
    """Read the checks at the margin, and below each the changes that it must name."""
    found: list[tuple[str, str]] = []
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            check = line
        elif line.startswith(" " * 8):
            found[-1] = (check, f"{found[-1][1]} {line.strip()}")
        else:
            found.append((check, line.strip()))
    return found


def check_all(
    owner: psycopg.Connection, name: str, changes: Iterable[tuple[str, str]],
    names: Mapping[str, str], end: str = "",
) -> None:  # fmt: skip
    """Make each change, and take it back."""
    for check, statements in changes:
        with owner.transaction(force_rollback=True):
            failed = tamper(owner, name, statements + end, names)
            if check == WHOLE:
                assert failed == [WHOLE], statements
            else:
                assert check in failed or failed == [UNREAD], statements


# -- buckets ---------------------------------------------------------------------------------------

OF_BUCKETS = changes("""
every record is published once
    DELETE FROM $qit WHERE $a_record
    INSERT INTO $qit (age, bucket_id) VALUES (1, $small)
    UPDATE $sat SET count = count - 1 WHERE $a_count_of_large;
        DELETE FROM $qit WHERE $a_record_of_large
    DELETE FROM $sat WHERE $a_count
    DELETE FROM $qit WHERE bucket_id = $small; DELETE FROM $sat WHERE bucket_id = $small
    DELETE FROM $qit; DELETE FROM $sat
QIT: every bucket has the size that follows from its number
    UPDATE $qit SET bucket_id = $large WHERE $a_record_of_small
    UPDATE $qit SET bucket_id = 999999 WHERE $a_record
    UPDATE $qit SET bucket_id = NULL WHERE $a_record
    UPDATE $qit SET bucket_id = NULL WHERE bucket_id = $large
    $swap_qit
    $swap_qit; $swap_sat
    UPDATE $qit SET bucket_id = 1; WITH s AS (DELETE FROM $sat RETURNING value, count)
        INSERT INTO $sat SELECT 1, value, sum(count)::int4 FROM s GROUP BY value
SAT: every bucket has the size that follows from its number
    UPDATE $sat SET count = count + 1 WHERE $a_count
    UPDATE $sat SET count = NULL WHERE $a_count
    UPDATE $sat SET count = -count WHERE $a_count
    UPDATE $sat SET count = 2147483647 WHERE $a_count
    WITH s AS (INSERT INTO $sat SELECT bucket_id, 'new', -1 FROM $sat WHERE $a_count)
        UPDATE $sat SET count = count + 1 WHERE $a_count
    UPDATE $sat SET bucket_id = -7 WHERE $a_count
    UPDATE $sat SET bucket_id = 999999 WHERE $a_count
    UPDATE $sat SET bucket_id = NULL WHERE $a_count
    $swap_sat
F'-privacy: frequency in bucket <= threshold
    WITH s AS (DELETE FROM $sat WHERE bucket_id = $small RETURNING *)
        INSERT INTO $sat SELECT bucket_id, min(value), sum(count)::int4 FROM s GROUP BY 1
SAT counts each value of a bucket once
    UPDATE $sat SET value = (SELECT min(value) FROM $sat WHERE bucket_id = $small)
        WHERE bucket_id = $small
    INSERT INTO $sat SELECT * FROM $sat WHERE $a_count
codes repeat QIT and SAT
    UPDATE $sat SET value = 'new' WHERE $a_count
    UPDATE $codes SET codes = set_byte(codes, 0, get_byte(codes, 1)) WHERE column_no = 0
    UPDATE $codes SET codes = set_byte(codes, 0, 255)
    UPDATE $codes SET codes = set_byte(set_byte(codes, $step, get_byte(codes, 0)),
        0, get_byte(codes, $step)) WHERE column_no = 0
    UPDATE $codes SET codes = codes || codes
    UPDATE $codes SET codes = NULL WHERE column_no = 1
    UPDATE $codes SET chunk = 1
    DELETE FROM $codes WHERE column_no = 1
    INSERT INTO $codes SELECT * FROM $codes
    UPDATE $values SET value = translate(value, 'ad', 'da') WHERE value IN ('a', 'd')
    UPDATE $values SET code = -1 - code WHERE column_no = 1 AND code < 2;
        UPDATE $values SET code = 2 + code WHERE code < 0
    UPDATE $values SET code = 2147483647 WHERE column_no = 1 AND code = 2
    UPDATE $values SET age = 7 WHERE column_no = 1
    INSERT INTO $values (column_no, code, value) VALUES (1, 4, 'e')
    INSERT INTO $values (column_no, code, value) VALUES (9, 0, 'e')
    DELETE FROM $values WHERE column_no = 0 AND code = 3
QIT and SAT are tables, and the view reads nothing else
    ALTER TABLE $sat ENABLE ROW LEVEL SECURITY
    GRANT USAGE ON SCHEMA data TO kanon_owner; GRANT SELECT ON $source TO kanon_owner;
        CREATE OR REPLACE VIEW $view AS SELECT age, value, 1::float8 AS weight FROM $source
    CREATE OR REPLACE VIEW $view AS SELECT q.age, s.value, data.spy() AS weight
        FROM $qit AS q JOIN $sat AS s ON s.bucket_id = q.bucket_id
    DROP VIEW $view; CREATE TABLE $view AS SELECT age, value, 1 AS weight FROM $source
    ALTER TABLE $qit RENAME TO moved; ALTER TABLE published.moved SET SCHEMA data;
        CREATE VIEW $qit AS SELECT m.* FROM data.moved AS m
the published relations are there, and belong to kanon_owner
    DROP VIEW $view
    DROP TABLE $qit CASCADE
    DROP TABLE $sat CASCADE
    DROP TABLE $codes CASCADE
    DROP TABLE $values CASCADE
""")

SWAP = (
    "UPDATE {} SET bucket_id = CASE bucket_id WHEN $small THEN $large ELSE $small END"
    " WHERE bucket_id IN ($small, $large)"
)
STEP = "SELECT layout #>> '{first_bucket_ids,1}' FROM kanon.publications WHERE name = $1"
METHODS = {
    "anatomy": ([5, 5, 4, 3], '{"l": 3}'),
    "two_size": ([10, 8, 2, 1], '{"theta": 1.5, "base": 0.1}'),
}


def publish(parties: Parties, name: str) -> dict[str, str]:
    """Publish buckets of two sizes by a method; what stands for what in statements."""
    fetch(parties.admin, "CREATE OR REPLACE FUNCTION data.spy() RETURNS float8 RETURN 1")
    counts, privacy = METHODS[name]
    # Ages are unique: two records of a bucket that are exchanged differ.
    values = [chr(97 + code) for code, n in enumerate(counts) for _ in range(n)]
    rows = list(enumerate(values))
    kanon = create_source(parties.publisher, f"data.{name}", "age int, value text", rows)
    published = kanon.publish(
        f"data.{name}", name, privacy=privacy, method=name, max_bucket_size=12
    )
    assert sum(key.startswith("buckets_of_size_") for key in published["metrics"]) == 2
    ids = fetch(
        parties.publisher,
        f"SELECT bucket_id FROM published.{name}_qit GROUP BY 1 ORDER BY count(*), bucket_id",
    )
    first = "ctid = (SELECT min(ctid) FROM {})"
    of = "ctid = (SELECT min(ctid) FROM {} WHERE bucket_id = ${})"
    return {
        "$swap_qit": SWAP.format("$qit"), "$swap_sat": SWAP.format("$sat"),
        "$a_record_of_small": of.format("$qit", "small"),
        "$a_record_of_large": of.format("$qit", "large"),
        "$a_count_of_large": of.format("$sat", "large"),
        "$a_record": first.format("$qit"), "$a_count": first.format("$sat"),
        "$qit": f"published.{name}_qit", "$sat": f"published.{name}_sat",
        "$view": f"published.{name}", "$source": f"data.{name}",
        "$small": str(ids[0][0]), "$large": str(ids[-1][0]),
        # How far the second record of a bucket is from its first.
        "$step": value(parties.publisher, STEP, name),
        "$codes": f"published.{name}_cod", "$values": f"published.{name}_val",
    }  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_tampering(parties: Parties, owner: psycopg.Connection, method: str) -> None:
    names = publish(parties, method)
    assert failed_checks(owner, method) == []
    # They are judged alike, but for what is promised: one change for each check is enough.
    few = dict(reversed(OF_BUCKETS)).items()
    check_all(owner, method, OF_BUCKETS if method == "two_size" else few, names)
    # What belongs to anybody else is not even looked at.
    for suffix in SUFFIXES:
        with owner.transaction(force_rollback=True):
            fetch(owner, f"ALTER TABLE published.{method}{suffix} OWNER TO CURRENT_USER")
            assert failed_checks(owner, method) == [WHOLE], suffix


def test_a_number_with_the_same_hash_is_found(parties: Parties, owner: psycopg.Connection) -> None:
    """The server folds a bigint into half its bits before it hashes it."""
    kanon = create_source(
        parties.publisher, "data.wide", "age bigint, value int", [(i, i % 3) for i in range(9)]
    )
    kanon.publish("data.wide", "wide", privacy='{"l": 3}', method="anatomy")
    assert value(owner, "SELECT hashint8extended(1, 5) = hashint8extended(4294967296, 5)")
    change = "UPDATE published.wide_qit SET age = 4294967296 WHERE age = 1"
    assert tamper(owner, "wide", change, {}) == ["codes repeat QIT and SAT"]


def test_an_array_with_the_same_elements_is_found(
    parties: Parties, owner: psycopg.Connection
) -> None:
    """The server hashes the elements of an array, whatever its dimensions and bounds."""
    tags = [(f"{{tag,{i % 4}}}", i % 3) for i in range(12)]
    kanon = create_source(parties.publisher, "data.tags", "tags text[], sick int", tags)
    kanon.publish("data.tags", "tagged", privacy='{"l": 3}', method="anatomy")
    towns = [(f"town {i}", i % 3) for i in range(12)]
    kanon = create_source(parties.publisher, "data.towns", "town text, sick int", towns)
    kanon.generalize("data.towns", "in_sets", k=3, method="mondrian", refine=False)
    names = {
        "$cells": "published.in_sets_cel", "$rows": "published.in_sets_row",
        "$view": "published.in_sets",
    }  # fmt: skip
    for other in ("'{' || {0}::text || '}'", "'[2:' || 1 + cardinality({0}) || ']=' || {0}::text"):
        in_qit, in_cells = (f"({other})::text[]".replace("{0}", name) for name in ("tags", "town"))
        with owner.transaction(force_rollback=True):
            change = f"UPDATE published.tagged_qit SET tags = {in_qit} WHERE '1' = ANY (tags)"
            assert tamper(owner, "tagged", change, {}) == ["codes repeat QIT and SAT"]
        with owner.transaction(force_rollback=True):
            statements = (
                f"INSERT INTO $cells (number, town) SELECT 9, {in_cells} FROM $cells"
                " WHERE number = 0; UPDATE $rows SET number = 9 WHERE ctid ="
                " (SELECT min(ctid) FROM $rows WHERE number = 0); REFRESH MATERIALIZED VIEW $view"
            )
            differing = "k-anonymity: every combination of cells occurs k times"
            assert differing in tamper(owner, "in_sets", statements, names)


# -- rows ------------------------------------------------------------------------------------------

VIEW = "the materialized view reads only the table of its rows"

# What is done to the rows before the view is refreshed.
ROWS = changes("""
every record is published once, or left out
    DELETE FROM $rows WHERE $kept
    INSERT INTO $rows SELECT * FROM $rows WHERE $kept
    DELETE FROM $rows
k-anonymity: every combination of kept cells occurs k times
    UPDATE $rows SET age = 99 WHERE $kept
    UPDATE $rows SET age = NULL WHERE $kept
    UPDATE $rows SET pattern = '..' WHERE $suppressed
every suppressed cell is NULL
    UPDATE $rows SET town = 'x' WHERE $suppressed
    UPDATE $rows SET age = 1 WHERE $left_over
every row matches one of the patterns
    UPDATE $rows SET pattern = '*.', age = NULL WHERE $kept
    UPDATE $rows SET pattern = NULL WHERE $kept
    UPDATE $rows SET pattern = '.' WHERE $kept
    UPDATE $rows SET pattern = '.?' WHERE $kept
""")

# What is done to rows and cells that are in two tables.
OF_TWO = changes("""
the numbers of the cells are those of the rows
    UPDATE $rows SET number = (SELECT number FROM $cells WHERE pattern = '..')
        WHERE number IN (SELECT number FROM $cells WHERE pattern = '**')
    UPDATE $cells SET age = 99 WHERE pattern = '..'
    UPDATE $cells SET pattern = '..' WHERE pattern = '.*'
every record is published once, or left out
    UPDATE $rows SET number = NULL WHERE $any
    DELETE FROM $rows WHERE $any
    DELETE FROM $cells WHERE pattern = '..'
    INSERT INTO $cells SELECT * FROM $cells WHERE pattern = '..'
every suppressed cell is NULL
    UPDATE $cells SET town = 'x' WHERE pattern = '.*'
the materialized view reads only the table of its rows
    ALTER TABLE $cells ENABLE ROW LEVEL SECURITY
""")

# What is done to the relations themselves.
RELATIONS_OF_ROWS = changes("""
the published relations are there, and belong to kanon_owner
    DROP MATERIALIZED VIEW $view
the materialized view reads only the table of its rows
    DROP MATERIALIZED VIEW $view; CREATE TABLE $view AS SELECT * FROM $rows
    DROP MATERIALIZED VIEW $view; CREATE VIEW $view AS SELECT * FROM $rows
    $again age, town, sick, '..' AS pattern FROM data.people
    $again age, town, data.say() AS sick, pattern FROM $rows
    ALTER TABLE $rows ENABLE ROW LEVEL SECURITY
the view has the published columns, and no identifier
    $again age, town, pattern FROM $rows
    $again age, town, sick, pattern, 'name' AS name FROM $rows
every suppressed cell is NULL
    $again age, sick AS town, town AS sick, pattern FROM $rows
""")

_ONE = "ctid = (SELECT min(ctid) FROM $rows WHERE pattern = '{}')"
NAMES = {
    "$again": "DROP MATERIALIZED VIEW $view; CREATE MATERIALIZED VIEW $view AS SELECT",
    "$kept": _ONE.format(".."), "$suppressed": _ONE.format(".*"), "$left_over": _ONE.format("**"),
    "$any": "ctid = (SELECT min(ctid) FROM $rows)", "$rows": "published.people_row",
    "$cells": "published.people_cel", "$view": "published.people",
}  # fmt: skip
REFRESH = "; REFRESH MATERIALIZED VIEW $view"


def test_rows(parties: Parties, owner: psycopg.Connection) -> None:
    """Of all three patterns, left-over ones among them.

    What has its cells itself, as rows in batches, and what has them in a table of their own.
    """
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
    assert tamper(owner, "people", REFRESH[2:], NAMES) == []
    check_all(owner, "people", OF_TWO, NAMES, REFRESH)
    keep_cells_with_rows(owner, "people")
    assert tamper(owner, "people", REFRESH[2:], NAMES) == []
    check_all(owner, "people", ROWS, NAMES, REFRESH)
    check_all(owner, "people", RELATIONS_OF_ROWS, NAMES)
    # What stands in the view's place is not run when somebody verifies.
    with owner.transaction(force_rollback=True):
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
    fetch(owner, "DROP MATERIALIZED VIEW published.people")
    with pytest.raises(psycopg.DatabaseError, match="have changed since they were published"):
        Functions(owner).metrics("people")
