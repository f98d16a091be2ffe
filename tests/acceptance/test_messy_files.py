"""Files as people have them: none is loaded wrongly without a word.

Each is loaded right, or with a note, or refused with the option that then loads it right. Notes and
refusals name no value; a column of texts that were meant to be something else always has a note.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from kanon_db.errors import KanonError
from kanon_db.interfaces.python import Kanon
from kanon_db.session.psycopg_session import PsycopgSession, open_connection
from kanon_db.wording import for_shell
from tests.integration.parties import fetch

TABLE: Final = "messy"
NAME: Final = "Zzyzx"
"""Stands in some files as a value, and may stand in no message."""


@dataclass(frozen=True)
class Loaded:
    """What a file must become."""

    types: str  # of all columns, with spaces between
    rows: list[tuple[Any, ...]]
    # Words that must stand in the notes of columns or, for no column, in the remarks
    notes: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Messy:
    """A file, what it becomes by itself, and what with an option that was told."""

    text: str | bytes
    at_first: Loaded | str  # A refusal is a text that stands in its detail or its hint
    then: Loaded | None = None  # With the option that the note or the refusal names
    name: str = "file.csv"


D: Final = Decimal
JANUARY: Final = date(2020, 1, 31)
FILES: Final[dict[str, Messy]] = {
    # -- numbers -------------------------------------------------------------------------------
    "German numbers, which prove each other": Messy(
        "n;kosten;betrag\n1;1.234;3.228,94\n2;12.500;7,5\n",
        Loaded("integer integer numeric", [(1, 1234, D("3228.94")), (2, 12500, D("7.5"))],
               {"kosten": "decimal => ','", "betrag": "decimal => ','"}),
    ),
    "a point before three digits, and nothing that proves anything": Messy(
        "n;kosten\n1;1.234\n2;12.500\n",
        Loaded("integer text", [(1, "1.234"), (2, "12.500")], {"kosten": "decimal => '.'"}),
        Loaded("integer integer", [(1, 1234), (2, 12500)], options={"decimal": ","}),
    ),
    "the same file from Britain": Messy(
        "n;kosten\n1;1.234\n2;12.500\n",
        Loaded("integer text", [(1, "1.234"), (2, "12.500")], {"kosten": "decimal => ','"}),
        Loaded("integer numeric", [(1, D("1.234")), (2, D("12.500"))], options={"decimal": "."}),
    ),
    "the same file, and a type": Messy(
        "n,kosten\n1,1.234\n2,12.500\n",
        Loaded("integer text", [(1, "1.234"), (2, "12.500")], {"kosten": "decimal => '.'"}),
        Loaded("integer numeric", [(1, D("1.234")), (2, D("12.500"))],
               options={"types": {"kosten": "numeric"}, "decimal": "."}),
    ),
    "a comma before three digits in quotes": Messy(
        'n,pay\n1,"637,436"\n2,"12,500"\n',
        Loaded("integer text", [(1, "637,436"), (2, "12,500")], {"pay": "decimal => '.'"}),
        Loaded("integer integer", [(1, 637436), (2, 12500)], options={"decimal": "."}),
    ),
    "points that another column proves": Messy(
        'n,pay,rate\n1,"637,436",1.5\n2,"12,500",2.25\n',
        Loaded("integer integer numeric", [(1, 637436, D("1.5")), (2, 12500, D("2.25"))],
               {"pay": "as in other columns, decimal => '.'"}),
    ),
    "columns that contradict each other": Messy(
        "n;a;b;c\n1;1.5;1,5;1.234\n2;2.5;2,5;2.345\n",
        Loaded("integer numeric numeric text",
               [(1, D("1.5"), D("1.5"), "1.234"), (2, D("2.5"), D("2.5"), "2.345")],
               {"b": "decimal => ','", "c": "decimal => '.'"}),
    ),
    "both signs in one column": Messy(
        "n;a\n1;1.5\n2;2,5\n3;1,5\n4;2\n",
        Loaded("integer text", [(1, "1.5"), (2, "2,5"), (3, "1,5"), (4, "2")],
               {"a": "several ways"}),
    ),
    "Swiss and French thousands": Messy(
        "n;chf;eur\n1;1'234.50;1\u202f234,50\n2;999.00;12\u00a0345,00\n",
        Loaded("integer numeric numeric",
               [(1, D("1234.50"), D("1234.50")), (2, D("999.00"), D("12345.00"))],
               {"chf": "thousands", "eur": "decimal => ','"}),
    ),
    "a decimal comma within commas": Messy(
        'n,a\n1,"2,5"\n2,"3,75"\n',
        Loaded("integer text", [(1, "2,5"), (2, "3,75")], {"a": "decimal => ','"}),
        Loaded("integer numeric", [(1, D("2.5")), (2, D("3.75"))], options={"decimal": ","}),
    ),
    "exponents": Messy(
        "n,a\n1,1e5\n2,2.5E-3\n",
        Loaded("integer double precision", [(1, 1e5), (2, 2.5e-3)], {"a": "digits"}),
    ),
    "integers of any size": Messy(
        f"n,a\n1,{'9' * 30}\n2,12\n",
        Loaded("integer numeric", [(1, D("9" * 30)), (2, D(12))]),
    ),
    "codes with leading zeros": Messy(
        "n,plz\n1,01067\n2,10115\n",
        Loaded("integer text", [(1, "01067"), (2, "10115")], {"plz": "begin with 0"}),
    ),
    "percent": Messy(
        "n;a\n1;12,5 %\n2;7 %\n",
        Loaded("integer text", [(1, "12,5 %"), (2, "7 %")], {"a": "types =>"}),
        Loaded("integer numeric", [(1, D("12.5")), (2, D(7))], options={"types": {"a": "numeric"}}),
    ),
    "currency": Messy(
        'n,a\n1,"$1,234.50"\n2,$7.00\n',
        Loaded("integer text", [(1, "$1,234.50"), (2, "$7.00")], {"a": "types =>"}),
        Loaded("integer numeric", [(1, D("1234.50")), (2, D("7.00"))],
               options={"types": {"a": "numeric"}}),
    ),
    # -- missing values, blanks and odd ones -------------------------------------------------------
    "several words for nothing": Messy(
        "n,a\n1,12\n2,NA\n3,\n4,-\n",
        Loaded("integer text", [(1, "12"), (2, "NA"), (3, None), (4, "-")],
               {"a": "2 of 3 values are no numbers, the first one in line 3"}),
        Loaded("integer integer", [(1, 12), (2, None), (3, None), (4, None)],
               options={"null": ["NA", "-"]}),
    ),
    "a word among numbers": Messy(
        f"n,a\n1,12\n2,{NAME}\n3,7\n",
        Loaded("integer text", [(1, "12"), (2, NAME), (3, "7")],
               {"a": "1 of 3 values are no numbers, the first one in line 3"}),
        Loaded("integer integer", [(1, 12), (2, None), (3, 7)], options={"null": NAME}),
    ),
    "blanks around everything": Messy(
        " n , a \n 1, x \n2 ,x\n",
        Loaded("integer text", [(1, " x "), (2, "x")], {"a": "trim => true"}),
        Loaded("integer text", [(1, "x"), (2, "x")], options={"trim": True}),
    ),
    "quotes around everything": Messy(
        '"n","a"\r\n"1","x"\r\n"","y"\r\n"3",""\r\n',
        Loaded("integer text", [(1, "x"), (None, "y"), (3, "")], {"a": "null => ''"}),
        Loaded("integer text", [(1, "x"), (None, "y"), (3, None)], options={"null": ""}),
    ),
    "yes and no": Messy(
        "n,a,sex\n1,yes,f\n2,no,f\n",
        Loaded("integer text text", [(1, "yes", "f"), (2, "no", "f")]),
        Loaded("integer boolean text", [(1, True, "f"), (2, False, "f")],
               options={"types": {"a": "boolean"}}),
    ),
    "the same records again": Messy(
        "a,b\n1,x\n1,x\n2,\n", Loaded("integer text", [(1, "x"), (1, "x"), (2, None)], {"": ": 1"})
    ),
    "NUL characters": Messy(
        b"n,a\n1,x\n2,Zz\0yzx\n", 'line 3, column 2 ("a")'
    ),
    # -- dates -------------------------------------------------------------------------------------
    "German dates": Messy(
        "n;am\n1;31.01.2020\n2;1.2.2020\n",
        Loaded("integer date", [(1, JANUARY), (2, date(2020, 2, 1))], {"am": "DD.MM.YYYY"}),
    ),
    "day or month first": Messy(
        "n,am\n1,01/02/2020\n2,03/04/2020\n",
        Loaded("integer text", [(1, "01/02/2020"), (2, "03/04/2020")], {"am": "MM/DD/YYYY"}),
        Loaded("integer date", [(1, date(2020, 1, 2)), (2, date(2020, 3, 4))],
               options={"date_format": "MM/DD/YYYY"}),
    ),
    "Oracle's dates": Messy(
        "n,am\n1,01-JAN-20\n2,31-dec-69\n",
        Loaded("integer date", [(1, date(2020, 1, 1)), (2, date(1969, 12, 31))],
               {"am": "first_year => "}),
        Loaded("integer date", [(1, date(2020, 1, 1)), (2, date(2069, 12, 31))],
               options={"first_year": 1970}),
    ),
    "years of two digits": Messy(
        "n;am\n1;31.01.20\n2;1.2.45\n",
        Loaded("integer text", [(1, "31.01.20"), (2, "1.2.45")], {"am": "=> 'DD.MM.YY'"}),
        Loaded("integer date", [(1, JANUARY), (2, date(1945, 2, 1))],
               {"am": "first_year => 1940"},
               options={"date_format": "DD.MM.YY", "first_year": 1940}),
    ),
    "times with offsets": Messy(
        "n,at\n1,2010-01-23T17:45:28Z\n2,2010-01-23T19:45:28+02:00\n",
        Loaded("integer timestamp with time zone",
               [(n, datetime(2010, 1, 23, 17, 45, 28, tzinfo=UTC)) for n in (1, 2)]),
    ),
    "times with and without offsets": Messy(
        "n,at\n1,2010-01-23T17:45:28Z\n2,2010-01-23T19:45:28\n",
        Loaded("integer text", [(1, "2010-01-23T17:45:28Z"), (2, "2010-01-23T19:45:28")],
               {"at": "several ways"}),
    ),
    "American times": Messy(
        "n,at\n1,01/31/2020 3:45 PM\n2,02/01/2020 12:00 am\n",
        Loaded("integer timestamp",
               [(1, datetime(2020, 1, 31, 15, 45)), (2, datetime(2020, 2, 1))], {"at": "HH12"}),
    ),
    "days that do not exist": Messy(
        "n;am\n1;30.02.2020\n2;1.2.2020\n",
        Loaded("integer text", [(1, "30.02.2020"), (2, "1.2.2020")],
               {"am": "the first one in line 2"}),
    ),
    "German months": Messy(
        "n;am\n1;31-Mai-2020\n2;1-Okt-2020\n",
        Loaded("integer text", [(1, "31-Mai-2020"), (2, "1-Okt-2020")], {"am": "English"}),
    ),
    # -- files -------------------------------------------------------------------------------------
    "UTF-8 with a mark, and Excel's line": Messy(
        b"\xef\xbb\xbfsep=;\r\nn;a\r\n1;\xc3\xa9\r\n", Loaded("integer text", [(1, "é")])
    ),
    "UTF-16": Messy("n\ta\n1\té, x\n".encode("utf-16"), Loaded("integer text", [(1, "é, x")])),
    "Windows-1252": Messy(
        "n;a\n1;é€\n".encode("cp1252"), "encoding => 'cp1252'",
        Loaded("integer text", [(1, "é€")], options={"encoding": "cp1252"}),
    ),
    "UTF-16 that does not say so": Messy(
        "n,a\n1,é\n".encode("utf-16-le"), "encoding => 'utf-16-le'",
        Loaded("integer text", [(1, "é")], options={"encoding": "utf-16-le"}),
    ),
    "bars, and line breaks in quotes, compressed": Messy(
        'n|a\n1|"x\n\ny ""z"""\n', Loaded("integer text", [(1, 'x\n\ny "z"')]), name="file.csv.gz"
    ),
    "open ends, empty lines and empty records": Messy(
        "n;a;\r\n1;x;\r\n\r\n;;\r\n2;y;\r\n;;\r\n",
        Loaded("integer text", [(1, "x"), (2, "y")], {"": "empty lines left out: 3"}),
    ),
    "a line with one field more": Messy(
        f"n,a\n1,x\n2,y,{NAME}\n", "line 3: the header has 2"
    ),
    "names that are there twice, empty or odd": Messy(
        ',"Age\n(years)",Age, Age\nx,1,2,3\ny,4,5,6\n',
        Loaded("text integer integer integer", [("x", 1, 2, 3), ("y", 4, 5, 6)],
               {"column_1": "rename => ", "Age_2": "rename => ", "Age (years)": "rename => "}),
        Loaded("text integer integer integer", [("x", 1, 2, 3), ("y", 4, 5, 6)],
               options={"rename": ["column_1=id", "Age_2=age_then"]}),
    ),
    "a name that is too long": Messy(
        f"n,{'a' * 70}\n1,x\n", "rename => 'OLD=NEW'",
        Loaded("integer text", [(1, "x")], options={"rename": {"a" * 70: "a"}}),
    ),
}  # fmt: skip


