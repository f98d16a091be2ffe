"""Loading CSV files: the types that values show, nothing lost, nothing left behind."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kanon_db.errors import (
    DuplicateError,
    InUseError,
    InvalidParameterError,
    KanonError,
    NotFoundError,
)
from kanon_db.interfaces.python import Kanon
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.csv_file import BLANKS
from kanon_db.transfer.csv_table import CsvPreview, LoadReport
from tests.integration.parties import Parties, columns_of, fetch, quoted, value
from tests.profiles import examples


def load(parties: Parties, path: Path, table: str = "data.loaded", **options: Any) -> LoadReport:
    return Kanon(PsycopgSession(parties.publisher)).load(path, table, **options)


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
    "null at first": ([*[""] * 1500, "1"], "integer", [*[None] * 1500, 1]),
    "bigint": (["1", "3000000000"], "bigint", [1, 3_000_000_000]),
    "larger at the end": ([*["1"] * 1500, "3000000000"], "bigint", [*[1] * 1500, 3_000_000_000]),
    "more than bigint": (["1", "9" * 30], "numeric", [1, Decimal("9" * 30)]),
    "numeric": (["1.50", "-0.1", "7"], "numeric", [Decimal("1.50"), Decimal("-0.1"), 7]),
    "double precision": (["1e5", "2.5E-3", "1"], "double precision", [1e5, 2.5e-3, 1.0]),
    "point first": ([".5", "1e1"], "double precision", [0.5, 10.0]),
    "date": (["2020-02-29", "", "1999-12-31"], "date",
             [date(2020, 2, 29), None, date(1999, 12, 31)]),
    "date with points": (["31.12.1999", "", "1.2.2000"], "date",
                         [date(1999, 12, 31), None, date(2000, 2, 1)]),
    "time with points": (["31.12.1999 7:05", "1.2.2000 23:59"], "timestamp",
                         [datetime(1999, 12, 31, 7, 5), datetime(2000, 2, 1, 23, 59)]),
    "year first": (["1999/12/31", "2000/1/2"], "date", [date(1999, 12, 31), date(2000, 1, 2)]),
    "day first": (["12/01/1999", "13/02/2000"], "date", [date(1999, 1, 12), date(2000, 2, 13)]),
    "month first": (["12-01-1999", "12-13-1999"], "date", [date(1999, 12, 1), date(1999, 12, 13)]),
    "timestamp": (["2020-02-29 12:00", "2020-02-29T12:00:01.5"], "timestamp",
                  [datetime(2020, 2, 29, 12), datetime(2020, 2, 29, 12, 0, 1, 500_000)]),
    "blanks around numbers": ([" 1", "2\xa0", " "], "integer", [1, 2, None]),
    "thousands": (["1,000", "12,345,678", "-7"], "integer", [1000, 12_345_678, -7]),
    "time with an offset": (["2010-01-23T17:45:28Z", "2010-01-23 19:45:28.5+02:00"],
                            "timestamp with time zone",
                            [datetime(2010, 1, 23, 17, 45, 28, tzinfo=UTC),
                             datetime(2010, 1, 23, 17, 45, 28, 500_000, tzinfo=UTC)]),
    "names of months": (["01-JAN-2020", "2-feb-1999"], "date",
                        [date(2020, 1, 1), date(1999, 2, 2)]),
    "text": (["a", "", "1"], "text", ["a", None, "1"]),
    "only nulls": (["", ""], "text", [None, None]),
}  # fmt: skip
TEXTS: list[list[str]] = [
    ["01234", "99999"], ["00.5", "1"], ["+1", "2"], ["1,00", "2"], [" 1", "x"], ["NaN", "1"],
    ["Infinity", "1"], ["-", "1"], ["e5", "1"], ["१", "1"], ["1e1", "."], ["1.", "2"], ["1,5", "2"],
    ["2021-02-29", "1999-12-31"], ["2020-2-9", "1999-12-31"], ["12/01/1999", "01/02/2000"],
    ["f", "f"], ["2020-02-29 12:00", "2020-02-29 12:00Z"],
    ["13/01/1999", "01/13/2000"], ["28.02.1999", "30.02.1999"], ["31.12.99"], ["2020-02-29 25:00"],
    [*["1"] * 1500, "x"], [*["1999-12-31"] * 1500, "1999-12-32"], ["NULL", "null", "None"],
    ['a "b"', "it's", "a,b", "a\nb", "a\r\nb"], ["\\N", "\\.", "a\\nb", "\\"], ["漢字", "é", "😀"],
]  # fmt: skip
"""Columns that stay texts, as they are."""

COLUMNS |= {f"text {number}": (texts, "text", [*texts]) for number, texts in enumerate(TEXTS)}


def test_types(parties: Parties, write: Any) -> None:
    """One file has all columns, those with fewer values than others followed by NULLs."""
    n_rows = max(len(texts) for texts, *_ in COLUMNS.values())
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["number", *COLUMNS])
    padded = ([*texts, *[""] * n_rows][:n_rows] for texts, *_ in COLUMNS.values())
    writer.writerows(zip(range(n_rows), *padded, strict=True))
    report = load(parties, write(buffer.getvalue()))
    assert report.records == n_rows
    kinds = [(column, kind) for column, (_, kind, _) in COLUMNS.items()]
    assert report.columns == [("number", "integer"), *kinds]
    rows = fetch(parties.publisher, "SELECT * FROM data.loaded ORDER BY number")
    for column, found in zip(COLUMNS, [*zip(*rows, strict=True)][1:], strict=True):
        values = COLUMNS[column][-1]
        assert [*found] == [*values, *[None] * (n_rows - len(values))], column
        assert len({type(one) for one in found if one is not None}) <= 1, column


LAYOUTS: dict[str, tuple[bytes, list[str], list[tuple[object, ...]]]] = {
    "byte-order mark": (b"\xef\xbb\xbfa,b\n1,2\n", ["a", "b"], [(1, 2)]),
    "byte-order mark of utf-16": ("a,b\n1,\xe9\n".encode("utf-16"), ["a", "b"], [(1, "\xe9")]),
    "semicolons": (b"a;b,c\n1;2\n3;4\n", ["a", "b,c"], [(1, 2), (3, 4)]),
    "semicolons, decimal comma": (
        b"a;b\n1;2,5\n3;4,125\n",
        ["a", "b"],
        [(1, Decimal("2.5")), (3, Decimal("4.125"))],
    ),
    "semicolons, decimal point": (b"a;b\n1;2.5\n", ["a", "b"], [(1, Decimal("2.5"))]),
    "tabs": (b"a\tb\n1\t2, 3\n", ["a", "b"], [(1, "2, 3")]),
    "bars": (b"a|b\n1|2\n", ["a", "b"], [(1, 2)]),
    "commas and semicolons": (b"a,b;c\n1,2;3\n", ["a", "b;c"], [(1, "2;3")]),
    "commas in quotes": (b'a;b\n1;"2,3"\n4;"5,x"\n', ["a", "b"], [(1, "2,3"), (4, "5,x")]),
    "windows lines": (b"a,b\r\n1,2\r\n3,4\r\n", ["a", "b"], [(1, 2), (3, 4)]),
    "no last line end": (b"a,b\n1,2", ["a", "b"], [(1, 2)]),
    "quoted header": (b'"a ""x""","b,c"\n1,2\n', ['a "x"', "b,c"], [(1, 2)]),
    "header of several lines": (b'"a\nx",b\n1,2\n', ["a x", "b"], [(1, 2)]),
    "empty lines": (b"a,b\r\n1,2\r\n\r\n,\r\n3,4\r\n\r\n", ["a", "b"], [(1, 2), (3, 4)]),
    "empty lines in quotes": (b'a,b\n"1\n\nx",2\n\n', ["a", "b"], [("1\n\nx", 2)]),
    "empty line of one column": (b"a\n1\n\n2\n", ["a"], [(1,), (None,), (2,)]),
    "the delimiter in a line": (b"sep=;\na;b\n1;2\n", ["a", "b"], [(1, 2)]),
    "open ends with the header": (b"a;b;\n1;2;\n", ["a", "b"], [(1, 2)]),
    "column without a name": (b",a\n1,x\n2,y\n", ["column_1", "a"], [(1, "x"), (2, "y")]),
    "column twice": (b"a,b,a\n1,2,3\n", ["a", "b", "a_2"], [(1, 2, 3)]),
    "quotes everywhere": (b'"a","b"\n"1","x"\n"","y"\n', ["a", "b"], [(1, "x"), (None, "y")]),
    "header alone": (b"a,b\n", ["a", "b"], []),
    "header without line end": (b"a,b", ["a", "b"], []),
    "one column": (b"a\n1\n2\n", ["a"], [(1,), (2,)]),
    "capitals": (b"Age,AGE\n1,2\n", ["Age", "AGE"], [(1, 2)]),
    "quoted nothing is text": (b'a,b\n"",1\nx,2\n', ["a", "b"], [("", 1), ("x", 2)]),
    "spaces in the header": (b" a ,b \n1,2\n", ["a", "b"], [(1, 2)]),
    "keyword": (b"select,user\n1,2\n", ["select", "user"], [(1, 2)]),
    "quoted end of data": (b'a\n"\\."\nx\\.\n\\.x\n', ["a"], [("\\.",), ("x\\.",), ("\\.x",)]),
    "formats": (b"%s,{}\n1,2\n", ["%s", "{}"], [(1, 2)]),
}


