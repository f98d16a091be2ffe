"""Sources that are read as codes, without a copy: the same records, values and types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from kanon_db.errors import InfeasibleError, PermissionDeniedError
from kanon_db.publications import relations
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer import _packed_columns, coded_columns
from kanon_db.transfer._packed_columns import KnownValues, PackedDigits, are_close
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.coded_columns import _SourceReader, count_in_sample, read_coded, read_columns
from kanon_db.transfer.columns import (
    ColumnType,
    Relation,
    column_types,
    find_relation,
    fix_labels,
    label,
)
from kanon_db.transfer.snapshot import MAX_RECORDS, take_snapshot
from kanon_db.transfer.values import distinct_values, read_codes
from tests.integration.parties import Package, Parties, fetch, sqlstate_of

N_ROWS = 1500
NUMBERS = {
    "small": "(CASE WHEN i % 2 = 0 THEN 32767 ELSE -32768 END)::smallint",
    "negative": "nullif(-(i % 50), -7)",
    "large": "9223372036854775807 - i % 3",
    "odd": "(i % 9) * 2",
    "many": "i + 2000000000",
    "alone": "5",
}
FEW = {
    "word": "nullif('it''s ' || i % 5, 'it''s 3')",
    "short": "('w' || i % 4)::varchar(7)",
    "flag": "i % 2 = 0",
    "born": "'1970-01-01'::date + i % 40",
    "at": "'2020-01-01 10:00:00.123'::timestamp(3) + make_interval(hours => i % 3)",
    "mood": "(ARRAY['sad', 'ok', 'happy'])[1 + i % 3]::safe.mood",
    "home": "(ARRAY['north', 'south'])[1 + i % 2]::safe.side",
    "own": "('p' || i % 3) COLLATE \"C\"",
    "number": "i % 30",
}
COPIED = {
    "a number written in two ways": "(CASE WHEN i % 2 = 0 THEN 1.0 ELSE 1.00 END)",
    "blanks at the end": "('w' || i % 4)::char(5)",
    "two spans of the same length": "(ARRAY['24 hours', '1 day'])[1 + i % 2]::interval",
    "a collation that ignores case": "(ARRAY['a', 'A'])[1 + i % 2] COLLATE safe.caseless",
    "too many texts": "'w' || i",
    "long texts": "repeat('x', 1000) || i % 99",
    "a longer text": "CASE WHEN i % 40 = 0 THEN repeat('x', 70000) ELSE 'x' END",
    "numbers far apart": "i * 1000000",
    "only NULL": "NULL::int",
    "no text": "NULL::text",
    "two zeros": "(ARRAY[0.0, -0.0])[1 + i % 2]::float8",
}


@pytest.fixture(scope="module", autouse=True)
def types(parties: Parties) -> None:
    collation = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
    for statement in (
        "CREATE SCHEMA safe",
        "CREATE TYPE safe.mood AS ENUM ('sad', 'ok', 'happy')",
        "CREATE DOMAIN safe.side AS varchar(9) CHECK (value <> 'x')",
        f"CREATE COLLATION safe.caseless ({collation})",
        "GRANT USAGE ON SCHEMA safe TO public",
    ):
        fetch(parties.admin, statement)


def make(parties: Parties, columns: Mapping[str, str], n_rows: int = N_ROWS) -> None:
    """Make data.source."""
    listed = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.source CASCADE")
    fetch(
        parties.publisher,
        f"CREATE TABLE data.source AS SELECT {listed} FROM generate_series(1, {n_rows}) AS i",
    )


@contextmanager
def opened(
    parties: Parties, name: str
) -> Iterator[tuple[PsycopgSession, Relation, list[ColumnType]]]:
    """Begin a transaction; look a relation up."""
    session = PsycopgSession(parties.publisher)
    with session.transaction():
        relation, oid, _ = find_relation(session, name)
        yield session, relation, list(column_types(session, oid).values())


def read(
    parties: Parties, name: str = "data.source", most: int = MAX_RECORDS
) -> list[tuple[str | None, ...]] | None:
    """Return the texts of each record, sorted; None if the source needs a copy."""
    with opened(parties, name) as (session, relation, columns):
        found = read_coded(session, relation, columns, Allowance.of(session), most)
        if found is None:
            return None
        texts = []
        for column in found.columns.values():
            labels, counts = column.values.labels, column.values.counts
            assert np.bincount(column.codes, minlength=len(labels)).tolist() == counts.tolist()
            texts.append([labels[code] for code in column.codes.tolist()])
        return sorted(zip(*texts, strict=True), key=str)


def written(
    parties: Parties, columns: Mapping[str, str], name: str = "data.source"
) -> list[tuple[str | None, ...]]:
    """Return the texts of each row, sorted."""
    texts = ", ".join(f"{label(column)} AS text_{column}" for column in columns)
    with opened(parties, name) as (session, *_), fix_labels(session):
        rows = session.fetch(f"SELECT {texts} FROM {name}")
    return sorted((tuple(row.values()) for row in rows), key=str)


@pytest.mark.parametrize("columns", [NUMBERS, FEW], ids=["numbers", "few values"])
def test_as_they_are_written(
    parties: Parties, columns: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and in parts, as numbers that do not fit into one value of the server."""
    make(parties, columns)
    texts = written(parties, columns)
    assert read(parties) == texts
    fetch(parties.publisher, "ANALYZE data.source")
    monkeypatch.setattr(coded_columns, "_SAMPLE_OF_SOURCE", 300)
    assert read(parties) == texts
    monkeypatch.setattr(coded_columns, "_BYTES_OF_PART", 3200)
    monkeypatch.setattr(_packed_columns, "_AT_ONCE", 70)
    assert read(parties) == texts