FOUND_LATER: Final[dict[str, Messy]] = {
    "codes that differ by a last zero": Messy(
        "n,icd\n1,250.1\n2,250.10\n3,345.2\n",
        Loaded("integer text", [(1, "250.1"), (2, "250.10"), (3, "345.2")],
               {"icd": "1 numbers are written in several ways"}),
        Loaded("integer numeric", [(1, D("250.1")), (2, D("250.10")), (3, D("345.2"))],
               {"icd": "1 numbers are written in several ways, which is not kept"},
               {"types": {"icd": "numeric"}}),
    ),
    "points and commas before three digits": Messy(
        'n,pay\n1,"1,234"\n2,1.234\n',
        Loaded("integer text", [(1, "1,234"), (2, "1.234")], {"pay": "decimal => '.' or"}),
        Loaded("integer numeric", [(1, D(1234)), (2, D("1.234"))], options={"decimal": "."}),
    ),
    "names of months first": Messy(
        'n,am\n1,"Jan 31, 2020"\n2,"February 1, 2020"\n',
        Loaded("integer date", [(1, JANUARY), (2, date(2020, 2, 1))], {"am": "MON DD, YYYY"}),
    ),
    "codes that look like exponents": Messy(
        "n,plate\n1,1E5\n2,100000\n3,12\n",
        Loaded("integer text", [(1, "1E5"), (2, "100000"), (3, "12")], {"plate": "several ways"}),
    ),
    "plus signs": Messy(
        "n,a\n1,+12\n2,12\n",
        Loaded("integer text", [(1, "+12"), (2, "12")], {"a": "1 of 2 begin with +"}),
        Loaded("integer integer", [(1, 12), (2, 12)], options={"types": {"a": "integer"}}),
    ),
    "codes of several lengths": Messy(
        "n,zip\n1,08902\n2,8902\n3,00501\n4,08902-1166\n5,\n",
        Loaded("integer text",
               [(1, "08902"), (2, "8902"), (3, "00501"), (4, "08902-1166"), (5, None)],
               {"zip": "3 of 4 begin with 0, as codes do: kept as texts; 2 of 4 have another length"
                       " than 5 characters"}),
    ),
    "ranges that a spreadsheet took for dates": Messy(
        "n,band\n1,0-4\n2,09-May\n3,Oct-14\n4,15-19\n",
        Loaded("integer text", [(1, "0-4"), (2, "09-May"), (3, "Oct-14"), (4, "15-19")],
               {"band": "2 of 4 look like ranges that a spreadsheet took for dates"}),
    ),
    "births that began in another zone": Messy(
        "n,born\n1,1980-07-01T22:00:00Z\n2,1979-12-31T23:00:00Z\n3,1950-01-17T23:00:00Z\n",
        Loaded("integer timestamp with time zone",
               [(1, datetime(1980, 7, 1, 22, tzinfo=UTC)),
                (2, datetime(1979, 12, 31, 23, tzinfo=UTC)),
                (3, datetime(1950, 1, 17, 23, tzinfo=UTC))],
               {"born": "all times are at 22 or 23 o'clock"}),
    ),
    "days that were written as times": Messy(
        "n,on\n1,2020-01-31 00:00:00\n2,2020-01-31 00:00:00\n3,2020-02-01 00:00:00\n",
        Loaded("integer timestamp", [(1, datetime(2020, 1, 31)), (2, datetime(2020, 1, 31)),
                                     (3, datetime(2020, 2, 1))], {"on": "are midnight"}),
        Loaded("integer date", [(1, JANUARY), (2, JANUARY), (3, date(2020, 2, 1))],
               options={"types": {"on": "date"}}),
    ),
    "BigQuery's times": Messy(
        "n,at\n1,2020-01-31 10:00:00 UTC\n2,2020-01-31 11:30:00 UTC\n",
        Loaded("integer timestamp with time zone",
               [(1, datetime(2020, 1, 31, 10, tzinfo=UTC)),
                (2, datetime(2020, 1, 31, 11, 30, tzinfo=UTC))]),
    ),
    "MySQL's missing dates": Messy(
        "n,at\n1,2020-01-31\n2,0000-00-00\n",
        Loaded("integer text", [(1, "2020-01-31"), (2, "0000-00-00")],
               {"at": "the first one in line 3: correct them, or null => '0000-00-00'"}),
        Loaded("integer date", [(1, JANUARY), (2, None)], options={"null": "0000-00-00"}),
    ),
    "months without days, and SAS's times": Messy(
        "month,at\n2020-01,01JAN2020:10:11:12\n2020-02,02FEB2020:10:11:13\n",
        Loaded("text timestamp", [("2020-01", datetime(2020, 1, 1, 10, 11, 12)),
                                  ("2020-02", datetime(2020, 2, 2, 10, 11, 13))],
               {"month": "without a day", "at": "date_format => 'DDMONYYYY:HH24:MI:SS'"}),
    ),
    "inches": Messy(
        f'n\ta\td\n1\tx "large\tD\n2\t{NAME}\tD\n3\tNeedle 5"\tD\n',
        'line 2, column 2 ("a")',
        Loaded("integer text text", [(1, 'x "large', "D"), (2, NAME, "D"), (3, 'Needle 5"', "D")],
               options={"quote": "none"}),
    ),
    "one quote": Messy(
        f'n\ta\n1\tx\n2\t{NAME}"s\n3\ty\n', 'line 3, column 2 ("a")',
        Loaded("integer text", [(1, "x"), (2, f'{NAME}"s'), (3, "y")], options={"quote": "none"}),
    ),
    "a quote that nothing closes": Messy(
        f'n,a\n1,x\n2,"{NAME}\n3,y\n', 'line 3, column 2 ("a")',
        Loaded("integer text", [(1, "x"), (2, f'"{NAME}'), (3, "y")], options={"quote": "none"}),
    ),
    "something after a quoted field": Messy(f'n,a\n1,"x"\n2,"{NAME}" y\n', "line 3, column 2"),
    "MySQL's quotes": Messy(
        'n,say\n1,"he said \\"no\\" twice"\n2,"\\\\, \\"x\\""\n', 'line 2, column 2 ("say")',
        Loaded("integer text", [(1, 'he said "no" twice'), (2, '\\, "x"')],
               options={"escape": "backslash"}),
    ),
    "blanks before quotes": Messy(
        'n, "a, b"\n1, "x, y"\n2, z\n',
        Loaded("integer text", [(1, " x, y"), (2, " z")], {"a, b": "trim => true"}),
        Loaded("integer text", [(1, "x, y"), (2, "z")], options={"trim": True}),
    ),
    "mixed line ends": Messy(
        'n,a\r\n1,x\n2,"y\r\nz"\r\n3,\n\n',
        Loaded("integer text", [(1, "x"), (2, "y\r\nz"), (3, None)], {"": "left out: 1"}),
    ),
    "a line end of another kind within a field": Messy(
        f"n,a\n1,x\n2,y\r{NAME}\n", 'line 3, column 2 ("a")'
    ),
    "lines of old Macintoshes": Messy(
        "n,a\r1,x\r2,y\r", Loaded("integer text", [(1, "x"), (2, "y")])
    ),
    "a title before the header": Messy(
        "Report of 2020\n\nn;a\n1;x\n2;y\n", "skip => 2",
        Loaded("integer text", [(1, "x"), (2, "y")], options={"skip": 2}),
    ),
    "a title in the first cell": Messy(
        "Report of 2020,,\nn,a,b\n1,x,z\n2,y,z\n", "skip => 1",
        Loaded("integer text text", [(1, "x", "z"), (2, "y", "z")], options={"skip": 1}),
    ),
    "columns that PostgreSQL has itself": Messy(
        "n,xmin\n1,x\n", "rename => 'xmin=NEW'",
        Loaded("integer text", [(1, "x")], options={"rename": "xmin=least"}),
    ),
    "more columns than a table has": Messy(
        ",".join(f"c{n}" for n in range(1601)) + "\n", "1,601 of at most 1,600"
    ),
    "records that no page holds": Messy(
        ",".join(f"c{n}" for n in range(1500)) + "\n" + ",".join(["x" * 20] * 1500) + "\n",
        "line 3 or before",
    ),
    "types with a length": Messy(
        "n,zip,flags,cost,at\n1,01067,101,12.36,2020-01-31 10:00:00.7\n",
        Loaded("integer text integer numeric timestamp",
               [(1, "01067", 101, D("12.36"), datetime(2020, 1, 31, 10, 0, 0, 700_000))]),
        Loaded("integer character(5) bit(3) numeric(6,1) timestamp(0) without time zone",
               [(1, "01067", "101", D("12.4"), datetime(2020, 1, 31, 10, 0, 1))],
               {"cost": "1 of its values are rounded to numeric(6,1)", "at": "are rounded to"},
               {"types": {"zip": "char(5)", "flags": "bit(3)", "cost": "numeric(6,1)",
                          "at": "timestamp(0)"}}),
    ),
    "days of times": Messy(
        "n,at\n1,2020-01-31 10:00\n2,2020-01-31 00:00\n",
        Loaded("integer timestamp", [(1, datetime(2020, 1, 31, 10)), (2, datetime(2020, 1, 31))]),
        Loaded("integer date", [(1, JANUARY), (2, JANUARY)],
               {"at": "1 of its values lose their time of day"}, {"types": {"at": "date"}}),
    ),
    "members of households": Messy(
        "hhid,age\n1,30\n1,31\n2,40\n",
        Loaded("integer integer", [(1, 30), (1, 31), (2, 40)], {"hhid": "1 of its values"}),
    ),
}  # fmt: skip
"""What was first loaded wrongly, or refused without saying why."""