def test_layouts(parties: Parties, write: Any) -> None:
    for layout, (data, header, rows) in LAYOUTS.items():
        load(parties, write(data), replace=True)
        assert columns_of(parties.publisher, "data.loaded") == header, layout
        found = fetch(parties.publisher, "SELECT * FROM data.loaded")
        assert sorted(found, key=str) == sorted(rows, key=str), layout


REFUSED: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "too many fields": (b"a,b\n1,2\n1,2,3\n", {}, "line 3: the header has 2"),
    "too few fields": (b'a,b\n1,"x\ny"\n1\n', {}, "line 4: the header has 2"),
    "too few fields at the end": (b"a,b\n" + b"1,2\n" * 3000 + b"3\n", {}, "line 3002"),
    "after a blank line": (b"a,b\n1,2\n\n3\n", {}, "line 4: the header has 2"),
    "open ends without the header": (b"a;b\n1;2;\n3;4;\n", {}, "line 2: the header has 2"),
    "thousandfold": (b"a;b\n1.234;x\n2.345;y\n", {"types": {"a": "numeric"}}, 'column "a"'),
    "end of data at first": (b"a\n\\.\n2\n", {}, "line 2"),
    "end of data at last": (b"a\n2\n\\.", {}, "line 3"),
    "latin-1 far off": (b"a;b\n" + b"1;2\n" * 60_000 + b"S\xe9cret;2\n", {},
                        'line 60002, column 1 ("a")'),
    "latin-1 in the header": (b"a,S\xe9cret\n1,2\n", {}, "line 1, column 2: not UTF-8"),
    "NUL": (b"a,b\n1,2\n1,Se\0cret\n", {}, 'line 3, column 2 ("b")'),
    "renamed to another name": (b"a,b\n1,2\n", {"rename": "a=b"}, "line 1, column 2: PostgreSQL"),
    "no column to rename": (b"a,b\n1,2\n", {"rename": ["c=d"]}, 'column "c"'),
    "end of data": (b'"a\n",b\n1,2\n\\.\n3,4\n', {}, "line 4"),
    "one field": (b"a;b\n1;Secret\n", {"delimiter": ","}, "line 1"),
    "no integer": (b"a,b\n1,2\nx,Secret\n1,2\n", {"types": {"b": "integer"}},
                   'line 3, column 2 ("b")'),
    "no integer after a line break": (b'a,b\n"x\ny",2\nx,Secret\n', {"types": '{"b": "int4"}'},
                                      'line 4, column 2 ("b")'),
    "no date": (b"a,b\n31.12.1999,2\nSecret,2\n", {"date_format": "DD.MM.YYYY"},
                'line 3, column 1 ("a")'),
    "30 February": (b"a,b\n31.12.1999,2\n,3\n30.02.1999,2\n", {"date_format": "DD.MM.YYYY"},
                    'line 4, column 1 ("a")'),
    "no dates": (b"a,b\n31.12.1999,2\n", {"date_format": "MM/DD/YYYY"}, "MM/DD/YYYY"),
    "no such column": (b"a,b\n1,2\n", {"types": {"c": "text"}}, 'column "c"'),
    "no such type": (b"a,b\n1,2\n", {"types": {"b": "texd"}}, 'column "b"'),
    "no type": (b"a,b\n1,2\n", {"types": {"b": "int) FROM x; --"}}, 'column "b"'),
    "type that is a number": (b"a,b\n1,2\n", {"types": {"b": 3}}, 'column "b"'),
}  # fmt: skip


