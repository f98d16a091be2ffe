"""Loading CSV files: the types that values show, nothing lost, nothing left behind."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kanon_db.errors import DuplicateError, InvalidParameterError, KanonError, NotFoundError
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.load import LoadReport, load_csv
from tests.integration.parties import Parties, columns_of, fetch, quoted, value
from tests.profiles import examples


def load(parties: Parties, path: Path, table: str = "data.loaded", **options: Any) -> LoadReport:
    session = PsycopgSession(parties.publisher)
    with session.transaction():
        return load_csv(session, path, table, **options)


def relations(parties: Parties) -> int:
    return int(value(parties.admin, "SELECT count(*) FROM pg_class"))


@pytest.fixture(autouse=True)
def loaded(parties: Parties) -> Iterator[None]:
    yield
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.loaded CASCADE")


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def written(text: str | bytes, name: str = "file.csv") -> Path:
        path = tmp_path / name
        data = text.encode() if isinstance(text, str) else text
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return written


COLUMNS: dict[str, tuple[list[str], str, list[Any]]] = {
    "boolean": (["t", "f", ""], "boolean", [True, False, None]),
    "boolean in words": (["True", "false", "TRUE"], "boolean", [True, False, True]),
    "boolean of numbers is integer": (["0", "1"], "integer", [0, 1]),
    "integer": (["1", "-2", "0", "999999999"], "integer", [1, -2, 0, 999_999_999]),
    "nulls": (["", "7", ""], "integer", [None, 7, None]),
    "bigint": (["1", "3000000000"], "bigint", [1, 3_000_000_000]),
    "more than bigint": (["1", "9" * 30], "numeric", [1, Decimal("9" * 30)]),
    "numeric": (["1.50", "-0.1", "7"], "numeric", [Decimal("1.50"), Decimal("-0.1"), 7]),
    "double precision": (["1e5", "2.5E-3", "1"], "double precision", [1e5, 2.5e-3, 1.0]),
    "leading zeros": (["01234", "99999"], "text", ["01234", "99999"]),
    "leading zeros with a point": (["00.5", "1"], "text", ["00.5", "1"]),
    "leading plus": (["+1", "2"], "text", ["+1", "2"]),
    "thousands": (["1,000", "2"], "text", ["1,000", "2"]),
    "spaces": ([" 1", "2"], "text", [" 1", "2"]),
    "not a number": (["NaN", "1"], "text", ["NaN", "1"]),
    "infinity": (["Infinity", "1"], "text", ["Infinity", "1"]),
    "minus": (["-", "1"], "text", ["-", "1"]),
    "exponent only": (["e5", "1"], "text", ["e5", "1"]),
    "digits of another script": (["१", "1"], "text", ["१", "1"]),
    "date": (["2020-02-29", "", "1999-12-31"], "date",
             [date(2020, 2, 29), None, date(1999, 12, 31)]),
    "point first": ([".5", "1e1"], "double precision", [0.5, 10.0]),
    "point alone": (["1e1", "."], "text", ["1e1", "."]),
    "point last": (["1.", "2"], "text", ["1.", "2"]),
    "impossible date": (["2021-02-29", "1999-12-31"], "text", ["2021-02-29", "1999-12-31"]),
    "date without zeros": (["2020-2-9", "1999-12-31"], "text", ["2020-2-9", "1999-12-31"]),
    "date of another order": (["31.12.1999", ""], "text", ["31.12.1999", None]),
    "timestamp": (
        ["2020-02-29 12:00", "2020-02-29T12:00:01.5"],
        "timestamp",
        [datetime(2020, 2, 29, 12), datetime(2020, 2, 29, 12, 0, 1, 500_000)],
    ),
    "impossible timestamp": (["2020-02-29 25:00"], "text", ["2020-02-29 25:00"]),
    "text": (["a", "", "1"], "text", ["a", None, "1"]),
    "only nulls": (["", ""], "text", [None, None]),
    "mixed at the end": ([*["1"] * 1500, "x"], "text", [*["1"] * 1500, "x"]),
    "larger at the end": ([*["1"] * 1500, "3000000000"], "bigint", [*[1] * 1500, 3_000_000_000]),
    "date at the end": ([*["1999-12-31"] * 1500, "1999-12-32"], "text",
                        [*["1999-12-31"] * 1500, "1999-12-32"]),
    "null at first": ([*[""] * 1500, "1"], "integer", [*[None] * 1500, 1]),
    "quotes": (['a "b"', "it's", "a,b", "a\nb", "a\r\nb"], "text",
               ['a "b"', "it's", "a,b", "a\nb", "a\r\nb"]),
    "backslashes": (["\\N", "\\.", "a\\nb", "\\"], "text", ["\\N", "\\.", "a\\nb", "\\"]),
    "unicode": (["漢字", "é", "😀"], "text", ["漢字", "é", "😀"]),
    "null in words": (["NULL", "null", "None"], "text", ["NULL", "null", "None"]),
}  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", ["file.csv", "file.csv.gz"])
def test_types(parties: Parties, write: Any, column: str, name: str) -> None:
    texts, kind, values = COLUMNS[column]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["number", "column"])
    writer.writerows([(i, text) for i, text in enumerate(texts)])
    report = load(parties, write(buffer.getvalue(), name))
    assert report.records == len(texts)
    assert report.columns == [("number", "integer"), ("column", kind)]
    rows = fetch(parties.publisher, 'SELECT "column" FROM data.loaded ORDER BY number')
    assert [found for (found,) in rows] == values
    assert len({type(found) for (found,) in rows if found is not None}) <= 1


LAYOUTS: dict[str, tuple[bytes, list[str], list[tuple[object, ...]]]] = {
    "byte-order mark": (b"\xef\xbb\xbfa,b\n1,2\n", ["a", "b"], [(1, 2)]),
    "windows lines": (b"a,b\r\n1,2\r\n3,4\r\n", ["a", "b"], [(1, 2), (3, 4)]),
    "no last line end": (b"a,b\n1,2", ["a", "b"], [(1, 2)]),
    "quoted header": (b'"a ""x""","b,c"\n1,2\n', ['a "x"', "b,c"], [(1, 2)]),
    "header of several lines": (b'"a\nx",b\n1,2\n', ["a\nx", "b"], [(1, 2)]),
    "header alone": (b"a,b\n", ["a", "b"], []),
    "header without line end": (b"a,b", ["a", "b"], []),
    "one column": (b"a\n1\n2\n", ["a"], [(1,), (2,)]),
    "capitals": (b"Age,AGE\n1,2\n", ["Age", "AGE"], [(1, 2)]),
    "quoted nothing is text": (b'a,b\n"",1\nx,2\n', ["a", "b"], [("", 1), ("x", 2)]),
    "spaces in the header": (b" a ,b \n1,2\n", [" a ", "b "], [(1, 2)]),
    "keyword": (b"select,user\n1,2\n", ["select", "user"], [(1, 2)]),
    "quoted end of data": (b'a\n"\\."\nx\\.\n\\.x\n', ["a"], [("\\.",), ("x\\.",), ("\\.x",)]),
    "formats": (b"%s,{}\n1,2\n", ["%s", "{}"], [(1, 2)]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(parties: Parties, write: Any, layout: str) -> None:
    data, header, rows = LAYOUTS[layout]
    load(parties, write(data))
    assert columns_of(parties.publisher, "data.loaded") == header
    assert sorted(fetch(parties.publisher, "SELECT * FROM data.loaded"), key=str) == sorted(
        rows, key=str
    )


REFUSED = {
    "too many fields": b"a,b\n1,2,3\n",
    "too few fields": b"a,b\n1\n",
    "too few fields at the end": b"a,b\n" + b"1,2\n" * 3000 + b"3\n",
    "blank line": b"a,b\n1,2\n\n3,4\n",
    "open quote": b'a,b\n1,"2\n',
    "column twice": b"a,a\n1,2\n",
    "nameless column": b"a,,c\n1,2,3\n",
    "quoted nameless column": b'a,""\n1,2\n',
    "nothing": b"",
    "blank header": b"\n1,2\n",
    "header of commas": b",,\n1,2,3\n",
    "long name": b"a," + b"b" * 64 + b"\n1,2\n",
    "long name in bytes": b"a," + "漢".encode() * 22 + b"\n1,2\n",
    "NUL in the header": b"a,b\0\n1,2\n",
    "NUL in a value": b"a,b\n1,2\0\n",
    "end of data": b"a\n1\n\\.\n2\n",
    "end of data at first": b"a\n\\.\n2\n",
    "end of data at last": b"a\n2\n\\.",
    "end of data on windows": b"a\r\n1\r\n\\.\r\n2\r\n",
    "end of data in quotes": b'a\n"1\n\\.\n2"\n3\n',
    "end of data far off": b"a\n" + b"1\n" * 600_000 + b"\\.\n2\n",
    "latin-1": b"a,b\n1,\xe9\n",
    "latin-1 in the header": b"a,\xe9\n1,2\n",
    "utf-16": "a,b\n1,2\n".encode("utf-16"),
    "open quote in the header": b'a,"b\n1,2\n',
    "too many columns": ",".join(f"c{i}" for i in range(1700)).encode() + b"\n",
}


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("name", ["file.csv", "file.csv.gz"])
def test_refused_files(parties: Parties, write: Any, refused: str, name: str) -> None:
    before = relations(parties)
    with pytest.raises(KanonError):
        load(parties, write(REFUSED[refused], name))
    assert relations(parties) == before


def test_truncated_gzip(parties: Parties, write: Any) -> None:
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 10_000)
    path = write(b"", "file.csv")
    for data in (whole[: len(whole) // 2], b"a,b\n1,2\n", whole[:-4], whole + b"more", b""):
        path = path.with_name("cut.csv.gz")
        path.write_bytes(data)
        before = relations(parties)
        with pytest.raises(KanonError):
            load(parties, path)
        assert relations(parties) == before


def test_missing_file(parties: Parties, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        load(parties, tmp_path / "nothing.csv")
    with pytest.raises(InvalidParameterError):
        load(parties, tmp_path)


def test_names(parties: Parties, write: Any) -> None:
    path = write("a\n1\n")
    for given_name, schema, name in (
        ("data.Loaded", "data", "loaded"),
        ('data."Loaded"', "data", "Loaded"),
        ('"data"."a.b"', "data", "a.b"),
    ):
        report = load(parties, path, given_name)
        assert report.table == quoted(schema, name)
        assert fetch(parties.publisher, f"SELECT * FROM {report.table}") == [(1,)]
        fetch(parties.publisher, f"DROP TABLE {report.table}")
    for bad in ("", "a.b.c", "a b", "data.", ".a", '"a', "data.a; DROP TABLE x", "1a", "n" * 64,
                "data." + "n" * 64, '"a\0b"'):  # fmt: skip
        with pytest.raises(InvalidParameterError):
            load(parties, path, bad)
    with pytest.raises(KanonError):
        load(parties, path, "nowhere.a")


def test_existing_table(parties: Parties, write: Any) -> None:
    first, second = write("a\n1\n"), write("b\nx\n", "second.csv")
    load(parties, first)
    with pytest.raises(DuplicateError):
        load(parties, second)
    assert fetch(parties.publisher, "SELECT a FROM data.loaded") == [(1,)]
    load(parties, second, replace=True)
    assert fetch(parties.publisher, "SELECT b FROM data.loaded") == [("x",)]
    # A failed replacement keeps what was there.
    with pytest.raises(KanonError):
        load(parties, write("a,b\n1\n", "third.csv"), replace=True)
    assert fetch(parties.publisher, "SELECT b FROM data.loaded") == [("x",)]
    # Nor does it take away what others made of the table.
    fetch(parties.publisher, "CREATE VIEW data.made AS SELECT * FROM data.loaded")
    with pytest.raises(KanonError):
        load(parties, first, replace=True)
    assert fetch(parties.publisher, "SELECT b FROM data.made") == [("x",)]


def test_null_text(parties: Parties, write: Any) -> None:
    load(parties, write('a,b\n?,1\nx,?\n,2\n"?",3\n'), null="?")
    assert fetch(parties.publisher, "SELECT a, b FROM data.loaded ORDER BY b NULLS FIRST") == [
        ("x", None),
        (None, 1),
        ("", 2),
        ("?", 3),
    ]
    for bad in ("a\nb", "\n", '"', ",", "a,b"):
        with pytest.raises(KanonError):
            load(parties, write("a\n1\n"), null=bad)


def test_settings_of_the_role(parties: Parties, write: Any) -> None:
    """Dates are read as ISO writes them, whatever the role prefers."""
    fetch(parties.publisher, "SET datestyle = 'SQL, DMY'")
    load(parties, write("a\n2020-03-04\n"))
    fetch(parties.publisher, "RESET datestyle")
    assert value(parties.publisher, "SELECT a FROM data.loaded") == date(2020, 3, 4)


CELLS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=8
)


@given(st.lists(st.tuples(CELLS, CELLS), max_size=12))
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_every_cell_comes_through(
    parties: Parties, tmp_path: Path, rows: list[tuple[str, str]]
) -> None:
    """Whatever is written comes back, as text or as a value that prints alike."""
    path = tmp_path / "cells.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["number", "a", "b"])
        writer.writerows([(i, *row) for i, row in enumerate(rows)])
    load(parties, path, replace=True)
    found = fetch(
        parties.publisher, "SELECT a::text, b::text FROM data.loaded ORDER BY number::text::int"
    )
    assert len(found) == len(rows)
    for (a, b), row in zip(found, rows, strict=True):
        for cell, text in zip((a, b), row, strict=True):
            same = {text, {"t": "true", "f": "false"}.get(text, text), text.lower()}
            assert cell in same or float(cell) == float(text)