LOST: Final = {
    "a text": ("n,a\n1,x\n2,xyz\n", "varchar(2)", 'line 3, column 2 ("a")'),
    "a text of a fixed length": ("n,a\n1,01067\n2,010671\n", "char(5)", "line 3, column 2"),
    "bits": ("n,a\n1,101\n2,10\n", "bit(3)", "line 3, column 2"),
    "a zone, and a day": ("n,a\n1,1979-12-31T23:00:00Z\n", "date", "line 2, column 2"),
    "a zone": ("n,a\n1,1979-12-31T23:00:00+01:00\n", "timestamp", "line 2, column 2"),
    "the order of day and month": ("n,a\n1,01/02/2020\n", "date", 'column "a"'),
}
"""Files, a type that would take something from column ``a``, and where it does."""


@pytest.fixture(scope="module")
def server(module_database: str) -> Iterator[psycopg.Connection]:
    with open_connection(module_database) as connection:
        yield connection


def test_there_are_forty() -> None:
    assert len(FILES) == 40


@pytest.mark.pitfall(71)
@pytest.mark.parametrize("what", [*FILES, *FOUND_LATER])
def test_none_is_silently_wrong(server: psycopg.Connection, tmp_path: Path, what: str) -> None:
    messy = {**FILES, **FOUND_LATER}[what]
    data = messy.text.encode() if isinstance(messy.text, str) else messy.text
    path = tmp_path / messy.name
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    if isinstance(messy.at_first, str):
        with pytest.raises(KanonError) as refused:
            load(server, path, {})
        error = refused.value
        assert messy.at_first in f"{error.detail} {error.hint}"
        assert NAME not in f"{error.message} {error.detail} {error.hint}"
    else:
        check(server, path, messy.at_first)
    if messy.then is not None:
        check(server, path, messy.then)