@pytest.mark.parametrize("columns", [NUMBERS, FEW], ids=["numbers", "few values"])
def test_published_as_they_are(
    parties: Parties, columns: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """QIT has the source's values, and the types, lengths and collations of its columns."""
    monkeypatch.setattr(relations, "_ROWS_AT_ONCE", 700)
    make(parties, {**columns, "sick": "i % 7"})
    kanon = Package(parties.publisher)
    kanon.register("data.source", list(columns), "sick")
    kanon.publish("data.source", "as_they_are", privacy='{"l": 3}', assignment="random")
    assert all(holds for *_, holds in kanon.verify("as_they_are"))
    assert written(parties, columns, "published.as_they_are_qit") == written(parties, columns)
    shape = (
        "SELECT attname, format_type(atttypid, atttypmod), attcollation::regcollation::text"
        " FROM pg_attribute WHERE attrelid = to_regclass($1::text) AND attname = ANY($2::text[])"
    )
    found, own = (
        {name: rest for name, *rest in fetch(parties.admin, shape, of, list(columns))}
        for of in ("published.as_they_are_qit", "data.source")
    )
    if "home" in own:
        own["home"][0] = "character varying"  # without what only its domain knows
    assert found == own
    kanon.drop("as_they_are")


def test_when_records_came_is_kept(parties: Parties) -> None:
    """Also where this is a quasi-identifier: the next batch begins after the latest one."""
    make(parties, {"age": "i % 9", "came": "i % 40", "sick": "i % 7"})
    kanon = Package(parties.publisher)
    kanon.register("data.source", ["age", "came"], "sick", arrival="came")
    kanon.publish("data.source", "batches", privacy='{"l": 3}', assignment="random")
    latest = "SELECT upto FROM kanon.release WHERE name = 'batches'"
    assert fetch(parties.admin, latest) == [("39",)]
    kanon.drop("batches")


def test_what_needs_a_copy(parties: Parties) -> None:
    """Where equal values differ, or there are many, or nothing is there to compare."""
    for case, sql in COPIED.items():
        make(parties, {"age": "i % 9", "odd": sql})
        assert read(parties) is None, case


def test_views(parties: Parties) -> None:
    """Of a view no sample can be taken; whole numbers need none."""
    make(parties, {"age": "i % 9", "word": "'w' || i % 5"})
    fetch(parties.publisher, "CREATE VIEW data.numbers_only AS SELECT age FROM data.source")
    fetch(parties.publisher, "CREATE VIEW data.texts_too AS SELECT * FROM data.source")
    assert read(parties, "data.numbers_only") == written(parties, {"age": ""})
    assert read(parties, "data.texts_too") is None


def test_rows_that_are_refused(parties: Parties) -> None:
    for columns in ({"age": "i % 9"}, {"word": "'w' || i % 5"}):
        make(parties, columns)
        assert read(parties, most=N_ROWS) == written(parties, columns)
        assert sqlstate_of(lambda: read(parties, most=N_ROWS - 1)) == InfeasibleError.sqlstate
        for how in ("ENABLE", "FORCE"):
            fetch(parties.publisher, f"ALTER TABLE data.source {how} ROW LEVEL SECURITY")
        assert sqlstate_of(lambda: read(parties)) == PermissionDeniedError.sqlstate


@pytest.mark.parametrize(
    ("often", "columns", "more"),
    [
        (1, NUMBERS, "SELECT 7, -100 + {}, large, odd - 50, many + 90000, alone"),
        (2, FEW, "SELECT 'new ' || {}, short, flag, born, at, mood, home, own, number"),
        (9, FEW, "SELECT word, short, flag, born - 90 - {0}, at, mood, home, own, 1000 + {0}"),
    ],
    ids=["numbers", "texts", "dates"],
)
def test_values_that_come_meanwhile(
    parties: Parties,
    often: int,
    columns: Mapping[str, str],
    more: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was not known before is looked for, all is read again, and at last copied."""
    make(parties, columns)
    found = _SourceReader._digits

    def moved(
        reader: _SourceReader, known: Sequence[KnownValues]
    ) -> tuple[int, list[PackedDigits]]:
        nonlocal often
        often -= 1
        if often >= 0:
            fetch(
                parties.publisher,
                f"INSERT INTO data.source {more.format(often)} FROM data.source LIMIT 1",
            )
        return found(reader, known)

    monkeypatch.setattr(_SourceReader, "_digits", moved)
    lasts = often < 3
    assert read(parties) == (written(parties, columns) if lasts else None)


def test_rare_values_are_read_without_a_copy(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the sample misses are found by looking at all records."""
    monkeypatch.setattr(coded_columns, "_SAMPLE_OF_SOURCE", 50)
    columns = {"age": "i % 9", "word": "CASE WHEN i = 7 THEN 'rare' ELSE 'w' || i % 5 END"}
    make(parties, columns)
    assert read(parties) == written(parties, columns)


CLOSE = {
    **NUMBERS,
    "low": "-9223372036854775807 + i % 3",
    "rare": "CASE WHEN i = 1 THEN 1 END::bigint",
    **{f"wide_{n}": f"i * 200 % {400_000 - n}" for n in range(4)},  # do not fit into one number
}
FAR_APART = {
    "apart": "i % 2 * 2000000000",
    "least": "-9223372036854775807 - i % 2",
    "empty": "NULL::integer",
    "word": "'w' || i % 5",
}


def test_as_the_server_groups_them(parties: Parties) -> None:
    make(parties, {**CLOSE, **FAR_APART}, 2000)
    with opened(parties, "data.source") as (session, relation, columns):
        types = {column.name: column for column in columns}
        taken = take_snapshot(session, relation, list(types), Allowance.of(session))
        assert [name for name in types if are_close(taken.ends, types[name])] == list(CLOSE)
        found = read_columns(taken, columns, count_in_sample(taken, columns))
        assert list(found) == list(types)
        for name, column in found.items():
            alone = distinct_values(taken, types[name])
            assert column.values.labels == alone.labels
            assert column.values.counts.tolist() == alone.counts.tolist()
            assert np.array_equal(column.codes, read_codes(taken, [alone])[:, 0])
            assert type_of(session, column.values.table) == type_of(session, alone.table)


def type_of(session: PsycopgSession, table: str) -> str:
    (row,) = session.fetch(f"SELECT pg_typeof(value)::text AS type FROM {table} LIMIT 1")
    return str(row["type"])