HEADERS: list[bytes] = [
    b"", b"\n1,2\n", b",,\n1,2,3\n", b'a,"b\n1,2\n',
    b"a,b\0\n1,2\n", b"a," + b"b" * 64 + b"\n1,2\n", b"a," + "漢".encode() * 22 + b"\n1,2\n",
    b'a\n"1\n\\.\n2"\n3\n',
    "a,b\n1,2\n".encode("utf-16-le"), "a,b\n1,2\n".encode("utf-16")[:-1],
    ",".join(f"c{i}" for i in range(1700)).encode() + b"\n",
]  # fmt: skip
"""Without a place: headers that cannot be, and what is no text."""


def test_refusals_say_where_and_what_to_do(parties: Parties, write: Any) -> None:
    """No value is in them, and nothing is left."""
    before = relations(parties)
    for place, (data, options, where) in REFUSED.items():
        with pytest.raises(KanonError) as refused:
            load(parties, write(data), **options)
        error = refused.value
        assert where in error.detail, place
        assert error.hint, place
        assert "cret" not in f"{error.message}{error.detail}{error.hint}", place
        assert relations(parties) == before, place
    for data in HEADERS:
        with pytest.raises(KanonError):
            load(parties, write(data))
        assert relations(parties) == before, data


def test_options_that_cannot_be(parties: Parties, write: Any) -> None:
    for option, values in {
        "delimiter": (";;", '"', "\n", "", "x", "\xe9"),
        "encoding": ("base64", "no such", ""),
        "decimal": (";", ""),
        "date_format": ("DD.MM", "DD.MM.YY", "%d.%m.%Y", "DD'MM'YYYY", "DD.MM.YYYY HH24",
                        "DD.MM.YYYY DD"),
        "types": ("[]", "{"),
        "null": ([3],),
        "first_year": (20, 99_999),
        "rename": ("a", ["a=b", "c"], {"a": 3}, "a=", f"a={'b' * 64}", "a=b"),
    }.items():  # fmt: skip
        for one in values:
            with pytest.raises(InvalidParameterError):
                load(parties, write("a,b\n1,2\n"), **{option: one})


