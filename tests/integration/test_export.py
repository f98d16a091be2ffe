"""Publications as files: what is in them, in which order, and who may have them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyarrow import parquet

import kanon_db
from kanon_db.errors import (
    DatabaseError,
    DuplicateError,
    InvalidParameterError,
    KanonError,
    NotFoundError,
    PermissionDeniedError,
    ServerError,
)
from kanon_db.exports import FORMATS, RELATIONS
from kanon_db.interfaces.cli import main
from kanon_db.session.progress import Progress
from tests.acceptance.commands import kanon
from tests.integration.parties import Functions, Parties, create_source, create_table, fetch, value
from tests.integration.test_types import EXTENSIONS, SETUP, SHORT, TYPES
from tests.profiles import long_but

ILLNESSES = ("flu", "", None, "=1+1", "-5", "a;=1+1", 'say "so"', "two\nlines", "\\.", "é漢")


@pytest.fixture(scope="module")
def ill(parties: Parties) -> Parties:
    """People in the order of their ages, as buckets and as rows."""
    rows = [(i // 10, i % 3 or None, ILLNESSES[i % 10]) for i in range(600)]
    own = create_source(
        parties.publisher, "data.ill", "age int, sex int, sick text", rows, ["age", "sex"], "sick"
    )
    own.publish("data.ill", "ill", privacy='{"l": 3}', draws=True)
    own.generalize("data.ill", "ill_rows", k=5)
    return parties


def exported(parties: Parties, name: str, path: Path, who: str = "analyst", **options: Any) -> Any:
    with kanon_db.connect(parties.dsn_of(who)) as kanon:
        return kanon.export(name, path, **options)


def in_folder(path: Path) -> list[str]:
    return sorted(item.name for item in path.iterdir())


def read_csv(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))


@pytest.mark.long
@pytest.mark.parametrize("relation", RELATIONS)
def test_both_formats_have_the_rows_of_the_relation(
    ill: Parties, tmp_path: Path, relation: str
) -> None:
    table = f"published.ill{RELATIONS[relation]}"
    rows = fetch(ill.analyst, f"SELECT * FROM {table}")
    report = exported(ill, "ill", tmp_path / "a.parquet", relation=relation)
    found = [tuple(row.values()) for row in parquet.read_table(report.file).to_pylist()]
    assert sorted(map(repr, found)) == sorted(map(repr, rows))
    assert report.rows == len(rows)
    assert (report.relation, report.bytes) == (relation, (tmp_path / "a.parquet").stat().st_size)
    assert report.guarantee
    exported(ill, "ill", tmp_path / "a.csv", relation=relation)
    header, *lines = read_csv(tmp_path / "a.csv")
    assert header == list(report.columns)
    assert len(lines) == len(rows)


@pytest.mark.parametrize("name", ["ill", "ill_rows"])
def test_nothing_and_an_empty_text_stay_apart(ill: Parties, tmp_path: Path, name: str) -> None:
    exported(ill, name, tmp_path / "a.csv")
    exported(ill, name, tmp_path / "a.parquet")
    sick = [row["sick"] for row in parquet.read_table(tmp_path / "a.parquet").to_pylist()]
    assert {None, ""} <= set(sick)
    # As PostgreSQL reads it.
    columns = read_csv(tmp_path / "a.csv")[0]
    fetch(ill.admin, f"CREATE TEMPORARY TABLE back ({', '.join(f'{c} text' for c in columns)})")
    with ill.admin.cursor().copy("COPY pg_temp.back FROM STDIN (FORMAT csv, HEADER)") as copy:
        copy.write((tmp_path / "a.csv").read_bytes())
    counts = (
        "SELECT count(*) FILTER (WHERE sick IS NULL), count(*) FILTER (WHERE sick = '') FROM {}"
    )
    assert fetch(ill.admin, counts.format("pg_temp.back")) == fetch(
        ill.admin, counts.format(f"published.{name}")
    )
    fetch(ill.admin, "DROP TABLE pg_temp.back")


@pytest.mark.pitfall(39)
def test_spreadsheets_run_nothing(parties: Parties, tmp_path: Path) -> None:
    """Texts and names that are formulas are marked in CSV; in Parquet they are as they are."""
    column = "=cmd;1"
    texts = ["=1+1", "+1+1", "-2+3", "@SUM(1)", "\tx", "\r=1", "\uff1d1", "-5", "+1e3", "a;=1", "x"]
    rows = [(i % 5, texts[i % 11]) for i in range(440)]
    create_table(parties.publisher, "data.run", f'age int, "{column}" text', rows)
    own = Functions(parties.publisher)
    own.register("data.run", ["age"], column)
    own.publish("data.run", "run", privacy='{"l": 2}')
    exported(parties, "run", tmp_path / "run.csv", relation="sat")
    header, *rows = read_csv(tmp_path / "run.csv")
    place = header.index(f"'{column}")
    formulas = {text for text in texts if text[0] not in "ax"} - {"-5", "+1e3"}
    assert {row[place] for row in rows} == {*set(texts) - formulas, *(f"'{t}" for t in formulas)}
    raw = (tmp_path / "run.csv").read_text()
    assert f'"\'{column}"' in raw
    assert '"a;=1"' in raw
    exported(parties, "run", tmp_path / "run.parquet", relation="sat")
    table = parquet.read_table(tmp_path / "run.parquet")
    assert set(table[column].to_pylist()) == set(texts)
    own.drop("run")


@pytest.mark.parametrize("relation", ["view", "qit", "sat"])
def test_the_order_of_rows_tells_nothing(ill: Parties, tmp_path: Path, relation: str) -> None:
    """It is that of their own columns, wherever they lie on disk: the same rows, the same file."""
    exported(ill, "ill", tmp_path / "before.csv", relation=relation)
    first = parquet_of(ill, tmp_path, relation)
    fetch(ill.admin, "CREATE TEMPORARY TABLE moved AS TABLE published.ill_qit")
    fetch(ill.admin, "TRUNCATE published.ill_qit")
    fetch(ill.admin, "INSERT INTO published.ill_qit SELECT * FROM moved ORDER BY random()")
    fetch(ill.admin, "DROP TABLE moved")
    exported(ill, "ill", tmp_path / "after.csv", relation=relation)
    assert (tmp_path / "before.csv").read_bytes() == (tmp_path / "after.csv").read_bytes()
    assert parquet_of(ill, tmp_path, relation) == first


def parquet_of(ill: Parties, folder: Path, relation: str) -> bytes:
    path = folder / "ordered.parquet"
    exported(ill, "ill", path, relation=relation, replace=True)
    return path.read_bytes()


def test_only_who_may_read_it(ill: Parties, tmp_path: Path) -> None:
    """A plain SELECT of the caller's decides."""
    exported(ill, "ill", tmp_path / "publisher.csv", "publisher")
    path = tmp_path / "a.csv"
    with pytest.raises(PermissionDeniedError):
        exported(ill, "ill", path, "stranger")
    own = Functions(ill.publisher)
    reader = ill.publisher.info.user
    rows = [(i % 9, "abc"[i % 3]) for i in range(90)]
    create_table(ill.publisher, "data.own", "age int, sick text", rows)
    own.register("data.own", ["age"], "sick")
    own.publish("data.own", "own", privacy='{"l": 2}', readers=[reader])
    with pytest.raises(NotFoundError, match="or you may not read it"):
        exported(ill, "own", path)
    fetch(ill.publisher, f'GRANT SELECT ON published.own TO "{ill.analyst.info.user}"')
    exported(ill, "own", path)
    with pytest.raises(DatabaseError) as refused:
        exported(ill, "own", tmp_path / "b.csv", relation="qit")
    assert refused.value.sqlstate == "42501"
    assert in_folder(tmp_path) == ["a.csv", "publisher.csv"]
    own.drop("own")


