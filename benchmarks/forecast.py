"""What publishing was said to need, beside what it took, for every kind, on tables of all sorts.

Memory is the most private memory of the backend during the call, above that before; disk is the
most that the database's folder and temporary files grew by. Both are looked at every few
milliseconds, so that a short peak may be missed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.harness import PrivateMemory, Watch, private_server, table

PRIVACY: Final = '\'{"theta": 8, "base": 0.02}\''
_CARDINALITIES: Final = (72, 7, 16, 5, 2, 41, 9, 100, 30, 12, 25, 60)


def _draw(i: int) -> str:
    return f"floor(power(random(), 2) * {_CARDINALITIES[i]})::int"


_VALUES: Final[dict[str, Callable[[int], str]]] = {
    "numbers": _draw,
    "texts": lambda i: f"'value number ' || {_draw(i)}",
    "long texts": lambda i: f"repeat(md5(({_draw(i)})::text), 6)",
    "a unique number": lambda i: _draw(i) if i else "(random() * 1e9)::int",
    "a unique text": lambda i: _draw(i) if i else "'person ' || number",
}
"""Tables by what their columns hold."""

_BUCKETS: Final = (
    "assignment => 'random'",
    "assignment => 'cells'",
)
_LARGE: Final = (
    *(("buckets", f"privacy => {PRIVACY}, {how}") for how in _BUCKETS),
    ("generalized", "k => 10, method => 'mondrian', refine => false"),
    ("suppressed", "k => 5"),
)
_MEDIUM: Final = (
    *_LARGE,
    ("buckets", f"privacy => {PRIVACY}, method => 'multi_size'"),
    ("generalized", "k => 10, method => 'greedy_search', refine => false"),
    ("freeform", "k => 2, options => '{\"refine\": false}'"),
    ("freeform", "k => 10, options => '{\"refine\": false}'"),
)
_OF_SETS: Final = (
    ("generalized", "k => 2, method => 'mondrian', options => '{\"time_limit\": 10}'"),
    ("generalized", "k => 10, method => 'mondrian', refine => false, constraints => '{\"l\": 3}'"),
    ("generalized", "k => 10, method => 'mondrian', refine => false, max_suppressed => 0.05"),
)
"""Searches that keep sets of values: with very many, their memory is known only after reading."""
_SMALL: Final = (
    *_MEDIUM,
    *_OF_SETS,
    ("buckets", f"privacy => {PRIVACY}, method => 'optimal', max_bucket_size => 2000"),
    ("generalized", "k => 3, method => 'split_carry', refine => false"),
    ("generalized", "k => 10, method => 'k_member', refine => false"),
    ("freeform", "k => 5"),
    ("freeform", "k => 50, method => 'greedy'"),
    ("suppressed", "k => 5, method => 'optimal', options => '{\"time_limit\": 30}'"),
)
CASES: Final = (
    (2_000, 6, _SMALL, ("texts", "a unique text")),
    (100_000, 6, _MEDIUM, ("numbers", "a unique text")),
    (100_000, 6, (*_MEDIUM, *_OF_SETS), ("texts",)),
    (100_000, 12, _LARGE, ("texts", "long texts")),
    (1_000_000, 6, _LARGE, ("numbers", "texts", "a unique number", "a unique text")),
)
"""Records, quasi-identifiers, calls, tables."""


@dataclass(frozen=True)
class Trial:
    """What was foretold, and what was taken, in MB."""

    call: str
    foretold: tuple[float, float]
    taken: tuple[float, float]

    def ratio(self, of: int) -> float | None:
        """Memory (0) or disk (1), if there is enough of it to compare."""
        return self.foretold[of] / self.taken[of] if self.taken[of] >= _LEAST else None


_LEAST: Final = 10.0
"""MB: what is less than that is not compared."""


def main() -> str:
    """Return the results as Markdown."""
    trials = []
    with private_server() as dsn:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute(
                "INSERT INTO kanon.setting VALUES ('publish_memory', '1 TB'),"
                " ('publish_disk', '1 TB')"
            )
        for n_records, n_columns, calls, sorts in CASES:
            for sort in sorts:
                _make(dsn, sort, n_records, n_columns)
                for kind, parameters in calls:
                    trials.append(
                        Trial(f"{kind}, {parameters}", *_published(dsn, kind, parameters))
                    )
                    print(sort, n_records, trials[-1], file=sys.stderr, flush=True)
    tables = ", ".join(
        f"{n_records:,} x {n_columns + 1} ({', '.join(sorts)})"
        for n_records, n_columns, _, sorts in CASES
    )
    rows = []
    for call in dict.fromkeys(trial.call for trial in trials):
        own = [trial for trial in trials if trial.call == call]
        rows.append(
            [f"`{call}`", len(own),
             _span([trial.taken[0] for trial in own], " MB"),
             _span([trial.ratio(0) for trial in own]),
             _span([trial.taken[1] for trial in own], " MB"),
             _span([trial.ratio(1) for trial in own])]
        )  # fmt: skip
    return (
        f"{len(trials)} publications of tables of {tables}: the forecast of memory was"
        f" {_span([trial.ratio(0) for trial in trials])} times what was taken, and that of disk"
        f" {_span([trial.ratio(1) for trial in trials])} times, where more than {_LEAST:.0f} MB"
        " were taken.\n\n"
        + table(
            ["publication", "tables", "memory taken", "forecast / taken", "disk taken",
             "forecast / taken"],
            rows,
        )
    )  # fmt: skip


def _span(values: Sequence[float | None], unit: str = "") -> str:
    """Write the least and the greatest."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    digits = 0 if unit else 1
    least, most = f"{min(known):,.{digits}f}", f"{max(known):,.{digits}f}"
    return f"{least if least == most else f'{least} to {most}'}{unit}"