READ: dict[str, tuple[bytes, dict[str, Any], Any]] = {
    "latin-1": (b"a,b\n1,\xe9\n", {"encoding": "latin-1"}, "\xe9"),
    "tab by name": (b"a\tb\n1\t2\n", {"delimiter": "tab"}, 2),
    "tab as the shell has it": (b"a\tb\n1\t2\n", {"delimiter": "\\t"}, 2),
    "another delimiter": (b"a:b\n1:2\n", {"delimiter": ":"}, 2),
    "decimal comma": (b'a,b\n1,"2,5"\n', {"decimal": ","}, Decimal("2.5")),
    "decimal point in semicolons": (b"a;b\n1;2,5\n", {"decimal": "."}, "2,5"),
    "small numbers": (b"a;b\n1;2,5e-3\n", {}, 0.0025),
    "day first": (b"a,b\n1,02/03/2004\n", {"date_format": "DD/MM/YYYY"}, date(2004, 3, 2)),
    "month first": (b"a,b\n1,02/03/2004\n", {"date_format": "MM/DD/YYYY"}, date(2004, 2, 3)),
    "nothing between": (b"a,b\n1,20040302\n", {"date_format": "YYYYMMDD"}, date(2004, 3, 2)),
    "a time that summer time skips": (b"a,b\n1,29.03.2020 02:30\n", {},
                                      datetime(2020, 3, 29, 2, 30)),
    "text": (b"a,b\n1,2\n", {"types": {"b": "text"}}, "2"),
    "zip code as a number": (b"a,b\n1,007\n", {"types": {"b": "integer"}}, 7),
    "number with a comma": (b"a;b\n1;2,5\n", {"types": {"b": "float8"}}, 2.5),
    "date by type and format": (b"a,b\n1,02/03/2004\n",
                                {"types": {"b": "date"}, "date_format": "DD/MM/YYYY"},
                                date(2004, 3, 2)),
}  # fmt: skip


