"""How CSV files are read, and what their texts may be, without a server.

Cases are data: a file and its options, and what COPY gets, or the place that a refusal names;
the texts of a column, and the types that are tried.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.errors import InvalidParameterError
from kanon_db.transfer import csv_file
from kanon_db.transfer.csv_file import CsvFile, CsvOptions, read_hierarchy
from kanon_db.transfer.csv_types import Shapes, date_type, likely_types, may_be_typed, text_note

READ: dict[str, tuple[str, dict[str, Any], list[str], str]] = {
    "as it is": ('a,b\n1,"x ""y"""\n', {}, ["a", "b"], '1,"x ""y"""\n'),
    "no last line end": ("a,b\n1,2", {}, ["a", "b"], "1,2\n"),
    "empty lines keep their place": ("a;b\n\n1;2\n;\n \n3;4\n", {}, ["a", "b"],
                                     ";\n1;2\n;\n;\n3;4\n"),
    "empty lines within quotes": ('a,b\n"1\n\n,\nx",2\n', {}, ["a", "b"], '"1\n\n,\nx",2\n'),
    "an empty line of one column": ("a\n1\n\n2\n", {}, ["a"], "1\n\n2\n"),
    "mixed line ends": ('a,b\r\n1,2\n"x\r\ny",3\r\n', {}, ["a", "b"], '1,2\n"x\r\ny",3\n'),
    "old line ends": ("a,b\r1,2\r", {}, ["a", "b"], "1,2\n"),
    "Excel's line": ("sep=;\na;b\n1;2\n", {}, ["a", "b"], "1;2\n"),
    "backslashes": ('a,b\n"x \\"y\\"","\\\\"\n', {"escape": "backslash"}, ["a", "b"],
                    '"x \\"y\\"","\\\\"\n'),
    "backslashes that escape nothing": ('a\n"x\\ny"\n', {"escape": "\\"}, ["a"], '"x\\ny"\n'),
    "backslashes in and outside of quotes": (
        'a,b\n"x,\\"y\n\\"",\\\\\n', {"escape": "backslash"}, ["a", "b"], '"x,\\"y\n\\"",\\\\\n'
    ),
    "no quotes": ('a\tb\n5"\t"x\n', {"quote": "none"}, ["a", "b"], '5"\t"x\n'),
    "other quotes": ("a,b\n'1,2',3\n", {"quote": "'"}, ["a", "b"], "'1,2',3\n"),
    "blanks before quotes": ('a, "b, c"\n1, "x, y"\n', {}, ["a", "b, c"], '1, "x, y"\n'),
    "lines before the header": ("x\ny\na,b\n1,2\n", {"skip": 2}, ["a", "b"], "1,2\n"),
    "a line that is no title": ("x\ny,z\n", {"skip": 0}, ["x"], "y,z\n"),
}  # fmt: skip

REFUSED: dict[str, tuple[str | bytes, dict[str, Any], str, str]] = {
    "a quote within a field": ('a,b\n1,x"y"\n', {}, 'line 2, column 2 ("b")', "quote => 'none'"),
    "a quote that joins records": ('a,b\n1,x "y\n2,z\n3,y"\n', {}, "line 2, column 2", "quote"),
    "text after a quoted field": ('a,b\n1,2\n"x"y,2\n', {}, 'line 3, column 1 ("a")', "escape"),
    "quoted fields side by side": ('a,b\n1,"x" "y"\n', {}, "line 2, column 2", "escape"),
    "escaped quotes": ('a,b\n1,"x \\"y\\""\n', {}, "line 2, column 2", "escape => 'backslash'"),
    "an escaped quote that is a field": ('a,b\n1,2\n\\",3\n', {"escape": "backslash"},
                                         "line 3, column 1", "quote"),
    "quotes that are escaped in two ways": ('a,b\n1,"\\"x"",\\""\n', {"escape": "backslash"},
                                            "line 2, column 2", "quote"),
    "text after a field, where quotes escape themselves": ('a,b\n"x"y,"z"\n', {"escape": '"'},
                                                           "line 2, column 1", "quote"),
    "an open quote": ('a,b\n1,2\n1,"2\n3,4\n', {}, "line 3, column 2", "quote"),
    "an open quote, far off": ("a,b\n" + "1,2\n" * 300_000 + '1,"2\n3,4\n', {},
                               "line 300002, column 2", "quote"),
    "a single return": ("a,b\n1,2\n1,x\ry\n", {}, "line 3, column 2", "line"),
    "the end of the data": ('a\n"x\n\\.\n"\n', {}, "line 3", "quotes"),
    "NUL": ("a,b\n1,x\0\n", {}, 'line 2, column 2 ("b")', "utf-16"),
    "another encoding": (b"a,b\n" + b"1,2\n" * 300_000 + b"1,\xe9\n", {},
                         "line 300002, column 2", "encoding"),
    "half a character of UTF-16": ("a,b\n1,2\n".encode("utf-16")[:-1], {},
                                   "file.csv: not UTF-16", "encoding"),
    "a title": ("Title\na,b\n1,2\n", {}, "line 1", "skip => 1"),
    "a title with delimiters": ("Title;;\n\na;b;c\n1;2;3\n", {}, "line 1", "skip => 2"),
    "one field": ("a;b\n1;2\n", {"delimiter": ","}, "line 1", "delimiter => ';'"),
    "no header": ("\n1,2\n", {}, "line 1", "first line"),
}  # fmt: skip


