"""Readers of CSV files beside `kanon load`, on files as people have them.

The files are those of ``tests/acceptance/test_messy_files.py``, which says what each means. Readers
guess all by themselves. One is right if each value is the one that is meant, or its text; a refusal
is honest; anything else is wrong without a word, and so is a guess of what could mean two things.

clevercsv and DuckDB are compared where they are installed: ``pip install clevercsv duckdb``.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd
import psycopg

from benchmarks.harness import private_server, table
from kanon_db.errors import KanonError
from kanon_db.interfaces.python import Kanon
from kanon_db.session.psycopg_session import PsycopgSession, open_connection
from tests.acceptance.test_messy_files import FILES, FOUND_LATER, Loaded, Messy

Rows = list[tuple[Any, ...]]
LIMITS_OF_TABLES = {
    "columns that PostgreSQL has itself", "more columns than a table has",
    "records that no page holds",
}  # fmt: skip
"""Files that are refused for what a table of PostgreSQL is."""

DOUBTFUL = {"decimal", "date_format", "first_year", "types"}
"""Options that say which of two things a file means."""


def sniff(path: Path) -> Rows:
    """Read as the standard library's sniffer says."""
    text = _text(path)
    dialect = csv.Sniffer().sniff(text[: 1 << 16])
    return [tuple(row) for row in csv.reader(io.StringIO(text), dialect)][1:]


def sniff_cleverly(path: Path) -> Rows:
    """Read as clevercsv's sniffer says."""
    import clevercsv

    text = _text(path)
    dialect = clevercsv.Sniffer().sniff(text[: 1 << 16])
    return [tuple(row) for row in clevercsv.reader(io.StringIO(text), dialect)][1:]