def test_what_options_say(parties: Parties, write: Any) -> None:
    fetch(parties.publisher, "SET timezone = 'Europe/Berlin'")
    for read, (data, options, expected) in READ.items():
        load(parties, write(data), replace=True, **options)
        found = value(parties.publisher, "SELECT b FROM data.loaded")
        assert (found, type(found)) == (expected, type(expected)), read
    fetch(parties.publisher, "RESET timezone")


def test_guesses_are_told_before_the_table_is_written(parties: Parties, write: Any) -> None:
    told: list[tuple[CsvPreview, bool]] = []
    exists = "SELECT to_regclass('data.loaded') IS NOT NULL"
    path = write("a;b;c;d\n1;2,5;31.12.1999;01/02/2003\n")

    def listen(found: CsvPreview) -> None:
        told.append((found, bool(value(parties.admin, exists))))

    report = load(parties, path, dry_run=True, on_found=listen)
    assert (report.records, value(parties.admin, exists)) == (1, False)
    load(parties, path, on_found=listen)
    assert value(parties.admin, exists)
    for found, existed in told:
        assert not existed
        assert (found.delimiter, found.encoding) == (";", "UTF-8")
        assert [kind for _, kind in found.columns] == ["integer", "numeric", "date", "text"]
        assert found.notes.keys() == {"b", "c", "d"}
        assert "DD/MM/YYYY" in found.notes["d"]
    assert len(told) == 2


def test_numbers_that_could_be_dates_are_noted(parties: Parties, write: Any) -> None:
    path = write("am,pay\n20200131,20200132\n19991231,1\n")
    report = load(parties, path)
    assert report.columns == [("am", "integer"), ("pay", "integer")]
    assert report.notes == {"am": "if these are dates: date_format => 'YYYYMMDD'"}
    load(parties, path, date_format="YYYYMMDD", types={"pay": "integer"}, replace=True)
    assert value(parties.publisher, "SELECT max(am) FROM data.loaded") == date(2020, 1, 31)


def test_times_that_are_finer_than_the_server_are_counted(parties: Parties, write: Any) -> None:
    times = ("00.1234567", "01.123456000", "02.5", "03")
    path = write("at,moment\n" + "".join(f"2020-01-31 10:00:{at},2020-01-31 10:00:{at}Z\n"
                                         for at in times))  # fmt: skip
    report = load(parties, path)
    rounded = {name: f"1 of its values are rounded to {kind}" for name, kind in report.columns}
    assert report.notes == rounded
    assert load(parties, path, types={"at": "timestamp"}, replace=True).notes == {
        **rounded, "at": "1 of its values are rounded to timestamp without time zone",
    }  # fmt: skip


def test_a_record_in_the_place_of_the_header_is_noted(parties: Parties, write: Any) -> None:
    report = load(parties, write("12,x\n13,y\n14,z\n"))
    assert "no header line" in report.notes["12"]
    assert "x" not in report.notes


def test_dates_and_numbers_of_given_types_are_read_as_they_are_written(
    parties: Parties, write: Any
) -> None:
    types = {"am": "date", "kosten": "numeric", "rate": "float8", "name": "varchar(5)"}
    path = write("am;kosten;rate;name\n31.12.1999;-1.234,50 €;12,5%; a \n1.1.2000;7 €;1%;b\n")
    load(parties, path, types=types)
    assert fetch(parties.publisher, "SELECT * FROM data.loaded") == [
        (date(1999, 12, 31), Decimal("-1234.50"), 12.5, " a "),
        (date(2000, 1, 1), Decimal(7), 1.0, "b"),
    ]


def test_compressed_files_are_read_as_others(parties: Parties, write: Any) -> None:
    name = "file.csv.gz"
    load(parties, write(b"a;b\n1;2,5\n", name))
    assert fetch(parties.publisher, "SELECT * FROM data.loaded") == [(1, Decimal("2.5"))]
    for place in ("latin-1 far off", "too few fields", "no date"):
        data, options, where = REFUSED[place]
        with pytest.raises(KanonError) as refused:
            load(parties, write(data, name), replace=True, **options)
        assert where in refused.value.detail


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


