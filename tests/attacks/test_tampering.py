"""Attacks on what was published: every change that breaks a promise is found, and named."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from kanon_db.query.layout import SUFFIXES
from tests.integration.parties import (
    WHOLE,
    Functions,
    Parties,
    create_source,
    fetch,
    make_whole,
)

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
            "UPDATE $qit SET bucket_id = $large WHERE ctid ="
            " (SELECT min(ctid) FROM $qit WHERE bucket_id = $small)"
        ),
        QIT_SIZES,
    ),
    "a record moves to a bucket that does not exist": (
        "UPDATE $qit SET bucket_id = 999999 WHERE ctid = (SELECT min(ctid) FROM $qit)",
        QIT_SIZES,
    ),
    "a record loses its bucket": (
        "UPDATE $qit SET bucket_id = NULL WHERE ctid = (SELECT min(ctid) FROM $qit)",
        QIT_SIZES,
    ),
    "a record is removed": ("DELETE FROM $qit WHERE ctid = (SELECT min(ctid) FROM $qit)", RECORDS),
    "a record is added": ("INSERT INTO $qit (age, bucket_id) VALUES (1, $small)", RECORDS),
    "a record and its value are removed": (
        (
            "WITH s AS (UPDATE $sat SET count = count - 1 WHERE ctid = (SELECT min(ctid) FROM $sat"
            " WHERE bucket_id = $large)) DELETE FROM $qit WHERE ctid ="
            " (SELECT min(ctid) FROM $qit WHERE bucket_id = $large)"
        ),
        RECORDS,
    ),
    "a count is raised": (
        "UPDATE $sat SET count = count + 1 WHERE ctid = (SELECT min(ctid) FROM $sat)",
        SAT_SIZES,
    ),
    "a count is removed": (
        "UPDATE $sat SET count = NULL WHERE ctid = (SELECT min(ctid) FROM $sat)",
        SAT_SIZES,
    ),
    "a count is negative": (
        "UPDATE $sat SET count = -count WHERE ctid = (SELECT min(ctid) FROM $sat)",
        SAT_SIZES,
    ),
    "a count is huge": (
        "UPDATE $sat SET count = 2147483647 WHERE ctid = (SELECT min(ctid) FROM $sat)",
        SAT_SIZES,
    ),
    "counts cancel out": (
        (
            "WITH s AS (INSERT INTO $sat SELECT bucket_id, 'new', -1 FROM $sat WHERE ctid ="
            " (SELECT min(ctid) FROM $sat)) UPDATE $sat SET count = count + 1 WHERE ctid ="
            " (SELECT min(ctid) FROM $sat)"
        ),
        SAT_SIZES,
    ),
    "a count lies in no bucket": (
        "UPDATE $sat SET bucket_id = -7 WHERE ctid = (SELECT min(ctid) FROM $sat)",
        SAT_SIZES,
    ),
    "a count lies in a bucket that does not exist": (
        "UPDATE $sat SET bucket_id = 999999 WHERE ctid = (SELECT min(ctid) FROM $sat)",
        SAT_SIZES,
    ),
    "a count loses its bucket": (
        "UPDATE $sat SET bucket_id = NULL WHERE ctid = (SELECT min(ctid) FROM $sat)",
        SAT_SIZES,
    ),
    "a value takes over a bucket": (
        (
            "WITH s AS (DELETE FROM $sat WHERE bucket_id = $small RETURNING *)"
            " INSERT INTO $sat SELECT bucket_id, min(value), sum(count)::int4 FROM s GROUP BY 1"
        ),
        F_PRIME,
    ),
    "a value takes the place of another": (
        (
            "UPDATE $sat SET value = (SELECT min(value) FROM $sat WHERE bucket_id = $small)"
            " WHERE bucket_id = $small"
        ),
        COUNTS,
    ),
    "a row of the SAT is removed": (
        "DELETE FROM $sat WHERE ctid = (SELECT min(ctid) FROM $sat)",
        RECORDS,
    ),
    "a row of the SAT is doubled": (
        "INSERT INTO $sat SELECT * FROM $sat WHERE ctid = (SELECT min(ctid) FROM $sat)",
        COUNTS,
    ),
    "a bucket vanishes from both": (
        (
            "WITH q AS (DELETE FROM $qit WHERE bucket_id = $small)"
            " DELETE FROM $sat WHERE bucket_id = $small"
        ),
        RECORDS,
    ),
    "all buckets become one": (
        (
            "WITH q AS (UPDATE $qit SET bucket_id = 1),"
            " s AS (DELETE FROM $sat RETURNING value, count)"
            " INSERT INTO $sat SELECT 1, value, sum(count)::int4 FROM s GROUP BY value"
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
    "a bucket holds another value": (
        "UPDATE $sat SET value = 'new' WHERE ctid = (SELECT min(ctid) FROM $sat)",
        BITMAPS,
    ),
    "a bitmap changes": (
        (
            "UPDATE $bit SET bits = set_bit(bits, 5, 1 - get_bit(bits, 5))"
            " WHERE ctid = (SELECT min(ctid) FROM $bit)"
        ),
        BITMAPS,
    ),
    "a bitmap is removed": ("DELETE FROM $bit WHERE ctid = (SELECT min(ctid) FROM $bit)", BITMAPS),
    "a bitmap is doubled": (
        "INSERT INTO $bit SELECT * FROM $bit WHERE ctid = (SELECT min(ctid) FROM $bit)",
        BITMAPS,
    ),
    "a bitmap gets longer": (
        "UPDATE $bit SET bits = bits || bits WHERE ctid = (SELECT min(ctid) FROM $bit)",
        BITMAPS,
    ),
    "a bitmap gets lost": (
        "UPDATE $bit SET bits = NULL WHERE ctid = (SELECT min(ctid) FROM $bit)",
        BITMAPS,
    ),
    "a bitmap of a value that does not occur": (
        (
            "INSERT INTO $bit (attribute, value, bits) SELECT attribute, 'new', bits FROM $bit"
            " WHERE attribute = 'value' LIMIT 1"
        ),
        BITMAPS,
    ),
    "bitmaps exchange their values": (
        (
            "UPDATE $bit SET value = CASE value WHEN 'a' THEN 'd' ELSE 'a' END"
            " WHERE value IN ('a', 'd')"
        ),
        BITMAPS,
    ),
    "a table hides rows": ("ALTER TABLE $sat ENABLE ROW LEVEL SECURITY", RELATIONS),
    "the view reads the source": (
        (
            "DO $$BEGIN GRANT USAGE ON SCHEMA data TO kanon_owner;"
            " GRANT SELECT ON $source TO kanon_owner; CREATE OR REPLACE VIEW $view AS"
            " SELECT age, value, 1::float8 AS weight FROM $source; END$$"
        ),
        RELATIONS,
    ),
    "the view calls a function": (
        (
            "CREATE OR REPLACE VIEW $view AS SELECT q.age, s.value, data.spy() AS weight"
            " FROM $qit AS q JOIN $sat AS s ON s.bucket_id = q.bucket_id"
        ),
        RELATIONS,
    ),
    "the view is gone": ("DROP VIEW $view", WHOLE),
    "the view is a table": (
        (
            "DO $$BEGIN DROP VIEW $view; CREATE TABLE $view AS SELECT age, value, 1 AS weight"
            " FROM $source; END$$"
        ),
        RELATIONS,
    ),
    "the QIT is a view of the source": (
        (
            "DO $$BEGIN ALTER TABLE $qit RENAME TO moved;"
            " ALTER TABLE published.moved SET SCHEMA data;"
            " CREATE VIEW $qit AS SELECT m.* FROM data.moved AS m; END$$"
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
    create_source(parties.publisher, f"data.{name}", "age int, value text", rows, ["age"], "value")
    published = Functions(parties.publisher).publish(
        f"data.{name}", name, privacy=privacy, method=name, max_bucket_size=12
    )
    sizes = [key for key in published["metrics"] if key.startswith("buckets_of_size_")]
    assert len(sizes) == 2
    return name


@pytest.fixture
def owner(parties: Parties) -> Iterator[psycopg.Connection]:
    """A superuser, in a transaction that is rolled back."""
    with parties.admin.transaction(force_rollback=True):
        yield parties.admin


def failed_checks(owner: psycopg.Connection, name: str) -> list[str]:
    return [check for check, _, _, holds in Functions(owner).verify(name) if not holds]


def test_untouched(owner: psycopg.Connection, method: str) -> None:
    assert failed_checks(owner, method) == []


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_tampering(owner: psycopg.Connection, method: str, tampering: str) -> None:
    ids = fetch(
        owner,
        f"SELECT bucket_id FROM published.{method}_qit GROUP BY 1 ORDER BY count(*), bucket_id",
    )
    statement, check = TAMPERINGS[tampering]
    for name, filled in {
        "$swap_qit": SWAP.format("$qit"),
        "$swap_sat": SWAP.format("$sat"),
        "$qit": f"published.{method}_qit",
        "$sat": f"published.{method}_sat",
        "$bit": f"published.{method}_bit",
        "$view": f"published.{method}",
        "$source": f"data.{method}",
        "$small": str(ids[0][0]),
        "$large": str(ids[-1][0]),
    }.items():
        statement = statement.replace(name, filled)
    fetch(owner, statement)
    make_whole(owner, method, [f"published.{method}{suffix}" for suffix in SUFFIXES])
    assert check in failed_checks(owner, method)


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
