"""Hierarchies as ARX keeps them: CSV files of a value and its labels in each line, no header."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Final

from kanon_db.errors import InvalidParameterError
from kanon_db.transfer.csv_file import CsvFile

_MOST_BYTES: Final = 20_000_000
_MARKED: Final = re.compile(r"[\ud800-\udfff]")


def read_hierarchy(path: Path) -> dict[str, list[str]]:
    """Read the labels of each value, the narrowest first.

    Parameters
    ----------
    path : Path
        In UTF-8, or with a byte-order mark; separated by semicolons, commas, tabs or bars.

    Returns
    -------
    dict of str to list of str

    Raises
    ------
    NotFoundError
        When there is no such file.
    InvalidParameterError
        It says in which line the file is no hierarchy.
    """
    file = CsvFile.of(path)
    if path.stat().st_size > _MOST_BYTES:
        raise InvalidParameterError(
            "the file of a hierarchy is too long",
            detail=f"{path.name}: more than {_MOST_BYTES:,} bytes",
            hint="give the source a view with wider values",
        )
    labels: dict[str, list[str]] = {}
    line, width = 1, 0
    try:
        with file.opened(errors="surrogateescape") as text:
            reader = csv.reader(text, delimiter=file.delimiter, strict=True)
            for row in reader:
                if row:
                    width = width or len(row)
                    _check(row, width, labels, f"{path.name}, line {line}")
                    labels[row[0]] = row[1:]
                line = reader.line_num + 1
    except csv.Error:
        raise InvalidParameterError(
            "a line cannot be read as CSV",
            detail=f"{path.name}, line {line}",
            hint='in a quoted field, write each quote twice: "say ""yes"""',
        ) from None
    if not labels:
        raise InvalidParameterError(
            "the file of a hierarchy is empty", detail=path.name, hint=f"{_HINT}, a line for each"
        )
    return labels


def _check(row: list[str], width: int, before: dict[str, list[str]], where: str) -> None:
    if any(_MARKED.search(field) for field in row):
        raise InvalidParameterError(
            "the file is in another encoding", detail=f"{where}: not UTF-8", hint="save it as UTF-8"
        )
    if any("\0" in field for field in row):
        raise InvalidParameterError(
            "the file contains a NUL character", detail=where, hint="save it as UTF-8"
        )
    if len(row) != width or width < 2 or not all(row[1:]):
        raise InvalidParameterError(
            "a line is no value with its labels",
            detail=f"{where}: {len(row)} fields, {sum(map(bool, row))} of them not empty; the first"
            f" line has {width}",
            hint=f"{_HINT}; repeat a label where a value has no other at a level",
        )
    if row[0] in before:
        raise InvalidParameterError(
            "a value of a hierarchy has two lines", detail=where, hint="leave one of them out"
        )


_HINT: Final = "write a value and its labels, the narrowest first, such as BSc;degree;any"