def test_a_registered_source_stays_what_it_is(parties: Parties, write: Any) -> None:
    """The next month's file takes the place of the last one's, and the source is refreshed."""
    kanon = Kanon(PsycopgSession(parties.publisher))
    header, ages = "id,age,code,ill\n", [20 + i % 30 for i in range(60)]
    rows = [f"{i},{age},{100 + i % 4},ill {i % 3}\n" for i, age in enumerate(ages)]
    month = write(header + "".join(rows))
    kanon.load(month, "data.loaded", types={"code": "text"})
    kanon.register_source(
        "data.loaded", quasi_identifiers=["age"], sensitive="ill", entity="id",
        identifiers=["code"],
    )  # fmt: skip
    kanon.publish_generalized("data.loaded", "monthly_stays", k=5)
    oid = value(parties.admin, "SELECT 'data.loaded'::regclass::oid")
    later = [f"{60 + i},{20 + i % 30},{200 + i % 4},ill {i % 3}\n" for i in range(40)]
    kanon.load(write(header + "".join(rows + later)), "data.loaded", replace=True)
    assert value(parties.admin, "SELECT 'data.loaded'::regclass::oid") == oid
    assert value(parties.publisher, "SELECT count(*) FROM data.loaded WHERE code > '2'") == 40
    refreshed = kanon.refresh("monthly_stays")
    assert refreshed.added == 40
    # Other columns, or values that the types do not hold, would make another table of it.
    for data, where in {
        "id,age,ill\n1,20,x\n": "without code",
        "id,age,code,ill,sex\n1,20,100,x,f\n": "with sex",
        "age,id,code,ill\n1,20,100,x\n": "another order",
    }.items():
        with pytest.raises(InUseError) as refused:
            kanon.load(write(data), "data.loaded", replace=True)
        assert where in refused.value.detail
        assert "anew => true" in refused.value.hint
        assert value(parties.publisher, "SELECT count(*) FROM data.loaded") == 100
    with pytest.raises(InUseError) as refused:
        kanon.load(month, "data.loaded", replace=True, types={"age": "text"})
    assert '"age" would be text instead of integer' in refused.value.detail
    # What a file needs is said, so that nobody makes the table anew for it.
    unlike = write("id,age,code,ill\n1,20,100,x\n2,NA,100,x\n")
    for path in (unlike, write("id,age,code,ill\n1,20,100,x\n1,20.5,100,x\n", "other.csv")):
        with pytest.raises(InvalidParameterError, match="cannot be read as integer") as unread:
            kanon.load(path, "data.loaded", replace=True)
        assert 'line 3, column 2 ("age")' in unread.value.detail
        assert "null => 'TEXT'" in unread.value.hint
        assert "anew => true" in unread.value.hint
    assert len(kanon.load(unlike, "data.loaded", replace=True, null=["NA"]).columns) == 4
    kanon.load(
        write("id,years,code,ill\n1,20,,x\n"), "data.loaded", replace=True, rename="years=age"
    )
    assert value(parties.admin, "SELECT 'data.loaded'::regclass::oid") == oid
    kanon.drop_publication("monthly_stays")
    kanon.load(write("age\n20\n"), "data.loaded", replace=True, anew=True)
    assert value(parties.admin, "SELECT 'data.loaded'::regclass::oid") != oid


KEPT: dict[str, tuple[str, str]] = {
    "values that fit": ("10115,12.3,2020-01-31 10:00:00\n", ""),
    "a number that is rounded": ("10115,12.34,2020-01-31 10:00:00\n", "1 of its values are"),
    "a text that is longer": ("101156,1,2020-01-31 10:00:00\n", "line 2, column 1"),
    "a number that is larger": ("1,100000,2020-01-31 10:00:00\n", "line 2, column 2"),
}
"""Next months' files, and what is said of them."""