def read_frame(path: Path) -> Rows:
    """Read with pandas, which asks the sniffer for the delimiter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = pd.read_csv(path, sep=None, engine="python")
    return [tuple(None if pd.isna(value) else value for value in row)
            for row in frame.itertuples(index=False)]  # fmt: skip


def read_duck(path: Path) -> Rows:
    """Read with DuckDB."""
    import duckdb

    rows: Rows = duckdb.connect().execute("SELECT * FROM read_csv(?)", [str(path)]).fetchall()
    return rows


READERS: dict[str, tuple[str, Callable[[Path], Rows]]] = {
    "csv.Sniffer": ("", sniff),
    "clevercsv": ("clevercsv", sniff_cleverly),
    "pandas": ("pandas", read_frame),
    "DuckDB": ("duckdb", read_duck),
}


def _text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def is_right(rows: Rows, messy: Messy) -> bool:
    """Tell whether each value is one that the file means."""
    cases = [case for case in (messy.at_first, messy.then) if isinstance(case, Loaded)]
    return any(
        len(rows) == len(case.rows)
        and all(
            len(row) == len(other) and all(map(_is_same, row, other))
            for row, other in zip(rows, case.rows, strict=True)
        )
        for case in cases
        if not DOUBTFUL & case.options.keys() or case is messy.at_first
    )


def _is_same(value: Any, meant: Any) -> bool:
    if value in (None, "") or meant in (None, ""):
        return value in (None, "") and meant in (None, "")
    if isinstance(meant, str):  # a number of another type is right if it is written alike
        return str(value).strip() == meant.strip()
    if isinstance(value, str):  # a text, of which nothing is lost
        return True
    if isinstance(meant, date):
        return isinstance(value, date) and _moment(value) == _moment(meant)
    with suppress(InvalidOperation, ValueError):
        return isinstance(value, bool) == isinstance(meant, bool) and (
            abs(Decimal(str(value)) - Decimal(str(meant))) <= abs(Decimal(str(meant))) / 10**12
        )
    return False


def _moment(day: date) -> float:
    if not isinstance(day, datetime):
        day = datetime(day.year, day.month, day.day)
    return (day.replace(tzinfo=None) - (day.utcoffset() or day - day)).timestamp()


def verdict(reader: Callable[[Path], Rows], path: Path, messy: Messy) -> str:
    """Say what a reader makes of a file."""
    try:
        rows = reader(path)
    except Exception:  # noqa: BLE001  # each reader has errors of its own
        return "refused"
    return "right" if is_right(rows, messy) else "**wrong**"


def load_and_tell(server: psycopg.Connection, path: Path, messy: Messy) -> str:
    """Say what `kanon load` makes of a file."""
    try:
        report = Kanon(PsycopgSession(server)).load(path, "compared", replace=True)
    except KanonError:
        return "refused"
    rows = server.execute("SELECT * FROM compared").fetchall()
    if not is_right(rows, messy):
        return "**wrong**"
    return "noted" if report.notes or report.remarks else "right"


def measure(server: psycopg.Connection, folder: Path) -> str:
    """Load 1,000,000 records, beside COPY into a table that has their types."""
    path, draw = folder / "many.csv", random.Random(1)  # noqa: S311
    with path.open("w") as file:
        file.write("id,age,zip,income,born,ill,note,visit,flag,score\n")
        for i in range(1_000_000):
            day = date.fromordinal(710_000 + draw.randrange(29_000))
            file.write(f'{i},{draw.randrange(100)},{draw.randrange(10**5):05d},'
                       f'{draw.randrange(10**6) / 100:.2f},{day},{draw.choice(["flu", "cold"])},'
                       f'"note {i}, x",{day} 1{i % 10}:3{i % 10}:00,{"tf"[i % 2]},'
                       f'{draw.random():.6f}\n')  # fmt: skip

    def cpu() -> float:
        numbers = Path(f"/proc/{server.info.backend_pid}/stat").read_text().rpartition(")")[2]
        return sum(map(int, numbers.split()[11:13])) / 100 + time.process_time()

    server.execute("CREATE TABLE copied (id int, age int, zip text, income numeric, born date, ill"
                   " text, note text, visit timestamp, flag boolean, score numeric)")  # fmt: skip
    started = cpu()
    with (
        server.cursor().copy("COPY copied FROM STDIN WITH (FORMAT csv, HEADER)") as copy,
        path.open("rb") as source,
    ):
        while block := source.read(1 << 20):
            copy.write(block)
    copied, started = cpu() - started, cpu()
    Kanon(PsycopgSession(server)).load(path, "loaded")
    loaded = cpu() - started
    size = path.stat().st_size / 1e6
    said = (
        f"1,000,000 records of 10 columns ({size:.0f} MB) take {loaded:.1f} s of CPU, client and"
        f" server together; COPY into a table that has the types takes {copied:.1f} s."
    )
    return f"{said}\n"


def main() -> str:
    """Compare the readers on each file."""
    readers = {}
    for name, (package, reader) in READERS.items():
        with suppress(PackageNotFoundError):
            readers[f"{name} {version(package)}" if package else name] = reader
    counts = {name: {"right": 0, "noted": 0, "refused": 0, "**wrong**": 0}
              for name in [*readers, "kanon load"]}  # fmt: skip
    rows = []
    with (
        tempfile.TemporaryDirectory() as name,
        private_server() as dsn,
        open_connection(dsn) as server,
    ):
        folder = Path(name)
        for what, messy in {**FILES, **FOUND_LATER}.items():
            if what in LIMITS_OF_TABLES:
                continue
            data = messy.text.encode() if isinstance(messy.text, str) else messy.text
            path = folder / messy.name
            path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
            said = [verdict(reader, path, messy) for reader in readers.values()]
            said.append(load_and_tell(server, path, messy))
            for own, word in zip(counts.values(), said, strict=True):
                own[word] += 1
            rows.append((what, *said))
        speed = measure(server, folder)
    kinds: Sequence[str] = ["right", "noted", "refused", "**wrong**"]
    totals = [(reader, *(n[kind] for kind in kinds)) for reader, n in counts.items()]
    told = (
        "Right is a table in which each value is the one that the file means, or its text; a guess"
        " of what could mean two things is wrong. Only `kanon load` says what it guesses: noted."
        " None of the others reads all files as they are, so PostgreSQL's COPY reads what has been"
        " checked, without a further dependency; DuckDB has 66 MB.\n"
    )
    tables = [table(["reader", *kinds], totals), table(["file", *counts], rows)]
    return "\n".join([told, *tables, speed])