def _make(dsn: str, sort: str, n_records: int, n_columns: int) -> None:
    value = _VALUES[sort]
    names = [f"q{i}" for i in range(n_columns)]
    columns = ", ".join(f"{value(i)} AS {name}" for i, name in enumerate(names))
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("DROP TABLE IF EXISTS people")
        admin.execute(
            f"CREATE TABLE people AS SELECT {columns}, 'disease ' || {_draw(3)} AS sick"
            f" FROM generate_series(1, {n_records}) AS number"
        )
        admin.execute("VACUUM ANALYZE people")
        admin.execute("SELECT kanon.register_source('public.people', %s, 'sick')", (names,))


def _published(
    dsn: str, kind: str, parameters: str
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Publish in a new session; the megabytes of memory and disk that were foretold, and taken."""
    notices: list[str] = []
    with psycopg.connect(dsn, autocommit=True) as publisher:
        publisher.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        with (
            _disk(dsn) as disk,
            PrivateMemory(publisher.info.backend_pid) as memory,
            # A dry run would also evaluate and attack it, which takes memory of its own.
            publisher.transaction(force_rollback=True),
        ):
            publisher.execute(
                f"SELECT FROM kanon.publish_{kind}('public.people', 'out', {parameters})"
            )
    (told,) = (notice for notice in notices if " needs some " in notice)
    sizes = re.findall(r"([\d.,]+) (MB|GB) of", told)
    in_memory, on_disk = (
        float(size.replace(",", "")) * (1024 if unit == "GB" else 1) for size, unit in sizes
    )
    return (in_memory, on_disk), (memory.needed, disk.needed)


@contextmanager
def _disk(dsn: str) -> Iterator[Watch]:
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("CHECKPOINT")
        ((data, database),) = admin.execute(
            "SELECT current_setting('data_directory'), oid::text FROM pg_database"
            " WHERE datname = current_database()"
        )
    folders = [Path(data, "base", name) for name in (database, "pgsql_tmp")]
    with Watch(lambda: sum(map(_size, folders)), every=0.05) as watch:
        yield watch


def _size(folder: Path) -> float:
    """Return the megabytes of a folder's files; some vanish while they are looked at."""
    total = 0
    for file in folder.glob("**/*"):
        try:
            total += file.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total / 2**20