@pytest.mark.pitfall(72)
@pytest.mark.parametrize("what", KEPT)
def test_a_registered_source_keeps_its_lengths(parties: Parties, write: Any, what: str) -> None:
    kanon, header = Kanon(PsycopgSession(parties.publisher)), "zip,cost,at\n"
    types = {"zip": "char(5)", "cost": "numeric(6,1)", "at": "timestamp(0)"}
    kanon.load(write(header + "01067,1.5,2020-01-31 10:00:00.7\n"), "data.loaded", types=types)
    kanon.register_source("data.loaded", quasi_identifiers=["zip", "cost"], sensitive="at")
    oid = value(parties.admin, "SELECT 'data.loaded'::regclass::oid")
    record, said = KEPT[what]
    path = write(header + record)
    if said.startswith("line"):
        with pytest.raises(KanonError) as refused:
            kanon.load(path, "data.loaded", replace=True)
        assert said in refused.value.detail
        assert refused.value.hint
    else:
        report = kanon.load(path, "data.loaded", replace=True)
        assert [kind for _, kind in report.columns] == [
            "character(5)", "numeric(6,1)", "timestamp(0) without time zone",
        ]  # fmt: skip
        assert said in report.notes.get("cost", "")
    assert value(parties.admin, "SELECT 'data.loaded'::regclass::oid") == oid


@pytest.mark.parametrize(
    "makes",
    [
        "CREATE TRIGGER t BEFORE INSERT ON data.attached FOR EACH ROW EXECUTE FUNCTION data.evil()",
        "CREATE TRIGGER t BEFORE TRUNCATE ON data.attached EXECUTE FUNCTION data.evil()",
        "CREATE RULE evil AS ON INSERT TO data.attached DO ALSO SELECT data.evil_too()",
        "ALTER TABLE data.attached ADD CHECK (data.evil_too() IS NULL)",
    ],
)
def test_no_code_of_others_runs_when_a_table_is_filled_anew(
    parties: Parties, write: Any, makes: str
) -> None:
    """A superuser, who would run what the owner has attached, makes the table anew."""
    path = write("a\n1\n")
    load(parties, path, "data.attached")
    fetch(parties.publisher, "CREATE TABLE data.who (name text)")
    fetch(parties.publisher, "CREATE FUNCTION data.evil() RETURNS trigger LANGUAGE plpgsql AS"
          " 'BEGIN INSERT INTO data.who VALUES (current_user); RETURN NEW; END'")  # fmt: skip
    fetch(parties.publisher, "CREATE FUNCTION data.evil_too(int DEFAULT 0) RETURNS int"
          " LANGUAGE plpgsql AS 'BEGIN INSERT INTO data.who VALUES (current_user);"
          " RETURN NULL; END'")  # fmt: skip
    try:
        fetch(parties.publisher, "TRUNCATE data.attached")
        fetch(parties.publisher, makes)
        fetch(parties.publisher, "TRUNCATE data.who")
        Kanon(PsycopgSession(parties.admin)).load(path, "data.attached", replace=True)
        assert fetch(parties.admin, "SELECT a FROM data.attached") == [(1,)]
        assert fetch(parties.admin, "SELECT * FROM data.who") == []
    finally:
        fetch(parties.admin, "DROP TABLE data.attached, data.who CASCADE")
        fetch(parties.admin, "DROP FUNCTION data.evil, data.evil_too CASCADE")


def test_null_text(parties: Parties, write: Any) -> None:
    path = write('a,b\n?,1\nx,?\n,2\n"?",3\n"",NA\n')
    for null, empty in (("?", ""), (["?", "NA"], ""), (("NA", "?", ""), None)):
        report = load(parties, path, null=null, replace=True)
        found = fetch(parties.publisher, "SELECT a, b::text FROM data.loaded ORDER BY b::text, a")
        numbers = [(None, "1"), (None, "2"), (None, "3")]
        assert found[:3] == numbers
        assert {*found[3:]} == {("x", None), (empty, "NA" if null == "?" else None)}
        assert ("null => 'NA'" in report.notes.get("b", "")) == (null == "?")
        assert ("null => ''" in report.notes.get("a", "")) == (empty == "")
    for bad in ("a\nb", "\n", '"', [3]):
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
            bare = text.strip(BLANKS)
            same = {text, {"t": "true", "f": "false"}.get(bare, bare), bare.lower()}
            assert cell in same or (cell is None and not bare) or float(cell) == float(bare)