def test_refusals(ill: Parties, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("kept")
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    for given in ({}, {"replace": True}):
        with pytest.raises(InvalidParameterError, match="ends nowhere"):
            exported(ill, "ill", loop, **given)
    loop.unlink()
    with pytest.raises(DuplicateError, match="exists already"):
        exported(ill, "ill", path)
    assert path.read_text() == "kept"
    for name, given, error in (
        ("a.txt", {}, InvalidParameterError),
        ("a.parquet.gz", {}, InvalidParameterError),
        ("b.csv", {"format": "xlsx"}, InvalidParameterError),
        ("b.csv", {"relation": "bit"}, InvalidParameterError),
        ("none/b.csv", {}, NotFoundError),
        ("", {"format": "csv", "replace": True}, InvalidParameterError),
        ("/dev/null", {"format": "csv", "replace": True}, InvalidParameterError),
    ):
        with pytest.raises(error):
            exported(ill, "ill", tmp_path / name, **given)
    with pytest.raises(NotFoundError, match="no such relation"):
        exported(ill, "ill_rows", tmp_path / "b.csv", relation="qit")
    with pytest.raises(NotFoundError, match="no such publication"):
        exported(ill, "absent", tmp_path / "b.csv")
    assert in_folder(tmp_path) == ["a.csv"]
    exported(ill, "ill", path, replace=True)
    assert path.read_text() != "kept"


def test_a_file_is_whole_or_not_there(
    ill: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a full disk nor a server that ends leaves anything; what was there stays."""
    path = tmp_path / "a.csv"
    path.write_text("kept")

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(ServerError, match="cannot be written") as refused:
            exported(ill, "ill", path, replace=True)
    assert refused.value.detail == "No space left on device"
    with kanon_db.connect(ill.dsn_of("analyst")) as connected:
        original = connected._session.copied

        def ended(statement: str) -> Any:
            rows = original(statement)
            yield next(rows)
            pid = connected._session.connection.info.backend_pid
            fetch(ill.admin, "SELECT pg_terminate_backend($1)", pid)
            yield from rows
            connected._session.fetch("SELECT 1")

        monkeypatch.setattr(connected._session, "copied", ended)
        with pytest.raises(KanonError):
            connected.export("ill", path, replace=True)
    assert in_folder(tmp_path) == ["a.csv"]
    assert path.read_text() == "kept"


def test_how_far_it_is_while_rows_come(
    ill: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection has room for no statement then, also where other sessions want to see it."""
    monkeypatch.setattr("kanon_db.session.progress._SECONDS_BETWEEN", 0)
    monkeypatch.setattr("kanon_db.exports._BYTES_AT_ONCE", 1000)
    said: list[Progress] = []
    with kanon_db.connect(ill.dsn_of("analyst"), on_progress=said.append) as connected:
        connected._session.connection.execute("SET kanon.progress = on")
        report = connected.export("ill", tmp_path / "a.csv")
        shown = connected._session.connection.execute("SHOW application_name").fetchone()
        assert shown is not None
        assert "kanon_db" in (shown if isinstance(shown, tuple) else shown.values())
    shares = [step.share for step in said if step.share is not None]
    assert said[-1].step == f"writing {report.rows:,} rows"
    assert len(shares) > 10
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.long
def test_a_row_may_be_longer_than_a_block(
    ill: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(ill, "ill", tmp_path / "a.parquet")
    monkeypatch.setattr("kanon_db.exports._BYTES_AT_ONCE", 5)
    exported(ill, "ill", tmp_path / "b.parquet")
    a, b = (parquet.read_table(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert a.equals(b)


def test_the_command(ill: Parties, tmp_path: Path) -> None:
    dsn = ill.dsn_of("analyst")
    path = tmp_path / "rows.csv.gz"
    done = kanon("export", "ill_rows", path, "--json", dsn=dsn).json()
    assert done["rows"] == 600
    assert done["format"] == "csv"
    assert done["columns"]["age"] == "int4range"
    assert gzip.decompress(path.read_bytes()).startswith(b"age,sex,sick\n")
    refused = kanon("export", "ill_rows", path, dsn=dsn)
    assert refused.returncode == 1
    assert "--replace" in refused.stderr
    assert kanon("export", "ill_rows", path, "--replace", dsn=dsn).returncode == 0
    how = ("--format", "parquet", "--relation", "qit")
    odd = kanon("export", "ill", tmp_path / "qit", *how, dsn=dsn)
    assert odd.stdout.startswith("Wrote 600 rows to ")
    assert parquet.read_metadata(tmp_path / "qit").num_rows == 600
    assert kanon("export", "ill", "x.csv", "--relation", "bit", dsn=dsn).returncode == 2
    options = {option.name: option for option in main.commands["export"].params}
    assert tuple(options["format"].type.choices) == FORMATS
    assert tuple(options["relation"].type.choices) == tuple(RELATIONS)


def test_parquet_needs_its_extra(
    ill: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ServerError, match="needs pyarrow"):
        exported(ill, "ill", tmp_path / "a.parquet")
    exported(ill, "ill", tmp_path / "a.csv")


# -- types -----------------------------------------------------------------------------------------

KEPT = {
    "smallint": "int16", "int": "int32", "bigint": "int64", "real": "float", "float8": "double",
    "bool": "bool", "numeric(9,2)": "decimal128(38, 2)", "timestamp": "string", "text": "string",
    "numeric": "string", "date": "string", "int[]": "string", "int4range": "string",
}  # fmt: skip
"""Types in Parquet of columns with the values of `TYPES`, some of which are infinite, or NaN."""


@pytest.fixture(scope="module")
def made(parties: Parties) -> None:
    for statement in SETUP:
        fetch(parties.admin, statement)


@pytest.mark.parametrize(
    "kind", long_but(SHORT, [kind for kind in TYPES if kind not in EXTENSIONS])
)
def test_every_type(parties: Parties, made: None, tmp_path: Path, kind: str) -> None:
    """Both formats give every value as the server writes it, to whoever asks, whatever is set."""
    own = Functions(parties.publisher)
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.typed")
    fetch(parties.publisher, f"CREATE TABLE data.typed (age int, typed {kind}, sick text)")
    texts: list[str | None] = [*TYPES[kind], None]
    with parties.publisher.cursor().copy(b"COPY data.typed FROM STDIN") as copy:
        for i in range(4 * len(texts)):
            text = texts[i % len(texts)]
            copy.write(f"{i % 4}\t{chr(92) + 'N' if text is None else text}\t{'ab'[i % 2]}\n")
    own.register("data.typed", ["age"], "sick", insensitive=["typed"])
    own.generalize("data.typed", "typed", k=2)
    report = exported(parties, "typed", tmp_path / "a.parquet")
    if kind in KEPT:
        assert report.columns["typed"] == KEPT[kind]
    found = parquet.read_table(tmp_path / "a.parquet")["typed"].to_pylist()
    exported(parties, "typed", tmp_path / "a.csv")
    header, *rows = read_csv(tmp_path / "a.csv")
    spelled = "SELECT CASE WHEN num_nulls(typed) = 0 THEN (typed)::text END FROM published.typed"
    with psycopg.connect(parties.dsn, autocommit=True) as admin:
        for name, text in (("timezone", "UTC"), ("intervalstyle", "iso_8601")):
            fetch(admin, f"SET {name} = '{text}'")
        expected = [text for (text,) in fetch(admin, spelled)]
    shown = [row[header.index("typed")] for row in rows]
    unmarked = [re.sub(r"^'(?=[=+@-])", "", text) for text in shown]
    assert sorted(unmarked) == sorted(text or "" for text in expected)
    assert sum(item is None for item in found) == sum(text is None for text in expected)
    if report.columns["typed"] == "string":
        assert sorted(map(str, found)) == sorted(map(str, expected))
    own.drop("typed")


def test_numbers_and_times_keep_their_types(parties: Parties, tmp_path: Path) -> None:
    rows = [(i % 5, "ab"[i % 2], f"{i}.50", "9999-12-31", f"2021-01-01 12:00:0{i % 9}.25+02",
             "23:59:59.999999") for i in range(100)]  # fmt: skip
    create_table(
        parties.publisher, "data.kept",
        "age int, sick text, paid numeric, until date, seen timestamptz, at time", rows,
    )  # fmt: skip
    own = Functions(parties.publisher)
    own.register("data.kept", ["age"], "sick", insensitive=["paid", "until", "seen", "at"])
    own.generalize("data.kept", "kept", k=5)
    fetch(parties.analyst, "SET timezone = 'Asia/Tokyo'")
    report = exported(parties, "kept", tmp_path / "a.parquet")
    assert report.columns == {
        "age": "string", "sick": "string", "paid": "decimal128(38, 2)", "until": "date32[day]",
        "seen": "timestamp[us, tz=UTC]", "at": "time64[us]",
    }  # fmt: skip
    found = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert sum(row["paid"] for row in found) == sum(Decimal(i) + Decimal("0.5") for i in range(100))
    assert {row["seen"].hour for row in found} == {10}
    own.drop("kept")


# -- a million rows --------------------------------------------------------------------------------

_RUN = """
import json, resource, sys
import kanon_db
import pyarrow.csv, pyarrow.parquet
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
with kanon_db.connect(sys.argv[1]) as kanon:
    before = peak()
    done = kanon.export(sys.argv[2], sys.argv[3])
    print(json.dumps({"rows": done.rows, "bytes": done.bytes, "mb": peak() - before}))
"""


@pytest.mark.long
@pytest.mark.parametrize("suffix", FORMATS)
def test_memory_is_bounded(parties: Parties, tmp_path: Path, suffix: str) -> None:
    """A file of more than 100 MB needs no more memory than a few of its blocks."""
    own = Functions(parties.publisher)
    if "wide" not in own.publications():
        fetch(
            parties.publisher,
            "CREATE TABLE data.wide AS SELECT i % 50 AS age, 'b' || i % 2 AS sick,"
            " md5(i::text) || repeat(md5((i + 1)::text), 20) AS note"
            " FROM generate_series(1, 200000) AS i",
        )
        own.register("data.wide", ["age"], "sick", insensitive=["note"])
        own.generalize("data.wide", "wide", k=5)
    path = tmp_path / f"wide.{suffix}"
    done = subprocess.run(
        [sys.executable, "-c", _RUN, parties.dsn_of("analyst"), "wide", str(path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["rows"] == 200_000
    assert value(parties.admin, "SELECT sum(length(note)) FROM published.wide") > 130_000_000
    assert found["mb"] < 110, found