def read(path: Path, text: str | bytes, options: dict[str, Any]) -> tuple[list[str], str]:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    file = CsvFile.of(path, CsvOptions(**options))
    with file.open() as opened:
        header, n_lines = file.header(opened)
        return header, b"".join(file.records(opened, header, n_lines)).decode()


@pytest.mark.pitfall(71)
@pytest.mark.parametrize("what", READ)
def test_copy_gets_the_records_that_the_file_has(tmp_path: Path, what: str) -> None:
    text, options, header, records = READ[what]
    assert read(tmp_path / "file.csv", text, options) == (header, records)


@pytest.mark.pitfall(71)
@pytest.mark.parametrize("what", REFUSED)
def test_what_copy_would_misread_is_refused_with_its_place(tmp_path: Path, what: str) -> None:
    text, options, place, hint = REFUSED[what]
    with pytest.raises(InvalidParameterError) as refused:
        read(tmp_path / "file.csv", text, options)
    assert place in refused.value.detail
    assert hint in refused.value.hint


def test_pipes_and_devices_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """The first look would take what a pipe gives, and the first records with it."""
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        for read_file in (CsvFile.of, read_hierarchy):
            with pytest.raises(InvalidParameterError, match="pipe or a device"):
                read_file(path)


def test_lines_without_an_end_are_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_file, "_CHUNK", 10)
    monkeypatch.setattr(csv_file, "_LONGEST", 100)
    lines = "a,b\n" + "1,2\n" * 50
    with pytest.raises(InvalidParameterError, match="too long") as refused:
        read(tmp_path / "file.csv", lines + "1" * 200 + ",2\n", {})
    assert "file.csv, line 52" in refused.value.detail
    _, records = read(tmp_path / "file.csv", lines + "1" * 80 + ",2\n", {})
    assert records.count("\n") == 51


CELLS = st.text(st.sampled_from("ab,;\t\"'\n \\\r"), max_size=6)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8), st.sampled_from(",;\t|"))
def test_what_a_writer_has_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], delimiter: str
) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b"), *rows])
    path = tmp_path_factory.getbasetemp() / "written.csv"
    _, records = read(path, buffer.getvalue(), {"delimiter": delimiter})
    assert [tuple(row) for row in csv.reader(io.StringIO(records, newline=""), delimiter=delimiter,
                                             strict=True)] == rows  # fmt: skip


def read_like_copy(text: str) -> list[list[str]]:
    """Read as COPY does: a quote opens or closes wherever it stands, and two are one within."""
    rows, is_open = [[""]], False
    for at, sign in enumerate(text):
        if sign == '"':
            if not is_open and at and text[at - 1] == '"':
                rows[-1][-1] += '"'
            is_open = not is_open
        elif sign == "," and not is_open:
            rows[-1].append("")
        elif sign == "\n" and not is_open:
            rows.append([""])
        else:
            rows[-1][-1] += sign
    return rows[:-1]


@given(st.text(st.sampled_from('ab,"\n'), max_size=12))
def test_copy_reads_what_python_reads_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "either.csv"
    try:
        _, records = read(path, f"head\n{text}", {"delimiter": ",", "skip": 0})
    except InvalidParameterError:
        return
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert [*filter(any, read_like_copy(records))] == [*filter(any, rows)]