@pytest.mark.pitfall(72)
@pytest.mark.parametrize("what", LOST)
def test_no_type_takes_something_from_a_value(
    server: psycopg.Connection, tmp_path: Path, what: str
) -> None:
    text, kind, where = LOST[what]
    path = tmp_path / "file.csv"
    path.write_text(text)
    with pytest.raises(KanonError) as refused:
        load(server, path, {"types": {"a": kind}})
    assert where in refused.value.detail
    assert refused.value.hint


def load(server: psycopg.Connection, path: Path, options: Mapping[str, Any]) -> Any:
    return Kanon(PsycopgSession(server)).load(path, TABLE, replace=True, **options)


def check(server: psycopg.Connection, path: Path, expected: Loaded) -> None:
    report = load(server, path, expected.options)
    assert " ".join(kind for _, kind in report.columns) == expected.types
    found = fetch(server, f"SELECT * FROM {TABLE}")
    assert found == expected.rows
    assert [[*map(type, row)] for row in found] == [[*map(type, row)] for row in expected.rows]
    told = {**report.notes, "": " ".join(report.remarks)}
    for column, words in expected.notes.items():
        assert words in told[column], told
    shown = " ".join(told.values())
    assert NAME not in shown
    assert " => " not in for_shell(shown)  # whatever a note names is an option
    missing = zip(*expected.rows, strict=True)
    assert [column.count(None) for column in missing] == [
        report.missing.get(name, 0) for name, _ in report.columns
    ]
    assert report.duplicates == len(expected.rows) - len(set(expected.rows))