def shapes_of(texts: list[str]) -> Shapes:
    """As the server counts them."""
    shapes = []
    for text in texts:
        shape = re.sub("[0-9]", "9", text)
        is_zero = text.lstrip("+-").startswith("0")
        shapes.append(shape.replace("9", "0", 1) if is_zero else shape)
    return Shapes(Counter(shapes))


TYPES: list[tuple[list[str], str, str]] = [
    (["1", "-2", "0"], "integer", ""),
    (["1", "3000000000"], "bigint", ""),
    (["1", "9" * 30], "numeric", ""),
    (["1.5", ".5", "-2"], "numeric", ""),
    (["1e5", "2.5E-3"], "double precision", "exponent"),
    (["1.234", "12.500"], "", "decimal => '.'"),
    (["1.234", "1.5"], "numeric", ""),
    (["1.234e5", "2.345e-6"], "double precision", "exponent"),
    (["1.234.567", "1"], "integer", "decimal => ','"),
    (["1'234", "1"], "integer", "thousands"),
    (["true", "false"], "boolean", ""),
    (["t", "f"], "boolean", ""),
    (["12 %", "7 %"], "", '"numeric"'),
    (["2020-01-31", "1999-12-31"], "date", ""),
    (["2020-01-31 10:00", "2020-01-31T10:00:01.5"], "timestamp", ""),
    (["2020-01-31 10:00:00 UTC", "2020-01-31T10:00Z"], "timestamp with time zone", ""),
    (["31.12.1999", "1.2.2000"], "date", "DD.MM.YYYY"),
    (["01JAN2020:10:11:12"], "timestamp", "DDMONYYYY:HH24:MI:SS"),
    (["01-JAN-20"], "date", "first_year"),
    (["Jan 31, 2020"], "date", "MON DD, YYYY"),
    (["31.12.99"], "", "DD.MM.YY"),
    (["2020-01", "2020-02"], "", "without a day"),
    (["31-Mai-2020"], "", "English"),
    (["01067", "10115"], "", "1 of 2 begin with 0"),
    (["08902", "8902", "08902-1166", "10001"], "", "have another length than 5"),
    (["+12", "12"], "", "1 of 2 begin with +"),
    (["5-9", "09-May", "Oct-14"], "", "2 of 3 look like ranges"),
    (["5-9", "10-14"], "", ""),
    (["12", "NA", "7"], "", "null => 'NA'"),
    (["12", "x", "7"], "", "1 of 3 values are no numbers"),
    (["1.5", "2,5", "2"], "", "several ways"),
    (["f", "f"], "", ""),
    (["NaN", "1"], "", "null => 'NaN'"),
    (["१", "1"], "", "no numbers"),
    (["-", "--"], "", ""),
]


@pytest.mark.parametrize(("texts", "sql", "said"), TYPES, ids=str)
def test_types_and_notes(texts: list[str], sql: str, said: str) -> None:
    """The first type that the shapes of a column allow, or what is said of its texts."""
    shapes = shapes_of(texts)
    kinds = likely_types(shapes, ";", CsvOptions())
    assert (kinds[0].sql if len(kinds) == 1 else "") == sql
    options = " or ".join(kind.option for kind in kinds)
    note = kinds[0].note if len(kinds) == 1 else options or text_note(shapes, line_of)
    assert said in note
    assert bool(said) == bool(note)
    assert may_be_typed(texts) or not (sql or said)


def test_numbers_of_any_length_are_looked_at() -> None:
    numbers = [f"{10**n}.{'1' * m}" for n in range(9) for m in range(15)]
    assert may_be_typed([*numbers, *(f"-{number}" for number in numbers)])
    assert not may_be_typed([f"{n} {'x' * n} Street" for n in range(600)])


def line_of(pattern: str) -> int:
    return 2


def test_day_and_month_exclude_each_other() -> None:
    kinds = likely_types(shapes_of(["01/02/2020"]), ";", CsvOptions())
    options = ["date_format => 'DD/MM/YYYY'", "date_format => 'MM/DD/YYYY'"]
    assert [kind.option for kind in kinds] == options


@pytest.mark.parametrize("text", ["DD.MM", "%d.%m.%Y", "DD.MM.YYYY HH24", "DD.MM.YYYY DD"])
def test_formats_that_are_none(text: str) -> None:
    with pytest.raises(InvalidParameterError):
        date_type(text)
